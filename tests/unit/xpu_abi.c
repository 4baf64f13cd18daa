/* Our declarations of Level Zero's interface against the system's own headers, where those are installed: the
 * size of each structure, where members lie, and every number.
 */
#if __has_include(<level_zero/ze_api.h>)
#include <level_zero/ze_api.h>
#include <level_zero/zes_api.h>
#define HAS_HEADERS 1
#else
#define HAS_HEADERS 0
#endif

#include "device/xpu/zes_abi.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#if HAS_HEADERS
#define SIZE(ours, theirs) assert_int_equal(sizeof(ours), sizeof(theirs))
#define AT(ours, member, theirs, their_member) \
    assert_int_equal(offsetof(ours, member), offsetof(theirs, their_member))
#define NUMBER(name) assert_int_equal(LW_##name, name)

static void descriptions_are_laid_out_alike(void)
{
    SIZE(lw_ze_context_desc, ze_context_desc_t);
    SIZE(lw_ze_flags_desc, ze_host_mem_alloc_desc_t);
    SIZE(lw_ze_flags_desc, ze_relaxed_allocation_limits_exp_desc_t);
    SIZE(lw_ze_group_count, ze_group_count_t);
    SIZE(lw_ze_device_mem_alloc_desc, ze_device_mem_alloc_desc_t);
    AT(lw_ze_device_mem_alloc_desc, ordinal, ze_device_mem_alloc_desc_t, ordinal);
    SIZE(lw_ze_queue_desc, ze_command_queue_desc_t);
    AT(lw_ze_queue_desc, ordinal, ze_command_queue_desc_t, ordinal);
    AT(lw_ze_queue_desc, mode, ze_command_queue_desc_t, mode);
    AT(lw_ze_queue_desc, priority, ze_command_queue_desc_t, priority);
    SIZE(lw_ze_list_desc, ze_command_list_desc_t);
    AT(lw_ze_list_desc, ordinal, ze_command_list_desc_t, commandQueueGroupOrdinal);
    SIZE(lw_ze_event_pool_desc, ze_event_pool_desc_t);
    AT(lw_ze_event_pool_desc, count, ze_event_pool_desc_t, count);
    SIZE(lw_ze_event_desc, ze_event_desc_t);
    AT(lw_ze_event_desc, signal, ze_event_desc_t, signal);
    AT(lw_ze_event_desc, wait, ze_event_desc_t, wait);
    SIZE(lw_ze_module_desc, ze_module_desc_t);
    AT(lw_ze_module_desc, input_bytes, ze_module_desc_t, inputSize);
    AT(lw_ze_module_desc, input, ze_module_desc_t, pInputModule);
    AT(lw_ze_module_desc, build_flags, ze_module_desc_t, pBuildFlags);
    SIZE(lw_ze_kernel_desc, ze_kernel_desc_t);
    AT(lw_ze_kernel_desc, name, ze_kernel_desc_t, pKernelName);
}

static void properties_are_laid_out_alike(void)
{
    SIZE(lw_ze_driver_properties, ze_driver_properties_t);
    AT(lw_ze_driver_properties, version, ze_driver_properties_t, driverVersion);
    SIZE(lw_ze_kernel_properties, ze_kernel_properties_t);
    AT(lw_ze_kernel_properties, lanes_max, ze_kernel_properties_t, maxSubgroupSize);
    AT(lw_ze_kernel_properties, spill_bytes, ze_kernel_properties_t, spillMemSize);
    SIZE(lw_ze_device_module_properties, ze_device_module_properties_t);
    AT(lw_ze_device_module_properties, argument_bytes_max, ze_device_module_properties_t, maxArgumentsSize);
    SIZE(lw_ze_device_properties, ze_device_properties_t);
    AT(lw_ze_device_properties, device_id, ze_device_properties_t, deviceId);
    AT(lw_ze_device_properties, flags, ze_device_properties_t, flags);
    AT(lw_ze_device_properties, alloc_bytes_max, ze_device_properties_t, maxMemAllocSize);
    AT(lw_ze_device_properties, uuid, ze_device_properties_t, uuid);
    AT(lw_ze_device_properties, name, ze_device_properties_t, name);
    SIZE(lw_ze_device_compute_properties, ze_device_compute_properties_t);
    AT(lw_ze_device_compute_properties, local_bytes_max, ze_device_compute_properties_t,
       maxSharedLocalMemory);
    AT(lw_ze_device_compute_properties, sub_group_sizes, ze_device_compute_properties_t, subGroupSizes);
    SIZE(lw_ze_device_memory_properties, ze_device_memory_properties_t);
    AT(lw_ze_device_memory_properties, total_bytes, ze_device_memory_properties_t, totalSize);
    SIZE(lw_ze_queue_group_properties, ze_command_queue_group_properties_t);
    AT(lw_ze_queue_group_properties, flags, ze_command_queue_group_properties_t, flags);
    SIZE(lw_ze_pci_properties, ze_pci_ext_properties_t);
    AT(lw_ze_pci_properties, function, ze_pci_ext_properties_t, address.function);
    SIZE(lw_zes_device_properties, zes_device_properties_t);
    AT(lw_zes_device_properties, core, zes_device_properties_t, core);
    SIZE(lw_zes_mem_properties, zes_mem_properties_t);
    AT(lw_zes_mem_properties, location, zes_mem_properties_t, location);
    SIZE(lw_zes_mem_state, zes_mem_state_t);
    AT(lw_zes_mem_state, free_bytes, zes_mem_state_t, free);
    AT(lw_zes_mem_state, total_bytes, zes_mem_state_t, size);
}

