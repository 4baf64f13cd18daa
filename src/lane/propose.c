/* Which source drafts for which lane in the coming round. By a stream's luck with each and what their drafts
 * cost, who promises more tokens for the time is asked first and the others where it has none. The head makes
 * the chains of all streams in one submission, so all lanes that want it wait for it together.
 */
#include "lane/core_internal.h"

static void draft_check(const lw_core *core, const lw_draft *draft, uint32_t room)
{
    LW_ASSERT(draft->count <= room);
    for (uint32_t i = 0; i < draft->count; i++) {
        LW_ASSERT(draft->parents[i] >= -1 && draft->parents[i] < (int32_t)i);
        LW_ASSERT(draft->tokens[i] >= 0 && (uint32_t)draft->tokens[i] < core->device.plan->vocab);
    }
}

static bool is_chain(const lw_draft *draft)
{
    uint32_t i = 0;
    while (i < draft->count && draft->parents[i] == (int32_t)i - 1) i++;
    return i == draft->count;
}

/* Takes the nodes out of a tree that stand at or past the anchor after the pending token's position. */
static void tree_cut(lw_draft *draft, uint32_t position)
{
    const uint32_t depth_max = LW_ANCHOR_POSITIONS - 1 - position % LW_ANCHOR_POSITIONS;
    uint32_t depths[LW_DRAFTS_MAX], kept = 0;
    int32_t moved[LW_DRAFTS_MAX]; /* where a node went; -1: it was cut */
    if (is_chain(draft)) return;
    for (uint32_t i = 0; i < draft->count; i++) {
        const int32_t parent = draft->parents[i];
        depths[i] = parent < 0 ? 1 : depths[parent] + 1;
        moved[i] = -1;
        if (depths[i] > depth_max) continue;
        draft->tokens[kept] = draft->tokens[i];
        draft->parents[kept] = parent < 0 ? -1 : moved[parent];
        moved[i] = (int32_t)kept++;
    }
    draft->count = kept;
}

static uint32_t running_rows(const lw_core *core, uint32_t *streams)
{
    uint32_t rows = 0;
    *streams = 0;
    for (uint32_t i = 0; i < core->options.lanes; i++) {
        const lw__lane *lane = &core->lanes[i];
        if (!lw__lane_runs(lane)) continue;
        rows += lw__lane_rows(lane);
        ++*streams;
    }
    return rows < core->options.rows_max ? rows : core->options.rows_max;
}

lw_draft_prices lw__draft_prices(const lw_core *core, uint32_t source)
{
    uint32_t streams;
    const uint32_t rows = running_rows(core, &streams);
    LW_ASSERT(streams > 0);
    /* Steps of all chains go together, and this is the part of one. */
    const double step_ns = source == LW__SOURCE_HEAD ? lw__head_step_ns(core, streams) / streams : 0.0;
    return (lw_draft_prices){ .rounds = &core->costs, .rows = rows, .streams = streams, .step_ns = step_ns };
}

static uint32_t drafts_most(const lw_core *core, uint32_t source)
{
    return source == LW__SOURCE_HEAD ? core->head.steps_max : core->options.drafts_max;
}

/* Drafts that the coming round may try for a lane from this source. */
static uint32_t draft_room(const lw_core *core, const lw__lane *lane, uint32_t source)
{
    const lw_request *request = lane->job.request;
    const lw_draft_prices prices = lw__draft_prices(core, source);
    const uint32_t left = request->tokens_max - lane->counts.tokens - lane->open_tokens;
    const uint32_t limit = lw_depth_limit(&lane->depths[source], &prices, drafts_most(core, source));
    return left - 1 < limit ? left - 1 : limit;
}

static bool wants(const lw__lane *lane, uint32_t source)
{
    const bool was_asked = (lane->asked >> source & 1) != 0;
    return lw__lane_runs(lane) && lane->job.request->draft && lane->draft.count == 0 && !was_asked;
}

