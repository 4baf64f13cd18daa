/* gated_delta and ssm against FP64: outputs and states within a derived bound, and over many rows no further
 * off than a few times a serial fp32 form. Every check has a twin that is wrong on purpose and must fail it.
 */
#include "cpu_recurrence_rows.h"
#include "recurrence_bound.h"

enum { BOUND_LENGTH = 200, SHORT_LENGTH = 513, LONG_LENGTH = 4097 };

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

typedef struct kernel_states { const streams *t; const run *r; } kernel_states;

static double state_of_kernel(const void *context, size_t head, size_t p, size_t column, size_t key)
{
    const kernel_states *s = context;
    const float *page = anchor_page(&s->r->st, 0, p / STRETCH);
    return (double)state_element(&s->t->s, page, head, column, key);
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
        const kernel_states states = { &t, &r };
        const outputs got = { r.y, state_of_kernel, &states };
        const bound_scores scores = bound_score(&t, &right, &right, &got);
        print_message("%s %s: outputs %.3f of their bound, states %.3f\n", kernels->isa,
                      shapes[i].delta ? "gated_delta" : "ssm", scores.y.worst, scores.state.worst);
        assert_int_equal(scores.y.over, 0);
        assert_int_equal(scores.state.over, 0);
        for (plant planted = PLANT_DECAY; planted < PLANT_COUNT; planted++) {
            truth wrong = truth_make(&t, planted);
            const bound_scores caught = bound_score(&t, &wrong, &right, &got);
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
