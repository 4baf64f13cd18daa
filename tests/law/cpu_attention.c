/* The row law and the FP64 bounds of the ops that read history: kv_store with attend, and short_conv.
 * Law: a row's bits are those of the stream alone, token by token, whatever cut, company, parts, page order
 * or tree it comes in. Pages are filled with NaN before use and pages out of reach are absent, so a kernel
 * that looks at what a row cannot see is caught. Every check has a twin that is wrong on purpose and must be
 * caught.
 */
#include "cpu_law.h"
#include "../ref/ref_ops.h"

#include "base/pool.h"

enum { LANES = 3, TAPS = 7, PAGE = LW_PAGE_POSITIONS, LENGTH_MAX = 1290, OPEN_MAX = 40 };
enum { PAGES_LANE = LENGTH_MAX / PAGE + 4, POOL_PAGES = LANES * PAGES_LANE };
static const size_t lengths[LANES] = { LENGTH_MAX, 70, 530 };

typedef struct shape {
    uint32_t heads, heads_kv, head_dim, window, first;
    bool bias, silu;                            /* what follows the convolution's sum */
    lw_kv_type kv;
} shape;

/* The streams: what each lane's token at each position brings, and the bits of each row alone. */
typedef struct streams {
    const lw_cpu_kernels *kernels;
    lw_pool *pool;                              /* LAW_PARTS_MAX threads */
    shape s;
    size_t q_width, kv_width;
    lw_bf16 *q[LANES], *k[LANES], *v[LANES];    /* (positions, width) */
    lw_bf16 *alone[LANES];                      /* (positions, q_width) attention */
    float *w, *bias;                            /* (TAPS, q_width), [q_width]; the convolution's input is q */
    lw_bf16 *conv_alone[LANES];                 /* (positions, q_width) */
} streams;

/* Pages of both states and a page table per lane. */
typedef struct store {
    lw_cpu_pages kv, tail;
    uint32_t tables[LANES][PAGES_LANE];
} store;

/* Rows of a batch, gathered from the streams. */
typedef struct rows {
    size_t count;
    size_t shift;               /* a row at p brings what its stream has at p - shift */
    size_t lane[LAW_ROWS_MAX];
    lw_cpu_place places[LAW_ROWS_MAX];
} rows;

static streams streams_make(const lw_cpu_kernels *kernels, lw_rng *rng, shape s)
{
    streams t = { .kernels = kernels, .s = s };
    assert_int_equal(lw_pool_open(LAW_PARTS_MAX, NULL, &t.pool, NULL), LW_OK);
    t.q_width = (size_t)s.heads * s.head_dim;
    t.kv_width = (size_t)s.heads_kv * s.head_dim;
    t.w = law_floats(rng, TAPS * t.q_width, 0.5f);
    t.bias = law_floats(rng, t.q_width, 0.5f);
    for (size_t lane = 0; lane < LANES; lane++) {
        t.q[lane] = law_bf(rng, lengths[lane] * t.q_width, 1.5f);
        t.k[lane] = law_bf(rng, lengths[lane] * t.kv_width, 1.0f);
        t.v[lane] = law_bf(rng, lengths[lane] * t.kv_width, 1.0f);
        t.alone[lane] = law_make(lengths[lane] * t.q_width, sizeof(lw_bf16));
        t.conv_alone[lane] = law_make(lengths[lane] * t.q_width, sizeof(lw_bf16));
    }
    return t;
}

static void streams_free(streams *t)
{
    for (size_t lane = 0; lane < LANES; lane++) {
        free(t->q[lane]);
        free(t->k[lane]);
        free(t->v[lane]);
        free(t->alone[lane]);
        free(t->conv_alone[lane]);
    }
    free(t->w);
    free(t->bias);
    lw_pool_close(t->pool);
}

static void *aligned_make(size_t bytes)
{
    void *p = aligned_alloc(64, size_round_up(bytes, 64));
    assert_non_null(p);
    return p;
}

