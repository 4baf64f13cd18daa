/* The shape of chat replies: chat.completion and chat.completion.chunk. */
#include "serve/answer.h"

#include "base/json.h"

#include <string.h>

static void set_text(json_t *object, const char *name, const lw_buf *text)
{
    if (object != NULL && text != NULL)
        json_object_set_new(object, name, lw_json_text(text->count > 0 ? text->bytes : "", text->count));
}

/* {"content": [...]} or null. */
static json_t *logprobs_object(json_t *list)
{
    return list == NULL ? json_null() : json_pack("{s:O}", "content", list);
}

static json_t *chat_whole(const lw_choice *choice)
{
    json_t *message = json_pack("{s:s}", "role", "assistant");
    set_text(message, "content", choice->content);
    if (choice->reasoning->count > 0) set_text(message, "reasoning_content", choice->reasoning);
    return json_pack("{s:i, s:o, s:s, s:o}", "index", 0, "message", message, "finish_reason", choice->finish,
                     "logprobs", logprobs_object(choice->logprobs));
}

static json_t *chat_chunk(const lw_choice *choice)
{
    json_t *delta =
        choice->is_first ? json_pack("{s:s, s:s}", "role", "assistant", "content", "") : json_object();
    set_text(delta, "content", choice->content);
    set_text(delta, "reasoning_content", choice->reasoning);
    return json_pack("{s:i, s:o, s:s?, s:o}", "index", 0, "delta", delta, "finish_reason", choice->finish,
                     "logprobs", logprobs_object(choice->logprobs));
}

static json_t *token_object(const lw_model *model, int32_t id, float logprob)
{
    size_t count = 0;
    const char *bytes = lw_text_of_id(model, id, &count);
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) json_array_append_new(list, json_integer((unsigned char)bytes[i]));
    return json_pack("{s:o, s:f, s:o, s:i}", "token", lw_json_text(bytes != NULL ? bytes : "", count),
                     "logprob", lw__logprob(logprob), "bytes", list, "id", (int)id);
}

static void chat_add_logprob(lw_answer *answer, const lw_news_logprob *news)
{
    if (answer->logprobs == NULL) answer->logprobs = json_array();
    json_t *token = token_object(answer->model, news->id, news->logprob);
    json_t *top = json_array();
    for (uint32_t i = 0; i < news->top_count; i++)
        json_array_append_new(top, token_object(answer->model, news->top[i].id, news->top[i].logprob));
    json_object_set_new(token, "top_logprobs", top);
    json_array_append_new(answer->logprobs, token);
}

const lw_shape lw_shape_chat = {
    .object = "chat.completion",
    .chunk_object = "chat.completion.chunk",
    .has_first_chunk = true,
    .whole = chat_whole,
    .chunk = chat_chunk,
    .add_logprob = chat_add_logprob,
};
