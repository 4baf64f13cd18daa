/* Reasoning in replies: text between <think> and </think>. Used for dimming while a reply streams and for
 * keeping what was thought apart in a conversation's history.
 */
#ifndef LW_CLI_THINK_H
#define LW_CLI_THINK_H

#include "base/status.h"

#define LW_THINK_OPEN "<think>"
#define LW_THINK_CLOSE "</think>"

/* Follows a text that comes in pieces of any cut. Zero it, with inside as the prompt left it. */
typedef struct lw_think {
    bool inside;
    uint32_t matched; /* bytes of the expected tag that the last bytes are */
} lw_think;

/* The count of bytes up to and with the next tag that changes inside, or all of them; inside is then as after
 * it. */
size_t lw_think_scan(lw_think *think, const char *bytes, size_t count);

/* True if the text, white space at its end left out, ends with the opening tag. */
bool lw_think_ends_open(const char *bytes, size_t count);

/* A reply in two parts, views into it. Without a closed block reasoning is NULL and everything is content. */
typedef struct lw_think_parts {
    const char *reasoning;
    size_t reasoning_bytes;
    const char *content;
    size_t content_bytes;
} lw_think_parts;

/* is_inside: the prompt opened the block, so that text starts in it. */
lw_think_parts lw_think_split(const char *text, size_t count, bool is_inside);

#endif
