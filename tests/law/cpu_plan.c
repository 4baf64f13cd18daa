/* Ops through the whole cpu device: a plan of every op that reaches across rows or columns is recorded,
 * compiled and submitted, and a trace keeps what each op gave each position of each stream.
 * Law: those are the bits of the stream alone, token by token, whatever cut, company, order of pages or tree
 * it comes in. Meaning: copies hold what their inputs held at the right row and column, and the rest meets
 * its formula in FP64 from what its inputs held. Planted: another stream's outputs, and a changed token.
 */
#include "cpu_law.h"
#include "../ref/ref_ops.h"
#include "device/cpu/cpu.h"
#include "ops/record.h"

enum {
    VOCAB = 40, WIDTH = 45, HEADS = 3, TAPS = 4, LANES = 2, LENGTH = 150, OPEN = 9, PAGES = 4,
    VALUES_MAX = 40, WEIGHTS_MAX = 12, ROWS_MAX = LANES * LENGTH, LANE_NONE = LANES,
};

/* A weight in memory. */
typedef struct made {
    lw_tensor tensor;
    float *numbers;
} made;

typedef float *kept[VALUES_MAX][LANES];        /* (positions, width) of each base value and lane */

typedef struct bench {
    lw_plan plan;
    made weights[WEIGHTS_MAX];
    uint32_t weight_count;
    lw_device *device;
    lw_exec *exec;
    int32_t tokens[LANES][LENGTH];
    uint32_t pages[LANES][PAGES];
    kept *into;                                 /* where the trace writes */
    /* of the batch in flight */
    lw_row rows[ROWS_MAX];
    lw_batch_lane lanes[LANES];
    uint32_t row_count;
    size_t row_lane[ROWS_MAX];                  /* LANE_NONE: a row that nobody checks */
} bench;

static bool is_wanted(size_t position)
{
    return position % 3 == 0;
}

static lw_wref weight(bench *b, lw_rng *rng, uint32_t rows, uint32_t cols)
{
    assert_true(b->weight_count < WEIGHTS_MAX);
    made *m = &b->weights[b->weight_count++];
    m->numbers = law_floats(rng, (size_t)rows * cols, 0.7f);
    m->tensor = (lw_tensor){ .name = "w", .file = "memory", .dtype = LW_DTYPE_F32, .dim_count = 2,
                             .dims = { rows, cols }, .bytes = (const uint8_t *)m->numbers,
                             .byte_count = (uint64_t)rows * cols * sizeof(float) };
    return lw_plan_weight(&b->plan, &(lw_weight){
        .name = "w", .stack_count = 1, .rows = rows, .cols = cols, .map = LW_MAP_FP32, .code_bits = 32,
        .global_scale = 1.0f, .codes = &m->tensor,
    });
}

