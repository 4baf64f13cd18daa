/* Blocking sockets and as much of HTTP as the verbs need; see http_client.h. */
#include "cli/http_client.h"

#include "base/json.h"
#include "base/limits.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

enum { WAIT_S = 600, BLOCK_BYTES = 16384, URL_BYTES_MAX = 1024 };

/* ---- addresses ---- */

/* Copies text[0, count); false when it is empty or does not fit. */
static bool part_copy(char *to, size_t room, const char *text, size_t count)
{
    if (count == 0 || count >= room) return false;
    memcpy(to, text, count);
    to[count] = '\0';
    return true;
}

static bool is_plain(const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text <= ' ' || *text == 0x7F) return false;
    }
    return true;
}

/* HOST[:PORT], [IPV6][:PORT]. */
static bool authority_parse(const char *text, size_t count, lw_http_server *out)
{
    const bool is_bracketed = count > 0 && text[0] == '[';
    const char *end = is_bracketed ? memchr(text, ']', count) : memchr(text, ':', count);
    if (is_bracketed && end == NULL) return false;
    const size_t host_count = end == NULL ? count : (size_t)(end - text) - is_bracketed;
    if (!part_copy(out->host, sizeof out->host, text + is_bracketed, host_count)) return false;
    const size_t used = host_count + 2 * (size_t)is_bracketed;
    if (used == count) return part_copy(out->port, sizeof out->port, "80", 2);
    if (text[used] != ':') return false;
    const char *port = text + used + 1;
    const size_t port_count = count - used - 1;
    return strspn(port, "0123456789") >= port_count && port_count <= 5
           && part_copy(out->port, sizeof out->port, port, port_count);
}

lw_status lw_http_server_parse(const char *url, lw_http_server *out, lw_diag *d)
{
    static const char scheme[] = "http://";
    *out = (lw_http_server){ .api_key = NULL };
    if (strncmp(url, "https://", 8) == 0)
        return lw_fail(d, LW_UNSUPPORTED, "%.200s: https is not spoken here; ask the server by http", url);
    if (strncmp(url, scheme, strlen(scheme)) != 0 || strlen(url) > URL_BYTES_MAX || !is_plain(url))
        return lw_fail(d, LW_BAD_INPUT, "\"%.200s\" is no address of a server; give http://HOST:PORT", url);
    const char *authority = url + strlen(scheme);
    const size_t count = strcspn(authority, "/");
    size_t path_count = strlen(authority + count);
    const char *path = authority + count;
    while (path_count > 0 && path[path_count - 1] == '/') path_count--;
    if (path_count >= 3 && memcmp(path + path_count - 3, "/v1", 3) == 0) path_count -= 3;
    if (!authority_parse(authority, count, out) || path_count >= sizeof out->path)
        return lw_fail(d, LW_BAD_INPUT, "\"%.200s\" is no address of a server; give http://HOST:PORT", url);
    memcpy(out->path, path, path_count);
    return LW_OK;
}

/* ---- sending ---- */

