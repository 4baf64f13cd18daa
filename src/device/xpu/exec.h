/* The xpu device's own objects: what compile makes and a forward walks over. Owned by the device's thread. */
#ifndef LW_DEVICE_XPU_EXEC_H
#define LW_DEVICE_XPU_EXEC_H

#include "device/chain.h"
#include "device/layout.h"
#include "device/rows.h"
#include "device/xpu/kargs_experts.h"
#include "device/xpu/fuse.h"
#include "device/xpu/queue.h"

/* A weight as its ops want it: a matrix in blocks, or one vector of fp32 (norms, convolutions). */
typedef struct lw_xpu_weight {
    lw_xpu_memory memory;
    lw_xpu_matrix matrix;                /* rows 0: a vector */
    bool is_paired;                      /* its words are as DPAS wants them */
} lw_xpu_weight;

/* Tables of the batch in flight, built on the host and copied in one go; offsets in bytes. */
typedef struct lw_xpu_tables {
    uint8_t *host;
    size_t capacity, bytes;
    lw_xpu_memory memory;
    size_t tokens, step, wanted, lineage, spans;
    size_t places[LW_PLAN_REACHES_MAX], ids[LW_PLAN_REACHES_MAX];
    size_t cosines[LW_PLAN_ROPES_MAX], sines[LW_PLAN_ROPES_MAX];
} lw_xpu_tables;

enum {
    LW_XPU_RECORDS_MAX = 64,
    LW_XPU_RECORD_ROWS_MAX =
        64, /* batches of more rows are rarely alike, and long enough to hide their launches */
};

/* A closed command list, and the tape that it was recorded from. */
typedef struct lw_xpu_record {
    lw_ze_list *list;
    uint8_t *bytes;
    size_t count;
    uint32_t launches;
    uint64_t used;                       /* when it last ran */
} lw_xpu_record;

typedef struct lw_xpu_records {
    lw_xpu_record all[LW_XPU_RECORDS_MAX];
    uint32_t count;
    uint64_t clock;
} lw_xpu_records;

/* What is read of a submission after its wait. */
typedef struct lw_xpu_submission {
    uint32_t wanted_count;
    bool has_best;
} lw_xpu_submission;

struct lw_exec {
    lw_device *device;
    const lw_plan *plan;
    lw_arena arena;                      /* what is small */
    uint32_t rows_max, wanted_max;
    lw_trace trace;
    lw_xpu_weight *weights;              /* [plan->weight_count] */
    lw_xpu_schedule schedule;
    lw_xpu_memory parts;                 /* lw_xpu_linear_args (parts_count, LW_XPU_LINEARS_MAX) */
    lw_layout layout;
    lw_xpu_memory activations;
    lw_xpu_memory *pages;                /* [plan->state_count] */
    uint32_t page_counts[LW_PLAN_REACHES_MAX];
    lw_xpu_memory sums;                  /* of the groups of one linear's input */
    lw_xpu_memory expert_order;          /* of one route's vectors; where things lie in it: */
    lw_xpu_sorted sorted;
    lw_xpu_memory recurrence;            /* what the rows of one recurrence leave to its walk */
    lw_xpu_memory attention;             /* what the chunks of one attention leave to their merging */
    float *trace_row;                    /* [widest value] twice: as fp32, then as stored */
    bool *is_chain;                      /* [rows_max] */
    float *logits;                       /* [wanted_max, vocab]; malloc'd */
    bool *logits_here;                   /* [wanted_max]: that row was copied from the device */
    lw_xpu_records records;
    lw_xpu_memory best_parts,
        best_ids; /* of the likeliest tokens; ids: i32 (LW_CHAIN_STEPS_MAX, wanted_max) */
    uint8_t *best_here;                  /* host memory: ids of each mark, once they are waited for */
    lw_xpu_submission submissions[LW_XPU_MARKS];   /* by ticket */

