/* The row law and the FP64 bounds of the cpu device's row kernels: norm, elementwise ops, rope and gates.
 * Law: rows together in any number, at any strides and in any parts are the bits of each row alone.
 * Bounds: each is derived beside its op; eps is the unit roundoff of fp32, u that of bf16. Every check has a
 * twin that is wrong on purpose and must be caught.
 */
#include "cpu_law.h"
#include "../ref/ref_ops.h"

enum { PAD = 24 }; /* columns between rows, which no kernel may touch */

/* One op at one shape with random inputs of LAW_ROWS_MAX rows. */
typedef struct rows_case {
    const lw_cpu_kernels *kernels;
    size_t width, segment, heads, half, gates;
    lw_norm_scale scale;
    lw_bf16 *a, *b;             /* (rows, width) */
    float *w, *cosines, *sines; /* [segment], (rows, half) twice */
    lw_bf16 *alone;             /* (rows, width): each row by itself, in one part */
} rows_case;

/* Runs rows [first, first + rows) into y, rows apart by stride. */
typedef void rows_run(const rows_case *c, size_t first, size_t rows, unsigned parts, lw_bf16 *y,
                      size_t stride);

static void run_norm(const rows_case *c, size_t first, size_t rows, unsigned parts, lw_bf16 *y, size_t stride)
{
    const lw_cpu_norm_args args = {
        .x = c->a + first * c->width, .x_stride = c->width, .y = y, .y_stride = stride, .w = c->w,
        .rows = (uint32_t)rows, .width = (uint32_t)c->width, .segment = (uint32_t)c->segment, .eps = 1e-5f,
        .scale = c->scale,
    };
    LAW_RUN(c->kernels->rms_norm, &args, parts);
}

static lw_cpu_pair_args pair_args(const rows_case *c, size_t first, size_t rows, lw_bf16 *y, size_t stride)
{
    return (lw_cpu_pair_args){
        .a = c->a + first * c->width, .a_stride = c->width,
        .b = c->b + first * c->width, .b_stride = c->width,
        .y = y, .y_stride = stride, .rows = (uint32_t)rows, .width = (uint32_t)c->width,
    };
}

static void run_add(const rows_case *c, size_t first, size_t rows, unsigned parts, lw_bf16 *y, size_t stride)
{
    const lw_cpu_pair_args args = pair_args(c, first, rows, y, stride);
    LAW_RUN(c->kernels->add, &args, parts);
}

static void run_mul(const rows_case *c, size_t first, size_t rows, unsigned parts, lw_bf16 *y, size_t stride)
{
    const lw_cpu_pair_args args = pair_args(c, first, rows, y, stride);
    LAW_RUN(c->kernels->mul, &args, parts);
}

static void run_swiglu(const rows_case *c, size_t first, size_t rows, unsigned parts, lw_bf16 *y,
                       size_t stride)
{
    const lw_cpu_pair_args args = pair_args(c, first, rows, y, stride);
    LAW_RUN(c->kernels->swiglu, &args, parts);
}

static void run_rope(const rows_case *c, size_t first, size_t rows, unsigned parts, lw_bf16 *y, size_t stride)
{
    const lw_cpu_rope_args args = {
        .x = c->a + first * c->width, .x_stride = c->width, .y = y, .y_stride = stride,
        .cosines = c->cosines + first * c->half, .sines = c->sines + first * c->half, .rows = (uint32_t)rows,
        .heads = (uint32_t)c->heads, .head_dim = (uint32_t)(c->width / c->heads), .half = (uint32_t)c->half,
    };
    LAW_RUN(c->kernels->rope, &args, parts);
}

