/* Linears and embeddings of the xpu device over every form of weight, on the emulated one, with DPAS and
 * without: rows alone against rows in any company, bit for bit; FP64 bounds; embeddings rounded once.
 * Planted: a neighbour's row, the last column left out, no global scale.
 */
enum { VOCAB = 40, LENGTH = 140 };

#include "device/xpu/matrix.h"
#include "plan_formats.h"
#include "plan_meaning.h"
#include "plan_rows.h"
#include "xpu_law.h"

enum { ROWS = 70, COLS = 768, CHECKED = 400 }; /* rows: more than a panel, and no whole block */

static const struct { lw_ops_form format; uint32_t cols;
} cases[] = {
    { { LW_MAP_INTEGER, 2, 32, 0, LW_DTYPE_BF16, true, 0, 0, false }, 192 },
    { { LW_MAP_INTEGER, 3, 64, 0, LW_DTYPE_BF16, true, 0, 0, false }, 192 },
    { { LW_MAP_INTEGER, 4, 32, 0, LW_DTYPE_F16, true, 0, 0, false }, 192 },
    { { LW_MAP_INTEGER, 4, 64, 0, LW_DTYPE_F32, true, 0, 0, false }, 192 },
    { { LW_MAP_INTEGER, 4, 128, 0, LW_DTYPE_F16, false, -8, 0, false }, 256 },
    { { LW_MAP_INTEGER, 4, 64, 0, LW_DTYPE_BF16, true, 0, 0, false }, COLS },
    { { LW_MAP_INTEGER, 5, 32, 0, LW_DTYPE_BF16, true, 0, 0, false }, 96 },
    { { LW_MAP_INTEGER, 6, 64, 0, LW_DTYPE_BF16, true, 0, 0, false }, 192 },
    { { LW_MAP_INTEGER, 8, 256, 0, LW_DTYPE_BF16, true, 0, 0, false }, 512 },
    { { LW_MAP_INTEGER, 8, 200, 0, LW_DTYPE_BF16, false, -128, 0, false }, 200 }, /* a scale a row */
    { { LW_MAP_TABLE16, 4, 16, 0, LW_DTYPE_F8_E4M3, false, 0, 0.37f, false }, 208 },
    { { LW_MAP_TABLE16, 4, 16, 0, LW_DTYPE_F8_E4M3, false, 0, 3.7f, true }, 48 },
    { { LW_MAP_E4M3, 8, 128, 128, LW_DTYPE_F32, false, 0, 0, false }, 200 }, /* blocks, the last short */
    { { LW_MAP_E4M3, 8, 128, 8, LW_DTYPE_BF16, false, 0, 0, false }, COLS },
    { { LW_MAP_E4M3, 8, 328, 0, LW_DTYPE_F32, false, 0, 0, false }, 328 },
    { { LW_MAP_E4M3, 8, 0, 0, LW_DTYPE_F32, false, 0, 0.013f, false }, 76 }, /* a scale for all */
    { { LW_MAP_BF16, 16, 0, 0, LW_DTYPE_F32, false, 0, 0, false }, 20 },
    { { LW_MAP_FP16, 16, 0, 0, LW_DTYPE_F32, false, 0, 0, false }, 77 },
    { { LW_MAP_FP32, 32, 0, 0, LW_DTYPE_F32, false, 0, 0, false }, 650 },
};
enum { CASES = sizeof cases / sizeof cases[0] };

/* Whether a table of it can be embedded from: the device refuses the others by name. */
static bool is_table(const lw_ops_form *f)
{
    return f->global <= 0 || !(f->has_bias || f->scale_type == LW_DTYPE_F32) || f->group == 0;
}

static void record_linears(bench *b, lw_rng *rng)
{
    lw_plan *p = &b->plan;
    lw_plan_entry_begin(p, "main");
    const lw_ref x = lw_plan_embed(p, dense(b, rng, VOCAB, COLS));
    for (size_t i = 0; i < CASES; i++) {
        const uint32_t shape[] = { ROWS, cases[i].cols };
        const lw_ref in = lw_plan_view(p, x, i % 2 * 2, cases[i].cols <= COLS - 2 ? cases[i].cols : COLS - 2);
        lw_plan_linear(p, cases[i].cols == COLS ? x : in, formed(b, rng, &cases[i].format, 1, shape),
                       i % 2 == 0 ? LW_TYPE_F32 : LW_TYPE_BF16);
    }
    const lw_ref wanted = lw_plan_take_wanted(p, x);
    lw_plan_entry_end(p, lw_plan_linear(p, wanted, dense(b, rng, VOCAB, COLS), LW_TYPE_F32));
}

