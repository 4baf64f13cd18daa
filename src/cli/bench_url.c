/* Streams of completions from a server, timed as their lines come in. */
#include "cli/bench_url.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/rng.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

typedef struct timed {
    lw_http_call call;
    uint64_t sent_ns, first_ns, last_ns;
    uint32_t prompt_tokens, cached_tokens, tokens;
    double tokens_per_s;     /* as the server says; 0: it does not */
    bool has_ended;
} timed;

/* Words that no two prompts share, so that nothing can be resumed by chance. */
static json_t *prompt_make(const lw_bench_url *bench, uint32_t streams, uint32_t index)
{
    static const char *const words[] = {
        "harbour", "salt", "north", "pilot", "quay", "rope", "tide", "lamp"
    };
    lw_rng rng = lw_rng_make(bench->salt + 1000u * streams + index);
    lw_buf text;
    lw_buf_init(&text, 0);
    lw_status status = LW_OK;
    for (uint32_t i = 0; i < bench->prompt_words && status == LW_OK; i++) {
        const uint64_t drawn = lw_rng_next(&rng);
        status = lw_buf_printf(&text, "%s%u ", words[drawn % 8], (unsigned)(drawn >> 32) % 1000u);
    }
    json_t *prompt = status == LW_OK ? json_stringn(text.bytes, text.count) : NULL;
    lw_buf_deinit(&text);
    return prompt;
}

static lw_status stream_send(const lw_bench_url *bench, uint32_t streams, uint32_t index, timed *t,
                             lw_diag *d)
{
    json_t *body =
        json_pack("{s:o, s:i, s:f, s:b, s:b, s:{s:b}}", "prompt", prompt_make(bench, streams, index),
                  "max_tokens", (int)bench->tokens, "temperature", 0.0, "ignore_eos", 1, "stream", 1,
                  "stream_options", "include_usage", 1);
    *t = (timed){ .sent_ns = lw_clock_ns() };
    const lw_status status = lw_http_send(&bench->server, "/v1/completions", body, &t->call, d);
    json_decref(body);
    return status;
}

static void usage_read(const json_t *usage, timed *t)
{
    if (!json_is_object(usage)) return;
    const json_t *details = json_object_get(usage, "prompt_tokens_details");
    t->prompt_tokens = (uint32_t)json_integer_value(json_object_get(usage, "prompt_tokens"));
    t->tokens = (uint32_t)json_integer_value(json_object_get(usage, "completion_tokens"));
    t->cached_tokens = (uint32_t)json_integer_value(json_object_get(details, "cached_tokens"));
}

static lw_status line_hear(timed *t, const char *line, lw_diag *d)
{
    if (strncmp(line, "data: {", 7) != 0) return LW_OK;
    json_t *event = lw_json_load(line + 6, strlen(line + 6), 0, NULL);
    if (event == NULL) return lw_fail(d, LW_IO, "the server sent an event that cannot be read: %.80s", line);
    const json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
    const char *text = json_string_value(json_object_get(choice, "text"));
    const char *failure = json_string_value(json_object_get(json_object_get(event, "error"), "message"));
    if (text != NULL) {
        t->last_ns = lw_clock_ns();
        if (t->first_ns == 0) t->first_ns = t->last_ns;
    }
    usage_read(json_object_get(event, "usage"), t);
    const json_t *timings = json_object_get(json_object_get(event, "lanewise"), "timings");
    if (timings != NULL) t->tokens_per_s = json_number_value(json_object_get(timings, "tokens_per_second"));
    const lw_status status =
        failure == NULL ? LW_OK : lw_fail(d, LW_IO, "the server ended a stream: %s", failure);
    json_decref(event);
    return status;
}

/* Takes the lines that are there; the call has to be readable. */
static lw_status stream_hear(timed *t, lw_diag *d)
{
    const char *line;
    do {
        lw_status status = lw_http_line(&t->call, &line, d);
        if (status == LW_OK && line != NULL) status = line_hear(t, line, d);
        if (status != LW_OK) return status;
    } while (line != NULL && lw_http_has_line(&t->call));
    t->has_ended = line == NULL;
    return LW_OK;
}

static lw_status streams_hear(timed *streams, uint32_t count, lw_diag *d)
{
    for (;;) {
        struct pollfd wait[LW_BENCH_STREAMS_MAX];
        uint32_t index[LW_BENCH_STREAMS_MAX], open = 0;
        for (uint32_t i = 0; i < count; i++) {
            if (streams[i].has_ended) continue;
            wait[open] = (struct pollfd){ .fd = streams[i].call.socket, .events = POLLIN };
            index[open++] = i;
        }
        if (open == 0) return LW_OK;
        if (poll(wait, open, -1) < 0 && errno != EINTR) return lw_fail(d, LW_IO, "poll: %s", strerror(errno));
        for (uint32_t i = 0; i < open; i++) {
            if (wait[i].revents == 0) continue;
            const lw_status status = stream_hear(&streams[index[i]], d);
            if (status != LW_OK) return status;
        }
    }
}

