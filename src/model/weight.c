/* Decodes rows of any weight descriptor from the checkpoint's mapping. Called at load, row by row, by every
 * device's repacking, and by references. Tensors begin at any byte, so every load is a memcpy.
 */
#include "model/weight.h"

#include "base/float16.h"
#include "base/size.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    OCTET = 8,   /* codes: those of b bits fill b whole bytes */
    CHUNK = 256, /* codes decoded at once */
};

typedef struct map_facts {
    const char *name;
    bool is_dense;
} map_facts;

static const map_facts maps[] = {
    [LW_MAP_BF16] = { "bf16", true },      [LW_MAP_FP16] = { "fp16", true },
    [LW_MAP_FP32] = { "fp32", true },      [LW_MAP_INTEGER] = { "int", false },
    [LW_MAP_TABLE16] = { "table", false }, [LW_MAP_E4M3] = { "e4m3", false },
};
_Static_assert(sizeof maps / sizeof maps[0] == LW_MAP_COUNT, "the last map has a row");

bool lw_weight_takes_int8(const lw_weight *weight)
{
    if (weight->group == 0) return false;
    if (weight->map == LW_MAP_INTEGER) return truncf(weight->bias_per_scale) == weight->bias_per_scale;
    if (weight->map != LW_MAP_TABLE16 || weight->table == NULL || weight->has_bias) return false;
    for (int i = 0; i < 16; i++) {
        const float twice = 2.0f * weight->table[i];
        if (truncf(twice) != twice || fabsf(twice) > 2.0f * LW_TABLE_INT8_MAX) return false;
    }
    return true;
}

void lw_weight_format(const lw_weight *weight, char text[32])
{
    LW_ASSERT((unsigned)weight->map < LW_MAP_COUNT);
    const map_facts *facts = &maps[weight->map];
    char bits[12] = "";
    if (weight->map == LW_MAP_INTEGER || weight->map == LW_MAP_TABLE16)
        snprintf(bits, sizeof bits, "%u", (unsigned)weight->code_bits);
    char shape[32] = "";
    if (weight->group_rows > 1)
        snprintf(shape, sizeof shape, " block %ux%u", (unsigned)weight->group_rows, (unsigned)weight->group);
    else if (weight->group != 0) snprintf(shape, sizeof shape, " group %u", (unsigned)weight->group);
    const int bytes = snprintf(text, 32, "%.5s%.3s%.22s", facts->name, bits, shape);
    LW_ASSERT(bytes > 0);
}

/* The descriptor that holds a member's tensors, and the member's place in them. */
static const lw_weight *holder_of(const lw_weight *weight, uint32_t *stack)
{
    LW_ASSERT(*stack < weight->stack_count);
    if (weight->members == NULL) return weight;
    const lw_weight *member = &weight->members[*stack];
    LW_ASSERT(member->members == NULL && member->stack_count == 1);
    *stack = 0;
    return member;
}

static uint32_t stored_rows(const lw_weight *weight)
{
    return weight->rows_stored == 0 ? weight->rows : weight->rows_stored;
}

uint64_t lw_weight_bytes(const lw_weight *weight)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < lw_weight_tensor_count(weight); i++)
        bytes += lw_weight_tensor(weight, i)->byte_count;
    return weight->rows == 0 ? bytes : bytes / stored_rows(weight) * weight->rows;
}

static size_t own_tensor_count(const lw_weight *weight)
{
    return (size_t)(weight->codes != NULL) + (weight->scales != NULL) + (weight->biases != NULL);
}

size_t lw_weight_tensor_count(const lw_weight *weight)
{
    if (weight->members == NULL) return own_tensor_count(weight);
    return own_tensor_count(weight->members) * weight->stack_count; /* members are alike */
}

const lw_tensor *lw_weight_tensor(const lw_weight *weight, size_t index)
{
    LW_ASSERT(index < lw_weight_tensor_count(weight));
    if (weight->members != NULL) {
        const size_t each = own_tensor_count(weight->members);
        return lw_weight_tensor(&weight->members[index / each], index % each);
    }
    if (index == 0) return weight->codes;
    return index == 1 && weight->scales != NULL ? weight->scales : weight->biases;
}

uint32_t lw_weight_groups(const lw_weight *weight)
{
    return weight->group == 0 ? 0 : (uint32_t)size_div_up(weight->cols, weight->group);
}

double lw_weight_global(const lw_weight *weight, uint32_t stack)
{
    const lw_weight *w = holder_of(weight, &stack);
    return w->global_divides ? 1.0 / (double)w->global_scale : (double)w->global_scale;
}

