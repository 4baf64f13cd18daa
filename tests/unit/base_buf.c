/* Buffers grow, end in NUL, stop exactly at their limit and are unchanged by a failure. */
#include "base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <string.h>

static void appended_bytes_end_in_nul(void **state)
{
    (void)state;
    lw_buf buf;
    lw_buf_init(&buf, 0);
    for (unsigned i = 0; i < 1000; i++) {
        const unsigned char byte = (unsigned char)i;
        assert_int_equal(lw_buf_append(&buf, &byte, 1), LW_OK);
        assert_int_equal(buf.bytes[buf.count], '\0');
    }
    assert_int_equal(buf.count, 1000);
    for (unsigned i = 0; i < 1000; i++) assert_int_equal((unsigned char)buf.bytes[i], i % 256);
    lw_buf_deinit(&buf);
}

static void the_limit_is_exact_and_a_failure_changes_nothing(void **state)
{
    (void)state;
    lw_buf buf;
    lw_buf_init(&buf, 5);
    assert_int_equal(lw_buf_append_text(&buf, "lane"), LW_OK);
    assert_int_equal(lw_buf_append_text(&buf, "s!"), LW_NO_ROOM);
    assert_int_equal(lw_buf_printf(&buf, "%d", 12), LW_NO_ROOM);
    assert_string_equal(buf.bytes, "lane");
    assert_int_equal(lw_buf_append_text(&buf, "s"), LW_OK);
    assert_int_equal(lw_buf_append(&buf, NULL, 0), LW_OK);
    assert_string_equal(buf.bytes, "lanes");
    lw_buf_deinit(&buf);
}

static void sizes_do_not_wrap(void **state)
{
    (void)state;
    lw_buf buf;
    lw_buf_init(&buf, 0);
    assert_int_equal(lw_buf_append_text(&buf, "x"), LW_OK);
    assert_int_equal(lw_buf_reserve(&buf, SIZE_MAX), LW_NO_ROOM);
    assert_int_equal(lw_buf_reserve(&buf, SIZE_MAX - 1), LW_NO_ROOM);
    assert_string_equal(buf.bytes, "x");
    lw_buf_deinit(&buf);
}

static void printing_appends_what_printf_would(void **state)
{
    (void)state;
    lw_buf buf;
    lw_buf_init(&buf, 0);
    assert_int_equal(lw_buf_printf(&buf, "%s", ""), LW_OK);
    assert_int_equal(lw_buf_printf(&buf, "%d rows of %s", 3, "lane 7"), LW_OK);
    assert_int_equal(lw_buf_printf(&buf, "%200d", 5), LW_OK);
    assert_int_equal(buf.count, 16 + 200);
    assert_memory_equal(buf.bytes, "3 rows of lane 7", 16);
    assert_int_equal(buf.bytes[215], '5');
    lw_buf_deinit(&buf);
}

static void clearing_keeps_the_memory(void **state)
{
    (void)state;
    lw_buf buf;
    lw_buf_init(&buf, 0);
    lw_buf_clear(&buf);
    assert_int_equal(lw_buf_reserve(&buf, 100), LW_OK);
    const char *bytes = buf.bytes;
    assert_int_equal(lw_buf_append_text(&buf, "gone"), LW_OK);
    lw_buf_clear(&buf);
    assert_string_equal(buf.bytes, "");
    assert_int_equal(buf.count, 0);
    assert_ptr_equal(buf.bytes, bytes);
    lw_buf_deinit(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appended_bytes_end_in_nul),
        cmocka_unit_test(the_limit_is_exact_and_a_failure_changes_nothing),
        cmocka_unit_test(sizes_do_not_wrap),
        cmocka_unit_test(printing_appends_what_printf_would),
        cmocka_unit_test(clearing_keeps_the_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
