/* What the xpu device can do without changes no bit: fusions, replayed lists and batches ahead, each and all,
 * whatever cut and company the rows come in. A plan of every op that a fusion knows is recorded, two streams
 * of it run in rounds of random cuts, and the logits of every wanted row are compared. Planted: a changed
 * token. And that a switch switches: launches and commands are counted.
 */
enum { VOCAB = 40, LENGTH = 132 };

#include "xpu_law.h"

enum {
    WIDTH = 64,
    WIDE = 576,  /* two slices */
    HEADS = 4,
    HEADS_KV = 2,
    HEAD_DIM = 32,
    HALF = 12,
    TAPS = 3,
    CUT = 6,
    WANTED_EVERY = 3,
};

typedef struct logits {
    float rows[LANES][LENGTH][VOCAB]; /* zero where no row was wanted */
} logits;

/* ---- the plan ---- */

static lw_ref linear(bench *b, lw_rng *rng, lw_ref x, uint32_t rows, uint32_t bits)
{
    const uint32_t cols = b->plan.values[x.index].width;
    const lw_wref w = bits == 16 ? dense(b, rng, rows, cols) : affine(b, rng, rows, cols, bits, 32);
    return lw_plan_linear(&b->plan, x, w, LW_TYPE_BF16);
}

static lw_ref norm(bench *b, lw_rng *rng, lw_ref x, uint32_t segment, lw_norm_scale scale)
{
    return lw_plan_rms_norm(&b->plan, x, dense(b, rng, 1, segment), 1e-5f, scale);
}

static lw_ref conv(bench *b, lw_rng *rng, lw_ref h)
{
    lw_plan *p = &b->plan;
    const lw_ref all = linear(b, rng, h, 3 * WIDTH, 8);
    const lw_sref tail = lw_plan_state_tail(p, "tail", WIDTH, TAPS);
    const lw_ref in = lw_plan_mul(p, lw_plan_view(p, all, 0, WIDTH), lw_plan_view(p, all, 2 * WIDTH, WIDTH));
    const lw_ref mixed = lw_plan_short_conv(p, tail, in, dense(b, rng, WIDTH, TAPS));
    return linear(b, rng, lw_plan_mul(p, lw_plan_view(p, all, WIDTH, WIDTH), mixed), WIDTH, 16);
}

/* has_norms: q and k are normed by heads. A bf16 v stands beside quantised q and k. A window's keys and
 * values are kept in int8. */
static lw_ref attention(bench *b, lw_rng *rng, lw_ref h, bool has_norms, uint32_t window)
{
    lw_plan *p = &b->plan;
    double frequency[HALF];
    for (int i = 0; i < HALF; i++) frequency[i] = i == HALF - 1 ? 0 : pow(100.0, -i / (double)HALF);
    const uint32_t table = lw_plan_rope_table(p, frequency, HALF);
    lw_ref q = linear(b, rng, h, HEADS * HEAD_DIM, 4), k = linear(b, rng, h, HEADS_KV * HEAD_DIM, 4);
    const lw_ref v = linear(b, rng, h, HEADS_KV * HEAD_DIM, has_norms ? 4 : 16);
    if (has_norms) {
        q = norm(b, rng, q, HEAD_DIM, LW_NORM_TWICE);
        k = norm(b, rng, k, HEAD_DIM, LW_NORM_UNIT);
    }
    q = lw_plan_rope(p, q, HEADS, table);
    k = lw_plan_rope(p, k, HEADS_KV, table);
    const lw_sref kv = lw_plan_state_kv(p, "kv", HEADS_KV, HEAD_DIM, window);
    p->states[kv.index].kv = window != 0 ? LW_KV_INT8 : LW_KV_BF16;
    lw_plan_kv_store(p, kv, k, v);
    const lw_ref o = lw_plan_attend(p, kv, q, HEADS, 0.6f);
    return linear(b, rng, lw_plan_head_gate(p, o, linear(b, rng, h, HEADS, 4)), WIDTH, 4);
}

