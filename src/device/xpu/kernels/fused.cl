/* Ops that run as one launch: the very steps of each, its roundings too. */
#include "device/xpu/kernels/kv_int8.h"
#include "device/xpu/kargs_fused.h"

/* What stands at column i of the row that is normed. */
static inline float row_load(const lw_xpu_add_norm_args *a, size_t row, uint i)
{
    const ulong from = a->added != 0 ? a->sum : a->x;
    const size_t at = row * (a->added != 0 ? a->sum_stride : a->x_stride) + i;
    return a->is_f32 ? ((const global float *)from)[at] : bf_load((const global ushort *)from, at);
}

static inline void row_add(const lw_xpu_add_norm_args *a, size_t row, uint i, float branch_by)
{
    float right = bf_load((const global ushort *)a->added, row * a->added_stride + i);
    if (a->branch_w != 0) {
        const float w = ((const global float *)a->branch_w)[i];
        right = as_float((uint)norm_scaled(right * branch_by, w, a->branch_scale) << 16);
    }
    const size_t from = row * a->x_stride + i, to = row * a->sum_stride + i;
    if (a->is_f32) ((global float *)a->sum)[to] = ((const global float *)a->x)[from] + right;
    else ((global ushort *)a->sum)[to] = bf_of(bf_load((const global ushort *)a->x, from) + right);
}

/* A work-group of 64 items is one row; an item reads back the columns that it added itself. */
LW_KERNEL(add_norm, lw_xpu_add_norm_args)
{
    local float squares[LW_XPU_TILE];
    const uint item = get_local_id(0);
    const size_t row = get_group_id(1);
    global ushort *y = (global ushort *)a.y + row * a.y_stride;
    float sum = 0.0f, branch_by = 0.0f;
    if (a.branch_w != 0) {
        const global ushort *added = (const global ushort *)a.added + row * a.added_stride;
        for (uint i = item; i < a.width; i += LW_XPU_TILE)
            sum = fma(bf_load(added, i), bf_load(added, i), sum);
        branch_by = 1.0f / sqrt(sum_items(squares, item, sum) / (float)a.width + a.branch_eps);
        barrier(CLK_LOCAL_MEM_FENCE);
        sum = 0.0f;
    }
    for (uint i = item; i < a.width; i += LW_XPU_TILE) {
        if (a.added != 0) row_add(&a, row, i, branch_by);
        const float v = row_load(&a, row, i);
        sum = fma(v, v, sum);
    }
    const float by = 1.0f / sqrt(sum_items(squares, item, sum) / (float)a.width + a.eps);
    for (uint i = item; i < a.width; i += LW_XPU_TILE)
        y[i] = norm_scaled(row_load(&a, row, i) * by, ((const global float *)a.w)[i], a.scale);
    if (a.sums == 0) return;
    barrier(CLK_GLOBAL_MEM_FENCE);
    for (uint group = item; group < a.groups; group += LW_XPU_TILE) {
        const uint begin = group * a.group, end = min(begin + a.group, a.width);
        ((global float *)a.sums)[row * a.groups + group] = sum_columns(y, begin, end);
    }
}

/* The stored head's column i, where kv_store puts it. */
static inline void head_store(const lw_xpu_past past, const lw_xpu_head_part *p, uint head, uint head_dim,
                              uint i, ushort key)
{
    const size_t row = get_group_id(1);
    const lw_xpu_place place = place_of(past, row);
    const uint at = place.slot % LW_XPU_TILE;
    const size_t head_bytes = (size_t)LW_XPU_TILE * head_dim * 4;
    const size_t page = page_of(past, place, place.slot) + head * head_bytes;
    global ushort *keys = (global ushort *)page, *values = (global ushort *)(page + head_bytes / 2);
    keys[(i / 2 * LW_XPU_TILE + at) * 2 + i % 2] = key;
    values[at * head_dim + i] = ((const global ushort *)p->v)[row * p->v_stride + head * head_dim + i];
}

/* What the items of a head's work-group share; sizes and keys are int8's. */
typedef struct head_shared {
    local float *squares;                /* [LW_XPU_TILE] */
    local ushort *kept, *keys;           /* [LW_XPU_HEAD_DIM_MAX] */
    local uint *sizes;                   /* [LW_XPU_TILE] */
} head_shared;

/* A work-group of 64 items is one head of one row: the plain ones first. is_int8 is constant in a kernel. */
static inline void head_run(const lw_xpu_heads_args *a, const head_shared *s, bool is_int8)
{
    const uint item = get_local_id(0), group = get_group_id(0);
    const size_t row = get_group_id(1);
    const bool is_plain = group < a->plain.heads;
    const lw_xpu_head_part p = is_plain ? a->plain : a->stored;
    const uint head = is_plain ? group : group - a->plain.heads;
    local ushort *kept = s->kept;
    const global ushort *x = (const global ushort *)p.x + row * p.x_stride + head * a->head_dim;
    for (uint i = item; i < a->head_dim; i += LW_XPU_TILE) kept[i] = x[i];
    if (p.w != 0) {
        float sum = 0.0f;
        for (uint i = item; i < a->head_dim; i += LW_XPU_TILE) sum = fma(bf_load(x, i), bf_load(x, i), sum);
        const float by = 1.0f / sqrt(sum_items(s->squares, item, sum) / (float)a->head_dim + p.eps);
        for (uint i = item; i < a->head_dim; i += LW_XPU_TILE)
            kept[i] = norm_scaled(bf_load(x, i) * by, ((const global float *)p.w)[i], p.scale);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = item; i < a->head_dim; i += LW_XPU_TILE) {
        ushort turned = kept[i];
        if (i < 2 * a->half_dim) {
            const uint pair = rope_pair(i, a->half_dim);
            const float left = as_float((uint)kept[pair] << 16);
            const float right = as_float((uint)kept[pair + a->half_dim] << 16);
            const float cosine = ((const global float *)a->cosines)[row * a->half_dim + pair];
            const float sine = ((const global float *)a->sines)[row * a->half_dim + pair];
            turned = roped(left, right, cosine, sine, i < a->half_dim);
        }
        if (p.v == 0) ((global ushort *)p.y)[row * p.y_stride + head * a->head_dim + i] = turned;
        else if (is_int8) s->keys[i] = turned;
        else head_store(a->past, &p, head, a->head_dim, i, turned);
    }
    if (p.v == 0 || !is_int8) return;
    const global ushort *v = (const global ushort *)p.v + row * p.v_stride + head * a->head_dim;
    int8_store(a->past, head, a->head_dim, s->sizes, s->keys, v);
}

LW_KERNEL(heads, lw_xpu_heads_args)
{
    local float squares[LW_XPU_TILE];
    local ushort kept[LW_XPU_HEAD_DIM_MAX];
    const head_shared s = { squares, kept, NULL, NULL };
    head_run(&a, &s, false);
}

LW_KERNEL(heads_int8, lw_xpu_heads_args)
{
    local float squares[LW_XPU_TILE];
    local ushort kept[LW_XPU_HEAD_DIM_MAX], keys[LW_XPU_HEAD_DIM_MAX];
    local uint sizes[LW_XPU_TILE];
    const head_shared s = { squares, kept, keys, sizes };
    head_run(&a, &s, true);
}
