/* The law of gated_delta and ssm on the xpu device, on the emulated one: a plan of both, over heads narrower
 * and wider than a work-group. What a position gets is the same bits whatever cut, company, order of pages,
 * tree or rejected guess its stream comes in. Planted: a changed token, which changes all that follow and no
 * other.
 */
enum { VOCAB = 40, LENGTH = 200 };

#include "plan_law.h"
#include "xpu_law.h"

enum {
    COLS = 448,
    DELTA_HEADS = 4,
    DELTA_COLS = 2 * 2 * 16 + DELTA_HEADS * 20,
    SSM_HEADS = 3,
    SSM_COLS = 2 * 24 + SSM_HEADS * 70,
};

/* Steps as models have them: most decays are small, so that states reach far. */
static lw_wref biases(bench *b, lw_rng *rng, uint32_t heads)
{
    const lw_wref w = vector(b, rng, 1, heads);
    float *numbers = b->weights[b->weight_count - 1].bytes[0];
    for (uint32_t i = 0; i < heads; i++) numbers[i] -= 3.0f;
    return w;
}

static void record(bench *b, lw_rng *rng)
{
    lw_plan *p = &b->plan;
    const lw_recurrence delta =
        lw_plan_recurrence(p, "delta", (lw_heads){ 2, 16 }, (lw_heads){ DELTA_HEADS, 20 });
    const lw_recurrence ssm = lw_plan_recurrence(p, "ssm", (lw_heads){ 1, 24 }, (lw_heads){ SSM_HEADS, 70 });
    const lw_wref table = dense(b, rng, VOCAB, COLS), head = dense(b, rng, VOCAB, COLS);
    const lw_wref delta_rate = vector(b, rng, 1, DELTA_HEADS), delta_bias = biases(b, rng, DELTA_HEADS);
    const lw_ssm_weights weights = { .a_log = vector(b, rng, 1, SSM_HEADS), .d = vector(b, rng, 1, SSM_HEADS),
                                     .dt_bias = biases(b, rng, SSM_HEADS), .step_min = 0.01f,
                                     .step_max = 0.4f };
    lw_plan_entry_begin(p, "main");
    const lw_ref all = lw_plan_embed(p, table);
    uint32_t at = DELTA_COLS + SSM_COLS;
    const lw_delta_inputs in = { lw_plan_view(p, all, 0, DELTA_COLS), lw_plan_view(p, all, at, DELTA_HEADS),
                                 lw_plan_view(p, all, at + DELTA_HEADS, DELTA_HEADS) };
    at += 2 * DELTA_HEADS;
    const lw_ssm_inputs step = { lw_plan_view(p, all, DELTA_COLS, SSM_COLS),
                                 lw_plan_view(p, all, at, SSM_HEADS) };
    lw_plan_gated_delta(p, delta, in, delta_rate, delta_bias);
    lw_plan_ssm(p, ssm, step, &weights);
    lw_plan_entry_end(p, lw_plan_linear(p, lw_plan_take_wanted(p, all), head, LW_TYPE_F32));
}

static void check_same(const bench *b, const kept *a, const kept *c)
{
    for (size_t l = 0; l < LANES; l++) assert_true(kept_same(b, a, c, l, LENGTH));
}

static void rows_are_their_streams_own(void **state)
{
    (void)state;
    /* Trees end at anchors: starts with as many rows as fit, an odd number of them. */
    static const struct { uint32_t committed, open; } trees[] = { { 1, 9 }, { 55, 9 }, { 61, 3 }, { 63, 1 },
                                                                  { 65, 9 }, { 119, 9 }, { 190, 1 } };
    lw_rng rng = law_rng(0x603);
    xpu_bench *x = xpu_bench_open(record, &rng);
    bench *b = x->b;
    kept *alone = kept_make(b), *other = kept_make(b);
    streams_run(b, alone, &rng, 1, LENGTH, ALONE);
    static const size_t cuts[] = { LENGTH, 70, 20, 5 };
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        streams_run(b, other, &rng, cuts[i], LENGTH, i % 2 == 0 ? TOGETHER : MIXED);
        check_same(b, alone, other);
    }
    static const size_t widths[] = { 4, 12, 90 };
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        windows_run(b, other, &rng, widths[i], LENGTH);
        check_same(b, alone, other);
    }
    for (size_t i = 0; i < sizeof trees / sizeof trees[0]; i++) {
        kept *tree = kept_make(b);
        tree_run(b, tree, &rng, trees[i].committed, trees[i].open);
        assert_true(kept_same(b, alone, tree, 0, trees[i].committed + trees[i].open));
        kept_free(b, tree);
    }
    b->tokens[0][10] = next_token(b->tokens[0][10]); /* planted */
    streams_run(b, other, &rng, 70, LENGTH, TOGETHER);
    assert_true(kept_same(b, alone, other, 0, 10) && kept_same(b, alone, other, 1, LENGTH));
    for (uint32_t i = 0; i < b->plan.op_count; i++) {
        const lw_op *op = &b->plan.ops[i];
        if (op->kind != LW_OP_GATED_DELTA && op->kind != LW_OP_SSM) continue;
        const size_t width = b->plan.values[op->out.index].width, last = (LENGTH - 1) * width;
        assert_memory_not_equal((*alone)[op->out.index][0] + last, (*other)[op->out.index][0] + last,
                                width * sizeof(float));
    }
    kept_free(b, alone);
    kept_free(b, other);
    xpu_bench_close(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(rows_are_their_streams_own) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
