/* What all kernels share. Read by OpenCL C only.
 *
 * Rules of every kernel: contraction is off and a fused step is written fma(); sub-groups are 16 wide; sums
 * go through a loop or a tree that is written out, never through a reduction whose order is the compiler's.
 */
#ifndef LW_DEVICE_XPU_KERNELS_LW_XPU_H
#define LW_DEVICE_XPU_KERNELS_LW_XPU_H

#pragma OPENCL FP_CONTRACT OFF
#include "device/xpu/kargs.h"
#include "device/xpu/kernels/lw_math.h"

/* A host that runs kernels as functions defines its own form. */
#ifndef LW_KERNEL
#define LW_KERNEL(name, args) __attribute__((intel_reqd_sub_group_size(16))) kernel void lw_##name(args a)
#endif

/* What the sub-group's lanes hold, for each of them. A host that runs kernels as functions has its own form.
 */
#ifndef LW_LANES_OF
#define LW_LANE(i) sub_group_broadcast(lanes, i)
#define LW_LANES_OF(lanes) lw_lanes_of(lanes)
static inline float16 lw_lanes_of(float lanes)
{
    return (float16)(LW_LANE(0), LW_LANE(1), LW_LANE(2), LW_LANE(3), LW_LANE(4), LW_LANE(5), LW_LANE(6),
                     LW_LANE(7), LW_LANE(8), LW_LANE(9), LW_LANE(10), LW_LANE(11), LW_LANE(12), LW_LANE(13),
                     LW_LANE(14), LW_LANE(15));
}
#endif

static inline float bf_load(const global ushort *x, size_t at)
{
    return as_float((uint)x[at] << 16);
}

/* To nearest, ties to even; a NaN stays one. */
static inline ushort bf_of(float value)
{
    const uint bits = as_uint(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (ushort)((bits >> 16) | 0x40u);
    return (ushort)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

static inline float bf_round(float value)
{
    return as_float((uint)bf_of(value) << 16);
}

static inline size_t page_of(const lw_xpu_past past, lw_xpu_place place, uint slot)
{
    const global uint *ids = (const global uint *)past.ids;
    return past.pages + past.page_bytes * ids[place.pages + slot / LW_XPU_TILE];
}

static inline uint slot_of(const lw_xpu_past past, lw_xpu_place place, uint position)
{
    const global uint *lineage = (const global uint *)past.lineage;
    if (place.lineage == LW_XPU_NONE || position < place.committed) return position;
    return lineage[place.lineage + position - place.committed];
}

/* The sum of what the 64 items of a work-group bring: halves are added until one is left. Its end is no
 * barrier: to use sums again wants one. */
static inline float sum_items(local float *sums, uint item, float mine)
{
    sums[item] = mine;
    for (uint count = LW_XPU_TILE / 2; count > 0; count /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item < count) sums[item] += sums[item + count];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return sums[0];
}

/* A normed number, with its weight; scale: an lw_norm_scale. */
static inline ushort norm_scaled(float r, float w, uint scale)
{
    return bf_of((scale == 2 ? 1.0f + w : w) * (scale == 0 ? bf_round(r) : r));
}

/* The pair that column i of a head turns with: columns pair and pair + half_dim. */
static inline uint rope_pair(uint i, uint half_dim)
{
    return i < half_dim ? i : i - half_dim;
}

static inline ushort roped(float left, float right, float cosine, float sine, bool is_left)
{
    return bf_of(is_left ? fma(left, cosine, -(right * sine)) : fma(right, cosine, left * sine));
}

static inline float sum_columns(const global ushort *x, uint begin, uint end)
{
    float sum = 0.0f;
    for (uint k = begin; k < end; k++) sum += bf_load(x, k);
    return sum;
}

static inline lw_xpu_place place_of(const lw_xpu_past past, size_t row)
{
    return ((const global lw_xpu_place *)past.places)[row];
}

#endif
