/* One row being drawn: what the steps of the keyed sampler share. Included by sample*.c and their tests only.
 *
 * 1. A *rank* is one word that orders ids as the definition does: the high half falls as the logit rises, the
 *    low half is the id. So a smaller rank comes first, no two are equal, and -0.0 ranks as +0.0.
 * 2. Every filter keeps a prefix of that order, so what is kept is one word: the last rank inside, row->cut.
 *    Filters only lower it, and ids at -infinity are outside it from the start.
 * 3. Logits are looked at in blocks whose highest logit is known, so that a step skips most of a row by one
 *    compare.
 */
#ifndef LW_LANE_SAMPLE_ROW_H
#define LW_LANE_SAMPLE_ROW_H

#include "lane/sample.h"

#include <string.h>

enum {
    LW__SAMPLE_BLOCK = 64,        /* logits: whole vectors on any machine, and one bound of the race each */
    LW__SAMPLE_BINS = 1024,       /* mass bins of the nucleus; only the bin that holds its edge is sorted */
    LW__SAMPLE_DIGITS = 3,        /* radix passes over the high half of a rank */
    LW__SAMPLE_DIGIT_BITS = 11,
};

struct lw_sampler {
    uint32_t vocab_max;
    uint32_t *block_first;   /* [blocks] high half of each block's first rank */
    uint64_t *ranks;         /* [vocab_max + one block] what lw__row_gather found */
    uint64_t *ranks_spare;   /* the same again: the other side of the sort */
    double *masses;          /* [vocab_max] */
    double bin_masses[2 * LW__SAMPLE_BINS]; /* the second half is of no use: what is not kept falls there */
    uint32_t digit_counts[LW__SAMPLE_DIGITS][1 << LW__SAMPLE_DIGIT_BITS];
};

typedef struct lw__row {
    lw_sampler *sampler;
    const float *logits;
    uint32_t vocab;
    uint32_t block_count;
    uint32_t first;          /* high half of the first rank */
    uint32_t last;           /* high half of the last rank above -infinity */
    uint64_t cut;            /* the last rank that is kept */
    double temperature;      /* the divisor: at least 1e-6 */
    double scaled_first;
} lw__row;

#define LW__TEMPERATURE_LEAST 1e-6
#define LW__HIGH_POS_INF 0x007FFFFFu /* only a positive NaN is below */
#define LW__HIGH_NEG_INF 0xFF800000u /* only a negative NaN is above */

/* The high half of a rank. Adding zero makes -0.0 the same as +0.0 and changes no other value. */
static inline uint32_t lw__high_of(float logit)
{
    const float unsigned_zero = logit + 0.0f;
    uint32_t bits;
    memcpy(&bits, &unsigned_zero, sizeof bits);
    const uint32_t sign = (uint32_t)((int32_t)bits >> 31);
    return bits ^ (~sign & 0x7FFFFFFFu);
}

static inline float lw__logit_of(uint32_t high)
{
    const uint32_t sign = (uint32_t)((int32_t)high >> 31);
    const uint32_t bits = high ^ (~sign & 0x7FFFFFFFu);
    float logit;
    memcpy(&logit, &bits, sizeof logit);
    return logit;
}

/* The high half turned over: rises with the logit, and is signed as the compares of vector units are. */
static inline int32_t lw__key_of(uint32_t high)
{
    return (int32_t)(high ^ 0x7FFFFFFFu);
}

static inline uint32_t lw__high_of_key(int32_t key)
{
    return (uint32_t)key ^ 0x7FFFFFFFu;
}

static inline uint64_t lw__rank(uint32_t high, uint32_t id)
{
    return (uint64_t)high << 32 | id;
}

static inline uint32_t lw__rank_high(uint64_t rank)
{
    return (uint32_t)(rank >> 32);
}

static inline uint32_t lw__rank_id(uint64_t rank)
{
    return (uint32_t)rank;
}

static inline double lw__scaled(const lw__row *row, uint32_t high)
{
    return (double)lw__logit_of(high) / row->temperature;
}

/* No rank of the block is below this. */
static inline uint64_t lw__block_bound(const lw__row *row, uint32_t block)
{
    return lw__rank(row->sampler->block_first[block], block * LW__SAMPLE_BLOCK);
}

/* The block's logits in place, or the row's end copied to pad and filled up with -infinity. */
const float *lw__row_block(const lw__row *row, uint32_t block, float pad[LW__SAMPLE_BLOCK]);

/* Looks at every logit once: fills block_first, first, last and cut. False when a logit is NaN or
 * +infinity or when none is above -infinity. */
bool lw__row_scan(lw__row *row);

/* Puts the ranks in [from, to] into sampler->ranks in order of id; returns how many. */
uint32_t lw__row_gather(const lw__row *row, uint64_t from, uint64_t to);

/* Sorts sampler->ranks[0, count), which are in order of their low halves. */
void lw__ranks_sort(lw_sampler *sampler, uint32_t count);

/* The filters; each lowers row->cut. */
void lw__row_keep_count(lw__row *row, uint32_t count);     /* top_k; count > 0 */
void lw__row_keep_mass(lw__row *row, double mass);         /* top_p in (0, 1) */
void lw__row_keep_share(lw__row *row, double share);       /* min_p in (0, 1] */

/* top_p by bounds: false when they leave the edge open; then nothing has changed. */
bool lw__row_keep_mass_bounded(lw__row *row, double mass);
/* top_p by the definition's own sums. */
void lw__row_keep_mass_exact(lw__row *row, double mass);

/* masses[i] = exp(x[i]) within a factor of 1 +- 2^-36, -700 <= x[i] <= 0. Not libm's bits: for bounds
 * only. */
void lw__masses_near(const double *restrict x, double *restrict masses);

/* The token of the kept ranks that wins. */
uint32_t lw__row_race(const lw__row *row, uint64_t seed, uint64_t position);

/* LW_BAD_INPUT for options that define no draw. */
lw_status lw__sampling_check(const lw_sampling *sampling, lw_diag *d) LW_MUST_USE;
/* Says why logits define no draw; only called when they do not. */
lw_status lw__logits_refuse(const float *logits, uint32_t vocab, lw_diag *d) LW_MUST_USE;

#endif
