/* Operations in FP64, written from their formulas, on plain arrays; nothing here knows kernels, pages or parts.
 * Where an error bound needs the size of what was summed, the function returns it beside the result.
 */
#ifndef LW_TESTS_REF_OPS_H
#define LW_TESTS_REF_OPS_H

#include <stdbool.h>
#include <stddef.h>

/* Unit roundoffs: half a unit in the last place of a number in [1, 2). */
#define REF_EPS_BF16 0x1p-8
#define REF_EPS_F32 0x1p-24
#define REF_TINY_BF16 0x1p-133 /* spacing of subnormal bf16 */

/* y = w x / sqrt(mean(x^2) + eps) over each segment of the row; with unit_offset (1 + w) stands for w. */
void ref_rms_norm(const double *x, const double *w, size_t width, size_t segment, double eps, bool unit_offset,
                  double *y);

double ref_sigmoid(double x);
double ref_silu(double x);

/* One head: (x[i], x[i + half]) turned by the angle of cosines[i], sines[i]; the rest copied.
 * sizes[i]: sum of the magnitudes of the products of y[i]. */
void ref_rope(const double *x, const double *cosines, const double *sines, size_t head_dim, size_t half, double *y,
              double *sizes);

/* One query over keys and values (count, dim): y = softmax(scale q k) v. sizes[i] = sum of p |v[i]| over sum of p;
 * *score_size = the largest scale * sum |q k| of any key. */
void ref_attend(const double *q, const double *keys, const double *values, size_t count, size_t dim, double scale,
                double *y, double *sizes, double *score_size);

/* Causal depthwise convolution at one position of x (positions, width): w (taps, width), oldest tap first; positions
 * before 0 are 0. */
void ref_conv(const double *x, const double *w, size_t width, size_t taps, size_t position, double *y,
              double *sizes);

#endif
