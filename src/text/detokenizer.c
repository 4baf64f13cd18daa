/* Ids to text, a token at a time. Bytes of a code point that is not complete wait; nothing else does, so that
 * the pieces together are what decoding all ids at once would give.
 */
#include "text/text_internal.h"

#include <string.h>

_Static_assert(sizeof((lw_detokenizer *)0)->pending == 4, "a code point has at most 4 bytes");

/* Puts out what the pending bytes begin with until they are the beginning of one code point, or none. */
static lw_status pending_settle(lw_detokenizer *detokenizer, bool at_end, lw_buf *out)
{
    while (detokenizer->pending_count > 0) {
        size_t used;
        const char *pending = (const char *)detokenizer->pending;
        const lw__utf8 kind = lw__utf8_scan(pending, detokenizer->pending_count, &used);
        if (kind == LW__UTF8_PART && !at_end) return LW_OK;
        const lw_status status = kind == LW__UTF8_WHOLE ? lw_buf_append(out, pending, used)
                                                        : lw_buf_append(out, "\xEF\xBF\xBD", 3);
        if (status != LW_OK) return status;
        detokenizer->pending_count = (uint8_t)(detokenizer->pending_count - used);
        memmove(detokenizer->pending, detokenizer->pending + used, detokenizer->pending_count);
    }
    return LW_OK;
}

/* Undoes what a failed call did. */
static lw_status give_up(lw_detokenizer *detokenizer, lw_detokenizer before, lw_buf *out, size_t count)
{
    *detokenizer = before;
    out->count = count;
    if (out->bytes != NULL) out->bytes[count] = '\0';
    return LW_NO_ROOM;
}

lw_status lw_detokenizer_push(lw_detokenizer *detokenizer, const lw_tokenizer *tokenizer, int32_t id,
                              lw_buf *out)
{
    LW_ASSERT(detokenizer->pending_count < sizeof detokenizer->pending);
    if (!detokenizer->show_specials && lw_tokenizer_is_special(tokenizer, id)) return LW_OK;
    const lw_text token = lw_tokenizer_bytes(tokenizer, id);
    const lw_detokenizer before = *detokenizer;
    const size_t count = out->count;
    for (size_t i = 0; i < token.count; i++) {
        detokenizer->pending[detokenizer->pending_count++] = (uint8_t)token.bytes[i];
        if (pending_settle(detokenizer, false, out) != LW_OK) return give_up(detokenizer, before, out, count);
    }
    return LW_OK;
}

lw_status lw_detokenizer_finish(lw_detokenizer *detokenizer, lw_buf *out)
{
    const lw_detokenizer before = *detokenizer;
    const size_t count = out->count;
    if (pending_settle(detokenizer, true, out) != LW_OK) return give_up(detokenizer, before, out, count);
    return LW_OK;
}
