/* Random weights of plans that law tests record: tensors in memory, which live until the test frees them. */
#ifndef LW_TESTS_PLAN_WEIGHTS_H
#define LW_TESTS_PLAN_WEIGHTS_H

#include "cpu_law.h"
#include "ops/record.h"

enum { PLAN_WEIGHTS_MAX = 64 };

typedef struct plan_weight {
    lw_tensor codes, scales, biases;
    void *bytes[3];
} plan_weight;

typedef struct plan_weights {
    plan_weight all[PLAN_WEIGHTS_MAX];
    uint32_t count;
} plan_weights;

static inline plan_weight *plan_weight_next(plan_weights *w)
{
    assert_true(w->count < PLAN_WEIGHTS_MAX);
    return &w->all[w->count++];
}

static inline lw_tensor plan_tensor(lw_dtype dtype, uint32_t rows, uint32_t cols, void *bytes,
                                    size_t item_bytes)
{
    return (lw_tensor){ .name = "w", .file = "memory", .dtype = dtype, .dim_count = 2, .dims = { rows, cols },
                        .bytes = bytes, .byte_count = (size_t)rows * cols * item_bytes };
}

static inline lw_weight plan_dense(plan_weights *w, lw_rng *rng, uint32_t rows, uint32_t cols)
{
    plan_weight *m = plan_weight_next(w);
    m->bytes[0] = law_bf(rng, (size_t)rows * cols, 0.3f);
    m->codes = plan_tensor(LW_DTYPE_BF16, rows, cols, m->bytes[0], 2);
    return (lw_weight){ .name = "dense", .stack_count = 1, .rows = rows, .cols = cols, .map = LW_MAP_BF16,
                        .code_bits = 16, .global_scale = 1.0f, .codes = &m->codes };
}

static inline lw_weight plan_affine(plan_weights *w, lw_rng *rng, uint32_t rows, uint32_t cols, uint32_t bits,
                                    uint32_t group)
{
    plan_weight *m = plan_weight_next(w);
    const uint32_t words = cols * bits / 32, groups = cols / group;
    uint32_t *codes = law_make((size_t)rows * words, sizeof *codes);
    for (size_t i = 0; i < (size_t)rows * words; i++)
        codes[i] = (uint32_t)lw_rng_below(rng, UINT64_C(1) << 32);
    m->bytes[0] = codes;
    m->bytes[1] = law_bf(rng, (size_t)rows * groups, bits == 4 ? 0.03f : 0.002f);
    m->bytes[2] = law_bf(rng, (size_t)rows * groups, 0.1f);
    m->codes = plan_tensor(LW_DTYPE_U32, rows, words, m->bytes[0], 4);
    m->scales = plan_tensor(LW_DTYPE_BF16, rows, groups, m->bytes[1], 2);
    m->biases = plan_tensor(LW_DTYPE_BF16, rows, groups, m->bytes[2], 2);
    return (lw_weight){ .name = "affine", .stack_count = 1, .rows = rows, .cols = cols,
                        .map = LW_MAP_INTEGER, .code_bits = bits, .group = group,
                        .scale_type = LW_DTYPE_BF16, .has_bias = true, .global_scale = 1.0f,
                        .codes = &m->codes, .scales = &m->scales, .biases = &m->biases };
}

static inline void plan_weights_free(plan_weights *w)
{
    for (uint32_t i = 0; i < w->count; i++) {
        for (int j = 0; j < 3; j++) free(w->all[i].bytes[j]);
    }
}

#endif
