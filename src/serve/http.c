/* Connections; see http.h. evhttp is not used: it does not say that a client left while its request waits for
 * a reply, and a lane would go on for nobody.
 */
#include "serve/http.h"

#include "base/clock.h"
#include "base/json.h"
#include "serve/answer.h"
#include "serve/routes.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { LINGER_S = 2 };

/* ---- lifetime ---- */

static void set_deadline(lw_conn *conn, uint32_t seconds)
{
    const struct timeval time = { .tv_sec = seconds };
    event_add(conn->deadline, &time);
}

static void uncharge(lw_conn *conn)
{
    conn->server->bodies_bytes -= conn->charged_bytes;
    conn->charged_bytes = 0;
}

void lw_conn_free(lw_conn *conn)
{
    lw_server *server = conn->server;
    if (conn->job != NULL) lw_answer_gone(conn);
    uncharge(conn);
    if (conn->next != NULL) conn->next->previous = conn->previous;
    if (conn->previous != NULL) conn->previous->next = conn->next;
    else server->conns = conn->next;
    server->conn_count--;
    event_free(conn->deadline);
    bufferevent_free(conn->bev);
    lw_http_parser_deinit(&conn->parser);
    free(conn);
    lw_routes_conn_freed(server);
}

/* The last byte is out: what still comes in is dropped for a while. Closing with unread bytes would reset the
 * connection and take the reply with it. */
static void linger(lw_conn *conn)
{
    shutdown(bufferevent_getfd(conn->bev), SHUT_WR);
    set_deadline(conn, LINGER_S);
}

/* Says goodbye. What is unsent still goes out, as long as the write time-out allows. */
static void close_softly(lw_conn *conn)
{
    conn->state = LW_CONN_CLOSING;
    event_del(conn->deadline);
    evbuffer_drain(bufferevent_get_input(conn->bev), SIZE_MAX);
    if (evbuffer_get_length(bufferevent_get_output(conn->bev)) == 0) linger(conn);
}

static void advance(lw_conn *conn);

/* The reply is complete. */
static void finish(lw_conn *conn)
{
    LW_ASSERT(conn->job == NULL);
    uncharge(conn);
    conn->is_streaming = conn->is_paused = false;
    if (conn->closes || conn->server->is_draining) {
        close_softly(conn);
        return;
    }
    lw_http_parser_reset(&conn->parser);
    conn->state = LW_CONN_READING;
    conn->cors = NULL;
    set_deadline(conn, conn->server->options->idle_s);
    /* Requests that were sent ahead wait in the input; advance calls itself only through its own loop. */
    if (!conn->is_advancing) advance(conn);
}

/* ---- replies ---- */

static const char *reason_of(int code)
{
    static const struct {
        int code;
        const char *text;
    } reasons[] = {
        { 200, "OK" }, { 204, "No Content" }, { 400, "Bad Request" }, { 401, "Unauthorized" },
        { 403, "Forbidden" }, { 404, "Not Found" }, { 405, "Method Not Allowed" }, { 408, "Request Timeout" },
        { 413, "Content Too Large" }, { 414, "URI Too Long" }, { 417, "Expectation Failed" },
        { 431, "Request Header Fields Too Large" }, { 500, "Internal Server Error" },
        { 501, "Not Implemented" }, { 503, "Service Unavailable" }, { 505, "HTTP Version Not Supported" },
    };
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        if (reasons[i].code == code) return reasons[i].text;
    }
    return "Error";
}

/* Status line and the headers that all replies have. */
static void write_head(lw_conn *conn, int code, const char *headers, const char *type)
{
    struct evbuffer *out = bufferevent_get_output(conn->bev);
    char date[40];
    const time_t now = time(NULL);
    struct tm parts;
    gmtime_r(&now, &parts);
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &parts);
    conn->code = code;
    if (conn->server->is_draining) conn->closes = true;
    evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\nServer: lanewise/%s\r\nDate: %s\r\n%s", code, reason_of(code),
                        lw_version(), date, headers);
    if (type != NULL) evbuffer_add_printf(out, "Content-Type: %s\r\n", type);
    if (conn->cors != NULL)
        evbuffer_add_printf(out, "Access-Control-Allow-Origin: %s\r\nVary: Origin\r\n", conn->cors);
    if (conn->closes) evbuffer_add_printf(out, "Connection: close\r\n");
    else if (conn->parser.is_http10) evbuffer_add_printf(out, "Connection: keep-alive\r\n");
}

void lw_conn_send(lw_conn *conn, int code, const char *headers, const char *type, const lw_buf *body)
{
    struct evbuffer *out = bufferevent_get_output(conn->bev);
    const size_t count = body == NULL ? 0 : body->count;
    write_head(conn, code, headers, type);
    if (code != 204) evbuffer_add_printf(out, "Content-Length: %zu\r\n", count);
    evbuffer_add(out, "\r\n", 2);
    if (count > 0 && !conn->is_head) evbuffer_add(out, body->bytes, count);
    finish(conn);
}

