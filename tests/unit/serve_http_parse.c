/* The HTTP parser: every input whole and cut at every byte, with the same end. */
#include "serve/http_parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { BODY_MAX = 1000, CUT_NONE = SIZE_MAX };

/* How a feed ended, with all that a reader could see. */
typedef struct outcome {
    lw_http_result last;
    int code;
    size_t heads, used;
    char text[2048];
} outcome;

static void describe(const lw_http_parser *parser, outcome *out)
{
    int at = snprintf(out->text, sizeof out->text, "%s|%s|%s|%d%d%d|%.*s|", parser->method, parser->path,
                      parser->query, parser->is_http10, parser->keeps_alive, parser->is_chunked,
                      (int)parser->body.count, parser->body.bytes == NULL ? "" : parser->body.bytes);
    for (uint32_t i = 0; i < parser->header_count && at < (int)sizeof out->text; i++)
        at += snprintf(out->text + at, sizeof out->text - (size_t)at, "%s=%s;", parser->headers[i].name,
                       parser->headers[i].value);
}

/* Feeds pieces until one input is over; the piece is copied, so that reading past it shows. */
static void feed_piece(lw_http_parser *parser, const char *bytes, size_t count, outcome *out)
{
    char *copy = malloc(count + 1);
    memcpy(copy, bytes, count);
    size_t at = 0;
    do {
        size_t used;
        out->last = lw_http_feed(parser, copy + at, count - at, &used);
        assert_true(used <= count - at);
        out->heads += out->last == LW_HTTP_HEAD;
        at += used;
        out->used += used;
    } while (out->last == LW_HTTP_HEAD || (out->last == LW_HTTP_MORE && at < count));
    free(copy);
}

/* Cut into steps of `step` bytes, or once at `cut`. */
static outcome parse(const char *bytes, size_t count, size_t cut, size_t step)
{
    outcome out = { .used = 0 };
    lw_http_parser parser;
    lw_http_parser_init(&parser, BODY_MAX);
    for (size_t at = 0; at < count;) {
        size_t piece = cut != CUT_NONE && at < cut ? cut - at : count - at;
        if (piece > step) piece = step;
        feed_piece(&parser, bytes + at, piece, &out);
        at += piece;
        if (out.last == LW_HTTP_DONE || out.last == LW_HTTP_BAD) break;
    }
    out.code = out.last == LW_HTTP_BAD ? parser.code : 0;
    if (out.last == LW_HTTP_DONE) describe(&parser, &out);
    lw_http_parser_deinit(&parser);
    return out;
}

static void assert_same(const outcome *a, const outcome *b)
{
    assert_int_equal(a->last, b->last);
    assert_int_equal(a->code, b->code);
    assert_int_equal(a->heads, b->heads);
    assert_string_equal(a->text, b->text);
    if (a->last == LW_HTTP_DONE) assert_int_equal(a->used, b->used);
}

/* The outcome of the whole, after every cut gave the same. */
static outcome parse_in_all_cuts(const char *bytes, size_t count)
{
    const outcome whole = parse(bytes, count, CUT_NONE, SIZE_MAX);
    for (size_t cut = 1; cut < count; cut++) {
        const outcome two = parse(bytes, count, cut, SIZE_MAX);
        assert_same(&whole, &two);
    }
    const outcome single = parse(bytes, count, CUT_NONE, 1);
    assert_same(&whole, &single);
    return whole;
}

static outcome parse_text(const char *text)
{
    return parse_in_all_cuts(text, strlen(text));
}

