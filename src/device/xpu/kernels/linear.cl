/* y = x W^T, one kernel for each form of codes and for one row or LW_XPU_ROWS of them. The two differ in how
 * many rows share one pass over the weight, and in nothing that a row's sum sees; see product.h.
 */
#include "device/xpu/kernels/product.h"

/* An item is one group of one row. */
LW_KERNEL(group_sums, lw_xpu_sums_args)
{
    const uint group = get_global_id(0);
    const size_t row = get_group_id(1);
    if (group >= a.groups) return;
    const global ushort *x = (const global ushort *)a.x + row * a.x_stride;
    const uint begin = group * a.group, end = min(begin + a.group, a.cols);
    ((global float *)a.sums)[row * a.groups + group] = sum_columns(x, begin, end);
}

/* Rows past the last one repeat it, and are not stored. */
#define X_ROW(i) min(first + i, last)
#define LINEAR(name, row_count, map, bits) \
    LW_KERNEL(name, lw_xpu_linear_args) \
    { \
        PRODUCT_LOCAL(row_count, map); \
        const uint first = get_group_id(1) * row_count, last = a.rows - 1; \
        const product p = product_make(&a, 0, get_group_id(0), map, parts, table); \
        slice_run(&p, (uint8)(EIGHT(X_ROW)), row_count, map, bits); \
        barrier(CLK_LOCAL_MEM_FENCE); \
        for (uint r = get_local_id(1); r < row_count && first + r <= last; r += a.weight.slices) \
            y_store(&p, row_count, r, first + r); \
    }

#define LW_XPU_FORM(name, map, bits) \
    LINEAR(linear_##name, 1, LW_XPU_MAP_##map, bits) \
    LINEAR(linear_##name##_rows, LW_XPU_ROWS, LW_XPU_MAP_##map, bits)
#include "device/xpu/forms.list"
#undef LW_XPU_FORM
#undef X_ROW
