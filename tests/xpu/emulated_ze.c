/* The entries of the emulated device; see emulated.h. They do what the specification says of them and refuse
 * what it forbids; every appended command waits until the host waits for an event.
 */
#include "emulated.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define LW_ZE(need, name, parameters) EXPORT lw_ze_result name parameters;
#include "device/xpu/ze.list"
#undef LW_ZE

enum {
    SYSTEM_PAGE = 4096,
    POISON = 0xCD,              /* fresh memory: a huge negative number as bf16 and as fp32 */
    ARGUMENT_BYTES_MAX = 1024,
    NAME_BYTES = 64,
    GIB_SHIFT = 30,
};

struct lw_ze_driver { int unused; };
struct lw_ze_device { uint32_t index; };
struct lw_ze_context { int unused; };
struct lw_ze_event_pool { uint32_t count; };
struct lw_ze_event { bool signaled; };
struct lw_ze_build_log { char text[256]; };
struct lw_zes_memory { uint32_t index; };
struct lw_ze_module { void *library; emulated_image image; };
struct lw_ze_kernel {
    void (*fn)(const void *args);
    uint32_t args_bytes, items[3];
    bool has_args, sees_memory;
    uint8_t args[ARGUMENT_BYTES_MAX];
};

typedef struct command {
    void *to;                   /* of a copy; NULL: no copy */
    const void *from;
    size_t bytes;
    void (*fn)(const void *args);   /* of a launch; NULL: none */
    uint32_t groups[3], items[3];
    uint8_t args[ARGUMENT_BYTES_MAX];
    lw_ze_event *signal;
    const lw_ze_list *recorded;     /* the closed list that it came from; NULL: none */
} command;

struct lw_ze_list {
    command *commands;
    size_t count, capacity;
    bool records, is_closed;    /* a regular list: what is appended waits for it to be run */
    lw_ze_list *next;           /* of all immediate lists */
};

typedef struct allocation {
    uint8_t *map, *at;
    size_t map_bytes, bytes;
    uint32_t device;            /* EMULATED_DEVICES_MAX: host memory */
    struct allocation *next;
} allocation;

EXPORT lw_emulated_state lw_emulated = { .fail_with = LW_ZE_RESULT_ERROR_DEVICE_LOST,
                                          .driver_version = 1 };
static lw_ze_driver driver;
static lw_ze_device devices[EMULATED_DEVICES_MAX] = { { 0 }, { 1 }, { 2 }, { 3 } };
static struct lw_zes_memory modules[EMULATED_DEVICES_MAX] = { { 0 }, { 1 }, { 2 }, { 3 } };
static uint32_t device_count;
static uint64_t card_bytes;
static bool init_failed, has_sysman;
static lw_ze_list *lists;
static allocation *allocations;

static void misuse(const char *what)
{
    if (lw_emulated.error[0] == '\0') snprintf(lw_emulated.error, sizeof lw_emulated.error, "%s", what);
}

/* The answer to give at once, or success. */
static lw_ze_result called(void)
{
    lw_emulated.calls++;
    if (init_failed) lw_emulated.after_failed_init = true;
    if (lw_emulated.fail_at == 0 || --lw_emulated.fail_at > 0) return LW_ZE_RESULT_SUCCESS;
    /* What was lost runs nothing more. */
    for (lw_ze_list *list = lists; list != NULL; list = list->next) list->count = 0;
    return lw_emulated.fail_with;
}
#define CALLED() \
    do { \
        const lw_ze_result result_ = called(); \
        if (result_ != LW_ZE_RESULT_SUCCESS) return result_; \
    } while (0)

static lw_ze_result object_make(size_t bytes, void **out)
{
    *out = calloc(1, bytes);
    if (*out == NULL) return LW_ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    lw_emulated.objects++;
    return LW_ZE_RESULT_SUCCESS;
}

static lw_ze_result object_free(void *object)
{
    if (object == NULL) return LW_ZE_RESULT_ERROR_INVALID_ARGUMENT;
    free(object);
    lw_emulated.objects--;
    return LW_ZE_RESULT_SUCCESS;
}

