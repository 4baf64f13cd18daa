/* The tables of a batch: tokens, wanted rows, where each row's history lies, and sines. */
#include "device/xpu/exec.h"

#include "base/size.h"

#include <stdlib.h>
#include <string.h>

enum { TABLE_ALIGN = 64, CAPACITY_LEAST = 1 << 16 };

static size_t table_take(lw_xpu_tables *t, size_t count, size_t item_bytes)
{
    const size_t at = t->bytes;
    t->bytes = size_round_up(at + count * item_bytes, TABLE_ALIGN);
    return at;
}

/* Places of the tables of so many rows, and of ids ids of pages in each reach group. */
static void tables_lay(lw_xpu_tables *t, const lw_plan *plan, size_t rows, size_t wanted_max, size_t ids)
{
    t->bytes = 0;
    t->tokens = table_take(t, rows, sizeof(int32_t));
    t->step = table_take(t, 1, sizeof(uint32_t));
    t->wanted = table_take(t, wanted_max, sizeof(uint32_t));
    t->spans = table_take(t, rows, sizeof(lw_xpu_span));
    for (uint32_t g = 0; g < plan->reach_count; g++) {
        t->places[g] = table_take(t, rows, sizeof(lw_xpu_place));
        t->ids[g] = table_take(t, ids, sizeof(uint32_t));
    }
    for (uint32_t i = 0; i < plan->rope_count; i++) {
        t->cosines[i] = table_take(t, rows * plan->ropes[i].half, sizeof(float));
        t->sines[i] = table_take(t, rows * plan->ropes[i].half, sizeof(float));
    }
    t->lineage = t->bytes; /* last: most batches have none */
}

/* Room for tables of so many bytes and any lineage, and for those of a larger batch to come. */
static size_t tables_capacity(size_t bytes)
{
    const size_t needed = bytes + LW_LINEAGE_MAX * sizeof(uint32_t);
    return size_max(needed + needed / 2, CAPACITY_LEAST);
}

size_t lw__xpu_tables_bytes(const lw_plan *plan, uint32_t rows_max, uint32_t wanted_max)
{
    lw_xpu_tables t;
    tables_lay(&t, plan, rows_max, wanted_max, 0);
    return tables_capacity(t.bytes);
}

static void tables_measure(lw_exec *exec, const lw_batch *batch)
{
    size_t ids = 0;
    for (uint32_t i = 0; i < batch->lane_count; i++) ids += batch->lanes[i].page_count;
    tables_lay(&exec->tables, exec->plan, batch->row_count, exec->wanted_max, ids);
}

/* Grows host and device memory to what the batch may need; a server's batches are soon all alike. */
static lw_status tables_reserve(lw_exec *exec, lw_diag *d)
{
    lw_xpu_tables *t = &exec->tables;
    const size_t needed = t->bytes + LW_LINEAGE_MAX * sizeof(uint32_t);
    if (needed <= t->capacity) return LW_OK;
    const size_t capacity = tables_capacity(t->bytes);
    lw_xpu_memory memory;
    /* Kernels of the last batch may still read the old memory. */
    lw_status status = lw__xpu_sync(exec->device, d);
    if (status == LW_OK) status = lw__xpu_alloc(exec->device, capacity, &memory, d);
    if (status != LW_OK) return status;
    uint8_t *host = realloc(t->host, capacity);
    if (host == NULL) {
        lw__xpu_free(exec->device, &memory);
        return lw_fail(d, LW_NO_ROOM, "no memory for the tables of %u rows", exec->rows_max);
    }
    lw__xpu_free(exec->device, &t->memory);
    t->memory = memory;
    t->host = host;
    t->capacity = capacity;
    return LW_OK;
}

static void *table_at(const lw_exec *exec, size_t offset)
{
    return exec->tables.host + offset;
}

static void fill_ids(lw_exec *exec, const lw_batch *batch)
{
    for (uint32_t g = 0; g < exec->plan->reach_count; g++) {
        uint32_t *ids = table_at(exec, exec->tables.ids[g]);
        for (uint32_t i = 0; i < batch->lane_count; i++) {
            memcpy(ids, batch->lanes[i].pages[g], batch->lanes[i].page_count * sizeof *ids);
            ids += batch->lanes[i].page_count;
        }
    }
}

