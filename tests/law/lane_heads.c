/* The laws of streams whose model brings its own draft head, on the cpu device with the shipped models:
 * chains of every length by the real head, and by a head that is made right, wrong and both in turn; 1, 2, 4
 * and 8 streams, greedy and sampled; resumed, edited, cut short and cancelled. Each reply is the one that
 * lw_generate gives on an engine without the head. The real head's chains run in any case: what is changed is
 * what the device says that they drew.
 */
#include "base/rng.h"
#include "lane/core_internal.h"
#include "lane/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SLOWER = 3 };
#else
enum { SLOWER = 1 };
#endif

enum { STREAMS = 8, CONTEXT = 384, PROMPT_MAX = 256, TOKENS = 18, IDS = 4000, DEPTH_MAX = 15 };

static const char *const models[] = { "models/qwen35-mlx4", "models/nemotron-mlx4" };

typedef enum guesses { GUESSES_REAL, GUESSES_RIGHT, GUESSES_WRONG, GUESSES_MIXED, GUESSES } guesses;

typedef struct reply {
    lw_request request;
    int32_t prompt[PROMPT_MAX];
    uint32_t marks[2];
    int32_t solo[TOKENS], ids[TOKENS];
    uint32_t count, ends;
    lw_status status;
    lw_request_counts counts;
} reply;

/* The device of a core, but for what its chains are said to have drawn, and a clock that counts rounds:
 * chains cost next to nothing, so the deepest are tried whatever this machine is busy with. */
static struct {
    const lw_device_table *real;
    lw_device_table table;
    lw_core *core;
    guesses guesses;
    lw_rng rng;
    lw_row rows[STREAMS];
    uint32_t steps[STREAMS], deepest;
    int32_t tokens[LW_CHAIN_STEPS_MAX];
    uint64_t now;
    bool is_in_chain;
} hook;

static uint64_t clock_of_rounds(void *context)
{
    (void)context;
    return hook.now += hook.is_in_chain ? 1 : 1000;
}

static lw_status hook_submit(lw_exec *exec, uint32_t entry, const lw_batch *batch, lw_ticket *ticket,
                             lw_diag *d)
{
    hook.is_in_chain = false;
    return hook.real->submit(exec, entry, batch, ticket, d);
}

static lw_status hook_submit_chain(lw_exec *exec, const lw_chain *chain, lw_ticket *ticket, lw_diag *d)
{
    hook.is_in_chain = true;
    assert_true(chain->row_count <= STREAMS);
    memcpy(hook.rows, chain->rows, chain->row_count * sizeof *hook.rows);
    memcpy(hook.steps, chain->steps, chain->row_count * sizeof *hook.steps);
    if (chain->steps[0] > hook.deepest) hook.deepest = chain->steps[0];
    return hook.real->submit_chain(exec, chain, ticket, d);
}

static lw_status hook_read_chain(lw_exec *exec, uint32_t row, const int32_t **tokens, lw_diag *d)
{
    const lw_status status = hook.real->read_chain(exec, row, tokens, d);
    if (status != LW_OK || hook.guesses == GUESSES_REAL) return status;
    const reply *r = hook.core->lanes[hook.rows[row].lane].job.request->context;
    const uint32_t next = hook.rows[row].position + 1 - r->request.prompt_count;
    for (uint32_t i = 0; i < hook.steps[row]; i++) {
        assert_true(next + i < TOKENS);
        const bool is_right = hook.guesses == GUESSES_RIGHT ||
                              (hook.guesses == GUESSES_MIXED && lw_rng_below(&hook.rng, 5) != 0);
        hook.tokens[i] = is_right ? r->solo[next + i] : r->solo[next + i] ^ 1;
    }
    *tokens = hook.tokens;
    return LW_OK;
}

/* ---- replies ---- */

typedef struct bench {
    lw_checkpoint *checkpoint;
    lw_engine *plain, *headed;
    lw_stream *stream;
    reply replies[STREAMS];
    lw_rng rng;
} bench;

