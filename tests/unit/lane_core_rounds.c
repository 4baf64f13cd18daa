/* What a round holds: running replies beside long prompts, whose turn it is to fill, how many drafts are
 * tried. Time is what a made-up device would take: so much for a forward, so much for each row.
 */
#include "../fake/fake_model.h"

#include "lane/core_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { CONTEXT = 2048, STREAMS = 24, MS = 1000000 };

typedef struct stream {
    lw_request request;
    int32_t prompt[CONTEXT];
    uint32_t count, ends;
    uint64_t first_ns, last_ns, gap_ns_max;
    uint32_t fills, fill_rows_max, rows_filled;
    uint64_t id;
    struct bench *bench;
} stream;

typedef struct bench {
    fake_model fake;
    lw_core *core;
    uint64_t forward_ns, row_ns, chain_row_ns;
    stream streams[STREAMS];
} bench;

static uint64_t clock_of_work(void *context)
{
    const bench *b = context;
    const lw_null_counts counts = lw_null_read_counts(b->fake.exec);
    return counts.submits * b->forward_ns + counts.rows * b->row_ns + counts.chain_rows * b->chain_row_ns;
}

static bool on_token(void *context, const lw_token_event *event)
{
    (void)event;
    stream *s = context;
    const uint64_t now = clock_of_work(s->bench);
    if (s->count++ == 0) {
        s->first_ns = now;
    } else if (now - s->last_ns > s->gap_ns_max) {
        s->gap_ns_max = now - s->last_ns;
    }
    s->last_ns = now;
    return true;
}

static void on_filled(void *context, uint32_t rows_done, uint32_t rows)
{
    stream *s = context;
    assert_true(rows_done > s->rows_filled && rows_done <= rows);
    s->fills++;
    if (rows_done - s->rows_filled > s->fill_rows_max) s->fill_rows_max = rows_done - s->rows_filled;
    s->rows_filled = rows_done;
}

static void on_end(void *context, const lw_end_event *event)
{
    stream *s = context;
    assert_int_equal(event->status, LW_OK);
    s->ends++;
}

static void on_cancelled(void *context, const lw_end_event *event)
{
    stream *s = context;
    assert_int_equal(event->status, LW_CANCELLED);
    s->ends++;
}

static void bench_open(bench *b, const lw_core_options *wanted)
{
    static const lw_cost costs[] = { { 1, 10.1 * MS }, { 2, 10.2 * MS } };
    *b = (bench){ .forward_ns = 10 * MS, .row_ns = MS / 10, .chain_row_ns = MS };
    lw_cost line[] = { costs[0], { 512, 10.0 * MS + 51.2 * MS } };
    lw_core_options o = *wanted;
    if (o.context == 0) o.context = CONTEXT;
    if (o.rows_max == 0) o.rows_max = 512;
    if (o.costs == NULL) {
        o.costs = line;
        o.cost_count = 2;
    }
    o.clock = clock_of_work;
    o.clock_context = b;
    const fake_options f = { .context = o.context,
                             .rows_max = o.rows_max,
                             .reach = 80,
                             .has_head = o.head_drafts > 0,
                             .page_counts = { 32 * o.lanes, 32 * o.lanes, 32 * o.lanes, 32 * o.lanes } };
    fake_open(&b->fake, &f);
    const lw_core_device device = fake_device(&b->fake);
    assert_int_equal(lw_core_open(&device, &o, &b->core, NULL), LW_OK);
}

static void bench_close(bench *b)
{
    if (b->fake.violations > 0) fail_msg("%s", b->fake.violation);
    lw_core_close(b->core);
    fake_close(&b->fake);
}

static stream *start(bench *b, uint32_t index, uint32_t prompt, uint32_t tokens)
{
    static const lw_bias no_poison = { FAKE_POISON, -100.0f };
    stream *s = &b->streams[index];
    *s = (stream){ .bench = b };
    for (uint32_t i = 0; i < prompt; i++)
        s->prompt[i] = (int32_t)(lw_rng_mix(index * 5000 + i) % FAKE_POISON);
    s->request = (lw_request){ .prompt = s->prompt,
                               .prompt_count = prompt,
                               .tokens_max = tokens,
                               .ignore_end = true,
                               .draft = true,
                               .logprobs = -1,
                               .token = on_token,
                               .filled = on_filled,
                               .end = on_end,
                               .context = s,
                               .penalties = { .biases = &no_poison, .bias_count = 1 } };
    lw_diag d = { "" };
    if (lw_core_submit(b->core, &s->request, &s->id, &d) != LW_OK) fail_msg("%s", d.text);
    return s;
}

