/* The kernels that the program carries: SPIR-V, which the driver builds for its card. A set is one module:
 * that for devices with DPAS holds all kernels, the common one those that need none.
 */
#ifndef LW_DEVICE_XPU_SPIRV_H
#define LW_DEVICE_XPU_SPIRV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lw_xpu_spirv {
    const uint8_t *bytes;
    size_t count;                        /* 0: this build has no kernels */
} lw_xpu_spirv;

lw_xpu_spirv lw_xpu_spirv_view(bool has_dpas);

#endif
