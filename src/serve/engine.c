/* The engine thread; see engine.h. */
#include "serve/engine.h"

#include "base/limits.h"

#include <string.h>

enum { HELD_TOKENS_MAX = 256 }; /* drawn for a reply that nobody reads; then it pauses */

static void close_job(lw_job *job)
{
    lw_reply_close(job->reply);
    job->reply = NULL;
    lw_speech_close(&job->speech);
    lw_job_release(job);
}

static void tell_failure(lw_engine *engine, lw_job *job, const lw_failure *failure)
{
    lw_bridge_tell_one(engine->bridge, job, LW_NEWS_FAILURE, failure, sizeof *failure);
}

static void tell_shutdown(lw_engine *engine, lw_job *job)
{
    lw_failure failure;
    lw_failure_set(&failure, 503, "server_shutting_down", "the server is shutting down");
    tell_failure(engine, job, &failure);
}

static lw_request_options options_of(const lw_engine *engine, const lw_job *job)
{
    const lw_request *request = &job->request;
    size_t count;
    lw_prompt_read_ids(job->prompt, &count);
    const int64_t room = (int64_t)engine->facts.context - (int64_t)count;
    const int64_t asked = lw_request_tokens_max(request);
    return (lw_request_options){
        .struct_bytes = sizeof(lw_request_options),
        .sampling = request->sampling,
        .has_seed = request->has_seed,
        .seed = (uint64_t)request->seed,
        .tokens_max = asked >= 0                  ? asked
                      : room < engine->tokens_max ? room
                                                  : engine->tokens_max,
        .ignore_end = request->ignore_end,
        .drafts_off = !request->drafts,
        .top_logprobs = (int32_t)request->logprobs,
        .biases = request->biases,
        .bias_count = request->bias_count,
    };
}

/* True when the job has an open reply; else its client was told why not. */
static bool open_job(lw_engine *engine, lw_job *job)
{
    const lw_request_options options = options_of(engine, job);
    lw_error error = { .text = "" };
    lw_failure failure;
    const lw_result result = lw_reply_open(engine->model, job->prompt, &options, &job->reply, &error);
    if (result != LW_RESULT_OK) {
        lw_failure_result(&failure, result, &error);
        tell_failure(engine, job, &failure);
        return false;
    }
    lw_reply_hold(job->reply, HELD_TOKENS_MAX);
    const lw_speech_options speech = { .stops = job->request.stops,
                                       .stop_count = job->request.stop_count,
                                       .splits = engine->splits_reasoning && job->kind == LW_REQUEST_CHAT,
                                       .is_inside = lw_prompt_is_thinking(job->prompt) };
    if (lw_speech_open(&job->speech, engine->model, &speech) == LW_RESULT_OK) return true;
    lw_failure_set(&failure, 503, "no_room", "no memory for the reply");
    tell_failure(engine, job, &failure);
    lw_reply_close(job->reply);
    job->reply = NULL;
    lw_speech_close(&job->speech);
    return false;
}

static void admit(lw_engine *engine, lw_job *jobs, lw_drain drain)
{
    lw_job **end = &engine->jobs;
    while (*end != NULL) end = &(*end)->next_running;
    for (lw_job *job = jobs, *next; job != NULL; job = next) {
        next = job->next_queued;
        if (drain != LW_DRAIN_NONE) tell_shutdown(engine, job);
        if (drain != LW_DRAIN_NONE || atomic_load(&job->is_cancelled) || !open_job(engine, job)) {
            lw_job_release(job);
            continue;
        }
        lw_bridge_tell_one(engine->bridge, job, LW_NEWS_QUEUED, "", 0);
        job->next_running = NULL;
        *end = job;
        end = &job->next_running;
    }
}

/* ---- what was drawn ---- */

