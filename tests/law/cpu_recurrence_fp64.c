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
    for (size_t h = 0; h < heads && planted == PLANT_DECAY; h++) w.a_log[h] += 0.02;
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
static double decay_error(double x)
{
    return (fabs(x) + 10 + 4 + 2) * EPS;
}

static const double *key_of(const bounds *b, const double *from, size_t p)
{
    const size_t shared = b->t->s.heads / b->t->s.key_heads;
    return from + p * b->t->key_floats + b->head / shared * b->t->s.key_width;
}

static const double *column_of(const bounds *b, const double *from, size_t p)
{
    return from + p * b->t->y_width + b->head * b->t->s.width;
}

static const double *anchor_of(const bounds *b, size_t p)
{
    const size_t head_floats = (size_t)b->t->s.width * b->t->s.key_width;
    return b->w->states + p / STRETCH * state_floats(b->t) + b->head * head_floats;
}

static double norm_of(const double *x, size_t count)
{
    double squares = 0;
    for (size_t i = 0; i < count; i++) squares += x[i] * x[i];
    return sqrt(squares);
}

static double dot_size(const double *a, const double *b, size_t count)
{
    double size = 0;
    for (size_t i = 0; i < count; i++) size += fabs(a[i] * b[i]);
    return size;
}

/* Relative error of e^(c_i - c_j), j negative: of e^(c_i). The exponent's error is that of the decays between
 * and of their sum. */
static double fade_error(const bounds *b, size_t i, ptrdiff_t j)
{
    const double decays = b->c_error[i] - (j < 0 ? 0 : b->c_error[j]), c = b->c[i] - (j < 0 ? 0 : b->c[j]);
    return 1.01 * (decays + STRETCH * EPS * fabs(c)) + 4 * EPS;
}

/* The local error of e^c S x + sum over steps of e^(c - c_j) (k_j x) u_j, in column i; x is the key or the
 * query of the row at p. */
static double sum_error(const bounds *b, const double *x, size_t p, size_t steps, size_t i)
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
static double fold_error(const bounds *b, size_t p, size_t i)
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
static void row_errors(bounds *b, size_t p, double *error)
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

static void anchor_score(const bounds *b, const truth *w, const run *r, size_t p, law_score *score)
{
    const shape *s = &b->t->s;
    for (size_t i = 0; i < (size_t)s->width * s->key_width; i++) {
        const size_t column = i / s->key_width, at = b->head * s->width * s->key_width + i;
        const float *page = anchor_page(&r->st, 0, p / STRETCH);
        const double got = (double)state_element(s, page, b->head, column, i % s->key_width);
        const double off = fabs(got - w->states[p / STRETCH * state_floats(b->t) + at]);
        const double bound = b->distance[column] + 0x1p-149;
        score->count++;
        if (!(off <= bound)) score->over++;
        if (!(off / bound <= score->worst)) score->worst = off / bound;
    }
}