/* Pages full of NaN, dealt to the lanes in order or in random order. */
static store store_make(const streams *t, lw_rng *shuffle)
{
    const lw_state kv = {
        .kind = LW_STATE_KV, .kv = t->s.kv, .heads = t->s.heads_kv, .width = t->s.head_dim
    };
    const lw_state tail = { .kind = LW_STATE_TAIL, .heads = 1, .width = (uint32_t)t->q_width };
    store st = { .kv = { .page_bytes = lw_state_page_bytes(&kv) } };
    st.tail.page_bytes = lw_state_page_bytes(&tail);
    st.kv.bytes = aligned_make(POOL_PAGES * st.kv.page_bytes);
    st.tail.bytes = aligned_make(POOL_PAGES * st.tail.page_bytes);
    memset(st.kv.bytes, 0xFF, POOL_PAGES * st.kv.page_bytes);
    memset(st.tail.bytes, 0xFF, POOL_PAGES * st.tail.page_bytes);
    uint32_t *flat = &st.tables[0][0];
    for (uint32_t i = 0; i < POOL_PAGES; i++) flat[i] = i;
    for (uint32_t i = POOL_PAGES; shuffle != NULL && i > 1; i--) {
        const size_t j = lw_rng_below(shuffle, i);
        const uint32_t page = flat[i - 1];
        flat[i - 1] = flat[j];
        flat[j] = page;
    }
    return st;
}

static void store_free(store *st)
{
    free(st->kv.bytes);
    free(st->tail.bytes);
}

static void rows_add(rows *r, const store *st, size_t lane, size_t position)
{
    assert_true(r->count < LAW_ROWS_MAX);
    r->lane[r->count] = lane;
    r->places[r->count++] = (lw_cpu_place){
        .position = (uint32_t)position, .slot = (uint32_t)position, .pages = st->tables[lane],
    };
}

/* (rows, width) of what the rows bring. */
static lw_bf16 *rows_take(const rows *r, lw_bf16 *const from[LANES], size_t width)
{
    lw_bf16 *x = law_make(r->count * width, sizeof *x);
    for (size_t i = 0; i < r->count; i++) {
        const size_t p = r->places[i].position - r->shift;
        memcpy(x + i * width, from[r->lane[i]] + p * width, width * sizeof *x);
    }
    return x;
}

typedef struct job {
    const lw_cpu_kernels *kernels;
    const lw_cpu_kv_args *kv;
    const lw_cpu_attend_args *attend;
    const lw_cpu_conv_args *conv;
} job;

static void job_part(void *context, unsigned part, unsigned parts)
{
    const job *j = context;
    if (j->kv != NULL) j->kernels->kv_store(j->kv, part, parts);
    if (j->attend != NULL) j->kernels->attend(j->attend, part, parts);
    if (j->conv != NULL) j->kernels->short_conv(j->conv, part, parts);
}

/* Calls in LAW_PARTS_MAX parts run on as many threads: under the thread sanitizer, parts that share an
 * element are caught. Fewer parts run one by one. */
static void job_run(const streams *t, job j, unsigned parts)
{
    j.kernels = t->kernels;
    if (parts == LAW_PARTS_MAX) lw_pool_run(t->pool, job_part, &j);
    else LAW_RUN(job_part, &j, parts);
}

static void rows_store(const streams *t, const store *st, const rows *r, unsigned parts)
{
    lw_bf16 *k = rows_take(r, t->k, t->kv_width), *v = rows_take(r, t->v, t->kv_width);
    const lw_cpu_kv_args args = {
        .k = k, .k_stride = t->kv_width, .v = v, .v_stride = t->kv_width, .pages = st->kv,
        .places = r->places, .type = t->s.kv, .rows = (uint32_t)r->count, .heads_kv = t->s.heads_kv,
        .head_dim = t->s.head_dim,
    };
    job_run(t, (job){ .kv = &args }, parts);
    free(k);
    free(v);
}

