/* The kernels that multiply, whatever does it: RUN(p, X_ROW, count, rows, map, bits) is a product's slice
 * over up to `rows` rows, of which count are wanted; X_ROW(i) is the i-th of them, and any of them where
 * there is none. Read by OpenCL C only.
 *
 * Kernels of a form differ in how many rows share one pass over the weight, and in nothing that a row's sum
 * sees.
 */
#ifndef LW_DEVICE_XPU_KERNELS_SHAPES_H
#define LW_DEVICE_XPU_KERNELS_SHAPES_H

#include "device/xpu/kargs_experts.h"
#include "device/xpu/kargs_fused.h"
#include "device/xpu/kernels/product.h"

/* Rows past the last one repeat it, and are not stored. */
#define X_ROW_OF_BATCH(i) min(first + i, last)

#define LINEAR(name, row_count, map, bits, RUN) \
    LW_KERNEL(name, lw_xpu_linear_args) \
    { \
        PRODUCT_LOCAL(row_count, map); \
        const uint first = get_group_id(1) * row_count, last = a.rows - 1; \
        const product p = product_make(&a, 0, get_group_id(0), map, parts, table); \
        RUN(&p, X_ROW_OF_BATCH, a.rows - first, row_count, map, bits); \
        barrier(CLK_LOCAL_MEM_FENCE); \
        for (uint r = get_local_id(1); r < row_count && first + r <= last; r += a.weight.slices) \
            y_store(&p, row_count, r, first + r); \
    }

/* ---- linears of one x, side by side or with their swiglu ---- */

/* Which part a block of the grid belongs to: the last one that begins at or before it. */
static inline uint part_of(const lw_xpu_linears_args *a, uint block)
{
    uint part = 0;
    if (block >= a->first[1]) part = 1;
    if (block >= a->first[2]) part = 2;
    if (block >= a->first[3]) part = 3;
    return part;
}

static inline uint part_first(const lw_xpu_linears_args *a, uint part)
{
    return part == 0 ? 0 : part == 1 ? a->first[1] : part == 2 ? a->first[2] : a->first[3];
}

#define LINEARS(name, row_count, map, bits, RUN) \
    LW_KERNEL(name, lw_xpu_linears_args) \
    { \
        PRODUCT_LOCAL(row_count, map); \
        const uint first = get_group_id(1) * row_count, last = a.rows - 1; \
        const uint part = part_of(&a, get_group_id(0)), block = get_group_id(0) - part_first(&a, part); \
        const lw_xpu_linear_args one = ((const global lw_xpu_linear_args *)a.parts)[part]; \
        const product p = product_make(&one, 0, block, map, parts, table); \
        RUN(&p, X_ROW_OF_BATCH, a.rows - first, row_count, map, bits); \
        barrier(CLK_LOCAL_MEM_FENCE); \
        for (uint r = get_local_id(1); r < row_count && first + r <= last; r += one.weight.slices) \
            y_store(&p, row_count, r, first + r); \
    }

/* One product after the other, so that one's registers are enough; both are rounded as the two linears store
 * them. */
#define SWIGLU(name, row_count, map, bits, RUN) \
    LW_KERNEL(name, lw_xpu_swiglu_args) \
    { \
        local float parts[2][LW_XPU_SLICES_MAX * (row_count) * LW_XPU_LANES], table[1]; \
        const uint first = get_group_id(1) * row_count, last = a.rows - 1, block = get_group_id(0); \
        const global lw_xpu_linear_args *both = (const global lw_xpu_linear_args *)a.parts; \
        for (uint i = 0; i < 2; i++) { \
            const lw_xpu_linear_args one = both[i]; \
            const product p = product_make(&one, 0, block, map, parts[i], table); \
            RUN(&p, X_ROW_OF_BATCH, a.rows - first, row_count, map, bits); \
        } \
        barrier(CLK_LOCAL_MEM_FENCE); \
        const uint col = get_global_id(0), slices = both->weight.slices; \
        if (col >= both->weight.rows) return; \
        const float gate_by = *(const global float *)both[0].weight.globals; \
        const float up_by = *(const global float *)both[1].weight.globals; \
        for (uint r = get_local_id(1); r < row_count && first + r <= last; r += slices) { \
            const float gate = bf_round(slices_sum(parts[0], slices, row_count, r) * gate_by); \
            const float up = bf_round(slices_sum(parts[1], slices, row_count, r) * up_by); \
            ((global ushort *)a.y)[(size_t)(first + r) * a.y_stride + col] = bf_of(silu(gate) * up); \
        } \
    }

/* ---- experts ---- */

static inline uint member_of(size_t route, uint stride, uint top, uint vector)
{
    return (uint)((const global float *)route)[(size_t)(vector / top) * stride + vector % top];
}

static inline uint x_row_of(const lw_xpu_expert_args *a, uint vector)
{
    return a->x_per_slot ? vector : vector / a->top;
}

/* One vector of y, whose expert's id the route has. */
#define X_ROW_OF_VECTOR(i) x_row_of(&a, vector)
#define EXPERT(name, map, bits, RUN) \
    LW_KERNEL(name, lw_xpu_expert_args) \
    { \
        PRODUCT_LOCAL(1, map); \
        const uint vector = get_group_id(1), member = member_of(a.route, a.route_stride, a.top, vector); \
        const product p = product_make(&a.linear, member, get_group_id(0), map, parts, table); \
        RUN(&p, X_ROW_OF_VECTOR, 1, 1, map, bits); \
        barrier(CLK_LOCAL_MEM_FENCE); \
        if (get_local_id(1) == 0) y_store(&p, 1, 0, vector); \
    }

/* A tile of the sorted vectors; rows past its last one repeat it, and are not stored. */
#define X_ROW_OF_TILE(i) x_row_of(&a, order[min((uint)(i), tile.count - 1)])
#define EXPERT_ROWS(name, row_count, map, bits, RUN) \
    LW_KERNEL(name, lw_xpu_expert_args) \
    { \
        PRODUCT_LOCAL(row_count, map); \
        if (get_group_id(1) >= *(const global uint *)a.sorted.tile_count) return; \
        const lw_xpu_tile tile = ((const global lw_xpu_tile *)a.sorted.tiles)[get_group_id(1)]; \
        const global uint *order = (const global uint *)a.sorted.order + tile.first; \
        const product p = product_make(&a.linear, tile.member, get_group_id(0), map, parts, table); \
        RUN(&p, X_ROW_OF_TILE, tile.count, row_count, map, bits); \
        barrier(CLK_LOCAL_MEM_FENCE); \
        for (uint r = get_local_id(1); r < tile.count; r += a.linear.weight.slices) \
            y_store(&p, row_count, r, order[r]); \
    }

#endif