static lw_ref mlp(bench *b, lw_rng *rng, lw_ref h, uint32_t bits)
{
    const lw_ref gate = linear(b, rng, h, WIDE, bits), up = linear(b, rng, h, WIDE, bits);
    return linear(b, rng, lw_plan_swiglu(&b->plan, gate, up), WIDTH, bits);
}

static lw_ref logits_of(bench *b, lw_rng *rng, lw_ref x)
{
    const lw_ref h = norm(b, rng, lw_plan_take_wanted(&b->plan, x), WIDTH, LW_NORM_TWICE);
    return lw_plan_linear(&b->plan, h, affine(b, rng, VOCAB, WIDTH, 8, 64), LW_TYPE_F32);
}

static void record(bench *b, lw_rng *rng)
{
    lw_plan *p = &b->plan;
    const lw_wref table = affine(b, rng, VOCAB, WIDTH, 4, 64);
    lw_plan_entry_begin(p, "main");
    lw_ref x = lw_plan_embed(p, table);
    lw_ref h = conv(b, rng, norm(b, rng, x, WIDTH, LW_NORM_TWICE));
    x = lw_plan_add(p, x, norm(b, rng, h, WIDTH, LW_NORM_ONCE));
    x = lw_plan_add(p, x, mlp(b, rng, norm(b, rng, x, WIDTH, LW_NORM_TWICE), 4));
    h = attention(b, rng, norm(b, rng, x, WIDTH, LW_NORM_UNIT), true, 70);
    x = lw_plan_add(p, x, h);
    x = lw_plan_add(p, x, mlp(b, rng, norm(b, rng, x, WIDTH, LW_NORM_TWICE), 16));
    x = lw_plan_add(p, x, attention(b, rng, norm(b, rng, x, WIDTH, LW_NORM_TWICE), false, 0));
    lw_plan_entry_end(p, logits_of(b, rng, x));
    lw_plan_entry_begin(p, "head");
    x = lw_plan_embed(p, table);
    x = lw_plan_add(p, x, attention(b, rng, norm(b, rng, x, WIDTH, LW_NORM_TWICE), true, 0));
    lw_plan_entry_end(p, logits_of(b, rng, x));
}

/* ---- running it ---- */

static const lw_device_table *const xpu = &lw_device_xpu;

static void open_without(xpu_bench *x, const char *without)
{
    lw_rng shuffle = lw_rng_make(7);
    x->b->options.without = without;
    x->b->row_count = 0;
    streams_begin(x->b, NULL, &shuffle);
}

static lw_device_counts close_counted(xpu_bench *x)
{
    lw_device_counts counts;
    xpu->read_counts(x->b->device, &counts);
    streams_end(x->b);
    return counts;
}

static void rows_add(bench *b, uint32_t lane, uint32_t count)
{
    window_add(b, lane, count, count);
}

/* Runs the batch and keeps the logits of its wanted rows. */
static void batch_read(bench *b, logits *into)
{
    const uint32_t row_count = b->row_count;
    lw_diag d = { "" };
    lw_status status = batch_run(b, &d);
    for (uint32_t r = 0, index = 0; r < row_count && status == LW_OK; r++) {
        const float *row = NULL;
        if (!b->rows[r].wanted) continue;
        status = xpu->read_logits(b->exec, index++, &row, &d);
        if (status == LW_OK)
            memcpy(into->rows[b->rows[r].lane][b->rows[r].position], row, sizeof into->rows[0][0]);
    }
    if (status != LW_OK) fail_msg("%s", d.text);
}

/* Both streams to their ends, in cuts of up to CUT rows, now together and now alone. */
static lw_device_counts both_run(xpu_bench *x, const char *without, uint64_t seed, logits *into)
{
    lw_rng rng = lw_rng_make(seed);
    bench *b = x->b;
    open_without(x, without);
    while (b->lanes[0].committed < LENGTH || b->lanes[1].committed < LENGTH) {
        uint32_t counts[LANES];
        for (uint32_t l = 0; l < LANES; l++) {
            const uint32_t left = LENGTH - b->lanes[l].committed;
            counts[l] = (uint32_t)lw_rng_below(&rng, CUT + 1);
            counts[l] = counts[l] < left ? counts[l] : left;
            rows_add(b, l, counts[l]);
        }
        if (b->row_count > 0) batch_read(b, into);
        for (uint32_t l = 0; l < LANES; l++) b->lanes[l].committed += counts[l];
    }
    return close_counted(x);
}

