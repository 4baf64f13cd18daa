/* Context, memory and command list of one device; see queue.h. Drivers before specification 1.7 have no lists
 * in order: there barriers make it. Waiting is by events everywhere: a wait for a list would be one for all
 * that was appended, while a submission that is waited for may have another behind it.
 */
#include "device/xpu/queue.h"

#include "base/size.h"

#include <stdlib.h>
#include <string.h>

enum {
    QUEUE_GROUPS_MAX = 16,
    ALIGN_BYTES = 64,
    API_IN_ORDER = 1 << 16 | 7, /* the specification's version that has lists in order */
    WAIT_S_LOST = 1,            /* for what a lost one may still run, before memory is freed under it */
};

/* The group of queues that compute; the specification lets it stand anywhere. */
static lw_status compute_group(const lw_device *device, uint32_t *ordinal, lw_diag *d)
{
    lw_ze_queue_group_properties groups[QUEUE_GROUPS_MAX];
    memset(groups, 0, sizeof groups);
    for (size_t i = 0; i < QUEUE_GROUPS_MAX; i++)
        groups[i].stype = LW_ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES;
    uint32_t count = 0;
    const lw_ze *ze = &device->ze;
    lw_ze_result result = ze->zeDeviceGetCommandQueueGroupProperties(device->info.device, &count, NULL);
    if (count > QUEUE_GROUPS_MAX) count = QUEUE_GROUPS_MAX;
    if (result == LW_ZE_RESULT_SUCCESS && count > 0)
        result = ze->zeDeviceGetCommandQueueGroupProperties(device->info.device, &count, groups);
    if (result != LW_ZE_RESULT_SUCCESS) return lw_ze_fail(d, result, "the queues of %s", device->info.name);
    for (uint32_t i = 0; i < count && i < QUEUE_GROUPS_MAX; i++) {
        *ordinal = i;
        if ((groups[i].flags & LW_ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE) != 0) return LW_OK;
    }
    return lw_fail(d, LW_UNSUPPORTED, "%s has no queue that computes", device->info.name);
}

static lw_status events_make(lw_device *device, lw_diag *d)
{
    const lw_ze *ze = &device->ze;
    const lw_ze_event_pool_desc pool = { .stype = LW_ZE_STRUCTURE_TYPE_EVENT_POOL_DESC,
                                         .flags = LW_ZE_EVENT_POOL_FLAG_HOST_VISIBLE,
                                         .count = LW_XPU_EVENTS };
    lw_ze_result result =
        ze->zeEventPoolCreate(device->context, &pool, 1, &device->info.device, &device->pool);
    if (result != LW_ZE_RESULT_SUCCESS) {
        device->pool = NULL;
        return lw_ze_fail(d, result, "an event pool on %s", device->info.name);
    }
    for (uint32_t i = 0; i < LW_XPU_EVENTS; i++) {
        const lw_ze_event_desc desc = { .stype = LW_ZE_STRUCTURE_TYPE_EVENT_DESC, .index = i,
                                        .signal = LW_ZE_EVENT_SCOPE_FLAG_HOST,
                                        .wait = LW_ZE_EVENT_SCOPE_FLAG_HOST };
        result = ze->zeEventCreate(device->pool, &desc, &device->events[i]);
        if (result == LW_ZE_RESULT_SUCCESS) continue;
        device->events[i] = NULL;
        return lw_ze_fail(d, result, "an event on %s", device->info.name);
    }
    return LW_OK;
}

/* In order, where the driver's version has that. An older loader's layers may still refuse the flag, which
 * they do not know. */