static void run_gate(const rows_case *c, size_t first, size_t rows, unsigned parts, lw_bf16 *y, size_t stride)
{
    const lw_cpu_gate_args args = {
        .x = c->a + first * c->width, .x_stride = c->width, .gate = c->b + first * c->width,
        .gate_stride = c->width, .y = y, .y_stride = stride, .rows = (uint32_t)rows,
        .width = (uint32_t)c->width, .gates = (uint32_t)c->gates,
    };
    LAW_RUN(c->kernels->head_gate, &args, parts);
}

static rows_case case_make(const lw_cpu_kernels *kernels, lw_rng *rng, size_t width, size_t heads)
{
    rows_case c = { .kernels = kernels, .width = width, .heads = heads, .gates = heads };
    c.segment = width / heads;
    c.half = c.segment / 2 - (c.segment > 40 ? 8 : 0);
    c.a = law_bf(rng, LAW_ROWS_MAX * width, 1.0f);
    c.b = law_bf(rng, LAW_ROWS_MAX * width, 3.0f);
    c.w = law_floats(rng, c.segment, 1.0f);
    c.cosines = law_floats(rng, LAW_ROWS_MAX * c.half, 1.0f);
    c.sines = law_floats(rng, LAW_ROWS_MAX * c.half, 1.0f);
    c.alone = law_make(LAW_ROWS_MAX * width, sizeof *c.alone);
    /* Segments of unlike size, so that a norm over the wrong columns shows. */
    for (size_t i = 0; i < LAW_ROWS_MAX * width; i++) {
        const float size = i / c.segment % 2 == 0 ? 1.0f : 4.0f;
        c.a[i] = lw_bf16_of_float(size * lw_float_of_bf16(c.a[i]));
    }
    return c;
}

static void case_free(rows_case *c)
{
    free(c->a);
    free(c->b);
    free(c->w);
    free(c->cosines);
    free(c->sines);
    free(c->alone);
}

/* The twin: the last column of a row that is not the first of its call comes from the row before. */
static void plant_stale_column(const rows_case *c, size_t rows, lw_bf16 *y, size_t stride)
{
    for (size_t row = rows; row-- > 1;) y[row * stride + c->width - 1] = y[(row - 1) * stride + c->width - 1];
}

/* True when rows [first, first + rows) in parts are the bits of the rows alone and the padding is
 * untouched. */
static bool rows_hold(const rows_case *c, rows_run *run, size_t first, size_t rows, unsigned parts,
                      bool planted)
{
    const size_t stride = c->width + PAD;
    lw_bf16 *y = law_make(rows * stride, sizeof *y);
    memset(y, 0xAB, rows * stride * sizeof *y);
    run(c, first, rows, parts, y, stride);
    if (planted) plant_stale_column(c, rows, y, stride);
    bool same = true;
    for (size_t row = 0; row < rows; row++) {
        const lw_bf16 *got = y + row * stride;
        same = same && memcmp(got, c->alone + (first + row) * c->width, c->width * sizeof *got) == 0;
        for (size_t i = c->width; i < stride; i++) same = same && got[i] == 0xABAB;
    }
    free(y);
    return same;
}

static void check_rows(rows_case *c, rows_run *run, lw_rng *rng)
{
    for (size_t row = 0; row < LAW_ROWS_MAX; row++) run(c, row, 1, 1, c->alone + row * c->width, c->width);
    for (size_t i = 0; i < LAW_ROWS_COUNT; i++) {
        for (unsigned parts = 1; parts <= LAW_PARTS_MAX; parts++) {
            const size_t first = lw_rng_below(rng, LAW_ROWS_MAX - law_rows[i] + 1);
            assert_true(rows_hold(c, run, first, law_rows[i], parts, false));
        }
    }
    assert_false(rows_hold(c, run, 0, LAW_ROWS_MAX, 1, true));
}

static rows_run *const runs[] = { run_norm, run_add, run_mul, run_swiglu, run_rope, run_gate };

