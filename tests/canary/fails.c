/* Always fails, once by a check and once by skipping: tests/run must count both as what they are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void this_fails(void **state)
{
    (void)state;
    assert_true(0);
}

static void this_skips(void **state)
{
    (void)state;
    skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(this_fails),
        cmocka_unit_test(this_skips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
