/* From the tokens of one reply to the text that its client may see: ids -> text (lw_text_reader) -> stop
 * strings -> reasoning or content. Owned by the engine thread; one for each reply.
 */
#ifndef LW_SERVE_SPEECH_H
#define LW_SERVE_SPEECH_H

#include "serve/reasoning.h"
#include "serve/stops.h"

typedef struct lw_speech {
    const lw_model *model;
    lw_text_reader *reader;
    lw_stops stops;
    lw_reasoning reasoning;
    const char *think_open, *think_close; /* NULL: tags are not looked for */
    bool splits;                          /* false: reasoning and its tags stay in the content */
    uint32_t reasoning_tokens;
    uint32_t tokens, tokens_free; /* so far; those before any text that a stop string holds or took */
    lw_buf text; /* scratch */
} lw_speech;

typedef struct lw_speech_options {
    const lw_stop_text *stops; /* borrowed */
    size_t stop_count;
    bool splits, is_inside; /* is_inside: the prompt ends in an open reasoning block */
} lw_speech_options;

/* speech is closed whatever state it is in. */
lw_result lw_speech_open(lw_speech *speech, const lw_model *model, const lw_speech_options *options);
void lw_speech_close(lw_speech *speech);

/* What one token lets through: reasoning first, then content; either may be empty. */
typedef struct lw_spoken {
    lw_buf reasoning, content;
} lw_spoken;

/* Appends to spoken. After a stop string speech->stops.is_stopped is set. */
lw_result lw_speech_token(lw_speech *speech, int32_t id, lw_spoken *spoken) LW_MUST_USE;
/* The reply is over: what was held back. */
lw_result lw_speech_finish(lw_speech *speech, lw_spoken *spoken) LW_MUST_USE;

#endif
