/* Drawing the tokens of several rows at once. A draw is a function of its row's logits, its position and what
 * its stream has seen, so the threads that make them change nothing; what a draw finds is read when all are
 * made. The threads are those of a pool that idles between submissions; a single row is drawn by the caller.
 */
#include "lane/core_internal.h"

#include "base/float16.h"

#include <fenv.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Work is counted in logits that are looked at. */
enum {
    WORK_LEAST = 1 << 17,     /* for a thread that has to be woken */
    SAMPLED_WORK = 8,         /* passes over a row that is not greedy: filters, noise */
    LOGPROBS_WORK = 16,       /* an exponential for each id */
    PARTS_MAX = 8,            /* each has scratch of a vocabulary's size */
};

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
static lw_status raw_check(uint32_t position, const float *logits, uint32_t vocab, lw_diag *d)
{
    if (are_finite(logits, vocab)) return LW_OK;
    uint32_t id = 0;
    while (isfinite(logits[id])) id++;
    return lw_fail(d, LW_BAD_MODEL,
                   "the logit of token id %u at position %u is %g: the model's weights or its "
                   "arithmetic overflowed",
                   id, position, (double)logits[id]);
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

static bool tells_logprobs(const lw__draw *draw)
{
    return draw->lane->job.request->logprobs >= 0 && !draw->is_draft;
}

static lw_status draw_row(const lw__drawer *drawer, lw__draw *draw, uint32_t vocab)
{
    const lw_request *request = draw->lane->job.request;
    lw_status status = raw_check(draw->position, draw->logits, vocab, &draw->diag);
    if (status != LW_OK) return status;
    const float *logits = draw->logits;
    if (!lw_penalties_are_off(&request->penalties)) {
        memcpy(drawer->logits, logits, vocab * sizeof *logits);
        lw_penalties_apply(&request->penalties, &draw->lane->seen, drawer->logits);
        logits = drawer->logits;
    }
    status = lw_sampler_draw(drawer->sampler, &request->sampling, logits, vocab, draw->position,
                             &draw->drawn->id, &draw->diag);
    if (status != LW_OK || !tells_logprobs(draw)) return status;
    logprobs_fill(draw->drawn, draw->logits, vocab, (uint32_t)request->logprobs);
    return LW_OK;
}

/* Draws part, part + parts, ... of the items. */
static void items_draw(lw_core *core, uint32_t part, uint32_t parts)
{
    lw__draws *draws = &core->draws;
    for (uint32_t i = part; i < draws->count; i += parts) {
        lw__draw *draw = &draws->items[i];
        if (draw->status == LW_OK && !draw->is_known)
            draw->status = draw_row(&draws->drawers[part], draw, core->device.plan->vocab);
    }
}

static void part_draw(void *context, unsigned part, unsigned parts)
{
    lw_core *core = context;
    fenv_t kept; /* a device's pool may flush denormals; a draw is made in the modes of the round */
    const uint32_t drawers = core->draws.drawer_count < parts ? core->draws.drawer_count : parts;
    if (part >= drawers) return;
    fegetenv(&kept);
    fesetenv(FE_DFL_ENV);
    items_draw(core, part, drawers);
    fesetenv(&kept);
}

static uint64_t work_of(const lw_core *core, const lw_request *request, bool tells)
{
    const uint32_t sampled = request->sampling.temperature > 0.0 ? SAMPLED_WORK : 0;
    const uint32_t told = tells ? LOGPROBS_WORK : 0;
    return (uint64_t)core->device.plan->vocab * (1 + sampled + told);
}

bool lw__draws_spread(const lw_core *core, const lw_request *request)
{
    if (lw__reads_best(core, request) || core->draws.drawer_count == 1) return false;
    return work_of(core, request, request->logprobs >= 0) >= core->draws.work_least;
}

void lw__draws_run(lw_core *core)
{
    lw__draws *draws = &core->draws;
    uint64_t work_beside = 0;
    for (uint32_t i = 1; i < draws->count; i++) {
        const lw__draw *draw = &draws->items[i];
        if (!draw->is_known) work_beside += work_of(core, draw->lane->job.request, tells_logprobs(draw));
    }
    if (work_beside > 0 && draws->drawer_count > 1 && work_beside >= draws->work_least)
        lw_pool_run(core->device.threads, part_draw, core);
    else
        items_draw(core, 0, 1);
}

static uint32_t drawers_of(const lw_pool *threads, uint32_t wanted_max)
{
    uint32_t count = threads != NULL ? lw_pool_threads(threads) : 1;
    if (count > PARTS_MAX) count = PARTS_MAX;
    return count < wanted_max ? count : wanted_max;
}

uint64_t lw_core_draw_bytes(const lw_pool *threads, uint32_t wanted_max, uint32_t vocab)
{
    return drawers_of(threads, wanted_max) * (lw_sampler_bytes(vocab) + (uint64_t)vocab * sizeof(float));
}

lw_status lw__draws_init(lw_core *core, lw_diag *d)
{
    lw__draws *draws = &core->draws;
    const lw_core_options *o = &core->options;
    const uint32_t vocab = core->device.plan->vocab;
    const uint32_t drawers = drawers_of(core->device.threads, o->lanes * (o->drafts_max + 1));
    draws->work_least = WORK_LEAST;
    draws->items = calloc((size_t)o->lanes + drawers, sizeof *draws->items);
    draws->drawers = calloc(drawers, sizeof *draws->drawers);
    if (draws->items == NULL || draws->drawers == NULL)
        return lw_fail(d, LW_NO_ROOM, "no memory to draw the tokens of %u lanes", o->lanes);
    for (; draws->drawer_count < drawers; draws->drawer_count++) {
        lw__drawer *drawer = &draws->drawers[draws->drawer_count];
        drawer->logits = calloc(vocab, sizeof *drawer->logits);
        if (drawer->logits == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for a row of %u logits", vocab);
        const lw_status status = lw_sampler_make(vocab, &drawer->sampler, d);
        if (status == LW_OK) continue;
        free(drawer->logits);
        return status;
    }
    return LW_OK;
}

void lw__draws_deinit(lw_core *core)
{
    for (uint32_t i = 0; i < core->draws.drawer_count; i++) {
        lw_sampler_free(core->draws.drawers[i].sampler);
        free(core->draws.drawers[i].logits);
    }
    free(core->draws.drawers);
    free(core->draws.items);
    core->draws = (lw__draws){ 0 };
}
