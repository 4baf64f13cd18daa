/* Always passes: tests/run runs it first and believes no result if it does not see this pass. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void this_passes(void **state)
{
    (void)state;
    assert_true(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(this_passes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
