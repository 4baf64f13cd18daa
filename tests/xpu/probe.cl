/* Kernels that show what the emulated device does: barriers, sub-groups, ids, and what it must refuse. */
#include "device/xpu/kernels/lw_xpu.h"

typedef struct lw_probe_args { lw_xpu_u64 in, out; } lw_probe_args;

/* Reverses 64 numbers through local memory. */
LW_KERNEL(reverse, lw_probe_args)
{
    local uint all[64];
    const uint item = get_local_id(0);
    const size_t base = get_group_id(0) * 64;
    all[item] = ((const global uint *)a.in)[base + item];
    barrier(CLK_LOCAL_MEM_FENCE);
    ((global uint *)a.out)[base + item] = all[63 - item];
}

/* Lanes of a sub-group see each other's numbers, though sub-groups take different turns. */
LW_KERNEL(lanes, lw_probe_args)
{
    const uint item = get_global_id(0);
    const float x = ((const global float *)a.in)[item];
    float y = x;
    for (uint turn = 0; turn <= get_local_id(0) / 16; turn++) y = intel_sub_group_shuffle_xor(y, 1);
    ((global float *)a.out)[item] = sub_group_broadcast(x, 3) + (y + sub_group_reduce_add(x));
}

LW_KERNEL(divergent, lw_probe_args)
{
    if (get_local_id(0) < 8) barrier(CLK_LOCAL_MEM_FENCE);
    else sub_group_broadcast(0.0f, 0);
}

LW_KERNEL(leaves, lw_probe_args)
{
    if (get_local_id(0) == 5) return;
    barrier(CLK_LOCAL_MEM_FENCE);
}
