/* Statuses carry texts: written where it failed, prefixed on the way up, cut but ended when too long. */
#include "base/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <string.h>

static void every_status_has_its_own_name(void **state)
{
    (void)state;
    for (int i = 0; i < LW_STATUS_COUNT; i++) {
        assert_string_not_equal(lw_status_name((lw_status)i), "unknown status");
        for (int j = 0; j < i; j++) {
            assert_string_not_equal(lw_status_name((lw_status)i), lw_status_name((lw_status)j));
        }
    }
    assert_string_equal(lw_status_name(LW_STATUS_COUNT), "unknown status");
    assert_string_equal(lw_status_name((lw_status)-1), "unknown status");
}

static void failing_writes_the_text_and_returns_the_status(void **state)
{
    (void)state;
    lw_diag d;
    assert_int_equal(lw_fail(&d, LW_IO, "%s: %d bytes", "a.bin", 3), LW_IO);
    assert_string_equal(d.text, "a.bin: 3 bytes");
    assert_int_equal(lw_fail(NULL, LW_NO_ROOM, "nobody asks"), LW_NO_ROOM);
}

static void prefixes_stand_before_the_text(void **state)
{
    (void)state;
    lw_diag d;
    (void)lw_fail(&d, LW_BAD_MODEL, "shape is wrong");
    assert_int_equal(lw_fail_prefix(&d, LW_BAD_MODEL, "layer %d", 7), LW_BAD_MODEL);
    assert_string_equal(d.text, "layer 7: shape is wrong");
    assert_int_equal(lw_fail_prefix(NULL, LW_IO, "nobody asks"), LW_IO);
}

static void long_texts_are_cut_and_ended(void **state)
{
    (void)state;
    static char text[LW_DIAG_BYTES + 100];
    lw_diag d;
    memset(text, 'x', sizeof text - 1);
    (void)lw_fail(&d, LW_IO, "%s", text);
    assert_int_equal(strlen(d.text), LW_DIAG_BYTES - 1);
    (void)lw_fail_prefix(&d, LW_IO, "file");
    assert_int_equal(strlen(d.text), LW_DIAG_BYTES - 1);
    assert_memory_equal(d.text, "file: xxx", 9);
    for (size_t i = LW_DIAG_BYTES - 5; i < LW_DIAG_BYTES + 5; i++) { /* prefixes around the whole room */
        (void)lw_fail(&d, LW_IO, "inner");
        (void)lw_fail_prefix(&d, LW_IO, "%.*s", (int)i, text);
        assert_true(strlen(d.text) < LW_DIAG_BYTES);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_its_own_name),
        cmocka_unit_test(failing_writes_the_text_and_returns_the_status),
        cmocka_unit_test(prefixes_stand_before_the_text),
        cmocka_unit_test(long_texts_are_cut_and_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
