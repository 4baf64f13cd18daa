/* UTF-8 and NFC as the tokenizer needs them: well-formedness, repair, and normalisation that keeps origins in
 * step. Used inside src/text only.
 */
#ifndef LW_TEXT_UNICODE_H
#define LW_TEXT_UNICODE_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/origin.h"

typedef enum lw__utf8 {
    LW__UTF8_WHOLE, /* a code point */
    LW__UTF8_PART,  /* the beginning of one: more bytes may complete it */
    LW__UTF8_BAD,   /* a maximal ill-formed part */
} lw__utf8;

/* What bytes[0, count), count > 0, begins with; *used is its byte count. */
lw__utf8 lw__utf8_scan(const char *bytes, size_t count, size_t *used);

/* True if the bytes are well-formed UTF-8. */
bool lw__utf8_valid(const char *bytes, size_t count);

/* The code point at bytes, which is well-formed; *used is its byte count. */
uint32_t lw__utf8_decode(const char *bytes, size_t *used);

/* Writes 1 to 4 bytes; returns how many. */
size_t lw__utf8_encode(uint32_t point, char bytes[4]);

/* The White_Space property of Unicode. */
bool lw__is_white(uint32_t point);

/* A text under construction; origins stay empty when the source has none. */
typedef struct lw__text_buf {
    lw_buf bytes;
    lw_buf origins;
} lw__text_buf;

void lw__text_buf_deinit(lw__text_buf *buf);
lw_text lw__text_buf_view(const lw__text_buf *buf, bool has_origins);

/* Replaces each maximal ill-formed part by U+FFFD; out is cleared first. */
lw_status lw__utf8_repair(lw_text text, lw__text_buf *out) LW_MUST_USE;

typedef struct lw__nfc lw__nfc;             /* which code points NFC may change; one for a tokenizer */
typedef struct lw__nfc_item lw__nfc_item;

typedef struct lw__nfc_scratch {
    lw__nfc_item *items;                    /* [room] the run at work */
    lw__nfc_item *sorted;                   /* [room] */
    size_t room;
} lw__nfc_scratch;

lw__nfc *lw__nfc_make(lw_arena *arena);

/* True if NFC leaves the well-formed text as it is; false means that it may not. */
bool lw__nfc_is_plain(const lw__nfc *nfc, const char *bytes, size_t count);

/* Normalises well-formed text; an output code point is outside if any code point that went into it is. */
lw_status lw__nfc_apply(const lw__nfc *nfc, lw__nfc_scratch *scratch, lw_text text, lw__text_buf *out)
    LW_MUST_USE;

#endif
