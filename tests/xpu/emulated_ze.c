/* The entries of the emulated device; see emulated.h. They do what the specification says of them and refuse
 * what it forbids; every appended command waits until the host waits for an event, and those between which
 * nothing makes an order run the last one first.
 */
#include "emulated_entry.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    SYSTEM_PAGE = 4096,
    POISON = 0xCD,              /* fresh memory: a huge negative number as bf16 and as fp32 */
    NAME_BYTES = 64,
    NS = 1000000000,
};

struct lw_ze_context { int unused; };
struct lw_ze_event_pool { uint32_t count; };
struct lw_ze_event { bool signaled; };
struct lw_ze_build_log { char text[256]; };
/* Its files stay open: the system takes libraries of one name for the same, and the name is the descriptor.
 */
struct lw_ze_module {
    const emulated_kind *kind;
    emulated_image image;
    int files[EMULATED_WORKERS];
    void *libraries[EMULATED_WORKERS];
};
struct lw_ze_kernel {
    const emulated_kind *kind;
    emulated_kernel fns[EMULATED_WORKERS];
    uint32_t args_bytes, items[3];
    uint64_t local_bytes;
    bool has_args, sees_memory;
    uint8_t args[EMULATED_ARGUMENT_BYTES_MAX];
};

typedef struct command {
    void *to;                   /* of a copy; NULL: no copy */
    const void *from;
    size_t bytes;
    emulated_kernel fns[EMULATED_WORKERS];  /* of a launch; NULL: none */
    uint32_t groups[3], items[3];
    bool has_matrix;
    uint8_t args[EMULATED_ARGUMENT_BYTES_MAX];
    lw_ze_event *signal;
    bool is_ordered;                /* runs behind all before it, and before all behind it */
    const lw_ze_list *recorded;     /* the closed list that it came from; NULL: none */
} command;

