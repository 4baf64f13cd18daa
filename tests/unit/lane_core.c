/* The lane core, one behaviour at a time: refusals, cancels, errors of one stream, prefix reuse as
 * conversations use it, and that rounds allocate nothing.
 */
#include "../fake/fake_model.h"

#include "lane/core_internal.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_OWN_MALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_OWN_MALLOC 0
#endif
#endif
#ifndef HAS_OWN_MALLOC
#define HAS_OWN_MALLOC 1
#endif

#if HAS_OWN_MALLOC
/* glibc lets a program stand in for these; its own are reachable by these names. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);

void __libc_free(void *old);

static uint64_t allocations, frees;
static uint64_t fail_at; /* 0: none fails; 1: the next */

static bool fails(void)
{
    return fail_at > 0 && --fail_at == 0;
}

void *malloc(size_t bytes)
{
    if (fails()) return NULL;
    allocations++;
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    if (fails()) return NULL;
    allocations++;
    return __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    if (fails()) return NULL;
    allocations += old == NULL;
    return __libc_realloc(old, bytes);
}

void free(void *old)
{
    frees += old != NULL;
    __libc_free(old);
}
#endif

enum { CONTEXT = 512, PROMPT_MAX = 1536, STREAMS_MAX = 8 };

typedef struct stream {
    lw_request request;
    int32_t prompt[PROMPT_MAX];
    uint32_t marks[4];
    int32_t ids[FAKE_TOKENS_MAX];
    uint32_t count, ends, stop_after;
    lw_end_event end;
    char text[256];
    uint64_t id;
} stream;

typedef struct bench {
    fake_model fake;
    lw_core *core;
    stream streams[STREAMS_MAX];
    uint64_t now, tick_ns;
} bench;

static uint64_t clock_fake(void *context)
{
    bench *b = context;
    return b->now += b->tick_ns;
}

static bool on_token(void *context, const lw_token_event *event)
{
    stream *s = context;
    s->ids[s->count++] = event->id;
    return s->count != s->stop_after;
}

static void on_end(void *context, const lw_end_event *event)
{
    stream *s = context;
    s->ends++;
    s->end = *event;
    snprintf(s->text, sizeof s->text, "%s", event->text);
}

static void bench_open(bench *b, const lw_core_options *wanted)
{
    *b = (bench){ .now = 1, .tick_ns = 1000 };
    lw_core_options o = *wanted;
    if (o.lanes == 0) o.lanes = 2;
    if (o.context == 0) o.context = CONTEXT;
    if (o.rows_max == 0) o.rows_max = 64;
    o.clock = clock_fake;
    o.clock_context = b;
    const bool has_head = o.head_drafts > 0;
    const fake_options f = { .context = o.context, .rows_max = o.rows_max, .reach = 80, .recurs = has_head,
                             .has_head = has_head, .head_right = 200,
                             .page_counts = { 4 * 8, 4 * 8, 4 * 8, 4 * 8, 4 * 8, 4 * 8 } };
    fake_open(&b->fake, &f);
    const lw_core_device device = fake_device(&b->fake);
    assert_int_equal(lw_core_open(&device, &o, &b->core, NULL), LW_OK);
}

static void bench_close(bench *b)
{
    fake_check_core(&b->fake, b->core);
    if (b->fake.violations > 0) fail_msg("%s", b->fake.violation);
    lw_core_close(b->core);
    fake_close(&b->fake);
}

/* A stream whose prompt is count tokens from a sequence of its own. */
static stream *stream_init(bench *b, uint32_t index, uint32_t count, uint32_t tokens)
{
    stream *s = &b->streams[index];
    *s = (stream){ 0 };
    for (uint32_t i = 0; i < count; i++) s->prompt[i] = (int32_t)(lw_rng_mix(index * 1000 + i) % FAKE_POISON);
    s->request = (lw_request){ .prompt = s->prompt,
                               .prompt_count = count,
                               .tokens_max = tokens,
                               .ignore_end = true,
                               .draft = true,
                               .logprobs = -1,
                               .marks = s->marks,
                               .token = on_token,
                               .end = on_end,
                               .context = s };
    return s;
}

