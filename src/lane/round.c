/* The order of a round, and rounds that are submitted ahead; see core.h. Where the device goes ahead, the
 * round after the one in hand is chosen and submitted before that one is waited for, if all that it wants to
 * know is known or drawn by the device itself:
 *
 *     submit n -> choose and submit n + 1 -> wait for n, sample, commit -> choose and submit n + 2 -> ...
 *
 * What is under way of a lane is counted in its open rows and tokens. The choice of a round ahead takes for
 * granted that all of that goes well; what turns out not to have been wanted is dropped when its round ends,
 * and until then its lane keeps its pages.
 */
#include "lane/core_internal.h"

#include <fenv.h>

/* ---- submitting ---- */

/* Rows of one share: the known tokens as a chain, the drafts as a tree below the last of them. The token past
 * the known ones is drawn by the round under way. */
static void rows_fill(lw_core *core, const lw__share *share)
{
    const lw__lane *lane = &core->lanes[share->lane];
    lw_row *rows = core->rows + share->row_begin;
    const uint32_t last = share->known - 1, begin = lane->committed + lane->open_rows;
    for (uint32_t i = 0; i < share->known; i++) {
        const uint32_t position = begin + i;
        const bool is_known = position < lane->count;
        rows[i] = (lw_row){ .token = is_known ? lane->ids[position] : lw_row_drawn(lane->open_wanted),
                            .lane = share->lane,
                            .position = position,
                            .slot = position,
                            .parent = i == 0 ? -1 : (int32_t)(share->row_begin + i - 1),
                            .wanted = i == last && share->draws };
    }
    for (uint32_t i = 0; i < share->drafts; i++) {
        const uint32_t parent = last + (uint32_t)(lane->draft.parents[i] + 1);
        rows[share->known + i] = (lw_row){ .token = lane->draft.tokens[i], .lane = share->lane,
                                           .position = rows[parent].position + 1,
                                           .slot = begin + share->known + i,
                                           .parent = (int32_t)(share->row_begin + parent), .wanted = true };
    }
}

void lw__pages_cover(lw_core *core, lw__lane *lane, uint32_t end)
{
    for (uint32_t g = 0; g < core->device.pool->group_count; g++) {
        const uint32_t wanted = lw_pages_wanted(&lane->pages, g, end);
        LW_ASSERT(lane->pages.end[g] - lane->pages.begin[g] + wanted <= lane->reserved[g]);
        LW_ASSERT(lw_cache_yield(&core->cache, g, wanted, LW_CACHE_NONE));
    }
    LW_ASSERT(lw_pages_cover(core->device.pool, &lane->pages, end, NULL) == LW_OK);
    for (uint32_t slot = lane->committed; slot < end; slot++) {
        LW_ASSERT(lw_pages_may_write(core->device.pool, &lane->pages, slot));
    }
}

void lw__lanes_fill(const lw_core *core, lw_batch_lane *lanes)
{
    for (uint32_t i = 0; i < core->options.lanes; i++) {
        const lw__lane *lane = &core->lanes[i];
        lanes[i] = (lw_batch_lane){ .committed = lane->committed + lane->open_rows,
                                    .page_count = core->device.pool->table_pages };
        for (uint32_t g = 0; g < core->device.pool->group_count; g++) lanes[i].pages[g] = lane->pages.ids[g];
    }
}

/* A filling prompt without a share was passed over if another one had rows. */
static void count_passes(lw_core *core, const lw__round *round)
{
    for (uint32_t i = 0; i < core->options.lanes; i++) {
        bool has_share = false;
        for (uint32_t s = 0; s < round->share_count; s++) has_share |= round->shares[s].lane == i;
        if (has_share) {
            core->lanes[i].passed_over = 0;
        } else if (lw__lane_fills(&core->lanes[i]) && round->prompt_rows > 0) {
            core->lanes[i].passed_over++;
        }
    }
}

/* Opens the round, also where the device refuses it: its status waits until it is its turn to end. */
static void round_submit(lw_core *core, lw__round *round)
{
    lw_batch_lane lanes[LW_CORE_LANES_MAX];
    bool best = false;
    round->begin_ns = lw__core_now(core);
    count_passes(core, round);
    for (uint32_t i = 0; i < round->share_count; i++) {
        const lw__share *share = &round->shares[i];
        lw__lane *lane = &core->lanes[share->lane];
        best = best || (share->draws && lw__reads_best(core, lane->job.request));
        lw__pages_cover(core, lane, lane->committed + lane->open_rows + share->known + share->drafts);
        rows_fill(core, share);
    }
    lw__lanes_fill(core, lanes);
    const lw_batch batch = { .rows = core->rows, .row_count = round->row_count, .lanes = lanes,
                             .lane_count = core->options.lanes, .best = best };
    round->status = core->device.table->submit(core->device.exec, LW_ENTRY_MAIN, &batch, &round->ticket,
                                               &round->diag);
    round->is_open = true;
    for (uint32_t i = 0; i < round->share_count; i++) {
        const lw__share *share = &round->shares[i];
        lw__lane *lane = &core->lanes[share->lane];
        lane->open_rows += share->known;
        lane->open_tokens += share->draws;
        if (share->draws) lane->open_wanted = share->wanted_begin;
    }
}

