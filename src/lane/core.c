/* Opening a core, and its requests between rounds; see core.h. */
#include "lane/core_internal.h"
#include "lane/sample_row.h"

#include "base/limits.h"

#include <math.h>
#include <stdlib.h>

/* What is thought of a source's drafts before any was tried. */
#define COPY_CHANCE 0.9f
#define HEAD_CHANCE 0.8f

enum { QUEUE_DEFAULT = 256 };

uint64_t lw__core_now(const lw_core *core)
{
    return core->options.clock(core->options.clock_context);
}

/* ---- opening ---- */

static lw_status options_check(const lw_core_options *options, const lw_core_device *device, lw_diag *d)
{
    if (options->lanes == 0 || options->lanes > LW_CORE_LANES_MAX) {
        return lw_fail(d, LW_BAD_INPUT, "%u lanes: from 1 to %d are served", options->lanes,
                       LW_CORE_LANES_MAX);
    }
    if (options->rows_max <= options->lanes) {
        return lw_fail(d, LW_BAD_INPUT,
                       "rounds of %u rows leave no row for a prompt beside %u lanes; --chunk sets them",
                       options->rows_max, options->lanes);
    }
    if (options->drafts_max > LW_DRAFTS_MAX) {
        return lw_fail(d, LW_BAD_INPUT, "windows of %u drafts: at most %d are served", options->drafts_max,
                       LW_DRAFTS_MAX);
    }
    if (options->head_drafts > LW_CHAIN_STEPS_MAX) {
        return lw_fail(d, LW_BAD_INPUT, "chains of %u drafts: the draft head makes at most %d",
                       options->head_drafts, LW_CHAIN_STEPS_MAX);
    }
    if (lw_pages_of(options->context) > device->pool->table_pages) {
        return lw_fail(d, LW_BAD_INPUT, "a context of %u positions is more than the pool's tables hold",
                       options->context);
    }
    return LW_OK;
}

static lw_status lane_init(lw_core *core, lw__lane *lane, lw_diag *d)
{
    const uint32_t context = core->options.context;
    lane->ids = calloc(context, sizeof *lane->ids);
    lane->drawn = calloc(core->options.drafts_max + 1u, sizeof *lane->drawn);
    if (lane->ids == NULL || lane->drawn == NULL) {
        return lw_fail(d, LW_NO_ROOM, "no memory for a lane of %u positions; --context N sets them", context);
    }
    lw_status status = lw_seen_init(&lane->seen, core->device.plan->vocab, context, d);
    if (status == LW_OK) status = lw_page_table_init(&lane->pages, core->device.pool, d);
    return status;
}

static lw_status memory_take(lw_core *core, lw_diag *d)
{
    const lw_core_options *o = &core->options;
    core->lanes = calloc(o->lanes, sizeof *core->lanes);
    core->queue = calloc(o->queue_max, sizeof *core->queue);
    core->rows = calloc(o->rows_max, sizeof *core->rows);
    if (core->lanes == NULL || core->queue == NULL || core->rows == NULL) {
        return lw_fail(d, LW_NO_ROOM, "no memory for %u lanes and %u waiting requests", o->lanes,
                       o->queue_max);
    }
    lw_status status = LW_OK;
    for (uint32_t i = 0; status == LW_OK && i < o->lanes; i++) status = lane_init(core, &core->lanes[i], d);
    if (status == LW_OK) status = lw__draws_init(core, d);
    if (status == LW_OK) status = lw_costs_init(&core->costs, o->costs, o->cost_count, o->rows_max, d);
    if (status == LW_OK) {
        status = lw_cache_init(&core->cache, core->device.pool, core->device.page_bytes, o->cache_bytes,
                               o->cache_entries, d);
    }
    if (status == LW_OK && o->copy_match != 0 && o->drafts_max != 0) {
        status = lw_copies_make(o->lanes, o->context, o->copy_match, &core->copies, d);
        if (status == LW_OK) core->sources[LW__SOURCE_COPIES] = lw_copies_source(core->copies);
    }
    if (o->source != NULL) core->sources[LW__SOURCE_GIVEN] = *o->source;
    if (status == LW_OK) status = lw__head_init(core, d);
    if (core->head.steps_max > 0) core->sources[LW__SOURCE_HEAD] = lw__head_source(core);
    for (uint32_t source = 0; source < LW__SOURCES; source++)
        lw_depth_init(&core->luck[source], source == LW__SOURCE_HEAD ? HEAD_CHANCE : COPY_CHANCE);
    return status;
}