static void submit(bench *b, stream *s)
{
    lw_diag d = { "" };
    if (lw_core_submit(b->core, &s->request, &s->id, &d) != LW_OK) fail_msg("%s", d.text);
}

static void run_to_end(bench *b)
{
    for (uint32_t i = 0; lw_core_round(b->core); i++) assert_true(i < 10000);
}

static void assert_solo(const stream *s)
{
    fake_reply solo;
    fake_solo(&s->request, s->stop_after, &solo);
    assert_int_equal(s->ends, 1);
    assert_int_equal(s->end.status, solo.status);
    assert_int_equal(s->count, solo.count);
    assert_memory_equal(s->ids, solo.ids, solo.count * sizeof *s->ids);
}

/* ---- refusals ---- */

static void assert_refused(bench *b, const stream *s, lw_status status, const char *part)
{
    lw_diag d = { "" };
    uint64_t id;
    assert_int_equal(lw_core_submit(b->core, &s->request, &id, &d), status);
    if (strstr(d.text, part) == NULL) fail_msg("\"%s\" lacks \"%s\"", d.text, part);
    assert_int_equal(s->ends, 0);
}

static void what_cannot_be_served_is_refused_at_once(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, &(lw_core_options){ .queue_max = 2 });
    stream *s = stream_init(&b, 0, 10, 5);
    s->request.prompt_count = 0;
    assert_refused(&b, s, LW_BAD_INPUT, "no tokens");
    s = stream_init(&b, 0, 400, 113);
    assert_refused(&b, s, LW_BAD_INPUT, "--context");
    s = stream_init(&b, 0, 10, 5);
    s->prompt[4] = FAKE_VOCAB;
    assert_refused(&b, s, LW_BAD_INPUT, "token id 64 at position 4");
    s = stream_init(&b, 0, 10, 5);
    s->request.logprobs = 21;
    assert_refused(&b, s, LW_BAD_INPUT, "21 log-probabilities");
    s = stream_init(&b, 0, 10, 5);
    s->request.sampling.temperature = NAN;
    assert_refused(&b, s, LW_BAD_INPUT, "temperature");
    s = stream_init(&b, 0, 10, 5);
    s->request.mark_count = 2;
    s->marks[0] = s->marks[1] = 4;
    assert_refused(&b, s, LW_BAD_INPUT, "mark 1");
    s = stream_init(&b, 0, 10, 5);
    s->request.penalties.repetition = -1.0f;
    assert_refused(&b, s, LW_BAD_INPUT, "repetition");
    for (uint32_t i = 0; i < 2; i++) submit(&b, stream_init(&b, i, 10, 5));
    assert_refused(&b, stream_init(&b, 2, 10, 5), LW_NO_ROOM, "2 requests wait");
    run_to_end(&b);
    for (uint32_t i = 0; i < 2; i++) assert_solo(&b.streams[i]);
    bench_close(&b);
}

static void a_request_that_the_pool_cannot_hold_is_refused(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, &(lw_core_options){ .lanes = 1, .context = 3000 });
    assert_refused(&b, stream_init(&b, 0, 400, 2000), LW_NO_ROOM, "38 pages");
    bench_close(&b);
}

/* ---- ends ---- */

static void a_prompt_alone_fills_and_ends(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, &(lw_core_options){ .cache_bytes = 1 << 20 });
    stream *s = stream_init(&b, 0, 100, 0);
    submit(&b, s);
    run_to_end(&b);
    assert_int_equal(s->ends, 1);
    assert_int_equal(s->end.finish, LW_FINISH_LENGTH);
    assert_int_equal(s->end.counts.prompt_rows, 100);
    assert_int_equal(lw_core_read_counts(b.core).cache_entries, 1);
    bench_close(&b);
}