typedef enum slip { NO_SLIP, NEIGHBOUR_ROW, NO_LAST_COLUMN, NO_GLOBAL_SCALE, SLIPS } slip;

static double linear_worst(const bench *b, const kept *k, const lw_op *op, lw_rng *rng, slip wrong)
{
    const lw_weight *w = &b->plan.weights[op->weights[0].index];
    const lw_value *v = &b->plan.values[op->out.index];
    const double global = lw_weight_global(w, 0);
    double most = 0;
    for (int n = 0; n < CHECKED; n++) {
        const spot at = { lw_rng_below(rng, LANES), lw_rng_below(rng, LENGTH), lw_rng_below(rng, w->rows) };
        const uint32_t row = (uint32_t)(at.column + (wrong == NEIGHBOUR_ROW)) % w->rows;
        const product_terms t = product_of(w, 0, row, held(b, k, op->in[0], at));
        meaning m = { t.sum, product_roundings(w) * REF_EPS_F32 * t.size, false };
        if (wrong == NO_LAST_COLUMN) m.value -= t.tail;
        if (wrong == NO_GLOBAL_SCALE) m.value /= global;
        most = fmax(most, error_of(v, held(b, k, op->out, at)[at.column], m));
    }
    return most;
}

static void check_linears(bool has_dpas)
{
    xpu_kind_set(has_dpas);
    lw_rng rng = law_rng(0x701);
    xpu_bench *x = xpu_bench_open(record_linears, &rng);
    bench *b = x->b;
    kept *alone = kept_make(b);
    streams_run(b, alone, &rng, 1, LENGTH, ALONE);
    for (uint32_t i = 0; i < b->plan.op_count; i++) {
        const lw_op *op = &b->plan.ops[i];
        if (op->kind != LW_OP_LINEAR || b->plan.values[op->out.index].space != LW_SPACE_ROWS) continue;
        const lw_weight *w = &b->plan.weights[op->weights[0].index];
        char name[32];
        lw_weight_format(w, name);
        const double error = linear_worst(b, alone, op, &rng, NO_SLIP);
        if (!(error <= 1)) fail_msg("%s, %u columns: %g of its bound", name, w->cols, error);
        for (slip wrong = NEIGHBOUR_ROW; wrong < SLIPS; wrong++) {
            const double global = lw_weight_global(w, 0);
            if (wrong == NO_GLOBAL_SCALE && !(global < 1) && !(global > 1)) continue;
            if (!(linear_worst(b, alone, op, &rng, wrong) > 1))
                fail_msg("%s, %u columns: planted mistake %d passes", name, w->cols, (int)wrong);
        }
    }
    check_law(b, &rng, alone);
    kept_free(b, alone);
    xpu_bench_close(x);
}

static void linears_keep_their_law_and_bounds(void **state)
{
    (void)state;
    check_linears(false);
}

static void linears_by_dpas_keep_their_law_and_bounds(void **state)
{
    (void)state;
    check_linears(true);
}

/* Where DPAS makes a sum its order is another, which shows unless all of it is exact, as it may be of a few
 * integers, or rounded to bf16; what bf16 does not hold is multiplied alike on both devices. */
