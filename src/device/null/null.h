/* The null device: computes nothing, counts everything and keeps to the asynchronous contract, so that
 * schedules can be tested without a model. Logits are all zero. A submission is done only when it is waited
 * for, in order; several may be under way; reading what was not waited for is a broken assumption. It finds
 * likeliest tokens itself, as devices do whose logits are far from the host.
 */
#ifndef LW_DEVICE_NULL_NULL_H
#define LW_DEVICE_NULL_NULL_H

#include "device/device.h"

extern const lw_device_table lw_device_null;

typedef struct lw_null_counts {
    uint64_t weight_bytes;      /* as the checkpoint stores them */
    uint64_t submits, waits;
    uint64_t rows, wanted_rows; /* of all submissions */
    uint64_t ops;               /* that would have run */
    uint64_t chains, chain_rows; /* submissions of chains, and the rows of all their steps */
    uint64_t page_copies;
} lw_null_counts;

lw_null_counts lw_null_read_counts(const lw_exec *exec);

/* A model in place of zeros. forward runs at submit, also of one that fails at its wait, and fills
 * logits[wanted_max, vocab] for the wanted rows in batch order; head the same for each step of a chain;
 * page_copy runs with the contract's. */
typedef struct lw_null_model {
    void *context;
    void (*forward)(void *context, const lw_batch *batch, float *logits);
    void (*head)(void *context, const lw_batch *batch, float *logits); /* NULL: zeros */
    void (*page_copy)(void *context, uint32_t group, uint32_t from, uint32_t to);
} lw_null_model;

/* Allocates; NULL takes the model away again. */
lw_status lw_null_set_model(lw_exec *exec, const lw_null_model *model, lw_diag *d) LW_MUST_USE;

/* The n-th submission from now on (1: the next) fails at its wait with LW_DEVICE_LOST; 0: none does. */
void lw_null_fail_at(lw_exec *exec, uint64_t n);

#endif
