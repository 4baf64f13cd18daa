/* The filters top_k, top_p and min_p as cuts of a row, without sorting it.
 *
 * top_k: the k-th highest block maximum is a floor that at least k logits reach, so only those at or above it
 * are sorted.
 * min_p: the scaled logit falls with the rank, so its floor is found by bisection over all floats.
 * top_p: the definition's sums run over the whole order, but the edge of the nucleus hardly ever depends on
 * their last bits. Masses are summed by bins in any order, with a bound for how far such a sum can be from
 * the definition's; where the bound leaves the edge open, the definition's own sums are made.
 */
#include "lane/sample_row.h"

#include <math.h>

/* The first high half of [begin, end) for which beyond() holds, or end; beyond() never goes back to false. */
typedef bool beyond_fn(const lw__row *row, uint32_t high, const void *limit);

static uint32_t bisect(const lw__row *row, beyond_fn *beyond, const void *limit)
{
    uint32_t begin = row->first, end = row->last + 1;
    while (begin < end) {
        const uint32_t middle = begin + (end - begin) / 2;
        if (beyond(row, middle, limit)) end = middle;
        else begin = middle + 1;
    }
    return begin;
}

static void lower_cut(lw__row *row, uint64_t rank)
{
    if (rank < row->cut) row->cut = rank;
}

void lw__row_keep_count(lw__row *row, uint32_t count)
{
    lw_sampler *sampler = row->sampler;
    uint64_t floor = row->cut;
    if (count <= row->block_count) {
        for (uint32_t b = 0; b < row->block_count; b++)
            sampler->ranks[b] = lw__rank(sampler->block_first[b], b);
        lw__ranks_sort(sampler, row->block_count);
        const uint64_t block_floor = lw__rank(lw__rank_high(sampler->ranks[count - 1]), UINT32_MAX);
        if (block_floor < floor) floor = block_floor;
    }
    const uint32_t found = lw__row_gather(row, 0, floor);
    if (found <= count) {
        lower_cut(row, floor);
        return;
    }
    lw__ranks_sort(sampler, found);
    lower_cut(row, sampler->ranks[count - 1]);
}

static bool below_floor(const lw__row *row, uint32_t high, const void *floor)
{
    return lw__scaled(row, high) < *(const double *)floor;
}

void lw__row_keep_share(lw__row *row, double share)
{
    const double floor = row->scaled_first + log(share);
    lower_cut(row, lw__rank(bisect(row, below_floor, &floor), 0) - 1);
}

/* --- top_p by the definition's sums --------------------------------------------------------------------- */

static bool behind_distance(const lw__row *row, uint32_t high, const void *distance)
{
    return row->scaled_first - lw__scaled(row, high) > *(const double *)distance;
}

/* Sums stop where a term cannot change them. The first mass is 1, so the total is at least 1 and a term
 * below 2^-53 leaves it as it is; exp(-38) is below 2^-54. What lies further weighs less than vocab
 * exp(-38), so the running share is above 1/2 there, and a term below 2^-54 leaves that as it is, too: a
 * mass not reached by then is not reached at all. */
static const double DISTANCE_OF_NO_CHANGE = 38.0;

void lw__row_keep_mass_exact(lw__row *row, double mass)
{
    lw_sampler *sampler = row->sampler;
    uint64_t limit = lw__rank(bisect(row, behind_distance, &DISTANCE_OF_NO_CHANGE), 0) - 1;
    if (limit > row->cut) limit = row->cut;
    const uint32_t count = lw__row_gather(row, 0, limit);
    lw__ranks_sort(sampler, count);
    double total = 0.0;
    for (uint32_t i = 0; i < count; i++) {
        sampler->masses[i] = exp(lw__scaled(row, lw__rank_high(sampler->ranks[i])) - row->scaled_first);
        total += sampler->masses[i];
    }
    double reached = 0.0;
    for (uint32_t i = 0; i < count; i++) {
        reached += sampler->masses[i] / total;
        if (reached >= mass) {
            lower_cut(row, sampler->ranks[i]);
            return;
        }
    }
}

