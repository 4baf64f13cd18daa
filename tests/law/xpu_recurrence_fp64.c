/* gated_delta and ssm of the xpu device, on the emulated one, against FP64: outputs within the bound that the
 * cpu's kernels are held to. Twins that are wrong on purpose must not be.
 */
#include "recurrence_bound.h"
#include "recurrence_plan.h"

#include "../xpu/xpu_case.h"
#include "device/xpu/xpu.h"

enum { LENGTH = 200, CUT = 97 };

static void outputs_meet_their_bound(void **state)
{
    (void)state;
    static const shape shapes[] = { { 4, 32, 2, 32, true }, { 3, 40, 1, 24, true }, { 2, 64, 1, 128, false },
                                    { 2, 24, 2, 40, false }, { 2, 128, 1, 128, true } };
    static const size_t lengths[LANES] = { LENGTH, 1, 1 };
    const xpu_paths paths = xpu_paths_find();
    xpu_need(paths.loader, "it is for x86-64; `make check` builds it");
    xpu_need_kernels(&paths);
    const lw_device_options options = { .ze_loader = paths.loader, .xpu_kernels = paths.kernels };
    lw_rng rng = law_rng(0x602);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        streams t = streams_make(NULL, &rng, shapes[i], lengths);
        const outputs got = { .y = recur_plan_run(&lw_device_xpu, &options, &t, CUT) };
        truth right = truth_make(&t, PLANT_NONE);
        const bound_scores scores = bound_score(&t, &right, &right, &got);
        print_message("%s: outputs %.3f of their bound\n", shapes[i].delta ? "gated_delta" : "ssm",
                      scores.y.worst);
        assert_int_equal(scores.y.over, 0);
        for (plant planted = PLANT_DECAY; planted < PLANT_COUNT; planted++) {
            truth wrong = truth_make(&t, planted);
            const bound_scores caught = bound_score(&t, &wrong, &right, &got);
            assert_true(caught.y.over > caught.y.count / 50);
            truth_free(&wrong);
        }
        truth_free(&right);
        free((void *)(uintptr_t)got.y);
        streams_free(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(outputs_meet_their_bound) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