static void send_json(lw_conn *conn, int code, const char *headers, json_t *body)
{
    char *text = body == NULL ? NULL : json_dumps(body, JSON_COMPACT);
    json_decref(body);
    if (lw_json_take_failure()) { /* members may be missing */
        free(text);
        text = NULL;
    }
    char none[] =
        "{\"error\":{\"message\":\"no memory\",\"type\":\"server_error\",\"param\":null,\"code\":null}}";
    const lw_buf view = { .bytes = text != NULL ? text : none, .count = strlen(text != NULL ? text : none) };
    lw_conn_send(conn, text != NULL ? code : 503, headers, "application/json", &view);
    free(text);
}

void lw_conn_send_json(lw_conn *conn, int code, json_t *body)
{
    send_json(conn, code, "", body);
}

void lw_conn_send_failure(lw_conn *conn, const lw_failure *failure)
{
    const char *headers = failure->code == 503 ? "Retry-After: 1\r\n" :
                          failure->code == 401 ? "WWW-Authenticate: Bearer\r\n" : "";
    send_json(conn, failure->code, headers, lw_failure_json(failure));
}

void lw_conn_begin_stream(lw_conn *conn)
{
    conn->is_streaming = true;
    conn->is_chunked = !conn->parser.is_http10;
    if (conn->parser.is_http10) conn->closes = true;
    write_head(conn, 200, "Cache-Control: no-store\r\nX-Accel-Buffering: no\r\n", "text/event-stream");
    struct evbuffer *out = bufferevent_get_output(conn->bev);
    evbuffer_add_printf(out, conn->is_chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
}

void lw_conn_write_stream(lw_conn *conn, const char *bytes, size_t count)
{
    if (count == 0) return;
    struct evbuffer *out = bufferevent_get_output(conn->bev);
    if (conn->is_chunked) evbuffer_add_printf(out, "%zx\r\n", count);
    evbuffer_add(out, bytes, count);
    if (conn->is_chunked) evbuffer_add(out, "\r\n", 2);
    conn->written_ns = lw_clock_ns();
}

void lw_conn_end_stream(lw_conn *conn)
{
    if (conn->is_chunked) evbuffer_add(bufferevent_get_output(conn->bev), "0\r\n\r\n", 5);
    finish(conn);
}

bool lw_conn_is_paused(lw_conn *conn)
{
    const size_t unsent = evbuffer_get_length(bufferevent_get_output(conn->bev));
    if (unsent <= LW_LIMIT_UNSENT_BYTES) return false;
    /* Bytes that trickle keep the write time-out away: a paused reply has a time of its own. */
    if (!conn->is_paused) set_deadline(conn, conn->server->options->write_s);
    conn->is_paused = true;
    return true;
}

/* ---- requests ---- */

static void send_bad(lw_conn *conn)
{
    lw_failure failure;
    lw_failure_set(&failure, conn->parser.code, conn->parser.code == 413 ? "body_too_large" : "bad_request",
                   "%s", conn->parser.why);
    conn->closes = true;
    conn->state = LW_CONN_PENDING;
    lw_conn_send_failure(conn, &failure);
}

/* Bodies of all connections together have a limit too. */
static bool charge(lw_conn *conn)
{
    const uint64_t bytes = conn->parser.body.count;
    conn->server->bodies_bytes += bytes - conn->charged_bytes;
    conn->charged_bytes = bytes;
    if (conn->server->bodies_bytes <= LW_LIMIT_BODIES_BYTES) return true;
    conn->parser.code = 503;
    conn->parser.why = "the bodies of all requests together take too much memory";
    return false;
}

static void take_head(lw_conn *conn)
{
    conn->is_head = strcmp(conn->parser.method, "HEAD") == 0;
    conn->closes = !conn->parser.keeps_alive;
    if (!lw_routes_head(conn)) return; /* a refusal was sent, and the body will not be read */
    const bool has_body = evbuffer_get_length(bufferevent_get_input(conn->bev)) > 0;
    if (conn->parser.expects_continue && !has_body)
        evbuffer_add_printf(bufferevent_get_output(conn->bev), "HTTP/1.1 100 Continue\r\n\r\n");
}

/* Feeds one piece of the input; false when more must come first. */
static bool advance_once(lw_conn *conn)
{
    struct evbuffer *in = bufferevent_get_input(conn->bev);
    struct evbuffer_iovec piece = { .iov_len = 0 };
    const bool is_new = conn->parser.phase == LW_HTTP_PHASE_HEAD && conn->parser.head.count == 0;
    if (evbuffer_peek(in, -1, NULL, &piece, 1) < 1) piece.iov_len = 0;
    if (piece.iov_len == 0 && conn->parser.phase == LW_HTTP_PHASE_HEAD) return false;
    if (is_new) {
        conn->begun_ns = lw_clock_ns();
        set_deadline(conn, conn->server->options->read_s);
    }
    size_t used;
    const lw_http_result result =
        lw_http_feed(&conn->parser, piece.iov_len > 0 ? piece.iov_base : "", piece.iov_len, &used);
    evbuffer_drain(in, used);
    switch (result) {
    case LW_HTTP_HEAD: take_head(conn); return true;
    case LW_HTTP_BAD: send_bad(conn); return true;
    case LW_HTTP_MORE:
        if (!charge(conn)) send_bad(conn);
        return used > 0;
    case LW_HTTP_DONE: break;
    }
    event_del(conn->deadline);
    conn->state = LW_CONN_PENDING;
    if (charge(conn)) lw_routes_request(conn);
    else send_bad(conn);
    return true;
}

static void advance(lw_conn *conn)
{
    conn->is_advancing = true;
    struct evbuffer *out = bufferevent_get_output(conn->bev);
    while (conn->state == LW_CONN_READING && evbuffer_get_length(out) <= LW_LIMIT_UNSENT_BYTES &&
           advance_once(conn)) {}
    conn->is_advancing = false;
}

/* ---- events ---- */

static void on_read(struct bufferevent *bev, void *context)
{
    lw_conn *conn = context;
    struct evbuffer *in = bufferevent_get_input(bev);
    if (conn->state == LW_CONN_CLOSING) {
        evbuffer_drain(in, SIZE_MAX);
        return;
    }
    advance(conn);
    /* Who sends on and on before the reply is read could hide that it left. */
    if (conn->state != LW_CONN_CLOSING && evbuffer_get_length(in) > LW_LIMIT_HTTP_AHEAD_BYTES)
        lw_conn_free(conn);
}

static void on_write(struct bufferevent *bev, void *context)
{
    lw_conn *conn = context;
    if (conn->state == LW_CONN_CLOSING) {
        if (evbuffer_get_length(bufferevent_get_output(bev)) > 0) return;
        if (conn->is_gone) lw_conn_free(conn);
        else linger(conn);
        return;
    }
    if (conn->is_paused) {
        conn->is_paused = false;
        event_del(conn->deadline);
        if (conn->job != NULL) lw_answer_hear(conn);
        return;
    }
    if (conn->state == LW_CONN_READING) advance(conn);
}

static void on_event(struct bufferevent *bev, short what, void *context)
{
    lw_conn *conn = context;
    const bool is_end = (what & BEV_EVENT_EOF) != 0;
    const bool has_unsent = evbuffer_get_length(bufferevent_get_output(bev)) > 0;
    /* A client that asked, closed its half and waits gets the replies that are complete. */
    if (is_end && has_unsent && conn->job == NULL) {
        conn->is_gone = true;
        close_softly(conn);
        return;
    }
    lw_conn_free(conn);
}

static void on_deadline(evutil_socket_t socket, short what, void *context)
{
    (void)socket, (void)what;
    lw_conn *conn = context;
    const bool has_begun = conn->state == LW_CONN_READING &&
                           (conn->parser.phase != LW_HTTP_PHASE_HEAD || conn->parser.head.count > 0);
    if (!has_begun) {
        lw_conn_free(conn);
        return;
    }
    lw_failure failure;
    lw_failure_set(&failure, 408, "request_timeout", "the request was not complete within %u s",
                   conn->server->options->read_s);
    conn->closes = true;
    conn->state = LW_CONN_PENDING;
    lw_conn_send_failure(conn, &failure);
}

void lw_conn_open(lw_server *server, int socket)
{
    lw_conn *conn = calloc(1, sizeof *conn);
    struct bufferevent *bev =
        conn == NULL ? NULL : bufferevent_socket_new(server->base, socket, BEV_OPT_CLOSE_ON_FREE);
    struct event *deadline = bev == NULL ? NULL : evtimer_new(server->base, on_deadline, conn);
    if (deadline == NULL) {
        if (bev != NULL) bufferevent_free(bev);
        else evutil_closesocket(socket);
        free(conn);
        return;
    }
    const int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    *conn = (lw_conn){ .server = server, .bev = bev, .deadline = deadline, .next = server->conns };
    lw_http_parser_init(&conn->parser, server->options->body_bytes_max);
    if (server->conns != NULL) server->conns->previous = conn;
    server->conns = conn;
    server->conn_count++;
    const struct timeval write_time = { .tv_sec = server->options->write_s };
    bufferevent_setcb(bev, on_read, on_write, on_event, conn);
    bufferevent_set_timeouts(bev, NULL, &write_time);
    bufferevent_setwatermark(bev, EV_WRITE, LW_LIMIT_UNSENT_BYTES / 4, 0);
    set_deadline(conn, server->options->idle_s);
    bufferevent_enable(bev, EV_READ | EV_WRITE);
}