/* Attention as the streams have it, or with another window and first position. */
static lw_bf16 *rows_attend_as(const streams *t, const store *st, const rows *r, unsigned parts,
                               uint32_t window, uint32_t first)
{
    const size_t floats = lw_cpu_attend_scratch_floats(t->s.heads, t->s.heads_kv, t->s.head_dim);
    lw_bf16 *q = rows_take(r, t->q, t->q_width), *y = law_make(r->count * t->q_width, sizeof *y);
    float *scratch = aligned_make(parts * floats * sizeof *scratch);
    memset(scratch, 0xFF, parts * floats * sizeof *scratch);
    const lw_cpu_attend_args args = {
        .q = q,
        .q_stride = t->q_width,
        .y = y,
        .y_stride = t->q_width,
        .pages = st->kv,
        .places = r->places,
        .scratch = scratch,
        .type = t->s.kv,
        .rows = (uint32_t)r->count,
        .heads = t->s.heads,
        .heads_kv = t->s.heads_kv,
        .head_dim = t->s.head_dim,
        .window = window,
        .first = first,
        .scale = 1.0f / sqrtf((float)t->s.head_dim),
    };
    job_run(t, (job){ .attend = &args }, parts);
    free(q);
    free(scratch);
    return y;
}

static lw_bf16 *rows_attend(const streams *t, const store *st, const rows *r, unsigned parts)
{
    return rows_attend_as(t, st, r, parts, t->s.window, t->s.first);
}

static lw_bf16 *rows_conv(const streams *t, const store *st, const rows *r, unsigned parts)
{
    lw_bf16 *x = rows_take(r, t->q, t->q_width), *y = law_make(r->count * t->q_width, sizeof *y);
    const lw_cpu_conv_args args = {
        .x = x, .x_stride = t->q_width, .y = y, .y_stride = t->q_width, .w = t->w,
        .bias = t->s.bias ? t->bias : NULL, .silu = t->s.silu, .pages = st->tail, .places = r->places,
        .rows = (uint32_t)r->count, .width = (uint32_t)t->q_width, .taps = TAPS,
    };
    job_run(t, (job){ .conv = &args }, parts);
    free(x);
    return y;
}

/* True when the rows' outputs are the bits of the streams alone; frees y. */
static bool rows_match(const streams *t, const rows *r, lw_bf16 *y, lw_bf16 *const alone[LANES])
{
    bool same = true;
    for (size_t i = 0; i < r->count; i++) {
        const lw_bf16 *want = alone[r->lane[i]] + (r->places[i].position - r->shift) * t->q_width;
        same = same && memcmp(y + i * t->q_width, want, t->q_width * sizeof *y) == 0;
    }
    free(y);
    return same;
}

/* The law's left side: every lane by itself, one token a call, one part, fresh pages in order. */
static void streams_run_alone(const streams *t)
{
    store st = store_make(t, NULL);
    for (size_t lane = 0; lane < LANES; lane++) {
        for (size_t p = 0; p < lengths[lane]; p++) {
            rows r = { 0 };
            rows_add(&r, &st, lane, p);
            rows_store(t, &st, &r, 1);
            lw_bf16 *y = rows_attend(t, &st, &r, 1), *c = rows_conv(t, &st, &r, 1);
            memcpy(t->alone[lane] + p * t->q_width, y, t->q_width * sizeof *y);
            memcpy(t->conv_alone[lane] + p * t->q_width, c, t->q_width * sizeof *c);
            free(y);
            free(c);
        }
    }
    store_free(&st);
}

/* A store that already holds every lane whole. */
static store store_full(const streams *t, lw_rng *shuffle)
{
    store st = store_make(t, shuffle);
    for (size_t lane = 0; lane < LANES; lane++) {
        for (size_t p = 0; p < lengths[lane];) {
            rows r = { 0 };
            while (p < lengths[lane] && r.count < LAW_ROWS_MAX) rows_add(&r, &st, lane, p++);
            rows_store(t, &st, &r, 2);
            free(rows_conv(t, &st, &r, 2));
        }
    }
    return st;
}

/* Runs of neighbouring positions, around page and chunk borders or anywhere, of lanes in any order. */
static rows rows_mixed(const store *st, lw_rng *rng, size_t count)
{
    static const size_t borders[] = { 0, 1, 63, 64, 65, 511, 512, 513, 1023, 1024, 1201, LENGTH_MAX - 1 };
    rows r = { 0 };
    while (r.count < count) {
        const size_t lane = lw_rng_below(rng, LANES), some = 1 + lw_rng_below(rng, count - r.count);
        const size_t border = borders[lw_rng_below(rng, sizeof borders / sizeof borders[0])];
        size_t p = lw_rng_below(rng, 2) == 0 ? border : lw_rng_below(rng, lengths[lane]);
        for (size_t i = 0; i < some && p < lengths[lane]; i++, p++) rows_add(&r, st, lane, p);
    }
    return r;
}

