/* Level Zero's binary interface, as far as the xpu device uses it: the layouts and numbers of its published
 * specification, written out here so that every build has the device and one binary starts with any loader.
 * A test compares all of it with the system's own headers where they are installed.
 *
 * Names follow the specification's: lw_ze_x is its ze_x_t, LW_ZE_X its ZE_X.
 */
#ifndef LW_DEVICE_XPU_ZE_ABI_H
#define LW_DEVICE_XPU_ZE_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef uint32_t lw_ze_result;
enum {
    LW_ZE_RESULT_SUCCESS = 0,
    LW_ZE_RESULT_NOT_READY = 1,
    LW_ZE_RESULT_ERROR_DEVICE_LOST = 0x70000001,
    LW_ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY = 0x70000002,
    LW_ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY = 0x70000003,
    LW_ZE_RESULT_ERROR_MODULE_BUILD_FAILURE = 0x70000004,
    LW_ZE_RESULT_ERROR_MODULE_LINK_FAILURE = 0x70000005,
    LW_ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS = 0x70010000,
    LW_ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE = 0x70020000,
    LW_ZE_RESULT_ERROR_UNINITIALIZED = 0x78000001,
    LW_ZE_RESULT_ERROR_UNSUPPORTED_FEATURE = 0x78000003,
    LW_ZE_RESULT_ERROR_INVALID_ARGUMENT = 0x78000004,
    LW_ZE_RESULT_ERROR_UNSUPPORTED_SIZE = 0x78000009,
    LW_ZE_RESULT_ERROR_INVALID_ENUMERATION = 0x7800000c,
    LW_ZE_RESULT_ERROR_INVALID_NATIVE_BINARY = 0x7800000f,
    LW_ZE_RESULT_ERROR_INVALID_KERNEL_NAME = 0x78000011,
    LW_ZE_RESULT_ERROR_UNKNOWN = 0x7ffffffe,
};

/* What a structure is, in its first member. */
enum {
    LW_ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES = 0x1,
    LW_ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES = 0x3,
    LW_ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES = 0x4,
    LW_ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES = 0x5,
    LW_ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES = 0x6,
    LW_ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES = 0x7,
    LW_ZE_STRUCTURE_TYPE_CONTEXT_DESC = 0xd,
    LW_ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC = 0xe,
    LW_ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC = 0xf,
    LW_ZE_STRUCTURE_TYPE_EVENT_POOL_DESC = 0x10,
    LW_ZE_STRUCTURE_TYPE_EVENT_DESC = 0x11,
    LW_ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC = 0x15,
    LW_ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC = 0x16,
    LW_ZE_STRUCTURE_TYPE_MODULE_DESC = 0x1b,
    LW_ZE_STRUCTURE_TYPE_KERNEL_DESC = 0x1d,
    LW_ZE_STRUCTURE_TYPE_KERNEL_PROPERTIES = 0x1e,
    LW_ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES = 0x10008,
    LW_ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC = 0x20001,
    /* Intel's own extension, in none of the headers. */
    LW_ZE_STRUCTURE_INTEL_DEVICE_MODULE_DP_EXP_PROPERTIES = 0x30013,
};

enum {
    LW_ZE_INIT_FLAG_GPU_ONLY = 1,
    LW_ZE_DEVICE_TYPE_GPU = 1,
    LW_ZE_DEVICE_PROPERTY_FLAG_INTEGRATED = 1,
    LW_ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE = 1,
    LW_ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS = 2,
    LW_ZE_COMMAND_QUEUE_FLAG_IN_ORDER = 2, /* since specification 1.7 */
    LW_ZE_EVENT_POOL_FLAG_HOST_VISIBLE = 1,
    LW_ZE_EVENT_SCOPE_FLAG_HOST = 4,
    LW_ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE = 1,
    LW_ZE_INTEL_DEVICE_MODULE_EXP_FLAG_DPAS = 2,
    LW_ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE = 2,
    LW_ZE_MODULE_FORMAT_IL_SPIRV = 0,
    LW_ZE_MODULE_FORMAT_NATIVE = 1,
    LW_ZE_MAX_DEVICE_NAME = 256,
    LW_ZE_MAX_DRIVER_UUID_SIZE = 16,
    LW_ZE_MAX_NATIVE_KERNEL_UUID_SIZE = 16,
    LW_ZE_MAX_DEVICE_UUID_SIZE = 16,
    LW_ZE_MAX_KERNEL_UUID_SIZE = 16,
    LW_ZE_SUBGROUPSIZE_COUNT = 8,
};

typedef struct lw_ze_driver lw_ze_driver;
typedef struct lw_ze_device lw_ze_device;
typedef struct lw_ze_context lw_ze_context;
typedef struct lw_ze_list lw_ze_list;
typedef struct lw_ze_event_pool lw_ze_event_pool;
typedef struct lw_ze_event lw_ze_event;
typedef struct lw_ze_module lw_ze_module;
typedef struct lw_ze_build_log lw_ze_build_log;
typedef struct lw_ze_kernel lw_ze_kernel;

