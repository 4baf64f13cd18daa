/* Random schedules: arrivals, cuts, cancels, drafts right and wrong, chains and trees, cache hits, memory
 * pressure, recurrences, draft heads right and wrong, tokens drawn by one thread or several, rounds ahead or
 * not, failing forwards, stops, NaN logits, a clock that tells anything. Whatever happens, every reply equals
 * the reply of its request alone, or, if it was ended from outside, begins it; and pages, promises and
 * entries add up after each round.
 *
 * 5,000 schedules; LW_TEST_LONG runs 100,000, LW_TEST_SEED one of a given seed. The faults planted at the end
 * must be caught.
 */
#include "../fake/fake_model.h"
#include "lane/core_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLOWER = 5 }; /* sanitizers take ten times as long and find what they find in fewer schedules */
#else
enum { SLOWER = 1 };
#endif
enum { SCHEDULES_QUICK = 5000 / SLOWER, SCHEDULES_LONG = 100000 / SLOWER };
enum { REQUESTS_MAX = 12, CONTEXT_MAX = 512, BIASES = 3, MARKS_MAX = 8 };

typedef struct story {
    lw_request request;
    int32_t prompt[CONTEXT_MAX];
    uint32_t marks[MARKS_MAX];
    lw_bias biases[BIASES];
    int32_t end_ids[2];
    uint32_t stop_after;       /* 0: never */
    uint32_t submit_round, cancel_round, pause_round;
    uint32_t finish_kept;      /* tokens that it keeps when it is finished in the place of cancelled */
    bool is_to_finish, is_finished;
    uint64_t id;
    bool is_submitted;
    fake_reply solo;

    int32_t reply[FAKE_TOKENS_MAX];
    uint32_t count;
    uint32_t ends;
    uint32_t wrong;            /* events that contradict the contract */
    lw_end_event end;
} story;

typedef struct schedule {
    uint64_t seed;
    lw_rng rng;
    uint64_t now;
    bool is_timeless;
    bool is_plain;             /* most requests draw the likeliest token: rounds go ahead */
    fake_model fake;
    fake_drafter drafter;
    lw_device_table table;     /* the null device's, perhaps without draws on the host */
    lw_core *core;
    lw_pool *threads;          /* NULL: the caller draws alone */
    lw_core_options options;
    story stories[REQUESTS_MAX];
    uint32_t story_count;
    uint32_t replies_wrong;
    char wrong[200];
} schedule;

/* What all schedules together did: a test that never drafts, resumes or evicts would prove nothing. */
typedef struct totals {
    uint64_t kept, drafted, cached, evicted, failed, cancelled, finished, tokens, stopped, bad_logits;
    uint64_t head_drafted, head_kept, chains;
    uint64_t ahead;            /* rounds */
    uint64_t residues;         /* bit r: a recurrence was resumed r positions past an anchor */
} totals;

static uint64_t below(schedule *s, uint64_t bound)
{
    return lw_rng_below(&s->rng, bound);
}

static uint64_t clock_random(void *context)
{
    schedule *s = context;
    if (s->is_timeless) return s->now;
    s->now += below(s, 4) == 0 ? below(s, 20000000) : below(s, 100000);
    return s->now;
}

static bool on_token(void *context, const lw_token_event *event)
{
    story *t = context;
    if (t->ends > 0 || t->count >= t->request.tokens_max) t->wrong++;
    if (event->position != t->request.prompt_count + t->count) t->wrong++;
    if (t->count < FAKE_TOKENS_MAX) t->reply[t->count] = event->id;
    if (t->request.logprobs >= 0 && t->count < t->solo.count) {
        if (event->logprob != t->solo.logprobs[t->count] || event->top_count != (uint32_t)t->request.logprobs)
            t->wrong++;
        for (uint32_t i = 1; i < event->top_count; i++)
            t->wrong += event->top[i].value > event->top[i - 1].value;
    }
    t->count++;
    return t->count != t->stop_after;
}

static void on_end(void *context, const lw_end_event *event)
{
    story *t = context;
    t->ends++;
    t->end = *event;
    if (event->counts.tokens != t->count) t->wrong++;
    if ((event->status != LW_OK) != (event->text[0] != '\0')) t->wrong++;
}

/* ---- making one ---- */