/* --- top_p by bounds ------------------------------------------------------------------------------------ */

static const double DISTANCE_OF_NO_MASS = 60.0; /* 2^21 ids of exp(-60) are below 2^-65 */

/* Bins are even in the logit's distance from the first one. A bin's number is monotone in the rank: each
 * step of its arithmetic rounds monotonically. */
typedef struct bins {
    double logit_first;
    double per_logit;
    uint32_t last;        /* high half of the last rank that is kept and weighs anything */
} bins;

static bins bins_make(const lw__row *row)
{
    uint32_t last = bisect(row, behind_distance, &DISTANCE_OF_NO_MASS) - 1;
    if (last > lw__rank_high(row->cut)) last = lw__rank_high(row->cut);
    const double first = lw__logit_of(row->first);
    const double reach = first - lw__logit_of(last);
    const double per_logit = reach > 0.0 ? (LW__SAMPLE_BINS - 1) / reach : 0.0;
    return (bins){ .logit_first = first, .per_logit = per_logit, .last = last };
}

/* As a double that holds a whole number, so that the loops below stay within one width. */
static inline double bin_of(bins at, double logit)
{
    return ((at.logit_first - logit) * at.per_logit + 0x1p52) - 0x1p52;
}

void lw__masses_near(const double *restrict x, double *restrict masses)
{
    const double log2_e = 0x1.71547652b82fep0;
    const double ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;
    const double round_magic = 0x1.8p52; /* adding it leaves the whole number in the low bits */
    for (int i = 0; i < LW__SAMPLE_BLOCK; i++) {
        const double turned = x[i] * log2_e + round_magic;
        const double whole = turned - round_magic;
        const double r = (x[i] - whole * ln2_high) - whole * ln2_low;
        /* Taylor to the 9th power: |r| <= ln(2) / 2 leaves less than 2^-36 of the value. */
        const double r2 = r * r, r4 = r2 * r2;
        const double low = (1.0 + r) + r2 * (1.0 / 2.0 + r * (1.0 / 6.0));
        const double middle = (1.0 / 24.0 + r * (1.0 / 120.0)) + r2 * (1.0 / 720.0 + r * (1.0 / 5040.0));
        const double high = 1.0 / 40320.0 + r * (1.0 / 362880.0);
        const double p = low + r4 * (middle + r4 * high);
        uint64_t bits, exponent;
        memcpy(&bits, &p, sizeof bits);
        memcpy(&exponent, &turned, sizeof exponent);
        bits += exponent << 52;
        memcpy(&masses[i], &bits, sizeof bits);
    }
}

typedef struct block_place {
    int32_t keys[LW__SAMPLE_BLOCK];
    double x[LW__SAMPLE_BLOCK];         /* scaled - scaled_first */
    double bin[LW__SAMPLE_BLOCK];
    double masses[LW__SAMPLE_BLOCK];
} block_place;

static void block_places(const lw__row *row, bins at, const float *restrict logits,
                         block_place *restrict place)
{
    const int32_t key_last = lw__key_of(at.last);
    const double temperature = row->temperature, scaled_first = row->scaled_first;
    for (int i = 0; i < LW__SAMPLE_BLOCK; i++) place->keys[i] = lw__key_of(lw__high_of(logits[i]));
    for (int i = 0; i < LW__SAMPLE_BLOCK; i++) {
        const int32_t key = place->keys[i] > key_last ? place->keys[i] : key_last;
        const double logit = lw__logit_of(lw__high_of_key(key));
        place->x[i] = logit / temperature - scaled_first;
        place->bin[i] = bin_of(at, logit);
    }
    lw__masses_near(place->x, place->masses);
}

