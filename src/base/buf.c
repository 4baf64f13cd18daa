/* Growable byte buffer; see buf.h. */
#include "base/buf.h"

#include "base/size.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM_BYTES_MIN = 64 };

void lw_buf_init(lw_buf *buf, size_t count_max)
{
    *buf = (lw_buf){ .count_max = count_max };
}

void lw_buf_deinit(lw_buf *buf)
{
    free(buf->bytes);
    buf->bytes = NULL;
    buf->count = buf->room = 0;
}

void lw_buf_clear(lw_buf *buf)
{
    buf->count = 0;
    if (buf->bytes != NULL) buf->bytes[0] = '\0';
}

lw_status lw_buf_reserve(lw_buf *buf, size_t more)
{
    size_t count, whole;
    if (!size_add(buf->count, more, &count) || !size_add(count, 1, &whole)) return LW_NO_ROOM;
    if (buf->count_max != 0 && count > buf->count_max) return LW_NO_ROOM;
    if (whole <= buf->room) return LW_OK;
    size_t room = size_max(buf->room, ROOM_BYTES_MIN);
    while (room < whole) {
        if (!size_mul(room, 2, &room)) return LW_NO_ROOM;
    }
    char *bytes = realloc(buf->bytes, room);
    if (bytes == NULL) return LW_NO_ROOM;
    buf->bytes = bytes;
    buf->room = room;
    buf->bytes[buf->count] = '\0';
    return LW_OK;
}

lw_status lw_buf_append(lw_buf *buf, const void *bytes, size_t count)
{
    const lw_status status = lw_buf_reserve(buf, count);
    if (status != LW_OK) return status;
    if (count > 0) memcpy(buf->bytes + buf->count, bytes, count);
    buf->count += count;
    buf->bytes[buf->count] = '\0';
    return LW_OK;
}

lw_status lw_buf_append_text(lw_buf *buf, const char *text)
{
    return lw_buf_append(buf, text, strlen(text));
}

lw_status lw_buf_printf(lw_buf *buf, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int count = vsnprintf(NULL, 0, format, args);
    va_end(args);
    lw_status status = count < 0 ? LW_BAD_INPUT : lw_buf_reserve(buf, (size_t)count);
    if (status == LW_OK) {
        vsnprintf(buf->bytes + buf->count, (size_t)count + 1, format, again);
        buf->count += (size_t)count;
    }
    va_end(again);
    return status;
}