static int socket_open(const struct addrinfo *list)
{
    const struct timeval wait = { .tv_sec = WAIT_S };
    int found = -1;
    for (; list != NULL && found < 0; list = list->ai_next) {
        found = socket(list->ai_family, list->ai_socktype | SOCK_CLOEXEC, list->ai_protocol);
        if (found < 0) continue;
        setsockopt(found, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
        setsockopt(found, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
        if (connect(found, list->ai_addr, list->ai_addrlen) == 0) return found;
        const int why = errno;
        close(found);
        errno = why;
        found = -1;
    }
    return found;
}

static lw_status connect_to(const lw_http_server *server, lw_http_call *call, lw_diag *d)
{
    const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
    struct addrinfo *list = NULL;
    const int why = getaddrinfo(server->host, server->port, &hints, &list);
    if (why != 0) return lw_fail(d, LW_NOT_FOUND, "%s: %s", server->host, gai_strerror(why));
    call->socket = socket_open(list);
    freeaddrinfo(list);
    if (call->socket >= 0) return LW_OK;
    return lw_fail(d, LW_IO, "%s:%s: %s; is the server running?", server->host, server->port,
                   strerror(errno));
}

static lw_status send_all(int socket, const char *bytes, size_t count, lw_diag *d)
{
    while (count > 0) {
        const ssize_t sent = send(socket, bytes, count, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0)
            return lw_fail(d, LW_IO, "the server took no more of the request: %s", strerror(errno));
        bytes += sent;
        count -= (size_t)sent;
    }
    return LW_OK;
}

static lw_status request_write(const lw_http_server *server, const char *path, const char *body, lw_buf *out)
{
    const bool is_v6 = strchr(server->host, ':') != NULL;
    lw_status status =
        lw_buf_printf(out, "%s %s%s HTTP/1.0\r\nHost: %s%s%s:%s\r\n", body == NULL ? "GET" : "POST",
                      server->path, path, is_v6 ? "[" : "", server->host, is_v6 ? "]" : "", server->port);
    if (status == LW_OK && server->api_key != NULL)
        status = lw_buf_printf(out, "Authorization: Bearer %s\r\n", server->api_key);
    if (status == LW_OK && body != NULL)
        status =
            lw_buf_printf(out, "Content-Type: application/json\r\nContent-Length: %zu\r\n", strlen(body));
    if (status == LW_OK) status = lw_buf_append_text(out, "\r\n");
    if (status == LW_OK && body != NULL) status = lw_buf_append_text(out, body);
    return status;
}

lw_status lw_http_send(const lw_http_server *server, const char *path, const json_t *body, lw_http_call *call,
                       lw_diag *d)
{
    *call = (lw_http_call){ .socket = -1 };
    lw_buf_init(&call->bytes, LW_LIMIT_PROMPT_BYTES);
    lw_buf out;
    lw_buf_init(&out, LW_LIMIT_PROMPT_BYTES);
    char *text = body == NULL ? NULL : json_dumps(body, JSON_COMPACT);
    lw_status status = body != NULL && text == NULL ? LW_NO_ROOM : request_write(server, path, text, &out);
    if (status != LW_OK) lw_fail(d, status, "no memory for a request to %s", server->host);
    else status = connect_to(server, call, d);
    if (status == LW_OK) status = send_all(call->socket, out.bytes, out.count, d);
    free(text);
    lw_buf_deinit(&out);
    if (status != LW_OK) lw_http_close(call);
    return status;
}

void lw_http_close(lw_http_call *call)
{
    if (call->socket >= 0) close(call->socket);
    lw_buf_deinit(&call->bytes);
    *call = (lw_http_call){ .socket = -1 };
}

/* ---- receiving ---- */

static lw_status receive_more(lw_http_call *call, lw_diag *d)
{
    if (lw_buf_reserve(&call->bytes, BLOCK_BYTES) != LW_OK)
        return lw_fail(d, LW_NO_ROOM, "the server's answer is longer than %d bytes", LW_LIMIT_PROMPT_BYTES);
    ssize_t got;
    do got = recv(call->socket, call->bytes.bytes + call->bytes.count, BLOCK_BYTES, 0);
    while (got < 0 && errno == EINTR);
    if (got < 0) return lw_fail(d, LW_IO, "the server's answer broke off: %s", strerror(errno));
    call->has_ended = got == 0;
    call->bytes.count += (size_t)got;
    call->bytes.bytes[call->bytes.count] = '\0';
    return LW_OK;
}

/* Reads on until the head is complete; read_to is then where the body begins. */
static lw_status head_read(lw_http_call *call, lw_diag *d)
{
    while (call->code == 0) {
        const char *end =
            call->bytes.count > 0 ? memmem(call->bytes.bytes, call->bytes.count, "\r\n\r\n", 4) : NULL;
        if (end == NULL) {
            if (call->has_ended)
                return lw_fail(d, LW_IO, "the server closed the connection without an answer");
            const lw_status status = receive_more(call, d);
            if (status != LW_OK) return status;
            continue;
        }
        uint32_t code = 0;
        const char *line = call->bytes.bytes;
        if (strncmp(line, "HTTP/1.", 7) == 0 && strlen(line) > 12) {
            for (size_t i = 9; i < 12 && line[i] >= '0' && line[i] <= '9'; i++)
                code = 10 * code + (uint32_t)(line[i] - '0');
        }
        if (code < 100) return lw_fail(d, LW_BAD_INPUT, "what answers there is no HTTP server");
        call->code = code;
        call->read_to = (size_t)(end - call->bytes.bytes) + 4;
    }
    return LW_OK;
}

static lw_status body_read(lw_http_call *call, lw_diag *d)
{
    lw_status status = head_read(call, d);
    while (status == LW_OK && !call->has_ended) status = receive_more(call, d);
    return status;
}

/* The server's own words for a refusal. */
static lw_status refuse(lw_http_call *call, lw_diag *d)
{
    const lw_status status = body_read(call, d);
    if (status != LW_OK) return status;
    const char *body = call->bytes.bytes + call->read_to;
    json_t *root = lw_json_load(body, strlen(body), 0, NULL);
    const char *text = json_string_value(json_object_get(json_object_get(root, "error"), "message"));
    lw_fail(d, LW_BAD_INPUT, "the server answered %u: %.500s", call->code, text != NULL ? text : body);
    json_decref(root);
    return LW_BAD_INPUT;
}

lw_status lw_http_line(lw_http_call *call, const char **line, lw_diag *d)
{
    *line = NULL;
    lw_status status = head_read(call, d);
    if (status == LW_OK && call->code != 200) status = refuse(call, d);
    while (status == LW_OK) {
        char *at = call->bytes.bytes + call->read_to;
        char *end = memchr(at, '\n', call->bytes.count - call->read_to);
        if (end != NULL) {
            call->read_to = (size_t)(end - call->bytes.bytes) + 1;
            if (end > at && end[-1] == '\r') end--;
            *end = '\0';
            *line = at;
            return LW_OK;
        }
        if (call->has_ended) return LW_OK;
        status = receive_more(call, d);
    }
    return status;
}

bool lw_http_has_line(const lw_http_call *call)
{
    return call->code == 200 && call->bytes.count > call->read_to
           && memchr(call->bytes.bytes + call->read_to, '\n', call->bytes.count - call->read_to) != NULL;
}

lw_status lw_http_json(lw_http_call *call, json_t **out, lw_diag *d)
{
    *out = NULL;
    lw_status status = body_read(call, d);
    if (status == LW_OK && call->code != 200) status = refuse(call, d);
    if (status != LW_OK) return status;
    json_error_t why;
    *out = lw_json_load(call->bytes.bytes + call->read_to, call->bytes.count - call->read_to, 0, &why);
    if (*out != NULL) return LW_OK;
    if (why.text[0] == '\0') return lw_fail(d, LW_NO_ROOM, "no memory for the server's answer");
    return lw_fail(d, LW_BAD_INPUT, "the server's answer is not JSON: %s", why.text);
}
