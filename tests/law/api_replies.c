/* The law of replies, through the public API alone: a reply's ids are those that it has alone, whatever runs
 * beside it, and whatever became of the replies before it: cancelled, stopped or held in any phase.
 */
#include "lanewise.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { TOGETHER_MAX = 8, TOKENS_MAX = 16, STEPS_MAX = 100000, CONTEXT = 512, CHUNK_ROWS = 32 };

typedef struct outcome {
    int32_t ids[TOKENS_MAX];
    uint32_t count;
    lw_end end;
    char sha[13];
} outcome;

static const char *const questions[TOGETHER_MAX] = {
    "Count to five.", "Name a colour.", "What is a lane?", "Say hello to the harbour, twice.", "Why?",
    "List three rivers of the north and say where each of them ends, in one sentence for each of them.",
    "A B C D E F G", "2 + 2 =",
};

static int setup(void **state)
{
    lw_model_options options;
    lw_error error;
    lw_model *model;
    lw_model_options_init(&options);
    options.context = CONTEXT;
    options.threads = 1; /* steady where cores are shared */
    options.chunk_rows = CHUNK_ROWS;
    options.draft_match = 3; /* many drafts, right and wrong ones */
    const lw_result result = lw_model_open("models/lfm3-mlx4", &options, &model, &error);
    if (result != LW_RESULT_OK) fprintf(stderr, "%s\n", error.text);
    *state = model;
    return result == LW_RESULT_OK ? 0 : -1;
}

static int teardown(void **state)
{
    lw_model_close(*state);
    return 0;
}

static lw_reply *reply_open(lw_model *model, size_t question, double temperature)
{
    char request[512];
    lw_error error;
    lw_prompt *prompt;
    lw_reply *reply;
    const int count =
        snprintf(request, sizeof request, "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}",
                 questions[question]);
    assert_int_equal(lw_prompt_chat(model, request, (size_t)count, &prompt, &error), LW_RESULT_OK);
    lw_request_options options;
    lw_request_options_init(model, &options);
    options.sampling.temperature = temperature;
    options.has_seed = temperature > 0;
    options.seed = 7 + question;
    options.tokens_max = TOKENS_MAX;
    options.ignore_end = question % 2 == 0;
    const lw_result result = lw_reply_open(model, prompt, &options, &reply, &error);
    if (result != LW_RESULT_OK) fail_msg("%s", error.text);
    lw_prompt_free(prompt);
    return reply;
}

static void step(lw_model *model)
{
    bool worked;
    lw_error error;
    if (lw_model_step(model, &worked, &error) != LW_RESULT_OK) fail_msg("%s", error.text);
}

/* Reads what waits; true once the end was told. */
static bool drain(lw_reply *reply, outcome *out)
{
    lw_event event;
    for (lw_reply_read(reply, &event); event.kind != LW_EVENT_NONE; lw_reply_read(reply, &event)) {
        if (event.kind == LW_EVENT_TOKEN) {
            assert_true(out->count < TOKENS_MAX);
            out->ids[out->count++] = event.id;
        }
        if (event.kind != LW_EVENT_END) continue;
        lw_reply_counts counts;
        lw_reply_read_counts(reply, &counts);
        assert_int_equal(counts.reply_tokens, out->count);
        memcpy(out->sha, counts.token_sha, sizeof out->sha);
        out->end = event.end;
        return true;
    }
    return false;
}

static outcome reply_finish(lw_model *model, lw_reply *reply)
{
    outcome out = { .count = 0 };
    int steps = 0;
    while (!drain(reply, &out)) {
        assert_true(steps++ < STEPS_MAX);
        step(model);
    }
    lw_reply_close(reply);
    return out;
}

static outcome solo(lw_model *model, size_t question, double temperature)
{
    return reply_finish(model, reply_open(model, question, temperature));
}

static void expect_equal(const outcome *a, const outcome *b)
{
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->ids, b->ids, a->count * sizeof a->ids[0]);
    assert_int_equal(a->end, b->end);
    assert_string_equal(a->sha, b->sha);
}

