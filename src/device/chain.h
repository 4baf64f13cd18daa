/* A chain of draft rows walked step by step on the host: for devices whose submit_chain runs one batch after
 * the other, or appends them all and draws by itself. Each step's batch holds the chains that still go on;
 * what earlier steps wrote counts as committed to it, so its rows need no parents.
 */
#ifndef LW_DEVICE_CHAIN_H
#define LW_DEVICE_CHAIN_H

#include "device/device.h"

typedef struct lw_chain_walk {
    uint32_t rows_max;
    lw_row *rows;              /* [rows_max] of the step in hand */
    lw_batch_lane *lanes;      /* [rows_max] one for each row */
    int32_t *tokens;           /* [rows_max][LW_CHAIN_STEPS_MAX] */
    int32_t *drawn;            /* [rows_max] in the step in hand */
    const lw_chain *chain;
    uint32_t step, row_count;  /* rows of the step in hand */
} lw_chain_walk;

/* All memory that walks of up to rows_max chains take. */
lw_status lw_chain_walk_init(lw_chain_walk *walk, uint32_t rows_max, lw_diag *d) LW_MUST_USE;
void lw_chain_walk_deinit(lw_chain_walk *walk);

/* Borrows chain until the walk is over. */
void lw_chain_walk_begin(lw_chain_walk *walk, const lw_chain *chain);
/* The batch of the step in hand; false: every chain has its tokens. */
bool lw_chain_walk_batch(const lw_chain_walk *walk, lw_batch *batch);
/* Draws for each row of the batch, from logits that lie stride floats apart, and goes to the next step. */
void lw_chain_walk_draw(lw_chain_walk *walk, const float *logits, size_t stride, uint32_t vocab);
/* Goes to the next step where the device draws: its rows' tokens are not known here. */
void lw_chain_walk_on(lw_chain_walk *walk);
/* Tells what the device drew. */
void lw_chain_walk_keep(lw_chain_walk *walk, uint32_t row, uint32_t step, int32_t token);
/* What the chain of this row drew. */
const int32_t *lw_chain_walk_tokens(const lw_chain_walk *walk, uint32_t row);

#endif
