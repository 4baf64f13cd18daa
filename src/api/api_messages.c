/* A chat request in JSON, judged member by member, and evened out for templates: a missing or null content is
 * "", a list of text parts is one string with a line end between two, tool arguments in a string are the
 * object that the string spells, "developer" is "system", other members that are null are left out.
 */
#include "api/api.h"

#include "base/json.h"
#include "base/limits.h"

#include <stdio.h>
#include <string.h>

enum { FIELD_BYTES = 64 };

/* Where a fault is: "messages[2].content[0].type". */
typedef struct place {
    char field[FIELD_BYTES];
    lw_error *error;
} place;

static place place_make(lw_error *error, const char *name, size_t index)
{
    place at = { .error = error };
    snprintf(at.field, sizeof at.field, "%s[%zu]", name, index);
    return at;
}

/* Longer paths than a field holds are cut; the text says the rest. */
static place place_member(const place *parent, const char *member)
{
    place at = *parent;
    const size_t count = strlen(at.field);
    snprintf(at.field + count, sizeof at.field - count, ".%s", member);
    return at;
}

static place place_item(const place *parent, const char *member, size_t index)
{
    place at = place_member(parent, member);
    const size_t count = strlen(at.field);
    snprintf(at.field + count, sizeof at.field - count, "[%zu]", index);
    return at;
}

static lw_result refuse(const place *at, const char *text)
{
    return lw__api_fail(at->error, LW_RESULT_BAD_INPUT, at->field, "%s %s", at->field, text);
}

static lw_result no_room(const place *at)
{
    return lw__api_fail(at->error, LW_RESULT_NO_ROOM, at->field, "no memory for %s", at->field);
}

/* As long a list as is read; the first loop over it asks. */
static lw_result list_check(lw_error *error, const char *field, const json_t *list, size_t most)
{
    const size_t count = json_array_size(list);
    if (count <= most) return LW_RESULT_OK;
    return lw__api_fail(error, LW_RESULT_BAD_INPUT, field, "%s has %zu items; at most %zu are read", field,
                        count, most);
}

static bool is_absent(const json_t *value)
{
    return value == NULL || json_is_null(value);
}

/* ---- contents ---- */

static lw_result part_append(const place *at, const json_t *part, bool is_first, lw_buf *text)
{
    if (!json_is_object(part)) return refuse(at, "must be an object with \"type\"");
    const char *type = json_string_value(json_object_get(part, "type"));
    const place type_at = place_member(at, "type");
    if (type == NULL) return refuse(&type_at, "must be a string");
    if (strcmp(type, "text") != 0)
        return lw__api_fail(at->error, LW_RESULT_UNSUPPORTED, type_at.field,
                            "%s is \"%.40s\"; only text is served", type_at.field, type);
    const json_t *own = json_object_get(part, "text");
    const place text_at = place_member(at, "text");
    if (!json_is_string(own)) return refuse(&text_at, "must be a string");
    if (!is_first && lw_buf_append(text, "\n", 1) != LW_OK) return no_room(&text_at);
    if (lw_buf_append(text, json_string_value(own), json_string_length(own)) != LW_OK)
        return no_room(&text_at);
    return LW_RESULT_OK;
}

static lw_result parts_join(const place *message, const json_t *parts, json_t *out)
{
    lw_buf text;
    lw_buf_init(&text, LW_LIMIT_PROMPT_BYTES);
    const place content_at = place_member(message, "content");
    lw_result result = list_check(message->error, content_at.field, parts, LW_LIMIT_PARTS);
    for (size_t i = 0; i < json_array_size(parts) && result == LW_RESULT_OK; i++) {
        const place at = place_item(message, "content", i);
        result = part_append(&at, json_array_get(parts, i), i == 0, &text);
    }
    if (result == LW_RESULT_OK &&
        json_object_set_new(out, "content", json_stringn(text.count > 0 ? text.bytes : "", text.count)) != 0)
        result = no_room(message);
    lw_buf_deinit(&text);
    return result;
}

static lw_result content_even(const place *message, json_t *out)
{
    const json_t *content = json_object_get(out, "content");
    if (json_is_string(content)) return LW_RESULT_OK;
    if (json_is_array(content)) return parts_join(message, content, out);
    const place at = place_member(message, "content");
    if (!is_absent(content)) return refuse(&at, "must be a string, a list of text parts or null");
    return json_object_set_new(out, "content", json_string("")) == 0 ? LW_RESULT_OK : no_room(&at);
}

/* ---- tool calls ---- */

