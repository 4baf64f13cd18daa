/* The null device; see null.h. */
#include "device/null/null.h"

#include "device/chain.h"
#include "device/rows.h"

#include <stdio.h>
#include <stdlib.h>

struct lw_device {
    uint64_t free_bytes;
};

struct lw_exec {
    const lw_plan *plan;
    float *logits;              /* [vocab] zeros, shared by all rows; with a model [wanted_max, vocab] */
    lw_null_model model;        /* all NULL: none */
    uint32_t wanted_max;
    lw_null_counts counts;
    lw_ticket submitted, waited;
    lw_ticket fail_at;          /* 0: none */
    uint32_t wanted_count;      /* of the newest submission */
    bool has_best;
    lw_chain_walk walk;
    uint32_t chain_count;       /* chains of the newest submission */
    uint32_t page_counts[LW_PLAN_REACHES_MAX];
};

static lw_status null_open(const lw_device_options *options, lw_device **out, lw_diag *d)
{
    *out = NULL;
    if (options->isa != NULL) return lw_fail(d, LW_UNSUPPORTED, "the null device has no instruction sets");
    if (options->which != NULL)
        return lw_fail(d, LW_BAD_INPUT, "there is one null device: no null:%s", options->which);
    lw_device *device = calloc(1, sizeof *device);
    if (device == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for the null device");
    device->free_bytes = (uint64_t)1 << 40;
    *out = device;
    return LW_OK;
}

static void null_close(lw_device *device)
{
    free(device);
}

static void null_describe(const lw_device *device, char *text, size_t text_bytes)
{
    (void)device;
    snprintf(text, text_bytes, "null (computes nothing)");
}

static uint64_t null_free_bytes(const lw_device *device)
{
    return device->free_bytes;
}

static uint64_t null_page_bytes(const lw_device *device, const lw_plan *plan, uint32_t group)
{
    (void)device;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->state_count; i++) {
        if (plan->states[i].group == group) bytes += lw_state_page_bytes(&plan->states[i]);
    }
    return bytes;
}

/* The logits that a model fills. */
static lw_status null_scratch_bytes(const lw_device *device, const lw_plan *plan, const lw_scratch_rows *rows,
                                    uint64_t *bytes, lw_diag *d)
{
    (void)device;
    (void)d;
    *bytes = (uint64_t)rows->wanted_max * plan->vocab * sizeof(float);
    return LW_OK;
}

static void null_exec_close(lw_exec *exec)
{
    if (exec == NULL) return;
    lw_chain_walk_deinit(&exec->walk);
    free(exec->logits);
    free(exec);
}

static lw_status null_compile(lw_device *device, const lw_plan *plan, const lw_exec_options *options,
                              lw_exec **out, lw_diag *d)
{
    (void)device;
    *out = NULL;
    lw_exec *exec = calloc(1, sizeof *exec);
    float *logits = calloc(plan->vocab, sizeof *logits);
    if (exec == NULL || logits == NULL) {
        free(exec);
        free(logits);
        return lw_fail(d, LW_NO_ROOM, "no memory for the null device's plan");
    }
    exec->plan = plan;
    exec->logits = logits;
    exec->wanted_max = options->wanted_max;
    for (uint32_t i = 0; i < LW_PLAN_REACHES_MAX; i++) exec->page_counts[i] = options->page_counts[i];
    for (uint32_t i = 0; i < plan->weight_count; i++)
        exec->counts.weight_bytes += lw_weight_bytes(&plan->weights[i]);
    lw_status status = LW_OK;
    if (plan->entry_count > LW_ENTRY_HEAD) status = lw_chain_walk_init(&exec->walk, options->wanted_max, d);
    if (status != LW_OK) {
        null_exec_close(exec);
        return status;
    }
    *out = exec;
    return LW_OK;
}

/* Counts the batch and checks what a device leans on. */
static void batch_take(lw_exec *exec, uint32_t entry, const lw_batch *batch)
{
    LW_ASSERT(entry < exec->plan->entry_count && batch->row_count > 0);
    exec->wanted_count = 0;
    exec->has_best = batch->best;
    for (uint32_t r = 0; r < batch->row_count; r++) {
        const lw_row *row = &batch->rows[r];
        LW_ASSERT(row->lane < batch->lane_count && row->parent < (int32_t)r);
        LW_ASSERT(row->slot >= batch->lanes[row->lane].committed);
        for (uint32_t g = 0; g < exec->plan->reach_count; g++) {
            const lw_batch_lane *lane = &batch->lanes[row->lane];
            LW_ASSERT(row->slot / LW_PAGE_POSITIONS < lane->page_count);
            LW_ASSERT(lane->pages[g][row->slot / LW_PAGE_POSITIONS] < exec->page_counts[g]);
        }
        exec->wanted_count += row->wanted;
    }
    const lw_entry *e = &exec->plan->entries[entry];
    exec->counts.ops += e->op_end - e->op_begin;
    LW_ASSERT(exec->model.forward == NULL || exec->wanted_count <= exec->wanted_max);
}

