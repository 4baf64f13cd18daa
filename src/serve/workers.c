/* From a body to a prompt; see workers.h. */
#include "serve/workers.h"

#include "base/json.h"

#include <string.h>

static bool make_prompt(const lw_workers *workers, lw_job *job, lw_failure *failure)
{
    const lw_request *request = &job->request;
    lw_error error = { .text = "" };
    lw_result result;
    const char *field = request->chat != NULL ? "messages" : "prompt";
    if (request->chat != NULL) {
        result = lw_prompt_chat(workers->model, request->chat, request->chat_count, &job->prompt, &error);
    } else if (request->text != NULL) {
        /* Who writes a raw prompt is the author of its template: special tokens may be spelled in it. */
        const unsigned flags = LW_PROMPT_SPECIALS | (request->add_specials ? LW_PROMPT_BOS : 0u);
        result =
            lw_prompt_text(workers->model, request->text, request->text_count, flags, &job->prompt, &error);
    } else {
        result = lw_prompt_ids(workers->model, request->ids, request->id_count, &job->prompt, &error);
    }
    if (result == LW_RESULT_OK) return true;
    lw_failure_result(failure, result, &error);
    if (failure->param[0] == '\0') strncpy(failure->param, field, sizeof failure->param - 1);
    return false;
}

static bool has_tokens(const lw_workers *workers, lw_job *job, lw_failure *failure)
{
    size_t count;
    lw_prompt_read_ids(job->prompt, &count);
    const char *field = job->request.chat != NULL ? "messages" : "prompt";
    if (count == 0) return lw_failure_field(failure, field, "the prompt has no token");
    const int64_t asked = lw_request_tokens_max(&job->request);
    const int64_t reply = asked >= 0 ? asked : 1;
    if (count <= workers->context && reply <= (int64_t)(workers->context - count)) return true;
    lw_failure_set(
        failure, 400, "context_length_exceeded",
        "This model's maximum context length is %u tokens. However, your request has %zu prompt tokens "
        "and wants %s%lld for the reply. Shorten the %s or lower max_tokens.",
        workers->context, count, asked >= 0 ? "" : "at least ", (long long)reply, field);
    strncpy(failure->param, field, sizeof failure->param - 1);
    failure->wanted = count;
    failure->there = workers->context;
    return false;
}

/* The answer to a body that needs no engine. */
static json_t *tokenize_answer(const lw_workers *workers, const lw_job *job)
{
    size_t count;
    const int32_t *ids = lw_prompt_read_ids(job->prompt, &count);
    json_t *tokens = json_array(), *texts = json_array();
    for (size_t i = 0; i < count; i++) {
        size_t bytes = 0;
        json_array_append_new(tokens, json_integer(ids[i]));
        if (!job->request.return_texts) continue;
        const char *text = lw_text_of_id(workers->model, ids[i], &bytes);
        json_t *string = text == NULL ? NULL : json_stringn(text, bytes);
        json_array_append_new(texts, string != NULL ? string : json_string("\xEF\xBF\xBD"));
    }
    json_t *answer = json_pack("{s:I, s:I, s:o}", "count", (json_int_t)count, "max_model_len",
                               (json_int_t)workers->context, "tokens", tokens);
    if (job->request.return_texts) json_object_set(answer, "token_strs", texts);
    json_decref(texts);
    return answer;
}

static json_t *detokenize_answer(const lw_workers *workers, const lw_job *job)
{
    lw_text_reader *reader;
    if (lw_text_reader_open(workers->model, true, &reader) != LW_RESULT_OK) return NULL;
    lw_buf text;
    lw_buf_init(&text, 0);
    lw_status status = LW_OK;
    size_t count;
    for (size_t i = 0; i < job->request.id_count && status == LW_OK; i++) {
        const char *bytes = lw_text_reader_push(reader, job->request.ids[i], &count);
        status = lw_buf_append(&text, bytes, count);
    }
    const char *rest = lw_text_reader_finish(reader, &count);
    if (status == LW_OK) status = lw_buf_append(&text, rest, count);
    json_t *answer = status != LW_OK ? NULL : json_pack("{s:s%}", "prompt", text.bytes, text.count);
    lw_buf_deinit(&text);
    lw_text_reader_close(reader);
    return answer;
}

static bool answer(const lw_workers *workers, lw_job *job, lw_failure *failure)
{
    json_t *object = job->kind == LW_REQUEST_TOKENIZE ? tokenize_answer(workers, job) :
                                                        detokenize_answer(workers, job);
    char *text = object == NULL ? NULL : json_dumps(object, JSON_COMPACT);
    json_decref(object);
    if (lw_json_take_failure() || text == NULL) {
        free(text);
        return lw_failure_set(failure, 503, "no_room", "no memory for the answer");
    }
    lw_bridge_tell_one(workers->bridge, job, LW_NEWS_ANSWER, text, strlen(text));
    free(text);
    return true;
}

/* True when the engine is to have the job. */
static bool prepare(const lw_workers *workers, lw_job *job, lw_failure *failure)
{
    if (!lw_request_read(&job->request, job->kind, &workers->rules, job->body.bytes, job->body.count,
                         failure))
        return false;
    lw_buf_deinit(&job->body);
    if (job->kind == LW_REQUEST_DETOKENIZE) return answer(workers, job, failure) && false;
    if (!make_prompt(workers, job, failure)) return false;
    if (job->kind == LW_REQUEST_TOKENIZE) return answer(workers, job, failure) && false;
    return has_tokens(workers, job, failure);
}

static void *work(void *context)
{
    const lw_workers *workers = context;
    for (lw_job *job; (job = lw_bridge_pop_work(workers->bridge)) != NULL;) {
        lw_failure failure = { .code = 0 };
        const bool is_wanted = !atomic_load(&job->is_cancelled);
        if (is_wanted && prepare(workers, job, &failure)) {
            lw_bridge_push_engine(workers->bridge, job);
            continue;
        }
        if (failure.code != 0)
            lw_bridge_tell_one(workers->bridge, job, LW_NEWS_FAILURE, &failure, sizeof failure);
        lw_job_release(job);
    }
    return NULL;
}

lw_status lw_workers_start(lw_workers *workers, lw_diag *d)
{
    for (uint32_t i = 0; i < LW_WORKERS; i++) {
        const int error = pthread_create(&workers->threads[i], NULL, work, workers);
        if (error != 0) return lw_fail(d, LW_IO, "a worker thread could not start: %s", strerror(error));
        workers->thread_count++;
    }
    return LW_OK;
}

void lw_workers_join(lw_workers *workers)
{
    lw_bridge_leave_workers(workers->bridge);
    for (uint32_t i = 0; i < workers->thread_count; i++) pthread_join(workers->threads[i], NULL);
    workers->thread_count = 0;
}
