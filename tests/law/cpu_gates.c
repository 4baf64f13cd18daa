/* The row law and the FP64 bounds of the ops that not every family has: gated norms, squared relu, biases,
 * the fp32 residual and column copies. Law, bounds and planted twins as in cpu_rows.c; the rows that go in
 * stand at odd strides too.
 */
#include "cpu_law.h"
#include "../ref/ref_ops.h"
#include "device/cpu/plain.h"

enum { PAD = 24, ROOM = 3 }; /* columns between output rows, which no op may touch, and between input rows */

/* One op at one shape with random inputs of LAW_ROWS_MAX rows. */
typedef struct gate_case {
    const lw_cpu_kernels *kernels;
    size_t width, segment, stride;
    bool own_weights, gate_first;
    lw_bf16 *a, *b;             /* (rows, stride) */
    float *wide, *w;            /* (rows, stride), [stride] */
    uint8_t *alone;             /* each row by itself in one part, with no room between rows */
} gate_case;

/* Runs rows [first, first + rows) into y, rows apart by stride elements. */
typedef void gate_run(const gate_case *c, size_t first, size_t rows, unsigned parts, void *y, size_t stride);

static void run_norm_gate(const gate_case *c, size_t first, size_t rows, unsigned parts, void *y,
                          size_t stride)
{
    const lw_cpu_norm_gate_args args = {
        .x = c->a + first * c->stride, .x_stride = c->stride, .gate = c->b + first * c->stride,
        .gate_stride = c->stride, .y = y, .y_stride = stride, .w = c->w, .rows = (uint32_t)rows,
        .width = (uint32_t)c->width, .segment = (uint32_t)c->segment, .eps = 1e-5f,
        .own_weights = c->own_weights, .gate_first = c->gate_first,
    };
    LAW_RUN(c->kernels->norm_gate, &args, parts);
}

static void run_norm_wide(const gate_case *c, size_t first, size_t rows, unsigned parts, void *y,
                          size_t stride)
{
    const lw_cpu_norm_args args = {
        .x_wide = c->wide + first * c->stride, .x_stride = c->stride, .y = y, .y_stride = stride, .w = c->w,
        .rows = (uint32_t)rows, .width = (uint32_t)c->width, .segment = (uint32_t)c->segment, .eps = 1e-5f,
    };
    LAW_RUN(c->kernels->rms_norm, &args, parts);
}

static lw_cpu_each_args each_args(const gate_case *c, size_t first, size_t rows, size_t stride)
{
    return (lw_cpu_each_args){
        .x = c->a + first * c->stride, .x_stride = c->stride, .x_wide = c->wide + first * c->stride,
        .x_wide_stride = c->stride, .y_stride = stride, .w = c->w, .rows = (uint32_t)rows,
        .width = (uint32_t)c->width,
    };
}

static void run_relu2(const gate_case *c, size_t first, size_t rows, unsigned parts, void *y, size_t stride)
{
    lw_cpu_each_args args = each_args(c, first, rows, stride);
    args.y = y;
    LAW_RUN(lw__cpu_relu2, &args, parts);
}

static void run_bias(const gate_case *c, size_t first, size_t rows, unsigned parts, void *y, size_t stride)
{
    lw_cpu_each_args args = each_args(c, first, rows, stride);
    args.y = y;
    LAW_RUN(lw__cpu_bias, &args, parts);
}

static void run_widen(const gate_case *c, size_t first, size_t rows, unsigned parts, void *y, size_t stride)
{
    lw_cpu_each_args args = each_args(c, first, rows, stride);
    args.y_wide = y;
    LAW_RUN(lw__cpu_widen, &args, parts);
}

static void run_add_wide(const gate_case *c, size_t first, size_t rows, unsigned parts, void *y,
                         size_t stride)
{
    lw_cpu_each_args args = each_args(c, first, rows, stride);
    args.y_wide = y;
    LAW_RUN(lw__cpu_add_wide, &args, parts);
}

/* Each segment turned by one column: two copies of columns, as take_heads and concat make them. */
static void run_columns(const gate_case *c, size_t first, size_t rows, unsigned parts, void *y, size_t stride)
{
    const uint32_t segment = (uint32_t)c->segment;
    lw_cpu_columns_args args = {
        .x = c->a + first * c->stride, .x_stride = c->stride, .y = y, .y_stride = stride,
        .rows = (uint32_t)rows, .heads = (uint32_t)(c->width / segment), .head_stride = segment, .width = 1,
    };
    LAW_RUN(lw__cpu_columns, &args, parts);
    args.y += args.heads;
    args.x++;
    args.width = segment - 1;
    LAW_RUN(lw__cpu_columns, &args, parts);
}

