/* Rounds ahead over the null device: which rounds go ahead and which wait, and what becomes of a round under
 * way when its streams end, are cancelled, paused or finished, when the one before fails, and when it fails
 * itself. The device does everything as late as it may.
 */
#include "../fake/fake_model.h"

#include "lane/core_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { CONTEXT = 512, STREAMS = 8, ROWS_MAX = 64, MS = 1000000, FORWARD_MS = 10, HOST_MS = 3 };

typedef struct stream {
    lw_request request;
    int32_t prompt[CONTEXT], ids[FAKE_TOKENS_MAX];
    uint32_t count, ends, stop_after, fill_rows_max, rows_filled;
    lw_end_event end;
    char text[256];
    uint64_t id;
    struct bench *bench;
} stream;

typedef struct bench {
    fake_model fake;
    lw_core *core;
    lw_device_table table;
    uint64_t now, done[LW_BATCHES_OPEN_MAX];   /* when the device is done with a batch, by ticket */
    uint32_t refuse_at;                        /* the n-th submission from now on; 0: none */
    stream streams[STREAMS];
} bench;

static bench *the_bench;   /* whose table's functions are called */

/* ---- a device and a host that take their time ---- */

static lw_status slow_submit(lw_exec *exec, uint32_t entry, const lw_batch *batch, lw_ticket *ticket,
                             lw_diag *d)
{
    bench *b = the_bench;
    if (b->refuse_at > 0 && --b->refuse_at == 0) return lw_fail(d, LW_NO_ROOM, "no room for a batch");
    const lw_status status = lw_device_null.submit(exec, entry, batch, ticket, d);
    const uint64_t free_at = b->done[(*ticket + 1) % LW_BATCHES_OPEN_MAX];
    b->done[*ticket % LW_BATCHES_OPEN_MAX] = (free_at > b->now ? free_at : b->now) + FORWARD_MS * MS;
    return status;
}

static lw_status slow_wait(lw_exec *exec, lw_ticket ticket, lw_diag *d)
{
    bench *b = the_bench;
    const uint64_t done = b->done[ticket % LW_BATCHES_OPEN_MAX];
    if (done > b->now) b->now = done;
    return lw_device_null.wait(exec, ticket, d);
}

static uint64_t clock_fake(void *context)
{
    return ((const bench *)context)->now;
}

static bool on_token(void *context, const lw_token_event *event)
{
    stream *s = context;
    assert_int_equal(event->position, s->request.prompt_count + s->count);
    s->bench->now += HOST_MS * MS;
    s->ids[s->count++] = event->id;
    return s->count != s->stop_after;
}

static void on_filled(void *context, uint32_t rows_done, uint32_t rows)
{
    stream *s = context;
    assert_true(rows_done <= rows);
    const uint32_t more = rows_done - s->rows_filled;
    s->fill_rows_max = more > s->fill_rows_max ? more : s->fill_rows_max;
    s->rows_filled = rows_done;
}

static void on_end(void *context, const lw_end_event *event)
{
    stream *s = context;
    s->ends++;
    s->end = *event;
    snprintf(s->text, sizeof s->text, "%s", event->text);
}

/* ---- the bench ---- */

static void bench_open_as(bench *b, const lw_core_options *wanted, bool goes_ahead)
{
    *b = (bench){ .now = 1, .table = lw_device_null };
    the_bench = b;
    b->table.submit = slow_submit;
    b->table.wait = slow_wait;
    lw_core_options o = *wanted;
    if (o.lanes == 0) o.lanes = 2;
    o.context = CONTEXT;
    if (o.rows_max == 0) o.rows_max = ROWS_MAX;
    o.clock = clock_fake;
    o.clock_context = b;
    const fake_options f = { .context = CONTEXT, .rows_max = o.rows_max, .reach = 80,
                             .recurs = true, .has_head = true, .head_right = 256,
                             .page_counts = { 24, 24, 24, 24, 24, 24 } };
    fake_open(&b->fake, &f);
    lw_core_device device = fake_device(&b->fake);
    device.table = &b->table;
    device.goes_ahead = goes_ahead;
    assert_int_equal(lw_core_open(&device, &o, &b->core, NULL), LW_OK);
}