static void replies_together_are_replies_alone(void **state)
{
    static const double temperatures[] = { 0.0, 0.8 };
    for (size_t t = 0; t < 2; t++) {
        outcome alone[TOGETHER_MAX];
        for (size_t i = 0; i < TOGETHER_MAX; i++) alone[i] = solo(*state, i, temperatures[t]);
        /* Planted control: the comparison sees that another question has another reply. */
        assert_int_not_equal(memcmp(alone[0].ids, alone[1].ids, sizeof alone[0].ids), 0);
        for (size_t count = 2; count <= TOGETHER_MAX; count *= 2) {
            lw_reply *replies[TOGETHER_MAX];
            for (size_t i = 0; i < count; i++) replies[i] = reply_open(*state, i, temperatures[t]);
            for (size_t i = 0; i < count; i++) {
                const outcome together = reply_finish(*state, replies[i]);
                expect_equal(&together, &alone[i]);
            }
        }
    }
}

/* Log-probabilities are functions of the rows: the same with drafts and without, alone and resumed, and the
 * drawn token's is among the best where it is one of them. */
typedef struct told {
    int32_t ids[TOKENS_MAX];
    float logprobs[TOKENS_MAX];
    lw_token_logprob tops[TOKENS_MAX][5];
    uint32_t count, cached;
} told;

static told told_run(lw_model *model, const int32_t *ids, size_t count, const lw_request_options *options)
{
    told out = { .count = 0 };
    lw_error error;
    lw_prompt *prompt;
    lw_reply *reply;
    lw_event event;
    assert_int_equal(lw_prompt_ids(model, ids, count, &prompt, &error), LW_RESULT_OK);
    assert_int_equal(lw_reply_open(model, prompt, options, &reply, &error), LW_RESULT_OK);
    lw_prompt_free(prompt);
    for (int i = 0; i < STEPS_MAX; i++) {
        lw_reply_read(reply, &event);
        if (event.kind == LW_EVENT_END) break;
        if (event.kind == LW_EVENT_NONE) step(model);
        if (event.kind != LW_EVENT_TOKEN) continue;
        out.ids[out.count] = event.id;
        out.logprobs[out.count] = event.logprob;
        assert_int_equal(event.top_count, 5);
        memcpy(out.tops[out.count++], event.top, sizeof out.tops[0]);
    }
    assert_int_equal(event.end, LW_END_LENGTH);
    lw_reply_counts counts;
    lw_reply_read_counts(reply, &counts);
    out.cached = counts.cached_tokens;
    lw_reply_close(reply);
    return out;
}

static void logprobs_do_not_depend_on_drafts_or_entries(void **state)
{
    /* Repeats itself, so that drafts are made; long enough for several pages. */
    int32_t ids[150];
    for (size_t i = 0; i < 150; i++) ids[i] = (int32_t)(i % 11) * 17 + 40;
    lw_request_options options;
    lw_request_options_init(*state, &options);
    options.tokens_max = TOKENS_MAX;
    options.ignore_end = true;
    options.top_logprobs = 5;
    options.sampling.repetition_penalty = 0.8; /* below 1: what was said is said again */
    options.drafts_off = true;
    const told plain = told_run(*state, ids, 150, &options);
    options.drafts_off = false;
    const told drafted = told_run(*state, ids, 150, &options);
    assert_int_equal(plain.cached, 0);
    assert_true(drafted.cached > 0);
    assert_int_equal(plain.count, TOKENS_MAX);
    assert_memory_equal(plain.ids, drafted.ids, sizeof plain.ids);
    assert_memory_equal(plain.logprobs, drafted.logprobs, sizeof plain.logprobs);
    assert_memory_equal(plain.tops, drafted.tops, sizeof plain.tops);
    for (size_t i = 0; i < TOKENS_MAX; i++) {
        assert_true(plain.logprobs[i] <= 0);
        for (size_t j = 0; j < 5; j++) {
            if (plain.tops[i][j].id == plain.ids[i])
                assert_true(plain.tops[i][j].logprob == plain.logprobs[i]);
            if (j > 0) assert_true(plain.tops[i][j].logprob <= plain.tops[i][j - 1].logprob);
        }
    }
    /* Planted control: one other token at the prompt's end shows in the numbers. */
    ids[149]++;
    const told other = told_run(*state, ids, 150, &options);
    assert_int_not_equal(memcmp(plain.logprobs, other.logprobs, sizeof plain.logprobs), 0);
}

