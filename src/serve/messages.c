/* A conversation as clients send it -> as chat templates expect it. Judged here: roles, contents, parts, tool
 * calls. Evened out here: text parts become one string, an absent content beside tool calls is "", arguments
 * that are JSON in a string become that JSON, "developer" is "system".
 */
#include "serve/request.h"

#include "base/buf.h"
#include "base/json.h"
#include "base/limits.h"

#include <stdio.h>
#include <string.h>

typedef struct reader {
    lw_failure *failure;
    size_t index; /* of the message */
} reader;

static const char *const roles[] = { "system", "developer", "user", "assistant", "tool" };
enum { ROLE_COUNT = sizeof roles / sizeof roles[0] };

static bool fail(const reader *r, const char *member, const char *text)
{
    char param[128];
    snprintf(param, sizeof param, "messages[%zu]%s", r->index, member);
    return lw_failure_field(r->failure, param, "%s%s", param, text);
}

/* Appends the text of part at to text. */
static bool read_part(const reader *r, const json_t *part, size_t at, lw_buf *text)
{
    char member[40];
    snprintf(member, sizeof member, ".content[%zu]", at);
    if (!json_is_object(part)) return fail(r, member, " must be an object with a \"type\"");
    const char *type = json_string_value(json_object_get(part, "type"));
    if (type == NULL || strcmp(type, "text") != 0) {
        snprintf(member, sizeof member, ".content[%zu].type", at);
        return fail(r, member, " must be \"text\": images, audio and files are not served");
    }
    const json_t *own = json_object_get(part, "text");
    snprintf(member, sizeof member, ".content[%zu].text", at);
    if (!json_is_string(own)) return fail(r, member, " must be a string");
    if ((at > 0 && lw_buf_append(text, "\n", 1) != LW_OK) ||
        lw_buf_append(text, json_string_value(own), json_string_length(own)) != LW_OK)
        return lw__request_no_room(r->failure);
    return true;
}

static json_t *read_parts(const reader *r, const json_t *parts)
{
    if (json_array_size(parts) > LW_LIMIT_PARTS) {
        fail(r, ".content", " has too many parts");
        return NULL;
    }
    lw_buf text;
    lw_buf_init(&text, LW_LIMIT_BODY_BYTES);
    bool is_read = true;
    for (size_t i = 0; i < json_array_size(parts) && is_read; i++)
        is_read = read_part(r, json_array_get(parts, i), i, &text);
    json_t *content = is_read ? json_stringn(text.count > 0 ? text.bytes : "", text.count) : NULL;
    if (is_read && content == NULL) lw__request_no_room(r->failure);
    lw_buf_deinit(&text);
    return content;
}

/* A new reference, or NULL with the failure. */
static json_t *read_content(const reader *r, const json_t *message, const char *role)
{
    json_t *content = json_object_get(message, "content");
    if (json_is_string(content)) return json_incref(content);
    if (json_is_array(content) && (json_array_size(content) > 0 || strcmp(role, "assistant") == 0))
        return read_parts(r, content);
    if ((content == NULL || json_is_null(content)) && strcmp(role, "assistant") == 0) return json_string("");
    fail(r, ".content", " must be a string or a list of text parts");
    return NULL;
}

/* A call whose arguments are an object wherever they can be read as one: templates iterate over them. */
static json_t *read_call(const reader *r, const json_t *call)
{
    const json_t *function = json_object_get(call, "function");
    if (!json_is_string(json_object_get(function, "name"))) {
        fail(r, ".tool_calls", " must hold objects with function.name");
        return NULL;
    }
    json_t *copy = json_deep_copy(call);
    json_t *arguments = json_object_get(function, "arguments");
    if (copy == NULL) lw__request_no_room(r->failure);
    if (copy == NULL || !json_is_string(arguments)) return copy;
    json_error_t error;
    json_t *object =
        lw_json_load(json_string_value(arguments), json_string_length(arguments), JSON_DECODE_ANY, &error);
    if (json_is_object(object)) json_object_set(json_object_get(copy, "function"), "arguments", object);
    json_decref(object);
    return copy;
}

static bool read_calls(const reader *r, const json_t *message, json_t *out)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    if (calls == NULL || json_is_null(calls)) return true;
    if (!json_is_array(calls) || json_array_size(calls) > LW_LIMIT_TOOLS)
        return fail(r, ".tool_calls", " must be an array");
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *call = read_call(r, json_array_get(calls, i));
        if (call == NULL || json_array_append_new(list, call) != 0) {
            json_decref(list);
            return false;
        }
    }
    return json_object_set_new(out, "tool_calls", list) == 0 || lw__request_no_room(r->failure);
}

/* A member that is passed on when it is a string. */
static bool pass_text(const reader *r, const json_t *message, const char *name, json_t *out)
{
    json_t *value = json_object_get(message, name);
    if (value == NULL || json_is_null(value)) return true;
    char member[64];
    snprintf(member, sizeof member, ".%s", name);
    if (!json_is_string(value)) return fail(r, member, " must be a string");
    return json_object_set(out, name, value) == 0 || lw__request_no_room(r->failure);
}

static const char *read_role(const reader *r, const json_t *message)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    for (size_t i = 0; i < ROLE_COUNT && role != NULL; i++) {
        if (strcmp(role, roles[i]) == 0) return strcmp(role, "developer") == 0 ? "system" : roles[i];
    }
    fail(r, ".role", " must be one of system, developer, user, assistant and tool");
    return NULL;
}

