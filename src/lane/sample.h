/* The keyed sampler: which token a row draws is a function of its logits, its seed and its absolute position
 * alone.
 *
 * Definition (double precision throughout; DESIGN.md section 5): order by logit descending, equal logits by
 * id ascending. temperature <= 0: the first. Else keep the top_k first; scaled = logit / max(temperature,
 * 1e-6); top_p keeps the smallest prefix whose mass reaches p, mass = exp(scaled - scaled[0]) normalised by
 * its sum over the kept set, both summed in that order by plain adds; min_p keeps scaled >= scaled[0] +
 * ln(min_p); the token is the argmax of scaled + gumbel(seed, position, id), strictly greater wins, so a tie
 * stays with the earlier.
 *
 * This defines the result, not the method: selection is by threshold, and a full draw skips an id when a
 * bound proves that its key cannot win.
 */
#ifndef LW_LANE_SAMPLE_H
#define LW_LANE_SAMPLE_H

#include "base/status.h"

typedef struct lw_sampling {
    double temperature;   /* <= 0: greedy */
    uint32_t top_k;       /* 0: off */
    double top_p;         /* >= 1 or <= 0: off */
    double min_p;         /* <= 0: off */
    uint64_t seed;        /* below 2^63 */
} lw_sampling;

/* Scratch of one drawing thread, for rows of up to vocab logits; allocated once. */
typedef struct lw_sampler lw_sampler;
lw_status lw_sampler_make(uint32_t vocab, lw_sampler **out, lw_diag *d) LW_MUST_USE;
void lw_sampler_free(lw_sampler *sampler);

/* What one takes. */
size_t lw_sampler_bytes(uint32_t vocab);

/* Draws the token at absolute position (= number of tokens before it) from logits[0, vocab). NaN or
 * +infinity in the logits, or nothing above -infinity: LW_BAD_INPUT naming the id; the same for options that
 * define no draw: a temperature that is not finite, NaN, min_p above 1. vocab is from 1 to the sampler's.
 * Allocates nothing. */
lw_status lw_sampler_draw(lw_sampler *sampler, const lw_sampling *sampling, const float *logits,
                          uint32_t vocab, uint64_t position, int32_t *token, lw_diag *d) LW_MUST_USE;

/* The definition computed literally, by sorting; for tests. Same statuses. */
lw_status lw_sampler_draw_plain(const lw_sampling *sampling, const float *logits, uint32_t vocab,
                                uint64_t position, int32_t *token, lw_diag *d) LW_MUST_USE;

/* key = mix(mix(mix(seed + 0x9E3779B97F4A7C15) ^ (position * 0xD1B54A32D192ED03)) ^ id). */
uint64_t lw_sample_key(uint64_t seed, uint64_t position, uint64_t id);
/* u = (key >> 11) 2^-53 + 2^-54, in (0, 1]; gumbel = -ln(-ln u). */
double lw_sample_unit(uint64_t key);
double lw_sample_gumbel(uint64_t key);

#endif