/* The kernel's outputs and anchors against w, by the bounds of the right reference. */
static bound_scores bound_score(const streams *t, const truth *w, const truth *right, const run *r)
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
            if (p % STRETCH == 0) anchor_score(b, w, r, p, &scores.state);
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
        const bound_scores scores = bound_score(&t, &right, &right, &r);
        print_message("%s %s: outputs %.3f of their bound, states %.3f\n", kernels->isa,
                      shapes[i].delta ? "gated_delta" : "ssm", scores.y.worst, scores.state.worst);
        assert_int_equal(scores.y.over, 0);
        assert_int_equal(scores.state.over, 0);
        for (plant planted = PLANT_DECAY; planted < PLANT_COUNT; planted++) {
            truth wrong = truth_make(&t, planted);
            const bound_scores caught = bound_score(&t, &wrong, &right, &r);
            assert_true(caught.y.over > caught.y.count / 50);
            assert_true(caught.state.over > caught.state.count / 10);
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

/* ---- many rows ---- */

/* A recurrence of one head in fp32, row after row; coarse rounds the state to bf16 at anchors, which a good
 * form must not be as bad as. */
typedef struct serial {
    float *state;               /* (width, key_width): before the last row */
    float *y, *u;               /* (positions, width) */
} serial;

static void serial_step(const streams *t, const truth *w, size_t p, serial *s)
{
    const size_t kw = t->s.key_width, width = t->s.width;
    const double *q = w->q + p * kw, *k = w->k + p * kw;
    const float alpha = expf((float)w->decay[p]), scale = (float)w->scale[p];
    for (size_t i = 0; i < width; i++) {
        float *state = s->state + i * kw, before = 0.0f, out = 0.0f;
        const float v = (float)w->v[p * width + i];
        for (size_t d = 0; d < kw; d++) {
            state[d] *= alpha;
            before += state[d] * (float)k[d];
        }
        const float u = scale * (t->s.delta ? v - before : v);
        for (size_t d = 0; d < kw; d++) {
            state[d] += u * (float)k[d];
            out += state[d] * (float)q[d];
        }
        s->u[p * width + i] = u;
        s->y[p * width + i] = t->s.delta ? out : out + (float)w->skip[0] * v;
    }
}

static serial serial_make(const streams *t, const truth *w, bool coarse)
{
    serial s = { .state = law_make(state_floats(t), sizeof *s.state),
                 .y = law_make(w->length * t->s.width, sizeof *s.y),
                 .u = law_make(w->length * t->s.width, sizeof *s.u) };
    for (size_t p = 0; p + 1 < w->length; p++) {
        serial_step(t, w, p, &s);
        for (size_t i = 0; coarse && p % STRETCH == STRETCH - 1 && i < state_floats(t); i++) {
            s.state[i] = lw_float_of_bf16(lw_bf16_of_float(s.state[i]));
        }
    }
    return s;
}

static void serial_free(serial *s)
{
    free(s->state);
    free(s->y);
    free(s->u);
}

/* |got - want| / |want| of many numbers. */
typedef struct distance { double off, size; } distance;

static void distance_add(distance *d, float got, double want)
{
    d->off += ((double)got - want) * ((double)got - want);
    d->size += want * want;
}

static double distance_of(distance d)
{
    return sqrt(d.off / d.size);
}

/* How far a form is off: its outputs, rounded to bf16; its last state; what it wrote in the last stretch. */
typedef struct distances { double y, state, u; } distances;

static distances distances_of_run(const streams *t, const truth *w, const run *r)
{
    distance y = { 0 }, state = { 0 }, u = { 0 };
    const size_t width = t->s.width, kw = t->s.key_width, end = w->length - 1, last = end / STRETCH;
    for (size_t i = 0; i < end * width; i++) distance_add(&y, lw_float_of_bf16(r->y[i]), w->y[i]);
    const float *written = step_page(&r->st, 0, last - 1) + kw * STRETCH;
    for (size_t i = 0; i < STRETCH * width; i++) {
        distance_add(&u, written[i], w->u[(end - STRETCH) * width + i]);
    }
    for (size_t i = 0; i < width * kw; i++) {
        const float got = state_element(&t->s, anchor_page(&r->st, 0, last), 0, i / kw, i % kw);
        distance_add(&state, got, w->states[last * width * kw + i]);
    }
    return (distances){ distance_of(y), distance_of(state), distance_of(u) };
}

static distances distances_of_serial(const streams *t, const truth *w, const serial *s)
{
    distance y = { 0 }, state = { 0 }, u = { 0 };
    const size_t width = t->s.width, kw = t->s.key_width, end = w->length - 1, last = end / STRETCH;
    for (size_t i = 0; i < end * width; i++) {
        distance_add(&y, lw_float_of_bf16(lw_bf16_of_float(s->y[i])), w->y[i]);
    }
    for (size_t i = (end - STRETCH) * width; i < end * width; i++) distance_add(&u, s->u[i], w->u[i]);
    const double *anchor = w->states + last * width * kw;
    for (size_t i = 0; i < width * kw; i++) distance_add(&state, s->state[i], anchor[i]);
    return (distances){ distance_of(y), distance_of(state), distance_of(u) };
}

/* Both sides end at an anchor, whose row is the last. */
static void far_of_isa(const lw_cpu_kernels *kernels)
{
    static const shape shapes[] = { { 1, 128, 1, 128, true }, { 1, 64, 1, 128, false } };
    lw_rng rng = law_rng(0x503);
    for (size_t i = 0; i < 4; i++) {
        const size_t lengths[LANES] = { i < 2 ? SHORT_LENGTH : LONG_LENGTH, 1, 1 };
        streams t = streams_make(kernels, &rng, shapes[i % 2], lengths);
        truth w = truth_make(&t, PLANT_NONE);
        run r = run_make(&t);
        serial fine = serial_make(&t, &w, false), coarse = serial_make(&t, &w, true);
        const distances got = distances_of_run(&t, &w, &r), want = distances_of_serial(&t, &w, &fine);
        const distances bad = distances_of_serial(&t, &w, &coarse);
        print_message("%s %s, %zu rows, against serial: state %.2e %.2e, steps %.2e %.2e, y %.2e %.2e\n",
                      kernels->isa, t.s.delta ? "gated_delta" : "ssm", lengths[0] - 1, got.state, want.state,
                      got.u, want.u, got.y, want.y);
        assert_true(got.y <= 3 * want.y && got.state <= 3 * want.state && got.u <= 3 * want.u);
        assert_true(bad.state > 3 * want.state);
        serial_free(&fine);
        serial_free(&coarse);
        run_free(&r);
        truth_free(&w);
        streams_free(&t);
    }
}

static void many_rows_stay_near_the_serial_form(void **state)
{
    (void)state;
    recur_each_isa(far_of_isa);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recurrences_meet_their_bound),
        cmocka_unit_test(many_rows_stay_near_the_serial_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
