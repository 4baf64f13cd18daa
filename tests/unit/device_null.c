/* The null device keeps the asynchronous contract: tickets in order, failures at the wait, everything
 * counted. */
#include "device/null/null.h"
#include "ops/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static float numbers[64 * 8];
static const lw_tensor tensor = { .name = "w", .file = "memory", .dtype = LW_DTYPE_F32, .dim_count = 2,
                                  .dims = { 64, 8 }, .bytes = (const uint8_t *)numbers,
                                  .byte_count = sizeof numbers };
static const lw_weight weight = { .name = "w", .stack_count = 1, .rows = 64, .cols = 8, .map = LW_MAP_FP32,
                                  .code_bits = 32, .global_scale = 1.0f, .codes = &tensor };

typedef struct null_case {
    lw_plan plan;
    lw_device *device;
    lw_exec *exec;
} null_case;

static void case_open(null_case *c)
{
    assert_int_equal(lw_plan_init(&c->plan, NULL), LW_OK);
    const lw_wref w = lw_plan_weight(&c->plan, &weight);
    const lw_sref kv = lw_plan_state_kv(&c->plan, "kv", 1, 8, 0);
    lw_plan_entry_begin(&c->plan, "main");
    const lw_ref x = lw_plan_embed(&c->plan, w);
    lw_plan_kv_store(&c->plan, kv, x, x);
    lw_plan_entry_end(&c->plan, lw_plan_linear(&c->plan, lw_plan_take_wanted(&c->plan, x), w, LW_TYPE_F32));
    lw_plan_entry_begin(&c->plan, "head");
    const lw_ref y = lw_plan_embed(&c->plan, w);
    lw_plan_entry_end(&c->plan, lw_plan_linear(&c->plan, lw_plan_take_wanted(&c->plan, y), w, LW_TYPE_F32));
    const lw_exec_options options = { .rows_max = 8, .wanted_max = 8, .page_counts = { 4 } };
    assert_int_equal(lw_device_null.open(&(lw_device_options){ 0 }, &c->device, NULL), LW_OK);
    assert_int_equal(lw_device_null.compile(c->device, &c->plan, &options, &c->exec, NULL), LW_OK);
}

static void case_close(null_case *c)
{
    lw_device_null.exec_close(c->exec);
    lw_device_null.close(c->device);
    lw_plan_deinit(&c->plan);
}

static lw_ticket submit(null_case *c)
{
    static const uint32_t pages[] = { 0 };
    static const lw_row rows[] = { { .token = 1, .parent = -1 },
                                   { .token = 2, .position = 1, .slot = 1, .parent = 0, .wanted = true } };
    const lw_batch_lane lane = { .page_count = 1, .pages = { pages } };
    const lw_batch batch = { .rows = rows, .row_count = 2, .lanes = &lane, .lane_count = 1 };
    lw_ticket ticket = 0;
    assert_int_equal(lw_device_null.submit(c->exec, 0, &batch, &ticket, NULL), LW_OK);
    return ticket;
}

static void everything_is_counted(void **state)
{
    (void)state;
    null_case c;
    case_open(&c);
    const lw_ticket first = submit(&c), second = submit(&c);
    assert_true(second == first + 1);
    assert_int_equal(lw_device_null.wait(c.exec, second, NULL), LW_OK);
    assert_int_equal(lw_device_null.page_copy(c.exec, 0, 0, 3, NULL), LW_OK);
    const lw_null_counts counts = lw_null_read_counts(c.exec);
    assert_int_equal(counts.submits, 2);
    assert_int_equal(counts.waits, 1);
    assert_int_equal(counts.rows, 4);
    assert_int_equal(counts.wanted_rows, 2);
    assert_int_equal(counts.ops, 2 * 4);
    assert_int_equal(counts.page_copies, 1);
    assert_int_equal(counts.weight_bytes, sizeof numbers);
    const float *logits = NULL;
    assert_int_equal(lw_device_null.read_logits(c.exec, 0, &logits, NULL), LW_OK);
    assert_true(logits[0] == 0.0f && logits[63] == 0.0f);
    case_close(&c);
}

static void a_planned_failure_comes_at_the_wait(void **state)
{
    (void)state;
    null_case c;
    lw_diag d = { "" };
    case_open(&c);
    lw_null_fail_at(c.exec, 2);
    const lw_ticket first = submit(&c), second = submit(&c);
    assert_int_equal(lw_device_null.wait(c.exec, first, &d), LW_OK);
    assert_int_equal(lw_device_null.wait(c.exec, second, &d), LW_DEVICE_LOST);
    assert_non_null(strstr(d.text, "submission 2"));
    case_close(&c);
}

