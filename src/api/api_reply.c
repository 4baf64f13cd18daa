/* One reply as its reader sees it: events in order, each told once. Tokens wait in an array that has room for
 * the whole reply, so that a slow reader costs no other reply anything.
 */
#include "api/api.h"

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
    lw__seat_free(reply->seat);
    free(reply->prompt);
    free(reply->tokens);
    free(reply->logprobs);
    free(reply->top_counts);
    free(reply->tops);
    free(reply);
}

static bool logprobs_take(lw_reply *reply)
{
    const size_t tokens = (size_t)reply->options.tokens_max + 1;
    if (reply->options.top_logprobs < 0) return true;
    reply->logprobs = calloc(tokens, sizeof *reply->logprobs);
    reply->top_counts = calloc(tokens, sizeof *reply->top_counts);
    reply->tops = calloc(tokens * ((size_t)reply->options.top_logprobs + 1), sizeof *reply->tops);
    return reply->logprobs != NULL && reply->top_counts != NULL && reply->tops != NULL;
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
        .mark_count = prompt->mark_count,
        .tokens = calloc((size_t)options->tokens_max + 1, sizeof *reply->tokens),
        .options = *options,
        .held_max = UINT32_MAX,
        .rows = (uint32_t)count,
    };
    if (reply->prompt == NULL || reply->tokens == NULL || !logprobs_take(reply)) {
        reply_free(reply);
        return NULL;
    }
    memcpy(reply->prompt, prompt->ids.ids, count * sizeof *reply->prompt);
    memcpy(reply->marks, prompt->marks, sizeof reply->marks);
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
    result = lw__rounds_add(model->rounds, reply, error);
    if (result != LW_RESULT_OK) {
        reply_free(reply);
        return result;
    }
    *out = reply;
    return LW_RESULT_OK;
}

void lw__reply_end(lw_reply *reply, lw_end end, lw_result result)
{
    LW_ASSERT(reply->state != LW__REPLY_DONE);
    reply->state = LW__REPLY_DONE;
    if (reply->is_cut) return;
    reply->end = end;
    reply->result = result;
}

bool lw__reply_is_held(const lw_reply *reply)
{
    return lw_reply_waiting(reply) > reply->held_max;
}

static void token_tell(lw_reply *reply, lw_event *event)
{
    const uint32_t at = reply->read++;
    event->kind = LW_EVENT_TOKEN;
    event->id = reply->tokens[at];
    event->is_end_token = reply->has_ended_by_id && reply->read == reply->drawn;
    if (reply->logprobs != NULL) {
        event->logprob = reply->logprobs[at];
        event->top = reply->tops + (size_t)at * (size_t)reply->options.top_logprobs;
        event->top_count = reply->top_counts[at];
    }
    if (reply->state != LW__REPLY_DONE) lw__rounds_hold(reply);
}

void lw_reply_read(lw_reply *reply, lw_event *event)
{
    *event = (lw_event){ .kind = LW_EVENT_NONE, .rows_done = reply->rows_done, .rows = reply->rows };
    if (reply->rows_told < reply->rows_done) {
        event->kind = LW_EVENT_FILLING;
        reply->rows_told = reply->rows_done;
    } else if (reply->read < reply->drawn) {
        token_tell(reply, event);
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
    if (reply->state != LW__REPLY_DONE) lw__rounds_hold(reply);
}

/* Whatever ends a reply first, tokens that nobody read are no longer part of it. */
static void reply_cut(lw_reply *reply, lw_end end)
{
    reply->drawn = reply->read;
    reply->is_cut = true;
    reply->end = end;
    reply->result = end == LW_END_CANCELLED ? LW_RESULT_CANCELLED : LW_RESULT_OK;
}

void lw_reply_stop(lw_reply *reply, uint32_t kept)
{
    if (reply->end_told) return;
    const uint32_t most = reply->read > 0 ? reply->read - 1 : 0;
    reply_cut(reply, LW_END_STOP);
    if (reply->state != LW__REPLY_DONE) lw__rounds_finish(reply, kept < most ? kept : most);
}

void lw_reply_cancel(lw_reply *reply)
{
    if (reply->end_told) return;
    reply_cut(reply, LW_END_CANCELLED);
    if (reply->state != LW__REPLY_DONE) lw__rounds_remove(reply);
}

void lw_reply_read_counts(const lw_reply *reply, lw_reply_counts *counts)
{
    *counts = reply->counts;
    counts->reply_tokens = reply->drawn;
    lw_token_sha(reply->tokens, reply->drawn, counts->token_sha);
}

void lw_reply_close(lw_reply *reply)
{
    if (reply == NULL) return;
    if (reply->state != LW__REPLY_DONE) lw__rounds_remove(reply);
    reply_free(reply);
}
