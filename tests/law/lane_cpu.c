/* The laws of streams on the cpu device with the shipped model: 1, 2, 4 and 8 streams at once, greedy and
 * sampled, drafted by copies, by right and wrong chains and trees and by a head, cold and resumed, each equal
 * to lw_generate on an engine of its own.
 */
#include "base/rng.h"
#include "family/family.h"
#include "lane/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { STREAMS = 8, CONTEXT = 512, PROMPT_MAX = 260, TOKENS = 20, IDS = 4000 };

typedef struct reply {
    lw_request request;
    int32_t prompt[PROMPT_MAX + TOKENS];
    uint32_t marks[2];
    int32_t solo[TOKENS], ids[TOKENS];
    uint32_t count, ends;
    lw_request_counts counts;
} reply;

typedef struct bench {
    lw_checkpoint *checkpoint;
    lw_engine *plain, *shared;
    lw_stream *stream;
    reply replies[STREAMS];
    lw_rng rng;
    uint64_t now; /* nanoseconds of a clock of our own */
} bench;

/* Every round takes as long as any other: drafts are worth trying whatever this machine is busy with. */
static uint64_t clock_steady(void *context)
{
    uint64_t *now = context;
    return *now += 1000;
}

static bool on_token(void *context, const lw_token_event *event)
{
    reply *r = context;
    assert_true(r->count < TOKENS);
    r->ids[r->count++] = event->id;
    return true;
}

static void on_end(void *context, const lw_end_event *event)
{
    reply *r = context;
    if (event->status != LW_OK) fail_msg("%s", event->text);
    r->ends++;
    r->counts = event->counts;
}

static lw_engine *engine_open(const lw_checkpoint *checkpoint, uint32_t lanes, uint32_t chunk_rows)
{
    lw_engine *engine = NULL;
    lw_diag d = { "" };
    const lw_engine_options options = { .device_options = { .threads = 1, .isa = getenv("LW_TEST_ISA") },
                                        .lanes = lanes, .context = CONTEXT, .chunk_rows = chunk_rows,
                                        .cache_bytes = 16 << 20 };
    if (lw_engine_open(checkpoint, &options, &engine, &d) != LW_OK) fail_msg("%s", d.text);
    return engine;
}

static void solo(bench *b, reply *r)
{
    lw_diag d = { "" };
    lw_generate_result result;
    const lw_generate_options options = { .sampling = r->request.sampling,
                                          .tokens_max = TOKENS,
                                          .ignore_end = true };
    lw_stream_reset(b->stream);
    if (lw_generate(b->stream, r->prompt, r->request.prompt_count, &options, r->solo, &result, &d) != LW_OK) {
        fail_msg("%s", d.text);
    }
    assert_int_equal(result.tokens, TOKENS);
}

/* A prompt that repeats itself, so that copies are tried. */
static void reply_init(bench *b, reply *r, uint32_t index)
{
    const uint32_t count = 30 + (uint32_t)lw_rng_below(&b->rng, PROMPT_MAX - 30);
    for (uint32_t i = 0; i < count; i++) {
        r->prompt[i] = i >= 40 && i % 80 >= 40 ? r->prompt[i - 40] : (int32_t)lw_rng_below(&b->rng, IDS);
    }
    r->marks[0] = count / 2;
    r->marks[1] = count - 3;
    r->request = (lw_request){ .prompt = r->prompt,
                               .prompt_count = count,
                               .tokens_max = TOKENS,
                               .ignore_end = true,
                               .draft = true,
                               .logprobs = -1,
                               .marks = r->marks,
                               .mark_count = 2,
                               .token = on_token,
                               .end = on_end,
                               .context = r };
    if (index % 2 == 1) {
        r->request.sampling =
            (lw_sampling){ .temperature = 1.0, .top_k = 20, .top_p = 0.95, .seed = 1234 + index };
    }
    solo(b, r);
}

/* ---- drafts that know the replies ---- */

static void oracle_reset(void *context, uint32_t lane)
{
    (void)context;
    (void)lane;
}

