/* y = x W^T, one kernel for each form of codes and for one row or LW_XPU_ROWS of them; see product.h. */
#include "device/xpu/kernels/shapes.h"

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

#define LW_XPU_FORM(name, map, bits) \
    LINEAR(linear_##name, 1, LW_XPU_MAP_##map, bits, RUN_FMA) \
    LINEAR(linear_##name##_rows, LW_XPU_ROWS, LW_XPU_MAP_##map, bits, RUN_FMA)
#include "device/xpu/forms.list"
#undef LW_XPU_FORM