static void cancel_frees_the_lane_at_once(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, &(lw_core_options){ .lanes = 2, .rows_max = 16 });
    for (uint32_t i = 0; i < 4; i++) submit(&b, stream_init(&b, i, 150, 30));
    for (uint32_t i = 0; i < 4; i++) lw_core_round(b.core);
    assert_true(lw_core_cancel(b.core, b.streams[0].id)); /* in its prompt */
    assert_true(lw_core_cancel(b.core, b.streams[3].id)); /* waiting */
    assert_false(lw_core_cancel(b.core, b.streams[3].id));
    assert_int_equal(b.streams[0].end.status, LW_CANCELLED);
    assert_int_equal(b.streams[3].end.status, LW_CANCELLED);
    lw_core_counts counts = lw_core_read_counts(b.core);
    assert_int_equal(counts.filling + counts.running, 1);
    lw_core_round(b.core);
    counts = lw_core_read_counts(b.core);
    assert_int_equal(counts.filling + counts.running, 2); /* the next one sits in it */
    run_to_end(&b);
    assert_solo(&b.streams[1]);
    assert_solo(&b.streams[2]);
    bench_close(&b);
}

static void bad_logits_end_their_own_request(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, &(lw_core_options){ 0 });
    stream *bad = stream_init(&b, 0, 20, 10), *good = stream_init(&b, 1, 20, 10);
    bad->prompt[19] = FAKE_POISON;
    submit(&b, bad);
    submit(&b, good);
    run_to_end(&b);
    assert_int_equal(bad->end.status, LW_BAD_MODEL);
    assert_non_null(strstr(bad->text, "logit of token id"));
    assert_non_null(strstr(bad->text, "position 20"));
    assert_solo(good);
    bench_close(&b);
}

static void forbidding_every_token_ends_the_request(void **state)
{
    (void)state;
    bench b;
    lw_bias biases[FAKE_VOCAB];
    bench_open(&b, &(lw_core_options){ 0 });
    for (int32_t id = 0; id < FAKE_VOCAB; id++) biases[id] = (lw_bias){ id, -INFINITY };
    stream *none = stream_init(&b, 0, 20, 10), *one = stream_init(&b, 1, 20, 10);
    none->request.penalties = (lw_penalties){ .biases = biases, .bias_count = FAKE_VOCAB };
    one->request.penalties = (lw_penalties){ .biases = biases, .bias_count = FAKE_VOCAB - 1 };
    submit(&b, none);
    run_to_end(&b);
    assert_int_equal(none->end.status, LW_BAD_INPUT);
    assert_int_equal(none->count, 0);
    submit(&b, one);
    run_to_end(&b);
    assert_int_equal(one->count, 1); /* the only token left, after which logits are NaN */
    assert_int_equal(one->ids[0], FAKE_POISON);
    assert_int_equal(one->end.status, LW_BAD_MODEL);
    bench_close(&b);
}

static void a_failed_forward_ends_its_streams_and_no_later_one(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, &(lw_core_options){ 0 });
    for (uint32_t i = 0; i < 3; i++) submit(&b, stream_init(&b, i, 20, 10));
    for (uint32_t i = 0; i < 4; i++) lw_core_round(b.core);
    lw_null_fail_at(b.fake.exec, 1);
    lw_core_round(b.core);
    lw_null_fail_at(b.fake.exec, 0);
    run_to_end(&b);
    for (uint32_t i = 0; i < 2; i++) {
        fake_reply solo;
        fake_solo(&b.streams[i].request, 0, &solo);
        assert_int_equal(b.streams[i].end.status, LW_DEVICE_LOST);
        assert_non_null(strstr(b.streams[i].text, "null device"));
        assert_true(b.streams[i].count > 0 && b.streams[i].count < 10);
        assert_memory_equal(b.streams[i].ids, solo.ids, b.streams[i].count * sizeof(int32_t));
    }
    assert_solo(&b.streams[2]);
    bench_close(&b);
}

