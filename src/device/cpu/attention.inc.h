/* Attention over paged keys and values for one instruction set. Included once by each set's attention.c,
 * which names its function through LW_ROW(name). Definition: ops.list and DESIGN.md 1.2.
 *
 * A unit of work is a block of neighbouring rows of one lane times one kv head; its *queries* are (row, head
 * of the group). A block walks chunks and tiles once. In each tile, neighbouring rows that see the same keys
 * form a *run*.
 *
 * Invariants
 * 1. Every score is one chain over dims ascending; every output column is one chain over visible keys
 *    ascending that starts from its rescaled value; l is one chain over the same keys. Blocks, runs and
 *    vectors cut elements only.
 * 2. Chains over keys run from the first to the last visible key, so what a masked slot holds never enters:
 *    not as 0 * inf, not as the sign of a zero.
 * 3. Widening a page's numbers is exact, so a tile may be read as it lies or from a widened copy: same bits.
 * 4. A tile or chunk in which a row sees no key is not visited for it, and a page whose keys nobody sees is
 *    not read. A row that sees no key at all gives zeros.
 */
#include "device/cpu/attention_tile.inc.h"

#include "base/float16.h"

enum {
    CHUNK_TILES = LW_CHUNK_POSITIONS / LW_PAGE_POSITIONS,
    SUM_QUERIES = 4,            /* queries whose l are summed side by side */
};

/* One block of rows at one kv head. Arrays of queries are padded to whole vectors. */
typedef struct block {
    const lw_cpu_attend_args *args;
    size_t row_begin, row_end;
    size_t head_kv, group;      /* group: queries of one row */
    size_t dim_pad, query_room;
    float *keys, *values;       /* widened tile: (panels, dim_pad, PANEL) and (panels, 64, PANEL) */
    float *key_scales, *value_scales;   /* of keys gathered into it, [64] */
    float *q;                   /* (queries, dim_pad) */
    float *scores;              /* (queries, 64): scores, then p */
    float *o, *o_all;           /* (queries, dim_pad): of the chunk, of the chunks before */
    float *m, *l, *m_all, *l_all, *m_new, *fade; /* [queries] */
} block;

/* Keys of one tile that neighbouring rows see alike. */
typedef struct run {
    size_t row_begin, row_end;
    size_t key_begin, key_end;  /* in the tile */
    bool gathered;              /* its open keys stand at slots of a tree */
} run;

/* The first position that a row sees; one past its own where it sees none. */
static size_t row_first_position(const lw_cpu_attend_args *args, size_t row)
{
    const size_t end = (size_t)args->places[row].position + 1;
    const size_t near = args->window != 0 && end > args->window ? end - args->window : 0;
    return size_min(size_max(near, args->first), end);
}

static size_t block_query(const block *b, size_t row)
{
    return (row - b->row_begin) * b->group;
}

/* The next run at or after row in the tile that starts at position start; row_begin == row_end when there is
 * none. */
static run run_next(const block *b, size_t row, size_t start)
{
    run r = { .row_begin = b->row_end, .row_end = b->row_end };
    for (; row < b->row_end; row++) {
        const lw_cpu_place *place = &b->args->places[row];
        const size_t first = size_max(row_first_position(b->args, row), start);
        const size_t end = size_min((size_t)place->position + 1, start + TILE);
        const bool seen = first < end, gathered = place->lineage != NULL && end > place->committed;
        const bool open = r.row_begin < b->row_end;
        if (open && (!seen || gathered || first - start != r.key_begin || end - start != r.key_end)) break;
        if (!seen) continue;
        if (!open) r = (run){ row, row, first - start, end - start, gathered };
        r.row_end = row + 1;
        if (gathered) break;
    }
    if (r.row_begin == b->row_end) r.row_end = b->row_end;
    return r;
}

static lw_cpu_kv_head head_at(const block *b, size_t row, uint32_t slot)
{
    const lw_cpu_attend_args *args = b->args;
    const uint32_t page = args->places[row].pages[slot / TILE];
    uint8_t *bytes = args->pages.bytes + page * args->pages.page_bytes;
    return lw_cpu_kv_head_at(bytes, b->head_kv, args->head_dim, args->type);
}