static bool is_long(void)
{
    return getenv("LW_TEST_LONG") != NULL;
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
    r->ends++;
    r->status = event->status;
    r->counts = event->counts;
}

/* prompt[0, count) is there; the reply that it has alone, cold, undrafted and without a head. */
static void reply_prepare(bench *b, reply *r, uint32_t count, bool is_sampled)
{
    lw_diag d = { "" };
    lw_generate_result result;
    r->request = (lw_request){ .prompt = r->prompt, .prompt_count = count, .tokens_max = TOKENS,
                               .ignore_end = true, .draft = true, .logprobs = -1, .marks = r->marks,
                               .mark_count = 1, .token = on_token, .end = on_end, .context = r };
    r->marks[0] = count - 2;
    if (is_sampled)
        r->request.sampling = (lw_sampling){ .temperature = 0.8, .top_p = 0.95, .seed = 77 + count };
    const lw_generate_options options = { .sampling = r->request.sampling, .tokens_max = TOKENS,
                                          .ignore_end = true };
    lw_stream_reset(b->stream);
    if (lw_generate(b->stream, r->prompt, count, &options, r->solo, &result, &d) != LW_OK)
        fail_msg("%s", d.text);
    assert_int_equal(result.tokens, TOKENS);
}

static void random_ids(lw_rng *rng, int32_t *ids, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) ids[i] = (int32_t)lw_rng_below(rng, IDS);
}

static void reply_submit(lw_core *core, reply *r, uint64_t *id)
{
    lw_diag d = { "" };
    r->count = r->ends = 0;
    if (lw_core_submit(core, &r->request, id, &d) != LW_OK) fail_msg("%s", d.text);
}

static void reply_check(const reply *r)
{
    assert_int_equal(r->ends, 1);
    assert_int_equal(r->status, LW_OK);
    assert_int_equal(r->count, TOKENS);
    assert_memory_equal(r->ids, r->solo, sizeof r->solo);
}

/* One reply on an idle core; the tokens of its prompt that were resumed. */
static uint32_t reply_run(lw_core *core, reply *r)
{
    uint64_t id;
    reply_submit(core, r, &id);
    while (lw_core_round(core)) {}
    reply_check(r);
    return r->counts.cached_tokens;
}

static lw_core *core_open(bench *b, uint32_t lanes, uint32_t depth, guesses g)
{
    static const lw_cost costs[] = { { 1, 1000 }, { 96, 1001 } }, steps[] = { { 1, 0.1 }, { STREAMS, 0.1 } };
    lw_diag d = { "" };
    lw_core_device device;
    lw_core_options options = lw_engine_core_options(b->headed);
    options.lanes = lanes;
    options.costs = costs;
    options.cost_count = 2;
    options.head_costs = steps;
    options.head_cost_count = 2;
    options.head_drafts = depth;
    options.copy_match = 0;
    options.clock = clock_of_rounds;
    assert_true(options.drafts_max >= depth);
    assert_int_equal(lw_engine_lend(b->headed, &device, &d), LW_OK);
    hook.real = device.table;
    hook.table = *device.table;
    hook.table.submit = hook_submit;
    hook.table.submit_chain = hook_submit_chain;
    hook.table.read_chain = hook_read_chain;
    hook.guesses = g;
    hook.deepest = 0;
    device.table = &hook.table;
    if (lw_core_open(&device, &options, &hook.core, &d) != LW_OK) fail_msg("%s", d.text);
    return hook.core;
}

static void core_close(bench *b)
{
    lw_core_close(hook.core);
    lw_engine_return(b->headed);
}

static lw_engine *engine_open(const lw_checkpoint *checkpoint, bool head)
{
    lw_engine *engine = NULL;
    lw_diag d = { "" };
    const lw_engine_options options = { .device_options = { .threads = 1, .isa = getenv("LW_TEST_ISA") },
                                        .lanes = head ? STREAMS : 1, .context = CONTEXT, .head = head,
                                        .chunk_rows = head ? 80 : 256, .cache_bytes = head ? 64 << 20 : 0 };
    if (lw_engine_open(checkpoint, &options, &engine, &d) != LW_OK) fail_msg("%s", d.text);
    return engine;
}

