/* Chat templates of model folders, rendered by text/jinja; see chat.h. */
#include "text/chat.h"

#include "base/json.h"
#include "base/limits.h"
#include "text/jinja/jinja.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES_MAX = 4096, KWARGS_MAX = 256 };

struct lw_chat_template {
    lw_jinja *program;
    char *bos_token;
    char *eos_token;
};

void lw_chat_template_close(lw_chat_template *chat)
{
    if (chat == NULL) return;
    lw_jinja_free(chat->program);
    free(chat->bos_token);
    free(chat->eos_token);
    free(chat);
}

lw_status lw_chat_template_parse(const char *source, size_t count, const char *name, const char *bos_token,
                                 const char *eos_token, lw_chat_template **out, lw_diag *d)
{
    *out = NULL;
    lw_chat_template *chat = calloc(1, sizeof *chat);
    if (chat == NULL) return lw_fail(d, LW_NO_ROOM, "%s: no memory for a chat template", name);
    chat->bos_token = strdup(bos_token == NULL ? "" : bos_token);
    chat->eos_token = strdup(eos_token == NULL ? "" : eos_token);
    lw_status status = chat->bos_token == NULL || chat->eos_token == NULL
                           ? lw_fail(d, LW_NO_ROOM, "%s: no memory for a chat template", name)
                           : lw_jinja_parse(source, count, name, &chat->program, d);
    if (status != LW_OK) {
        lw_chat_template_close(chat);
        return status;
    }
    *out = chat;
    return LW_OK;
}

/* Reads a file whole into an empty buffer. */
static lw_status read_file(const char *path, lw_buf *out, lw_diag *d)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return lw_fail(d, errno == ENOENT ? LW_NOT_FOUND : LW_IO, "%s: %s", path, strerror(errno));
    lw_status status = LW_OK;
    char block[65536];
    size_t count;
    while (status == LW_OK && (count = fread(block, 1, sizeof block, file)) > 0)
        status = lw_buf_append(out, block, count);
    if (status != LW_OK) lw_fail(d, status, "%s: no memory, or more than %zu bytes", path, out->count_max);
    else if (ferror(file)) status = lw_fail(d, LW_IO, "%s: %s", path, strerror(errno));
    fclose(file);
    return status;
}

static lw_status folder_path(const char *model_dir, const char *file, char to[static PATH_BYTES_MAX],
                             lw_diag *d)
{
    const int count = snprintf(to, PATH_BYTES_MAX, "%s/%s", model_dir, file);
    if (count > 0 && count < PATH_BYTES_MAX) return LW_OK;
    return lw_fail(d, LW_BAD_INPUT, "%s: the path is too long", model_dir);
}

static lw_status read_json(const char *model_dir, const char *file, json_t **out, lw_diag *d)
{
    char path[PATH_BYTES_MAX];
    lw_buf text;
    lw_buf_init(&text, LW_LIMIT_CONFIG_BYTES);
    lw_status status = folder_path(model_dir, file, path, d);
    if (status == LW_OK) status = read_file(path, &text, d);
    if (status == LW_OK) {
        json_error_t error = { .text = "" };
        *out = lw_json_load(text.bytes == NULL ? "" : text.bytes, text.count, 0, &error);
        if (*out == NULL && error.text[0] == '\0') /* nothing is wrong with the text itself */
            status = lw_fail(d, LW_NO_ROOM, "%s: no memory to read it", path);
        else if (*out == NULL)
            status = lw_fail(d, LW_BAD_MODEL, "%s: line %d: %s", path, error.line, error.text);
    }
    lw_buf_deinit(&text);
    return status;
}

/* A special token is a string, or an object with its text under "content". */
static const char *special_token(const json_t *config, const char *name)
{
    const json_t *token = json_object_get(config, name);
    if (json_is_object(token)) token = json_object_get(token, "content");
    return json_string_value(token);
}

/* "chat_template": a string, or a list of {name, template}. NULL when there is none. */
static const json_t *template_of(const json_t *config)
{
    const json_t *entry = json_object_get(config, "chat_template");
    if (!json_is_array(entry)) return json_is_string(entry) ? entry : NULL;
    for (size_t i = 0; i < json_array_size(entry); i++) {
        const json_t *named = json_array_get(entry, i);
        const char *name = json_string_value(json_object_get(named, "name"));
        const json_t *source = json_object_get(named, "template");
        if (name != NULL && strcmp(name, "default") == 0 && json_is_string(source)) return source;
    }
    return NULL;
}

/* What rendering reads of tokenizer_config.json has the types that exporters write; config may be NULL. */
static lw_status config_check(const json_t *config, const char *model_dir, lw_diag *d)
{
    static const char *const tokens[] = { "bos_token", "eos_token" };
    if (config == NULL) return LW_OK;
    if (!json_is_object(config))
        return lw_fail(d, LW_BAD_MODEL, "%s/tokenizer_config.json: not an object", model_dir);
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        const json_t *token = json_object_get(config, tokens[i]);
        if (token == NULL || json_is_null(token) || special_token(config, tokens[i]) != NULL) continue;
        return lw_fail(d, LW_BAD_MODEL,
                       "%s/tokenizer_config.json: %s is neither a string nor an object with a \"content\"",
                       model_dir, tokens[i]);
    }
    const json_t *entry = json_object_get(config, "chat_template");
    if (entry == NULL || json_is_null(entry) || json_is_string(entry) || json_is_array(entry)) return LW_OK;
    return lw_fail(d, LW_BAD_MODEL, "%s/tokenizer_config.json: chat_template is neither a string nor a list",
                   model_dir);
}

