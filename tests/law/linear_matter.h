/* Weights of every kind for tests of the cpu device's linear op: as a checkpoint stores them, and as plain
 * floats for the reference.
 */
#ifndef LW_TESTS_LINEAR_MATTER_H
#define LW_TESTS_LINEAR_MATTER_H

#include "base/float16.h"
#include "base/rng.h"
#include "model/weight.h"
#include "../ref/ref_dequant.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

typedef enum bias_kind { BIAS_STORED, BIAS_PER_SCALE, BIAS_NONE } bias_kind;

/* A kind of weight and a shape. */
typedef struct kind {
    lw_map map;
    uint32_t bits, group;
    lw_dtype scale_type;
    bias_kind bias;
    uint32_t columns, inputs;
    uint32_t group_rows;    /* 0: 1 */
    float global;           /* 0: none */
    bool divides;
    bool x_int8;
} kind;
#define KIND(m, b, g, type, how, ...) \
    { .map = m, .bits = b, .group = g, .scale_type = type, .bias = how, __VA_ARGS__ }

/* One weight: as a checkpoint stores it, and as plain floats for the reference. */
typedef struct matter {
    kind kind;
    lw_tensor codes_tensor, scales_tensor, biases_tensor;
    uint8_t *codes_bytes, *scales_bytes, *biases_bytes;
    float *codes, *scales, *biases;
    lw_weight weight;
} matter;

static inline void *must(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);
    assert_non_null(memory);
    return memory;
}

static inline void describe(const kind *k, char text[96])
{
    static const char *const maps[] = { "bf16", "fp16", "fp32", "int", "table", "e4m3 " };
    static const char *const biases[] = { "biases", "bias per scale", "no bias" };
    snprintf(text, 96, "%s%u group %u, %s scales, %s, global %g, %u x %u%s", maps[k->map], k->bits, k->group,
             k->group ? lw_dtype_name(k->scale_type) : "no", biases[k->bias], (double)k->global, k->columns,
             k->inputs, k->x_int8 ? ", x int8" : "");
}

/* Stores value in dtype at index and returns what was stored. An e4m3 takes the value's digits alone. */
static inline float put_float(uint8_t *bytes, lw_dtype dtype, size_t index, float value)
{
    if (dtype == LW_DTYPE_F8_E4M3) {
        bytes[index] = (uint8_t)(lw_bits_of_float(value) >> 16 & 0xBFu);
        return (float)ref_dequant_e4m3(bytes[index]);
    }
    if (dtype == LW_DTYPE_F32) {
        memcpy(bytes + index * 4, &value, 4);
        return value;
    }
    uint16_t half = lw_bf16_of_float(value);
    if (dtype == LW_DTYPE_F16) { /* ten bits of mantissa, normal range: enough for a test */
        const uint32_t bits = lw_bits_of_float(value);
        half = (uint16_t)((bits >> 16 & 0x8000u) | (((bits >> 23 & 0xFFu) - 112u) << 10)
                          | (bits >> 13 & 0x3FFu));
    }
    memcpy(bytes + index * 2, &half, 2);
    return dtype == LW_DTYPE_F16 ? lw_float_of_fp16(half) : lw_float_of_bf16(half);
}

static inline float away_from_zero(float value) { return value < 0.0f ? value - 0.01f : value + 0.01f; }

static inline void fill_codes(matter *m, lw_rng *rng)
{
    const kind *k = &m->kind;
    const size_t row_bytes = ((size_t)k->inputs * k->bits + 7) / 8;
    const lw_dtype dense = k->map == LW_MAP_FP32 ? LW_DTYPE_F32 : k->map == LW_MAP_FP16 ? LW_DTYPE_F16
        : LW_DTYPE_BF16;
    m->codes_bytes = must(k->columns, row_bytes);
    m->codes = must((size_t)k->columns * k->inputs, sizeof(float));
    for (uint32_t n = 0; n < k->columns; n++) {
        uint8_t *const row = m->codes_bytes + n * row_bytes;
        for (uint32_t i = 0; i < k->inputs; i++) {
            float *const value = &m->codes[(size_t)n * k->inputs + i];
            if (k->map == LW_MAP_BF16 || k->map == LW_MAP_FP16 || k->map == LW_MAP_FP32) {
                *value = put_float(row, dense, i, away_from_zero(lw_rng_normal(rng)));
                continue;
            }
            uint32_t code = (uint32_t)lw_rng_below(rng, 1u << k->bits);
            if (k->map == LW_MAP_E4M3 && (code & 0x7Fu) == 0x7Fu) code ^= 1u;
            for (uint32_t b = 0; b < k->bits; b++) {
                const size_t at = (size_t)i * k->bits + b;
                row[at / 8] = (uint8_t)(row[at / 8] | (code >> b & 1u) << at % 8);
            }
            *value = k->map == LW_MAP_E4M3 ? (float)ref_dequant_e4m3(code)
                : k->map == LW_MAP_TABLE16 ? (float)ref_dequant_e2m1(code) : (float)code;
        }
    }
    m->codes_tensor = (lw_tensor){ .name = "codes", .file = "memory", .dtype = LW_DTYPE_U8,
        .bytes = m->codes_bytes,
                                   .byte_count = k->columns * row_bytes };
}