static void run_to_end(bench *b)
{
    for (uint32_t i = 0; lw_core_round(b->core); i++) assert_true(i < 10000);
}

static void rounds(bench *b, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) lw_core_round(b->core);
}

/* ---- prompts beside replies ---- */

static void a_long_prompt_holds_a_reply_up_for_one_chunk(void **state)
{
    (void)state;
    bench b;
    const uint64_t limits_ms[] = { 15, 30, 0 }; /* 0: four plain rounds of 10.1 ms */
    for (size_t i = 0; i < 3; i++) {
        bench_open(&b, &(lw_core_options){ .lanes = 2, .round_ns = limits_ms[i] * MS });
        stream *reply = start(&b, 0, 10, 60);
        rounds(&b, 3);
        stream *prompt = start(&b, 1, 1800, 1);
        run_to_end(&b);
        const uint64_t limit_ns = limits_ms[i] != 0 ? limits_ms[i] * MS : 4 * 101 * MS / 10;
        assert_true(reply->gap_ns_max <= limit_ns);
        assert_true(reply->gap_ns_max > limit_ns - MS); /* and the time is used */
        assert_int_equal(prompt->rows_filled, 1800);
        bench_close(&b);
    }
}

/* A chain of the draft head takes its part of the round that the reply waits for. */
static void the_head_takes_its_time_from_prompt_rows(void **state)
{
    (void)state;
    bench b;
    const lw_cost step = { 1, 4.0 * MS };
    const uint64_t limits_ms[] = { 30, 45, 0 }; /* 0: four rounds of 10 ms, a row each and their steps */
    for (size_t i = 0; i < 3; i++) {
        bench_open(&b, &(lw_core_options){ .lanes = 2, .round_ns = limits_ms[i] * MS, .drafts_max = 3,
                                           .head_drafts = 3, .head_costs = &step, .head_cost_count = 1 });
        b.chain_row_ns = 4 * MS;
        b.fake.head_right = 256;
        stream *reply = start(&b, 0, 10, 200);
        rounds(&b, 10);
        const uint64_t steps = lw_core_read_counts(b.core).head_steps;
        stream *prompt = start(&b, 1, 1900, 1);
        while (prompt->rows_filled < 1500) rounds(&b, 1);
        const uint64_t limit_ns = limits_ms[i] != 0 ? limits_ms[i] * MS : 4 * 224 * MS / 10;
        const uint64_t used_ns = limits_ms[i] != 0 ? limit_ns - MS : 4 * 142 * MS / 10; /* one step */
        assert_true(lw_core_read_counts(b.core).head_steps > steps + 6);
        assert_int_equal(reply->ends, 0);
        assert_true(reply->gap_ns_max <= limit_ns);
        assert_true(reply->gap_ns_max >= used_ns);
        run_to_end(&b);
        bench_close(&b);
    }
}

static void chunks_are_large_when_nothing_runs(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, &(lw_core_options){ .lanes = 2, .round_ns = 15 * MS });
    stream *prompt = start(&b, 0, 1800, 1);
    run_to_end(&b);
    assert_int_equal(prompt->fills, 4);
    assert_int_equal(prompt->fill_rows_max, 512);
    bench_close(&b);
}

static void prompts_go_on_where_one_row_takes_too_long(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, &(lw_core_options){ .lanes = 2, .round_ns = 1 });
    start(&b, 0, 10, 60);
    rounds(&b, 3);
    stream *prompt = start(&b, 1, 200, 1);
    run_to_end(&b);
    assert_int_equal(prompt->fill_rows_max, 8);
    bench_close(&b);
}

static void a_short_prompt_does_not_wait_behind_a_long_one(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, &(lw_core_options){ .lanes = 3, .rows_max = 100 });
    stream *longer = start(&b, 0, 1800, 5);
    rounds(&b, 2);
    stream *shorter = start(&b, 1, 50, 5);
    const uint64_t asked_ns = clock_of_work(&b);
    run_to_end(&b);
    assert_true(shorter->first_ns - asked_ns <= 20 * MS); /* one round of 100 rows */
    assert_true(shorter->first_ns < longer->first_ns);
    bench_close(&b);
}

