/* The LFM3 family records the shipped checkpoint: on the null device, so that no kernel is needed. */
#include "device/null/null.h"
#include "family/family.h"
#include "lane/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char shipped[] = "models/lfm3-mlx4";

static lw_checkpoint *open_shipped(void)
{
    lw_checkpoint *checkpoint = NULL;
    lw_diag d = { "" };
    if (lw_checkpoint_open(shipped, &checkpoint, &d) != LW_OK) fail_msg("%s", d.text);
    return checkpoint;
}

static void the_plan_has_the_layers_of_the_config(void **state)
{
    (void)state;
    lw_checkpoint *checkpoint = open_shipped();
    const lw_family *family = NULL;
    lw_plan plan;
    lw_diag d = { "" };
    assert_int_equal(lw_family_find(checkpoint, &family, &d), LW_OK);
    assert_string_equal(family->name, "lfm3");
    assert_int_equal(lw_plan_init(&plan, NULL), LW_OK);
    const lw_record_options record = { .head = false };
    if (family->record(checkpoint, &record, &plan, &d) != LW_OK) fail_msg("%s", d.text);
    uint32_t counts[LW_OP_COUNT] = { 0 };
    for (uint32_t i = 0; i < plan.op_count; i++) counts[plan.ops[i].kind]++;
    assert_int_equal(counts[LW_OP_SHORT_CONV], 6);
    assert_int_equal(counts[LW_OP_ATTEND], 4);
    assert_int_equal(counts[LW_OP_SWIGLU], 10);
    assert_int_equal(counts[LW_OP_LINEAR], 6 * 2 + 4 * 5 + 10 * 3 + 1);
    assert_int_equal(counts[LW_OP_RMS_NORM], 10 * 4 + 4 * 2 + 1);
    assert_int_equal(counts[LW_OP_TAKE_WANTED], 2);
    assert_int_equal(plan.reach_count, 3); /* convolution tails, everything, the sliding window */
    assert_int_equal(plan.vocab, 4096);
    assert_int_equal(plan.rope_count, 2);
    assert_true(plan.ropes[0].frequency[15] > 0.0 && plan.ropes[0].frequency[16] == 0.0);
    assert_true(plan.ropes[1].frequency[16] > 0.0);
    lw_plan_deinit(&plan);
    lw_checkpoint_close(checkpoint);
}

static void end_ids_are_the_union_of_both_configs(void **state)
{
    (void)state;
    lw_checkpoint *checkpoint = open_shipped();
    int32_t ids[LW_FAMILY_END_IDS_MAX];
    size_t count = 0;
    assert_int_equal(lw_family_end_ids(checkpoint, ids, &count, NULL), LW_OK);
    assert_int_equal(count, 1);
    assert_int_equal(ids[0], 4089);
    assert_int_equal(lw_family_context(checkpoint), 8192);
    lw_checkpoint_close(checkpoint);
}

static void a_reply_runs_on_the_null_device(void **state)
{
    (void)state;
    lw_checkpoint *checkpoint = open_shipped();
    lw_engine *engine = NULL;
    lw_stream *stream = NULL, *second = NULL;
    lw_diag d = { "" };
    const lw_engine_options options = { .device = "null", .lanes = 1, .context = 300, .chunk_rows = 16 };
    if (lw_engine_open(checkpoint, &options, &engine, &d) != LW_OK) fail_msg("%s", d.text);
    assert_int_equal(lw_stream_open(engine, &stream, &d), LW_OK);
    assert_int_equal(lw_stream_open(engine, &second, &d), LW_NO_ROOM);
    int32_t prompt[40], reply[300], long_prompt[301] = { 0 };
    for (int32_t i = 0; i < 40; i++) prompt[i] = i;
    lw_generate_options generate = { .tokens_max = 300 };
    lw_generate_result result;
    if (lw_generate(stream, prompt, 40, &generate, reply, &result, &d) != LW_OK) fail_msg("%s", d.text);
    /* Greedy over zeros draws id 0; the reply ends with the context. */
    assert_int_equal(result.tokens, 300 - 40);
    assert_int_equal(result.finish, LW_FINISH_LENGTH);
    assert_int_equal(result.prompt_rows, 40);
    assert_int_equal(reply[0], 0);
    assert_int_equal(lw_generate(stream, long_prompt, 299, &generate, reply, &result, &d), LW_OK);
    assert_int_equal(result.tokens, 1);
    assert_int_equal(lw_generate(stream, long_prompt, 300, &generate, reply, &result, &d), LW_BAD_INPUT);
    assert_non_null(strstr(d.text, "300 tokens"));
    generate.tokens_max = 0;
    assert_int_equal(lw_generate(stream, long_prompt, 300, &generate, reply, &result, &d), LW_OK);
    assert_int_equal(lw_generate(stream, long_prompt, 301, &generate, reply, &result, &d), LW_BAD_INPUT);
    prompt[3] = 4096;
    assert_int_equal(lw_generate(stream, prompt, 40, &generate, reply, &result, &d), LW_BAD_INPUT);
    assert_non_null(strstr(d.text, "4096"));
    prompt[3] = -1;
    assert_int_equal(lw_generate(stream, prompt, 40, &generate, reply, &result, &d), LW_BAD_INPUT);
    assert_int_equal(lw_generate(stream, prompt, 0, &generate, reply, &result, &d), LW_BAD_INPUT);
    lw_stream_close(stream);
    lw_engine_close(engine);
    lw_checkpoint_close(checkpoint);
}

static void options_that_cannot_be_are_refused(void **state)
{
    (void)state;
    lw_checkpoint *checkpoint = open_shipped();
    lw_engine *engine = NULL;
    lw_diag d = { "" };
    assert_int_equal(lw_engine_open(checkpoint, &(lw_engine_options){ .device = "abacus" }, &engine, &d),
                     LW_BAD_INPUT);
    assert_non_null(strstr(d.text, "abacus"));
    assert_int_equal(
        lw_engine_open(checkpoint, &(lw_engine_options){ .device = "null", .context = 9000 }, &engine, &d),
        LW_BAD_INPUT);
    assert_non_null(strstr(d.text, "8192"));
    assert_null(engine);
    lw_checkpoint_close(checkpoint);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plan_has_the_layers_of_the_config),
        cmocka_unit_test(end_ids_are_the_union_of_both_configs),
        cmocka_unit_test(a_reply_runs_on_the_null_device),
        cmocka_unit_test(options_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
