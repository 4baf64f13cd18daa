/* Sizes at start; see admit.h. */
#include "lane/admit.h"

#include "base/limits.h"
#include "lane/core.h"

#define GIB 0x1p30

enum { CONTEXT_DEFAULT = 32768, LANES_DEFAULT = 8 };
static const uint64_t cache_bytes_default = (uint64_t)16 << 30;

static lw_status context_choose(const lw_admit *in, uint32_t *context, lw_diag *d)
{
    const uint32_t model = in->context_model != 0 ? in->context_model : LW_LIMIT_CONTEXT;
    if (in->context > model) {
        return lw_fail(d, LW_BAD_INPUT, "--context %u is more than the model's %u", in->context, model);
    }
    *context = in->context != 0 ? in->context : model < CONTEXT_DEFAULT ? model : CONTEXT_DEFAULT;
    return LW_OK;
}

/* False: more than 2^64 bytes. */
static bool lane_bytes_of(const lw_admit *in, uint32_t context, uint64_t *bytes)
{
    *bytes = in->lane_host_bytes;
    for (uint32_t g = 0; g < in->group_count; g++) {
        uint64_t group;
        const uint64_t pages = lw_pages_needed(in->reaches[g], context, in->rows_max);
        if (__builtin_mul_overflow(pages, in->page_bytes[g], &group)) return false;
        if (__builtin_add_overflow(*bytes, group, bytes)) return false;
    }
    return *bytes > 0;
}

static uint32_t wanted_of(const lw_admit *in, uint32_t lanes)
{
    const uint64_t wanted = (uint64_t)in->wanted_rows * lanes;
    return wanted < in->rows_max ? (uint32_t)wanted : in->rows_max;
}

/* Of so many lanes of lane_bytes and the logits of their rounds. False: more than 2^64 bytes. */
static bool lanes_bytes_of(const lw_admit *in, uint64_t lane_bytes, uint32_t lanes, uint64_t *bytes)
{
    uint64_t logits;
    return !__builtin_mul_overflow(lane_bytes, (uint64_t)lanes, bytes) &&
           !__builtin_mul_overflow(in->logits_bytes, (uint64_t)wanted_of(in, lanes), &logits) &&
           !__builtin_add_overflow(*bytes, logits, bytes);
}

/* The longest context, in whole pages, of which one lane fits into room; 0: not even one page. */
static uint32_t context_that_fits(const lw_admit *in, uint32_t context, uint64_t room)
{
    uint32_t fits = 0, beyond = lw_pages_of(context) + 1;
    while (beyond - fits > 1) {
        const uint32_t middle = fits + (beyond - fits) / 2;
        uint64_t bytes;
        const bool is_small = lane_bytes_of(in, middle * LW_PAGE_POSITIONS, &bytes) &&
                              lanes_bytes_of(in, bytes, 1, &bytes) && bytes <= room;
        fits = is_small ? middle : fits;
        beyond = is_small ? beyond : middle;
    }
    return fits * LW_PAGE_POSITIONS;
}

static lw_status refuse_lane(const lw_admit *in, uint32_t context, uint64_t lane_bytes, uint64_t room,
                             lw_diag *d)
{
    const uint32_t fits = context_that_fits(in, context, room);
    if (fits == 0) {
        return lw_fail(d, LW_NO_ROOM,
                       "no lane fits: one of %u positions wants %.2f GiB, and %.2f GiB are left after "
                       "the model's %.2f and a reserve of %.2f; a smaller model or --chunk would need less",
                       context, (double)lane_bytes / GIB, (double)room / GIB, (double)in->fixed_bytes / GIB,
                       (double)in->reserve_bytes / GIB);
    }
    return lw_fail(d, LW_NO_ROOM,
                   "no lane fits: one of %u positions wants %.2f GiB, and %.2f GiB are left after the "
                   "model's %.2f and a reserve of %.2f; --context %u would fit",
                   context, (double)lane_bytes / GIB, (double)room / GIB, (double)in->fixed_bytes / GIB,
                   (double)in->reserve_bytes / GIB, fits);
}

