/* The table of fields; see request.h. */
#include "serve/request.h"

#include "base/json.h"
#include "base/limits.h"

#include <math.h>
#include <string.h>
#include <sys/random.h>

enum { ARENA_BYTES_MAX = 512 << 20, MODEL_BYTES_MAX = 256 };

typedef enum field_kind {
    FIELD_BOOL,
    FIELD_WHOLE,  /* int64_t, from min to max */
    FIELD_REAL,   /* double, from min to max */
    FIELD_CUSTOM, /* read */
    FIELD_ONLY,   /* known elsewhere, of no effect here: nothing but null, false and min are taken */
} field_kind;

typedef struct field {
    const char *name;
    unsigned kinds; /* of requests that have it; in others it is left alone */
    field_kind kind;
    size_t at;
    double min, max;
    bool is_above_min; /* min itself is refused */
    lw_field_read *read;
} field;

#define AT(member) offsetof(lw_request, member)
enum {
    CHAT = LW_REQUEST_CHAT,
    TEXT = LW_REQUEST_COMPLETION,
    BOTH = CHAT | TEXT,
    COUNT = LW_REQUEST_TOKENIZE,
    BACK = LW_REQUEST_DETOKENIZE,
};
#define WHOLE_MAX 9223372036854775807.0

static const field fields[] = {
    { "temperature", BOTH, FIELD_REAL, AT(sampling.temperature), 0, 100, false, NULL },
    { "top_p", BOTH, FIELD_REAL, AT(sampling.top_p), 0, 1, true, NULL },
    { "top_k", BOTH, FIELD_WHOLE, AT(top_k), -1, 2147483647, false, NULL },
    { "min_p", BOTH, FIELD_REAL, AT(sampling.min_p), 0, 1, false, NULL },
    { "repetition_penalty", BOTH, FIELD_REAL, AT(sampling.repetition_penalty), 0, 10, true, NULL },
    { "presence_penalty", BOTH, FIELD_REAL, AT(sampling.presence_penalty), -2, 2, false, NULL },
    { "frequency_penalty", BOTH, FIELD_REAL, AT(sampling.frequency_penalty), -2, 2, false, NULL },
    { "seed", BOTH, FIELD_WHOLE, AT(seed), 0, WHOLE_MAX, false, NULL },
    { "max_tokens", BOTH, FIELD_WHOLE, AT(tokens_max), 0, WHOLE_MAX, false, NULL },
    { "max_completion_tokens", BOTH, FIELD_WHOLE, AT(completion_tokens_max), 0, WHOLE_MAX, false, NULL },
    { "ignore_eos", BOTH, FIELD_BOOL, AT(ignore_end), 0, 0, false, NULL },
    { "stream", BOTH, FIELD_BOOL, AT(stream), 0, 0, false, NULL },
    { "draft", BOTH, FIELD_BOOL, AT(drafts), 0, 0, false, NULL },
    { "stream_options", BOTH, FIELD_CUSTOM, 0, 0, 0, false, lw__field_stream_options },
    { "stop", BOTH, FIELD_CUSTOM, 0, 0, 0, false, lw__field_stop },
    { "logit_bias", BOTH, FIELD_CUSTOM, 0, 0, 0, false, lw__field_logit_bias },
    { "top_logprobs", CHAT, FIELD_WHOLE, AT(top_logprobs), 0, 20, false, NULL },
    { "logprobs", BOTH, FIELD_CUSTOM, 0, 0, 0, false, lw__field_logprobs },
    { "prompt", TEXT | COUNT, FIELD_CUSTOM, 0, 0, 0, false, lw__field_prompt },
    { "tokens", BACK, FIELD_CUSTOM, 0, 0, 0, false, lw__field_tokens },
    { "add_special_tokens", COUNT, FIELD_BOOL, AT(add_specials), 0, 0, false, NULL },
    { "return_token_strs", COUNT, FIELD_BOOL, AT(return_texts), 0, 0, false, NULL },
    { "response_format", BOTH, FIELD_CUSTOM, 0, 0, 0, false, lw__field_response_format },
    { "modalities", CHAT, FIELD_CUSTOM, 0, 0, 0, false, lw__field_modalities },
    { "n", BOTH, FIELD_ONLY, 0, 1, 0, false, NULL },
    { "best_of", BOTH, FIELD_ONLY, 0, 1, 0, false, NULL },
    { "echo", TEXT, FIELD_ONLY, 0, -1, 0, false, NULL },
    { "suffix", TEXT, FIELD_ONLY, 0, -1, 0, false, NULL },
    { "use_beam_search", BOTH, FIELD_ONLY, 0, -1, 0, false, NULL },
    { "functions", CHAT, FIELD_ONLY, 0, -1, 0, false, NULL },
    { "function_call", CHAT, FIELD_ONLY, 0, -1, 0, false, NULL },
    { "audio", CHAT, FIELD_ONLY, 0, -1, 0, false, NULL },
    { "prediction", CHAT, FIELD_ONLY, 0, -1, 0, false, NULL },
    { "web_search_options", CHAT, FIELD_ONLY, 0, -1, 0, false, NULL },
    { "guided_json", BOTH, FIELD_ONLY, 0, -1, 0, false, NULL },
    { "guided_regex", BOTH, FIELD_ONLY, 0, -1, 0, false, NULL },
    { "guided_choice", BOTH, FIELD_ONLY, 0, -1, 0, false, NULL },
    { "guided_grammar", BOTH, FIELD_ONLY, 0, -1, 0, false, NULL },
    { "structured_outputs", BOTH, FIELD_ONLY, 0, -1, 0, false, NULL },
    { "thinking_budget", BOTH, FIELD_ONLY, 0, -1, 0, false, NULL },
};
enum { FIELD_COUNT = sizeof fields / sizeof fields[0] };

