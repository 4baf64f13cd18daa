/* The request parser; see http_parse.h. Strict where leniency would let two readers see two requests: line
 * ends are CR LF, lengths are given once and plainly, folded headers and control bytes are refused.
 */
#include "serve/http_parse.h"

#include "base/size.h"

#include <string.h>
#include <strings.h>

void lw_http_parser_init(lw_http_parser *parser, size_t body_max)
{
    *parser = (lw_http_parser){ .body_max = body_max };
    lw_buf_init(&parser->head, 0);
    lw_buf_init(&parser->line, 0);
    lw_buf_init(&parser->body, 0);
}

void lw_http_parser_deinit(lw_http_parser *parser)
{
    lw_buf_deinit(&parser->head);
    lw_buf_deinit(&parser->line);
    lw_buf_deinit(&parser->body);
}

void lw_http_parser_reset(lw_http_parser *parser)
{
    const size_t body_max = parser->body_max;
    lw_http_parser_deinit(parser);
    lw_http_parser_init(parser, body_max);
}

const char *lw_http_find(const lw_http_parser *parser, const char *name)
{
    for (uint32_t i = 0; i < parser->header_count; i++) {
        if (strcmp(parser->headers[i].name, name) == 0) return parser->headers[i].value;
    }
    return NULL;
}

static lw_http_result refuse(lw_http_parser *parser, int code, const char *why)
{
    parser->phase = LW_HTTP_PHASE_REFUSED;
    parser->code = code;
    parser->why = why;
    return LW_HTTP_BAD;
}

/* ---- the head ---- */

static bool is_token_char(char c)
{
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) return true;
    return c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

static bool is_token(const char *text)
{
    if (*text == '\0') return false;
    for (; *text != '\0'; text++) {
        if (!is_token_char(*text)) return false;
    }
    return true;
}

static lw_http_result parse_target(lw_http_parser *parser, char *target)
{
    if (strlen(target) > LW_LIMIT_HTTP_TARGET_BYTES)
        return refuse(parser, 414, "the request's target is longer than 8 KiB");
    const bool is_star = strcmp(target, "*") == 0 && strcmp(parser->method, "OPTIONS") == 0;
    if (target[0] != '/' && !is_star)
        return refuse(parser, 400, "the request's target is not a path that starts with a slash");
    for (const char *c = target; *c != '\0'; c++) {
        if (*c <= ' ' || *c == 0x7F) return refuse(parser, 400, "the request's target has a control byte");
    }
    char *mark = strchr(target, '?');
    parser->path = target;
    parser->query = mark == NULL ? "" : mark + 1;
    if (mark != NULL) *mark = '\0';
    return LW_HTTP_MORE;
}

/* "METHOD SP target SP HTTP/1.x" */
static lw_http_result parse_request_line(lw_http_parser *parser, char *line)
{
    char *first = strchr(line, ' ');
    char *last = strrchr(line, ' ');
    if (first == NULL || last == first)
        return refuse(parser, 400, "the request line is not METHOD PATH HTTP/1.1");
    *first = *last = '\0';
    parser->method = line;
    if (!is_token(line)) return refuse(parser, 400, "the method is not a word");
    const char *version = last + 1;
    if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0) {
        const bool is_other = strncmp(version, "HTTP/", 5) == 0;
        return is_other ? refuse(parser, 505, "only HTTP/1.1 and HTTP/1.0 are spoken here")
                        : refuse(parser, 400, "the request line does not end with HTTP/1.1");
    }
    parser->is_http10 = version[7] == '0';
    return parse_target(parser, first + 1);
}

static lw_http_result parse_header(lw_http_parser *parser, char *line)
{
    if (parser->header_count == LW_LIMIT_HTTP_HEADERS) return refuse(parser, 431, "more than 100 headers");
    if (*line == ' ' || *line == '\t') return refuse(parser, 400, "a folded header");
    char *colon = strchr(line, ':');
    if (colon == NULL) return refuse(parser, 400, "a header line without a colon");
    *colon = '\0';
    if (!is_token(line)) return refuse(parser, 400, "a header's name is not a word");
    for (char *c = line; *c != '\0'; c++) {
        if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
    }
    char *value = colon + 1 + strspn(colon + 1, " \t");
    size_t count = strlen(value);
    while (count > 0 && (value[count - 1] == ' ' || value[count - 1] == '\t')) count--;
    value[count] = '\0';
    for (const char *c = value; *c != '\0'; c++) {
        if (((unsigned char)*c < ' ' && *c != '\t') || *c == 0x7F)
            return refuse(parser, 400, "a header's value has a control byte");
    }
    parser->headers[parser->header_count++] = (lw_http_header){ .name = line, .value = value };
    return LW_HTTP_MORE;
}

static uint32_t count_headers(const lw_http_parser *parser, const char *name)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < parser->header_count; i++) count += strcmp(parser->headers[i].name, name) == 0;
    return count;
}