static void law_of_isa(const lw_cpu_kernels *kernels)
{
    static const size_t shapes[][2] = { { 256, 2 }, { 90, 3 }, { 1, 1 }, { 17, 1 }, { 512, 4 }, { 2048, 1 } };
    const size_t count = sizeof shapes / sizeof shapes[0] - (law_long() ? 0 : 2);
    lw_rng rng = law_rng(0x201);
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < sizeof runs / sizeof runs[0]; j++) {
            rows_case c = case_make(kernels, &rng, shapes[i][0], shapes[i][1]);
            c.scale = (lw_norm_scale)(i % 3);
            check_rows(&c, runs[j], &rng);
            c.gates = c.width;
            if (runs[j] == run_gate) check_rows(&c, run_gate, &rng);
            case_free(&c);
        }
    }
}

static void rows_together_are_rows_alone(void **state)
{
    (void)state;
    law_each_isa(law_of_isa);
}

enum { TRUTH_ROWS = 24 };

static double *unpack(const lw_bf16 *x, size_t width)
{
    return law_doubles_of_bf(x, width * TRUTH_ROWS);
}

/* Two roundings to bf16 are relative to the result, (1 + u)^2 - 1 <= 2.01 u, one is u; the chain of squares,
 * its tree, the root, the division and the two products together stay within (width + 16) eps of it. */
static law_score truth_norm(const rows_case *c, size_t segment)
{
    law_score score = { 0 };
    lw_bf16 *y = law_make(TRUTH_ROWS * c->width, sizeof *y);
    double *x = unpack(c->a, c->width);
    double *w = law_make(c->width, sizeof *w), *want = law_make(c->width, sizeof *want);
    for (size_t i = 0; i < c->width; i++) w[i] = (double)c->w[i % c->segment];
    run_norm(c, 0, TRUTH_ROWS, 1, y, c->width);
    const double eps = ((double)c->segment + 16) * REF_EPS_F32;
    for (size_t row = 0; row < TRUTH_ROWS; row++) {
        const double *at = x + row * c->width;
        ref_rms_norm(&(ref_norm){ at, w, c->width, segment, (double)1e-5f, c->scale == LW_NORM_UNIT }, want);
        for (size_t i = 0; i < c->width; i++) {
            const double roundings = c->scale == LW_NORM_TWICE ? 2.01 : 1.01;
            const double bound = (roundings * REF_EPS_BF16 + eps) * fabs(want[i]) + REF_TINY_BF16;
            law_compare(&score, y[row * c->width + i], want[i], bound);
        }
    }
    free(y);
    free(x);
    free(w);
    free(want);
    return score;
}

static void truth_norm_of_isa(const lw_cpu_kernels *kernels)
{
    lw_rng rng = law_rng(0x202);
    for (int i = 0; i < 3; i++) {
        rows_case c = case_make(kernels, &rng, 512, 4);
        c.scale = (lw_norm_scale)i;
        const law_score right = truth_norm(&c, c.segment), wrong = truth_norm(&c, c.width);
        print_message("%s rms_norm: worst %.3f of its bound\n", kernels->isa, right.worst);
        assert_int_equal(right.over, 0);
        assert_true(wrong.over > wrong.count / 2); /* planted: one segment for the whole row */
        case_free(&c);
    }
}

typedef double pair_formula(double a, double b);
static double sum_of(double a, double b) { return a + b; }
static double product_of(double a, double b) { return a * b; }
static double swiglu_of(double a, double b) { return ref_silu(a) * b; }
static double swiglu_swapped(double a, double b) { return ref_silu(b) * a; }
static double gate_of(double a, double b) { return a * ref_sigmoid(b); }
static double gate_swapped(double a, double b) { return b * ref_sigmoid(a); }

/* One rounding to bf16 of a value that fp32 has within 8 eps: e^-|x| 4 (two ulp), 1 + e and the quotient 1
 * each, the products 2. A sum and a product of two bf16 need less. */
static double pair_bound(double want)
{
    return (REF_EPS_BF16 * 1.001 + 8 * REF_EPS_F32) * fabs(want) + REF_TINY_BF16;
}

