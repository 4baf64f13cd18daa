/* Costs and the guard: what a table means between its entries, how luck is learnt, and that losing drafts
 * rest. */
#include "lane/depth.h"

#include "base/rng.h"

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
    for (int i = 0; i < 100; i++) lw_depth_drafted(&depth, 4, 2, 0.0, 1);
    assert_true(depth.chances[0] > 0.99f && depth.chances[1] > 0.99f && depth.chances[2] < 0.01f);
    assert_true(depth.chances[3] == before);
    for (int i = 0; i < 200; i++) lw_depth_plain(&depth); /* what is not tried gets another chance */
    assert_true(depth.chances[2] > 0.8f && depth.chances[2] < before);
}

/* A round is a plain one and 0.19 for a second row; a step of the head is 0.36 of it. */
static const lw_cost slow_rounds[] = { { 1, 1.0 }, { 2, 1.19 }, { 4, 1.88 }, { 8, 3.83 }, { 16, 7.7 } };
static const lw_cost fast_rounds[] = { { 1, 1.0 }, { 16, 1.15 } };
enum { SLOW_COUNT = sizeof slow_rounds / sizeof slow_rounds[0], ROWS_MAX = 16, MOST = 5 };

static void the_account_limits_what_may_be_lost(void **state)
{
    (void)state;
    lw_costs costs;
    lw_depth depth;
    assert_int_equal(lw_costs_init(&costs, slow_rounds, SLOW_COUNT, ROWS_MAX, NULL), LW_OK);
    lw_draft_prices prices = { .rounds = &costs, .rows = 1, .streams = 1, .step_ns = 0.36 };
    lw_depth_init(&depth, 0.8f);
    assert_int_equal(lw_depth_limit(&depth, &prices, MOST), 1);     /* 2: 1.53 + 0.72 - 1 = 1.25 */
    prices.step_ns = 0.0;
    assert_int_equal(lw_depth_limit(&depth, &prices, 15), 3);       /* 4: 2.37 - 1 */
    assert_int_equal(lw_depth_limit(&depth, &prices, 2), 2);
    prices.streams = 2; /* each of which loses by the longer round */
    assert_int_equal(lw_depth_limit(&depth, &prices, 15), 2);
    prices.streams = 1;
    for (int i = 0; i < 9; i++) lw_depth_drafted(&depth, 3, 3, 0.88, 1);
    assert_int_equal(lw_depth_limit(&depth, &prices, 15), 9); /* 4.80 - 1: gains may be staked, up to 4 */
    prices.rows = ROWS_MAX - 2;
    assert_int_equal(lw_depth_limit(&depth, &prices, 15), 2);       /* a round has no more rows */
    lw_depth_init(&depth, 0.8f);
    prices = (lw_draft_prices){ .rounds = &costs, .rows = 1, .streams = 1, .step_ns = 0.36 };
    lw_depth_drafted(&depth, 1, 0, 0.55, 1);
    lw_depth_drafted(&depth, 1, 0, 0.55, 1);
    assert_int_equal(lw_depth_limit(&depth, &prices, MOST), 0);
    uint32_t rest = 0;
    for (; lw_depth_limit(&depth, &prices, MOST) == 0; rest++) lw_depth_plain(&depth);
    assert_true(rest > 60 && rest < 75);
    assert_false(lw_depth_is_due(&depth));
    for (; rest < 128; rest++) lw_depth_plain(&depth);
    assert_true(lw_depth_is_due(&depth));
    lw_depth_drafted(&depth, 1, 0, 0.55, 1);
    assert_false(lw_depth_is_due(&depth));
    lw_costs_deinit(&costs);
}

