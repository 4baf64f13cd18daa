/* Recurrences in FP64; see ref_recur.h. */
#include "ref_recur.h"
#include "ref_ops.h"

#include <math.h>

double ref_softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

/* x / sqrt(sum x^2 + 1e-6) / divisor; Mamba-2 takes it as it is. */
static void head_make(const ref_recur *r, const double *x, double *made, double divisor)
{
    double squares = 1e-6;
    for (size_t i = 0; i < r->key_width; i++) squares += x[i] * x[i];
    const double by = r->skip != NULL ? 1 : sqrt(squares) * divisor;
    for (size_t i = 0; i < r->key_width; i++) made[i] = x[i] / by;
}

/* One value head: its rows of the state are columns of v. */
static void head_step(const ref_recur *r, const ref_recur_row *row, size_t head, double *state)
{
    const size_t key_at = head / (r->heads / r->key_heads) * r->key_width;
    const double *k = row->k_made + key_at, *q = row->q_made + key_at;
    const double alpha = exp(row->decay[head]), scale = row->scale[head];
    for (size_t i = 0; i < r->width; i++, state += r->key_width) {
        const size_t at = head * r->width + i;
        double before = 0, out = 0;
        for (size_t j = 0; j < r->key_width; j++) {
            state[j] *= alpha;
            before += state[j] * k[j];
        }
        row->u[at] = scale * (r->skip != NULL ? row->v[at] : row->v[at] - before);
        for (size_t j = 0; j < r->key_width; j++) {
            state[j] += row->u[at] * k[j];
            out += state[j] * q[j];
        }
        row->y[at] = r->skip != NULL ? out + r->skip[head] * row->v[at] : out;
    }
}

void ref_recur_step(const ref_recur *r, const ref_recur_row *row, double *state)
{
    for (size_t g = 0; g < r->key_heads; g++) {
        const size_t at = g * r->key_width;
        head_make(r, row->k + at, row->k_made + at, 1);
        head_make(r, row->q + at, row->q_made + at, sqrt((double)r->key_width));
    }
    for (size_t h = 0; h < r->heads; h++) {
        double step = ref_softplus(row->step[h] + r->dt_bias[h]);
        if (r->skip != NULL) step = fmin(fmax(step, r->step_min), r->step_max);
        row->decay[h] = -exp(r->a_log[h]) * step;
        row->scale[h] = r->skip != NULL ? step : ref_sigmoid(row->write[h]);
        head_step(r, row, h, state + h * r->width * r->key_width);
    }
}