static bool is_same(const logits *a, const logits *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* ---- the laws ---- */

static void nothing_that_is_left_out_changes_a_bit(void **state)
{
    (void)state;
    static const char *const names[] = {
#define LW_XPU_SWITCH(name) #name,
#include "device/xpu/switches.list"
#undef LW_XPU_SWITCH
    };
    enum { NAMES = sizeof names / sizeof names[0] };
    lw_rng rng = law_rng(301);
    xpu_bench *x = xpu_bench_open(record, &rng);
    bench *b = x->b;
    logits *with = law_make(1, sizeof *with), *other = law_make(1, sizeof *other);
    char all[256] = "";
    const lw_device_counts most = both_run(x, NULL, 1, with);
    for (size_t i = 0; i < NAMES; i++) {
        memset(other, 0, sizeof *other);
        const lw_device_counts counts = both_run(x, names[i], 1, other);
        if (!is_same(with, other)) fail_msg("without %s: other bits", names[i]);
        /* Planted: a switch that switches nothing. Chains and batches ahead have tests of their own. */
        const bool is_seen = strcmp(names[i], "chain") != 0 && strcmp(names[i], "ahead") != 0;
        if (is_seen && counts.launches == most.launches
            && counts.commands == most.commands)
            fail_msg("without %s: the same launches", names[i]);
        const size_t at = strlen(all);
        snprintf(all + at, sizeof all - at, "%s%s", at == 0 ? "" : ",", names[i]);
    }
    memset(other, 0, sizeof *other);
    const lw_device_counts plain = both_run(x, all, 2, other);
    assert_true(is_same(with, other));
    assert_true(plain.launches > most.launches || NAMES == 1);
    b->tokens[0][1]++; /* planted */
    both_run(x, NULL, 1, other);
    assert_true(!is_same(with, other));
    free(with);
    free(other);
    xpu_bench_close(x);
}

/* Heads of which the second ones are made from the first: a launch of both would wait for itself. And values
 * that a fused step makes long before the plan does, beside others that live in between. */
static void record_tangled(bench *b, lw_rng *rng)
{
    lw_plan *p = &b->plan;
    double frequency[HALF] = { 1.0 };
    const uint32_t table = lw_plan_rope_table(p, frequency, HALF);
    lw_plan_entry_begin(p, "main");
    const lw_ref x = lw_plan_embed(p, affine(b, rng, VOCAB, WIDTH, 4, 64));
    const lw_ref h = norm(b, rng, x, WIDTH, LW_NORM_TWICE);
    const lw_ref first = lw_plan_rope(p, linear(b, rng, h, WIDTH, 4), WIDTH / HEAD_DIM, table);
    const lw_ref between = lw_plan_mul(p, linear(b, rng, first, WIDTH, 4), first);
    const lw_ref second = lw_plan_rope(p, between, WIDTH / HEAD_DIM, table);
    const lw_ref late = lw_plan_mul(p, linear(b, rng, h, WIDTH, 4), second);
    const lw_ref sum = lw_plan_add(p, lw_plan_mul(p, late, first), between);
    const lw_ref gate = lw_plan_swiglu(p, linear(b, rng, sum, WIDTH, 4), linear(b, rng, sum, WIDTH, 8));
    lw_plan_entry_end(p, logits_of(b, rng, lw_plan_add(p, sum, norm(b, rng, gate, WIDTH, LW_NORM_UNIT))));
}

static void steps_that_wait_for_themselves_come_apart(void **state)
{
    (void)state;
    lw_rng rng = law_rng(308);
    xpu_bench *x = xpu_bench_open(record_tangled, &rng);
    logits *with = law_make(1, sizeof *with), *other = law_make(1, sizeof *other);
    const lw_device_counts fused = both_run(x, "replay", 1, with);
    x->b->options.fusions_off = true;
    const lw_device_counts plain = both_run(x, "replay", 1, other);
    assert_true(is_same(with, other));
    assert_true(fused.launches < plain.launches);
    free(with);
    free(other);
    xpu_bench_close(x);
}

/* ---- tokens that the device finds ---- */

enum { CHAINS = LANES, STEPS = 5 };

static int32_t likeliest_of(const float *row)
{
    int32_t best = 0;
    for (int32_t id = 1; id < VOCAB; id++) best = row[id] > row[best] ? id : best;
    return best;
}

static void draw_likeliest(void *context, const lw_chain_step *step, int32_t *tokens)
{
    (void)context;
    for (uint32_t row = 0; row < step->row_count; row++)
        tokens[row] = likeliest_of(step->logits + row * step->stride);
}

/* Chains of STEPS and fewer steps from the streams' ends; their tokens, and the waits of the host. */
static uint32_t chains_run(xpu_bench *x, bool draws, uint32_t first, int32_t tokens[CHAINS][STEPS])
{
    static const uint32_t steps[CHAINS] = { STEPS, 2 };
    bench *b = x->b;
    lw_row rows[CHAINS];
    lw_diag d = { "" };
    lw_ticket ticket;
    const uint32_t begun = x->emulated->waits;
    for (uint32_t i = 0; i < CHAINS; i++) {
        const uint32_t lane = CHAINS - 1 - i;
        b->lanes[lane].committed = first + i;
        rows[i] = (lw_row){ .token = b->tokens[lane][first], .lane = lane, .position = first + i,
                            .slot = first + i, .parent = -1, .wanted = true };
    }
    const lw_chain chain = { .rows = rows, .steps = steps, .row_count = CHAINS, .lanes = b->lanes,
                             .lane_count = LANES, .draw = draws ? draw_likeliest : NULL };
    lw_status status = xpu->submit_chain(b->exec, &chain, &ticket, &d);
    if (status == LW_OK) status = xpu->wait(b->exec, ticket, &d);
    for (uint32_t i = 0; status == LW_OK && i < CHAINS; i++) {
        const int32_t *drawn = NULL;
        status = xpu->read_chain(b->exec, i, &drawn, &d);
        if (status == LW_OK) memcpy(tokens[i], drawn, steps[i] * sizeof *drawn);
    }
    if (status != LW_OK) fail_msg("%s", d.text);
    return x->emulated->waits - begun;
}

/* Drafts of chains that begin at several places, whoever draws them; *waits: of the last chains. */
static void heads_run(xpu_bench *x, const char *without, bool draws, int32_t tokens[][CHAINS][STEPS],
                      uint32_t *waits)
{
    open_without(x, without);
    for (uint32_t i = 0; i < 4; i++) *waits = chains_run(x, draws, 29 * i, tokens[i]);
    streams_end(x->b);
}

static void chains_need_no_host(void **state)
{
    (void)state;
    lw_rng rng = law_rng(304);
    xpu_bench *x = xpu_bench_open(record, &rng);
    bench *b = x->b;
    int32_t here[4][CHAINS][STEPS] = { 0 }, there[4][CHAINS][STEPS] = { 0 };
    uint32_t waits, waits_there;
    heads_run(x, NULL, false, there, &waits_there);
    assert_int_equal(waits_there, 1);
    static const char *const without[] = { "chain", "replay", NULL };
    for (size_t i = 0; i < sizeof without / sizeof without[0]; i++) {
        memset(here, 0, sizeof here);
        heads_run(x, without[i], without[i] == NULL, here, &waits);
        assert_memory_equal(here, there, sizeof here);
        assert_true(i == 1 ? waits == 1 : waits >= STEPS);
    }
    for (size_t l = 0; l < LANES; l++) b->tokens[l][0]++; /* planted */
    heads_run(x, NULL, false, here, &waits);
    assert_memory_not_equal(here, there, sizeof here);
    xpu_bench_close(x);
}

static void the_likeliest_token_comes_without_logits(void **state)
{
    (void)state;
    enum { ROWS = 40, SICK = VOCAB - 1 };
    lw_rng rng = law_rng(305);
    xpu_bench *x = xpu_bench_open(record, &rng);
    bench *b = x->b;
    logits *into = law_make(1, sizeof *into);
    int32_t best[ROWS];
    uint16_t *scales = b->weights[0].bytes[1]; /* of the embedding: one group a token */
    scales[SICK] = 0x7FC0;
    for (size_t i = 0; i < LANES * LENGTH; i++) b->tokens[i / LENGTH][i % LENGTH] %= SICK;
    b->tokens[0][30] = SICK;
    open_without(x, NULL);
    for (int turn = 0; turn < 2; turn++) { /* the second one is a replay */
        const uint32_t begun = x->emulated->waits;
        lw_ticket ticket;
        rows_add(b, 0, ROWS);
        const lw_batch batch = { .rows = b->rows, .row_count = ROWS, .lanes = b->lanes, .lane_count = LANES,
                                 .best = true };
        assert_int_equal(xpu->submit(b->exec, 0, &batch, &ticket, NULL), LW_OK);
        assert_int_equal(xpu->wait(b->exec, ticket, NULL), LW_OK);
        for (uint32_t r = 0, index = 0; r < ROWS; r++) {
            if (b->rows[r].wanted) assert_int_equal(xpu->read_best(b->exec, index++, &best[r], NULL), LW_OK);
        }
        if (turn == 1) assert_int_equal(x->emulated->waits - begun, 1);
        b->row_count = 0;
        rows_add(b, 0, ROWS);
        batch_read(b, into);
        for (uint32_t r = 0; r < ROWS; r += WANTED_EVERY) {
            const float *row = into->rows[0][r];
            assert_true(isfinite(row[0]) == (r < 30));
            assert_int_equal(best[r], r < 30 ? likeliest_of(row) : -1);
        }
    }
    streams_end(b);
    free(into);
    xpu_bench_close(x);
}

/* ---- batches ahead ---- */

enum { AHEAD_FROM = 60, AHEAD_STEPS = 10 }; /* over the end of a page */

typedef struct greedy {
    int32_t ids[AHEAD_STEPS][LANES];
    float last[LANES][VOCAB];
} greedy;

/* A lane's place among the wanted rows of a step, in which the lanes take turns. */
static uint32_t place_of(uint32_t lane, uint32_t step)
{
    return (lane + step) % LANES;
}

/* The batch of a step: each lane's next row. */
static lw_status step_submit(bench *b, uint32_t step, const int32_t *tokens, lw_ticket *ticket, lw_diag *d)
{
    lw_row rows[LANES];
    const uint32_t position = AHEAD_FROM + step;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        b->lanes[lane].committed = position;
        rows[place_of(lane, step)] = (lw_row){ .token = tokens[lane], .lane = lane, .position = position,
                                               .slot = position, .parent = -1, .wanted = true };
    }
    const lw_batch batch = { .rows = rows, .row_count = LANES, .lanes = b->lanes, .lane_count = LANES,
                             .best = true };
    const lw_status status = xpu->submit(b->exec, LW_ENTRY_MAIN, &batch, ticket, d);
    memset(rows, 0xAB, sizeof rows); /* read by submit alone */
    return status;
}