static lw_status list_make(lw_device *device, lw_diag *d)
{
    lw_ze_queue_desc desc = { .stype = LW_ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC,
                              .mode = LW_ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS };
    const lw_status status = compute_group(device, &desc.ordinal, d);
    if (status != LW_OK) return status;
    device->ordinal = desc.ordinal;
    device->in_order = device->info.api_version >= API_IN_ORDER && !device->off[LW_XPU_SWITCH_in_order];
    desc.flags = device->in_order ? LW_ZE_COMMAND_QUEUE_FLAG_IN_ORDER : 0;
    const lw_ze *ze = &device->ze;
    lw_ze_result result =
        ze->zeCommandListCreateImmediate(device->context, device->info.device, &desc, &device->list);
    if (device->in_order && result == LW_ZE_RESULT_ERROR_INVALID_ENUMERATION) {
        device->in_order = false;
        desc.flags = 0;
        result = ze->zeCommandListCreateImmediate(device->context, device->info.device, &desc, &device->list);
    }
    if (result == LW_ZE_RESULT_SUCCESS) return LW_OK;
    device->list = NULL;
    return lw_ze_fail(d, result, "a command list on %s", device->info.name);
}

lw_status lw__xpu_host_alloc(lw_device *device, size_t bytes, uint8_t **out, lw_diag *d)
{
    const lw_ze_flags_desc desc = { .stype = LW_ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC };
    void *at = NULL;
    const lw_ze_result result =
        device->ze.zeMemAllocHost(device->context, &desc, bytes, ALIGN_BYTES, &at);
    *out = result == LW_ZE_RESULT_SUCCESS ? at : NULL;
    if (result == LW_ZE_RESULT_SUCCESS) return LW_OK;
    return lw_ze_fail(d, result, "%zu bytes of host memory for copies to and from %s", bytes,
                      device->info.name);
}

void lw__xpu_host_free(lw_device *device, uint8_t *memory)
{
    if (memory != NULL) device->ze.zeMemFree(device->context, memory);
}

lw_status lw__xpu_queue_open(lw_device *device, lw_diag *d)
{
    const lw_ze_context_desc desc = { .stype = LW_ZE_STRUCTURE_TYPE_CONTEXT_DESC };
    const lw_ze_result result = device->ze.zeContextCreate(device->info.driver, &desc, &device->context);
    if (result != LW_ZE_RESULT_SUCCESS) {
        device->context = NULL;
        return lw_ze_fail(d, result, "a context on %s", device->info.name);
    }
    lw_status status = list_make(device, d);
    if (status == LW_OK) status = events_make(device, d);
    if (status == LW_OK) {
        const size_t bytes = (size_t)LW_XPU_STAGING_HALVES * LW_XPU_STAGING_BYTES;
        status = lw__xpu_host_alloc(device, bytes, &device->staging, d);
    }
    return status;
}

void lw__xpu_drain(lw_device *device)
{
    const lw_status status = lw__xpu_sync(device, NULL);
    /* What a lost device still runs is not waited for any longer. */
    if (status != LW_OK) memset(device->staged, 0, sizeof device->staged);
}

void lw__xpu_queue_close(lw_device *device)
{
    const lw_ze *ze = &device->ze;
    if (device->staging != NULL) lw__xpu_drain(device);
    for (uint32_t i = 0; i < LW_XPU_KERNEL_COUNT; i++) {
        if (device->kernels[i] != NULL) ze->zeKernelDestroy(device->kernels[i]);
    }
    if (device->module != NULL) ze->zeModuleDestroy(device->module);
    lw__xpu_host_free(device, device->staging);
    for (uint32_t i = 0; i < LW_XPU_EVENTS; i++) {
        if (device->events[i] != NULL) ze->zeEventDestroy(device->events[i]);
    }
    if (device->pool != NULL) ze->zeEventPoolDestroy(device->pool);
    if (device->list != NULL) ze->zeCommandListDestroy(device->list);
    if (device->context != NULL) ze->zeContextDestroy(device->context);
    free(device->tape.bytes);
}

/* ---- memory ---- */