static void bench_open(bench *b, const lw_core_options *wanted)
{
    bench_open_as(b, wanted, true);
}

static void bench_close(bench *b)
{
    fake_check_core(&b->fake, b->core);
    lw_core_close(b->core);
    for (uint32_t g = 0; g < b->fake.pool.group_count; g++)
        assert_int_equal(b->fake.pool.groups[g].lane_held, 0);
    if (b->fake.violations > 0) fail_msg("%s", b->fake.violation);
    fake_close(&b->fake);
}

/* A greedy stream without drafts, none of whose logits is a NaN. */
static stream *stream_init(bench *b, uint32_t index, uint32_t prompt, uint32_t tokens)
{
    stream *s = &b->streams[index];
    fake_reply solo = { .status = LW_BAD_MODEL };
    *s = (stream){ .bench = b };
    s->request = (lw_request){ .prompt = s->prompt, .prompt_count = prompt, .tokens_max = tokens,
                               .ignore_end = true, .logprobs = -1, .token = on_token, .filled = on_filled,
                               .end = on_end, .context = s };
    for (uint32_t salt = 0; solo.status != LW_OK; salt++) {
        for (uint32_t i = 0; i < prompt; i++)
            s->prompt[i] = (int32_t)(lw_rng_mix(index * 1000 + salt * 100000 + i) % FAKE_POISON);
        fake_solo(&s->request, 0, &solo);
    }
    return s;
}

static stream *start(bench *b, stream *s)
{
    lw_diag d = { "" };
    if (lw_core_submit(b->core, &s->request, &s->id, &d) != LW_OK) fail_msg("%s", d.text);
    return s;
}

static void rounds(bench *b, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) assert_true(lw_core_round(b->core));
}

static uint32_t run_to_end(bench *b)
{
    uint32_t count = 0;
    while (lw_core_round(b->core)) assert_true(count++ < 10000);
    return count;
}

static void assert_begins_solo(const stream *s)
{
    fake_reply solo;
    fake_solo(&s->request, s->stop_after, &solo);
    assert_int_equal(s->ends, 1);
    assert_true(s->count <= solo.count);
    assert_memory_equal(s->ids, solo.ids, s->count * sizeof *s->ids);
}

static void assert_solo(const stream *s)
{
    fake_reply solo;
    fake_solo(&s->request, s->stop_after, &solo);
    assert_begins_solo(s);
    assert_int_equal(s->count, solo.count);
    assert_int_equal(s->end.status, solo.status);
    if (solo.status == LW_OK) assert_int_equal(s->end.finish, solo.finish);
}

static uint64_t ahead(const bench *b)
{
    return lw_core_read_counts(b->core).rounds_ahead;
}

static uint32_t lanes_leaving(const bench *b)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < b->core->options.lanes; i++)
        count += b->core->lanes[i].state == LW__LANE_LEAVING;
    return count;
}

/* ---- which rounds go ahead ---- */

/* All but the first, and no row is computed for nothing where the limit is all that ends a reply. */
static void a_greedy_reply_goes_ahead(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, &(lw_core_options){ 0 });
    stream *s = start(&b, stream_init(&b, 0, 100, 60)), *t = start(&b, stream_init(&b, 1, 20, 90));
    run_to_end(&b);
    assert_solo(s);
    assert_solo(t);
    const lw_core_counts counts = lw_core_read_counts(b.core);
    const lw_null_counts device = lw_null_read_counts(b.fake.exec);
    assert_int_equal(counts.rounds_ahead, counts.rounds - 1);
    assert_int_equal(device.submits_ahead, counts.rounds_ahead);
    assert_int_equal(counts.rows, 100 + 59 + 20 + 89);
    bench_close(&b);
}