static void a_bias_forbids_and_forces(void **state)
{
    const int32_t ids[] = { 5, 6, 7 };
    lw_request_options options;
    lw_request_options_init(*state, &options);
    options.tokens_max = 1;
    options.ignore_end = true;
    lw_error error;
    lw_prompt *prompt;
    lw_event event;
    int32_t drawn[3] = { 0 };
    const lw_token_bias forced = { .id = 77, .bias = 100 };
    for (int round = 0; round < 3; round++) {
        lw_reply *reply;
        const lw_token_bias forbidden = { .id = drawn[0], .bias = -INFINITY };
        options.biases = round == 1 ? &forbidden : &forced;
        options.bias_count = round == 0 ? 0 : 1;
        assert_int_equal(lw_prompt_ids(*state, ids, 3, &prompt, &error), LW_RESULT_OK);
        assert_int_equal(lw_reply_open(*state, prompt, &options, &reply, &error), LW_RESULT_OK);
        lw_prompt_free(prompt);
        for (int i = 0; i < STEPS_MAX; i++) {
            lw_reply_read(reply, &event);
            if (event.kind == LW_EVENT_TOKEN) drawn[round] = event.id;
            if (event.kind == LW_EVENT_END) break;
            if (event.kind == LW_EVENT_NONE) step(*state);
        }
        lw_reply_close(reply);
    }
    assert_int_not_equal(drawn[1], drawn[0]);
    assert_int_equal(drawn[2], 77);
}

/* A model that is closed takes its replies' work with it; they can still be read and closed. */
static void replies_outlive_their_model(void **state)
{
    (void)state;
    void *own = NULL;
    assert_int_equal(setup(&own), 0);
    lw_reply *running = reply_open(own, 5, 0.0), *waiting = reply_open(own, 1, 0.0);
    for (int i = 0; i < 4; i++) step(own);
    lw_model_close(own);
    lw_event event;
    do lw_reply_read(running, &event);
    while (event.kind == LW_EVENT_TOKEN || event.kind == LW_EVENT_FILLING);
    assert_int_equal(event.kind, LW_EVENT_NONE);
    lw_reply_cancel(waiting);
    lw_reply_close(waiting);
    lw_reply_close(running);
}

typedef enum ending { CANCEL, STOP, CLOSE, ENDING_COUNT } ending;

/* Ends a reply after so many steps, with tokens unread; what it told is the beginning of the whole reply. */
static void end_early(lw_model *model, ending how, int steps, const outcome *whole)
{
    lw_reply *reply = reply_open(model, 5, 0.8);
    for (int i = 0; i < steps; i++) step(model);
    outcome out = { .count = 0 };
    lw_event event;
    if (lw_reply_waiting(reply) > 1) {
        do lw_reply_read(reply, &event);
        while (event.kind == LW_EVENT_FILLING);
        assert_int_equal(event.kind, LW_EVENT_TOKEN);
        out.ids[out.count++] = event.id;
    }
    if (how == CANCEL) lw_reply_cancel(reply);
    if (how == STOP) lw_reply_stop(reply, UINT32_MAX);
    if (how != CLOSE) {
        assert_true(drain(reply, &out));
        assert_int_equal(out.end, how == STOP ? LW_END_STOP : LW_END_CANCELLED);
        assert_true(out.count <= 1);
        assert_memory_equal(out.ids, whole->ids, out.count * sizeof out.ids[0]);
    }
    lw_reply_close(reply);
    lw_model_counts counts;
    lw_model_read_counts(model, &counts);
    assert_int_equal(counts.replies_running + counts.replies_waiting, 0);
}

static void an_early_end_in_any_phase_leaves_the_next_reply_alone(void **state)
{
    const outcome whole = solo(*state, 5, 0.8), next = solo(*state, 1, 0.0);
    for (int how = CANCEL; how < ENDING_COUNT; how++) {
        for (int steps = 0; steps < 6; steps++) {
            end_early(*state, (ending)how, steps, &whole);
            const outcome after = solo(*state, 1, 0.0);
            expect_equal(&after, &next);
        }
    }
}