/* Number i of a page's array. */
static float number_at(const uint8_t *kept, size_t i, lw_kv_type type)
{
    if (type == LW_KV_INT8) return (float)((const int8_t *)(const void *)kept)[i];
    return lw_float_of_bf16(((const lw_bf16 *)(const void *)kept)[i]);
}

/* Widens the visible keys of a tree row's tile in position order, wherever their slots are. */
static void gather(const block *b, const run *r, size_t start)
{
    const size_t dim = b->args->head_dim;
    const lw_kv_type type = b->args->type;
    for (size_t key = r->key_begin; key < r->key_end; key++) {
        const uint32_t slot = lw_cpu_slot(&b->args->places[r->row_begin], (uint32_t)(start + key));
        const lw_cpu_kv_head head = head_at(b, r->row_begin, slot);
        const size_t at = slot % TILE;
        for (size_t i = 0; i < b->dim_pad; i++) {
            const float v = i < dim ? number_at(head.values, at * dim + i, type) : 0.0f;
            float *keys = b->keys + key / PANEL * dim * PANEL + i * PANEL + key % PANEL;
            if (i < dim) *keys = number_at(head.keys, i * TILE + at, type);
            b->values[i / PANEL * TILE * PANEL + key * PANEL + i % PANEL] = v;
        }
        if (head.key_scales == NULL) continue;
        b->key_scales[key] = head.key_scales[at];
        b->value_scales[key] = head.value_scales[at];
    }
}

/* Scales and masks a query's scores and returns the largest visible one. */
static float scores_mask(const block *b, float *scores, const float *key_scales, const run *r)
{
    const simd_f begin = simd_set((float)r->key_begin), last = simd_set((float)r->key_end - 1.0f);
    const simd_f none = simd_set(-INFINITY), scale = simd_set(b->args->scale);
    float lanes[SIMD_WIDTH];
    for (int i = 0; i < SIMD_WIDTH; i++) lanes[i] = (float)i;
    simd_f key = simd_load(lanes), largest = none;
    for (size_t i = 0; i < TILE; i += SIMD_WIDTH, key = simd_add(key, simd_set(SIMD_WIDTH))) {
        const simd_f sum = simd_load(scores + i);
        const simd_f s = simd_mul(key_scales == NULL ? sum : simd_mul(sum, simd_load(key_scales + i)), scale);
        const simd_f before_end = simd_select(simd_ge(last, key), s, none);
        const simd_f visible = simd_select(simd_ge(key, begin), before_end, none);
        simd_store(scores + i, visible);
        largest = simd_max(largest, visible);
    }
    return simd_max_lanes(largest);
}

/* p of a query's keys from its scores; those of masked keys are 0. */
static void scores_exp(float *scores, float m)
{
    const simd_f top = simd_set(m);
    for (size_t i = 0; i < TILE; i += SIMD_WIDTH) {
        simd_store(scores + i, simd_exp(simd_sub(simd_load(scores + i), top)));
    }
}

/* Continues each query's l by its p, keys ascending; queries go side by side, since one chain alone only
 * waits. */
static void sums_continue(float *l, const float *p, size_t queries, const run *r)
{
    size_t query = 0;
    for (; query + SUM_QUERIES <= queries; query += SUM_QUERIES) {
        float sums[SUM_QUERIES];
        memcpy(sums, l + query, sizeof sums);
        for (size_t key = r->key_begin; key < r->key_end; key++) {
            SIMD_UNROLL
            for (size_t i = 0; i < SUM_QUERIES; i++) sums[i] += p[(query + i) * TILE + key];
        }
        memcpy(l + query, sums, sizeof sums);
    }
    for (; query < queries; query++) {
        for (size_t key = r->key_begin; key < r->key_end; key++) l[query] += p[query * TILE + key];
    }
}

/* What multiplies the codes of a query's values: p times their scales. */
static void scores_scale(float *p, const float *value_scales)
{
    for (size_t i = 0; i < TILE; i += SIMD_WIDTH) {
        simd_store(p + i, simd_mul(simd_load(p + i), simd_load(value_scales + i)));
    }
}

