/* How far outputs and states of gated_delta and ssm may be off FP64: a derived bound, and the score of a
 * device's against it.
 */
#ifndef LW_TESTS_RECURRENCE_BOUND_H
#define LW_TESTS_RECURRENCE_BOUND_H

#include "recurrence_truth.h"

/* ---- the bound ----
 * A row's rounding errors are local: with what the kernel kept of earlier rows in place of the exact, its
 * step is u + r and its output y + s, and r and s are bounded by sizes of sums. What the kernel kept is a
 * state T = e^c S + sum e^(c - c_j) u_j k_j, and its distance E from the exact one goes as E' = alpha E (I -
 * beta k k^T) + r k^T (ssm: without beta), where the matrix has norm 1 at most since |k| <= 1 and 0 <= beta
 * <= 1. So each column of E has a norm <= alpha times the one before + |r| |k|; a fold adds its own local
 * errors.
 *
 * EPS is the unit roundoff of fp32; a chain of n steps is 2 n EPS off relative to the sum of its sizes, since
 * multiply and add may each round.
 */
#define EPS REF_EPS_F32
enum { WIDTH_MAX = 128 };

/* One value head as it goes. */
typedef struct bounds {
    const streams *t;
    const truth *w;
    size_t head;
    double key_error;                       /* relative, of what enters of k and q */
    double distance[WIDTH_MAX];             /* norm of each column of E */
    double u[STRETCH][WIDTH_MAX];           /* errors of the steps since the anchor */
    double c[STRETCH], c_error[STRETCH];    /* cumulative decays; errors of the decays in them */
} bounds;

/* A decay: the argument of softplus is off by |x| eps, softplus by 5 ulp, its rate by 2, and the product; an
 * ulp is at most 2 eps. */
static inline double decay_error(double x)
{
    return (fabs(x) + 10 + 4 + 2) * EPS;
}

static inline const double *key_of(const bounds *b, const double *from, size_t p)
{
    const size_t shared = b->t->s.heads / b->t->s.key_heads;
    return from + p * b->t->key_floats + b->head / shared * b->t->s.key_width;
}

static inline const double *column_of(const bounds *b, const double *from, size_t p)
{
    return from + p * b->t->y_width + b->head * b->t->s.width;
}

static inline const double *anchor_of(const bounds *b, size_t p)
{
    const size_t head_floats = (size_t)b->t->s.width * b->t->s.key_width;
    return b->w->states + p / STRETCH * state_floats(b->t) + b->head * head_floats;
}

static inline double norm_of(const double *x, size_t count)
{
    double squares = 0;
    for (size_t i = 0; i < count; i++) squares += x[i] * x[i];
    return sqrt(squares);
}

static inline double dot_size(const double *a, const double *b, size_t count)
{
    double size = 0;
    for (size_t i = 0; i < count; i++) size += fabs(a[i] * b[i]);
    return size;
}

/* Relative error of e^(c_i - c_j), j negative: of e^(c_i). The exponent's error is that of the decays between
 * and of their sum. */
static inline double fade_error(const bounds *b, size_t i, ptrdiff_t j)
{
    const double decays = b->c_error[i] - (j < 0 ? 0 : b->c_error[j]), c = b->c[i] - (j < 0 ? 0 : b->c[j]);
    return 1.01 * (decays + STRETCH * EPS * fabs(c)) + 4 * EPS;
}

/* The local error of e^c S x + sum over steps of e^(c - c_j) (k_j x) u_j, in column i; x is the key or the
 * query of the row at p. */
static inline double sum_error(const bounds *b, const double *x, size_t p, size_t steps, size_t i)
{
    const size_t start = p / STRETCH * STRETCH, at = p - start, kw = b->t->s.key_width;
    const double chain = 2 * (double)(kw + steps + 2) * EPS;
    const double size = dot_size(anchor_of(b, p) + i * kw, x, kw);
    double error = exp(b->c[at]) * size * (b->key_error + chain + fade_error(b, at, -1));
    for (size_t j = 0; j < steps; j++) {
        const double u = fabs(column_of(b, b->w->u, start + j)[i]) + b->u[j][i];
        const double weight = exp(b->c[at] - b->c[j]), fade = j == at ? 0 : fade_error(b, at, (ptrdiff_t)j);
        const double dot = dot_size(key_of(b, b->w->k, start + j), x, kw);
        error += weight * dot * u * (2 * b->key_error + chain + fade + EPS);
    }
    return 1.01 * error;
}

