/* The cpu device's own objects: what compile makes and a forward walks over. Owned by the device's thread;
 * the pool's threads see them only inside lw_pool_run.
 */
#ifndef LW_DEVICE_CPU_EXEC_H
#define LW_DEVICE_CPU_EXEC_H

#include "base/pool.h"
#include "device/chain.h"
#include "device/cpu/experts.h"
#include "device/device.h"

struct lw_device {
    const lw_cpu_kernels *kernels;
    lw_pool *pool;
};

/* Storage of one value: rows apart by stride elements. */
typedef struct lw_cpu_buffer {
    uint8_t *bytes;
    size_t stride;
} lw_cpu_buffer;

/* What batches of up to rows_max rows need beside weights, pages and values. */
typedef struct lw_cpu_sizes {
    size_t prepared_bytes;             /* of the input of any linear, or expert linear */
    size_t attend_bytes;               /* scratch of all parts */
    size_t recur_prepared;             /* floats of what a recurrence prepares */
    size_t recur_bytes;                /* of those and of the scratch of all parts */
    size_t route_floats;               /* scratch of all parts */
    uint32_t vectors_max, members_max; /* of the experts' tables */
} lw_cpu_sizes;

struct lw_exec {
    lw_device *device;
    const lw_plan *plan;
    lw_arena arena;                    /* tables below; the large memory is mapped apart */
    uint32_t rows_max, wanted_max;
    lw_trace trace;
    float *trace_row;                  /* [widest value] */

    lw_cpu_weight **weights;           /* [plan->weight_count]; NULL where an op wants a vector */
    float **vectors;                   /* [plan->weight_count]; norms [n], convolutions (taps, width) */
    lw_cpu_buffer *buffers;            /* [plan->value_count]; of the base value */
    uint8_t *activations;
    size_t activation_bytes;
    lw_cpu_pages *pages;               /* [plan->state_count] */
    uint32_t page_counts[LW_PLAN_REACHES_MAX];
    lw_cpu_sizes sizes;
    void *prepared;
    float *attend_scratch;
    lw_cpu_expert_tables experts;
    float *route_scratch;              /* lw_cpu_route_scratch_floats of the most experts, for each part */
    float *recur;                      /* what a recurrence prepares, then the scratch of its parts */

    /* of the batch in flight */
    const lw_batch *batch;
    uint32_t wanted_count;
    uint32_t *wanted_rows;             /* [wanted_max] */
    lw_cpu_place *places[LW_PLAN_REACHES_MAX];   /* [rows_max] each */
    bool *is_chain;                    /* [rows_max] */
    uint32_t *lineage;                 /* [LW_LINEAGE_MAX] */
    float *cosines[LW_PLAN_ROPES_MAX], *sines[LW_PLAN_ROPES_MAX]; /* (rows_max, half) */
    uint32_t prepared_value;           /* whose rows `prepared` holds; LW_NONE: nobody's */
    uint32_t prepared_route;           /* by which route they were sorted; LW_NONE: they stand in order */
    const lw_cpu_weight *prepared_for;
    const float *logits;
    lw_ticket tickets;
    lw_chain_walk walk;
    uint32_t chain_count;              /* chains of the newest submission */
};

/* Zeroed pages from the system, huge where it gives them; NULL when there are none. */
void *lw__cpu_map(size_t bytes);
void lw__cpu_unmap(void *bytes, size_t count);

/* ---- scratch.c ---- */

lw_cpu_sizes lw__cpu_sizes(const lw_device *device, const lw_plan *plan, uint32_t rows_max);
/* As the device's table says: those, their tables, and the values. */
lw_status lw__cpu_scratch_bytes(const lw_device *device, const lw_plan *plan, const lw_scratch_rows *rows,
                                uint64_t *bytes, lw_diag *d) LW_MUST_USE;
/* All but the values. */
lw_status lw__cpu_scratch_make(lw_exec *exec, lw_diag *d) LW_MUST_USE;

/* Fills places, wanted rows and sines from the batch. */
lw_status lw__cpu_batch_begin(lw_exec *exec, const lw_batch *batch, lw_diag *d) LW_MUST_USE;

/* Whether ops of this kind can run here. */
bool lw__cpu_runs(lw_op_kind kind);

/* Runs the ops [begin, end) of the plan over the batch in flight. */
void lw__cpu_run_ops(lw_exec *exec, uint32_t begin, uint32_t end);

#endif