static lw_status null_submit(lw_exec *exec, uint32_t entry, const lw_batch *batch, lw_ticket *ticket,
                             lw_diag *d)
{
    (void)d;
    batch_take(exec, entry, batch);
    exec->chain_count = 0;
    exec->counts.submits++;
    exec->counts.rows += batch->row_count;
    exec->counts.wanted_rows += exec->wanted_count;
    *ticket = ++exec->submitted;
    LW_ASSERT(exec->wanted_count <= exec->wanted_max);
    if (exec->model.forward != NULL) exec->model.forward(exec->model.context, batch, exec->logits);
    return LW_OK;
}

static lw_status null_submit_chain(lw_exec *exec, const lw_chain *chain, lw_ticket *ticket, lw_diag *d)
{
    (void)d;
    lw_batch batch;
    const size_t stride = exec->model.forward != NULL ? exec->plan->vocab : 0;
    lw_chain_walk_begin(&exec->walk, chain);
    while (lw_chain_walk_batch(&exec->walk, &batch)) {
        batch_take(exec, LW_ENTRY_HEAD, &batch);
        if (exec->model.head != NULL) exec->model.head(exec->model.context, &batch, exec->logits);
        lw_chain_walk_draw(&exec->walk, exec->logits, stride, exec->plan->vocab);
        exec->counts.chain_rows += batch.row_count;
    }
    exec->counts.chains++;
    exec->wanted_count = 0;
    exec->chain_count = chain->row_count;
    *ticket = ++exec->submitted;
    return LW_OK;
}

static lw_status null_read_chain(lw_exec *exec, uint32_t row, const int32_t **tokens, lw_diag *d)
{
    (void)d;
    LW_ASSERT(exec->waited == exec->submitted && row < exec->chain_count);
    *tokens = lw_chain_walk_tokens(&exec->walk, row);
    return LW_OK;
}

static lw_status null_wait(lw_exec *exec, lw_ticket ticket, lw_diag *d)
{
    LW_ASSERT(ticket <= exec->submitted);
    exec->counts.waits++;
    if (ticket > exec->waited) exec->waited = ticket;
    if (exec->fail_at != 0 && ticket >= exec->fail_at) {
        return lw_fail(d, LW_DEVICE_LOST, "the null device was told to fail at submission %llu",
                       (unsigned long long)exec->fail_at);
    }
    return LW_OK;
}

static lw_status null_read_logits(lw_exec *exec, uint32_t index, const float **logits, lw_diag *d)
{
    (void)d;
    LW_ASSERT(exec->waited == exec->submitted && index < exec->wanted_count);
    *logits = exec->logits + (exec->model.forward != NULL ? (size_t)index * exec->plan->vocab : 0);
    return LW_OK;
}

static lw_status null_read_best(lw_exec *exec, uint32_t index, int32_t *id, lw_diag *d)
{
    const float *logits = NULL;
    LW_ASSERT(exec->has_best);
    const lw_status status = null_read_logits(exec, index, &logits, d);
    if (status == LW_OK) *id = lw_logits_best(logits, exec->plan->vocab);
    return status;
}

static lw_status null_page_copy(lw_exec *exec, uint32_t group, uint32_t from, uint32_t to, lw_diag *d)
{
    (void)d;
    LW_ASSERT(from < exec->page_counts[group] && to < exec->page_counts[group]);
    exec->counts.page_copies++;
    if (exec->model.page_copy != NULL) exec->model.page_copy(exec->model.context, group, from, to);
    return LW_OK;
}

lw_status lw_null_set_model(lw_exec *exec, const lw_null_model *model, lw_diag *d)
{
    const size_t rows = model != NULL ? exec->wanted_max : 1;
    float *logits = calloc(rows * exec->plan->vocab, sizeof *logits);
    if (logits == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for %zu rows of logits", rows);
    free(exec->logits);
    exec->logits = logits;
    exec->model = model != NULL ? *model : (lw_null_model){ 0 };
    return LW_OK;
}

lw_null_counts lw_null_read_counts(const lw_exec *exec)
{
    return exec->counts;
}

void lw_null_fail_at(lw_exec *exec, uint64_t n)
{
    exec->fail_at = n == 0 ? 0 : exec->submitted + n;
}

const lw_device_table lw_device_null = {
    .name = "null",
    .calls_draw = true,
    .open = null_open,
    .close = null_close,
    .describe = null_describe,
    .free_bytes = null_free_bytes,
    .page_bytes = null_page_bytes,
    .scratch_bytes = null_scratch_bytes,
    .compile = null_compile,
    .exec_close = null_exec_close,
    .submit = null_submit,
    .submit_chain = null_submit_chain,
    .read_chain = null_read_chain,
    .wait = null_wait,
    .read_logits = null_read_logits,
    .read_best = null_read_best,
    .page_copy = null_page_copy,
};
