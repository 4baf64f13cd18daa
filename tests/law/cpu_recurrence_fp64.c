/* gated_delta and ssm against FP64: outputs and states within a derived bound, and over many rows no further
 * off than a few times a serial fp32 form. Every check has a twin that is wrong on purpose and must fail it.
 */
#include "cpu_recurrence_rows.h"
#include "../ref/ref_ops.h"
#include "../ref/ref_recur.h"

enum { BOUND_LENGTH = 200, SHORT_LENGTH = 513, LONG_LENGTH = 4097 };

typedef enum plant { PLANT_NONE, PLANT_DECAY, PLANT_STEP, PLANT_COUNT } plant;

/* Lane 0 in FP64: what each row makes, and the state at each anchor. */
typedef struct truth {
    size_t length;
    double *a_log, *dt_bias, *skip;
    ref_recur recur;
    double *q, *k;              /* (positions, key_heads, key_width), as they enter */
    double *v, *u, *y;          /* (positions, heads, width) */
    double *decay, *scale;      /* (positions, heads) */
    double *input;              /* (positions, heads): what softplus takes */
    double *states;             /* (anchors, heads, width, key_width) */
} truth;

static size_t state_floats(const streams *t)
{
    return t->y_width * t->s.key_width;
}

/* The reference; a planted one decays a little differently, or has lost the write of one position. */
static truth truth_make(const streams *t, plant planted)
{
    const size_t n = t->lengths[0], heads = t->s.heads, keys = t->key_floats, y_width = t->y_width;
    truth w = { .length = n, .a_log = law_doubles(t->a_log, heads),
                .dt_bias = law_doubles(t->dt_bias, heads), .skip = law_doubles(t->skip, heads) };
    double *x = law_doubles_of_bf(t->x[0], n * t->x_width), *step = law_doubles_of_bf(t->step[0], n * heads);
    double *write = law_doubles_of_bf(t->write[0], n * heads);
    double *state = law_make(state_floats(t), sizeof *state);
    w.q = law_make(n * keys, sizeof *w.q);
    w.k = law_make(n * keys, sizeof *w.k);
    w.v = law_make(n * y_width, sizeof *w.v);
    w.u = law_make(n * y_width, sizeof *w.u);
    w.y = law_make(n * y_width, sizeof *w.y);
    w.decay = law_make(n * heads, sizeof *w.decay);
    w.scale = law_make(n * heads, sizeof *w.scale);
    w.input = law_make(n * heads, sizeof *w.input);
    w.states = law_make((n / STRETCH + 1) * state_floats(t), sizeof *w.states);
    for (size_t h = 0; h < heads && planted == PLANT_DECAY; h++) w.a_log[h] += 1e-3;
    w.recur = (ref_recur){ .heads = heads, .width = t->s.width, .key_heads = t->s.key_heads,
                           .key_width = t->s.key_width, .a_log = w.a_log, .dt_bias = w.dt_bias,
                           .skip = t->s.delta ? NULL : w.skip, .step_min = (double)0.001f, .step_max = 5 };
    for (size_t p = 0; p < n; p++) {
        double *row = x + p * t->x_width;
        double *v = t->s.delta ? row + 2 * keys : row, *k = t->s.delta ? row + keys : row + y_width;
        if (planted == PLANT_STEP && p == STRETCH - 1) memset(k, 0, keys * sizeof *k);
        if (p % STRETCH == 0) {
            memcpy(w.states + p / STRETCH * state_floats(t), state, state_floats(t) * sizeof *state);
        }
        memcpy(w.v + p * y_width, v, y_width * sizeof *v);
        for (size_t h = 0; h < heads; h++) w.input[p * heads + h] = step[p * heads + h] + w.dt_bias[h];
        const ref_recur_row r = {
            .q = t->s.delta ? row : row + y_width + keys, .k = k, .v = v, .step = step + p * heads,
            .write = write + p * heads, .q_made = w.q + p * keys, .k_made = w.k + p * keys,
            .u = w.u + p * y_width, .decay = w.decay + p * heads, .scale = w.scale + p * heads,
            .y = w.y + p * y_width,
        };
        ref_recur_step(&w.recur, &r, state);
    }
    free(x);
    free(step);
    free(write);
    free(state);
    return w;
}

static void truth_free(truth *w)
{
    double *const all[] = { w->a_log, w->dt_bias, w->skip,  w->q,     w->k,     w->v,
                            w->u,     w->y,       w->decay, w->scale, w->input, w->states };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]);
}

/* The kernel over lane 0: outputs, and its pages. */
typedef struct run { store st; lw_bf16 *y; } run;

