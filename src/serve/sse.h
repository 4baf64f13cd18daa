/* Server-sent events: how JSON, the end and a comment are framed. */
#ifndef LW_SERVE_SSE_H
#define LW_SERVE_SSE_H

#include "base/buf.h"

#include <jansson.h>

/* Appends "data: JSON" and an empty line; takes event, which may be NULL after a failure to make it. */
lw_status lw_sse_data(lw_buf *out, json_t *event) LW_MUST_USE;
/* Appends "data: [DONE]" and an empty line. */
lw_status lw_sse_done(lw_buf *out) LW_MUST_USE;
/* Appends a comment: bytes for those who watch the connection, nothing for those who read events. */
lw_status lw_sse_comment(lw_buf *out, const char *text) LW_MUST_USE;

#endif
