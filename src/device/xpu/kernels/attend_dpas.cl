/* Attention by DPAS, for heads whose width is a multiple of 16: rows of one lane, by the query heads of one
 * KV head, share keys and values. The steps of attend.cl, over the same absolute tiles and chunks, in an
 * order of sums of their own: a score is a chain of DPAS over the head's columns, ascending; a weight is cut
 * into two bf16, high and low, that together have 16 of its bits; per 16 keys, ascending, the high parts and
 * then the low ones continue an output by DPAS; the weights' sum is taken of these parts, by DPAS per quarter
 * of a tile: a running sum each of the tiles' first quarters, of their second ones..., which the chunk's end
 * adds left to right. A tile without a key that a pair (a row and a head) sees leaves its maximum, sums and
 * output as they are, so a pair's bits do not know which others share its keys. Values that are not finite
 * would tell, by zero times them: rows that do not all see such a value go one by one.
 *
 * A work-group has up to 16 pairs. Of its first eight sub-groups each makes eight pairs' scores of a
 * quarter's 16 keys, and all make these pairs' outputs, 32 columns each; heads of more than 128 columns take
 * eight more.
 */
#include "device/xpu/kernels/attend.h"
#include "device/xpu/kernels/tile_dpas.h"

enum {
    QUARTERS = LW_XPU_TILE / LW_XPU_LANES,
    HALVES = LW_XPU_PAIRS / 8,  /* pairs of one instruction are 8 */
    COLUMNS = 2 * LW_XPU_LANES, /* of a sub-group's outputs */
    STEPS = LW_XPU_HEAD_DIM_MAX / LW_XPU_LANES,
    SCORERS = QUARTERS * HALVES,                                   /* sub-groups that make scores */
    ITEMS = LW_XPU_HEAD_DIM_MAX / COLUMNS * HALVES * LW_XPU_LANES, /* at most */
};

/* What the items of a work-group share. */
typedef struct board {
    local ushort8 *q;       /* (HALVES, STEPS, lanes): left operands */
    local ushort8 *weights; /* (HALVES, QUARTERS, 2, lanes): left operands, high and low */
    local float *lanes;     /* (QUARTERS, lanes): what a sub-group has of each pair */
    local ulong8 *values;   /* [LW_XPU_TILE / 8]: where the value of each key lies */
    local uint2 *pairs;     /* [LW_XPU_PAIRS]: row and head */
    local uint *is_odd;     /* some value is not finite */
    local float2 *running;  /* [ITEMS]: a lane's pair's maximum and sum, of the chunks before */
    local float8 *merged;   /* (2, ITEMS): outputs of the chunks before */
} board;

/* Neighbouring rows of one lane, by heads. In lane n stands the n-th pair's row; or the last one's. */
typedef struct team {
    uint row, rows, count; /* count: of pairs */
    heads of;
    uint sub, quarter, eight; /* this sub-group; its keys' and its pairs': eight is 0 or 1 */
    lw_xpu_place place;       /* of the first row */
    uint begin, last;         /* keys that some pair sees */
    uint first, position;     /* keys that this lane's pair sees; none: first is past position */
} team;

/* A lane's two neighbouring columns, of the sub-group's eight pairs. */
typedef struct outputs {
    float8 even, odd;
} outputs;

/* max and sum are of the lane's pair: sum over the sub-group's quarters. */
typedef struct outcome {
    float max, sum;
    outputs out;
} outcome;

/* ---- who works together ---- */

/* Of most rows from row on, those that lie in one lane as a chain. */
static inline uint rows_alike(const lw_xpu_attend_args *a, uint row, uint most)
{
    const lw_xpu_place first = place_of(a->past, row);
    uint count = 1;
    for (; count < most && first.lineage == LW_XPU_NONE; count++) {
        const lw_xpu_place next = place_of(a->past, row + count);
        if (next.lineage != LW_XPU_NONE || next.pages != first.pages ||
            next.position != first.position + count)
            break;
    }
    return count;
}