/* The residual is fp32; every input of an op that may be a view is one. */
static void record(bench *b, lw_rng *rng)
{
    lw_plan *p = &b->plan;
    const lw_sref tail = lw_plan_state_tail(p, "tail", WIDTH, 2);
    const lw_sref conv = lw_plan_state_tail(p, "conv", 24, TAPS);
    const lw_sref kv = lw_plan_state_kv(p, "kv", 1, 8, 0);
    lw_plan_entry_begin(p, "main");
    const lw_ref x = lw_plan_embed(p, weight(b, rng, VOCAB, WIDTH));
    const lw_ref heads = lw_plan_take_heads(p, x, (lw_head_columns){ HEADS, WIDTH / HEADS, 4, 7 });
    const lw_ref both = lw_plan_concat(p, lw_plan_view(p, x, 5, 24), heads);
    lw_plan_tail_store(p, tail, both);
    const lw_ref before = lw_plan_tail_before(p, tail);
    const lw_wref taps = weight(b, rng, 24, TAPS), bias = weight(b, rng, 1, 24);
    const lw_ref mixed = lw_plan_conv_silu(p, conv, lw_plan_view(p, before, 11, 24), taps, bias);
    lw_plan_kv_store(p, kv, lw_plan_view(p, mixed, 3, 8), lw_plan_view(p, before, 1, 8));
    const lw_ref seen = lw_plan_attend_from(p, kv, lw_plan_view(p, both, 7, 16),
                                            (lw_attention){ .heads = 2, .first = 1, .scale = 0.35f });
    const lw_ref normed = lw_plan_norm_gate(p, lw_plan_concat(p, seen, mixed), lw_plan_view(p, before, 2, 40),
                                            weight(b, rng, 1, 40), (lw_norm_gate){ 8, 1e-5f, true });
    const lw_ref last = lw_plan_norm_gate(p, normed, lw_plan_view(p, x, 4, 40), weight(b, rng, 8, 1),
                                          (lw_norm_gate){ 8, 1e-5f, false });
    const lw_ref wide = lw_plan_linear(p, last, weight(b, rng, WIDTH + 6, 40), LW_TYPE_F32);
    const lw_ref biased = lw_plan_bias(p, lw_plan_view(p, wide, 3, WIDTH), weight(b, rng, WIDTH, 1));
    const lw_ref squared = lw_plan_relu2(p, lw_plan_view(p, biased, 0, WIDTH));
    const lw_ref residual = lw_plan_add(p, lw_plan_widen(p, lw_plan_view(p, x, 0, WIDTH)), squared);
    const lw_ref wanted = lw_plan_take_wanted(p, residual);
    const lw_ref out = lw_plan_rms_norm(p, wanted, weight(b, rng, 1, WIDTH), 1e-5f, LW_NORM_TWICE);
    lw_plan_entry_end(p, lw_plan_linear(p, out, weight(b, rng, VOCAB, WIDTH), LW_TYPE_F32));
}

static void on_row(void *context, const lw_op *op, const lw_value *value, uint32_t row, const float *values)
{
    bench *b = context;
    uint32_t at = row;
    if (value->space == LW_SPACE_WANTED) {
        uint32_t wanted = 0;
        for (at = 0; !b->rows[at].wanted || wanted++ < row;) at++;
    }
    if (b->row_lane[at] == LANE_NONE) return;
    float *to = (*b->into)[op->out.index][b->row_lane[at]] + b->rows[at].position * (size_t)value->width;
    memcpy(to, values, value->width * sizeof *to);
}

static void exec_open(bench *b)
{
    lw_exec_options options = { .rows_max = ROWS_MAX, .wanted_max = ROWS_MAX,
                                .trace = { .row = on_row, .context = b } };
    for (uint32_t g = 0; g < b->plan.reach_count; g++) options.page_counts[g] = LANES * PAGES;
    assert_int_equal(lw_device_cpu.compile(b->device, &b->plan, &options, &b->exec, NULL), LW_OK);
}

static bench *bench_open(const char *isa, lw_rng *rng)
{
    bench *b = law_make(1, sizeof *b);
    assert_int_equal(lw_plan_init(&b->plan, NULL), LW_OK);
    record(b, rng);
    assert_true(b->plan.value_count <= VALUES_MAX);
    for (size_t i = 0; i < LANES * LENGTH; i++) {
        b->tokens[i / LENGTH][i % LENGTH] = (int32_t)lw_rng_below(rng, VOCAB);
    }
    const lw_device_options options = { .threads = LAW_PARTS_MAX, .isa = isa };
    assert_int_equal(lw_device_cpu.open(&options, &b->device, NULL), LW_OK);
    return b;
}

static void bench_close(bench *b)
{
    lw_device_cpu.close(b->device);
    for (uint32_t i = 0; i < b->weight_count; i++) free(b->weights[i].numbers);
    lw_plan_deinit(&b->plan);
    free(b);
}

static kept *kept_make(const bench *b)
{
    kept *k = law_make(1, sizeof *k);
    for (uint32_t v = 0; v < b->plan.value_count; v++) {
        for (size_t l = 0; l < LANES; l++) (*k)[v][l] = law_make((size_t)LENGTH * b->plan.values[v].width, 4);
    }
    return k;
}

static void kept_free(const bench *b, kept *k)
{
    for (uint32_t v = 0; v < b->plan.value_count; v++) {
        for (size_t l = 0; l < LANES; l++) free((*k)[v][l]);
    }
    free(k);
}