/* Chooses the lanes; *left is what they leave of room. */
static lw_status lanes_choose(const lw_admit *in, lw_admitted *out, uint64_t room, uint64_t *left,
                              lw_diag *d)
{
    uint64_t bytes;
    uint32_t fit = 0;
    while (fit < LW_CORE_LANES_MAX && lanes_bytes_of(in, out->lane_bytes, fit + 1, &bytes) && bytes <= room)
        fit++;
    if (in->lanes > LW_CORE_LANES_MAX) {
        return lw_fail(d, LW_BAD_INPUT, "--parallel %u: at most %d lanes are served", in->lanes,
                       LW_CORE_LANES_MAX);
    }
    if (fit == 0) {
        if (!lanes_bytes_of(in, out->lane_bytes, 1, &bytes)) bytes = UINT64_MAX;
        return refuse_lane(in, out->context, bytes, room, d);
    }
    if (in->lanes > fit) {
        if (!lanes_bytes_of(in, out->lane_bytes, in->lanes, &bytes)) bytes = UINT64_MAX;
        return lw_fail(d, LW_NO_ROOM,
                       "--parallel %u wants %.2f GiB, and %.2f GiB are left after the model's %.2f and a "
                       "reserve of %.2f; --parallel %u or a smaller --context than %u would fit",
                       in->lanes, (double)bytes / GIB, (double)room / GIB, (double)in->fixed_bytes / GIB,
                       (double)in->reserve_bytes / GIB, fit, out->context);
    }
    out->lanes = in->lanes != 0 ? in->lanes : fit < LANES_DEFAULT ? fit : LANES_DEFAULT;
    out->wanted_max = wanted_of(in, out->lanes);
    const bool is_counted = lanes_bytes_of(in, out->lane_bytes, out->lanes, &bytes);
    LW_ASSERT(is_counted);
    *left = room - bytes;
    return LW_OK;
}

/* More than all entries could hold is never taken unasked. */
static uint64_t cache_auto(const lw_admitted *out, uint64_t left)
{
    uint64_t useful;
    if (__builtin_mul_overflow(out->lane_bytes, (uint64_t)LW_CACHE_ENTRIES_DEFAULT, &useful))
        useful = UINT64_MAX;
    const uint64_t most = useful < cache_bytes_default ? useful : cache_bytes_default;
    return left < most ? left : most;
}

/* Entries get what a lane of the same bytes would hold of each group, so pools grow in step. */
static lw_status pools_choose(const lw_admit *in, lw_admitted *out, uint64_t left, lw_diag *d)
{
    const bool is_auto = in->cache_bytes == LW_ADMIT_CACHE_AUTO;
    out->cache_bytes = is_auto ? cache_auto(out, left) : in->cache_bytes;
    if (out->cache_bytes > left) {
        return lw_fail(d, LW_NO_ROOM,
                       "--prompt-cache of %.2f GiB wants more than the %.2f GiB that %u lanes leave; fewer "
                       "lanes, a smaller --context or --prompt-cache would fit",
                       (double)in->cache_bytes / GIB, (double)left / GIB, out->lanes);
    }
    const uint64_t pages_bytes = out->lane_bytes - in->lane_host_bytes;
    uint64_t used = 0;
    for (uint32_t g = 0; g < in->group_count; g++) {
        const uint64_t needed = lw_pages_needed(in->reaches[g], out->context, in->rows_max);
        const unsigned __int128 extra = (unsigned __int128)needed * out->cache_bytes / pages_bytes;
        const unsigned __int128 count = needed * out->lanes + extra;
        out->page_counts[g] = count < LW_NONE ? (uint32_t)count : LW_NONE - 1;
        used += (out->page_counts[g] - needed * out->lanes) * in->page_bytes[g];
    }
    out->cache_bytes = used;
    return LW_OK;
}

lw_status lw_admit_choose(const lw_admit *in, lw_admitted *out, lw_diag *d)
{
    *out = (lw_admitted){ 0 };
    lw_admitted chosen = { 0 };
    lw_status status = context_choose(in, &chosen.context, d);
    if (status != LW_OK) return status;
    if (!lane_bytes_of(in, chosen.context, &chosen.lane_bytes)) {
        return lw_fail(d, LW_NO_ROOM,
                       "a lane of %u positions has no size that can be counted; a smaller --context would "
                       "help",
                       chosen.context);
    }
    uint64_t taken;
    const bool fits =
        !__builtin_add_overflow(in->fixed_bytes, in->reserve_bytes, &taken) && taken <= in->free_bytes;
    if (!fits) {
        return lw_fail(d, LW_NO_ROOM,
                       "the model wants %.2f GiB beside a reserve of %.2f, and %.2f GiB are free; free "
                       "memory or take a smaller model",
                       (double)in->fixed_bytes / GIB, (double)in->reserve_bytes / GIB,
                       (double)in->free_bytes / GIB);
    }
    uint64_t left = 0;
    status = lanes_choose(in, &chosen, in->free_bytes - taken, &left, d);
    if (status == LW_OK) status = pools_choose(in, &chosen, left, d);
    if (status == LW_OK) *out = chosen;
    return status;
}