static inline team team_make(const lw_xpu_attend_args *a, heads of, uint row, uint rows)
{
    const uint count = rows * of.count, mine = min((uint)get_local_id(0), count - 1);
    team t;
    t.row = row;
    t.rows = rows;
    t.count = count;
    t.of = of;
    t.sub = sub_group_broadcast((uint)get_local_id(1), 0);
    t.quarter = t.sub % QUARTERS;
    t.eight = t.sub / QUARTERS % HALVES;
    t.place = place_of(a->past, row);
    t.begin = first_key(a, t.place.position);
    t.last = t.place.position + rows - 1;
    t.position = t.place.position + mine / of.count;
    t.first = first_key(a, t.position);
    return t;
}

/* Where a head's keys and values begin in the page of this item's key, and the key's place there. */
typedef struct key_place {
    size_t keys, values;
    float key_scale, value_scale;
} key_place;

static inline key_place key_find(const lw_xpu_attend_args *a, const team *t, uint key, bool is_int8)
{
    const uint slot = slot_of(a->past, t->place, key), at = slot % LW_XPU_TILE;
    const size_t page = page_of(a->past, t->place, slot);
    key_place of = { 0, 0, 1.0f, 1.0f };
    if (is_int8) {
        const int8_head head = int8_head_at(page, t->of.kv, a->head_dim);
        of.keys = head.keys + at * 4;
        of.values = head.values + (size_t)at * a->head_dim;
        of.key_scale = ((const global float *)head.key_scales)[at];
        of.value_scale = ((const global float *)head.value_scales)[at];
        return of;
    }
    const size_t head_bytes = (size_t)LW_XPU_TILE * a->head_dim * 4, head = page + t->of.kv * head_bytes;
    of.keys = head + at * 4;
    of.values = head + head_bytes / 2 + (size_t)at * a->head_dim * 2;
    return of;
}

/* Whether values of keys [begin, end) are all finite; all items call it. */
static inline void finite_check(const lw_xpu_attend_args *a, const board *s, const team *t, uint begin,
                                uint end)
{
    for (uint key = begin + t->sub; key < end; key += get_local_size(1)) {
        const global uint *value = (const global uint *)key_find(a, t, key, false).values;
        uint odd = 0;
        for (uint i = get_local_id(0); i < a->head_dim / 2; i += LW_XPU_LANES) {
            const uint two = value[i];
            odd |= (two & 0x7F80u) == 0x7F80u || (two & 0x7F800000u) == 0x7F800000u;
        }
        if (odd) *s->is_odd = 1;
    }
}

/* The first rows whose pairs may share keys: all, or one. */
static inline uint rows_sharing(const lw_xpu_attend_args *a, const board *s, const team *t, bool is_int8)
{
    if (t->rows == 1 || is_int8) return t->rows;
    barrier(CLK_LOCAL_MEM_FENCE);
    *s->is_odd = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    finite_check(a, s, t, t->begin, min(first_key(a, t->last), t->last + 1));
    finite_check(a, s, t, max(t->begin, t->place.position + 1), t->last + 1);
    barrier(CLK_LOCAL_MEM_FENCE);
    return *s->is_odd ? 1 : t->rows;
}

