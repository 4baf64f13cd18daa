/* The model's draft head as a source of drafts: one submission a round walks the chains of all streams that
 * want some. The forward keeps what the head reads of every kept row, so a chain begins at the pending token
 * and writes at slots past the committed ones, where the forward of the same round overwrites it. How many
 * steps a chain takes comes from the stream's luck and what steps and rows cost.
 *
 * A stream that samples draws its drafts from the head's logits with the keys and penalties of the positions
 * that they are for: the noise that will judge them. What is kept is what the model draws in any case.
 */
#include "lane/core_internal.h"

#include <string.h>

#define STEP_SHARE_ASSUMED 0.125   /* of a round, before a chain was timed */

lw_status lw__head_init(lw_core *core, lw_diag *d)
{
    const lw_core_options *o = &core->options;
    lw__head *head = &core->head;
    const bool is_there = core->device.plan->entry_count > LW_ENTRY_HEAD;
    head->steps_max = o->head_drafts < o->drafts_max ? o->head_drafts : o->drafts_max;
    if (!is_there) head->steps_max = 0;
    if (head->steps_max == 0) return LW_OK;
    return lw_costs_init(&head->costs, o->head_costs, o->head_cost_count, o->lanes, d);
}

void lw__head_deinit(lw_core *core)
{
    lw_costs_deinit(&core->head.costs);
}

/* ---- how many steps ---- */

double lw__head_step_ns(const lw_core *core, uint32_t chains)
{
    if (chains == 0) return 0.0;
    const lw_costs *costs = &core->head.costs;
    if (costs->has_unit) return lw_costs_at(costs, chains);
    return lw_costs_at(&core->costs, chains) * STEP_SHARE_ASSUMED;
}

static const lw_depth *depth_of(const lw_core *core, const lw_draft_ask *ask)
{
    return &core->lanes[ask->lane].depths[LW__SOURCE_HEAD];
}

/* Drafts that an ask may get. Where known tokens have no rows yet, the head has nothing to begin from. */
static uint32_t room_of(const lw_core *core, const lw_draft_ask *ask)
{
    if (core->lanes[ask->lane].committed + 1 != ask->count) return 0;
    return ask->room < core->head.steps_max ? ask->room : core->head.steps_max;
}

/* The ask whose next draft is likeliest, the first of equals; count when none may have one more. */
static uint32_t likeliest(const lw_core *core, const lw_draft_ask *asks, uint32_t count,
                          const uint32_t *taken, const double *chances)
{
    uint32_t best = count;
    for (uint32_t i = 0; i < count; i++) {
        if (taken[i] >= room_of(core, &asks[i])) continue;
        if (best == count || chances[i] > chances[best]) best = i;
    }
    return best;
}

/* Adds the likeliest next draft again and again; the prefix of that order with the most expected tokens a
 * nanosecond, steps and rows together, is what the chains take. Who is due takes one step anyway. */
static void steps_choose(const lw_core *core, const lw_draft_ask *asks, uint32_t count, uint32_t *steps)
{
    const uint32_t rows_max = core->options.rows_max;
    uint32_t taken[LW_CORE_LANES_MAX] = { 0 }, at_level[LW_CHAIN_STEPS_MAX] = { 0 };
    const lw_draft_prices prices = lw__draft_prices(core, LW__SOURCE_HEAD);
    uint32_t rows = prices.rows;
    double chances[LW_CORE_LANES_MAX], expected = prices.streams, head_ns = 0.0;
    for (uint32_t i = 0; i < count; i++) chances[i] = depth_of(core, &asks[i])->chances[0];
    double best = expected / lw_costs_at(&core->costs, rows);
    while (++rows <= rows_max) {
        const uint32_t i = likeliest(core, asks, count, taken, chances);
        if (i == count) break;
        const uint32_t level = taken[i]++;
        head_ns += lw__head_step_ns(core, at_level[level] + 1) - lw__head_step_ns(core, at_level[level]);
        at_level[level]++;
        expected += chances[i];
        chances[i] *= depth_of(core, &asks[i])->chances[level + 1];
        const double rate = expected / (lw_costs_at(&core->costs, rows) + head_ns);
        if (rate <= best) continue;
        best = rate;
        memcpy(steps, taken, count * sizeof *steps);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (lw_depth_is_due(depth_of(core, &asks[i])) && steps[i] == 0 && room_of(core, &asks[i]) > 0)
            steps[i] = 1;
    }
}

