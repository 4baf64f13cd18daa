/* Connections of the event thread: bytes in, requests to routes.c; replies out, whole or as a stream.
 *
 *   READING --request complete--> PENDING --reply complete--> READING
 *      any --error, last reply sent--> CLOSING (what the client still sends is dropped) --> freed
 *
 * A client that closes its connection, or half of it, is gone: its job is cancelled at once.
 */
#ifndef LW_SERVE_HTTP_H
#define LW_SERVE_HTTP_H

#include "serve/failure.h"
#include "serve/http_parse.h"
#include "serve/server.h"

struct bufferevent;

typedef enum lw_conn_state { LW_CONN_READING, LW_CONN_PENDING, LW_CONN_CLOSING } lw_conn_state;

typedef struct lw_conn {
    lw_server *server;
    struct bufferevent *bev;
    struct event *deadline;
    lw_http_parser parser;
    lw_conn_state state;
    lw_job *job;            /* PENDING, when the engine is asked */
    const char *cors;       /* the origin to echo; view into the parser */
    uint64_t begun_ns;      /* of the request */
    uint64_t charged_bytes; /* of server->bodies_bytes */
    uint64_t written_ns;    /* when a stream last wrote */
    int code;               /* of the reply, for the log */
    bool is_head, closes, is_streaming, is_chunked, is_paused, is_advancing, is_gone;
    lw_conn *next, *previous;
} lw_conn;

/* A new connection; the socket is taken. */
void lw_conn_open(lw_server *server, int socket);
/* Its job, if any, is cancelled. */
void lw_conn_free(lw_conn *conn);

/* A whole reply. headers: more lines, each with CR LF; or "". */
void lw_conn_send(lw_conn *conn, int code, const char *headers, const char *type, const lw_buf *body);
void lw_conn_send_json(lw_conn *conn, int code, json_t *body); /* takes body */
void lw_conn_send_failure(lw_conn *conn, const lw_failure *failure);

/* A stream of events. */
void lw_conn_begin_stream(lw_conn *conn);
void lw_conn_write_stream(lw_conn *conn, const char *bytes, size_t count);
void lw_conn_end_stream(lw_conn *conn);

/* True while the client reads too slowly: its news stay where they are, and lw_answer_hear is called again.
 */
bool lw_conn_is_paused(lw_conn *conn) LW_MUST_USE;

#endif