/* Short prompts keep coming; the long one still gets a chunk after eight of them. */
static void a_prompt_passed_over_eight_times_goes_next(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, &(lw_core_options){ .lanes = 4, .rows_max = 60 });
    stream *longer = start(&b, 0, 700, 1);
    uint32_t next = 1, passed = 0, passed_max = 0, turns = 0;
    for (uint32_t i = 0; longer->ends == 0; i++) {
        const uint32_t before = longer->rows_filled;
        assert_true(i < 1000);
        while (next < 20 && b.streams[next].ends == 0 && b.streams[next].request.prompt_count != 0) next++;
        const lw_core_counts counts = lw_core_read_counts(b.core);
        if (counts.filling + counts.waiting < 3) {
            start(&b, next, 120, 1);
            next = next == 19 ? 1 : next + 1;
        }
        lw_core_round(b.core);
        if (longer->rows_filled > before && before < 500) {
            assert_int_equal(passed, 8); /* each turn is earned anew */
            turns++;
        }
        passed = longer->rows_filled > before ? 0 : passed + 1;
        passed_max = passed > passed_max ? passed : passed_max;
    }
    assert_int_equal(passed_max, 8);
    assert_true(turns > 5);
    run_to_end(&b);
    bench_close(&b);
}

/* A lane forgets how often its last prompt was passed over. */
static void a_new_prompt_has_not_been_passed_over(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, &(lw_core_options){ .lanes = 2, .rows_max = 20 });
    stream *passed = start(&b, 0, 900, 1);
    start(&b, 1, 150, 1);
    rounds(&b, 6);
    assert_true(b.core->lanes[0].passed_over > 3);
    passed->request.end = on_cancelled;
    assert_true(lw_core_cancel(b.core, passed->id));
    start(&b, 2, 900, 1);
    rounds(&b, 1);
    assert_int_equal(b.core->lanes[0].passed_over, 1);
    run_to_end(&b);
    bench_close(&b);
}

/* Choosing changes nothing, and says the same again. */
static void choosing_is_pure(void **state)
{
    (void)state;
    bench b;
    static lw__round first, second;
    bench_open(&b, &(lw_core_options){ .lanes = 4, .rows_max = 60, .copy_match = 3, .drafts_max = 8 });
    for (uint32_t i = 0; i < 4; i++) start(&b, i, 30 + 100 * i, 50);
    for (uint32_t i = 0; i < 60; i++) {
        lw_core_round(b.core);
        lw__round_choose(b.core, &first);
        lw__round_choose(b.core, &second);
        assert_memory_equal(&first, &second, sizeof first);
    }
    run_to_end(&b);
    bench_close(&b);
}

/* ---- drafts ---- */

static lw_core_counts drafted(bench *b, uint32_t right_share, uint64_t row_ns, const lw_cost *costs)
{
    fake_drafter drafter;
    fake_drafter_init(&drafter, 1, right_share, false);
    bench_open(b, &(lw_core_options){ .lanes = 1, .drafts_max = 8, .source = &drafter.source, .costs = costs,
                                      .cost_count = costs != NULL ? 1 : 0 });
    b->row_ns = row_ns;
    if (costs != NULL) b->forward_ns = 0;
    start(b, 0, 10, 250);
    run_to_end(b);
    const lw_core_counts counts = lw_core_read_counts(b->core);
    bench_close(b);
    return counts;
}

static void right_drafts_save_rounds(void **state)
{
    (void)state;
    bench b;
    const lw_core_counts counts = drafted(&b, 256, MS / 10, NULL);
    assert_int_equal(counts.tokens, 250);
    assert_true(counts.rounds < 125);
}

static void dear_rows_are_not_spent_on_drafts(void **state)
{
    (void)state;
    bench b;
    const lw_cost dear = { 1, 100.0 * MS }; /* each row costs a round */
    const lw_core_counts counts = drafted(&b, 256, 100 * MS, &dear);
    assert_int_equal(counts.drafted, 0);
}

/* The table says that rows are cheap; they are not, and drafts miss. The guard finds out. */
static void a_stream_whose_drafts_lose_falls_back(void **state)
{
    (void)state;
    bench b;
    const lw_core_counts counts = drafted(&b, 0, 20 * MS, NULL);
    assert_int_equal(counts.tokens, 250);
    assert_true(counts.drafted > 0 && counts.drafted < 40);
}

