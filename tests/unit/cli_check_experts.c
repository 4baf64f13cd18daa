/* Rows that chose other experts than the reference: counted, and explained by the tie alone. */
#include "cli/check.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

enum { ROWS = 3, BLOCKS = 2, EXPERTS = 4, TOP = 2, LAYER = 7 };

/* Two routers that take the 2 best of 4, three stored rows a prompt: positions 0, 1 and 2. */
typedef struct fixture {
    lw_check check;
    lw_op ops[2 * BLOCKS];
    lw_plan plan;
    int32_t rows[ROWS];
    float choice[BLOCKS * ROWS * EXPERTS];
} fixture;

/* Experts 0 and 1 lead in every row, 1 by 0.001 over 2, and 3 is far off. */
static const float scores[EXPERTS] = { 0.9f, 0.501f, 0.5f, 0.1f };

static void fixture_make(fixture *f, lw_router kind)
{
    *f = (fixture){ .rows = { 0, 1, 2 }, .check = { .pass = LW_CHECK_FORWARD } };
    for (unsigned i = 0; i < BLOCKS * ROWS; i++) memcpy(f->choice + i * EXPERTS, scores, sizeof scores);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        f->ops[2 * i] = (lw_op){ .kind = LW_OP_LINEAR, .out = { 2 * i } };
        f->ops[2 * i + 1] = (lw_op){ .kind = LW_OP_ROUTE, .layer = LAYER + i, .in = { { 2 * i } },
                                     .out = { 2 * i + 1 }, .weights = { { LW_NONE } },
                                     .p.route = { .kind = kind, .experts = EXPERTS, .top = TOP } };
    }
    f->plan = (lw_plan){ .ops = f->ops, .op_count = 2 * BLOCKS,
                         .entries = { { .op_end = 2 * BLOCKS } }, .entry_count = 1 };
    f->check.ref = (lw_check_ref){ .block_count = BLOCKS, .experts = EXPERTS };
    for (unsigned j = 0; j < LW_CHECK_PROMPTS; j++) {
        f->check.ref.prompts[j] = (lw_check_prompt){ .rows = f->rows, .choice = f->choice, .id_count = ROWS,
                                                     .row_count = ROWS };
    }
    lw_diag d;
    lw_arena_init(&f->check.arena, 1 << 20);
    assert_int_equal(lw_check_make(&f->check, &d), LW_OK);
    assert_int_equal(lw_check_experts_make(&f->check, &f->plan, &d), LW_OK);
    assert_int_equal(f->check.router_count, BLOCKS);
}

/* A router's logits for one row of the running prompt, and what it takes. */
static void route(fixture *f, uint32_t router, uint32_t row, const float *logits, const float *chosen)
{
    const lw_trace trace = lw_check_trace(&f->check);
    const lw_value of_logits = { .name = "router", .width = EXPERTS };
    const lw_value of_route = { .name = "route", .width = 2 * TOP };
    const float shares[2 * TOP] = { chosen[0], chosen[1], 0.5f, 0.5f };
    trace.row(trace.context, &f->ops[2 * router], &of_logits, row, logits);
    trace.row(trace.context, &f->ops[2 * router + 1], &of_route, row, shares);
}

/* Every row's scores as the reference's but for an error, and the reference's experts. */
static void route_all(fixture *f, float error)
{
    const float logits[EXPERTS] = { 0.9f, 0.501f + error, 0.5f, 0.1f }, chosen[TOP] = { 0, 1 };
    for (f->check.prompt = 0; f->check.prompt < LW_CHECK_PROMPTS; f->check.prompt++) {
        for (uint32_t i = 0; i < BLOCKS * ROWS; i++) route(f, i / ROWS, i % ROWS, logits, chosen);
    }
    f->check.prompt = 1;
}

static void equal_sets_are_no_flips(void **state)
{
    (void)state;
    const float turned[TOP] = { 1, 0 };
    fixture f;
    fixture_make(&f, LW_ROUTER_SOFTMAX);
    route_all(&f, 0.0005f);
    route(&f, 0, 1, scores, turned);
    const lw_check_flips flips = lw_check_flips_of(&f.check, 0);
    assert_int_equal(flips.rows, LW_CHECK_PROMPTS * ROWS);
    assert_int_equal(flips.flipped, 0);
    assert_true(fabs(flips.deviation - 0.0005) < 1e-6);
    assert_true(lw_check_is_unflipped(&f.check, BLOCKS, 1, 1));
    lw_arena_deinit(&f.check.arena);
}

static void near_ties_explain_a_flip(void **state)
{
    (void)state;
    const float other[TOP] = { 0, 2 };
    fixture f;
    fixture_make(&f, LW_ROUTER_SOFTMAX);
    route_all(&f, 0.0005f);
    route(&f, 0, 1, scores, other);
    lw_check_flips flips = lw_check_flips_of(&f.check, 0);
    assert_int_equal(flips.flipped, 1);
    assert_int_equal(flips.unexplained, 0);
    assert_true(fabs(flips.lead_max - 0.001) < 1e-6);
    assert_true(flips.prompt == 1 && flips.row == 1);
    assert_false(lw_check_is_unflipped(&f.check, BLOCKS, 1, 1));
    /* Planted control: the same flip where scores are exact to a tenth of the lead. */
    route_all(&f, 0.0001f);
    route(&f, 0, 1, scores, other);
    flips = lw_check_flips_of(&f.check, 0);
    assert_int_equal(flips.unexplained, 1);
    lw_arena_deinit(&f.check.arena);
}

