/* The copy drafter; see draft.h. Per lane: the newest end of each n-gram's bucket and, per position, the end
 * before it in the same bucket. A bucket may mix n-grams: a match is measured on the tokens themselves.
 */
#include "lane/draft.h"

#include "base/rng.h"

#include <stdlib.h>

enum {
    GRAM = 3,              /* tokens of an n-gram */
    MATCH_MAX = 64,        /* a longer agreement says nothing more */
    WALK_MAX = 256,        /* earlier ends looked at: repetitive text has thousands */
    WIDTH_FIRST = 7,
    MISSES_MAX = 4,        /* proposals in a row that kept nothing, before the source rests */
    REST_CALLS = 16,
    NOWHERE = -1,
};

typedef struct copy_lane {
    int32_t *newest;       /* [bucket_count] */
    int32_t *before;       /* [context] */
    uint32_t indexed;      /* ends below it are in the index */
    uint32_t width;        /* drafts of the next proposal */
    uint32_t misses;
    uint32_t rest;         /* calls that still return nothing */
} copy_lane;

struct lw_copies {
    uint32_t lane_count, context, match, bucket_count; /* a power of two */
    copy_lane *lanes;
};

lw_status lw_copies_make(uint32_t lanes, uint32_t context, uint32_t match, lw_copies **out, lw_diag *d)
{
    LW_ASSERT(match >= GRAM && match <= MATCH_MAX);
    lw_copies *copies = calloc(1, sizeof *copies);
    *out = copies;
    bool ok = copies != NULL;
    if (ok) {
        *copies = (lw_copies){ .context = context, .match = match, .bucket_count = 64 };
        while (copies->bucket_count < context) copies->bucket_count *= 2;
        copies->lanes = calloc(lanes, sizeof *copies->lanes);
        ok = copies->lanes != NULL;
    }
    for (uint32_t i = 0; ok && i < lanes; i++) {
        copies->lane_count++;
        copies->lanes[i].newest = calloc(copies->bucket_count, sizeof(int32_t));
        copies->lanes[i].before = calloc(context, sizeof(int32_t));
        ok = copies->lanes[i].newest != NULL && copies->lanes[i].before != NULL;
    }
    if (ok) return LW_OK;
    lw_copies_free(copies);
    *out = NULL;
    return lw_fail(d, LW_NO_ROOM, "no memory for the copy drafter of %u lanes of %u positions", lanes,
                   context);
}

void lw_copies_free(lw_copies *copies)
{
    if (copies == NULL) return;
    for (uint32_t i = 0; i < copies->lane_count; i++) {
        free(copies->lanes[i].newest);
        free(copies->lanes[i].before);
    }
    free(copies->lanes);
    free(copies);
}

static void reset(void *context, uint32_t lane)
{
    lw_copies *copies = context;
    copy_lane *l = &copies->lanes[lane];
    for (uint32_t i = 0; i < copies->bucket_count; i++) l->newest[i] = NOWHERE;
    *l = (copy_lane){ .newest = l->newest, .before = l->before, .indexed = GRAM - 1, .width = WIDTH_FIRST };
}

static uint32_t bucket_of(const lw_copies *copies, const int32_t *ids, uint32_t end)
{
    const uint64_t a = (uint32_t)ids[end], b = (uint32_t)ids[end - 1], c = (uint32_t)ids[end - 2];
    return (uint32_t)lw_rng_mix(a ^ b << 21 ^ c << 42) & (copies->bucket_count - 1);
}

/* How many tokens before and with end equal those before and with the last one. */
static uint32_t agreement(const int32_t *ids, uint32_t end, uint32_t last)
{
    uint32_t count = 0;
    while (count < MATCH_MAX && count <= end && ids[end - count] == ids[last - count]) count++;
    return count;
}

/* The earlier end that agrees longest, the newest of equals; NOWHERE when none reaches the match. */
static int32_t best_end(const lw_copies *copies, const copy_lane *l, const int32_t *ids, uint32_t last)
{
    int32_t best = NOWHERE, end = l->before[last];
    uint32_t longest = copies->match - 1;
    for (uint32_t i = 0; i < WALK_MAX && end != NOWHERE && longest < MATCH_MAX; i++, end = l->before[end]) {
        const uint32_t length = agreement(ids, (uint32_t)end, last);
        if (length <= longest) continue;
        longest = length;
        best = end;
    }
    return best;
}

static void copy(const lw_copies *copies, const lw_draft_ask *ask)
{
    copy_lane *l = &copies->lanes[ask->lane];
    lw_draft *out = ask->out;
    const int32_t *ids = ask->ids;
    const uint32_t count = ask->count;
    LW_ASSERT(count <= copies->context && l->indexed <= (count < GRAM ? GRAM - 1 : count));
    for (; l->indexed < count; l->indexed++) {
        int32_t *newest = &l->newest[bucket_of(copies, ids, l->indexed)];
        l->before[l->indexed] = *newest;
        *newest = (int32_t)l->indexed;
    }
    if (count < GRAM) return;
    if (l->rest > 0) {
        l->rest--;
        return;
    }
    const int32_t end = best_end(copies, l, ids, count - 1);
    if (end == NOWHERE) return;
    const uint32_t room = ask->room < l->width ? ask->room : l->width;
    for (uint32_t from = (uint32_t)end + 1; from < count && out->count < room; from++) {
        out->tokens[out->count] = ids[from];
        out->parents[out->count] = (int32_t)out->count - 1;
        out->count++;
    }
}

static void propose(void *context, const lw_draft_ask *asks, uint32_t ask_count)
{
    for (uint32_t i = 0; i < ask_count; i++) copy(context, &asks[i]);
}

static void judge(void *context, uint32_t lane, uint32_t offered, uint32_t kept)
{
    lw_copies *copies = context;
    copy_lane *l = &copies->lanes[lane];
    const bool whole = kept == offered && offered >= l->width;
    l->width = whole ? l->width * 2 + 1 : kept == offered ? l->width : WIDTH_FIRST;
    if (l->width > LW_DRAFTS_MAX) l->width = LW_DRAFTS_MAX;
    l->misses = kept == 0 ? l->misses + 1 : 0;
    if (l->misses < MISSES_MAX) return;
    l->misses = 0;
    l->rest = REST_CALLS;
}

lw_draft_source lw_copies_source(lw_copies *copies)
{
    return (lw_draft_source){ .context = copies, .reset = reset, .propose = propose, .judge = judge };
}
