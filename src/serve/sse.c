/* Event framing; see sse.h. */
#include "serve/sse.h"

#include "base/json.h"

#include <stdlib.h>
#include <string.h>

lw_status lw_sse_data(lw_buf *out, json_t *event)
{
    /* Compact JSON has no line end inside: one data line is enough. */
    char *text = event == NULL ? NULL : json_dumps(event, JSON_COMPACT);
    json_decref(event);
    if (lw_json_take_failure() || text == NULL) {
        free(text);
        return LW_NO_ROOM;
    }
    const lw_status status = lw_buf_printf(out, "data: %s\n\n", text);
    free(text);
    return status;
}

lw_status lw_sse_done(lw_buf *out)
{
    return lw_buf_append_text(out, "data: [DONE]\n\n");
}

lw_status lw_sse_comment(lw_buf *out, const char *text)
{
    LW_ASSERT(strpbrk(text, "\r\n") == NULL);
    return lw_buf_printf(out, ": %s\n\n", text);
}