static lw_status put_spoken(lw_engine *engine)
{
    const lw_buf *reasoning = &engine->spoken.reasoning, *content = &engine->spoken.content;
    lw_status status = LW_OK;
    if (reasoning->count > 0)
        status = lw_news_put(&engine->records, LW_NEWS_REASONING, reasoning->bytes, reasoning->count);
    if (content->count > 0 && status == LW_OK)
        status = lw_news_put(&engine->records, LW_NEWS_CONTENT, content->bytes, content->count);
    lw_buf_clear(&engine->spoken.reasoning);
    lw_buf_clear(&engine->spoken.content);
    return status;
}

static lw_status put_logprob(lw_engine *engine, const lw_event *event)
{
    lw_news_logprob news = { .id = event->id, .logprob = event->logprob };
    news.top_count = event->top_count < 20 ? event->top_count : 20;
    if (news.top_count > 0) memcpy(news.top, event->top, news.top_count * sizeof *news.top);
    return lw_news_put(&engine->records, LW_NEWS_LOGPROB, &news, sizeof news);
}

static lw_status put_token(lw_engine *engine, lw_job *job, const lw_event *event)
{
    if (event->is_end_token) return LW_OK;
    if (job->request.logprobs >= 0) {
        const lw_status status = put_logprob(engine, event);
        if (status != LW_OK) return status;
    }
    if (lw_speech_token(&job->speech, event->id, &engine->spoken) != LW_RESULT_OK) return LW_NO_ROOM;
    if (job->speech.stops.is_stopped) lw_reply_stop(job->reply, job->speech.tokens_free);
    return put_spoken(engine);
}

static lw_status put_end(lw_engine *engine, lw_job *job, const lw_event *event)
{
    lw_status status = lw_speech_finish(&job->speech, &engine->spoken) == LW_RESULT_OK ? LW_OK : LW_NO_ROOM;
    if (status == LW_OK) status = put_spoken(engine);
    if (status != LW_OK) return status;
    if (event->end == LW_END_FAILED || event->end == LW_END_CANCELLED) {
        lw_error error = { .text = "the reply was cancelled" };
        const bool is_failed = event->end == LW_END_FAILED;
        if (is_failed) strncpy(error.text, event->error != NULL ? event->error : "", sizeof error.text - 1);
        lw_failure failure;
        lw_failure_result(&failure, is_failed ? event->result : LW_RESULT_CANCELLED, &error);
        return lw_news_put(&engine->records, LW_NEWS_FAILURE, &failure, sizeof failure);
    }
    lw_news_end end = { .is_length = event->end == LW_END_LENGTH && !job->speech.stops.is_stopped,
                        .has_stop = job->speech.stops.is_stopped,
                        .stop = job->speech.stops.which,
                        .reasoning_tokens = job->speech.reasoning_tokens };
    lw_reply_read_counts(job->reply, &end.counts);
    return lw_news_put(&engine->records, LW_NEWS_END, &end, sizeof end);
}

/* Reads one event; false when there is none. */
static bool read_event(lw_engine *engine, lw_job *job, bool *is_over, lw_status *status)
{
    lw_event event;
    lw_reply_read(job->reply, &event);
    if (event.kind == LW_EVENT_NONE) return false;
    *status = LW_OK;
    if (!job->is_running && event.kind != LW_EVENT_END)
        *status = lw_news_put(&engine->records, LW_NEWS_RUNNING, "", 0);
    job->is_running = true;
    *is_over = event.kind == LW_EVENT_END;
    if (*status == LW_OK && event.kind == LW_EVENT_TOKEN) *status = put_token(engine, job, &event);
    if (*status == LW_OK && event.kind == LW_EVENT_END) *status = put_end(engine, job, &event);
    return true;
}

/* Passes on what the reply has; true when it is over. *read_any: something was read. */
static bool pump(lw_engine *engine, lw_job *job, bool *read_any)
{
    bool is_over = false;
    lw_status status = LW_OK;
    if (lw_bridge_is_full(engine->bridge, job)) return false;
    lw_buf_clear(&engine->records);
    while (!is_over && status == LW_OK && engine->records.count < LW_LIMIT_NEWS_BYTES &&
           read_event(engine, job, &is_over, &status))
        *read_any = true;
    if (engine->records.count > 0) lw_bridge_tell(engine->bridge, job, &engine->records);
    if (status == LW_OK) return is_over;
    lw_failure failure;
    lw_failure_set(&failure, 503, "no_room", "no memory for the reply's text");
    tell_failure(engine, job, &failure);
    return true;
}