/* The stored bytes of a row of codes in LW_ORDER_ROWS: the tensor is stack * stored_rows equal rows. */
static const uint8_t *row_of(const lw_weight *weight, uint32_t stack, uint32_t row)
{
    LW_ASSERT(row < weight->rows && weight->order == LW_ORDER_ROWS);
    const size_t rows = stored_rows(weight);
    const lw_tensor *codes = weight->codes;
    return codes->bytes + codes->byte_count / (weight->stack_count * rows) *
        (stack * rows + weight->row_begin + row);
}

/* Eight codes of constant bits, spread to one byte each by halving: 4 + 4 codes into 32-bit halves, then 2 +
 * 2 into 16 bits, then single ones. The masks drop what stream holds beyond its first 8 * bits bits. */
static inline void spread_octet(uint64_t stream, unsigned bits, uint8_t *codes)
{
    const uint64_t four = (UINT64_C(1) << 4 * bits) - 1;
    const uint64_t two = ((UINT64_C(1) << 2 * bits) - 1) * UINT64_C(0x0000000100000001);
    const uint64_t one = ((UINT64_C(1) << bits) - 1) * UINT64_C(0x0001000100010001);
    uint64_t x = (stream & four) | (stream >> 4 * bits << 32);
    x = (x & two) | ((x >> 2 * bits & two) << 16);
    x = (x & one) | ((x >> bits & one) << 8);
    memcpy(codes, &x, sizeof x);
}

/* Inlined once per width, so that masks and shifts are constants. Loads 8 bytes while they end inside. */
static inline void decode_octets(const uint8_t *restrict bytes, unsigned bits, uint8_t *restrict codes,
                                 size_t octets)
{
    const size_t whole = octets * bits < 8 ? 0 : (octets * bits - 8) / bits + 1;
    uint64_t stream;
    for (size_t i = 0; i < whole; i++) {
        memcpy(&stream, bytes + i * bits, sizeof stream);
        spread_octet(stream, bits, codes + i * OCTET);
    }
    for (size_t i = whole; i < octets; i++) {
        stream = 0;
        memcpy(&stream, bytes + i * bits, bits);
        spread_octet(stream, bits, codes + i * OCTET);
    }
}

#define DECODE(BITS) \
    static void decode_##BITS(const uint8_t *restrict bytes, uint8_t *restrict codes, size_t octets) \
    { \
        decode_octets(bytes, BITS, codes, octets); \
    }
DECODE(2)
DECODE(3)
DECODE(4)
DECODE(5)
DECODE(6)

static void decode_8(const uint8_t *restrict bytes, uint8_t *restrict codes, size_t octets)
{
    memcpy(codes, bytes, octets * OCTET);
}

typedef void decoder(const uint8_t *restrict bytes, uint8_t *restrict codes, size_t octets);
static decoder *const decoders[] = {
    [2] = decode_2, [3] = decode_3, [4] = decode_4, [5] = decode_5, [6] = decode_6, [8] = decode_8,
};

/* Codes [begin, begin + count) of a bit stream; begin is a multiple of 8. */
static void decode_stream(unsigned bits, const uint8_t *row, size_t begin, size_t count, uint8_t *codes)
{
    LW_ASSERT(bits < sizeof decoders / sizeof decoders[0] && decoders[bits] != NULL);
    const uint8_t *bytes = row + begin / OCTET * bits;
    const size_t octets = count / OCTET, rest = count % OCTET;
    decoders[bits](bytes, codes, octets);
    if (rest == 0) return;
    uint8_t last[OCTET] = { 0 }, last_codes[OCTET];
    memcpy(last, bytes + octets * bits, size_div_up(rest * bits, 8));
    decoders[bits](last, last_codes, 1);
    memcpy(codes + octets * OCTET, last_codes, rest);
}

/* The same where a row's words lie apart by one word of every row. */
static void decode_words(const lw_weight *weight, uint32_t row, size_t begin, size_t count, uint8_t *codes)
{
    LW_ASSERT(weight->code_bits == 4 && weight->stack_count == 1 && count % OCTET == 0);
    const size_t rows = stored_rows(weight);
    const uint8_t *at =
        weight->codes->bytes + (begin / OCTET * rows + weight->row_begin + row) * sizeof(uint32_t);
    for (size_t k = 0; k < count; k += OCTET) {
        uint32_t word;
        memcpy(&word, at, sizeof word);
        spread_octet(word, 4, codes + k);
        at += rows * sizeof word;
    }
}

/* Codes [begin, begin + count) of a row; begin is a multiple of 8. weight holds its own tensors. */
static void decode_codes(const lw_weight *weight, uint32_t stack, uint32_t row, size_t begin, size_t count,
                         uint8_t *codes)
{
    LW_ASSERT(begin % OCTET == 0);
    if (weight->order == LW_ORDER_INPUTS) decode_words(weight, row, begin, count, codes);
    else decode_stream(weight->code_bits, row_of(weight, stack, row), begin, count, codes);
}

