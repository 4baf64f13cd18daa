/* The null device; see null.h. */
#include "device/null/null.h"

#include "device/chain.h"
#include "device/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lw_device {
    uint64_t free_bytes;
};

/* A batch as it was submitted: the caller's memory may be another's by the time it is done. */
typedef struct null_batch {
    lw_batch batch;
    lw_row *rows;               /* [rows_max] */
    lw_batch_lane *lanes;       /* [lane_room] */
    uint32_t *ids;              /* [id_room] of the lanes' pages */
    size_t lane_room, id_room;
    uint32_t wanted_count;
    int32_t *best;              /* [wanted_max] */
} null_batch;

typedef struct null_copy {
    uint32_t group, from, to;
    lw_ticket after;            /* it is done after this batch and before the next */
} null_copy;

enum { LANES_USUAL = 8, IDS_USUAL = 1024, COPIES_USUAL = 64 };

struct lw_exec {
    const lw_plan *plan;
    uint32_t rows_max;
    float *logits;              /* [vocab] zeros, shared by all rows; with a model [wanted_max, vocab] */
    lw_null_model model;        /* all NULL: none */
    uint32_t wanted_max;
    lw_null_counts counts;
    lw_ticket submitted, waited, done;
    lw_ticket fail_at;          /* 0: none */
    null_batch batches[LW_BATCHES_OPEN_MAX];   /* by ticket */
    null_copy *copies;          /* [copy_room] that are not done */
    size_t copy_count, copy_room;
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
    for (uint32_t i = 0; i < LW_BATCHES_OPEN_MAX; i++) {
        free(exec->batches[i].rows);
        free(exec->batches[i].lanes);
        free(exec->batches[i].ids);
        free(exec->batches[i].best);
    }
    free(exec->copies);
    free(exec->logits);
    free(exec);
}

