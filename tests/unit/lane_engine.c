/* Engines: sized from what is free, and their lanes belong to streams or to a core, never to both. */
#include "lane/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

typedef struct bench {
    lw_checkpoint *checkpoint;
    lw_engine *engine;
} bench;

static void bench_open(bench *b, const lw_engine_options *options)
{
    lw_diag d = { "" };
    if (lw_checkpoint_open("models/lfm3-mlx4", &b->checkpoint, &d) != LW_OK) fail_msg("%s", d.text);
    if (lw_engine_open(b->checkpoint, options, &b->engine, &d) != LW_OK) fail_msg("%s", d.text);
}

static void bench_close(bench *b)
{
    lw_engine_close(b->engine);
    lw_checkpoint_close(b->checkpoint);
}

static void lanes_belong_to_streams_or_to_a_core(void **state)
{
    (void)state;
    bench b;
    lw_stream *stream = NULL, *second = NULL;
    lw_core_device device;
    lw_diag d = { "" };
    bench_open(&b, &(lw_engine_options){ .device = "null", .lanes = 2, .context = 300, .chunk_rows = 16 });
    assert_int_equal(lw_engine_lanes(b.engine), 2);
    assert_int_equal(lw_stream_open(b.engine, &stream, &d), LW_OK);
    assert_int_equal(lw_engine_lend(b.engine, &device, &d), LW_BAD_INPUT);
    assert_non_null(strstr(d.text, "1 of the engine's lanes"));
    lw_stream_close(stream);
    assert_int_equal(lw_engine_lend(b.engine, &device, &d), LW_OK);
    assert_int_equal(lw_stream_open(b.engine, &second, &d), LW_NO_ROOM);
    const lw_core_options options = lw_engine_core_options(b.engine);
    lw_core *core = NULL;
    assert_int_equal(lw_core_open(&device, &options, &core, &d), LW_OK);
    assert_false(lw_core_round(core));
    lw_core_close(core);
    lw_engine_return(b.engine);
    assert_int_equal(lw_stream_open(b.engine, &stream, &d), LW_OK);
    lw_stream_close(stream);
    bench_close(&b);
}

static void entries_get_pages_beside_the_lanes(void **state)
{
    (void)state;
    bench plain, cached;
    lw_core_device few, many;
    const lw_engine_options without = { .device = "null", .lanes = 1, .context = 640 };
    lw_engine_options with = without;
    with.cache_bytes = 64 << 20;
    bench_open(&plain, &without);
    bench_open(&cached, &with);
    assert_int_equal(lw_engine_lend(plain.engine, &few, NULL), LW_OK);
    assert_int_equal(lw_engine_lend(cached.engine, &many, NULL), LW_OK);
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < few.pool->group_count; g++) {
        assert_true(many.pool->groups[g].count > few.pool->groups[g].count);
        bytes += (many.pool->groups[g].count - few.pool->groups[g].count) * many.page_bytes[g];
    }
    assert_true(bytes <= with.cache_bytes && bytes > with.cache_bytes / 2);
    lw_engine_return(plain.engine);
    lw_engine_return(cached.engine);
    bench_close(&plain);
    bench_close(&cached);
}

static void logits_are_taken_for_the_rows_that_want_them(void **state)
{
    (void)state;
    bench b;
    lw_engine_options options = { .device = "null", .lanes = 2, .context = 300, .chunk_rows = 64 };
    bench_open(&b, &options);
    assert_int_equal(lw_engine_wanted_max(b.engine), 64);
    assert_int_equal(lw_engine_core_options(b.engine).drafts_max, LW_DRAFTS_DEFAULT);
    bench_close(&b);
    options.wanted_rows = 4;
    bench_open(&b, &options);
    assert_int_equal(lw_engine_wanted_max(b.engine), 8);
    assert_int_equal(lw_engine_core_options(b.engine).drafts_max, 3);
    bench_close(&b);
    options.wanted_rows = 60;
    bench_open(&b, &options);
    assert_int_equal(lw_engine_wanted_max(b.engine), 64);
    bench_close(&b);
}

/* What the wanted rows take is what keeps a device too small from being filled. */
static void logits_count_against_the_memory(void **state)
{
    (void)state;
    bench b;
    lw_diag d = { "" };
    lw_engine *engine = NULL;
    lw_engine_options options = { .device = "null", .lanes = 1, .context = 4096, .chunk_rows = 4096 };
    bench_open(&b, &options);
    const uint64_t row_bytes = lw_engine_vocab(b.engine) * sizeof(float);
    uint64_t weight_bytes = 0;
    const lw_plan *plan = lw_engine_plan(b.engine);
    for (uint32_t i = 0; i < plan->weight_count; i++) weight_bytes += lw_weight_bytes(&plan->weights[i]);
    /* The scratch beside the weights and one small lane, and room for half of all rows' logits. */
    options.memory_bytes = weight_bytes + ((uint64_t)80 << 20) + 2048 * row_bytes;
    assert_int_equal(lw_engine_open(b.checkpoint, &options, &engine, &d), LW_NO_ROOM);
    options.wanted_rows = 16;
    assert_int_equal(lw_engine_open(b.checkpoint, &options, &engine, &d), LW_OK);
    lw_engine_close(engine);
    bench_close(&b);
}

