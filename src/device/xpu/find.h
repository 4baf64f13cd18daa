/* Which devices Level Zero has: GPUs of all drivers, in the order that it names them, and which of them a
 * name means.
 */
#ifndef LW_DEVICE_XPU_FIND_H
#define LW_DEVICE_XPU_FIND_H

#include "device/xpu/ze.h"

enum { LW_XPU_DEVICES_MAX = 64, LW_XPU_PCI_BYTES = 16 };

typedef struct lw_xpu_info {
    lw_ze_driver *driver;
    lw_ze_device *device;
    char name[64];                       /* cut where it is longer */
    char pci[LW_XPU_PCI_BYTES];          /* "0000:03:00.0"; "" where the loader does not tell */
    uint8_t uuid[LW_ZE_MAX_DEVICE_UUID_SIZE];
    uint32_t driver_version, vendor_id, device_id;
    uint32_t api_version;                /* of the specification, major << 16 | minor; 0: it is not told */
    bool integrated;
    bool has_dpas;                       /* 16 lanes wide, which no device is whose sub-groups can be 8 */
    uint64_t memory_bytes;               /* of all its memories */
    uint64_t alloc_bytes_max;            /* of one allocation, without relaxed limits */
    uint32_t sub_group_sizes[LW_ZE_SUBGROUPSIZE_COUNT], sub_group_size_count;
    uint32_t tiles;
} lw_xpu_info;

typedef struct lw_xpu_list {
    lw_xpu_info devices[LW_XPU_DEVICES_MAX];
    uint32_t count;
} lw_xpu_list;

/* LW_OK with count 0 where there are drivers but no GPU. */
lw_status lw_xpu_find(const lw_ze *ze, lw_xpu_list *list, lw_diag *d) LW_MUST_USE;

/* The device that which means: NULL the first, digits an index, else a PCI address, whose domain may be left
 * out. Says which there are when it is none of them. */
lw_status lw_xpu_choose(const lw_xpu_list *list, const char *which, const lw_xpu_info **out, lw_diag *d)
    LW_MUST_USE;

/* Bytes that Sysman says are free on the device of this uuid; false where there is no Sysman, or it does not
 * tell. */
bool lw_xpu_sysman_free(const lw_ze *ze, const uint8_t uuid[LW_ZE_MAX_DEVICE_UUID_SIZE], uint64_t *bytes)
    LW_MUST_USE;

#endif