/* One pass over the open replies. */
static bool pump_all(lw_engine *engine, lw_drain drain)
{
    bool read_any = false;
    for (lw_job **at = &engine->jobs; *at != NULL;) {
        lw_job *job = *at;
        bool is_over = atomic_load(&job->is_cancelled) || pump(engine, job, &read_any);
        const bool is_ended = drain >= LW_DRAIN_RUNNING || (drain == LW_DRAIN_QUEUED && !job->is_running);
        if (!is_over && is_ended) {
            tell_shutdown(engine, job);
            is_over = true;
        }
        if (!is_over) {
            at = &job->next_running;
            continue;
        }
        *at = job->next_running;
        close_job(job);
    }
    return read_any;
}

static void fail_all(lw_engine *engine, lw_result result, const lw_error *error)
{
    lw_failure failure;
    lw_failure_result(&failure, result, error);
    while (engine->jobs != NULL) {
        lw_job *job = engine->jobs;
        engine->jobs = job->next_running;
        tell_failure(engine, job, &failure);
        close_job(job);
    }
}

/* ---- the thread ---- */

static void serve(lw_engine *engine)
{
    lw_engine_state state = LW_ENGINE_READY;
    bool worked = true;
    for (lw_drain drain = LW_DRAIN_NONE; drain != LW_DRAIN_LEAVE;) {
        lw_job *jobs = lw_bridge_pop_engine(engine->bridge, !worked, &drain);
        admit(engine, jobs, drain);
        /* Before the round as well: a reply whose client is gone gives its lane to the next one at once. */
        bool read_any = pump_all(engine, drain);
        lw_error error = { .text = "" };
        lw_bridge_round_begin(engine->bridge);
        const lw_result result = lw_model_step(engine->model, &worked, &error);
        read_any = pump_all(engine, drain) || read_any;
        if (result != LW_RESULT_OK) fail_all(engine, result, &error);
        if (result == LW_RESULT_DEVICE_LOST) {
            state = LW_ENGINE_FAILED;
            engine->bridge->load_error = error;
        }
        worked = (worked && result == LW_RESULT_OK) || read_any;
        lw_model_counts counts;
        lw_model_read_counts(engine->model, &counts);
        lw_bridge_publish(engine->bridge, state, &counts);
    }
}

static void *run(void *context)
{
    lw_engine *engine = context;
    lw_model_counts counts = { .lanes = 0 };
    lw_bridge *bridge = engine->bridge;
    bridge->load_result =
        lw_model_open(engine->model_dir, engine->options, &engine->model, &bridge->load_error);
    if (bridge->load_result != LW_RESULT_OK) {
        lw_bridge_publish(bridge, LW_ENGINE_FAILED, &counts);
        return NULL;
    }
    lw_model_read_facts(engine->model, &engine->facts);
    lw_model_read_counts(engine->model, &counts);
    lw_bridge_publish(bridge, LW_ENGINE_READY, &counts);
    serve(engine);
    lw_model_read_counts(engine->model, &counts);
    lw_model_close(engine->model);
    lw_bridge_publish(bridge, LW_ENGINE_ENDED, &counts);
    return NULL;
}

lw_status lw_engine_start(lw_engine *engine, lw_diag *d)
{
    lw_buf_init(&engine->records, 0);
    lw_buf_init(&engine->spoken.reasoning, 0);
    lw_buf_init(&engine->spoken.content, 0);
    const int error = pthread_create(&engine->thread, NULL, run, engine);
    if (error != 0) return lw_fail(d, LW_IO, "the engine thread could not start: %s", strerror(error));
    return LW_OK;
}

void lw_engine_join(lw_engine *engine)
{
    pthread_join(engine->thread, NULL);
    lw_buf_deinit(&engine->records);
    lw_buf_deinit(&engine->spoken.reasoning);
    lw_buf_deinit(&engine->spoken.content);
}
