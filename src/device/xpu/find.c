/* Enumeration; see find.h. Level Zero fills a list only after it was asked for its length, and what it
 * answers is outside data: counts are cut to the arrays here.
 */
#include "device/xpu/find.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { DRIVERS_MAX = 16, MEMORIES_MAX = 16, DPAS_LANES = 16 };

static uint32_t at_most(uint32_t count, uint32_t max)
{
    return count < max ? count : max;
}

static lw_status memory_read(const lw_ze *ze, lw_xpu_info *info, lw_diag *d)
{
    lw_ze_device_memory_properties memories[MEMORIES_MAX];
    memset(memories, 0, sizeof memories);
    for (size_t i = 0; i < MEMORIES_MAX; i++)
        memories[i].stype = LW_ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES;
    uint32_t count = 0;
    lw_ze_result result = ze->zeDeviceGetMemoryProperties(info->device, &count, NULL);
    count = at_most(count, MEMORIES_MAX);
    if (result == LW_ZE_RESULT_SUCCESS && count > 0)
        result = ze->zeDeviceGetMemoryProperties(info->device, &count, memories);
    if (result != LW_ZE_RESULT_SUCCESS) return lw_ze_fail(d, result, "the memory of %s", info->name);
    for (uint32_t i = 0; i < at_most(count, MEMORIES_MAX); i++) info->memory_bytes += memories[i].total_bytes;
    return LW_OK;
}

static void pci_read(const lw_ze *ze, lw_xpu_info *info)
{
    lw_ze_pci_properties pci = { .stype = LW_ZE_STRUCTURE_TYPE_PCI_EXT_PROPERTIES };
    if (ze->zeDevicePciGetPropertiesExt == NULL) return;
    if (ze->zeDevicePciGetPropertiesExt(info->device, &pci) != LW_ZE_RESULT_SUCCESS) return;
    snprintf(info->pci, sizeof info->pci, "%04x:%02x:%02x.%x", pci.domain & 0xFFFF, pci.bus & 0xFF,
             pci.device & 0xFF, pci.function & 0xF);
}

static lw_status modules_read(const lw_ze *ze, lw_xpu_info *info, lw_diag *d)
{
    lw_ze_device_dp_properties dp = { .stype = LW_ZE_STRUCTURE_INTEL_DEVICE_MODULE_DP_EXP_PROPERTIES };
    lw_ze_device_module_properties modules = { .stype = LW_ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES,
                                               .next = &dp };
    const lw_ze_result result = ze->zeDeviceGetModuleProperties(info->device, &modules);
    if (result != LW_ZE_RESULT_SUCCESS)
        return lw_ze_fail(d, result, "the module properties of %s", info->name);
    info->has_dpas = (dp.flags & LW_ZE_INTEL_DEVICE_MODULE_EXP_FLAG_DPAS) != 0;
    for (uint32_t i = 0; i < info->sub_group_size_count; i++) {
        if (info->sub_group_sizes[i] < DPAS_LANES) info->has_dpas = false;
    }
    return LW_OK;
}

static lw_status device_read(const lw_ze *ze, lw_xpu_info *info, const lw_ze_device_properties *properties,
                             lw_diag *d)
{
    snprintf(info->name, sizeof info->name, "%.*s", (int)sizeof info->name - 1, properties->name);
    memcpy(info->uuid, properties->uuid, sizeof info->uuid);
    info->vendor_id = properties->vendor_id;
    info->device_id = properties->device_id;
    info->integrated = (properties->flags & LW_ZE_DEVICE_PROPERTY_FLAG_INTEGRATED) != 0;
    info->alloc_bytes_max = properties->alloc_bytes_max;
    lw_ze_device_compute_properties compute = { .stype = LW_ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES };
    lw_ze_result result = ze->zeDeviceGetComputeProperties(info->device, &compute);
    if (result != LW_ZE_RESULT_SUCCESS)
        return lw_ze_fail(d, result, "the compute properties of %s", info->name);
    info->sub_group_size_count = at_most(compute.sub_group_size_count, LW_ZE_SUBGROUPSIZE_COUNT);
    memcpy(info->sub_group_sizes, compute.sub_group_sizes, sizeof info->sub_group_sizes);
    const lw_status status = modules_read(ze, info, d);
    if (status != LW_OK) return status;
    uint32_t tiles = 0;
    result = ze->zeDeviceGetSubDevices(info->device, &tiles, NULL);
    if (result != LW_ZE_RESULT_SUCCESS) return lw_ze_fail(d, result, "the tiles of %s", info->name);
    info->tiles = tiles > 0 ? tiles : 1;
    pci_read(ze, info);
    return memory_read(ze, info, d);
}

