/* Decoding with drafts of a head whose luck is given: the head runs and costs what it costs, and what it drew
 * is replaced by the tokens that the model draws, or by wrong ones. A head with random weights never guesses
 * right; this measures what drafts of a given luck cost and gain.
 */
#ifndef LW_CLI_BENCH_DRAFT_H
#define LW_CLI_BENCH_DRAFT_H

#include "lane/engine.h"

/* Shares of right drafts; the first row of a measurement is of plain rounds. */
enum { LW_DRAFT_ROWS = 4 };
extern const double lw_draft_shares[LW_DRAFT_ROWS];

typedef struct lw_draft_result {
    double tokens_per_s; /* after the first token */
    uint32_t rounds, drafted, kept;
} lw_draft_result;

/* Measures on engine, which no stream uses, and which has a draft head. */
typedef struct lw_draft_bench lw_draft_bench;
lw_status lw_draft_bench_open(lw_engine *engine, uint32_t tokens, lw_draft_bench **out, lw_diag *d)
    LW_MUST_USE;
void lw_draft_bench_close(lw_draft_bench *bench);

/* A reply in plain rounds, then one of each share. LW_BAD_MODEL if drafts change a token. */
lw_status lw_draft_bench_run(lw_draft_bench *bench, const int32_t *prompt, uint32_t prompt_count,
                             lw_draft_result results[LW_DRAFT_ROWS], lw_diag *d) LW_MUST_USE;

#endif