const char *lw__json_kind(const json_t *value)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array", [JSON_STRING] = "a string",
        [JSON_INTEGER] = "a number", [JSON_REAL] = "a number",  [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",      [JSON_NULL] = "null",
    };
    return value == NULL ? "absent" : names[json_typeof(value)];
}

bool lw__json_whole(const json_t *value, int64_t *out)
{
    if (json_is_integer(value)) {
        *out = json_integer_value(value);
        return true;
    }
    if (!json_is_real(value)) return false;
    const double real = json_real_value(value);
    if (real != trunc(real) || real < -0x1p63 || real >= 0x1p63) return false;
    *out = (int64_t)real;
    return true;
}

static bool read_whole(const field *f, lw_request *request, const json_t *value, lw_failure *failure)
{
    int64_t whole;
    if (!json_is_number(value))
        return lw_failure_field(failure, f->name, "%s must be a whole number, not %s", f->name,
                                lw__json_kind(value));
    /* WHOLE_MAX as a double is 2^63: no int64 exceeds it. */
    if (!lw__json_whole(value, &whole) || (double)whole < f->min || (double)whole > f->max) {
        if (f->max == WHOLE_MAX)
            return lw_failure_field(failure, f->name,
                                    "%s is %.17g; it must be a whole number from %.0f to %s", f->name,
                                    json_number_value(value), f->min, "9223372036854775807");
        return lw_failure_field(failure, f->name, "%s is %.17g; it must be a whole number from %.0f to %.0f",
                                f->name, json_number_value(value), f->min, f->max);
    }
    memcpy((char *)request + f->at, &whole, sizeof whole);
    return true;
}

static bool read_real(const field *f, lw_request *request, const json_t *value, lw_failure *failure)
{
    if (!json_is_number(value))
        return lw_failure_field(failure, f->name, "%s must be a number, not %s", f->name,
                                lw__json_kind(value));
    const double real = json_number_value(value);
    const bool is_low = f->is_above_min ? !(real > f->min) : !(real >= f->min);
    if (is_low || !(real <= f->max))
        return lw_failure_field(failure, f->name, "%s is %g; it must be a number %s %g and at most %g",
                                f->name, real, f->is_above_min ? "above" : "of at least", f->min, f->max);
    memcpy((char *)request + f->at, &real, sizeof real);
    return true;
}

static bool read_only(const field *f, const json_t *value, lw_failure *failure)
{
    int64_t whole;
    if (json_is_false(value) || (f->min >= 0 && lw__json_whole(value, &whole) && whole == (int64_t)f->min))
        return true;
    if (f->min >= 0) return lw_failure_field(failure, f->name, "%s other than 1 is not served", f->name);
    return lw_failure_field(failure, f->name, "%s is not served", f->name);
}

static bool read_field(const field *f, lw_request *request, const json_t *value,
                       const lw_request_rules *rules, lw_failure *failure)
{
    switch (f->kind) {
    case FIELD_WHOLE: return read_whole(f, request, value, failure);
    case FIELD_REAL: return read_real(f, request, value, failure);
    case FIELD_CUSTOM: return f->read(request, value, rules, failure);
    case FIELD_ONLY: return read_only(f, value, failure);
    case FIELD_BOOL: break;
    }
    if (!json_is_boolean(value))
        return lw_failure_field(failure, f->name, "%s must be true or false, not %s", f->name,
                                lw__json_kind(value));
    const bool flag = json_is_true(value);
    memcpy((char *)request + f->at, &flag, sizeof flag);
    return true;
}