static void fade_values(float *o, size_t count, float by)
{
    const simd_f fade = simd_set(by);
    for (size_t i = 0; i < count; i += SIMD_WIDTH) simd_store(o + i, simd_mul(simd_load(o + i), fade));
}

/* e^(from - to) for count queries. The first visible tile fades (m = -inf) by 0, and a sum of 0 stays 0. */
static void fade_make(float *fade, const float *from, const float *to, size_t count)
{
    for (size_t i = 0; i < count; i += SIMD_WIDTH) {
        const simd_f a = simd_load_some(from + i, count - i), b = simd_load_some(to + i, count - i);
        float lanes[SIMD_WIDTH];
        simd_store(lanes, simd_exp(simd_sub(a, b)));
        memcpy(fade + i, lanes, size_min(SIMD_WIDTH, count - i) * sizeof *fade);
    }
}

/* One tile for the queries of one run: the online softmax step. */
static void run_attend(const block *b, const run *r, const matrix *keys, const matrix *values)
{
    const size_t first = block_query(b, r->row_begin), count = block_query(b, r->row_end) - first;
    float *scores = b->scores + first * TILE, *o = b->o + first * b->dim_pad;
    const chains score = {
        .m = *keys, .coefs = b->q + first * b->dim_pad, .coef_stride = b->dim_pad,
        .out = scores, .out_stride = TILE, .begin = 0, .end = b->args->head_dim, .fresh = true,
    };
    chains_run(&score, count);
    for (size_t i = 0; i < count; i++) {
        const float top = scores_mask(b, scores + i * TILE, keys->scales, r), m = b->m[first + i];
        b->m_new[first + i] = m > top ? m : top;
    }
    fade_make(b->fade + first, b->m + first, b->m_new + first, count);
    for (size_t i = 0; i < count; i++) {
        b->m[first + i] = b->m_new[first + i];
        b->l[first + i] *= b->fade[first + i];
        scores_exp(scores + i * TILE, b->m[first + i]);
        fade_values(o + i * b->dim_pad, b->dim_pad, b->fade[first + i]);
    }
    sums_continue(b->l + first, scores, count, r);
    for (size_t i = 0; values->scales != NULL && i < count; i++) {
        scores_scale(scores + i * TILE, values->scales);
    }
    const chains sum = {
        .m = *values, .coefs = scores, .coef_stride = TILE,
        .out = o, .out_stride = b->dim_pad, .begin = r->key_begin, .end = r->key_end,
    };
    chains_run(&sum, count);
}

/* One tile for the whole block. Rows of a block share pages, so one widened copy serves every run that is not
 * gathered; a tile that only a few queries read, and whose dims are whole panels, is read as it lies.
 * Keys of the block end before position end. */
static void tile_attend(const block *b, size_t start, size_t end)
{
    const size_t dim = b->args->head_dim, queries = (b->row_end - b->row_begin) * b->group;
    const bool narrow = queries <= NARROW_QUERIES && dim == b->dim_pad;
    const bool has_scales = b->args->type == LW_KV_INT8;
    matrix keys = { .wide = narrow ? NULL : b->keys, .steps = dim, .lanes = TILE };
    matrix values = { .wide = narrow ? NULL : b->values, .steps = TILE, .lanes = b->dim_pad };
    bool widened = false;
    run r = run_next(b, b->row_begin, start);
    for (; r.row_begin < r.row_end; r = run_next(b, r.row_end, start)) {
        if (r.gathered) {
            const matrix k = { .wide = b->keys, .scales = has_scales ? b->key_scales : NULL, .steps = dim,
                               .lanes = TILE };
            const matrix v = { .wide = b->values, .scales = has_scales ? b->value_scales : NULL,
                               .steps = TILE, .lanes = b->dim_pad };
            gather(b, &r, start);
            widened = false;
            run_attend(b, &r, &k, &v);
            continue;
        }
        const lw_cpu_kv_head head = head_at(b, r.row_begin, (uint32_t)start);
        keys.scales = head.key_scales;
        values.scales = head.value_scales;
        if (narrow) {
            const bool last = start + TILE >= end;
            const lw_cpu_kv_head next = last ? head : head_at(b, r.row_begin, (uint32_t)(start + TILE));
            keys.kept = head.keys;
            keys.next = next.keys;
            values.kept = head.values;
            values.next = next.values;
        } else if (!widened) {
            widen(head.keys, dim, TILE, b->keys, b->args->type);
            widen(head.values, TILE, dim, b->values, b->args->type);
            widened = true;
        }
        run_attend(b, &r, &keys, &values);
    }
}

