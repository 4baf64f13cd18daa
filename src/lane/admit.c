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

/* The longest context, in whole pages, of which one lane fits into room; 0: not even one page. */
static uint32_t context_that_fits(const lw_admit *in, uint32_t context, uint64_t room)
{
    uint32_t fits = 0, beyond = lw_pages_of(context) + 1;
    while (beyond - fits > 1) {
        const uint32_t middle = fits + (beyond - fits) / 2;
        uint64_t bytes;
        const bool is_small = lane_bytes_of(in, middle * LW_PAGE_POSITIONS, &bytes) && bytes <= room;
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

static lw_status lanes_choose(const lw_admit *in, lw_admitted *out, uint64_t room, lw_diag *d)
{
    const uint64_t fit = room / out->lane_bytes;
    if (fit == 0) return refuse_lane(in, out->context, out->lane_bytes, room, d);
    if (in->lanes > LW_CORE_LANES_MAX) {
        return lw_fail(d, LW_BAD_INPUT, "--parallel %u: at most %d lanes are served", in->lanes,
                       LW_CORE_LANES_MAX);
    }
    if (in->lanes > fit) {
        return lw_fail(d, LW_NO_ROOM,
                       "--parallel %u wants %.2f GiB, and %.2f GiB are left after the model's %.2f and a "
                       "reserve of %.2f; --parallel %u or a smaller --context than %u would fit",
                       in->lanes, (double)out->lane_bytes * in->lanes / GIB, (double)room / GIB,
                       (double)in->fixed_bytes / GIB, (double)in->reserve_bytes / GIB, (unsigned)fit,
                       out->context);
    }
    out->lanes = in->lanes != 0 ? in->lanes : fit < LANES_DEFAULT ? (uint32_t)fit : LANES_DEFAULT;
    return LW_OK;
}

/* Entries get what a lane of the same bytes would hold of each group, so pools grow in step. */
static lw_status pools_choose(const lw_admit *in, lw_admitted *out, uint64_t left, lw_diag *d)
{
    const bool is_auto = in->cache_bytes == LW_ADMIT_CACHE_AUTO;
    out->cache_bytes = is_auto ? (left < cache_bytes_default ? left : cache_bytes_default) : in->cache_bytes;
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
    const uint64_t room = in->free_bytes - taken;
    status = lanes_choose(in, &chosen, room, d);
    if (status == LW_OK) status = pools_choose(in, &chosen, room - chosen.lanes * chosen.lane_bytes, d);
    if (status == LW_OK) *out = chosen;
    return status;
}
