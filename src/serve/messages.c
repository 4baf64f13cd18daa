/* What a chat request asks of its template -> the JSON of lw_prompt_chat, which judges the conversation. Here
 * is what only HTTP clients say: tool_choice and reasoning_effort, which templates read as variables.
 */
#include "serve/request.h"

#include "base/json.h"

#include <string.h>

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

/* Variables of the client's own win. What is no object is passed on to be refused. */
static bool read_variables(const json_t *root, json_t *out, lw_failure *failure)
{
    json_t *given = json_object_get(root, "chat_template_kwargs");
    json_t *variables = json_object();
    if (variables == NULL) return lw__request_no_room(failure);
    bool is_read = read_tool_choice(root, variables, failure) && read_effort(root, variables, failure);
    const bool is_own = given != NULL && !json_is_null(given) && !json_is_object(given);
    if (is_read && json_is_object(given) && json_object_update(variables, given) != 0)
        is_read = lw__request_no_room(failure);
    if (is_read && json_object_set(out, "chat_template_kwargs", is_own ? given : variables) != 0)
        is_read = lw__request_no_room(failure);
    json_decref(variables);
    return is_read;
}

static bool pass(const json_t *root, const char *name, json_t *out, lw_failure *failure)
{
    json_t *value = json_object_get(root, name);
    return value == NULL || json_object_set(out, name, value) == 0 || lw__request_no_room(failure);
}

bool lw__request_messages(lw_request *request, const json_t *root, lw_failure *failure)
{
    const char *choice = json_string_value(json_object_get(root, "tool_choice"));
    const bool has_tools = choice == NULL || strcmp(choice, "none") != 0;
    json_t *out = json_object();
    if (out == NULL) return lw__request_no_room(failure);
    bool is_read = pass(root, "messages", out, failure) &&
                   pass(root, "add_generation_prompt", out, failure) && read_variables(root, out, failure);
    if (is_read && has_tools) is_read = pass(root, "tools", out, failure);
    if (is_read) {
        request->chat = json_dumps(out, JSON_COMPACT);
        request->chat_count = request->chat == NULL ? 0 : strlen(request->chat);
        is_read = (request->chat != NULL && !lw_json_take_failure()) || lw__request_no_room(failure);
    }
    json_decref(out);
    return is_read;
}
