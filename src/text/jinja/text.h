/* Pieces of UTF-8 text with origins: steps, white space, trimming, searching. All texts here are valid UTF-8,
 * which the lexer and jansson have checked. Views are cut without copying, so their origins follow by
 * themselves.
 */
#ifndef LW_TEXT_JINJA_TEXT_H
#define LW_TEXT_JINJA_TEXT_H

#include "base/origin.h"

#include <string.h>

enum { LW_JINJA_CHAR_BYTES_MAX = 4 };

bool lw__jinja_is_utf8(const char *bytes, size_t count);

/* Bytes of the code point at bytes[0], count > 0. */
size_t lw__jinja_char_bytes(const char *bytes, size_t count);

/* The code point at bytes[0], count > 0. */
uint32_t lw__jinja_decode(const char *bytes, size_t count);

/* Writes at most LW_JINJA_CHAR_BYTES_MAX bytes; returns how many. */
size_t lw__jinja_encode(uint32_t code, char *to);

/* Bytes of the white space character (as Python's str.isspace has it) at bytes[0]; 0 when it is none. */
size_t lw__jinja_space_bytes(const char *bytes, size_t count);

/* Count of bytes that stay when white space goes from that side. */
size_t lw__jinja_trim_right(lw_text text);
size_t lw__jinja_trim_left(lw_text text);

/* Code points in text. */
size_t lw__jinja_length(lw_text text);

/* The first place of part in text at or after from, or SIZE_MAX. */
size_t lw__jinja_find(lw_text text, lw_text part, size_t from);

static inline lw_text text_cut(lw_text text, size_t begin, size_t end)
{
    return (lw_text){ .bytes = text.bytes + begin,
                      .origins = text.origins == NULL ? NULL : text.origins + begin,
                      .count = end - begin };
}

static inline lw_text text_literal(const char *bytes)
{
    return (lw_text){ .bytes = bytes, .count = strlen(bytes) };
}

static inline bool text_equal(lw_text a, lw_text b)
{
    return a.count == b.count && (a.count == 0 || memcmp(a.bytes, b.bytes, a.count) == 0);
}

static inline bool text_is(lw_text text, const char *word) { return text_equal(text, text_literal(word)); }

#endif
