/* The emulated device as a driver for Level Zero's own loader, which asks each driver for tables of entries
 * and leaves out one that lacks a table. What is not in a table's list is answered "unsupported". Built where
 * Level Zero's headers are.
 */
#include <level_zero/ze_api.h>
#include <level_zero/ze_ddi.h>
#include <level_zero/zes_api.h>
#include <level_zero/zes_ddi.h>
#include <level_zero/zet_api.h>
#include <level_zero/zet_ddi.h>

#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static ze_result_t unsupported(void)
{
    return ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

/* A table is nothing but pointers to functions. */
static void table_clear(void *table, size_t bytes)
{
    ze_result_t (*const answer)(void) = unsupported;
    for (size_t at = 0; at < bytes; at += sizeof answer) memcpy((char *)table + at, &answer, sizeof answer);
}

#define TABLE(get, type, ...) \
    EXPORT ze_result_t get(ze_api_version_t version, type *table) \
    { \
        (void)version; \
        if (table == NULL) return ZE_RESULT_ERROR_INVALID_NULL_POINTER; \
        table_clear(table, sizeof *table); \
        __VA_ARGS__ \
        return ZE_RESULT_SUCCESS; \
    }
#define ENTRY(member, name) table->member = name;

TABLE(zeGetGlobalProcAddrTable, ze_global_dditable_t, ENTRY(pfnInit, zeInit))
TABLE(zeGetDriverProcAddrTable, ze_driver_dditable_t,
      ENTRY(pfnGet, zeDriverGet) ENTRY(pfnGetApiVersion, zeDriverGetApiVersion)
      ENTRY(pfnGetProperties, zeDriverGetProperties))
TABLE(zeGetDeviceProcAddrTable, ze_device_dditable_t,
      ENTRY(pfnGet, zeDeviceGet) ENTRY(pfnGetSubDevices, zeDeviceGetSubDevices)
      ENTRY(pfnGetProperties, zeDeviceGetProperties)
      ENTRY(pfnGetComputeProperties, zeDeviceGetComputeProperties)
      ENTRY(pfnGetMemoryProperties, zeDeviceGetMemoryProperties)
      ENTRY(pfnGetModuleProperties, zeDeviceGetModuleProperties)
      ENTRY(pfnGetCommandQueueGroupProperties, zeDeviceGetCommandQueueGroupProperties)
      ENTRY(pfnPciGetPropertiesExt, zeDevicePciGetPropertiesExt))
TABLE(zeGetContextProcAddrTable, ze_context_dditable_t,
      ENTRY(pfnCreate, zeContextCreate) ENTRY(pfnDestroy, zeContextDestroy))
TABLE(zeGetMemProcAddrTable, ze_mem_dditable_t,
      ENTRY(pfnAllocDevice, zeMemAllocDevice) ENTRY(pfnAllocHost, zeMemAllocHost) ENTRY(pfnFree, zeMemFree))
TABLE(zeGetCommandListProcAddrTable, ze_command_list_dditable_t,
      ENTRY(pfnCreate, zeCommandListCreate) ENTRY(pfnClose, zeCommandListClose)
      ENTRY(pfnCreateImmediate, zeCommandListCreateImmediate) ENTRY(pfnDestroy, zeCommandListDestroy)
      ENTRY(pfnAppendMemoryCopy, zeCommandListAppendMemoryCopy)
      ENTRY(pfnAppendBarrier, zeCommandListAppendBarrier)
      ENTRY(pfnAppendLaunchKernel, zeCommandListAppendLaunchKernel))
TABLE(zeGetEventPoolProcAddrTable, ze_event_pool_dditable_t,
      ENTRY(pfnCreate, zeEventPoolCreate) ENTRY(pfnDestroy, zeEventPoolDestroy))
TABLE(zeGetEventProcAddrTable, ze_event_dditable_t,
      ENTRY(pfnCreate, zeEventCreate) ENTRY(pfnDestroy, zeEventDestroy)
      ENTRY(pfnHostSynchronize, zeEventHostSynchronize) ENTRY(pfnHostReset, zeEventHostReset))
TABLE(zeGetModuleProcAddrTable, ze_module_dditable_t,
      ENTRY(pfnCreate, zeModuleCreate) ENTRY(pfnDestroy, zeModuleDestroy)
      ENTRY(pfnGetNativeBinary, zeModuleGetNativeBinary))
TABLE(zeGetModuleBuildLogProcAddrTable, ze_module_build_log_dditable_t,
      ENTRY(pfnGetString, zeModuleBuildLogGetString) ENTRY(pfnDestroy, zeModuleBuildLogDestroy))
TABLE(zeGetKernelProcAddrTable, ze_kernel_dditable_t,
      ENTRY(pfnCreate, zeKernelCreate) ENTRY(pfnDestroy, zeKernelDestroy)
      ENTRY(pfnSetGroupSize, zeKernelSetGroupSize) ENTRY(pfnSetArgumentValue, zeKernelSetArgumentValue)
      ENTRY(pfnSetIndirectAccess, zeKernelSetIndirectAccess) ENTRY(pfnGetProperties, zeKernelGetProperties))
TABLE(zesGetDeviceProcAddrTable, zes_device_dditable_t,
      ENTRY(pfnEnumMemoryModules, zesDeviceEnumMemoryModules))
TABLE(zesGetMemoryProcAddrTable, zes_memory_dditable_t,
      ENTRY(pfnGetProperties, zesMemoryGetProperties) ENTRY(pfnGetState, zesMemoryGetState))

TABLE(zeGetDeviceExpProcAddrTable, ze_device_exp_dditable_t, )
TABLE(zeGetCommandQueueProcAddrTable, ze_command_queue_dditable_t, )
TABLE(zeGetImageProcAddrTable, ze_image_dditable_t, )
TABLE(zeGetImageExpProcAddrTable, ze_image_exp_dditable_t, )
TABLE(zeGetFenceProcAddrTable, ze_fence_dditable_t, )
TABLE(zeGetEventExpProcAddrTable, ze_event_exp_dditable_t, )
TABLE(zeGetKernelExpProcAddrTable, ze_kernel_exp_dditable_t, )
TABLE(zeGetSamplerProcAddrTable, ze_sampler_dditable_t, )
TABLE(zeGetPhysicalMemProcAddrTable, ze_physical_mem_dditable_t, )
TABLE(zeGetVirtualMemProcAddrTable, ze_virtual_mem_dditable_t, )
TABLE(zeGetFabricVertexExpProcAddrTable, ze_fabric_vertex_exp_dditable_t, )
TABLE(zeGetFabricEdgeExpProcAddrTable, ze_fabric_edge_exp_dditable_t, )

TABLE(zesGetDriverProcAddrTable, zes_driver_dditable_t, )
TABLE(zesGetSchedulerProcAddrTable, zes_scheduler_dditable_t, )
TABLE(zesGetPerformanceFactorProcAddrTable, zes_performance_factor_dditable_t, )
TABLE(zesGetPowerProcAddrTable, zes_power_dditable_t, )
TABLE(zesGetFrequencyProcAddrTable, zes_frequency_dditable_t, )
TABLE(zesGetEngineProcAddrTable, zes_engine_dditable_t, )
TABLE(zesGetStandbyProcAddrTable, zes_standby_dditable_t, )
TABLE(zesGetFirmwareProcAddrTable, zes_firmware_dditable_t, )
TABLE(zesGetFabricPortProcAddrTable, zes_fabric_port_dditable_t, )
TABLE(zesGetTemperatureProcAddrTable, zes_temperature_dditable_t, )
TABLE(zesGetPsuProcAddrTable, zes_psu_dditable_t, )
TABLE(zesGetFanProcAddrTable, zes_fan_dditable_t, )
TABLE(zesGetLedProcAddrTable, zes_led_dditable_t, )
TABLE(zesGetRasProcAddrTable, zes_ras_dditable_t, )
TABLE(zesGetDiagnosticsProcAddrTable, zes_diagnostics_dditable_t, )

TABLE(zetGetCommandListProcAddrTable, zet_command_list_dditable_t, )
TABLE(zetGetContextProcAddrTable, zet_context_dditable_t, )
TABLE(zetGetDebugProcAddrTable, zet_debug_dditable_t, )
TABLE(zetGetDeviceProcAddrTable, zet_device_dditable_t, )
TABLE(zetGetKernelProcAddrTable, zet_kernel_dditable_t, )
TABLE(zetGetMetricGroupExpProcAddrTable, zet_metric_group_exp_dditable_t, )
TABLE(zetGetMetricGroupProcAddrTable, zet_metric_group_dditable_t, )
TABLE(zetGetMetricProcAddrTable, zet_metric_dditable_t, )
TABLE(zetGetMetricQueryPoolProcAddrTable, zet_metric_query_pool_dditable_t, )
TABLE(zetGetMetricQueryProcAddrTable, zet_metric_query_dditable_t, )
TABLE(zetGetMetricStreamerProcAddrTable, zet_metric_streamer_dditable_t, )
TABLE(zetGetModuleProcAddrTable, zet_module_dditable_t, )
TABLE(zetGetTracerExpProcAddrTable, zet_tracer_exp_dditable_t, )
