/* Every op of the xpu device, through the whole device on the emulated one: a plan is recorded, compiled and
 * submitted, and a trace keeps what each op gave each position of each stream.
 * Law: those are the same bits whatever cut, company, order of pages or tree a stream comes in. Meaning: each
 * op meets its formula in FP64 from what its inputs held. Planted: a changed token, another stream's outputs,
 * another window, older taps, a neighbour's weight row, swapped inputs. Then every call fails once, and
 * nothing is left behind.
 */
enum { VOCAB = 40, LENGTH = 540 }; /* past a chunk of 512 keys */

#include "device/xpu/exec.h"
#include "plan_meaning.h"
#include "device/xpu/kargs.h"
#include "xpu_law.h"

enum {
    WIDTH = 128,
    HEADS = 4,
    HEADS_KV = 2,
    HEAD_DIM = 32,
    HALF = 12,
    WIDE = 1088,
    TAPS = 3,
    WINDOW = 70,
};

/* ---- the plan ---- */

static lw_ref attention(bench *b, lw_rng *rng, lw_ref n)
{
    lw_plan *p = &b->plan;
    double frequency[HALF];
    for (int i = 0; i < HALF; i++) frequency[i] = i == HALF - 1 ? 0 : pow(100.0, -i / (double)HALF);
    const uint32_t table = lw_plan_rope_table(p, frequency, HALF);
    const lw_sref near = lw_plan_state_kv(p, "near", HEADS_KV, HEAD_DIM, WINDOW);
    const lw_sref all = lw_plan_state_kv(p, "all", HEADS_KV, HEAD_DIM, 0);
    p->states[near.index].kv = LW_KV_INT8;
    const lw_wref q_norm = dense(b, rng, 1, HEAD_DIM);
    lw_ref q = lw_plan_linear(p, n, affine(b, rng, HEADS * HEAD_DIM, WIDTH, 4, 64), LW_TYPE_BF16);
    lw_ref k = lw_plan_linear(p, n, affine(b, rng, HEADS_KV * HEAD_DIM, WIDTH, 8, 32), LW_TYPE_BF16);
    const lw_ref v = lw_plan_linear(p, n, dense(b, rng, HEADS_KV * HEAD_DIM, WIDTH), LW_TYPE_BF16);
    q = lw_plan_rope(p, lw_plan_rms_norm(p, q, q_norm, 1e-5f, LW_NORM_ONCE), HEADS, table);
    k = lw_plan_rope(p, k, HEADS_KV, table);
    lw_plan_kv_store(p, near, k, v);
    lw_plan_kv_store(p, all, k, v);
    const lw_ref gate = lw_plan_linear(p, n, affine(b, rng, HEADS, WIDTH, 4, 32), LW_TYPE_BF16);
    const lw_ref far =
        lw_plan_attend_from(p, all, q, (lw_attention){ .heads = HEADS, .first = 1, .scale = 0.6f });
    return lw_plan_mul(p, lw_plan_head_gate(p, lw_plan_attend(p, near, q, HEADS, 0.6f), gate), far);
}

static void record(bench *b, lw_rng *rng)
{
    lw_plan *p = &b->plan;
    const lw_sref tail = lw_plan_state_tail(p, "tail", WIDTH / 2, TAPS);
    const lw_wref table = affine(b, rng, VOCAB, WIDTH, 4, 64);
    lw_plan_entry_begin(p, "main");
    lw_ref x = lw_plan_embed(p, table);
    const lw_ref n = lw_plan_rms_norm(p, x, dense(b, rng, 1, WIDTH), 1e-5f, LW_NORM_TWICE);
    x = lw_plan_add(p, x, attention(b, rng, n));
    const lw_ref h = lw_plan_rms_norm(p, x, dense(b, rng, 1, WIDTH), 1e-5f, LW_NORM_UNIT);
    const lw_ref gate = lw_plan_linear(p, h, affine(b, rng, WIDE, WIDTH, 4, 128), LW_TYPE_BF16);
    const lw_ref up = lw_plan_linear(p, h, affine(b, rng, WIDE, WIDTH, 8, 64), LW_TYPE_BF16);
    const lw_ref wide = lw_plan_swiglu(p, gate, up);
    const lw_ref down = lw_plan_linear(p, wide, dense(b, rng, WIDTH, WIDE), LW_TYPE_BF16);
    const lw_ref left = lw_plan_view(p, down, WIDTH / 2, WIDTH / 2);
    const lw_ref mixed = lw_plan_short_conv(p, tail, left, dense(b, rng, WIDTH / 2, TAPS));
    x = lw_plan_add(p, lw_plan_view(p, x, 8, WIDTH / 2), mixed);
    const lw_ref wanted = lw_plan_take_wanted(p, x);
    lw_plan_entry_end(p, lw_plan_linear(p, wanted, affine(b, rng, VOCAB, WIDTH / 2, 8, 64), LW_TYPE_F32));
}

