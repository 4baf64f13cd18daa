/* The cpu device's table. */
#ifndef LW_DEVICE_CPU_CPU_H
#define LW_DEVICE_CPU_CPU_H

#include "device/device.h"

extern const lw_device_table lw_device_cpu;

#endif