    /* of the batch that is being appended */
    const lw_batch *batch;
    lw_xpu_tables tables;
    uint32_t entry, wanted_count;
    uint32_t span_count, span_rows_max;  /* runs of one lane's rows; rows of the longest */
    uint32_t summed_value, summed_group; /* whose groups sums holds; LW_NONE: nobody's */
    uint32_t sorted_route, sorted_rows;  /* whose vectors expert_order holds, and rows of a tile; LW_NONE:
                                            nobody's */
    bool takes_drawn;                    /* some of its tokens are the batch before's */
    lw_ticket submitted, waited;
    lw_chain_walk walk;
    uint32_t chain_count, chain_steps;   /* of the newest submission; steps that the device drew */
};

/* LW_UNSUPPORTED, naming op, weight or value, where the plan holds what no kernel computes. */
lw_status lw__xpu_plan_check(const lw_plan *plan, lw_diag *d) LW_MUST_USE;

/* Whether ops of this kind have a kernel. */
bool lw__xpu_runs(lw_op_kind kind);

/* Memory for sorting vectors by expert, where the plan has experts. */
lw_status lw__xpu_experts_make(lw_exec *exec, lw_diag *d) LW_MUST_USE;
/* What that takes. */
size_t lw__xpu_experts_bytes(const lw_plan *plan, uint32_t rows_max);

/* Repacks and uploads a weight for op. */
lw_status lw__xpu_weight_load(lw_exec *exec, const lw_op *op, uint32_t index, lw_diag *d) LW_MUST_USE;

/* Device memory that the tables of such batches take at most, the ids of their lanes' pages apart. */
size_t lw__xpu_tables_bytes(const lw_plan *plan, uint32_t rows_max, uint32_t wanted_max);
/* Builds and uploads the batch's tables; those of a chain's later steps without tokens, which the step before
 * draws. */
lw_status lw__xpu_batch_begin(lw_exec *exec, const lw_batch *batch, uint32_t step, lw_diag *d) LW_MUST_USE;

/* Memory of the likeliest tokens of wanted rows. */
lw_status lw__xpu_best_make(lw_exec *exec, lw_diag *d) LW_MUST_USE;
/* What that takes of the device. */
size_t lw__xpu_best_bytes(const lw_plan *plan, uint32_t wanted_max);
void lw__xpu_best_free(lw_exec *exec);
/* Puts the search for them on the tape; goes_on: they are the next step's tokens. */
lw_status lw__xpu_best_launch(lw_exec *exec, bool goes_on, lw_diag *d) LW_MUST_USE;
/* Puts on the tape what takes the tokens from there that the batch before drew. */
lw_status lw__xpu_drawn_launch(lw_exec *exec, lw_diag *d) LW_MUST_USE;
/* Appends the copy of them to the host, of so many steps, for a submission of this ticket. */
lw_status lw__xpu_best_fetch(lw_exec *exec, lw_ticket ticket, uint32_t steps, lw_diag *d) LW_MUST_USE;
/* After the wait for it, of what was last waited for. -1: a logit was not finite. */
int32_t lw__xpu_best_id(const lw_exec *exec, uint32_t step, uint32_t row);

/* Device memory for the recurrences of a plan over that many rows. */
size_t lw__xpu_recurrence_bytes(const lw_plan *plan, uint32_t rows);

/* Device memory for the chunks of a plan's attention. */
size_t lw__xpu_attend_bytes(const lw_plan *plan);

/* Empties the tape. */
void lw__xpu_tape_begin(lw_device *device);
/* Appends what is on the tape and empties it; is_usual: it is likely to come again, and worth recording. */
lw_status lw__xpu_tape_run(lw_exec *exec, bool is_usual, lw_diag *d) LW_MUST_USE;
/* Once nothing that was appended runs any more. */
void lw__xpu_records_free(lw_exec *exec);

/* Uploads what fused steps read besides their own arguments, once weights and values have their places. */
lw_status lw__xpu_fused_make(lw_exec *exec, lw_diag *d) LW_MUST_USE;

/* Puts an entry's steps over the batch in flight on the tape. */
lw_status lw__xpu_run_entry(lw_exec *exec, uint32_t entry, lw_diag *d) LW_MUST_USE;

#endif
