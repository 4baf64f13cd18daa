/* Running any rows of the streams of cpu_recurrence.h: chains, trees, guesses that bring other tokens. */
#ifndef LW_TESTS_CPU_RECURRENCE_ROWS_H
#define LW_TESTS_CPU_RECURRENCE_ROWS_H

#include "cpu_recurrence.h"

/* Rows of a batch: where each stands, and which token of which stream it brings. */
typedef struct rows {
    size_t count;
    size_t lane[LAW_ROWS_MAX], token[LAW_ROWS_MAX];
    lw_cpu_place places[LAW_ROWS_MAX], anchor_places[LAW_ROWS_MAX];
} rows;

/* A chain row that brings its own position's token. */
static inline lw_cpu_place *rows_add(rows *r, const store *st, size_t lane, size_t position, size_t committed)
{
    assert_true(r->count < LAW_ROWS_MAX);
    const size_t i = r->count++;
    r->lane[i] = lane;
    r->token[i] = position;
    r->places[i] = (lw_cpu_place){ .position = (uint32_t)position, .slot = (uint32_t)position,
                                   .committed = (uint32_t)committed,
                                   .pages = st->step_table + lane * st->lane_pages };
    return &r->places[i];
}

/* (rows, width) of what the rows bring; the token may stand past the end of its stream. */
static inline lw_bf16 *rows_take(const streams *t, const rows *r, lw_bf16 *const from[LANES], size_t width)
{
    lw_bf16 *x = law_make(r->count * width, sizeof *x);
    for (size_t i = 0; i < r->count; i++) {
        const size_t token = r->token[i] % t->lengths[r->lane[i]];
        memcpy(x + i * width, from[r->lane[i]] + token * width, width * sizeof *x);
    }
    return x;
}

typedef struct recur_job {
    void (*kernel)(const lw_cpu_recur_args *args, unsigned part, unsigned parts);
    const lw_cpu_recur_args *args;
} recur_job;

static inline void recur_part(void *context, unsigned part, unsigned parts)
{
    const recur_job *job = context;
    job->kernel(job->args, part, parts);
}

/* Runs in as many parts as the pool has threads run there: under the thread sanitizer, parts that share an
 * element are caught. Other numbers of parts run one by one. */
static inline void recur_run_parts(const streams *t, recur_job job, unsigned parts)
{
    if (parts == lw_pool_threads(t->pool)) lw_pool_run(t->pool, recur_part, &job);
    else LAW_RUN(recur_part, &job, parts);
}

/* (rows, y_width) of the rows' outputs; their steps and anchors go to the store. */
static inline lw_bf16 *rows_run(const streams *t, const store *st, rows *r, unsigned parts)
{
    const shape *s = &t->s;
    lw_bf16 *x = rows_take(t, r, t->x, t->x_width), *y = law_make(r->count * t->y_width, sizeof *y);
    lw_bf16 *step = rows_take(t, r, t->step, s->heads), *write = rows_take(t, r, t->write, s->heads);
    const uint32_t count = (uint32_t)r->count;
    for (size_t i = 0; i < count; i++) {
        r->anchor_places[i] = r->places[i];
        r->anchor_places[i].pages = st->anchor_table + (r->places[i].pages - st->step_table);
    }
    float *prepared = aligned_make(
        lw_cpu_recur_prepared_floats(s->heads, s->key_heads, s->key_width, count) * sizeof *prepared);
    float *scratch =
        aligned_make(parts * lw_cpu_recur_scratch_floats(s->width, s->key_width) * sizeof *scratch);
    const lw_cpu_recur_args args = {
        .queries = s->delta ? x : x + t->y_width + t->key_floats,
        .keys = s->delta ? x + t->key_floats : x + t->y_width,
        .values = s->delta ? x + 2 * t->key_floats : x,
        .x_stride = t->x_width, .step = step, .step_stride = s->heads,
        .write = s->delta ? write : NULL, .write_stride = s->heads,
        .a_log = t->a_log, .dt_bias = t->dt_bias, .skip = s->delta ? NULL : t->skip,
        .step_min = 0.001f, .step_max = 5.0f, .y = y, .y_stride = t->y_width,
        .steps = st->steps, .anchors = st->anchors, .places = r->places, .anchor_places = r->anchor_places,
        .prepared = prepared, .scratch = scratch, .rows = count, .heads = s->heads, .width = s->width,
        .key_heads = s->key_heads, .key_width = s->key_width,
    };
    recur_run_parts(t, (recur_job){ t->kernels->recur_prepare, &args }, parts);
    recur_run_parts(t, (recur_job){ t->kernels->recur_run, &args }, parts);
    free(x);
    free(step);
    free(write);
    free(prepared);
    free(scratch);
    return y;
}

#endif
