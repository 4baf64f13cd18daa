/* The log; see log.h. */
#include "serve/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void clear_live(lw_log *log)
{
    if (log->live_is_shown) fputs("\r\033[K", stderr);
    log->live_is_shown = false;
}

/* Takes the object. */
static void write_json(lw_log *log, json_t *object)
{
    clear_live(log);
    char *text = object == NULL ? NULL : json_dumps(object, JSON_COMPACT);
    json_decref(object);
    if (text != NULL) fprintf(stderr, "%s\n", text);
    free(text);
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)(t.tv_nsec / 1000000) / 1e3;
}

void lw_log_line(lw_log *log, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (log->is_json) {
        write_json(log, json_pack("{s:f, s:s, s:s}", "time", now_s(), "event", "note", "text", text));
        return;
    }
    clear_live(log);
    fprintf(stderr, "lanewise: %s\n", text);
}

/* The members that every request's line has; a new object. */
static json_t *request_object(const lw_job *job, int code, const char *outcome, uint64_t taken_ns)
{
    return json_pack("{s:f, s:s, s:s, s:i, s:s, s:f}", "time", now_s(), "event", "request", "id", job->id,
                     "code", code, "outcome", outcome, "seconds", (double)taken_ns / 1e9);
}

static void write_prompt(lw_log *log, const lw_job *job)
{
    const char *text = job->request.chat != NULL ? job->request.chat : job->request.text;
    if (!log->shows_prompts || text == NULL) return;
    if (log->is_json)
        write_json(log, json_pack("{s:s, s:s, s:s}", "event", "prompt", "id", job->id, "text", text));
    else lw_log_line(log, "%s prompt: %s", job->id, text);
}

void lw_log_done(lw_log *log, const lw_job *job, const lw_news_end *end, uint64_t taken_ns)
{
    const lw_reply_counts *c = &end->counts;
    const double seconds = (double)c->decode_ns / 1e9;
    const double rate = seconds > 0 && c->reply_tokens > 1 ? (c->reply_tokens - 1) / seconds : 0;
    const char *finish = end->is_length ? "length" : "stop";
    write_prompt(log, job);
    if (!log->is_json) {
        lw_log_line(log,
                    "%s 200 %s; prompt %u, cached %u, reply %u, drafts %u/%u, sha %s, %.2f s, %.1f tok/s",
                    job->id, finish, c->prompt_tokens, c->cached_tokens, c->reply_tokens, c->drafts_kept,
                    c->drafts_offered, c->token_sha, (double)taken_ns / 1e9, rate);
        return;
    }
    json_t *object = request_object(job, 200, finish, taken_ns);
    json_t *more = json_pack("{s:I, s:I, s:I, s:I, s:I, s:s, s:f}", "prompt_tokens",
                             (json_int_t)c->prompt_tokens, "cached_tokens", (json_int_t)c->cached_tokens,
                             "reply_tokens", (json_int_t)c->reply_tokens, "drafts_offered",
                             (json_int_t)c->drafts_offered, "drafts_kept", (json_int_t)c->drafts_kept,
                             "token_sha", c->token_sha, "tokens_per_second", rate);
    json_object_update(object, more);
    json_decref(more);
    write_json(log, object);
}

void lw_log_failure(lw_log *log, const lw_job *job, const lw_failure *failure, uint64_t taken_ns)
{
    write_prompt(log, job);
    /* A failure's text may quote the request: without leave only its kind is written. */
    const char *text = log->shows_prompts || failure->code >= 500 ? failure->text :
                       failure->name != NULL ? failure->name : failure->param;
    if (!log->is_json) {
        lw_log_line(log, "%s %d; %s", job->id, failure->code, text);
        return;
    }
    json_t *object = request_object(job, failure->code, "failure", taken_ns);
    json_object_set_new(object, "text", json_string(text));
    write_json(log, object);
}

void lw_log_plain(lw_log *log, const lw_job *job, int code, uint64_t taken_ns)
{
    if (log->is_json) write_json(log, request_object(job, code, "done", taken_ns));
    else lw_log_line(log, "%s %d; %.3f s", job->id, code, (double)taken_ns / 1e9);
}

void lw_log_gone(lw_log *log, const lw_job *job, uint64_t taken_ns)
{
    if (log->is_json) write_json(log, request_object(job, 499, "client gone", taken_ns));
    else lw_log_line(log, "%s 499 client gone; %.2f s", job->id, (double)taken_ns / 1e9);
}

void lw_log_live(lw_log *log, const lw_model_counts *counts, uint64_t now_ns)
{
    if (!log->is_terminal || log->is_json) return;
    const double seconds = (double)(now_ns - log->live_ns) / 1e9;
    const double rate = seconds > 0 ? (double)(counts->reply_tokens - log->live_tokens) / seconds : 0;
    const bool is_idle = counts->replies_running == 0 && counts->replies_waiting == 0;
    log->live_ns = now_ns;
    log->live_tokens = counts->reply_tokens;
    if (is_idle) {
        clear_live(log);
        return;
    }
    fprintf(stderr, "\r\033[K%u streams, %u waiting, %.1f tok/s", counts->replies_running,
            counts->replies_waiting, rate);
    log->live_is_shown = true;
}