lw_status lw__xpu_alloc(lw_device *device, size_t bytes, lw_xpu_memory *out, lw_diag *d)
{
    const lw_ze_flags_desc relaxed = { .stype = LW_ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC,
                                       .flags = LW_ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE };
    const lw_ze_device_mem_alloc_desc desc = { .stype = LW_ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC,
                                               .next = bytes > device->info.alloc_bytes_max ? &relaxed
                                                                                            : NULL };
    void *at = NULL;
    *out = (lw_xpu_memory){ .at = NULL };
    bytes = size_max(bytes, ALIGN_BYTES);
    const lw_ze_result result = device->ze.zeMemAllocDevice(device->context, &desc, bytes, ALIGN_BYTES,
                                                            device->info.device, &at);
    if (result != LW_ZE_RESULT_SUCCESS)
        return lw_ze_fail(d, result, "%zu bytes on %s", bytes, device->info.name);
    *out = (lw_xpu_memory){ .at = at, .bytes = bytes };
    device->own_bytes += bytes;
    return LW_OK;
}

void lw__xpu_free(lw_device *device, lw_xpu_memory *memory)
{
    if (memory->at == NULL) return;
    device->ze.zeMemFree(device->context, memory->at);
    device->own_bytes -= memory->bytes;
    *memory = (lw_xpu_memory){ .at = NULL };
}

/* ---- the list ---- */

/* The event is reset here and not after a wait, so that one whose wait failed tells nothing of the next. */
lw_status lw__xpu_barrier(lw_device *device, lw_ze_list *list, lw_ze_event *event, lw_diag *d)
{
    lw_ze_result result = LW_ZE_RESULT_SUCCESS;
    if (event == NULL && device->in_order && list == device->list) return LW_OK;
    if (event != NULL) result = device->ze.zeEventHostReset(event);
    if (result == LW_ZE_RESULT_SUCCESS)
        result = device->ze.zeCommandListAppendBarrier(list, event, 0, NULL);
    device->counts.commands++;
    if (result == LW_ZE_RESULT_SUCCESS) return LW_OK;
    return lw_ze_fail(d, result, "a barrier on %s", device->info.name);
}

/* However a wait fails, what was appended may still run, and nobody knows what it leaves: the device is
 * lost. */
static lw_status event_wait(lw_device *device, lw_ze_event *event, lw_diag *d)
{
    const uint64_t seconds = device->is_lost ? WAIT_S_LOST : device->wait_s;
    const lw_ze_result result = device->ze.zeEventHostSynchronize(event, seconds * UINT64_C(1000000000));
    if (result == LW_ZE_RESULT_SUCCESS) return LW_OK;
    device->is_lost = true;
    if (result == LW_ZE_RESULT_NOT_READY) {
        return lw_fail(d, LW_DEVICE_LOST,
                       "waiting for %s: it did not finish in %d s: it hangs, or is too slow for so many rows "
                       "at once (a smaller --chunk makes them fewer)", device->info.name, (int)seconds);
    }
    (void)lw_ze_fail(d, result, "waiting for %s", device->info.name);
    return LW_DEVICE_LOST;
}

lw_status lw__xpu_lost(const lw_device *device, lw_diag *d)
{
    if (!device->is_lost) return LW_OK;
    return lw_fail(d, LW_DEVICE_LOST, "%s is lost: it is used no more until it is opened again",
                   device->info.name);
}

static lw_status copy_append(lw_device *device, void *to, const void *from, size_t bytes, lw_diag *d)
{
    const lw_status status = lw__xpu_lost(device, d);
    if (status != LW_OK) return status;
    const lw_ze_result result =
        device->ze.zeCommandListAppendMemoryCopy(device->list, to, from, bytes, NULL, 0, NULL);
    device->counts.commands++;
    if (result == LW_ZE_RESULT_SUCCESS) return LW_OK;
    return lw_ze_fail(d, result, "a copy of %zu bytes on %s", bytes, device->info.name);
}

lw_status lw__xpu_copy(lw_device *device, void *to, const void *from, size_t bytes, lw_diag *d)
{
    const lw_status status = copy_append(device, to, from, bytes, d);
    return status == LW_OK ? lw__xpu_barrier(device, device->list, NULL, d) : status;
}

/* Once all that was appended is done. */
static void staging_empty(lw_device *device)
{
    memset(device->staged, 0, sizeof device->staged);
    device->half_used = 0;
}

