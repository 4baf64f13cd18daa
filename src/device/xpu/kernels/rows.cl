/* Kernels that work on rows by themselves: norms, elementwise, rope, gates, copies. Definitions in
 * ops.list. Unless said otherwise an item is one column, group_id(1) the row.
 */
#include "device/xpu/kernels/lw_xpu.h"

/* A work-group of 64 items is one segment: item i sums the squares of columns i, i + 64, ..., then halves are
 * added. */
static inline float norm_load(const lw_xpu_norm_args *a, size_t at)
{
    return a->x_is_f32 ? ((const global float *)a->x)[at] : bf_load((const global ushort *)a->x, at);
}

LW_KERNEL(rms_norm, lw_xpu_norm_args)
{
    local float squares[LW_XPU_TILE];
    const uint item = get_local_id(0);
    const size_t row = get_group_id(1), first = get_group_id(0) * (size_t)a.segment;
    const size_t x = row * a.x_stride + first;
    global ushort *y = (global ushort *)a.y + row * a.y_stride + first;
    const global float *w = (const global float *)a.w;
    float sum = 0.0f;
    for (uint i = item; i < a.segment; i += LW_XPU_TILE) {
        const float v = norm_load(&a, x + i);
        sum = fma(v, v, sum);
    }
    const float by = 1.0f / sqrt(sum_items(squares, item, sum) / (float)a.segment + a.eps);
    for (uint i = item; i < a.segment; i += LW_XPU_TILE) {
        y[i] = norm_scaled(norm_load(&a, x + i) * by, w[i], a.scale);
    }
}

static inline float gated_load(const lw_xpu_norm_gate_args *a, size_t x, size_t gate)
{
    const float v = bf_load((const global ushort *)a->x, x);
    return a->gate_first ? v * silu(bf_load((const global ushort *)a->gate, gate)) : v;
}

/* A work-group is one segment, whose squares are summed as those of rms_norm. */
LW_KERNEL(norm_gate, lw_xpu_norm_gate_args)
{
    local float squares[LW_XPU_TILE];
    const uint item = get_local_id(0);
    const size_t row = get_group_id(1), first = get_group_id(0) * (size_t)a.segment;
    const size_t x = row * a.x_stride + first, gate = row * a.gate_stride + first;
    global ushort *y = (global ushort *)a.y + row * a.y_stride + first;
    const global float *w = (const global float *)a.w + (a.own_weights ? first : 0);
    float sum = 0.0f;
    for (uint i = item; i < a.segment; i += LW_XPU_TILE) {
        const float v = gated_load(&a, x + i, gate + i);
        sum = fma(v, v, sum);
    }
    const float by = 1.0f / sqrt(sum_items(squares, item, sum) / (float)a.segment + a.eps);
    for (uint i = item; i < a.segment; i += LW_XPU_TILE) {
        const float weighed = w[i] * (gated_load(&a, x + i, gate + i) * by);
        const float open = a.gate_first ? 1.0f : silu(bf_load((const global ushort *)a.gate, gate + i));
        y[i] = bf_of(weighed * open);
    }
}

LW_KERNEL(add, lw_xpu_pair_args)
{
    const size_t col = get_global_id(0), row = get_group_id(1);
    if (col >= a.width) return;
    const float left = bf_load((const global ushort *)a.a, row * a.a_stride + col);
    const float right = bf_load((const global ushort *)a.b, row * a.b_stride + col);
    ((global ushort *)a.y)[row * a.y_stride + col] = bf_of(left + right);
}

LW_KERNEL(mul, lw_xpu_pair_args)
{
    const size_t col = get_global_id(0), row = get_group_id(1);
    if (col >= a.width) return;
    const float left = bf_load((const global ushort *)a.a, row * a.a_stride + col);
    const float right = bf_load((const global ushort *)a.b, row * a.b_stride + col);
    ((global ushort *)a.y)[row * a.y_stride + col] = bf_of(left * right);
}