static void bench_open(bench *b, const char *model)
{
    lw_diag d = { "" };
    const uint64_t seed = 505;
    print_message("%s, seed %llu\n", model, (unsigned long long)seed);
    *b = (bench){ .rng = lw_rng_make(seed) };
    hook.rng = lw_rng_make(seed + 1);
    if (lw_checkpoint_open(model, &b->checkpoint, &d) != LW_OK) fail_msg("%s", d.text);
    b->plain = engine_open(b->checkpoint, false);
    b->headed = engine_open(b->checkpoint, true);
    assert_int_equal(lw_stream_open(b->plain, &b->stream, &d), LW_OK);
}

static void bench_close(bench *b)
{
    lw_stream_close(b->stream);
    lw_engine_close(b->plain);
    lw_engine_close(b->headed);
    lw_checkpoint_close(b->checkpoint);
}

/* ---- drafts ---- */

static void run_drafted(bench *b, uint32_t streams, uint32_t depth, guesses g)
{
    uint64_t id;
    lw_core *core = core_open(b, streams, depth, g);
    for (uint32_t i = 0; i < streams; i++) reply_submit(core, &b->replies[i], &id);
    while (lw_core_round(core)) {}
    for (uint32_t i = 0; i < streams; i++) reply_check(&b->replies[i]);
    const lw_core_counts counts = lw_core_read_counts(core);
    assert_true(counts.head_drafted > 0);
    if (g == GUESSES_RIGHT) {
        assert_int_equal(counts.head_kept, counts.head_drafted);
        assert_int_equal(hook.deepest, depth);
    }
    if (g == GUESSES_WRONG) assert_int_equal(counts.head_kept, 0);
    core_close(b);
}

/* Quick: every depth (sanitized: every third) with one of the models, one number of streams and one kind of
 * guesses. */
static void drafts_of_every_depth(bench *b, uint32_t model)
{
    for (uint32_t i = 0; i < STREAMS; i++) {
        const uint32_t count = 18 + (uint32_t)lw_rng_below(&b->rng, 100);
        random_ids(&b->rng, b->replies[i].prompt, count);
        reply_prepare(b, &b->replies[i], count, i % 2 == 1);
    }
    for (uint32_t depth = 1; depth <= DEPTH_MAX; depth++) {
        for (uint32_t k = 0; k < 4 * GUESSES; k++) {
            const bool is_due =
                depth % 2 == model && depth % SLOWER == 0 && k == depth * 5 % (4 * GUESSES);
            if (is_long() || is_due) run_drafted(b, 1u << k % 4, depth, k / 4);
        }
    }
    run_drafted(b, STREAMS, DEPTH_MAX, GUESSES_REAL);
    run_drafted(b, STREAMS, DEPTH_MAX, GUESSES_RIGHT);
}

/* ---- what is kept of earlier prompts ---- */

/* The turn after r: its prompt, the last `said` tokens of its reply, and 12 more. */
static void turn_make(bench *b, const reply *r, uint32_t said, reply *next)
{
    uint32_t count = r->request.prompt_count;
    memcpy(next->prompt, r->prompt, count * sizeof *next->prompt);
    memcpy(next->prompt + count, r->solo + TOKENS - said, said * sizeof *next->prompt);
    count += said;
    random_ids(&b->rng, next->prompt + count, 12);
    reply_prepare(b, next, count + 12, false);
}