static void the_weight_alone_says_who_multiplies(void **state)
{
    (void)state;
    xpu_bench *x[2];
    kept *k[2];
    lw_device *devices[2];
    for (int i = 0; i < 2; i++) {
        xpu_kind_set(i == 1);
        lw_rng rng = law_rng(0x703);
        x[i] = xpu_bench_open(record_linears, &rng);
        k[i] = kept_make(x[i]->b);
        streams_run(x[i]->b, k[i], &rng, 1, LENGTH, TOGETHER);
        assert_int_equal(lw_device_xpu.open(&x[i]->b->options, &devices[i], NULL), LW_OK);
    }
    const lw_plan *plan = &x[0]->b->plan;
    for (uint32_t i = 0; i < plan->op_count; i++) {
        const lw_op *op = &plan->ops[i];
        const lw_value *v = &plan->values[op->out.index];
        if (op->kind != LW_OP_LINEAR || v->space != LW_SPACE_ROWS) continue;
        const lw_weight *w = &plan->weights[op->weights[0].index];
        const bool is_wide = w->map == LW_MAP_FP16 || w->map == LW_MAP_FP32;
        for (int j = 0; j < 2; j++) {
            const uint32_t most = lw__xpu_pass(devices[j], w, LW_XPU_PRODUCT_LINEAR, LW_XPU_ROWS + 1).rows;
            assert_int_equal(most, j == 1 && !is_wide ? LW_XPU_ROWS_MANY : LW_XPU_ROWS);
            assert_int_equal(lw__xpu_pass(devices[j], w, LW_XPU_PRODUCT_LINEAR, LW_XPU_ROWS).rows,
                             LW_XPU_ROWS);
            assert_int_equal(lw__xpu_pass(devices[j], w, LW_XPU_PRODUCT_LINEAR, 1).rows, 1);
        }
        const bool has_fractions = w->map == LW_MAP_E4M3 || w->map == LW_MAP_BF16;
        if (!is_wide && (!has_fractions || v->type != LW_TYPE_F32)) continue;
        const size_t bytes = (size_t)LENGTH * v->width * sizeof(float);
        const float *common = (*k[0])[op->out.index][0], *by_dpas = (*k[1])[op->out.index][0];
        char name[32];
        lw_weight_format(w, name);
        if ((memcmp(common, by_dpas, bytes) == 0) != is_wide) fail_msg("%s, %u columns", name, w->cols);
    }
    for (int i = 0; i < 2; i++) lw_device_xpu.close(devices[i]);
    for (int i = 0; i < 2; i++) {
        kept_free(x[i]->b, k[i]);
        xpu_bench_close(x[i]);
    }
}

/* ---- embeddings ---- */

static void record_tables(bench *b, lw_rng *rng)
{
    lw_plan *p = &b->plan;
    lw_ref last = { LW_NONE };
    lw_plan_entry_begin(p, "main");
    for (size_t i = 0; i < CASES; i++) {
        const uint32_t shape[] = { VOCAB, cases[i].cols };
        if (!is_table(&cases[i].format)) continue;
        last = lw_plan_embed(p, formed(b, rng, &cases[i].format, 1, shape));
    }
    const uint32_t width = p->values[last.index].width;
    const lw_ref wanted = lw_plan_take_wanted(p, last);
    lw_plan_entry_end(p, lw_plan_linear(p, wanted, dense(b, rng, VOCAB, width), LW_TYPE_F32));
}

/* Whether got is a bf16 next to which none is closer to value. */
static bool is_nearest(float got, double value)
{
    const uint16_t bits = lw_bf16_of_float(got);
    const double off = fabs((double)got - value);
    return off <= fabs((double)lw_float_of_bf16((uint16_t)(bits + 1)) - value)
        && ((bits & 0x7FFFu) == 0 || off <= fabs((double)lw_float_of_bf16((uint16_t)(bits - 1)) - value));
}

static size_t embed_wrong(const bench *b, const kept *k, const lw_op *op, uint32_t shift)
{
    const lw_weight *w = &b->plan.weights[op->weights[0].index];
    double row[COLS];
    size_t wrong = 0;
    for (size_t position = 0; position < LENGTH; position++) {
        const spot at = { 1, position, 0 };
        lw_weight_row_f64(w, 0, (uint32_t)b->tokens[1][position], row);
        const float *got = held(b, k, op->out, at);
        for (uint32_t i = 0; i < w->cols; i++)
            wrong += is_nearest(got[i], row[(i + shift) % w->cols]) ? 0 : 1;
    }
    return wrong;
}

static void check_embeddings(bool has_dpas)
{
    xpu_kind_set(has_dpas);
    lw_rng rng = law_rng(0x702);
    xpu_bench *x = xpu_bench_open(record_tables, &rng);
    kept *k = kept_make(x->b);
    streams_run(x->b, k, &rng, 50, LENGTH, TOGETHER);
    for (uint32_t i = 0; i < x->b->plan.op_count; i++) {
        const lw_op *op = &x->b->plan.ops[i];
        if (op->kind != LW_OP_EMBED) continue;
        char name[32];
        lw_weight_format(&x->b->plan.weights[op->weights[0].index], name);
        if (embed_wrong(x->b, k, op, 0) > 0) fail_msg("%s: not the nearest bf16", name);
        if (embed_wrong(x->b, k, op, 1) == 0) fail_msg("%s: the next column passes", name);
    }
    kept_free(x->b, k);
    xpu_bench_close(x);
}

