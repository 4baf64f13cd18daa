/* The xpu device: Intel GPUs through Level Zero. */
#ifndef LW_DEVICE_XPU_XPU_H
#define LW_DEVICE_XPU_XPU_H

#include "device/device.h"

extern const lw_device_table lw_device_xpu;

#endif