static void drafts_can_be_switched_off(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, &(lw_core_options){ .lanes = 1, .drafts_max = 8, .copy_match = 3 });
    stream *s = start(&b, 0, 100, 100);
    run_to_end(&b);
    const lw_core_counts on = lw_core_read_counts(b.core);
    s = start(&b, 0, 100, 100);
    s->request.draft = false;
    run_to_end(&b);
    const lw_core_counts both = lw_core_read_counts(b.core);
    assert_true(on.drafted > 0);
    assert_int_equal(both.drafted, on.drafted);
    assert_int_equal(both.rounds - on.rounds, 100); /* the prompt's round draws the first token */
    bench_close(&b);
}

/* ---- the draft head ---- */

typedef struct head_case {
    uint32_t right;          /* of 256 */
    uint32_t head_drafts;
    uint64_t chain_row_ns;
    bool has_costs;          /* those of the made-up device, timed before */
    bool is_off;             /* for the request */
} head_case;

/* Streams that are greedy, sampled, and sampled with penalties, 150 tokens each. */
static lw_core_counts headed(bench *b, const head_case *c)
{
    const lw_cost cost = { 1, (double)c->chain_row_ns };
    bench_open(b, &(lw_core_options){ .lanes = 3, .drafts_max = 8, .head_drafts = c->head_drafts,
                                      .head_costs = &cost, .head_cost_count = c->has_costs });
    b->fake.head_right = c->right;
    b->chain_row_ns = c->chain_row_ns;
    for (uint32_t i = 0; i < 3; i++) {
        stream *s = start(b, i, 10 + 40 * i, 150);
        s->request.draft = !c->is_off;
        if (i > 0) s->request.sampling = (lw_sampling){ .temperature = 0.9, .top_p = 0.95, .seed = 7 + i };
        if (i == 2) {
            s->request.penalties.repetition = 1.3f;
            s->request.penalties.frequency = 0.5f;
        }
    }
    run_to_end(b);
    const lw_core_counts counts = lw_core_read_counts(b->core);
    assert_int_equal(counts.tokens, 450);
    bench_close(b);
    return counts;
}

/* The head is right about everything, so what a stream draws from it has to be what it draws: with its keys,
 * at its positions, after penalties that see the drafts before. */
static void every_draft_of_a_right_head_is_kept(void **state)
{
    (void)state;
    bench b;
    const lw_core_counts counts =
        headed(&b, &(head_case){ .right = 256, .head_drafts = 5, .chain_row_ns = MS, .has_costs = true });
    assert_true(counts.head_drafted > 300);
    assert_int_equal(counts.head_kept, counts.head_drafted);
    assert_true(counts.rounds < 150 / 4);
    assert_int_equal(counts.head_steps, counts.head_drafted); /* no step for nothing */
}

static void a_head_that_is_wrong_is_left_alone(void **state)
{
    (void)state;
    bench b;
    const lw_core_counts counts = headed(&b, &(head_case){ .head_drafts = 5, .chain_row_ns = MS });
    assert_true(counts.head_drafted > 0 && counts.head_kept < counts.head_drafted / 8);
    assert_true(counts.head_steps < 150);
}

static void dear_steps_are_not_taken(void **state)
{
    (void)state;
    bench b;
    head_case c = { .right = 256, .head_drafts = 5, .chain_row_ns = 50 * MS, .has_costs = true };
    assert_int_equal(headed(&b, &c).head_rounds, 0);
    c.has_costs = false; /* found out by the first */
    const lw_core_counts counts = headed(&b, &c);
    assert_true(counts.head_rounds > 0 && counts.head_rounds < 10);
}

static void luck_chooses_the_depth(void **state)
{
    (void)state;
    bench b;
    const head_case often = { .right = 256, .head_drafts = 8, .chain_row_ns = 2 * MS, .has_costs = true };
    const head_case half = { .right = 128, .head_drafts = 8, .chain_row_ns = 2 * MS, .has_costs = true };
    const lw_core_counts deep = headed(&b, &often), shallow = headed(&b, &half);
    assert_true(deep.head_steps > 4 * deep.head_rounds);
    assert_true((double)shallow.head_steps / (double)shallow.head_rounds <
                (double)deep.head_steps / (double)deep.head_rounds);
    assert_true(shallow.rounds < 150);
}

/* One reply of 100 tokens, by its time in plain rounds: a second row takes 0.19 of one, a step of the head
 * 0.36.
 */