/* Streams begin again: nothing is committed, pages are dealt in an order of their own. */
static void streams_begin(bench *b, kept *into, lw_rng *shuffle)
{
    uint32_t *flat = &b->pages[0][0];
    for (uint32_t i = 0; i < LANES * PAGES; i++) flat[i] = i;
    for (uint32_t i = LANES * PAGES; i > 1; i--) {
        const size_t j = lw_rng_below(shuffle, i);
        const uint32_t page = flat[i - 1];
        flat[i - 1] = flat[j];
        flat[j] = page;
    }
    for (size_t l = 0; l < LANES; l++) {
        b->lanes[l] = (lw_batch_lane){ .page_count = PAGES };
        for (uint32_t g = 0; g < b->plan.reach_count; g++) b->lanes[l].pages[g] = b->pages[l];
    }
    b->into = into;
    exec_open(b);
}

static void row_add(bench *b, size_t lane, lw_row row)
{
    row.lane = (uint32_t)lane;
    row.wanted = is_wanted(row.position);
    b->row_lane[b->row_count] = lane;
    b->rows[b->row_count++] = row;
}

static void chain_add(bench *b, size_t lane, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t position = b->lanes[lane].committed + (uint32_t)i;
        const int32_t parent = i == 0 ? -1 : (int32_t)b->row_count - 1;
        row_add(b, lane, (lw_row){ .token = b->tokens[lane][position], .position = position, .slot = position,
                                   .parent = parent });
    }
}

static void batch_run(bench *b)
{
    lw_ticket ticket;
    const lw_batch batch = { .rows = b->rows, .row_count = b->row_count, .lanes = b->lanes,
                             .lane_count = LANES };
    assert_int_equal(lw_device_cpu.submit(b->exec, 0, &batch, &ticket, NULL), LW_OK);
    assert_int_equal(lw_device_cpu.wait(b->exec, ticket, NULL), LW_OK);
    b->row_count = 0;
}

/* All streams in cuts of up to cut rows, each lane by itself or both in one batch. */
static void streams_run(bench *b, kept *into, lw_rng *rng, size_t cut, bool together)
{
    streams_begin(b, into, rng);
    for (size_t turn = 0; b->lanes[0].committed < LENGTH || b->lanes[1].committed < LENGTH; turn++) {
        size_t counts[LANES] = { 0 };
        for (size_t l = 0; l < LANES; l++) {
            if (!together && turn % LANES != l) continue;
            counts[l] = size_min(1 + lw_rng_below(rng, cut), LENGTH - b->lanes[l].committed);
            chain_add(b, l, counts[l]);
        }
        if (b->row_count > 0) batch_run(b);
        for (size_t l = 0; l < LANES; l++) b->lanes[l].committed += (uint32_t)counts[l];
    }
    lw_device_cpu.exec_close(b->exec);
}

/* The streams up to committed, then OPEN rows of lane 0 at scattered slots, a wrong sibling before each. */
static void tree_run(bench *b, kept *into, lw_rng *rng, uint32_t committed)
{
    streams_begin(b, into, rng);
    for (size_t l = 0; l < LANES; l++) chain_add(b, l, l == 0 ? committed : LENGTH);
    if (b->row_count > 0) batch_run(b);
    b->lanes[0].committed = committed;
    int32_t parent = -1;
    for (uint32_t i = 0; i < OPEN; i++) {
        const uint32_t position = committed + i, slot = committed + (i * 4 + 3) % OPEN;
        const int32_t token = b->tokens[0][position];
        row_add(b, 0, (lw_row){ .token = (token + 1) % VOCAB, .position = position, .slot = slot + OPEN,
                                .parent = parent });
        b->row_lane[b->row_count - 1] = LANE_NONE;
        row_add(b, 0, (lw_row){ .token = token, .position = position, .slot = slot, .parent = parent });
        parent = (int32_t)b->row_count - 1;
    }
    batch_run(b);
    lw_device_cpu.exec_close(b->exec);
}

/* Whether every op gave a lane's positions [0, count) the same bits. */
static bool kept_same(const bench *b, const kept *a, const kept *c, size_t lane, size_t count)
{
    bool same = true;
    for (uint32_t i = 0; i < b->plan.op_count; i++) {
        const uint32_t out = b->plan.ops[i].out.index;
        if (out == LW_NONE) continue;
        const size_t bytes = count * b->plan.values[out].width * sizeof(float);
        same = same && memcmp((*a)[out][lane], (*c)[out][lane], bytes) == 0;
    }
    return same;
}

