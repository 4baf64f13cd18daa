/* Which rows of which lanes a round computes. Pure: reads the lanes, their drafts and the costs, writes the
 * round. Running replies come first, one row each at least; then drafts as far as they pay; then prompts
 * within the time that running replies may be held up.
 */
#include "lane/core_internal.h"

enum {
    PROMPT_ROUNDS = 3,        /* plain rounds that prompt rows may take beside running replies */
    PROMPT_ROWS_LEAST = 8,    /* prompts go on even where a single row takes too long */
};

static const lw_depth *depth_of(const lw_core *core, const lw__share *share)
{
    const lw__lane *lane = &core->lanes[share->lane];
    return &lane->depths[lane->drafted_by];
}

/* Rows that a lane brings at most. */
static uint32_t rows_fit(const lw_core *core, const lw__lane *lane, uint32_t room)
{
    const uint32_t rows = lw__lane_rows(lane) < room ? lw__lane_rows(lane) : room;
    /* With those under way no more than a round has: for so many its pages were promised. */
    LW_ASSERT(rows > 0 && lane->open_rows + rows <= core->options.rows_max);
    return rows;
}

/* Known rows of every running lane; each gets one before any gets more. */
static void choose_running(const lw_core *core, lw__round *round)
{
    uint32_t spare = core->options.rows_max - core->options.lanes;
    for (uint32_t i = 0; i < core->options.lanes; i++) {
        const lw__lane *lane = &core->lanes[i];
        if (!lw__lane_runs(lane)) continue;
        const uint32_t known = rows_fit(core, lane, 1 + spare);
        spare -= known - 1;
        round->shares[round->share_count++] = (lw__share){ .lane = i, .known = known,
                                                           .draws = known == lw__lane_rows(lane) };
        round->row_count += known;
    }
    round->running = round->share_count;
}

/* ---- drafts ---- */

/* The share whose next draft is likeliest, the first of equals; share_count when none has one. */
static uint32_t likeliest(const lw_core *core, const lw__round *round, const uint32_t *taken,
                          const double *chances)
{
    uint32_t best = round->share_count;
    for (uint32_t i = 0; i < round->share_count; i++) {
        const lw__share *share = &round->shares[i];
        if (!share->draws || taken[i] >= core->lanes[share->lane].draft.count) continue;
        if (best == round->share_count || chances[i] > chances[best]) best = i;
    }
    return best;
}

/* Takes the likeliest next draft over all lanes again and again; the prefix of that order with the most
 * expected tokens a nanosecond is what the round tries. What the draft head took is spent by now and counts
 * whatever is tried. A tree's nodes go in its source's order, with a chain's chances. */
static void choose_drafts(const lw_core *core, lw__round *round, uint32_t room)
{
    uint32_t taken[LW_CORE_LANES_MAX] = { 0 };
    double chances[LW_CORE_LANES_MAX];
    double expected = round->running;
    const double spent = core->head.ns;
    double best = expected / (lw_costs_at(&core->costs, round->row_count) + spent);
    const uint32_t base = round->row_count;
    for (uint32_t i = 0; i < round->running; i++)
        chances[i] = depth_of(core, &round->shares[i])->chances[0];
    for (uint32_t rows = base + 1; rows <= base + room; rows++) {
        const uint32_t i = likeliest(core, round, taken, chances);
        if (i == round->share_count) return;
        expected += chances[i];
        taken[i]++;
        if (taken[i] < LW_DRAFTS_MAX)
            chances[i] *= depth_of(core, &round->shares[i])->chances[taken[i]];
        const double rate = expected / (lw_costs_at(&core->costs, rows) + spent);
        if (rate <= best) continue;
        best = rate;
        round->row_count = rows;
        for (uint32_t j = 0; j < round->running; j++) round->shares[j].drafts = taken[j];
    }
}

/* Who is due tries one draft whatever luck and costs say: their being wrong is what it is for. */
static void choose_due(const lw_core *core, lw__round *round, uint32_t room)
{
    for (uint32_t i = 0; i < round->running && room > 0; i++) {
        lw__share *share = &round->shares[i];
        const lw__lane *lane = &core->lanes[share->lane];
        const bool is_due = lw_depth_is_due(depth_of(core, share));
        if (!share->draws || !is_due || lane->draft.count == 0 || share->drafts > 0) continue;
        share->drafts = 1;
        round->row_count++;
        room--;
    }
}