static bool read_model(lw_request *request, const json_t *root, lw_failure *failure)
{
    const json_t *model = json_object_get(root, "model");
    if (model == NULL || json_is_null(model)) return true;
    if (!json_is_string(model))
        return lw_failure_field(failure, "model", "model must be a string, not %s", lw__json_kind(model));
    if (json_string_length(model) > MODEL_BYTES_MAX)
        return lw_failure_field(failure, "model", "model is longer than %d bytes", MODEL_BYTES_MAX);
    const char *bytes;
    size_t count;
    if (!lw__request_copy(request, model, &bytes, &count, failure)) return false;
    request->model = (char *)(uintptr_t)bytes;
    return true;
}

static bool choose_seed(lw_request *request, const json_t *root, const lw_request_rules *rules,
                        lw_failure *failure)
{
    const json_t *seed = json_object_get(root, "seed");
    request->has_seed = seed != NULL && !json_is_null(seed);
    if (request->has_seed || !rules->fresh_seeds) return true;
    uint64_t drawn;
    if (getrandom(&drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn)
        return lw_failure_set(failure, 500, NULL, "the system gave no random seed");
    request->seed = (int64_t)(drawn >> 1);
    request->has_seed = true;
    return true;
}

/* The prompt: messages, text or ids; and what only makes sense together. */
static bool read_prompt(lw_request *request, const json_t *root, lw_failure *failure)
{
    const bool has_prompt = request->text != NULL || request->ids != NULL;
    switch (request->kind) {
    case LW_REQUEST_CHAT: return lw__request_messages(request, root, failure);
    case LW_REQUEST_TOKENIZE:
        if (has_prompt) return true;
        if (json_object_get(root, "messages") == NULL)
            return lw_failure_field(failure, "prompt", "either prompt or messages is needed");
        return lw__request_messages(request, root, failure);
    case LW_REQUEST_COMPLETION:
        return has_prompt || lw_failure_field(failure, "prompt", "prompt is needed: a string or token ids");
    case LW_REQUEST_DETOKENIZE:
        return has_prompt || lw_failure_field(failure, "tokens", "tokens is needed: an array of token ids");
    }
    return false;
}

static bool read_root(lw_request *request, const json_t *root, const lw_request_rules *rules,
                      lw_failure *failure)
{
    if (!json_is_object(root))
        return lw_failure_set(failure, 400, NULL, "the body must be a JSON object, not %s",
                              lw__json_kind(root));
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        const json_t *value = json_object_get(root, fields[i].name);
        if (value == NULL || json_is_null(value) || (fields[i].kinds & request->kind) == 0) continue;
        if (!read_field(&fields[i], request, value, rules, failure)) return false;
    }
    if (json_is_number(json_object_get(root, "top_k")))
        request->sampling.top_k = request->top_k < 0 ? 0 : (uint32_t)request->top_k;
    if (request->top_logprobs >= 0 && request->logprobs < 0)
        return lw_failure_field(failure, "top_logprobs", "top_logprobs needs \"logprobs\": true");
    if (request->include_usage && !request->stream)
        return lw_failure_field(failure, "stream_options", "stream_options needs \"stream\": true");
    return read_model(request, root, failure) && choose_seed(request, root, rules, failure) &&
           read_prompt(request, root, failure);
}

/* jansson refuses integers beyond 64 bits without saying whose they are; read as reals they reach the table,
 * which names the field. */
static json_t *parse(const char *body, size_t count, lw_failure *failure)
{
    json_error_t error;
    json_t *root = lw_json_load(body, count, 0, &error);
    if (root == NULL && json_error_code(&error) == json_error_numeric_overflow)
        root = lw_json_load(body, count, JSON_DECODE_INT_AS_REAL, &error);
    if (root == NULL && error.text[0] == '\0')
        lw__request_no_room(failure);
    else if (root == NULL)
        lw_failure_set(failure, 400, "invalid_json", "the body is not JSON: line %d, column %d: %s",
                       error.line, error.column, error.text);
    return root;
}

bool lw_request_read(lw_request *request, lw_request_kind kind, const lw_request_rules *rules,
                     const char *body, size_t count, lw_failure *failure)
{
    *request = (lw_request){ .kind = kind, .sampling = rules->sampling, .tokens_max = -1,
                             .completion_tokens_max = -1, .logprobs = -1, .top_logprobs = -1,
                             .drafts = true, .add_specials = true };
    lw_arena_init(&request->arena, ARENA_BYTES_MAX);
    if (count == 0) return lw_failure_set(failure, 400, "invalid_json", "the body is empty; JSON is wanted");
    json_t *root = parse(body, count, failure);
    if (root == NULL) return false;
    const bool is_read = read_root(request, root, rules, failure);
    json_decref(root);
    return is_read;
}

void lw_request_deinit(lw_request *request)
{
    free(request->chat);
    request->chat = NULL;
    lw_arena_deinit(&request->arena);
}

int64_t lw_request_tokens_max(const lw_request *request)
{
    return request->completion_tokens_max >= 0 ? request->completion_tokens_max : request->tokens_max;
}