/* ---- what each op means ---- */

/* What a value held for one position of a stream; views reach into their base. */
static const float *held(const bench *b, const kept *k, lw_ref x, size_t lane, size_t position)
{
    const lw_value *v = &b->plan.values[x.index];
    return (*k)[v->base][lane] + position * b->plan.values[v->base].width + v->offset;
}

static const float *numbers_of(const bench *b, lw_wref w)
{
    return (const float *)(const void *)b->plan.weights[w.index].codes->bytes;
}

/* The value that the state's store op kept. */
static lw_ref stored_in(const bench *b, lw_sref state)
{
    for (uint32_t i = 0; i < b->plan.op_count; i++) {
        const lw_op *op = &b->plan.ops[i];
        if (op->kind == LW_OP_TAIL_STORE && op->state.index == state.index) return op->in[0];
    }
    fail();
    return (lw_ref){ LW_NONE };
}

static double conv_at(const bench *b, const kept *k, const lw_op *op, size_t lane, size_t position, size_t i)
{
    const float *w = numbers_of(b, op->weights[0]);
    double sum = (double)numbers_of(b, op->weights[1])[i];
    for (size_t tap = 0; tap < TAPS; tap++) {
        if (position + tap + 1 < TAPS) continue;
        const float x = held(b, k, op->in[0], lane, position + tap + 1 - TAPS)[i];
        sum += (double)w[i * TAPS + tap] * (double)x;
    }
    return ref_silu(sum);
}

static double norm_gate_at(const lw_op *op, const float *x, const float *gate, const float *w, size_t i)
{
    const size_t segment = op->p.norm_gate.segment, begin = i / segment * segment;
    double in[64], open[64], weight[64], out[64];
    for (size_t j = 0; j < segment; j++) {
        in[j] = (double)x[begin + j];
        open[j] = (double)gate[begin + j];
        weight[j] = (double)w[j];
    }
    ref_gated_norm(&(ref_norm_gate){ in, open, weight, segment, segment, (double)op->p.norm_gate.eps,
                                     op->p.norm_gate.gate_first }, out);
    return out[i - begin];
}

static double rms_norm_at(const lw_op *op, const float *x, const float *w, size_t i)
{
    double squares = 0;
    for (size_t j = 0; j < WIDTH; j++) squares += (double)x[j] * (double)x[j];
    return (double)w[i] * (double)x[i] / sqrt(squares / WIDTH + (double)op->p.norm.eps);
}

/* Which number of a stream is asked for. */
typedef struct spot { size_t lane, position, column; } spot;

/* An op's output at a spot, from what its inputs held; *exact: no rounding is allowed. NaN
 * where other programs hold the op. */
static double meant(const bench *b, const kept *k, const lw_op *op, spot at, bool *exact)
{
    const size_t lane = at.lane, position = at.position, i = at.column;
    const float *x = op->in[0].index == LW_NONE ? NULL : held(b, k, op->in[0], lane, position);
    const float *y = op->in[1].index == LW_NONE ? NULL : held(b, k, op->in[1], lane, position);
    const uint32_t width = x == NULL ? 0 : b->plan.values[op->in[0].index].width;
    const float *w = op->weights[0].index == LW_NONE ? NULL : numbers_of(b, op->weights[0]);
    const lw_head_columns *columns = &op->p.columns;
    *exact = true;
    if (op->kind == LW_OP_CONCAT) return (double)(i < width ? x[i] : y[i - width]);
    if (op->kind == LW_OP_TAKE_HEADS)
        return (double)x[i / columns->width * columns->stride + columns->offset + i % columns->width];
    if (op->kind == LW_OP_TAIL_BEFORE)
        return position == 0 ? 0 : (double)held(b, k, stored_in(b, op->state), lane, position - 1)[i];
    if (op->kind == LW_OP_TAKE_WANTED || op->kind == LW_OP_WIDEN) return (double)x[i];
    if (op->kind == LW_OP_ADD) return (double)(x[i] + y[i]); /* one fp32 addition */
    *exact = false;
    if (op->kind == LW_OP_SHORT_CONV) return conv_at(b, k, op, lane, position, i);
    if (op->kind == LW_OP_BIAS) return (double)x[i] + (double)w[i];
    if (op->kind == LW_OP_RELU2) return x[i] < 0 ? 0 : (double)x[i] * (double)x[i];
    if (op->kind == LW_OP_RMS_NORM) return rms_norm_at(op, x, w, i);
    if (op->kind != LW_OP_NORM_GATE) return NAN;
    const size_t shared = b->plan.weights[op->weights[0].index].rows == 8 ? 0 : i / 8 * 8;
    return norm_gate_at(op, x, y, w + shared, i);
}