static void queries_clear(float *m, float *l, float *o, size_t count, size_t dim_pad)
{
    for (size_t i = 0; i < count; i++) m[i] = -INFINITY;
    memset(l, 0, count * sizeof *l);
    memset(o, 0, count * dim_pad * sizeof *o);
}

/* Takes the chunk's (m, l, o) of the queries [first, first + count) into the result of the chunks before
 * it. */
static void chunk_merge(const block *b, size_t first, size_t count)
{
    float *fade_all = b->fade + first, *fade_one = b->m_new + first;
    float *m = b->m + first, *m_all = b->m_all + first;
    float top[LW_CPU_QUERIES_MIN];
    for (size_t i = 0; i < count; i += LW_CPU_QUERIES_MIN) {
        const size_t some = size_min(count - i, LW_CPU_QUERIES_MIN);
        for (size_t j = 0; j < some; j++) top[j] = m_all[i + j] > m[i + j] ? m_all[i + j] : m[i + j];
        fade_make(fade_all + i, m_all + i, top, some);
        fade_make(fade_one + i, m + i, top, some);
        memcpy(m_all + i, top, some * sizeof *top);
    }
    for (size_t i = 0; i < count; i++) {
        const simd_f all = simd_set(fade_all[i]), one = simd_set(fade_one[i]);
        float *o_all = b->o_all + (first + i) * b->dim_pad;
        const float *o = b->o + (first + i) * b->dim_pad;
        b->l_all[first + i] = b->l_all[first + i] * fade_all[i] + b->l[first + i] * fade_one[i];
        for (size_t d = 0; d < b->dim_pad; d += SIMD_WIDTH) {
            const simd_f faded = simd_mul(simd_load(o_all + d), all);
            simd_store(o_all + d, simd_fma(simd_load(o + d), one, faded));
        }
    }
}

static void chunk_attend(const block *b, size_t chunk, size_t tile_begin, size_t tile_end)
{
    const size_t begin = chunk * LW_CHUNK_POSITIONS, end = begin + LW_CHUNK_POSITIONS;
    const size_t first = size_max(tile_begin, chunk * CHUNK_TILES);
    const size_t tiles_end = size_min(tile_end, (chunk + 1) * CHUNK_TILES);
    queries_clear(b->m, b->l, b->o, (b->row_end - b->row_begin) * b->group, b->dim_pad);
    for (size_t tile = first; tile < tiles_end; tile++) tile_attend(b, tile * TILE, tile_end * TILE);
    for (size_t row = b->row_begin; row < b->row_end; row++) {
        const size_t from = row_first_position(b->args, row), last = b->args->places[row].position;
        if (from <= last && from < end && last >= begin) chunk_merge(b, block_query(b, row), b->group);
    }
}

static void block_load(const block *b)
{
    const lw_cpu_attend_args *args = b->args;
    for (size_t row = b->row_begin; row < b->row_end; row++) {
        const lw_bf16 *q = args->q + row * args->q_stride + b->head_kv * b->group * args->head_dim;
        float *to = b->q + block_query(b, row) * b->dim_pad;
        for (size_t g = 0; g < b->group; g++, q += args->head_dim, to += b->dim_pad) {
            for (size_t i = 0; i < args->head_dim; i++) to[i] = lw_float_of_bf16(q[i]);
        }
    }
}

