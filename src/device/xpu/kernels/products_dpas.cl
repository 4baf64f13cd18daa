/* The kernels of linear.cl, linears.cl and experts.cl by DPAS, for devices that have it; see product_dpas.h.
 */
#include "device/xpu/kernels/product_dpas.h"
#include "device/xpu/kernels/shapes.h"

#define LW_XPU_FORM(name, map, bits) \
    LINEAR(dpas_linear_##name, 1, LW_XPU_MAP_##map, bits, RUN_DPAS) \
    LINEAR(dpas_linear_##name##_rows, LW_XPU_ROWS, LW_XPU_MAP_##map, bits, RUN_DPAS) \
    LINEAR(dpas_linear_##name##_many, LW_XPU_ROWS_MANY, LW_XPU_MAP_##map, bits, RUN_DPAS) \
    EXPERT(dpas_expert_##name, LW_XPU_MAP_##map, bits, RUN_DPAS) \
    EXPERT_ROWS(dpas_expert_##name##_rows, LW_XPU_ROWS, LW_XPU_MAP_##map, bits, RUN_DPAS) \
    EXPERT_ROWS(dpas_expert_##name##_many, LW_XPU_ROWS_MANY, LW_XPU_MAP_##map, bits, RUN_DPAS)
#include "device/xpu/dpas_forms.list"
#undef LW_XPU_FORM

#define LW_XPU_FORM(name, map, bits) \
    LINEARS(dpas_linears_##name, 1, LW_XPU_MAP_##map, bits, RUN_DPAS) \
    LINEARS(dpas_linears_##name##_rows, LW_XPU_ROWS, LW_XPU_MAP_##map, bits, RUN_DPAS) \
    SWIGLU(dpas_swiglu_##name, 1, LW_XPU_MAP_##map, bits, RUN_DPAS) \
    SWIGLU(dpas_swiglu_##name##_rows, LW_XPU_ROWS, LW_XPU_MAP_##map, bits, RUN_DPAS)
#include "device/xpu/fused_forms.list"
#undef LW_XPU_FORM