static void a_device_that_does_not_go_ahead_is_not_asked_to(void **state)
{
    (void)state;
    bench b;
    bench_open_as(&b, &(lw_core_options){ 0 }, false);
    stream *s = start(&b, stream_init(&b, 0, 100, 60));
    run_to_end(&b);
    assert_solo(s);
    assert_int_equal(ahead(&b), 0);
    assert_int_equal(lw_null_read_counts(b.fake.exec).submits_ahead, 0);
    bench_close(&b);
}

/* Two chunks of a prompt fit the pages that it was promised. */
static void prompts_go_ahead_in_halves(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, &(lw_core_options){ 0 });
    stream *s = start(&b, stream_init(&b, 0, 400, 1));
    s->request.sampling = (lw_sampling){ .temperature = 0.8, .seed = 3 };
    const uint32_t count = run_to_end(&b);
    assert_solo(s);
    assert_int_equal(count, (400 + ROWS_MAX / 2 - 1) / (ROWS_MAX / 2));
    assert_int_equal(ahead(&b), count - 1);
    assert_int_equal(s->fill_rows_max, ROWS_MAX / 2);
    bench_close(&b);
}

/* Each of these has a reason of its own to be drawn on the host, so its neighbour waits as well. */
static void what_the_host_draws_is_waited_for(void **state)
{
    (void)state;
    static const lw_bias bias = { 3, 0.5f };
    for (uint32_t kind = 0; kind < 4; kind++) {
        bench b;
        bench_open(&b, &(lw_core_options){ 0 });
        stream *s = stream_init(&b, 0, 20, 40), *t = start(&b, stream_init(&b, 1, 20, 80));
        if (kind == 0) s->request.sampling = (lw_sampling){ .temperature = 0.8, .seed = 3 };
        if (kind == 1) s->request.penalties.presence = 0.5f;
        if (kind == 2) s->request.penalties = (lw_penalties){ .biases = &bias, .bias_count = 1 };
        if (kind == 3) s->request.logprobs = 2;
        start(&b, s);
        while (s->ends == 0) rounds(&b, 1);
        assert_int_equal(ahead(&b), 0);
        run_to_end(&b);
        assert_true(ahead(&b) >= 38);
        assert_solo(s);
        assert_solo(t);
        bench_close(&b);
    }
}

/* Copies of what a stream repeats are found behind the token that is being drawn, and then waited for; where
 * there are none, or luck and costs speak against them, rounds go ahead. */
static void drafts_that_are_there_are_waited_for(void **state)
{
    (void)state;
    uint64_t rounds_of[2], kept[2];
    for (uint32_t goes = 0; goes < 2; goes++) {
        bench b;
        bench_open_as(&b, &(lw_core_options){ .copy_match = 3, .drafts_max = 8 }, goes == 1);
        stream *s = stream_init(&b, 0, 20, 200);
        s->request.draft = true;
        run_to_end((start(&b, s), &b));
        assert_solo(s);
        const lw_core_counts counts = lw_core_read_counts(b.core);
        rounds_of[goes] = counts.rounds;
        kept[goes] = counts.kept;
        if (goes == 1) assert_true(counts.rounds_ahead > 10 && counts.rounds_ahead < counts.rounds - 10);
        bench_close(&b);
    }
    assert_true(kept[0] > 50 && kept[1] > kept[0] * 3 / 4);
    assert_true(rounds_of[1] < rounds_of[0] * 5 / 4);
}

static void propose_all(void *context, const lw_draft_ask *asks, uint32_t ask_count)
{
    uint32_t *room_max = context;
    for (uint32_t i = 0; i < ask_count; i++) {
        assert_true(asks[i].room <= LW_DRAFTS_MAX);
        *room_max = asks[i].room > *room_max ? asks[i].room : *room_max;
        for (uint32_t j = 0; j < asks[i].room; j++) {
            asks[i].out->tokens[j] = 1;
            asks[i].out->parents[j] = (int32_t)j - 1;
        }
        asks[i].out->count = asks[i].room;
    }
}

static void judge_none(void *context, uint32_t lane, uint32_t offered, uint32_t kept)
{
    (void)context;
    (void)lane;
    (void)offered;
    (void)kept;
}

