/* Penalties and biases: changes to a row's logits that are functions of the tokens before the row alone, so a
 * drafted row's see its own ancestors and nothing else.
 *
 * For each id that stood before the row, in fp32 and in this order: repetition (prompt and reply: a positive
 * logit is divided, another multiplied), presence (reply: subtracted once), frequency (reply: subtracted for
 * each time). Then each bias is added, in the order given. A bias of -infinity forbids its id.
 */
#ifndef LW_LANE_PENALTY_H
#define LW_LANE_PENALTY_H

#include "base/status.h"

typedef struct lw_bias {
    int32_t id;
    float value;
} lw_bias;

typedef struct lw_penalties {
    float repetition;            /* 1 or 0: off */
    float presence, frequency;   /* 0: off */
    const lw_bias *biases;
    uint32_t bias_count;
} lw_penalties;

bool lw_penalties_are_off(const lw_penalties *penalties);

/* LW_BAD_INPUT for ids out of the vocabulary and numbers that are no penalty. */
lw_status lw_penalties_check(const lw_penalties *penalties, uint32_t vocab, lw_diag *d) LW_MUST_USE;

/* Which ids a stream holds; memory for one lane, taken once. */
typedef struct lw_seen {
    uint32_t *reply_counts;      /* [vocab] */
    uint32_t *prompt_counts;     /* [vocab] */
    int32_t *distinct;           /* [context] ids with a count, in order of first sight */
    uint32_t distinct_count;
} lw_seen;

lw_status lw_seen_init(lw_seen *seen, uint32_t vocab, uint32_t context, lw_diag *d) LW_MUST_USE;
void lw_seen_deinit(lw_seen *seen);
void lw_seen_clear(lw_seen *seen);
void lw_seen_add(lw_seen *seen, int32_t id, bool is_reply);
/* Undoes the latest lw_seen_add of the same arguments that still stands. */
void lw_seen_remove(lw_seen *seen, int32_t id, bool is_reply);

/* Changes logits[0, vocab) in place. */
void lw_penalties_apply(const lw_penalties *penalties, const lw_seen *seen, float *logits);

#endif
