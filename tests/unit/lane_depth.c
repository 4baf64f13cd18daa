/* Costs and the guard: what a table means between its entries, how luck is learnt, and that losing drafts
 * rest. */
#include "lane/depth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <math.h>
#include <cmocka.h>

static void given_costs_stand_and_lines_join_them(void **state)
{
    (void)state;
    const lw_cost given[] = { { 2, 10.0 }, { 4, 20.0 }, { 8, 28.0 } };
    lw_costs costs;
    assert_int_equal(lw_costs_init(&costs, given, 3, 16, NULL), LW_OK);
    const double want[] = { 10.0, 10.0, 10.0, 15.0, 20.0, 22.0, 24.0, 26.0, 28.0 };
    for (uint32_t rows = 0; rows <= 8; rows++) assert_true(lw_costs_at(&costs, rows) == want[rows]);
    assert_true(lw_costs_at(&costs, 16) == 56.0);
    lw_costs_measure(&costs, 4, 30.0);
    assert_true(fabs(lw_costs_at(&costs, 4) - 22.0) < 1e-9);
    assert_true(lw_costs_at(&costs, 5) == 22.0);
    lw_costs_measure(&costs, 4, 1e9);                       /* the machine did something else */
    assert_true(fabs(lw_costs_at(&costs, 4) - 26.4) < 1e-9);
    for (int i = 0; i < 40; i++) lw_costs_measure(&costs, 5, 2.0);
    for (uint32_t rows = 1; rows <= 5; rows++)              /* fewer rows never take longer */
        assert_true(lw_costs_at(&costs, rows) <= lw_costs_at(&costs, 5) && lw_costs_at(&costs, rows) > 0.0);
    lw_costs_deinit(&costs);
}

static void assumed_costs_rise_by_a_sixteenth(void **state)
{
    (void)state;
    lw_costs costs;
    assert_int_equal(lw_costs_init(&costs, NULL, 0, 17, NULL), LW_OK);
    assert_true(fabs(lw_costs_at(&costs, 17) / lw_costs_at(&costs, 1) - 2.0) < 1e-9);
    lw_costs_measure(&costs, 1, 100.0);
    assert_true(fabs(lw_costs_at(&costs, 17) - 200.0) <
                1e-9); /* the first measurement gives all of them a unit */
    lw_costs_measure(&costs, 9, 300.0);
    assert_true(lw_costs_at(&costs, 9) == 300.0);
    lw_costs_measure(&costs, 9, 200.0);
    assert_true(fabs(lw_costs_at(&costs, 9) - 280.0) < 1e-9);
    assert_true(fabs(lw_costs_at(&costs, 17) - 200.0) < 1e-9);
    lw_costs_deinit(&costs);
}

static void luck_is_learnt_up_to_the_first_miss(void **state)
{
    (void)state;
    lw_depth depth;
    lw_depth_init(&depth, 0.9f);
    const float before = depth.chances[0];
    for (int i = 0; i < 100; i++) lw_depth_drafted(&depth, 4, 2, 0.0, 0.0);
    assert_true(depth.chances[0] > 0.99f && depth.chances[1] > 0.99f && depth.chances[2] < 0.01f);
    assert_true(depth.chances[3] == before);
    for (int i = 0; i < 200; i++) lw_depth_plain(&depth); /* what is not tried gets another chance */
    assert_true(depth.chances[2] > 0.8f && depth.chances[2] < before);
}

/* Plays rounds in which drafts keep `kept` of 4 and cost `factor` plain rounds; counts those with drafts. */
static uint32_t drafted_of(lw_depth *depth, uint32_t rounds, uint32_t kept, double factor)
{
    uint32_t drafted = 0;
    for (uint32_t i = 0; i < rounds; i++) {
        const uint32_t limit = lw_depth_limit(depth, 4);
        if (limit == 0) {
            lw_depth_plain(depth);
            continue;
        }
        drafted++;
        lw_depth_drafted(depth, limit, kept < limit ? kept : limit, factor, 1.0);
    }
    return drafted;
}

static void losing_drafts_rest_and_winning_ones_return(void **state)
{
    (void)state;
    lw_depth depth;
    lw_depth_init(&depth, 0.9f);
    assert_int_equal(drafted_of(&depth, 100, 4, 1.5), 100);         /* 5 tokens in 1.5 rounds' time */
    lw_depth_init(&depth, 0.9f);
    assert_int_equal(drafted_of(&depth, 100, 0, 1.5), 6 + 3);       /* then after 8, 16 and 32 plain rounds */
    while (lw_depth_limit(&depth, 4) == 0) lw_depth_plain(&depth);
    assert_int_equal(lw_depth_limit(&depth, 4), 1);                 /* a probe is one draft */
    drafted_of(&depth, 1000, 0, 1.5);
    assert_true(drafted_of(&depth, 1000, 0, 1.5) <= 9);             /* one probe in 128 rounds */
    assert_true(drafted_of(&depth, 400, 4, 1.5) > 200); /* the next probe finds that they pay again */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_costs_stand_and_lines_join_them),
        cmocka_unit_test(assumed_costs_rise_by_a_sixteenth),
        cmocka_unit_test(luck_is_learnt_up_to_the_first_miss),
        cmocka_unit_test(losing_drafts_rest_and_winning_ones_return),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
