/* Linears of one x in one launch, side by side or with their swiglu: each column's sum is that of linear.cl.
 */
#include "device/xpu/kernels/product.h"
#include "device/xpu/kargs_fused.h"

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
        const uint first = get_group_id(1) * row_count, last = a.rows - 1; \
        const uint part = part_of(&a, get_group_id(0)), block = get_group_id(0) - part_first(&a, part); \
        const lw_xpu_linear_args one = ((const global lw_xpu_linear_args *)a.parts)[part]; \
        const product p = product_make(&one, 0, block, map, parts, table); \
        slice_run(&p, (uint8)(EIGHT(X_ROW)), row_count, map, bits); \
        barrier(CLK_LOCAL_MEM_FENCE); \
        for (uint r = get_local_id(1); r < row_count && first + r <= last; r += one.weight.slices) \
            y_store(&p, row_count, r, first + r); \
    }

/* One product after the other, so that one's registers are enough; both are rounded as the two linears store
 * them. */
#define SWIGLU(name, row_count, map, bits) \
    LW_KERNEL(name, lw_xpu_swiglu_args) \
    { \
        local float parts[2][LW_XPU_SLICES_MAX * (row_count) * LW_XPU_LANES], table[1]; \
        const uint first = get_group_id(1) * row_count, last = a.rows - 1, block = get_group_id(0); \
        const global lw_xpu_linear_args *both = (const global lw_xpu_linear_args *)a.parts; \
        for (uint i = 0; i < 2; i++) { \
            const lw_xpu_linear_args one = both[i]; \
            const product p = product_make(&one, 0, block, map, parts[i], table); \
            slice_run(&p, (uint8)(EIGHT(X_ROW)), row_count, map, bits); \
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

#define LW_XPU_FORM(name, map, bits) \
    LINEARS(linears_##name, 1, LW_XPU_MAP_##map, bits) \
    LINEARS(linears_##name##_rows, LW_XPU_ROWS, LW_XPU_MAP_##map, bits) \
    SWIGLU(swiglu_##name, 1, LW_XPU_MAP_##map, bits) \
    SWIGLU(swiglu_##name##_rows, LW_XPU_ROWS, LW_XPU_MAP_##map, bits)
#include "device/xpu/fused_forms.list"
#undef LW_XPU_FORM
