/* Who computes next: one lane, replies in the order of opening. */
#include "api/api.h"

#include "base/clock.h"

#include <stdlib.h>

struct lw__rounds {
    lw_model *model;
    lw_stream *stream;
    lw_sampler *sampler;
    lw_reply *first, *last;      /* waiting, in order */
    lw_reply *active;
    uint32_t waiting;
    lw_model_counts counts;
};

lw_status lw__rounds_open(lw_model *model, lw_diag *d)
{
    lw__rounds *rounds = calloc(1, sizeof *rounds);
    if (rounds == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for lanes");
    rounds->model = model;
    model->rounds = rounds;
    const lw_status status = lw_stream_open(model->engine, &rounds->stream, d);
    return status != LW_OK ? status : lw_sampler_make(model->facts.vocab, &rounds->sampler, d);
}

void lw__rounds_close(lw__rounds *rounds)
{
    if (rounds == NULL) return;
    lw_sampler_free(rounds->sampler);
    lw_stream_close(rounds->stream);
    free(rounds);
}

static lw_status penalties_refuse(const lw_request_options *options, lw_diag *d)
{
    const lw_sampling_options *s = &options->sampling;
    const bool penalises =
        s->repetition_penalty != 1.0 || s->presence_penalty != 0.0 || s->frequency_penalty != 0.0;
    if (!penalises && options->bias_count == 0 && options->top_logprobs < 0) return LW_OK;
    return lw_fail(d, LW_UNSUPPORTED, "penalties, logit_bias and logprobs are not served");
}

lw_status lw__rounds_add(lw__rounds *rounds, lw_reply *reply, lw_diag *d)
{
    const uint32_t asked = rounds->model->options.queue, queue = asked != 0 ? asked : LW__API_QUEUE_USUAL;
    if (rounds->waiting == queue) return lw_fail(d, LW_NO_ROOM, "%u requests wait already", queue);
    const lw_status status = penalties_refuse(&reply->options, d);
    if (status != LW_OK) return status;
    if (rounds->last != NULL) rounds->last->next = reply;
    else rounds->first = reply;
    rounds->last = reply;
    rounds->waiting++;
    return LW_OK;
}

void lw__rounds_remove(lw__rounds *rounds, lw_reply *reply)
{
    if (rounds->active == reply) {
        rounds->active = NULL;
        lw_stream_reset(rounds->stream);
        return;
    }
    lw_reply *before = NULL;
    for (lw_reply *at = rounds->first; at != NULL; before = at, at = at->next) {
        if (at != reply) continue;
        if (before != NULL) before->next = at->next;
        else rounds->first = at->next;
        if (rounds->last == at) rounds->last = before;
        rounds->waiting--;
        return;
    }
}

static bool admit(lw__rounds *rounds)
{
    lw_reply *reply = rounds->first;
    if (rounds->active != NULL || reply == NULL) return rounds->active != NULL;
    lw__rounds_remove(rounds, reply);
    reply->next = NULL;
    reply->state = LW__REPLY_FILLING;
    reply->admitted_ns = lw_clock_ns();
    rounds->active = reply;
    rounds->counts.prompt_tokens += reply->prompt_count;
    return true;
}

static lw_status fill(lw__rounds *rounds, lw_reply *reply, lw_diag *d)
{
    const uint32_t left = reply->prompt_count - reply->rows_done, chunk = rounds->model->facts.chunk_rows;
    const uint32_t count = left < chunk ? left : chunk;
    const lw_status status = lw_stream_forward(rounds->stream, reply->prompt + reply->rows_done, count,
                                               count == left ? LW_WANTED_LAST : LW_WANTED_NONE, d);
    if (status != LW_OK) return status;
    lw_stream_commit(rounds->stream, count);
    reply->rows_done += count;
    rounds->counts.rows += count;
    if (count < left) return LW_OK;
    reply->filled_ns = lw_clock_ns();
    reply->state = LW__REPLY_RUNNING;
    if (reply->options.tokens_max == 0) lw__reply_end(reply, LW_END_LENGTH, LW_RESULT_OK);
    return LW_OK;
}

static bool is_end_id(const lw_reply *reply, int32_t id)
{
    const lw_model *model = reply->model;
    for (size_t i = 0; i < model->end_id_count && !reply->options.ignore_end; i++) {
        if (model->end_ids[i] == id) return true;
    }
    return false;
}

static lw_status draw(lw__rounds *rounds, lw_reply *reply, lw_diag *d)
{
    const lw_sampling_options *s = &reply->options.sampling;
    const lw_sampling sampling = { .temperature = s->temperature, .top_k = s->top_k, .top_p = s->top_p,
                                   .min_p = s->min_p, .seed = reply->counts.seed };
    const float *logits = NULL;
    int32_t id = 0;
    lw_status status = lw_stream_logits(rounds->stream, 0, &logits, d);
    if (status == LW_OK)
        status = lw_sampler_draw(rounds->sampler, &sampling, logits, rounds->model->facts.vocab,
                                 lw_stream_committed(rounds->stream), &id, d);
    if (status != LW_OK) return status;
    reply->tokens[reply->drawn++] = id;
    reply->counts.rounds++;
    rounds->counts.reply_tokens++;
    if (is_end_id(reply, id)) lw__reply_end(reply, LW_END_STOP, LW_RESULT_OK);
    else if (reply->drawn == reply->options.tokens_max) lw__reply_end(reply, LW_END_LENGTH, LW_RESULT_OK);
    if (reply->state == LW__REPLY_DONE) return LW_OK;
    status = lw_stream_forward(rounds->stream, &id, 1, LW_WANTED_LAST, d);
    if (status == LW_OK) lw_stream_commit(rounds->stream, 1);
    rounds->counts.rows++;
    return status;
}

lw_result lw__rounds_step(lw__rounds *rounds, bool *worked, lw_error *error)
{
    *worked = false;
    if (!admit(rounds) || lw__reply_is_held(rounds->active)) return LW_RESULT_OK;
    lw_reply *reply = rounds->active;
    *worked = true;
    rounds->counts.rounds++;
    const lw_status status = reply->state == LW__REPLY_FILLING ? fill(rounds, reply, &reply->diag)
                                                               : draw(rounds, reply, &reply->diag);
    if (status != LW_OK)
        lw__reply_end(reply, LW_END_FAILED,
                      status == LW_BAD_INPUT ? LW_RESULT_BROKEN : lw__api_result_of(status));
    if (reply->state == LW__REPLY_DONE) lw__rounds_remove(rounds, reply);
    if (status == LW_DEVICE_LOST) return lw__api_status(error, status, "", &reply->diag);
    return LW_RESULT_OK;
}

void lw__rounds_count(const lw__rounds *rounds, lw_model_counts *counts)
{
    *counts = rounds->counts;
    counts->replies_running = rounds->active != NULL;
    counts->replies_waiting = rounds->waiting;
    counts->lanes = 1;
}
