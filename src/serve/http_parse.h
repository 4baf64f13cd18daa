/* An HTTP/1.1 request from bytes that come in any cut. Knows nothing of sockets.
 *
 *   HEAD -> FIXED or CHUNK_LINE -> CHUNK_DATA -> CHUNK_END -> ... TRAILER -> COMPLETE     any -> REFUSED
 *
 * lw_http_feed makes every move. It answers LW_HTTP_HEAD once, before the first byte of the body is taken, so
 * that a stranger's body is refused unread. Owned by one connection.
 */
#ifndef LW_SERVE_HTTP_PARSE_H
#define LW_SERVE_HTTP_PARSE_H

#include "base/buf.h"
#include "base/limits.h"

typedef enum lw_http_result {
    LW_HTTP_MORE, /* all bytes were taken; the request goes on */
    LW_HTTP_HEAD, /* method, path and headers stand; feed on for the body */
    LW_HTTP_DONE, /* the request is complete; what follows belongs to the next one */
    LW_HTTP_BAD,  /* code and why say what is wrong; the connection cannot go on */
} lw_http_result;

typedef enum lw_http_phase {
    LW_HTTP_PHASE_HEAD,
    LW_HTTP_PHASE_FIXED,
    LW_HTTP_PHASE_CHUNK_LINE,
    LW_HTTP_PHASE_CHUNK_DATA,
    LW_HTTP_PHASE_CHUNK_END,
    LW_HTTP_PHASE_TRAILER,
    LW_HTTP_PHASE_COMPLETE,
    LW_HTTP_PHASE_REFUSED,
} lw_http_phase;

typedef struct lw_http_header {
    const char *name; /* lower case */
    const char *value;
} lw_http_header;

typedef struct lw_http_parser {
    lw_http_phase phase;
    lw_buf head; /* texts below are views into it */
    lw_buf line; /* a chunk's size, or trailers */
    lw_buf body;
    size_t body_max;

    const char *method, *path, *query; /* query: what follows '?', or "" */
    lw_http_header headers[LW_LIMIT_HTTP_HEADERS];
    uint32_t header_count;
    bool is_http10, keeps_alive, is_chunked, expects_continue;
    uint64_t bytes_left; /* of the body or of the chunk */

    int code; /* LW_HTTP_BAD: the HTTP status that says so */
    const char *why;
} lw_http_parser;

void lw_http_parser_init(lw_http_parser *parser, size_t body_max);
void lw_http_parser_deinit(lw_http_parser *parser);
/* Ready for the next request; the memory of a large one is given back. */
void lw_http_parser_reset(lw_http_parser *parser);

/* Takes bytes[0, *used). */
lw_http_result lw_http_feed(lw_http_parser *parser, const char *bytes, size_t count, size_t *used)
    LW_MUST_USE;

/* The value of a header, or NULL; name in lower case. With several of one name: the first. */
const char *lw_http_find(const lw_http_parser *parser, const char *name);

#endif
