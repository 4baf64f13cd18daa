/* Replies; see answer.h. */
#include "serve/answer.h"

#include "base/clock.h"
#include "serve/routes.h"
#include "serve/sse.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double ms_of(uint64_t ns)
{
    return (double)ns / 1e6;
}

double lw__logprob(float logprob)
{
    return isfinite(logprob) ? (double)logprob : -9999.0;
}

/* ---- the envelope ---- */

static const char *model_name(const lw_server *server, const lw_job *job)
{
    const char *asked = job->request.model;
    const lw_serve_texts *aliases = &server->options->aliases;
    for (uint32_t i = 0; i < aliases->count && asked != NULL; i++) {
        if (strcmp(asked, aliases->values[i]) == 0) return aliases->values[i];
    }
    return server->served_name;
}

static json_t *envelope(const lw_conn *conn, const char *object, json_t *choice)
{
    const lw_job *job = conn->job;
    json_t *choices = choice == NULL ? json_array() : json_pack("[o]", choice);
    return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", job->id, "object", object, "created",
                     (json_int_t)job->created, "model", model_name(conn->server, job), "choices", choices);
}

static json_t *usage_object(const lw_news_end *end)
{
    const lw_reply_counts *counts = &end->counts;
    return json_pack("{s:I, s:I, s:I, s:{s:I}, s:{s:I}}", "prompt_tokens", (json_int_t)counts->prompt_tokens,
                     "completion_tokens", (json_int_t)counts->reply_tokens, "total_tokens",
                     (json_int_t)counts->prompt_tokens + counts->reply_tokens, "prompt_tokens_details",
                     "cached_tokens", (json_int_t)counts->cached_tokens, "completion_tokens_details",
                     "reasoning_tokens", (json_int_t)end->reasoning_tokens);
}

/* What no other server says: how the reply came about, and the mark by which two replies are known as equal.
 */
static json_t *extras_object(const lw_job *job, const lw_news_end *end)
{
    const lw_reply_counts *counts = &end->counts;
    const double seconds = (double)counts->decode_ns / 1e9;
    json_t *extras = json_pack(
        "{s:s, s:I, s:I, s:{s:I, s:I}, s:I, s:{s:f, s:f, s:f, s:f}}", "token_sha", counts->token_sha, "seed",
        (json_int_t)counts->seed, "cached_tokens", (json_int_t)counts->cached_tokens, "drafts", "offered",
        (json_int_t)counts->drafts_offered, "kept", (json_int_t)counts->drafts_kept, "rounds",
        (json_int_t)counts->rounds, "timings", "queued_ms", ms_of(counts->queued_ns), "prompt_ms",
        ms_of(counts->prompt_ns), "decode_ms", ms_of(counts->decode_ns), "tokens_per_second",
        seconds > 0 && counts->reply_tokens > 1 ? (counts->reply_tokens - 1) / seconds : 0.0);
    if (extras != NULL && end->has_stop) {
        const lw_stop_text *stop = &job->request.stops[end->stop];
        json_object_set_new(extras, "stop", json_stringn(stop->bytes, stop->count));
    }
    return extras;
}

/* ---- streams ---- */

/* An event that found no memory ends the reply: a hole in the text would be worse. */
static void write_event(lw_conn *conn, json_t *event)
{
    lw_buf out;
    lw_buf_init(&out, 0);
    if (lw_sse_data(&out, event) == LW_OK) lw_conn_write_stream(conn, out.bytes, out.count);
    else lw_bridge_starve(&conn->server->bridge, conn->job);
    lw_buf_deinit(&out);
}

static json_t *chunk_of(lw_conn *conn, const lw_choice *choice)
{
    const lw_shape *shape = conn->job->answer->shape;
    json_t *chunk = envelope(conn, shape->chunk_object, shape->chunk(choice));
    if (chunk != NULL && conn->job->request.include_usage)
        json_object_set_new(chunk, "usage", json_null());
    return chunk;
}

static void open_stream(lw_conn *conn)
{
    lw_answer *answer = conn->job->answer;
    if (answer->is_open) return;
    answer->is_open = true;
    lw_conn_begin_stream(conn);
    const lw_choice first = { .is_first = true };
    if (answer->shape->has_first_chunk) write_event(conn, chunk_of(conn, &first));
}