lw_status lw__xpu_sync(lw_device *device, lw_diag *d)
{
    lw_ze_event *done = device->events[LW_XPU_STAGING_HALVES];
    lw_status status = lw__xpu_barrier(device, device->list, done, d);
    if (status == LW_OK) status = event_wait(device, done, d);
    if (status == LW_OK) staging_empty(device);
    return status;
}

static lw_ze_event *mark_event(const lw_device *device, uint32_t mark)
{
    LW_ASSERT(mark < LW_XPU_MARKS);
    return device->events[LW_XPU_STAGING_HALVES + 1 + mark];
}

lw_status lw__xpu_mark(lw_device *device, uint32_t mark, lw_diag *d)
{
    device->staged_mark = mark;
    return lw__xpu_barrier(device, device->list, mark_event(device, mark), d);
}

lw_status lw__xpu_mark_wait(lw_device *device, uint32_t mark, lw_diag *d)
{
    const lw_status status = event_wait(device, mark_event(device, mark), d);
    if (status == LW_OK && device->staged_mark == mark) staging_empty(device);
    return status;
}

/* Room in the half of the staging memory that is being filled; where it is full, in the other one, once the
 * copies from there are done. */
lw_status lw__xpu_stage(lw_device *device, size_t bytes, uint8_t **at, lw_diag *d)
{
    LW_ASSERT(bytes <= LW_XPU_STAGING_BYTES);
    device->staged_mark = LW_XPU_MARKS;
    if (bytes > LW_XPU_STAGING_BYTES - device->half_used) {
        lw_status status = lw__xpu_barrier(device, device->list, device->events[device->half], d);
        if (status != LW_OK) return status;
        device->staged[device->half] = true;
        device->half = (device->half + 1) % LW_XPU_STAGING_HALVES;
        device->half_used = 0;
        if (device->staged[device->half]) status = event_wait(device, device->events[device->half], d);
        device->staged[device->half] = false;
        if (status != LW_OK) return status;
    }
    *at = device->staging + (size_t)device->half * LW_XPU_STAGING_BYTES + device->half_used;
    device->half_used +=
        size_min(size_round_up(bytes, ALIGN_BYTES), LW_XPU_STAGING_BYTES - device->half_used);
    return LW_OK;
}

lw_status lw__xpu_stage_copy(lw_device *device, void *to, const uint8_t *from, size_t bytes, lw_diag *d)
{
    LW_ASSERT(from >= device->staging);
    LW_ASSERT(from + bytes <= device->staging + (size_t)LW_XPU_STAGING_HALVES * LW_XPU_STAGING_BYTES);
    return copy_append(device, to, from, bytes, d);
}

lw_status lw__xpu_upload(lw_device *device, void *to, const void *from, size_t bytes, lw_diag *d)
{
    for (size_t done = 0; done < bytes;) {
        const size_t count = size_min(bytes - done, LW_XPU_STAGING_BYTES);
        uint8_t *staged = NULL;
        lw_status status = lw__xpu_stage(device, count, &staged, d);
        if (status != LW_OK) return status;
        memcpy(staged, (const uint8_t *)from + done, count);
        status = copy_append(device, (uint8_t *)to + done, staged, count, d);
        if (status != LW_OK) return status;
        done += count;
    }
    return lw__xpu_barrier(device, device->list, NULL, d);
}

lw_status lw__xpu_download(lw_device *device, void *to, const void *from, size_t bytes, lw_diag *d)
{
    for (size_t done = 0; done < bytes;) {
        const size_t count = size_min(bytes - done, LW_XPU_STAGING_BYTES);
        uint8_t *staged = NULL;
        lw_status status = lw__xpu_stage(device, count, &staged, d);
        if (status == LW_OK) status = copy_append(device, staged, (const uint8_t *)from + done, count, d);
        if (status == LW_OK) status = lw__xpu_sync(device, d);
        if (status != LW_OK) return status;
        memcpy((uint8_t *)to + done, staged, count);
        done += count;
    }
    return LW_OK;
}
