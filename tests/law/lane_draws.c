/* The rows of a round, and those of a draft head's step, are drawn on several threads: every reply, with its
 * log-probabilities, is the same bits for any number of them, whatever floating-point modes the threads
 * compute in, and is the reply of its request alone. A single row is the caller's, and so is what is not
 * worth a thread.
 */
#include "../fake/fake_model.h"
#include "lane/core_internal.h"

#include <fenv.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { STREAMS = 6, CONTEXT = 256, TOKENS = 90, PAGES = 8 * STREAMS };

typedef struct stream {
    lw_request request;
    int32_t prompt[40];
    fake_reply solo;
    int32_t ids[TOKENS];
    double logprobs[TOKENS];
    uint32_t count, ends;
} stream;

typedef struct bench {
    fake_model fake;
    bool has_head;             /* which drafts in the made-up source's place */
    fake_drafter drafter;
    lw_pool *threads;
    lw_core *core;
    stream streams[STREAMS];
} bench;

/* A pool sets its modes up once on each thread of its own, and around each run on the caller. */
static atomic_uint setups;
static void modes_set(void)
{
    atomic_fetch_add(&setups, 1);
    fesetround(FE_UPWARD);
}

static uint64_t clock_still(void *context)
{
    (void)context;
    return 1;
}

static bool on_token(void *context, const lw_token_event *event)
{
    stream *s = context;
    assert_true(s->count < TOKENS);
    s->logprobs[s->count] = event->logprob;
    s->ids[s->count++] = event->id;
    return true;
}

static void on_end(void *context, const lw_end_event *event)
{
    stream *s = context;
    s->ends++;
    assert_int_equal(event->status, s->solo.status);
}

/* Greedy, sampled, told with log-probabilities, penalised, and one whose logits break. */
static void stream_make(stream *s, uint32_t index)
{
    static const lw_bias no_poison = { FAKE_POISON, -100.0f };
    lw_rng rng = lw_rng_make(300 + index);
    *s = (stream){ 0 };
    for (uint32_t i = 0; i < 40; i++) s->prompt[i] = (int32_t)lw_rng_below(&rng, FAKE_POISON);
    s->request = (lw_request){ .prompt = s->prompt,
                               .prompt_count = 10 + 5 * index,
                               .tokens_max = TOKENS - index,
                               .ignore_end = true,
                               .draft = true,
                               .logprobs = index % 2 == 0 ? -1 : 3,
                               .token = on_token,
                               .end = on_end,
                               .context = s };
    if (index != 4)
        s->request.sampling = (lw_sampling){ .temperature = 0.8, .top_p = 0.9, .seed = 9 + index };
    if (index == 3) s->request.penalties = (lw_penalties){ .repetition = 1.2f, .frequency = 0.5f };
    if (index != 5) {
        s->request.penalties.biases = &no_poison;
        s->request.penalties.bias_count = index == 2 || index == 3;
    }
    fake_solo(&s->request, 0, &s->solo);
}

/* Counts how often the pool runs for a chain of drafts. */
static uint32_t chain_setups;

static lw_status chain_submit(lw_exec *exec, const lw_chain *chain, lw_ticket *ticket, lw_diag *d)
{
    const uint32_t before = atomic_load(&setups);
    const lw_status status = lw_device_null.submit_chain(exec, chain, ticket, d);
    chain_setups += atomic_load(&setups) - before;
    return status;
}

