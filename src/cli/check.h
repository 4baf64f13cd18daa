/* The comparison of `lanewise check`: the forward of the engine against stored references, row by row
 * (check_run.c; its experts: check_experts.c), judged by check.c and told by check_report.c.
 *
 * Rules
 * 1. The embedding is bit-equal to the dequantised row rounded to bf16.
 * 2. Per layer, mean distance over mean bf16 gap is at most 1.05 pooled over the stored rows of all prompts,
 *    and at most 1.15 for each prompt of at least LW_CHECK_ROWS_MIN stored rows: of fewer, the ratio of two
 *    samples of rounding noise says nothing, and they count in the pool only. Where rows choose experts it is
 *    the ratio of medians: one row that takes another expert at a near tie, here or in the bf16 run,
 *    outweighs all others in a mean. With --act-int8 the gap is that of a run whose linears round x to int8
 *    as well: its noise, not bf16's, is then what a right forward has.
 * 3. A row whose experts are not the reference's must be explained by how near the tie is; see
 *    lw_check_flips.
 * 4. The top token is the reference's wherever the reference leads by more than 0.1, in the stored rows and
 *    along the greedy continuation.
 * 5. The draft head, run over the prompts, keeps LW_CHECK_DRAFT_MAX for each of them, and drafts the
 *    reference's token unless its own logits put that 0.1 or less below their best. Where rows choose experts
 *    the drafts are judged at stored rows with the reference's experts: at another, the head continues
 *    another row than the reference's.
 */
#ifndef LW_CLI_CHECK_H
#define LW_CLI_CHECK_H

#include "cli/check_ref.h"
#include "cli/load.h"

#define LW_CHECK_POOLED_MAX 1.05
#define LW_CHECK_PROMPT_MAX 1.15
#define LW_CHECK_MARGIN 0.1
/* Of the draft head, distance over the last layer's bf16 gap. The head starts from the last layer's rows and
 * adds the roundings of a join, a layer and a norm: in a shallow model at most about as much again. Halves
 * joined in the wrong order and a token or a hidden row that is one position off give unrelated rows: a
 * distance near 1, a ratio of a hundred. */
#define LW_CHECK_DRAFT_MAX 2.0
/* A flipped row may have two scores off, each by as much as the worst of a typical row's scores, and
 * untypical rows are twice as far off. */
#define LW_CHECK_LEAD_MAX 4.0

enum { LW_CHECK_ROWS_MIN = 8 };

/* How often the top token was the reference's. */
typedef struct lw_check_tops {
    uint32_t same;
    uint32_t near_ties; /* another, with a lead of LW_CHECK_MARGIN or less */
    uint32_t wrong;     /* another, with a larger one */
} lw_check_tops;

/* A router of the forward, and what it did with the stored rows. */
typedef struct lw_check_router {
    const lw_op *op;                    /* of the engine's plan */
    const float *bias;                  /* [experts]; NULL: none */
    double *choice[LW_CHECK_PROMPTS];   /* (row_count, experts): our choice scores, whatever group is open */
    uint32_t *chosen[LW_CHECK_PROMPTS]; /* (row_count, top); LW_NONE: the row was never seen */
} lw_check_router;

typedef struct lw_check_head {
    bool is_there;                       /* the model has one, and the references too */
    double *distance[LW_CHECK_PROMPTS];  /* [draft_row_count]; NaN: the row was never seen */
    lw_check_tops drafts;
    uint32_t unjudged; /* other drafts at rows whose experts are, or may be, others */
} lw_check_head;

/* What the running forward is to the trace. */
typedef enum lw_check_pass { LW_CHECK_UNSEEN, LW_CHECK_FORWARD, LW_CHECK_HEAD } lw_check_pass;

typedef struct lw_check {
    lw_check_ref ref;
    lw_arena arena;
    double *distance[LW_CHECK_PROMPTS]; /* (layer_count + 1, row_count); NaN: the row was never seen */
    double *sorted;                     /* [rows of all prompts], for medians */
    bool has_experts;                   /* medians are compared */
    lw_check_router *routers;
    uint32_t router_count;              /* 0 too where the references have no choice scores */
    uint32_t embed_rows, embed_rows_wrong;
    double logit_distance_sum, logit_distance_max;
    uint32_t logit_rows;
    lw_check_tops tops;   /* of the stored logits rows */
    lw_check_tops greedy; /* of the greedy continuation, the reference's tokens fed */
    lw_check_head head;
    /* what the trace is told: which prompt runs, what for, and the position of the batch's first row */
    uint32_t prompt;
    lw_check_pass pass;
    uint32_t first;
} lw_check;

/* Makes room for what the trace finds; after check->ref was read. */
lw_status lw_check_make(lw_check *check, lw_diag *d) LW_MUST_USE;
lw_trace lw_check_trace(lw_check *check);

/* Runs all prompts and their greedy continuations on stream. */
lw_status lw_check_run(lw_check *check, lw_engine *engine, lw_stream *stream, lw_progress_line *line,
                       lw_diag *d) LW_MUST_USE;

/* ||ours - reference|| / ||reference||. */
double lw_check_distance(const float *ours, const float *reference, size_t count);

/* Distance over gap, means or medians, of a plane (0: the embedding, then layers): of one prompt, or of all
 * rows of all prompts when prompt is LW_CHECK_PROMPTS. NaN if a row was never seen. */
double lw_check_ratio(const lw_check *check, uint32_t plane, uint32_t prompt);
/* The same of the draft head's outputs over the last layer's gap. */
double lw_check_draft_ratio(const lw_check *check, uint32_t prompt);
/* Sorts values; NaN if one of them is. */
double lw_check_median(double *values, size_t count);

/* ---- experts ---- */

/* Rows of one router whose experts are others than the reference's. The lead of such a row is how far, in the
 * reference, the worst of the experts that only it chose lies above the best that only we chose. It explains
 * the row if it is at most LW_CHECK_LEAD_MAX deviations. After a flip a row is another one than the
 * reference's: flips in later layers follow from it, and only the first is judged. */
typedef struct lw_check_flips {
    uint32_t rows, flipped, followed, unexplained;
    double
        deviation; /* median over rows of how far our choice scores are off at most; NaN: rows are missing */
    double lead_max;  /* of the flipped rows that do not follow */
    uint32_t prompt, row; /* where that is: an index into the prompt's stored rows */
} lw_check_flips;

/* Finds the routers of a plan's forward and makes room for what they do. */
lw_status lw_check_experts_make(lw_check *check, const lw_plan *plan, lw_diag *d) LW_MUST_USE;
/* Told of each op's output at a stored row; index: among the stored ones. */
void lw_check_experts_row(lw_check *check, const lw_op *op, uint32_t index, const float *values);
/* Whether all routers before one chose the reference's experts at a stored row. */
bool lw_check_is_unflipped(const lw_check *check, uint32_t router_end, uint32_t prompt, uint32_t index);
lw_check_flips lw_check_flips_of(const lw_check *check, uint32_t router);

/* ---- the verdict ---- */

/* The broken rules as a JSON list of texts. */
json_t *lw_check_judge(const lw_check *check);
void lw_check_print(const lw_check *check, const json_t *failures);
json_t *lw_check_object(const lw_check *check, json_t *failures);

#endif
