/* A growable byte buffer with a limit; for outputs whose length is known only at the end.
 * The bytes are always NUL-terminated after the last one, so text may be printed as it is.
 */
#ifndef LW_BASE_BUF_H
#define LW_BASE_BUF_H

#include "base/status.h"

typedef struct lw_buf {
    char *bytes;       /* NULL until the first append; owned */
    size_t count;      /* bytes in use, without the terminating NUL */
    size_t room;       /* bytes allocated */
    size_t count_max;  /* appending past it fails with LW_NO_ROOM; 0 means no limit */
} lw_buf;

void lw_buf_init(lw_buf *buf, size_t count_max);
void lw_buf_deinit(lw_buf *buf);

/* Appends bytes[0, count). On failure the buffer is unchanged. */
lw_status lw_buf_append(lw_buf *buf, const void *bytes, size_t count) LW_MUST_USE;
lw_status lw_buf_append_text(lw_buf *buf, const char *text) LW_MUST_USE;
lw_status lw_buf_printf(lw_buf *buf, const char *format, ...) LW_PRINTF(2, 3) LW_MUST_USE;

/* Makes room for more bytes without changing count. */
lw_status lw_buf_reserve(lw_buf *buf, size_t more) LW_MUST_USE;

/* Drops all bytes but keeps the memory. */
void lw_buf_clear(lw_buf *buf);

#endif
