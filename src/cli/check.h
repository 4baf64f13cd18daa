/* The comparison of `lanewise check`: the forward of the engine against stored references, row by row
 * (check_run.c), judged and printed by check.c.
 *
 * Rules: per layer, mean distance over mean bf16 gap is at most 1.05 pooled over the stored rows of all
 * prompts and at most 1.15 for each prompt; the embedding is bit-equal to the dequantised row rounded to
 * bf16; the top token is the reference's wherever the reference leads by more than 0.1, in the stored rows
 * and along the greedy continuation.
 */
#ifndef LW_CLI_CHECK_H
#define LW_CLI_CHECK_H

#include "cli/check_ref.h"
#include "cli/load.h"

#define LW_CHECK_MARGIN 0.1

/* How often the top token was the reference's. */
typedef struct lw_check_tops {
    uint32_t same;
    uint32_t near_ties; /* another, where the reference leads by LW_CHECK_MARGIN or less */
    uint32_t wrong;     /* another, where it leads by more */
} lw_check_tops;

typedef struct lw_check {
    lw_check_ref ref;
    lw_arena arena;
    double *distance[LW_CHECK_PROMPTS]; /* (layer_count + 1, row_count); NaN: the row was never seen */
    uint32_t embed_rows, embed_rows_wrong;
    double logit_distance_sum, logit_distance_max;
    uint32_t logit_rows;
    lw_check_tops tops;   /* of the stored logits rows */
    lw_check_tops greedy; /* of the greedy continuation, the reference's tokens fed */
    /* what the trace is told: which prompt runs, and the position of the batch's first row */
    const lw_check_prompt *prompt; /* NULL: rows are not stored ones */
    double *prompt_distance;
    uint32_t first;
} lw_check;

/* Makes the distances; after check->ref was read. */
lw_status lw_check_make(lw_check *check, lw_diag *d) LW_MUST_USE;
lw_trace lw_check_trace(lw_check *check);

/* Runs all prompts and their greedy continuations on stream. */
lw_status lw_check_run(lw_check *check, lw_engine *engine, lw_stream *stream, lw_progress_line *line,
                       lw_diag *d) LW_MUST_USE;

/* ||ours - reference|| / ||reference||. */
double lw_check_distance(const float *ours, const float *reference, size_t count);

/* Mean distance over mean gap of a plane (0: the embedding, then layers): of one prompt, or of all rows of
 * all prompts when prompt is LW_CHECK_PROMPTS. NaN if a row was never seen. */
double lw_check_ratio(const lw_check *check, uint32_t plane, uint32_t prompt);

#endif