static void oracle_judge(void *context, uint32_t lane, uint32_t offered, uint32_t kept)
{
    (void)context;
    (void)lane;
    assert_true(kept <= offered);
}

static const reply *reply_of(const bench *b, const int32_t *ids, uint32_t count)
{
    for (uint32_t i = 0; i < STREAMS; i++) {
        const reply *r = &b->replies[i];
        const uint32_t prompt = r->request.prompt_count;
        if (count > prompt && memcmp(ids, r->prompt, prompt * sizeof *ids) == 0) return r;
    }
    return NULL;
}

/* The reply's own next tokens, with wrong siblings before some of them and a wrong one now and then. */
static void oracle_draft(bench *b, const lw_draft_ask *ask)
{
    const reply *r = reply_of(b, ask->ids, ask->count);
    lw_draft *out = ask->out;
    int32_t parent = -1;
    if (r == NULL) return;
    for (uint32_t at = ask->count - r->request.prompt_count; at < TOKENS && out->count < ask->room; at++) {
        const bool wrong_before = lw_rng_below(&b->rng, 4) == 0;
        for (int i = wrong_before ? 0 : 1; i < 2 && out->count < ask->room; i++) {
            const bool is_right = i == 1 && lw_rng_below(&b->rng, 6) != 0;
            out->parents[out->count] = parent;
            out->tokens[out->count++] = is_right ? r->solo[at] : (int32_t)lw_rng_below(&b->rng, IDS);
        }
        parent = (int32_t)out->count - 1;
    }
}

static void oracle_propose(void *context, const lw_draft_ask *asks, uint32_t ask_count)
{
    for (uint32_t i = 0; i < ask_count; i++) oracle_draft(context, &asks[i]);
}

/* ---- the laws ---- */

static void run_together(bench *b, uint32_t streams, uint32_t total)
{
    lw_diag d = { "" };
    lw_core_device device;
    lw_core *core = NULL;
    const lw_draft_source oracle = { .context = b, .reset = oracle_reset, .propose = oracle_propose,
                                     .judge = oracle_judge };
    lw_core_options options = lw_engine_core_options(b->shared);
    options.lanes = streams;
    options.mark_rows = 100;
    options.copy_match = 4;
    options.drafts_max = 7;
    options.source = &oracle;
    options.clock = clock_steady;
    options.clock_context = &b->now;
    assert_int_equal(lw_engine_lend(b->shared, &device, &d), LW_OK);
    if (lw_core_open(&device, &options, &core, &d) != LW_OK) fail_msg("%s", d.text);
    for (int pass = 0; pass < 2; pass++) { /* cold, then resumed from what the first pass left */
        uint64_t kept = 0;
        for (uint32_t i = 0; i < total; i++) {
            reply *r = &b->replies[i];
            uint64_t id;
            r->count = r->ends = 0;
            if (lw_core_submit(core, &r->request, &id, &d) != LW_OK) fail_msg("%s", d.text);
        }
        while (lw_core_round(core)) {}
        for (uint32_t i = 0; i < total; i++) {
            const reply *r = &b->replies[i];
            assert_int_equal(r->ends, 1);
            assert_int_equal(r->count, TOKENS);
            assert_memory_equal(r->ids, r->solo, sizeof r->solo);
            assert_true(pass == 0 || r->counts.cached_tokens >= r->request.prompt_count - 3);
            kept += r->counts.kept;
        }
        assert_true(kept > 0);
    }
    lw_core_close(core);
    lw_engine_return(b->shared);
}

/* The shipped model has no draft head, so it is its own: what a chain draws is then what the model draws, to
 * the last bit, or a row of a chain is not the row of a window. */
