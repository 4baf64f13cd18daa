/* Replies and the lane core: a reply is one request of the core, whose callbacks fill the reply's array. */
#include "api/api_lanes.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct lw__rounds {
    lw__lanes lanes;
    bool is_closing;
    lw_status lost;              /* LW_DEVICE_LOST once a reply ended by it */
    lw_diag diag;                /* of lost */
    uint64_t reply_tokens;
    lw__seat *behind;            /* whose readers fell behind in the round at work */
};

/* What the core borrows of a reply. */
struct lw__seat {
    lw_request request;
    lw_bias *biases;             /* [bias_count] */
    uint64_t id;
    bool is_paused;              /* what the core was told last */
    lw_reply *reply;
    lw__seat *behind_next;
    bool is_behind;
    lw__rounds *rounds;
};

lw_status lw__rounds_open(lw_model *model, lw_diag *d)
{
    lw__rounds *rounds = calloc(1, sizeof *rounds);
    if (rounds == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for lanes");
    model->rounds = rounds;
    const lw_status status = lw__lanes_open(&rounds->lanes, model, d);
    if (status != LW_OK) return status;
    const lw_engine *engine = rounds->lanes.engine;
    model->plan = lw_engine_plan(engine);
    model->facts.context = lw_engine_context(engine);
    model->facts.lanes = lw_engine_lanes(engine);
    model->facts.chunk_rows = lw_engine_chunk_rows(engine);
    model->facts.device_wait_s = lw_engine_wait_s(engine);
    model->facts.cache_bytes = rounds->lanes.cache_bytes;
    lw_engine_describe(engine, model->device, sizeof model->device);
    return LW_OK;
}

void lw__rounds_close(lw__rounds *rounds)
{
    if (rounds == NULL) return;
    rounds->is_closing = true;
    lw__lanes_close(&rounds->lanes);
    free(rounds);
}

/* ---- what the core tells ---- */

static bool on_token(void *context, const lw_token_event *event)
{
    lw_reply *reply = context;
    const uint32_t at = reply->drawn++;
    LW_ASSERT(at < (uint64_t)reply->options.tokens_max);
    reply->tokens[at] = event->id;
    reply->seat->rounds->reply_tokens++;
    if (reply->logprobs != NULL) {
        const uint32_t room = (uint32_t)reply->options.top_logprobs;
        reply->logprobs[at] = (float)event->logprob;
        reply->top_counts[at] = (uint8_t)(event->top_count < room ? event->top_count : room);
        for (uint32_t i = 0; i < reply->top_counts[at]; i++) {
            reply->tops[(size_t)at * room + i] =
                (lw_token_logprob){ .id = event->top[i].id, .logprob = (float)event->top[i].value };
        }
    }
    lw__seat *seat = reply->seat;
    if (lw__reply_is_held(reply) && !seat->is_paused && !seat->is_behind) {
        seat->is_behind = true;
        seat->behind_next = seat->rounds->behind;
        seat->rounds->behind = seat;
    }
    return true;
}

static void on_filled(void *context, uint32_t rows_done, uint32_t rows)
{
    lw_reply *reply = context;
    reply->rows_done = rows_done;
    reply->rows = rows;
    reply->counts.cached_tokens = reply->prompt_count - rows;
}

static void on_end(void *context, const lw_end_event *event)
{
    lw_reply *reply = context;
    const lw_request_counts *counts = &event->counts;
    reply->counts.cached_tokens = counts->cached_tokens;
    reply->counts.drafts_offered = counts->drafted;
    reply->counts.drafts_kept = counts->kept;
    reply->counts.rounds = counts->rounds;
    reply->counts.queued_ns = counts->wait_ns;
    reply->counts.prompt_ns = counts->prompt_ns;
    reply->counts.decode_ns = counts->decode_ns;
    reply->has_ended_by_id = event->status == LW_OK && event->finish == LW_FINISH_END;
    lw_end end = event->finish == LW_FINISH_LENGTH ? LW_END_LENGTH : LW_END_STOP;
    if (event->status == LW_CANCELLED) end = LW_END_CANCELLED;
    else if (event->status != LW_OK) end = LW_END_FAILED;
    /* At this point both mean logits that define no draw: not finite, or all forbidden. */
    const bool is_broken = event->status == LW_BAD_MODEL || event->status == LW_BAD_INPUT;
    const lw_result result = is_broken ? LW_RESULT_BROKEN : lw__api_result_of(event->status);
    snprintf(reply->diag.text, sizeof reply->diag.text, "%s", event->text);
    if (event->status == LW_DEVICE_LOST) {
        reply->seat->rounds->lost = event->status;
        reply->seat->rounds->diag = reply->diag;
    }
    lw__reply_end(reply, end, result);
    reply->end_told = reply->seat->rounds->is_closing;
}

/* ---- what the core is told ---- */

static void penalties_fill(const lw_request_options *options, lw_bias *biases, lw_penalties *out)
{
    for (size_t i = 0; i < options->bias_count; i++)
        biases[i] = (lw_bias){ .id = options->biases[i].id, .value = options->biases[i].bias };
    *out = (lw_penalties){
        .repetition = (float)options->sampling.repetition_penalty,
        .presence = (float)options->sampling.presence_penalty,
        .frequency = (float)options->sampling.frequency_penalty,
        .biases = biases,
        .bias_count = (uint32_t)options->bias_count,
    };
}

static void request_fill(const lw_reply *reply, lw__seat *seat)
{
    const lw_request_options *options = &reply->options;
    const lw_sampling_options *s = &options->sampling;
    seat->request = (lw_request){
        .prompt = reply->prompt,
        .prompt_count = reply->prompt_count,
        .tokens_max = (uint32_t)options->tokens_max,
        .sampling = { .temperature = s->temperature,
                      .top_k = s->top_k,
                      .top_p = s->top_p,
                      .min_p = s->min_p,
                      .seed = reply->counts.seed },
        .end_ids = reply->model->end_ids,
        .end_id_count = (uint32_t)reply->model->end_id_count,
        .ignore_end = options->ignore_end,
        .draft = !options->drafts_off,
        .logprobs = options->top_logprobs,
        .marks = reply->marks,
        .mark_count = reply->mark_count,
        .token = on_token,
        .filled = on_filled,
        .end = on_end,
        .context = (void *)(uintptr_t)reply,
    };
    penalties_fill(options, seat->biases, &seat->request.penalties);
}

void lw__seat_free(lw__seat *seat)
{
    if (seat == NULL) return;
    free(seat->biases);
    free(seat);
}

lw_result lw__rounds_add(lw__rounds *rounds, lw_reply *reply, lw_error *error)
{
    const uint32_t asked = reply->model->options.queue, queue = asked != 0 ? asked : LW__API_QUEUE_USUAL;
    if (lw_core_read_counts(rounds->lanes.core).waiting >= queue)
        return lw__api_fail(error, LW_RESULT_BUSY, "", "%u requests wait already; ask again later", queue);
    lw__seat *seat = calloc(1, sizeof *seat);
    if (seat == NULL) return lw__api_fail(error, LW_RESULT_NO_ROOM, "", "no memory for a request");
    reply->seat = seat;
    seat->rounds = rounds;
    seat->reply = reply;
    seat->biases = calloc(reply->options.bias_count + 1, sizeof *seat->biases);
    if (seat->biases == NULL) return lw__api_fail(error, LW_RESULT_NO_ROOM, "", "no memory for a request");
    request_fill(reply, seat);
    lw_diag d;
    return lw__api_status(error, lw_core_submit(rounds->lanes.core, &seat->request, &seat->id, &d), "", &d);
}

void lw__rounds_remove(lw_reply *reply)
{
    LW_ASSERT(reply->state != LW__REPLY_DONE);
    lw_core_cancel(reply->seat->rounds->lanes.core, reply->seat->id);
    LW_ASSERT(reply->state == LW__REPLY_DONE);
}

void lw__rounds_finish(lw_reply *reply, uint32_t kept)
{
    LW_ASSERT(reply->state != LW__REPLY_DONE);
    /* Before its first token there is nothing to keep but what its prompt's marks left. */
    if (!lw_core_finish(reply->seat->rounds->lanes.core, reply->seat->id, kept)) lw__rounds_remove(reply);
    LW_ASSERT(reply->state == LW__REPLY_DONE);
}

void lw__rounds_hold(lw_reply *reply)
{
    lw__seat *seat = reply->seat;
    const bool is_held = lw__reply_is_held(reply);
    if (is_held == seat->is_paused) return;
    seat->is_paused = is_held;
    lw_core_pause(seat->rounds->lanes.core, seat->id, is_held);
}

/* The core takes no calls inside a round, so who fell behind is told afterwards. */
static void behind_pause(lw__rounds *rounds)
{
    while (rounds->behind != NULL) {
        lw__seat *seat = rounds->behind;
        rounds->behind = seat->behind_next;
        seat->is_behind = false;
        if (seat->reply->state != LW__REPLY_DONE) lw__rounds_hold(seat->reply);
    }
}

lw_result lw__rounds_step(lw__rounds *rounds, bool *worked, lw_error *error)
{
    *worked = rounds->lost == LW_OK && lw_core_round(rounds->lanes.core);
    behind_pause(rounds);
    return lw__api_status(error, rounds->lost, "", &rounds->diag);
}

void lw__rounds_count(const lw__rounds *rounds, lw_model_counts *counts)
{
    const lw_core_counts core = lw_core_read_counts(rounds->lanes.core);
    *counts = (lw_model_counts){
        .replies_running = core.filling + core.running,
        .replies_waiting = core.waiting,
        .lanes = lw_engine_lanes(rounds->lanes.engine),
        .prompt_tokens = core.prompt_tokens,
        .cached_tokens = core.cached_tokens,
        .reply_tokens = rounds->reply_tokens,
        .rounds = core.rounds,
        .rounds_ahead = core.rounds_ahead,
        .rows = core.rows,
        .drafts_offered = core.drafted,
        .drafts_kept = core.kept,
        .mtp_drafts_offered = core.head_drafted,
        .mtp_drafts_kept = core.head_kept,
        .cache_bytes = core.cache_bytes,
        .cache_entries = core.cache_entries,
        .cache_hits = core.cache.hits,
        .cache_misses = core.cache.misses,
        .cache_evicted = core.cache.evicted,
    };
    const lw_page_pool *pool = rounds->lanes.device.pool;
    for (uint32_t g = 0; g < pool->group_count; g++) {
        const lw_page_group *group = &pool->groups[g];
        counts->pages += group->count;
        counts->pages_used += group->count - group->free_count;
    }
}
