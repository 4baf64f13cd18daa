/* Stop strings over text that comes in pieces of any cut. Text that may be the start of a stop string is held
 * back; it is released when the match fails. The match that ends first wins, of two that end together the
 * longer, so the cut never depends on the pieces. Owned by one reply.
 */
#ifndef LW_SERVE_STOPS_H
#define LW_SERVE_STOPS_H

#include "base/buf.h"
#include "serve/request.h"

typedef struct lw_stops {
    const lw_stop_text *texts; /* borrowed */
    size_t count;
    lw_buf held;
    bool is_stopped;
    size_t which; /* when stopped: the index of the string found */
} lw_stops;

void lw_stops_init(lw_stops *stops, const lw_stop_text *texts, size_t count);
void lw_stops_deinit(lw_stops *stops);

/* Appends to out what of the text so far can no longer be part of a stop string. After a match is_stopped is
 * set, and what stood before it has been appended. */
lw_status lw_stops_push(lw_stops *stops, const char *bytes, size_t count, lw_buf *out) LW_MUST_USE;

/* The text is over, or goes on elsewhere: releases what is held. */
lw_status lw_stops_flush(lw_stops *stops, lw_buf *out) LW_MUST_USE;

#endif
