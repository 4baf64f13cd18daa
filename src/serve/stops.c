/* Stop strings; see stops.h. */
#include "serve/stops.h"

#include <string.h>

void lw_stops_init(lw_stops *stops, const lw_stop_text *texts, size_t count)
{
    *stops = (lw_stops){ .texts = texts, .count = count };
    lw_buf_init(&stops->held, 0);
}

void lw_stops_deinit(lw_stops *stops)
{
    lw_buf_deinit(&stops->held);
}

/* The longest stop string that held[0, end) ends with; sets which. */
static const lw_stop_text *find_ended(lw_stops *stops, size_t end)
{
    const lw_stop_text *best = NULL;
    for (size_t i = 0; i < stops->count; i++) {
        const lw_stop_text *text = &stops->texts[i];
        if (text->count > end || (best != NULL && text->count <= best->count)) continue;
        if (memcmp(stops->held.bytes + end - text->count, text->bytes, text->count) != 0) continue;
        best = text;
        stops->which = i;
    }
    return best;
}

/* True when held, from begin on, is how some stop string begins. */
static bool may_begin(const lw_stops *stops, size_t begin)
{
    const size_t count = stops->held.count - begin;
    for (size_t i = 0; i < stops->count; i++) {
        const lw_stop_text *text = &stops->texts[i];
        if (count < text->count && memcmp(stops->held.bytes + begin, text->bytes, count) == 0) return true;
    }
    return false;
}

static lw_status release(lw_stops *stops, size_t count, lw_buf *out)
{
    lw_buf *held = &stops->held;
    const lw_status status = lw_buf_append(out, held->bytes, count);
    if (status != LW_OK || count == 0) return status;
    memmove(held->bytes, held->bytes + count, held->count - count);
    held->count -= count;
    return LW_OK;
}

lw_status lw_stops_push(lw_stops *stops, const char *bytes, size_t count, lw_buf *out)
{
    if (stops->is_stopped || count == 0) return LW_OK;
    if (stops->count == 0) return lw_buf_append(out, bytes, count);
    const size_t before = stops->held.count;
    lw_status status = lw_buf_append(&stops->held, bytes, count);
    if (status != LW_OK) return status;
    for (size_t end = before + 1; end <= stops->held.count; end++) {
        const lw_stop_text *text = find_ended(stops, end);
        if (text == NULL) continue;
        stops->is_stopped = true;
        status = release(stops, end - text->count, out);
        lw_buf_clear(&stops->held);
        return status;
    }
    size_t begin = 0;
    while (begin < stops->held.count && !may_begin(stops, begin)) begin++;
    return release(stops, begin, out);
}

lw_status lw_stops_flush(lw_stops *stops, lw_buf *out)
{
    return stops->held.count == 0 ? LW_OK : release(stops, stops->held.count, out);
}