/* A prompt that often begins as an earlier conversation did: its prompt, or its prompt and reply, cut
 * anywhere. */
static void prompt_make(schedule *s, story *t, uint32_t room)
{
    uint32_t count = 0;
    if (s->story_count > 0 && below(s, 4) != 0) {
        const story *from = &s->stories[below(s, s->story_count)];
        uint32_t prefix = from->request.prompt_count;
        memcpy(t->prompt, from->prompt, prefix * sizeof *t->prompt);
        for (uint32_t i = 0; i < from->solo.count && prefix < room; i++)
            t->prompt[prefix++] = from->solo.ids[i];
        count = below(s, 2) == 0 ? prefix : (uint32_t)below(s, prefix + 1u);
    }
    if (count > room - 1) count = room - 1;
    uint32_t more = 1 + (uint32_t)below(s, below(s, 3) == 0 ? 200 : 20);
    for (; more > 0 && count < room; more--, count++) {
        const bool repeats = count > 20 && below(s, 3) != 0;
        t->prompt[count] = repeats ? t->prompt[count - 9] : (int32_t)below(s, FAKE_POISON);
    }
    if (below(s, 40) == 0) t->prompt[count - 1] = FAKE_POISON;
    t->request.prompt = t->prompt;
    t->request.prompt_count = count;
}

static void options_of_request(schedule *s, story *t)
{
    lw_request *r = &t->request;
    const bool is_greedy = below(s, 2) == 0;
    r->sampling = (lw_sampling){ .temperature = is_greedy ? 0.0 : 0.5 + 0.1 * (double)below(s, 8),
                                 .seed = below(s, 1000) };
    if (below(s, 3) == 0) r->sampling.top_k = 1 + (uint32_t)below(s, 20);
    if (below(s, 3) == 0) r->sampling.top_p = 0.9;
    if (below(s, 4) == 0) {
        r->penalties.repetition = 1.0f + 0.1f * (float)below(s, 5);
        r->penalties.presence = 0.25f * (float)below(s, 4);
        r->penalties.frequency = 0.25f * (float)below(s, 4);
    }
    if (below(s, 6) == 0) {
        r->penalties.biases = t->biases;
        r->penalties.bias_count = 1 + (uint32_t)below(s, BIASES);
        for (uint32_t i = 0; i < BIASES; i++)
            t->biases[i] = (lw_bias){ (int32_t)below(s, FAKE_VOCAB), (float)below(s, 9) - 4.0f };
    }
    for (uint32_t i = 0; i < 2; i++) t->end_ids[i] = (int32_t)below(s, FAKE_VOCAB);
    r->end_ids = t->end_ids;
    r->end_id_count = (uint32_t)below(s, 3);
    r->ignore_end = below(s, 4) == 0;
    r->draft = below(s, 5) != 0;
    r->logprobs = below(s, 5) == 0 ? (int32_t)below(s, 6) : -1;
    t->stop_after = below(s, 5) == 0 ? 1 + (uint32_t)below(s, 20) : 0;
    if (!s->is_plain || below(s, 8) == 0) return;
    r->sampling = (lw_sampling){ .temperature = 0.0 };
    r->penalties = (lw_penalties){ 0 };
    r->logprobs = -1;
    r->draft = r->draft && below(s, 4) == 0;
}

static void story_make(schedule *s, story *t)
{
    *t = (story){ 0 };
    lw_request *r = &t->request;
    const uint32_t context = s->options.context;
    const uint32_t tokens = (uint32_t)below(s, 3) == 0 ? (uint32_t)below(s, 4) : (uint32_t)below(s, 50);
    prompt_make(s, t, context - (tokens < context ? tokens : 0));
    r->tokens_max = tokens;
    options_of_request(s, t);
    for (uint32_t at = 0; r->mark_count < MARKS_MAX && below(s, 3) != 0; r->mark_count++) {
        at += 1 + (uint32_t)below(s, 60);
        if (at > r->prompt_count) break;
        t->marks[r->mark_count] = at;
    }
    r->marks = t->marks;
    r->token = on_token;
    r->end = on_end;
    r->context = t;
    t->submit_round = (uint32_t)below(s, 40);
    t->cancel_round = below(s, 6) == 0 ? t->submit_round + (uint32_t)below(s, 25) : UINT32_MAX;
    t->is_to_finish = below(s, 2) == 0;
    t->finish_kept = (uint32_t)below(s, 20);
    t->pause_round = below(s, 6) == 0 ? t->submit_round + (uint32_t)below(s, 25) : UINT32_MAX - 7;
    fake_solo(r, t->stop_after, &t->solo);
}

