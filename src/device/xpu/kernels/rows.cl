/* Kernels that work on rows by themselves: norms, elementwise, rope, gate, copies. Definitions in
 * ops.list. Unless said otherwise an item is one column, group_id(1) the row.
 */
#include "device/xpu/kernels/lw_xpu.h"

/* A work-group of 64 items is one segment: item i sums the squares of columns i, i + 64, ..., then halves are
 * added. */
LW_KERNEL(rms_norm, lw_xpu_norm_args)
{
    local float squares[LW_XPU_TILE];
    const uint item = get_local_id(0);
    const size_t row = get_group_id(1), first = get_group_id(0) * (size_t)a.segment;
    const global ushort *x = (const global ushort *)a.x + row * a.x_stride + first;
    global ushort *y = (global ushort *)a.y + row * a.y_stride + first;
    const global float *w = (const global float *)a.w;
    float sum = 0.0f;
    for (uint i = item; i < a.segment; i += LW_XPU_TILE) sum = fma(bf_load(x, i), bf_load(x, i), sum);
    squares[item] = sum;
    for (uint half_count = LW_XPU_TILE / 2; half_count > 0; half_count /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item < half_count) squares[item] += squares[item + half_count];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const float by = 1.0f / sqrt(squares[0] / (float)a.segment + a.eps);
    for (uint i = item; i < a.segment; i += LW_XPU_TILE) {
        const float r = bf_load(x, i) * by;
        y[i] = bf_of((a.scale == 2 ? 1.0f + w[i] : w[i]) * (a.scale == 0 ? bf_round(r) : r));
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
    ((global ushort *)a.y)[row * a.y_stride + col] = bf_of(gate * sigmoid(gate) * up);
}

LW_KERNEL(rope, lw_xpu_rope_args)
{
    const size_t col = get_global_id(0), row = get_group_id(1);
    if (col >= a.width) return;
    const uint i = col % a.head_dim, pair = i < a.half_dim ? i : i - a.half_dim;
    const global ushort *x = (const global ushort *)a.x + row * a.x_stride + (col - i);
    global ushort *y = (global ushort *)a.y + row * a.y_stride + col;
    if (i >= 2 * a.half_dim) {
        *y = x[i];
        return;
    }
    const float cosine = ((const global float *)a.cosines)[row * a.half_dim + pair];
    const float sine = ((const global float *)a.sines)[row * a.half_dim + pair];
    const float left = bf_load(x, pair), right = bf_load(x, pair + a.half_dim);
    *y = bf_of(i < a.half_dim ? fma(left, cosine, -(right * sine)) : fma(right, cosine, left * sine));
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