/* Queries as left operands, and whose they are; zero where nobody is. */
static inline void team_begin(const lw_xpu_attend_args *a, const board *s, const team *t)
{
    const uint item = t->sub * LW_XPU_LANES + get_local_id(0), items = get_local_size(1) * LW_XPU_LANES;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint p = 0; p < LW_XPU_PAIRS; p++) {
        const uint row = t->row + p / t->of.count, head = t->of.first + p % t->of.count;
        const global ushort *q = (const global ushort *)a->q + (size_t)row * a->q_stride + head * a->head_dim;
        local ushort *to = (local ushort *)(s->q + p / 8 * STEPS * LW_XPU_LANES) + p % 8;
        for (uint i = item; i < a->head_dim; i += items) to[i * 8] = p < t->count ? q[i] : (ushort)0;
        if (item == 0) s->pairs[p] = (uint2)(row, head);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* ---- a tile ---- */

/* Puts this sub-group's weights where all find them; scale: of this lane's value. The weights' sums. */
static inline float weights_put(const board *s, const team *t, float8 weights, float scale, bool is_int8)
{
    two_parts p = parts_of(weights);
    const float sums = sums_of(p, 8 * t->eight);
    /* What is not seen stays zero, whatever its scale. */
    if (is_int8) p = parts_of(weights == 0.0f ? weights : weights * scale);
    local ushort8 *to = s->weights + (t->eight * QUARTERS + t->quarter) * 2 * LW_XPU_LANES + get_local_id(0);
    to[0] = p.high;
    to[LW_XPU_LANES] = p.low;
    return sums;
}

static inline float8 weighted(const local ushort8 *weights, int8 right, float8 sums)
{
    return dpas(weights[LW_XPU_LANES], right, dpas(weights[0], right, sums));
}

static inline uint column_here(const team *t)
{
    return (t->quarter + t->sub / SCORERS * QUARTERS) * COLUMNS + 2 * (uint)get_local_id(0);
}

static inline bool has_pairs(const team *t)
{
    return 8 * t->eight < t->count;
}

/* This sub-group's outputs continue; fades: of what was summed before. */
static inline void values_add(const lw_xpu_attend_args *a, const board *s, const team *t, float16 fades,
                              outputs *out, bool is_int8)
{
    const uint col = min(column_here(t), a->head_dim - 2);
    out->even *= eight_of(fades, t->eight);
    out->odd *= eight_of(fades, t->eight);
    for (uint quarter = 0; quarter < QUARTERS; quarter++) {
        const value_rights v = values_load(s->values + 2 * quarter, col, is_int8);
        const local ushort8 *w =
            s->weights + (t->eight * QUARTERS + quarter) * 2 * LW_XPU_LANES + get_local_id(0);
        out->even = weighted(w, v.even, out->even);
        out->odd = weighted(w, v.odd, out->odd);
    }
}

/* Products of eight pairs' queries with this lane's key. */
static inline float8 products_of(const lw_xpu_attend_args *a, const board *s, const team *t, key_place key,
                                 bool is_int8)
{
    const global uint *k = (const global uint *)key.keys;
    const local ushort8 *q = s->q + t->eight * STEPS * LW_XPU_LANES + get_local_id(0);
    float8 sums = 0.0f;
    for (uint step = 0; step < a->head_dim / LW_XPU_LANES; step++)
        sums = dpas(q[step * LW_XPU_LANES], key_right(k, step, is_int8), sums);
    return sums * key.key_scale * a->scale;
}

/* Those that are seen, and minus infinity; start: of the tile. */
static inline float8 scores_seen(const team *t, uint start, uint item, float8 scores)
{
    const float16 from = LW_LANES_OF((float)(max(t->first, start) - start));
    const float16 end = LW_LANES_OF((float)(min(max(t->position + 1, start), start + LW_XPU_TILE) - start));
    const float8 key = (float)item, none = -INFINITY;
    return key >= eight_of(from, t->eight) && key < eight_of(end, t->eight) ? scores : none;
}

/* The tile from key `start` on continues r. */
static inline void team_tile(const lw_xpu_attend_args *a, const board *s, const team *t, uint start,
                             outcome *r, bool is_int8)
{
    const uint lane = get_local_id(0), item = t->quarter * LW_XPU_LANES + lane;
    const bool is_scorer = t->sub < SCORERS && has_pairs(t), is_mine = lane / 8 == t->eight;
    const key_place key = key_find(a, t, clamp(start + item, t->begin, t->last), is_int8);
    float8 scores = 0.0f;
    if (is_scorer) {
        scores = scores_seen(t, start, item, products_of(a, s, t, key, is_int8));
        const float most = largest_of(scores, 8 * t->eight);
        if (is_mine) s->lanes[item] = most;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float max = r->max;
    for (uint quarter = 0; quarter < QUARTERS; quarter++)
        max = fmax(max, s->lanes[quarter * LW_XPU_LANES + lane]);
    /* Of a pair that has seen nothing yet; its weights are zero. */
    const float base = max == -INFINITY ? 0.0f : max, fade = exp_of(r->max - base);
    ((local ulong *)s->values)[item] = key.values;
    if (is_scorer) {
        scores = exps_of(scores - eight_of(LW_LANES_OF(base), t->eight));
        r->sum = fma(r->sum, fade, weights_put(s, t, scores, key.value_scale, is_int8));
    }
    r->max = max;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (column_here(t) - 2 * lane < a->head_dim && has_pairs(t))
        values_add(a, s, t, LW_LANES_OF(fade), &r->out, is_int8);
}

/* ---- a chunk ---- */

static inline void team_chunk(const lw_xpu_attend_args *a, const board *s, const team *t, uint chunk,
                              outcome *r, bool is_int8)
{
    const uint lane = get_local_id(0), begin = max(t->begin, chunk * LW_XPU_CHUNK);
    const uint last = min(t->last, chunk * LW_XPU_CHUNK + LW_XPU_CHUNK - 1);
    const float8 none = 0.0f;
    r->max = -INFINITY;
    r->sum = 0.0f;
    r->out.even = r->out.odd = none;
    for (uint start = begin / LW_XPU_TILE * LW_XPU_TILE; begin <= last && start <= last; start += LW_XPU_TILE)
        team_tile(a, s, t, start, r, is_int8);
    if (t->sub < SCORERS && lane / 8 == t->eight) s->lanes[t->quarter * LW_XPU_LANES + lane] = r->sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    float sum = s->lanes[lane];
    for (uint quarter = 1; quarter < QUARTERS; quarter++) sum += s->lanes[quarter * LW_XPU_LANES + lane];
    r->sum = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    /* A zero's sign would tell of tiles in which a pair sees nothing. */
    r->out.even += none;
    r->out.odd += none;
}

static inline bool sees_chunk(const team *t, uint chunk)
{
    return t->first <= t->position && chunk >= t->first / LW_XPU_CHUNK && chunk <= t->position / LW_XPU_CHUNK;
}

static inline void eight_merge(local float8 *all, float8 chunk, float8 befores, float8 heres)
{
    *all = fma(*all, befores, chunk * heres);
}

/* max_sum, and what stands in merged, continue with a chunk: the steps of attend.cl's chunk_merge, for each
 * pair that sees it; the first one that a pair sees meets zeros, and what it does not see is zero. */
static inline float2 team_merge(const team *t, uint chunk, float2 max_sum, local float8 *merged,
                                const outcome *r)
{
    const float max = fmax(max_sum.x, r->max);
    const bool sees = sees_chunk(t, chunk), is_first = chunk == t->first / LW_XPU_CHUNK;
    const float before = !sees ? 1.0f : is_first ? 0.0f : exp_of(max_sum.x - max);
    const float here = !sees ? 0.0f : is_first ? 1.0f : exp_of(r->max - max);
    const float16 befores = LW_LANES_OF(before), heres = LW_LANES_OF(here);
    eight_merge(merged, r->out.even, eight_of(befores, t->eight), eight_of(heres, t->eight));
    eight_merge(merged + ITEMS, r->out.odd, eight_of(befores, t->eight), eight_of(heres, t->eight));
    return (float2)(max, fma(max_sum.y, before, r->sum * here));
}

/* ---- a work-group ---- */

static inline local float8 *merged_here(const board *s, const team *t)
{
    return s->merged + t->sub * LW_XPU_LANES + get_local_id(0);
}

static inline void outputs_keep(local float8 *merged, const outputs *out)
{
    merged[0] = out->even;
    merged[ITEMS] = out->odd;
}

/* A pair's two columns into y; has_any: it sees a key. */
static inline void y_put(const lw_xpu_attend_args *a, uint2 pair, uint col, float2 out, float sum,
                         bool has_any)
{
    const size_t at = (size_t)pair.x * a->y_stride + pair.y * a->head_dim + col;
    const uint even = bf_of(out.x / sum), odd = bf_of(out.y / sum);
    *(global uint *)(a->y + at * 2) = has_any ? even | odd << 16 : 0;
}

/* What stands in merged, into y; or, where it is a chunk's, each pair's part of that for attend_merge. */
static inline void team_end(const lw_xpu_attend_args *a, const board *s, const team *t, float2 max_sum,
                            bool has_any, bool is_chunk, uint chunk)
{
    const uint lane = get_local_id(0), col = column_here(t), first = 8 * t->eight;
    if (t->sub == 0) {
        s->lanes[lane] = max_sum.x;
        s->lanes[LW_XPU_LANES + lane] = max_sum.y;
        s->lanes[2 * LW_XPU_LANES + lane] = has_any;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint p = first; p < min(t->count, first + 8); p++) {
        const local float *out = (const local float *)merged_here(s, t) + p % 8;
        const float2 two = (float2)(out[0], out[8 * ITEMS]);
        const bool has = s->lanes[2 * LW_XPU_LANES + p] != 0.0f, is_here = col < a->head_dim;
        const uint2 pair = s->pairs[p];
        if (!is_chunk && is_here) y_put(a, pair, col, two, s->lanes[LW_XPU_LANES + p], has);
        if (!is_chunk || !has) continue;
        global float *to = part_at(a, pair.x, chunk, pair.y);
        if (is_here) vstore2(two, 0, to + 2 + col);
        if (col == 0) vstore2((float2)(s->lanes[p], s->lanes[LW_XPU_LANES + p]), 0, to);
    }
}

static inline void team_walk(const lw_xpu_attend_args *a, const board *s, const team *t, bool is_int8)
{
    const uint first = t->begin / LW_XPU_CHUNK, last = max(first, t->last / LW_XPU_CHUNK);
    local float2 *running = s->running + t->sub * LW_XPU_LANES + get_local_id(0);
    for (uint chunk = first; chunk <= last; chunk++) {
        outcome r;
        team_chunk(a, s, t, chunk, &r, is_int8);
        if (chunk > first) {
            *running = team_merge(t, chunk, *running, merged_here(s, t), &r);
            continue;
        }
        *running = (float2)(r.max, r.sum);
        outputs_keep(merged_here(s, t), &r.out);
    }
    team_end(a, s, t, *running, t->first <= t->position, false, 0);
}

/* chunk: of the launch, counted from the first one that the rows see, and from a->from. */
static inline void team_part(const lw_xpu_attend_args *a, const board *s, const team *t, uint chunk,
                             bool is_int8)
{
    outcome r;
    team_chunk(a, s, t, t->begin / LW_XPU_CHUNK + a->from + chunk, &r, is_int8);
    outputs_keep(merged_here(s, t), &r.out);
    const bool has_any = a->from + chunk < lw_xpu_chunks_seen(t->position, a->window, a->first);
    team_end(a, s, t, (float2)(r.max, r.sum), has_any, true, chunk);
}

/* Rows of the batch from get_group_id(1) * rows_each on; as many as lie in a lane share keys. */
static inline void attend_by_dpas(const lw_xpu_attend_args *a, const board *s, bool is_int8, bool is_chunk)
{
    const uint groups = a->heads_kv * heads_parts(a), chunk = get_group_id(0) / groups;
    const heads of = heads_part(a, get_group_id(0) % groups, LW_XPU_PAIRS);
    const uint end = min((uint)(get_group_id(1) + 1) * a->rows_each, a->rows);
    uint row = get_group_id(1) * a->rows_each;
    while (row < end) {
        team t = team_make(a, of, row, rows_alike(a, row, end - row));
        const uint rows = rows_sharing(a, s, &t, is_int8);
        if (rows < t.rows) t = team_make(a, of, row, rows);
        row += rows;
        if (is_chunk && a->from + chunk >= lw_xpu_chunks_seen(t.last, a->window, a->first)) continue;
        team_begin(a, s, &t);
        if (is_chunk) team_part(a, s, &t, chunk, is_int8);
        else team_walk(a, s, &t, is_int8);
    }
}

#define ATTEND_DPAS(name, is_int8, is_chunk) \
    LW_KERNEL(name, lw_xpu_attend_args) \
    { \
        local ushort8 q[HALVES * STEPS * LW_XPU_LANES], weights[HALVES * QUARTERS * 2 * LW_XPU_LANES]; \
        local float8 merged[2 * ITEMS]; \
        local ulong8 values[LW_XPU_TILE / 8]; \
        local float2 running[(is_chunk) ? 1 : ITEMS]; \
        local uint2 pairs[LW_XPU_PAIRS]; \
        local float lanes[LW_XPU_TILE]; \
        local uint is_odd[1]; \
        const board s = { q, weights, lanes, values, pairs, is_odd, running, merged }; \
        attend_by_dpas(&a, &s, is_int8, is_chunk); \
    }
ATTEND_DPAS(attend_dpas, false, false)
ATTEND_DPAS(attend_dpas_int8, true, false)
ATTEND_DPAS(attend_dpas_chunks, false, true)
ATTEND_DPAS(attend_dpas_chunks_int8, true, true)