static void good_requests(void **state)
{
    (void)state;
    static const struct {
        const char *text, *wanted;
    } cases[] = {
        { "GET /a?b=c HTTP/1.1\r\nHost: h\r\nX-Y:  v w \t\r\n\r\n", "GET|/a|b=c|010||host=h;x-y=v w;" },
        { "GET / HTTP/1.0\r\n\r\n", "GET|/||100||" },
        { "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "GET|/||110||connection=Keep-Alive;" },
        { "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", "GET|/||000||host=h;connection=close;" },
        { "\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", "GET|/||010||host=h;" },
        { "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
          "POST|/||010|abc|host=h;content-length=3;" },
        { "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
          "POST|/||011|abc|host=h;transfer-encoding=Chunked;" },
        { "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
          "1 ;x=y\r\na\r\n002\r\nbc\r\n0\r\nT: 1\r\nU: 2\r\n\r\n",
          "POST|/||011|abc|host=h;transfer-encoding=chunked;" },
        { "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", "OPTIONS|*||010||host=h;" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const outcome out = parse_text(cases[i].text);
        assert_int_equal(out.last, LW_HTTP_DONE);
        assert_string_equal(out.text, cases[i].wanted);
        assert_int_equal(out.used, strlen(cases[i].text));
        assert_int_equal(out.heads, 1);
    }
}

static void bad_requests(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int code;
    } cases[] = {
        { "GET\r\n\r\n", 400 },
        { "GET / HTTP/1.1\n\n", 400 },
        { "GET / HTTP/1.1\r\nHost: h\n\r\n", 400 },
        { "G@T / HTTP/1.1\r\nHost: h\r\n\r\n", 400 },
        { "GET x HTTP/1.1\r\nHost: h\r\n\r\n", 400 },
        { "GET * HTTP/1.1\r\nHost: h\r\n\r\n", 400 },
        { "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", 400 },
        { "GET / HTTP/1.2\r\nHost: h\r\n\r\n", 505 },
        { "GET / SPDY\r\nHost: h\r\n\r\n", 400 },
        { "GET / HTTP/1.1\r\n\r\n", 400 },
        { "GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", 400 },
        { "GET / HTTP/1.1\r\nHost: h\r\n x: y\r\n\r\n", 400 },
        { "GET / HTTP/1.1\r\nHost: h\r\nx : y\r\n\r\n", 400 },
        { "GET / HTTP/1.1\r\nHost: h\r\nxy\r\n\r\n", 400 },
        { "GET / HTTP/1.1\r\nHost: h\r\n: y\r\n\r\n", 400 },
        { "GET / HTTP/1.1\r\nHost: a\x01\r\n\r\n", 400 },
        { "GET / HTTP/1.1\r\nHost: h\r\nExpect: x\r\n\r\n", 417 },
        { "POST / HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n\r\n", 400 },
        { "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +3\r\n\r\n", 400 },
        { "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3, 3\r\n\r\n", 400 },
        { "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n", 400 },
        { "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n", 413 },
        { "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551617\r\n\r\n", 413 },
        { "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400 },
        { "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400 },
        { "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501 },
        { "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\ng\r\n", 400 },
        { "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1x\r\n", 400 },
        { "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", 400 },
        { "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\na\r\n", 400 },
        { "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3E9\r\n", 413 },
        { "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n", 413 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const outcome out = parse_text(cases[i].text);
        if (out.last != LW_HTTP_BAD || out.code != cases[i].code) print_error("case %zu\n", i);
        assert_int_equal(out.last, LW_HTTP_BAD);
        assert_int_equal(out.code, cases[i].code);
    }
    assert_int_equal(parse_in_all_cuts("GET / HTTP/1.1\r\nHost: \0h\r\n\r\n", 28).code, 400);
}

static void unfinished_requests_want_more(void **state)
{
    (void)state;
    static const char text[] = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nab";
    for (size_t count = 1; count < sizeof text; count++)
        assert_int_equal(parse(text, count, CUT_NONE, SIZE_MAX).last, LW_HTTP_MORE);
}

static void what_follows_is_left(void **state)
{
    (void)state;
    static const char text[] = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nabGET / HTTP/1.1\r\n";
    assert_int_equal(parse_text(text).used, strlen(text) - strlen("GET / HTTP/1.1\r\n"));
}

/* A head whose X header has `bytes` bytes. */
static int code_of_head(size_t bytes, size_t headers)
{
    lw_buf head;
    lw_buf_init(&head, 0);
    assert_int_equal(lw_buf_append_text(&head, "GET / HTTP/1.1\r\nHost: h\r\nX: "), LW_OK);
    for (size_t i = 0; i < bytes; i++) assert_int_equal(lw_buf_append_text(&head, "x"), LW_OK);
    assert_int_equal(lw_buf_append_text(&head, "\r\n"), LW_OK);
    for (size_t i = 0; i < headers; i++) assert_int_equal(lw_buf_append_text(&head, "a:b\r\n"), LW_OK);
    assert_int_equal(lw_buf_append_text(&head, "\r\n"), LW_OK);
    const outcome out = parse(head.bytes, head.count, CUT_NONE, 4000);
    lw_buf_deinit(&head);
    return out.code;
}

static void limits_are_exact(void **state)
{
    (void)state;
    const size_t fixed = strlen("GET / HTTP/1.1\r\nHost: h\r\nX: \r\n\r\n");
    assert_int_equal(code_of_head(LW_LIMIT_HTTP_HEAD_BYTES - fixed - 1, 0), 0);
    assert_int_equal(code_of_head(LW_LIMIT_HTTP_HEAD_BYTES - fixed, 0), 0);
    assert_int_equal(code_of_head(LW_LIMIT_HTTP_HEAD_BYTES - fixed + 1, 0), 431);
    assert_int_equal(code_of_head(1, LW_LIMIT_HTTP_HEADERS - 2), 0);
    assert_int_equal(code_of_head(1, LW_LIMIT_HTTP_HEADERS - 1), 431);
    char text[128];
    for (int more = -1; more <= 1; more++) {
        snprintf(text, sizeof text, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n",
                 BODY_MAX + more);
        const outcome out = parse(text, strlen(text), CUT_NONE, SIZE_MAX);
        assert_int_equal(out.code, more > 0 ? 413 : 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_requests),
        cmocka_unit_test(bad_requests),
        cmocka_unit_test(unfinished_requests_want_more),
        cmocka_unit_test(what_follows_is_left),
        cmocka_unit_test(limits_are_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