static lw_status chain_fails(lw_exec *exec, const lw_chain *chain, lw_ticket *ticket, lw_diag *d)
{
    (void)exec;
    (void)ticket;
    return lw_fail(d, LW_NO_ROOM, "no room for %u chains", chain->row_count);
}

static void a_failed_chain_costs_its_drafts_alone(void **state)
{
    (void)state;
    bench b;
    lw_device_table table = lw_device_null;
    bench_open(&b, &(lw_core_options){ .drafts_max = 4, .head_drafts = 4 });
    b.tick_ns = 0; /* a chain that takes as long as a round would not be tried again */
    b.core->device.table = &table;
    for (uint32_t i = 0; i < 2; i++) submit(&b, stream_init(&b, i, 20, 40));
    for (uint32_t i = 0; i < 4; i++) lw_core_round(b.core);
    const uint64_t drafted = lw_core_read_counts(b.core).head_drafted;
    table.submit_chain = chain_fails;
    for (uint32_t i = 0; i < 4; i++) lw_core_round(b.core);
    assert_true(drafted > 0);
    assert_true(lw_core_read_counts(b.core).head_drafted == drafted);
    table.submit_chain = lw_device_null.submit_chain;
    run_to_end(&b);
    assert_true(lw_core_read_counts(b.core).head_drafted > drafted);
    for (uint32_t i = 0; i < 2; i++) assert_solo(&b.streams[i]);
    bench_close(&b);
}

static void a_device_lost_in_a_chain_ends_the_rounds_streams(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, &(lw_core_options){ .drafts_max = 4, .head_drafts = 4 });
    b.tick_ns = 0; /* a chain that takes as long as a round would not be tried again */
    for (uint32_t i = 0; i < 2; i++) submit(&b, stream_init(&b, i, 20, 40));
    for (uint32_t i = 0; i < 3; i++) lw_core_round(b.core);
    const uint64_t chains = lw_null_read_counts(b.fake.exec).chains;
    lw_null_fail_at(b.fake.exec, 1);
    lw_core_round(b.core);
    assert_true(lw_null_read_counts(b.fake.exec).chains == chains + 1);
    for (uint32_t i = 0; i < 2; i++) {
        fake_reply solo;
        fake_solo(&b.streams[i].request, 0, &solo);
        assert_int_equal(b.streams[i].end.status, LW_DEVICE_LOST);
        assert_memory_equal(b.streams[i].ids, solo.ids, b.streams[i].count * sizeof(int32_t));
    }
    bench_close(&b);
}

/* Rounds whose window went over the anchor after its pending token. In a tree none may. */
static uint32_t anchors_crossed(bench *b, bool *was_tree)
{
    uint32_t crossed = 0;
    while (lw_core_round(b->core)) {
        const lw__share *share = &b->core->round.shares[0];
        const lw_row *rows = b->core->rows, *last = &rows[share->known + share->drafts - 1];
        const uint32_t pending = rows[share->known - 1].position;
        const uint32_t anchor = (pending / LW_ANCHOR_POSITIONS + 1) * LW_ANCHOR_POSITIONS;
        bool is_tree = false, crosses = false;
        for (const lw_row *row = rows; row <= last; row++) {
            is_tree = is_tree || row->slot != row->position;
            crosses = crosses || row->position >= anchor;
        }
        assert_false(is_tree && crosses);
        *was_tree = *was_tree || is_tree;
        crossed += crosses;
    }
    return crossed;
}

static void a_tree_ends_before_the_next_anchor(void **state)
{
    (void)state;
    for (int has_branch = 0; has_branch < 2; has_branch++) {
        bench b;
        fake_drafter drafter;
        bool was_tree = false;
        uint32_t crossed = 0;
        fake_drafter_init(&drafter, 9, 256, has_branch == 1);
        bench_open(&b, &(lw_core_options){ .lanes = 1, .drafts_max = 12, .head_drafts = 1,
                                           .source = &drafter.source });
        for (uint32_t i = 0; i < 8; i++) {
            stream *s = stream_init(&b, i, 50 + i, 200);
            submit(&b, s);
            crossed += anchors_crossed(&b, &was_tree);
            assert_solo(s);
        }
        assert_true(was_tree == (has_branch == 1) && (was_tree || crossed > 0));
        bench_close(&b);
    }
}