static void reset_none(void *context, uint32_t lane)
{
    (void)context;
    (void)lane;
}

static void a_draft_has_never_more_than_its_places(void **state)
{
    (void)state;
    bench b;
    uint32_t room_max = 0;
    const lw_draft_source source = { .context = &room_max, .reset = reset_none, .propose = propose_all,
                                     .judge = judge_none };
    const lw_cost same[] = { { 1, 10.0 * MS }, { 2 * ROWS_MAX, 10.0 * MS } };
    bench_open(&b, &(lw_core_options){ .lanes = 1, .rows_max = 2 * ROWS_MAX, .drafts_max = LW_DRAFTS_MAX,
                                       .source = &source, .costs = same, .cost_count = 2 });
    stream *s = stream_init(&b, 0, 20, 200);
    s->request.draft = true;
    run_to_end((start(&b, s), &b));
    assert_solo(s);
    assert_int_equal(room_max, LW_DRAFTS_MAX);
    bench_close(&b);
}

static void a_head_that_pays_is_waited_for(void **state)
{
    (void)state;
    for (uint32_t pays = 0; pays < 2; pays++) {
        const lw_cost step = { 1, (pays == 1 ? 0.1 : 30.0) * MS };
        bench b;
        bench_open(&b, &(lw_core_options){ .drafts_max = 4, .head_drafts = 4, .head_costs = &step,
                                           .head_cost_count = 1 });
        stream *s = stream_init(&b, 0, 20, 150);
        s->request.draft = true;
        run_to_end((start(&b, s), &b));
        assert_solo(s);
        const lw_core_counts counts = lw_core_read_counts(b.core);
        if (pays == 1) assert_true(counts.head_kept > 90 && counts.rounds_ahead < 10);
        else assert_int_equal(counts.rounds_ahead, counts.rounds - 1);
        bench_close(&b);
    }
}

/* ---- time ---- */

/* The host's part of a round stands beside the device's; what a round costs is from end to end. */
static void the_hosts_part_is_hidden(void **state)
{
    (void)state;
    enum { TOKENS = 101 };
    for (uint32_t goes = 0; goes < 2; goes++) {
        bench b;
        bench_open_as(&b, &(lw_core_options){ 0 }, goes == 1);
        start(&b, stream_init(&b, 0, 20, TOKENS));
        rounds(&b, 1);
        const uint64_t begin = b.now;
        run_to_end(&b);
        const double ms = (double)(b.now - begin) / MS / (TOKENS - 1);
        assert_true(goes == 1 ? ms < 10.2 : ms > 12.9);
        assert_true(lw_costs_at(&b.core->costs, 1) > 9.9 * MS && lw_costs_at(&b.core->costs, 1) < 10.3 * MS);
        bench_close(&b);
    }
}

/* Between calls the caller may do what it likes for as long as it likes. */
static void time_outside_is_no_cost(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, &(lw_core_options){ 0 });
    stream *s = start(&b, stream_init(&b, 0, 20, 60));
    while (s->ends == 0) {
        b.now += s->count % 4 == 3 ? 1000 * MS : MS;
        rounds(&b, 1);
    }
    assert_true(lw_costs_at(&b.core->costs, 1) > 9.0 * MS && lw_costs_at(&b.core->costs, 1) < 11.0 * MS);
    run_to_end(&b);
    bench_close(&b);
}

/* ---- ends ---- */

