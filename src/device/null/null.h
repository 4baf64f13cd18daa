/* The null device: computes nothing, counts everything and keeps to the asynchronous contract, so that
 * schedules can be tested without a model. Logits are all zero. What it is given, copies of pages too, is
 * done as late as the contract allows: when it is waited for, in order. Reading what was not waited for, or
 * logits that a later batch has written over, is a broken assumption. It finds likeliest tokens itself, as
 * devices do whose logits are far from the host, and goes ahead.
 */
#ifndef LW_DEVICE_NULL_NULL_H
#define LW_DEVICE_NULL_NULL_H

#include "device/device.h"

extern const lw_device_table lw_device_null;

typedef struct lw_null_counts {
    uint64_t weight_bytes;      /* as the checkpoint stores them */
    uint64_t submits, waits;
    uint64_t submits_ahead;     /* of those, while the one before was not waited for */
    uint64_t rows, wanted_rows; /* of all submissions */
    uint64_t ops;               /* that would have run */
    uint64_t chains, chain_rows; /* submissions of chains, and the rows of all their steps */
    uint64_t page_copies;
} lw_null_counts;

lw_null_counts lw_null_read_counts(const lw_exec *exec);

/* A model in place of zeros. forward runs at the wait, also at one that fails, with every token known, and
 * fills logits[wanted_max, vocab] for the wanted rows in batch order; head the same for each step of a chain,
 * at its submission; page_copy between the batches that it was asked between. */
typedef struct lw_null_model {
    void *context;
    void (*forward)(void *context, const lw_batch *batch, float *logits);
    void (*head)(void *context, const lw_batch *batch, float *logits); /* NULL: zeros */
    void (*page_copy)(void *context, uint32_t group, uint32_t from, uint32_t to);
} lw_null_model;

/* Allocates; NULL takes the model away again. */
lw_status lw_null_set_model(lw_exec *exec, const lw_null_model *model, lw_diag *d) LW_MUST_USE;

/* Does now what was given and is not waited for yet: a device may be that quick. */
void lw_null_settle(lw_exec *exec);

/* The n-th submission from now on (1: the next) fails at its wait with LW_DEVICE_LOST; 0: none does. */
void lw_null_fail_at(lw_exec *exec, uint64_t n);

#endif
