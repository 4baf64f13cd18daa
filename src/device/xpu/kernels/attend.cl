/* Attention. Tiles of 64 keys, ascending, make a chunk of 512, which begins afresh; chunks are merged in
 * ascending order. `attend` walks all chunks of a row in one work-group. Where rows are few, `attend_chunks`
 * gives each chunk a work-group of its own, which serves several query heads of one KV head, and
 * `attend_merge` puts the chunks together: the same steps in the same order, so the same bits.
 */
#include "device/xpu/kernels/attend.h"

/* What the items of a work-group share: an array each for every one of its query heads. */
typedef struct shared {
    local float *q;             /* (heads, LW_XPU_HEAD_DIM_MAX) */
    local float *weights;       /* (heads, LW_XPU_TILE): of a tile's keys */
    local float *tree;          /* (heads, LW_XPU_TILE): of a maximum; then weights times scales */
    local ulong *values;        /* [LW_XPU_TILE]: where the value of each key lies */
} shared;

/* Columns of the output that one item makes: its own number, then 64 further. */
enum { DIMS = LW_XPU_HEAD_DIM_MAX / LW_XPU_TILE };
typedef struct running {
    float max, sum, out[DIMS];
} running;

static inline running running_begin(void)
{
    running r = { -INFINITY, 0.0f, { 0.0f } };
    return r;
}

/* all continues with the keys of a later chunk. */
static inline void chunk_merge(running *all, const running *chunk)
{
    const float max = fmax(all->max, chunk->max);
    const float before = exp_of(all->max - max), here = exp_of(chunk->max - max);
    all->max = max;
    all->sum = fma(all->sum, before, chunk->sum * here);
    for (uint d = 0; d < DIMS; d++) all->out[d] = fma(all->out[d], before, chunk->out[d] * here);
}