struct lw_ze_list {
    command *commands;
    size_t count, capacity;
    bool records, is_closed;    /* a regular list: what is appended waits for it to be run */
    bool in_order;
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
static lw_ze_list *lists;
static allocation *allocations;

static void misuse(const char *what)
{
    if (lw_emulated.error[0] == '\0') snprintf(lw_emulated.error, sizeof lw_emulated.error, "%s", what);
}

lw_ze_result emulated_called(void)
{
    lw_emulated.calls++;
    if (emulated_settings.init_failed) lw_emulated.after_failed_init = true;
    if (emulated_settings.is_lost) return LW_ZE_RESULT_ERROR_DEVICE_LOST;
    if (lw_emulated.fail_at == 0 || --lw_emulated.fail_at > 0) return LW_ZE_RESULT_SUCCESS;
    /* What was lost runs nothing more. */
    for (lw_ze_list *list = lists; list != NULL; list = list->next) list->count = 0;
    return lw_emulated.fail_with;
}
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
    if (device < EMULATED_DEVICES_MAX && !emulated_settings.is_idle) memset(a->at, POISON, bytes);
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
    if (bytes > EMULATED_ALLOC_BYTES_MAX && !is_relaxed(desc->next))
        return LW_ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
    uint64_t *used = &lw_emulated.used_bytes[device->index];
    if (bytes > emulated_settings.card_bytes - *used) return LW_ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
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

/* A worker's own copy of the module. */
static lw_ze_result library_open(uint32_t worker, lw_ze_module *module, lw_ze_build_log **log)
{
    const emulated_image *image = &module->image;
    const int file = memfd_create("module", MFD_CLOEXEC);
    char path[64];
    module->files[worker] = file;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (file < 0 || write(file, image->bytes, image->count) != (ssize_t)image->count)
        return LW_ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    module->libraries[worker] = library;
    if (library == NULL) return module_failed(log, LW_ZE_RESULT_ERROR_MODULE_BUILD_FAILURE, dlerror());
    void (*attach)(const emulated_calls *, struct emulated_worker *, const lw_emulated_now *);
    *(void **)&attach = dlsym(library, "lw_emulated_attach");
    if (attach == NULL)
        return module_failed(log, LW_ZE_RESULT_ERROR_MODULE_LINK_FAILURE, "built without its glue");
    struct emulated_worker *w = emulated_worker_at(worker);
    attach(&emulated_kernel_calls, w, emulated_now_of(w));
    return LW_ZE_RESULT_SUCCESS;
}

lw_ze_result zeModuleCreate(lw_ze_context *context, lw_ze_device *device, const lw_ze_module_desc *desc,
                            lw_ze_module **out, lw_ze_build_log **log)
{
    CALLED();
    (void)context;
    emulated_image image;
    char why[128];
    if (!emulated_image_make(desc, &image, why))
        return module_failed(log, LW_ZE_RESULT_ERROR_INVALID_NATIVE_BINARY, why);
    lw_ze_result result = object_make(sizeof **out, (void **)out);
    if (result != LW_ZE_RESULT_SUCCESS) {
        free(image.bytes);
        return result;
    }
    (*out)->kind = device->kind;
    (*out)->image = image;
    for (uint32_t i = 0; i < EMULATED_WORKERS; i++) (*out)->files[i] = -1;
    for (uint32_t i = 0; result == LW_ZE_RESULT_SUCCESS && i < EMULATED_WORKERS; i++)
        result = library_open(i, *out, log);
    if (result != LW_ZE_RESULT_SUCCESS) zeModuleDestroy(*out);
    return result;
}

lw_ze_result zeModuleDestroy(lw_ze_module *module)
{
    for (uint32_t i = 0; i < EMULATED_WORKERS; i++) {
        if (module->libraries[i] != NULL) dlclose(module->libraries[i]);
        if (module->files[i] >= 0) close(module->files[i]);
    }
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
    snprintf(name, sizeof name, "lw_bytes_%.*s", NAME_BYTES, desc->name);
    const uint32_t *bytes = dlsym(module->libraries[0], name);
    if (bytes == NULL || *bytes > EMULATED_ARGUMENT_BYTES_MAX) return LW_ZE_RESULT_ERROR_INVALID_KERNEL_NAME;
    const lw_ze_result result = object_make(sizeof **out, (void **)out);
    if (result != LW_ZE_RESULT_SUCCESS) return result;
    snprintf(name, sizeof name, "lw_call_%.*s", NAME_BYTES, desc->name);
    for (uint32_t i = 0; i < EMULATED_WORKERS; i++)
        *(void **)&(*out)->fns[i] = dlsym(module->libraries[i], name);
    (*out)->kind = module->kind;
    (*out)->args_bytes = *bytes;
    (*out)->local_bytes = emulated_local_bytes(&module->image, desc->name);
    return LW_ZE_RESULT_SUCCESS;
}

/* Nothing spills: these kernels run on the host's own stack. */
lw_ze_result zeKernelGetProperties(lw_ze_kernel *kernel, lw_ze_kernel_properties *out)
{
    CALLED();
    (void)kernel;
    if (out->stype != LW_ZE_STRUCTURE_TYPE_KERNEL_PROPERTIES) return LW_ZE_RESULT_ERROR_INVALID_ARGUMENT;
    *out = (lw_ze_kernel_properties){ .stype = out->stype, .arguments = 1 };
    return LW_ZE_RESULT_SUCCESS;
}

lw_ze_result zeKernelDestroy(lw_ze_kernel *kernel)
{
    return object_free(kernel);
}

lw_ze_result zeKernelSetGroupSize(lw_ze_kernel *kernel, uint32_t x, uint32_t y, uint32_t z)
{
    CALLED();
    if (x == 0 || y == 0 || z == 0 || (uint64_t)x * y * z > kernel->kind->group_items_max)
        return LW_ZE_RESULT_ERROR_INVALID_ARGUMENT;
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

static bool is_of_host(const void *memory)
{
    const allocation *a = allocations;
    while (a != NULL &&
           ((const uint8_t *)memory < a->map || (const uint8_t *)memory >= a->map + a->map_bytes))
        a = a->next;
    return a != NULL && a->device == EMULATED_DEVICES_MAX;
}

static void copy_run(const command *c)
{
    if (!emulated_settings.is_idle) memmove(c->to, c->from, c->bytes);
    else if (is_of_host(c->to)) memset(c->to, 0, c->bytes);
}

static bool launch_run(const command *c)
{
    lw_emulated.launches++;
    emulated_settings.is_lost = lw_emulated.launches == emulated_settings.lose_at;
    emulated_settings.is_hung = lw_emulated.launches == emulated_settings.hang_at;
    if (emulated_settings.is_lost || emulated_settings.is_hung) return false;
    if (emulated_settings.is_idle) return true;
    emulated_launch launch = { .args = c->args, .workers = emulated_settings.workers,
                               .reduce = emulated_settings.reduce,
                               .has_matrix = c->has_matrix };
    memcpy(launch.kernels, c->fns, sizeof launch.kernels);
    memcpy(launch.groups, c->groups, sizeof launch.groups);
    memcpy(launch.items, c->items, sizeof launch.items);
    char error[256];
    if (emulated_run(&launch, error)) return true;
    misuse(error);
    fprintf(stderr, "emulated device: %s\n", error);
    return false;
}

static bool command_run(const command *c)
{
    if (c->to != NULL) copy_run(c);
    if (c->fns[0] != NULL && !launch_run(c)) return false;
    if (c->signal != NULL) {
        if (c->signal->signaled) misuse("an event was signaled twice");
        c->signal->signaled = true;
    }
    return true;
}

/* Everything up to the command that signals event, and what has no order with it. */
static bool list_run(lw_ze_list *list, const lw_ze_event *event)
{
    size_t done = 0;
    bool ok = true;
    while (ok && done < list->count && !event->signaled) {
        size_t end = done;
        while (end < list->count && !list->commands[end].is_ordered) end++;
        for (size_t at = end; ok && at > done; at--) ok = command_run(&list->commands[at - 1]);
        if (ok && end < list->count) ok = command_run(&list->commands[end++]);
        done = end;
    }
    list->count -= done;
    memmove(list->commands, list->commands + done, list->count * sizeof *list->commands);
    return ok;
}

/* As long as the host would wait for a device that does nothing. */
static lw_ze_result hang(uint64_t timeout_ns)
{
    const struct timespec time = { .tv_sec = (time_t)(timeout_ns / NS), .tv_nsec = (long)(timeout_ns % NS) };
    nanosleep(&time, NULL);
    return LW_ZE_RESULT_NOT_READY;
}

lw_ze_result zeEventHostSynchronize(lw_ze_event *event, uint64_t timeout_ns)
{
    lw_emulated.waits++;
    lw_emulated.wait_ns = timeout_ns;
    CALLED();
    if (timeout_ns == UINT64_MAX) misuse("a wait without an end");
    for (lw_ze_list *list = lists; list != NULL && !event->signaled && !emulated_settings.is_hung;
         list = list->next) {
        if (!list_run(list, event) && !emulated_settings.is_hung) return LW_ZE_RESULT_ERROR_DEVICE_LOST;
    }
    if (event->signaled) return LW_ZE_RESULT_SUCCESS;
    return emulated_settings.is_hung ? hang(timeout_ns) : LW_ZE_RESULT_NOT_READY;
}

lw_ze_result zeEventHostReset(lw_ze_event *event)
{
    CALLED();
    event->signaled = false;
    return LW_ZE_RESULT_SUCCESS;
}

/* ---- lists ---- */

static uint32_t known_queue_flags(void)
{
    enum { EXPLICIT_ONLY = 1 };
    const bool has_order = emulated_settings.api_version >= EMULATED_API_VERSION(1, 7);
    return EXPLICIT_ONLY | (has_order && !lw_emulated.refuses_order ? LW_ZE_COMMAND_QUEUE_FLAG_IN_ORDER : 0);
}

lw_ze_result zeCommandListCreateImmediate(lw_ze_context *context, lw_ze_device *device,
                                          const lw_ze_queue_desc *desc, lw_ze_list **out)
{
    CALLED();
    (void)context;
    (void)device;
    if (desc->ordinal != 1 || desc->mode != LW_ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS)
        return LW_ZE_RESULT_ERROR_INVALID_ARGUMENT;
    /* Flags that a driver does not know, lists in order before 1.7 among them, are refused. */
    if ((desc->flags & ~known_queue_flags()) != 0) return LW_ZE_RESULT_ERROR_INVALID_ENUMERATION;
    const lw_ze_result result = object_make(sizeof **out, (void **)out);
    if (result != LW_ZE_RESULT_SUCCESS) return result;
    (*out)->in_order = (desc->flags & LW_ZE_COMMAND_QUEUE_FLAG_IN_ORDER) != 0;
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
    if (desc->stype != LW_ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC || desc->ordinal != 1 || desc->flags != 0)
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
    list->commands[list->count] = *c;
    list->commands[list->count++].is_ordered |= list->in_order && c->recorded == NULL;
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
    return append(list, &(command){ .signal = signal, .is_ordered = true });
}

lw_ze_result zeCommandListAppendLaunchKernel(lw_ze_list *list, lw_ze_kernel *kernel,
                                             const lw_ze_group_count *groups, lw_ze_event *signal,
                                             uint32_t wait_count, lw_ze_event **waits)
{
    CALLED();
    (void)waits;
    if (wait_count != 0 || !kernel->has_args || kernel->items[0] == 0 || groups->x == 0 || groups->y == 0)
        return LW_ZE_RESULT_ERROR_INVALID_ARGUMENT;
    if (kernel->local_bytes > kernel->kind->local_bytes_max) {
        misuse("a kernel wants more local memory than the device has");
        return LW_ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    if (!kernel->sees_memory) misuse("a launch of a kernel that may find memory not resident");
    command c = { .groups = { groups->x, groups->y, groups->z }, .signal = signal,
                  .has_matrix = kernel->kind->has_matrix };
    memcpy(c.fns, kernel->fns, sizeof c.fns);
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
    /* A list in order takes what it is given as one command, whose own are ordered as they were recorded. */
    return list->in_order ? append(list, &(command){ .is_ordered = true }) : LW_ZE_RESULT_SUCCESS;
}
