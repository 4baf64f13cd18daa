/* gated_delta and ssm as ops of a plan: the cpu device's outputs are the bits of the kernels called by hand.
 * The kernels' twin that takes another token must not be.
 */
#include "cpu_recurrence_rows.h"
#include "recurrence_plan.h"

#include "device/cpu/cpu.h"

enum { LENGTH = 150, CUT = 97 };

static void plan_of_isa(const lw_cpu_kernels *kernels)
{
    static const shape shapes[] = { { 4, 32, 2, 32, true }, { 4, 64, 1, 128, false } };
    static const size_t lengths[LANES] = { LENGTH, 1, 1 };
    const lw_device_options options = { .threads = 2, .isa = kernels->isa };
    lw_rng rng = law_rng(0x504);
    for (size_t i = 0; i < 2; i++) {
        streams t = streams_make(kernels, &rng, shapes[i], lengths);
        store st = store_make(&t, NULL);
        rows r = { 0 };
        for (size_t p = 0; p < LENGTH; p++) rows_add(&r, &st, 0, p, 0);
        lw_bf16 *want = rows_run(&t, &st, &r, 1), *got = recur_plan_run(&lw_device_cpu, &options, &t, CUT);
        assert_memory_equal(got, want, LENGTH * t.y_width * sizeof *got);
        r.token[1] = 2;
        lw_bf16 *wrong = rows_run(&t, &st, &r, 1);
        assert_memory_not_equal(got, wrong, LENGTH * t.y_width * sizeof *got);
        store_free(&st);
        streams_free(&t);
        free(want);
        free(got);
        free(wrong);
    }
}

static void plans_run_the_kernels(void **state)
{
    (void)state;
    recur_each_isa(plan_of_isa);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(plans_run_the_kernels) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
