/* Rows of x as DPAS takes them: lane k has column k, a row in each element. Read by OpenCL C only. */
#ifndef LW_DEVICE_XPU_KERNELS_ROWS_DPAS_H
#define LW_DEVICE_XPU_KERNELS_ROWS_DPAS_H

#include "device/xpu/kernels/product.h"

/* 1, LW_XPU_ROWS or LW_XPU_ROWS_MANY rows of x. Lane n of `of_lane` has the n-th row, and the one 16 behind
 * it. */
typedef struct dpas_rows {
    uint2 of_lane;
    uint8 rows0, rows1, rows2;
    uint count, most;                    /* of those that are wanted; most is a constant of each kernel */
} dpas_rows;

/* Eight neighbouring lanes' numbers, from a lane on. */
static inline uint8 lanes_of(uint each, uint first)
{
#define LANE_OF(i) intel_sub_group_shuffle(each, first + i)
    return (uint8)(EIGHT(LANE_OF));
#undef LANE_OF
}

static inline dpas_rows dpas_rows_make(uint2 of_lane, uint count, uint most)
{
    dpas_rows x = { of_lane, 0, 0, 0, count, most };
    x.rows0 = most == 1 ? (uint8)(intel_sub_group_shuffle(of_lane.x, 0)) : lanes_of(of_lane.x, 0);
    if (most > LW_XPU_ROWS) x.rows1 = lanes_of(of_lane.x, 8);
    if (most > LW_XPU_ROWS) x.rows2 = lanes_of(of_lane.y, 0);
    return x;
}

static inline const global ushort *x_at(const product *p, uint x_row, uint k)
{
    const lw_xpu_linear_args *a = p->args;
    return (const global ushort *)a->x + (size_t)x_row * a->x_stride + k;
}

/* Columns of eight rows for two instructions. */
typedef struct lefts {
    ushort8 s0, s1;
} lefts;

/* From column k on; of one row, the others are zero. */
static inline lefts lefts_load(const product *p, uint8 rows, uint most, uint k)
{
#define BOTH_OF(i) intel_sub_group_block_read_us2(x_at(p, rows.s##i, k))
    const ushort2 none = 0, v0 = BOTH_OF(0);
    const ushort2 v1 = most == 1 ? none : BOTH_OF(1), v2 = most == 1 ? none : BOTH_OF(2);
    const ushort2 v3 = most == 1 ? none : BOTH_OF(3), v4 = most == 1 ? none : BOTH_OF(4);
    const ushort2 v5 = most == 1 ? none : BOTH_OF(5), v6 = most == 1 ? none : BOTH_OF(6);
    const ushort2 v7 = most == 1 ? none : BOTH_OF(7);
    lefts x;
    x.s0 = (ushort8)(v0.x, v1.x, v2.x, v3.x, v4.x, v5.x, v6.x, v7.x);
    x.s1 = (ushort8)(v0.y, v1.y, v2.y, v3.y, v4.y, v5.y, v6.y, v7.y);
    return x;
#undef BOTH_OF
}

/* Those for one; of its columns the first count are there, and the others are zero whatever stands in memory
 * behind a row's last one. */
static inline ushort8 left_load(const product *p, uint8 rows, uint most, uint k, uint count)
{
#define ONE_OF(i) intel_sub_group_block_read_us(x_at(p, rows.s##i, k))
    const ushort here = get_local_id(0) < count ? 0xFFFF : 0;
    ushort8 x = 0;
    if (most == 1) x.s0 = ONE_OF(0);
    else x = (ushort8)(EIGHT(ONE_OF));
    return x & here;
#undef ONE_OF
}

#endif