static lw_status step_end(bench *b, uint32_t step, lw_ticket ticket, int32_t *ids, lw_diag *d)
{
    lw_status status = xpu->wait(b->exec, ticket, d);
    for (uint32_t lane = 0; lane < LANES && status == LW_OK; lane++)
        status = xpu->read_best(b->exec, place_of(lane, step), &ids[lane], d);
    return status;
}

/* Replies of likeliest tokens; ahead: each batch is submitted before the last one is waited for. */
static lw_status greedy_run(bench *b, bool ahead, greedy *out, lw_diag *d)
{
    int32_t tokens[LANES];
    lw_ticket ticket = 0, next = 0;
    for (uint32_t lane = 0; lane < LANES; lane++) tokens[lane] = b->tokens[lane][AHEAD_FROM];
    lw_status status = step_submit(b, 0, tokens, &ticket, d);
    for (uint32_t step = 0; step < AHEAD_STEPS && status == LW_OK; step++) {
        const bool goes_on = step + 1 < AHEAD_STEPS;
        for (uint32_t lane = 0; lane < LANES; lane++) tokens[lane] = lw_row_drawn(place_of(lane, step));
        if (ahead && goes_on) status = step_submit(b, step + 1, tokens, &next, d);
        if (status == LW_OK) status = step_end(b, step, ticket, out->ids[step], d);
        for (uint32_t lane = 0; lane < LANES; lane++)
            tokens[lane] = out->ids[step][lane] < 0 ? 0 : out->ids[step][lane];
        if (!ahead && goes_on && status == LW_OK) status = step_submit(b, step + 1, tokens, &next, d);
        ticket = next;
    }
    for (uint32_t lane = 0; lane < LANES && status == LW_OK; lane++) {
        const float *row = NULL;
        status = xpu->read_logits(b->exec, place_of(lane, AHEAD_STEPS - 1), &row, d);
        if (status == LW_OK) memcpy(out->last[lane], row, sizeof out->last[lane]);
    }
    return status;
}

