/* What bench measures beside one stream, on the shipped models: streams together and steps behind a long
 * history. Rates are never judged; that they were measured is, and what cannot be measured is refused by
 * name.
 */
#include "cli/bench_depth.h"
#include "cli/bench_streams.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

enum { LANES = 4, CONTEXT = 256, CHUNK = 96 };

static const char *const dirs[] = { "models/lfm3-mlx4", "models/qwen35-mlx4", "models/nemotron-mlx4" };
enum { DIRS = sizeof dirs / sizeof dirs[0] };

static lw_engine *engine_open(const char *dir, lw_checkpoint **checkpoint)
{
    lw_diag d = { .text = "" };
    const lw_engine_options options = { .device_options = { .threads = 1 },
                                        .lanes = LANES,
                                        .context = CONTEXT,
                                        .chunk_rows = CHUNK,
                                        .wanted_rows = 1 };
    lw_engine *engine = NULL;
    if (lw_checkpoint_open(dir, checkpoint, &d) != LW_OK ||
        lw_engine_open(*checkpoint, &options, &engine, &d) != LW_OK)
        fail_msg("%s: %s", dir, d.text);
    return engine;
}

static void assert_names(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) fail_msg("\"%s\" does not say %s", text, part);
}

static void streams_run_together(void **state)
{
    (void)state;
    for (size_t i = 0; i < DIRS; i++) {
        lw_checkpoint *checkpoint = NULL;
        lw_engine *engine = engine_open(dirs[i], &checkpoint);
        lw_diag d = { .text = "" };
        lw_streams_result rate;
        for (uint32_t streams = 1; streams <= LANES; streams++) {
            const lw_bench_streams what = { .streams = streams, .prompt = 40, .tokens = 6 };
            if (lw_bench_streams_run(engine, &what, &rate, &d) != LW_OK) fail_msg("%s", d.text);
            assert_true(rate.tokens_per_s > 0.0 && rate.rounds > 0 && rate.rounds_ahead == 0);
        }
        /* One more than there are lanes, and replies of one token: they never run together. */
        const lw_bench_streams more = { .streams = LANES + 1, .prompt = 40, .tokens = 6 };
        assert_int_equal(lw_bench_streams_run(engine, &more, &rate, &d), LW_BAD_INPUT);
        assert_names(d.text, "5 streams never ran together");
        const lw_bench_streams brief = { .streams = 2, .prompt = 40, .tokens = 1 };
        assert_int_equal(lw_bench_streams_run(engine, &brief, &rate, &d), LW_BAD_INPUT);
        const lw_bench_streams longer = { .streams = 1, .prompt = CONTEXT, .tokens = 6 };
        assert_int_not_equal(lw_bench_streams_run(engine, &longer, &rate, &d), LW_OK);
        lw_engine_close(engine);
        lw_checkpoint_close(checkpoint);
    }
}

/* All lanes' pages are one stream's, so it may be longer than a lane's context; and no longer than they are.
 */
static void a_history_takes_all_pages(void **state)
{
    (void)state;
    for (size_t i = 0; i < DIRS; i++) {
        lw_checkpoint *checkpoint = NULL;
        lw_engine *engine = engine_open(dirs[i], &checkpoint);
        const uint32_t depths[] = { 64, CONTEXT + 100, LANES * CONTEXT - CHUNK - LW_PAGE_POSITIONS };
        lw_depth_result results[3] = { 0 };
        lw_diag d = { .text = "" };
        assert_true(lw_bench_depth_positions(depths[2], CHUNK) <= LANES * CONTEXT);
        if (lw_bench_depth_run(engine, depths, 3, results, &d) != LW_OK) fail_msg("%s", d.text);
        for (int j = 0; j < 3; j++) {
            assert_true(results[j].decode_tok_s > 0.0);
            assert_true(results[j].prompt_tok_s > 0.0);
        }
        const uint32_t deeper = LANES * CONTEXT;
        assert_int_equal(lw_bench_depth_run(engine, &deeper, 1, results, &d), LW_NO_ROOM);
        assert_names(d.text, "give --context");
        lw_stream *stream = NULL; /* the lanes were given back each time */
        assert_int_equal(lw_stream_open(engine, &stream, &d), LW_OK);
        assert_int_equal(lw_bench_depth_run(engine, depths, 1, results, &d), LW_BAD_INPUT);
        assert_names(d.text, "in use");
        lw_stream_close(stream);
        lw_engine_close(engine);
        lw_checkpoint_close(checkpoint);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_run_together),
        cmocka_unit_test(a_history_takes_all_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