/* Outputs of an op off their meaning by more than two roundings to bf16 and 64 eps of fp32 sums: their sizes
 * here are below 4, and each kernel's own bound is held elsewhere. */
static size_t op_over(const bench *b, const kept *k, const lw_op *op, size_t lane, size_t *count)
{
    const lw_value *out = &b->plan.values[op->out.index];
    size_t over = 0;
    for (size_t p = 0; p < LENGTH; p++) {
        if (out->space == LW_SPACE_WANTED && !is_wanted(p)) continue;
        for (size_t i = 0; i < out->width; i++) {
            bool exact;
            const double got = (double)held(b, k, op->out, lane, p)[i];
            const double want = meant(b, k, op, (spot){ lane, p, i }, &exact);
            if (isnan(want)) return 0;
            const double bound = exact ? 0 : 2.01 * REF_EPS_BF16 * fabs(want) + 64 * 4 * REF_EPS_F32;
            ++*count;
            if (!(fabs(got - want) <= bound)) over++;
        }
    }
    return over;
}

/* Planted: the outputs of the other stream, which must not pass for this one's. */
static void check_meaning(const bench *b, kept *k)
{
    for (uint32_t i = 0; i < b->plan.op_count; i++) {
        const lw_op *op = &b->plan.ops[i];
        if (op->out.index == LW_NONE) continue;
        size_t count = 0;
        for (size_t lane = 0; lane < LANES; lane++) assert_int_equal(op_over(b, k, op, lane, &count), 0);
        if (count == 0) continue;
        float *right = (*k)[op->out.index][0];
        (*k)[op->out.index][0] = (*k)[op->out.index][1];
        count = 0;
        const size_t over = op_over(b, k, op, 0, &count);
        (*k)[op->out.index][0] = right;
        assert_true(over > count / 3);
    }
}

static void law_of(const char *isa)
{
    static const uint32_t starts[] = { 0, 1, 2, 60, 63, 64, 127 };
    lw_rng rng = law_rng(0x501);
    bench *b = bench_open(isa, &rng);
    kept *alone = kept_make(b), *other = kept_make(b);
    streams_run(b, alone, &rng, 1, false);
    check_meaning(b, alone);
    for (size_t i = 0; i < 6; i++) {
        const size_t cut = i < 2 ? LENGTH : i < 4 ? 70 : 5;
        streams_run(b, other, &rng, cut, i % 2 == 0);
        for (size_t l = 0; l < LANES; l++) assert_true(kept_same(b, alone, other, l, LENGTH));
    }
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        kept *tree = kept_make(b);
        tree_run(b, tree, &rng, starts[i]);
        assert_true(kept_same(b, alone, tree, 0, starts[i] + OPEN));
        assert_false(kept_same(b, alone, tree, 0, LENGTH)); /* rows that did not run */
        kept_free(b, tree);
    }
    b->tokens[0][100] = (b->tokens[0][100] + 1) % VOCAB; /* planted: later rows and no earlier ones change */
    streams_run(b, other, &rng, 70, true);
    assert_true(kept_same(b, alone, other, 0, 100));
    assert_false(kept_same(b, alone, other, 0, 101));
    assert_true(kept_same(b, alone, other, 1, LENGTH));
    kept_free(b, alone);
    kept_free(b, other);
    bench_close(b);
}

static void law_of_isa(const lw_cpu_kernels *kernels)
{
    law_of(kernels->isa);
}

static void plans_keep_the_row_law(void **state)
{
    (void)state;
    law_each_isa(law_of_isa);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(plans_keep_the_row_law) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