/* A head whose likeliest token is the sum of a row's token and its lane's committed length. */
static void forward(void *context, const lw_batch *batch, float *logits)
{
    (void)context;
    for (uint32_t i = 0; i < batch->row_count * 64; i++) logits[i] = 0.0f;
    for (uint32_t r = 0; r < batch->row_count; r++) {
        const lw_row *row = &batch->rows[r];
        const uint32_t committed = batch->lanes[row->lane].committed;
        assert_true(row->position == committed && row->slot == committed && row->parent < 0);
        logits[r * 64 + ((uint32_t)row->token + committed) % 64] = 1.0f;
    }
}

static void draw(void *context, const lw_chain_step *step, int32_t *tokens)
{
    uint32_t *rows = context;
    *rows += step->row_count;
    for (uint32_t row = 0; row < step->row_count; row++) tokens[row] = (int32_t)(10 * row + step->index);
}

static void chains_are_walked_to_the_end_of_each(void **state)
{
    (void)state;
    null_case c;
    uint32_t rows_drawn = 0;
    lw_ticket ticket = 0;
    static const uint32_t pages[] = { 0, 1 }, steps[] = { 3, 1 };
    static const lw_row rows[] = {
        { .token = 1, .lane = 1, .position = 62, .slot = 62, .parent = -1, .wanted = true },
        { .token = 2, .lane = 0, .position = 5, .slot = 5, .parent = -1, .wanted = true }
    };
    const lw_batch_lane lanes[] = { { .committed = 5, .page_count = 2, .pages = { pages } },
                                    { .committed = 62, .page_count = 2, .pages = { pages } } };
    lw_chain chain = { .rows = rows, .steps = steps, .row_count = 2, .lanes = lanes, .lane_count = 2 };
    const lw_null_model model = { .forward = forward, .head = forward };
    const int32_t *tokens = NULL;
    case_open(&c);
    assert_int_equal(lw_null_set_model(c.exec, &model, NULL), LW_OK);
    assert_int_equal(lw_device_null.submit_chain(c.exec, &chain, &ticket, NULL), LW_OK);
    assert_int_equal(lw_device_null.wait(c.exec, ticket, NULL), LW_OK);
    assert_int_equal(lw_device_null.read_chain(c.exec, 0, &tokens, NULL), LW_OK);
    assert_int_equal(tokens[0], 63);
    assert_int_equal(tokens[1], (63 + 63) % 64);
    assert_int_equal(tokens[2], (62 + 64) % 64);
    assert_int_equal(lw_device_null.read_chain(c.exec, 1, &tokens, NULL), LW_OK);
    assert_int_equal(tokens[0], 7);
    chain.draw = draw;
    chain.context = &rows_drawn;
    assert_int_equal(lw_device_null.submit_chain(c.exec, &chain, &ticket, NULL), LW_OK);
    assert_int_equal(lw_device_null.wait(c.exec, ticket, NULL), LW_OK);
    assert_int_equal(lw_device_null.read_chain(c.exec, 0, &tokens, NULL), LW_OK);
    assert_int_equal(tokens[2], 2);
    assert_int_equal(lw_device_null.read_chain(c.exec, 1, &tokens, NULL), LW_OK);
    assert_int_equal(tokens[0], 10);
    assert_int_equal(rows_drawn, 4);
    const lw_null_counts counts = lw_null_read_counts(c.exec);
    assert_int_equal(counts.chains, 2);
    assert_int_equal(counts.chain_rows, 8);
    assert_int_equal(counts.submits, 0);
    lw_null_fail_at(c.exec, 1);
    assert_int_equal(lw_device_null.submit_chain(c.exec, &chain, &ticket, NULL), LW_OK);
    assert_int_equal(lw_device_null.wait(c.exec, ticket, NULL), LW_DEVICE_LOST);
    case_close(&c);
}

static void page_bytes_follow_the_states(void **state)
{
    (void)state;
    null_case c;
    case_open(&c);
    assert_int_equal(lw_device_null.page_bytes(c.device, &c.plan, 0), 64 * 2 * 8 * 2);
    case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_counted),
        cmocka_unit_test(a_planned_failure_comes_at_the_wait),
        cmocka_unit_test(page_bytes_follow_the_states),
        cmocka_unit_test(chains_are_walked_to_the_end_of_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
