/* Operations in FP64; see ref_ops.h. Plain loops in the order of the formulas. */
#include "ref_ops.h"

#include <math.h>

void ref_rms_norm(const double *x, const double *w, size_t width, size_t segment, double eps, bool unit_offset,
                  double *y)
{
    for (size_t begin = 0; begin < width; begin += segment) {
        double squares = 0;
        for (size_t i = 0; i < segment; i++) squares += x[begin + i] * x[begin + i];
        const double scale = 1 / sqrt(squares / (double)segment + eps);
        for (size_t i = 0; i < segment; i++) {
            y[begin + i] = (unit_offset ? 1 + w[i] : w[i]) * (x[begin + i] * scale);
        }
    }
}

double ref_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

double ref_silu(double x)
{
    return x / (1 + exp(-x));
}

void ref_rope(const double *x, const double *cosines, const double *sines, size_t head_dim, size_t half, double *y,
              double *sizes)
{
    for (size_t i = 0; i < half; i++) {
        const double a = x[i], b = x[i + half], c = cosines[i], s = sines[i];
        y[i] = a * c - b * s;
        y[i + half] = b * c + a * s;
        sizes[i] = fabs(a * c) + fabs(b * s);
        sizes[i + half] = fabs(b * c) + fabs(a * s);
    }
    for (size_t i = 2 * half; i < head_dim; i++) {
        y[i] = x[i];
        sizes[i] = 0;
    }
}

static double score_of(const double *q, const double *k, size_t dim, double scale, double *size)
{
    double sum = 0;
    *size = 0;
    for (size_t i = 0; i < dim; i++) {
        sum += q[i] * k[i];
        *size += fabs(q[i] * k[i]) * scale;
    }
    return sum * scale;
}

void ref_attend(const double *q, const double *keys, const double *values, size_t count, size_t dim, double scale,
                double *y, double *sizes, double *score_size)
{
    double largest = -INFINITY, mass = 0, size;
    *score_size = 0;
    for (size_t j = 0; j < count; j++) {
        largest = fmax(largest, score_of(q, keys + j * dim, dim, scale, &size));
        *score_size = fmax(*score_size, size);
    }
    for (size_t i = 0; i < dim; i++) y[i] = sizes[i] = 0;
    for (size_t j = 0; j < count; j++) {
        const double p = exp(score_of(q, keys + j * dim, dim, scale, &size) - largest);
        mass += p;
        for (size_t i = 0; i < dim; i++) {
            y[i] += p * values[j * dim + i];
            sizes[i] += p * fabs(values[j * dim + i]);
        }
    }
    for (size_t i = 0; i < dim; i++) {
        y[i] /= mass;
        sizes[i] /= mass;
    }
}

void ref_conv(const double *x, const double *w, size_t width, size_t taps, size_t position, double *y,
              double *sizes)
{
    for (size_t i = 0; i < width; i++) {
        y[i] = sizes[i] = 0;
        for (size_t tap = 0; tap < taps; tap++) {
            if (position + tap + 1 < taps) continue;
            const double product = w[tap * width + i] * x[(position + tap + 1 - taps) * width + i];
            y[i] += product;
            sizes[i] += fabs(product);
        }
    }
}