/* Values and scratch of a large chunk are refused before anything is loaded, with the chunk that fits; what
 * is told to fit does. */
static void a_chunk_counts_against_the_memory(void **state)
{
    (void)state;
    enum { MODELS = 3 };
    static const char *const models[MODELS] = { "models/lfm3-mlx4", "models/qwen35-mlx4",
                                                "models/nemotron-mlx4" };
    for (size_t i = 0; i < MODELS; i++) {
        lw_checkpoint *checkpoint = NULL;
        lw_engine *engine = NULL;
        lw_diag d = { "" };
        lw_engine_options options = { .device_options = { .threads = 1 }, .lanes = 1, .context = 8192,
                                      .chunk_rows = 8192, .wanted_rows = 1, .head = true,
                                      .memory_bytes = (uint64_t)140 << 20 };
        assert_int_equal(lw_checkpoint_open(models[i], &checkpoint, &d), LW_OK);
        assert_int_equal(lw_engine_open(checkpoint, &options, &engine, &d), LW_NO_ROOM);
        assert_non_null(strstr(d.text, "rounds of 8192 rows"));
        const char *help = strstr(d.text, "--chunk ");
        unsigned rows = 0;
        if (help == NULL || sscanf(help, "--chunk %u", &rows) != 1) fail_msg("%s", d.text);
        options.chunk_rows = 2 * rows;
        assert_int_equal(lw_engine_open(checkpoint, &options, &engine, &d), LW_NO_ROOM);
        options.chunk_rows = rows;
        if (lw_engine_open(checkpoint, &options, &engine, &d) != LW_OK) fail_msg("%s", d.text);
        lw_engine_close(engine);
        lw_checkpoint_close(checkpoint);
    }
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    lw_checkpoint *checkpoint = NULL;
    lw_engine *engine = NULL;
    lw_diag d = { "" };
    assert_int_equal(lw_checkpoint_open("models/lfm3-mlx4", &checkpoint, &d), LW_OK);
    const lw_engine_options options = { .device = "null", .cache_bytes = (uint64_t)1 << 50 };
    assert_int_equal(lw_engine_open(checkpoint, &options, &engine, &d), LW_NO_ROOM);
    assert_non_null(strstr(d.text, "--prompt-cache"));
    assert_null(engine);
    lw_checkpoint_close(checkpoint);
}

/* The head's logits at the second of two rows; where it runs over the first too, the forward runs again. */
static void head_logits(lw_stream *stream, const int32_t ids[2], bool runs_twice, float *out, uint32_t vocab)
{
    const float *logits = NULL;
    lw_diag d = { "" };
    lw_stream_reset(stream);
    assert_int_equal(lw_stream_forward(stream, ids, 1, LW_WANTED_ALL, &d), LW_OK);
    if (runs_twice) {
        assert_int_equal(lw_stream_forward_entry(stream, LW_ENTRY_HEAD, ids, 1, LW_WANTED_ALL, &d), LW_OK);
        assert_int_equal(lw_stream_logits(stream, 0, &logits, &d), LW_OK);
        assert_int_equal(lw_stream_forward(stream, ids, 1, LW_WANTED_NONE, &d), LW_OK);
    }
    lw_stream_commit(stream, 1);
    assert_int_equal(lw_stream_forward_entry(stream, LW_ENTRY_HEAD, ids + 1, 1, LW_WANTED_ALL, &d), LW_OK);
    assert_int_equal(lw_stream_logits(stream, 0, &logits, &d), LW_OK);
    memcpy(out, logits, vocab * sizeof *logits);
    lw_stream_commit(stream, 0);
}

static void a_head_runs_over_open_rows_and_keeps_none(void **state)
{
    (void)state;
    enum { VOCAB = 4096 };
    const int32_t ids[] = { 100, 200 }, other[] = { 101, 200 };
    static float without[VOCAB], with[VOCAB];
    lw_checkpoint *checkpoint = NULL;
    lw_engine *engine = NULL;
    lw_stream *stream = NULL;
    lw_diag d = { "" };
    const lw_engine_options options = { .lanes = 1, .context = 64, .chunk_rows = 4, .head = true };
    assert_int_equal(lw_checkpoint_open("models/qwen35-mlx4", &checkpoint, &d), LW_OK);
    if (lw_engine_open(checkpoint, &options, &engine, &d) != LW_OK) fail_msg("%s", d.text);
    assert_int_equal(lw_engine_vocab(engine), VOCAB);
    assert_int_equal(lw_stream_open(engine, &stream, &d), LW_OK);
    head_logits(stream, ids, false, without, VOCAB);
    head_logits(stream, ids, true, with, VOCAB);
    assert_memory_equal(with, without, sizeof with);
    /* Planted control: the row before is what the head reads. */
    head_logits(stream, other, true, with, VOCAB);
    assert_memory_not_equal(with, without, sizeof with);
    lw_stream_close(stream);
    lw_engine_close(engine);
    lw_checkpoint_close(checkpoint);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lanes_belong_to_streams_or_to_a_core),
        cmocka_unit_test(entries_get_pages_beside_the_lanes),
        cmocka_unit_test(logits_are_taken_for_the_rows_that_want_them),
        cmocka_unit_test(logits_count_against_the_memory),
        cmocka_unit_test(a_chunk_counts_against_the_memory),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(a_head_runs_over_open_rows_and_keeps_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
