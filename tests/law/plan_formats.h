/* Random weights of any descriptor, for plans of law tests (plan_law.h): those of `lanewise check --ops`. */
#ifndef LW_TESTS_PLAN_FORMATS_H
#define LW_TESTS_PLAN_FORMATS_H

#include "cli/check_ops.h"
#include "plan_law.h"

/* A stack of matrices; all of it lives in the plan's arena. */
static inline lw_wref formed(bench *b, lw_rng *rng, const lw_ops_form *f, uint32_t stack,
                             const uint32_t shape[2])
{
    lw_ops_weight *w = lw_arena_take(&b->plan.arena, sizeof *w);
    lw_wref out;
    assert_non_null(w);
    assert_int_equal(
        lw_ops_weight_make(&b->plan, rng, f, (const uint32_t[]){ stack, shape[0], shape[1] }, w, &out, NULL),
        LW_OK);
    return out;
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