/* What the fold at p adds to the distance of column i. */
static inline double fold_error(const bounds *b, size_t p, size_t i)
{
    const size_t kw = b->t->s.key_width, start = p - STRETCH, last = STRETCH - 1;
    const double *state = anchor_of(b, start) + i * kw, chain = 2 * (STRETCH + 2) * EPS;
    double squares = 0;
    for (size_t d = 0; d < kw; d++) {
        double error = exp(b->c[last]) * fabs(state[d]) * (chain + fade_error(b, last, -1));
        for (size_t j = 0; j < STRETCH; j++) {
            const double k = fabs(key_of(b, b->w->k, start + j)[d]);
            const double u = fabs(column_of(b, b->w->u, start + j)[i]) + b->u[j][i];
            const double fade = fade_error(b, last, (ptrdiff_t)j);
            error += exp(b->c[last] - b->c[j]) * k * u * (b->key_error + chain + fade);
        }
        squares += error * error;
    }
    return 1.01 * sqrt(squares);
}

/* One row: takes the errors on; error (width) is that of its output in fp32. */
static inline void row_errors(bounds *b, size_t p, double *error)
{
    const streams *t = b->t;
    const truth *w = b->w;
    const size_t at = p % STRETCH, index = p * t->s.heads + b->head, kw = t->s.key_width;
    const double own = decay_error(w->input[index]), scale = w->scale[index], alpha = exp(w->decay[index]);
    const double scale_error = t->s.delta ? 8 * EPS : own;
    b->c[at] = (at == 0 ? 0 : b->c[at - 1]) + w->decay[index];
    b->c_error[at] = (at == 0 ? 0 : b->c_error[at - 1]) + fabs(w->decay[index]) * own;
    const double *k = key_of(b, w->k, p), *q = key_of(b, w->q, p);
    for (size_t i = 0; i < t->s.width; i++) {
        const double u = fabs(column_of(b, w->u, p)[i]), v = fabs(column_of(b, w->v, p)[i]);
        double local = u * (scale_error + 2 * EPS), drift = 0;
        if (t->s.delta) {
            local += scale * sum_error(b, k, p, at, i);
            drift = scale * alpha * b->distance[i] * norm_of(k, kw);
        }
        b->u[at][i] = local + drift;
        b->distance[i] = alpha * b->distance[i] + local * norm_of(k, kw);
        error[i] = sum_error(b, q, p, at + 1, i) + b->distance[i] * norm_of(q, kw);
        const double skipped = fabs(w->skip[b->head]) * v;
        if (!t->s.delta) error[i] += 2 * EPS * (skipped + fabs(column_of(b, w->y, p)[i]));
    }
}

typedef struct bound_scores { law_score y, state; } bound_scores;

/* A state's element after the positions [0, p), of a column of a head; NULL: nobody can look at states. */
typedef double state_fn(const void *context, size_t head, size_t p, size_t column, size_t key);
typedef struct outputs {
    const lw_bf16 *y;           /* (positions, heads, width) of lane 0 */
    state_fn *state;
    const void *context;
} outputs;

static inline void anchor_score(const bounds *b, const truth *w, const outputs *r, size_t p, law_score *score)
{
    const shape *s = &b->t->s;
    for (size_t i = 0; i < (size_t)s->width * s->key_width; i++) {
        const size_t column = i / s->key_width, at = b->head * s->width * s->key_width + i;
        const double got = r->state(r->context, b->head, p, column, i % s->key_width);
        const double off = fabs(got - w->states[p / STRETCH * state_floats(b->t) + at]);
        const double bound = b->distance[column] + 0x1p-149;
        score->count++;
        if (!(off <= bound)) score->over++;
        if (!(off / bound <= score->worst)) score->worst = off / bound;
    }
}

/* A device's outputs and anchors against w, by the bounds of the right reference. */
static inline bound_scores bound_score(const streams *t, const truth *w, const truth *right, const outputs *r)
{
    bound_scores scores = { 0 };
    double error[WIDTH_MAX];
    bounds *b = law_make(1, sizeof *b);
    for (size_t head = 0; head < t->s.heads; head++) {
        *b = (bounds){ .t = t, .w = right, .head = head };
        b->key_error = t->s.delta ? ((double)t->s.key_width / 2 + 8) * EPS : 0;
        for (size_t p = 0; p < w->length; p++) {
            for (size_t i = 0; i < t->s.width && p > 0 && p % STRETCH == 0; i++) {
                b->distance[i] += fold_error(b, p, i);
            }
            if (p % STRETCH == 0 && r->state != NULL) anchor_score(b, w, r, p, &scores.state);
            row_errors(b, p, error);
            for (size_t i = 0; i < t->s.width; i++) {
                const size_t at = p * t->y_width + head * t->s.width + i;
                const double bound = error[i] + REF_EPS_BF16 * (fabs(w->y[at]) + error[i]) + REF_TINY_BF16;
                law_compare(&scores.y, r->y[at], w->y[at], bound);
            }
        }
    }
    free(b);
    return scores;
}

#endif
