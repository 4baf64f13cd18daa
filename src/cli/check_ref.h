/* The double-precision references that stand beside a checkpoint (ref64.safetensors): read, checked, copied.
 */
#ifndef LW_CLI_CHECK_REF_H
#define LW_CLI_CHECK_REF_H

#include "base/arena.h"

enum { LW_CHECK_PROMPTS = 3 };

typedef struct lw_check_prompt {
    const int32_t *ids;  /* [id_count] */
    const int32_t *rows; /* [row_count]: the prompt rows that are stored, ascending */
    const float *hidden; /* (layer_count + 1, row_count, width): the embedding, then each layer's output */
    const float *gap;    /* (layer_count + 1, row_count): how far a run of the reference in the precision of
                            the forward lies from it: in bf16, or with x in int8 too */
    const float *logits; /* (logit_row_count, vocab): of the last stored rows */
    const int32_t *greedy; /* [greedy_count] */
    const float *margin;   /* [greedy_count]: lead of each greedy token over the second */
    const float *choice;   /* (block_count, row_count, experts): what experts are chosen by; -inf: not open */
    const float *draft_hidden; /* (draft_row_count, width): the draft head's output for the last draft rows */
    const int32_t *drafts; /* [id_count - 1]: draft row i reads hidden row i and token i + 1 */
    uint32_t id_count, row_count, logit_row_count, greedy_count, draft_row_count;
} lw_check_prompt;

typedef struct lw_check_ref {
    lw_check_prompt prompts[LW_CHECK_PROMPTS];
    uint32_t layer_count, width, vocab;
    uint32_t block_count, experts; /* blocks with experts; 0: there is no choice in the file */
    bool has_drafts;               /* else there are no draft_hidden and drafts */
} lw_check_ref;

/* Reads path, for a forward with act_int8 or without; everything lives in arena. */
lw_status lw_check_ref_read(const char *path, bool act_int8, lw_arena *arena, lw_check_ref *out, lw_diag *d)
    LW_MUST_USE;

#endif