static lw_engine *headed_open(const lw_checkpoint *checkpoint)
{
    lw_engine *engine = NULL;
    lw_plan plan;
    lw_diag d = { "" };
    const lw_family *family;
    const lw_engine_options options = { .device_options = { .threads = 1, .isa = getenv("LW_TEST_ISA") },
                                        .lanes = STREAMS, .context = CONTEXT, .chunk_rows = 96,
                                        .cache_bytes = 16 << 20 };
    assert_int_equal(lw_plan_init(&plan, &d), LW_OK);
    assert_int_equal(lw_family_find(checkpoint, &family, &d), LW_OK);
    assert_int_equal(family->record(checkpoint, &(lw_record_options){ .head = false }, &plan, &d), LW_OK);
    plan.entries[LW_ENTRY_HEAD] = plan.entries[LW_ENTRY_MAIN];
    plan.entry_count = LW_ENTRY_HEAD + 1;
    if (lw_engine_open_plan(&plan, CONTEXT, &options, &engine, &d) != LW_OK) fail_msg("%s", d.text);
    return engine;
}

static void run_headed(bench *b, lw_engine *engine)
{
    lw_diag d = { "" };
    lw_core_device device;
    lw_core *core = NULL;
    lw_core_options options = lw_engine_core_options(engine);
    /* What the clock will tell: of a round, and of a chain of 5. */
    const lw_cost costs[] = { { 1, 1000 }, { 96, 1001 } }, steps[] = { { 1, 200 }, { STREAMS, 201 } };
    options.costs = costs;
    options.cost_count = 2;
    options.head_costs = steps;
    options.head_cost_count = 2;
    options.copy_match = 0;
    options.mark_rows = 100;
    options.clock = clock_steady;
    options.clock_context = &b->now;
    assert_int_equal(lw_engine_lend(engine, &device, &d), LW_OK);
    if (lw_core_open(&device, &options, &core, &d) != LW_OK) fail_msg("%s", d.text);
    for (uint32_t i = 0; i < STREAMS; i++) {
        reply *r = &b->replies[i];
        uint64_t id;
        r->count = r->ends = 0;
        if (lw_core_submit(core, &r->request, &id, &d) != LW_OK) fail_msg("%s", d.text);
    }
    while (lw_core_round(core)) {}
    for (uint32_t i = 0; i < STREAMS; i++) {
        assert_int_equal(b->replies[i].ends, 1);
        assert_memory_equal(b->replies[i].ids, b->replies[i].solo, sizeof b->replies[i].solo);
    }
    const lw_core_counts counts = lw_core_read_counts(core);
    assert_true(counts.head_drafted > STREAMS * TOKENS / 2);
    assert_int_equal(counts.head_kept, counts.head_drafted);
    lw_core_close(core);
    lw_engine_return(engine);
    lw_engine_close(engine);
}

static void replies_are_the_same_bits_however_made(void **state)
{
    (void)state;
    static bench b;
    lw_diag d = { "" };
    const uint64_t seed = 91;
    print_message("seed %llu\n", (unsigned long long)seed);
    b = (bench){ .rng = lw_rng_make(seed) };
    if (lw_checkpoint_open("models/lfm3-mlx4", &b.checkpoint, &d) != LW_OK) fail_msg("%s", d.text);
    b.plain = engine_open(b.checkpoint, 1, 256);
    b.shared = engine_open(b.checkpoint, STREAMS, 96);
    assert_int_equal(lw_stream_open(b.plain, &b.stream, &d), LW_OK);
    for (uint32_t i = 0; i < STREAMS; i++) reply_init(&b, &b.replies[i], i);
    for (uint32_t streams = 1; streams <= STREAMS; streams *= 2)
        run_together(&b, streams, streams == 1 ? 3 : STREAMS);
    run_headed(&b, headed_open(b.checkpoint));
    /* Planted control: one other token in a prompt must change what follows it. */
    reply *r = &b.replies[0];
    memcpy(r->ids, r->solo, sizeof r->ids);
    r->prompt[r->request.prompt_count - 2] ^= 1;
    solo(&b, r);
    assert_memory_not_equal(r->ids, r->solo, sizeof r->solo);
    lw_stream_close(b.stream);
    lw_engine_close(b.plain);
    lw_engine_close(b.shared);
    lw_checkpoint_close(b.checkpoint);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(replies_are_the_same_bits_however_made) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
