/* A model for tests of the lane core: it runs in the null device, keeps its tokens in pages as a real one
 * keeps keys and values, and makes each row's logits from a hash of the whole history that it reads back
 * through the page tables. Every cell in reach must hold the token, the position and the history that belong
 * there, or a violation is counted: a mistake in paging, sharing, dropping, rollback or trees is seen at
 * once, and changes tokens besides. With a recurrence it also keeps the history at each anchor, in the one
 * page that the row there makes, and every later row reads it. With a draft head the forward also keeps what
 * the head reads; a head's row leaves its own marks in their place, and no forward may ever find one.
 *
 * fake_solo is the same model without lanes, pages or rounds: what a request's reply must be.
 */
#ifndef LW_TESTS_FAKE_MODEL_H
#define LW_TESTS_FAKE_MODEL_H

#include "base/rng.h"
#include "device/null/null.h"
#include "lane/core.h"

enum {
    FAKE_VOCAB = 64,
    FAKE_POISON = 63,       /* logits after this token hold a NaN */
    FAKE_ROWS_MAX = 512,
    FAKE_TOKENS_MAX = 256,  /* of one solo reply */
};

/* Deliberate faults, for tests that must fail. */
typedef enum fake_fault {
    FAKE_SOUND,
    FAKE_DRAWS_ITS_DRAFT,    /* a row's logits favour the draft below it: as if drafts were kept without being
                                equal */
    FAKE_WRITES_BELOW_MARKS, /* a forward also rewrites the first sealed cell that it finds */
    FAKE_FORGETS_COPIES,     /* a page copy copies nothing */
    FAKE_WRITES_ANCHORS,     /* a row between anchors writes the state that it shares with others */
    FAKE_KEEPS_HEAD_ROWS,    /* the forward leaves what the head wrote at its slots */
    FAKE_LOSES_DRAWN_TOKENS, /* a row of a round ahead gets any token: the schedule's own device does that */
} fake_fault;

typedef struct fake_cell {
    int32_t token;
    uint32_t position;
    uint64_t history;        /* of all tokens up to this one */
    uint64_t writer;         /* 0: the forward; a head: 1 + the forwards before it */
} fake_cell;

typedef struct fake_model {
    lw_plan plan;
    lw_device *device;
    lw_exec *exec;
    lw_page_pool pool;
    uint64_t page_bytes[LW_PLAN_REACHES_MAX];
    fake_cell *cells[LW_PLAN_REACHES_MAX];   /* [pages][64] */
    fake_cell *head_cells;                   /* the head's keys in the pages of group 0; NULL: no head */
    uint32_t hidden;                         /* group of what the head reads of the row before */
    uint32_t head_right;                     /* of 256 histories after which the head is right */
    uint64_t forwards;
    uint64_t histories[FAKE_ROWS_MAX];       /* of the batch in hand */
    uint64_t anchored[FAKE_ROWS_MAX];        /* the history at the last anchor up to each row */
    fake_fault fault;
    uint64_t violations;
    char violation[160];     /* the first one */
} fake_model;

typedef struct fake_options {
    uint32_t context, rows_max;
    uint32_t reach;                               /* of the sliding group */
    bool recurs;
    bool has_head;
    uint32_t head_right;
    uint32_t page_counts[LW_PLAN_REACHES_MAX];    /* pools in the order of fake_reaches */
} fake_options;

/* The reach of each group: full, sliding, conv; then steps and anchors; then hidden. Returns how many. */
uint32_t fake_reaches(const fake_options *options, uint32_t reaches[LW_PLAN_REACHES_MAX]);

void fake_open(fake_model *fake, const fake_options *options);
void fake_close(fake_model *fake);
lw_core_device fake_device(fake_model *fake);

/* Checks that the cells of an entry or lane spell ids[0, position) as a row at position would read them. */
void fake_check_table(fake_model *fake, const lw_page_table *table, const int32_t *ids, uint32_t position);

/* Checks who holds which page, what lanes were promised, what entries weigh, that ids lie in their pages. */
void fake_check_core(fake_model *fake, const lw_core *core);

uint64_t fake_history(uint64_t before, int32_t token);
/* The likeliest token after a history whose last token this is. */
int32_t fake_peak(uint64_t history, int32_t token);
void fake_logits(uint64_t history, int32_t token, float *logits);

/* ---- what a reply must be ---- */

typedef struct fake_reply {
    lw_status status;
    lw_finish finish;
    uint32_t count;
    int32_t ids[FAKE_TOKENS_MAX];
    double logprobs[FAKE_TOKENS_MAX];
} fake_reply;

/* stop_after: tokens after which the caller says stop; 0: never. */
void fake_solo(const lw_request *request, uint32_t stop_after, fake_reply *reply);

/* ---- drafts ---- */

typedef struct fake_drafter {
    lw_rng rng;
    uint32_t right_share;    /* of 256 nodes that are the likeliest next token */
    bool trees;
    lw_draft_source source;
} fake_drafter;

void fake_drafter_init(fake_drafter *drafter, uint64_t seed, uint32_t right_share, bool trees);

#endif