/* ---- prefix reuse as conversations use it ---- */

/* Submits a prompt that equals base's up to `same` tokens; what was resumed. */
static uint32_t resumed(bench *b, const int32_t *ids, uint32_t same, uint32_t count)
{
    stream *s = stream_init(b, 7, count, 12);
    memcpy(s->prompt, ids, same * sizeof *ids);
    submit(b, s);
    run_to_end(b);
    assert_solo(s);
    return s->end.counts.cached_tokens;
}

static void a_stop_drops_what_the_window_drew_after_it(void **state)
{
    (void)state;
    for (uint32_t stop = 1; stop < 20; stop++) {
        bench b;
        fake_drafter drafter;
        fake_drafter_init(&drafter, stop, 256, false);
        bench_open(&b,
                   &(lw_core_options){ .drafts_max = 8, .source = &drafter.source, .cache_bytes = 1 << 20 });
        stream *s = stream_init(&b, 0, 20, 40);
        s->stop_after = stop;
        submit(&b, s);
        run_to_end(&b);
        assert_solo(s);
        assert_int_equal(s->end.finish, LW_FINISH_STOPPED);
        int32_t talk[CONTEXT];
        memcpy(talk, s->prompt, 20 * sizeof *talk);
        memcpy(talk + 20, s->ids, stop * sizeof *talk);
        assert_int_equal(resumed(&b, talk, 20 + stop, 60),
                         20 + stop - 1); /* what was kept ends where the reply did */
        bench_close(&b);
    }
}

static void a_finished_reply_is_kept_like_one_that_ended_by_itself(void **state)
{
    (void)state;
    for (uint32_t right = 0; right <= 256; right += 128) {
        bench b;
        fake_drafter drafter;
        fake_drafter_init(&drafter, 3 + right, right, right == 128);
        bench_open(&b,
                   &(lw_core_options){ .drafts_max = 8, .source = &drafter.source, .cache_bytes = 1 << 20 });
        stream *s = stream_init(&b, 0, 20, 60);
        submit(&b, s);
        while (s->count < 9) assert_true(lw_core_round(b.core));
        assert_int_equal(s->ends, 0);
        assert_true(lw_core_finish(b.core, s->id, 7));
        assert_int_equal(s->ends, 1);
        assert_int_equal(s->end.status, LW_OK);
        assert_int_equal(s->end.finish, LW_FINISH_STOPPED);
        assert_false(lw_core_finish(b.core, s->id, 7));
        const lw_core_counts counts = lw_core_read_counts(b.core);
        assert_int_equal(counts.finished, 1);
        assert_int_equal(counts.cancelled + counts.running, 0);
        int32_t talk[CONTEXT];
        memcpy(talk, s->prompt, 20 * sizeof *talk);
        memcpy(talk + 20, s->ids, 9 * sizeof *talk);
        assert_int_equal(resumed(&b, talk, 27, 60), 27); /* the stop string is not said again */
        assert_int_equal(resumed(&b, talk, 29, 60), 27); /* it is */
        assert_int_equal(resumed(&b, talk, 26, 60), 0);
        bench_close(&b);
    }
}

/* The sliding group's pages before the latest rows are given back while the reply runs. */
static void a_reply_cut_far_back_leaves_no_entry_that_lacks_pages(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, &(lw_core_options){ .cache_bytes = 1 << 20 });
    stream *s = stream_init(&b, 0, 20, 300);
    submit(&b, s);
    while (s->count < 250) assert_true(lw_core_round(b.core));
    assert_true(lw_core_finish(b.core, s->id, 2));
    assert_int_equal(s->end.status, LW_OK);
    assert_int_equal(lw_core_read_counts(b.core).cache_entries, 0);
    assert_int_equal(resumed(&b, s->prompt, 20, 60), 0);
    bench_close(&b);
}

