/* The keyed sampler's quick method: scan, cut, race.
 * The scan finds the highest logit of each block and refuses what no draw is defined for; the filters
 * (sample_select.c) turn top_k, top_p and min_p into the last rank that is kept; the race finds the winner
 * among the kept. In the race a noise is worth its two logarithms only if its key is high enough to lift the
 * block's highest logit past the best so far, which is one integer compare per id.
 */
#include "lane/sample.h"

#include "base/limits.h"
#include "base/rng.h"
#include "base/size.h"
#include "lane/sample_row.h"

#include <math.h>
#include <stdlib.h>

uint64_t lw_sample_key(uint64_t seed, uint64_t position, uint64_t id)
{
    const uint64_t of_seed = lw_rng_mix(seed + 0x9E3779B97F4A7C15u);
    return lw_rng_mix(lw_rng_mix(of_seed ^ (position * 0xD1B54A32D192ED03u)) ^ id);
}

double lw_sample_unit(uint64_t key)
{
    return (double)(key >> 11) * 0x1p-53 + 0x1p-54;
}

double lw_sample_gumbel(uint64_t key)
{
    return -log(-log(lw_sample_unit(key)));
}

lw_status lw_sampler_make(uint32_t vocab, lw_sampler **out, lw_diag *d)
{
    *out = NULL;
    if (vocab == 0 || vocab > LW_LIMIT_VOCAB)
        return lw_fail(d, LW_BAD_INPUT, "sampler: vocabulary %u is outside 1 to %d", vocab, LW_LIMIT_VOCAB);
    const size_t blocks = size_div_up(vocab, LW__SAMPLE_BLOCK);
    const size_t ranks = (size_t)vocab + LW__SAMPLE_BLOCK;
    lw_sampler *sampler = calloc(1, sizeof *sampler);
    if (sampler == NULL) goto fail;
    sampler->vocab_max = vocab;
    sampler->block_first = calloc(blocks, sizeof *sampler->block_first);
    sampler->ranks = calloc(ranks, sizeof *sampler->ranks);
    sampler->ranks_spare = calloc(ranks, sizeof *sampler->ranks_spare);
    sampler->masses = calloc(vocab, sizeof *sampler->masses);
    if (!sampler->block_first || !sampler->ranks || !sampler->ranks_spare || !sampler->masses) goto fail;
    *out = sampler;
    return LW_OK;
fail:
    lw_sampler_free(sampler);
    return lw_fail(d, LW_NO_ROOM, "sampler: no memory for a vocabulary of %u ids", vocab);
}

size_t lw_sampler_bytes(uint32_t vocab)
{
    const size_t blocks = size_div_up(vocab, LW__SAMPLE_BLOCK), ranks = (size_t)vocab + LW__SAMPLE_BLOCK;
    const lw_sampler *sampler;
    return sizeof *sampler + blocks * sizeof *sampler->block_first + 2 * ranks * sizeof *sampler->ranks +
           vocab * sizeof *sampler->masses;
}

void lw_sampler_free(lw_sampler *sampler)
{
    if (sampler == NULL) return;
    free(sampler->block_first);
    free(sampler->ranks);
    free(sampler->ranks_spare);
    free(sampler->masses);
    free(sampler);
}

/* --- the race ------------------------------------------------------------------------------------------- */

typedef struct leader {
    uint64_t of_position;   /* the key before the id enters it */
    uint64_t best_rank;
    double best;            /* scaled + gumbel of best_rank */
} leader;

static void race_enter(const lw__row *row, leader *lead, uint64_t rank, uint64_t key)
{
    if (rank > row->cut) return;
    const double value = lw__scaled(row, lw__rank_high(rank)) + lw_sample_gumbel(key);
    if (value < lead->best || (value == lead->best && rank > lead->best_rank)) return;
    lead->best = value;
    lead->best_rank = rank;
}

/* A key below the returned one cannot lift scaled_most, or anything below it, to best.
 *
 * To reach best, the noise must be at least lift = best - scaled_most. The computed noise and sum differ
 * from the true ones by roundings: a noise below 40 that went through two logarithms good to an ulp is off
 * by less than 2^-44, the difference and the sum by 2^-52 of the greater operand. The margin exceeds these
 * sixteen times over, so no u below u_least = exp(-exp(-lift)) is enough; computing u_least adds a few
 * units of 2^-53, and a key's u lies within one unit of its high 53 bits: eight units cover both. The
 * highest keys are always let through: there u is 1, the noise infinite. */