typedef struct lw_ze_driver_properties {
    uint32_t stype; void *next;
    uint8_t uuid[LW_ZE_MAX_DRIVER_UUID_SIZE];
    uint32_t version;
} lw_ze_driver_properties;

typedef struct lw_ze_device_properties {
    uint32_t stype; void *next;
    uint32_t type, vendor_id, device_id, flags, subdevice_id, core_clock_rate;
    uint64_t alloc_bytes_max;
    uint32_t contexts_max, priority_max, threads_per_eu, simd_width, eus_per_subslice, subslices_per_slice;
    uint32_t slices;
    uint64_t timer_resolution;
    uint32_t timestamp_bits, kernel_timestamp_bits;
    uint8_t uuid[LW_ZE_MAX_DEVICE_UUID_SIZE];
    char name[LW_ZE_MAX_DEVICE_NAME];
} lw_ze_device_properties;

typedef struct lw_ze_device_compute_properties {
    uint32_t stype; void *next;
    uint32_t group_size_max, group_size_max_xyz[3], group_count_max_xyz[3], local_bytes_max;
    uint32_t sub_group_size_count, sub_group_sizes[LW_ZE_SUBGROUPSIZE_COUNT];
} lw_ze_device_compute_properties;

typedef struct lw_ze_device_module_properties {
    uint32_t stype; void *next;
    uint32_t spirv_version, flags, fp16_flags, fp32_flags, fp64_flags, argument_bytes_max, printf_bytes;
    uint8_t native_kernel_uuid[LW_ZE_MAX_NATIVE_KERNEL_UUID_SIZE];
} lw_ze_device_module_properties;

/* Drivers that do not know it leave it as it is. */
typedef struct lw_ze_device_dp_properties { uint32_t stype; void *next; uint32_t flags; }
    lw_ze_device_dp_properties;

typedef struct lw_ze_device_memory_properties {
    uint32_t stype; void *next;
    uint32_t flags, clock_rate_max, bus_width_max;
    uint64_t total_bytes;
    char name[LW_ZE_MAX_DEVICE_NAME];
} lw_ze_device_memory_properties;

typedef struct lw_ze_queue_group_properties {
    uint32_t stype; void *next;
    uint32_t flags;
    size_t fill_pattern_bytes_max;
    uint32_t queue_count;
} lw_ze_queue_group_properties;

typedef struct lw_ze_pci_properties {
    uint32_t stype; void *next;
    uint32_t domain, bus, device, function;
    int32_t generation, width;
    int64_t bandwidth_max;
} lw_ze_pci_properties;

typedef struct lw_ze_context_desc { uint32_t stype; const void *next; uint32_t flags; } lw_ze_context_desc;

typedef struct lw_ze_device_mem_alloc_desc {
    uint32_t stype; const void *next;
    uint32_t flags, ordinal;
} lw_ze_device_mem_alloc_desc;

/* A host allocation's, and that of relaxed limits. */
typedef struct lw_ze_flags_desc { uint32_t stype; const void *next; uint32_t flags; } lw_ze_flags_desc;

typedef struct lw_ze_queue_desc {
    uint32_t stype; const void *next;
    uint32_t ordinal, index, flags, mode, priority;
} lw_ze_queue_desc;

typedef struct lw_ze_list_desc { uint32_t stype; const void *next; uint32_t ordinal, flags; } lw_ze_list_desc;

typedef struct lw_ze_event_pool_desc {
    uint32_t stype; const void *next;
    uint32_t flags, count;
} lw_ze_event_pool_desc;

typedef struct lw_ze_event_desc {
    uint32_t stype; const void *next;
    uint32_t index, signal, wait;
} lw_ze_event_desc;

typedef struct lw_ze_module_desc {
    uint32_t stype; const void *next;
    uint32_t format;
    size_t input_bytes;
    const uint8_t *input;
    const char *build_flags;
    const void *constants;
} lw_ze_module_desc;

typedef struct lw_ze_kernel_desc {
    uint32_t stype; const void *next;
    uint32_t flags;
    const char *name;
} lw_ze_kernel_desc;

typedef struct lw_ze_kernel_properties {
    uint32_t stype; void *next;
    uint32_t arguments, group_sizes[3], sub_groups, lanes, lanes_max, sub_groups_max;
    uint32_t local_bytes, private_bytes, spill_bytes;
    uint8_t uuid[2 * LW_ZE_MAX_KERNEL_UUID_SIZE]; /* the kernel's, then its module's */
} lw_ze_kernel_properties;

typedef struct lw_ze_group_count { uint32_t x, y, z; } lw_ze_group_count;

#endif
