/* What the xpu device can do without changes no bit: fusions and replayed lists, each and all, whatever cut
 * and company the rows come in. A plan of every op that a fusion knows is recorded, two streams of it run in
 * rounds of random cuts, and the logits of every wanted row are compared.
 * Planted: a changed token. And that a switch switches: launches and commands are counted.
 */
#include "plan_weights.h"
#include "../xpu/xpu_case.h"
#include "device/xpu/xpu.h"

enum {
    VOCAB = 40,
    WIDTH = 64,
    WIDE = 576,  /* two slices */
    HEADS = 4,
    HEADS_KV = 2,
    HEAD_DIM = 32,
    HALF = 12,
    TAPS = 3,
    LANES = 2,
    LENGTH = 132,
    CUT = 6,
    PAGES = 3,
    ROWS_MAX = 48,
    WANTED_EVERY = 3,
};

typedef struct logits {
    float rows[LANES][LENGTH][VOCAB]; /* zero where no row was wanted */
} logits;

typedef struct bench {
    xpu_paths paths;
    void *library;
    lw_emulated_state *emulated;
    lw_plan plan;
    plan_weights weights;
    lw_device *device;
    lw_exec *exec;
    int32_t tokens[LANES][LENGTH];
    uint32_t pages[LANES][PAGES];
    lw_row rows[ROWS_MAX];
    lw_batch_lane lanes[LANES];
    uint32_t row_count;
} bench;

static const lw_device_table *const xpu = &lw_device_xpu;

/* ---- the plan ---- */

static lw_wref dense(bench *b, lw_rng *rng, uint32_t rows, uint32_t cols)
{
    const lw_weight w = plan_dense(&b->weights, rng, rows, cols);
    return lw_plan_weight(&b->plan, &w);
}

static lw_ref linear(bench *b, lw_rng *rng, lw_ref x, uint32_t rows, uint32_t bits)
{
    const uint32_t cols = b->plan.values[x.index].width;
    const lw_weight w = bits == 16 ? plan_dense(&b->weights, rng, rows, cols)
                                   : plan_affine(&b->weights, rng, rows, cols, bits, 32);
    return lw_plan_linear(&b->plan, x, lw_plan_weight(&b->plan, &w), LW_TYPE_BF16);
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

/* has_norms: q and k are normed by heads. A bf16 v stands beside quantised q and k. */
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
    const lw_weight w = plan_affine(&b->weights, rng, VOCAB, WIDTH, 8, 64);
    return lw_plan_linear(&b->plan, h, lw_plan_weight(&b->plan, &w), LW_TYPE_F32);
}

static void record(bench *b, lw_rng *rng)
{
    lw_plan *p = &b->plan;
    const lw_weight table = plan_affine(&b->weights, rng, VOCAB, WIDTH, 4, 64);
    lw_plan_entry_begin(p, "main");
    lw_ref x = lw_plan_embed(p, lw_plan_weight(p, &table));
    lw_ref h = conv(b, rng, norm(b, rng, x, WIDTH, LW_NORM_TWICE));
    x = lw_plan_add(p, x, norm(b, rng, h, WIDTH, LW_NORM_ONCE));
    x = lw_plan_add(p, x, mlp(b, rng, norm(b, rng, x, WIDTH, LW_NORM_TWICE), 4));
    h = attention(b, rng, norm(b, rng, x, WIDTH, LW_NORM_UNIT), true, 70);
    x = lw_plan_add(p, x, h);
    x = lw_plan_add(p, x, mlp(b, rng, norm(b, rng, x, WIDTH, LW_NORM_TWICE), 16));
    x = lw_plan_add(p, x, attention(b, rng, norm(b, rng, x, WIDTH, LW_NORM_TWICE), false, 0));
    lw_plan_entry_end(p, logits_of(b, rng, x));
}

/* ---- running it ---- */

static bench *bench_open(lw_rng *rng)
{
    const xpu_paths paths = xpu_paths_find();
    xpu_need_kernels(&paths);
    bench *b = law_make(1, sizeof *b);
    b->paths = paths;
    b->library = xpu_emulated_open(&b->paths, &b->emulated);
    assert_int_equal(lw_plan_init(&b->plan, NULL), LW_OK);
    record(b, rng);
    for (size_t i = 0; i < LANES * LENGTH; i++)
        b->tokens[i / LENGTH][i % LENGTH] = (int32_t)lw_rng_below(rng, VOCAB);
    return b;
}

static void bench_close(bench *b)
{
    assert_int_equal(b->emulated->objects, 0);
    assert_string_equal(b->emulated->error, "");
    dlclose(b->library);
    plan_weights_free(&b->weights);
    lw_plan_deinit(&b->plan);
    free(b);
}

static void streams_begin(bench *b, const char *without)
{
    const lw_device_options options = { .ze_loader = b->paths.loader, .xpu_kernels = b->paths.kernels,
                                        .without = without };
    lw_exec_options exec = { .rows_max = ROWS_MAX, .wanted_max = ROWS_MAX };
    for (uint32_t g = 0; g < b->plan.reach_count; g++) exec.page_counts[g] = LANES * PAGES;
    for (uint32_t i = 0; i < LANES * PAGES; i++)
        b->pages[i / PAGES][i % PAGES] = (i * 5 + 1) % (LANES * PAGES);
    for (size_t l = 0; l < LANES; l++) {
        b->lanes[l] = (lw_batch_lane){ .page_count = PAGES };
        for (uint32_t g = 0; g < b->plan.reach_count; g++) b->lanes[l].pages[g] = b->pages[l];
    }
    lw_diag d = { "" };
    if (xpu->open(&options, &b->device, &d) != LW_OK) fail_msg("%s", d.text);
    if (xpu->compile(b->device, &b->plan, &exec, &b->exec, &d) != LW_OK) fail_msg("%s", d.text);
}

