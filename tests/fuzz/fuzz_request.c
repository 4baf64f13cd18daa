/* Any bytes as an HTTP request in two pieces, and its body (or all of it) as the JSON of every kind of
 * request. */
#include "api/api_messages.h"
#include "serve/http_parse.h"
#include "serve/request.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count);

enum { BODY_MAX = 1 << 16 };

/* The conversation as lw_prompt_chat judges it. */
static void read_chat(const char *text, size_t count)
{
    lw__chat_request chat;
    lw_error error = { .text = "" };
    const lw_result result = lw__chat_request_read(text, count, &chat, &error);
    LW_ASSERT(result == LW_RESULT_OK || error.text[0] != '\0');
    LW_ASSERT(result != LW_RESULT_OK || json_array_size(chat.messages) > 0);
    lw__chat_request_deinit(&chat);
}

static void read_body(const char *body, size_t count)
{
    static const lw_request_kind kinds[] = { LW_REQUEST_CHAT, LW_REQUEST_COMPLETION, LW_REQUEST_TOKENIZE,
                                             LW_REQUEST_DETOKENIZE };
    const lw_request_rules rules = { .vocab = 1000 };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        lw_request request;
        lw_failure failure = { .code = 0 };
        const bool is_read = lw_request_read(&request, kinds[i], &rules, body, count, &failure);
        LW_ASSERT(is_read == (failure.code == 0));
        LW_ASSERT(is_read || failure.text[0] != '\0');
        LW_ASSERT(!is_read || request.chat != NULL || request.text != NULL || request.ids != NULL);
        for (size_t k = 0; k < request.bias_count; k++) LW_ASSERT(request.biases[k].id < 1000);
        for (size_t k = 0; k < request.stop_count; k++) LW_ASSERT(request.stops[k].count > 0);
        if (request.chat != NULL) read_chat(request.chat, request.chat_count);
        json_t *object = is_read ? NULL : lw_failure_json(&failure);
        LW_ASSERT(is_read || object != NULL);
        json_decref(object);
        lw_request_deinit(&request);
    }
}

/* Feeds bytes[0, count) until the request is over or more is wanted. */
static lw_http_result feed(lw_http_parser *parser, const char *bytes, size_t count)
{
    lw_http_result result;
    size_t at = 0, used;
    do {
        result = lw_http_feed(parser, bytes + at, count - at, &used);
        LW_ASSERT(used <= count - at);
        at += used;
    } while (result == LW_HTTP_HEAD || (result == LW_HTTP_MORE && at < count));
    return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count)
{
    const char *bytes = (const char *)data;
    lw_http_parser parser;
    lw_http_parser_init(&parser, BODY_MAX);
    const size_t cut = count == 0 ? 0 : data[count - 1] % (count + 1);
    lw_http_result result = feed(&parser, bytes, cut);
    if (result == LW_HTTP_MORE) result = feed(&parser, bytes + cut, count - cut);
    if (result == LW_HTTP_DONE) {
        LW_ASSERT(parser.body.count <= BODY_MAX && parser.method != NULL && parser.path != NULL);
        read_body(parser.body.bytes, parser.body.count);
    }
    LW_ASSERT(result != LW_HTTP_BAD || parser.code >= 400);
    lw_http_parser_deinit(&parser);
    read_body(bytes, count);
    return 0;
}