/* ---- the law ---- */

static void rows_are_their_streams_own(void **state)
{
    (void)state;
    lw_rng rng = law_rng(91);
    xpu_bench *x = xpu_bench_open(record, &rng);
    bench *b = x->b;
    kept *whole = kept_make(b), *other = kept_make(b);
    streams_run(b, whole, &rng, LENGTH, LENGTH, MIXED);
    streams_run(b, other, &rng, 40, LENGTH, MIXED);
    assert_true(kept_same(b, whole, other, 0, LENGTH) && kept_same(b, whole, other, 1, LENGTH));
    kept_free(b, other);
    other = kept_make(b);
    streams_run(b, other, &rng, 1, 80, ALONE);
    assert_true(kept_same(b, whole, other, 0, 80) && kept_same(b, whole, other, 1, 80));
    /* Across a page's end, and where a window and a chunk begin anew. */
    static const uint32_t committed[] = { 1, 60, 130, 507 };
    for (size_t i = 0; i < sizeof committed / sizeof committed[0]; i++) {
        kept_free(b, other);
        other = kept_make(b);
        tree_run(b, other, &rng, committed[i], OPEN);
        assert_true(kept_same(b, whole, other, 0, committed[i] + OPEN));
    }
    b->tokens[0][2] = next_token(b->tokens[0][2]); /* planted */
    streams_run(b, other, &rng, 40, 80, MIXED);
    assert_true(!kept_same(b, whole, other, 0, 80));
    kept_free(b, whole);
    kept_free(b, other);
    xpu_bench_close(x);
}

static void every_op_is_its_formula(void **state)
{
    (void)state;
    lw_rng rng = law_rng(92);
    xpu_bench *x = xpu_bench_open(record, &rng);
    kept *k = kept_make(x->b);
    streams_run(x->b, k, &rng, 100, LENGTH, MIXED);
    check_meaning(x->b, k, &rng);
    kept_free(x->b, k);
    xpu_bench_close(x);
}

/* ---- failures ---- */

/* Everything that a server does of a device, once. */
static lw_status visit(bench *b, lw_diag *d)
{
    const float *logits = NULL;
    b->row_count = 0;
    lw_status status = b->table->open(&b->options, &b->device, d);
    if (status != LW_OK) return status;
    status = exec_open(b, d);
    if (status == LW_OK) {
        b->lanes[0].committed = 0;
        window_add(b, 0, 3, 3);
        status = batch_run(b, d);
        if (status == LW_OK) status = b->table->page_copy(b->exec, 0, 0, 1, d);
        if (status == LW_OK) status = b->table->read_logits(b->exec, 0, &logits, d);
        b->table->exec_close(b->exec);
    }
    b->table->close(b->device);
    return status;
}