static uint64_t key_least(double best, double scaled_most)
{
    const double units = 0x1p53, units_slack = 8.0;
    const double margin = 0x1p-40 + 0x1p-48 * (fabs(best) + fabs(scaled_most));
    const double lift = (best - scaled_most) - margin;
    const double u_least = isfinite(lift) ? exp(-exp(-lift)) : best > scaled_most;
    const double unit_least = u_least * units - units_slack;
    return unit_least > 0.0 ? (uint64_t)unit_least << 11 : 0;
}

static void race_block(const lw__row *row, leader *lead, uint32_t block)
{
    const uint32_t high = row->sampler->block_first[block];
    if (lw__block_bound(row, block) > row->cut) return;
    const uint64_t least = key_least(lead->best, lw__scaled(row, high));
    float pad[LW__SAMPLE_BLOCK];
    const float *logits = lw__row_block(row, block, pad);
    const uint32_t begin = block * LW__SAMPLE_BLOCK;
    for (uint32_t i = 0; i < LW__SAMPLE_BLOCK; i++) {
        const uint64_t key = lw_rng_mix(lead->of_position ^ (begin + i));
        if (key >= least) race_enter(row, lead, lw__rank(lw__high_of(logits[i]), begin + i), key);
    }
}

/* The first block in which the first rank stands. */
static uint32_t block_of_first(const lw__row *row)
{
    uint32_t block = 0;
    while (row->sampler->block_first[block] != row->first) block++;
    return block;
}

uint32_t lw__row_race(const lw__row *row, uint64_t seed, uint64_t position)
{
    const uint64_t of_seed = lw_rng_mix(seed + 0x9E3779B97F4A7C15u);
    leader lead = {
        .of_position = lw_rng_mix(of_seed ^ (position * 0xD1B54A32D192ED03u)),
        .best_rank = UINT64_MAX,
        .best = -INFINITY,
    };
    /* The block of the highest logit goes first: its best bounds the others from the start. */
    const uint32_t block_ahead = block_of_first(row);
    race_block(row, &lead, block_ahead);
    for (uint32_t b = 0; b < row->block_count; b++)
        if (b != block_ahead) race_block(row, &lead, b);
    LW_ASSERT(lead.best_rank <= row->cut);
    return lw__rank_id(lead.best_rank);
}

/* --- one draw ------------------------------------------------------------------------------------------- */

static uint32_t row_first_id(const lw__row *row)
{
    const uint32_t block = block_of_first(row);
    float pad[LW__SAMPLE_BLOCK];
    const float *logits = lw__row_block(row, block, pad);
    uint32_t i = 0;
    while (lw__high_of(logits[i]) != row->first) i++;
    return block * LW__SAMPLE_BLOCK + i;
}

static void row_filter(lw__row *row, const lw_sampling *sampling)
{
    if (sampling->top_k > 0 && sampling->top_k < row->vocab) lw__row_keep_count(row, sampling->top_k);
    if (sampling->top_p > 0.0 && sampling->top_p < 1.0) lw__row_keep_mass(row, sampling->top_p);
    if (sampling->min_p > 0.0) lw__row_keep_share(row, sampling->min_p);
}

lw_status lw_sampler_draw(lw_sampler *sampler, const lw_sampling *sampling, const float *logits,
                          uint32_t vocab, uint64_t position, int32_t *token, lw_diag *d)
{
    LW_ASSERT(vocab > 0);
    LW_ASSERT(vocab <= sampler->vocab_max);
    const lw_status status = lw__sampling_check(sampling, d);
    if (status != LW_OK) return status;
    lw__row row = {
        .sampler = sampler,
        .logits = logits,
        .vocab = vocab,
        .block_count = (uint32_t)size_div_up(vocab, LW__SAMPLE_BLOCK),
        .temperature = fmax(sampling->temperature, LW__TEMPERATURE_LEAST),
    };
    if (!lw__row_scan(&row)) return lw__logits_refuse(logits, vocab, d);
    if (sampling->temperature <= 0.0) {
        *token = (int32_t)row_first_id(&row);
        return LW_OK;
    }
    row.scaled_first = lw__scaled(&row, row.first);
    row_filter(&row, sampling);
    *token = (int32_t)lw__row_race(&row, sampling->seed, position);
    return LW_OK;
}