/* ---- the chains ---- */

/* First rows, those of longer chains first; their number. */
static uint32_t rows_make(lw_core *core, const lw_draft_ask *asks, uint32_t count, const uint32_t *steps)
{
    lw__head *head = &core->head;
    uint32_t row_count = 0;
    for (uint32_t length = head->steps_max; length > 0; length--) {
        for (uint32_t i = 0; i < count; i++) {
            if (steps[i] != length) continue;
            lw__lane *lane = &core->lanes[asks[i].lane];
            lw__pages_cover(core, lane, lane->committed + length);
            lane->head_steps = length;
            head->step_count += length;
            head->asks[row_count] = &asks[i];
            head->steps[row_count] = length;
            head->rows[row_count++] = (lw_row){ .token = lane->ids[lane->committed],
                                                .lane = asks[i].lane,
                                                .position = lane->committed,
                                                .slot = lane->committed,
                                                .parent = -1,
                                                .wanted = true };
        }
    }
    return row_count;
}

/* What a stream would draw from the head's logits: an item of the wave, for the threads that draw. */
static void item_add(lw_core *core, uint32_t row, const lw_chain_step *step)
{
    const lw_draft_ask *ask = core->head.asks[row];
    lw__lane *lane = &core->lanes[ask->lane];
    lw__draw *draw = &core->draws.items[core->draws.count++];
    *draw = (lw__draw){ .lane = lane, .logits = step->logits + row * step->stride,
                        .position = lane->count + step->index, .node = (int32_t)row, .is_draft = true,
                        .drawn = lane->drawn };
}

/* A step's tokens. Logits that define no draw end a stream's drafts, and its chain goes on with any token. */
static void step_draw(void *context, const lw_chain_step *step, int32_t *tokens)
{
    lw_core *core = context;
    lw__draws *draws = &core->draws;
    draws->count = 0;
    for (uint32_t row = 0; row < step->row_count; row++) {
        tokens[row] = 0;
        if (core->head.asks[row]->out->count == step->index) item_add(core, row, step);
    }
    lw__draws_run(core);
    for (uint32_t i = 0; i < draws->count; i++) {
        const lw__draw *draw = &draws->items[i];
        const lw_draft_ask *ask = core->head.asks[draw->node];
        lw__lane *lane = &core->lanes[ask->lane];
        const int32_t id = draw->drawn->id;
        if (draw->status != LW_OK) continue;
        if (!lw_penalties_are_off(&lane->job.request->penalties)) lw_seen_add(&lane->seen, id, true);
        ask->out->tokens[ask->out->count++] = id;
        tokens[draw->node] = id;
    }
}

/* Takes back what the draws of a chain counted as seen. */
static void draws_forget(lw_core *core, const lw_draft_ask *ask)
{
    lw__lane *lane = &core->lanes[ask->lane];
    if (lw_penalties_are_off(&lane->job.request->penalties)) return;
    for (uint32_t i = ask->out->count; i-- > 0;) lw_seen_remove(&lane->seen, ask->out->tokens[i], true);
}

static lw_status chains_run(lw_core *core, uint32_t row_count, bool draws)
{
    lw__head *head = &core->head;
    lw_batch_lane lanes[LW_CORE_LANES_MAX];
    lw_ticket ticket = 0;
    lw__lanes_fill(core, lanes);
    const lw_chain chain = { .rows = head->rows,
                             .steps = head->steps,
                             .row_count = row_count,
                             .lanes = lanes,
                             .lane_count = core->options.lanes,
                             .draw = draws ? step_draw : NULL,
                             .context = core };
    const lw_status status = core->device.table->submit_chain(core->device.exec, &chain, &ticket, NULL);
    return status == LW_OK ? core->device.table->wait(core->device.exec, ticket, NULL) : status;
}