static inline float bias_per_scale_of(const kind *k)
{
    return k->bias == BIAS_PER_SCALE ? -(float)(1u << (k->bits - 1)) : 0.0f;
}

static inline uint32_t groups_of(const kind *k)
{
    return k->group == 0 ? 0 : (k->inputs + k->group - 1) / k->group;
}

static inline bool has_global(const kind *k) { return k->global > 0.0f; }

static inline uint32_t group_rows_of(const kind *k) { return k->group_rows == 0 ? 1 : k->group_rows; }

static inline void fill_scales(matter *m, lw_rng *rng)
{
    const kind *k = &m->kind;
    if (k->group == 0) return;
    const uint32_t each = group_rows_of(k), groups = groups_of(k), rows = (k->columns + each - 1) / each;
    const size_t count = (size_t)rows * groups, bytes = lw_dtype_bytes(k->scale_type);
    m->scales_bytes = must(count, bytes);
    m->biases_bytes = must(count, bytes);
    m->scales = must((size_t)rows * each * groups, sizeof(float));
    m->biases = must((size_t)rows * each * groups, sizeof(float));
    for (size_t i = 0; i < count; i++) {
        const float drawn = 0.1f * away_from_zero(lw_rng_normal(rng));
        const float zero = -(float)(1u << (k->bits - 1)) + lw_rng_normal(rng);
        const float scale = put_float(m->scales_bytes, k->scale_type, i, drawn);
        float bias = bias_per_scale_of(k) * scale;
        if (k->bias == BIAS_STORED) bias = put_float(m->biases_bytes, k->scale_type, i, drawn * zero);
        for (size_t r = 0; r < each; r++) { /* for the reference each row has its own */
            m->scales[(i / groups * each + r) * groups + i % groups] = scale;
            m->biases[(i / groups * each + r) * groups + i % groups] = bias;
        }
    }
    const lw_tensor tensor = { .name = "scales", .file = "memory", .dtype = k->scale_type,
        .byte_count = count * bytes };
    m->scales_tensor = m->biases_tensor = tensor;
    m->scales_tensor.bytes = m->scales_bytes;
    m->biases_tensor.bytes = m->biases_bytes;
}

static const float e2m1[16] = { 0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -.5f, -1, -1.5f, -2, -3, -4, -6 };

static inline void matter_init(matter *m, const kind *k, lw_rng *rng)
{
    *m = (matter){ .kind = *k };
    fill_codes(m, rng);
    fill_scales(m, rng);
    m->weight = (lw_weight){
        .name = "test.weight", .stack_count = 1, .rows = k->columns, .cols = k->inputs, .map = k->map,
        .code_bits = k->bits, .order = LW_ORDER_ROWS, .group = k->group, .scale_type = k->scale_type,
        .has_bias = k->bias == BIAS_STORED && k->group > 0, .bias_per_scale = bias_per_scale_of(k),
        .group_rows = k->group_rows, .global_scale = has_global(k) ? k->global : 1.0f,
        .global_divides = k->divides, .x_int8 = k->x_int8, .table = k->map == LW_MAP_TABLE16 ? e2m1 : NULL,
        .codes = &m->codes_tensor, .scales = k->group ? &m->scales_tensor : NULL,
        .biases = k->bias == BIAS_STORED && k->group ? &m->biases_tensor : NULL,
    };
}

static inline void matter_deinit(matter *m)
{
    free(m->codes_bytes); free(m->scales_bytes); free(m->biases_bytes);
    free(m->codes); free(m->scales); free(m->biases);
}

#endif
