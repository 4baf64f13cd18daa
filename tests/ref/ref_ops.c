/* Operations in FP64; see ref_ops.h. Plain loops in the order of the formulas. */
#include "ref_ops.h"

#include <math.h>

void ref_rms_norm(const ref_norm *norm, double *y)
{
    for (size_t begin = 0; begin < norm->width; begin += norm->segment) {
        double squares = 0;
        for (size_t i = begin; i < begin + norm->segment; i++) squares += norm->x[i] * norm->x[i];
        const double scale = 1 / sqrt(squares / (double)norm->segment + norm->eps);
        for (size_t i = begin; i < begin + norm->segment; i++) {
            y[i] = (norm->unit_offset ? 1 + norm->w[i] : norm->w[i]) * (norm->x[i] * scale);
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

static double gated(const ref_norm_gate *norm, size_t i)
{
    return norm->gate_first ? norm->x[i] * ref_silu(norm->gate[i]) : norm->x[i];
}

void ref_gated_norm(const ref_norm_gate *norm, double *y)
{
    for (size_t begin = 0; begin < norm->width; begin += norm->segment) {
        double squares = 0;
        for (size_t i = begin; i < begin + norm->segment; i++) squares += gated(norm, i) * gated(norm, i);
        const double scale = 1 / sqrt(squares / (double)norm->segment + norm->eps);
        for (size_t i = begin; i < begin + norm->segment; i++) {
            y[i] = norm->w[i] * gated(norm, i) * scale * (norm->gate_first ? 1 : ref_silu(norm->gate[i]));
        }
    }
}

void ref_rope(const ref_turn *turn, double *y, double *sizes)
{
    const size_t half = turn->half;
    for (size_t i = 0; i < half; i++) {
        const double a = turn->x[i], b = turn->x[i + half], c = turn->cosines[i], s = turn->sines[i];
        y[i] = a * c - b * s;
        y[i + half] = b * c + a * s;
        sizes[i] = fabs(a * c) + fabs(b * s);
        sizes[i + half] = fabs(b * c) + fabs(a * s);
    }
    for (size_t i = 2 * half; i < turn->head_dim; i++) {
        y[i] = turn->x[i];
        sizes[i] = 0;
    }
}

static double score_of(const ref_query *query, size_t key)
{
    double sum = 0;
    for (size_t i = 0; i < query->dim; i++) sum += query->q[i] * query->keys[key * query->dim + i];
    return sum * query->scale;
}

double ref_score_size(const ref_query *query)
{
    double largest = 0;
    for (size_t j = 0; j < query->count; j++) {
        double size = 0;
        for (size_t i = 0; i < query->dim; i++) size += fabs(query->q[i] * query->keys[j * query->dim + i]);
        largest = fmax(largest, size * query->scale);
    }
    return largest;
}

void ref_int8(const double *x, size_t count, double *y)
{
    double largest = 0;
    bool is_finite = true;
    for (size_t i = 0; i < count; i++) {
        is_finite = is_finite && isfinite(x[i]);
        largest = fmax(largest, fabs(x[i]));
    }
    const double scale = (double)(float)(largest / 127);
    for (size_t i = 0; i < count; i++) {
        const double code = scale > 0 ? rint((double)(float)(x[i] / scale)) : 0;
        y[i] = is_finite ? scale * code : (double)NAN;
    }
}

void ref_attend(const ref_query *query, double *y, double *sizes)
{
    const size_t dim = query->dim;
    double largest = -INFINITY, mass = 0;
    for (size_t j = 0; j < query->count; j++) largest = fmax(largest, score_of(query, j));
    for (size_t i = 0; i < dim; i++) y[i] = sizes[i] = 0;
    for (size_t j = 0; j < query->count; j++) {
        const double p = exp(score_of(query, j) - largest);
        mass += p;
        for (size_t i = 0; i < dim; i++) {
            y[i] += p * query->values[j * dim + i];
            sizes[i] += p * fabs(query->values[j * dim + i]);
        }
    }
    for (size_t i = 0; i < dim && query->count > 0; i++) {
        y[i] /= mass;
        sizes[i] /= mass;
    }
}

void ref_conv(const ref_taps *conv, double *y, double *sizes)
{
    for (size_t i = 0; i < conv->width; i++) {
        y[i] = sizes[i] = 0;
        for (size_t tap = 0; tap < conv->taps; tap++) {
            if (conv->position + tap + 1 < conv->taps) continue;
            const size_t position = conv->position + tap + 1 - conv->taps;
            const double product = conv->w[tap * conv->width + i] * conv->x[position * conv->width + i];
            y[i] += product;
            sizes[i] += fabs(product);
        }
        if (conv->bias == NULL) continue;
        y[i] += conv->bias[i];
        sizes[i] += fabs(conv->bias[i]);
    }
}
