/* Penalties and biases; see penalty.h. */
#include "lane/penalty.h"

#include <math.h>
#include <stdlib.h>

bool lw_penalties_are_off(const lw_penalties *p)
{
    const bool repeats = p->repetition != 0.0f && p->repetition != 1.0f;
    return !repeats && p->presence == 0.0f && p->frequency == 0.0f && p->bias_count == 0;
}

lw_status lw_penalties_check(const lw_penalties *p, uint32_t vocab, lw_diag *d)
{
    if (!(p->repetition >= 0.0f) || !isfinite(p->repetition)) {
        return lw_fail(d, LW_BAD_INPUT, "a repetition penalty of %g is no positive number",
                       (double)p->repetition);
    }
    if (!isfinite(p->presence) || !isfinite(p->frequency)) {
        return lw_fail(d, LW_BAD_INPUT, "presence and frequency penalties of %g and %g are not both finite",
                       (double)p->presence, (double)p->frequency);
    }
    for (uint32_t i = 0; i < p->bias_count; i++) {
        const lw_bias bias = p->biases[i];
        if (bias.id < 0 || (uint32_t)bias.id >= vocab) {
            return lw_fail(d, LW_BAD_INPUT, "a logit bias names token id %d; the vocabulary has %u", bias.id,
                           vocab);
        }
        if (isnan(bias.value) || bias.value == INFINITY) {
            return lw_fail(d, LW_BAD_INPUT, "the logit bias of token id %d is %g", bias.id,
                           (double)bias.value);
        }
    }
    return LW_OK;
}

lw_status lw_seen_init(lw_seen *seen, uint32_t vocab, uint32_t context, lw_diag *d)
{
    *seen = (lw_seen){ .reply_counts = calloc(vocab, sizeof(uint32_t)),
                       .prompt_counts = calloc(vocab, sizeof(uint32_t)),
                       .distinct = calloc(context, sizeof(int32_t)) };
    if (seen->reply_counts != NULL && seen->prompt_counts != NULL && seen->distinct != NULL) return LW_OK;
    lw_seen_deinit(seen);
    return lw_fail(d, LW_NO_ROOM, "no memory to count %u ids", vocab);
}

void lw_seen_deinit(lw_seen *seen)
{
    free(seen->reply_counts);
    free(seen->prompt_counts);
    free(seen->distinct);
    *seen = (lw_seen){ 0 };
}

void lw_seen_clear(lw_seen *seen)
{
    for (uint32_t i = 0; i < seen->distinct_count; i++) {
        seen->reply_counts[seen->distinct[i]] = seen->prompt_counts[seen->distinct[i]] = 0;
    }
    seen->distinct_count = 0;
}

void lw_seen_add(lw_seen *seen, int32_t id, bool is_reply)
{
    if (seen->reply_counts[id] + seen->prompt_counts[id] == 0) seen->distinct[seen->distinct_count++] = id;
    if (is_reply) {
        seen->reply_counts[id]++;
    } else {
        seen->prompt_counts[id]++;
    }
}

void lw_seen_remove(lw_seen *seen, int32_t id, bool is_reply)
{
    uint32_t *counts = is_reply ? seen->reply_counts : seen->prompt_counts;
    LW_ASSERT(counts[id] > 0);
    counts[id]--;
    if (seen->reply_counts[id] + seen->prompt_counts[id] > 0) return;
    LW_ASSERT(seen->distinct[seen->distinct_count - 1] == id);
    seen->distinct_count--;
}

void lw_penalties_apply(const lw_penalties *p, const lw_seen *seen, float *logits)
{
    const bool repeats = p->repetition != 0.0f && p->repetition != 1.0f;
    for (uint32_t i = 0; i < seen->distinct_count; i++) {
        const int32_t id = seen->distinct[i];
        float logit = logits[id];
        if (repeats) logit = logit > 0.0f ? logit / p->repetition : logit * p->repetition;
        const uint32_t count = seen->reply_counts[id];
        if (count > 0) logit = logit - p->presence - p->frequency * (float)count;
        logits[id] = logit;
    }
    for (uint32_t i = 0; i < p->bias_count; i++) logits[p->biases[i].id] += p->biases[i].value;
}
