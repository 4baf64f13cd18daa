/* The device contract. A device is one folder that ends in one static const lw_device_table.
 *
 * open -> compile (weights repacked once, pools allocated; an op or descriptor it lacks refuses the model by
 * name) -> submit, or submit_chain, / wait / read for each round -> exec_close -> close. One thread owns
 * a device and all it made.
 *
 * What is given to a device it does in order: copies of pages too. Where it goes ahead, one batch more may be
 * submitted before the last one is waited for, and its rows may name tokens that the last one draws.
 *
 * Commit is host arithmetic and no call of this contract: a forward writes at slots >= committed only, so
 * rows that are not kept are simply written over.
 */
#ifndef LW_DEVICE_DEVICE_H
#define LW_DEVICE_DEVICE_H

#include "base/pool.h"
#include "model/checkpoint.h"
#include "ops/plan.h"

/* One token of one stream at one absolute position. */
typedef struct lw_row {
    int32_t token;        /* an id, or lw_row_drawn of one that is not known yet */
    uint32_t lane;        /* index into lw_batch.lanes */
    uint32_t position;    /* absolute */
    uint32_t slot;        /* where it is written: committed + its index in the window; of a chain: position */
    int32_t parent;       /* batch row of the token before it, if that one is open too; -1: it is committed */
    bool wanted;          /* its logits are wanted */
} lw_row;

/* The token that the index-th wanted row of the batch before draws: its likeliest, which that batch was to
 * find (best). Where a logit is NaN or infinite it is any token, and the row is of no use. */
static inline int32_t lw_row_drawn(uint32_t index) { return -1 - (int32_t)index; }

enum { LW_PAGE_NONE = 0xFFFFFFFF, LW_BATCHES_OPEN_MAX = 2 /* that are submitted and not waited for */ };

typedef struct lw_batch_lane {
    uint32_t committed;                              /* positions [0, committed) are kept */
    uint32_t page_count;                             /* entries of each table */
    /* Per reach group: page id of slots [64 i, 64 i + 64), or none. */
    const uint32_t *pages[LW_PLAN_REACHES_MAX];
} lw_batch_lane;

/* Rows of any mix of lanes; rows of one lane stand in order, parents before children. Read by submit alone.
 */
typedef struct lw_batch {
    const lw_row *rows;
    uint32_t row_count;
    const lw_batch_lane *lanes;
    uint32_t lane_count;
    bool best;                /* read_best will be asked, or the next batch names drawn tokens */
} lw_batch;

enum { LW_CHAIN_STEPS_MAX = 16 };

/* One step of chains: the first row_count of their rows still go on. */
typedef struct lw_chain_step {
    uint32_t index;
    uint32_t row_count;
    const float *logits;      /* of each row, stride floats apart */
    size_t stride;
} lw_chain_step;

/* Chains of draft rows, run by the plan's draft head as one submission: from each first row's logits a token
 * is drawn, which is the row of the next step, one position and one slot further, and so on. The token of a
 * chain's last step gets no row. Borrowed until wait. */
typedef struct lw_chain {
    const lw_row *rows;       /* each of a lane of its own, wanted, without parent, at slot == position ==
                                 committed */
    const uint32_t *steps; /* [row_count] tokens to draw, from 1 on; descending, so that chains end from the
                              last one */
    uint32_t row_count;
    const lw_batch_lane *lanes;
    uint32_t lane_count;
    /* Draws tokens[row_count] of a step, ids of the vocabulary; NULL: the likeliest, of equals the lowest id.
     */
    void (*draw)(void *context, const lw_chain_step *step, int32_t *tokens);
    void *context;
} lw_chain;

/* What is told after every op: row, for every vector of its output (slots of a row one after the other), it
 * as fp32; op, the time that it took. Either may be NULL. */
typedef struct lw_trace {
    void (*row)(void *context, const lw_op *op, const lw_value *value, uint32_t row, const float *values);
    void (*op)(void *context, const lw_op *op, uint64_t ns);
    void *context;
} lw_trace;

/* Told how many of the bytes to load are done, from the loading thread; may be NULL. */
typedef struct lw_progress {
    void (*step)(void *context, uint64_t bytes_done, uint64_t bytes_total);
    void *context;
} lw_progress;

enum { LW_DEVICE_TEXT_BYTES = 256 };

typedef struct lw_device lw_device;
typedef struct lw_exec lw_exec;
typedef uint64_t lw_ticket;

typedef struct lw_device_options {
    uint32_t threads;        /* 0: as many as the cores this process may use */
    const char *isa;         /* cpu: "generic", "avx2", "avx512" (the best of its kind), "avx512f",
                                "avx512vnni", "avx512bf16", "avx512amx"; NULL: the best */
    bool fusions_off;        /* same bits, for the fusion law */
    const char *which;       /* of several devices: what --device says after "xpu:"; NULL: the first */
    const char *ze_loader;   /* xpu: the library of Level Zero's loader; NULL: the system's */
    const char *xpu_kernels; /* xpu: a module of its kernels; NULL: those of this build */
    const char *xpu_images;  /* xpu: the folder that keeps modules as its driver built them; NULL: none */
    const char *without;     /* xpu: what it does without, to find out whose fault something is: names with
                                commas between; the bits are the same. NULL: nothing */
    uint32_t wait_s;         /* xpu: the longest wait in seconds, after which it is lost; 0: 120 */
} lw_device_options;

