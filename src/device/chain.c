/* Walking chains of draft rows; see chain.h. */
#include "device/chain.h"

#include <stdlib.h>

lw_status lw_chain_walk_init(lw_chain_walk *walk, uint32_t rows_max, lw_diag *d)
{
    *walk = (lw_chain_walk){ .rows_max = rows_max };
    walk->rows = calloc(rows_max, sizeof *walk->rows);
    walk->lanes = calloc(rows_max, sizeof *walk->lanes);
    walk->tokens = calloc((size_t)rows_max * LW_CHAIN_STEPS_MAX, sizeof *walk->tokens);
    walk->drawn = calloc(rows_max, sizeof *walk->drawn);
    if (walk->rows != NULL && walk->lanes != NULL && walk->tokens != NULL && walk->drawn != NULL)
        return LW_OK;
    lw_chain_walk_deinit(walk);
    return lw_fail(d, LW_NO_ROOM, "no memory for %u chains of drafts", rows_max);
}

void lw_chain_walk_deinit(lw_chain_walk *walk)
{
    free(walk->rows);
    free(walk->lanes);
    free(walk->tokens);
    free(walk->drawn);
    *walk = (lw_chain_walk){ 0 };
}

void lw_chain_walk_begin(lw_chain_walk *walk, const lw_chain *chain)
{
    LW_ASSERT(chain->row_count > 0 && chain->row_count <= walk->rows_max);
    walk->chain = chain;
    walk->step = 0;
    walk->row_count = chain->row_count;
    for (uint32_t r = 0; r < chain->row_count; r++) {
        const lw_row *row = &chain->rows[r];
        LW_ASSERT(chain->steps[r] > 0 && chain->steps[r] <= LW_CHAIN_STEPS_MAX);
        LW_ASSERT(r == 0 || chain->steps[r] <= chain->steps[r - 1]);
        LW_ASSERT(row->lane < chain->lane_count && row->parent < 0 && row->wanted);
        walk->lanes[r] = chain->lanes[row->lane];
        LW_ASSERT(row->position == walk->lanes[r].committed && row->slot == row->position);
        walk->rows[r] = *row;
        walk->rows[r].lane = r;
    }
}

bool lw_chain_walk_batch(const lw_chain_walk *walk, lw_batch *batch)
{
    *batch = (lw_batch){ .rows = walk->rows, .row_count = walk->row_count, .lanes = walk->lanes,
                         .lane_count = walk->row_count };
    return walk->row_count > 0;
}

static int32_t likeliest(const float *logits, uint32_t vocab)
{
    uint32_t best = 0;
    for (uint32_t id = 1; id < vocab; id++) best = logits[id] > logits[best] ? id : best;
    return (int32_t)best;
}

static void step_end(lw_chain_walk *walk)
{
    for (uint32_t r = 0; r < walk->row_count; r++) {
        walk->rows[r].position++;
        walk->rows[r].slot++;
        walk->lanes[r].committed++;
    }
    walk->step++;
    while (walk->row_count > 0 && walk->chain->steps[walk->row_count - 1] == walk->step) walk->row_count--;
}

void lw_chain_walk_on(lw_chain_walk *walk)
{
    for (uint32_t r = 0; r < walk->row_count; r++) walk->rows[r].token = 0;
    step_end(walk);
}

void lw_chain_walk_keep(lw_chain_walk *walk, uint32_t row, uint32_t step, int32_t token)
{
    LW_ASSERT(row < walk->rows_max && step < LW_CHAIN_STEPS_MAX);
    walk->tokens[(size_t)row * LW_CHAIN_STEPS_MAX + step] = token;
}

void lw_chain_walk_draw(lw_chain_walk *walk, const float *logits, size_t stride, uint32_t vocab)
{
    const lw_chain *chain = walk->chain;
    const lw_chain_step step = { .index = walk->step, .row_count = walk->row_count, .logits = logits,
                                 .stride = stride };
    if (chain->draw != NULL) chain->draw(chain->context, &step, walk->drawn);
    for (uint32_t r = 0; r < walk->row_count; r++) {
        const int32_t token = chain->draw != NULL ? walk->drawn[r] : likeliest(logits + r * stride, vocab);
        LW_ASSERT(token >= 0 && (uint32_t)token < vocab);
        lw_chain_walk_keep(walk, r, walk->step, token);
        walk->rows[r].token = token;
    }
    step_end(walk);
}

const int32_t *lw_chain_walk_tokens(const lw_chain_walk *walk, uint32_t row)
{
    LW_ASSERT(row < walk->rows_max);
    return walk->tokens + (size_t)row * LW_CHAIN_STEPS_MAX;
}