static lw_status driver_read(const lw_ze *ze, lw_ze_driver *driver, lw_xpu_list *list, lw_diag *d)
{
    lw_ze_device *devices[LW_XPU_DEVICES_MAX];
    lw_ze_driver_properties driver_properties = { .stype = LW_ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES };
    uint32_t count = 0, api_version = 0;
    lw_ze_result result = ze->zeDriverGetProperties(driver, &driver_properties);
    if (result != LW_ZE_RESULT_SUCCESS) return lw_ze_fail(d, result, "the properties of a driver");
    if (ze->zeDriverGetApiVersion != NULL &&
        ze->zeDriverGetApiVersion(driver, &api_version) != LW_ZE_RESULT_SUCCESS)
        api_version = 0;
    result = ze->zeDeviceGet(driver, &count, NULL);
    count = at_most(count, LW_XPU_DEVICES_MAX);
    if (result == LW_ZE_RESULT_SUCCESS && count > 0) result = ze->zeDeviceGet(driver, &count, devices);
    if (result != LW_ZE_RESULT_SUCCESS) return lw_ze_fail(d, result, "the list of devices");
    for (uint32_t i = 0; i < at_most(count, LW_XPU_DEVICES_MAX) && list->count < LW_XPU_DEVICES_MAX; i++) {
        lw_ze_device_properties properties = { .stype = LW_ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES };
        result = ze->zeDeviceGetProperties(devices[i], &properties);
        if (result != LW_ZE_RESULT_SUCCESS) return lw_ze_fail(d, result, "the properties of device %u", i);
        if (properties.type != LW_ZE_DEVICE_TYPE_GPU) continue;
        lw_xpu_info *info = &list->devices[list->count];
        *info = (lw_xpu_info){ .driver = driver, .device = devices[i],
                                .driver_version = driver_properties.version, .api_version = api_version };
        const lw_status status = device_read(ze, info, &properties, d);
        if (status != LW_OK) return status;
        list->count++;
    }
    return LW_OK;
}

lw_status lw_xpu_find(const lw_ze *ze, lw_xpu_list *list, lw_diag *d)
{
    lw_ze_driver *drivers[DRIVERS_MAX];
    uint32_t count = 0;
    list->count = 0;
    lw_ze_result result = ze->zeDriverGet(&count, NULL);
    count = at_most(count, DRIVERS_MAX);
    if (result == LW_ZE_RESULT_SUCCESS && count > 0) result = ze->zeDriverGet(&count, drivers);
    if (result != LW_ZE_RESULT_SUCCESS) return lw_ze_fail(d, result, "the list of drivers");
    for (uint32_t i = 0; i < at_most(count, DRIVERS_MAX); i++) {
        const lw_status status = driver_read(ze, drivers[i], list, d);
        if (status != LW_OK) return status;
    }
    return LW_OK;
}

/* "xpu:0 (name, address), xpu:1 (...)", cut where the text ends. */
static void list_text(const lw_xpu_list *list, char *text, size_t text_bytes)
{
    text[0] = '\0';
    for (uint32_t i = 0; i < list->count; i++) {
        const lw_xpu_info *info = &list->devices[i];
        const size_t at = strlen(text);
        snprintf(text + at, text_bytes - at, "%sxpu:%u (%s%s%s)", i == 0 ? "" : ", ", i, info->name,
                 info->pci[0] != '\0' ? ", " : "", info->pci);
    }
}

/* False: it is no index. */
static bool index_read(const char *text, uint32_t *index)
{
    uint32_t value = 0;
    for (const char *p = text; *p != '\0'; p++) {
        if (*p < '0' || *p > '9' || value > LW_XPU_DEVICES_MAX) return false;
        value = value * 10 + (uint32_t)(*p - '0');
    }
    *index = value;
    return text[0] != '\0';
}

static bool is_address(const lw_xpu_info *info, const char *text)
{
    const char *without_domain = strchr(info->pci, ':');
    if (without_domain == NULL) return false;
    return strcasecmp(info->pci, text) == 0 || strcasecmp(without_domain + 1, text) == 0;
}

lw_status lw_xpu_choose(const lw_xpu_list *list, const char *which, const lw_xpu_info **out, lw_diag *d)
{
    uint32_t index = 0;
    *out = NULL;
    if (list->count == 0)
        return lw_fail(d, LW_UNSUPPORTED, "no device: Level Zero's drivers are here, but they have no GPU");
    if (which == NULL || index_read(which, &index)) {
        if (index < list->count) *out = &list->devices[index];
    } else {
        for (uint32_t i = 0; i < list->count && *out == NULL; i++) {
            if (is_address(&list->devices[i], which)) *out = &list->devices[i];
        }
    }
    if (*out != NULL) return LW_OK;
    char all[512];
    list_text(list, all, sizeof all);
    return lw_fail(d, LW_BAD_INPUT, "there is no device \"xpu:%s\"; there is %s", which, all);
}

