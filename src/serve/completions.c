/* The shape of completions: text_completion, whole and in chunks. */
#include "serve/answer.h"

#include "base/json.h"

#include <string.h>

static json_t *completion_choice(const lw_choice *choice)
{
    const bool has_text = choice->content != NULL && choice->content->count > 0;
    json_t *text = has_text ? lw_json_text(choice->content->bytes, choice->content->count) : json_string("");
    json_t *logprobs = choice->logprobs == NULL ? json_null() : json_incref(choice->logprobs);
    return json_pack("{s:i, s:o, s:s?, s:o}", "index", 0, "text", text, "finish_reason", choice->finish,
                     "logprobs", logprobs);
}

static json_t *token_text(const lw_model *model, int32_t id, size_t *count)
{
    const char *bytes = lw_text_of_id(model, id, count);
    return lw_json_text(bytes != NULL ? bytes : "", *count);
}

/* {"text": logprob, ...}: what JSON can say; of two tokens with one text the better one stands. */
static json_t *best_object(const lw_model *model, const lw_news_logprob *news)
{
    json_t *best = json_object();
    for (uint32_t i = 0; i < news->top_count; i++) {
        size_t count;
        json_t *text = token_text(model, news->top[i].id, &count);
        const char *key = json_string_value(text);
        if (key != NULL && json_object_get(best, key) == NULL)
            json_object_set_new(best, key, json_real(lw__logprob(news->top[i].logprob)));
        json_decref(text);
    }
    return best;
}

static void completion_add_logprob(lw_answer *answer, const lw_news_logprob *news)
{
    if (answer->logprobs == NULL)
        answer->logprobs = json_pack("{s:[], s:[], s:[], s:[]}", "tokens", "token_logprobs", "top_logprobs",
                                     "text_offset");
    size_t count;
    json_t *lists = answer->logprobs;
    json_array_append_new(json_object_get(lists, "tokens"), token_text(answer->model, news->id, &count));
    json_array_append_new(json_object_get(lists, "token_logprobs"), json_real(lw__logprob(news->logprob)));
    json_array_append_new(json_object_get(lists, "top_logprobs"), best_object(answer->model, news));
    json_array_append_new(json_object_get(lists, "text_offset"),
                          json_integer((json_int_t)answer->text_offset));
    answer->text_offset += count;
}

const lw_shape lw_shape_completion = {
    .object = "text_completion",
    .chunk_object = "text_completion",
    .has_first_chunk = false,
    .whole = completion_choice,
    .chunk = completion_choice,
    .add_logprob = completion_add_logprob,
};