static void round_begin(lw_core *core)
{
    lw__seats_fill(core);
    lw__drafts_make(core);
    lw__round_choose(core, &core->round);
    if (core->round.row_count > 0) round_submit(core, &core->round);
}

/* Whether the device finds all that the round in hand draws, so that neither logits nor drafts of it are
 * wanted. */
static bool leaves_no_draw(const lw_core *core, const lw__round *round)
{
    for (uint32_t i = 0; i < round->share_count; i++) {
        const lw__share *share = &round->shares[i];
        const lw__lane *lane = &core->lanes[share->lane];
        if (share->drafts > 0) return false;
        if (lane->state == LW__LANE_LEAVING || !share->draws) continue;
        if (!lw__reads_best(core, lane->job.request)) return false;
    }
    return true;
}

static void ahead_begin(lw_core *core)
{
    const bool is_sound = core->round.status == LW_OK && core->head.step_count == 0;
    if (!core->device.goes_ahead || !is_sound || !leaves_no_draw(core, &core->round)) return;
    lw__seats_fill(core);
    if (lw__drafts_are_due(core)) return;
    lw__round_choose(core, &core->ahead);
    if (core->ahead.row_count == 0) return;
    core->ahead.is_ahead = true;
    round_submit(core, &core->ahead);
}

/* ---- ending ---- */

/* Waits; nothing of the round is open any more, and shares of lanes that left meanwhile are gone. */
static lw_status round_settle(lw_core *core, lw__round *round)
{
    lw_status status = round->status;
    if (status == LW_OK) status = core->device.table->wait(core->device.exec, round->ticket, &round->diag);
    const uint32_t count = round->share_count, running = round->running;
    round->is_open = false;
    round->share_count = round->running = 0;
    for (uint32_t i = 0; i < count; i++) {
        const lw__share share = round->shares[i];
        lw__lane *lane = &core->lanes[share.lane];
        lane->open_rows -= share.known;
        lane->open_tokens -= share.draws;
        if (lane->state == LW__LANE_LEAVING) {
            lw__lane_free(core, lane);
            continue;
        }
        round->running += i < running;
        round->shares[round->share_count++] = share;
    }
    return status;
}

void lw__round_drop(lw_core *core)
{
    if (!core->round.is_open) return;
    const lw_status status = round_settle(core, &core->round);
    (void)status;
}

/* Nothing of the round was kept: its streams end, each with what it had. */
static void round_fail(lw_core *core, const lw__round *round, lw_status status, const char *text)
{
    core->counts.rounds_failed++;
    for (uint32_t i = 0; i < round->share_count; i++)
        lw__seat_leave(core, &core->lanes[round->shares[i].lane], status, LW_FINISH_STOPPED, text);
}

static void count(lw_core *core, const lw__round *round)
{
    core->counts.rounds++;
    core->counts.rounds_ahead += round->is_ahead;
}

/* A round that was left open for longer than it takes has ended at a time that nobody knows. */
static void gap_judge(const lw_core *core, lw__round *round)
{
    const uint64_t gap_ns = lw__core_now(core) - core->left_ns;
    round->is_untimed = (double)gap_ns > lw_costs_at(&core->costs, round->row_count);
}

static void round_end(lw_core *core)
{
    lw__round *round = &core->round, *ahead = &core->ahead;
    const lw_status status = round_settle(core, round);
    count(core, round);
    if (status == LW_OK) {
        lw__round_sample(core, round);
        const uint64_t now = lw__core_now(core);
        ahead->begin_ns = now;
        lw__round_commit(core, round, round->is_untimed ? 0 : now - round->begin_ns);
        return;
    }
    round_fail(core, round, status, round->diag.text);
    if (!ahead->is_open) return;
    /* It was made of what this one did not do. */
    const lw_status ahead_status = round_settle(core, ahead);
    (void)ahead_status;
    count(core, ahead);
    round_fail(core, ahead, status, round->diag.text);
}

static bool lanes_are_paused(const lw_core *core)
{
    bool any = false;
    for (uint32_t i = 0; i < core->options.lanes; i++) {
        any = any || (core->lanes[i].state == LW__LANE_RUNNING && core->lanes[i].job.is_paused);
    }
    return any;
}

bool lw_core_round(lw_core *core)
{
    fenv_t kept; /* of a host that may have changed how its threads round */
    LW_ASSERT(!core->is_in_round);
    fegetenv(&kept);
    fesetenv(FE_DFL_ENV);
    core->is_in_round = true;
    if (core->round.is_open) gap_judge(core, &core->round);
    else round_begin(core);
    const bool works = core->round.is_open;
    if (works) {
        ahead_begin(core);
        round_end(core);
    }
    if (core->ahead.is_open) {
        core->round = core->ahead;
        core->left_ns = lw__core_now(core);
    }
    core->ahead.is_open = false;
    LW_ASSERT(works || core->queue_count == 0 || lanes_are_paused(core));
    core->is_in_round = false;
    fesetenv(&kept);
    return works;
}