/* A new message, or NULL with the failure. */
static json_t *read_message(const reader *r, const json_t *message)
{
    if (!json_is_object(message)) {
        fail(r, "", " must be an object");
        return NULL;
    }
    const char *role = read_role(r, message);
    json_t *content = role == NULL ? NULL : read_content(r, message, role);
    if (content == NULL) return NULL;
    json_t *out = json_pack("{s:s, s:o}", "role", role, "content", content);
    if (out == NULL) {
        lw__request_no_room(r->failure);
        return NULL;
    }
    if (read_calls(r, message, out) && pass_text(r, message, "reasoning_content", out) &&
        pass_text(r, message, "name", out) && pass_text(r, message, "tool_call_id", out))
        return out;
    json_decref(out);
    return NULL;
}

static json_t *read_messages(const json_t *root, lw_failure *failure)
{
    const json_t *messages = json_object_get(root, "messages");
    const size_t count = json_array_size(messages);
    if (!json_is_array(messages) || count == 0) {
        lw_failure_field(failure, "messages", "messages must be an array of at least one message");
        return NULL;
    }
    if (count > LW_LIMIT_MESSAGES) {
        lw_failure_field(failure, "messages", "%zu messages; at most %d are taken", count, LW_LIMIT_MESSAGES);
        return NULL;
    }
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        const reader r = { .failure = failure, .index = i };
        json_t *message = read_message(&r, json_array_get(messages, i));
        if (message == NULL || json_array_append_new(list, message) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* ---- tools and the template's variables ---- */

static bool read_tools(const json_t *root, json_t *out, lw_failure *failure)
{
    json_t *tools = json_object_get(root, "tools");
    if (tools == NULL || json_is_null(tools) || (json_is_array(tools) && json_array_size(tools) == 0))
        return true;
    if (!json_is_array(tools) || json_array_size(tools) > LW_LIMIT_TOOLS)
        return lw_failure_field(failure, "tools", "tools must be an array of at most %d tools",
                                LW_LIMIT_TOOLS);
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = json_object_get(json_array_get(tools, i), "function");
        if (!json_is_string(json_object_get(function, "name")))
            return lw_failure_field(failure, "tools", "tools[%zu] must be a function with a name", i);
    }
    const char *choice = json_string_value(json_object_get(root, "tool_choice"));
    if (choice != NULL && strcmp(choice, "none") == 0) return true;
    return json_object_set(out, "tools", tools) == 0 || lw__request_no_room(failure);
}

static bool read_tool_choice(const json_t *root, json_t *variables, lw_failure *failure)
{
    json_t *choice = json_object_get(root, "tool_choice");
    if (choice == NULL || json_is_null(choice)) return true;
    const char *word = json_string_value(choice);
    const bool is_word = word != NULL && (strcmp(word, "none") == 0 || strcmp(word, "auto") == 0 ||
                                          strcmp(word, "required") == 0);
    if (!is_word && !json_is_string(json_object_get(json_object_get(choice, "function"), "name")))
        return lw_failure_field(failure, "tool_choice", "tool_choice must be none, auto, required or name a "
                                "function");
    return json_object_set(variables, "tool_choice", choice) == 0 || lw__request_no_room(failure);
}

static bool read_effort(const json_t *root, json_t *variables, lw_failure *failure)
{
    static const char *const efforts[] = { "none", "minimal", "low", "medium", "high", "xhigh", "max" };
    json_t *effort = json_object_get(root, "reasoning_effort");
    if (effort == NULL || json_is_null(effort)) return true;
    for (size_t i = 0; i < sizeof efforts / sizeof efforts[0]; i++) {
        if (!json_is_string(effort) || strcmp(json_string_value(effort), efforts[i]) != 0) continue;
        return json_object_set(variables, "reasoning_effort", effort) == 0 || lw__request_no_room(failure);
    }
    return lw_failure_field(
        failure, "reasoning_effort",
        "reasoning_effort must be one of none, minimal, low, medium, high, xhigh and max");
}

static bool read_variables(const json_t *root, json_t *out, lw_failure *failure)
{
    const json_t *given = json_object_get(root, "chat_template_kwargs");
    if (given != NULL && !json_is_null(given) && !json_is_object(given))
        return lw_failure_field(failure, "chat_template_kwargs", "chat_template_kwargs must be an object, "
                                "not %s", lw__json_kind(given));
    json_t *variables = json_object();
    const bool is_read = read_tool_choice(root, variables, failure) && read_effort(root, variables, failure);
    if (is_read && json_is_object(given)) json_object_update(variables, (json_t *)(uintptr_t)given);
    if (!is_read || json_object_size(variables) == 0) {
        json_decref(variables);
        return is_read;
    }
    return json_object_set_new(out, "chat_template_kwargs", variables) == 0 || lw__request_no_room(failure);
}

static bool read_generation_prompt(const json_t *root, json_t *out, lw_failure *failure)
{
    json_t *flag = json_object_get(root, "add_generation_prompt");
    if (flag == NULL || json_is_null(flag)) return true;
    if (!json_is_boolean(flag))
        return lw_failure_field(failure, "add_generation_prompt",
                                "add_generation_prompt must be true or false, not %s", lw__json_kind(flag));
    return json_object_set(out, "add_generation_prompt", flag) == 0 || lw__request_no_room(failure);
}

bool lw__request_messages(lw_request *request, const json_t *root, lw_failure *failure)
{
    json_t *messages = read_messages(root, failure);
    if (messages == NULL) return false;
    json_t *out = json_pack("{s:o}", "messages", messages);
    if (out == NULL) return lw__request_no_room(failure);
    bool is_read = read_tools(root, out, failure) && read_variables(root, out, failure) &&
                   read_generation_prompt(root, out, failure);
    if (is_read) {
        request->chat = json_dumps(out, JSON_COMPACT);
        request->chat_count = request->chat == NULL ? 0 : strlen(request->chat);
        is_read = (request->chat != NULL && !lw_json_take_failure()) || lw__request_no_room(failure);
    }
    json_decref(out);
    return is_read;
}