/* Whether the head promises more than this source. */
static bool head_is_better(const lw_core *core, const lw__lane *lane, uint32_t source)
{
    if (core->sources[LW__SOURCE_HEAD].propose == NULL) return false;
    const uint32_t room = draft_room(core, lane, LW__SOURCE_HEAD);
    const lw_draft_prices head = lw__draft_prices(core, LW__SOURCE_HEAD);
    const lw_draft_prices other = lw__draft_prices(core, source);
    return lw_depth_gain(&lane->depths[LW__SOURCE_HEAD], &head, room) >
        lw_depth_gain(&lane->depths[source], &other, draft_room(core, lane, source));
}

/* Asks the source for the lanes that have no drafts yet; early: for those alone where the head is no better.
 */
static void source_ask(lw_core *core, uint32_t source, bool early)
{
    lw_draft_ask asks[LW_CORE_LANES_MAX];
    uint32_t count = 0;
    if (core->sources[source].propose == NULL) return;
    for (uint32_t i = 0; i < core->options.lanes; i++) {
        lw__lane *lane = &core->lanes[i];
        if (!wants(lane, source) || (early && head_is_better(core, lane, source))) continue;
        const uint32_t room = draft_room(core, lane, source);
        if (room == 0) continue;
        lane->asked |= 1U << source;
        lane->drafted_by = source;
        asks[count++] = (lw_draft_ask){ .lane = i, .ids = lane->ids, .count = lane->count, .room = room,
                                        .out = &lane->draft };
    }
    if (count == 0) return;
    core->sources[source].propose(core->sources[source].context, asks, count);
    for (uint32_t i = 0; i < count; i++) {
        draft_check(core, asks[i].out, asks[i].room);
        if (core->recurs) tree_cut(asks[i].out, asks[i].count - 1);
    }
}

void lw__drafts_clear(lw_core *core)
{
    for (uint32_t i = 0; i < core->options.lanes; i++)
        core->lanes[i].draft.count = core->lanes[i].asked = core->lanes[i].head_steps = 0;
    core->head.step_count = 0;
    core->head.ns = 0.0;
}

void lw__drafts_make(lw_core *core)
{
    lw__drafts_clear(core);
    for (uint32_t source = 0; source < LW__SOURCE_HEAD; source++) source_ask(core, source, true);
    source_ask(core, LW__SOURCE_HEAD, false);
    for (uint32_t source = 0; source < LW__SOURCE_HEAD; source++) source_ask(core, source, false);
}

/* ---- whether to wait for them ---- */

/* Whether the head would be asked: what it drafts for is not known yet. */
static bool head_promises(const lw_core *core, const lw__lane *lane)
{
    const lw_depth *depth = &lane->depths[LW__SOURCE_HEAD];
    const lw_draft_prices prices = lw__draft_prices(core, LW__SOURCE_HEAD);
    const uint32_t room = draft_room(core, lane, LW__SOURCE_HEAD);
    return room > 0 && (lw_depth_is_due(depth) || lw_depth_gain(depth, &prices, room) > 1.0);
}

/* Whether the source has a draft behind the token that is being drawn, as far as those before it tell. */
static bool source_promises(lw_core *core, uint32_t index, uint32_t source)
{
    lw__lane *lane = &core->lanes[index];
    const uint32_t room = draft_room(core, lane, source), more = room + lane->open_tokens;
    if (room == 0) return false;
    const lw_draft_ask ask = { .lane = index, .ids = lane->ids, .count = lane->count,
                               .room = more < LW_DRAFTS_MAX ? more : LW_DRAFTS_MAX, .out = &lane->draft };
    core->sources[source].propose(core->sources[source].context, &ask, 1);
    const bool promises = lane->draft.count > lane->open_tokens;
    lane->draft.count = 0;
    return promises;
}

bool lw__drafts_are_due(lw_core *core)
{
    bool are_due = false;
    lw__drafts_clear(core);
    for (uint32_t i = 0; i < core->options.lanes; i++) {
        const lw__lane *lane = &core->lanes[i];
        if (!lw__lane_runs(lane) || !lane->job.request->draft) continue;
        for (uint32_t source = 0; source < LW__SOURCE_HEAD && !are_due; source++)
            are_due = core->sources[source].propose != NULL && source_promises(core, i, source);
        are_due = are_due || (core->sources[LW__SOURCE_HEAD].propose != NULL && head_promises(core, lane));
    }
    return are_due;
}