static void embeddings_are_rounded_once(void **state)
{
    (void)state;
    check_embeddings(false);
    check_embeddings(true);
}

/* ---- loading ---- */

enum { LONG_ROWS = 34000, LONG_COLS = 256, LONG_GROUP = 64, LONG_GROUPS = LONG_COLS / LONG_GROUP };

/* A table that fills the staging ring more than once. */
static void record_long(bench *b, lw_rng *rng)
{
    static const lw_ops_form form = { LW_MAP_INTEGER, 8, LONG_GROUP, 0, LW_DTYPE_BF16, true, 0, 0, false };
    lw_plan *p = &b->plan;
    const uint32_t shape[] = { LONG_ROWS, LONG_COLS };
    lw_plan_entry_begin(p, "main");
    const lw_ref x = lw_plan_embed(p, formed(b, rng, &form, 1, shape));
    lw_plan_entry_end(p, lw_plan_linear(p, lw_plan_take_wanted(p, x), dense(b, rng, VOCAB, LONG_COLS),
                                        LW_TYPE_F32));
}

/* Whether a row's codes and scales stand where the kernels look for them. */
static bool row_is_at(const lw_weight *w, uint32_t row, uint32_t place, const uint8_t *codes,
                      const uint16_t *scales)
{
    uint8_t own[LONG_COLS];
    float row_scales[LONG_GROUPS + 1], row_biases[LONG_GROUPS + 1];
    const size_t block = place / LW_XPU_LANES, lane = place % LW_XPU_LANES;
    bool is_at = true;
    lw_weight_codes8(w, 0, row, own);
    lw_weight_scales(w, 0, row, row_scales, row_biases);
    for (size_t k = 0; k < LONG_COLS; k++)
        is_at = is_at && codes[((block * LONG_COLS / 4 + k / 4) * LW_XPU_LANES + lane) * 4 + k % 4] == own[k];
    for (size_t g = 0; g < LONG_GROUPS; g++) {
        const uint16_t *pair = scales + ((block * LONG_GROUPS + g) * LW_XPU_LANES + lane) * 2;
        is_at = is_at && pair[0] == lw_bf16_of_float(row_scales[g]);
        is_at = is_at && pair[1] == lw_bf16_of_float(row_biases[g]);
    }
    return is_at;
}

static void long_tables_come_in_few_copies(void **state)
{
    (void)state;
    enum { BYTES = LONG_ROWS * (LONG_COLS + 4 * LONG_GROUPS), OTHERS = 8 };
    xpu_kind_set(false);
    lw_rng rng = law_rng(0x705);
    xpu_bench *x = xpu_bench_open(record_long, &rng);
    bench *b = x->b;
    lw_device_counts counts;
    streams_begin(b, NULL, &rng);
    b->table->read_counts(b->device, &counts);
    _Static_assert(BYTES > LW_XPU_STAGING_HALVES * LW_XPU_STAGING_BYTES, "each half is filled again");
    /* Words, scales and the end of each half of the ring; globals, the other matrix and the last wait. */
    assert_in_range(counts.commands, 3, 3 * (BYTES / LW_XPU_STAGING_BYTES + 1) + OTHERS);
    const lw_xpu_weight *weight = &b->exec->weights[b->plan.ops[0].weights[0].index];
    uint8_t *held_bytes = law_make(weight->memory.bytes, 1);
    const lw_status status =
        lw__xpu_download(b->device, held_bytes, weight->memory.at, weight->memory.bytes, NULL);
    assert_int_equal(status, LW_OK);
    const lw_weight *w = &b->plan.weights[b->plan.ops[0].weights[0].index];
    const uint16_t *scales = (const uint16_t *)(void *)(held_bytes + weight->matrix.words_bytes);
    for (uint32_t row = 0; row < LONG_ROWS; row++) {
        if (!row_is_at(w, row, row, held_bytes, scales)) fail_msg("row %u is not where it belongs", row);
    }
    assert_false(row_is_at(w, 0, LW_XPU_LANES, held_bytes, scales)); /* planted */
    free(held_bytes);
    streams_end(b);
    xpu_bench_close(x);
}

