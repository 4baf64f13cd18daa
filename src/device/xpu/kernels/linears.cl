/* Linears of one x in one launch, side by side or with their swiglu: each column's sum is that of linear.cl.
 */
#include "device/xpu/kernels/product.h"

#define X_ROW(i) min(first + i, last)

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

#define LINEARS(name, row_count, map, bits) \
    LW_KERNEL(name, lw_xpu_linears_args) \
    { \
        PRODUCT_LOCAL(row_count, map); \
        const uint first = get_group_id(1) * row_count, last = a.rows - 1, part = part_of(&a, get_group_id(0)); \
        const lw_xpu_linear_args one = ((const global lw_xpu_linear_args *)a.parts)[part]; \
        const product p = product_make(&one, 0, get_group_id(0) - part_first(&a, part), map, parts, table); \
        slice_run(&p, (uint8)(EIGHT(X_ROW)), row_count, map, bits); \
        barrier(CLK_LOCAL_MEM_FENCE); \
        for (uint r = get_local_id(1); r < row_count && first + r <= last; r += one.weight.slices) \
            y_store(&p, row_count, r, first + r); \
    }

/* Both products are rounded as the two linears store them. */
#define SWIGLU(name, row_count, map, bits) \
    LW_KERNEL(name, lw_xpu_swiglu_args) \
    { \
        PRODUCT_LOCAL(row_count, map); \
        local float up_parts[LW_XPU_SLICES_MAX * (row_count) * LW_XPU_LANES]; \
        const uint first = get_group_id(1) * row_count, last = a.rows - 1, block = get_group_id(0); \
        const lw_xpu_linear_args gate = ((const global lw_xpu_linear_args *)a.parts)[0]; \
        const lw_xpu_linear_args up = ((const global lw_xpu_linear_args *)a.parts)[1]; \
        const product p = product_make(&gate, 0, block, map, parts, table); \
        const product q = product_make(&up, 0, block, map, up_parts, table); \
        slice_run(&p, (uint8)(EIGHT(X_ROW)), row_count, map, bits); \
        slice_run(&q, (uint8)(EIGHT(X_ROW)), row_count, map, bits); \
        barrier(CLK_LOCAL_MEM_FENCE); \
        const uint col = block * LW_XPU_LANES + get_local_id(0); \
        for (uint r = get_local_id(1); r < row_count && first + r <= last; r += gate.weight.slices) { \
            const float left = bf_round(slices_sum(&p, row_count, r)); \
            const float right = bf_round(slices_sum(&q, row_count, r)); \
            if (col >= gate.weight.rows) continue; \
            ((global ushort *)a.y)[(size_t)(first + r) * a.y_stride + col] = bf_of(silu(left) * right); \
        } \
    }

#define LW_XPU_FORM(name, map, bits) \
    LINEARS(linears_##name, 1, LW_XPU_MAP_##map, bits) \
    LINEARS(linears_##name##_rows, LW_XPU_ROWS, LW_XPU_MAP_##map, bits) \
    SWIGLU(swiglu_##name, 1, LW_XPU_MAP_##map, bits) \
    SWIGLU(swiglu_##name##_rows, LW_XPU_ROWS, LW_XPU_MAP_##map, bits)
#include "device/xpu/fused_forms.list"
#undef LW_XPU_FORM
