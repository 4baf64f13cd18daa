/* Launches on their way to the device. A submission's launches are first written down, byte for byte; where
 * the same ones ran before, the closed command list that was recorded of them runs again, and the host pays
 * for one command in place of hundreds. All that differs between two such submissions lies in the tables, in
 * device memory.
 *
 * A list is found by comparing every launch with what it was recorded from, its grid and arguments too: a
 * replay can differ from launching one by one in nothing.
 */
#include "device/xpu/exec.h"

#include "base/size.h"

#include <stdlib.h>
#include <string.h>

enum {
    TAPE_BYTES_LEAST = 1 << 16,
    ARGS_ALIGN = 8,
};

/* One launch on the tape; its arguments follow. Members leave no gaps, so that bytes can be compared. */
typedef struct taped {
    uint32_t kernel, items_x, items_y, groups_x, groups_y, args_bytes;
} taped;

static lw_status tape_reserve(lw_xpu_tape *tape, size_t more, lw_diag *d)
{
    const size_t needed = tape->count + more;
    if (needed <= tape->capacity) return LW_OK;
    const size_t capacity = size_max(needed + needed / 2, TAPE_BYTES_LEAST);
    uint8_t *bytes = realloc(tape->bytes, capacity);
    if (bytes == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for a forward's %u launches", tape->launches);
    tape->bytes = bytes;
    tape->capacity = capacity;
    return LW_OK;
}

lw_status lw__xpu_launch(lw_device *device, const lw_xpu_launch *launch, lw_diag *d)
{
    lw_xpu_tape *tape = &device->tape;
    const size_t args_bytes = size_round_up(launch->args_bytes, ARGS_ALIGN);
    lw_status status = lw__xpu_lost(device, d);
    if (status == LW_OK) status = tape_reserve(tape, sizeof(taped) + args_bytes, d);
    if (status != LW_OK) return status;
    const taped head = { launch->kernel,   launch->items_x,  launch->items_y,
                         launch->groups_x, launch->groups_y, (uint32_t)launch->args_bytes };
    memcpy(tape->bytes + tape->count, &head, sizeof head);
    memset(tape->bytes + tape->count + sizeof head, 0, args_bytes);
    memcpy(tape->bytes + tape->count + sizeof head, launch->args, launch->args_bytes);
    tape->count += sizeof head + args_bytes;
    tape->launches++;
    return LW_OK;
}

static lw_status launch_append(lw_device *device, lw_ze_list *list, const taped *head, const uint8_t *args,
                               lw_diag *d)
{
    const lw_ze *ze = &device->ze;
    lw_ze_kernel *kernel = device->kernels[head->kernel];
    const lw_ze_group_count groups = { head->groups_x, head->groups_y, 1 };
    lw_ze_result result = ze->zeKernelSetGroupSize(kernel, head->items_x, head->items_y, 1);
    if (result == LW_ZE_RESULT_SUCCESS)
        result = ze->zeKernelSetArgumentValue(kernel, 0, head->args_bytes, args);
    if (result == LW_ZE_RESULT_SUCCESS)
        result = ze->zeCommandListAppendLaunchKernel(list, kernel, &groups, NULL, 0, NULL);
    if (result != LW_ZE_RESULT_SUCCESS)
        return lw_ze_fail(d, result, "kernel %u on %s", head->kernel, device->info.name);
    device->counts.commands++;
    return lw__xpu_barrier(device, list, NULL, d);
}

/* Everything on the tape, to list. */
static lw_status tape_append(lw_device *device, lw_ze_list *list, lw_diag *d)
{
    const lw_xpu_tape *tape = &device->tape;
    for (size_t at = 0; at < tape->count;) {
        taped head;
        memcpy(&head, tape->bytes + at, sizeof head);
        at += sizeof head;
        const lw_status status = launch_append(device, list, &head, tape->bytes + at, d);
        if (status != LW_OK) return status;
        at += size_round_up(head.args_bytes, ARGS_ALIGN);
    }
    return LW_OK;
}

/* ---- recorded lists ---- */

static void record_free(lw_device *device, lw_xpu_record *record)
{
    if (record->list != NULL) device->ze.zeCommandListDestroy(record->list);
    free(record->bytes);
    *record = (lw_xpu_record){ .list = NULL };
}

void lw__xpu_records_free(lw_exec *exec)
{
    for (uint32_t i = 0; i < exec->records.count; i++) record_free(exec->device, &exec->records.all[i]);
    exec->records.count = 0;
}

static lw_xpu_record *record_find(lw_xpu_records *records, const lw_xpu_tape *tape)
{
    for (uint32_t i = 0; i < records->count; i++) {
        lw_xpu_record *r = &records->all[i];
        if (r->count == tape->count && memcmp(r->bytes, tape->bytes, tape->count) == 0) return r;
    }
    return NULL;
}

/* A place for one more: where none is left, that of the list which was not run for longest. */
static lw_status record_place(lw_exec *exec, lw_xpu_record **out, lw_diag *d)
{
    lw_xpu_records *records = &exec->records;
    if (records->count < LW_XPU_RECORDS_MAX) {
        *out = &records->all[records->count];
        return LW_OK;
    }
    lw_xpu_record *oldest = &records->all[0];
    for (uint32_t i = 1; i < records->count; i++)
        oldest = records->all[i].used < oldest->used ? &records->all[i] : oldest;
    const lw_status status = lw__xpu_sync(exec->device, d);
    if (status != LW_OK) return status;
    record_free(exec->device, oldest);
    *oldest = records->all[--records->count];
    *out = &records->all[records->count];
    **out = (lw_xpu_record){ .list = NULL };
    return LW_OK;
}

static lw_status list_record(lw_device *device, lw_xpu_record *record, lw_diag *d)
{
    const lw_ze_list_desc desc = { .stype = LW_ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC,
                                   .ordinal = device->ordinal };
    lw_ze_result result =
        device->ze.zeCommandListCreate(device->context, device->info.device, &desc, &record->list);
    if (result != LW_ZE_RESULT_SUCCESS) {
        record->list = NULL;
        return lw_ze_fail(d, result, "a command list to record on %s", device->info.name);
    }
    const lw_status status = tape_append(device, record->list, d);
    if (status != LW_OK) return status;
    result = device->ze.zeCommandListClose(record->list);
    if (result == LW_ZE_RESULT_SUCCESS) return LW_OK;
    return lw_ze_fail(d, result, "closing a recorded list on %s", device->info.name);
}

static lw_status record_make(lw_exec *exec, lw_xpu_record **out, lw_diag *d)
{
    lw_device *device = exec->device;
    const lw_xpu_tape *tape = &device->tape;
    lw_xpu_record *record = NULL;
    lw_status status = record_place(exec, &record, d);
    if (status != LW_OK) return status;
    record->bytes = malloc(tape->count);
    if (record->bytes == NULL)
        return lw_fail(d, LW_NO_ROOM, "no memory to record a forward's %u launches", tape->launches);
    memcpy(record->bytes, tape->bytes, tape->count);
    record->count = tape->count;
    record->launches = tape->launches;
    status = list_record(device, record, d);
    if (status != LW_OK) {
        record_free(device, record);
        return status;
    }
    exec->records.count++;
    *out = record;
    return LW_OK;
}

/* Appends a recorded list; *runs false, and nothing was appended, where the driver cannot. */
static lw_status record_append(lw_device *device, const lw_xpu_record *record, bool *runs, lw_diag *d)
{
    lw_ze_list *list = record->list;
    const lw_ze_result result = device->ze.zeCommandListImmediateAppendCommandListsExp(device->list, 1, &list,
                                                                                       NULL, 0, NULL);
    *runs = result != LW_ZE_RESULT_ERROR_UNSUPPORTED_FEATURE;
    if (!*runs) return LW_OK;
    if (result != LW_ZE_RESULT_SUCCESS)
        return lw_ze_fail(d, result, "a recorded list on %s", device->info.name);
    device->counts.commands++;
    return lw__xpu_barrier(device, device->list, NULL, d);
}

/* *runs false: this device launches one by one. */
static lw_status replay(lw_exec *exec, bool *runs, lw_diag *d)
{
    lw_device *device = exec->device;
    lw_xpu_record *record = record_find(&exec->records, &device->tape);
    lw_status status = LW_OK;
    if (record == NULL) status = record_make(exec, &record, d);
    if (status != LW_OK) return status;
    record->used = ++exec->records.clock;
    status = record_append(device, record, runs, d);
    device->replays = *runs;
    return status;
}

void lw__xpu_tape_begin(lw_device *device)
{
    device->tape.count = 0;
    device->tape.launches = 0;
}

lw_status lw__xpu_tape_run(lw_exec *exec, bool is_usual, lw_diag *d)
{
    lw_device *device = exec->device;
    bool runs = false;
    lw_status status = LW_OK;
    if (device->tape.count == 0) return LW_OK;
    if (device->replays && is_usual) status = replay(exec, &runs, d);
    if (status == LW_OK && !runs) status = tape_append(device, device->list, d);
    if (status == LW_OK) device->counts.launches += device->tape.launches;
    lw__xpu_tape_begin(device);
    return status;
}
