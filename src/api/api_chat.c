/* Conversations as prompts: rendered with origins, encoded, and marked where later prompts may resume.
 *
 * A mark is only a place where a state is worth keeping, so a wrong one costs time and never a bit. Marks are
 * the tokens that open messages, and the place before the generation prompt: there the next turn parts from
 * this one.
 */
#include "api/api.h"

#include "base/limits.h"

#include <string.h>

#define THINK_OPEN "<think>"
#define THINK_CLOSE "</think>"

typedef struct rendered {
    lw_ids ids;
    bool is_thinking;
} rendered;

/* The bytes at the end of text that the template wrote itself. */
static lw_text trusted_tail(const lw_chat_prompt *prompt)
{
    const uint8_t *origins = (const uint8_t *)prompt->origins.bytes;
    size_t begin = prompt->text.count;
    while (begin > 0 && origins[begin - 1] == LW_ORIGIN_TRUSTED) begin--;
    return (lw_text){ .bytes = prompt->text.bytes + begin, .count = prompt->text.count - begin };
}

/* Where the last occurrence of word ends; 0: there is none. */
static size_t last_end(lw_text text, const char *word)
{
    const size_t count = strlen(word);
    size_t end = 0;
    for (const char *at = text.bytes; text.count > 0;) {
        const char *found = memmem(at, text.count - (size_t)(at - text.bytes), word, count);
        if (found == NULL) break;
        at = found + count;
        end = (size_t)(at - text.bytes);
    }
    return end;
}

static lw_status render(const lw_model *model, const lw_chat_input *input, rendered *out, lw_diag *d)
{
    lw_chat_prompt prompt;
    *out = (rendered){ .is_thinking = false };
    lw_status status = lw_chat_render(model->chat, input, &prompt, d);
    if (status != LW_OK) return status;
    const lw_text text = {
        .bytes = prompt.text.count > 0 ? prompt.text.bytes : "",
        .origins = (const uint8_t *)prompt.origins.bytes,
        .count = prompt.text.count,
    };
    const lw_encode_options options = {
        .specials = model->options.specials_anywhere ? LW_SPECIALS_ALWAYS : LW_SPECIALS_TRUSTED,
    };
    status = lw__api_encode(model, text, &options, &out->ids, d);
    const lw_text tail = trusted_tail(&prompt);
    out->is_thinking = last_end(tail, THINK_OPEN) > last_end(tail, THINK_CLOSE);
    lw_chat_prompt_deinit(&prompt);
    return status;
}

static bool is_prefix(const lw_ids *shorter, const lw_ids *longer)
{
    return shorter->count < longer->count
           && memcmp(shorter->ids, longer->ids, shorter->count * sizeof *shorter->ids) == 0;
}

/* ---- what opens a message ---- */

/* The special token that stands in longer where shorter ends; -1 when there is no such token. */
static int32_t token_after(const lw_model *model, const rendered *shorter, const rendered *longer)
{
    if (!is_prefix(&shorter->ids, &longer->ids)) return -1;
    const int32_t id = longer->ids.ids[shorter->ids.count];
    return lw_tokenizer_is_special(model->tokenizer, id) ? id : -1;
}

void lw__api_learn_opening(lw_model *model)
{
    model->opening = (lw__opening){ .id = -1 };
    json_t *one = json_pack("[{s:s,s:s}]", "role", "user", "content", "a");
    json_t *three = json_pack("[{s:s,s:s},{s:s,s:s},{s:s,s:s}]", "role", "user", "content", "a", "role",
                              "assistant", "content", "b", "role", "user", "content", "c");
    rendered first, opened, longer;
    lw_diag d;
    /* A template that refuses these conversations leaves the model without known openings. */
    lw_status status = render(model, &(lw_chat_input){ .messages = one }, &first, &d);
    if (status == LW_OK) {
        status = render(model, &(lw_chat_input){ .messages = three }, &longer, &d);
        if (status == LW_OK) model->opening.id = token_after(model, &first, &longer);
        lw_ids_deinit(&longer.ids);
        status =
            render(model, &(lw_chat_input){ .messages = one, .add_generation_prompt = true }, &opened, &d);
        const int32_t id = model->opening.id;
        if (status == LW_OK)
            model->opening.opens_reply = id >= 0 && token_after(model, &first, &opened) == id;
        lw_ids_deinit(&opened.ids);
    }
    lw_ids_deinit(&first.ids);
    json_decref(one);
    json_decref(three);
}

