/* The generator is splitmix64 (first outputs known), and its derived draws keep their ranges and moments. */
#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>

static void the_sequence_is_splitmix64(void **state)
{
    (void)state;
    static const uint64_t want[] = { 6457827717110365317u, 3203168211198807973u, 9817491932198370423u };
    lw_rng rng = lw_rng_make(1234567);
    for (int i = 0; i < 3; i++) assert_true(lw_rng_next(&rng) == want[i]);
}

static void draws_below_a_bound_reach_all_of_it(void **state)
{
    (void)state;
    lw_rng rng = lw_rng_make(1);
    unsigned counts[7] = { 0 };
    for (int i = 0; i < 7000; i++) {
        const uint64_t draw = lw_rng_below(&rng, 7);
        assert_true(draw < 7);
        counts[draw]++;
    }
    for (int i = 0; i < 7; i++) assert_in_range(counts[i], 850, 1150); /* five standard deviations */
    assert_true(lw_rng_below(&rng, 1) == 0);
}

static void units_and_normals_have_their_moments(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    lw_rng rng = lw_rng_make(2);
    double unit_sum = 0, sum = 0, squares = 0;
    for (int i = 0; i < COUNT; i++) {
        const double unit = lw_rng_unit(&rng), normal = (double)lw_rng_normal(&rng);
        assert_true(unit >= 0 && unit < 1);
        assert_true(fabs(normal) <= 6);
        unit_sum += unit;
        sum += normal;
        squares += normal * normal;
    }
    /* Five standard deviations of each mean: sqrt(1/12), 1 and sqrt(2) over sqrt(COUNT). */
    assert_true(fabs(unit_sum / COUNT - 0.5) < 5 * 0.289 / sqrt(COUNT));
    assert_true(fabs(sum / COUNT) < 5 / sqrt(COUNT));
    assert_true(fabs(squares / COUNT - 1) < 5 * 1.415 / sqrt(COUNT));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sequence_is_splitmix64),
        cmocka_unit_test(draws_below_a_bound_reach_all_of_it),
        cmocka_unit_test(units_and_normals_have_their_moments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