static const struct { gate_run *run; size_t item_bytes; } runs[] = {
    { run_norm_gate, 2 }, { run_norm_wide, 2 }, { run_relu2, 2 }, { run_bias, 2 },
    { run_widen, 4 },     { run_add_wide, 4 },  { run_columns, 2 },
};
enum { RUNS = sizeof runs / sizeof runs[0] };

static gate_case case_make(const lw_cpu_kernels *kernels, lw_rng *rng, size_t width, size_t segments)
{
    gate_case c = { .kernels = kernels, .width = width, .segment = width / segments, .stride = width + ROOM };
    c.a = law_bf(rng, LAW_ROWS_MAX * c.stride, 2.0f);
    c.b = law_bf(rng, LAW_ROWS_MAX * c.stride, 3.0f);
    c.wide = law_floats(rng, LAW_ROWS_MAX * c.stride, 2.0f);
    c.w = law_floats(rng, c.stride, 1.0f);
    /* Segments of unlike size, so that a norm over the wrong columns shows. */
    for (size_t i = 0; i < LAW_ROWS_MAX * c.stride; i++) {
        const float size = i % c.stride / c.segment % 2 == 0 ? 1.0f : 4.0f;
        c.a[i] = lw_bf16_of_float(size * lw_float_of_bf16(c.a[i]));
        c.wide[i] *= size;
    }
    return c;
}

static void case_free(gate_case *c)
{
    free(c->a);
    free(c->b);
    free(c->wide);
    free(c->w);
}

/* True when rows [first, first + rows) in parts are the bits of the rows alone, which follow one another, and
 * the padding is untouched; planted: the last row is the one before it. */
static bool rows_hold(const gate_case *c, size_t op, size_t first, size_t rows, unsigned parts, bool planted)
{
    const size_t stride = c->width + PAD, item = runs[op].item_bytes, row_bytes = c->width * item;
    uint8_t *y = law_make(rows * stride, item);
    memset(y, 0xAB, rows * stride * item);
    runs[op].run(c, first, rows, parts, y, stride);
    if (planted) memcpy(y + (rows - 1) * stride * item, y + (rows - 2) * stride * item, row_bytes);
    bool same = true;
    for (size_t row = 0; row < rows; row++) {
        const uint8_t *got = y + row * stride * item;
        same = same && memcmp(got, c->alone + (first + row) * row_bytes, row_bytes) == 0;
        for (size_t i = row_bytes; i < stride * item; i++) same = same && got[i] == 0xAB;
    }
    free(y);
    return same;
}

static void check_rows(gate_case *c, size_t op, lw_rng *rng)
{
    const size_t row_bytes = c->width * runs[op].item_bytes;
    c->alone = law_make(LAW_ROWS_MAX, row_bytes);
    for (size_t row = 0; row < LAW_ROWS_MAX; row++) {
        runs[op].run(c, row, 1, 1, c->alone + row * row_bytes, c->width);
    }
    for (size_t i = 0; i < LAW_ROWS_COUNT; i++) {
        for (unsigned parts = 1; parts <= LAW_PARTS_MAX; parts++) {
            const size_t first = lw_rng_below(rng, LAW_ROWS_MAX - law_rows[i] + 1);
            assert_true(rows_hold(c, op, first, law_rows[i], parts, false));
        }
    }
    assert_false(rows_hold(c, op, 0, LAW_ROWS_MAX, 1, true));
    free(c->alone);
}

static void law_of_isa(const lw_cpu_kernels *kernels)
{
    static const size_t shapes[][2] = { { 256, 2 }, { 90, 3 }, { 34, 2 }, { 17, 1 }, { 512, 4 }, { 999, 1 } };
    const size_t count = sizeof shapes / sizeof shapes[0] - (law_long() ? 0 : 2);
    lw_rng rng = law_rng(0x401);
    for (size_t i = 0; i < count; i++) {
        gate_case c = case_make(kernels, &rng, shapes[i][0], shapes[i][1]);
        for (size_t op = 0; op < RUNS; op++) {
            c.own_weights = i % 2 == 1;
            c.gate_first = false;
            check_rows(&c, op, &rng);
            c.gate_first = true;
            if (runs[op].run == run_norm_gate) check_rows(&c, op, &rng);
        }
        case_free(&c);
    }
}

static void rows_together_are_rows_alone(void **state)
{
    (void)state;
    law_each_isa(law_of_isa);
}

enum { TRUTH_ROWS = 24 };

/* What a reference gets wrong. */
typedef enum plant { PLANT_NONE, PLANT_ORDER, PLANT_WEIGHTS, PLANT_SEGMENT, PLANTS } plant;

/* The root mean square and the products stay within (segment + 16) eps as in rms_norm, silu within 8 and its
 * product 1, where it comes first in both x and the squares' root: (segment + 48) eps in all. Either
 * rounds to bf16 once. */