static lw_http_result parse_content_length(lw_http_parser *parser)
{
    const char *text = lw_http_find(parser, "content-length");
    if (text == NULL) return LW_HTTP_MORE;
    if (count_headers(parser, "content-length") > 1)
        return refuse(parser, 400, "Content-Length stands there twice");
    if (*text == '\0') return refuse(parser, 400, "Content-Length is empty");
    uint64_t value = 0;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9') return refuse(parser, 400, "Content-Length is not a whole number");
        value = value * 10 + (uint64_t)(*text - '0');
        if (value > parser->body_max) return refuse(parser, 413, "the body is larger than this server takes");
    }
    parser->bytes_left = value;
    return LW_HTTP_MORE;
}

static lw_http_result parse_framing(lw_http_parser *parser)
{
    const char *coding = lw_http_find(parser, "transfer-encoding");
    if (coding != NULL) {
        if (parser->is_http10 || count_headers(parser, "transfer-encoding") > 1 ||
            lw_http_find(parser, "content-length") != NULL)
            return refuse(parser, 400, "Transfer-Encoding beside another length, or in HTTP/1.0");
        if (strcasecmp(coding, "chunked") != 0)
            return refuse(parser, 501, "the only transfer coding taken is chunked");
        parser->is_chunked = true;
        return LW_HTTP_MORE;
    }
    return parse_content_length(parser);
}

static lw_http_result parse_meaning(lw_http_parser *parser)
{
    const uint32_t hosts = count_headers(parser, "host");
    if (hosts > 1 || (hosts == 0 && !parser->is_http10))
        return refuse(parser, 400, "HTTP/1.1 wants one Host header");
    const char *connection = lw_http_find(parser, "connection");
    parser->keeps_alive = !parser->is_http10;
    if (connection != NULL && strcasestr(connection, "close") != NULL) parser->keeps_alive = false;
    else if (connection != NULL && strcasestr(connection, "keep-alive") != NULL) parser->keeps_alive = true;
    const char *expect = lw_http_find(parser, "expect");
    if (expect != NULL && strcasecmp(expect, "100-continue") != 0)
        return refuse(parser, 417, "the only expectation met is 100-continue");
    parser->expects_continue = expect != NULL && !parser->is_http10;
    return parse_framing(parser);
}

/* head holds everything up to the empty line. */
static lw_http_result parse_head(lw_http_parser *parser)
{
    lw_buf *head = &parser->head;
    if (memchr(head->bytes, '\0', head->count) != NULL) return refuse(parser, 400, "a NUL byte in the head");
    char *line = head->bytes;
    for (bool is_first = true;; is_first = false) {
        char *end = strchr(line, '\n');
        LW_ASSERT(end != NULL);
        if (end == line || end[-1] != '\r') return refuse(parser, 400, "a line that does not end with CR LF");
        end[-1] = '\0';
        if (!is_first && *line == '\0') break;
        const lw_http_result result =
            is_first ? parse_request_line(parser, line) : parse_header(parser, line);
        if (result == LW_HTTP_BAD) return result;
        line = end + 1;
    }
    const lw_http_result result = parse_meaning(parser);
    if (result == LW_HTTP_BAD) return result;
    parser->phase = parser->is_chunked ? LW_HTTP_PHASE_CHUNK_LINE : LW_HTTP_PHASE_FIXED;
    return LW_HTTP_HEAD;
}

/* True when buf ends with an empty line. */
static bool ends_head(const lw_buf *buf)
{
    return buf->count >= 4 && memcmp(buf->bytes + buf->count - 4, "\r\n\r\n", 4) == 0;
}

static lw_http_result feed_head(lw_http_parser *parser, const char *bytes, size_t count, size_t *used)
{
    lw_buf *head = &parser->head;
    while (*used < count) {
        /* An empty line before a request is skipped: some clients send one after a body. */
        if (head->count == 2 && memcmp(head->bytes, "\r\n", 2) == 0) lw_buf_clear(head);
        const char *from = bytes + *used;
        const char *end = memchr(from, '\n', count - *used);
        const size_t piece = end == NULL ? count - *used : (size_t)(end - from) + 1;
        if (head->count + piece > LW_LIMIT_HTTP_HEAD_BYTES) {
            const bool has_line = head->count > 0 && memchr(head->bytes, '\n', head->count) != NULL;
            return has_line ? refuse(parser, 431, "the headers are larger than 64 KiB")
                            : refuse(parser, 414, "the request line is longer than 64 KiB");
        }
        if (lw_buf_append(head, from, piece) != LW_OK) return refuse(parser, 503, "out of memory");
        *used += piece;
        if (end != NULL && ends_head(head)) return parse_head(parser);
        if (end != NULL && (head->count < 2 || head->bytes[head->count - 2] != '\r'))
            return refuse(parser, 400, "a line that does not end with CR LF");
    }
    return LW_HTTP_MORE;
}

/* ---- the body ---- */

static lw_http_result complete(lw_http_parser *parser)
{
    parser->phase = LW_HTTP_PHASE_COMPLETE;
    return LW_HTTP_DONE;
}