static run run_make(const streams *t)
{
    run r = { .st = store_make(t, NULL), .y = law_make(t->lengths[0] * t->y_width, sizeof(lw_bf16)) };
    for (size_t p = 0; p < t->lengths[0];) {
        rows some = { 0 };
        const size_t begin = p;
        while (p < t->lengths[0] && some.count < LAW_ROWS_MAX) rows_add(&some, &r.st, 0, p++, begin);
        lw_bf16 *y = rows_run(t, &r.st, &some, recur_threads());
        memcpy(r.y + begin * t->y_width, y, some.count * t->y_width * sizeof *y);
        free(y);
    }
    return r;
}

static void run_free(run *r)
{
    store_free(&r->st);
    free(r->y);
}

/* ---- the bound ---- */

/* Errors of one value head as it goes: eps is the unit roundoff of fp32, a chain of n steps is 2 n eps off
 * relative to the sum of its sizes (multiply and add may each round). */
typedef struct errors {
    double state[128 * 128];            /* (width, key_width): of the state at the last anchor */
    double u[STRETCH][128];             /* of the steps since */
    double c[STRETCH], rate[STRETCH];   /* cumulative decays; their relative errors */
} errors;

#define EPS REF_EPS_F32

/* A decay: the argument of softplus is off by |x| eps, softplus by 5 ulp, its rate by 2, and the product; one
 * ulp is at most 2 eps. */
static double decay_error(double x)
{
    return (fabs(x) + 10 + 4 + 2) * EPS;
}

/* What is common to the rows of one head. */
typedef struct bounds {
    const streams *t;
    const truth *w;
    size_t head;
    double key_error;           /* relative, of what enters of k and q */
    errors *e;
} bounds;

static const double *key_of(const bounds *b, const double *from, size_t p)
{
    const size_t shared = b->t->s.heads / b->t->s.key_heads;
    return from + p * b->t->key_floats + b->head / shared * b->t->s.key_width;
}

static const double *column_of(const bounds *b, const double *from, size_t p)
{
    return from + p * b->t->y_width + b->head * b->t->s.width;
}

/* Relative error of e^(c_i - c_j), whose exponent is off by what both are and by its own rounding. */
static double fade_error(const errors *e, size_t i, size_t j)
{
    const double before = j == SIZE_MAX ? 0 : e->rate[j] * fabs(e->c[j]);
    return 1.01 * (e->rate[i] * fabs(e->c[i]) + before + EPS * fabs(e->c[i])) + 4 * EPS;
}

/* The error of e^c S x + sum over the steps [first, end) since the anchor of e^(c - c_j) (k_j x) u_j, in
 * column i; x is the row's key or query. */
static double sum_error(const bounds *b, const double *x, size_t p, size_t steps, size_t i)
{
    const size_t start = p / STRETCH * STRETCH, at = p - start, kw = b->t->s.key_width;
    const double *state = b->w->states + p / STRETCH * state_floats(b->t)
                        + (b->head * b->t->s.width + i) * kw;
    const double chain = 2 * (double)(kw + steps + 2) * EPS;
    double size = 0, off = 0;
    for (size_t d = 0; d < kw; d++) {
        size += fabs(state[d] * x[d]);
        off += b->e->state[i * kw + d] * fabs(x[d]);
    }
    const double fade = exp(b->e->c[at]);
    double error = fade * (off + size * (b->key_error + chain + fade_error(b->e, at, SIZE_MAX)));
    for (size_t j = 0; j < steps; j++) {
        const double *k = key_of(b, b->w->k, start + j), u = column_of(b, b->w->u, start + j)[i];
        double dot = 0;
        for (size_t d = 0; d < kw; d++) dot += fabs(k[d] * x[d]);
        const double weight = j == at ? 1 : exp(b->e->c[at] - b->e->c[j]);
        const double relative = 2 * b->key_error + chain + (j == at ? 0 : fade_error(b->e, at, j)) + EPS;
        error += weight * dot * (b->e->u[j][i] + fabs(u) * relative);
    }
    return 1.01 * error;
}

/* Takes the errors of the state over an anchor. */
static void fold_errors(const bounds *b, size_t p)
{
    errors *e = b->e;
    const size_t kw = b->t->s.key_width, start = p - STRETCH;
    const double *state = b->w->states + start / STRETCH * state_floats(b->t)
                        + b->head * b->t->s.width * kw;
    const double chain = 2 * (STRETCH + 2) * EPS;
    for (size_t i = 0; i < b->t->s.width; i++) {
        for (size_t d = 0; d < kw; d++) {
            const double size = fabs(state[i * kw + d]), fade = exp(e->c[STRETCH - 1]);
            double error = fade * (e->state[i * kw + d] + size * (chain + fade_error(e, 63, SIZE_MAX)));
            for (size_t j = 0; j < STRETCH; j++) {
                const double k = fabs(key_of(b, b->w->k, start + j)[d]);
                const double u = fabs(column_of(b, b->w->u, start + j)[i]);
                const double relative = b->key_error + chain + fade_error(e, 63, j);
                error += exp(e->c[63] - e->c[j]) * k * (e->u[j][i] + u * relative);
            }
            e->state[i * kw + d] = 1.01 * error;
        }
    }
}