static void check_mixed(const streams *t, lw_rng *rng)
{
    store st = store_full(t, rng);
    for (size_t i = 0; i < LAW_ROWS_COUNT; i++) {
        for (unsigned parts = 1; parts <= LAW_PARTS_MAX; parts++) {
            if (!law_long() && i > 5 && parts == 2) continue;
            const rows r = rows_mixed(&st, rng, law_rows[i]);
            assert_true(rows_match(t, &r, rows_attend(t, &st, &r, parts), t->alone));
            assert_true(rows_match(t, &r, rows_conv(t, &st, &r, parts), t->conv_alone));
        }
    }
    store_free(&st);
}

/* Marks as absent every page whose keys no row from position on can see. */
static void store_drop(const streams *t, store *st, size_t lane, size_t position)
{
    if (t->s.window == 0) return;
    for (size_t page = 0; (page + 1) * PAGE + t->s.window <= position + 1; page++) {
        st->tables[lane][page] = LW_PAGE_NONE;
    }
}

/* One lane's prompt in random cuts, its out-of-reach pages dropped before each (the convolution's reach is
 * shorter). */
static bool cuts_hold(const streams *t, lw_rng *rng, size_t cut_max, bool stale)
{
    store st = store_make(t, rng);
    bool same = true;
    for (size_t p = 0; p < LENGTH_MAX;) {
        rows r = { 0 };
        const size_t end = size_min(LENGTH_MAX, p + 1 + lw_rng_below(rng, cut_max));
        store_drop(t, &st, 0, p);
        if (stale) memset(st.tail.bytes, 0, POOL_PAGES * st.tail.page_bytes);
        while (p < end) rows_add(&r, &st, 0, p++);
        const unsigned parts = 1 + (unsigned)lw_rng_below(rng, LAW_PARTS_MAX);
        rows_store(t, &st, &r, parts);
        same = rows_match(t, &r, rows_attend(t, &st, &r, parts), t->alone) && same;
        same = rows_match(t, &r, rows_conv(t, &st, &r, parts), t->conv_alone) && same;
    }
    store_free(&st);
    return same;
}

/* A tree over a committed prefix: its true branch stands at scattered slots, in position order or not,
 * between rows of other branches. Returns whether the branch has the chain's bits. */
static bool tree_holds(const streams *t, lw_rng *rng, size_t committed, size_t open, unsigned parts)
{
    store st = store_make(t, rng);
    uint32_t slots[OPEN_MAX], lineage[OPEN_MAX];
    for (uint32_t i = 0; i < OPEN_MAX; i++) slots[i] = (uint32_t)committed + i;
    for (uint32_t i = OPEN_MAX; i > 1; i--) {
        const size_t j = lw_rng_below(rng, i);
        const uint32_t slot = slots[i - 1];
        slots[i - 1] = slots[j];
        slots[j] = slot;
    }
    for (size_t p = 0; p < committed;) {
        rows r = { 0 };
        while (p < committed && r.count < LAW_ROWS_MAX) rows_add(&r, &st, 0, p++);
        rows_store(t, &st, &r, 1);
        free(rows_conv(t, &st, &r, 1));
    }
    rows r = { 0 };
    for (size_t i = 0; i < open; i++) {
        lineage[i] = slots[i];
        rows_add(&r, &st, 0, committed + i);
        r.places[i].slot = slots[i];
        r.places[i].committed = (uint32_t)committed;
        r.places[i].lineage = lineage;
    }
    rows_store(t, &st, &r, parts);
    const bool same = rows_match(t, &r, rows_attend(t, &st, &r, parts), t->alone);
    const bool conv_same = rows_match(t, &r, rows_conv(t, &st, &r, parts), t->conv_alone);
    store_free(&st);
    return same && conv_same;
}

/* The stream shift positions further on, with nothing before it; returns whether rows whose window is closed
 * on both sides keep their bits. They must where chunks and tiles begin at the same tokens, and must not
 * elsewhere. */