/* A head that cannot be run costs drafts and nothing else. */
static lw_status chain_fails(lw_exec *exec, const lw_chain *chain, lw_ticket *ticket, lw_diag *d)
{
    if (chain->rows[0].position % 2 == 0) return lw_device_null.submit_chain(exec, chain, ticket, d);
    return lw_fail(d, LW_NO_ROOM, "no room for %u chains", chain->row_count);
}

static lw_status tokens_lost(lw_exec *exec, uint32_t entry, const lw_batch *batch, lw_ticket *ticket,
                             lw_diag *d)
{
    static lw_row rows[FAKE_ROWS_MAX];
    lw_batch lost = *batch;
    memcpy(rows, batch->rows, batch->row_count * sizeof *rows);
    for (uint32_t r = 0; r < batch->row_count; r++) rows[r].token = rows[r].token < 0 ? 0 : rows[r].token;
    lost.rows = rows;
    return lw_device_null.submit(exec, entry, &lost, ticket, d);
}

static void schedule_open(schedule *s, uint64_t seed, fake_fault fault)
{
    *s = (schedule){ .seed = seed, .rng = lw_rng_make(seed * 77777 + 1), .now = 1 };
    lw_core_options *o = &s->options;
    o->lanes = 1 + (uint32_t)below(s, 5);
    o->context = 128 + 64 * (uint32_t)below(s, 6);
    o->rows_max = o->lanes + 1 + (uint32_t)below(s, below(s, 2) == 0 ? 12 : 90);
    o->cache_entries = 1 + (uint32_t)below(s, 12);
    o->cache_bytes = below(s, 5) == 0 ? 0 : below(s, 200) * 4096;
    o->mark_rows = below(s, 2) == 0 ? 0 : 20 + (uint32_t)below(s, 100);
    o->round_ns = below(s, 2) == 0 ? 0 : 100000 * (1 + below(s, 100));
    o->copy_match = below(s, 3) == 0 ? 0 : 3 + (uint32_t)below(s, 6);
    o->drafts_max = (uint32_t)below(s, 17);
    fake_drafter_init(&s->drafter, below(s, 1000), (uint32_t)below(s, 300), below(s, 2) == 0);
    o->source = below(s, 4) == 0 ? NULL : &s->drafter.source;
    s->is_timeless = below(s, 2) == 0; /* then drafts are tried by what costs are assumed to be */
    o->clock = clock_random;
    o->clock_context = s;
    fake_options f = { .context = o->context, .rows_max = o->rows_max, .reach = 8 + (uint32_t)below(s, 150),
                       .recurs = below(s, 2) == 0, .has_head = below(s, 2) == 0,
                       .head_right = (uint32_t)below(s, 3) * 128 };
    o->head_drafts = (uint32_t)below(s, LW_CHAIN_STEPS_MAX + 1);
    uint32_t reaches[LW_PLAN_REACHES_MAX];
    const uint32_t groups = fake_reaches(&f, reaches);
    for (uint32_t g = 0; g < groups; g++) {
        const uint32_t one = lw_pages_needed(reaches[g], o->context, o->rows_max);
        f.page_counts[g] = one + (uint32_t)below(s, (uint64_t)one * o->lanes + 1);
    }
    fake_open(&s->fake, &f);
    s->fake.fault = fault;
    s->table = lw_device_null;
    if (below(s, 8) == 0) s->table.submit_chain = chain_fails;
    if (fault == FAKE_LOSES_DRAWN_TOKENS) s->table.submit = tokens_lost;
    s->table.calls_draw = below(s, 3) != 0;
    lw_core_device device = fake_device(&s->fake);
    device.table = &s->table;
    device.goes_ahead = below(s, 4) != 0;
    s->is_plain = below(s, 2) == 0;
    if (seed % 32 == 0) assert_int_equal(lw_pool_open(2 + seed / 32 % 2, NULL, &s->threads, NULL), LW_OK);
    device.threads = s->threads;
    assert_int_equal(lw_core_open(&device, o, &s->core, NULL), LW_OK);
    s->core->draws.work_least = 0; /* the made-up vocabulary is never worth a thread */
    const uint32_t count = 2 + (uint32_t)below(s, REQUESTS_MAX - 1);
    for (; s->story_count < count; s->story_count++) story_make(s, &s->stories[s->story_count]);
}