void lw_weight_codes8(const lw_weight *weight, uint32_t stack, uint32_t row, uint8_t *codes8)
{
    const lw_weight *w = holder_of(weight, &stack);
    decode_codes(w, stack, row, 0, w->cols, codes8);
}

void lw_weight_codes16(const lw_weight *weight, uint32_t stack, uint32_t row, uint16_t *codes16)
{
    const lw_weight *w = holder_of(weight, &stack);
    LW_ASSERT(w->code_bits == 16);
    memcpy(codes16, row_of(w, stack, row), (size_t)w->cols * sizeof *codes16);
}

void lw_weight_words(const lw_weight *weight, uint32_t stack, uint32_t row, uint32_t *words)
{
    const lw_weight *w = holder_of(weight, &stack);
    LW_ASSERT(32 % w->code_bits == 0 && w->code_bits <= 16);
    if (w->order == LW_ORDER_ROWS) {
        memcpy(words, row_of(w, stack, row), size_div_up((size_t)w->cols * w->code_bits, 8));
        return;
    }
    LW_ASSERT(w->code_bits == 4 && w->stack_count == 1 && w->cols % OCTET == 0);
    const size_t rows = stored_rows(w);
    const uint8_t *at = w->codes->bytes + (w->row_begin + row) * sizeof *words;
    for (size_t i = 0; i < w->cols / OCTET; i++)
        memcpy(&words[i], at + i * rows * sizeof *words, sizeof *words);
}

static float load_float(const uint8_t *bytes, lw_dtype dtype, size_t index)
{
    uint16_t half;
    float value;
    if (dtype == LW_DTYPE_F8_E4M3) return lw_float_of_e4m3(bytes[index]);
    if (dtype == LW_DTYPE_F32) {
        memcpy(&value, bytes + index * sizeof value, sizeof value);
        return value;
    }
    memcpy(&half, bytes + index * sizeof half, sizeof half);
    return dtype == LW_DTYPE_BF16 ? lw_float_of_bf16(half) : lw_float_of_fp16(half);
}

static float map_code(const lw_weight *weight, uint8_t code)
{
    if (weight->map == LW_MAP_TABLE16) return weight->table[code & 15u];
    if (weight->map == LW_MAP_E4M3) return lw_float_of_e4m3(code);
    return (float)code;
}

static lw_dtype dense_dtype(lw_map map)
{
    if (map == LW_MAP_FP32) return LW_DTYPE_F32;
    return map == LW_MAP_FP16 ? LW_DTYPE_F16 : LW_DTYPE_BF16;
}

/* Where the scales (or biases) of a row lie: element g of it at first + g * step. */
typedef struct scale_row {
    const uint8_t *bytes;
    size_t first, step;
} scale_row;

static scale_row scale_row_of(const lw_weight *weight, const lw_tensor *tensor, uint32_t stack, uint32_t row)
{
    LW_ASSERT(row < weight->rows);
    const size_t each = weight->group_rows == 0 ? 1 : weight->group_rows;
    const size_t rows = size_div_up(stored_rows(weight), each), at = (weight->row_begin + row) / each;
    if (weight->order == LW_ORDER_INPUTS)
        return (scale_row){ .bytes = tensor->bytes, .first = at, .step = rows };
    return (scale_row){ .bytes = tensor->bytes,
                        .first = (stack * rows + at) * lw_weight_groups(weight),
                        .step = 1 };
}

static float scale_at(const lw_weight *weight, const scale_row *from, size_t group)
{
    return load_float(from->bytes, weight->scale_type, from->first + group * from->step);
}

void lw_weight_scales(const lw_weight *weight, uint32_t stack, uint32_t row, float *scales, float *biases)
{
    const lw_weight *w = holder_of(weight, &stack);
    LW_ASSERT(w->group > 0);
    const size_t groups = lw_weight_groups(w);
    scale_row stored = scale_row_of(w, w->scales, stack, row);
    for (size_t g = 0; g < groups; g++) scales[g] = scale_at(w, &stored, g);
    if (w->has_bias) stored = scale_row_of(w, w->biases, stack, row);
    for (size_t g = 0; g < groups; g++)
        biases[g] = w->has_bias ? scale_at(w, &stored, g) : w->bias_per_scale * scales[g];
}

void lw_weight_scales16(const lw_weight *weight, uint32_t stack, uint32_t row, uint16_t *scales,
                        uint16_t *biases)
{
    const lw_weight *w = holder_of(weight, &stack);
    LW_ASSERT(w->group > 0 && w->has_bias && lw_dtype_bytes(w->scale_type) == sizeof *scales);
    const size_t bytes = lw_weight_groups(w) * sizeof *scales;
    const size_t first = scale_row_of(w, w->scales, stack, row).first * sizeof *scales;
    memcpy(scales, w->scales->bytes + first, bytes);
    memcpy(biases, w->biases->bytes + first, bytes);
}