lw_status lw_core_open(const lw_core_device *device, const lw_core_options *options, lw_core **out,
                       lw_diag *d)
{
    *out = NULL;
    LW_ASSERT(options->clock != NULL);
    lw_status status = options_check(options, device, d);
    if (status != LW_OK) return status;
    lw_core *core = calloc(1, sizeof *core);
    if (core == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for the lane core");
    core->device = *device;
    core->options = *options;
    for (uint32_t g = 0; g < device->pool->group_count; g++)
        core->recurs = core->recurs || device->pool->groups[g].is_anchor;
    if (core->options.queue_max == 0) core->options.queue_max = QUEUE_DEFAULT;
    if (core->options.cache_entries == 0) core->options.cache_entries = LW_CACHE_ENTRIES_DEFAULT;
    status = memory_take(core, d);
    if (status != LW_OK) {
        lw_core_close(core);
        return status;
    }
    *out = core;
    return LW_OK;
}

void lw_core_close(lw_core *core)
{
    if (core == NULL) return;
    const uint32_t lane_count = core->lanes != NULL ? core->options.lanes : 0;
    if (lane_count > 0) lw__round_drop(core);
    while (core->queue_count > 0) lw_core_cancel(core, core->queue[core->queue_begin].id);
    for (uint32_t i = 0; i < lane_count; i++) {
        lw__lane *lane = &core->lanes[i];
        if (lane->state != LW__LANE_FREE) lw_core_cancel(core, lane->job.id);
        lw_page_table_deinit(&lane->pages);
        lw_seen_deinit(&lane->seen);
        free(lane->drawn);
        free(lane->ids);
    }
    lw_cache_deinit(&core->cache);
    lw_costs_deinit(&core->costs);
    lw__head_deinit(core);
    lw_copies_free(core->copies);
    lw__draws_deinit(core);
    free(core->rows);
    free(core->queue);
    free(core->lanes);
    free(core);
}

/* ---- requests ---- */

static lw_status ids_check(const lw_request *request, uint32_t vocab, lw_diag *d)
{
    for (uint32_t i = 0; i < request->prompt_count; i++) {
        if (request->prompt[i] >= 0 && (uint32_t)request->prompt[i] < vocab) continue;
        return lw_fail(d, LW_BAD_INPUT,
                       "token id %d at position %u of the prompt is not in the vocabulary of %u",
                       request->prompt[i], i, vocab);
    }
    for (uint32_t i = 0; i < request->mark_count; i++) {
        const bool ascends = i == 0 || request->marks[i] > request->marks[i - 1];
        if (ascends && request->marks[i] <= request->prompt_count) continue;
        return lw_fail(d, LW_BAD_INPUT, "mark %u at position %u does not ascend within the prompt of %u", i,
                       request->marks[i], request->prompt_count);
    }
    return LW_OK;
}

/* Refuses what the pool could not hold even if nothing else were in it. */
static lw_status room_check(const lw_core *core, const lw_request *request, lw_diag *d)
{
    const uint32_t context = core->options.context;
    if (request->prompt_count > context || request->tokens_max > context - request->prompt_count) {
        return lw_fail(d, LW_BAD_INPUT,
                       "the prompt has %u tokens and the reply may have %u, the context is %u; "
                       "a shorter reply or a larger --context would fit",
                       request->prompt_count, request->tokens_max, context);
    }
    for (uint32_t g = 0; g < core->device.pool->group_count; g++) {
        const uint32_t wanted = lw__seat_pages(core, request, g), there = core->device.pool->groups[g].count;
        if (wanted <= there) continue;
        return lw_fail(
            d, LW_NO_ROOM,
            "prompt and reply want %u pages of 64 positions and there are %u; a shorter "
            "reply, fewer --parallel lanes of the same memory or a smaller --prompt-cache would help",
            wanted, there);
    }
    return LW_OK;
}

static lw_status request_check(const lw_core *core, const lw_request *request, lw_diag *d)
{
    const uint32_t vocab = core->device.plan->vocab;
    LW_ASSERT(request->end != NULL);
    if (request->prompt_count == 0) return lw_fail(d, LW_BAD_INPUT, "the prompt has no tokens");
    if (request->logprobs < -1 || request->logprobs > LW_LOGPROBS_MAX) {
        return lw_fail(d, LW_BAD_INPUT, "%d log-probabilities a token: at most %d are told",
                       request->logprobs, LW_LOGPROBS_MAX);
    }
    lw_status status = room_check(core, request, d);
    if (status == LW_OK) status = ids_check(request, vocab, d);
    if (status == LW_OK) status = lw_penalties_check(&request->penalties, vocab, d);
    if (status == LW_OK) status = lw__sampling_check(&request->sampling, d);
    return status;
}

lw_status lw_core_submit(lw_core *core, const lw_request *request, uint64_t *id, lw_diag *d)
{
    LW_ASSERT(!core->is_in_round);
    const lw_status status = request_check(core, request, d);
    if (status != LW_OK) return status;
    if (core->queue_count == core->options.queue_max) {
        return lw_fail(d, LW_NO_ROOM, "%u requests wait already; --queue N sets how many may",
                       core->queue_count);
    }
    const uint32_t at = (core->queue_begin + core->queue_count++) % core->options.queue_max;
    *id = ++core->job_count;
    core->queue[at] = (lw__job){ .request = request, .id = *id, .submitted_ns = lw__core_now(core) };
    core->counts.submitted++;
    return LW_OK;
}

static bool cancel_waiting(lw_core *core, uint64_t id)
{
    const uint32_t room = core->options.queue_max;
    uint32_t at = 0;
    while (at < core->queue_count && core->queue[(core->queue_begin + at) % room].id != id) at++;
    if (at == core->queue_count) return false;
    const lw__job job = core->queue[(core->queue_begin + at) % room];
    for (; at + 1 < core->queue_count; at++) {
        core->queue[(core->queue_begin + at) % room] = core->queue[(core->queue_begin + at + 1) % room];
    }
    core->queue_count--;
    core->counts.cancelled++;
    const lw_end_event event = { .status = LW_CANCELLED,
                                 .finish = LW_FINISH_STOPPED,
                                 .text = "cancelled while waiting",
                                 .counts = { .prompt_tokens = job.request->prompt_count,
                                             .wait_ns = lw__core_now(core) - job.submitted_ns } };
    job.request->end(job.request->context, &event);
    return true;
}

/* NULL: it waits or has ended. */
static lw__lane *lane_of(lw_core *core, uint64_t id)
{
    for (uint32_t i = 0; i < core->options.lanes; i++) {
        lw__lane *lane = &core->lanes[i];
        const bool is_seated = lane->state == LW__LANE_FILLING || lane->state == LW__LANE_RUNNING;
        if (is_seated && lane->job.id == id) return lane;
    }
    return NULL;
}

bool lw_core_cancel(lw_core *core, uint64_t id)
{
    LW_ASSERT(!core->is_in_round);
    if (cancel_waiting(core, id)) return true;
    lw__lane *lane = lane_of(core, id);
    if (lane == NULL) return false;
    lw__seat_leave(core, lane, LW_CANCELLED, LW_FINISH_STOPPED, "cancelled");
    return true;
}

/* Whether the lane still holds every page that a row at position reads: what lies out of reach of its latest
 * rows is given back. */
static bool reaches_back(const lw_core *core, const lw__lane *lane, uint32_t position)
{
    for (uint32_t g = 0; g < core->device.pool->group_count; g++) {
        if (lane->pages.begin[g] > lw_pages_first(core->device.pool->groups[g].reach, position)) return false;
    }
    return true;
}

bool lw_core_finish(lw_core *core, uint64_t id, uint32_t kept)
{
    LW_ASSERT(!core->is_in_round);
    lw__lane *lane = lane_of(core, id);
    if (lane == NULL || lane->state != LW__LANE_RUNNING) return false;
    LW_ASSERT(kept <= lane->counts.tokens);
    const uint32_t end = lane->job.request->prompt_count + kept;
    if (lane->committed > end) lane->committed = end;
    if (reaches_back(core, lane, lane->committed))
        lw_cache_publish(&core->cache, lane->ids, lane->committed, &lane->pages, lane->job.id);
    lw__seat_leave(core, lane, LW_OK, LW_FINISH_STOPPED, "");
    return true;
}

bool lw_core_pause(lw_core *core, uint64_t id, bool is_paused)
{
    LW_ASSERT(!core->is_in_round);
    for (uint32_t i = 0; i < core->queue_count; i++) {
        lw__job *job = &core->queue[(core->queue_begin + i) % core->options.queue_max];
        if (job->id != id) continue;
        job->is_paused = is_paused;
        return true;
    }
    lw__lane *lane = lane_of(core, id);
    if (lane != NULL) lane->job.is_paused = is_paused;
    return lane != NULL;
}

lw_core_counts lw_core_read_counts(const lw_core *core)
{
    lw_core_counts counts = core->counts;
    counts.waiting = core->queue_count;
    counts.filling = counts.running = 0;
    for (uint32_t i = 0; i < core->options.lanes; i++) {
        counts.filling += core->lanes[i].state == LW__LANE_FILLING;
        counts.running += core->lanes[i].state == LW__LANE_RUNNING;
    }
    counts.cache_entries = lw_cache_entries(&core->cache);
    counts.cache_bytes = lw_cache_bytes(&core->cache);
    counts.cache = core->cache.counts;
    return counts;
}