static law_score truth_norm_gate(const gate_case *c, plant planted)
{
    law_score score = { 0 };
    const size_t width = c->width;
    lw_bf16 *y = law_make(TRUTH_ROWS * width, sizeof *y);
    double *w = law_make(width, sizeof *w), *want = law_make(width, sizeof *want);
    const bool own = c->own_weights != (planted == PLANT_WEIGHTS);
    for (size_t i = 0; i < width; i++) w[i] = (double)c->w[own ? i : i % c->segment];
    run_norm_gate(c, 0, TRUTH_ROWS, 2, y, width);
    const double rounding = 1.001 * REF_EPS_BF16;
    for (size_t row = 0; row < TRUTH_ROWS; row++) {
        double *x = law_doubles_of_bf(c->a + row * c->stride, width);
        double *gate = law_doubles_of_bf(c->b + row * c->stride, width);
        const size_t segment = planted == PLANT_SEGMENT ? width : c->segment;
        const bool first = c->gate_first != (planted == PLANT_ORDER);
        ref_gated_norm(&(ref_norm_gate){ x, gate, w, width, segment, (double)1e-5f, first }, want);
        for (size_t i = 0; i < width; i++) {
            const double eps = ((double)c->segment + 48) * REF_EPS_F32;
            const double bound = (rounding + eps) * fabs(want[i]) + REF_TINY_BF16;
            law_compare(&score, y[row * width + i], want[i], bound);
        }
        free(x);
        free(gate);
    }
    free(y);
    free(w);
    free(want);
    return score;
}

static void norm_gate_of_isa(const lw_cpu_kernels *kernels)
{
    lw_rng rng = law_rng(0x402);
    gate_case c = case_make(kernels, &rng, 510, 3);
    for (int i = 0; i < 4; i++) {
        c.gate_first = i % 2 == 1;
        c.own_weights = i / 2 == 1;
        const law_score right = truth_norm_gate(&c, PLANT_NONE);
        print_message("%s norm_gate: worst %.3f of its bound\n", kernels->isa, right.worst);
        assert_int_equal(right.over, 0);
        for (plant planted = PLANT_ORDER; planted < PLANTS; planted++) {
            assert_true(truth_norm_gate(&c, planted).over > right.count / 3);
        }
    }
    case_free(&c);
}

/* As rms_norm over bf16; planted: one segment for the whole row. */
static law_score truth_norm_wide(const gate_case *c, size_t segment)
{
    law_score score = { 0 };
    const size_t width = c->width;
    lw_bf16 *y = law_make(TRUTH_ROWS * width, sizeof *y);
    double *w = law_make(width, sizeof *w), *want = law_make(width, sizeof *want);
    for (size_t i = 0; i < width; i++) w[i] = (double)c->w[i % c->segment];
    run_norm_wide(c, 0, TRUTH_ROWS, 2, y, width);
    for (size_t row = 0; row < TRUTH_ROWS; row++) {
        double *x = law_doubles(c->wide + row * c->stride, width);
        ref_rms_norm(&(ref_norm){ x, w, width, segment, (double)1e-5f, false }, want);
        for (size_t i = 0; i < width; i++) {
            const double eps = ((double)c->segment + 16) * REF_EPS_F32;
            const double bound = (2.01 * REF_EPS_BF16 + eps) * fabs(want[i]) + REF_TINY_BF16;
            law_compare(&score, y[row * width + i], want[i], bound);
        }
        free(x);
    }
    free(y);
    free(w);
    free(want);
    return score;
}

/* A residual narrowed to bf16 on the way in must not pass for the fp32 one. */
static bool norm_sees_wide(const gate_case *c)
{
    lw_bf16 *y = law_make(c->width, sizeof *y), *narrowed = law_make(c->width, sizeof *y);
    run_norm_wide(c, 0, 1, 1, y, c->width);
    for (size_t i = 0; i < c->width; i++) c->wide[i] = lw_float_of_bf16(lw_bf16_of_float(c->wide[i]));
    run_norm_wide(c, 0, 1, 1, narrowed, c->width);
    const bool seen = memcmp(y, narrowed, c->width * sizeof *y) != 0;
    free(y);
    free(narrowed);
    return seen;
}

static void norm_wide_of_isa(const lw_cpu_kernels *kernels)
{
    lw_rng rng = law_rng(0x403);
    gate_case c = case_make(kernels, &rng, 510, 3);
    const law_score right = truth_norm_wide(&c, c.segment), wrong = truth_norm_wide(&c, c.width);
    print_message("%s rms_norm of fp32: worst %.3f of its bound\n", kernels->isa, right.worst);
    assert_int_equal(right.over, 0);
    assert_true(wrong.over > wrong.count / 2);
    assert_true(norm_sees_wide(&c));
    case_free(&c);
}