static bool shifted_holds(const streams *t, size_t shift)
{
    store st = store_make(t, NULL);
    bool same = true;
    for (size_t p = 0; p + shift < LENGTH_MAX;) {
        rows r = { .shift = shift };
        while (p + shift < LENGTH_MAX && r.count < LAW_ROWS_MAX) rows_add(&r, &st, 0, shift + p++);
        rows_store(t, &st, &r, 1);
        lw_bf16 *y = rows_attend(t, &st, &r, 1);
        if (p - r.count >= t->s.window) same = rows_match(t, &r, y, t->alone) && same;
        else free(y);
    }
    store_free(&st);
    return same;
}

static void check_planted(const streams *t, lw_rng *rng)
{
    store st = store_full(t, rng);
    rows r = { 0 };
    for (size_t p = 700; p < 900; p++) rows_add(&r, &st, 0, p);
    const uint32_t window = t->s.window == 0 ? 600 : t->s.window - 1;
    assert_true(rows_match(t, &r, rows_attend(t, &st, &r, 1), t->alone));
    assert_false(rows_match(t, &r, rows_attend_as(t, &st, &r, 1, window, t->s.first), t->alone));
    store_free(&st);
    assert_false(cuts_hold(t, rng, 100, true));
    if (t->s.window == 0) return;
    assert_true(shifted_holds(t, LW_CHUNK_POSITIONS));
    assert_false(shifted_holds(t, PAGE));
    assert_false(shifted_holds(t, 1));
}

/* The first key's value as a page keeps it. */
static lw_bf16 first_value(const streams *t, size_t column)
{
    const size_t dim = t->s.head_dim, head = column / dim / (t->s.heads / t->s.heads_kv);
    const lw_bf16 *v = t->v[0] + t->s.first * t->kv_width + head * dim;
    if (t->s.kv == LW_KV_BF16) return v[column % dim];
    double *whole = law_doubles_of_bf(v, dim);
    ref_int8(whole, dim, whole);
    const float kept = (float)whole[column % dim];
    free(whole);
    return lw_bf16_of_float(kept);
}

/* Rows before the first position give zeros, the row at it that key's value; a key less or more shows. */
static void check_first(const streams *t, lw_rng *rng)
{
    const size_t first = t->s.first;
    for (size_t i = 0; i < first * t->q_width; i++) assert_int_equal(t->alone[0][i], 0);
    for (size_t i = 0; first > 0 && i < t->q_width; i++) {
        assert_int_equal(t->alone[0][first * t->q_width + i], first_value(t, i));
    }
    if (first == 0) return;
    store st = store_full(t, rng);
    rows r = { 0 };
    for (size_t p = 0; p < first + 40; p++) rows_add(&r, &st, 0, p);
    assert_true(rows_match(t, &r, rows_attend(t, &st, &r, 2), t->alone));
    for (uint32_t off = 0; off <= 2; off += 2) {
        const uint32_t wrong = (uint32_t)first - 1 + off;
        assert_false(rows_match(t, &r, rows_attend_as(t, &st, &r, 2, t->s.window, wrong), t->alone));
    }
    store_free(&st);
}

static void law_of_shape(const lw_cpu_kernels *kernels, lw_rng *rng, shape s)
{
    static const size_t starts[] = { 0, 1, 60, 64, 250, 500, 512, 1200 };
    streams t = streams_make(kernels, rng, s);
    streams_run_alone(&t);
    check_mixed(&t, rng);
    assert_true(cuts_hold(&t, rng, 1, false));
    assert_true(cuts_hold(&t, rng, 60, false));
    assert_true(cuts_hold(&t, rng, LAW_ROWS_MAX - 1, false));
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        assert_true(tree_holds(&t, rng, starts[i], OPEN_MAX - 8, 1 + (unsigned)i % LAW_PARTS_MAX));
        assert_true(tree_holds(&t, rng, starts[i], 3, 1));
    }
    check_planted(&t, rng);
    check_first(&t, rng);
    streams_free(&t);
}

