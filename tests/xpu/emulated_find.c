/* What zeInit, the enumeration and Sysman of the emulated device say; see emulated.h. */
#include "emulated_entry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GIB_SHIFT = 30 };

struct lw_ze_driver { int unused; };
struct lw_zes_memory { uint32_t index; };

static const emulated_kind kinds[] = {
    { .name = "xe2", .device_name = "emulated device", .device_id = 0xE20B, .group_items_max = 1024,
      .local_bytes_max = 128 << 10, .has_matrix = true },
    { .name = "gen12lp", .device_name = "emulated device", .device_id = 0x9A49, .group_items_max = 512,
      .local_bytes_max = 64 << 10, .is_integrated = true },
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

emulated_settings_of emulated_settings;
static lw_ze_driver driver;
static lw_ze_device devices[EMULATED_DEVICES_MAX];
static struct lw_zes_memory modules[EMULATED_DEVICES_MAX] = { { 0 }, { 1 }, { 2 }, { 3 } };

static uint32_t number_of(const char *name, uint32_t usual)
{
    const char *text = getenv(name);
    return text == NULL ? usual : (uint32_t)strtoul(text, NULL, 10);
}

/* Two numbers with a point between them: "1.3". */
static uint32_t version_of(const char *name, uint32_t usual)
{
    unsigned major, minor;
    const char *text = getenv(name);
    if (text == NULL || sscanf(text, "%u.%u", &major, &minor) != 2) return usual;
    return EMULATED_API_VERSION(major, minor);
}

/* The first device is a card and the others sit in the processor, unless all are to be of one kind. */
static void devices_make(void)
{
    const char *name = getenv("LW_EMULATED_KIND");
    for (uint32_t i = 0; i < EMULATED_DEVICES_MAX; i++) {
        devices[i] = (lw_ze_device){ .index = i, .kind = &kinds[i == 0 ? 0 : 1] };
        for (uint32_t k = 0; name != NULL && k < KINDS; k++) {
            if (strcmp(kinds[k].name, name) == 0) devices[i].kind = &kinds[k];
        }
    }
}

lw_ze_result zeInit(uint32_t flags)
{
    const char *bytes = getenv("LW_EMULATED_BYTES");
    (void)flags;
    emulated_settings = (emulated_settings_of){
        .devices = number_of("LW_EMULATED_DEVICES", 1),
        .workers = number_of("LW_EMULATED_WORKERS", EMULATED_WORKERS),
        .reduce = number_of("LW_EMULATED_REDUCE", EMULATED_REDUCE_LAST_FIRST),
        .lose_at = number_of("LW_EMULATED_LOSE_AT", 0),
        .hang_at = number_of("LW_EMULATED_HANG_AT", 0),
        .api_version = version_of("LW_EMULATED_API", EMULATED_API_VERSION(1, 13)),
        .card_bytes = bytes == NULL ? (uint64_t)EMULATED_DEFAULT_GIB << GIB_SHIFT : strtoull(bytes, NULL, 10),
        .init_failed = getenv("LW_EMULATED_NO_DRIVER") != NULL,
        .has_sysman = getenv("LW_EMULATED_NO_SYSMAN") == NULL,
        .is_idle = getenv("LW_EMULATED_IDLE") != NULL,
    };
    if (emulated_settings.devices > EMULATED_DEVICES_MAX) emulated_settings.devices = EMULATED_DEVICES_MAX;
    devices_make();
    if (emulated_settings.init_failed) return LW_ZE_RESULT_ERROR_UNINITIALIZED;
    return emulated_called();
}

lw_ze_result zeDriverGetApiVersion(lw_ze_driver *from, uint32_t *version)
{
    CALLED();
    (void)from;
    *version = emulated_settings.api_version;
    return LW_ZE_RESULT_SUCCESS;
}

lw_ze_result zeDriverGet(uint32_t *count, lw_ze_driver **drivers)
{
    CALLED();
    if (drivers != NULL && *count > 0) drivers[0] = &driver;
    *count = 1;
    return LW_ZE_RESULT_SUCCESS;
}

lw_ze_result zeDriverGetProperties(lw_ze_driver *from, lw_ze_driver_properties *out)
{
    CALLED();
    (void)from;
    if (out->stype != LW_ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES) return LW_ZE_RESULT_ERROR_INVALID_ARGUMENT;
    out->version = lw_emulated.driver_version;
    return LW_ZE_RESULT_SUCCESS;
}

static lw_ze_result devices_list(uint32_t *count, lw_ze_device **out)
{
    for (uint32_t i = 0; out != NULL && i < *count && i < emulated_settings.devices; i++)
        out[i] = &devices[i];
    if (out == NULL || *count > emulated_settings.devices) *count = emulated_settings.devices;
    return LW_ZE_RESULT_SUCCESS;
}

lw_ze_result zeDeviceGet(lw_ze_driver *from, uint32_t *count, lw_ze_device **out)
{
    CALLED();
    (void)from;
    return devices_list(count, out);
}

lw_ze_result zeDeviceGetSubDevices(lw_ze_device *device, uint32_t *count, lw_ze_device **tiles)
{
    CALLED();
    (void)device;
    (void)tiles;
    *count = 0;
    return LW_ZE_RESULT_SUCCESS;
}

static void uuid_fill(uint8_t uuid[LW_ZE_MAX_DEVICE_UUID_SIZE], uint32_t index)
{
    memset(uuid, 0xA0, LW_ZE_MAX_DEVICE_UUID_SIZE);
    uuid[LW_ZE_MAX_DEVICE_UUID_SIZE - 1] = (uint8_t)index;
}

lw_ze_result zeDeviceGetProperties(lw_ze_device *device, lw_ze_device_properties *out)
{
    CALLED();
    if (out->stype != LW_ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES) return LW_ZE_RESULT_ERROR_INVALID_ARGUMENT;
    out->type = LW_ZE_DEVICE_TYPE_GPU;
    out->vendor_id = 0x8086;
    out->device_id = device->kind->device_id;
    out->alloc_bytes_max = EMULATED_ALLOC_BYTES_MAX;
    out->flags = device->kind->is_integrated ? LW_ZE_DEVICE_PROPERTY_FLAG_INTEGRATED : 0;
    uuid_fill(out->uuid, device->index);
    snprintf(out->name, sizeof out->name, "%s", device->kind->device_name);
    return LW_ZE_RESULT_SUCCESS;
}

lw_ze_result zeDeviceGetComputeProperties(lw_ze_device *device, lw_ze_device_compute_properties *out)
{
    CALLED();
    out->group_size_max = device->kind->group_items_max;
    out->local_bytes_max = device->kind->local_bytes_max;
    out->sub_group_size_count = 2;
    out->sub_group_sizes[0] = 16;
    out->sub_group_sizes[1] = 32;
    return LW_ZE_RESULT_SUCCESS;
}

/* A structure of Intel's own may hang on it, which tells of the matrix engine. */
lw_ze_result zeDeviceGetModuleProperties(lw_ze_device *device, lw_ze_device_module_properties *out)
{
    CALLED();
    if (out->stype != LW_ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES)
        return LW_ZE_RESULT_ERROR_INVALID_ARGUMENT;
    out->spirv_version = 1 << 16 | 4 << 8;
    out->argument_bytes_max = EMULATED_ARGUMENT_BYTES_MAX;
    lw_ze_device_dp_properties *dp = out->next;
    if (dp == NULL || dp->stype != LW_ZE_STRUCTURE_INTEL_DEVICE_MODULE_DP_EXP_PROPERTIES)
        return LW_ZE_RESULT_SUCCESS;
    dp->flags = device->kind->has_matrix ? LW_ZE_INTEL_DEVICE_MODULE_EXP_FLAG_DPAS : 0;
    return LW_ZE_RESULT_SUCCESS;
}

lw_ze_result zeDeviceGetMemoryProperties(lw_ze_device *device, uint32_t *count,
                                         lw_ze_device_memory_properties *out)
{
    CALLED();
    (void)device;
    if (out != NULL && *count > 0) out[0].total_bytes = emulated_settings.card_bytes;
    *count = 1;
    return LW_ZE_RESULT_SUCCESS;
}

/* The first group only copies, as on cards with a copy engine in front. */
lw_ze_result zeDeviceGetCommandQueueGroupProperties(lw_ze_device *device, uint32_t *count,
                                                    lw_ze_queue_group_properties *out)
{
    CALLED();
    (void)device;
    if (out != NULL && *count > 1) {
        out[0].flags = 2;
        out[1].flags = LW_ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE | 2;
    }
    *count = 2;
    return LW_ZE_RESULT_SUCCESS;
}

lw_ze_result zeDevicePciGetPropertiesExt(lw_ze_device *device, lw_ze_pci_properties *out)
{
    CALLED();
    out->bus = 3 + device->index;
    return LW_ZE_RESULT_SUCCESS;
}

/* ---- Sysman ---- */

lw_ze_result zesInit(uint32_t flags)
{
    CALLED();
    (void)flags;
    return emulated_settings.has_sysman ? LW_ZE_RESULT_SUCCESS : LW_ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
}

lw_ze_result zesDriverGet(uint32_t *count, lw_ze_driver **drivers)
{
    return zeDriverGet(count, drivers);
}

/* In another order than the core's: only the uuid tells. */
lw_ze_result zesDeviceGet(lw_ze_driver *from, uint32_t *count, lw_ze_device **out)
{
    CALLED();
    (void)from;
    for (uint32_t i = 0; out != NULL && i < *count && i < emulated_settings.devices; i++)
        out[i] = &devices[emulated_settings.devices - 1 - i];
    *count = emulated_settings.devices;
    return LW_ZE_RESULT_SUCCESS;
}

lw_ze_result zesDeviceGetProperties(lw_ze_device *device, lw_zes_device_properties *out)
{
    CALLED();
    uuid_fill(out->core.uuid, device->index);
    return LW_ZE_RESULT_SUCCESS;
}

lw_ze_result zesDeviceEnumMemoryModules(lw_ze_device *device, uint32_t *count, lw_zes_memory **out)
{
    CALLED();
    if (out != NULL && *count > 0) out[0] = &modules[device->index];
    *count = 1;
    return LW_ZE_RESULT_SUCCESS;
}

lw_ze_result zesMemoryGetProperties(lw_zes_memory *memory, lw_zes_mem_properties *out)
{
    CALLED();
    (void)memory;
    out->location = LW_ZES_MEM_LOC_DEVICE;
    return LW_ZE_RESULT_SUCCESS;
}

/* A quarter is somebody else's on the first device, half on the second. */
lw_ze_result zesMemoryGetState(lw_zes_memory *memory, lw_zes_mem_state *out)
{
    CALLED();
    out->total_bytes = emulated_settings.card_bytes;
    out->free_bytes =
        memory->index == 0 ? emulated_settings.card_bytes / 4 * 3 : emulated_settings.card_bytes / 2;
    return LW_ZE_RESULT_SUCCESS;
}
