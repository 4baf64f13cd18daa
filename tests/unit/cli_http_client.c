/* Addresses, and answers of every shape, read from a pair of sockets in this process. */
#include "cli/http_client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

static void addresses_are_taken_apart(void **state)
{
    (void)state;
    static const char *const good[][4] = {
        { "http://127.0.0.1:8080", "127.0.0.1", "8080", "" }, { "http://h", "h", "80", "" },
        { "http://h:1/", "h", "1", "" },                      { "http://h:1/v1", "h", "1", "" },
        { "http://h:1/v1/", "h", "1", "" },                   { "http://h/under/v1", "h", "80", "/under" },
        { "http://[::1]:9", "::1", "9", "" },                 { "http://[::1]", "::1", "80", "" },
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        lw_http_server server;
        lw_diag d;
        if (lw_http_server_parse(good[i][0], &server, &d) != LW_OK) fail_msg("%s", d.text);
        assert_string_equal(server.host, good[i][1]);
        assert_string_equal(server.port, good[i][2]);
        assert_string_equal(server.path, good[i][3]);
    }
    static const char *const bad[] = { "",
                                       "h",
                                       "h:80",
                                       "ftp://h",
                                       "http://",
                                       "http:///x",
                                       "http://:80",
                                       "http://h:",
                                       "http://h:x",
                                       "http://h:123456",
                                       "http://[::1",
                                       "http://[]",
                                       "http://[::1]x",
                                       "http://h h",
                                       "http://h\r\nX: y",
                                       "https://h" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        lw_http_server server;
        lw_diag d;
        if (lw_http_server_parse(bad[i], &server, &d) == LW_OK) fail_msg("taken: %s", bad[i]);
    }
}

/* A call whose answer is text, all of it there. */
static lw_http_call answered(const char *text)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_int_equal(write(ends[1], text, strlen(text)), (ssize_t)strlen(text));
    close(ends[1]);
    lw_http_call call = { .socket = ends[0] };
    lw_buf_init(&call.bytes, 1 << 20);
    return call;
}

static void a_whole_answer_is_json(void **state)
{
    (void)state;
    lw_http_call call = answered("HTTP/1.1 200 OK\r\nX: y\r\n\r\n{\"a\": 1}");
    json_t *root;
    lw_diag d;
    assert_int_equal(lw_http_json(&call, &root, &d), LW_OK);
    assert_int_equal(json_integer_value(json_object_get(root, "a")), 1);
    json_decref(root);
    lw_http_close(&call);
    lw_http_close(&call);
}

static void refusals_carry_the_servers_words(void **state)
{
    (void)state;
    static const char *const answers[][2] = {
        { "HTTP/1.1 400 Bad\r\n\r\n{\"error\": {\"message\": \"no such thing\"}}", "no such thing" },
        { "HTTP/1.0 503 Busy\r\n\r\nplain words", "plain words" },
        { "HTTP/1.1 200 OK\r\n\r\n{", "not JSON" },
        { "HTTP/1.1 200 OK\r\n", "without an answer" },
        { "", "without an answer" },
        { "SSH-2.0-x\r\n\r\n", "no HTTP server" },
        { "HTTP/1.1 xyz\r\n\r\n", "no HTTP server" },
    };
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        lw_http_call call = answered(answers[i][0]);
        json_t *root;
        lw_diag d;
        assert_int_not_equal(lw_http_json(&call, &root, &d), LW_OK);
        assert_null(root);
        if (strstr(d.text, answers[i][1]) == NULL) fail_msg("%s: %s", answers[i][0], d.text);
        lw_http_close(&call);
    }
}

static void streams_come_line_by_line(void **state)
{
    (void)state;
    lw_http_call call = answered("HTTP/1.1 200 OK\r\n\r\ndata: {}\r\n\ndata: [DONE]\n\nhalf");
    static const char *const lines[] = { "data: {}", "", "data: [DONE]", "" };
    const char *line;
    lw_diag d;
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(lw_http_line(&call, &line, &d), LW_OK);
        assert_string_equal(line, lines[i]);
        assert_int_equal(lw_http_has_line(&call), i < 3);
    }
    assert_int_equal(lw_http_line(&call, &line, &d), LW_OK);
    assert_null(line); /* a line that the connection cut is none */
    lw_http_close(&call);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_taken_apart),
        cmocka_unit_test(a_whole_answer_is_json),
        cmocka_unit_test(refusals_carry_the_servers_words),
        cmocka_unit_test(streams_come_line_by_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