static lw_status fill_places(lw_exec *exec, const lw_batch *batch, lw_diag *d)
{
    uint32_t *lineage = table_at(exec, exec->tables.lineage);
    uint32_t used = 0;
    for (uint32_t r = 0; r < batch->row_count; r++) {
        const lw_row *row = &batch->rows[r];
        const lw_batch_lane *lane = &batch->lanes[row->lane];
        LW_ASSERT(row->lane < batch->lane_count && row->parent < (int32_t)r);
        LW_ASSERT(row->position >= lane->committed && row->slot >= lane->committed);
        LW_ASSERT(row->slot / LW_PAGE_POSITIONS < lane->page_count);
        lw_xpu_place place = { .position = row->position, .slot = row->slot, .committed = lane->committed,
                               .lineage = LW_XPU_NONE };
        for (uint32_t i = 0; i < row->lane; i++) place.pages += batch->lanes[i].page_count;
        exec->is_chain[r] = lw_row_is_chain(batch, r, exec->is_chain);
        if (!exec->is_chain[r]) {
            const uint32_t count = lw_row_lineage(batch, r, lineage + used, LW_LINEAGE_MAX - used);
            if (count == 0)
                return lw_fail(d, LW_NO_ROOM, "the batch's tree windows name more than %d slots",
                               LW_LINEAGE_MAX);
            place.lineage = used;
            used += count;
        }
        for (uint32_t g = 0; g < exec->plan->reach_count; g++) {
            LW_ASSERT(lane->pages[g][row->slot / LW_PAGE_POSITIONS] < exec->page_counts[g]);
            ((lw_xpu_place *)table_at(exec, exec->tables.places[g]))[r] = place;
        }
    }
    exec->tables.bytes += used * sizeof *lineage;
    return LW_OK;
}

/* Rows of a lane are neighbours. */
static void fill_spans(lw_exec *exec, const lw_batch *batch)
{
    lw_xpu_span *spans = table_at(exec, exec->tables.spans);
    exec->span_count = exec->span_rows_max = 0;
    for (uint32_t begin = 0, end; begin < batch->row_count; begin = end) {
        for (end = begin + 1; end < batch->row_count && batch->rows[end].lane == batch->rows[begin].lane;)
            end++;
        spans[exec->span_count++] = (lw_xpu_span){ begin, end };
        exec->span_rows_max = end - begin > exec->span_rows_max ? end - begin : exec->span_rows_max;
    }
}

static void fill_rows(lw_exec *exec, const lw_batch *batch)
{
    int32_t *tokens = table_at(exec, exec->tables.tokens);
    uint32_t *wanted = table_at(exec, exec->tables.wanted);
    exec->wanted_count = 0;
    exec->takes_drawn = false;
    for (uint32_t r = 0; r < batch->row_count; r++) {
        tokens[r] = batch->rows[r].token;
        exec->takes_drawn = exec->takes_drawn || tokens[r] < 0;
        LW_ASSERT(!batch->rows[r].wanted || exec->wanted_count < exec->wanted_max);
        if (batch->rows[r].wanted) wanted[exec->wanted_count++] = r;
        for (uint32_t i = 0; i < exec->plan->rope_count; i++) {
            const lw_rope_table *rope = &exec->plan->ropes[i];
            const size_t at = (size_t)r * rope->half;
            lw_rope_angles(rope, batch->rows[r].position,
                           (float *)table_at(exec, exec->tables.cosines[i]) + at,
                           (float *)table_at(exec, exec->tables.sines[i]) + at);
        }
    }
}

lw_status lw__xpu_batch_begin(lw_exec *exec, const lw_batch *batch, uint32_t step, lw_diag *d)
{
    LW_ASSERT(batch->row_count > 0 && batch->row_count <= exec->rows_max);
    tables_measure(exec, batch);
    lw_status status = tables_reserve(exec, d);
    if (status != LW_OK) return status;
    fill_rows(exec, batch);
    memcpy(table_at(exec, exec->tables.step), &step, sizeof step);
    fill_ids(exec, batch);
    fill_spans(exec, batch);
    status = fill_places(exec, batch, d);
    if (status != LW_OK) return status;
    exec->batch = batch;
    exec->summed_value = LW_NONE;
    exec->sorted_route = LW_NONE;
    const lw_xpu_tables *t = &exec->tables;
    const size_t begin = step == 0 ? 0 : t->step; /* tokens stand first */
    return lw__xpu_upload(exec->device, t->memory.at + begin, t->host + begin, t->bytes - begin, d);
}
