/* What the tests of gated_delta and ssm share: random streams, and pages of both states with a table per
 * lane. */
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

static inline unsigned recur_threads(void)
{
    const char *asked = getenv("LW_TEST_THREADS");
    return asked != NULL ? (unsigned)strtoul(asked, NULL, 10) : LAW_PARTS_MAX;
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
