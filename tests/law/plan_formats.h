/* Random weights of any descriptor, for plans of law tests (plan_law.h): formats are rows of a table. */
#ifndef LW_TESTS_PLAN_FORMATS_H
#define LW_TESTS_PLAN_FORMATS_H

#include "plan_law.h"

typedef struct format {
    lw_map map;
    uint32_t bits, group, group_rows;
    lw_dtype scale_type;
    bool has_bias;
    float bias_per_scale, global;              /* global 0: 1 */
    bool divides;
} format;

static const float format_table[16] = {
    0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6
};

static inline void *format_dense(lw_rng *rng, lw_map map, size_t count)
{
    if (map == LW_MAP_BF16) return law_bf(rng, count, 0.3f);
    if (map == LW_MAP_FP32) return law_floats(rng, count, 0.3f);
    uint16_t *halves = law_make(count, sizeof *halves);
    /* Either sign, every exponent up to 2^0, subnormal ones too. */
    for (size_t i = 0; i < count; i++)
        halves[i] = (uint16_t)(lw_rng_below(rng, 0x3C00) | lw_rng_below(rng, 2) << 15);
    return halves;
}

/* Every code of so many bits; no NaN among e4m3's. */
static inline void *format_codes(lw_rng *rng, lw_map map, size_t bytes)
{
    uint8_t *codes = law_make(bytes, 1);
    for (size_t i = 0; i < bytes; i++)
        codes[i] = map == LW_MAP_E4M3 ? (uint8_t)(lw_rng_below(rng, 0x7F) | lw_rng_below(rng, 2) << 7)
                                      : (uint8_t)lw_rng_below(rng, 256);
    return codes;
}

/* Numbers of about size, as a type of scales holds them; every eighth is subnormal where it has few bits. */
static inline void *format_scales(lw_rng *rng, lw_dtype type, size_t count, float size)
{
    if (type == LW_DTYPE_BF16) return law_bf(rng, count, size);
    if (type == LW_DTYPE_F32) return law_floats(rng, count, size);
    uint16_t *halves = law_make(count, sizeof *halves);
    uint8_t *bytes = (uint8_t *)halves;
    for (size_t i = 0; i < count; i++) {
        const bool tiny = i % 8 == 0;
        if (type == LW_DTYPE_F16) halves[i] = (uint16_t)(tiny ? 1 + lw_rng_below(rng, 0x3FF)
                                                              : 0x1C00 + lw_rng_below(rng, 0x0C00));
        else bytes[i] = (uint8_t)(tiny ? 1 + lw_rng_below(rng, 7) : 0x20 + lw_rng_below(rng, 0x20));
    }
    return halves;
}

static inline uint32_t item_bytes_of(lw_dtype type)
{
    return (uint32_t)lw_dtype_bytes(type);
}

/* A stack of matrices. */
static inline lw_wref formed(bench *b, lw_rng *rng, const format *f, uint32_t stack, const uint32_t shape[2])
{
    made *m = weight_slot(b);
    const uint32_t rows = shape[0], cols = shape[1];
    const bool dense = f->bits > 8;
    const uint32_t row_bytes = cols * f->bits / 8, group_rows = f->group_rows == 0 ? 1 : f->group_rows;
    lw_weight w = { .name = "formed", .stack_count = stack, .rows = rows, .cols = cols, .map = f->map,
                    .code_bits = f->bits, .group = f->group, .group_rows = f->group_rows,
                    .scale_type = f->scale_type, .has_bias = f->has_bias,
                    .bias_per_scale = f->bias_per_scale, .global_scale = f->global > 0 ? f->global : 1.0f,
                    .global_divides = f->divides, .table = f->map == LW_MAP_TABLE16 ? format_table : NULL };
    m->bytes[0] = dense ? format_dense(rng, f->map, (size_t)stack * rows * cols)
                        : format_codes(rng, f->map, (size_t)stack * rows * row_bytes);
    m->codes = tensor_of(LW_DTYPE_U8, stack * rows, row_bytes, m->bytes[0], 1);
    w.codes = &m->codes;
    if (f->group > 0) {
        const uint32_t groups = lw_weight_groups(&w);
        const uint32_t scale_rows = stack * (uint32_t)size_div_up(rows, group_rows);
        const float size = f->map == LW_MAP_INTEGER ? 0.3f / (float)(1u << f->bits) : 0.02f;
        m->bytes[1] = format_scales(rng, f->scale_type, (size_t)scale_rows * groups, size);
        m->scales = tensor_of(f->scale_type, scale_rows, groups, m->bytes[1], item_bytes_of(f->scale_type));
        w.scales = &m->scales;
        if (f->has_bias) {
            m->bytes[2] = format_scales(rng, f->scale_type, (size_t)scale_rows * groups, 0.1f);
            m->biases =
                tensor_of(f->scale_type, scale_rows, groups, m->bytes[2], item_bytes_of(f->scale_type));
            w.biases = &m->biases;
        }
    }
    return lw_plan_weight(&b->plan, &w);
}

/* What a column's sum is made of, in double. */
typedef struct product_terms {
    double sum, size;                          /* of the terms and of their magnitudes */
    double tail;                               /* the last column's own */
} product_terms;

static inline product_terms product_of(const lw_weight *w, uint32_t member, uint32_t row, const float *x)
{
    enum { COLS_MAX = 2048 };
    double values[COLS_MAX];
    float scales[COLS_MAX], biases[COLS_MAX];
    product_terms terms = { 0 };
    assert_true(w->cols <= COLS_MAX);
    lw_weight_row_f64(w, member, row, values);
    if (w->group > 0) lw_weight_scales(w, member, row, scales, biases);
    const double global = fabs(lw_weight_global(w, member));
    for (uint32_t k = 0; k < w->cols; k++) {
        const double bias = w->group == 0 ? 0 : 2 * global * fabs((double)biases[k / w->group]);
        terms.tail = values[k] * (double)x[k];
        terms.sum += terms.tail;
        terms.size += (fabs(values[k]) + bias) * fabs((double)x[k]);
    }
    return terms;
}

/* Roundings that a term may pass: of a group's chain or sum, of groups, of slices, scale, bias and global. */
static inline double product_roundings(const lw_weight *w)
{
    const double chain = w->group == 0 ? 64 : w->group >= w->cols ? 128 : w->group;
    return chain + (double)w->cols / chain + 1 + 16 + 4;
}

#endif