/* Clients send arguments as JSON in a string, templates walk through an object. */
static lw_result arguments_even(const place *function_at, json_t *function)
{
    const place at = place_member(function_at, "arguments");
    const json_t *arguments = json_object_get(function, "arguments");
    if (json_is_object(arguments)) return LW_RESULT_OK;
    json_t *object = NULL;
    json_error_t why = { .text = "not an object" };
    if (is_absent(arguments) || (json_is_string(arguments) && json_string_length(arguments) == 0)) {
        object = json_object();
    } else if (json_is_string(arguments)) {
        object =
            lw_json_load(json_string_value(arguments), json_string_length(arguments), JSON_ALLOW_NUL, &why);
    }
    if (object == NULL && why.text[0] == '\0') return no_room(&at);
    if (!json_is_object(object)) {
        json_decref(object);
        return refuse(&at, "must be an object, or a string that spells one in JSON");
    }
    return json_object_set_new(function, "arguments", object) == 0 ? LW_RESULT_OK : no_room(&at);
}

static lw_result call_even(const place *at, json_t *call)
{
    if (!json_is_object(call)) return refuse(at, "must be an object");
    json_t *function = json_object_get(call, "function");
    const place function_at = place_member(at, "function");
    if (!json_is_object(function)) return refuse(&function_at, "must be an object");
    const place name_at = place_member(&function_at, "name");
    if (!json_is_string(json_object_get(function, "name"))) return refuse(&name_at, "must be a string");
    return arguments_even(&function_at, function);
}

static lw_result calls_even(const place *message, json_t *out)
{
    const json_t *given = json_object_get(out, "tool_calls");
    if (given == NULL) return LW_RESULT_OK;
    const place at = place_member(message, "tool_calls");
    if (json_is_null(given)) return json_object_del(out, "tool_calls") == 0 ? LW_RESULT_OK : no_room(&at);
    if (!json_is_array(given)) return refuse(&at, "must be a list or null");
    lw_result result = list_check(at.error, at.field, given, LW_LIMIT_TOOLS);
    if (result != LW_RESULT_OK) return result;
    json_t *calls = json_deep_copy(given);
    if (calls == NULL || json_object_set_new(out, "tool_calls", calls) != 0) return no_room(&at);
    for (size_t i = 0; i < json_array_size(calls) && result == LW_RESULT_OK; i++) {
        const place call_at = place_item(message, "tool_calls", i);
        result = call_even(&call_at, json_array_get(calls, i));
    }
    return result;
}

/* ---- messages ---- */

static const char *const roles[] = { "system", "developer", "user", "assistant", "tool" };

static lw_result role_even(const place *message, json_t *out)
{
    const place at = place_member(message, "role");
    const char *role = json_string_value(json_object_get(out, "role"));
    if (role == NULL) return refuse(&at, "must be a string");
    if (strcmp(role, "developer") == 0)
        return json_object_set_new(out, "role", json_string("system")) == 0 ? LW_RESULT_OK : no_room(&at);
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        if (strcmp(role, roles[i]) == 0) return LW_RESULT_OK;
    }
    return lw__api_fail(at.error, LW_RESULT_BAD_INPUT, at.field,
                        "%s is \"%.40s\"; it must be system, developer, user, assistant or tool", at.field,
                        role);
}

/* A member that is text where it is there at all. */
static lw_result text_even(const place *message, const char *member, json_t *out)
{
    const place at = place_member(message, member);
    const json_t *text = json_object_get(out, member);
    if (text == NULL || json_is_string(text)) return LW_RESULT_OK;
    if (!json_is_null(text)) return refuse(&at, "must be a string or null");
    return json_object_del(out, member) == 0 ? LW_RESULT_OK : no_room(&at);
}

static lw_result message_even(const place *at, json_t *out)
{
    static const char *const texts[] = { "reasoning_content", "name", "tool_call_id" };
    lw_result result = role_even(at, out);
    if (result == LW_RESULT_OK) result = content_even(at, out);
    if (result == LW_RESULT_OK) result = calls_even(at, out);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0] && result == LW_RESULT_OK; i++)
        result = text_even(at, texts[i], out);
    return result;
}

static lw_result messages_even(const json_t *given, lw__chat_request *out, lw_error *error)
{
    if (!json_is_array(given) || json_array_size(given) == 0)
        return lw__api_fail(error, LW_RESULT_BAD_INPUT, "messages",
                            given == NULL            ? "messages is missing"
                            : json_is_array(given) ? "messages is empty: there is nothing to answer"
                                                   : "messages must be a list of objects");
    lw_result result = list_check(error, "messages", given, LW_LIMIT_MESSAGES);
    for (size_t i = 0; i < json_array_size(given) && result == LW_RESULT_OK; i++) {
        const place at = place_make(error, "messages", i);
        json_t *own = json_array_get(given, i);
        if (!json_is_object(own)) return refuse(&at, "must be an object");
        json_t *copy = json_copy(own);
        if (copy == NULL || json_array_append_new(out->messages, copy) != 0) return no_room(&at);
        result = message_even(&at, copy);
    }
    return result;
}

