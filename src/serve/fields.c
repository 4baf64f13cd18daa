/* Fields that are more than a number or a flag; see request.h. */
#include "serve/request.h"

#include "base/limits.h"

#include <stdlib.h>
#include <string.h>

bool lw__request_no_room(lw_failure *failure)
{
    return lw_failure_set(failure, 503, "no_room", "the request's memory is used up");
}

bool lw__request_copy(lw_request *request, const json_t *text, const char **bytes, size_t *count,
                      lw_failure *failure)
{
    *count = json_string_length(text);
    *bytes = lw_arena_copy_text(&request->arena, json_string_value(text), *count);
    return *bytes != NULL || lw__request_no_room(failure);
}

static bool read_stop(lw_request *request, const json_t *value, lw_failure *failure)
{
    lw_stop_text *stop = &request->stops[request->stop_count];
    if (!json_is_string(value))
        return lw_failure_field(failure, "stop", "stop must be a string or an array of strings, not hold %s",
                                lw__json_kind(value));
    if (json_string_length(value) == 0)
        return lw_failure_field(failure, "stop", "a stop string is empty: it would stop everything");
    if (json_string_length(value) > LW_LIMIT_STOP_BYTES)
        return lw_failure_field(failure, "stop", "a stop string is longer than %d bytes",
                                LW_LIMIT_STOP_BYTES);
    if (!lw__request_copy(request, value, &stop->bytes, &stop->count, failure)) return false;
    request->stop_count++;
    return true;
}

bool lw__field_stop(lw_request *request, const json_t *value, const lw_request_rules *rules,
                    lw_failure *failure)
{
    (void)rules;
    const size_t count = json_is_array(value) ? json_array_size(value) : 1;
    if (count > LW_LIMIT_STOPS)
        return lw_failure_field(failure, "stop", "stop has %zu strings, at most %d are taken", count,
                                LW_LIMIT_STOPS);
    request->stops = lw_arena_take_array(&request->arena, count == 0 ? 1 : count, sizeof *request->stops);
    if (request->stops == NULL) return lw__request_no_room(failure);
    if (!json_is_array(value)) return read_stop(request, value, failure);
    for (size_t i = 0; i < count; i++) {
        if (!read_stop(request, json_array_get(value, i), failure)) return false;
    }
    return true;
}

/* Decimal digits only, below vocab. */
static bool parse_id(const char *text, uint32_t vocab, int32_t *id)
{
    uint64_t value = 0;
    const char *c = text;
    for (; *c >= '0' && *c <= '9'; c++) {
        value = value * 10 + (uint64_t)(*c - '0');
        if (value >= vocab) return false;
    }
    *id = (int32_t)value;
    return c > text && *c == '\0';
}

bool lw__field_logit_bias(lw_request *request, const json_t *value, const lw_request_rules *rules,
                          lw_failure *failure)
{
    if (!json_is_object(value))
        return lw_failure_field(failure, "logit_bias", "logit_bias must be an object, not %s",
                                lw__json_kind(value));
    const size_t count = json_object_size(value);
    if (count > LW_LIMIT_BIASES)
        return lw_failure_field(failure, "logit_bias", "logit_bias has %zu entries, at most %d are taken",
                                count, LW_LIMIT_BIASES);
    request->biases = lw_arena_take_array(&request->arena, count == 0 ? 1 : count, sizeof *request->biases);
    if (request->biases == NULL) return lw__request_no_room(failure);
    const char *key;
    json_t *bias;
    json_object_foreach((json_t *)(uintptr_t)value, key, bias) {
        lw_token_bias *out = &request->biases[request->bias_count];
        if (!parse_id(key, rules->vocab, &out->id))
            return lw_failure_field(failure, "logit_bias", "logit_bias names \"%.40s\": no token id below %u",
                                    key, rules->vocab);
        const double real = json_number_value(bias);
        if (!json_is_number(bias) || !(real >= -100 && real <= 100))
            return lw_failure_field(failure, "logit_bias",
                                    "logit_bias of %s must be a number from -100 to 100", key);
        out->bias = (float)real;
        request->bias_count++;
    }
    return true;
}

