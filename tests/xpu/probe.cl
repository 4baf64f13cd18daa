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

/* The same through more local memory than some devices have. */
LW_KERNEL(spread, lw_probe_args)
{
    local uint all[64][400];
    const uint item = get_local_id(0);
    const size_t base = get_group_id(0) * 64;
    all[item][6 * item] = ((const global uint *)a.in)[base + item];
    barrier(CLK_LOCAL_MEM_FENCE);
    ((global uint *)a.out)[base + item] = all[63 - item][6 * (63 - item)];
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

/* Leans on the order of a reduction, as no kernel may. */
LW_KERNEL(sums, lw_probe_args)
{
    const uint item = get_global_id(0);
    ((global float *)a.out)[item] = sub_group_reduce_add(((const global float *)a.in)[item]);
}

LW_KERNEL(lane_leaves, lw_probe_args)
{
    if (get_local_id(0) == 21) return;
    ((global float *)a.out)[get_global_id(0)] = sub_group_reduce_max(1.0f);
}

/* Each item: where it is, seen in four ways. */
LW_KERNEL(places, lw_probe_args)
{
    const uint item = get_global_id(0), lane = get_sub_group_local_id();
    const uint x = ((const global uint *)a.in)[item];
    const uint turned = intel_sub_group_shuffle(x, 15 - lane), next = intel_sub_group_shuffle_down(x, 7u, 1);
    const uint rank = sub_group_scan_exclusive_add(1u), most = sub_group_reduce_max(x);
    const bool holds = rank == lane && lane + 16 * get_sub_group_id() == get_local_id(0)
        && get_num_sub_groups() == 4 && sub_group_all(most >= x) && !sub_group_any(most < x);
    ((global uint *)a.out)[item] = holds ? turned + next : 0;
}

/* Two words a lane by a block, written back by a block in the other order. */
LW_KERNEL(blocks, lw_probe_args)
{
    const size_t at = get_group_id(0) * 64 + get_sub_group_id() % 2 * 32;
    const global uint *in = (const global uint *)a.in + at;
    const global ushort *in_halves = (const global ushort *)in;
    const uint2 words = intel_sub_group_block_read2(in);
    const ushort4 halves = intel_sub_group_block_read_us4(in_halves);
    const bool holds = halves.x == in_halves[get_sub_group_local_id()];
    intel_sub_group_block_write2((global uint *)a.out + at, holds ? words.yx : (uint2)(0));
}

LW_KERNEL(ragged_block, lw_probe_args)
{
    const global uint *in = (const global uint *)a.in + get_sub_group_local_id() / 8;
    ((global uint *)a.out)[get_global_id(0)] = intel_sub_group_block_read(in);
}

/* One lane leaves it out, and then all meet. */
LW_KERNEL(lone_block, lw_probe_args)
{
    uint x = 0;
    if (get_sub_group_local_id() != 3) x = intel_sub_group_block_read((const global uint *)a.in);
    ((global uint *)a.out)[get_global_id(0)] = sub_group_broadcast(x, 0);
}

float8 __attribute__((overloadable)) intel_sub_group_bf16_bf16_matrix_mad_k16(short8 a, int8 b, float8 c);
int8 __attribute__((overloadable)) intel_sub_group_i8_i8_matrix_mad_k32(short8 a, int8 b, int8 c);
ushort8 __builtin_IB_subgroup_block_read_flat_u16_m8k16v1(long base, int width, int height, int pitch,
                                                          int2 at);
int8 __builtin_IB_subgroup_block_read_flat_transform_u16_k16(long base, int width, int height, int pitch,
                                                             int2 at);

/* in: a as 8 rows of 32 bytes, then b as 8 rows of 16 words. */
static short8 left_load(const global ushort *in)
{
    short8 left;
    for (uint r = 0; r < 8; r++) left[r] = (short)in[16 * r + get_sub_group_local_id()];
    return left;
}

static int8 right_load(const global int *in)
{
    int8 right;
    for (uint r = 0; r < 8; r++) right[r] = in[64 + 16 * r + get_sub_group_local_id()];
    return right;
}

LW_KERNEL(matrix_bf16, lw_probe_args)
{
    const short8 left = left_load((const global ushort *)a.in);
    const int8 right = right_load((const global int *)a.in);
    const float8 sums = intel_sub_group_bf16_bf16_matrix_mad_k16(left, right, (float8)(0.5f));
    for (uint r = 0; r < 8; r++) ((global float *)a.out)[16 * r + get_sub_group_local_id()] = sums[r];
}

LW_KERNEL(matrix_i8, lw_probe_args)
{
    const short8 left = left_load((const global ushort *)a.in);
    const int8 right = right_load((const global int *)a.in);
    const int8 sums = intel_sub_group_i8_i8_matrix_mad_k32(left, right, (int8)(3));
    for (uint r = 0; r < 8; r++) ((global int *)a.out)[16 * r + get_sub_group_local_id()] = sums[r];
}

/* 12 rows of 32 halfwords: a block that hangs over the edge, then 16 rows as the b of a matrix_mad. */
LW_KERNEL(surface, lw_probe_args)
{
    const uint lane = get_sub_group_local_id();
    const ushort8 edge =
        __builtin_IB_subgroup_block_read_flat_u16_m8k16v1((long)a.in, 63, 11, 63, (int2)(24, 6));
    const int8 pairs =
        __builtin_IB_subgroup_block_read_flat_transform_u16_k16((long)a.in, 63, 11, 63, (int2)(8, 2));
    for (uint r = 0; r < 8; r++) {
        ((global ushort *)a.out)[16 * r + lane] = edge[r];
        ((global int *)a.out)[64 + 16 * r + lane] = pairs[r];
    }
}

/* Lanes that name several places of one surface. */
LW_KERNEL(ragged_surface, lw_probe_args)
{
    const int row = (int)get_sub_group_local_id() / 8;
    const ushort8 edge =
        __builtin_IB_subgroup_block_read_flat_u16_m8k16v1((long)a.in, 63, 11, 63, (int2)(24, row));
    ((global uint *)a.out)[get_global_id(0)] = edge[0];
}
