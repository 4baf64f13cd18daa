/* Kernels that read or write a lane's pages: keys and values, tails of convolutions. */
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