static void any_call_may_fail(void **state)
{
    (void)state;
    lw_rng rng = law_rng(93);
    xpu_bench *x = xpu_bench_open(record, &rng);
    bench *b = x->b;
    lw_emulated_state *emulated = x->emulated;
    lw_diag d = { "" };
    streams_begin(b, NULL, &rng);
    streams_end(b);
    assert_int_equal(visit(b, &d), LW_OK);
    const uint32_t begun = emulated->calls;
    assert_int_equal(visit(b, &d), LW_OK);
    const uint32_t calls = emulated->calls - begun;
    uint32_t told = 0;
    for (uint32_t n = 1; n <= calls; n++) {
        d.text[0] = '\0';
        emulated->fail_with =
            n % 2 == 0 ? LW_ZE_RESULT_ERROR_DEVICE_LOST : LW_ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
        emulated->fail_at = n;
        const lw_status status = visit(b, &d);
        assert_int_equal(emulated->fail_at, 0);
        assert_int_equal(emulated->objects, 0);
        assert_int_equal(emulated->used_bytes[0], 0);
        assert_string_equal(emulated->error, "");
        if (status == LW_OK) continue;
        told++;
        assert_non_null(strstr(d.text, "Level Zero answers"));
        assert_int_equal(status, n % 2 == 0 || was_wait(&d) ? LW_DEVICE_LOST : LW_NO_ROOM);
    }
    /* All but an address that is not told, and waits that only precede closing. */
    assert_true(calls > 100 && told >= calls - 8);
    xpu_bench_close(x);
}

/* What admission counts is what compiling and the largest batch take. */
static void what_is_said_is_taken(void **state)
{
    (void)state;
    lw_rng rng = law_rng(95);
    xpu_bench *x = xpu_bench_open(record, &rng);
    bench *b = x->b;
    streams_begin(b, NULL, &rng);
    for (size_t l = 0; l < LANES; l++) window_add(b, l, LENGTH, LENGTH);
    assert_int_equal(b->row_count, b->exec->rows_max);
    const lw_scratch_rows rows = { b->exec->rows_max, b->exec->wanted_max };
    uint64_t said = 0;
    assert_int_equal(b->table->scratch_bytes(b->device, &b->plan, &rows, &said, NULL), LW_OK);
    assert_int_equal(batch_run(b, NULL), LW_OK);
    const lw_exec *e = b->exec;
    const uint64_t ids = LANES * PAGES * sizeof(uint32_t) * b->plan.reach_count;
    const uint64_t beside = e->activations.bytes + e->sums.bytes + e->best_parts.bytes + e->best_ids.bytes +
                            e->expert_order.bytes + e->recurrence.bytes;
    const uint64_t taken = beside + e->tables.memory.bytes;
    /* The ids of pages stand in the tables, each list rounded up to whole lines. */
    const uint64_t ids_most = 2 * (ids + 64 * b->plan.reach_count);
    assert_true(said > beside && said <= taken && said + ids_most >= taken);
    streams_end(b);
    xpu_bench_close(x);
}

static void what_no_kernel_reads_is_refused(void **state)
{
    (void)state;
    lw_rng rng = law_rng(94);
    xpu_bench *x = xpu_bench_open(record, &rng);
    bench *b = x->b;
    lw_diag d = { "" };
    assert_int_equal(b->table->open(&b->options, &b->device, &d), LW_OK);
    lw_weight *w = &b->plan.weights[0];
    w->code_bits = 7;
    assert_int_equal(exec_open(b, &d), LW_UNSUPPORTED);
    assert_non_null(strstr(d.text, "affine is int7 group 64: the xpu device has bf16, fp16, fp32, e4m3"));
    w->code_bits = 4;
    lw_state *near = b->plan.states;
    while (near->kv != LW_KV_INT8) near++;
    near->width = 30;
    assert_int_equal(exec_open(b, &d), LW_UNSUPPORTED);
    assert_non_null(strstr(d.text, "op \"kv_store\" without int8 heads whose width is no multiple of 4"));
    near->width = HEAD_DIM;
    b->plan.ops[2].kind = LW_OP_ROUTE;
    b->plan.ops[2].p.route.experts = LW_XPU_EXPERTS_MAX + 1;
    assert_int_equal(exec_open(b, &d), LW_UNSUPPORTED);
    assert_non_null(strstr(d.text, "op \"route\" without more than 1024 experts"));
    b->table->close(b->device);
    xpu_bench_close(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_their_streams_own),
        cmocka_unit_test(every_op_is_its_formula),
        cmocka_unit_test(any_call_may_fail),
        cmocka_unit_test(what_is_said_is_taken),
        cmocka_unit_test(what_no_kernel_reads_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