static void law_of_isa(const lw_cpu_kernels *kernels)
{
    static const shape shapes[] = {
        { 4, 2, 32, 0, 0, false, false, LW_KV_BF16 },    { 5, 1, 40, 64, 1, true, true, LW_KV_BF16 },
        { 2, 2, 32, 256, 0, false, true, LW_KV_BF16 },   { 3, 1, 64, 0, 1, true, false, LW_KV_BF16 },
        { 4, 1, 32, 0, 70, true, true, LW_KV_BF16 },     { 4, 1, 32, 64, 0, false, false, LW_KV_BF16 },
        { 16, 4, 128, 0, 0, true, true, LW_KV_BF16 },    { 16, 4, 128, 256, 1, true, true, LW_KV_BF16 },
        { 7, 1, 32, 0, 0, false, true, LW_KV_BF16 },     { 8, 1, 96, 64, 0, true, true, LW_KV_BF16 },
        { 70, 1, 32, 0, 130, false, false, LW_KV_BF16 },
    };
    static const shape int8_shapes[] = {
        { 4, 2, 32, 0, 1, false, false, LW_KV_INT8 }, { 5, 1, 40, 64, 1, true, true, LW_KV_INT8 },
        { 3, 1, 64, 256, 0, true, false, LW_KV_INT8 }, { 8, 1, 96, 64, 0, true, true, LW_KV_INT8 },
        { 16, 4, 128, 0, 0, true, true, LW_KV_INT8 }, { 70, 1, 32, 0, 130, false, false, LW_KV_INT8 },
    };
    const size_t count = law_long() ? sizeof shapes / sizeof shapes[0] : 5;
    const size_t int8_count = law_long() ? sizeof int8_shapes / sizeof int8_shapes[0] : 3;
    lw_rng rng = law_rng(0x301);
    for (size_t i = 0; i < count; i++) law_of_shape(kernels, &rng, shapes[i]);
    for (size_t i = 0; i < int8_count; i++) law_of_shape(kernels, &rng, int8_shapes[i]);
}

/* Score: a chain of dim fma and two scalings (one of them of int8), at most (dim + 3) eps of scale * sum |q
 * k|; two scores differ from two others by twice that, D, so p is off by e^D - 1 <= 1.1 D, by 8 eps for the
 * subtraction (of numbers below 32) and exp, and where it meets int8 codes by one for their scale. Sums: a
 * chain of at most count fma each for o and l; every tile and chunk rescales both, 8 eps each time. All of it
 * relative to sum p |v| / l, and p stands above and below the line: twice. Then one rounding to bf16. */
static double attend_bound(size_t count, size_t dim, double want, double size, double score_size)
{
    const double scores = 1.1 * 2 * ((double)dim + 3) * REF_EPS_F32 * score_size + 40 * REF_EPS_F32;
    const double sums = ((double)count + 8 * ((double)count / PAGE + 4)) * REF_EPS_F32;
    const double error = 2 * (scores + sums) * size;
    return error + REF_EPS_BF16 * (fabs(want) + error) + REF_TINY_BF16;
}

/* Which keys a reference row sees, against the kernel's (p - window, p], and how they are kept. */
typedef enum plant {
    PLANT_NONE,
    PLANT_WINDOW,
    PLANT_LAST_TILE,
    PLANT_HEAD,
    PLANT_KEPT,    /* int8 in place of bf16, and the other way around */
    PLANT_SCALE,   /* int8: one scale for all heads of a position */
    PLANT_COUNT
} plant;

/* Keys or values of a lane as the planted pages keep them; frees x. */
static double *kept_make(const streams *t, double *x, plant planted)
{
    const bool is_int8 = (t->s.kv == LW_KV_INT8) != (planted == PLANT_KEPT);
    const size_t width = planted == PLANT_SCALE ? t->kv_width : t->s.head_dim;
    for (size_t i = 0; is_int8 && i < lengths[0] * t->kv_width; i += width) ref_int8(x + i, width, x + i);
    return x;
}

/* One row of lane 0 against FP64; the planted references see a key too many, miss the last tile, take the kv
 * head of another group, or keep keys and values in another way. */