static void gain_is_tokens_for_time(void **state)
{
    (void)state;
    lw_costs costs;
    lw_depth depth;
    assert_int_equal(lw_costs_init(&costs, slow_rounds, SLOW_COUNT, ROWS_MAX, NULL), LW_OK);
    lw_draft_prices prices = { .rounds = &costs, .rows = 1, .streams = 1 };
    lw_depth_init(&depth, 0.5f);
    assert_true(fabs(lw_depth_gain(&depth, &prices, 1) - 1.5 / 1.19) < 1e-6);
    assert_true(fabs(lw_depth_gain(&depth, &prices, 15) - 1.5 / 1.19) < 1e-6); /* 1.75 / 1.535 is less */
    prices.step_ns = 0.36;
    assert_true(lw_depth_gain(&depth, &prices, 15) == 1.0);         /* 1.5 / 1.55 */
    prices.step_ns = 0.0;
    prices.streams = prices.rows = 4;                               /* (4 + 0.5) tokens in 2.3675 / 1.88 */
    assert_true(lw_depth_gain(&depth, &prices, 1) == 1.0);
    lw_depth_init(&depth, 1.0f);
    assert_true(fabs(lw_depth_gain(&depth, &prices, 1) - 1.0) < 1e-6); /* 5 / (4 * 1.26) */
    lw_costs_deinit(&costs);
}

/* ---- whole replies ---- */

typedef struct reply_costs {
    const lw_cost *rounds;
    uint32_t count;
    double step;                    /* of the head */
} reply_costs;

static const reply_costs slow = { slow_rounds, SLOW_COUNT, 0.36 };
static const reply_costs fast = { fast_rounds, 2, 0.05 };

/* The time of a reply in plain rounds, of whose drafts right of 100 are right. */
static double reply_time(const reply_costs *c, lw_depth *depth, uint32_t tokens, uint32_t right, lw_rng *rng)
{
    lw_costs costs;
    double time = 0.0;
    assert_int_equal(lw_costs_init(&costs, c->rounds, c->count, ROWS_MAX, NULL), LW_OK);
    const lw_draft_prices prices = { .rounds = &costs, .rows = 1, .streams = 1, .step_ns = c->step };
    for (uint32_t done = 0; done < tokens;) {
        const uint32_t room = tokens - done - 1 < MOST ? tokens - done - 1 : MOST;
        uint32_t drafts = lw_depth_limit(depth, &prices, room), kept = 0;
        const bool is_due = drafts > 0 && lw_depth_is_due(depth);
        const double gain = lw_depth_gain(depth, &prices, drafts);
        while (drafts > 0 && lw_depth_gain(depth, &prices, drafts - 1) >= gain) drafts--;
        if (drafts == 0 && is_due) drafts = 1;
        while (kept < drafts && lw_rng_unit(rng) * 100.0 < right) kept++;
        const double took = lw_costs_at(&costs, 1 + drafts) + drafts * c->step;
        if (drafts == 0) lw_depth_plain(depth);
        else lw_depth_drafted(depth, drafts, kept, took - 1.0, 1);
        done += 1 + kept;
        time += took;
    }
    lw_costs_deinit(&costs);
    return time;
}

/* Mean and worst time per token of streams new to the server. */
static double replies_time(const reply_costs *c, uint32_t tokens, uint32_t right, double *worst)
{
    enum { REPLIES = 400 };
    double sum = 0.0;
    lw_rng rng = lw_rng_make(right * 1000 + tokens);
    *worst = 0.0;
    for (uint32_t i = 0; i < REPLIES; i++) {
        lw_depth depth;
        lw_depth_init(&depth, 0.8f);
        const double time = reply_time(c, &depth, tokens, right, &rng) / tokens;
        sum += time / REPLIES;
        if (time > *worst) *worst = time;
    }
    return sum;
}

