/* What a round that went well leaves behind; nothing here can fail. Entries are published before pages are
 * given back, since a mark may lie below what the lane still needs.
 */
#include "lane/core_internal.h"

#define INTERRUPTED 2.0 /* a round that took so much longer than thought tells nothing by the rest */

/* The first mark above position that a prompt's rows up to end reach: the request's or the core's own. */
static uint32_t next_mark(const lw_core *core, lw__lane *lane, uint32_t position, uint32_t end)
{
    const lw_request *request = lane->job.request;
    const uint32_t step = core->options.mark_rows;
    uint32_t mark = end + 1;
    if (step != 0 && position / step < end / step) mark = (position / step + 1) * step;
    while (lane->next_mark < request->mark_count && request->marks[lane->next_mark] <= position)
        lane->next_mark++;
    if (lane->next_mark < request->mark_count && request->marks[lane->next_mark] < mark) {
        mark = request->marks[lane->next_mark];
    }
    return mark;
}

static void publish_marks(lw_core *core, lw__lane *lane, uint32_t begin, uint32_t end)
{
    const uint32_t prompt = lane->job.request->prompt_count;
    if (end > prompt) end = prompt;
    for (uint32_t p = next_mark(core, lane, begin, end); p <= end; p = next_mark(core, lane, p, end)) {
        lw_cache_publish(&core->cache, lane->ids, p, &lane->pages, lane->job.id);
    }
}

/* Tells the drawn tokens in order; those after one that ended the reply are dropped. True: it has ended. */
static bool tell_tokens(lw__lane *lane, lw_finish *finish)
{
    const lw_request *request = lane->job.request;
    const uint32_t first = lane->count - lane->drawn_count;
    for (uint32_t i = 0; i < lane->drawn_count; i++) {
        const lw__drawn *drawn = &lane->drawn[i];
        const lw_token_event event = { .id = drawn->id, .position = first + i, .logprob = drawn->logprob,
                                       .top = drawn->top, .top_count = drawn->top_count };
        lane->counts.tokens++;
        const bool goes_on = request->token == NULL || request->token(request->context, &event);
        const bool is_end = lw__is_end_id(request, drawn->id);
        *finish = is_end ? LW_FINISH_END : goes_on ? LW_FINISH_LENGTH : LW_FINISH_STOPPED;
        if (is_end || !goes_on || lane->counts.tokens == request->tokens_max) {
            lane->count = first + i + 1;
            return true;
        }
    }
    return request->tokens_max == 0 && lane->committed == request->prompt_count;
}

static uint32_t drafts_of(const lw__round *round)
{
    uint32_t drafts = 0;
    for (uint32_t i = 0; i < round->running; i++) drafts += round->shares[i].drafts;
    return drafts;
}

/* Plain rounds that a lane's drafts made this one longer: its part of the round's extra rows and of the
 * head's steps, so that what all lanes are charged is what the round lost. round_ns 0: its time says nothing
 * of drafts, and costs must do; where a plain round was never timed, there is nothing to compare with. */
static double extra_of(const lw_core *core, const lw__lane *lane, const lw__share *share, uint64_t round_ns)
{
    const lw__head *head = &core->head;
    const uint32_t rows = core->round.row_count - core->round.prompt_rows;
    const uint32_t drafts = drafts_of(&core->round);
    const double plain = lw_costs_at(&core->costs, rows - drafts);
    const double thought = lw_costs_at(&core->costs, rows), most = INTERRUPTED * thought;
    const double took = round_ns == 0 ? thought : (double)round_ns < most ? (double)round_ns : most;
    const bool compares = share->drafts > 0 && (round_ns == 0 || !core->costs.is_assumed[rows - drafts]);
    const double longer = compares ? (took - plain) * share->drafts / drafts : 0.0;
    const double spent = lane->head_steps > 0 ? head->ns * lane->head_steps / head->step_count : 0.0;
    return (longer + spent) / plain;
}