/* The streams up to there, then their replies; how often the host waited for these. */
static uint32_t replies_run(xpu_bench *x, const char *without, bool ahead, greedy *out)
{
    lw_diag d = { "" };
    memset(out, 0, sizeof *out);
    open_without(x, without);
    for (uint32_t lane = 0; lane < LANES; lane++) rows_add(x->b, lane, AHEAD_FROM);
    for (uint32_t r = 0; r < x->b->row_count; r++) x->b->rows[r].wanted = false;
    if (batch_run(x->b, &d) != LW_OK) fail_msg("%s", d.text);
    const uint32_t begun = x->emulated->waits;
    if (greedy_run(x->b, ahead, out, &d) != LW_OK) fail_msg("%s", d.text);
    const uint32_t waits = x->emulated->waits - begun;
    streams_end(x->b);
    return waits;
}

static void a_batch_ahead_takes_the_tokens_of_the_last(void **state)
{
    (void)state;
    lw_rng rng = law_rng(309);
    xpu_bench *x = xpu_bench_open(record, &rng);
    bench *b = x->b;
    greedy *in_turn = law_make(1, sizeof *in_turn), *ahead = law_make(1, sizeof *ahead);
    static const char *const without[] = { NULL, "replay" };
    const uint32_t waits = replies_run(x, NULL, false, in_turn);
    for (size_t i = 0; i < sizeof without / sizeof without[0]; i++) {
        assert_int_equal(replies_run(x, without[i], true, ahead), waits);
        assert_memory_equal(in_turn, ahead, sizeof *ahead);
    }
    b->tokens[0][AHEAD_FROM]++; /* planted */
    replies_run(x, NULL, true, ahead);
    assert_memory_not_equal(in_turn, ahead, sizeof *ahead);
    b->tokens[0][AHEAD_FROM]--;
    /* A lane whose logits are no numbers is told, goes on with any token, and is nothing to the other. */
    uint16_t *scales = b->weights[0].bytes[1]; /* of the embedding: one group a token */
    const uint16_t sound = scales[b->tokens[0][AHEAD_FROM]];
    scales[b->tokens[0][AHEAD_FROM]] = 0x7FC0;
    b->tokens[1][AHEAD_FROM] = (b->tokens[0][AHEAD_FROM] + 1) % VOCAB;
    replies_run(x, NULL, false, in_turn);
    replies_run(x, NULL, true, ahead);
    assert_int_equal(ahead->ids[0][0], -1);
    for (uint32_t step = 0; step < AHEAD_STEPS; step++)
        assert_int_equal(in_turn->ids[step][1], ahead->ids[step][1]);
    scales[b->tokens[0][AHEAD_FROM]] = sound;
    free(in_turn);
    free(ahead);
    xpu_bench_close(x);
}

