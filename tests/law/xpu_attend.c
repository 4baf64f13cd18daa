/* Attention over long histories on the xpu device: what the chunks of a row give, shared out among
 * work-groups and merged, are the bits that one work-group gives which walks them all; in any company, cut
 * and tree, and wherever a launch's room for chunks ends. An entry beside stores keys and values and nothing
 * else, so that long histories are there soon; the rows at their ends attend. What the bits mean is held in
 * xpu_plan.c. Planted: tokens that changed far back, in sight and out of it. That chunks were shared out, and
 * that rows one by one are lists run again: launches and commands are counted.
 */
enum { VOCAB = 32, LENGTH = 2240 }; /* five chunks of 512 keys */

#include "xpu_law.h"

enum {
    WIDTH = 32,
    HEAD_DIM = 16,
    HEADS_MANY = 10, /* five of a KV head: two work-groups, of three and of two */
    HEADS_FEW = 2,
    WINDOW = 700,
    LAST = 100,     /* rows of a stream that attend: times their heads, more than one launch has room for */
    BEGIN = LENGTH - LAST,
};

typedef struct logits {
    float rows[LANES][LAST][VOCAB];
} logits;

static const lw_device_table *const xpu = &lw_device_xpu;

/* ---- the plan ---- */

typedef struct states {
    lw_sref all, near;
    lw_wref table, k, v;
} states;

static lw_ref store(bench *b, const states *s)
{
    lw_plan *p = &b->plan;
    const lw_ref x = lw_plan_embed(p, s->table);
    const lw_ref k = lw_plan_linear(p, x, s->k, LW_TYPE_BF16), v = lw_plan_linear(p, x, s->v, LW_TYPE_BF16);
    lw_plan_kv_store(p, s->all, k, v);
    lw_plan_kv_store(p, s->near, k, v);
    return x;
}

static void record_kinds(bench *b, lw_rng *rng, lw_kv_type all, lw_kv_type near)
{
    lw_plan *p = &b->plan;
    const uint32_t columns = 2 * HEAD_DIM;
    states s = { .all = lw_plan_state_kv(p, "all", 2, HEAD_DIM, 0),
                 .near = lw_plan_state_kv(p, "near", 2, HEAD_DIM, WINDOW),
                 .table = dense(b, rng, VOCAB, WIDTH), .k = dense(b, rng, columns, WIDTH),
                 .v = dense(b, rng, columns, WIDTH) };
    p->states[s.all.index].kv = all;
    p->states[s.near.index].kv = near;
    const lw_wref q_many = dense(b, rng, HEADS_MANY * HEAD_DIM, WIDTH);
    const lw_wref q_few = dense(b, rng, HEADS_FEW * HEAD_DIM, WIDTH);
    const lw_wref out = dense(b, rng, VOCAB, (HEADS_MANY + HEADS_FEW) * HEAD_DIM);
    const lw_wref brief = dense(b, rng, VOCAB, WIDTH);
    lw_plan_entry_begin(p, "main");
    const lw_ref x = store(b, &s);
    const lw_ref far = lw_plan_attend_from(p, s.all, lw_plan_linear(p, x, q_many, LW_TYPE_BF16),
                                           (lw_attention){ .heads = HEADS_MANY, .first = 1, .scale = 0.7f });
    const lw_ref by = lw_plan_attend(p, s.near, lw_plan_linear(p, x, q_few, LW_TYPE_BF16), HEADS_FEW, 0.7f);
    const lw_ref both = lw_plan_take_wanted(p, lw_plan_concat(p, far, by));
    lw_plan_entry_end(p, lw_plan_linear(p, both, out, LW_TYPE_F32));
    lw_plan_entry_begin(p, "stores");
    lw_plan_entry_end(p, lw_plan_linear(p, lw_plan_take_wanted(p, store(b, &s)), brief, LW_TYPE_F32));
}

/* Full histories in bf16 beside windows in int8. */
static void record(bench *b, lw_rng *rng)
{
    record_kinds(b, rng, LW_KV_BF16, LW_KV_INT8);
}

static void record_turned(bench *b, lw_rng *rng)
{
    record_kinds(b, rng, LW_KV_INT8, LW_KV_BF16);
}

/* ---- running it ---- */

static void batch_read(bench *b, uint32_t entry, logits *into)
{
    lw_ticket ticket;
    lw_diag d = { "" };
    const lw_batch batch = { .rows = b->rows, .row_count = b->row_count, .lanes = b->lanes,
                             .lane_count = LANES };
    lw_status status = xpu->submit(b->exec, entry, &batch, &ticket, &d);
    if (status == LW_OK) status = xpu->wait(b->exec, ticket, &d);
    for (uint32_t r = 0, index = 0; r < b->row_count && status == LW_OK; r++) {
        const float *row = NULL;
        if (!b->rows[r].wanted) continue;
        status = xpu->read_logits(b->exec, index++, &row, &d);
        if (status == LW_OK)
            memcpy(into->rows[b->rows[r].lane][b->rows[r].position - BEGIN], row, sizeof into->rows[0][0]);
    }
    if (status != LW_OK) fail_msg("%s", d.text);
    b->row_count = 0;
}

static void rows_want(bench *b, bool wanted)
{
    for (uint32_t r = 0; r < b->row_count; r++) b->rows[r].wanted = wanted;
}

/* Both streams with their keys and values up to the rows that attend. */
static void histories_make(xpu_bench *x, const char *without)
{
    lw_rng shuffle = lw_rng_make(11);
    bench *b = x->b;
    b->options.without = without;
    streams_begin(b, NULL, &shuffle);
    for (size_t l = 0; l < LANES; l++) window_add(b, l, BEGIN, BEGIN);
    rows_want(b, false);
    batch_read(b, 1, NULL);
    for (size_t l = 0; l < LANES; l++) b->lanes[l].committed = BEGIN;
}