static bool is_nan_e4m3(uint8_t code)
{
    return (code & 0x7Fu) == 0x7Fu;
}

bool lw_weight_row_has_nan(const lw_weight *weight, uint32_t stack, uint32_t row)
{
    const lw_weight *w = holder_of(weight, &stack);
    bool has_nan = false;
    if (w->map == LW_MAP_E4M3) {
        const uint8_t *codes = row_of(w, stack, row);
        for (uint32_t k = 0; k < w->cols; k++) has_nan |= is_nan_e4m3(codes[k]);
    }
    if (w->group > 0 && w->scale_type == LW_DTYPE_F8_E4M3) {
        const scale_row stored = scale_row_of(w, w->scales, stack, row);
        for (uint32_t g = 0; g < lw_weight_groups(w); g++)
            has_nan |= is_nan_e4m3(stored.bytes[stored.first + g * stored.step]);
    }
    return has_nan;
}

/* Scale and bias of one group in double. */
typedef struct affine {
    double scale;
    double bias;
} affine;

static affine affine_of(const lw_weight *weight, uint32_t stack, uint32_t row, size_t group)
{
    if (weight->group == 0) return (affine){ .scale = 1.0 };
    scale_row stored = scale_row_of(weight, weight->scales, stack, row);
    affine a = { .scale = scale_at(weight, &stored, group) };
    if (weight->has_bias) {
        stored = scale_row_of(weight, weight->biases, stack, row);
        a.bias = scale_at(weight, &stored, group);
    } else {
        a.bias = (double)weight->bias_per_scale * a.scale;
    }
    return a;
}

static double with_global(const lw_weight *weight, double value)
{
    const double global = (double)weight->global_scale;
    return weight->global_divides ? value / global : value * global;
}

/* Values [begin, begin + count) of a row of codes; begin is a multiple of CHUNK, count at most CHUNK. */
static void chunk_f64(const lw_weight *weight, uint32_t stack, uint32_t row, size_t begin, size_t count,
                      double *values)
{
    uint8_t codes[CHUNK];
    affine a = affine_of(weight, stack, row, weight->group == 0 ? 0 : begin / weight->group);
    decode_codes(weight, stack, row, begin, count, codes);
    for (size_t i = 0; i < count; i++) {
        if (weight->group > 0 && (begin + i) % weight->group == 0)
            a = affine_of(weight, stack, row, (begin + i) / weight->group);
        values[i] = with_global(weight, a.scale * (double)map_code(weight, codes[i]) + a.bias);
    }
}

void lw_weight_row_f64(const lw_weight *weight, uint32_t stack, uint32_t row, double *values)
{
    const lw_weight *w = holder_of(weight, &stack);
    if (maps[w->map].is_dense) {
        const uint8_t *stored = row_of(w, stack, row);
        const lw_dtype dtype = dense_dtype(w->map);
        for (size_t k = 0; k < w->cols; k++) values[k] = (double)load_float(stored, dtype, k);
        return;
    }
    for (size_t begin = 0; begin < w->cols; begin += CHUNK)
        chunk_f64(w, stack, row, begin, size_min(CHUNK, w->cols - begin), values + begin);
}

void lw_weight_dense(const lw_weight *weight, uint32_t stack, uint32_t row, float *values)
{
    const lw_weight *w = holder_of(weight, &stack);
    if (maps[w->map].is_dense) {
        const uint8_t *stored = row_of(w, stack, row);
        const lw_dtype dtype = dense_dtype(w->map);
        for (size_t k = 0; k < w->cols; k++) values[k] = load_float(stored, dtype, k);
        return;
    }
    double chunk[CHUNK];
    for (size_t begin = 0; begin < w->cols; begin += CHUNK) {
        const size_t count = size_min(CHUNK, w->cols - begin);
        chunk_f64(w, stack, row, begin, count, chunk);
        for (size_t i = 0; i < count; i++) values[begin + i] = (float)chunk[i];
    }
}

void lw_weight_turned(const lw_weight *weight, float *row, float *out)
{
    const size_t rows = weight->rows, each = rows * weight->cols;
    for (size_t i = 0; i < weight->stack_count * rows; i++) {
        const size_t member = i / rows, n = i % rows;
        lw_weight_dense(weight, (uint32_t)member, (uint32_t)n, row);
        for (uint32_t k = 0; k < weight->cols; k++) out[member * each + k * rows + n] = row[k];
    }
}