static void going_ahead_can_be_left_out(void **state)
{
    (void)state;
    lw_rng rng = law_rng(310);
    xpu_bench *x = xpu_bench_open(record, &rng);
    for (int turn = 0; turn < 2; turn++) {
        open_without(x, turn == 0 ? NULL : "ahead");
        assert_true(xpu->goes_ahead(x->b->device) == (turn == 0));
        streams_end(x->b);
    }
    xpu_bench_close(x);
}

enum { MANY = 9000, PERIOD = 3500 };

/* A vocabulary of several blocks, in which ids a period apart always have equal logits. */
static void record_ties(bench *b, lw_rng *rng)
{
    lw_plan *p = &b->plan;
    const lw_wref table = dense(b, rng, VOCAB, WIDTH), head = dense(b, rng, MANY, WIDTH);
    lw_bf16 *rows = b->weights[1].bytes[0];
    for (size_t i = PERIOD * WIDTH; i < MANY * WIDTH; i++) rows[i] = rows[i - PERIOD * WIDTH];
    lw_plan_entry_begin(p, "main");
    const lw_ref x = lw_plan_take_wanted(p, lw_plan_embed(p, table));
    lw_plan_entry_end(p, lw_plan_linear(p, x, head, LW_TYPE_F32));
}

static void of_equal_logits_the_lowest_id_wins(void **state)
{
    (void)state;
    enum { ROWS = 6, SICK = MANY - 2 };
    lw_rng rng = law_rng(306);
    xpu_bench *x = xpu_bench_open(record_ties, &rng);
    bench *b = x->b;
    lw_bf16 *rows = b->weights[1].bytes[0];
    for (int turn = 0; turn < 2; turn++) {
        lw_ticket ticket;
        if (turn == 1) rows[SICK * WIDTH] = 0x7F80; /* an infinity in the last block */
        open_without(x, NULL);
        rows_add(b, 0, ROWS);
        const lw_batch batch = { .rows = b->rows, .row_count = ROWS, .lanes = b->lanes, .lane_count = LANES,
                                 .best = true };
        assert_int_equal(xpu->submit(b->exec, 0, &batch, &ticket, NULL), LW_OK);
        assert_int_equal(xpu->wait(b->exec, ticket, NULL), LW_OK);
        for (uint32_t i = 0; i < (ROWS + WANTED_EVERY - 1) / WANTED_EVERY; i++) {
            int32_t id;
            const float *row = NULL;
            assert_int_equal(xpu->read_best(b->exec, i, &id, NULL), LW_OK);
            assert_int_equal(xpu->read_logits(b->exec, i, &row, NULL), LW_OK);
            for (uint32_t other = 0; turn == 0 && other < MANY; other++)
                assert_true(row[other] < row[id] || (row[other] == row[id] && (int32_t)other >= id));
            assert_true(turn == 0 ? id < PERIOD && row[id] == row[id + PERIOD] : id == -1);
        }
        b->row_count = 0;
        streams_end(b);
    }
    xpu_bench_close(x);
}

