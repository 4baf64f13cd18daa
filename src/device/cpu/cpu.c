/* The cpu device: opening it, compiling a plan for it, and the contract's table. Weights are repacked one by
 * one and their source pages released as it goes; a forward finishes inside submit.
 */
#include "device/cpu/cpu.h"
#include "device/cpu/exec.h"
#include "device/layout.h"
#include "device/rows.h"

#include "base/machine.h"
#include "base/size.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGN_BYTES = 64, HUGE_BYTES = 2 << 20, EXEC_BYTES_MAX = 1 << 30 };

/* ---- memory ---- */

void *lw__cpu_map(size_t bytes)
{
    void *map = mmap(NULL, size_round_up(size_max(bytes, 1), HUGE_BYTES), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return map == MAP_FAILED ? NULL : map;
}

void lw__cpu_unmap(void *bytes, size_t count)
{
    if (bytes != NULL) munmap(bytes, size_round_up(size_max(count, 1), HUGE_BYTES));
}

static uint64_t cpu_free_bytes(const lw_device *device)
{
    (void)device;
    return lw_machine_free_bytes("");
}

/* ---- the device ---- */

static const lw_cpu_kernels *kernels_find(const char *isa)
{
    const lw_cpu_kernels *const *all = lw_cpu_available();
    if (isa == NULL) return all[0];
    for (size_t i = 0; all[i] != NULL; i++) {
        if (strcmp(all[i]->isa, isa) == 0) return all[i];
        /* "avx512" means the best of its kind: avx512bf16 stands before avx512f. */
        if (strcmp(isa, "avx512") == 0 && strncmp(all[i]->isa, isa, strlen(isa)) == 0) return all[i];
    }
    return NULL;
}

static lw_status isa_refused(const char *isa, lw_diag *d)
{
    char served[128] = "";
    const lw_cpu_kernels *const *all = lw_cpu_available();
    for (size_t i = 0; all[i] != NULL; i++) {
        const size_t at = strlen(served);
        snprintf(served + at, sizeof served - at, "%s%s", i == 0 ? "" : ", ", all[i]->isa);
    }
    return lw_fail(d, LW_UNSUPPORTED, "instruction set \"%s\": this CPU and build run %s", isa, served);
}

static void cpu_close(lw_device *device)
{
    if (device == NULL) return;
    lw_pool_close(device->pool);
    free(device);
}

static lw_status cpu_open(const lw_device_options *options, lw_device **out, lw_diag *d)
{
    *out = NULL;
    if (options->which != NULL)
        return lw_fail(d, LW_BAD_INPUT, "there is one cpu device: no cpu:%s", options->which);
    const lw_cpu_kernels *kernels = kernels_find(options->isa);
    if (kernels == NULL) return isa_refused(options->isa, d);
    lw_device *device = calloc(1, sizeof *device);
    if (device == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for the cpu device");
    device->kernels = kernels;
    const lw_status status = lw_pool_open(options->threads, kernels->thread_setup, &device->pool, d);
    if (status != LW_OK) {
        cpu_close(device);
        return status;
    }
    *out = device;
    return LW_OK;
}

static void cpu_describe(const lw_device *device, char *text, size_t text_bytes)
{
    const unsigned threads = lw_pool_threads(device->pool);
    snprintf(text, text_bytes, "cpu (%s, %u thread%s)", device->kernels->isa, threads,
             threads == 1 ? "" : "s");
}

static lw_pool *cpu_threads(const lw_device *device)
{
    return device->pool;
}

static uint64_t cpu_page_bytes(const lw_device *device, const lw_plan *plan, uint32_t group)
{
    (void)device;
    return lw_layout_group_bytes(plan, group);
}

/* ---- compiling: weights ---- */

/* A norm's weights as they are, a convolution's turned to (taps, width) so that channels are neighbours. */
static float *vector_make(lw_exec *exec, const lw_weight *w)
{
    const size_t count = (size_t)w->stack_count * w->rows * w->cols;
    float *out = lw_arena_take_array(&exec->arena, count, sizeof *out);
    float *row = lw_arena_take_array(&exec->arena, w->cols, sizeof *row);
    if (out == NULL || row == NULL) return NULL;
    lw_weight_turned(w, row, out);
    return out;
}

static void release(const lw_checkpoint *checkpoint, const lw_weight *w)
{
    if (checkpoint == NULL) return;
    for (size_t i = 0; i < lw_weight_tensor_count(w); i++)
        lw_checkpoint_release(checkpoint, lw_weight_tensor(w, i));
}

static bool is_matrix_op(lw_op_kind kind)
{
    return kind == LW_OP_EMBED || kind == LW_OP_LINEAR || kind == LW_OP_EXPERT_LINEAR;
}

static lw_status weight_load(lw_exec *exec, const lw_op *op, uint32_t index, lw_diag *d)
{
    const lw_weight *w = &exec->plan->weights[index];
    if (is_matrix_op(op->kind)) {
        if (exec->weights[index] != NULL) return LW_OK;
        return lw_cpu_weight_make(exec->device->kernels, w, exec->device->pool, &exec->weights[index], d);
    }
    if (exec->vectors[index] != NULL) return LW_OK;
    exec->vectors[index] = vector_make(exec, w);
    return exec->vectors[index] != NULL ? LW_OK : lw_fail(d, LW_NO_ROOM, "no memory for %s", w->name);
}

static lw_status weights_load(lw_exec *exec, const lw_exec_options *options, lw_diag *d)
{
    const lw_plan *plan = exec->plan;
    uint64_t total = 0, done = 0;
    for (uint32_t i = 0; i < plan->weight_count; i++) total += lw_weight_bytes(&plan->weights[i]);
    for (uint32_t i = 0; i < plan->op_count * LW_OP_WEIGHTS_MAX; i++) {
        const lw_op *op = &plan->ops[i / LW_OP_WEIGHTS_MAX];
        const uint32_t index = op->weights[i % LW_OP_WEIGHTS_MAX].index;
        if (index == LW_NONE) continue;
        const lw_weight *w = &plan->weights[index];
        const bool fresh = exec->weights[index] == NULL && exec->vectors[index] == NULL;
        const lw_status status = weight_load(exec, op, index, d);
        if (status != LW_OK) return status;
        if (!fresh) continue;
        release(options->checkpoint, w);
        done += lw_weight_bytes(w);
        if (options->progress.step != NULL) options->progress.step(options->progress.context, done, total);
    }
    return LW_OK;
}

/* ---- compiling: activations, pages ---- */

static lw_status activations_make(lw_exec *exec, lw_diag *d)
{
    const lw_plan *plan = exec->plan;
    lw_layout layout = { .order = NULL };
    const lw_status status =
        lw_layout_make(plan, exec->rows_max, exec->wanted_max, &exec->arena, &layout, d);
    if (status != LW_OK) return status;
    exec->activation_bytes = layout.bytes;
    exec->activations = lw__cpu_map(layout.bytes);
    exec->trace_row = lw_arena_take_array(&exec->arena, layout.widest, sizeof *exec->trace_row);
    if (exec->activations == NULL || exec->trace_row == NULL) {
        return lw_fail(d, LW_NO_ROOM, "no memory for %zu bytes of activations; a smaller --chunk needs less",
                       layout.bytes);
    }
    for (uint32_t i = 0; i < plan->value_count; i++) {
        const uint32_t base = plan->values[i].base;
        exec->buffers[i] = (lw_cpu_buffer){ exec->activations + layout.offsets[base],
                                            lw_layout_stride(&plan->values[base]) };
    }
    return LW_OK;
}

static lw_status pages_make(lw_exec *exec, const lw_exec_options *options, lw_diag *d)
{
    const lw_plan *plan = exec->plan;
    memcpy(exec->page_counts, options->page_counts, sizeof exec->page_counts);
    for (uint32_t i = 0; i < plan->state_count; i++) {
        const lw_state *state = &plan->states[i];
        lw_cpu_pages *pages = &exec->pages[i];
        size_t bytes;
        pages->page_bytes = lw_layout_state_bytes(state);
        const bool fits = size_mul(pages->page_bytes, exec->page_counts[state->group], &bytes);
        pages->bytes = fits ? lw__cpu_map(bytes) : NULL;
        if (pages->bytes == NULL) {
            return lw_fail(d, LW_NO_ROOM,
                           "no memory for %u pages of %zu bytes of state \"%s\"; a smaller --context "
                           "needs fewer",
                           exec->page_counts[state->group], pages->page_bytes, state->name);
        }
    }
    return LW_OK;
}

static void cpu_exec_close(lw_exec *exec)
{
    if (exec == NULL) return;
    for (uint32_t i = 0; exec->weights != NULL && i < exec->plan->weight_count; i++) {
        lw_cpu_weight_free(exec->weights[i]);
    }
    for (uint32_t i = 0; exec->pages != NULL && i < exec->plan->state_count; i++) {
        const lw_cpu_pages *pages = &exec->pages[i];
        lw__cpu_unmap(pages->bytes, pages->page_bytes * exec->page_counts[exec->plan->states[i].group]);
    }
    lw__cpu_unmap(exec->activations, exec->activation_bytes);
    lw__cpu_unmap(exec->prepared, exec->sizes.prepared_bytes);
    lw__cpu_unmap(exec->attend_scratch, exec->sizes.attend_bytes);
    lw__cpu_unmap(exec->recur, exec->sizes.recur_bytes);
    lw_chain_walk_deinit(&exec->walk);
    lw_arena_deinit(&exec->arena);
    free(exec);
}

static lw_status refuse_unknown_ops(const lw_plan *plan, lw_diag *d)
{
    for (uint32_t i = 0; i < plan->op_count; i++) {
        const lw_op_kind kind = plan->ops[i].kind;
        if (!lw__cpu_runs(kind)) {
            return lw_fail(d, LW_UNSUPPORTED, "the cpu device does not have the model's op \"%s\" (layer %u)",
                           lw_op_table[kind].name, plan->ops[i].layer);
        }
    }
    return LW_OK;
}

static lw_status cpu_compile(lw_device *device, const lw_plan *plan, const lw_exec_options *options,
                             lw_exec **out, lw_diag *d)
{
    *out = NULL;
    LW_ASSERT(options->rows_max > 0 && options->wanted_max > 0);
    if (refuse_unknown_ops(plan, d) != LW_OK) return LW_UNSUPPORTED;
    lw_exec *exec = calloc(1, sizeof *exec);
    if (exec == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for the compiled plan");
    lw_arena_init(&exec->arena, EXEC_BYTES_MAX);
    exec->device = device;
    exec->plan = plan;
    exec->rows_max = options->rows_max;
    exec->wanted_max = options->wanted_max;
    exec->trace = options->trace;
    exec->weights = lw_arena_take_array(&exec->arena, plan->weight_count, sizeof *exec->weights);
    exec->vectors = lw_arena_take_array(&exec->arena, plan->weight_count, sizeof *exec->vectors);
    exec->buffers = lw_arena_take_array(&exec->arena, plan->value_count, sizeof *exec->buffers);
    exec->pages = lw_arena_take_array(&exec->arena, plan->state_count, sizeof *exec->pages);
    lw_status status = LW_OK;
    if (exec->weights == NULL || exec->vectors == NULL || exec->buffers == NULL || exec->pages == NULL) {
        status = lw_fail(d, LW_NO_ROOM, "no memory for the compiled plan");
    }
    if (status == LW_OK) status = activations_make(exec, d);
    if (status == LW_OK) status = pages_make(exec, options, d);
    if (status == LW_OK) status = lw__cpu_scratch_make(exec, d);
    if (status == LW_OK && plan->entry_count > LW_ENTRY_HEAD)
        status = lw_chain_walk_init(&exec->walk, exec->wanted_max, d);
    if (status == LW_OK) status = weights_load(exec, options, d);
    if (status != LW_OK) {
        cpu_exec_close(exec);
        return status;
    }
    *out = exec;
    return LW_OK;
}

/* ---- forwards ---- */

static size_t logits_stride(const lw_exec *exec)
{
    return size_round_up(exec->plan->vocab, ALIGN_BYTES / sizeof(lw_bf16));
}

static lw_status entry_run(lw_exec *exec, uint32_t entry, const lw_batch *batch, lw_diag *d)
{
    LW_ASSERT(entry < exec->plan->entry_count);
    lw_pool_hold(exec->device->pool);
    const lw_status status = lw__cpu_batch_begin(exec, batch, d);
    const lw_entry *e = &exec->plan->entries[entry];
    if (status == LW_OK) lw__cpu_run_ops(exec, e->op_begin, e->op_end);
    lw_pool_release(exec->device->pool);
    if (status != LW_OK) return status;
    exec->logits = (const float *)(const void *)exec->buffers[e->logits.index].bytes;
    return LW_OK;
}

static lw_status cpu_submit(lw_exec *exec, uint32_t entry, const lw_batch *batch, lw_ticket *ticket,
                            lw_diag *d)
{
    exec->chain_count = 0;
    const lw_status status = entry_run(exec, entry, batch, d);
    if (status == LW_OK) *ticket = ++exec->tickets;
    return status;
}

static lw_status cpu_submit_chain(lw_exec *exec, const lw_chain *chain, lw_ticket *ticket, lw_diag *d)
{
    lw_batch batch;
    lw_status status = LW_OK;
    exec->chain_count = 0;
    lw_chain_walk_begin(&exec->walk, chain);
    while (status == LW_OK && lw_chain_walk_batch(&exec->walk, &batch)) {
        status = entry_run(exec, LW_ENTRY_HEAD, &batch, d);
        if (status == LW_OK)
            lw_chain_walk_draw(&exec->walk, exec->logits, logits_stride(exec), exec->plan->vocab);
    }
    exec->wanted_count = 0;
    if (status != LW_OK) return status;
    exec->chain_count = chain->row_count;
    *ticket = ++exec->tickets;
    return LW_OK;
}

static lw_status cpu_read_chain(lw_exec *exec, uint32_t row, const int32_t **tokens, lw_diag *d)
{
    (void)d;
    LW_ASSERT(row < exec->chain_count);
    *tokens = lw_chain_walk_tokens(&exec->walk, row);
    return LW_OK;
}

static lw_status cpu_wait(lw_exec *exec, lw_ticket ticket, lw_diag *d)
{
    (void)d;
    LW_ASSERT(ticket <= exec->tickets);
    return LW_OK;
}

static lw_status cpu_read_logits(lw_exec *exec, uint32_t index, const float **logits, lw_diag *d)
{
    (void)d;
    LW_ASSERT(index < exec->wanted_count);
    *logits = exec->logits + index * logits_stride(exec);
    return LW_OK;
}

static lw_status cpu_page_copy(lw_exec *exec, uint32_t group, uint32_t from, uint32_t to, lw_diag *d)
{
    (void)d;
    LW_ASSERT(from < exec->page_counts[group] && to < exec->page_counts[group]);
    for (uint32_t i = 0; i < exec->plan->state_count; i++) {
        if (exec->plan->states[i].group != group) continue;
        const lw_cpu_pages *pages = &exec->pages[i];
        memcpy(pages->bytes + to * pages->page_bytes, pages->bytes + from * pages->page_bytes,
               pages->page_bytes);
    }
    return LW_OK;
}

const lw_device_table lw_device_cpu = {
    .name = "cpu",
    .calls_draw = true,
    .open = cpu_open,
    .close = cpu_close,
    .describe = cpu_describe,
    .free_bytes = cpu_free_bytes,
    .threads = cpu_threads,
    .page_bytes = cpu_page_bytes,
    .scratch_bytes = lw__cpu_scratch_bytes,
    .compile = cpu_compile,
    .exec_close = cpu_exec_close,
    .submit = cpu_submit,
    .submit_chain = cpu_submit_chain,
    .read_chain = cpu_read_chain,
    .wait = cpu_wait,
    .read_logits = cpu_read_logits,
    .page_copy = cpu_page_copy,
};
