/* One reply as its reader sees it: events in order, each told once. Tokens wait in an array that has room for
 * the whole reply, so that a slow reader costs no other reply anything.
 */
#include "api/api.h"

#include "base/clock.h"
#include "base/sha256.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Room for the reply; TOO_LONG when the context has less. */
static lw_result tokens_max_judge(const lw_model *model, size_t prompt_count, lw_request_options *options,
                                  lw_error *error)
{
    const uint64_t context = model->facts.context;
    const uint64_t asked = options->tokens_max < 0 ? 1 : (uint64_t)options->tokens_max;
    if (prompt_count > context || asked > context - prompt_count) {
        const uint64_t wanted = asked > UINT64_MAX - prompt_count ? UINT64_MAX : prompt_count + asked;
        lw__api_fail(error, LW_RESULT_TOO_LONG, "",
                     "the prompt has %zu tokens and the reply may have %s%" PRIu64
                     ", but the context has %" PRIu64,
                     prompt_count, options->tokens_max < 0 ? "at least " : "", asked, context);
        return lw__api_counts(error, LW_RESULT_TOO_LONG, prompt_count >= context ? "prompt" : "tokens_max",
                              wanted, context);
    }
    if (options->tokens_max < 0) options->tokens_max = (int64_t)(context - prompt_count);
    return LW_RESULT_OK;
}

static void reply_free(lw_reply *reply)
{
    if (reply == NULL) return;
    free(reply->prompt);
    free(reply->tokens);
    free(reply);
}

static lw_reply *reply_make(lw_model *model, const lw_prompt *prompt, const lw_request_options *options)
{
    lw_reply *reply = calloc(1, sizeof *reply);
    if (reply == NULL) return NULL;
    const size_t count = prompt->ids.count;
    *reply = (lw_reply){
        .model = model,
        .prompt = malloc(count * sizeof *reply->prompt),
        .prompt_count = (uint32_t)count,
        .tokens = calloc((size_t)options->tokens_max + 1, sizeof *reply->tokens),
        .options = *options,
        .held_max = UINT32_MAX,
        .rows = (uint32_t)count,
        .opened_ns = lw_clock_ns(),
    };
    if (reply->prompt == NULL || reply->tokens == NULL) {
        reply_free(reply);
        return NULL;
    }
    memcpy(reply->prompt, prompt->ids.ids, count * sizeof *reply->prompt);
    reply->counts.prompt_tokens = reply->prompt_count;
    reply->counts.seed = options->has_seed ? options->seed : lw_prompt_seed(reply->prompt, count, 0);
    return reply;
}

lw_result lw_reply_open(lw_model *model, const lw_prompt *prompt, const lw_request_options *options,
                        lw_reply **out, lw_error *error)
{
    *out = NULL;
    lw_request_options judged;
    lw_result result = lw__api_request_options(model, options, &judged, error);
    if (result == LW_RESULT_OK) result = tokens_max_judge(model, prompt->ids.count, &judged, error);
    if (result != LW_RESULT_OK) return result;
    lw_reply *reply = reply_make(model, prompt, &judged);
    if (reply == NULL) return lw__api_fail(error, LW_RESULT_NO_ROOM, "", "no memory for a reply");
    lw_diag d;
    const lw_status status = lw__rounds_add(model->rounds, reply, &d);
    if (status != LW_OK) {
        reply_free(reply);
        return status == LW_NO_ROOM ? lw__api_fail(error, LW_RESULT_BUSY, "", "%s", d.text)
                                    : lw__api_status(error, status, "", &d);
    }
    *out = reply;
    return LW_RESULT_OK;
}

void lw__reply_end(lw_reply *reply, lw_end end, lw_result result)
{
    if (reply->state == LW__REPLY_DONE) return;
    reply->state = LW__REPLY_DONE;
    reply->end = end;
    reply->result = result;
    reply->ended_ns = lw_clock_ns();
}

bool lw__reply_is_held(const lw_reply *reply)
{
    return lw_reply_waiting(reply) > reply->held_max;
}

static bool is_end_id(const lw_model *model, int32_t id)
{
    for (size_t i = 0; i < model->end_id_count; i++) {
        if (model->end_ids[i] == id) return true;
    }
    return false;
}

void lw_reply_read(lw_reply *reply, lw_event *event)
{
    *event = (lw_event){ .kind = LW_EVENT_NONE, .rows_done = reply->rows_done, .rows = reply->rows };
    if (reply->rows_told < reply->rows_done) {
        event->kind = LW_EVENT_FILLING;
        reply->rows_told = reply->rows_done;
    } else if (reply->read < reply->drawn) {
        event->kind = LW_EVENT_TOKEN;
        event->id = reply->tokens[reply->read++];
        event->is_end_token = !reply->options.ignore_end && is_end_id(reply->model, event->id);
    } else if (reply->state == LW__REPLY_DONE && !reply->end_told) {
        event->kind = LW_EVENT_END;
        event->end = reply->end;
        event->result = reply->result;
        event->error = reply->end == LW_END_FAILED ? reply->diag.text : "";
        reply->end_told = true;
    }
}

uint32_t lw_reply_waiting(const lw_reply *reply)
{
    return reply->drawn - reply->read;
}

void lw_reply_hold(lw_reply *reply, uint32_t held_max)
{
    reply->held_max = held_max;
}

/* Whatever ended a reply first, tokens that nobody read are no longer part of it. */
static void reply_cut(lw_reply *reply, lw_end end)
{
    if (reply->end_told) return;
    reply->drawn = reply->read;
    if (reply->state == LW__REPLY_DONE) {
        reply->end = end;
        reply->result = end == LW_END_CANCELLED ? LW_RESULT_CANCELLED : LW_RESULT_OK;
        return;
    }
    lw__rounds_remove(reply->model->rounds, reply);
    lw__reply_end(reply, end, end == LW_END_CANCELLED ? LW_RESULT_CANCELLED : LW_RESULT_OK);
}

void lw_reply_stop(lw_reply *reply)
{
    reply_cut(reply, LW_END_STOP);
}

void lw_reply_cancel(lw_reply *reply)
{
    reply_cut(reply, LW_END_CANCELLED);
}

static uint64_t span(uint64_t begin, uint64_t end, uint64_t now)
{
    if (begin == 0) return 0;
    return (end != 0 ? end : now) - begin;
}

void lw_reply_read_counts(const lw_reply *reply, lw_reply_counts *counts)
{
    const uint64_t now = reply->ended_ns != 0 ? reply->ended_ns : lw_clock_ns();
    *counts = reply->counts;
    counts->reply_tokens = reply->drawn;
    counts->queued_ns = span(reply->opened_ns, reply->admitted_ns, now);
    counts->prompt_ns = span(reply->admitted_ns, reply->filled_ns, now);
    counts->decode_ns = span(reply->filled_ns, reply->ended_ns, now);
    lw_token_sha(reply->tokens, reply->drawn, counts->token_sha);
}

void lw_reply_close(lw_reply *reply)
{
    if (reply == NULL) return;
    if (reply->state != LW__REPLY_DONE) lw__rounds_remove(reply->model->rounds, reply);
    reply_free(reply);
}