LW_KERNEL(swiglu, lw_xpu_pair_args)
{
    const size_t col = get_global_id(0), row = get_group_id(1);
    if (col >= a.width) return;
    const float gate = bf_load((const global ushort *)a.a, row * a.a_stride + col);
    const float up = bf_load((const global ushort *)a.b, row * a.b_stride + col);
    ((global ushort *)a.y)[row * a.y_stride + col] = bf_of(silu(gate) * up);
}

LW_KERNEL(rope, lw_xpu_rope_args)
{
    const size_t col = get_global_id(0), row = get_group_id(1);
    if (col >= a.width) return;
    const uint i = col % a.head_dim, pair = rope_pair(i, a.half_dim);
    const global ushort *x = (const global ushort *)a.x + row * a.x_stride + (col - i);
    global ushort *y = (global ushort *)a.y + row * a.y_stride + col;
    if (i >= 2 * a.half_dim) {
        *y = x[i];
        return;
    }
    const float cosine = ((const global float *)a.cosines)[row * a.half_dim + pair];
    const float sine = ((const global float *)a.sines)[row * a.half_dim + pair];
    *y = roped(bf_load(x, pair), bf_load(x, pair + a.half_dim), cosine, sine, i < a.half_dim);
}

LW_KERNEL(head_gate, lw_xpu_gate_args)
{
    const size_t col = get_global_id(0), row = get_group_id(1);
    if (col >= a.width) return;
    const float x = bf_load((const global ushort *)a.x, row * a.x_stride + col);
    const float gate = bf_load((const global ushort *)a.gate, row * a.gate_stride + col / a.gate_width);
    ((global ushort *)a.y)[row * a.y_stride + col] = bf_of(x * sigmoid(gate));
}

LW_KERNEL(take_wanted, lw_xpu_take_args)
{
    const size_t col = get_global_id(0), row = get_group_id(1);
    if (col >= a.width) return;
    const size_t from = ((const global uint *)a.wanted)[row];
    ((global ushort *)a.y)[row * a.y_stride + col] = ((const global ushort *)a.x)[from * a.x_stride + col];
}

/* A residual in fp32: a, and with it y. */
LW_KERNEL(add_wide, lw_xpu_pair_args)
{
    const size_t col = get_global_id(0), row = get_group_id(1);
    if (col >= a.width) return;
    const float left = ((const global float *)a.a)[row * a.a_stride + col];
    const float right = bf_load((const global ushort *)a.b, row * a.b_stride + col);
    ((global float *)a.y)[row * a.y_stride + col] = left + right;
}

LW_KERNEL(widen, lw_xpu_each_args)
{
    const size_t col = get_global_id(0), row = get_group_id(1);
    if (col >= a.width) return;
    ((global float *)a.y)[row * a.y_stride + col] =
        bf_load((const global ushort *)a.x, row * a.x_stride + col);
}

LW_KERNEL(bias, lw_xpu_each_args)
{
    const size_t col = get_global_id(0), row = get_group_id(1);
    if (col >= a.width) return;
    const float x = ((const global float *)a.x)[row * a.x_stride + col];
    ((global ushort *)a.y)[row * a.y_stride + col] = bf_of(x + ((const global float *)a.w)[col]);
}

LW_KERNEL(relu2, lw_xpu_each_args)
{
    const size_t col = get_global_id(0), row = get_group_id(1);
    if (col >= a.width) return;
    const float x = bf_load((const global ushort *)a.x, row * a.x_stride + col);
    const float above = x < 0.0f ? 0.0f : x; /* NaN stays */
    ((global ushort *)a.y)[row * a.y_stride + col] = bf_of(above * above);
}

LW_KERNEL(columns, lw_xpu_columns_args)
{
    const uint col = get_global_id(0);
    const size_t row = get_group_id(1);
    if (col >= a.width) return;
    const size_t from = (size_t)(col / a.head_width) * a.head_stride + col % a.head_width;
    ((global ushort *)a.y)[row * a.y_stride + col] = ((const global ushort *)a.x)[row * a.x_stride + from];
}
