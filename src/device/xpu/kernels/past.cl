/* Kernels that read or write a lane's pages: keys and values, tails of convolutions, attention. */
#include "device/xpu/kernels/kv_int8.h"

/* An item is a pair of columns. */
LW_KERNEL(kv_store, lw_xpu_kv_args)
{
    const uint pair = get_global_id(0), pairs = a.head_dim / 2;
    const size_t row = get_group_id(1);
    if (pair >= a.heads * pairs) return;
    const lw_xpu_place place = place_of(a.past, row);
    const uint head = pair / pairs, i = pair % pairs, at = place.slot % LW_XPU_TILE;
    const size_t page = page_of(a.past, place, place.slot), head_bytes = (size_t)LW_XPU_TILE * a.head_dim * 4;
    global uint *keys = (global uint *)(page + head * head_bytes);
    global ushort *values = (global ushort *)(page + head * head_bytes + head_bytes / 2);
    const global ushort *k = (const global ushort *)a.k + row * a.k_stride + 2 * (size_t)pair;
    const global ushort *v = (const global ushort *)a.v + row * a.v_stride + 2 * (size_t)pair;
    keys[i * LW_XPU_TILE + at] = (uint)k[0] | (uint)k[1] << 16;
    values[at * a.head_dim + 2 * i] = v[0];
    values[at * a.head_dim + 2 * i + 1] = v[1];
}

/* A work-group of 64 items is one head of one row. */
LW_KERNEL(kv_store_int8, lw_xpu_kv_args)
{
    local uint sizes[LW_XPU_TILE];
    local ushort kept[LW_XPU_HEAD_DIM_MAX];
    const uint head = get_group_id(0);
    const size_t row = get_group_id(1);
    const global ushort *k = (const global ushort *)a.k + row * a.k_stride + head * a.head_dim;
    const global ushort *v = (const global ushort *)a.v + row * a.v_stride + head * a.head_dim;
    for (uint i = get_local_id(0); i < a.head_dim; i += LW_XPU_TILE) kept[i] = k[i];
    int8_store(a.past, head, a.head_dim, sizes, kept, v);
}

/* What the items of a work-group share. */
typedef struct shared {
    float q[LW_XPU_HEAD_DIM_MAX];
    float weights[LW_XPU_TILE];        /* of a tile's keys */
    float tree[LW_XPU_TILE];           /* of a maximum; then weights times the scales of int8 values */
    ulong values[LW_XPU_TILE];         /* where the value of each key lies */
} shared;

/* Columns of the output that one item makes: its own number, then 64 further. */
enum { DIMS = LW_XPU_HEAD_DIM_MAX / LW_XPU_TILE };
typedef struct running {
    float max, sum, out[DIMS];
} running;

