/* What the tests of gated_delta and ssm share: random streams, pages of both states with a table per lane, and
 * running any rows of them.
 */
#ifndef LW_TESTS_CPU_RECURRENCE_H
#define LW_TESTS_CPU_RECURRENCE_H

#include "cpu_law.h"

#include "base/pool.h"

enum { LANES = 3, STRETCH = LW_ANCHOR_POSITIONS };

typedef struct shape {
    uint32_t heads, width, key_heads, key_width;
    bool delta;
} shape;

/* The streams: what each lane's token at each position brings. x is q | k | v, or x | B | C. */
typedef struct streams {
    const lw_cpu_kernels *kernels;
    lw_pool *pool;
    shape s;
    size_t lengths[LANES], length_max;
    size_t x_width, y_width, key_floats;
    lw_bf16 *x[LANES], *step[LANES], *write[LANES];
    float *a_log, *dt_bias, *skip;
} streams;

/* Pages of both states, full of NaN, and a table of each per lane. */
typedef struct store {
    lw_cpu_pages steps, anchors;
    size_t lane_pages;
    uint32_t *step_table, *anchor_table;        /* (LANES, lane_pages) */
} store;

/* Rows of a batch: where each stands, and which token of which stream it brings. */
typedef struct rows {
    size_t count;
    size_t lane[LAW_ROWS_MAX], token[LAW_ROWS_MAX];
    lw_cpu_place places[LAW_ROWS_MAX], anchor_places[LAW_ROWS_MAX];
} rows;

static inline unsigned recur_threads(void)
{
    const char *asked = getenv("LW_TEST_THREADS");
    return asked != NULL ? (unsigned)atoi(asked) : LAW_PARTS_MAX;
}

/* The set that LW_TEST_ISA names, or each that runs here. */
static inline void recur_each_isa(void (*test)(const lw_cpu_kernels *kernels))
{
    const char *only = getenv("LW_TEST_ISA");
    if (only == NULL) {
        law_each_isa(test);
        return;
    }
    const lw_cpu_kernels *const *at = lw_cpu_available();
    while (*at != NULL && strcmp((*at)->isa, only) != 0) at++;
    if (*at == NULL) print_message("skipped: this processor does not run %s\n", only);
    else test(*at);
}

static inline streams streams_make(const lw_cpu_kernels *kernels, lw_rng *rng, shape s,
                                   const size_t lengths[LANES])
{
    streams t = { .kernels = kernels, .s = s };
    assert_int_equal(lw_pool_open(recur_threads(), NULL, &t.pool, NULL), LW_OK);
    t.y_width = (size_t)s.heads * s.width;
    t.key_floats = (size_t)s.key_heads * s.key_width;
    t.x_width = t.y_width + 2 * t.key_floats;
    t.a_log = law_floats(rng, s.heads, 0.5f);
    t.dt_bias = law_floats(rng, s.heads, 0.5f);
    t.skip = law_floats(rng, s.heads, 1.0f);
    for (size_t lane = 0; lane < LANES; lane++) {
        const size_t count = t.lengths[lane] = lengths[lane];
        t.length_max = size_max(t.length_max, count);
        t.x[lane] = law_bf(rng, count * t.x_width, 1.0f);
        t.step[lane] = law_bf(rng, count * s.heads, 1.0f);
        t.write[lane] = law_bf(rng, count * s.heads, 1.0f);
        /* Steps as models have them: most decays are small. */
        for (size_t i = 0; i < count * s.heads; i++) {
            t.step[lane][i] = lw_bf16_of_float(lw_float_of_bf16(t.step[lane][i]) - 2.0f);
        }
    }
    return t;
}

static inline void streams_free(streams *t)
{
    for (size_t lane = 0; lane < LANES; lane++) {
        free(t->x[lane]);
        free(t->step[lane]);
        free(t->write[lane]);
    }
    free(t->a_log);
    free(t->dt_bias);
    free(t->skip);
    lw_pool_close(t->pool);
}

static inline void *aligned_make(size_t bytes)
{
    void *p = aligned_alloc(64, size_round_up(bytes, 64));
    assert_non_null(p);
    memset(p, 0xFF, size_round_up(bytes, 64));
    return p;
}

/* Page ids of all lanes, in order or, with shuffle, in random order. */
static inline uint32_t *table_make(size_t count, lw_rng *shuffle)
{
    uint32_t *table = law_make(count, sizeof *table);
    for (uint32_t i = 0; i < count; i++) table[i] = i;
    for (size_t i = count; shuffle != NULL && i > 1; i--) {
        const size_t j = lw_rng_below(shuffle, i);
        const uint32_t page = table[i - 1];
        table[i - 1] = table[j];
        table[j] = page;
    }
    return table;
}

static inline store store_make(const streams *t, lw_rng *shuffle)
{
    lw_state state = { .kind = LW_STATE_STEPS, .heads = t->s.heads, .width = t->s.width,
                       .key_heads = t->s.key_heads, .key_width = t->s.key_width };
    store st = { .lane_pages = t->length_max / STRETCH + 3 };
    st.steps.page_bytes = size_round_up(lw_state_page_bytes(&state), 64);
    state.kind = LW_STATE_ANCHOR;
    st.anchors.page_bytes = size_round_up(lw_state_page_bytes(&state), 64);
    const size_t count = LANES * st.lane_pages;
    st.steps.bytes = aligned_make(count * st.steps.page_bytes);
    st.anchors.bytes = aligned_make(count * st.anchors.page_bytes);
    st.step_table = table_make(count, shuffle);
    st.anchor_table = table_make(count, shuffle);
    return st;
}

static inline void store_free(store *st)
{
    free(st->steps.bytes);
    free(st->anchors.bytes);
    free(st->step_table);
    free(st->anchor_table);
}

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

static inline const float *step_page(const store *st, size_t lane, size_t index)
{
    const uint32_t page = st->step_table[lane * st->lane_pages + index];
    return (const float *)(const void *)(st->steps.bytes + page * st->steps.page_bytes);
}

static inline const float *anchor_page(const store *st, size_t lane, size_t index)
{
    const uint32_t page = st->anchor_table[lane * st->lane_pages + index];
    return (const float *)(const void *)(st->anchors.bytes + page * st->anchors.page_bytes);
}

/* Column `column` of the state's row for key column `key` of a head. */
static inline float state_element(const shape *s, const float *page, size_t head, size_t column, size_t key)
{
    const size_t block = column / 32, cols = size_min(s->width - block * 32, 32);
    return page[(head * s->width + block * 32) * s->key_width + key * cols + column % 32];
}

#endif
