/* Operations in FP64, written from their formulas, on plain arrays; nothing here knows kernels, pages or
 * parts. Where an error bound needs the size of what was summed, it is returned beside the result.
 */
#ifndef LW_TESTS_REF_OPS_H
#define LW_TESTS_REF_OPS_H

#include <stdbool.h>
#include <stddef.h>

/* Unit roundoffs: half a unit in the last place of a number in [1, 2). */
#define REF_EPS_BF16 0x1p-8
#define REF_EPS_F32 0x1p-24
#define REF_TINY_BF16 0x1p-133 /* spacing of subnormal bf16 */

/* y = w x / sqrt(mean(x^2) + eps) over each segment of a row; with unit_offset (1 + w) stands for w. */
typedef struct ref_norm {
    const double *x, *w;                /* [width] */
    size_t width, segment;
    double eps;
    bool unit_offset;
} ref_norm;
void ref_rms_norm(const ref_norm *norm, double *y);

/* gate_first: y = w norm(x silu(gate)); else y = w norm(x) silu(gate); over each segment of a row. */
typedef struct ref_norm_gate {
    const double *x, *gate, *w;         /* [width] */
    size_t width, segment;
    double eps;
    bool gate_first;
} ref_norm_gate;
void ref_gated_norm(const ref_norm_gate *norm, double *y);

double ref_sigmoid(double x);
double ref_silu(double x);

/* One head: (x[i], x[i + half]) turned by the angle of cosines[i], sines[i]; the rest copied. */
typedef struct ref_turn {
    const double *x;                    /* [head_dim] */
    const double *cosines, *sines;      /* [half] */
    size_t head_dim, half;
} ref_turn;
void ref_rope(const ref_turn *turn, double *y, double *sizes); /* sizes: sum of |products| of each y */

/* What int8 keeps of a vector: d times the whole number nearest to x / d, ties to even, d = max |x| / 127; d
 * and x / d are rounded to fp32, where a code is decided. 0 of zeros, NaN where an x is not finite. */
void ref_int8(const double *x, size_t count, double *y);

/* One query: y = softmax(scale q k) v; 0 where there is no key. */
typedef struct ref_query {
    const double *q;                    /* [dim] */
    const double *keys, *values;        /* (count, dim) */
    size_t count, dim;
    double scale;
} ref_query;
void ref_attend(const ref_query *query, double *y, double *sizes); /* sizes: sum of p |v| over sum of p */
double ref_score_size(const ref_query *query); /* the largest scale * sum of |q k| of any key */

/* Causal depthwise convolution at one position; positions before 0 are 0. */
typedef struct ref_taps {
    const double *x;                    /* (positions, width) */
    const double *w;                    /* (taps, width), oldest tap first */
    const double *bias;                 /* [width]; NULL: none */
    size_t width, taps, position;
} ref_taps;
void ref_conv(const ref_taps *conv, double *y, double *sizes); /* sizes: sum of |products| and |bias| */

#endif