/* Opens a reply to ids; reads `count` tokens of it, appends them to ids and stops it there. */
static void stop_after(lw_model *model, int32_t *ids, size_t prompt_count, uint32_t count, uint32_t kept)
{
    lw_request_options options;
    lw_error error;
    lw_prompt *prompt;
    lw_reply *reply;
    lw_event event;
    lw_request_options_init(model, &options);
    options.ignore_end = true;
    assert_int_equal(lw_prompt_ids(model, ids, prompt_count, &prompt, &error), LW_RESULT_OK);
    assert_int_equal(lw_reply_open(model, prompt, &options, &reply, &error), LW_RESULT_OK);
    lw_prompt_free(prompt);
    for (uint32_t read = 0; read < count;) {
        lw_reply_read(reply, &event);
        if (event.kind == LW_EVENT_NONE) step(model);
        if (event.kind == LW_EVENT_TOKEN) ids[prompt_count + read++] = event.id;
    }
    lw_reply_stop(reply, kept);
    lw_reply_read(reply, &event);
    assert_int_equal(event.kind, LW_EVENT_END);
    assert_int_equal(event.end, LW_END_STOP);
    lw_reply_counts counts;
    lw_reply_read_counts(reply, &counts);
    assert_int_equal(counts.reply_tokens, count);
    lw_reply_close(reply);
}

static void the_turn_after_a_stop_string_resumes_from_the_reply(void **state)
{
    static const uint32_t kept[] = { UINT32_MAX, 9, 4, 0 }, resumed[] = { 9, 9, 4, 0 };
    for (int32_t i = 0; i < 4; i++) {
        int32_t ids[200];
        for (int32_t j = 0; j < 150; j++) ids[j] = j % (11 + i) * 13 + 60 + i; /* repeats: drafts are made */
        stop_after(*state, ids, 150, 10, kept[i]);
        for (int32_t j = 160; j < 200; j++) ids[j] = j;
        lw_request_options options;
        lw_request_options_init(*state, &options);
        options.tokens_max = TOKENS_MAX;
        options.ignore_end = true;
        options.top_logprobs = 5;
        const told next = told_run(*state, ids, 150 + 10 + 40, &options);
        assert_int_equal(next.cached, 150 + resumed[i]);
    }
}

static void a_held_reply_pauses_and_loses_nothing(void **state)
{
    const outcome whole = solo(*state, 0, 0.8);
    lw_reply *reply = reply_open(*state, 0, 0.8);
    lw_reply_hold(reply, 2);
    for (int i = 0; i < 20; i++) step(*state);
    const uint32_t waiting = lw_reply_waiting(reply);
    assert_in_range(waiting, 3, 3 + 8); /* a window may bring several at once */
    for (int i = 0; i < 4; i++) step(*state);
    assert_int_equal(lw_reply_waiting(reply), waiting);
    const outcome held = reply_finish(*state, reply);
    expect_equal(&held, &whole);
}

static void events_come_in_order_and_once(void **state)
{
    lw_reply *reply = reply_open(*state, 5, 0.0);
    lw_event event;
    lw_event_kind last = LW_EVENT_FILLING;
    uint32_t rows = 0;
    for (int i = 0; i < STEPS_MAX && last != LW_EVENT_END; i++) {
        lw_reply_read(reply, &event);
        if (event.kind == LW_EVENT_NONE) {
            step(*state);
            continue;
        }
        assert_true(event.kind >= last);
        if (event.kind == LW_EVENT_FILLING) {
            assert_true(event.rows_done > rows && event.rows_done <= event.rows);
            rows = event.rows_done;
        }
        last = event.kind;
    }
    assert_int_equal(last, LW_EVENT_END);
    assert_true(rows > 0);
    lw_reply_read(reply, &event);
    assert_int_equal(event.kind, LW_EVENT_NONE);
    lw_reply_close(reply);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replies_together_are_replies_alone),
        cmocka_unit_test(logprobs_do_not_depend_on_drafts_or_entries),
        cmocka_unit_test(a_bias_forbids_and_forces),
        cmocka_unit_test(replies_outlive_their_model),
        cmocka_unit_test(an_early_end_in_any_phase_leaves_the_next_reply_alone),
        cmocka_unit_test(the_turn_after_a_stop_string_resumes_from_the_reply),
        cmocka_unit_test(a_held_reply_pauses_and_loses_nothing),
        cmocka_unit_test(events_come_in_order_and_once),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