/* Plays count streams with their drafts on so many threads (0: no pool); how often the pool ran. */
static uint32_t play(bench *b, uint32_t count, unsigned threads, uint32_t drafts_max, uint64_t work_least)
{
    fake_options f = { .context = CONTEXT, .rows_max = 128, .reach = 60, .has_head = b->has_head,
                       .head_right = 230, .page_counts = { PAGES, PAGES, PAGES, PAGES } };
    lw_device_table table = lw_device_null;
    lw_core_options o = { .lanes = STREAMS, .context = CONTEXT, .rows_max = 128, .drafts_max = drafts_max,
                          .clock = clock_still };
    fake_drafter_init(&b->drafter, 7, 230, threads % 2 == 1);
    if (b->has_head) o.head_drafts = drafts_max;
    else o.source = &b->drafter.source;
    table.submit_chain = chain_submit;
    chain_setups = 0;
    b->threads = NULL;
    fake_open(&b->fake, &f);
    atomic_store(&setups, 0);
    if (threads > 0) assert_int_equal(lw_pool_open(threads, modes_set, &b->threads, NULL), LW_OK);
    while (threads > 0 && atomic_load(&setups) < threads - 1) sched_yield();
    lw_core_device device = fake_device(&b->fake);
    device.threads = b->threads;
    device.table = &table;
    assert_int_equal(lw_core_open(&device, &o, &b->core, NULL), LW_OK);
    b->core->draws.work_least = work_least;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t id;
        stream_make(&b->streams[i], i);
        assert_int_equal(lw_core_submit(b->core, &b->streams[i].request, &id, NULL), LW_OK);
    }
    while (lw_core_round(b->core)) {}
    const lw_core_counts counts = lw_core_read_counts(b->core);
    if (drafts_max > 0) assert_true(counts.kept > 10 && counts.kept < counts.drafted);
    if (b->fake.violations > 0) fail_msg("%s", b->fake.violation);
    lw_core_close(b->core);
    lw_pool_close(b->threads);
    fake_close(&b->fake);
    return atomic_load(&setups) - (threads > 0 ? threads - 1 : 0);
}

static void check(const stream *s)
{
    assert_int_equal(s->ends, 1);
    assert_int_equal(s->count, s->solo.count);
    assert_memory_equal(s->ids, s->solo.ids, s->count * sizeof *s->ids);
    if (s->request.logprobs >= 0)
        assert_memory_equal(s->logprobs, s->solo.logprobs, s->count * sizeof *s->logprobs);
}

static void any_number_of_threads_draws_the_same(void **state)
{
    (void)state;
    static bench b;
    static const unsigned threads[] = { 0, 1, 2, 3, 5, 11 };
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        const uint32_t runs = play(&b, STREAMS, threads[i], 7, 0);
        assert_true(threads[i] > 1 ? runs > 20 : runs == 0);
        for (uint32_t j = 0; j < STREAMS; j++) check(&b.streams[j]);
    }
    /* One stream: what its window reaches is drawn beside its next row. */
    assert_true(play(&b, 1, 3, 7, 0) > 10);
    check(&b.streams[0]);
    /* Planted control: another seed is another reply. */
    stream *s = &b.streams[1];
    stream_make(s, 1);
    s->request.sampling.seed++;
    fake_solo(&s->request, 0, &s->solo);
    play(&b, 2, 2, 7, 0);
    const fake_reply right = s->solo;
    stream_make(s, 1);
    s->request.sampling.seed++;
    fake_solo(&s->request, 0, &s->solo);
    assert_memory_not_equal(right.ids, s->solo.ids, sizeof right.ids);
}

/* The penalties of a stream whose draft its head draws have seen the drafts before it. */
static void any_number_of_threads_draws_a_heads_chains(void **state)
{
    (void)state;
    static bench b;
    static const unsigned threads[] = { 0, 1, 2, 3, 5 };
    b.has_head = true;
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        play(&b, STREAMS, threads[i], 7, 0);
        assert_true(threads[i] > 1 ? chain_setups > 20 : chain_setups == 0);
        for (uint32_t j = 0; j < STREAMS; j++) check(&b.streams[j]);
    }
    play(&b, 1, 3, 7, 0); /* one stream's chain has one row a step */
    assert_int_equal(chain_setups, 0);
    play(&b, STREAMS, 3, 7, UINT64_MAX); /* and what is not worth it */
    assert_int_equal(chain_setups, 0);
}

static void a_single_row_is_drawn_by_the_caller(void **state)
{
    (void)state;
    static bench b;
    assert_int_equal(play(&b, 1, 3, 0, 0), 0);
    check(&b.streams[0]);
    assert_int_equal(play(&b, STREAMS, 3, 7, UINT64_MAX), 0); /* and what is not worth it */
    for (uint32_t j = 0; j < STREAMS; j++) check(&b.streams[j]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_threads_draws_the_same),
        cmocka_unit_test(any_number_of_threads_draws_a_heads_chains),
        cmocka_unit_test(a_single_row_is_drawn_by_the_caller),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
