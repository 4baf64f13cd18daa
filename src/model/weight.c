/* Decodes rows of any weight descriptor from the checkpoint's mapping. Called at load, row by row, by every device's
 * repacking, and by references. Tensors begin at any byte, so every load is a memcpy.
 */
#include "model/weight.h"

#include "base/float16.h"
#include "base/size.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { OCTET = 8, /* codes; eight codes of b bits fill b whole bytes */ CHUNK = 256 /* codes decoded at once */ };

typedef struct map_facts {
    const char *name;
    bool is_dense;
} map_facts;

static const map_facts maps[] = {
    [LW_MAP_BF16] = { "bf16", true },   [LW_MAP_FP16] = { "fp16", true },      [LW_MAP_FP32] = { "fp32", true },
    [LW_MAP_INTEGER] = { "int", false }, [LW_MAP_TABLE16] = { "table", false }, [LW_MAP_E4M3] = { "e4m3", false },
};
_Static_assert(sizeof maps / sizeof maps[0] == LW_MAP_COUNT, "the last map has a row");

void lw_weight_format(const lw_weight *weight, char text[32])
{
    LW_ASSERT((unsigned)weight->map < LW_MAP_COUNT);
    const map_facts *facts = &maps[weight->map];
    char bits[12] = "";
    if (weight->map == LW_MAP_INTEGER || weight->map == LW_MAP_TABLE16)
        snprintf(bits, sizeof bits, "%u", (unsigned)weight->code_bits);
    if (weight->group == 0) snprintf(text, 32, "%s%s", facts->name, bits);
    else snprintf(text, 32, "%s%s group %u", facts->name, bits, (unsigned)weight->group);
}

uint64_t lw_weight_bytes(const lw_weight *weight)
{
    uint64_t bytes = weight->codes == NULL ? 0 : weight->codes->byte_count;
    if (weight->scales != NULL) bytes += weight->scales->byte_count;
    if (weight->biases != NULL) bytes += weight->biases->byte_count;
    return bytes;
}

/* The stored bytes of one row of codes, scales or biases: a tensor is stack * rows equal rows. */
static const uint8_t *row_of(const lw_weight *weight, const lw_tensor *tensor, uint32_t stack, uint32_t row)
{
    LW_ASSERT(stack < weight->stack_count && row < weight->rows);
    const size_t row_count = (size_t)weight->stack_count * weight->rows;
    return tensor->bytes + tensor->byte_count / row_count * ((size_t)stack * weight->rows + row);
}

/* Eight codes of constant bits; inlined once per width, so that the compiler sees the shifts. */
static inline void decode_octet(const uint8_t *bytes, unsigned bits, uint8_t *codes)
{
    uint64_t stream = 0;
    memcpy(&stream, bytes, bits);
    const uint8_t mask = (uint8_t)((1u << bits) - 1u);
    for (unsigned i = 0; i < OCTET; i++) codes[i] = (uint8_t)(stream >> i * bits) & mask;
}

#define DECODE(BITS) \
    static void decode_##BITS(const uint8_t *restrict bytes, uint8_t *restrict codes, size_t octets) \
    { \
        for (size_t i = 0; i < octets; i++) decode_octet(bytes + i * (BITS), BITS, codes + i * OCTET); \
    }
DECODE(2)
DECODE(3)
DECODE(5)
DECODE(6)

/* By byte, because this form vectorises. */
static void decode_4(const uint8_t *restrict bytes, uint8_t *restrict codes, size_t octets)
{
    for (size_t i = 0; i < octets * OCTET / 2; i++) {
        codes[2 * i] = bytes[i] & 15u;
        codes[2 * i + 1] = bytes[i] >> 4;
    }
}

static void decode_8(const uint8_t *restrict bytes, uint8_t *restrict codes, size_t octets)
{
    memcpy(codes, bytes, octets * OCTET);
}

typedef void decoder(const uint8_t *restrict bytes, uint8_t *restrict codes, size_t octets);
static decoder *const decoders[] = {
    [2] = decode_2, [3] = decode_3, [4] = decode_4, [5] = decode_5, [6] = decode_6, [8] = decode_8,
};

/* Codes [begin, begin + count) of a row; begin is a multiple of 8. */
static void decode_codes(const lw_weight *weight, const uint8_t *row, size_t begin, size_t count, uint8_t *codes)
{
    const unsigned bits = weight->code_bits;
    LW_ASSERT(bits < sizeof decoders / sizeof decoders[0] && decoders[bits] != NULL);
    LW_ASSERT(begin % OCTET == 0);
    const uint8_t *bytes = row + begin / OCTET * bits;
    const size_t octets = count / OCTET, rest = count % OCTET;
    decoders[bits](bytes, codes, octets);
    if (rest == 0) return;
    uint8_t last[OCTET] = { 0 }, last_codes[OCTET];
    memcpy(last, bytes + octets * bits, size_div_up(rest * bits, 8));
    decoders[bits](last, last_codes, 1);
    memcpy(codes + octets * OCTET, last_codes, rest);
}

void lw_weight_codes8(const lw_weight *weight, uint32_t stack, uint32_t row, uint8_t *codes8)
{
    LW_ASSERT(weight->order == LW_ORDER_ROWS);
    decode_codes(weight, row_of(weight, weight->codes, stack, row), 0, weight->cols, codes8);
}

void lw_weight_codes16(const lw_weight *weight, uint32_t stack, uint32_t row, uint16_t *codes16)
{
    LW_ASSERT(weight->order == LW_ORDER_ROWS && weight->code_bits == 16);
    memcpy(codes16, row_of(weight, weight->codes, stack, row), (size_t)weight->cols * sizeof *codes16);
}