/* ---- what there is ---- */

lw_ze_result zeInit(uint32_t flags)
{
    const char *count = getenv("LW_EMULATED_DEVICES"), *bytes = getenv("LW_EMULATED_BYTES");
    (void)flags;
    init_failed = getenv("LW_EMULATED_NO_DRIVER") != NULL;
    has_sysman = getenv("LW_EMULATED_NO_SYSMAN") == NULL;
    device_count = count == NULL ? 1 : (uint32_t)strtoul(count, NULL, 10);
    if (device_count > EMULATED_DEVICES_MAX) device_count = EMULATED_DEVICES_MAX;
    card_bytes = bytes == NULL ? (uint64_t)EMULATED_DEFAULT_GIB << GIB_SHIFT : strtoull(bytes, NULL, 10);
    if (init_failed) return LW_ZE_RESULT_ERROR_UNINITIALIZED;
    return called();
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
    for (uint32_t i = 0; out != NULL && i < *count && i < device_count; i++) out[i] = &devices[i];
    if (out == NULL || *count > device_count) *count = device_count;
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
    out->alloc_bytes_max = UINT64_C(1) << GIB_SHIFT;
    out->flags = device->index == 0 ? 0 : LW_ZE_DEVICE_PROPERTY_FLAG_INTEGRATED;
    uuid_fill(out->uuid, device->index);
    snprintf(out->name, sizeof out->name, "emulated device");
    return LW_ZE_RESULT_SUCCESS;
}

lw_ze_result zeDeviceGetComputeProperties(lw_ze_device *device, lw_ze_device_compute_properties *out)
{
    CALLED();
    (void)device;
    out->group_size_max = 512;
    out->local_bytes_max = 64 << 10;
    out->sub_group_size_count = 2;
    out->sub_group_sizes[0] = 16;
    out->sub_group_sizes[1] = 32;
    return LW_ZE_RESULT_SUCCESS;
}

lw_ze_result zeDeviceGetModuleProperties(lw_ze_device *device, lw_ze_device_module_properties *out)
{
    CALLED();
    (void)device;
    if (out->stype != LW_ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES)
        return LW_ZE_RESULT_ERROR_INVALID_ARGUMENT;
    out->spirv_version = 1 << 16 | 4 << 8;
    out->argument_bytes_max = ARGUMENT_BYTES_MAX;
    return LW_ZE_RESULT_SUCCESS;
}

lw_ze_result zeDeviceGetMemoryProperties(lw_ze_device *device, uint32_t *count,
                                         lw_ze_device_memory_properties *out)
{
    CALLED();
    (void)device;
    if (out != NULL && *count > 0) out[0].total_bytes = card_bytes;
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
    return has_sysman ? LW_ZE_RESULT_SUCCESS : LW_ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
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
    for (uint32_t i = 0; out != NULL && i < *count && i < device_count; i++)
        out[i] = &devices[device_count - 1 - i];
    *count = device_count;
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
    out->total_bytes = card_bytes;
    out->free_bytes = memory->index == 0 ? card_bytes / 4 * 3 : card_bytes / 2;
    return LW_ZE_RESULT_SUCCESS;
}

/* ---- contexts and memory ---- */

lw_ze_result zeContextCreate(lw_ze_driver *from, const lw_ze_context_desc *desc, lw_ze_context **out)
{
    CALLED();
    (void)from;
    (void)desc;
    return object_make(sizeof **out, (void **)out);
}

lw_ze_result zeContextDestroy(lw_ze_context *context)
{
    return object_free(context);
}