static inline void queries_load(const lw_xpu_attend_args *a, const shared *s, const heads g)
{
    const global ushort *q =
        (const global ushort *)a->q + get_group_id(1) * a->q_stride + g.first * a->head_dim;
    for (uint h = 0; h < g.count; h++) {
        for (uint i = get_local_id(0); i < a->head_dim; i += LW_XPU_TILE)
            s->q[h * LW_XPU_HEAD_DIM_MAX + i] = bf_load(q, h * a->head_dim + i);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* The row's output, of one head. */
static inline void output_store(const lw_xpu_attend_args *a, uint head, const running *r, bool sees)
{
    global ushort *y = (global ushort *)a->y + get_group_id(1) * a->y_stride + head * a->head_dim;
    for (uint d = 0; d < DIMS; d++) {
        const uint col = get_local_id(0) + d * LW_XPU_TILE;
        if (col < a->head_dim) y[col] = bf_of(sees ? r->out[d] / r->sum : 0.0f);
    }
}

/* ---- a tile ---- */

static inline void scores(const lw_xpu_attend_args *a, const shared *s, const heads g, ulong keys,
                          float *sums)
{
    const global uint *k = (const global uint *)keys;
    for (uint i = 0; i < a->head_dim / 2; i++) {
        const uint pair = k[i * LW_XPU_TILE];
        for (uint h = 0; h < g.most; h++) {
            if (h >= g.count) continue;
            const local float *q = s->q + h * LW_XPU_HEAD_DIM_MAX;
            sums[h] = fma(q[2 * i], as_float(pair << 16), sums[h]);
            sums[h] = fma(q[2 * i + 1], as_float(pair & 0xFFFF0000u), sums[h]);
        }
    }
}

static inline void scores_int8(const lw_xpu_attend_args *a, const shared *s, const heads g, ulong keys,
                               float *sums)
{
    const global uint *k = (const global uint *)keys;
    for (uint i = 0; i < a->head_dim / 4; i++) {
        const uint codes = k[i * LW_XPU_TILE];
        for (uint j = 0; j < 4; j++) {
            const float key = int8_of(codes, j);
            for (uint h = 0; h < g.most; h++) {
                if (h >= g.count) continue;
                sums[h] = fma(s->q[h * LW_XPU_HEAD_DIM_MAX + 4 * i + j], key, sums[h]);
            }
        }
    }
}

/* One key: its scores, where its value lies, and the scale of that. */
static inline float key_read(const lw_xpu_attend_args *a, const shared *s, const heads g, uint key,
                             float *mine, bool is_int8)
{
    const lw_xpu_place place = place_of(a->past, get_group_id(1));
    const uint item = get_local_id(0), slot = slot_of(a->past, place, key), at = slot % LW_XPU_TILE;
    const size_t page = page_of(a->past, place, slot);
    float sums[LW_XPU_HEADS_EACH] = { 0.0f };
    if (is_int8) {
        const int8_head head = int8_head_at(page, g.kv, a->head_dim);
        const float scale = ((const global float *)head.key_scales)[at];
        s->values[item] = head.values + (size_t)at * a->head_dim;
        scores_int8(a, s, g, head.keys + at * 4, sums);
        for (uint h = 0; h < g.most; h++) mine[h] = sums[h] * scale * a->scale;
        return ((const global float *)head.value_scales)[at];
    }
    const size_t head_bytes = (size_t)LW_XPU_TILE * a->head_dim * 4, head = page + g.kv * head_bytes;
    s->values[item] = head + head_bytes / 2 + (size_t)at * a->head_dim * 2;
    scores(a, s, g, head + at * 4, sums);
    for (uint h = 0; h < g.most; h++) mine[h] = sums[h] * a->scale;
    return 1.0f;
}

/* Column col of a key's value, as a page keeps it. */
static inline float value_load(ulong value, uint col, bool is_int8)
{
    if (is_int8) return (float)((const global char *)value)[col];
    return bf_load((const global ushort *)value, col);
}

/* Leaves the largest of what the items bring at the front of each head's tree. */
static inline void tree_max(const shared *s, const heads g, const float *mine)
{
    const uint item = get_local_id(0);
    for (uint h = 0; h < g.most; h++) {
        if (h < g.count) s->tree[h * LW_XPU_TILE + item] = mine[h];
    }
    for (uint count = LW_XPU_TILE / 2; count > 0; count /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint h = 0; item < count && h < g.count; h++) {
            local float *tree = s->tree + h * LW_XPU_TILE;
            tree[item] = fmax(tree[item], tree[item + count]);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* The values of a tile's keys [begin, end), each head by its weights; fades: of what was summed before. */
static inline void values_run(const lw_xpu_attend_args *a, const shared *s, const heads g, uint begin,
                              uint end, const float *fades, running *r, bool is_int8)
{
    const local float *by = is_int8 ? s->tree : s->weights;
    for (uint d = 0; d < DIMS; d++) {
        const uint col = get_local_id(0) + d * LW_XPU_TILE;
        if (col >= a->head_dim) continue;
        for (uint h = 0; h < g.most; h++) {
            if (h < g.count) r[h].out[d] *= fades[h];
        }
        for (uint j = begin; j < end; j++) {
            const float value = value_load(s->values[j], col, is_int8);
            for (uint h = 0; h < g.most; h++) {
                if (h < g.count) r[h].out[d] = fma(by[h * LW_XPU_TILE + j], value, r[h].out[d]);
            }
        }
    }
}

/* Keys [begin, end] of one tile, each an item, continue r, one running state a head; is_int8 is a constant
 * where this is called. */
static inline void tile_run(const lw_xpu_attend_args *a, const shared *s, const heads g, uint begin, uint end,
                            running *r, bool is_int8)
{
    const uint item = get_local_id(0), first = begin / LW_XPU_TILE * LW_XPU_TILE, key = first + item;
    const bool seen = key >= begin && key <= end;
    float mine[LW_XPU_HEADS_EACH], weights[LW_XPU_HEADS_EACH], fades[LW_XPU_HEADS_EACH], value_scale = 0.0f;
    for (uint h = 0; h < g.most; h++) mine[h] = -INFINITY;
    if (seen) value_scale = key_read(a, s, g, key, mine, is_int8);
    tree_max(s, g, mine);
    for (uint h = 0; h < g.most; h++) {
        if (h >= g.count) continue;
        const float max = fmax(r[h].max, s->tree[h * LW_XPU_TILE]);
        weights[h] = seen ? exp_of(mine[h] - max) : 0.0f;
        fades[h] = exp_of(r[h].max - max);
        r[h].max = max;
    }
    /* All have read the maximum before the tree holds something else. */
    if (is_int8) barrier(CLK_LOCAL_MEM_FENCE);
    for (uint h = 0; h < g.most; h++) {
        if (h >= g.count) continue;
        s->weights[h * LW_XPU_TILE + item] = weights[h];
        if (is_int8) s->tree[h * LW_XPU_TILE + item] = weights[h] * value_scale;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint h = 0; h < g.most; h++) {
        if (h >= g.count) continue;
        r[h].sum *= fades[h];
        for (uint j = begin - first; j <= end - first; j++) r[h].sum += s->weights[h * LW_XPU_TILE + j];
    }
    values_run(a, s, g, begin - first, end - first + 1, fades, r, is_int8);
    /* The next tile writes what this one still reads. */
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* A chunk's keys between first and last. */
static inline void chunk_run(const lw_xpu_attend_args *a, const shared *s, const heads g, uint chunk,
                             uint first, uint last, running *r, bool is_int8)
{
    for (uint h = 0; h < g.most; h++) r[h] = running_begin();
    uint key = max(first, chunk * LW_XPU_CHUNK);
    last = min(last, chunk * LW_XPU_CHUNK + LW_XPU_CHUNK - 1);
    while (key <= last) {
        const uint end = min(last, key / LW_XPU_TILE * LW_XPU_TILE + LW_XPU_TILE - 1);
        tile_run(a, s, g, key, end, r, is_int8);
        key = end + 1;
    }
}

/* ---- all chunks of a row in one work-group ---- */

/* A work-group of 64 items is one head of one row. */
static inline void attend_row(const lw_xpu_attend_args *a, const shared *s, bool is_int8)
{
    const uint head = get_group_id(0), position = place_of(a->past, get_group_id(1)).position;
    const uint first = first_key(a, position);
    const heads g = { head, 1, 1, head / (a->heads / a->heads_kv) };
    queries_load(a, s, g);
    running all = running_begin();
    for (uint chunk = first / LW_XPU_CHUNK; first <= position && chunk <= position / LW_XPU_CHUNK; chunk++) {
        running r;
        chunk_run(a, s, g, chunk, first, position, &r, is_int8);
        if (chunk == first / LW_XPU_CHUNK) all = r;
        else chunk_merge(&all, &r);
    }
    output_store(a, head, &all, first <= position);
}

#define LW_ATTEND(name, is_int8) \
    LW_KERNEL(name, lw_xpu_attend_args) \
    { \
        local float q[LW_XPU_HEAD_DIM_MAX], weights[LW_XPU_TILE], tree[LW_XPU_TILE]; \
        local ulong values[LW_XPU_TILE]; \
        const shared s = { q, weights, tree, values }; \
        attend_row(&a, &s, is_int8); \
    }
LW_ATTEND(attend, false)
LW_ATTEND(attend_int8, true)

/* ---- a work-group for each chunk ---- */

/* Where the chunks of earlier launches are, merged. */
static inline global float *carried_at(const lw_xpu_attend_args *a, uint head)
{
    return (global float *)a->carried + (get_group_id(1) * a->heads + head) * (a->head_dim + 2);
}

static inline void running_store(const lw_xpu_attend_args *a, global float *to, const running *r)
{
    const uint item = get_local_id(0);
    if (item == 0) {
        to[0] = r->max;
        to[1] = r->sum;
    }
    for (uint d = 0; d < DIMS; d++) {
        const uint col = item + d * LW_XPU_TILE;
        if (col < a->head_dim) to[2 + col] = r->out[d];
    }
}

static inline running running_load(const lw_xpu_attend_args *a, const global float *from)
{
    running r = running_begin();
    r.max = from[0];
    r.sum = from[1];
    for (uint d = 0; d < DIMS; d++) {
        const uint col = get_local_id(0) + d * LW_XPU_TILE;
        if (col < a->head_dim) r.out[d] = from[2 + col];
    }
    return r;
}

/* A work-group of 64 items is up to heads_each heads and one chunk of one row: all heads of a chunk are
 * neighbours. */
static inline void attend_chunk(const lw_xpu_attend_args *a, const shared *s, bool is_int8)
{
    const uint groups = a->heads_kv * heads_parts(a), chunk = get_group_id(0) / groups;
    const uint position = place_of(a->past, get_group_id(1)).position;
    if (a->from + chunk >= lw_xpu_chunks_seen(position, a->window, a->first)) return;
    const uint first = first_key(a, position);
    const heads g = heads_part(a, get_group_id(0) % groups, LW_XPU_HEADS_EACH);
    running r[LW_XPU_HEADS_EACH];
    queries_load(a, s, g);
    chunk_run(a, s, g, first / LW_XPU_CHUNK + a->from + chunk, first, position, r, is_int8);
    for (uint h = 0; h < g.most; h++) {
        if (h < g.count) running_store(a, part_at(a, get_group_id(1), chunk, g.first + h), &r[h]);
    }
}

#define LW_ATTEND_CHUNKS(name, is_int8) \
    LW_KERNEL(name, lw_xpu_attend_args) \
    { \
        local float q[LW_XPU_HEADS_EACH * LW_XPU_HEAD_DIM_MAX]; \
        local float weights[LW_XPU_HEADS_EACH * LW_XPU_TILE], tree[LW_XPU_HEADS_EACH * LW_XPU_TILE]; \
        local ulong values[LW_XPU_TILE]; \
        const shared s = { q, weights, tree, values }; \
        attend_chunk(&a, &s, is_int8); \
    }
LW_ATTEND_CHUNKS(attend_chunks, false)
LW_ATTEND_CHUNKS(attend_chunks_int8, true)

/* After attend_chunks. A work-group of 64 items is one head of one row. */
LW_KERNEL(attend_merge, lw_xpu_attend_args)
{
    const uint head = get_group_id(0), position = place_of(a.past, get_group_id(1)).position;
    const uint seen = lw_xpu_chunks_seen(position, a.window, a.first);
    if (a.from > 0 && a.from >= seen) return;
    const uint count = min(seen - a.from, a.chunks);
    running all = a.from > 0 ? running_load(&a, carried_at(&a, head)) : running_begin();
    for (uint chunk = 0; chunk < count; chunk++) {
        const running r = running_load(&a, part_at(&a, get_group_id(1), chunk, head));
        if (a.from + chunk == 0) all = r;
        else chunk_merge(&all, &r);
    }
    if (a.from + count == seen) output_store(&a, head, &all, seen > 0);
    else running_store(&a, carried_at(&a, head), &all);
}
