/* Gated delta rule and Mamba-2 in FP64, one row after the other, written from their serial formulas; nothing
 * here knows anchors, pages or parts.
 */
#ifndef LW_TESTS_REF_RECUR_H
#define LW_TESTS_REF_RECUR_H

#include <stdbool.h>
#include <stddef.h>

typedef struct ref_recur {
    size_t heads, width, key_heads, key_width;
    const double *a_log, *dt_bias;      /* [heads] */
    const double *skip;                 /* [heads], D of Mamba-2; NULL: gated delta rule */
    double step_min, step_max;          /* Mamba-2 */
} ref_recur;

/* One row of a stream, and what it makes. */
typedef struct ref_recur_row {
    const double *q, *k;                /* (key_heads, key_width); Mamba-2: C, B */
    const double *v;                    /* (heads, width) */
    const double *step;                 /* [heads], before its bias */
    const double *write;                /* [heads], before its sigmoid; gated delta rule */
    double *q_made, *k_made;            /* (key_heads, key_width): as they enter */
    double *u;                          /* (heads, width): what is written */
    double *decay, *scale;              /* [heads]: log-decay; beta or dt */
    double *y;                          /* (heads, width) */
} ref_recur_row;

double ref_softplus(double x);

/* Takes state (heads, width, key_width) one row further. */
void ref_recur_step(const ref_recur *r, const ref_recur_row *row, double *state);

#endif