static law_score truth_pair(const rows_case *c, rows_run *run, pair_formula *formula)
{
    law_score score = { 0 };
    lw_bf16 *y = law_make(TRUTH_ROWS * c->width, sizeof *y);
    run(c, 0, TRUTH_ROWS, 1, y, c->width);
    for (size_t i = 0; i < TRUTH_ROWS * c->width; i++) {
        const double a = (double)lw_float_of_bf16(c->a[i]), b = (double)lw_float_of_bf16(c->b[i]);
        const double want = formula(a, b);
        law_compare(&score, y[i], want, pair_bound(want));
    }
    free(y);
    return score;
}

/* One gate per head; planted: columns take the gates of heads in turn. */
static law_score truth_gate_heads(const rows_case *c, bool planted)
{
    law_score score = { 0 };
    lw_bf16 *y = law_make(TRUTH_ROWS * c->width, sizeof *y);
    run_gate(c, 0, TRUTH_ROWS, 1, y, c->width);
    for (size_t i = 0; i < TRUTH_ROWS * c->width; i++) {
        const size_t column = i % c->width, cols = c->width / c->gates;
        const size_t head = planted ? column % c->gates : column / cols;
        const double x = (double)lw_float_of_bf16(c->a[i]);
        const double want = x * ref_sigmoid((double)lw_float_of_bf16(c->b[i - column + head]));
        law_compare(&score, y[i], want, pair_bound(want));
    }
    free(y);
    return score;
}

static void truth_pairs_of_isa(const lw_cpu_kernels *kernels)
{
    static const struct { const char *name; rows_run *run; pair_formula *right, *wrong; } pairs[] = {
        { "add", run_add, sum_of, product_of },
        { "mul", run_mul, product_of, sum_of },
        { "swiglu", run_swiglu, swiglu_of, swiglu_swapped },
        { "head_gate", run_gate, gate_of, gate_swapped },
    };
    lw_rng rng = law_rng(0x203);
    rows_case c = case_make(kernels, &rng, 333, 1);
    c.gates = c.width;
    for (size_t i = 0; i < LAW_ROWS_MAX * c.width; i += 7) { /* far into both sides of the exponential */
        c.a[i] = lw_bf16_of_float(30.0f * lw_float_of_bf16(c.a[i]));
        c.b[i] = lw_bf16_of_float(8.0f * lw_float_of_bf16(c.b[i]));
    }
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        const law_score right = truth_pair(&c, pairs[i].run, pairs[i].right);
        const law_score wrong = truth_pair(&c, pairs[i].run, pairs[i].wrong);
        print_message("%s %s: worst %.3f of its bound\n", kernels->isa, pairs[i].name, right.worst);
        assert_int_equal(right.over, 0);
        assert_true(wrong.over > wrong.count / 2);
    }
    case_free(&c);
    c = case_make(kernels, &rng, 264, 3);
    assert_int_equal(truth_gate_heads(&c, false).over, 0);
    assert_true(truth_gate_heads(&c, true).over > TRUTH_ROWS * c.width / 3);
    case_free(&c);
}