bool lw__field_stream_options(lw_request *request, const json_t *value, const lw_request_rules *rules,
                              lw_failure *failure)
{
    (void)rules;
    if (!json_is_object(value))
        return lw_failure_field(failure, "stream_options", "stream_options must be an object, not %s",
                                lw__json_kind(value));
    const json_t *usage = json_object_get(value, "include_usage");
    if (usage == NULL || json_is_null(usage)) return true;
    if (!json_is_boolean(usage))
        return lw_failure_field(failure, "stream_options.include_usage",
                                "stream_options.include_usage must be true or false, not %s",
                                lw__json_kind(usage));
    request->include_usage = json_is_true(usage);
    return true;
}

/* Chat: a flag, with top_logprobs beside it. Completions: how many. */
bool lw__field_logprobs(lw_request *request, const json_t *value, const lw_request_rules *rules,
                        lw_failure *failure)
{
    (void)rules;
    if (request->kind == LW_REQUEST_CHAT) {
        if (!json_is_boolean(value))
            return lw_failure_field(failure, "logprobs", "logprobs must be true or false, not %s",
                                    lw__json_kind(value));
        const int64_t best = request->top_logprobs > 0 ? request->top_logprobs : 0;
        request->logprobs = json_is_true(value) ? best : -1;
        return true;
    }
    if (!lw__json_whole(value, &request->logprobs) || request->logprobs < 0 || request->logprobs > 20)
        return lw_failure_field(failure, "logprobs", "logprobs must be a whole number from 0 to 20");
    return true;
}

bool lw__field_response_format(lw_request *request, const json_t *value, const lw_request_rules *rules,
                               lw_failure *failure)
{
    (void)request, (void)rules;
    const char *type = json_string_value(json_object_get(value, "type"));
    if (type != NULL && strcmp(type, "text") == 0) return true;
    return lw_failure_field(failure, "response_format", "response_format other than {\"type\": \"text\"} "
                            "is not served");
}

bool lw__field_modalities(lw_request *request, const json_t *value, const lw_request_rules *rules,
                          lw_failure *failure)
{
    (void)request, (void)rules;
    const char *only = json_string_value(json_array_get(value, 0));
    if (json_array_size(value) == 1 && only != NULL && strcmp(only, "text") == 0) return true;
    return lw_failure_field(failure, "modalities", "modalities other than [\"text\"] are not served");
}

bool lw__request_ids(lw_request *request, const char *name, const json_t *list, uint32_t vocab,
                     lw_failure *failure)
{
    const size_t count = json_array_size(list);
    request->ids = lw_arena_take_array(&request->arena, count == 0 ? 1 : count, sizeof *request->ids);
    if (request->ids == NULL) return lw__request_no_room(failure);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(list, i);
        if (!json_is_integer(item))
            return lw_failure_field(failure, name, "%s[%zu] must be a token id, not %s", name, i,
                                    json_is_real(item) ? "a fraction" : lw__json_kind(item));
        const json_int_t id = json_integer_value(item);
        if (id < 0 || id >= (json_int_t)vocab)
            return lw_failure_field(failure, name, "%s[%zu] is %" JSON_INTEGER_FORMAT
                                    "; token ids go from 0 to %u", name, i, id, vocab - 1);
        request->ids[i] = (int32_t)id;
    }
    request->id_count = count;
    return true;
}

/* A string, ids, or an array of just one of them. */
bool lw__field_prompt(lw_request *request, const json_t *value, const lw_request_rules *rules,
                      lw_failure *failure)
{
    const json_t *first = json_array_get(value, 0);
    if (json_array_size(value) == 1 && (json_is_string(first) || json_is_array(first))) value = first;
    if (json_is_string(value))
        return lw__request_copy(request, value, &request->text, &request->text_count, failure);
    if (!json_is_array(value))
        return lw_failure_field(failure, "prompt", "prompt must be a string or an array of token ids, not %s",
                                lw__json_kind(value));
    if (json_array_size(value) == 0) return lw_failure_field(failure, "prompt", "prompt is empty");
    first = json_array_get(value, 0);
    if (json_is_array(first) || json_is_string(first))
        return lw_failure_field(failure, "prompt", "prompt holds %zu items that are no token ids; one prompt "
                                "a request is served", json_array_size(value));
    return lw__request_ids(request, "prompt", value, rules->vocab, failure);
}

bool lw__field_tokens(lw_request *request, const json_t *value, const lw_request_rules *rules,
                      lw_failure *failure)
{
    if (!json_is_array(value))
        return lw_failure_field(failure, "tokens", "tokens must be an array of token ids, not %s",
                                lw__json_kind(value));
    return lw__request_ids(request, "tokens", value, rules->vocab, failure);
}