static float load_float(const uint8_t *bytes, lw_dtype dtype, size_t index)
{
    uint16_t half;
    float value;
    if (dtype == LW_DTYPE_F32) {
        memcpy(&value, bytes + index * sizeof value, sizeof value);
        return value;
    }
    memcpy(&half, bytes + index * sizeof half, sizeof half);
    return dtype == LW_DTYPE_BF16 ? lw_float_of_bf16(half) : lw_float_of_fp16(half);
}

/* e4m3fn: bias 7, no infinity, all ones is NaN. */
static float float_of_e4m3(uint8_t code)
{
    const unsigned exponent = code >> 3 & 15u, mantissa = code & 7u;
    float magnitude;
    if (exponent == 15 && mantissa == 7) magnitude = NAN;
    else if (exponent == 0) magnitude = ldexpf((float)mantissa, -9);
    else magnitude = ldexpf((float)(8 + mantissa), (int)exponent - 10);
    return code & 0x80u ? -magnitude : magnitude;
}

static float map_code(const lw_weight *weight, uint8_t code)
{
    if (weight->map == LW_MAP_TABLE16) return weight->table[code & 15u];
    if (weight->map == LW_MAP_E4M3) return float_of_e4m3(code);
    return (float)code;
}

static lw_dtype dense_dtype(lw_map map)
{
    if (map == LW_MAP_FP32) return LW_DTYPE_F32;
    return map == LW_MAP_FP16 ? LW_DTYPE_F16 : LW_DTYPE_BF16;
}

void lw_weight_scales(const lw_weight *weight, uint32_t stack, uint32_t row, float *scales, float *biases)
{
    LW_ASSERT(weight->group > 0);
    const size_t groups = size_div_up(weight->cols, weight->group);
    const uint8_t *stored = row_of(weight, weight->scales, stack, row);
    for (size_t g = 0; g < groups; g++) scales[g] = load_float(stored, weight->scale_type, g);
    if (weight->has_bias) {
        stored = row_of(weight, weight->biases, stack, row);
        for (size_t g = 0; g < groups; g++) biases[g] = load_float(stored, weight->scale_type, g);
    } else {
        for (size_t g = 0; g < groups; g++) biases[g] = weight->bias_per_scale * scales[g];
    }
}

void lw_weight_scales16(const lw_weight *weight, uint32_t stack, uint32_t row, uint16_t *scales, uint16_t *biases)
{
    LW_ASSERT(weight->group > 0 && weight->has_bias && lw_dtype_bytes(weight->scale_type) == sizeof *scales);
    const size_t bytes = size_div_up(weight->cols, weight->group) * sizeof *scales;
    memcpy(scales, row_of(weight, weight->scales, stack, row), bytes);
    memcpy(biases, row_of(weight, weight->biases, stack, row), bytes);
}

/* Scale and bias of one group in double. */
typedef struct affine {
    double scale;
    double bias;
} affine;

static affine affine_of(const lw_weight *weight, uint32_t stack, uint32_t row, size_t group)
{
    if (weight->group == 0) return (affine){ .scale = 1.0 };
    const uint8_t *scales = row_of(weight, weight->scales, stack, row);
    affine a = { .scale = load_float(scales, weight->scale_type, group) };
    if (weight->has_bias) a.bias = load_float(row_of(weight, weight->biases, stack, row), weight->scale_type, group);
    else a.bias = (double)weight->bias_per_scale * a.scale;
    return a;
}

/* Values [begin, begin + count) of a row that has codes; begin is a multiple of CHUNK, count at most CHUNK. */
static void chunk_f64(const lw_weight *weight, uint32_t stack, uint32_t row, size_t begin, size_t count,
                      double *values)
{
    uint8_t codes[CHUNK];
    affine a = affine_of(weight, stack, row, weight->group == 0 ? 0 : begin / weight->group);
    decode_codes(weight, row_of(weight, weight->codes, stack, row), begin, count, codes);
    for (size_t i = 0; i < count; i++) {
        if (weight->group > 0 && (begin + i) % weight->group == 0)
            a = affine_of(weight, stack, row, (begin + i) / weight->group);
        values[i] = (double)weight->global_scale * (a.scale * (double)map_code(weight, codes[i]) + a.bias);
    }
}

void lw_weight_row_f64(const lw_weight *weight, uint32_t stack, uint32_t row, double *values)
{
    if (maps[weight->map].is_dense) {
        const uint8_t *stored = row_of(weight, weight->codes, stack, row);
        const lw_dtype dtype = dense_dtype(weight->map);
        for (size_t k = 0; k < weight->cols; k++) values[k] = (double)load_float(stored, dtype, k);
        return;
    }
    for (size_t begin = 0; begin < weight->cols; begin += CHUNK)
        chunk_f64(weight, stack, row, begin, size_min(CHUNK, weight->cols - begin), values + begin);
}

void lw_weight_dense(const lw_weight *weight, uint32_t stack, uint32_t row, float *values)
{
    if (maps[weight->map].is_dense) {
        const uint8_t *stored = row_of(weight, weight->codes, stack, row);
        const lw_dtype dtype = dense_dtype(weight->map);
        for (size_t k = 0; k < weight->cols; k++) values[k] = load_float(stored, dtype, k);
        return;
    }
    double chunk[CHUNK];
    for (size_t begin = 0; begin < weight->cols; begin += CHUNK) {
        const size_t count = size_min(CHUNK, weight->cols - begin);
        chunk_f64(weight, stack, row, begin, count, chunk);
        for (size_t i = 0; i < count; i++) values[begin + i] = (float)chunk[i];
    }
}
