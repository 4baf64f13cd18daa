/* Keys and values in int8: where a page holds them, and how a work-group of 64 items keeps a head's. Read by
 * OpenCL C only.
 */
#ifndef LW_DEVICE_XPU_KERNELS_KV_INT8_H
#define LW_DEVICE_XPU_KERNELS_KV_INT8_H

#include "device/xpu/kernels/lw_xpu.h"

/* What one kv head has of a page: keys as (head_dim / 4, 64) words of four codes, values as (64, head_dim)
 * codes, the keys' fp32 scales [64], the values'. */
typedef struct int8_head {
    size_t keys, values, key_scales, value_scales;
} int8_head;

static inline int8_head int8_head_at(size_t page, uint head, uint head_dim)
{
    const size_t numbers = (size_t)LW_XPU_TILE * head_dim, scales = LW_XPU_TILE * sizeof(float);
    const size_t keys = page + head * 2 * (numbers + scales), behind = keys + 2 * numbers;
    const int8_head h = { keys, keys + numbers, behind, behind + scales };
    return h;
}

/* The i-th code of a word. */
static inline float int8_of(uint word, uint i)
{
    return (float)((int)(word << (24 - 8 * i)) >> 24);
}

/* The scale of a vector whose columns' largest magnitudes, as bits of bf16, the items bring: the largest over
 * 127, NaN where one is not finite. Its end is no barrier: to use sizes again wants one. */
static inline float int8_scale(local uint *sizes, uint item, uint mine)
{
    sizes[item] = mine;
    for (uint count = LW_XPU_TILE / 2; count > 0; count /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item < count) sizes[item] = max(sizes[item], sizes[item + count]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return as_float(sizes[0] >= 0x7F80u ? 0x7FC00000u : sizes[0] << 16) / 127.0f;
}

static inline char int8_code(ushort x, float scale)
{
    const float shift = 0x1.8p23f;
    return scale > 0.0f ? (char)(as_float((uint)x << 16) / scale + shift - shift) : (char)0;
}

/* Keeps the row's key and value of a head; an item those columns of k that it wrote itself. */
static inline void int8_store(const lw_xpu_past past, uint head, uint head_dim, local uint *sizes,
                              const local ushort *k, const global ushort *v)
{
    const uint item = get_local_id(0);
    const lw_xpu_place place = place_of(past, get_group_id(1));
    const uint at = place.slot % LW_XPU_TILE;
    const int8_head to = int8_head_at(page_of(past, place, place.slot), head, head_dim);
    global char *keys = (global char *)to.keys, *values = (global char *)to.values;
    uint of_k = 0, of_v = 0;
    for (uint i = item; i < head_dim; i += LW_XPU_TILE) {
        of_k = max(of_k, k[i] & 0x7FFFu);
        of_v = max(of_v, v[i] & 0x7FFFu);
    }
    const float k_scale = int8_scale(sizes, item, of_k);
    barrier(CLK_LOCAL_MEM_FENCE);
    const float v_scale = int8_scale(sizes, item, of_v);
    for (uint i = item; i < head_dim; i += LW_XPU_TILE) {
        keys[(i / 4 * LW_XPU_TILE + at) * 4 + i % 4] = int8_code(k[i], k_scale);
        values[at * head_dim + i] = int8_code(v[i], v_scale);
    }
    if (item != 0) return;
    ((global float *)to.key_scales)[at] = k_scale;
    ((global float *)to.value_scales)[at] = v_scale;
}

#endif