/* The template's text from the first place that has one; name becomes the file it came from. */
static lw_status find_source(const char *model_dir, const json_t *config, lw_buf *source,
                             char name[static PATH_BYTES_MAX], lw_diag *d)
{
    lw_status status = folder_path(model_dir, "chat_template.jinja", name, d);
    if (status == LW_OK) status = read_file(name, source, d);
    if (status != LW_NOT_FOUND) return status;
    json_t *file = NULL;
    status = read_json(model_dir, "chat_template.json", &file, d);
    if (status != LW_OK && status != LW_NOT_FOUND) return status;
    const json_t *found = template_of(file);
    const char *from = found != NULL ? "chat_template.json" : "tokenizer_config.json";
    if (found == NULL) found = template_of(config);
    if (found == NULL) status = lw_fail(d, LW_NOT_FOUND, "%s: no chat template in the folder", model_dir);
    else status = folder_path(model_dir, from, name, d);
    if (status == LW_OK &&
        lw_buf_append(source, json_string_value(found), json_string_length(found)) != LW_OK)
        status = lw_fail(d, LW_NO_ROOM, "%s: a template of more than %zu bytes", name, source->count_max);
    json_decref(file);
    return status;
}

lw_status lw_chat_template_open(const char *model_dir, lw_chat_template **out, lw_diag *d)
{
    char name[PATH_BYTES_MAX];
    json_t *config = NULL;
    lw_buf source;
    *out = NULL;
    lw_buf_init(&source, LW_LIMIT_TEMPLATE_BYTES);
    lw_status status = read_json(model_dir, "tokenizer_config.json", &config, d);
    if (status == LW_OK) status = config_check(config, model_dir, d);
    if (status == LW_OK || status == LW_NOT_FOUND) status = find_source(model_dir, config, &source, name, d);
    if (status == LW_OK)
        status = lw_chat_template_parse(source.bytes == NULL ? "" : source.bytes, source.count, name,
                                        special_token(config, "bos_token"),
                                        special_token(config, "eos_token"), out, d);
    lw_buf_deinit(&source);
    json_decref(config);
    return status;
}

void lw_chat_prompt_deinit(lw_chat_prompt *prompt)
{
    lw_buf_deinit(&prompt->text);
    lw_buf_deinit(&prompt->origins);
}

/* The variables that the request itself sets; kwargs may not name them. */
enum { VAR_MESSAGES, VAR_TOOLS, VAR_PROMPT, OWN_COUNT, VAR_DOCUMENTS = OWN_COUNT, VAR_BOS, VAR_EOS,
    FIXED_COUNT };

static lw_status add_kwargs(const json_t *kwargs, lw_jinja_variable *variables, size_t *count, lw_diag *d)
{
    if (kwargs == NULL) return LW_OK;
    if (!json_is_object(kwargs)) return lw_fail(d, LW_BAD_INPUT, "template arguments are an object of names");
    if (json_object_size(kwargs) > KWARGS_MAX)
        return lw_fail(d, LW_BAD_INPUT, "%zu template arguments; at most %d", json_object_size(kwargs),
                       KWARGS_MAX);
    json_t *object = (json_t *)(uintptr_t)kwargs; /* jansson iterates over objects without changing them */
    for (void *at = json_object_iter(object); at != NULL; at = json_object_iter_next(object, at)) {
        const char *name = json_object_iter_key(at);
        for (size_t i = 0; i < OWN_COUNT; i++)
            if (strcmp(name, variables[i].name) == 0)
                return lw_fail(d, LW_BAD_INPUT, "template argument '%s' is set by the request itself", name);
        variables[(*count)++] = (lw_jinja_variable){ .name = name, .json = json_object_iter_value(at) };
    }
    return LW_OK;
}

lw_status lw_chat_render(const lw_chat_template *chat, const lw_chat_input *input, lw_chat_prompt *out,
                         lw_diag *d)
{
    json_t *none = json_null(); /* a static object of jansson */
    lw_jinja_variable variables[FIXED_COUNT + KWARGS_MAX] = {
        [VAR_MESSAGES] = { .name = "messages", .json = input->messages },
        [VAR_TOOLS] = { .name = "tools", .json = input->tools == NULL ? none : input->tools },
        [VAR_PROMPT] = { .name = "add_generation_prompt", .truth = input->add_generation_prompt },
        [VAR_DOCUMENTS] = { .name = "documents", .json = none },
        [VAR_BOS] = { .name = "bos_token", .text = chat->bos_token },
        [VAR_EOS] = { .name = "eos_token", .text = chat->eos_token },
    };
    size_t count = FIXED_COUNT;
    *out = (lw_chat_prompt){ 0 };
    lw_buf_init(&out->text, LW_LIMIT_PROMPT_BYTES);
    lw_buf_init(&out->origins, LW_LIMIT_PROMPT_BYTES);
    if (!json_is_array(input->messages)) return lw_fail(d, LW_BAD_INPUT, "messages are an array of objects");
    lw_status status = add_kwargs(input->kwargs, variables, &count, d);
    const lw_jinja_input whole = { .variables = variables, .count = count,
        .limits = lw_jinja_limits_default() };
    if (status == LW_OK) status = lw_jinja_render(chat->program, &whole, &out->text, &out->origins, d);
    if (status != LW_OK) lw_chat_prompt_deinit(out);
    return status;
}
