/* The keyed sampler's definition, computed step by step: what the quick method must equal. Shares with it the
 * key (sample.h) and the checks below, and no step of the draw.
 */
#include "lane/sample_row.h"

#include <math.h>
#include <stdlib.h>

lw_status lw__sampling_check(const lw_sampling *sampling, lw_diag *d)
{
    if (!isfinite(sampling->temperature))
        return lw_fail(d, LW_BAD_INPUT, "temperature is %g; it must be finite", sampling->temperature);
    if (isnan(sampling->top_p)) return lw_fail(d, LW_BAD_INPUT, "top_p is not a number; 1 switches it off");
    if (isnan(sampling->min_p) || sampling->min_p > 1.0)
        return lw_fail(d, LW_BAD_INPUT, "min_p is %g; it must be at most 1; 0 is off", sampling->min_p);
    return LW_OK;
}

lw_status lw__logits_refuse(const float *logits, uint32_t vocab, lw_diag *d)
{
    for (uint32_t id = 0; id < vocab; id++)
        if (isnan(logits[id]) || logits[id] == INFINITY)
            return lw_fail(d, LW_BAD_INPUT, "the logit of id %u is %s; a draw needs finite ones", id,
                           isnan(logits[id]) ? "not a number" : "+infinity");
    return lw_fail(d, LW_BAD_INPUT, "the logits of ids 0 to %u are all -infinity; a draw needs one above",
                   vocab - 1);
}

typedef struct candidate {
    double logit;
    double scaled;
    double mass;
    uint32_t id;
} candidate;

static int candidate_compare(const void *left, const void *right)
{
    const candidate *a = left, *b = right;
    if (a->logit != b->logit) return a->logit > b->logit ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static uint32_t nucleus_count(candidate *kept, uint32_t count, double top_p)
{
    double total = 0.0;
    for (uint32_t i = 0; i < count; i++) {
        kept[i].mass = exp(kept[i].scaled - kept[0].scaled);
        total += kept[i].mass;
    }
    double reached = 0.0;
    for (uint32_t i = 0; i < count; i++) {
        reached += kept[i].mass / total;
        if (reached >= top_p) return i + 1;
    }
    return count;
}

static uint32_t argmax_noisy(const candidate *kept, uint32_t count, uint64_t seed, uint64_t position)
{
    uint32_t best_id = kept[0].id;
    double best = -INFINITY;
    for (uint32_t i = 0; i < count; i++) {
        if (kept[i].logit == -INFINITY) continue; /* it would be NaN beside an infinite noise */
        const double value = kept[i].scaled + lw_sample_gumbel(lw_sample_key(seed, position, kept[i].id));
        if (!(value > best)) continue;
        best = value;
        best_id = kept[i].id;
    }
    return best_id;
}

static uint32_t draw_sorted(const lw_sampling *sampling, candidate *sorted, uint32_t count, uint64_t position)
{
    if (sampling->temperature <= 0.0) return sorted[0].id;
    if (sampling->top_k > 0 && sampling->top_k < count) count = sampling->top_k;
    const double divisor = sampling->temperature > LW__TEMPERATURE_LEAST ? sampling->temperature
                                                                         : LW__TEMPERATURE_LEAST;
    for (uint32_t i = 0; i < count; i++) sorted[i].scaled = sorted[i].logit / divisor;
    if (sampling->top_p > 0.0 && sampling->top_p < 1.0) count = nucleus_count(sorted, count, sampling->top_p);
    if (sampling->min_p > 0.0) {
        const double floor = sorted[0].scaled + log(sampling->min_p);
        uint32_t above = 0;
        while (above < count && sorted[above].scaled >= floor) above++;
        count = above;
    }
    return argmax_noisy(sorted, count, sampling->seed, position);
}

lw_status lw_sampler_draw_plain(const lw_sampling *sampling, const float *logits, uint32_t vocab,
                                uint64_t position, int32_t *token, lw_diag *d)
{
    LW_ASSERT(vocab > 0);
    const lw_status status = lw__sampling_check(sampling, d);
    if (status != LW_OK) return status;
    candidate *sorted = calloc(vocab, sizeof *sorted);
    if (sorted == NULL) return lw_fail(d, LW_NO_ROOM, "no memory to sort %u logits", vocab);
    bool usable = true, one_above = false;
    for (uint32_t id = 0; id < vocab; id++) {
        usable = usable && logits[id] < INFINITY;
        one_above = one_above || logits[id] > -INFINITY;
        sorted[id] = (candidate){ .logit = logits[id], .id = id };
    }
    if (!usable || !one_above) {
        free(sorted);
        return lw__logits_refuse(logits, vocab, d);
    }
    qsort(sorted, vocab, sizeof *sorted, candidate_compare);
    *token = (int32_t)draw_sorted(sampling, sorted, vocab, position);
    free(sorted);
    return LW_OK;
}