/* Takes what there is of bytes_left; true when none is left. */
static bool take_body(lw_http_parser *parser, const char *bytes, size_t count, size_t *used)
{
    const uint64_t there = count - *used;
    const size_t piece = (size_t)(there < parser->bytes_left ? there : parser->bytes_left);
    if (lw_buf_append(&parser->body, bytes + *used, piece) != LW_OK) {
        (void)refuse(parser, 503, "out of memory");
        return false;
    }
    *used += piece;
    parser->bytes_left -= piece;
    return parser->bytes_left == 0;
}

/* Collects a line in parser->line; true when it is complete, its CR LF cut off. */
static bool take_line(lw_http_parser *parser, const char *bytes, size_t count, size_t *used)
{
    lw_buf *line = &parser->line;
    const char *end = memchr(bytes + *used, '\n', count - *used);
    const size_t piece = end == NULL ? count - *used : (size_t)(end - (bytes + *used)) + 1;
    if (line->count + piece > LW_LIMIT_HTTP_CHUNK_LINE) {
        (void)refuse(parser, 400, "a line of the chunked body is longer than 1 KiB");
        return false;
    }
    if (lw_buf_append(line, bytes + *used, piece) != LW_OK) {
        (void)refuse(parser, 503, "out of memory");
        return false;
    }
    *used += piece;
    if (end == NULL) return false;
    if (line->count < 2 || line->bytes[line->count - 2] != '\r') {
        (void)refuse(parser, 400, "a line of the chunked body does not end with CR LF");
        return false;
    }
    line->count -= 2;
    line->bytes[line->count] = '\0';
    return true;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* "size [; extensions]" */
static void parse_chunk_line(lw_http_parser *parser)
{
    const char *text = parser->line.bytes;
    if (hex_value(*text) < 0) {
        (void)refuse(parser, 400, "a chunk without a size");
        return;
    }
    uint64_t size = 0;
    for (; hex_value(*text) >= 0; text++) {
        size = size * 16 + (uint64_t)hex_value(*text);
        if (size > parser->body_max - parser->body.count) {
            (void)refuse(parser, 413, "the body is larger than this server takes");
            return;
        }
    }
    text += strspn(text, " \t");
    if (*text != '\0' && *text != ';') {
        (void)refuse(parser, 400, "a chunk's size is not a hexadecimal number");
        return;
    }
    parser->bytes_left = size;
    parser->phase = size == 0 ? LW_HTTP_PHASE_TRAILER : LW_HTTP_PHASE_CHUNK_DATA;
}

static lw_http_result feed_trailer(lw_http_parser *parser)
{
    /* bytes_left counts the trailers here: the chunk that set it had none. */
    parser->bytes_left += parser->line.count + 2;
    if (parser->bytes_left > LW_LIMIT_HTTP_TRAILER_BYTES)
        return refuse(parser, 400, "the trailers are longer than 8 KiB");
    return parser->line.count == 0 ? complete(parser) : LW_HTTP_MORE;
}

/* One step of a chunked body. */
static lw_http_result feed_chunked(lw_http_parser *parser, const char *bytes, size_t count, size_t *used)
{
    if (parser->phase == LW_HTTP_PHASE_CHUNK_DATA) {
        if (take_body(parser, bytes, count, used)) parser->phase = LW_HTTP_PHASE_CHUNK_END;
    } else if (take_line(parser, bytes, count, used)) {
        lw_http_result result = LW_HTTP_MORE;
        if (parser->phase == LW_HTTP_PHASE_CHUNK_LINE) parse_chunk_line(parser);
        else if (parser->phase == LW_HTTP_PHASE_TRAILER) result = feed_trailer(parser);
        else if (parser->line.count != 0) result = refuse(parser, 400, "a chunk is longer than its size");
        else parser->phase = LW_HTTP_PHASE_CHUNK_LINE;
        lw_buf_clear(&parser->line);
        if (result != LW_HTTP_MORE) return result;
    }
    return parser->phase == LW_HTTP_PHASE_REFUSED ? LW_HTTP_BAD : LW_HTTP_MORE;
}

lw_http_result lw_http_feed(lw_http_parser *parser, const char *bytes, size_t count, size_t *used)
{
    *used = 0;
    if (parser->phase == LW_HTTP_PHASE_REFUSED) return LW_HTTP_BAD;
    if (parser->phase == LW_HTTP_PHASE_COMPLETE) return LW_HTTP_DONE;
    if (parser->phase == LW_HTTP_PHASE_HEAD) return feed_head(parser, bytes, count, used);
    if (parser->phase == LW_HTTP_PHASE_FIXED) {
        if (take_body(parser, bytes, count, used)) return complete(parser);
        return parser->phase == LW_HTTP_PHASE_REFUSED ? LW_HTTP_BAD : LW_HTTP_MORE;
    }
    lw_http_result result = LW_HTTP_MORE;
    while (*used < count && result == LW_HTTP_MORE) result = feed_chunked(parser, bytes, count, used);
    return result;
}
