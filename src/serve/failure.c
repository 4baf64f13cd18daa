/* Errors in OpenAI's shape; see failure.h. */
#include "serve/failure.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct result_facts {
    int code;
    const char *name;
} result_facts;

static const result_facts table[] = {
    [LW_RESULT_OK] = { 200, NULL },
    [LW_RESULT_BAD_INPUT] = { 400, NULL },
    [LW_RESULT_BAD_MODEL] = { 500, "bad_model" },
    [LW_RESULT_UNSUPPORTED] = { 400, "unsupported" },
    [LW_RESULT_NOT_FOUND] = { 404, "not_found" },
    [LW_RESULT_NO_ROOM] = { 503, "no_room" },
    [LW_RESULT_TOO_LONG] = { 400, "context_length_exceeded" },
    [LW_RESULT_IO] = { 500, "io" },
    [LW_RESULT_DEVICE_LOST] = { 503, "device_lost" },
    [LW_RESULT_CANCELLED] = { 503, "cancelled" },
    [LW_RESULT_BUSY] = { 503, "server_busy" },
    [LW_RESULT_BROKEN] = { 500, "broken_logits" },
};
enum { TABLE_COUNT = sizeof table / sizeof table[0] };
_Static_assert(TABLE_COUNT == LW_RESULT_BROKEN + 1, "the last result has a row");

static const char *type_of(int code)
{
    if (code == 401) return "authentication_error";
    if (code == 403) return "permission_error";
    if (code == 404) return "not_found_error";
    return code < 500 ? "invalid_request_error" : "server_error";
}

bool lw_failure_set(lw_failure *failure, int code, const char *name, const char *format, ...)
{
    *failure = (lw_failure){ .code = code, .type = type_of(code), .name = name };
    va_list args;
    va_start(args, format);
    vsnprintf(failure->text, sizeof failure->text, format, args);
    va_end(args);
    return false;
}

bool lw_failure_field(lw_failure *failure, const char *param, const char *format, ...)
{
    *failure = (lw_failure){ .code = 400, .type = type_of(400) };
    snprintf(failure->param, sizeof failure->param, "%s", param);
    va_list args;
    va_start(args, format);
    vsnprintf(failure->text, sizeof failure->text, format, args);
    va_end(args);
    return false;
}

bool lw_failure_result(lw_failure *failure, lw_result result, const lw_error *error)
{
    const bool is_known = (unsigned)result < TABLE_COUNT && result != LW_RESULT_OK;
    const result_facts *facts = &table[is_known ? result : LW_RESULT_IO];
    *failure = (lw_failure){ .code = facts->code, .type = type_of(facts->code), .name = facts->name };
    snprintf(failure->text, sizeof failure->text, "%s", error->text);
    snprintf(failure->param, sizeof failure->param, "%s", error->field);
    failure->wanted = error->wanted;
    failure->there = error->there;
    return false;
}

json_t *lw_failure_json(const lw_failure *failure)
{
    /* A text may quote bytes of the request, cut in the middle of a code point. */
    json_t *text = json_string(failure->text);
    if (text == NULL) text = json_string("the request is at fault, in bytes that are not UTF-8");
    json_t *error = json_pack("{s:o, s:s, s:s?, s:s?}", "message", text, "type", failure->type, "param",
                              failure->param[0] == '\0' ? NULL : failure->param, "code", failure->name);
    if (error != NULL && failure->name != NULL && strcmp(failure->name, "context_length_exceeded") == 0) {
        json_object_set_new(error, "n_prompt_tokens", json_integer((json_int_t)failure->wanted));
        json_object_set_new(error, "n_ctx", json_integer((json_int_t)failure->there));
    }
    return error == NULL ? NULL : json_pack("{s:o}", "error", error);
}
