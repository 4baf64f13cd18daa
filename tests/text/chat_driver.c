/* Renders chat templates for tests/text/test_chat_jinja2.py: one JSON object a line on stdin, one a line on
 * stdout. In:  {template | template_path | model_dir, messages, tools, kwargs, add_generation_prompt,
 * bos_token, eos_token} Out: {text, origins: "0" and "1" a byte} or {error, status}
 */
#include "text/chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *text_of(const json_t *job,
                           const char *name) { return json_string_value(json_object_get(job, name)); }

static lw_status open_file(const char *path, const json_t *job, lw_chat_template **chat, lw_diag *d)
{
    char source[1 << 16];
    FILE *file = fopen(path, "rb");
    if (file == NULL) return lw_fail(d, LW_NOT_FOUND, "%s: cannot be opened", path);
    const size_t count = fread(source, 1, sizeof source, file);
    fclose(file);
    return lw_chat_template_parse(source, count, path, text_of(job, "bos_token"), text_of(job, "eos_token"),
                                  chat, d);
}

static lw_status open_template(const json_t *job, lw_chat_template **chat, lw_diag *d)
{
    const json_t *source = json_object_get(job, "template");
    if (text_of(job, "model_dir") != NULL) return lw_chat_template_open(text_of(job, "model_dir"), chat, d);
    if (text_of(job, "template_path") != NULL) return open_file(text_of(job, "template_path"), job, chat, d);
    if (!json_is_string(source)) return lw_fail(d, LW_BAD_INPUT, "no template");
    return lw_chat_template_parse(json_string_value(source), json_string_length(source), "template",
                                  text_of(job, "bos_token"), text_of(job, "eos_token"), chat, d);
}

static json_t *report(const lw_chat_prompt *prompt)
{
    json_t *out = json_object();
    char *marks = malloc(prompt->text.count + 1);
    if (marks == NULL) abort();
    for (size_t i = 0; i < prompt->text.count; i++)
        marks[i] = prompt->origins.bytes[i] == LW_ORIGIN_OUTSIDE ? '1' : '0';
    json_object_set_new(out, "text", json_stringn(prompt->text.bytes == NULL ? "" : prompt->text.bytes,
                                                  prompt->text.count));
    json_object_set_new(out, "origins", json_stringn(marks, prompt->origins.count));
    free(marks);
    return out;
}

static json_t *answer(const json_t *job)
{
    lw_diag d;
    lw_chat_template *chat = NULL;
    lw_chat_prompt prompt = { 0 };
    const lw_chat_input input = {
        .messages = json_object_get(job, "messages"),
        .tools = json_is_null(json_object_get(job, "tools")) ? NULL : json_object_get(job, "tools"),
        .kwargs = json_is_null(json_object_get(job, "kwargs")) ? NULL : json_object_get(job, "kwargs"),
        .add_generation_prompt = json_is_true(json_object_get(job, "add_generation_prompt")),
    };
    lw_status status = open_template(job, &chat, &d);
    if (status == LW_OK) status = lw_chat_render(chat, &input, &prompt, &d);
    json_t *out = status == LW_OK ? report(&prompt)
                                  : json_pack("{s:s, s:s}", "error", d.text, "status",
                                              lw_status_name(status));
    lw_chat_prompt_deinit(&prompt);
    lw_chat_template_close(chat);
    return out != NULL ? out : json_pack("{s:s, s:s}", "error", "not UTF-8", "status", "bad output");
}

int main(void)
{
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, stdin) > 0) {
        json_t *job = json_loads(line, JSON_ALLOW_NUL, NULL);
        json_t *out = job == NULL
            ? json_pack("{s:s, s:s}", "error", "a line is not JSON", "status", "bad job")
                                  : answer(job);
        char *text = json_dumps(out, JSON_COMPACT);
        if (text == NULL) abort();
        puts(text);
        fflush(stdout);
        free(text);
        json_decref(out);
        json_decref(job);
    }
    free(line);
    return 0;
}
