/* Linears of one x in one launch, side by side or with their swiglu: each column's sum is that of linear.cl.
 */
#include "device/xpu/kernels/shapes.h"

#define LW_XPU_FORM(name, map, bits) \
    LINEARS(linears_##name, 1, LW_XPU_MAP_##map, bits, RUN_FMA) \
    LINEARS(linears_##name##_rows, LW_XPU_ROWS, LW_XPU_MAP_##map, bits, RUN_FMA) \
    SWIGLU(swiglu_##name, 1, LW_XPU_MAP_##map, bits, RUN_FMA) \
    SWIGLU(swiglu_##name##_rows, LW_XPU_ROWS, LW_XPU_MAP_##map, bits, RUN_FMA)
#include "device/xpu/fused_forms.list"
#undef LW_XPU_FORM