typedef struct lw_exec_options {
    uint32_t rows_max;                           /* rows of the largest batch */
    uint32_t wanted_max;                         /* wanted rows of the largest batch */
    uint32_t page_counts[LW_PLAN_REACHES_MAX];   /* pool of each reach group */
    const lw_checkpoint *checkpoint; /* its mapping is released as weights are repacked; may be NULL */
    lw_progress progress;
    lw_trace trace;
} lw_exec_options;

/* Of the largest batch. */
typedef struct lw_scratch_rows {
    uint32_t rows_max, wanted_max;
} lw_scratch_rows;

/* What a device was given to do since it was opened: commands that the host appended, and kernels that they
 * made the device run. */
typedef struct lw_device_counts { uint64_t commands, launches; } lw_device_counts;

typedef void lw_fact_taker(void *context, const char *name, const char *text);

typedef struct lw_device_table {
    const char *name;
    bool calls_draw;          /* whether submit_chain asks draw; where not, each draws its likeliest token */
    /* How many devices of this kind there are, which may be 0; NULL: one. */
    lw_status (*count)(const lw_device_options *options, uint32_t *count, lw_diag *d);
    lw_status (*open)(const lw_device_options *options, lw_device **out, lw_diag *d);
    void (*close)(lw_device *device);

    /* One line for people, below LW_DEVICE_TEXT_BYTES: "cpu (avx2, 2 threads)". */
    void (*describe)(const lw_device *device, char *text, size_t text_bytes);
    /* Tells what reports say of it beside that, fact by fact: no path and no host's name is among them. NULL:
     * nothing. */
    void (*facts)(const lw_device *device, lw_fact_taker *take, void *context);
    uint64_t (*free_bytes)(const lw_device *device);
    /* Threads of its own that idle between submissions, for who drives it; NULL: it has none. */
    lw_pool *(*threads)(const lw_device *device);
    /* Whether a batch may be submitted before the last one is waited for. NULL: it may not, since submissions
     * run at once and nothing would be won. A device that does has read_best. */
    bool (*goes_ahead)(const lw_device *device);
    /* Seconds after which a wait gives the device up. NULL: it cannot hang, and waits take what they take. */
    uint32_t (*wait_s)(const lw_device *device);
    /* NULL: the device has no launches to count. */
    void (*read_counts)(const lw_device *device, lw_device_counts *counts);

    /* Bytes of one page of a reach group, over all its states; pure. */
    uint64_t (*page_bytes)(const lw_device *device, const lw_plan *plan, uint32_t group);

    /* Bytes that compile takes for batches of up to so many rows, so many of them with logits: values,
     * their logits, scratch and tables of rows. Pure; LW_NO_ROOM where there is no memory to work it out. */
    lw_status (*scratch_bytes)(const lw_device *device, const lw_plan *plan, const lw_scratch_rows *rows,
                               uint64_t *bytes, lw_diag *d);

    lw_status (*compile)(lw_device *device, const lw_plan *plan, const lw_exec_options *options,
                         lw_exec **out, lw_diag *d);
    void (*exec_close)(lw_exec *exec);

    /* Starts entry's ops over batch. A failure may also surface at the wait; either way nothing was kept, and
     * where a batch before is still open, that one is as it was. */
    lw_status (*submit)(lw_exec *exec, uint32_t entry, const lw_batch *batch, lw_ticket *ticket, lw_diag *d);
    lw_status (*wait)(lw_exec *exec, lw_ticket ticket, lw_diag *d);

    /* After wait: the logits of the index-th wanted row, in batch order, [vocab] fp32; valid until the next
     * submit, which must not have come already. */
    lw_status (*read_logits)(lw_exec *exec, uint32_t index, const float **logits, lw_diag *d);

    /* After wait of a batch with best, in place of the logits, which then stay where they are: the likeliest
     * id of the index-th wanted row, of equals the lowest; -1 where a logit is NaN or infinite. Of the batch
     * that was last waited for, be the next one submitted or not. NULL: the device has logits only. */
    lw_status (*read_best)(lw_exec *exec, uint32_t index, int32_t *id, lw_diag *d);

    /* Submits chains of the entry LW_ENTRY_HEAD, which the plan has, while no batch is open; no more of them
     * than wanted_max.
     * What it wrote, at slots from committed on, the forward over the same slots overwrites. */
    lw_status (*submit_chain)(lw_exec *exec, const lw_chain *chain, lw_ticket *ticket, lw_diag *d);
    /* After wait: the tokens that the chain of this row drew, [steps]; valid until the next submit. */
    lw_status (*read_chain)(lw_exec *exec, uint32_t row, const int32_t **tokens, lw_diag *d);

    /* Copies one page of a reach group, all its states: a resumer's partial last page. */
    lw_status (*page_copy)(lw_exec *exec, uint32_t group, uint32_t from, uint32_t to, lw_diag *d);
} lw_device_table;

/* NULL-terminated, in the order of preference. */
extern const lw_device_table *const lw_devices[];
/* The table of "xpu" for "xpu" and "xpu:1" alike, or NULL; *which: what stands after the colon, or NULL. */
const lw_device_table *lw_device_find(const char *name, const char **which);

#endif
