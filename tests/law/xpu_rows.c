/* Ops through the whole xpu device, on the emulated one: the plan of cpu_plan.c, and its laws. */
enum { VOCAB = 40, LENGTH = 150 };

#include "plan_meaning.h"
#include "plan_rows.h"
#include "xpu_law.h"

static void rows_keep_their_law_and_meaning(void **state)
{
    (void)state;
    lw_rng rng = law_rng(0x601);
    xpu_bench *x = xpu_bench_open(record_rows, &rng);
    kept *alone = kept_make(x->b);
    streams_run(x->b, alone, &rng, 1, LENGTH, ALONE);
    check_meaning(x->b, alone, &rng);
    check_law(x->b, &rng, alone);
    kept_free(x->b, alone);
    xpu_bench_close(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(rows_keep_their_law_and_meaning) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