static void truth_row(const streams *t, size_t p, plant planted, law_score *score)
{
    const size_t dim = t->s.head_dim, group = t->s.heads / t->s.heads_kv;
    const size_t window = t->s.window == 0 ? p + 1 : t->s.window;
    size_t begin = p + 1 > window ? p + 1 - window : 0, end = p + 1;
    begin = size_max(begin, t->s.first);
    if (planted == PLANT_WINDOW) begin = begin > 0 ? begin - 1 : 1;
    if (planted == PLANT_LAST_TILE) end = p / PAGE * PAGE;
    begin = size_min(begin, end);
    double *k = kept_make(t, law_doubles_of_bf(t->k[0], lengths[0] * t->kv_width), planted);
    double *v = kept_make(t, law_doubles_of_bf(t->v[0], lengths[0] * t->kv_width), planted);
    double *keys = law_make(lengths[0] * dim, sizeof *keys);
    double *values = law_make(lengths[0] * dim, sizeof *values);
    double want[128], sizes[128];
    for (size_t head = 0; head < t->s.heads; head++) {
        const size_t right = head / group, head_kv = planted == PLANT_HEAD ? head % t->s.heads_kv : right;
        for (size_t j = begin; j < end; j++) {
            memcpy(keys + (j - begin) * dim, k + j * t->kv_width + head_kv * dim, dim * sizeof *keys);
            memcpy(values + (j - begin) * dim, v + j * t->kv_width + head_kv * dim, dim * sizeof *values);
        }
        double *q = law_doubles_of_bf(t->q[0] + p * t->q_width + head * dim, dim);
        const double scale = (double)(1.0f / sqrtf((float)dim));
        const ref_query query = { q, keys, values, end - begin, dim, scale };
        const double score_size = ref_score_size(&query);
        ref_attend(&query, want, sizes);
        for (size_t i = 0; i < dim; i++) {
            const double bound = attend_bound(end - begin, dim, want[i], sizes[i], score_size);
            law_compare(score, t->alone[0][p * t->q_width + head * dim + i], want[i], bound);
        }
        free(q);
    }
    free(k);
    free(v);
    free(keys);
    free(values);
}

static law_score truth_attend(const streams *t, plant planted)
{
    static const size_t positions[] = { 70, 127, 130, 512, 700, LENGTH_MAX - 1 };
    law_score score = { 0 };
    for (size_t i = 0; i < sizeof positions / sizeof positions[0]; i++) {
        truth_row(t, positions[i], planted, &score);
    }
    return score;
}

/* What a reference convolution gets wrong. */
typedef enum conv_plant { CONV_RIGHT, CONV_STALE, CONV_BIAS, CONV_SILU, CONV_PLANTS } conv_plant;

/* A chain of TAPS fma and the bias, each at most 2 eps of what is summed; silu grows an error by at most 1.1
 * and adds 8 eps (as in cpu_rows.c); then one rounding to bf16. The planted references lag one position
 * behind, take the bias where there is none and leave it out where there is one, or do so with silu. */
static law_score truth_conv(const streams *t, conv_plant planted)
{
    static const size_t positions[] = { 0, 1, 5, 6, 63, 64, 300 };
    law_score score = { 0 };
    double *x = law_doubles_of_bf(t->q[0], lengths[0] * t->q_width);
    double *w = law_doubles(t->w, TAPS * t->q_width), *bias = law_doubles(t->bias, t->q_width);
    const bool biased = t->s.bias != (planted == CONV_BIAS), silu = t->s.silu != (planted == CONV_SILU);
    double *want = law_make(t->q_width, sizeof *want), *sizes = law_make(t->q_width, sizeof *sizes);
    for (size_t i = 0; i < sizeof positions / sizeof positions[0]; i++) {
        const size_t p = positions[i], at = planted == CONV_STALE && p > 0 ? p - 1 : p;
        ref_conv(&(ref_taps){ x, w, biased ? bias : NULL, t->q_width, TAPS, at }, want, sizes);
        for (size_t j = 0; j < t->q_width; j++) {
            double error = (TAPS + 1) * 1.01 * 2 * REF_EPS_F32 * sizes[j];
            if (silu) want[j] = ref_silu(want[j]);
            if (silu) error = 1.1 * error + 8 * REF_EPS_F32 * fabs(want[j]);
            const double bound = error + REF_EPS_BF16 * (fabs(want[j]) + error) + REF_TINY_BF16;
            law_compare(&score, t->conv_alone[0][p * t->q_width + j], want[j], bound);
        }
    }
    free(x);
    free(w);
    free(bias);
    free(want);
    free(sizes);
    return score;
}