static lw_device_counts streams_end(bench *b)
{
    lw_device_counts counts;
    xpu->read_counts(b->device, &counts);
    xpu->exec_close(b->exec);
    xpu->close(b->device);
    return counts;
}

static void rows_add(bench *b, uint32_t lane, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t position = b->lanes[lane].committed + i;
        b->rows[b->row_count] = (lw_row){ .token = b->tokens[lane][position],
                                          .lane = lane,
                                          .position = position,
                                          .slot = position,
                                          .parent = i == 0 ? -1 : (int32_t)b->row_count - 1,
                                          .wanted = position % WANTED_EVERY == 0 };
        b->row_count++;
    }
}

static void batch_run(bench *b, logits *into)
{
    lw_ticket ticket;
    lw_diag d = { "" };
    const lw_batch batch = { b->rows, b->row_count, b->lanes, LANES };
    lw_status status = xpu->submit(b->exec, 0, &batch, &ticket, &d);
    if (status == LW_OK) status = xpu->wait(b->exec, ticket, &d);
    for (uint32_t r = 0, index = 0; r < b->row_count; r++) {
        const float *row = NULL;
        if (!b->rows[r].wanted || into == NULL || status != LW_OK) continue;
        status = xpu->read_logits(b->exec, index++, &row, &d);
        if (status == LW_OK)
            memcpy(into->rows[b->rows[r].lane][b->rows[r].position], row, sizeof into->rows[0][0]);
    }
    if (status != LW_OK) fail_msg("%s", d.text);
    b->row_count = 0;
}

/* Both streams to their ends, in cuts of up to CUT rows, now together and now alone. */
static lw_device_counts streams_run(bench *b, const char *without, uint64_t seed, logits *into)
{
    lw_rng rng = lw_rng_make(seed);
    streams_begin(b, without);
    while (b->lanes[0].committed < LENGTH || b->lanes[1].committed < LENGTH) {
        uint32_t counts[LANES];
        for (uint32_t l = 0; l < LANES; l++) {
            const uint32_t left = LENGTH - b->lanes[l].committed;
            counts[l] = (uint32_t)lw_rng_below(&rng, CUT + 1);
            counts[l] = counts[l] < left ? counts[l] : left;
            rows_add(b, l, counts[l]);
        }
        if (b->row_count > 0) batch_run(b, into);
        for (uint32_t l = 0; l < LANES; l++) b->lanes[l].committed += counts[l];
    }
    return streams_end(b);
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
    bench *b = bench_open(&rng);
    logits *with = law_make(1, sizeof *with), *other = law_make(1, sizeof *other);
    char all[256] = "";
    const lw_device_counts most = streams_run(b, NULL, 1, with);
    for (size_t i = 0; i < NAMES; i++) {
        memset(other, 0, sizeof *other);
        const lw_device_counts counts = streams_run(b, names[i], 1, other);
        if (!is_same(with, other)) fail_msg("without %s: other bits", names[i]);
        /* Planted: a switch that switches nothing. */
        if (counts.launches == most.launches && counts.commands == most.commands)
            fail_msg("without %s: the same launches", names[i]);
        const size_t at = strlen(all);
        snprintf(all + at, sizeof all - at, "%s%s", at == 0 ? "" : ",", names[i]);
    }
    memset(other, 0, sizeof *other);
    const lw_device_counts plain = streams_run(b, all, 2, other);
    assert_true(is_same(with, other));
    assert_true(plain.launches > most.launches || NAMES == 1);
    b->tokens[0][1]++; /* planted */
    streams_run(b, NULL, 1, other);
    assert_true(!is_same(with, other));
    free(with);
    free(other);
    bench_close(b);
}

/* More kinds of batches than lists are kept for, twice over; and a driver that cannot run lists again. */
static void lists_come_and_go(void **state)
{
    (void)state;
    enum { ROWS = 20, WANTED = 4 };
    lw_rng rng = law_rng(302);
    bench *b = bench_open(&rng);
    logits *first = law_make(1, sizeof *first), *again = law_make(1, sizeof *again);
    for (int turn = 0; turn < 3; turn++) {
        b->emulated->runs_no_lists = turn == 2;
        streams_begin(b, NULL);
        for (uint32_t i = 0; i < ROWS * WANTED; i++) {
            rows_add(b, 0, 1 + i / WANTED);
            for (uint32_t r = 0; r < b->row_count; r++) b->rows[r].wanted = r < i % WANTED;
            batch_run(b, turn == 0 ? first : again);
        }
        streams_end(b);
        if (turn > 0) assert_true(is_same(first, again));
    }
    b->emulated->runs_no_lists = false;
    free(first);
    free(again);
    bench_close(b);
}

static void only_what_there_is_can_be_left_out(void **state)
{
    (void)state;
    lw_rng rng = law_rng(303);
    bench *b = bench_open(&rng);
    lw_diag d = { "" };
    const lw_device_options options = { .ze_loader = b->paths.loader, .without = "replay,repl" };
    assert_int_equal(xpu->open(&options, &b->device, &d), LW_BAD_INPUT);
    assert_non_null(strstr(d.text, "cannot do without \"repl\""));
    bench_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_that_is_left_out_changes_a_bit),
        cmocka_unit_test(lists_come_and_go),
        cmocka_unit_test(only_what_there_is_can_be_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