/* ---- prompts ---- */

/* Whether a goes before b; both are filling. */
static bool goes_before(const lw__lane *a, const lw__lane *b)
{
    const bool a_is_due = a->passed_over >= LW__PASSED_MAX, b_is_due = b->passed_over >= LW__PASSED_MAX;
    if (a_is_due != b_is_due) return a_is_due;
    if (a_is_due && a->passed_over != b->passed_over) return a->passed_over > b->passed_over;
    if (!a_is_due && lw__lane_rows(a) != lw__lane_rows(b)) return lw__lane_rows(a) < lw__lane_rows(b);
    return a->job.id < b->job.id;
}

/* The filling lane that goes next after those that have a share; the number of lanes when there is none. */
static uint32_t next_prompt(const lw_core *core, const lw__round *round)
{
    uint32_t best = core->options.lanes;
    for (uint32_t i = 0; i < core->options.lanes; i++) {
        if (!lw__lane_fills(&core->lanes[i])) continue;
        bool has_share = false;
        for (uint32_t s = round->running; s < round->share_count; s++)
            has_share |= round->shares[s].lane == i;
        if (has_share) continue;
        if (best == core->options.lanes || goes_before(&core->lanes[i], &core->lanes[best])) best = i;
    }
    return best;
}

/* Prompt rows that this round has time for. What holds a reply up is the forward and the draft head's chain
 * before it, whose time is known by now. */
static uint32_t prompt_room(const lw_core *core, const lw__round *round)
{
    const uint32_t most = core->options.rows_max - round->row_count;
    if (round->running == 0) return most;
    const double spent = core->head.ns;
    const double plain = spent + lw_costs_at(&core->costs, round->row_count);
    const uint64_t round_ns = core->options.round_ns;
    const double until = round_ns != 0 ? (double)round_ns : plain * (1 + PROMPT_ROUNDS);
    uint32_t rows = PROMPT_ROWS_LEAST < most ? PROMPT_ROWS_LEAST : most;
    while (rows < most && spent + lw_costs_at(&core->costs, round->row_count + rows + 1) <= until) rows++;
    return rows;
}

/* Rows of one prompt in a round: where rounds go ahead, two of its chunks have to fit its pages. */
static uint32_t chunk_rows(const lw_core *core)
{
    return core->device.goes_ahead ? core->options.rows_max / 2 : core->options.rows_max;
}

static void choose_prompts(const lw_core *core, lw__round *round)
{
    uint32_t room = prompt_room(core, round);
    const uint32_t chunk = chunk_rows(core);
    while (room > 0) {
        const uint32_t next = next_prompt(core, round);
        if (next == core->options.lanes) return;
        const lw__lane *lane = &core->lanes[next];
        const uint32_t rows = rows_fit(core, lane, chunk < room ? chunk : room);
        const bool draws = rows == lw__lane_rows(lane) && lane->job.request->tokens_max > 0;
        round->shares[round->share_count++] = (lw__share){ .lane = next, .known = rows, .draws = draws };
        round->row_count += rows;
        round->prompt_rows += rows;
        room -= rows;
    }
}

void lw__round_choose(const lw_core *core, lw__round *round)
{
    *round = (lw__round){ 0 };
    choose_running(core, round);
    const bool fills = next_prompt(core, round) != core->options.lanes;
    const uint32_t kept_free = fills ? PROMPT_ROWS_LEAST : 0;
    const uint32_t rows_max = core->options.rows_max;
    if (round->running > 0 && rows_max > round->row_count + kept_free) {
        choose_drafts(core, round, rows_max - round->row_count - kept_free);
    }
    if (rows_max > round->row_count + kept_free) {
        choose_due(core, round, rows_max - round->row_count - kept_free);
    }
    choose_prompts(core, round);
    uint32_t row = 0, wanted = 0;
    for (uint32_t i = 0; i < round->share_count; i++) {
        lw__share *share = &round->shares[i];
        share->row_begin = row;
        share->wanted_begin = wanted;
        row += share->known + share->drafts;
        wanted += share->draws ? 1 + share->drafts : 0;
    }
    LW_ASSERT(row == round->row_count && row <= rows_max);
}