static void results_are_equal(void)
{
    NUMBER(ZE_RESULT_SUCCESS);
    NUMBER(ZE_RESULT_NOT_READY);
    NUMBER(ZE_RESULT_ERROR_DEVICE_LOST);
    NUMBER(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    NUMBER(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
    NUMBER(ZE_RESULT_ERROR_MODULE_BUILD_FAILURE);
    NUMBER(ZE_RESULT_ERROR_MODULE_LINK_FAILURE);
    NUMBER(ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS);
    NUMBER(ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE);
    NUMBER(ZE_RESULT_ERROR_UNINITIALIZED);
    NUMBER(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE);
    NUMBER(ZE_RESULT_ERROR_INVALID_ARGUMENT);
    NUMBER(ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
    NUMBER(ZE_RESULT_ERROR_INVALID_ENUMERATION);
    NUMBER(ZE_RESULT_ERROR_INVALID_NATIVE_BINARY);
    NUMBER(ZE_RESULT_ERROR_INVALID_KERNEL_NAME);
    NUMBER(ZE_RESULT_ERROR_UNKNOWN);
}

static void numbers_are_equal(void)
{
    NUMBER(ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES);
    NUMBER(ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES);
    NUMBER(ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES);
    NUMBER(ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES);
    NUMBER(ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES);
    NUMBER(ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES);
    NUMBER(ZE_STRUCTURE_TYPE_CONTEXT_DESC);
    NUMBER(ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC);
    NUMBER(ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC);
    NUMBER(ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE);
    NUMBER(ZE_STRUCTURE_TYPE_EVENT_POOL_DESC);
    NUMBER(ZE_STRUCTURE_TYPE_EVENT_DESC);
    NUMBER(ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC);
    NUMBER(ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC);
    NUMBER(ZE_STRUCTURE_TYPE_MODULE_DESC);
    NUMBER(ZE_STRUCTURE_TYPE_KERNEL_DESC);
    NUMBER(ZE_STRUCTURE_TYPE_KERNEL_PROPERTIES);
    NUMBER(ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES);
    NUMBER(ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC);
    NUMBER(ZES_STRUCTURE_TYPE_DEVICE_PROPERTIES);
    NUMBER(ZES_STRUCTURE_TYPE_MEM_PROPERTIES);
    NUMBER(ZES_STRUCTURE_TYPE_MEM_STATE);
    NUMBER(ZE_INIT_FLAG_GPU_ONLY);
    NUMBER(ZE_DEVICE_TYPE_GPU);
    NUMBER(ZE_DEVICE_PROPERTY_FLAG_INTEGRATED);
    NUMBER(ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE);
    NUMBER(ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS);
    NUMBER(ZE_EVENT_POOL_FLAG_HOST_VISIBLE);
    NUMBER(ZE_EVENT_SCOPE_FLAG_HOST);
    NUMBER(ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE);
    NUMBER(ZE_MODULE_FORMAT_IL_SPIRV);
    NUMBER(ZE_MODULE_FORMAT_NATIVE);
    NUMBER(ZE_MAX_DEVICE_NAME);
    NUMBER(ZE_MAX_DEVICE_UUID_SIZE);
    NUMBER(ZE_MAX_KERNEL_UUID_SIZE);
    NUMBER(ZE_MAX_DRIVER_UUID_SIZE);
    NUMBER(ZE_MAX_NATIVE_KERNEL_UUID_SIZE);
    NUMBER(ZE_SUBGROUPSIZE_COUNT);
    NUMBER(ZES_MEM_LOC_DEVICE);
    NUMBER(ZES_STRING_PROPERTY_SIZE);
}
#endif

static void ours_are_theirs(void **state)
{
    (void)state;
#if HAS_HEADERS
    descriptions_are_laid_out_alike();
    properties_are_laid_out_alike();
    results_are_equal();
    numbers_are_equal();
#else
    print_message("skipped: Level Zero's headers are not installed (Debian: libze-dev)\n");
    skip();
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(ours_are_theirs) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
