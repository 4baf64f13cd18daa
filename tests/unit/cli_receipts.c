/* The laws of receipts over askers made here: an honest one, and ones that are wrong in one way each. */
#include "cli/receipts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

typedef enum fault {
    HONEST,
    DRAFTS_CHANGE,
    COMPANY_CHANGES,
    RESUMING_CHANGES,
    IDS_CHANGE,
    CUTS_CHANGE,
    DEAF,
    SHORT
} fault;

typedef struct made {
    fault fault;
    lw_way way;
    uint32_t asked;
    bool is_cold;      /* nothing is resumed, no draft is kept */
} made;

static lw_status made_turn(void *context, lw_way way, lw_diag *d)
{
    (void)d;
    ((made *)context)->way = way;
    return LW_OK;
}

static bool is_wrong(const made *m, const lw_ask *ask, size_t count)
{
    return (m->fault == DRAFTS_CHANGE && ask->drafts && ask->is_sampled)
           || (m->fault == COMPANY_CHANGES && count == 4)
           || (m->fault == RESUMING_CHANGES && m->way == LW_WAY_SERVED && !ask->drafts && !ask->by_ids)
           || (m->fault == IDS_CHANGE && ask->by_ids && ask->item == 2)
           || (m->fault == CUTS_CHANGE && m->way == LW_WAY_CUT && ask->item == 3 && !ask->is_sampled);
}

static lw_status made_ask(void *context, const lw_ask *asks, size_t count, lw_answer *answers, lw_diag *d)
{
    made *m = context;
    (void)d;
    for (size_t i = 0; i < count; i++) {
        const uint32_t altered = m->fault == DEAF ? 0 : asks[i].altered;
        const bool is_warm = m->way == LW_WAY_SERVED && !m->is_cold;
        answers[i] = (lw_answer){ .tokens = 10, .cached_tokens = is_warm ? 5 : 0,
                                  .drafts_kept = is_warm && asks[i].drafts ? 2 : 0 };
        if (m->fault == SHORT && count == 2 && i == 1) answers[i].tokens = 9;
        snprintf(answers[i].sha, sizeof answers[i].sha, "%03u%u%08u", asks[i].item, asks[i].is_sampled,
                 altered + (is_wrong(m, &asks[i], count) ? 77u : 0u));
        m->asked++;
    }
    return LW_OK;
}

static size_t collect(made *m, uint32_t cases, lw_receipt receipts[LW_RECEIPTS_MAX])
{
    const lw_asker asker = { .context = m, .has_cut = true, .turn = made_turn, .ask = made_ask };
    const lw_receipts_options options = { .cases = cases };
    size_t count;
    lw_diag d;
    assert_int_equal(lw_receipts_collect(&asker, &options, receipts, &count, &d), LW_OK);
    return count;
}

/* Exactly this law fails; the others hold. */
static void expect_only(fault own, const char *name)
{
    made m = { .fault = own };
    lw_receipt receipts[LW_RECEIPTS_MAX];
    const size_t count = collect(&m, 5, receipts);
    assert_int_equal(count, 7);
    for (size_t i = 0; i < count; i++) {
        const bool expected = name == NULL || strcmp(receipts[i].name, name) != 0;
        if (lw_receipt_holds(&receipts[i]) != expected)
            fail_msg("%s: %s", receipts[i].name, receipts[i].difference);
        assert_int_equal(receipts[i].difference[0] == '\0', expected);
        assert_true(receipts[i].control_caught);
    }
}

static void an_honest_asker_holds_every_law(void **state)
{
    (void)state;
    expect_only(HONEST, NULL);
    made m = { .fault = HONEST };
    lw_receipt receipts[LW_RECEIPTS_MAX];
    for (uint32_t cases = 1; cases <= LW_RECEIPT_CASES_MAX; cases++) {
        const size_t count = collect(&m, cases, receipts);
        for (size_t i = 0; i < count; i++) {
            assert_true(lw_receipt_holds(&receipts[i]) && lw_receipt_is_shown(&receipts[i]));
            assert_true(receipts[i].asked[0] >= cases && receipts[i].asked[1] >= cases);
        }
    }
}

static void each_fault_fails_its_law_alone(void **state)
{
    (void)state;
    expect_only(COMPANY_CHANGES, "4 at once == alone");
    expect_only(RESUMING_CHANGES, "resumed == fresh");
    expect_only(CUTS_CHANGE, "any cut == whole");
    expect_only(SHORT, "2 at once == alone");
}

static void faults_that_several_laws_see(void **state)
{
    (void)state;
    made m = { .fault = DRAFTS_CHANGE };
    lw_receipt receipts[LW_RECEIPTS_MAX];
    (void)collect(&m, 4, receipts);
    assert_false(lw_receipt_holds(&receipts[0]));
    assert_int_equal(receipts[0].equal[0], 4);
    assert_int_equal(receipts[0].equal[1], 0);
    m.fault = IDS_CHANGE;
    const size_t count = collect(&m, 4, receipts);
    uint32_t failed = 0;
    for (size_t i = 0; i < count; i++) failed += !lw_receipt_holds(&receipts[i]);
    assert_int_equal(failed, 1);
}

static void a_control_that_passes_is_a_failure(void **state)
{
    (void)state;
    made m = { .fault = DEAF };
    lw_receipt receipts[LW_RECEIPTS_MAX];
    const size_t count = collect(&m, 4, receipts);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(receipts[i].equal[0], receipts[i].asked[0]);
        assert_false(receipts[i].control_caught);
        assert_false(lw_receipt_holds(&receipts[i]));
    }
}

static void what_did_not_take_place_is_not_shown(void **state)
{
    (void)state;
    made m = { .is_cold = true };
    lw_receipt receipts[LW_RECEIPTS_MAX];
    const size_t count = collect(&m, 4, receipts);
    uint32_t unshown = 0;
    for (size_t i = 0; i < count; i++) unshown += !lw_receipt_is_shown(&receipts[i]);
    assert_int_equal(unshown, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_honest_asker_holds_every_law),
        cmocka_unit_test(each_fault_fails_its_law_alone),
        cmocka_unit_test(faults_that_several_laws_see),
        cmocka_unit_test(a_control_that_passes_is_a_failure),
        cmocka_unit_test(what_did_not_take_place_is_not_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