/* Text may come in lumps, where characters have several tokens; a server that times its tokens knows better.
 */
static double stream_rate(const timed *t)
{
    if (t->tokens_per_s > 0) return t->tokens_per_s;
    if (t->last_ns <= t->first_ns || t->tokens < 2) return 0;
    return (t->tokens - 1) / ((double)(t->last_ns - t->first_ns) / 1e9);
}

static void row_fill(const timed *streams, uint32_t count, lw_bench_row *row)
{
    uint64_t last = 0;
    for (uint32_t i = 0; i < count; i++) {
        const timed *t = &streams[i];
        row->prompt_tokens += t->prompt_tokens;
        row->cached_tokens += t->cached_tokens;
        row->tokens += t->tokens;
        row->first_ms += (double)(t->first_ns - t->sent_ns) / 1e6 / count;
        row->stream_tokens_per_s += stream_rate(t) / count;
        if (t->last_ns > last) last = t->last_ns;
    }
    if (last > streams[0].sent_ns)
        row->tokens_per_s = row->tokens / ((double)(last - streams[0].sent_ns) / 1e9);
}

static lw_status row_run(const lw_bench_url *bench, lw_bench_row *row, lw_diag *d)
{
    timed streams[LW_BENCH_STREAMS_MAX];
    lw_status status = LW_OK;
    uint32_t sent = 0;
    for (; sent < row->streams && status == LW_OK; sent += status == LW_OK)
        status = stream_send(bench, row->streams, sent, &streams[sent], d);
    if (status == LW_OK) status = streams_hear(streams, sent, d);
    for (uint32_t i = 0; i < sent && status == LW_OK; i++) {
        if (streams[i].first_ns == 0 || streams[i].tokens == 0)
            status = lw_fail(d, LW_BAD_INPUT, "a stream of the server brought no text or no usage");
    }
    if (status == LW_OK) row_fill(streams, sent, row);
    for (uint32_t i = 0; i < sent; i++) lw_http_close(&streams[i].call);
    return status;
}

lw_status lw_bench_url_run(const lw_bench_url *bench, lw_bench_row rows[LW_BENCH_ROWS_MAX], size_t *count,
                           lw_diag *d)
{
    lw_status status = LW_OK;
    *count = 0;
    for (uint32_t streams = 1; streams <= LW_BENCH_STREAMS_MAX; streams *= 2) {
        for (int resumed = 0; resumed < 2 && status == LW_OK; resumed++) {
            rows[*count] = (lw_bench_row){ .streams = streams, .is_resumed = resumed == 1 };
            status = row_run(bench, &rows[*count], d);
            *count += status == LW_OK;
        }
    }
    return status;
}

void lw_bench_url_print(const lw_bench_row *rows, size_t count, double bare_tokens_per_s)
{
    printf(
        "streams  prompts   first token ms   tok/s a stream   tok/s in all   of the bare engine   resumed\n");
    for (size_t i = 0; i < count; i++) {
        const lw_bench_row *row = &rows[i];
        printf("%7u  %-7s %16.1f %16.1f %14.1f %18.0f %%   %u of %u\n", row->streams,
               row->is_resumed ? "resumed" : "cold", row->first_ms, row->stream_tokens_per_s,
               row->tokens_per_s, 100 * row->stream_tokens_per_s * row->streams / bare_tokens_per_s,
               row->cached_tokens, row->prompt_tokens);
    }
}

json_t *lw_bench_url_json(const lw_bench_row *rows, size_t count, double bare_tokens_per_s)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        const lw_bench_row *row = &rows[i];
        json_array_append_new(list,
                              json_pack("{s:i, s:b, s:i, s:i, s:i, s:f, s:f, s:f, s:f}", "streams",
                                        (int)row->streams, "resumed", row->is_resumed, "prompt_tokens",
                                        (int)row->prompt_tokens, "cached_tokens", (int)row->cached_tokens,
                                        "tokens", (int)row->tokens, "first_ms", row->first_ms, "stream_tok_s",
                                        row->stream_tokens_per_s, "tok_s", row->tokens_per_s, "share_of_bare",
                                        row->stream_tokens_per_s * row->streams / bare_tokens_per_s));
    }
    return list;
}