static inline float tree_max(local shared *s, uint item, float value)
{
    s->tree[item] = value;
    for (uint count = LW_XPU_TILE / 2; count > 0; count /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item < count) s->tree[item] = fmax(s->tree[item], s->tree[item + count]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return s->tree[0];
}

static inline float score(const lw_xpu_attend_args *a, const local shared *s, ulong keys)
{
    const global uint *k = (const global uint *)keys;
    float sum = 0.0f;
    for (uint i = 0; i < a->head_dim / 2; i++) {
        const uint pair = k[i * LW_XPU_TILE];
        sum = fma(s->q[2 * i], as_float(pair << 16), sum);
        sum = fma(s->q[2 * i + 1], as_float(pair & 0xFFFF0000u), sum);
    }
    return sum * a->scale;
}

static inline float score_int8(const lw_xpu_attend_args *a, const local shared *s, ulong keys, float scale)
{
    const global uint *k = (const global uint *)keys;
    float sum = 0.0f;
    for (uint i = 0; i < a->head_dim / 4; i++) {
        const uint codes = k[i * LW_XPU_TILE];
        for (uint j = 0; j < 4; j++) sum = fma(s->q[4 * i + j], int8_of(codes, j), sum);
    }
    return sum * scale * a->scale;
}

/* Column col of a key's value, as a page keeps it. */
static inline float value_load(ulong value, uint col, bool is_int8)
{
    if (is_int8) return (float)((const global char *)value)[col];
    return bf_load((const global ushort *)value, col);
}

/* Keys [begin, end] of one tile, each an item, continue r; is_int8 is a constant where this is called. */
static inline void tile_run(const lw_xpu_attend_args *a, local shared *s, uint begin, uint end, running *r,
                            bool is_int8)
{
    const uint item = get_local_id(0), first = begin / LW_XPU_TILE * LW_XPU_TILE, key = first + item;
    const uint head_kv = get_group_id(0) / (a->heads / a->heads_kv);
    const bool seen = key >= begin && key <= end;
    float mine = -INFINITY, value_scale = 0.0f;
    if (seen && is_int8) {
        const lw_xpu_place place = place_of(a->past, get_group_id(1));
        const uint slot = slot_of(a->past, place, key), at = slot % LW_XPU_TILE;
        const int8_head head = int8_head_at(page_of(a->past, place, slot), head_kv, a->head_dim);
        s->values[item] = head.values + (size_t)at * a->head_dim;
        value_scale = ((const global float *)head.value_scales)[at];
        mine = score_int8(a, s, head.keys + at * 4, ((const global float *)head.key_scales)[at]);
    } else if (seen) {
        const lw_xpu_place place = place_of(a->past, get_group_id(1));
        const uint slot = slot_of(a->past, place, key), at = slot % LW_XPU_TILE;
        const size_t head_bytes = (size_t)LW_XPU_TILE * a->head_dim * 4;
        const size_t head = page_of(a->past, place, slot) + head_kv * head_bytes;
        s->values[item] = head + head_bytes / 2 + (size_t)at * a->head_dim * 2;
        mine = score(a, s, head + at * 4);
    }
    const float max = fmax(r->max, tree_max(s, item, mine));
    const float weight = seen ? exp_of(mine - max) : 0.0f;
    /* All have read the maximum before the tree holds something else. */
    if (is_int8) barrier(CLK_LOCAL_MEM_FENCE);
    s->weights[item] = weight;
    if (is_int8) s->tree[item] = weight * value_scale;
    barrier(CLK_LOCAL_MEM_FENCE);
    const local float *by = is_int8 ? s->tree : s->weights;
    const float fade = exp_of(r->max - max);
    r->max = max;
    r->sum *= fade;
    for (uint j = begin - first; j <= end - first; j++) r->sum += s->weights[j];
    for (uint d = 0; d < DIMS; d++) {
        const uint col = item + d * LW_XPU_TILE;
        if (col >= a->head_dim) continue;
        float out = r->out[d] * fade;
        for (uint j = begin - first; j <= end - first; j++)
            out = fma(by[j], value_load(s->values[j], col, is_int8), out);
        r->out[d] = out;
    }
    /* The next tile writes what this one still reads. */
    barrier(CLK_LOCAL_MEM_FENCE);
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

static inline running running_begin(void)
{
    running r = { -INFINITY, 0.0f, { 0.0f } };
    return r;
}

/* A work-group of 64 items is one head of one row. */
static inline void attend_row(const lw_xpu_attend_args *a, local shared *s, bool is_int8)
{
    const uint item = get_local_id(0), head = get_group_id(0);
    const size_t row = get_group_id(1);
    const uint position = place_of(a->past, row).position;
    const uint past_window = a->window != 0 && position >= a->window ? position - a->window + 1 : 0;
    const uint first = max(a->first, past_window);
    const global ushort *q = (const global ushort *)a->q + row * a->q_stride + head * a->head_dim;
    global ushort *y = (global ushort *)a->y + row * a->y_stride + head * a->head_dim;
    for (uint i = item; i < a->head_dim; i += LW_XPU_TILE) s->q[i] = bf_load(q, i);
    barrier(CLK_LOCAL_MEM_FENCE);
    running all = running_begin();
    for (uint chunk = first / LW_XPU_CHUNK; first <= position && chunk <= position / LW_XPU_CHUNK; chunk++) {
        running r = running_begin();
        uint key = max(first, chunk * LW_XPU_CHUNK);
        const uint last = min(position, chunk * LW_XPU_CHUNK + LW_XPU_CHUNK - 1);
        while (key <= last) {
            const uint end = min(last, key / LW_XPU_TILE * LW_XPU_TILE + LW_XPU_TILE - 1);
            tile_run(a, s, key, end, &r, is_int8);
            key = end + 1;
        }
        if (chunk == first / LW_XPU_CHUNK) all = r;
        else chunk_merge(&all, &r);
    }
    for (uint d = 0; d < DIMS; d++) {
        const uint col = item + d * LW_XPU_TILE;
        if (col < a->head_dim) y[col] = bf_of(first <= position ? all.out[d] / all.sum : 0.0f);
    }
}

LW_KERNEL(attend, lw_xpu_attend_args)
{
    local shared s;
    attend_row(&a, &s, false);
}

LW_KERNEL(attend_int8, lw_xpu_attend_args)
{
    local shared s;
    attend_row(&a, &s, true);
}

LW_KERNEL(tail_store, lw_xpu_conv_args)
{
    const size_t col = get_global_id(0), row = get_group_id(1);
    if (col >= a.width) return;
    const lw_xpu_place place = place_of(a.past, row);
    global ushort *page = (global ushort *)page_of(a.past, place, place.slot);
    page[place.slot % LW_XPU_TILE * (size_t)a.width + col] =
        ((const global ushort *)a.x)[row * a.x_stride + col];
}

/* After tail_store of all rows: a row's past may be in the same batch. */
LW_KERNEL(short_conv, lw_xpu_conv_args)
{
    const size_t col = get_global_id(0), row = get_group_id(1);
    if (col >= a.width) return;
    const lw_xpu_place place = place_of(a.past, row);
    const uint back = a.taps - 1;
    float sum = 0.0f;
    for (uint tap = place.position < back ? back - place.position : 0; tap <= back; tap++) {
        const uint slot = slot_of(a.past, place, place.position + tap - back);
        const global ushort *page = (const global ushort *)page_of(a.past, place, slot);
        const float x = bf_load(page, slot % LW_XPU_TILE * (size_t)a.width + col);
        sum = fma(((const global float *)a.w)[tap * (size_t)a.width + col], x, sum);
    }
    if (a.bias != 0) sum += ((const global float *)a.bias)[col];
    ((global ushort *)a.y)[row * a.y_stride + col] = bf_of(a.silu ? silu(sum) : sum);
}

LW_KERNEL(tail_before, lw_xpu_conv_args)
{
    const size_t col = get_global_id(0), row = get_group_id(1);
    if (col >= a.width) return;
    const lw_xpu_place place = place_of(a.past, row);
    ushort before = 0;
    if (place.position > 0) {
        const uint slot = slot_of(a.past, place, place.position - 1);
        const global ushort *page = (const global ushort *)page_of(a.past, place, slot);
        before = page[slot % LW_XPU_TILE * (size_t)a.width + col];
    }
    ((global ushort *)a.y)[row * a.y_stride + col] = before;
}
