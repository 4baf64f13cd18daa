/* Every op of the xpu device, through the whole device on the emulated one: a plan is recorded, compiled and
 * submitted, and a trace keeps what each op gave each position of each stream.
 * Law: those are the same bits whatever cut, company, order of pages or tree a stream comes in. Meaning: each
 * op meets its formula in FP64 from what its inputs held. Planted: a changed token, another stream's outputs,
 * another window, older taps, a neighbour's weight row, swapped inputs. Then every call fails once, and
 * nothing is left behind.
 */
#include "cpu_law.h"
#include "../ref/ref_linear.h"
#include "../ref/ref_ops.h"
#include "../xpu/xpu_case.h"
#include "device/xpu/exec.h"
#include "device/xpu/xpu.h"
#include "ops/record.h"

enum {
    VOCAB = 40,
    WIDTH = 128,
    HEADS = 4,
    HEADS_KV = 2,
    HEAD_DIM = 32,
    HALF = 12,
    WIDE = 1088,
    TAPS = 3,
    LANES = 2,
    LENGTH = 540, /* past a chunk of 512 keys */
    WINDOW = 70,
    OPEN = 9,
    PAGES = 10,
    VALUES_MAX = 48,
    WEIGHTS_MAX = 24,
    ROWS_MAX = 2 * LENGTH,
    LANE_NONE = LANES,
};

typedef struct made {
    lw_tensor codes, scales, biases;
    void *bytes[3];
} made;

typedef float *kept[VALUES_MAX][LANES];        /* (positions, width) of each base value and lane */

typedef struct bench {
    xpu_paths paths;
    void *library;
    lw_emulated_state *emulated;
    lw_plan plan;
    made weights[WEIGHTS_MAX];
    uint32_t weight_count;
    lw_device *device;
    lw_exec *exec;
    int32_t tokens[LANES][LENGTH];
    uint32_t pages[LANES][PAGES];
    kept *into;                                /* where the trace writes */
    /* of the batch in flight */
    lw_row rows[ROWS_MAX];
    lw_batch_lane lanes[LANES];
    uint32_t row_count;
    size_t row_lane[ROWS_MAX];
} bench;

static const lw_device_table *const xpu = &lw_device_xpu;

/* ---- the plan ---- */

static lw_tensor tensor(lw_dtype dtype, uint32_t rows, uint32_t cols, void *bytes, size_t item_bytes)
{
    return (lw_tensor){ .name = "w", .file = "memory", .dtype = dtype, .dim_count = 2, .dims = { rows, cols },
                        .bytes = bytes, .byte_count = (size_t)rows * cols * item_bytes };
}

static lw_wref dense(bench *b, lw_rng *rng, uint32_t rows, uint32_t cols)
{
    assert_true(b->weight_count < WEIGHTS_MAX);
    made *m = &b->weights[b->weight_count++];
    m->bytes[0] = law_bf(rng, (size_t)rows * cols, 0.3f);
    m->codes = tensor(LW_DTYPE_BF16, rows, cols, m->bytes[0], 2);
    return lw_plan_weight(&b->plan, &(lw_weight){ .name = "dense",
                                                  .stack_count = 1,
                                                  .rows = rows,
                                                  .cols = cols,
                                                  .map = LW_MAP_BF16,
                                                  .code_bits = 16,
                                                  .global_scale = 1.0f,
                                                  .codes = &m->codes });
}