static lw_result tools_check(const json_t *tools, lw_error *error)
{
    if (!json_is_array(tools))
        return lw__api_fail(error, LW_RESULT_BAD_INPUT, "tools", "tools must be a list or null");
    const lw_result result = list_check(error, "tools", tools, LW_LIMIT_TOOLS);
    for (size_t i = 0; i < json_array_size(tools) && result == LW_RESULT_OK; i++) {
        const place at = place_make(error, "tools", i);
        const json_t *tool = json_array_get(tools, i);
        if (!json_is_object(tool)) return refuse(&at, "must be an object");
        const json_t *function = json_object_get(tool, "function");
        const char *type = json_string_value(json_object_get(tool, "type"));
        /* Some templates take tools without this envelope. */
        if (function == NULL && (type == NULL || strcmp(type, "function") != 0)) continue;
        const place function_at = place_member(&at, "function"), name_at = place_member(&function_at, "name");
        if (!json_is_object(function)) return refuse(&function_at, "must be an object");
        if (!json_is_string(json_object_get(function, "name"))) return refuse(&name_at, "must be a string");
    }
    return result;
}

static lw_result members_read(lw__chat_request *out, lw_error *error)
{
    const json_t *tools = json_object_get(out->root, "tools");
    const json_t *kwargs = json_object_get(out->root, "chat_template_kwargs");
    const json_t *generates = json_object_get(out->root, "add_generation_prompt");
    if (!is_absent(tools)) {
        const lw_result result = tools_check(tools, error);
        if (result != LW_RESULT_OK) return result;
        /* Templates ask whether there are tools, and some take an empty list for a yes. */
        if (json_array_size(tools) > 0) out->tools = tools;
    }
    if (!is_absent(kwargs) && !json_is_object(kwargs))
        return lw__api_fail(error, LW_RESULT_BAD_INPUT, "chat_template_kwargs",
                            "chat_template_kwargs must be an object or null");
    if (!is_absent(generates) && !json_is_boolean(generates))
        return lw__api_fail(error, LW_RESULT_BAD_INPUT, "add_generation_prompt",
                            "add_generation_prompt must be true, false or null");
    out->kwargs = is_absent(kwargs) ? NULL : kwargs;
    out->add_generation_prompt = is_absent(generates) || json_is_true(generates);
    return messages_even(json_object_get(out->root, "messages"), out, error);
}

/* Nesting is counted before parsing, so that no reader of the tree recurses deeper than this. */
static bool is_shallow(const char *text, size_t count)
{
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < count; i++) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\') i++;
            else if (c == '"') in_string = false;
            continue;
        }
        if (c == '"') in_string = true;
        if ((c == '{' || c == '[') && ++depth > LW_LIMIT_TEMPLATE_DEPTH) return false;
        if ((c == '}' || c == ']') && depth > 0) depth--;
    }
    return true;
}

lw_result lw__chat_request_read(const char *request, size_t count, lw__chat_request *out, lw_error *error)
{
    *out = (lw__chat_request){ .root = NULL };
    if (count > LW_LIMIT_PROMPT_BYTES) {
        lw__api_fail(error, LW_RESULT_NO_ROOM, "messages", "the request has %zu bytes; at most %d are read",
                     count, LW_LIMIT_PROMPT_BYTES);
        return lw__api_counts(error, LW_RESULT_NO_ROOM, "messages", count, LW_LIMIT_PROMPT_BYTES);
    }
    if (!is_shallow(request, count))
        return lw__api_fail(error, LW_RESULT_BAD_INPUT, "", "the request is nested deeper than %d levels",
                            LW_LIMIT_TEMPLATE_DEPTH);
    json_error_t why;
    out->root = lw_json_load(request, count, JSON_ALLOW_NUL, &why);
    out->messages = json_array();
    lw_result result;
    if (out->messages == NULL || (out->root == NULL && why.text[0] == '\0'))
        result = lw__api_fail(error, LW_RESULT_NO_ROOM, "", "no memory for a request");
    else if (out->root == NULL)
        result =
            lw__api_fail(error, LW_RESULT_BAD_INPUT, "", "the request is not JSON: line %d, column %d: %s",
                         why.line, why.column, why.text);
    else if (!json_is_object(out->root))
        result = lw__api_fail(error, LW_RESULT_BAD_INPUT, "", "the request is not a JSON object");
    else result = members_read(out, error);
    if (result == LW_RESULT_OK && lw_json_take_failure())
        result = lw__api_fail(error, LW_RESULT_NO_ROOM, "", "no memory for a request");
    if (result != LW_RESULT_OK) lw__chat_request_deinit(out);
    return result;
}

void lw__chat_request_deinit(lw__chat_request *request)
{
    json_decref(request->messages);
    json_decref(request->root);
    *request = (lw__chat_request){ .root = NULL };
}
