/* The measures of the check against hand-made references; what is planted wrong must show. */
#include "cli/check.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { ROWS = 2, PLANES = 3, WIDTH = 4 };

/* Two layers of width 4, two stored rows a prompt: positions 1 and 3. */
typedef struct fixture {
    lw_check check;
    float hidden[PLANES * ROWS * WIDTH];
    float gap[PLANES * ROWS];
    int32_t rows[ROWS];
} fixture;

static void fixture_make(fixture *f)
{
    *f = (fixture){ .rows = { 1, 3 }, .check = { .pass = LW_CHECK_FORWARD } };
    for (unsigned i = 0; i < PLANES * ROWS * WIDTH; i++) f->hidden[i] = 1.0f + (float)i * 0x1p-12f;
    for (unsigned i = 0; i < PLANES * ROWS; i++) f->gap[i] = 0.01f;
    f->check.ref = (lw_check_ref){ .layer_count = PLANES - 1, .width = WIDTH, .vocab = 8 };
    for (unsigned j = 0; j < LW_CHECK_PROMPTS; j++) {
        f->check.ref.prompts[j] = (lw_check_prompt){
            .rows = f->rows,
            .hidden = f->hidden,
            .gap = f->gap,
            .id_count = 4,
            .row_count = ROWS,
        };
    }
    lw_arena_init(&f->check.arena, 1 << 20);
    assert_int_equal(lw_check_make(&f->check, NULL), LW_OK);
}

static void trace_row(fixture *f, const char *name, lw_op_kind kind, uint32_t row, const float *values)
{
    const lw_op op = { .kind = kind, .out = { LW_NONE } };
    lw_value value = { .width = WIDTH };
    snprintf(value.name, sizeof value.name, "%s", name);
    const lw_trace trace = lw_check_trace(&f->check);
    trace.row(trace.context, &op, &value, row, values);
}

/* Feeds the reference itself, each number made larger by a share. */
static void trace_all(fixture *f, float share)
{
    static const char *const names[PLANES] = { "embed", "layer.0", "layer.1" };
    for (unsigned j = 0; j < LW_CHECK_PROMPTS; j++) {
        f->check.prompt = j;
        for (unsigned plane = 0; plane < PLANES; plane++) {
            for (unsigned row = 0; row < 4; row++) {
                float values[WIDTH] = { 0 };
                const unsigned index = row / 2;
                for (unsigned i = 0; i < WIDTH; i++) {
                    values[i] = f->hidden[(plane * ROWS + index) * WIDTH + i] * (1.0f + share);
                }
                trace_row(f, names[plane], plane == 0 ? LW_OP_EMBED : LW_OP_ADD, row, values);
            }
        }
    }
}

static void distance_is_relative(void **state)
{
    (void)state;
    const float reference[] = { 3.0f, 4.0f }, ours[] = { 3.0f, 4.5f };
    assert_true(fabs(lw_check_distance(ours, reference, 2) - 0.1) < 1e-12);
    assert_true(lw_check_distance(reference, reference, 2) == 0.0);
}

static void ratio_follows_the_distance(void **state)
{
    (void)state;
    fixture f;
    fixture_make(&f);
    trace_all(&f, 0.01f);
    for (uint32_t j = 0; j <= LW_CHECK_PROMPTS; j++) {
        assert_true(fabs(lw_check_ratio(&f.check, 1, j) - 1.0) < 1e-4);
        assert_true(fabs(lw_check_ratio(&f.check, 2, j) - 1.0) < 1e-4);
    }
    trace_all(&f, 0.02f); /* planted control: twice as far must read as twice as far */
    assert_true(fabs(lw_check_ratio(&f.check, 1, LW_CHECK_PROMPTS) - 2.0) < 1e-4);
    lw_arena_deinit(&f.check.arena);
}

static void rows_that_were_never_seen_are_not_good(void **state)
{
    (void)state;
    fixture f;
    fixture_make(&f);
    trace_all(&f, 0.01f);
    f.check.distance[1][ROWS] = (double)NAN; /* layer 0, first row */
    assert_true(isnan(lw_check_ratio(&f.check, 1, 1)));
    assert_true(isnan(lw_check_ratio(&f.check, 1, LW_CHECK_PROMPTS)));
    assert_true(isfinite(lw_check_ratio(&f.check, 1, 0)));
    assert_true(isfinite(lw_check_ratio(&f.check, 2, 1)));
    lw_arena_deinit(&f.check.arena);
}

static void embeddings_are_compared_by_bits(void **state)
{
    (void)state;
    fixture f;
    fixture_make(&f);
    for (unsigned i = 0; i < ROWS * WIDTH; i++) f.hidden[i] = 1.0f + 0x1p-12f; /* rounds to 1 */
    const float right[WIDTH] = { 1.0f, 1.0f, 1.0f, 1.0f }, wrong[WIDTH] = { 1.0f, 1.0f, 1.0f, 1.0078125f };
    trace_row(&f, "embed", LW_OP_EMBED, 1, right);
    assert_int_equal(f.check.embed_rows, 1);
    assert_int_equal(f.check.embed_rows_wrong, 0);
    trace_row(&f, "embed", LW_OP_EMBED, 3, wrong);
    assert_int_equal(f.check.embed_rows, 2);
    assert_int_equal(f.check.embed_rows_wrong, 1);
    trace_row(&f, "embed", LW_OP_EMBED, 2, wrong); /* not a stored row */
    assert_int_equal(f.check.embed_rows, 2);
    lw_arena_deinit(&f.check.arena);
}