/* ---- failures ---- */

/* What a server does of streams that draw the likeliest tokens and of their draft heads. */
static lw_status visit(bench *b, lw_diag *d)
{
    static const uint32_t steps[] = { 3 };
    lw_ticket ticket = 0;
    int32_t id;
    const int32_t *drawn;
    static greedy replies;
    b->row_count = 0;
    b->lanes[0].committed = 0;
    rows_add(b, 0, 1);
    const lw_batch batch = {
        .rows = b->rows, .row_count = 1, .lanes = b->lanes, .lane_count = 1, .best = true
    };
    const lw_chain chain = { .rows = b->rows, .steps = steps, .row_count = 1, .lanes = b->lanes,
                             .lane_count = 1 };
    lw_status status = xpu->open(&b->options, &b->device, d);
    if (status != LW_OK) return status;
    status = exec_open(b, d);
    for (int turn = 0; status == LW_OK && turn < 2; turn++) {
        status = xpu->submit(b->exec, 0, &batch, &ticket, d);
        if (status == LW_OK) status = xpu->wait(b->exec, ticket, d);
        if (status == LW_OK) status = xpu->read_best(b->exec, 0, &id, d);
        if (status == LW_OK) status = xpu->submit_chain(b->exec, &chain, &ticket, d);
        if (status == LW_OK) status = xpu->wait(b->exec, ticket, d);
        if (status == LW_OK) status = xpu->read_chain(b->exec, 0, &drawn, d);
    }
    if (status == LW_OK) status = greedy_run(b, true, &replies, d);
    xpu->exec_close(b->exec);
    xpu->close(b->device);
    return status;
}