/* ---- running it ---- */

static void end_early(schedule *s, story *t)
{
    const uint32_t kept = t->finish_kept < t->count ? t->finish_kept : t->count;
    t->is_finished = t->is_to_finish && lw_core_finish(s->core, t->id, kept);
    if (!t->is_finished) lw_core_cancel(s->core, t->id);
}

static void arrivals_and_cancels(schedule *s, uint32_t round, bool *waits)
{
    *waits = false;
    for (uint32_t i = 0; i < s->story_count; i++) {
        story *t = &s->stories[i];
        if (!t->is_submitted && t->submit_round <= round) {
            lw_diag d = { "" };
            if (lw_core_submit(s->core, &t->request, &t->id, &d) != LW_OK)
                fail_msg("seed %llu: %s", (unsigned long long)s->seed, d.text);
            t->is_submitted = true;
        }
        if (!t->is_submitted || t->ends > 0) {
            *waits = *waits || !t->is_submitted;
            continue;
        }
        if (t->cancel_round <= round) {
            end_early(s, t);
        } else if (t->pause_round <= round) {
            const bool is_paused = round < t->pause_round + 7;
            lw_core_pause(s->core, t->id, is_paused);
            *waits = *waits || is_paused;
        }
    }
}

static void schedule_run(schedule *s)
{
    const uint64_t fail_round = below(s, 8) == 0 ? below(s, 60) : UINT64_MAX;
    bool waits = true, works = true;
    for (uint32_t round = 0; (waits || works) && round < 4000; round++) {
        arrivals_and_cancels(s, round, &waits);
        if (round == fail_round) lw_null_fail_at(s->fake.exec, 1 + below(s, 2));
        works = lw_core_round(s->core);
        if (lw_core_read_counts(s->core).rounds_failed > 0) lw_null_fail_at(s->fake.exec, 0);
        if (below(s, 4) == 0) fake_check_core(&s->fake, s->core);
    }
    fake_check_core(&s->fake, s->core);
    const lw_core_counts counts = lw_core_read_counts(s->core);
    if (works || counts.running + counts.filling + counts.waiting != 0) s->replies_wrong++;
    for (uint32_t g = 0; g < s->fake.pool.group_count; g++)
        s->replies_wrong += s->fake.pool.groups[g].lane_held != 0;
}

static void reply_judge(schedule *s, story *t, totals *all)
{
    const fake_reply *solo = &t->solo;
    const bool from_outside =
        t->is_finished || t->end.status == LW_CANCELLED || t->end.status == LW_DEVICE_LOST;
    bool ok = t->ends == 1 && t->wrong == 0 && t->count <= solo->count;
    ok = ok && memcmp(t->reply, solo->ids, t->count * sizeof *t->reply) == 0;
    if (!from_outside) ok = ok && t->count == solo->count && t->end.status == solo->status;
    if (!from_outside && solo->status == LW_OK) ok = ok && t->end.finish == solo->finish;
    if (t->is_finished) ok = ok && t->end.status == LW_OK && t->end.finish == LW_FINISH_STOPPED;
    all->finished += ok && t->is_finished;
    all->stopped += ok && !t->is_finished && t->end.status == LW_OK && t->end.finish == LW_FINISH_STOPPED;
    all->bad_logits += t->end.status == LW_BAD_MODEL;
    all->tokens += t->count;
    if (s->core->recurs && t->end.counts.cached_tokens > 0)
        all->residues |= (uint64_t)1 << t->end.counts.cached_tokens % LW_ANCHOR_POSITIONS;
    if (ok) return;
    if (s->replies_wrong++ > 0) return;
    snprintf(s->wrong, sizeof s->wrong,
             "request %u: status %d for %d, finish %d for %d, %u tokens for %u, ends %u, wrong %u",
             (unsigned)(t - s->stories), t->end.status, solo->status, t->end.finish, solo->finish, t->count,
             solo->count, t->ends, t->wrong);
}

