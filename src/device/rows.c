/* Rows of a batch as devices see them; see rows.h. */
#include "device/rows.h"

#include <math.h>

bool lw_row_is_chain(const lw_batch *batch, uint32_t index, const bool *is_chain)
{
    const lw_row *row = &batch->rows[index];
    const bool parent_is_chain = row->parent < 0 || is_chain[row->parent];
    return row->slot == row->position && parent_is_chain;
}

uint32_t lw_row_lineage(const lw_batch *batch, uint32_t index, uint32_t *slots, uint32_t room)
{
    const lw_row *row = &batch->rows[index];
    const uint32_t count = row->position - batch->lanes[row->lane].committed + 1;
    if (count > room) return 0;
    for (uint32_t i = count; i-- > 0; row = &batch->rows[row->parent]) {
        slots[i] = row->slot;
        LW_ASSERT(i == 0 ? row->parent < 0 : row->parent >= 0);
        if (i == 0) break;
    }
    return count;
}

int32_t lw_logits_best(const float *logits, uint32_t vocab)
{
    uint32_t best = 0;
    for (uint32_t id = 0; id < vocab; id++) {
        if (!isfinite(logits[id])) return -1;
        best = logits[id] > logits[best] ? id : best;
    }
    return (int32_t)best;
}

void lw_rope_angles(const lw_rope_table *table, uint32_t position, float *cosines, float *sines)
{
    for (uint32_t i = 0; i < table->half; i++) {
        const double angle = (double)position * table->frequency[i];
        cosines[i] = (float)cos(angle);
        sines[i] = (float)sin(angle);
    }
}