static lw_wref affine(bench *b, lw_rng *rng, uint32_t rows, uint32_t cols, uint32_t bits, uint32_t group)
{
    assert_true(b->weight_count < WEIGHTS_MAX);
    made *m = &b->weights[b->weight_count++];
    const uint32_t words = cols * bits / 32, groups = cols / group;
    uint32_t *codes = law_make((size_t)rows * words, sizeof *codes);
    for (size_t i = 0; i < (size_t)rows * words; i++)
        codes[i] = (uint32_t)lw_rng_below(rng, UINT64_C(1) << 32);
    m->bytes[0] = codes;
    m->bytes[1] = law_bf(rng, (size_t)rows * groups, bits == 4 ? 0.03f : 0.002f);
    m->bytes[2] = law_bf(rng, (size_t)rows * groups, 0.1f);
    m->codes = tensor(LW_DTYPE_U32, rows, words, m->bytes[0], 4);
    m->scales = tensor(LW_DTYPE_BF16, rows, groups, m->bytes[1], 2);
    m->biases = tensor(LW_DTYPE_BF16, rows, groups, m->bytes[2], 2);
    return lw_plan_weight(&b->plan, &(lw_weight){ .name = "affine",
                                                  .stack_count = 1,
                                                  .rows = rows,
                                                  .cols = cols,
                                                  .map = LW_MAP_INTEGER,
                                                  .code_bits = bits,
                                                  .group = group,
                                                  .scale_type = LW_DTYPE_BF16,
                                                  .has_bias = true,
                                                  .global_scale = 1.0f,
                                                  .codes = &m->codes,
                                                  .scales = &m->scales,
                                                  .biases = &m->biases });
}

