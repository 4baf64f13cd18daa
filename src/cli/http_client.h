/* A small HTTP client for the verbs that ask a running server: one request a connection, blocking, HTTP/1.0,
 * so that an answer is everything until the connection ends.
 *
 * lw_http_send -> lw_http_line (streams) or lw_http_body -> lw_http_close. Several may be under way at once:
 * each is sent before the first is read.
 */
#ifndef LW_CLI_HTTP_CLIENT_H
#define LW_CLI_HTTP_CLIENT_H

#include "base/buf.h"
#include "base/status.h"

#include <jansson.h>

enum { LW_HTTP_TEXT_BYTES = 256 };

typedef struct lw_http_server {
    char host[LW_HTTP_TEXT_BYTES], port[16];
    char path[LW_HTTP_TEXT_BYTES];   /* before each request's own, without a slash at its end */
    const char *api_key;             /* NULL: none */
} lw_http_server;

/* "http://HOST[:PORT][/PATH]"; https is refused by name. A path that ends in /v1 loses it. */
lw_status lw_http_server_parse(const char *url, lw_http_server *out, lw_diag *d) LW_MUST_USE;

/* One request and what has come back so far. Zero it before; close takes any state. */
typedef struct lw_http_call {
    int socket;              /* -1: none */
    lw_buf bytes;            /* head and body as they came */
    size_t read_to;          /* what lw_http_line has given out */
    uint32_t code;           /* 0 until the head has come */
    bool has_ended;
} lw_http_call;

/* Connects and sends; body NULL: GET, else POST of its JSON. */
lw_status lw_http_send(const lw_http_server *server, const char *path, const json_t *body, lw_http_call *call,
                       lw_diag *d) LW_MUST_USE;

/* The next line of the body without its end, NUL-terminated, valid until the next call; NULL at the end. An
 * answer other than 200 is a failure with the server's own words. */
lw_status lw_http_line(lw_http_call *call, const char **line, lw_diag *d) LW_MUST_USE;

/* Whether lw_http_line has a line without waiting. */
bool lw_http_has_line(const lw_http_call *call);

/* The whole body as JSON. */
lw_status lw_http_json(lw_http_call *call, json_t **out, lw_diag *d) LW_MUST_USE;
void lw_http_close(lw_http_call *call);

#endif
