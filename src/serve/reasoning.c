/* Two channels; see reasoning.h. */
#include "serve/reasoning.h"

lw_reasoning lw_reasoning_make(bool is_inside)
{
    return (lw_reasoning){ .state = is_inside ? LW_REASONING_INSIDE : LW_REASONING_START,
                           .at_begin = is_inside };
}

lw_channel lw_reasoning_channel(const lw_reasoning *reasoning)
{
    return reasoning->state == LW_REASONING_INSIDE ? LW_CHANNEL_REASONING : LW_CHANNEL_CONTENT;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static lw_status put_lines(lw_reasoning *reasoning, lw_buf *out)
{
    for (; reasoning->lines_held > 0; reasoning->lines_held--) {
        const lw_status status = lw_buf_append(out, "\n", 1);
        if (status != LW_OK) return status;
    }
    return LW_OK;
}

lw_status lw_reasoning_text(lw_reasoning *reasoning, const char *bytes, size_t count, lw_buf *out)
{
    size_t at = 0;
    while (reasoning->at_begin && at < count && bytes[at] == '\n') at++;
    if (at < count) reasoning->at_begin = false;
    if (reasoning->state != LW_REASONING_INSIDE) {
        for (size_t i = at; i < count && reasoning->state == LW_REASONING_START; i++) {
            if (!is_blank(bytes[i])) reasoning->state = LW_REASONING_AFTER;
        }
        return lw_buf_append(out, bytes + at, count - at);
    }
    size_t end = count;
    while (end > at && bytes[end - 1] == '\n') end--;
    if (end > at) {
        lw_status status = put_lines(reasoning, out);
        if (status == LW_OK) status = lw_buf_append(out, bytes + at, end - at);
        if (status != LW_OK) return status;
    }
    reasoning->lines_held += count - end;
    return LW_OK;
}

bool lw_reasoning_open(lw_reasoning *reasoning)
{
    if (reasoning->state != LW_REASONING_START) return false;
    *reasoning = lw_reasoning_make(true);
    return true;
}

bool lw_reasoning_close(lw_reasoning *reasoning)
{
    if (reasoning->state != LW_REASONING_INSIDE) return false;
    *reasoning = (lw_reasoning){ .state = LW_REASONING_AFTER, .at_begin = true };
    return true;
}