static void truth_of_isa(const lw_cpu_kernels *kernels)
{
    static const shape shapes[] = {
        { 4, 2, 32, 0, 0, false, false, LW_KV_BF16 },  { 6, 2, 40, 64, 1, true, true, LW_KV_BF16 },
        { 4, 1, 32, 0, 100, true, false, LW_KV_BF16 }, { 4, 2, 32, 0, 0, false, false, LW_KV_INT8 },
        { 6, 2, 40, 64, 1, true, true, LW_KV_INT8 },   { 16, 4, 128, 256, 0, false, true, LW_KV_BF16 },
        { 16, 4, 128, 0, 3, false, true, LW_KV_INT8 },
    };
    lw_rng rng = law_rng(0x302);
    for (size_t i = 0; i < (law_long() ? 7 : 5); i++) {
        streams t = streams_make(kernels, &rng, shapes[i]);
        streams_run_alone(&t);
        const law_score right = truth_attend(&t, PLANT_NONE), conv = truth_conv(&t, CONV_RIGHT);
        print_message("%s attend (%s): worst %.3f of its bound, short_conv %.3f\n", kernels->isa,
                      shapes[i].kv == LW_KV_INT8 ? "int8" : "bf16", right.worst, conv.worst);
        assert_int_equal(right.over, 0);
        assert_int_equal(conv.over, 0);
        for (plant planted = PLANT_WINDOW; planted < PLANT_COUNT; planted++) {
            if (planted == PLANT_HEAD && t.s.heads_kv == 1) continue;
            if (planted == PLANT_SCALE && (t.s.heads_kv == 1 || t.s.kv != LW_KV_INT8)) continue;
            const law_score wrong = truth_attend(&t, planted);
            assert_true(wrong.over > wrong.count / 50);
        }
        for (conv_plant planted = CONV_STALE; planted < CONV_PLANTS; planted++) {
            assert_true(truth_conv(&t, planted).over > conv.count / 2);
        }
        streams_free(&t);
    }
}

/* A key or value that is no number reaches every row that sees it, in both types of pages, and no other row.
 */
static void what_is_broken_shows(const lw_cpu_kernels *kernels)
{
    enum { BROKEN = 40, COLUMN = 33 };
    static const lw_bf16 broken[] = { 0x7FC0, 0xFFFF, 0x7F80, 0xFF80 };  /* two NaN, two infinities */
    lw_rng rng = law_rng(0x303);
    for (size_t i = 0; i < 2 * sizeof broken / sizeof broken[0]; i++) {
        streams t = streams_make(kernels, &rng,
                                 (shape){ .heads = 2,
                                          .heads_kv = 2,
                                          .head_dim = 32,
                                          .window = 64,
                                          .kv = LW_KV_INT8 });
        lw_bf16 *at = i % 2 == 0 ? t.k[1] : t.v[1];
        at[BROKEN * t.kv_width + COLUMN] = broken[i / 2];
        memset(t.k[1], 0, 2 * t.kv_width * sizeof *at);   /* zeros are no break */
        memset(t.v[1], 0, 2 * t.kv_width * sizeof *at);
        store st = store_make(&t, NULL);
        rows r = { 0 };
        for (size_t p = 0; p < lengths[1]; p++) rows_add(&r, &st, 1, p);
        rows_store(&t, &st, &r, 2);
        lw_bf16 *y = rows_attend(&t, &st, &r, 2);
        for (size_t p = 0; p < lengths[1]; p++) {
            bool head_is_finite[2] = { true, true };
            for (size_t j = 0; j < t.q_width; j++) {
                const bool is_finite = isfinite(lw_float_of_bf16(y[p * t.q_width + j]));
                head_is_finite[j / t.s.head_dim] = head_is_finite[j / t.s.head_dim] && is_finite;
            }
            assert_true(head_is_finite[0]);
            assert_int_equal(head_is_finite[1], p < BROKEN);
        }
        free(y);
        store_free(&st);
        streams_free(&t);
    }
}

static void history_shows_what_is_broken(void **state)
{
    (void)state;
    law_each_isa(what_is_broken_shows);
}

static void history_meets_fp64(void **state)
{
    (void)state;
    law_each_isa(truth_of_isa);
}

static void history_is_the_streams_own(void **state)
{
    (void)state;
    law_each_isa(law_of_isa);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(history_is_the_streams_own),
        cmocka_unit_test(history_meets_fp64),
        cmocka_unit_test(history_shows_what_is_broken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