/* ---- Sysman: its handles are its own, so that only the uuid says which device is which ---- */

/* Under WSL2 its initialisation crashes in drivers that are in use. */
static bool has_sysman(const lw_ze *ze)
{
    return !lw_ze_is_wsl("/dev") && ze->zesInit != NULL && ze->zesDriverGet != NULL &&
           ze->zesDeviceGet != NULL && ze->zesDeviceGetProperties != NULL &&
           ze->zesDeviceEnumMemoryModules != NULL && ze->zesMemoryGetProperties != NULL &&
           ze->zesMemoryGetState != NULL;
}

static bool is_device(const lw_ze *ze, lw_ze_device *device, const uint8_t uuid[LW_ZE_MAX_DEVICE_UUID_SIZE])
{
    lw_zes_device_properties properties = { .stype = LW_ZES_STRUCTURE_TYPE_DEVICE_PROPERTIES,
                                            .core = { .stype = LW_ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES } };
    if (ze->zesDeviceGetProperties(device, &properties) != LW_ZE_RESULT_SUCCESS) return false;
    return memcmp(properties.core.uuid, uuid, sizeof properties.core.uuid) == 0;
}

/* Free bytes of the modules that lie on the device. */
static bool free_read(const lw_ze *ze, lw_ze_device *device, uint64_t *bytes)
{
    lw_zes_memory *modules[MEMORIES_MAX];
    uint32_t count = 0;
    bool found = false;
    if (ze->zesDeviceEnumMemoryModules(device, &count, NULL) != LW_ZE_RESULT_SUCCESS) return false;
    count = at_most(count, MEMORIES_MAX);
    if (count == 0 || ze->zesDeviceEnumMemoryModules(device, &count, modules) != LW_ZE_RESULT_SUCCESS)
        return false;
    *bytes = 0;
    for (uint32_t i = 0; i < at_most(count, MEMORIES_MAX); i++) {
        lw_zes_mem_properties properties = { .stype = LW_ZES_STRUCTURE_TYPE_MEM_PROPERTIES };
        lw_zes_mem_state state = { .stype = LW_ZES_STRUCTURE_TYPE_MEM_STATE };
        if (ze->zesMemoryGetProperties(modules[i], &properties) != LW_ZE_RESULT_SUCCESS) return false;
        if (properties.location != LW_ZES_MEM_LOC_DEVICE) continue;
        if (ze->zesMemoryGetState(modules[i], &state) != LW_ZE_RESULT_SUCCESS) return false;
        *bytes += state.free_bytes;
        found = true;
    }
    return found;
}

static bool driver_free(const lw_ze *ze, lw_ze_driver *driver,
                        const uint8_t uuid[LW_ZE_MAX_DEVICE_UUID_SIZE], uint64_t *bytes)
{
    lw_ze_device *devices[LW_XPU_DEVICES_MAX];
    uint32_t count = 0;
    if (ze->zesDeviceGet(driver, &count, NULL) != LW_ZE_RESULT_SUCCESS) return false;
    count = at_most(count, LW_XPU_DEVICES_MAX);
    if (count == 0 || ze->zesDeviceGet(driver, &count, devices) != LW_ZE_RESULT_SUCCESS) return false;
    for (uint32_t i = 0; i < at_most(count, LW_XPU_DEVICES_MAX); i++) {
        if (is_device(ze, devices[i], uuid)) return free_read(ze, devices[i], bytes);
    }
    return false;
}

bool lw_xpu_sysman_free(const lw_ze *ze, const uint8_t uuid[LW_ZE_MAX_DEVICE_UUID_SIZE], uint64_t *bytes)
{
    lw_ze_driver *drivers[DRIVERS_MAX];
    uint32_t count = 0;
    if (!has_sysman(ze) || ze->zesInit(0) != LW_ZE_RESULT_SUCCESS) return false;
    if (ze->zesDriverGet(&count, NULL) != LW_ZE_RESULT_SUCCESS) return false;
    count = at_most(count, DRIVERS_MAX);
    if (count == 0 || ze->zesDriverGet(&count, drivers) != LW_ZE_RESULT_SUCCESS) return false;
    for (uint32_t i = 0; i < at_most(count, DRIVERS_MAX); i++) {
        if (driver_free(ze, drivers[i], uuid, bytes)) return true;
    }
    return false;
}