static void fill_bins(const lw__row *row, bins at)
{
    double *bin_masses = row->sampler->bin_masses;
    memset(bin_masses, 0, sizeof row->sampler->bin_masses);
    const uint64_t rank_last = at.last < lw__rank_high(row->cut) ? lw__rank(at.last, UINT32_MAX) : row->cut;
    float pad[LW__SAMPLE_BLOCK];
    block_place place;
    for (uint32_t b = 0; b < row->block_count; b++) {
        if (lw__block_bound(row, b) > rank_last) continue;
        block_places(row, at, lw__row_block(row, b, pad), &place);
        for (int i = 0; i < LW__SAMPLE_BLOCK; i++) {
            /* What is outside adds to the bins of no use: no branch to guess. */
            const uint32_t id = b * LW__SAMPLE_BLOCK + (uint32_t)i;
            const int outside = lw__rank(lw__high_of_key(place.keys[i]), id) > rank_last;
            bin_masses[(int)place.bin[i] + outside * LW__SAMPLE_BINS] += place.masses[i];
        }
    }
}

/* How far apart the two ways of summing can be, as a share of the sum. The definition adds N terms twice
 * and divides once; here N terms are added in another order and divided by their total: less than 4 N
 * 2^-53 together. The masses differ by 2^-36 each in numerator and total, what is left out or clamped by
 * 2^-65. */
typedef struct edge {
    double target;
    double slack;
} edge;

static bool surely_reached(edge e, double sum) { return sum * (1.0 - e.slack) >= e.target; }
static bool surely_missed(edge e, double sum) { return sum * (1.0 + e.slack) < e.target; }

/* The bin in which the sum reaches the target, or LW__SAMPLE_BINS; *before is the sum of the bins ahead of
 * it. */
static uint32_t bin_at_edge(const double *bin_masses, edge e, double *before)
{
    *before = 0.0;
    for (uint32_t b = 0; b < LW__SAMPLE_BINS; b++) {
        const double after = *before + bin_masses[b];
        if (surely_reached(e, after)) return b;
        if (!surely_missed(e, after)) return LW__SAMPLE_BINS;
        *before = after;
    }
    return LW__SAMPLE_BINS;
}

typedef struct bin_limit {
    bins bins;
    double bin;
} bin_limit;

static bool at_or_behind_bin(const lw__row *row LW_UNUSED, uint32_t high, const void *limit)
{
    const bin_limit *at = limit;
    return bin_of(at->bins, lw__logit_of(high)) >= at->bin;
}

bool lw__row_keep_mass_bounded(lw__row *row, double mass)
{
    lw_sampler *sampler = row->sampler;
    const bins at = bins_make(row);
    fill_bins(row, at);
    double total = 0.0, sum;
    for (int b = 0; b < LW__SAMPLE_BINS; b++) total += sampler->bin_masses[b];
    const edge e = { .target = mass * total, .slack = row->vocab * 0x1p-50 + 0x1p-34 };
    const uint32_t bin = bin_at_edge(sampler->bin_masses, e, &sum);
    if (bin == LW__SAMPLE_BINS) return false;

    const uint32_t begin = bisect(row, at_or_behind_bin, &(bin_limit){ .bins = at, .bin = bin });
    const uint32_t end = bisect(row, at_or_behind_bin, &(bin_limit){ .bins = at, .bin = bin + 1.0 });
    if (begin == end || lw__rank(begin, 0) > row->cut) return false;
    const uint64_t limit = lw__rank(end, 0) - 1 < row->cut ? lw__rank(end, 0) - 1 : row->cut;
    const uint32_t count = lw__row_gather(row, lw__rank(begin, 0), limit);
    lw__ranks_sort(sampler, count);
    for (uint32_t i = 0; i < count; i++) {
        sum += exp(lw__scaled(row, lw__rank_high(sampler->ranks[i])) - row->scaled_first);
        if (surely_reached(e, sum)) {
            lower_cut(row, sampler->ranks[i]);
            return true;
        }
        if (!surely_missed(e, sum)) return false;
    }
    return false;
}

void lw__row_keep_mass(lw__row *row, double mass)
{
    if (!lw__row_keep_mass_bounded(row, mass)) lw__row_keep_mass_exact(row, mass);
}
