/* Dies in the middle of its second test: tests/run must count one pass and one failure. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void this_passes(void **state)
{
    (void)state;
    assert_true(1);
}

static void this_dies(void **state)
{
    (void)state;
    raise(SIGKILL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(this_passes),
        cmocka_unit_test(this_dies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