/* One row: takes the errors on, returns nothing; error (width) is that of its output in fp32. */
static void row_errors(const bounds *b, size_t p, double *error)
{
    const streams *t = b->t;
    const truth *w = b->w;
    errors *e = b->e;
    const size_t at = p % STRETCH, heads = t->s.heads, index = p * heads + b->head;
    const double before = at == 0 ? 0 : e->c[at - 1] * (at == 0 ? 0 : e->rate[at - 1]);
    const double own = decay_error(w->input[index]);
    e->c[at] = (at == 0 ? 0 : e->c[at - 1]) + w->decay[index];
    e->rate[at] = (fabs(before) + fabs(w->decay[index]) * own) / fabs(e->c[at]) + EPS;
    const double scale = w->scale[index], scale_error = t->s.delta ? 8 * EPS : own;
    for (size_t i = 0; i < t->s.width; i++) {
        const double u = column_of(b, w->u, p)[i], v = column_of(b, w->v, p)[i];
        const double taken = u / scale;         /* v less the correction */
        double off = t->s.delta ? sum_error(b, key_of(b, w->k, p), p, at, i) + EPS * fabs(taken) : 0;
        e->u[at][i] = 1.01 * (scale * off + fabs(u) * (scale_error + EPS));
        error[i] = sum_error(b, key_of(b, w->q, p), p, at + 1, i);
        if (!t->s.delta) error[i] += 2 * EPS * (fabs(w->skip[b->head] * v) + fabs(column_of(b, w->y, p)[i]));
    }
}

/* Every output and every element of every anchor against its bound, those of the kernel or of a twin. */
static law_score bound_score(const streams *t, const truth *w, const truth *right, const run *r)
{
    law_score score = { 0 };
    double error[128];
    errors *e = law_make(1, sizeof *e);
    const size_t kw = t->s.key_width;
    for (size_t head = 0; head < t->s.heads; head++) {
        memset(e, 0, sizeof *e);
        const bounds b = { t, right, head, t->s.delta ? ((double)kw / 2 + 8) * EPS : 0, e };
        for (size_t p = 0; p < w->length; p++) {
            if (p % STRETCH == 0 && p > 0) fold_errors(&b, p);
            for (size_t i = 0; i < t->s.width * kw && p % STRETCH == 0; i++) {
                const float got = state_element(&t->s, anchor_page(&r->st, 0, p / STRETCH), head, i / kw, i % kw);
                const double want = w->states[p / STRETCH * state_floats(t) + head * t->s.width * kw + i];
                const double bound = e->state[i] + 0x1p-149;
                const double off = fabs((double)got - want);
                score.count++;
                if (!(off <= bound)) score.over++;
                if (!(off / bound <= score.worst)) score.worst = off / bound;
            }
            row_errors(&b, p, error);
            for (size_t i = 0; i < t->s.width; i++) {
                const double want = w->y[p * t->y_width + head * t->s.width + i];
                const double bound = error[i] + REF_EPS_BF16 * (fabs(want) + error[i]) + REF_TINY_BF16;
                law_compare(&score, r->y[p * t->y_width + head * t->s.width + i], want, bound);
            }
        }
    }
    free(e);
    return score;
}

static void bound_of_isa(const lw_cpu_kernels *kernels)
{
    static const shape shapes[] = { { 4, 32, 2, 32, true }, { 3, 40, 1, 24, true }, { 2, 64, 1, 128, false },
                                    { 2, 24, 2, 40, false }, { 2, 128, 1, 128, true } };
    static const size_t lengths[LANES] = { BOUND_LENGTH, 1, 1 };
    lw_rng rng = law_rng(0x502);
    for (size_t i = 0; i < (law_long() ? 5 : 4); i++) {
        streams t = streams_make(kernels, &rng, shapes[i], lengths);
        run r = run_make(&t);
        truth right = truth_make(&t, PLANT_NONE);
        const law_score score = bound_score(&t, &right, &right, &r);
        print_message("%s %s: worst %.3f of its bound\n", kernels->isa, shapes[i].delta ? "delta" : "ssm",
                      score.worst);
        assert_int_equal(score.over, 0);
        for (plant planted = PLANT_DECAY; planted < PLANT_COUNT; planted++) {
            truth wrong = truth_make(&t, planted);
            const law_score caught = bound_score(&t, &wrong, &right, &r);
            print_message("%zu of %zu\n", caught.over, caught.count);
            assert_true(caught.over > caught.count / 50);
            truth_free(&wrong);
        }
        truth_free(&right);
        run_free(&r);
        streams_free(&t);
    }
}

static void recurrences_meet_their_bound(void **state)
{
    (void)state;
    recur_each_isa(bound_of_isa);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(recurrences_meet_their_bound) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