/* The row after a reply's last token is dropped, and its lane is the next one's a round later. */
static void an_end_drops_the_row_ahead(void **state)
{
    (void)state;
    for (uint32_t kind = 0; kind < 2; kind++) {
        bench b;
        fake_reply solo;
        bench_open(&b, &(lw_core_options){ .lanes = 1, .cache_bytes = 1 << 20 });
        stream *s = stream_init(&b, 0, 30, 100), *next = stream_init(&b, 1, 20, 5);
        fake_solo(&s->request, 0, &solo);
        s->request.end_ids = &solo.ids[20];
        s->request.end_id_count = 1;
        if (kind == 0) s->request.ignore_end = false;
        else s->stop_after = 17;
        start(&b, s);
        start(&b, next);
        while (s->ends == 0) rounds(&b, 1);
        assert_int_equal(lanes_leaving(&b), 1);
        assert_int_equal(next->rows_filled, 0);
        assert_true(b.core->round.is_open);
        fake_check_core(&b.fake, b.core);
        run_to_end(&b);
        assert_solo(s);
        assert_solo(next);
        assert_int_equal(lw_core_read_counts(b.core).rows, 30 + s->count + 20 + 4);
        /* The dropped row stands past what is kept for later prompts. */
        stream *again = stream_init(&b, 2, 30 + s->count, 8);
        memcpy(again->prompt, s->prompt, 30 * sizeof *s->prompt);
        memcpy(again->prompt + 30, s->ids, s->count * sizeof *s->ids);
        run_to_end((start(&b, again), &b));
        assert_int_equal(again->end.counts.cached_tokens, 30 + s->count - 1);
        assert_solo(again);
        bench_close(&b);
    }
}

static void cancelled_and_finished_lanes_keep_their_pages_to_the_rounds_end(void **state)
{
    (void)state;
    for (uint32_t kind = 0; kind < 2; kind++) {
        bench b;
        bench_open(&b, &(lw_core_options){ .lanes = 2, .cache_bytes = 1 << 20 });
        stream *s = start(&b, stream_init(&b, 0, 100, 100)), *t = start(&b, stream_init(&b, 1, 30, 60));
        rounds(&b, 20);
        const uint32_t held = b.fake.pool.groups[0].lane_held;
        if (kind == 0) assert_true(lw_core_cancel(b.core, s->id));
        else assert_true(lw_core_finish(b.core, s->id, 5));
        assert_int_equal(s->ends, 1);
        assert_false(lw_core_cancel(b.core, s->id));
        assert_false(lw_core_finish(b.core, s->id, 5));
        assert_false(lw_core_pause(b.core, s->id, true));
        assert_int_equal(lanes_leaving(&b), 1);
        assert_int_equal(b.fake.pool.groups[0].lane_held, held);
        assert_int_equal(lw_core_read_counts(b.core).running, 1);
        s->request.prompt = NULL; /* it is the caller's again */
        stream *u = start(&b, stream_init(&b, 2, 100, 20));
        rounds(&b, 1);
        assert_int_equal(lanes_leaving(&b), 0);
        assert_int_equal(u->rows_filled, 0);
        run_to_end(&b);
        assert_solo(t);
        assert_solo(u);
        bench_close(&b);
    }
}

/* The token under way still comes; none after it. */
static void a_pause_lets_the_round_under_way_end(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, &(lw_core_options){ 0 });
    stream *s = start(&b, stream_init(&b, 0, 20, 60)), *t = start(&b, stream_init(&b, 1, 20, 60));
    rounds(&b, 10);
    const uint32_t count = s->count;
    assert_true(lw_core_pause(b.core, s->id, true));
    rounds(&b, 5);
    assert_int_equal(s->count, count + 1);
    assert_true(lw_core_pause(b.core, s->id, false));
    run_to_end(&b);
    assert_solo(s);
    assert_solo(t);
    bench_close(&b);
}

static void logits_that_are_not_finite_end_their_stream(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, &(lw_core_options){ 0 });
    stream *s = stream_init(&b, 0, 20, 60), *t = start(&b, stream_init(&b, 1, 20, 60));
    s->prompt[19] = FAKE_POISON;
    start(&b, s);
    run_to_end(&b);
    assert_solo(s);
    assert_int_equal(s->end.status, LW_BAD_MODEL);
    assert_non_null(strstr(s->text, "position 20"));
    assert_solo(t);
    bench_close(&b);
}

/* ---- failures ---- */

/* Whichever submission fails at its wait: its streams and those of the round ahead end, each with what it
 * had, and who comes later is served. */