static void block_write(const block *b)
{
    const lw_cpu_attend_args *args = b->args;
    for (size_t row = b->row_begin; row < b->row_end; row++) {
        lw_bf16 *y = args->y + row * args->y_stride + b->head_kv * b->group * args->head_dim;
        const bool blind = row_first_position(args, row) > args->places[row].position; /* l is 0 */
        for (size_t g = 0; g < b->group; g++, y += args->head_dim) {
            const size_t query = block_query(b, row) + g;
            const float *o = b->o_all + query * b->dim_pad;
            const simd_f l = simd_set(blind ? 1.0f : b->l_all[query]);
            for (size_t i = 0; i < args->head_dim; i += SIMD_WIDTH) {
                simd_store_bf_some(y + i, simd_div(simd_load(o + i), l), args->head_dim - i);
            }
        }
    }
}

static void block_attend(const block *b)
{
    size_t first = SIZE_MAX, end = 0;
    for (size_t row = b->row_begin; row < b->row_end; row++) {
        first = size_min(first, row_first_position(b->args, row));
        end = size_max(end, (size_t)b->args->places[row].position + 1);
    }
    const size_t tile_begin = first / TILE, tile_end = size_div_up(end, TILE);
    block_load(b);
    queries_clear(b->m_all, b->l_all, b->o_all, (b->row_end - b->row_begin) * b->group, b->dim_pad);
    for (size_t chunk = tile_begin / CHUNK_TILES; chunk * CHUNK_TILES < tile_end; chunk++) {
        chunk_attend(b, chunk, tile_begin, tile_end);
    }
    block_write(b);
}

static float *take(float **scratch, size_t count)
{
    float *at = *scratch;
    *scratch += count;
    return at;
}

/* Cuts a part's scratch into a block's arrays; lw_cpu_attend_scratch_floats adds up the same list. */
static block block_make(const lw_cpu_attend_args *args, unsigned part)
{
    float *scratch = args->scratch
                   + part * lw_cpu_attend_scratch_floats(args->heads, args->heads_kv, args->head_dim);
    block b = { .args = args, .group = args->heads / args->heads_kv };
    b.dim_pad = size_round_up(args->head_dim, LW_CPU_DIM_ROUND);
    b.query_room = lw__cpu_attend_queries(args->heads, args->heads_kv);
    b.keys = take(&scratch, TILE * b.dim_pad);
    b.values = take(&scratch, TILE * b.dim_pad);
    b.key_scales = take(&scratch, TILE);
    b.value_scales = take(&scratch, TILE);
    b.q = take(&scratch, b.query_room * b.dim_pad);
    b.o = take(&scratch, b.query_room * b.dim_pad);
    b.o_all = take(&scratch, b.query_room * b.dim_pad);
    b.scores = take(&scratch, b.query_room * TILE);
    float **const each[] = { &b.m, &b.l, &b.m_all, &b.l_all, &b.m_new, &b.fade };
    for (size_t i = 0; i < sizeof each / sizeof each[0]; i++) *each[i] = take(&scratch, b.query_room);
    return b;
}

/* Rows from row on that one block takes: same pages, and their queries fit. */
static size_t block_rows_end(const lw_cpu_attend_args *args, const block *b, size_t row)
{
    const size_t room = size_max(b->query_room / b->group, 1);
    size_t end = row + 1;
    while (end < args->rows && end - row < room && args->places[end].pages == args->places[row].pages) end++;
    return end;
}

/* Units are dealt to the parts to and fro, since later blocks of a prompt see more keys. With fewer units
 * than parts (one row, few kv heads) the rest of the parts idle: cutting chunks among them would need a
 * barrier. */
void LW_ROW(attend)(const lw_cpu_attend_args *args, unsigned part, unsigned parts)
{
    block b = block_make(args, part);
    size_t unit = 0;
    for (b.row_begin = 0; b.row_begin < args->rows; b.row_begin = b.row_end) {
        b.row_end = block_rows_end(args, &b, b.row_begin);
        for (b.head_kv = 0; b.head_kv < args->heads_kv; b.head_kv++, unit++) {
            const size_t turn = unit / parts, at = unit % parts;
            if ((turn % 2 == 0 ? at : parts - 1 - at) == part) block_attend(&b);
        }
    }
}