static void far_experts_are_not_explained(void **state)
{
    (void)state;
    const float far[TOP] = { 0, 3 };
    fixture f;
    fixture_make(&f, LW_ROUTER_SOFTMAX);
    route_all(&f, 0.0005f);
    route(&f, 1, 2, scores, far);
    assert_int_equal(lw_check_flips_of(&f.check, 0).flipped, 0);
    assert_int_equal(lw_check_flips_of(&f.check, 1).unexplained, 1);
    json_t *failures = lw_check_judge(&f.check);
    bool is_named = false;
    for (size_t i = 0; i < json_array_size(failures); i++) {
        const char *text = json_string_value(json_array_get(failures, i));
        is_named |= strstr(text, "layer 8: 1 rows chose other experts") != NULL;
    }
    assert_true(is_named);
    json_decref(failures);
    lw_arena_deinit(&f.check.arena);
}

static void flips_after_a_flip_follow(void **state)
{
    (void)state;
    const float other[TOP] = { 0, 2 }, far[TOP] = { 0, 3 };
    fixture f;
    fixture_make(&f, LW_ROUTER_SOFTMAX);
    route_all(&f, 0.0005f);
    route(&f, 0, 1, scores, other);
    route(&f, 1, 1, scores, far);
    const lw_check_flips flips = lw_check_flips_of(&f.check, 1);
    assert_int_equal(flips.flipped, 1);
    assert_int_equal(flips.followed, 1);
    assert_int_equal(flips.unexplained, 0);
    lw_arena_deinit(&f.check.arena);
}

static void closed_experts_are_not_explained(void **state)
{
    (void)state;
    const float other[TOP] = { 0, 2 };
    fixture f;
    fixture_make(&f, LW_ROUTER_SOFTMAX);
    for (unsigned i = 0; i < BLOCKS * ROWS; i++) f.choice[i * EXPERTS + 2] = -INFINITY;
    route_all(&f, 0.0005f);
    assert_true(fabs(lw_check_flips_of(&f.check, 0).deviation - 0.0005) < 1e-6);
    route(&f, 0, 1, scores, other);
    assert_int_equal(lw_check_flips_of(&f.check, 0).unexplained, 1);
    lw_arena_deinit(&f.check.arena);
}

static void sigmoid_routers_choose_by_score_and_bias(void **state)
{
    (void)state;
    const float bias[EXPERTS] = { 0.125f, 0.0f, 0.0f, 0.0f }, chosen[TOP] = { 0, 1 };
    float logits[EXPERTS];
    fixture f;
    fixture_make(&f, LW_ROUTER_SIGMOID);
    for (unsigned e = 0; e < EXPERTS; e++) {
        const double score = (double)scores[e] - (double)bias[e];
        logits[e] = (float)log(score / (1.0 - score));
    }
    for (unsigned i = 0; i < BLOCKS; i++) f.check.routers[i].bias = bias;
    for (f.check.prompt = 0; f.check.prompt < LW_CHECK_PROMPTS; f.check.prompt++) {
        for (uint32_t i = 0; i < BLOCKS * ROWS; i++) route(&f, i / ROWS, i % ROWS, logits, chosen);
    }
    assert_true(lw_check_flips_of(&f.check, 0).deviation < 1e-6);
    f.check.routers[0].bias = NULL; /* planted control: the bias is left out */
    for (f.check.prompt = 0; f.check.prompt < LW_CHECK_PROMPTS; f.check.prompt++) {
        for (uint32_t row = 0; row < ROWS; row++) route(&f, 0, row, logits, chosen);
    }
    assert_true(lw_check_flips_of(&f.check, 0).deviation > 0.1);
    lw_arena_deinit(&f.check.arena);
}

static void rows_that_were_never_seen_are_not_good(void **state)
{
    (void)state;
    fixture f;
    fixture_make(&f, LW_ROUTER_SOFTMAX);
    const lw_check_flips flips = lw_check_flips_of(&f.check, 0);
    assert_true(isnan(flips.deviation));
    assert_int_equal(flips.unexplained, LW_CHECK_PROMPTS * ROWS);
    lw_arena_deinit(&f.check.arena);
}

static void other_routers_than_the_references_are_refused(void **state)
{
    (void)state;
    fixture f;
    lw_diag d;
    fixture_make(&f, LW_ROUTER_SOFTMAX);
    f.check.ref.experts = EXPERTS + 1;
    assert_int_equal(lw_check_experts_make(&f.check, &f.plan, &d), LW_BAD_MODEL);
    f.check.ref.block_count = BLOCKS + 1;
    assert_int_equal(lw_check_experts_make(&f.check, &f.plan, &d), LW_BAD_MODEL);
    f.check.ref.block_count = 0;
    f.check.router_count = 0;
    assert_int_equal(lw_check_experts_make(&f.check, &f.plan, &d), LW_OK);
    assert_true(f.check.has_experts && f.check.router_count == 0);
    lw_arena_deinit(&f.check.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_sets_are_no_flips),
        cmocka_unit_test(near_ties_explain_a_flip),
        cmocka_unit_test(far_experts_are_not_explained),
        cmocka_unit_test(flips_after_a_flip_follow),
        cmocka_unit_test(closed_experts_are_not_explained),
        cmocka_unit_test(sigmoid_routers_choose_by_score_and_bias),
        cmocka_unit_test(rows_that_were_never_seen_are_not_good),
        cmocka_unit_test(other_routers_than_the_references_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
