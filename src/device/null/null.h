/* The null device: computes nothing, counts everything and keeps to the asynchronous contract, so that schedules can
 * be tested without a model. Logits are all zero. A submission is done only when it is waited for, in order; several
 * may be under way; reading what was not waited for is a broken assumption.
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
    uint64_t page_copies;
} lw_null_counts;

lw_null_counts lw_null_read_counts(const lw_exec *exec);

/* The n-th submission from now on (1: the next) fails at its wait with LW_DEVICE_LOST; 0: none does. */
void lw_null_fail_at(lw_exec *exec, uint64_t n);

#endif
