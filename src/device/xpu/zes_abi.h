/* The binary interface of Sysman, Level Zero's other half, as ze_abi.h has the first. Its handles are its
 * own.
 */
#ifndef LW_DEVICE_XPU_ZES_ABI_H
#define LW_DEVICE_XPU_ZES_ABI_H

#include "device/xpu/ze_abi.h"

enum {
    LW_ZES_STRUCTURE_TYPE_DEVICE_PROPERTIES = 0x1,
    LW_ZES_STRUCTURE_TYPE_MEM_PROPERTIES = 0xb,
    LW_ZES_STRUCTURE_TYPE_MEM_STATE = 0x1e,
    LW_ZES_MEM_LOC_DEVICE = 1,
    LW_ZES_STRING_PROPERTY_SIZE = 64,
};

typedef struct lw_zes_memory lw_zes_memory;

typedef struct lw_zes_device_properties {
    uint32_t stype; void *next;
    lw_ze_device_properties core;
    uint32_t subdevice_count;
    char texts[6][LW_ZES_STRING_PROPERTY_SIZE]; /* serial, board, brand, model, vendor, driver */
} lw_zes_device_properties;

typedef struct lw_zes_mem_properties {
    uint32_t stype; void *next;
    uint32_t type;
    uint8_t on_subdevice;
    uint32_t subdevice_id, location;
    uint64_t physical_bytes;
    int32_t bus_width, channels;
} lw_zes_mem_properties;

typedef struct lw_zes_mem_state {
    uint32_t stype; const void *next;
    uint32_t health;
    uint64_t free_bytes, total_bytes;
} lw_zes_mem_state;

#endif