static void only_a_running_reply_can_be_finished(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, &(lw_core_options){ .lanes = 1, .rows_max = 16, .cache_bytes = 1 << 20 });
    for (uint32_t i = 0; i < 2; i++) submit(&b, stream_init(&b, i, 150, 30));
    lw_core_round(b.core);
    assert_false(lw_core_finish(b.core, b.streams[0].id, 0)); /* in its prompt */
    assert_false(lw_core_finish(b.core, b.streams[1].id, 0)); /* waiting */
    run_to_end(&b);
    for (uint32_t i = 0; i < 2; i++) assert_solo(&b.streams[i]);
    bench_close(&b);
}

static void conversations_resume_where_they_agree(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, &(lw_core_options){ .cache_bytes = 1 << 20 });
    stream *s = stream_init(&b, 0, 200, 20);
    s->marks[0] = 70;    /* the last turn's start */
    s->marks[1] = 195;   /* before the generation prompt */
    s->request.mark_count = 2;
    submit(&b, s);
    run_to_end(&b);
    assert_solo(s);
    int32_t talk[CONTEXT];
    memcpy(talk, s->prompt, 200 * sizeof *talk);
    memcpy(talk + 200, s->ids, 20 * sizeof *talk);
    assert_int_equal(resumed(&b, talk, 220, 260), 219); /* the next turn: all but the reply's last token */
    assert_int_equal(resumed(&b, talk, 200, 260), 195); /* its reasoning was stripped */
    assert_int_equal(resumed(&b, talk, 120, 260), 70);  /* the last turn was edited */
    assert_int_equal(resumed(&b, talk, 60, 260), 0);    /* another conversation */
    assert_int_equal(resumed(&b, talk, 200, 200), 195); /* sent again */
    bench_close(&b);
}

static void a_long_prompt_leaves_entries_on_its_way(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, &(lw_core_options){ .cache_bytes = 1 << 20, .mark_rows = 50, .rows_max = 300 });
    stream *s = stream_init(&b, 0, 275, 1);
    submit(&b, s);
    run_to_end(&b);
    assert_int_equal(resumed(&b, s->prompt, 260, 280), 250);
    assert_int_equal(resumed(&b, s->prompt, 130, 280), 100);
    bench_close(&b);
}

/* Two long streams fit into the pool only if what they share is counted once. Whether both ran at a time. */
static bool ran_together(bool shares)
{
    bench b;
    bench_open(&b, &(lw_core_options){ .context = 1536, .cache_bytes = 1 << 20 });
    stream *first = stream_init(&b, 0, 1400, 50), *second = stream_init(&b, 1, 1400, 50);
    first->marks[0] = 1390;
    first->request.mark_count = 1;
    if (shares) memcpy(second->prompt, first->prompt, 1395 * sizeof *second->prompt);
    submit(&b, first);
    while (first->count == 0) assert_true(lw_core_round(b.core));
    submit(&b, second);
    bool together = false;
    while (lw_core_round(b.core)) together = together || lw_core_read_counts(b.core).running == 2;
    assert_solo(first);
    assert_solo(second);
    assert_int_equal(second->end.counts.cached_tokens, shares ? 1390 : 0);
    bench_close(&b);
    return together;
}

static void shared_pages_are_promised_once(void **state)
{
    (void)state;
    assert_true(ran_together(true));
    assert_false(ran_together(false));
}

/* ---- log-probabilities ---- */

static bool on_logprob(void *context, const lw_token_event *event)
{
    stream *s = context;
    fake_reply solo;
    fake_solo(&s->request, 0, &solo);
    assert_true(event->logprob == solo.logprobs[s->count]);
    assert_int_equal(event->top_count, 5);
    assert_true(event->top[0].value >= event->logprob);
    for (uint32_t i = 1; i < 5; i++) {
        const bool in_order = event->top[i].value < event->top[i - 1].value ||
            (event->top[i].value == event->top[i - 1].value && event->top[i].id > event->top[i - 1].id);
        assert_true(in_order);
    }
    s->ids[s->count++] = event->id;
    return true;
}