/* Room for count items; what it holds stays. */
static lw_status room_make(void **items, size_t *room, size_t count, size_t item_bytes, lw_diag *d)
{
    if (count <= *room) return LW_OK;
    void *more = realloc(*items, 2 * count * item_bytes);
    if (more == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for the null device's batches");
    *items = more;
    *room = 2 * count;
    return LW_OK;
}

static lw_status batch_room(null_batch *b, size_t lanes, size_t ids, lw_diag *d)
{
    const lw_status status = room_make((void **)&b->lanes, &b->lane_room, lanes, sizeof *b->lanes, d);
    if (status != LW_OK) return status;
    return room_make((void **)&b->ids, &b->id_room, ids, sizeof *b->ids, d);
}

static lw_status batches_make(lw_exec *exec, lw_diag *d)
{
    for (uint32_t i = 0; i < LW_BATCHES_OPEN_MAX; i++) {
        null_batch *b = &exec->batches[i];
        b->rows = calloc(exec->rows_max, sizeof *b->rows);
        b->best = calloc(exec->wanted_max, sizeof *b->best);
        if (b->rows == NULL || b->best == NULL)
            return lw_fail(d, LW_NO_ROOM, "no memory for batches of %u rows", exec->rows_max);
        const lw_status status = batch_room(b, LANES_USUAL, IDS_USUAL, d);
        if (status != LW_OK) return status;
    }
    return room_make((void **)&exec->copies, &exec->copy_room, COPIES_USUAL, sizeof *exec->copies, d);
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
    exec->rows_max = options->rows_max;
    exec->wanted_max = options->wanted_max;
    for (uint32_t i = 0; i < LW_PLAN_REACHES_MAX; i++) exec->page_counts[i] = options->page_counts[i];
    for (uint32_t i = 0; i < plan->weight_count; i++)
        exec->counts.weight_bytes += lw_weight_bytes(&plan->weights[i]);
    lw_status status = batches_make(exec, d);
    if (status == LW_OK && plan->entry_count > LW_ENTRY_HEAD)
        status = lw_chain_walk_init(&exec->walk, options->wanted_max, d);
    if (status != LW_OK) {
        null_exec_close(exec);
        return status;
    }
    *out = exec;
    return LW_OK;
}

/* ---- what is given ---- */

static null_batch *batch_at(lw_exec *exec, lw_ticket ticket)
{
    return &exec->batches[ticket % LW_BATCHES_OPEN_MAX];
}

/* Counts the batch's ops and checks what a device leans on; its wanted rows. */
static uint32_t batch_check(lw_exec *exec, uint32_t entry, const lw_batch *batch)
{
    LW_ASSERT(entry < exec->plan->entry_count && batch->row_count > 0 && batch->row_count <= exec->rows_max);
    uint32_t wanted_count = 0;
    for (uint32_t r = 0; r < batch->row_count; r++) {
        const lw_row *row = &batch->rows[r];
        LW_ASSERT(row->lane < batch->lane_count && row->parent < (int32_t)r);
        LW_ASSERT(row->slot >= batch->lanes[row->lane].committed);
        for (uint32_t g = 0; g < exec->plan->reach_count; g++) {
            const lw_batch_lane *lane = &batch->lanes[row->lane];
            LW_ASSERT(row->slot / LW_PAGE_POSITIONS < lane->page_count);
            LW_ASSERT(lane->pages[g][row->slot / LW_PAGE_POSITIONS] < exec->page_counts[g]);
        }
        wanted_count += row->wanted;
    }
    const lw_entry *e = &exec->plan->entries[entry];
    exec->counts.ops += e->op_end - e->op_begin;
    LW_ASSERT(wanted_count <= exec->wanted_max);
    return wanted_count;
}

static lw_status batch_keep(lw_exec *exec, null_batch *b, const lw_batch *batch, lw_diag *d)
{
    const uint32_t groups = exec->plan->reach_count;
    size_t ids = 0;
    for (uint32_t i = 0; i < batch->lane_count; i++) ids += (size_t)batch->lanes[i].page_count * groups;
    const lw_status status = batch_room(b, batch->lane_count, ids, d);
    if (status != LW_OK) return status;
    memcpy(b->rows, batch->rows, batch->row_count * sizeof *b->rows);
    uint32_t *at = b->ids;
    for (uint32_t i = 0; i < batch->lane_count; i++) {
        b->lanes[i] = batch->lanes[i];
        for (uint32_t g = 0; g < groups; g++, at += batch->lanes[i].page_count) {
            memcpy(at, batch->lanes[i].pages[g], batch->lanes[i].page_count * sizeof *at);
            b->lanes[i].pages[g] = at;
        }
    }
    b->batch = *batch;
    b->batch.rows = b->rows;
    b->batch.lanes = b->lanes;
    return LW_OK;
}

/* A drawn token names a row that the batch before draws, and that one is open. */
static void tokens_check(lw_exec *exec, const lw_batch *batch)
{
    const null_batch *before = batch_at(exec, exec->submitted);
    for (uint32_t r = 0; r < batch->row_count; r++) {
        if (batch->rows[r].token >= 0) continue;
        LW_ASSERT(exec->submitted > exec->waited && before->batch.best);
        LW_ASSERT((uint32_t)(-1 - batch->rows[r].token) < before->wanted_count);
    }
}

static lw_status null_submit(lw_exec *exec, uint32_t entry, const lw_batch *batch, lw_ticket *ticket,
                             lw_diag *d)
{
    LW_ASSERT(exec->submitted - exec->waited < LW_BATCHES_OPEN_MAX);
    null_batch *b = batch_at(exec, exec->submitted + 1);
    const uint32_t wanted_count = batch_check(exec, entry, batch);
    tokens_check(exec, batch);
    const lw_status status = batch_keep(exec, b, batch, d);
    if (status != LW_OK) return status;
    b->wanted_count = wanted_count;
    exec->chain_count = 0;
    exec->counts.submits++;
    exec->counts.submits_ahead += exec->submitted > exec->waited;
    exec->counts.rows += batch->row_count;
    exec->counts.wanted_rows += wanted_count;
    *ticket = ++exec->submitted;
    return LW_OK;
}

static lw_status null_page_copy(lw_exec *exec, uint32_t group, uint32_t from, uint32_t to, lw_diag *d)
{
    LW_ASSERT(from < exec->page_counts[group] && to < exec->page_counts[group]);
    const lw_status status = room_make((void **)&exec->copies, &exec->copy_room, exec->copy_count + 1,
                                       sizeof *exec->copies, d);
    if (status != LW_OK) return status;
    exec->copies[exec->copy_count++] =
        (null_copy){ .group = group, .from = from, .to = to, .after = exec->submitted };
    exec->counts.page_copies++;
    return LW_OK;
}

/* ---- doing it ---- */

/* Copies that were asked for before the batch of this ticket. */
static void copies_do(lw_exec *exec, lw_ticket ticket)
{
    size_t count = 0;
    for (; count < exec->copy_count && exec->copies[count].after < ticket; count++) {
        const null_copy *c = &exec->copies[count];
        if (exec->model.page_copy != NULL)
            exec->model.page_copy(exec->model.context, c->group, c->from, c->to);
    }
    exec->copy_count -= count;
    memmove(exec->copies, exec->copies + count, exec->copy_count * sizeof *exec->copies);
}

static size_t logits_stride(const lw_exec *exec)
{
    return exec->model.forward != NULL ? exec->plan->vocab : 0;
}

static void batch_do(lw_exec *exec, lw_ticket ticket)
{
    null_batch *b = batch_at(exec, ticket), *before = batch_at(exec, ticket - 1);
    for (uint32_t r = 0; r < b->batch.row_count; r++) {
        if (b->rows[r].token >= 0) continue;
        const int32_t drawn = before->best[-1 - b->rows[r].token];
        b->rows[r].token = drawn < 0 ? 0 : drawn;
    }
    if (exec->model.forward != NULL) exec->model.forward(exec->model.context, &b->batch, exec->logits);
    for (uint32_t i = 0; b->batch.best && i < b->wanted_count; i++)
        b->best[i] = lw_logits_best(exec->logits + i * logits_stride(exec), exec->plan->vocab);
}

static void batches_do(lw_exec *exec, lw_ticket end)
{
    while (exec->done < end) {
        copies_do(exec, ++exec->done);
        batch_do(exec, exec->done);
    }
}

void lw_null_settle(lw_exec *exec)
{
    batches_do(exec, exec->submitted);
    copies_do(exec, exec->submitted + 1);
}

static lw_status null_submit_chain(lw_exec *exec, const lw_chain *chain, lw_ticket *ticket, lw_diag *d)
{
    (void)d;
    lw_batch batch;
    LW_ASSERT(exec->submitted == exec->waited);
    lw_null_settle(exec);
    lw_chain_walk_begin(&exec->walk, chain);
    while (lw_chain_walk_batch(&exec->walk, &batch)) {
        batch_check(exec, LW_ENTRY_HEAD, &batch);
        if (exec->model.head != NULL) exec->model.head(exec->model.context, &batch, exec->logits);
        lw_chain_walk_draw(&exec->walk, exec->logits, logits_stride(exec), exec->plan->vocab);
        exec->counts.chain_rows += batch.row_count;
    }
    exec->counts.chains++;
    exec->chain_count = chain->row_count;
    *ticket = exec->done = ++exec->submitted;
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
    batches_do(exec, ticket);
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
    LW_ASSERT(exec->waited == exec->submitted && exec->chain_count == 0);
    LW_ASSERT(index < batch_at(exec, exec->waited)->wanted_count);
    *logits = exec->logits + index * logits_stride(exec);
    return LW_OK;
}

static lw_status null_read_best(lw_exec *exec, uint32_t index, int32_t *id, lw_diag *d)
{
    (void)d;
    const null_batch *b = batch_at(exec, exec->waited);
    LW_ASSERT(exec->chain_count == 0 && b->batch.best && index < b->wanted_count);
    *id = b->best[index];
    return LW_OK;
}

static bool null_goes_ahead(const lw_device *device)
{
    (void)device;
    return true;
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
    .goes_ahead = null_goes_ahead,
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