/* Tells the source and the guard how the drafts went; those that the head made and no row took cost as well.
 */
static void judge_drafts(lw_core *core, lw__lane *lane, const lw__share *share, uint64_t round_ns)
{
    const uint32_t used = share->drafts > 0 ? lane->drafted_by
        : lane->head_steps > 0              ? LW__SOURCE_HEAD
                                            : LW__SOURCES;
    for (uint32_t source = 0; source < LW__SOURCES; source++) {
        if (source != used) lw_depth_plain(&lane->depths[source]);
    }
    if (used == LW__SOURCES) return;
    const double extra = extra_of(core, lane, share, round_ns);
    lw_depth_drafted(&lane->depths[used], share->drafts, lane->kept, extra, core->round.running);
    if (share->drafts == 0) return;
    core->sources[used].judge(core->sources[used].context, share->lane, share->drafts, lane->kept);
    core->counts.head_drafted += used == LW__SOURCE_HEAD ? share->drafts : 0;
    core->counts.head_kept += used == LW__SOURCE_HEAD ? lane->kept : 0;
    lane->counts.drafted += share->drafts;
    lane->counts.kept += lane->kept;
    core->counts.drafted += share->drafts;
    core->counts.kept += lane->kept;
}

/* The prompt's part of a share: its entries, and the move to RUNNING with its last row. */
static void prompt_commit(lw_core *core, lw__lane *lane, uint32_t before)
{
    const lw_request *request = lane->job.request;
    const uint32_t cached = lane->counts.cached_tokens;
    lane->counts.prompt_rows += lane->committed - before;
    publish_marks(core, lane, before, lane->committed);
    if (lane->committed == request->prompt_count) {
        lane->state = LW__LANE_RUNNING;
        lane->filled_ns = lw__core_now(core);
    }
    if (request->filled == NULL) return;
    request->filled(request->context, lane->committed - cached, request->prompt_count - cached);
}

static void share_commit(lw_core *core, const lw__share *share, uint64_t round_ns)
{
    lw__lane *lane = &core->lanes[share->lane];
    const uint32_t before = lane->committed;
    lw_finish finish = LW_FINISH_LENGTH;
    lane->counts.rounds += share->draws;
    lane->committed = before + lane->placed;
    if (lane->state == LW__LANE_FILLING) {
        prompt_commit(core, lane, before);
    } else if (share->draws) {
        judge_drafts(core, lane, share, round_ns);
    }
    const uint32_t told = lane->counts.tokens;
    const bool has_ended = tell_tokens(lane, &finish);
    core->counts.tokens += lane->counts.tokens - told;
    /* The last token has no row yet; after a cut nothing past the cut is kept. */
    if (lane->drawn_count > 0 && lane->committed > lane->count - 1) lane->committed = lane->count - 1;
    /* A row past the reply's end may be one that plain rounds never draw. */
    if (lane->drawn_status != LW_OK && !has_ended) {
        lw__seat_leave(core, lane, lane->drawn_status, finish, lane->diag.text);
        return;
    }
    lw_pages_trim(core->device.pool, &lane->pages, lane->committed, lane->committed + lane->open_rows);
    if (!has_ended) return;
    lw_cache_publish(&core->cache, lane->ids, lane->committed, &lane->pages, lane->job.id);
    lw__seat_leave(core, lane, LW_OK, finish, "");
}

void lw__round_commit(lw_core *core, const lw__round *round, uint64_t round_ns)
{
    const bool is_pure = round->prompt_rows == 0;
    core->counts.rows += round->row_count;
    core->counts.prompt_rows += round->prompt_rows;
    lw_costs_measure(&core->costs, round->row_count, (double)round_ns);
    for (uint32_t i = 0; i < round->share_count; i++) {
        share_commit(core, &round->shares[i], is_pure ? round_ns : 0);
    }
}