/* Two products and a sum, one eps each on what was summed: 2.01 eps; then one rounding to bf16. */
static law_score truth_rope(const rows_case *c, bool neighbours)
{
    law_score score = { 0 };
    const size_t dim = c->width / c->heads;
    lw_bf16 *y = law_make(TRUTH_ROWS * c->width, sizeof *y);
    double want[256], sizes[256], turned[256], cosines[128], sines[128];
    run_rope(c, 0, TRUTH_ROWS, 1, y, c->width);
    for (size_t at = 0; at < TRUTH_ROWS * c->heads; at++) {
        const size_t row = at / c->heads, begin = row * c->width + at % c->heads * dim;
        for (size_t i = 0; i < dim; i++) {
            const size_t pair = i < c->half ? 2 * i : 2 * (i - c->half) + 1;
            const size_t from = neighbours && i < 2 * c->half ? pair : i;
            turned[i] = (double)lw_float_of_bf16(c->a[begin + from]);
        }
        for (size_t i = 0; i < c->half; i++) {
            cosines[i] = (double)c->cosines[row * c->half + i];
            sines[i] = (double)c->sines[row * c->half + i];
        }
        ref_rope(&(ref_turn){ turned, cosines, sines, dim, c->half }, want, sizes);
        for (size_t i = 0; i < dim; i++) {
            const double size = 2.01 * REF_EPS_F32 * sizes[i];
            const double bound = size + REF_EPS_BF16 * (fabs(want[i]) + size) + REF_TINY_BF16;
            law_compare(&score, y[begin + i], want[i], i < 2 * c->half ? bound : REF_TINY_BF16);
        }
    }
    free(y);
    return score;
}

static void truth_rope_of_isa(const lw_cpu_kernels *kernels)
{
    lw_rng rng = law_rng(0x204);
    rows_case c = case_make(kernels, &rng, 512, 4);
    const law_score right = truth_rope(&c, false), wrong = truth_rope(&c, true);
    print_message("%s rope: worst %.3f of its bound\n", kernels->isa, right.worst);
    assert_int_equal(right.over, 0);
    assert_true(wrong.over > wrong.count / 2); /* planted: neighbours paired */
    case_free(&c);
}

static void norms_meet_fp64(void **state)
{
    (void)state;
    law_each_isa(truth_norm_of_isa);
}

static void pairs_meet_fp64(void **state)
{
    (void)state;
    law_each_isa(truth_pairs_of_isa);
}

static void rope_meets_fp64(void **state)
{
    (void)state;
    law_each_isa(truth_rope_of_isa);
}

static float gate_by(const lw_cpu_kernels *kernels, float gate)
{
    lw_bf16 x = lw_bf16_of_float(1.0f), g = lw_bf16_of_float(gate), y = 0;
    const lw_cpu_gate_args args = { .x = &x, .gate = &g, .y = &y, .rows = 1, .width = 1, .gates = 1 };
    kernels->head_gate(&args, 0, 1);
    return lw_float_of_bf16(y);
}

static float swiglu_by(const lw_cpu_kernels *kernels, float gate)
{
    lw_bf16 up = lw_bf16_of_float(1.0f), g = lw_bf16_of_float(gate), y = 0;
    const lw_cpu_pair_args args = { .a = &g, .b = &up, .y = &y, .rows = 1, .width = 1 };
    kernels->swiglu(&args, 0, 1);
    return lw_float_of_bf16(y);
}

static void edges_of_isa(const lw_cpu_kernels *kernels)
{
    assert_true(gate_by(kernels, INFINITY) == 1.0f);
    assert_true(gate_by(kernels, -INFINITY) == 0.0f);
    assert_true(gate_by(kernels, 1e30f) == 1.0f);
    assert_true(gate_by(kernels, -1e30f) == 0.0f);
    assert_true(gate_by(kernels, 0.0f) == 0.5f);
    assert_true(isnan(gate_by(kernels, NAN)));
    assert_true(swiglu_by(kernels, INFINITY) == INFINITY);
    assert_true(swiglu_by(kernels, -INFINITY) == 0.0f);
    assert_true(swiglu_by(kernels, -1e30f) == 0.0f);
    assert_true(isnan(swiglu_by(kernels, NAN)));
}

static void sigmoids_are_sane_at_the_edges(void **state)
{
    (void)state;
    law_each_isa(edges_of_isa);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_together_are_rows_alone),
        cmocka_unit_test(norms_meet_fp64),
        cmocka_unit_test(pairs_meet_fp64),
        cmocka_unit_test(rope_meets_fp64),
        cmocka_unit_test(sigmoids_are_sane_at_the_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
