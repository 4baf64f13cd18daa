/* The xpu device: opening it, compiling a plan for it, and the contract's table. A submission is appended
 * whole; what is appended later runs after it, so that several may be under way.
 */
#include "device/xpu/xpu.h"
#include "device/xpu/matrix.h"
#include "device/xpu/spirv.h"

#include "base/size.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    EXEC_BYTES_MAX = 1 << 30,
    WAIT_S_USUAL = 120, /* for the longest forward: a device that takes longer is hung */
};

/* ---- the device ---- */

static void xpu_close(lw_device *device)
{
    if (device == NULL) return;
    lw__xpu_queue_close(device);
    lw_ze_close(&device->ze);
    free(device->module_path);
    free(device->images);
    free(device);
}

static lw_status device_choose(lw_device *device, const char *which, lw_diag *d)
{
    lw_xpu_list *list = calloc(1, sizeof *list);
    if (list == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for the list of devices");
    const lw_xpu_info *info = NULL;
    lw_status status = lw_xpu_find(&device->ze, list, d);
    if (status == LW_OK) status = lw_xpu_choose(list, which, &info, d);
    if (status == LW_OK) device->info = *info;
    free(list);
    return status;
}

static lw_status sub_groups_check(const lw_xpu_info *info, lw_diag *d)
{
    for (uint32_t i = 0; i < info->sub_group_size_count; i++) {
        if (info->sub_group_sizes[i] == LW_XPU_LANES) return LW_OK;
    }
    return lw_fail(d, LW_UNSUPPORTED, "%s has no sub-groups of %d", info->name, LW_XPU_LANES);
}

/* NULL for an empty one. */
static lw_status path_keep(const char *path, char **out, lw_diag *d)
{
    if (path == NULL || path[0] == '\0') return LW_OK;
    *out = strdup(path);
    return *out != NULL ? LW_OK : lw_fail(d, LW_NO_ROOM, "no memory for the xpu device");
}

static const char *const switch_names[] = {
#define LW_XPU_SWITCH(name) #name,
#include "device/xpu/switches.list"
#undef LW_XPU_SWITCH
};

/* Switches off what the names say, with commas between. */
static lw_status switches_read(lw_device *device, const char *names, lw_diag *d)
{
    while (names != NULL && *names != '\0') {
        const size_t length = strcspn(names, ",");
        uint32_t at = 0;
        while (at < LW_XPU_SWITCH_COUNT
               && (strlen(switch_names[at]) != length || memcmp(switch_names[at], names, length) != 0))
            at++;
        if (at == LW_XPU_SWITCH_COUNT) {
            return lw_fail(d, LW_BAD_INPUT,
                           "the xpu device cannot do without \"%.*s\": there is no such thing", (int)length,
                           names);
        }
        device->off[at] = true;
        names += length + (names[length] == ',');
    }
    return LW_OK;
}

static lw_status xpu_open(const lw_device_options *options, lw_device **out, lw_diag *d)
{
    *out = NULL;
    if (options->isa != NULL) return lw_fail(d, LW_UNSUPPORTED, "the xpu device has no instruction sets");
    lw_device *device = calloc(1, sizeof *device);
    if (device == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for the xpu device");
    lw_status status = lw_ze_open(&device->ze, options->ze_loader, d);
    if (status == LW_OK) status = path_keep(options->xpu_kernels, &device->module_path, d);
    if (status == LW_OK) status = path_keep(options->xpu_images, &device->images, d);
    for (uint32_t i = LW_XPU_SWITCH_sums; i < LW_XPU_SWITCH_COUNT; i++) device->off[i] = options->fusions_off;
    if (status == LW_OK) status = switches_read(device, options->without, d);
    device->wait_s = options->wait_s != 0 ? options->wait_s : WAIT_S_USUAL;
    if (status == LW_OK) status = device_choose(device, options->which, d);
    if (status == LW_OK) status = sub_groups_check(&device->info, d);
    if (status == LW_OK) status = lw__xpu_queue_open(device, d);
    device->replays =
        !device->off[LW_XPU_SWITCH_replay] && device->ze.zeCommandListImmediateAppendCommandListsExp != NULL;
    if (status != LW_OK) {
        xpu_close(device);
        return status;
    }
    *out = device;
    return LW_OK;
}

static lw_status xpu_count(const lw_device_options *options, uint32_t *count, lw_diag *d)
{
    lw_ze ze;
    *count = 0;
    lw_xpu_list *list = calloc(1, sizeof *list);
    if (list == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for the list of devices");
    lw_status status = lw_ze_open(&ze, options->ze_loader, d);
    if (status == LW_OK) {
        status = lw_xpu_find(&ze, list, d);
        lw_ze_close(&ze);
    }
    if (status == LW_OK) *count = list->count;
    free(list);
    return status;
}

static void xpu_describe(const lw_device *device, char *text, size_t text_bytes)
{
    const lw_xpu_info *info = &device->info;
    const bool has_kernels = device->module_path != NULL || lw_xpu_spirv_view(info->has_dpas).count > 0;
    char sizes[64] = "";
    for (uint32_t i = 0; i < info->sub_group_size_count; i++) {
        const size_t at = strlen(sizes);
        snprintf(sizes + at, sizeof sizes - at, "%s%u", i == 0 ? "" : "/", info->sub_group_sizes[i]);
    }
    snprintf(text, text_bytes, "xpu (%s%s%s, %s, %.1f GiB, sub-groups of %s, %u tile%s%s)", info->name,
             info->pci[0] != '\0' ? ", " : "", info->pci, info->integrated ? "integrated" : "discrete",
             (double)info->memory_bytes / (double)(1 << 30), sizes, info->tiles, info->tiles == 1 ? "" : "s",
             has_kernels ? "" : ", but this build has no kernels for it");
}

/* The driver backs an allocation when it is first written, so that Sysman alone would promise it twice. */
static uint64_t xpu_free_bytes(const lw_device *device)
{
    const uint64_t all = device->info.memory_bytes, own = device->own_bytes;
    const uint64_t left = all > own ? all - own : 0;
    uint64_t free_bytes = 0;
    if (!lw_xpu_sysman_free(&device->ze, device->info.uuid, &free_bytes)) return left;
    return free_bytes < left ? free_bytes : left;
}

static uint32_t xpu_wait_s(const lw_device *device)
{
    return device->wait_s;
}

static void xpu_read_counts(const lw_device *device, lw_device_counts *counts)
{
    *counts = device->counts;
}

static bool xpu_goes_ahead(const lw_device *device)
{
    return !device->off[LW_XPU_SWITCH_ahead];
}

static uint64_t xpu_page_bytes(const lw_device *device, const lw_plan *plan, uint32_t group)
{
    (void)device;
    return lw_layout_group_bytes(plan, group);
}

/* ---- compiling ---- */

/* Room for the sums of the groups of any linear's input, be it dense or an expert's. */
static size_t sums_bytes(const lw_plan *plan, uint32_t rows_max)
{
    size_t groups = 0;
    for (uint32_t i = 0; i < plan->op_count; i++) {
        const lw_op *op = &plan->ops[i];
        if (op->kind != LW_OP_LINEAR && op->kind != LW_OP_EXPERT_LINEAR) continue;
        const size_t vectors = plan->values[op->in[0].index].slots;
        groups = size_max(groups, vectors * lw__xpu_matrix_groups(&plan->weights[op->weights[0].index]));
    }
    return groups * rows_max * sizeof(float);
}

/* As it is fused where nothing is traced. */
static lw_status xpu_scratch_bytes(const lw_device *device, const lw_plan *plan, const lw_scratch_rows *rows,
                                   uint64_t *bytes, lw_diag *d)
{
    lw_arena arena;
    lw_xpu_schedule schedule;
    *bytes = 0;
    lw_arena_init(&arena, SIZE_MAX);
    lw_status status = lw__xpu_schedule_make(plan, device->off, &arena, &schedule, d);
    if (status == LW_OK)
        status = lw_layout_bytes(plan, &schedule.order, rows->rows_max, rows->wanted_max, bytes, d);
    lw_arena_deinit(&arena);
    *bytes += LW_XPU_PAST_BYTES + sums_bytes(plan, rows->rows_max);
    *bytes += lw__xpu_tables_bytes(plan, rows->rows_max, rows->wanted_max);
    *bytes += lw__xpu_best_bytes(plan, rows->wanted_max) + lw__xpu_experts_bytes(plan, rows->rows_max) +
              lw__xpu_recurrence_bytes(plan, rows->rows_max) + lw__xpu_attend_bytes(plan);
    return status;
}

static void xpu_exec_close(lw_exec *exec)
{
    if (exec == NULL) return;
    lw_device *device = exec->device;
    lw__xpu_drain(device);
    lw__xpu_records_free(exec);
    for (uint32_t i = 0; exec->weights != NULL && i < exec->plan->weight_count; i++)
        lw__xpu_free(device, &exec->weights[i].memory);
    for (uint32_t i = 0; exec->pages != NULL && i < exec->plan->state_count; i++)
        lw__xpu_free(device, &exec->pages[i]);
    lw__xpu_free(device, &exec->activations);
    lw__xpu_free(device, &exec->sums);
    lw__xpu_free(device, &exec->parts);
    lw__xpu_best_free(exec);
    lw__xpu_free(device, &exec->expert_order);
    lw__xpu_free(device, &exec->recurrence);
    lw__xpu_free(device, &exec->attention);
    lw__xpu_free(device, &exec->tables.memory);
    free(exec->tables.host);
    free(exec->logits);
    lw_chain_walk_deinit(&exec->walk);
    lw_arena_deinit(&exec->arena);
    free(exec);
}

static lw_status weights_load(lw_exec *exec, const lw_exec_options *options, lw_diag *d)
{
    const lw_plan *plan = exec->plan;
    uint64_t total = 0, done = 0;
    for (uint32_t i = 0; i < plan->weight_count; i++) total += lw_weight_bytes(&plan->weights[i]);
    for (uint32_t i = 0; i < plan->op_count * LW_OP_WEIGHTS_MAX; i++) {
        const lw_op *op = &plan->ops[i / LW_OP_WEIGHTS_MAX];
        const uint32_t index = op->weights[i % LW_OP_WEIGHTS_MAX].index;
        if (index == LW_NONE || exec->weights[index].memory.at != NULL) continue;
        const lw_weight *w = &plan->weights[index];
        const lw_status status = lw__xpu_weight_load(exec, op, index, d);
        if (status != LW_OK) return status;
        for (size_t t = 0; options->checkpoint != NULL && t < lw_weight_tensor_count(w); t++)
            lw_checkpoint_release(options->checkpoint, lw_weight_tensor(w, t));
        done += lw_weight_bytes(w);
        if (options->progress.step != NULL) options->progress.step(options->progress.context, done, total);
    }
    return lw__xpu_sync(exec->device, d);
}

static lw_status pages_make(lw_exec *exec, const lw_exec_options *options, lw_diag *d)
{
    memcpy(exec->page_counts, options->page_counts, sizeof exec->page_counts);
    for (uint32_t i = 0; i < exec->plan->state_count; i++) {
        const lw_state *state = &exec->plan->states[i];
        size_t bytes;
        if (!size_mul(lw_layout_state_bytes(state), exec->page_counts[state->group], &bytes))
            return lw_fail(d, LW_NO_ROOM, "the pages of state \"%s\" are more than an address holds",
                           state->name);
        const lw_status status = lw__xpu_alloc(exec->device, bytes, &exec->pages[i], d);
        if (status != LW_OK) {
            return lw_fail_prefix(d, status, "%u pages of state \"%s\" (a smaller --context needs fewer)",
                                  exec->page_counts[state->group], state->name);
        }
    }
    return LW_OK;
}

/* A trace sees every op's output: then nothing is fused. */
static lw_status schedule_make(lw_exec *exec, lw_diag *d)
{
    bool off[LW_XPU_SWITCH_COUNT];
    for (uint32_t i = 0; i < LW_XPU_SWITCH_COUNT; i++)
        off[i] = exec->device->off[i] || exec->trace.row != NULL || exec->trace.op != NULL;
    return lw__xpu_schedule_make(exec->plan, off, &exec->arena, &exec->schedule, d);
}

static lw_status memory_make(lw_exec *exec, const lw_exec_options *options, lw_diag *d)
{
    const lw_plan *plan = exec->plan;
    exec->weights = lw_arena_take_array(&exec->arena, plan->weight_count, sizeof *exec->weights);
    exec->pages = lw_arena_take_array(&exec->arena, plan->state_count, sizeof *exec->pages);
    exec->is_chain = lw_arena_take_array(&exec->arena, exec->rows_max, sizeof *exec->is_chain);
    exec->logits_here = lw_arena_take_array(&exec->arena, exec->wanted_max, sizeof *exec->logits_here);
    exec->logits = calloc((size_t)exec->wanted_max, plan->vocab * sizeof *exec->logits);
    lw_status status = schedule_make(exec, d);
    exec->layout.order = &exec->schedule.order;
    if (status == LW_OK)
        status = lw_layout_make(plan, exec->rows_max, exec->wanted_max, &exec->arena, &exec->layout, d);
    if (status != LW_OK) return status;
    exec->trace_row = lw_arena_take_array(&exec->arena, 2 * (size_t)exec->layout.widest, sizeof(float));
    if (exec->weights == NULL || exec->pages == NULL || exec->is_chain == NULL || exec->logits == NULL
        || exec->logits_here == NULL || exec->trace_row == NULL)
        return lw_fail(d, LW_NO_ROOM, "no memory for the compiled plan");
    status = lw__xpu_alloc(exec->device, exec->layout.bytes + LW_XPU_PAST_BYTES, &exec->activations, d);
    if (status == LW_OK)
        status = lw__xpu_alloc(exec->device, sums_bytes(plan, exec->rows_max), &exec->sums, d);
    if (status == LW_OK) status = lw__xpu_best_make(exec, d);
    if (status == LW_OK) status = lw__xpu_experts_make(exec, d);
    const size_t recurrence_bytes = lw__xpu_recurrence_bytes(plan, exec->rows_max);
    const size_t attend_bytes = lw__xpu_attend_bytes(plan);
    if (status == LW_OK && recurrence_bytes > 0)
        status = lw__xpu_alloc(exec->device, recurrence_bytes, &exec->recurrence, d);
    if (status == LW_OK && attend_bytes > 0)
        status = lw__xpu_alloc(exec->device, attend_bytes, &exec->attention, d);
    if (status != LW_OK) return lw_fail_prefix(d, status, "activations (a smaller --chunk needs less)");
    return pages_make(exec, options, d);
}

static lw_status xpu_compile(lw_device *device, const lw_plan *plan, const lw_exec_options *options,
                             lw_exec **out, lw_diag *d)
{
    *out = NULL;
    LW_ASSERT(options->rows_max > 0 && options->wanted_max > 0);
    lw_status status = lw__xpu_plan_check(plan, d);
    if (status == LW_OK) status = lw__xpu_kernels_load(device, d);
    if (status != LW_OK) return status;
    lw_exec *exec = calloc(1, sizeof *exec);
    if (exec == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for the compiled plan");
    lw_arena_init(&exec->arena, EXEC_BYTES_MAX);
    exec->device = device;
    exec->plan = plan;
    exec->rows_max = options->rows_max;
    exec->wanted_max = options->wanted_max;
    exec->trace = options->trace;
    status = memory_make(exec, options, d);
    if (status == LW_OK && plan->entry_count > LW_ENTRY_HEAD)
        status = lw_chain_walk_init(&exec->walk, exec->wanted_max, d);
    if (status == LW_OK) status = weights_load(exec, options, d);
    if (status == LW_OK) status = lw__xpu_fused_make(exec, d);
    if (status != LW_OK) {
        xpu_exec_close(exec);
        return status;
    }
    *out = exec;
    return LW_OK;
}

/* ---- forwards ---- */

/* step: of a chain, whose tokens the device draws; else 0. */
static lw_status entry_append(lw_exec *exec, uint32_t entry, const lw_batch *batch, uint32_t step, lw_diag *d)
{
    LW_ASSERT(entry < exec->plan->entry_count);
    lw_status status = lw__xpu_batch_begin(exec, batch, step, d);
    if (status != LW_OK) return status;
    exec->entry = entry;
    memset(exec->logits_here, 0, exec->wanted_max * sizeof *exec->logits_here);
    status = lw__xpu_run_entry(exec, entry, d);
    if (status == LW_OK && batch->best && exec->wanted_count > 0)
        status = lw__xpu_best_launch(exec, entry == LW_ENTRY_HEAD, d);
    if (status != LW_OK) return status;
    return lw__xpu_tape_run(exec, batch->row_count <= LW_XPU_RECORD_ROWS_MAX, d);
}

/* Marks the end of what was appended; it has a ticket then. */
static lw_status submission_end(lw_exec *exec, const lw_xpu_submission *submission, lw_ticket *ticket,
                                lw_diag *d)
{
    const uint32_t mark = (exec->submitted + 1) % LW_XPU_MARKS;
    const lw_status status = lw__xpu_mark(exec->device, mark, d);
    if (status != LW_OK) return status;
    exec->submissions[mark] = *submission;
    *ticket = ++exec->submitted;
    return LW_OK;
}

static lw_status xpu_submit(lw_exec *exec, uint32_t entry, const lw_batch *batch, lw_ticket *ticket,
                            lw_diag *d)
{
    LW_ASSERT(exec->submitted - exec->waited < LW_BATCHES_OPEN_MAX);
    exec->chain_count = 0;
    lw_status status = entry_append(exec, entry, batch, 0, d);
    const lw_xpu_submission submission = { .wanted_count = exec->wanted_count,
                                           .has_best = batch->best && exec->wanted_count > 0 };
    if (status == LW_OK && submission.has_best)
        status = lw__xpu_best_fetch(exec, exec->submitted + 1, 1, d);
    return status == LW_OK ? submission_end(exec, &submission, ticket, d) : status;
}

static lw_status xpu_wait(lw_exec *exec, lw_ticket ticket, lw_diag *d)
{
    LW_ASSERT(ticket <= exec->submitted);
    if (ticket <= exec->waited) return LW_OK;
    exec->waited = ticket;
    return lw__xpu_mark_wait(exec->device, ticket % LW_XPU_MARKS, d);
}

/* The index-th wanted row, copied when it is first asked for. */
static lw_status logits_row(lw_exec *exec, uint32_t index, float **logits, lw_diag *d)
{
    const lw_value *value = &exec->plan->values[exec->plan->entries[exec->entry].logits.index];
    const size_t vocab = exec->plan->vocab, stride = lw_layout_stride(value);
    const uint8_t *from = exec->activations.at + exec->layout.offsets[value->base];
    *logits = exec->logits + index * vocab;
    if (exec->logits_here[index]) return LW_OK;
    const lw_status status = lw__xpu_download(exec->device, *logits, from + index * stride * sizeof(float),
                                              vocab * sizeof(float), d);
    exec->logits_here[index] = status == LW_OK;
    return status;
}

static lw_status xpu_read_logits(lw_exec *exec, uint32_t index, const float **logits, lw_diag *d)
{
    LW_ASSERT(exec->waited == exec->submitted && index < exec->wanted_count);
    float *row = NULL;
    const lw_status status = logits_row(exec, index, &row, d);
    *logits = row;
    return status;
}

static lw_status xpu_read_best(lw_exec *exec, uint32_t index, int32_t *id, lw_diag *d)
{
    (void)d;
    const lw_xpu_submission *submission = &exec->submissions[exec->waited % LW_XPU_MARKS];
    LW_ASSERT(index < submission->wanted_count && submission->has_best);
    *id = lw__xpu_best_id(exec, 0, index);
    return LW_OK;
}

/* All steps are appended at once: a step draws the tokens of the next one. */
static lw_status chain_append(lw_exec *exec, lw_diag *d)
{
    lw_batch batch;
    while (lw_chain_walk_batch(&exec->walk, &batch)) {
        batch.best = true;
        const lw_status status = entry_append(exec, LW_ENTRY_HEAD, &batch, exec->walk.step, d);
        if (status != LW_OK) return status;
        lw_chain_walk_on(&exec->walk);
    }
    exec->chain_steps = exec->walk.step;
    return lw__xpu_best_fetch(exec, exec->submitted + 1, exec->chain_steps, d);
}

/* The host draws, and the device waits for it after each step. */
static lw_status chain_walk(lw_exec *exec, lw_diag *d)
{
    lw_batch batch;
    while (lw_chain_walk_batch(&exec->walk, &batch)) {
        float *row = NULL;
        lw_status status = entry_append(exec, LW_ENTRY_HEAD, &batch, 0, d);
        for (uint32_t i = 0; status == LW_OK && i < batch.row_count; i++)
            status = logits_row(exec, i, &row, d);
        if (status != LW_OK) return status;
        lw_chain_walk_draw(&exec->walk, exec->logits, exec->plan->vocab, exec->plan->vocab);
    }
    exec->chain_steps = 0;
    return LW_OK;
}

static lw_status xpu_submit_chain(lw_exec *exec, const lw_chain *chain, lw_ticket *ticket, lw_diag *d)
{
    LW_ASSERT(exec->submitted == exec->waited);
    const bool walks = chain->draw != NULL || exec->device->off[LW_XPU_SWITCH_chain];
    exec->chain_count = 0;
    lw_chain_walk_begin(&exec->walk, chain);
    lw_status status = walks ? chain_walk(exec, d) : chain_append(exec, d);
    exec->wanted_count = 0;
    if (status == LW_OK) status = submission_end(exec, &(lw_xpu_submission){ .has_best = false }, ticket, d);
    if (status == LW_OK) exec->chain_count = chain->row_count;
    return status;
}

static lw_status xpu_read_chain(lw_exec *exec, uint32_t row, const int32_t **tokens, lw_diag *d)
{
    (void)d;
    LW_ASSERT(exec->waited == exec->submitted && row < exec->chain_count);
    for (uint32_t step = 0; step < exec->chain_steps; step++) {
        const int32_t id = lw__xpu_best_id(exec, step, row);
        lw_chain_walk_keep(&exec->walk, row, step, id < 0 ? 0 : id);
    }
    *tokens = lw_chain_walk_tokens(&exec->walk, row);
    return LW_OK;
}

static lw_status xpu_page_copy(lw_exec *exec, uint32_t group, uint32_t from, uint32_t to, lw_diag *d)
{
    LW_ASSERT(from < exec->page_counts[group] && to < exec->page_counts[group]);
    for (uint32_t i = 0; i < exec->plan->state_count; i++) {
        const lw_state *state = &exec->plan->states[i];
        if (state->group != group) continue;
        const size_t bytes = lw_layout_state_bytes(state);
        uint8_t *pages = exec->pages[i].at;
        const lw_status status =
            lw__xpu_copy(exec->device, pages + to * bytes, pages + from * bytes, bytes, d);
        if (status != LW_OK) return status;
    }
    return LW_OK;
}

const lw_device_table lw_device_xpu = {
    .name = "xpu",
    .calls_draw = true,
    .count = xpu_count,
    .open = xpu_open,
    .close = xpu_close,
    .describe = xpu_describe,
    .facts = lw__xpu_facts,
    .free_bytes = xpu_free_bytes,
    .goes_ahead = xpu_goes_ahead,
    .wait_s = xpu_wait_s,
    .read_counts = xpu_read_counts,
    .page_bytes = xpu_page_bytes,
    .scratch_bytes = xpu_scratch_bytes,
    .compile = xpu_compile,
    .exec_close = xpu_exec_close,
    .submit = xpu_submit,
    .submit_chain = xpu_submit_chain,
    .read_chain = xpu_read_chain,
    .wait = xpu_wait,
    .read_logits = xpu_read_logits,
    .read_best = xpu_read_best,
    .page_copy = xpu_page_copy,
};