static void any_call_may_fail(void **state)
{
    (void)state;
    lw_rng rng = law_rng(307);
    xpu_bench *x = xpu_bench_open(record, &rng);
    bench *b = x->b;
    lw_diag d = { "" };
    open_without(x, NULL); /* fills pages and lanes */
    streams_end(b);
    assert_int_equal(visit(b, &d), LW_OK);
    const uint32_t begun = x->emulated->calls;
    assert_int_equal(visit(b, &d), LW_OK);
    const uint32_t calls = x->emulated->calls - begun;
    uint32_t told = 0;
    for (uint32_t n = 1; n <= calls; n++) {
        x->emulated->fail_with =
            n % 2 == 0 ? LW_ZE_RESULT_ERROR_DEVICE_LOST : LW_ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
        x->emulated->fail_at = n;
        const lw_status status = visit(b, &d);
        assert_int_equal(x->emulated->fail_at, 0);
        assert_int_equal(x->emulated->objects, 0);
        assert_string_equal(x->emulated->error, "");
        if (status == LW_OK) continue;
        told++;
        assert_int_equal(status, n % 2 == 0 || was_wait(&d) ? LW_DEVICE_LOST : LW_NO_ROOM);
    }
    /* All but an address that is not told, and waits that only precede closing. */
    assert_true(calls > 100 && told >= calls - 8);
    xpu_bench_close(x);
}

/* ---- lists ---- */

/* More kinds of batches than lists are kept for, twice over; and a driver that cannot run lists again. */
static void lists_come_and_go(void **state)
{
    (void)state;
    enum { ROWS = 20, WANTED = 4 };
    lw_rng rng = law_rng(302);
    xpu_bench *x = xpu_bench_open(record, &rng);
    bench *b = x->b;
    logits *first = law_make(1, sizeof *first), *again = law_make(1, sizeof *again);
    for (int turn = 0; turn < 3; turn++) {
        x->emulated->runs_no_lists = turn == 2;
        open_without(x, NULL);
        for (uint32_t i = 0; i < ROWS * WANTED; i++) {
            rows_add(b, 0, 1 + i / WANTED);
            for (uint32_t r = 0; r < b->row_count; r++) b->rows[r].wanted = r < i % WANTED;
            batch_read(b, turn == 0 ? first : again);
        }
        streams_end(b);
        if (turn > 0) assert_true(is_same(first, again));
    }
    x->emulated->runs_no_lists = false;
    free(first);
    free(again);
    xpu_bench_close(x);
}

static void only_what_there_is_can_be_left_out(void **state)
{
    (void)state;
    lw_rng rng = law_rng(303);
    xpu_bench *x = xpu_bench_open(record, &rng);
    bench *b = x->b;
    lw_diag d = { "" };
    b->options.without = "replay,repl";
    assert_int_equal(xpu->open(&b->options, &b->device, &d), LW_BAD_INPUT);
    assert_non_null(strstr(d.text, "cannot do without \"repl\""));
    xpu_bench_close(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_that_is_left_out_changes_a_bit),
        cmocka_unit_test(steps_that_wait_for_themselves_come_apart),
        cmocka_unit_test(chains_need_no_host),
        cmocka_unit_test(the_likeliest_token_comes_without_logits),
        cmocka_unit_test(of_equal_logits_the_lowest_id_wins),
        cmocka_unit_test(a_batch_ahead_takes_the_tokens_of_the_last),
        cmocka_unit_test(going_ahead_can_be_left_out),
        cmocka_unit_test(any_call_may_fail),
        cmocka_unit_test(lists_come_and_go),
        cmocka_unit_test(only_what_there_is_can_be_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