static lw_ref attention(bench *b, lw_rng *rng, lw_ref n)
{
    lw_plan *p = &b->plan;
    double frequency[HALF];
    for (int i = 0; i < HALF; i++) frequency[i] = i == HALF - 1 ? 0 : pow(100.0, -i / (double)HALF);
    const uint32_t table = lw_plan_rope_table(p, frequency, HALF);
    const lw_sref near = lw_plan_state_kv(p, "near", HEADS_KV, HEAD_DIM, WINDOW);
    const lw_sref all = lw_plan_state_kv(p, "all", HEADS_KV, HEAD_DIM, 0);
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

/* ---- running it ---- */

static bool is_wanted(size_t position)
{
    return position % 3 == 0;
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

static lw_status exec_open(bench *b, bool traced, lw_diag *d)
{
    lw_exec_options options = { .rows_max = ROWS_MAX, .wanted_max = ROWS_MAX };
    if (traced) options.trace = (lw_trace){ .row = on_row, .context = b };
    for (uint32_t g = 0; g < b->plan.reach_count; g++) options.page_counts[g] = LANES * PAGES;
    return xpu->compile(b->device, &b->plan, &options, &b->exec, d);
}

static lw_status device_open(bench *b, lw_diag *d)
{
    const lw_device_options options = { .ze_loader = b->paths.loader, .xpu_kernels = b->paths.kernels };
    return xpu->open(&options, &b->device, d);
}

static bench *bench_open(lw_rng *rng)
{
    const xpu_paths paths = xpu_paths_find();
    xpu_need_kernels(&paths);
    bench *b = law_make(1, sizeof *b);
    b->paths = paths;
    b->library = xpu_emulated_open(&b->paths, &b->emulated);
    assert_int_equal(lw_plan_init(&b->plan, NULL), LW_OK);
    record(b, rng);
    assert_true(b->plan.value_count <= VALUES_MAX);
    for (size_t i = 0; i < LANES * LENGTH; i++)
        b->tokens[i / LENGTH][i % LENGTH] = (int32_t)lw_rng_below(rng, VOCAB);
    return b;
}

static void bench_close(bench *b)
{
    assert_int_equal(b->emulated->objects, 0);
    assert_string_equal(b->emulated->error, "");
    dlclose(b->library);
    for (uint32_t i = 0; i < b->weight_count; i++) {
        for (int j = 0; j < 3; j++) free(b->weights[i].bytes[j]);
    }
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
    lw_diag d = { "" };
    if (device_open(b, &d) != LW_OK || exec_open(b, into != NULL, &d) != LW_OK) fail_msg("%s", d.text);
}

static void streams_end(bench *b)
{
    xpu->exec_close(b->exec);
    xpu->close(b->device);
    b->exec = NULL;
    b->device = NULL;
}

static void row_add(bench *b, size_t lane, size_t kept_lane, lw_row row)
{
    row.lane = (uint32_t)lane;
    row.wanted = is_wanted(row.position);
    b->row_lane[b->row_count] = kept_lane;
    b->rows[b->row_count++] = row;
}

static void chain_add(bench *b, size_t lane, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t position = b->lanes[lane].committed + (uint32_t)i;
        row_add(b, lane, lane, (lw_row){ .token = b->tokens[lane][position], .position = position,
                                         .slot = position,
                                         .parent = i == 0 ? -1 : (int32_t)b->row_count - 1 });
    }
}

static lw_status batch_run(bench *b, lw_diag *d)
{
    lw_ticket ticket;
    const lw_batch batch = { b->rows, b->row_count, b->lanes, LANES };
    lw_status status = xpu->submit(b->exec, 0, &batch, &ticket, d);
    if (status == LW_OK) status = xpu->wait(b->exec, ticket, d);
    b->row_count = 0;
    return status;
}

/* Both streams up to length, in cuts of up to cut rows, in one batch or each by itself. */
static void streams_run(bench *b, kept *into, lw_rng *rng, size_t cut, size_t length)
{
    streams_begin(b, into, rng);
    for (size_t turn = 0; b->lanes[0].committed < length || b->lanes[1].committed < length; turn++) {
        size_t counts[LANES] = { 0 };
        for (size_t l = 0; l < LANES; l++) {
            if (turn % 3 == l + 1) continue; /* now together, now alone */
            counts[l] = size_min(1 + lw_rng_below(rng, cut), length - b->lanes[l].committed);
            if (cut >= length) counts[l] = length - b->lanes[l].committed;
            chain_add(b, l, counts[l]);
        }
        if (b->row_count > 0) assert_int_equal(batch_run(b, NULL), LW_OK);
        for (size_t l = 0; l < LANES; l++) b->lanes[l].committed += (uint32_t)counts[l];
    }
    streams_end(b);
}

/* Lane 0 up to committed, then OPEN rows of it at scattered slots, a wrong sibling before each. */
static void tree_run(bench *b, kept *into, lw_rng *rng, uint32_t committed)
{
    streams_begin(b, into, rng);
    chain_add(b, 0, committed);
    assert_int_equal(batch_run(b, NULL), LW_OK);
    b->lanes[0].committed = committed;
    int32_t parent = -1;
    for (uint32_t i = 0; i < OPEN; i++) {
        const uint32_t position = committed + i, slot = committed + (i * 4 + 3) % OPEN;
        const int32_t token = b->tokens[0][position];
        row_add(b, 0, LANE_NONE, (lw_row){ .token = (token + 1) % VOCAB, .position = position,
                                           .slot = slot + OPEN, .parent = parent });
        row_add(b, 0, 0, (lw_row){ .token = token, .position = position, .slot = slot, .parent = parent });
        parent = (int32_t)b->row_count - 1;
    }
    assert_int_equal(batch_run(b, NULL), LW_OK);
    streams_end(b);
}

/* Whether every op gave positions [0, count) of lanes [0, lanes) the same bits. */
static bool kept_same(const bench *b, const kept *a, const kept *c, size_t lanes, size_t count)
{
    bool same = true;
    for (uint32_t i = 0; i < b->plan.op_count; i++) {
        const uint32_t out = b->plan.ops[i].out.index;
        for (size_t l = 0; out != LW_NONE && l < lanes; l++) {
            const size_t bytes = count * b->plan.values[out].width * sizeof(float);
            same = same && memcmp((*a)[out][l], (*c)[out][l], bytes) == 0;
        }
    }
    return same;
}

static void rows_are_their_streams_own(void **state)
{
    (void)state;
    lw_rng rng = law_rng(91);
    bench *b = bench_open(&rng);
    kept *whole = kept_make(b), *other = kept_make(b);
    streams_run(b, whole, &rng, LENGTH, LENGTH);
    streams_run(b, other, &rng, 40, LENGTH);
    assert_true(kept_same(b, whole, other, LANES, LENGTH));
    kept_free(b, other);
    other = kept_make(b);
    streams_run(b, other, &rng, 1, 80);
    assert_true(kept_same(b, whole, other, LANES, 80));
    /* Across a page's end, and where a window and a chunk begin anew. */
    static const uint32_t committed[] = { 1, 60, 130, 507 };
    for (size_t i = 0; i < sizeof committed / sizeof committed[0]; i++) {
        kept_free(b, other);
        other = kept_make(b);
        tree_run(b, other, &rng, committed[i]);
        assert_true(kept_same(b, whole, other, 1, committed[i] + OPEN));
    }
    b->tokens[0][2] = (b->tokens[0][2] + 1) % VOCAB; /* planted */
    streams_run(b, other, &rng, 40, 80);
    assert_true(!kept_same(b, whole, other, 1, 80));
    kept_free(b, whole);
    kept_free(b, other);
    bench_close(b);
}

/* ---- what each op means ---- */

typedef struct spot { size_t lane, position, column; } spot;

/* Deliberate mistakes that the bounds must catch. */
typedef enum mistake { RIGHT, OTHER_STREAM, NEXT_ROW, OTHER_WINDOW, OLDER_TAPS, SWAPPED } mistake;

/* What a value held for a spot's position; views reach into their base. */
static const float *held(const bench *b, const kept *k, lw_ref x, spot at)
{
    const lw_value *v = &b->plan.values[x.index];
    return (*k)[v->base][at.lane] + at.position * b->plan.values[v->base].width + v->offset;
}

/* A number, and how far fp32 may be from it before the output is rounded. */
typedef struct meaning { double value, slack; } meaning;

static meaning meaning_linear(const bench *b, const lw_op *op, const float *x, size_t column)
{
    const lw_weight *w = &b->plan.weights[op->weights[0].index];
    double row[WIDE], size = 0, sum = 0;
    lw_weight_row_f64(w, 0, (uint32_t)column, row);
    float scales[WIDE], biases[WIDE];
    if (w->group > 0) lw_weight_scales(w, 0, (uint32_t)column, scales, biases);
    for (size_t i = 0; i < w->cols; i++) {
        const double bias = w->group == 0 ? 0 : 2 * fabs((double)biases[i / w->group]);
        sum += row[i] * (double)x[i];
        size += (fabs(row[i]) + bias) * fabs((double)x[i]);
    }
    /* A chain of a group, then of groups, then of slices. */
    return (meaning){ sum, (128 + 32 + 3) * REF_EPS_F32 * size };
}

static meaning meaning_attend(const bench *b, const kept *k, const lw_op *op, spot at, uint32_t window)
{
    lw_ref keys = { LW_NONE }, values = { LW_NONE };
    for (uint32_t i = 0; i < b->plan.op_count; i++) {
        const lw_op *store = &b->plan.ops[i];
        if (store->kind != LW_OP_KV_STORE || store->state.index != op->state.index) continue;
        keys = store->in[0];
        values = store->in[1];
    }
    const size_t head = at.column / HEAD_DIM, kv = head / (HEADS / HEADS_KV) * HEAD_DIM;
    size_t first = window != 0 && at.position >= window ? at.position - window + 1 : 0;
    first = size_max(first, op->p.attend.first);
    if (first > at.position) return (meaning){ 0, 0 };
    const size_t count = at.position + 1 - first;
    double *all = law_make(2 * count * HEAD_DIM, sizeof *all), q[HEAD_DIM], y[HEAD_DIM], sizes[HEAD_DIM];
    for (size_t i = 0; i < count * HEAD_DIM; i++) {
        const spot there = { at.lane, first + i / HEAD_DIM, 0 };
        all[i] = (double)held(b, k, keys, there)[kv + i % HEAD_DIM];
        all[count * HEAD_DIM + i] = (double)held(b, k, values, there)[kv + i % HEAD_DIM];
    }
    for (size_t i = 0; i < HEAD_DIM; i++) q[i] = (double)held(b, k, op->in[0], at)[head * HEAD_DIM + i];
    const ref_query query = { q, all, all + count * HEAD_DIM, count, HEAD_DIM, (double)op->p.attend.scale };
    ref_attend(&query, y, sizes);
    /* A score that is off by e scales its weight by 1 + e, above and below the line. */
    const double score = 2 * (HEAD_DIM + 8) * REF_EPS_F32 * (1 + ref_score_size(&query));
    const meaning m = { y[at.column % HEAD_DIM],
                        (score + 2 * (double)(count + 32) * REF_EPS_F32) * sizes[at.column % HEAD_DIM] };
    free(all);
    return m;
}

static meaning meaning_norm(const bench *b, const lw_op *op, const float *x, size_t column)
{
    const size_t segment = op->p.norm.segment, begin = column / segment * segment;
    double squares = 0, w[WIDTH];
    lw_weight_row_f64(&b->plan.weights[op->weights[0].index], 0, 0, w);
    for (size_t i = 0; i < segment; i++) squares += (double)x[begin + i] * (double)x[begin + i];
    const double r = (double)x[column] / sqrt(squares / (double)segment + (double)op->p.norm.eps);
    const double by = op->p.norm.scale == LW_NORM_UNIT ? 1 + w[column - begin] : w[column - begin];
    const double twice = op->p.norm.scale == LW_NORM_TWICE ? REF_EPS_BF16 : 0;
    return (meaning){ by * r, fabs(by * r) * (twice * 1.01 + 32 * REF_EPS_F32) + 2 * REF_EPS_F32 * fabs(r) };
}

static meaning meaning_rope(const bench *b, const lw_op *op, const float *x, spot at)
{
    const lw_rope_table *table = &b->plan.ropes[op->p.rope.table];
    const size_t i = at.column % HEAD_DIM, begin = at.column - i, pair = i < HALF ? i : i - HALF;
    if (i >= 2 * HALF) return (meaning){ (double)x[at.column], 0 };
    const double angle = (double)at.position * table->frequency[pair];
    const double left = (double)x[begin + pair], right = (double)x[begin + pair + HALF];
    const double value =
        i < HALF ? left * cos(angle) - right * sin(angle) : right * cos(angle) + left * sin(angle);
    return (meaning){ value, 4 * REF_EPS_F32 * (fabs(left) + fabs(right)) };
}

static meaning meaning_conv(const bench *b, const kept *k, const lw_op *op, spot at, size_t older)
{
    double w[TAPS], sum = 0, size = 0;
    lw_weight_row_f64(&b->plan.weights[op->weights[0].index], 0, (uint32_t)at.column, w);
    for (size_t tap = 0; tap < TAPS; tap++) {
        if (at.position + tap < TAPS - 1 + older) continue;
        const spot there = { at.lane, at.position + tap + 1 - TAPS - older, 0 };
        const double x = (double)held(b, k, op->in[0], there)[at.column];
        sum += w[tap] * x;
        size += fabs(w[tap] * x);
    }
    return (meaning){ sum, 4 * REF_EPS_F32 * size };
}

static meaning meant(const bench *b, const kept *k, const lw_op *op, spot at, mistake wrong)
{
    const size_t i = at.column;
    const float *x = op->in[0].index == LW_NONE ? NULL : held(b, k, op->in[0], at);
    const float *y = op->in[1].index == LW_NONE ? NULL : held(b, k, op->in[1], at);
    if (wrong == SWAPPED) {
        const float *kept_x = x;
        x = y;
        y = kept_x;
    }
    if (op->kind == LW_OP_EMBED) {
        double row[WIDTH];
        lw_weight_row_f64(&b->plan.weights[op->weights[0].index], 0,
                          (uint32_t)b->tokens[at.lane][at.position], row);
        return (meaning){ row[(i + (wrong == NEXT_ROW)) % WIDTH], 0 };
    }
    if (op->kind == LW_OP_LINEAR) {
        const uint32_t rows = b->plan.weights[op->weights[0].index].rows;
        return meaning_linear(b, op, x, (i + (wrong == NEXT_ROW)) % rows);
    }
    if (op->kind == LW_OP_ATTEND) {
        const uint32_t window = op->p.attend.window;
        return meaning_attend(b, k, op, at, wrong != OTHER_WINDOW ? window : window == 0 ? 9 : window - 9);
    }
    if (op->kind == LW_OP_RMS_NORM) return meaning_norm(b, op, x, i);
    if (op->kind == LW_OP_ROPE) return meaning_rope(b, op, x, at);
    if (op->kind == LW_OP_SHORT_CONV) return meaning_conv(b, k, op, at, wrong == OLDER_TAPS);
    if (op->kind == LW_OP_ADD) return (meaning){ (double)x[i] + (double)y[i], 0 };
    if (op->kind == LW_OP_MUL) return (meaning){ (double)x[i] * (double)y[i], 0 };
    if (op->kind == LW_OP_TAKE_WANTED) return (meaning){ (double)x[i], 0 };
    const double gate =
        op->kind == LW_OP_SWIGLU ? ref_silu((double)x[i]) : ref_sigmoid((double)y[i / HEAD_DIM]);
    const double by = op->kind == LW_OP_SWIGLU ? (double)y[i] : (double)x[i];
    return (meaning){ gate * by, 16 * REF_EPS_F32 * fabs(gate * by) };
}

/* The worst error of an op over its bound, at random spots of wanted rows. */
static double worst(const bench *b, const kept *k, const lw_op *op, lw_rng *rng, mistake wrong)
{
    enum { SPOTS = 300 };
    const lw_value *v = &b->plan.values[op->out.index];
    double most = 0;
    for (int n = 0; n < SPOTS; n++) {
        const spot at = { lw_rng_below(rng, LANES), lw_rng_below(rng, LENGTH / 3) * 3,
                          lw_rng_below(rng, v->width) };
        const meaning m = meant(b, k, op, at, wrong);
        const spot from = { wrong == OTHER_STREAM ? 1 - at.lane : at.lane, at.position, at.column };
        const double got = (double)held(b, k, op->out, from)[at.column];
        const double stored = v->type == LW_TYPE_F32 ? REF_EPS_F32 : REF_EPS_BF16;
        const double bound = m.slack * 1.01 + stored * (fabs(m.value) + m.slack) + 0x1p-100;
        const double error = isfinite(got) ? fabs(got - m.value) / bound : INFINITY;
        most = error > most ? error : most;
    }
    return most;
}

static void every_op_is_its_formula(void **state)
{
    (void)state;
    static const mistake mistakes[LW_OP_COUNT] = {
        [LW_OP_EMBED] = NEXT_ROW, [LW_OP_LINEAR] = NEXT_ROW, [LW_OP_ATTEND] = OTHER_WINDOW,
        [LW_OP_SHORT_CONV] = OLDER_TAPS, [LW_OP_SWIGLU] = SWAPPED,
    };
    lw_rng rng = law_rng(92);
    bench *b = bench_open(&rng);
    kept *k = kept_make(b);
    streams_run(b, k, &rng, 100, LENGTH);
    for (uint32_t i = 0; i < b->plan.op_count; i++) {
        const lw_op *op = &b->plan.ops[i];
        if (op->out.index == LW_NONE) continue;
        const double error = worst(b, k, op, &rng, RIGHT);
        if (!(error <= 1)) fail_msg("op %u, %s: %g of its bound", i, lw_op_table[op->kind].name, error);
        const mistake planted = mistakes[op->kind];
        if (!(worst(b, k, op, &rng, OTHER_STREAM) > 1))
            fail_msg("op %u, %s: another stream's rows pass", i, lw_op_table[op->kind].name);
        if (planted != RIGHT && !(worst(b, k, op, &rng, planted) > 1))
            fail_msg("op %u, %s: a planted mistake passes", i, lw_op_table[op->kind].name);
    }
    kept_free(b, k);
    bench_close(b);
}

/* ---- failures ---- */

/* Everything that a server does of a device, once. */
static lw_status visit(bench *b, lw_diag *d)
{
    const float *logits = NULL;
    b->row_count = 0;
    lw_status status = device_open(b, d);
    if (status != LW_OK) return status;
    status = exec_open(b, false, d);
    if (status == LW_OK) {
        b->lanes[0].committed = 0;
        chain_add(b, 0, 3);
        status = batch_run(b, d);
        if (status == LW_OK) status = xpu->page_copy(b->exec, 0, 0, 1, d);
        if (status == LW_OK) status = xpu->read_logits(b->exec, 0, &logits, d);
        xpu->exec_close(b->exec);
    }
    xpu->close(b->device);
    return status;
}

static void any_call_may_fail(void **state)
{
    (void)state;
    lw_rng rng = law_rng(93);
    bench *b = bench_open(&rng);
    lw_diag d = { "" };
    streams_begin(b, NULL, &rng);
    streams_end(b);
    assert_int_equal(visit(b, &d), LW_OK);
    const uint32_t begun = b->emulated->calls;
    assert_int_equal(visit(b, &d), LW_OK);
    const uint32_t calls = b->emulated->calls - begun;
    uint32_t told = 0;
    for (uint32_t n = 1; n <= calls; n++) {
        d.text[0] = '\0';
        b->emulated->fail_with =
            n % 2 == 0 ? LW_ZE_RESULT_ERROR_DEVICE_LOST : LW_ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY;
        b->emulated->fail_at = n;
        const lw_status status = visit(b, &d);
        assert_int_equal(b->emulated->fail_at, 0);
        assert_int_equal(b->emulated->objects, 0);
        assert_int_equal(b->emulated->used_bytes[0], 0);
        assert_string_equal(b->emulated->error, "");
        if (status == LW_OK) continue;
        told++;
        assert_non_null(strstr(d.text, "Level Zero answers"));
        assert_int_equal(status, n % 2 == 0 ? LW_DEVICE_LOST : LW_NO_ROOM);
    }
    /* All but an address that is not told, and waits that only precede closing. */
    assert_true(calls > 100 && told >= calls - 8);
    bench_close(b);
}

/* What admission counts is what compiling and the largest batch take. */
static void what_is_said_is_taken(void **state)
{
    (void)state;
    lw_rng rng = law_rng(95);
    bench *b = bench_open(&rng);
    streams_begin(b, NULL, &rng);
    for (size_t l = 0; l < LANES; l++) chain_add(b, l, LENGTH);
    assert_int_equal(b->row_count, b->exec->rows_max);
    const lw_scratch_rows rows = { b->exec->rows_max, b->exec->wanted_max };
    uint64_t said = 0;
    assert_int_equal(xpu->scratch_bytes(b->device, &b->plan, &rows, &said, NULL), LW_OK);
    assert_int_equal(batch_run(b, NULL), LW_OK);
    const uint64_t ids = LANES * PAGES * sizeof(uint32_t) * b->plan.reach_count;
    const uint64_t beside = b->exec->activations.bytes + b->exec->sums.bytes;
    const uint64_t taken = beside + b->exec->tables.memory.bytes;
    /* The ids of pages stand in the tables, each list rounded up to whole lines. */
    const uint64_t ids_most = 2 * (ids + 64 * b->plan.reach_count);
    assert_true(said > beside && said <= taken && said + ids_most >= taken);
    streams_end(b);
    bench_close(b);
}

static void what_no_kernel_reads_is_refused(void **state)
{
    (void)state;
    lw_rng rng = law_rng(94);
    bench *b = bench_open(&rng);
    lw_diag d = { "" };
    assert_int_equal(device_open(b, &d), LW_OK);
    lw_weight *w = &b->plan.weights[0];
    w->code_bits = 6;
    assert_int_equal(exec_open(b, false, &d), LW_UNSUPPORTED);
    assert_non_null(strstr(d.text, "affine is int6 group 64: the xpu device has bf16, and int4 and int8"));
    w->code_bits = 4;
    b->plan.ops[2].kind = LW_OP_RELU2;
    assert_int_equal(exec_open(b, false, &d), LW_UNSUPPORTED);
    assert_non_null(strstr(d.text, "op \"relu2\""));
    xpu->close(b->device);
    bench_close(b);
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
