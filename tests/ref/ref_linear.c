/* See ref_linear.h. Loops in the order of the formula; no blocking, no tricks. */
#include "ref_linear.h"

#include <math.h>
#include <stdlib.h>

static uint32_t group_count(const ref_linear *l)
{
    return (l->inputs + l->group - 1) / l->group;
}

static double bias_of(const ref_linear *l, uint32_t n, uint32_t g)
{
    return l->biases == NULL ? 0.0 : (double)l->biases[(size_t)n * group_count(l) + g];
}

static double scale_of(const ref_linear *l, uint32_t n, uint32_t g)
{
    return (double)l->scales[(size_t)n * group_count(l) + g];
}

/* Scale and bias of column n at k, with the mistake applied; dense weights have 1 and 0. */
static void affine_of(const ref_linear *l, ref_mistake mistake, uint32_t n, uint32_t k, double affine[2])
{
    affine[0] = 1.0;
    affine[1] = 0.0;
    if (l->group == 0) return;
    const uint32_t groups = group_count(l);
    uint32_t g = k / l->group;
    if (mistake == REF_WRONG_GROUP) g = (g + 1) % groups;
    const bool swapped = mistake == REF_SWAPPED_SCALE;
    affine[swapped ? 1 : 0] = scale_of(l, n, g);
    affine[swapped ? 0 : 1] = bias_of(l, n, g);
}

/* What an int8 x stands for at k of row r. */
static double quantised_at(const ref_linear *l, uint32_t r, uint32_t k, uint32_t block)
{
    const float *const x = l->x + (size_t)r * l->inputs;
    float most = 0.0f;
    for (uint32_t i = k / block * block; i < l->inputs && i < (k / block + 1) * block; i++)
        most = fmaxf(most, fabsf(x[i]));
    if (most < 0x1p-110f) return 0.0;
    const float inverse = 127.0f / most, place = x[k] * inverse;
    return (double)(most / 127.0f) * rint((double)place);
}

/* The x that a product takes, with the mistake applied. */
static double x_at(const ref_linear *l, ref_mistake mistake, uint32_t r, uint32_t k)
{
    if (l->x_block == 0 || mistake == REF_WHOLE_X) return (double)l->x[(size_t)r * l->inputs + k];
    return quantised_at(l, r, k, mistake == REF_WRONG_BLOCK ? l->x_block / 2 : l->x_block);
}

void ref_linear_run(const ref_linear *l, ref_mistake mistake, double *y, double *magnitudes)
{
    const uint32_t last = l->group == 0 ? 64 : l->group;
    const double global = mistake == REF_NO_GLOBAL ? 1.0 : l->global;
    const uint32_t end = mistake == REF_DROPPED_GROUP ? (l->inputs - 1) / last * last : l->inputs;
    double *const x = malloc(l->inputs * sizeof *x);
    if (x == NULL) abort();
    for (uint32_t r = 0; r < l->rows; r++) {
        for (uint32_t k = 0; k < end; k++) x[k] = x_at(l, mistake, r, k);
        for (uint32_t n = 0; n < l->columns; n++) {
            double sum = 0.0, magnitude = 0.0, affine[2];
            for (uint32_t k = 0; k < end; k++) {
                uint32_t from = k;
                if (mistake == REF_SWAPPED_HALVES && (k | 7u) < l->inputs) from = k ^ 4u;
                affine_of(l, mistake, n, k, affine);
                const double code = (double)l->codes[(size_t)n * l->inputs + from];
                sum += (affine[0] * code + affine[1]) * x[k];
                magnitude += fabs(affine[0] * code * x[k]) + fabs(affine[1] * x[k]);
            }
            y[(size_t)r * l->columns + n] = sum * global;
            magnitudes[(size_t)r * l->columns + n] = magnitude * fabs(global);
        }
    }
    free(x);
}

void ref_linear_plain(const ref_linear *l, float *y)
{
    for (uint32_t r = 0; r < l->rows; r++) {
        for (uint32_t n = 0; n < l->columns; n++) {
            float sum = 0.0f;
            for (uint32_t k = 0; k < l->inputs; k++) {
                double affine[2];
                affine_of(l, REF_RIGHT, n, k, affine);
                const float weight = (float)affine[0] * l->codes[(size_t)n * l->inputs + k]
                    + (float)affine[1];
                sum += weight * (float)x_at(l, REF_RIGHT, r, k);
            }
            y[(size_t)r * l->columns + n] = sum * (float)l->global;
        }
    }
}

double ref_linear_bound(double y, double magnitude, double roundings, double terms, int significand)
{
    const double unit = 0x1p-24 * roundings;
    const double sum = unit / (1.0 - unit) * magnitude + terms * 0x1p-100;
    const double largest = fabs(y) + sum;
    const double half_ulp = largest > 0.0 ? ldexp(1.0, ilogb(largest) - significand) : 0.0;
    return sum + half_ulp;
}
