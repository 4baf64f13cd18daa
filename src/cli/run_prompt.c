/* Prompts of `lanewise run`: from an option, a file or standard input to ids. */
#include "cli/run.h"

#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

lw_status lw_run_add_message(json_t *messages, const char *role, const char *text, size_t count, lw_diag *d)
{
    json_t *content = json_stringn(text, count);
    if (content == NULL && !lw_json_take_failure()) {
        return lw_fail(d, LW_BAD_INPUT,
                       "the %s message is not valid UTF-8; convert it, or use --raw, which replaces broken "
                       "bytes",
                       role);
    }
    if (json_array_append_new(messages, json_pack("{s:s, s:o}", "role", role, "content", content)) == 0)
        return LW_OK;
    return lw_fail(d, LW_NO_ROOM, "no memory for a message of %zu bytes", count);
}

static lw_status encode(lw_run *run, lw_text text, const lw_encode_options *options, lw_ids *out, lw_diag *d)
{
    return lw_tokenizer_encode(run->model.tokenizer, run->model.scratch, text, options, out, d);
}

lw_status lw_run_chat_ids(lw_run *run, const json_t *messages, lw_ids *out, lw_diag *d)
{
    if (run->model.chat == NULL) {
        return lw_fail(d, LW_UNSUPPORTED, "%s has no chat template; --raw sends the text as it is",
                       lw_checkpoint_dir(run->model.checkpoint));
    }
    /* Without the option the template's own default holds: the variable stays undefined. */
    json_t *kwargs = run->no_think ? json_pack("{s:b}", "enable_thinking", 0) : NULL;
    const lw_chat_input input = { .messages = messages, .kwargs = kwargs, .add_generation_prompt = true };
    lw_chat_prompt prompt;
    lw_status status = lw_chat_render(run->model.chat, &input, &prompt, d);
    json_decref(kwargs);
    if (status != LW_OK) return status;
    const lw_text text = {
        .bytes = prompt.text.bytes,
        .origins = (const uint8_t *)prompt.origins.bytes,
        .count = prompt.text.count,
    };
    const lw_encode_options options = {
        .specials = run->trust_specials ? LW_SPECIALS_ALWAYS : LW_SPECIALS_TRUSTED,
    };
    status = encode(run, text, &options, out, d);
    lw_chat_prompt_deinit(&prompt);
    return status;
}

static lw_status one_turn(lw_run *run, const char *text, size_t count, lw_ids *out, lw_diag *d)
{
    json_t *messages = json_array();
    const char *system = run->system;
    lw_status status = LW_OK;
    if (system != NULL) status = lw_run_add_message(messages, "system", system, strlen(system), d);
    if (status == LW_OK) status = lw_run_add_message(messages, "user", text, count, d);
    if (status == LW_OK) status = lw_run_chat_ids(run, messages, out, d);
    json_decref(messages);
    return status;
}

static lw_status text_ids(lw_run *run, const char *text, size_t count, lw_ids *out, lw_diag *d)
{
    if (!run->raw) return one_turn(run, text, count, out, d);
    const lw_encode_options options = {
        .specials = run->no_specials ? LW_SPECIALS_NEVER : LW_SPECIALS_ALWAYS,
        .post_process = true,
    };
    return encode(run, (lw_text){ .bytes = text, .count = count }, &options, out, d);
}

static lw_status list_ids(const json_t *list, const char *name, lw_ids *out, lw_diag *d)
{
    if (!json_is_array(list)) return lw_fail(d, LW_BAD_INPUT, "%s: not a JSON list of token ids", name);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const json_int_t id = json_is_integer(item) ? json_integer_value(item) : -1;
        if (id < 0 || id >= LW_LIMIT_VOCAB) {
            return lw_fail(d, LW_BAD_INPUT, "%s: item %zu is not a token id (a whole number from 0 to %d)",
                           name, i, LW_LIMIT_VOCAB - 1);
        }
        if (lw_ids_append(out, (int32_t)id) != LW_OK) return lw_fail(d, LW_NO_ROOM, "%s: no memory", name);
    }
    return LW_OK;
}

static lw_status file_ids(const char *path, lw_ids *out, lw_diag *d)
{
    const bool is_stdin = strcmp(path, "-") == 0;
    const char *name = is_stdin ? "standard input" : path;
    const int file = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return lw_fail(d, LW_IO, "%s: %s", path, strerror(errno));
    char *bytes = NULL;
    size_t count = 0;
    lw_status status = lw_read_all(file, name, LW_LIMIT_PROMPT_BYTES, &bytes, &count, d);
    if (!is_stdin) close(file);
    if (status != LW_OK) return status;
    json_error_t error;
    json_t *list = lw_json_load(bytes, count, 0, &error);
    if (list == NULL && error.text[0] == '\0') {
        status = lw_fail(d, LW_NO_ROOM, "%s: no memory to read it", name);
    } else if (list == NULL) {
        status = lw_fail(d, LW_BAD_INPUT, "%s: line %d: %s; expected a JSON list of token ids", name,
                         error.line, error.text);
    } else {
        status = list_ids(list, name, out, d);
    }
    json_decref(list);
    free(bytes);
    return status;
}

bool lw_run_is_blank(const char *bytes, size_t count)
{
    size_t at = 0;
    while (at < count && memchr(" \t\n\v\f\r", bytes[at], 6) != NULL) at++;
    return at == count;
}

lw_status lw_run_prompt_ids(lw_run *run, lw_ids *out, lw_diag *d)
{
    if (run->ids_path != NULL) return file_ids(run->ids_path, out, d);
    if (run->text != NULL) return text_ids(run, run->text, strlen(run->text), out, d);
    char *bytes = NULL;
    size_t count = 0;
    lw_status status = lw_read_all(STDIN_FILENO, "standard input", LW_LIMIT_PROMPT_BYTES, &bytes, &count, d);
    if (status != LW_OK) return status;
    /* A turn is what was said: the line end that echo adds is not part of it. A raw prompt is taken to the
     * byte. */
    if (!run->raw && count > 0 && bytes[count - 1] == '\n') count--;
    if (run->raw ? count == 0 : lw_run_is_blank(bytes, count)) {
        status = lw_fail(d, LW_BAD_INPUT,
                         "standard input is %s; give -p TEXT, --ids FILE, --chat, or text on standard input",
                         count == 0 ? "empty" : "white space alone");
    } else {
        status = text_ids(run, bytes, count, out, d);
    }
    free(bytes);
    return status;
}