/* Makes the draft of a row's stream from the tokens that its chain drew; none past one that ends the reply.
 */
static lw_status draft_read(lw_core *core, uint32_t row, bool draws)
{
    const lw_draft_ask *ask = core->head.asks[row];
    const lw_request *request = core->lanes[ask->lane].job.request;
    const uint32_t count = draws ? ask->out->count : core->head.steps[row];
    const int32_t *tokens = NULL;
    const lw_status status = core->device.table->read_chain(core->device.exec, row, &tokens, NULL);
    ask->out->count = 0;
    for (uint32_t i = 0; status == LW_OK && i < count; i++) {
        ask->out->tokens[i] = tokens[i];
        ask->out->parents[i] = (int32_t)i - 1;
        ask->out->count = i + 1;
        if (lw__is_end_id(request, tokens[i])) break;
    }
    return status;
}

/* What the steps took, in the proportions that they were thought to take. */
static void steps_measure(lw_core *core, double ns)
{
    lw__head *head = &core->head;
    uint32_t at_level[LW_CHAIN_STEPS_MAX] = { 0 };
    double thought = 0.0;
    for (uint32_t r = 0; r < head->row_count; r++) {
        for (uint32_t level = 0; level < head->steps[r]; level++) at_level[level]++;
    }
    for (uint32_t level = 0; level < head->steps[0]; level++)
        thought += lw_costs_at(&head->costs, at_level[level]);
    const double part = ns / thought;
    for (uint32_t level = 0; level < head->steps[0]; level++) {
        if (level > 0 && at_level[level] == at_level[level - 1]) continue;
        lw_costs_measure(&head->costs, at_level[level], lw_costs_at(&head->costs, at_level[level]) * part);
    }
}

static void propose(void *context, const lw_draft_ask *asks, uint32_t ask_count)
{
    lw_core *core = context;
    lw__head *head = &core->head;
    uint32_t steps[LW_CORE_LANES_MAX] = { 0 };
    bool draws = false;
    steps_choose(core, asks, ask_count, steps);
    head->row_count = rows_make(core, asks, ask_count, steps);
    if (head->row_count == 0) return;
    for (uint32_t r = 0; r < head->row_count && core->device.table->calls_draw; r++)
        draws = draws || !lw__is_plain_greedy(core->lanes[head->asks[r]->lane].job.request);
    const uint64_t begin = lw__core_now(core);
    lw_status status = chains_run(core, head->row_count, draws);
    for (uint32_t r = 0; r < head->row_count; r++) {
        if (draws) draws_forget(core, head->asks[r]);
        if (status == LW_OK) status = draft_read(core, r, draws);
    }
    /* A failure costs the drafts alone. If the device is lost, the forward of the round will say so. */
    for (uint32_t r = 0; status != LW_OK && r < head->row_count; r++) head->asks[r]->out->count = 0;
    head->ns = (double)(lw__core_now(core) - begin);
    core->counts.head_rounds++;
    core->counts.head_steps += head->step_count;
    if (status == LW_OK) steps_measure(core, head->ns);
}

static void reset(void *context, uint32_t lane)
{
    lw_core *core = context;
    core->lanes[lane].head_steps = 0;
}

/* Luck is kept by the core, and the head learns nothing else. */
static void judge(void *context, uint32_t lane, uint32_t offered, uint32_t kept)
{
    (void)context;
    (void)lane;
    LW_ASSERT(kept <= offered);
}

lw_draft_source lw__head_source(lw_core *core)
{
    return (lw_draft_source){ .context = core, .reset = reset, .propose = propose, .judge = judge };
}