static void norms_meet_fp64(void **state)
{
    (void)state;
    law_each_isa(norm_gate_of_isa);
    law_each_isa(norm_wide_of_isa);
}

/* Exact in double where nothing is rounded, else once: to bf16 after fp32, or to fp32. */
typedef double each_formula(double a, double wide, double w);
static double relu2_of(double a, double wide, double w) { (void)wide; (void)w; return a < 0 ? 0 : a * a; }
static double square_of(double a, double wide, double w) { (void)wide; (void)w; return a * a; }
static double bias_of(double a, double wide, double w) { (void)a; return wide + w; }
static double unbiased_of(double a, double wide, double w) { (void)a; (void)w; return wide; }
static double widen_of(double a, double wide, double w) { (void)wide; (void)w; return a; }
static double negated_of(double a, double wide, double w) { (void)wide; (void)w; return -a; }
static double add_of(double a, double wide, double w) { (void)w; return wide + a; }
static double add_narrow(double a, double wide, double w)
{
    (void)w;
    return (double)lw_float_of_bf16(lw_bf16_of_float((float)(wide + a)));
}

typedef struct each_truth {
    gate_run *run;
    size_t item_bytes;
    double eps;                 /* of the result */
    each_formula *right, *wrong;
} each_truth;

static size_t each_over(const gate_case *c, const each_truth *t, each_formula *formula)
{
    uint8_t *y = law_make(TRUTH_ROWS * c->width, t->item_bytes);
    size_t over = 0;
    t->run(c, 0, TRUTH_ROWS, 2, y, c->width);
    for (size_t i = 0; i < TRUTH_ROWS * c->width; i++) {
        const size_t at = i / c->width * c->stride + i % c->width;
        const double want = formula((double)lw_float_of_bf16(c->a[at]), (double)c->wide[at],
                                    (double)c->w[i % c->width]);
        const float *wide = (const void *)y;
        const lw_bf16 *half = (const void *)y;
        const double got = (double)(t->item_bytes == 4 ? wide[i] : lw_float_of_bf16(half[i]));
        if (!(fabs(got - want) <= t->eps * fabs(want) + (t->eps > 0 ? REF_TINY_BF16 : 0))) over++;
    }
    free(y);
    return over;
}

static void elementwise_ops_meet_fp64(void **state)
{
    (void)state;
    static const each_truth truths[] = {
        { run_relu2, 2, 1.001 * REF_EPS_BF16, relu2_of, square_of },
        { run_bias, 2, 1.001 * REF_EPS_BF16, bias_of, unbiased_of },
        { run_widen, 4, 0, widen_of, negated_of },
        { run_add_wide, 4, REF_EPS_F32, add_of, add_narrow },
    };
    lw_rng rng = law_rng(0x404);
    gate_case c = case_make(lw_cpu_available()[0], &rng, 333, 1);
    for (size_t i = 0; i < sizeof truths / sizeof truths[0]; i++) {
        assert_int_equal(each_over(&c, &truths[i], truths[i].right), 0);
        assert_true(each_over(&c, &truths[i], truths[i].wrong) > TRUTH_ROWS * c.width / 3);
    }
    case_free(&c);
}

static void columns_go_where_they_belong(void **state)
{
    (void)state;
    lw_rng rng = law_rng(0x405);
    gate_case c = case_make(lw_cpu_available()[0], &rng, 90, 3);
    lw_bf16 *y = law_make(TRUTH_ROWS * c.width, sizeof *y);
    run_columns(&c, 0, TRUTH_ROWS, 2, y, c.width);
    for (size_t i = 0; i < TRUTH_ROWS * c.width; i++) {
        const size_t column = i % c.width, rest = c.segment - 1, at = column - 3;
        const size_t from = column < 3 ? column * c.segment : at / rest * c.segment + 1 + at % rest;
        assert_int_equal(y[i], c.a[i / c.width * c.stride + from]);
    }
    free(y);
    case_free(&c);
}

static void a_nan_stays_one(void **state)
{
    (void)state;
    lw_bf16 x[3] = { lw_bf16_of_float(NAN), lw_bf16_of_float(-INFINITY), lw_bf16_of_float(INFINITY) }, y[3];
    const lw_cpu_each_args args = { .x = x, .y = y, .rows = 1, .width = 3 };
    lw__cpu_relu2(&args, 0, 1);
    assert_true(isnan(lw_float_of_bf16(y[0])));
    assert_int_equal(y[1], 0);
    assert_true(lw_float_of_bf16(y[2]) == INFINITY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_together_are_rows_alone), cmocka_unit_test(norms_meet_fp64),
        cmocka_unit_test(elementwise_ops_meet_fp64),    cmocka_unit_test(columns_go_where_they_belong),
        cmocka_unit_test(a_nan_stays_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