static void a_failed_wait_ends_both_rounds(void **state)
{
    (void)state;
    for (uint32_t n = 1; n < 24; n++) {
        bench b;
        bench_open(&b, &(lw_core_options){ .lanes = 3 });
        for (uint32_t i = 0; i < 3; i++) start(&b, stream_init(&b, i, 20 + 50 * i, 12 + 2 * i));
        lw_null_fail_at(b.fake.exec, n);
        while (lw_core_read_counts(b.core).rounds_failed == 0 && lw_core_round(b.core)) {}
        const uint64_t failed = lw_core_read_counts(b.core).rounds_failed;
        lw_null_fail_at(b.fake.exec, 0);
        if (failed > 0) {
            assert_false(b.core->round.is_open);
            assert_int_equal(lanes_leaving(&b), 0);
        }
        stream *later = start(&b, stream_init(&b, 3, 40, 10));
        run_to_end(&b);
        uint32_t lost = 0;
        for (uint32_t i = 0; i < 3; i++) {
            assert_begins_solo(&b.streams[i]);
            lost += b.streams[i].end.status == LW_DEVICE_LOST;
            if (b.streams[i].end.status == LW_OK) assert_solo(&b.streams[i]);
            else assert_non_null(strstr(b.streams[i].text, "null device"));
        }
        assert_true(failed == 0 || lost > 0);
        assert_true(n > 10 || failed == 2);
        assert_solo(later);
        bench_close(&b);
    }
}

/* A batch that is refused while one is under way takes nothing from that one. */
static void a_refused_round_ahead_ends_its_streams_in_its_turn(void **state)
{
    (void)state;
    for (uint32_t n = 1; n < 20; n++) {
        bench b;
        bench_open(&b, &(lw_core_options){ .lanes = 2 });
        stream *s = start(&b, stream_init(&b, 0, 20, 40));
        b.refuse_at = n;
        while (s->ends == 0) rounds(&b, 1);
        assert_int_equal(s->end.status, LW_NO_ROOM);
        assert_string_equal(s->text, "no room for a batch");
        assert_int_equal(s->count, n - 1); /* the prompt's round draws the first */
        assert_begins_solo(s);
        assert_int_equal(lw_core_read_counts(b.core).rounds_failed, 1);
        stream *later = start(&b, stream_init(&b, 1, 40, 10));
        run_to_end(&b);
        assert_solo(later);
        bench_close(&b);
    }
}

static void a_core_closes_over_a_round_under_way(void **state)
{
    (void)state;
    bench b;
    bench_open(&b, &(lw_core_options){ 0 });
    stream *s = start(&b, stream_init(&b, 0, 20, 60));
    rounds(&b, 10);
    assert_true(b.core->round.is_open);
    bench_close(&b);
    assert_int_equal(s->end.status, LW_CANCELLED);
    assert_begins_solo(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_greedy_reply_goes_ahead),
        cmocka_unit_test(a_device_that_does_not_go_ahead_is_not_asked_to),
        cmocka_unit_test(prompts_go_ahead_in_halves),
        cmocka_unit_test(what_the_host_draws_is_waited_for),
        cmocka_unit_test(drafts_that_are_there_are_waited_for),
        cmocka_unit_test(a_draft_has_never_more_than_its_places),
        cmocka_unit_test(a_head_that_pays_is_waited_for),
        cmocka_unit_test(the_hosts_part_is_hidden),
        cmocka_unit_test(time_outside_is_no_cost),
        cmocka_unit_test(an_end_drops_the_row_ahead),
        cmocka_unit_test(cancelled_and_finished_lanes_keep_their_pages_to_the_rounds_end),
        cmocka_unit_test(a_pause_lets_the_round_under_way_end),
        cmocka_unit_test(logits_that_are_not_finite_end_their_stream),
        cmocka_unit_test(a_failed_wait_ends_both_rounds),
        cmocka_unit_test(a_refused_round_ahead_ends_its_streams_in_its_turn),
        cmocka_unit_test(a_core_closes_over_a_round_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