static void logprobs_are_of_the_raw_logits(void **state)
{
    (void)state;
    bench b;
    fake_drafter drafter;
    fake_drafter_init(&drafter, 3, 200, true);
    bench_open(&b, &(lw_core_options){ .drafts_max = 8, .source = &drafter.source });
    stream *s = stream_init(&b, 0, 30, 30);
    s->request.logprobs = 5;
    s->request.token = on_logprob;
    s->request.penalties = (lw_penalties){ .repetition = 1.2f, .presence = 0.5f };
    submit(&b, s);
    run_to_end(&b);
    assert_solo(s);
    bench_close(&b);
}

static bool on_tie(void *context, const lw_token_event *event)
{
    stream *s = context;
    assert_int_equal(event->top_count, 5);
    for (int32_t i = 0; i < 5; i++) {
        assert_int_equal(event->top[i].id, i);
        assert_true(fabs(event->top[i].value + log(FAKE_VOCAB)) < 1e-12);
    }
    s->count++;
    return true;
}

/* Without a model every logit of the null device is zero. */
static void equal_logits_stand_in_order_of_id(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, &(lw_core_options){ 0 });
    assert_int_equal(lw_null_set_model(b.fake.exec, NULL, NULL), LW_OK);
    stream *s = stream_init(&b, 0, 30, 3);
    s->request.logprobs = 5;
    s->request.token = on_tie;
    submit(&b, s);
    run_to_end(&b);
    assert_int_equal(s->count, 3);
    lw_core_close(b.core);
    fake_close(&b.fake);
}

/* ---- memory ---- */

static void rounds_allocate_nothing(void **state)
{
    (void)state;
#if HAS_OWN_MALLOC
    bench b;
    fake_drafter drafter;
    fake_drafter_init(&drafter, 3, 200, true);
    bench_open(&b, &(lw_core_options){ .lanes = 3,
                                       .drafts_max = 8,
                                       .head_drafts = 4,
                                       .source = &drafter.source,
                                       .copy_match = 4,
                                       .cache_bytes = 200000,
                                       .cache_entries = 12,
                                       .mark_rows = 40 });
    b.core->device.goes_ahead = true;
    const uint64_t before = allocations;
    for (uint32_t pass = 0; pass < 3; pass++) {
        for (uint32_t i = 0; i < 6; i++) {
            stream *s = stream_init(&b, i, 100 + 10 * i, 40);
            s->request.penalties.presence = i % 2 == 0 ? 0.5f : 0.0f;
            s->request.logprobs = i % 3 == 0 ? 3 : -1;
            if (i > 2) s->request.sampling = (lw_sampling){ .temperature = 0.8, .top_p = 0.9, .seed = i };
            submit(&b, s);
        }
        for (uint32_t i = 0; i < 5; i++) lw_core_round(b.core);
        lw_core_cancel(b.core, b.streams[0].id);
        run_to_end(&b);
    }
    assert_true(allocations == before);
    void *volatile one = malloc(1);
    free(one);
    assert_true(allocations > before); /* planted control: the count does count */
    const lw_core_counts counts = lw_core_read_counts(b.core);
    assert_true(counts.kept > 0 && counts.cache.evicted > 0 && counts.cached_tokens > 0);
    assert_true(counts.head_kept > 0 && counts.rounds_ahead > 0);
    bench_close(&b);
#else
    print_message("skipped: the sanitizer owns malloc\n");
    skip();
#endif
}

/* The n-th allocation of an open fails, for every n until none does: each time a refusal, and nothing is
 * left. */