static void conversations_resume(bench *b, guesses g)
{
    reply *a = &b->replies[0], *other = &b->replies[1], *next = &b->replies[2], *edited = &b->replies[3];
    reply *stripped = &b->replies[4];
    const uint32_t mark = a->marks[0];
    turn_make(b, a, TOKENS, next);
    turn_make(b, a, TOKENS, edited);
    turn_make(b, a, 5, stripped);
    lw_core *core = core_open(b, 2, 7, g);
    assert_int_equal(reply_run(core, a), 0);
    assert_int_equal(reply_run(core, other), 0);
    assert_true(reply_run(core, a) >= mark);
    assert_true(reply_run(core, next) >= a->request.prompt_count);
    assert_true(reply_run(core, edited) >= a->request.prompt_count);
    assert_true(reply_run(core, stripped) >= mark); /* the history has lost what the reply began with */
    assert_true(reply_run(core, next) >= a->request.prompt_count);
    core_close(b);
}

static void entry_at(bench *b, lw_core *core, uint32_t mark)
{
    reply *first = &b->replies[5], *second = &b->replies[6];
    random_ids(&b->rng, first->prompt, mark + 6);
    memcpy(second->prompt, first->prompt, mark * sizeof *second->prompt);
    random_ids(&b->rng, second->prompt + mark, 3);
    reply_prepare(b, first, mark + 6, false);
    reply_prepare(b, second, mark + 3, true);
    first->marks[0] = mark;
    assert_int_equal(reply_run(core, first), 0);
    assert_int_equal(reply_run(core, second), mark);
}

/* Entries at positions of many residues, resumed by a prompt that goes on otherwise, in one cache: in the
 * long form it is full after a quarter of them. */
static void entries_of_every_residue(bench *b)
{
    static const uint32_t quick[] = { 63, 0, 1, 31, 62 };
    const uint32_t count = is_long() ? LW_PAGE_POSITIONS : sizeof quick / sizeof *quick / SLOWER;
    lw_core *core = core_open(b, 1, 5, GUESSES_MIXED);
    for (uint32_t i = 0; i < count; i++) entry_at(b, core, LW_PAGE_POSITIONS + (is_long() ? i : quick[i]));
    core_close(b);
}

/* One of two is cancelled in the middle of its reply: the other does not notice, and it resumes. */
static void a_cancelled_one_resumes(bench *b, guesses g)
{
    uint64_t id, other_id;
    reply *r = &b->replies[0], *other = &b->replies[7];
    lw_core *core = core_open(b, 2, 3, g);
    for (uint32_t rounds = 1; rounds < 8; rounds += 3) {
        reply_submit(core, r, &id);
        reply_submit(core, other, &other_id);
        while (r->count < rounds) assert_true(lw_core_round(core));
        assert_true(lw_core_cancel(core, id));
        assert_true(r->status != LW_OK && r->ends == 1);
        assert_memory_equal(r->ids, r->solo, r->count * sizeof *r->ids);
        while (lw_core_round(core)) {}
        reply_check(other);
    }
    assert_true(reply_run(core, r) >= r->marks[0]);
    core_close(b);
}

/* Planted control: another token in the prompt is another reply. */
static void control(bench *b)
{
    reply *r = &b->replies[0];
    memcpy(r->ids, r->solo, sizeof r->ids);
    r->prompt[r->request.prompt_count - 2] ^= 1;
    reply_prepare(b, r, r->request.prompt_count, false);
    assert_memory_not_equal(r->ids, r->solo, sizeof r->solo);
}

static void replies_of_headed_models_are_the_same_bits(void **state)
{
    (void)state;
    static bench b;
    for (uint32_t i = 0; i < sizeof models / sizeof *models; i++) {
        bench_open(&b, models[i]);
        drafts_of_every_depth(&b, i);
        conversations_resume(&b, GUESSES_MIXED);
        if (is_long()) conversations_resume(&b, GUESSES_REAL);
        a_cancelled_one_resumes(&b, GUESSES_RIGHT);
        a_cancelled_one_resumes(&b, GUESSES_WRONG);
        entries_of_every_residue(&b);
        control(&b);
        bench_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(replies_of_headed_models_are_the_same_bits) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