static void write_choice(lw_conn *conn, lw_choice *choice)
{
    lw_answer *answer = conn->job->answer;
    choice->logprobs = answer->logprobs;
    write_event(conn, chunk_of(conn, choice));
    json_decref(answer->logprobs);
    answer->logprobs = NULL;
}

static void end_stream(lw_conn *conn)
{
    lw_buf out;
    lw_buf_init(&out, 0);
    if (lw_sse_done(&out) == LW_OK) lw_conn_write_stream(conn, out.bytes, out.count);
    lw_buf_deinit(&out);
}

/* ---- the end ---- */

/* Lets go of the job. */
static lw_job *detach(lw_conn *conn)
{
    lw_job *job = conn->job;
    lw_answer *answer = job->answer;
    conn->job = NULL;
    job->conn = NULL;
    job->answer = NULL;
    conn->server->job_count--;
    lw_buf_deinit(&answer->content);
    lw_buf_deinit(&answer->reasoning);
    json_decref(answer->logprobs);
    free(answer);
    return job;
}

void lw_answer_gone(lw_conn *conn)
{
    lw_server *server = conn->server;
    lw_metrics_gone(&server->metrics);
    lw_log_gone(&server->log, conn->job, lw_clock_ns() - conn->begun_ns);
    lw_job *job = detach(conn);
    lw_bridge_cancel(&server->bridge, job);
    lw_job_release(job);
}

static void hear_failure(lw_conn *conn, const lw_failure *failure)
{
    const bool is_open = conn->job->answer->is_open;
    if (failure->code >= 500) lw_metrics_failed(&conn->server->metrics);
    if (is_open) {
        write_event(conn, lw_failure_json(failure));
        end_stream(conn);
    }
    lw_log_failure(&conn->server->log, conn->job, failure, lw_clock_ns() - conn->begun_ns);
    lw_job_release(detach(conn));
    if (is_open) lw_conn_end_stream(conn);
    else lw_conn_send_failure(conn, failure);
}

static json_t *whole_reply(lw_conn *conn, const lw_news_end *end, const char *finish)
{
    lw_answer *answer = conn->job->answer;
    const lw_choice choice = { .content = &answer->content, .reasoning = &answer->reasoning,
                               .logprobs = answer->logprobs, .finish = finish };
    json_t *reply = envelope(conn, answer->shape->object, answer->shape->whole(&choice));
    if (reply == NULL) return NULL;
    json_object_set_new(reply, "usage", usage_object(end));
    json_object_set_new(reply, "lanewise", extras_object(conn->job, end));
    return reply;
}

static void stream_end(lw_conn *conn, const lw_news_end *end, const char *finish)
{
    lw_answer *answer = conn->job->answer;
    open_stream(conn);
    const lw_choice last = { .finish = finish, .logprobs = answer->logprobs };
    json_t *chunk = chunk_of(conn, &last);
    if (chunk != NULL) json_object_set_new(chunk, "lanewise", extras_object(conn->job, end));
    write_event(conn, chunk);
    if (conn->job->request.include_usage) {
        json_t *usage = envelope(conn, answer->shape->chunk_object, NULL);
        if (usage != NULL) json_object_set_new(usage, "usage", usage_object(end));
        write_event(conn, usage);
    }
    end_stream(conn);
}

static void hear_end(lw_conn *conn, const lw_news_end *end)
{
    lw_server *server = conn->server;
    const bool is_stream = conn->job->request.stream;
    const uint64_t taken_ns = lw_clock_ns() - conn->begun_ns;
    const char *finish = end->is_length ? "length" : "stop";
    json_t *reply = NULL;
    if (is_stream) stream_end(conn, end, finish);
    else reply = whole_reply(conn, end, finish);
    lw_metrics_done(&server->metrics, end, taken_ns);
    lw_log_done(&server->log, conn->job, end, taken_ns);
    lw_job_release(detach(conn));
    if (is_stream) lw_conn_end_stream(conn);
    else lw_conn_send_json(conn, 200, reply);
}

static void hear_answer(lw_conn *conn, const lw_news *news)
{
    const lw_buf body = { .bytes = (char *)(uintptr_t)news->bytes, .count = news->count };
    lw_log_plain(&conn->server->log, conn->job, 200, lw_clock_ns() - conn->begun_ns);
    lw_job_release(detach(conn));
    lw_conn_send(conn, 200, "", "application/json", &body);
}

