/* What a forward needs to know of its batch before the first op: where each row's history lies, which rows
 * are wanted, and the sines of their positions.
 */
#include "device/cpu/exec.h"
#include "device/rows.h"

static lw_status place_rows(lw_exec *exec, const lw_batch *batch, lw_diag *d)
{
    uint32_t lineage_used = 0;
    for (uint32_t r = 0; r < batch->row_count; r++) {
        const lw_row *row = &batch->rows[r];
        LW_ASSERT(row->lane < batch->lane_count && row->parent < (int32_t)r);
        const lw_batch_lane *lane = &batch->lanes[row->lane];
        LW_ASSERT(row->position >= lane->committed && row->slot >= lane->committed);
        exec->is_chain[r] = lw_row_is_chain(batch, r, exec->is_chain);
        const uint32_t *slots = NULL;
        if (!exec->is_chain[r]) {
            uint32_t *at = exec->lineage + lineage_used;
            const uint32_t count = lw_row_lineage(batch, r, at, LW_LINEAGE_MAX - lineage_used);
            if (count == 0) {
                return lw_fail(d, LW_NO_ROOM, "the batch's tree windows name more than %d slots",
                               LW_LINEAGE_MAX);
            }
            slots = at;
            lineage_used += count;
        }
        for (uint32_t g = 0; g < exec->plan->reach_count; g++) {
            LW_ASSERT(row->slot / LW_PAGE_POSITIONS < lane->page_count);
            LW_ASSERT(lane->pages[g][row->slot / LW_PAGE_POSITIONS] < exec->page_counts[g]);
            exec->places[g][r] = (lw_cpu_place){ .position = row->position, .slot = row->slot,
                                                 .committed = lane->committed, .pages = lane->pages[g],
                                                 .lineage = slots };
        }
    }
    return LW_OK;
}

static void fill_sines(void *context, unsigned part, unsigned parts)
{
    const lw_exec *exec = context;
    size_t begin, end;
    lw_pool_share(exec->batch->row_count, 1, part, parts, &begin, &end);
    for (uint32_t t = 0; t < exec->plan->rope_count; t++) {
        const lw_rope_table *table = &exec->plan->ropes[t];
        for (size_t r = begin; r < end; r++) {
            const size_t at = r * table->half;
            lw_rope_angles(table, exec->batch->rows[r].position, exec->cosines[t] + at, exec->sines[t] + at);
        }
    }
}

lw_status lw__cpu_batch_begin(lw_exec *exec, const lw_batch *batch, lw_diag *d)
{
    LW_ASSERT(batch->row_count > 0 && batch->row_count <= exec->rows_max);
    exec->wanted_count = 0;
    for (uint32_t r = 0; r < batch->row_count; r++) {
        if (!batch->rows[r].wanted) continue;
        LW_ASSERT(exec->wanted_count < exec->wanted_max);
        exec->wanted_rows[exec->wanted_count++] = r;
    }
    const lw_status status = place_rows(exec, batch, d);
    if (status != LW_OK) return status;
    exec->batch = batch;
    exec->prepared_value = LW_NONE;
    lw_pool_run(exec->device->pool, fill_sines, exec);
    return LW_OK;
}