/* Runs one schedule; how many faults were seen. */
static uint64_t schedule_play(uint64_t seed, fake_fault fault, totals *all)
{
    static schedule s;
    schedule_open(&s, seed, fault);
    schedule_run(&s);
    for (uint32_t i = 0; i < s.story_count; i++) reply_judge(&s, &s.stories[i], all);
    const lw_core_counts counts = lw_core_read_counts(s.core);
    all->kept += counts.kept;
    all->head_drafted += counts.head_drafted;
    all->head_kept += counts.head_kept;
    all->chains += counts.head_rounds;
    all->drafted += counts.drafted;
    all->ahead += counts.rounds_ahead;
    all->cached += counts.cached_tokens;
    all->evicted += counts.cache.evicted;
    all->failed += counts.failed;
    all->cancelled += counts.cancelled;
    const uint64_t seen = s.fake.violations + s.replies_wrong;
    if (seen > 0 && fault == FAKE_SOUND) {
        print_message("seed %llu: %s; %s\n", (unsigned long long)seed, s.fake.violation, s.wrong);
    }
    lw_core_close(s.core);
    lw_pool_close(s.threads);
    fake_close(&s.fake);
    return seen;
}

static void every_reply_is_its_solo_reply(void **state)
{
    (void)state;
    const char *one = getenv("LW_TEST_SEED");
    const uint64_t first = one != NULL ? strtoull(one, NULL, 10) : 1;
    const uint64_t count = one != NULL                      ? 1
                           : getenv("LW_TEST_LONG") != NULL ? SCHEDULES_LONG
                                                            : SCHEDULES_QUICK;
    totals all = { 0 };
    print_message("seeds %llu to %llu\n", (unsigned long long)first, (unsigned long long)(first + count - 1));
    for (uint64_t seed = first; seed < first + count; seed++) {
        if (schedule_play(seed, FAKE_SOUND, &all) > 0) fail_msg("seed %llu failed", (unsigned long long)seed);
    }
    print_message("%llu tokens, %llu rounds ahead, %llu of %llu drafts kept (%llu of %llu by %llu chains of "
                  "heads), %llu prompt "
                  "tokens resumed, %llu evictions, %llu failed, "
                  "%llu cancelled, %llu finished, %llu stopped, %llu with NaN\n",
                  (unsigned long long)all.tokens, (unsigned long long)all.ahead, (unsigned long long)all.kept,
                  (unsigned long long)all.drafted, (unsigned long long)all.head_kept,
                  (unsigned long long)all.head_drafted, (unsigned long long)all.chains,
                  (unsigned long long)all.cached, (unsigned long long)all.evicted,
                  (unsigned long long)all.failed, (unsigned long long)all.cancelled,
                  (unsigned long long)all.finished, (unsigned long long)all.stopped,
                  (unsigned long long)all.bad_logits);
    if (one != NULL) return;
    assert_true(all.kept > count && all.drafted > all.kept && all.cached > count && all.evicted > count / 10);
    assert_true(all.head_kept > count && all.head_drafted > all.head_kept);
    assert_true(__builtin_popcountll(all.residues) >= (SLOWER == 1 ? 64 : 56));
    assert_true(all.failed > 0 && all.cancelled > 0 && all.stopped > 0 && all.bad_logits > 0);
    assert_true(all.finished > 0 && all.ahead > 10 * count);
}

static uint64_t schedules_caught(fake_fault fault, uint64_t count)
{
    totals all = { 0 };
    uint64_t caught = 0;
    for (uint64_t seed = 1; seed <= count; seed++) caught += schedule_play(seed, fault, &all) > 0;
    return caught;
}

static void planted_faults_are_caught(void **state)
{
    (void)state;
    assert_true(schedules_caught(FAKE_DRAWS_ITS_DRAFT, 50) > 10);
    assert_true(schedules_caught(FAKE_WRITES_BELOW_MARKS, 50) > 10);
    assert_true(schedules_caught(FAKE_FORGETS_COPIES, 50) > 5);
    assert_true(schedules_caught(FAKE_WRITES_ANCHORS, 50) > 5);
    assert_true(schedules_caught(FAKE_KEEPS_HEAD_ROWS, 50) > 5);
    assert_true(schedules_caught(FAKE_LOSES_DRAWN_TOKENS, 50) > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_reply_is_its_solo_reply),
        cmocka_unit_test(planted_faults_are_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
