/* Chat templates: a conversation in JSON becomes the prompt text that the model was trained on.
 * Parsed once, then read-only; rendering allocates from its own arena and is safe in several threads at once.
 * Values that come from the conversation are marked as outside data byte by byte (base/origin.h); text that
 * stands in the template, bos_token and the like is trusted.
 */
#ifndef LW_TEXT_CHAT_H
#define LW_TEXT_CHAT_H

#include "base/buf.h"
#include "base/origin.h"
#include "base/status.h"

#include <jansson.h>

typedef struct lw_chat_template lw_chat_template;

/* Parses source. bos_token and eos_token (NULL: "") are what the template sees under those names; both are
 * copied. */
lw_status lw_chat_template_parse(const char *source, size_t count, const char *name, const char *bos_token,
                                 const char *eos_token, lw_chat_template **out, lw_diag *d) LW_MUST_USE;

/* Finds the template of a model folder: chat_template.jinja, chat_template.json, else "chat_template" of
 * tokenizer_config.json (a string, or a list of {name, template}: the one named "default"). LW_NOT_FOUND if
 * none. */
lw_status lw_chat_template_open(const char *model_dir, lw_chat_template **out, lw_diag *d) LW_MUST_USE;
void lw_chat_template_close(lw_chat_template *chat);

typedef struct lw_chat_input {
    const json_t *messages;        /* array of objects; borrowed */
    const json_t *tools;           /* array or NULL (the template sees none) */
    const json_t *kwargs; /* object of extra variables (enable_thinking, reasoning_effort...), or NULL;
                             trusted names, outside values */
    bool add_generation_prompt;
} lw_chat_input;

/* A rendered prompt. Owned by the caller. */
typedef struct lw_chat_prompt {
    lw_buf text;
    lw_buf origins;                /* one byte per text byte: LW_ORIGIN_* */
} lw_chat_prompt;

void lw_chat_prompt_deinit(lw_chat_prompt *prompt);

/* Renders. A template that raises gives LW_BAD_INPUT with the template's own words. */
lw_status lw_chat_render(const lw_chat_template *chat, const lw_chat_input *input, lw_chat_prompt *out,
                         lw_diag *d) LW_MUST_USE;

#endif
