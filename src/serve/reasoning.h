/* A reply's text in two channels: reasoning, until the tag that closes it, and content. The tags are tokens,
 * so text that merely spells one stays text. Line ends beside a tag belong to the tag: chat templates write
 * them anew.
 *
 *   START -> REASONING -> CONTENT      START -> CONTENT      (lw_reasoning_open, _close and _text move)
 */
#ifndef LW_SERVE_REASONING_H
#define LW_SERVE_REASONING_H

#include "base/buf.h"

typedef enum lw_channel { LW_CHANNEL_CONTENT, LW_CHANNEL_REASONING } lw_channel;

typedef enum lw_reasoning_state {
    LW_REASONING_START, /* nothing but white space so far: an opening tag may come */
    LW_REASONING_INSIDE,
    LW_REASONING_AFTER,
} lw_reasoning_state;

typedef struct lw_reasoning {
    lw_reasoning_state state;
    bool at_begin;     /* of a channel beside a tag: line ends are dropped */
    size_t lines_held; /* line ends at the end of the reasoning so far: dropped if the tag follows */
} lw_reasoning;

/* is_inside: the prompt opened the reasoning. */
lw_reasoning lw_reasoning_make(bool is_inside);

lw_channel lw_reasoning_channel(const lw_reasoning *reasoning);

/* Appends to out what of bytes[0, count) is sent now, in the channel of the state as it was before. */
lw_status lw_reasoning_text(lw_reasoning *reasoning, const char *bytes, size_t count, lw_buf *out)
    LW_MUST_USE;

/* The opening tag came; false: it is no opening here, and stays text. */
bool lw_reasoning_open(lw_reasoning *reasoning) LW_MUST_USE;
/* The closing tag came; false as above. */
bool lw_reasoning_close(lw_reasoning *reasoning) LW_MUST_USE;

#endif