/* ---- marks ---- */

void lw__prompt_mark(lw_prompt *prompt, size_t position)
{
    if (position == 0 || position >= prompt->ids.count) return;
    const uint32_t count = prompt->mark_count;
    if (count > 0 && prompt->marks[count - 1] >= position) return;
    if (count == LW__API_MARKS_FIRST + LW__API_MARKS_LAST) {
        /* The oldest of the late ones goes. */
        memmove(prompt->marks + LW__API_MARKS_FIRST, prompt->marks + LW__API_MARKS_FIRST + 1,
                (LW__API_MARKS_LAST - 1) * sizeof prompt->marks[0]);
        prompt->marks[count - 1] = (uint32_t)position;
        return;
    }
    prompt->marks[prompt->mark_count++] = (uint32_t)position;
}

void lw__prompt_mark_openings(const lw_model *model, lw_prompt *prompt)
{
    for (size_t i = 1; i < prompt->ids.count && model->opening.id >= 0; i++) {
        if (prompt->ids.ids[i] == model->opening.id) lw__prompt_mark(prompt, i);
    }
}

static void marks_find(const lw_model *model, const lw_chat_input *input, lw_prompt *prompt)
{
    lw__prompt_mark_openings(model, prompt);
    if (model->opening.opens_reply || !input->add_generation_prompt) return;
    lw_chat_input without = *input;
    without.add_generation_prompt = false;
    rendered shorter;
    lw_diag d;
    if (render(model, &without, &shorter, &d) == LW_OK && is_prefix(&shorter.ids, &prompt->ids))
        lw__prompt_mark(prompt, shorter.ids.count);
    lw_ids_deinit(&shorter.ids);
}

const uint32_t *lw_prompt_read_marks(const lw_prompt *prompt, size_t *count)
{
    *count = prompt->mark_count;
    return prompt->marks;
}

static lw_result chat_make(const lw_model *model, const lw_chat_input *input, lw_prompt **out,
                           lw_error *error)
{
    lw_diag d;
    rendered whole;
    const lw_status status = render(model, input, &whole, &d);
    lw_prompt *prompt = status == LW_OK ? lw__prompt_make() : NULL;
    if (prompt == NULL) {
        lw_ids_deinit(&whole.ids);
        return status != LW_OK ? lw__api_status(error, status, "messages", &d)
                               : lw__api_fail(error, LW_RESULT_NO_ROOM, "", "no memory for a prompt");
    }
    prompt->ids = whole.ids;
    prompt->is_thinking = whole.is_thinking;
    if (prompt->ids.count == 0) {
        lw_prompt_free(prompt);
        return lw__api_fail(error, LW_RESULT_BAD_INPUT, "messages", "the chat template rendered no text");
    }
    marks_find(model, input, prompt);
    *out = prompt;
    return LW_RESULT_OK;
}

lw_result lw_prompt_chat(const lw_model *model, const char *request, size_t count, lw_prompt **out,
                         lw_error *error)
{
    *out = NULL;
    if (model->chat == NULL)
        return lw__api_fail(error, LW_RESULT_UNSUPPORTED, "messages",
                            "%s has no chat template; send the prompt as text or token ids",
                            lw_checkpoint_dir(model->checkpoint));
    lw__chat_request chat;
    lw_result result = lw__chat_request_read(request, count, &chat, error);
    if (result != LW_RESULT_OK) return result;
    const lw_chat_input input = {
        .messages = chat.messages,
        .tools = chat.tools,
        .kwargs = chat.kwargs,
        .add_generation_prompt = chat.add_generation_prompt,
    };
    result = chat_make(model, &input, out, error);
    lw__chat_request_deinit(&chat);
    return result;
}