/* Ends at a page that is not mapped, so that what reads or writes past it dies of it. */
static lw_ze_result memory_make(size_t bytes, size_t alignment, uint32_t device, void **out)
{
    if (bytes == 0) return LW_ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
    const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    const size_t mapped = (rounded + SYSTEM_PAGE - 1) / SYSTEM_PAGE * SYSTEM_PAGE;
    allocation *a = calloc(1, sizeof *a);
    uint8_t *map = mmap(NULL, mapped + SYSTEM_PAGE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (a == NULL || map == MAP_FAILED) abort();
    if (mprotect(map + mapped, SYSTEM_PAGE, PROT_NONE) != 0) abort();
    *a = (allocation){ .map = map, .at = map + mapped - rounded, .map_bytes = mapped + SYSTEM_PAGE,
                       .bytes = bytes, .device = device, .next = allocations };
    /* A host's memory is its own to write first. */
    if (device < EMULATED_DEVICES_MAX) memset(a->at, POISON, bytes);
    allocations = a;
    lw_emulated.objects++;
    *out = a->at;
    return LW_ZE_RESULT_SUCCESS;
}

static bool is_relaxed(const lw_ze_flags_desc *next)
{
    return next != NULL && next->stype == LW_ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC;
}

lw_ze_result zeMemAllocDevice(lw_ze_context *context, const lw_ze_device_mem_alloc_desc *desc, size_t bytes,
                              size_t alignment, lw_ze_device *device, void **out)
{
    CALLED();
    (void)context;
    if (bytes > UINT64_C(1) << GIB_SHIFT && !is_relaxed(desc->next))
        return LW_ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
    uint64_t *used = &lw_emulated.used_bytes[device->index];
    if (bytes > card_bytes - *used) return LW_ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    *used += bytes;
    return memory_make(bytes, alignment, device->index, out);
}

lw_ze_result zeMemAllocHost(lw_ze_context *context, const lw_ze_flags_desc *desc, size_t bytes,
                            size_t alignment, void **out)
{
    CALLED();
    (void)context;
    (void)desc;
    return memory_make(bytes, alignment, EMULATED_DEVICES_MAX, out);
}

lw_ze_result zeMemFree(lw_ze_context *context, void *memory)
{
    (void)context;
    allocation **at = &allocations;
    while (*at != NULL && (*at)->at != memory) at = &(*at)->next;
    allocation *found = *at;
    if (found == NULL) return LW_ZE_RESULT_ERROR_INVALID_ARGUMENT;
    for (const lw_ze_list *list = lists; list != NULL; list = list->next) {
        if (list->count > 0) misuse("memory was freed while commands wait that may use it");
    }
    if (found->device < EMULATED_DEVICES_MAX) lw_emulated.used_bytes[found->device] -= found->bytes;
    *at = found->next;
    munmap(found->map, found->map_bytes);
    return object_free(found);
}

/* ---- modules and kernels ---- */

static lw_ze_result module_failed(lw_ze_build_log **log, lw_ze_result result, const char *why)
{
    if (log != NULL && object_make(sizeof **log, (void **)log) == LW_ZE_RESULT_SUCCESS)
        snprintf((*log)->text, sizeof (*log)->text, "%s", why);
    return result;
}

/* Loads the image as a shared object, which a file in memory holds. */
static void *library_open(const emulated_image *image)
{
    const int file = memfd_create("module", MFD_CLOEXEC);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    const bool written = file >= 0 && write(file, image->bytes, image->count) == (ssize_t)image->count;
    void *library = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (file >= 0) close(file);
    return library;
}

lw_ze_result zeModuleCreate(lw_ze_context *context, lw_ze_device *device, const lw_ze_module_desc *desc,
                            lw_ze_module **out, lw_ze_build_log **log)
{
    CALLED();
    (void)context;
    (void)device;
    emulated_image image;
    char why[128];
    if (!emulated_image_make(desc, &image, why))
        return module_failed(log, LW_ZE_RESULT_ERROR_INVALID_NATIVE_BINARY, why);
    void *library = library_open(&image);
    if (library == NULL) {
        free(image.bytes);
        return module_failed(log, LW_ZE_RESULT_ERROR_MODULE_BUILD_FAILURE, dlerror());
    }
    void (*attach)(const emulated_calls *calls);
    *(void **)&attach = dlsym(library, "lw_emulated_attach");
    if (attach == NULL || object_make(sizeof **out, (void **)out) != LW_ZE_RESULT_SUCCESS) {
        free(image.bytes);
        dlclose(library);
        return module_failed(log, LW_ZE_RESULT_ERROR_MODULE_LINK_FAILURE, "built without its glue");
    }
    attach(&emulated_kernel_calls);
    (*out)->library = library;
    (*out)->image = image;
    return LW_ZE_RESULT_SUCCESS;
}

lw_ze_result zeModuleDestroy(lw_ze_module *module)
{
    if (module->library != NULL) dlclose(module->library);
    free(module->image.bytes);
    return object_free(module);
}

lw_ze_result zeModuleGetNativeBinary(lw_ze_module *module, size_t *bytes, uint8_t *out)
{
    CALLED();
    if (out != NULL && *bytes < module->image.count) return LW_ZE_RESULT_ERROR_INVALID_ARGUMENT;
    if (out != NULL) memcpy(out, module->image.bytes, module->image.count);
    *bytes = module->image.count;
    return LW_ZE_RESULT_SUCCESS;
}

lw_ze_result zeModuleBuildLogGetString(lw_ze_build_log *log, size_t *bytes, char *text)
{
    CALLED();
    if (text != NULL) snprintf(text, *bytes, "%s", log->text);
    *bytes = strlen(log->text) + 1;
    return LW_ZE_RESULT_SUCCESS;
}

lw_ze_result zeModuleBuildLogDestroy(lw_ze_build_log *log)
{
    return object_free(log);
}

lw_ze_result zeKernelCreate(lw_ze_module *module, const lw_ze_kernel_desc *desc, lw_ze_kernel **out)
{
    CALLED();
    char name[2 * NAME_BYTES];
    snprintf(name, sizeof name, "lw_call_%.*s", NAME_BYTES, desc->name);
    void (*fn)(const void *args);
    *(void **)&fn = dlsym(module->library, name);
    snprintf(name, sizeof name, "lw_bytes_%.*s", NAME_BYTES, desc->name);
    const uint32_t *bytes = dlsym(module->library, name);
    if (fn == NULL || bytes == NULL || *bytes > ARGUMENT_BYTES_MAX)
        return LW_ZE_RESULT_ERROR_INVALID_KERNEL_NAME;
    const lw_ze_result result = object_make(sizeof **out, (void **)out);
    if (result != LW_ZE_RESULT_SUCCESS) return result;
    (*out)->fn = fn;
    (*out)->args_bytes = *bytes;
    return LW_ZE_RESULT_SUCCESS;
}

lw_ze_result zeKernelDestroy(lw_ze_kernel *kernel)
{
    return object_free(kernel);
}

lw_ze_result zeKernelSetGroupSize(lw_ze_kernel *kernel, uint32_t x, uint32_t y, uint32_t z)
{
    CALLED();
    if (x == 0 || y == 0 || z == 0 || (uint64_t)x * y * z > 512) return LW_ZE_RESULT_ERROR_INVALID_ARGUMENT;
    memcpy(kernel->items, (const uint32_t[]){ x, y, z }, sizeof kernel->items);
    return LW_ZE_RESULT_SUCCESS;
}

lw_ze_result zeKernelSetIndirectAccess(lw_ze_kernel *kernel, uint32_t flags)
{
    CALLED();
    kernel->sees_memory = (flags & LW_ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE) != 0;
    return LW_ZE_RESULT_SUCCESS;
}

lw_ze_result zeKernelSetArgumentValue(lw_ze_kernel *kernel, uint32_t index, size_t bytes, const void *value)
{
    CALLED();
    if (index != 0 || bytes != kernel->args_bytes) return LW_ZE_RESULT_ERROR_INVALID_ARGUMENT;
    memcpy(kernel->args, value, bytes);
    kernel->has_args = true;
    return LW_ZE_RESULT_SUCCESS;
}

/* ---- events ---- */

lw_ze_result zeEventPoolCreate(lw_ze_context *context, const lw_ze_event_pool_desc *desc, uint32_t count,
                               lw_ze_device **from, lw_ze_event_pool **out)
{
    CALLED();
    (void)context;
    (void)count;
    (void)from;
    const lw_ze_result result = object_make(sizeof **out, (void **)out);
    if (result == LW_ZE_RESULT_SUCCESS) (*out)->count = desc->count;
    return result;
}

lw_ze_result zeEventPoolDestroy(lw_ze_event_pool *pool)
{
    return object_free(pool);
}

lw_ze_result zeEventCreate(lw_ze_event_pool *pool, const lw_ze_event_desc *desc, lw_ze_event **out)
{
    CALLED();
    if (desc->index >= pool->count) return LW_ZE_RESULT_ERROR_INVALID_ARGUMENT;
    return object_make(sizeof **out, (void **)out);
}

lw_ze_result zeEventDestroy(lw_ze_event *event)
{
    return object_free(event);
}

static bool command_run(const command *c)
{
    if (c->to != NULL) memmove(c->to, c->from, c->bytes);
    if (c->fn != NULL) {
        emulated_launch launch = { .fn = c->fn, .args = c->args };
        memcpy(launch.groups, c->groups, sizeof launch.groups);
        memcpy(launch.items, c->items, sizeof launch.items);
        char error[256];
        lw_emulated.launches++;
        if (!emulated_run(&launch, error)) {
            misuse(error);
            fprintf(stderr, "emulated device: %s\n", error);
            return false;
        }
    }
    if (c->signal != NULL) {
        if (c->signal->signaled) misuse("an event was signaled twice");
        c->signal->signaled = true;
    }
    return true;
}

/* Everything up to the command that signals event. */
static bool list_run(lw_ze_list *list, const lw_ze_event *event)
{
    size_t done = 0;
    bool ok = true;
    while (ok && done < list->count && !event->signaled) ok = command_run(&list->commands[done++]);
    list->count -= done;
    memmove(list->commands, list->commands + done, list->count * sizeof *list->commands);
    return ok;
}

lw_ze_result zeEventHostSynchronize(lw_ze_event *event, uint64_t timeout_ns)
{
    CALLED();
    lw_emulated.waits++;
    if (timeout_ns == UINT64_MAX) misuse("a wait without an end");
    for (lw_ze_list *list = lists; list != NULL && !event->signaled; list = list->next) {
        if (!list_run(list, event)) return LW_ZE_RESULT_ERROR_DEVICE_LOST;
    }
    return event->signaled ? LW_ZE_RESULT_SUCCESS : LW_ZE_RESULT_NOT_READY;
}

lw_ze_result zeEventHostReset(lw_ze_event *event)
{
    CALLED();
    event->signaled = false;
    return LW_ZE_RESULT_SUCCESS;
}

/* ---- lists ---- */

lw_ze_result zeCommandListCreateImmediate(lw_ze_context *context, lw_ze_device *device,
                                          const lw_ze_queue_desc *desc, lw_ze_list **out)
{
    CALLED();
    (void)context;
    (void)device;
    if (desc->ordinal != 1 || desc->mode != LW_ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS)
        return LW_ZE_RESULT_ERROR_INVALID_ARGUMENT;
    const lw_ze_result result = object_make(sizeof **out, (void **)out);
    if (result != LW_ZE_RESULT_SUCCESS) return result;
    (*out)->next = lists;
    lists = *out;
    return LW_ZE_RESULT_SUCCESS;
}

lw_ze_result zeCommandListCreate(lw_ze_context *context, lw_ze_device *device, const lw_ze_list_desc *desc,
                                 lw_ze_list **out)
{
    CALLED();
    (void)context;
    (void)device;
    if (desc->stype != LW_ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC || desc->ordinal != 1)
        return LW_ZE_RESULT_ERROR_INVALID_ARGUMENT;
    const lw_ze_result result = object_make(sizeof **out, (void **)out);
    if (result == LW_ZE_RESULT_SUCCESS) (*out)->records = true;
    return result;
}

lw_ze_result zeCommandListClose(lw_ze_list *list)
{
    CALLED();
    if (!list->records || list->is_closed) return LW_ZE_RESULT_ERROR_INVALID_ARGUMENT;
    list->is_closed = true;
    return LW_ZE_RESULT_SUCCESS;
}

/* A recorded list goes while no command of it waits. */
static lw_ze_result recorded_destroy(lw_ze_list *list)
{
    for (const lw_ze_list *other = lists; other != NULL; other = other->next) {
        for (size_t i = 0; i < other->count; i++) {
            if (other->commands[i].recorded == list) misuse("a recorded list was destroyed before it ran");
        }
    }
    free(list->commands);
    return object_free(list);
}

lw_ze_result zeCommandListDestroy(lw_ze_list *list)
{
    if (list->records) return recorded_destroy(list);
    lw_ze_list **at = &lists;
    while (*at != NULL && *at != list) at = &(*at)->next;
    if (*at == NULL) return LW_ZE_RESULT_ERROR_INVALID_ARGUMENT;
    *at = list->next;
    free(list->commands);
    return object_free(list);
}

static lw_ze_result append(lw_ze_list *list, const command *c)
{
    if (list->is_closed) return LW_ZE_RESULT_ERROR_INVALID_ARGUMENT;
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity == 0 ? 64 : 2 * list->capacity;
        command *commands = realloc(list->commands, capacity * sizeof *commands);
        if (commands == NULL) return LW_ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        list->commands = commands;
        list->capacity = capacity;
    }
    list->commands[list->count++] = *c;
    return LW_ZE_RESULT_SUCCESS;
}

