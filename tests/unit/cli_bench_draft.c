/* Drafts of given luck on the shipped models with heads: the reply stays the plain one, right drafts save
 * rounds, wrong ones are not kept. */
#include "cli/bench_draft.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

enum { PROMPT = 24, TOKENS = 96, PLAIN = 0, NINETY = 1, SEVENTY = 2, WRONG = 3 };

static lw_engine *engine_open(const char *dir, lw_checkpoint **checkpoint)
{
    lw_diag d = { .text = "" };
    const lw_engine_options options = { .device_options = { .threads = 1 },
                                        .lanes = 1,
                                        .context = PROMPT + TOKENS,
                                        .chunk_rows = 32,
                                        .wanted_rows = 8,
                                        .head = true };
    lw_engine *engine = NULL;
    if (lw_checkpoint_open(dir, checkpoint, &d) != LW_OK ||
        lw_engine_open(*checkpoint, &options, &engine, &d) != LW_OK)
        fail_msg("%s: %s", dir, d.text);
    return engine;
}

static void drafts_have_the_given_luck(void **state)
{
    (void)state;
    static const char *const dirs[] = { "models/qwen35-mlx4", "models/nemotron-mlx4" };
    for (size_t i = 0; i < sizeof dirs / sizeof dirs[0]; i++) {
        lw_checkpoint *checkpoint = NULL;
        lw_engine *engine = engine_open(dirs[i], &checkpoint);
        lw_draft_bench *bench = NULL;
        lw_draft_result results[LW_DRAFT_ROWS];
        lw_diag d = { .text = "" };
        int32_t prompt[PROMPT];
        for (int32_t t = 0; t < PROMPT; t++) prompt[t] = 5 + t;
        assert_int_equal(lw_draft_bench_open(engine, TOKENS, &bench, &d), LW_OK);
        if (lw_draft_bench_run(bench, prompt, PROMPT, results, &d) != LW_OK) fail_msg("%s", d.text);
        for (int row = 0; row < LW_DRAFT_ROWS; row++) {
            assert_true(results[row].tokens_per_s > 0.0);
            assert_true(results[row].rounds + results[row].kept == TOKENS);
        }
        assert_int_equal(results[PLAIN].drafted, 0);
        assert_int_equal(results[WRONG].kept, 0);
        /* Whether drafts pay is a matter of times; those that are tried have their luck. */
        if (results[NINETY].drafted > 20) assert_true(results[NINETY].kept * 2 > results[NINETY].drafted);
        assert_true(results[SEVENTY].kept <= results[SEVENTY].drafted);
        lw_draft_bench_close(bench);
        lw_engine_close(engine);
        lw_checkpoint_close(checkpoint);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(drafts_have_the_given_luck) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