static void other_values_are_left_alone(void **state)
{
    (void)state;
    static const char *const names[] = { "layer.2", "layer.", "layer.0x", "layer.99999999999", "add", "" };
    fixture f;
    fixture_make(&f);
    const float values[WIDTH] = { 0 };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) trace_row(&f, names[i], LW_OP_ADD, 1, values);
    trace_row(&f, "layer.0", LW_OP_TAKE_WANTED, 1, values);
    for (unsigned i = 0; i < PLANES * ROWS; i++) assert_true(isnan(f.check.distance[0][i]));
    lw_arena_deinit(&f.check.arena);
}

static void ratio_of_medians_where_rows_choose_experts(void **state)
{
    (void)state;
    fixture f;
    fixture_make(&f);
    trace_all(&f, 0.01f);
    f.check.distance[1][ROWS] = 5.0; /* layer 0, first row: it took another expert */
    assert_true(lw_check_ratio(&f.check, 1, LW_CHECK_PROMPTS) > 50.0);
    f.check.has_experts = true;
    assert_true(fabs(lw_check_ratio(&f.check, 1, LW_CHECK_PROMPTS) - 1.0) < 1e-4);
    trace_all(&f, 0.02f); /* planted control: twice as far reads as twice as far */
    assert_true(fabs(lw_check_ratio(&f.check, 1, LW_CHECK_PROMPTS) - 2.0) < 1e-4);
    f.check.distance[1][ROWS] = (double)NAN;
    assert_true(isnan(lw_check_ratio(&f.check, 1, LW_CHECK_PROMPTS)));
    lw_arena_deinit(&f.check.arena);
}

static void median_is_the_middle(void **state)
{
    (void)state;
    double odd[] = { 3.0, 1.0, 100.0 }, even[] = { 4.0, 1.0, 2.0, 100.0 }, broken[] = { 1.0, (double)NAN };
    assert_true(lw_check_median(odd, 3) == 3.0);
    assert_true(lw_check_median(even, 4) == 3.0);
    assert_true(isnan(lw_check_median(broken, 2)));
    assert_true(isnan(lw_check_median(odd, 0)));
}

/* Draft rows 1 and 2 of a prompt of 4 are stored: the head's rows at positions 2 and 3. */
static void head_rows_are_one_position_on(void **state)
{
    (void)state;
    const float outputs[2 * WIDTH] = { 1.0f, 0.0f, 0.0f, 0.0f, 0.0f, 1.0f, 0.0f, 0.0f };
    fixture f;
    fixture_make(&f);
    for (unsigned j = 0; j < LW_CHECK_PROMPTS; j++) {
        f.check.ref.prompts[j].draft_hidden = outputs;
        f.check.ref.prompts[j].draft_row_count = 2;
    }
    assert_int_equal(lw_check_make(&f.check, NULL), LW_OK);
    f.check.pass = LW_CHECK_HEAD;
    trace_row(&f, "head", LW_OP_RMS_NORM, 0, outputs);
    trace_row(&f, "head", LW_OP_RMS_NORM, 1, outputs);
    trace_row(&f, "layer.0", LW_OP_ADD, 2, outputs);
    assert_true(isnan(f.check.head.distance[0][0]) && isnan(f.check.head.distance[0][1]));
    trace_row(&f, "head", LW_OP_RMS_NORM, 2, outputs);
    trace_row(&f, "head", LW_OP_RMS_NORM, 3, outputs + WIDTH);
    trace_row(&f, "head", LW_OP_RMS_NORM, 4, outputs + WIDTH);
    assert_true(lw_check_draft_ratio(&f.check, 0) == 0.0);
    assert_true(isnan(lw_check_draft_ratio(&f.check, 1)));
    f.check.first = 1; /* planted control: one position off */
    trace_row(&f, "head", LW_OP_RMS_NORM, 1, outputs + WIDTH);
    trace_row(&f, "head", LW_OP_RMS_NORM, 2, outputs);
    assert_true(lw_check_draft_ratio(&f.check, 0) > LW_CHECK_DRAFT_MAX);
    lw_arena_deinit(&f.check.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distance_is_relative),
        cmocka_unit_test(ratio_follows_the_distance),
        cmocka_unit_test(rows_that_were_never_seen_are_not_good),
        cmocka_unit_test(embeddings_are_compared_by_bits),
        cmocka_unit_test(other_values_are_left_alone),
        cmocka_unit_test(ratio_of_medians_where_rows_choose_experts),
        cmocka_unit_test(median_is_the_middle),
        cmocka_unit_test(head_rows_are_one_position_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