static void every_failed_allocation_of_an_open_is_refused(void **state)
{
    (void)state;
#if HAS_OWN_MALLOC
    bench b;
    bench_open(&b, &(lw_core_options){ .drafts_max = 4, .head_drafts = 4 });
    const lw_core_device device = fake_device(&b.fake);
    const lw_core_options o = { .lanes = 2,
                                .context = CONTEXT,
                                .rows_max = 64,
                                .copy_match = 4,
                                .drafts_max = 4,
                                .head_drafts = 4,
                                .cache_bytes = 1000,
                                .cache_entries = 2,
                                .clock = clock_fake,
                                .clock_context = &b };
    lw_status status = LW_NO_ROOM;
    uint32_t n = 0;
    while (status != LW_OK) {
        lw_diag d = { "" };
        lw_core *core = NULL;
        const uint64_t live = allocations - frees;
        fail_at = ++n;
        status = lw_core_open(&device, &o, &core, &d);
        fail_at = 0;
        assert_true(status == LW_OK || (status == LW_NO_ROOM && core == NULL && d.text[0] != '\0'));
        lw_core_close(core);
        assert_true(allocations - frees == live);
    }
    assert_true(n > 30);
    bench_close(&b);
#else
    print_message("skipped: the sanitizer owns malloc\n");
    skip();
#endif
}

static void options_that_cannot_be_are_refused(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, &(lw_core_options){ 0 });
    const lw_core_device device = fake_device(&b.fake);
    lw_core_options o = {
        .lanes = 2, .context = CONTEXT, .rows_max = 64, .clock = clock_fake, .clock_context = &b
    };
    lw_core *core;
    lw_diag d = { "" };
    lw_core_options bad = o;
    bad.lanes = 0;
    assert_int_equal(lw_core_open(&device, &bad, &core, &d), LW_BAD_INPUT);
    bad = o;
    bad.rows_max = 2;
    assert_int_equal(lw_core_open(&device, &bad, &core, &d), LW_BAD_INPUT);
    assert_non_null(strstr(d.text, "--chunk"));
    bad = o;
    bad.drafts_max = LW_DRAFTS_MAX + 1;
    assert_int_equal(lw_core_open(&device, &bad, &core, &d), LW_BAD_INPUT);
    bad = o;
    bad.head_drafts = LW_CHAIN_STEPS_MAX + 1;
    assert_int_equal(lw_core_open(&device, &bad, &core, &d), LW_BAD_INPUT);
    assert_non_null(strstr(d.text, "at most 16"));
    bad = o;
    bad.context = CONTEXT + 1;
    assert_int_equal(lw_core_open(&device, &bad, &core, &d), LW_BAD_INPUT);
    assert_null(core);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_be_served_is_refused_at_once),
        cmocka_unit_test(a_request_that_the_pool_cannot_hold_is_refused),
        cmocka_unit_test(a_prompt_alone_fills_and_ends),
        cmocka_unit_test(cancel_frees_the_lane_at_once),
        cmocka_unit_test(bad_logits_end_their_own_request),
        cmocka_unit_test(forbidding_every_token_ends_the_request),
        cmocka_unit_test(a_failed_chain_costs_its_drafts_alone),
        cmocka_unit_test(a_device_lost_in_a_chain_ends_the_rounds_streams),
        cmocka_unit_test(a_tree_ends_before_the_next_anchor),
        cmocka_unit_test(a_failed_forward_ends_its_streams_and_no_later_one),
        cmocka_unit_test(a_stop_drops_what_the_window_drew_after_it),
        cmocka_unit_test(a_finished_reply_is_kept_like_one_that_ended_by_itself),
        cmocka_unit_test(a_reply_cut_far_back_leaves_no_entry_that_lacks_pages),
        cmocka_unit_test(only_a_running_reply_can_be_finished),
        cmocka_unit_test(conversations_resume_where_they_agree),
        cmocka_unit_test(a_long_prompt_leaves_entries_on_its_way),
        cmocka_unit_test(shared_pages_are_promised_once),
        cmocka_unit_test(logprobs_are_of_the_raw_logits),
        cmocka_unit_test(equal_logits_stand_in_order_of_id),
        cmocka_unit_test(rounds_allocate_nothing),
        cmocka_unit_test(every_failed_allocation_of_an_open_is_refused),
        cmocka_unit_test(options_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