static void the_worst_costs_two_of_a_hundred_and_the_good_gains_at_once(void **state)
{
    (void)state;
    const struct {
        const reply_costs *costs;
        uint32_t tokens, right;
        double most;                /* plain rounds a token, in the mean */
    } cases[] = {
        { &slow, 100, 0, 1.02 },  { &slow, 100, 50, 1.01 },  { &slow, 100, 70, 0.95 },
        { &slow, 100, 90, 0.85 }, { &slow, 100, 100, 0.80 }, { &slow, 25, 70, 0.98 },
        { &slow, 25, 90, 0.88 },  { &slow, 25, 100, 0.82 },  { &slow, 1000, 0, 1.01 },
        { &fast, 100, 0, 1.02 },  { &fast, 100, 50, 0.75 },  { &fast, 100, 70, 0.60 },
        { &fast, 100, 90, 0.40 }, { &fast, 25, 70, 0.65 },   { &fast, 25, 90, 0.45 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double worst;
        const double mean = replies_time(cases[i].costs, cases[i].tokens, cases[i].right, &worst);
        print_message("%s, %u tokens, %u of 100 right: %.3f plain rounds a token, at worst %.3f\n",
                      cases[i].costs == &slow ? "slow" : "fast", cases[i].tokens, cases[i].right, mean,
                      worst);
        assert_true(mean <= cases[i].most);
        assert_true(worst <= 1.0 + (double)LW_DEPTH_GRANT / cases[i].tokens + (double)LW_DEPTH_INCOME);
    }
}

/* The control: without the account's limit the same reply breaks the bound. */
static void an_account_too_large_loses_more(void **state)
{
    (void)state;
    lw_rng rng = lw_rng_make(3);
    lw_depth depth;
    lw_depth_init(&depth, 0.8f);
    depth.account = 100.0f;
    for (uint32_t i = 0; i < LW_DRAFTS_MAX; i++) depth.chances[i] = depth.first = 1.0f;
    assert_true(reply_time(&slow, &depth, 100, 0, &rng) > 102.0);
}

/* A stream after others of the same luck begins with what they learnt, and one after a change finds it out.
 */
static void luck_is_handed_on(void **state)
{
    (void)state;
    lw_rng rng = lw_rng_make(7);
    lw_depth luck;
    double first = 0.0, later = 0.0;
    lw_depth_init(&luck, 0.8f);
    for (int i = 0; i < 13; i++) {
        lw_depth depth = luck;
        const double time = reply_time(&slow, &depth, 30, 0, &rng);
        if (i == 0) first = time;
        else later += time / 12;
        lw_depth_learn(&luck, &depth);
        assert_true(luck.account <= LW_DEPTH_GRANT);
    }
    print_message("30 tokens after others, none right: %.3f, then %.3f\n", first, later);
    assert_true(first > 31.0 && later < 30.4);                  /* tries cost at first, then the income */
    lw_depth_init(&luck, 0.8f);
    for (int i = 0; i < 13; i++) {
        lw_depth depth = luck;
        reply_time(&slow, &depth, 30, 90, &rng);
        lw_depth_learn(&luck, &depth);
    }
    assert_true(luck.chances[0] > 0.85f);
    lw_depth_init(&luck, 0.8f);
    for (int i = 0; i < 4; i++) {
        lw_depth depth = luck;
        reply_time(&slow, &depth, 100, 0, &rng);
        lw_depth_learn(&luck, &depth);
    }
    const float poor = luck.chances[0];
    double last = 0.0;
    for (int i = 0; i < 8; i++) {
        lw_depth depth = luck;
        last = reply_time(&slow, &depth, 100, 100, &rng);
        lw_depth_learn(&luck, &depth);
    }
    assert_true(poor < 0.75f && luck.chances[0] > 0.9f && last < 82.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_costs_stand_and_lines_join_them),
        cmocka_unit_test(assumed_costs_rise_by_a_sixteenth),
        cmocka_unit_test(luck_is_learnt_up_to_the_first_miss),
        cmocka_unit_test(the_account_limits_what_may_be_lost),
        cmocka_unit_test(gain_is_tokens_for_time),
        cmocka_unit_test(the_worst_costs_two_of_a_hundred_and_the_good_gains_at_once),
        cmocka_unit_test(an_account_too_large_loses_more),
        cmocka_unit_test(luck_is_handed_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