/* ---- news ---- */

static void hear_text(lw_conn *conn, const lw_news *news)
{
    lw_answer *answer = conn->job->answer;
    const bool is_reasoning = news->kind == LW_NEWS_REASONING;
    if (!conn->job->request.stream) {
        lw_buf *to = is_reasoning ? &answer->reasoning : &answer->content;
        if (lw_buf_append(to, news->bytes, news->count) != LW_OK)
            lw_bridge_starve(&conn->server->bridge, conn->job);
        return;
    }
    open_stream(conn);
    const lw_buf text = { .bytes = (char *)(uintptr_t)news->bytes, .count = news->count };
    lw_choice choice = { .content = is_reasoning ? NULL : &text, .reasoning = is_reasoning ? &text : NULL };
    write_choice(conn, &choice);
}

static void hear_logprob(lw_conn *conn, const lw_news *news)
{
    lw_news_logprob logprob;
    LW_ASSERT(news->count == sizeof logprob);
    memcpy(&logprob, news->bytes, sizeof logprob);
    lw_answer *answer = conn->job->answer;
    answer->shape->add_logprob(answer, &logprob);
}

/* False after the last news: conn->job is gone. */
static bool hear_one(lw_conn *conn, const lw_news *news)
{
    lw_news_end end;
    lw_failure failure;
    switch (news->kind) {
    case LW_NEWS_QUEUED: conn->job->answer->is_queued = true; return true;
    case LW_NEWS_RUNNING:
        if (conn->job->request.stream) open_stream(conn);
        return true;
    case LW_NEWS_LOGPROB: hear_logprob(conn, news); return true;
    case LW_NEWS_REASONING:
    case LW_NEWS_CONTENT: hear_text(conn, news); return true;
    case LW_NEWS_ANSWER: hear_answer(conn, news); return false;
    case LW_NEWS_END:
        memcpy(&end, news->bytes, sizeof end);
        hear_end(conn, &end);
        return false;
    case LW_NEWS_FAILURE:
        memcpy(&failure, news->bytes, sizeof failure);
        hear_failure(conn, &failure);
        return false;
    }
    return false;
}

void lw_answer_hear(lw_conn *conn)
{
    if (lw_conn_is_paused(conn)) return;
    lw_buf records;
    lw_buf_init(&records, 0);
    lw_bridge_take_news(&conn->server->bridge, conn->job, &records);
    lw_news news;
    size_t at = 0;
    bool goes_on = true;
    while (goes_on && lw_news_next(&records, &at, &news)) goes_on = hear_one(conn, &news);
    lw_buf_deinit(&records);
    if (!goes_on || !atomic_load(&conn->job->is_starved)) return;
    lw_failure failure;
    lw_failure_set(&failure, 503, "no_room", "no memory for the reply's text");
    hear_failure(conn, &failure);
}

void lw_answer_tick(lw_conn *conn, uint64_t now_ns)
{
    const uint64_t silence_ns = (uint64_t)conn->server->options->keep_alive_s * 1000000000u;
    /* Before the engine took it the request is the worker's, and `stream` must not be read. */
    if (!conn->job->answer->is_queued || !conn->job->request.stream || lw_conn_is_paused(conn)) return;
    const uint64_t last_ns = conn->written_ns > conn->begun_ns ? conn->written_ns : conn->begun_ns;
    if (now_ns - last_ns < silence_ns) return;
    open_stream(conn);
    lw_buf out;
    lw_buf_init(&out, 0);
    if (lw_sse_comment(&out, "keep-alive") == LW_OK) lw_conn_write_stream(conn, out.bytes, out.count);
    lw_buf_deinit(&out);
}

bool lw_answer_open(lw_conn *conn, lw_job *job)
{
    static const lw_shape *const shapes[] = { &lw_shape_completion, &lw_shape_chat };
    lw_answer *answer = calloc(1, sizeof *answer);
    if (answer == NULL) return false;
    answer->shape = shapes[job->kind == LW_REQUEST_CHAT];
    answer->model = conn->server->engine.model;
    lw_buf_init(&answer->content, 0);
    lw_buf_init(&answer->reasoning, 0);
    job->answer = answer;
    job->conn = conn;
    conn->job = job;
    conn->server->job_count++;
    return true;
}
