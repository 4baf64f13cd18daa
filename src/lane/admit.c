/* Sizes at start; see admit.h. */
#include "lane/admit.h"

#include "base/limits.h"
#include "lane/core.h"

#include <stdio.h>

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

/* Rows of a round of so many lanes: more than one stream has positions are of use to several streams only. */
static uint32_t rows_of(const lw_admit *in, uint32_t context, uint32_t lanes)
{
    const uint32_t useful = context > lanes ? context : lanes + 1;
    return in->rows_max < useful ? in->rows_max : useful;
}

static uint32_t wanted_of(const lw_admit *in, uint32_t rows, uint32_t lanes)
{
    const uint64_t wanted = (uint64_t)in->wanted_rows * lanes;
    return wanted < rows ? (uint32_t)wanted : rows;
}

static uint64_t round_bytes_of(const lw_admit *in, uint32_t context, uint32_t lanes)
{
    const uint32_t rows = rows_of(in, context, lanes);
    return in->round_bytes(in->round_context, rows, wanted_of(in, rows, lanes));
}

/* Of so many lanes and their rounds. False: more than 2^64 bytes. */
static bool lanes_bytes_of(const lw_admit *in, uint32_t context, uint32_t lanes, uint64_t *bytes)
{
    uint64_t lane;
    return lane_bytes_of(in, context, &lane) && !__builtin_mul_overflow(lane, (uint64_t)lanes, bytes) &&
           !__builtin_add_overflow(*bytes, round_bytes_of(in, context, lanes), bytes);
}

static bool lanes_fit(const lw_admit *in, uint32_t context, uint32_t lanes, uint64_t room)
{
    uint64_t bytes;
    return lanes_bytes_of(in, context, lanes, &bytes) && bytes <= room;
}

/* The longest context, in whole pages, of which one lane fits into room; 0: not even one page. */
static uint32_t context_that_fits(const lw_admit *in, uint32_t context, uint64_t room)
{
    uint32_t fits = 0, beyond = lw_pages_of(context) + 1;
    while (beyond - fits > 1) {
        const uint32_t middle = fits + (beyond - fits) / 2;
        const bool is_small = lanes_fit(in, middle * LW_PAGE_POSITIONS, 1, room);
        fits = is_small ? middle : fits;
        beyond = is_small ? beyond : middle;
    }
    return fits * LW_PAGE_POSITIONS;
}

/* The largest of the halves of the rows with which so many lanes fit into room; 0: none. */
static uint32_t chunk_that_fits(const lw_admit *in, uint32_t context, uint32_t lanes, uint64_t room)
{
    lw_admit smaller = *in;
    smaller.rows_max = rows_of(in, context, lanes);
    while (smaller.rows_max / 2 > lanes) {
        smaller.rows_max /= 2;
        if (lanes_fit(&smaller, context, lanes, room)) return smaller.rows_max;
    }
    return 0;
}

enum { HELP_BYTES = 128 };

static void help_write(char help[HELP_BYTES], uint32_t chunk, uint32_t context)
{
    if (chunk != 0 && context != 0)
        snprintf(help, HELP_BYTES, "--chunk %u or --context %u would fit", chunk, context);
    else if (chunk != 0 || context != 0)
        snprintf(help, HELP_BYTES, "--%s %u would fit", chunk != 0 ? "chunk" : "context",
                 chunk != 0 ? chunk : context);
    else
        snprintf(help, HELP_BYTES, "a smaller model, or less of both --chunk and --context, would need less");
}

static lw_status refuse_lane(const lw_admit *in, const lw_admitted *out, uint64_t room, lw_diag *d)
{
    char help[HELP_BYTES];
    const uint32_t context = out->context;
    help_write(help, chunk_that_fits(in, context, 1, room), context_that_fits(in, context, room));
    return lw_fail(
        d, LW_NO_ROOM,
        "no lane fits: one of %u positions wants %.2f GiB and rounds of %u rows %.2f, and %.2f GiB "
        "are left after the model's %.2f and a reserve of %.2f; %s",
        context, (double)out->lane_bytes / GIB, rows_of(in, context, 1),
        (double)round_bytes_of(in, context, 1) / GIB, (double)room / GIB, (double)in->fixed_bytes / GIB,
        (double)in->reserve_bytes / GIB, help);
}

static lw_status refuse_lanes(const lw_admit *in, const lw_admitted *out, uint32_t fit, uint64_t room,
                              lw_diag *d)
{
    char chunk_help[HELP_BYTES] = "";
    const uint32_t context = out->context, chunk = chunk_that_fits(in, context, in->lanes, room);
    if (chunk != 0) snprintf(chunk_help, sizeof chunk_help, "--chunk %u, ", chunk);
    return lw_fail(d, LW_NO_ROOM,
                   "--parallel %u wants %.2f GiB and rounds of %u rows %.2f, and %.2f GiB are left after the "
                   "model's %.2f and a reserve of %.2f; %s--parallel %u or a smaller --context than %u would "
                   "fit",
                   in->lanes, (double)out->lane_bytes * in->lanes / GIB, rows_of(in, context, in->lanes),
                   (double)round_bytes_of(in, context, in->lanes) / GIB, (double)room / GIB,
                   (double)in->fixed_bytes / GIB, (double)in->reserve_bytes / GIB, chunk_help, fit, context);
}

/* Chooses the lanes; *left is what they leave of room. */
static lw_status lanes_choose(const lw_admit *in, lw_admitted *out, uint64_t room, uint64_t *left,
                              lw_diag *d)
{
    uint64_t bytes;
    uint32_t fit = 0;
    while (fit < LW_CORE_LANES_MAX && lanes_fit(in, out->context, fit + 1, room)) fit++;
    if (in->lanes > LW_CORE_LANES_MAX) {
        return lw_fail(d, LW_BAD_INPUT, "--parallel %u: at most %d lanes are served", in->lanes,
                       LW_CORE_LANES_MAX);
    }
    if (fit == 0) return refuse_lane(in, out, room, d);
    if (in->lanes > fit) return refuse_lanes(in, out, fit, room, d);
    out->lanes = in->lanes != 0 ? in->lanes : fit < LANES_DEFAULT ? fit : LANES_DEFAULT;
    out->rows_max = rows_of(in, out->context, out->lanes);
    out->wanted_max = wanted_of(in, out->rows_max, out->lanes);
    if (!lanes_bytes_of(in, out->context, out->lanes, &bytes) || bytes > room)
        return lw_fail(d, LW_NO_ROOM, "what rounds of %u lanes take could not be counted", out->lanes);
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