/* The last rows in cuts of cut rows, the streams beside each other or in turn. */
static lw_device_counts last_run(xpu_bench *x, uint32_t cut, bool together, logits *into)
{
    lw_device_counts counts, before;
    bench *b = x->b;
    for (size_t l = 0; l < LANES; l++) b->lanes[l].committed = BEGIN;
    xpu->read_counts(b->device, &before);
    memset(into, 0, sizeof *into);
    for (uint32_t turn = 0; b->lanes[0].committed < LENGTH || b->lanes[1].committed < LENGTH; turn++) {
        size_t added[LANES] = { 0 };
        for (size_t l = 0; l < LANES; l++) {
            if (together || turn % LANES == l) added[l] = size_min(cut, LENGTH - b->lanes[l].committed);
            window_add(b, l, added[l], added[l]);
        }
        rows_want(b, true);
        if (b->row_count > 0) batch_read(b, 0, into);
        for (size_t l = 0; l < LANES; l++) b->lanes[l].committed += (uint32_t)added[l];
    }
    xpu->read_counts(b->device, &counts);
    return (lw_device_counts){ counts.commands - before.commands, counts.launches - before.launches };
}

/* Another token at one position of lane 0, or the one before again. */
static void token_turn(bench *b, uint32_t position)
{
    b->tokens[0][position] ^= 1;
    b->lanes[0].committed = position;
    window_add(b, 0, 1, 1);
    rows_want(b, false);
    batch_read(b, 1, NULL);
}

static bool is_same(const logits *a, const logits *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* ---- the laws ---- */

static void check_cuts(void (*recorder)(bench *b, lw_rng *rng), uint64_t seed, size_t count)
{
    static const struct { uint32_t cut; bool together; } cuts[] = {
        { LAST, false }, { 7, true }, { 1, false }
    };
    assert_true(count <= sizeof cuts / sizeof cuts[0]);
    lw_rng rng = law_rng(seed);
    xpu_bench *x = xpu_bench_open(recorder, &rng);
    logits *whole = law_make(1, sizeof *whole), *other = law_make(1, sizeof *other);
    histories_make(x, "split");
    const lw_device_counts plain = last_run(x, LAST, false, whole);
    streams_end(x->b);
    histories_make(x, NULL);
    for (size_t i = 0; i < count; i++) {
        const lw_device_counts counts = last_run(x, cuts[i].cut, cuts[i].together, other);
        if (!is_same(whole, other)) fail_msg("cuts of %u: other bits", cuts[i].cut);
        /* A launch that merges beside each; and full histories do not fit into one. */
        if (i == 0) assert_int_equal(counts.launches, plain.launches + LANES * (3 + 1));
        if (cuts[i].cut == 1) assert_true(counts.commands < counts.launches);
    }
    streams_end(x->b);
    free(whole);
    free(other);
    xpu_bench_close(x);
}

static void chunks_shared_out_are_the_same_bits(void **state)
{
    (void)state;
    check_cuts(record, 0xA77E, 3);
}

static void whatever_keys_and_values_are_kept_in(void **state)
{
    (void)state;
    check_cuts(record_turned, 0xA77F, 2);
}

/* Right rows at scattered slots, a wrong sibling before each. */
static void trees_have_the_bits_of_chains(void **state)
{
    (void)state;
    lw_rng rng = law_rng(0xA780);
    xpu_bench *x = xpu_bench_open(record, &rng);
    bench *b = x->b;
    logits *whole = law_make(1, sizeof *whole), *tree = law_make(1, sizeof *tree);
    histories_make(x, NULL);
    last_run(x, LAST, false, whole);
    for (size_t l = 0; l < LANES; l++) b->lanes[l].committed = BEGIN;
    tree_add(b, BEGIN, OPEN);
    for (uint32_t r = 0; r < b->row_count; r++) b->rows[r].wanted = b->row_lane[r] == 0;
    batch_read(b, 0, tree);
    streams_end(b);
    assert_memory_equal(whole->rows[0], tree->rows[0], OPEN * sizeof whole->rows[0][0]);
    free(whole);
    free(tree);
    xpu_bench_close(x);
}

static void what_lies_far_back_is_in_the_sums(void **state)
{
    (void)state;
    static const uint32_t seen[] = { 1, 1100, 2060 };
    lw_rng rng = law_rng(0xA781);
    xpu_bench *x = xpu_bench_open(record, &rng);
    bench *b = x->b;
    logits *right = law_make(1, sizeof *right), *other = law_make(1, sizeof *other);
    histories_make(x, NULL);
    last_run(x, LAST, false, right);
    token_turn(b, 0); /* before the first position that anybody attends to */
    last_run(x, LAST, false, other);
    assert_true(is_same(right, other));
    for (size_t i = 0; i < sizeof seen / sizeof seen[0]; i++) {
        token_turn(b, seen[i]);
        last_run(x, LAST, false, other);
        token_turn(b, seen[i]);
        for (size_t r = 0; r < LAST; r++)
            assert_memory_not_equal(right->rows[0][r], other->rows[0][r], sizeof right->rows[0][r]);
        assert_memory_equal(right->rows[1], other->rows[1], sizeof right->rows[1]);
    }
    last_run(x, LAST, false, other);
    assert_true(is_same(right, other));
    streams_end(b);
    free(right);
    free(other);
    xpu_bench_close(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_shared_out_are_the_same_bits),
        cmocka_unit_test(whatever_keys_and_values_are_kept_in),
        cmocka_unit_test(trees_have_the_bits_of_chains),
        cmocka_unit_test(what_lies_far_back_is_in_the_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
