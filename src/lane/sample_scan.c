/* The passes over a row's logits and the sort of what they find.
 * The inner loops run over whole blocks with fixed counts, integers instead of floats where a maximum is
 * wanted (float maxima do not vectorise without giving up NaN), and no early exit.
 */
#include "lane/sample_row.h"

const float *lw__row_block(const lw__row *row, uint32_t block, float pad[LW__SAMPLE_BLOCK])
{
    const uint32_t begin = block * LW__SAMPLE_BLOCK;
    const uint32_t count = row->vocab - begin;
    if (count >= LW__SAMPLE_BLOCK) return row->logits + begin;
    memcpy(pad, row->logits + begin, count * sizeof *pad);
    for (uint32_t i = count; i < LW__SAMPLE_BLOCK; i++) pad[i] = -__builtin_inff();
    return pad;
}

typedef struct key_range {
    int32_t least;    /* without -infinity, so that a masked row still tells how far its logits reach */
    int32_t most;
} key_range;

static key_range block_range(const float *restrict logits)
{
    const int32_t key_neg_inf = lw__key_of(LW__HIGH_NEG_INF);
    int32_t keys[LW__SAMPLE_BLOCK];
    int32_t least = INT32_MAX, most = INT32_MIN;
    for (int i = 0; i < LW__SAMPLE_BLOCK; i++) keys[i] = lw__key_of(lw__high_of(logits[i]));
    for (int i = 0; i < LW__SAMPLE_BLOCK; i++) most = keys[i] > most ? keys[i] : most;
    for (int i = 0; i < LW__SAMPLE_BLOCK; i++) keys[i] = keys[i] == key_neg_inf ? INT32_MAX : keys[i];
    for (int i = 0; i < LW__SAMPLE_BLOCK; i++) least = keys[i] < least ? keys[i] : least;
    return (key_range){ .least = least, .most = most };
}

bool lw__row_scan(lw__row *row)
{
    key_range whole = { .least = INT32_MAX, .most = INT32_MIN };
    float pad[LW__SAMPLE_BLOCK];
    for (uint32_t b = 0; b < row->block_count; b++) {
        const key_range range = block_range(lw__row_block(row, b, pad));
        row->sampler->block_first[b] = lw__high_of_key(range.most);
        if (range.most > whole.most) whole.most = range.most;
        if (range.least < whole.least) whole.least = range.least;
    }
    const int32_t key_neg_inf = lw__key_of(LW__HIGH_NEG_INF), key_pos_inf = lw__key_of(LW__HIGH_POS_INF);
    if (whole.most >= key_pos_inf || whole.most <= key_neg_inf || whole.least < key_neg_inf) return false;
    row->first = lw__high_of_key(whole.most);
    row->last = lw__high_of_key(whole.least);
    row->cut = lw__rank(row->last, UINT32_MAX);
    return true;
}

uint32_t lw__row_gather(const lw__row *row, uint64_t from, uint64_t to)
{
    uint64_t *ranks = row->sampler->ranks;
    float pad[LW__SAMPLE_BLOCK];
    uint32_t count = 0;
    for (uint32_t b = 0; b < row->block_count; b++) {
        if (lw__block_bound(row, b) > to) continue;
        const float *logits = lw__row_block(row, b, pad);
        for (uint32_t i = 0; i < LW__SAMPLE_BLOCK; i++) {
            /* Written always and counted when inside: no branch to guess. The array has a block to spare. */
            const uint64_t rank = lw__rank(lw__high_of(logits[i]), b * LW__SAMPLE_BLOCK + i);
            ranks[count] = rank;
            count += rank - from <= to - from;
        }
    }
    return count;
}

static void insertion_sort(uint64_t *ranks, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        const uint64_t rank = ranks[i];
        uint32_t at = i;
        for (; at > 0 && ranks[at - 1] > rank; at--) ranks[at] = ranks[at - 1];
        ranks[at] = rank;
    }
}

static uint32_t digit_of(uint64_t rank, int digit)
{
    return lw__rank_high(rank) >> (digit * LW__SAMPLE_DIGIT_BITS) & ((1u << LW__SAMPLE_DIGIT_BITS) - 1);
}

static void count_digits(lw_sampler *sampler, uint32_t count)
{
    memset(sampler->digit_counts, 0, sizeof sampler->digit_counts);
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t rank = sampler->ranks[i];
        sampler->digit_counts[0][digit_of(rank, 0)]++;
        sampler->digit_counts[1][digit_of(rank, 1)]++;
        sampler->digit_counts[2][digit_of(rank, 2)]++;
    }
}

/* Moves ranks to ranks_spare by one digit, keeping the order of equals, and exchanges the two. */
static void sort_by_digit(lw_sampler *sampler, uint32_t count, int digit)
{
    uint32_t *places = sampler->digit_counts[digit];
    uint32_t place = 0;
    for (uint32_t value = 0; value < 1u << LW__SAMPLE_DIGIT_BITS; value++) {
        const uint32_t here = places[value];
        places[value] = place;
        place += here;
    }
    uint64_t *from = sampler->ranks, *to = sampler->ranks_spare;
    for (uint32_t i = 0; i < count; i++) to[places[digit_of(from[i], digit)]++] = from[i];
    sampler->ranks = to;
    sampler->ranks_spare = from;
}

void lw__ranks_sort(lw_sampler *sampler, uint32_t count)
{
    enum { FEW = 48 }; /* below it clearing the digit counts costs more than moving */
    if (count < FEW) {
        insertion_sort(sampler->ranks, count);
        return;
    }
    count_digits(sampler, count);
    for (int digit = 0; digit < LW__SAMPLE_DIGITS; digit++) {
        const uint32_t shared = digit_of(sampler->ranks[0], digit);
        if (sampler->digit_counts[digit][shared] < count) sort_by_digit(sampler, count, digit);
    }
}
