/* Drawing along the windows of a round. Each row is drawn with the key of its own position, from its own
 * logits after penalties that see its own ancestors; the walk goes to the first draft that equals the draw
 * and ends where none does. So what is drawn is what plain rounds draw, whatever the drafts were.
 *
 * All walks go on together, a wave of rows at a time: the next row of each, and, for threads that would idle,
 * rows that their windows reach if drafts turn out right. What was drawn for a draft that was wrong is
 * dropped.
 */
#include "lane/core_internal.h"

enum { NO_NODE = -1, NO_ID = -1 };

bool lw__is_end_id(const lw_request *request, int32_t id)
{
    for (uint32_t i = 0; !request->ignore_end && i < request->end_id_count; i++) {
        if (request->end_ids[i] == id) return true;
    }
    return false;
}

static bool ends_reply(const lw__lane *lane, int32_t id)
{
    const lw_request *request = lane->job.request;
    return lane->counts.tokens + lane->drawn_count == request->tokens_max || lw__is_end_id(request, id);
}

/* The first draft below node; NO_NODE. */
static int32_t first_child(const lw_draft *draft, uint32_t drafts, int32_t node)
{
    for (uint32_t i = 0; i < drafts; i++) {
        if (draft->parents[i] == node) return (int32_t)i;
    }
    return NO_NODE;
}

/* The first child of node that equals the draw. */
static int32_t child_drawn(const lw_draft *draft, uint32_t drafts, int32_t node, int32_t id)
{
    for (uint32_t i = 0; i < drafts; i++) {
        if (draft->parents[i] == node && draft->tokens[i] == id) return (int32_t)i;
    }
    return NO_NODE;
}

/* ---- a wave ---- */

/* The device's own answer, where that is the draw and logits are of no other use; else the logits. */
static lw_status row_read(lw_core *core, const lw_request *request, uint32_t wanted, lw__draw *draw)
{
    const lw_device_table *table = core->device.table;
    int32_t id = NO_ID;
    if (lw__reads_best(core, request)) {
        const lw_status status = table->read_best(core->device.exec, wanted, &id, &draw->diag);
        if (status != LW_OK) return status;
    }
    draw->is_known = id != NO_ID;
    draw->drawn->id = id;
    if (draw->is_known) return LW_OK;
    /* The round ahead may have written over the logits, which are not finite: the device says so. */
    if (core->ahead.is_open)
        return lw_fail(&draw->diag, LW_BAD_MODEL,
                       "a logit at position %u is NaN or infinite: the model's weights or its arithmetic "
                       "overflowed",
                       draw->position);
    return table->read_logits(core->device.exec, wanted, &draw->logits, &draw->diag);
}

static void item_add(lw_core *core, const lw__share *share, lw__walk *walk, int32_t node)
{
    lw__lane *lane = &core->lanes[share->lane];
    lw__draw *draw = &core->draws.items[core->draws.count++];
    lw__drawn *drawn = &lane->drawn[lane->drawn_count + walk->drawing];
    *drawn = (lw__drawn){ 0 };
    draw->lane = lane;
    draw->position = lane->count + walk->drawing;
    draw->drawn = drawn;
    draw->next = NULL;
    draw->node = node;
    draw->is_draft = false;
    draw->status = row_read(core, lane->job.request, share->wanted_begin + (uint32_t)(node + 1), draw);
    if (walk->drawing++ == 0) walk->first = draw;
    else walk->last->next = draw;
    walk->last = draw;
}

/* Adds the row that the walk reaches if the last one's first draft is right; false: none, or not so soon. */
static bool item_guess(lw_core *core, const lw__share *share, lw__walk *walk)
{
    const lw__lane *lane = &core->lanes[share->lane];
    const lw_request *request = lane->job.request;
    if (walk->drawing == 0 || !lw__draws_spread(core, request)) return false;
    /* What a row past this one has seen is known when this one is drawn. */
    if (!lw_penalties_are_off(&request->penalties)) return false;
    if (lane->counts.tokens + lane->drawn_count + walk->drawing == request->tokens_max) return false;
    const int32_t node = first_child(&lane->draft, share->drafts, walk->last->node);
    if (node == NO_NODE) return false;
    item_add(core, share, walk, node);
    return true;
}

/* False: every walk has ended. */
static bool wave_make(lw_core *core, const lw__round *round)
{
    lw__draws *draws = &core->draws;
    draws->count = 0;
    for (uint32_t i = 0; i < round->share_count; i++) {
        lw__walk *walk = &draws->walks[i];
        walk->drawing = 0;
        if (walk->goes_on) item_add(core, &round->shares[i], walk, walk->node);
    }
    bool grows = draws->count > 0;
    while (grows && draws->count < draws->drawer_count) {
        grows = false;
        for (uint32_t i = 0; i < round->share_count && draws->count < draws->drawer_count; i++)
            grows = item_guess(core, &round->shares[i], &draws->walks[i]) || grows;
    }
    return draws->count > 0;
}

/* ---- walks ---- */

static void walk_begin(lw__lane *lane, const lw__share *share, lw__walk *walk)
{
    lane->drawn_count = lane->kept = 0;
    lane->placed = share->known;
    lane->drawn_status = LW_OK;
    *walk = (lw__walk){ .node = NO_NODE, .goes_on = share->draws };
}

/* Takes one draw of the walk's next row; the walk goes on to the draft that equals it. */
static void walk_step(lw__lane *lane, const lw__share *share, lw__walk *walk, const lw__draw *draw)
{
    walk->goes_on = false;
    lane->drawn_status = draw->status;
    if (draw->status != LW_OK) {
        lane->diag = draw->diag;
        return;
    }
    const int32_t id = draw->drawn->id;
    lane->ids[lane->count++] = id;
    lane->drawn_count++;
    if (!lw_penalties_are_off(&lane->job.request->penalties)) lw_seen_add(&lane->seen, id, true);
    if (ends_reply(lane, id)) return;
    walk->node = child_drawn(&lane->draft, share->drafts, walk->node, id);
    if (walk->node == NO_NODE) return;
    /* A node stands at the slot of its position when its index is its depth; below one that does not, none
     * does. */
    if ((uint32_t)walk->node == lane->kept) lane->placed++;
    lane->kept++;
    walk->goes_on = true;
}

void lw__round_sample(lw_core *core, const lw__round *round)
{
    for (uint32_t i = 0; i < round->share_count; i++)
        walk_begin(&core->lanes[round->shares[i].lane], &round->shares[i], &core->draws.walks[i]);
    while (wave_make(core, round)) {
        lw__draws_run(core);
        for (uint32_t i = 0; i < round->share_count; i++) {
            const lw__share *share = &round->shares[i];
            lw__walk *walk = &core->draws.walks[i];
            const lw__draw *draw = walk->drawing > 0 ? walk->first : NULL;
            for (; draw != NULL && walk->goes_on && draw->node == walk->node; draw = draw->next)
                walk_step(&core->lanes[share->lane], share, walk, draw);
        }
    }
}
