/* What decoding a token reads from memory, counted on a plan: weights as stored, of a stack the chosen share,
 * and the states of a stream. */
#ifndef LW_CLI_BENCH_BYTES_H
#define LW_CLI_BENCH_BYTES_H

#include "ops/plan.h"

typedef struct lw_read_bytes {
    uint64_t weights, states;
    uint64_t keys;             /* and values, of attention: among the states */
} lw_read_bytes;

/* Of one row of op whose stream has so many positions. A recurrence reads its last anchor and, in the mean,
 * half a stretch of steps. */
lw_read_bytes lw_op_reads(const lw_plan *plan, const lw_op *op, uint32_t positions);

/* Whether the op at this index of the plan belongs to a layer of the model: neither to its embedding, nor to
 * what follows the last layer, nor to its draft head. */
bool lw_op_is_of_layers(const lw_plan *plan, uint32_t index);

/* Of one token: each weight once, however many ops read it; a table that is the head too also gives a row.
 * scales: what a layer's bytes count for; NULL: 1. */
lw_read_bytes lw_token_reads(const lw_plan *plan, uint32_t positions, const double *scales);

#endif