/* ---- refusals ---- */

static void refused(const lw_ops_form *f, uint32_t cols, bool embedded, const char *why)
{
    lw_rng rng = lw_rng_make(1);
    bench *b = law_make(1, sizeof *b);
    const xpu_paths paths = xpu_paths_find();
    const lw_device_options options = { .ze_loader = paths.loader, .xpu_kernels = paths.kernels };
    const uint32_t shape[] = { VOCAB, cols };
    lw_device *device = NULL;
    lw_exec *exec = NULL;
    lw_diag d = { "" };
    assert_int_equal(lw_plan_init(&b->plan, NULL), LW_OK);
    lw_plan_entry_begin(&b->plan, "main");
    const lw_wref first = embedded ? formed(b, &rng, f, 1, shape) : dense(b, &rng, VOCAB, cols);
    const lw_ref wanted = lw_plan_take_wanted(&b->plan, lw_plan_embed(&b->plan, first));
    const lw_wref last = embedded ? dense(b, &rng, VOCAB, cols) : formed(b, &rng, f, 1, shape);
    lw_plan_entry_end(&b->plan, lw_plan_linear(&b->plan, wanted, last, LW_TYPE_F32));
    const lw_weight *w = &b->plan.weights[(embedded ? first : last).index];
    /* The bytes are the plan's own, which a tensor borrows as if they were a checkpoint's. */
    if (f->map == LW_MAP_E4M3) ((uint8_t *)(uintptr_t)w->codes->bytes)[cols + 3] = 0x7F;
    assert_int_equal(lw_device_xpu.open(&options, &device, &d), LW_OK);
    const lw_exec_options sizes = { .rows_max = 8, .wanted_max = 8 };
    assert_int_not_equal(lw_device_xpu.compile(device, &b->plan, &sizes, &exec, &d), LW_OK);
    if (strstr(d.text, why) == NULL) fail_msg("\"%s\" lacks \"%s\"", d.text, why);
    lw_device_xpu.close(device);
    bench_free(b);
}

static void what_no_kernel_reads_is_named(void **state)
{
    (void)state;
    const xpu_paths paths = xpu_paths_find();
    xpu_need(paths.loader, "it is for x86-64; `make check` builds it");
    xpu_need_kernels(&paths);
    refused(&(lw_ops_form){ LW_MAP_INTEGER, 4, 20, 0, LW_DTYPE_BF16, true, 0, 0, false }, 40, true,
            "random is int4 group 20: the xpu device wants groups of a multiple of 8 columns");
    refused(&(lw_ops_form){ LW_MAP_INTEGER, 3, 16, 0, LW_DTYPE_BF16, true, 0, 0, false }, 64, false,
            "int3 group 16: the xpu device wants groups of a multiple of 32 columns");
    refused(&(lw_ops_form){ LW_MAP_E4M3, 8, 32, 0, LW_DTYPE_F32, false, 0, 0.5f, false }, 64, true,
            "the xpu device has embeddings without a global scale over fp32 scales or biases");
    refused(&(lw_ops_form){ LW_MAP_INTEGER, 8, 32, 0, LW_DTYPE_F8_E4M3, true, 0, 0, false }, 64, false,
            "scales of type F8_E4M3: the xpu device has BF16, F16, F32 and, without biases, F8_E4M3");
    refused(&(lw_ops_form){ LW_MAP_E4M3, 8, 32, 0, LW_DTYPE_F32, false, 0, 0, false }, 64, false,
            "row 1 of matrix 0 holds a code or scale that is no number");
    refused(&(lw_ops_form){ LW_MAP_FP32, 32, 0, 0, LW_DTYPE_F32, false, 0, 0, false }, 65600, false,
            "with 65600 columns: the xpu device has rows of up to 256 KiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linears_keep_their_law_and_bounds),
        cmocka_unit_test(linears_by_dpas_keep_their_law_and_bounds),
        cmocka_unit_test(the_weight_alone_says_who_multiplies),
        cmocka_unit_test(embeddings_are_rounded_once),
        cmocka_unit_test(long_tables_come_in_few_copies),
        cmocka_unit_test(what_no_kernel_reads_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
