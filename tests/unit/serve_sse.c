/* Event framing, and the records that carry news between threads. */
#include "serve/job.h"
#include "serve/sse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static void events(void **state)
{
    (void)state;
    lw_buf out;
    lw_buf_init(&out, 0);
    assert_int_equal(lw_sse_data(&out, json_pack("{s:s}", "a", "b\nc")), LW_OK);
    assert_int_equal(lw_sse_comment(&out, "here"), LW_OK);
    assert_int_equal(lw_sse_done(&out), LW_OK);
    assert_string_equal(out.bytes, "data: {\"a\":\"b\\nc\"}\n\n: here\n\ndata: [DONE]\n\n");
    assert_int_equal(lw_sse_data(&out, NULL), LW_NO_ROOM);
    lw_buf_deinit(&out);
}

static void records(void **state)
{
    (void)state;
    lw_buf buf;
    lw_buf_init(&buf, 0);
    assert_int_equal(lw_news_put(&buf, LW_NEWS_CONTENT, "abc", 3), LW_OK);
    assert_int_equal(lw_news_put(&buf, LW_NEWS_RUNNING, "", 0), LW_OK);
    assert_int_equal(lw_news_put(&buf, LW_NEWS_REASONING, "d", 1), LW_OK);
    lw_news news;
    size_t at = 0;
    assert_true(lw_news_next(&buf, &at, &news));
    assert_int_equal(news.kind, LW_NEWS_CONTENT);
    assert_int_equal(news.count, 3);
    assert_memory_equal(news.bytes, "abc", 3);
    assert_true(lw_news_next(&buf, &at, &news));
    assert_int_equal(news.kind, LW_NEWS_RUNNING);
    assert_true(lw_news_next(&buf, &at, &news));
    assert_memory_equal(news.bytes, "d", 1);
    assert_false(lw_news_next(&buf, &at, &news));
    lw_buf_deinit(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(events), cmocka_unit_test(records) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
