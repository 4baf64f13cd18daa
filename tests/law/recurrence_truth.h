/* Lane 0 of streams (cpu_recurrence.h) in FP64, for judging any device's gated_delta and ssm; planted ones
 * are wrong on purpose.
 */
#ifndef LW_TESTS_RECURRENCE_TRUTH_H
#define LW_TESTS_RECURRENCE_TRUTH_H

#include "cpu_recurrence.h"

#include "../ref/ref_ops.h"
#include "../ref/ref_recur.h"

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

static inline size_t state_floats(const streams *t)
{
    return t->y_width * t->s.key_width;
}

/* The reference; a planted one decays a little differently, or has lost the write of one position. */
static inline truth truth_make(const streams *t, plant planted)
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

static inline void truth_free(truth *w)
{
    double *const all[] = { w->a_log, w->dt_bias, w->skip,  w->q,     w->k,     w->v,
                            w->u,     w->y,       w->decay, w->scale, w->input, w->states };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]);
}

#endif
