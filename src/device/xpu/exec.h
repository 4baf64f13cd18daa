/* The xpu device's own objects: what compile makes and a forward walks over. Owned by the device's thread. */
#ifndef LW_DEVICE_XPU_EXEC_H
#define LW_DEVICE_XPU_EXEC_H

#include "device/chain.h"
#include "device/layout.h"
#include "device/rows.h"
#include "device/xpu/queue.h"

/* A weight as its ops want it: a matrix in blocks, or one vector of fp32 (norms, convolutions). */
typedef struct lw_xpu_weight {
    lw_xpu_memory memory;
    lw_xpu_matrix matrix;                /* rows 0: a vector */
} lw_xpu_weight;

/* Tables of the batch in flight, built on the host and copied in one go; offsets in bytes. */
typedef struct lw_xpu_tables {
    uint8_t *host;
    size_t capacity, bytes;
    lw_xpu_memory memory;
    size_t tokens, wanted, lineage;
    size_t places[LW_PLAN_REACHES_MAX], ids[LW_PLAN_REACHES_MAX];
    size_t cosines[LW_PLAN_ROPES_MAX], sines[LW_PLAN_ROPES_MAX];
} lw_xpu_tables;

struct lw_exec {
    lw_device *device;
    const lw_plan *plan;
    lw_arena arena;                      /* what is small */
    uint32_t rows_max, wanted_max;
    lw_trace trace;
    lw_xpu_weight *weights;              /* [plan->weight_count] */
    lw_layout layout;
    lw_xpu_memory activations;
    lw_xpu_memory *pages;                /* [plan->state_count] */
    uint32_t page_counts[LW_PLAN_REACHES_MAX];
    lw_xpu_memory sums;                  /* of the groups of one linear's input */
    float *trace_row;                    /* [widest value] twice: as fp32, then as stored */
    bool *is_chain;                      /* [rows_max] */
    float *logits;                       /* [wanted_max, vocab]; malloc'd */
    bool *logits_here;                   /* [wanted_max]: that row was copied from the device */

    /* of the batch in flight */
    const lw_batch *batch;
    lw_xpu_tables tables;
    uint32_t entry, wanted_count;
    uint32_t summed_value, summed_group; /* whose groups sums holds; LW_NONE: nobody's */
    lw_ticket submitted, waited;
    lw_chain_walk walk;
    uint32_t chain_count;                /* chains of the newest submission */
};

/* LW_UNSUPPORTED, naming op, weight or value, where the plan holds what no kernel computes. */
lw_status lw__xpu_plan_check(const lw_plan *plan, lw_diag *d) LW_MUST_USE;

/* Whether ops of this kind have a kernel. */
bool lw__xpu_runs(lw_op_kind kind);

/* Repacks and uploads a weight for op. */
lw_status lw__xpu_weight_load(lw_exec *exec, const lw_op *op, uint32_t index, lw_diag *d) LW_MUST_USE;

/* Device memory that the tables of such batches take at most, the ids of their lanes' pages apart. */
size_t lw__xpu_tables_bytes(const lw_plan *plan, uint32_t rows_max, uint32_t wanted_max);
/* Builds and uploads the batch's tables. */
lw_status lw__xpu_batch_begin(lw_exec *exec, const lw_batch *batch, lw_diag *d) LW_MUST_USE;

/* Appends the ops [begin, end) of the plan over the batch in flight. */
lw_status lw__xpu_run_ops(lw_exec *exec, uint32_t begin, uint32_t end, lw_diag *d) LW_MUST_USE;

#endif