static double reply_rounds(bench *b, uint32_t right, lw_core_counts *counts)
{
    enum { TOKENS = 100 };
    const lw_cost rounds[] = { { 1, 10.0 * MS }, { 2, 11.9 * MS }, { 512, 10.0 * MS + 511 * 1.9 * MS } };
    const lw_cost step = { 1, 3.6 * MS };
    bench_open(b, &(lw_core_options){ .lanes = 1, .drafts_max = 5, .head_drafts = 5, .costs = rounds,
                                      .cost_count = 3, .head_costs = &step, .head_cost_count = 1 });
    b->forward_ns = 81 * MS / 10;
    b->row_ns = 19 * MS / 10;
    b->chain_row_ns = 36 * MS / 10;
    b->fake.head_right = right;
    const stream *s = start(b, 0, 10, TOKENS);
    run_to_end(b);
    assert_int_equal(s->count, TOKENS);
    *counts = lw_core_read_counts(b->core);
    bench_close(b);
    return (double)(s->last_ns - s->first_ns) / (10.0 * MS * (TOKENS - 1));
}

static void what_drafts_may_cost_is_bounded(void **state)
{
    (void)state;
    bench b;
    lw_core_counts counts;
    const double none = reply_rounds(&b, 0, &counts);
    assert_true(counts.head_drafted > 1 && counts.head_kept == 0);
    assert_true(none > 1.005 && none <= 1.02);
    assert_true(reply_rounds(&b, 128, &counts) <= 1.02);
    assert_true(reply_rounds(&b, 230, &counts) <= 0.9);
    assert_true(reply_rounds(&b, 256, &counts) <= 0.8);
}

/* What a given source, asked before the head where both promise the same, and the head make of 250 tokens. */
static lw_core_counts rivals(bench *b, uint32_t given_right, uint32_t head_right)
{
    const lw_cost step = { 1, 0.1 * MS };
    fake_drafter drafter;
    fake_drafter_init(&drafter, 1, given_right, false);
    bench_open(b, &(lw_core_options){ .lanes = 1, .drafts_max = 5, .head_drafts = 5,
                                      .source = &drafter.source, .head_costs = &step, .head_cost_count = 1 });
    b->chain_row_ns = MS / 10;
    b->fake.head_right = head_right;
    start(b, 0, 10, 250);
    run_to_end(b);
    const lw_core_counts counts = lw_core_read_counts(b->core);
    bench_close(b);
    return counts;
}

static void the_luckier_source_goes_first(void **state)
{
    (void)state;
    bench b;
    const lw_core_counts head = rivals(&b, 100, 256), given = rivals(&b, 256, 100);
    assert_true(2 * given.head_drafted < given.drafted - given.head_drafted); /* which at times has none */
    assert_true(head.rounds < 80 && given.rounds < 80);
}

static void the_head_can_be_switched_off(void **state)
{
    (void)state;
    bench b;
    head_case c = { .right = 256, .head_drafts = 5, .chain_row_ns = MS, .is_off = true };
    assert_int_equal(headed(&b, &c).head_rounds, 0);
    c = (head_case){ .right = 256, .chain_row_ns = MS };
    assert_int_equal(headed(&b, &c).head_rounds, 0);
    c.head_drafts = 1;
    const lw_core_counts counts = headed(&b, &c);
    assert_true(counts.head_rounds > 0 && counts.head_steps <= 3 * counts.head_rounds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_prompt_holds_a_reply_up_for_one_chunk),
        cmocka_unit_test(the_head_takes_its_time_from_prompt_rows),
        cmocka_unit_test(chunks_are_large_when_nothing_runs),
        cmocka_unit_test(prompts_go_on_where_one_row_takes_too_long),
        cmocka_unit_test(a_short_prompt_does_not_wait_behind_a_long_one),
        cmocka_unit_test(a_prompt_passed_over_eight_times_goes_next),
        cmocka_unit_test(a_new_prompt_has_not_been_passed_over),
        cmocka_unit_test(choosing_is_pure),
        cmocka_unit_test(right_drafts_save_rounds),
        cmocka_unit_test(dear_rows_are_not_spent_on_drafts),
        cmocka_unit_test(a_stream_whose_drafts_lose_falls_back),
        cmocka_unit_test(drafts_can_be_switched_off),
        cmocka_unit_test(every_draft_of_a_right_head_is_kept),
        cmocka_unit_test(a_head_that_is_wrong_is_left_alone),
        cmocka_unit_test(dear_steps_are_not_taken),
        cmocka_unit_test(luck_chooses_the_depth),
        cmocka_unit_test(what_drafts_may_cost_is_bounded),
        cmocka_unit_test(the_luckier_source_goes_first),
        cmocka_unit_test(the_head_can_be_switched_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