lw_ze_result zeCommandListAppendMemoryCopy(lw_ze_list *list, void *to, const void *from, size_t bytes,
                                           lw_ze_event *signal, uint32_t wait_count, lw_ze_event **waits)
{
    CALLED();
    (void)waits;
    if (wait_count != 0 || to == NULL || from == NULL) return LW_ZE_RESULT_ERROR_INVALID_ARGUMENT;
    return append(list, &(command){ .to = to, .from = from, .bytes = bytes, .signal = signal });
}

lw_ze_result zeCommandListAppendBarrier(lw_ze_list *list, lw_ze_event *signal, uint32_t wait_count,
                                        lw_ze_event **waits)
{
    CALLED();
    (void)waits;
    if (wait_count != 0) return LW_ZE_RESULT_ERROR_INVALID_ARGUMENT;
    return append(list, &(command){ .signal = signal });
}

lw_ze_result zeCommandListAppendLaunchKernel(lw_ze_list *list, lw_ze_kernel *kernel,
                                             const lw_ze_group_count *groups, lw_ze_event *signal,
                                             uint32_t wait_count, lw_ze_event **waits)
{
    CALLED();
    (void)waits;
    if (wait_count != 0 || !kernel->has_args || kernel->items[0] == 0 || groups->x == 0 || groups->y == 0)
        return LW_ZE_RESULT_ERROR_INVALID_ARGUMENT;
    if (!kernel->sees_memory) misuse("a launch of a kernel that may find memory not resident");
    command c = { .fn = kernel->fn, .groups = { groups->x, groups->y, groups->z }, .signal = signal };
    memcpy(c.items, kernel->items, sizeof c.items);
    memcpy(c.args, kernel->args, kernel->args_bytes);
    return append(list, &c);
}

lw_ze_result zeCommandListImmediateAppendCommandListsExp(lw_ze_list *list, uint32_t count,
                                                         lw_ze_list **closed, lw_ze_event *signal,
                                                         uint32_t wait_count, lw_ze_event **waits)
{
    CALLED();
    (void)waits;
    if (lw_emulated.runs_no_lists) return LW_ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    if (list->records || count != 1 || !closed[0]->is_closed || signal != NULL || wait_count != 0)
        return LW_ZE_RESULT_ERROR_INVALID_ARGUMENT;
    for (size_t i = 0; i < closed[0]->count; i++) {
        command c = closed[0]->commands[i];
        c.recorded = closed[0];
        const lw_ze_result result = append(list, &c);
        if (result != LW_ZE_RESULT_SUCCESS) return result;
    }
    return LW_ZE_RESULT_SUCCESS;
}
