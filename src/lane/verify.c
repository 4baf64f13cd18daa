/* Drawing along a window. Each row is drawn with the key of its own position, from its own logits after
 * penalties that see its own ancestors; the walk goes to the first draft that equals the draw and ends where
 * none does. So what is drawn is what plain rounds draw, whatever the drafts were.
 */
#include "lane/core_internal.h"

#include "base/float16.h"

#include <math.h>
#include <string.h>

enum { NO_NODE = -1, NO_ID = -1 };

/* Whether all of logits[0, count) are finite; without a way out in between, so that compilers can use
 * vectors. */
static bool are_finite(const float *logits, uint32_t count)
{
    uint32_t bad = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t exponent = lw_bits_of_float(logits[i]) & 0x7F800000u;
        bad |= exponent == 0x7F800000u;
    }
    return bad == 0;
}

/* Raw logits that are not finite define no draw. */
static lw_status raw_check(const lw__lane *lane, const float *logits, uint32_t vocab, lw_diag *d)
{
    if (are_finite(logits, vocab)) return LW_OK;
    uint32_t id = 0;
    while (isfinite(logits[id])) id++;
    return lw_fail(d, LW_BAD_MODEL,
                   "the logit of token id %u at position %u is %g: the model's weights or its "
                   "arithmetic overflowed",
                   id, lane->count, (double)logits[id]);
}

/* Puts (id, logit) into top in order of logit, then id; ids come ascending, so equals stay behind. */
static void top_insert(lw__drawn *drawn, uint32_t count_max, int32_t id, double logit)
{
    if (drawn->top_count == count_max) {
        if (count_max == 0 || logit <= drawn->top[count_max - 1].value) return;
        drawn->top_count--;
    }
    uint32_t at = drawn->top_count++;
    for (; at > 0 && drawn->top[at - 1].value < logit; at--) drawn->top[at] = drawn->top[at - 1];
    drawn->top[at] = (lw_logprob){ .id = id, .value = logit };
}

/* Log-softmax in double; masses are added in order of id. */
static void logprobs_fill(lw__drawn *drawn, const float *logits, uint32_t vocab, uint32_t count_max)
{
    double most = -INFINITY, mass = 0.0;
    drawn->top_count = 0;
    for (uint32_t id = 0; id < vocab; id++) most = fmax(most, (double)logits[id]);
    for (uint32_t id = 0; id < vocab; id++) {
        mass += exp((double)logits[id] - most);
        top_insert(drawn, count_max, (int32_t)id, (double)logits[id]);
    }
    const double log_mass = most + log(mass);
    drawn->logprob = (double)logits[drawn->id] - log_mass;
    for (uint32_t i = 0; i < drawn->top_count; i++) drawn->top[i].value -= log_mass;
}

/* The device's own answer, where that is the draw and logits are of no other use; drawn->id stays NO_ID where
 * it has none. */
static lw_status draw_there(lw_core *core, lw__lane *lane, uint32_t wanted, lw__drawn *drawn)
{
    drawn->id = NO_ID;
    if (!lw__reads_best(core, lane->job.request)) return LW_OK;
    return core->device.table->read_best(core->device.exec, wanted, &drawn->id, &lane->diag);
}

/* Draws the token after lane->ids[0, count) from the wanted row's logits. */
static lw_status draw(lw_core *core, lw__lane *lane, uint32_t wanted, lw__drawn *drawn)
{
    const lw_request *request = lane->job.request;
    const uint32_t vocab = core->device.plan->vocab;
    const float *logits = NULL;
    lw_status status = draw_there(core, lane, wanted, drawn);
    if (status != LW_OK || drawn->id != NO_ID) return status;
    status = core->device.table->read_logits(core->device.exec, wanted, &logits, &lane->diag);
    if (status == LW_OK) status = raw_check(lane, logits, vocab, &lane->diag);
    if (status != LW_OK) return status;
    const float *raw = logits;
    if (!lw_penalties_are_off(&request->penalties)) {
        memcpy(core->logits, raw, vocab * sizeof *raw);
        lw_penalties_apply(&request->penalties, &lane->seen, core->logits);
        logits = core->logits;
    }
    status = lw_sampler_draw(core->sampler, &request->sampling, logits, vocab, lane->count, &drawn->id,
                             &lane->diag);
    if (status != LW_OK || request->logprobs < 0) return status;
    logprobs_fill(drawn, raw, vocab, (uint32_t)request->logprobs);
    return LW_OK;
}

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

/* The first child of node that equals the draw. */
static int32_t child_drawn(const lw_draft *draft, uint32_t drafts, int32_t node, int32_t id)
{
    for (uint32_t i = 0; i < drafts; i++) {
        if (draft->parents[i] == node && draft->tokens[i] == id) return (int32_t)i;
    }
    return NO_NODE;
}

void lw__share_sample(lw_core *core, const lw__share *share)
{
    lw__lane *lane = &core->lanes[share->lane];
    const bool counts_ids = !lw_penalties_are_off(&lane->job.request->penalties);
    lane->drawn_count = lane->kept = 0;
    lane->placed = share->known;
    lane->drawn_status = LW_OK;
    if (!share->draws) return;
    int32_t node = NO_NODE;
    for (;;) {
        lw__drawn *drawn = &lane->drawn[lane->drawn_count];
        *drawn = (lw__drawn){ 0 };
        lane->drawn_status = draw(core, lane, share->wanted_begin + (uint32_t)(node + 1), drawn);
        if (lane->drawn_status != LW_OK) return;
        lane->ids[lane->count++] = drawn->id;
        lane->drawn_count++;
        if (counts_ids) lw_seen_add(&lane->seen, drawn->id, true);
        if (ends_reply(lane, drawn->id)) return;
        node = child_drawn(&lane->draft, share->drafts, node, drawn->id);
        if (node == NO_NODE) return;
        /* A node stands at the slot of its position when its index is its depth; below one that does not,
         * none does. */
        if ((uint32_t)node == lane->kept) lane->placed++;
        lane->kept++;
    }
}
