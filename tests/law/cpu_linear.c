/* The row law and the numbers of the linear op, for every instruction set that this CPU has and every kind
 * of weight. LW_TEST_LONG in the environment runs every combination; without it a seeded sample of them.
 */
#include "linear_matter.h"
#include "linear_tables.h"
#include "../ref/ref_linear.h"

#include <fenv.h>
#include <math.h>

enum { SEED = 20240917, ROWS_ALL = 257, ROWS_CHECKED = 6, ROWS_SLICED = 33 };

/* ---- running ---- */

/* Rows of x, apart by a stride, with NaN in between: a kernel that reads past a row shows. */
typedef struct inputs {
    lw_bf16 *x;
    size_t stride;
    uint32_t rows, cols;
} inputs;

static inputs inputs_make(uint32_t rows, uint32_t cols, lw_rng *rng)
{
    inputs in = { .stride = cols + 5, .rows = rows, .cols = cols };
    in.x = must(rows * in.stride, sizeof *in.x);
    for (size_t i = 0; i < rows * in.stride; i++)
        in.x[i] = i % in.stride < cols ? lw_bf16_of_float(lw_rng_normal(rng)) : 0x7FC1;
    return in;
}

typedef struct call {
    const lw_cpu_kernels *kernels;
    const lw_cpu_weight *weight;
    uint32_t member;
    const lw_bf16 *x;
    size_t x_stride;
    uint32_t rows;
    unsigned parts;
    bool y_f32;
} call;

enum { Y_GAP = 3, Y_GUARD = 0xA5 };

/* y at a stride of weight rows + Y_GAP; what a kernel must not touch keeps its guard bytes. Runs in the
 * floating-point mode of an engine thread. */
static uint8_t *run(const call *c)
{
    const size_t item = c->y_f32 ? 4 : 2, columns = lw_cpu_weight_rows(c->weight), stride = columns + Y_GAP;
    const size_t bytes = lw_cpu_prepared_bytes(c->kernels, lw_cpu_weight_cols(c->weight), c->rows);
    uint8_t *const y = must(c->rows * stride, item);
    void *const prepared = aligned_alloc(64, bytes);
    assert_non_null(prepared);
    memset(prepared, 0xFF, bytes);
    memset(y, Y_GUARD, c->rows * stride * item);
    const lw_cpu_linear_args args = {
        .weight = c->weight, .member = c->member, .x = c->x, .x_stride = c->x_stride,
        .y = y, .y_stride = stride, .y_f32 = c->y_f32, .rows = c->rows, .prepared = prepared,
    };
    fenv_t mode;
    assert_int_equal(fegetenv(&mode), 0);
    if (c->kernels->thread_setup != NULL) c->kernels->thread_setup();
    for (unsigned part = c->parts; part-- > 0;) c->kernels->linear_prepare(&args, part, c->parts);
    for (unsigned part = c->parts; part-- > 0;) c->kernels->linear_run(&args, part, c->parts);
    assert_int_equal(fesetenv(&mode), 0);
    free(prepared);
    for (size_t r = 0; r < c->rows; r++)
        for (size_t i = columns * item; i < stride * item; i++)
            assert_int_equal(y[r * stride * item + i], Y_GUARD);
    return y;
}

static const uint32_t row_counts[] = { 1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 33, 64, ROWS_ALL };

static size_t row_bytes_of(const call *c)
{
    return (lw_cpu_weight_rows(c->weight) + Y_GAP) * (c->y_f32 ? 4 : 2);
}

/* The first of a call's `rows` rows, drawn from all in any order, whose bits are not those in alone; rows if
 * there is none. */
static uint32_t first_differing(const call *one, const inputs *in, const uint8_t *alone, uint32_t rows,
                                lw_rng *rng)
{
    const size_t row_bytes = row_bytes_of(one);
    call c = *one;
    c.rows = rows;
    c.parts = 1 + (unsigned)lw_rng_below(rng, 3);
    c.x_stride = in->cols + lw_rng_below(rng, 4);
    uint32_t *const drawn = must(rows, sizeof *drawn);
    lw_bf16 *const x = must(rows * c.x_stride, sizeof *x);
    for (uint32_t r = 0; r < rows; r++) {
        drawn[r] = rows == in->rows ? r : (uint32_t)lw_rng_below(rng, in->rows);
        memcpy(x + r * c.x_stride, in->x + drawn[r] * in->stride, in->cols * sizeof *x);
    }
    c.x = x;
    uint8_t *const y = run(&c);
    uint32_t row = 0;
    while (row < rows && memcmp(y + row * row_bytes, alone + drawn[row] * row_bytes, row_bytes) == 0) row++;
    free(y); free(x); free(drawn);
    return row;
}

static void check_company(const call *one, const inputs *in, const uint8_t *alone, uint32_t rows, lw_rng *rng)
{
    const uint32_t row = first_differing(one, in, alone, rows, rng);
    if (row < rows) fail_msg("%s: row %u of %u differs from the row alone", one->kernels->isa, row, rows);
}

static uint8_t *run_alone(const call *one, const inputs *in)
{
    const size_t row_bytes = row_bytes_of(one);
    uint8_t *const alone = must(in->rows, row_bytes);
    for (uint32_t r = 0; r < in->rows; r++) {
        call c = *one;
        c.x = in->x + r * in->stride;
        c.x_stride = in->stride;
        c.rows = 1;
        uint8_t *const y = run(&c);
        memcpy(alone + r * row_bytes, y, row_bytes);
        free(y);
    }
    return alone;
}

/* in with zeros for x in [begin, end): what lies there adds nothing to any sum. */
static inputs without(const inputs *in, uint32_t begin, uint32_t end)
{
    inputs out = *in;
    out.x = must(in->rows * in->stride, sizeof *out.x);
    memcpy(out.x, in->x, in->rows * in->stride * sizeof *out.x);
    for (uint32_t r = 0; r < in->rows; r++)
        memset(out.x + r * in->stride + begin, 0, (end - begin) * sizeof *out.x);
    return out;
}

/* Planted control of the row law: a twin whose chain depends on the row count. Alone it sums K in two slices,
 * at cut; in company it does not, and the comparison must tell. one stores fp32. */
static void check_sliced_twin(const call *one, const inputs *all, uint32_t cut, lw_rng *rng)
{
    inputs in = *all;
    in.rows = ROWS_SLICED;
    const inputs low = without(&in, cut, in.cols), high = without(&in, 0, cut);
    uint8_t *const sliced = run_alone(one, &low), *const rest = run_alone(one, &high);
    const size_t row_bytes = row_bytes_of(one);
    for (size_t i = 0; i < ROWS_SLICED * row_bytes / sizeof(float); i++) {
        if (i % (row_bytes / sizeof(float)) >= lw_cpu_weight_rows(one->weight)) continue;
        float sums[2];
        memcpy(&sums[0], sliced + i * sizeof(float), sizeof(float));
        memcpy(&sums[1], rest + i * sizeof(float), sizeof(float));
        sums[0] += sums[1];
        memcpy(sliced + i * sizeof(float), &sums[0], sizeof(float));
    }
    if (first_differing(one, &in, sliced, ROWS_SLICED, rng) == ROWS_SLICED)
        fail_msg("%s: rows that sum K in two slices when alone pass as equal", one->kernels->isa);
    free(sliced); free(rest); free(low.x); free(high.x);
}

static lw_cpu_weight *repacked(const lw_cpu_kernels *kernels, const lw_weight *weight)
{
    lw_diag d;
    lw_cpu_weight *out;
    const lw_status status = lw_cpu_weight_make(kernels, weight, NULL, &out, &d);
    if (status != LW_OK) fail_msg("%s", d.text);
    return out;
}

/* ---- numbers ---- */

/* Columns that an int8 x has a scale for: the weight's own group, in pieces of 128 where it is made of them
 * or too wide for the kernels. */
static uint32_t x_block_of(const kind *k) { return k->group % 128 == 0 || k->group > 256 ? 128 : k->group; }

/* The most fp32 roundings that one term passes: the chain of its group (a dot of two rounds twice a pair and
 * plane, so at most twice a k), the chain of sum_x, two steps a group, the product of scale or bias,
 * bias = -z * scale, the global scale and the product with it; a machine without fma rounds each product
 * besides. Groups above 256 are cut to 128. Of an int8 x the chain is exact, and so is the sum of its codes,
 * which are then multiplied by their scale. */
static double roundings_of(const kind *k)
{
    if (k->x_int8) return 2.0 * ceil((double)k->inputs / x_block_of(k)) + 8.0;
    const double group = k->group == 0 ? 64.0 : k->group > 256 ? 128.0 : (double)k->group;
    const double groups = ceil((double)k->inputs / group);
    return 2.0 * group + 2.0 * groups + 8.0;
}

static double y_at(const uint8_t *y, bool f32, size_t index)
{
    float value;
    uint16_t half;
    if (f32) memcpy(&value, y + index * 4, 4);
    else {
        memcpy(&half, y + index * 2, 2);
        value = lw_float_of_bf16(half);
    }
    return (double)value;
}

typedef struct numbers {
    double worst;     /* largest error as a share of its bound */
    double rms, rms_plain;
} numbers;

static ref_linear ref_of(const matter *m, const inputs *in, float *x)
{
    for (uint32_t r = 0; r < ROWS_CHECKED; r++)
        for (uint32_t k = 0; k < in->cols; k++)
            x[(size_t)r * in->cols + k] = lw_float_of_bf16(in->x[r * in->stride + k]);
    return (ref_linear){ .rows = ROWS_CHECKED,
                         .columns = m->kind.columns,
                         .inputs = m->kind.inputs,
                         .group = m->kind.group,
                         .x_block = m->kind.x_int8 ? x_block_of(&m->kind) : 0,
                         .x = x,
                         .codes = m->codes,
                         .scales = m->scales,
                         .biases = m->kind.bias == BIAS_NONE ? NULL : m->biases,
                         .global = lw_weight_global(&m->weight, 0) };
}

static numbers compare(const matter *m, const inputs *in, const uint8_t *y, bool f32, ref_mistake mistake)
{
    const size_t count = (size_t)ROWS_CHECKED * m->kind.columns;
    float *const x = must((size_t)ROWS_CHECKED * in->cols, sizeof *x);
    float *const plain = must(count, sizeof *plain);
    double *const want = must(count, sizeof *want), *const magnitude = must(count, sizeof *magnitude);
    const ref_linear l = ref_of(m, in, x);
    ref_linear_run(&l, mistake, want, magnitude);
    ref_linear_plain(&l, plain);
    numbers n = { 0 };
    for (size_t i = 0; i < count; i++) {
        const size_t r = i / m->kind.columns, c = i % m->kind.columns;
        const double error = fabs(y_at(y, f32, r * (m->kind.columns + Y_GAP) + c) - want[i]);
        const double bound = ref_linear_bound(want[i], magnitude[i], roundings_of(&m->kind),
                                              2.0 * m->kind.inputs,
                                              f32 ? 24 : 8);
        n.worst = fmax(n.worst, error / bound);
        n.rms += error * error;
        n.rms_plain += ((double)plain[i] - want[i]) * ((double)plain[i] - want[i]);
    }
    n.rms = sqrt(n.rms / (double)count);
    n.rms_plain = sqrt(n.rms_plain / (double)count);
    free(x); free(plain); free(want); free(magnitude);
    return n;
}

static bool can_make(const matter *m, ref_mistake mistake)
{
    if (mistake == REF_SWAPPED_HALVES) return true;
    if (mistake == REF_WHOLE_X || mistake == REF_WRONG_BLOCK) return m->kind.x_int8;
    if (mistake == REF_DROPPED_GROUP) return m->kind.inputs > 64;
    if (mistake == REF_NO_GLOBAL) return has_global(&m->kind);
    if (mistake == REF_WRONG_GROUP) return groups_of(&m->kind) > 1;
    return m->kind.group > 0 && m->kind.bias != BIAS_NONE;
}

static void check_numbers(const matter *m, const inputs *in, const uint8_t *y, bool f32)
{
    const numbers right = compare(m, in, y, f32, REF_RIGHT);
    if (!(right.worst <= 1.0)) fail_msg("an error is %.3g times its bound", right.worst);
    /* Codes from 0 up have at most twice the root mean square of the centred weights of a plain sum. */
    if (f32 && !(right.rms <= 2.0 * right.rms_plain))
        fail_msg("root mean square error %.3g, a plain fp32 sum gets %.3g", right.rms, right.rms_plain);
    for (ref_mistake mistake = REF_WRONG_GROUP; mistake < REF_MISTAKE_COUNT; mistake++) {
        if (!can_make(m, mistake)) continue;
        const numbers wrong = compare(m, in, y, f32, mistake);
        if (!(wrong.worst > 1.0))
            fail_msg("planted mistake %d stays within the bound (%.3g)", mistake, wrong.worst);
    }
}

/* ---- the matrix ---- */

static void check_kind(const linear_table *table, const kind *k, lw_rng *rng)
{
    matter m;
    matter_init(&m, k, rng);
    inputs in = inputs_make(ROWS_ALL, k->inputs, rng);
    lw_cpu_weight *const weight = repacked(&table->kernels, &m.weight);
    for (int f32 = 0; f32 < 2; f32++) {
        const call one = { .kernels = &table->kernels, .weight = weight, .rows = 1, .parts = 1,
            .y_f32 = f32 != 0 };
        uint8_t *const alone = run_alone(&one, &in);
        check_numbers(&m, &in, alone, f32 != 0);
        /* An int8 x is cut between two blocks: inside of one the halves would have other scales. */
        const uint32_t cut = k->x_int8 ? x_block_of(k) : k->inputs / 2 + 8;
        if (f32 != 0 && cut < k->inputs) check_sliced_twin(&one, &in, cut, rng);
        for (size_t i = 0; i < sizeof row_counts / sizeof row_counts[0]; i++)
            check_company(&one, &in, alone, row_counts[i], rng);
        free(alone);
    }
    lw_cpu_weight_free(weight);
    free(in.x);
    matter_deinit(&m);
}

static size_t add_integers(kind *kinds, size_t count)
{
    static const uint32_t bits[] = { 2, 3, 4, 5, 6, 8 }, groups[] = { 32, 64, 128 };
    static const lw_dtype types[] = { LW_DTYPE_BF16, LW_DTYPE_F16, LW_DTYPE_F32 };
    for (size_t b = 0; b < 6; b++)
        for (size_t g = 0; g < 3; g++)
            for (size_t t = 0; t < 3; t++)
                for (bias_kind bias = BIAS_STORED; bias <= BIAS_NONE; bias++)
                    kinds[count++] = (kind)KIND(LW_MAP_INTEGER, bits[b], groups[g], types[t], bias,
                                                .inputs = 3 * groups[g]);
    return count;
}

static size_t add_dense(kind *kinds, size_t count)
{
    static const uint32_t inputs_odd[] = { 301, 128, 65 };
    for (size_t i = 0; i < 3; i++) {
        kinds[count++] = (kind)KIND(LW_MAP_BF16, 16, 0, LW_DTYPE_F32, BIAS_NONE, .inputs = inputs_odd[i]);
        kinds[count++] = (kind)KIND(LW_MAP_FP16, 16, 0, LW_DTYPE_F32, BIAS_NONE, .inputs = inputs_odd[i]);
        kinds[count++] = (kind)KIND(LW_MAP_FP32, 32, 0, LW_DTYPE_F32, BIAS_NONE, .inputs = inputs_odd[i]);
    }
    return count;
}

/* Short floats, blocks, whole rows, short last groups, global scales: what formats make of these. */
static const kind format_kinds[] = {
    KIND(LW_MAP_E4M3, 8, 128, LW_DTYPE_F32, BIAS_NONE, .inputs = 384, .group_rows = 128),
    KIND(LW_MAP_E4M3, 8, 128, LW_DTYPE_BF16, BIAS_NONE, .inputs = 301, .group_rows = 7),
    KIND(LW_MAP_E4M3, 8, 64, LW_DTYPE_F16, BIAS_NONE, .inputs = 128, .global = 0.3f),
    KIND(LW_MAP_E4M3, 8, 320, LW_DTYPE_BF16, BIAS_NONE, .inputs = 320),
    KIND(LW_MAP_E4M3, 8, 100, LW_DTYPE_F32, BIAS_NONE, .inputs = 100),
    KIND(LW_MAP_E4M3, 8, 0, LW_DTYPE_F32, BIAS_NONE, .inputs = 301, .global = 0.037f),
    KIND(LW_MAP_TABLE16, 4, 16, LW_DTYPE_F8_E4M3, BIAS_NONE, .inputs = 304, .global = 0.25f),
    KIND(LW_MAP_TABLE16, 4, 16, LW_DTYPE_F8_E4M3, BIAS_NONE, .inputs = 240, .global = 3.0f, .divides = true),
    KIND(LW_MAP_TABLE16, 4, 32, LW_DTYPE_BF16, BIAS_NONE, .inputs = 144),
    KIND(LW_MAP_INTEGER, 4, 64, LW_DTYPE_F16, BIAS_PER_SCALE, .inputs = 168),
    KIND(LW_MAP_INTEGER, 4, 512, LW_DTYPE_BF16, BIAS_PER_SCALE, .inputs = 1024),
    KIND(LW_MAP_INTEGER, 8, 328, LW_DTYPE_BF16, BIAS_PER_SCALE, .inputs = 328),
};

static size_t add_formats(kind *kinds, size_t count)
{
    memcpy(kinds + count, format_kinds, sizeof format_kinds);
    return count + sizeof format_kinds / sizeof format_kinds[0];
}

static bool takes_int8(const kind *k) { return k->map == LW_MAP_INTEGER || k->map == LW_MAP_TABLE16; }

/* One table's kinds: all of them, or all formats and a sample of the others. */
static void check_kinds(const linear_table *table, bool x_int8, bool all, lw_rng *rng)
{
    kind kinds[200];
    const size_t sampled = add_integers(kinds, 0);
    const size_t count = add_formats(kinds, add_dense(kinds, sampled));
    size_t checked = 0;
    for (size_t i = 0; i < count; i++) {
        kind k = kinds[i];
        if (x_int8 && !takes_int8(&k)) continue;
        if (!all && i < sampled && lw_rng_below(rng, x_int8 ? 8 : 4) != 0) continue;
        k.x_int8 = x_int8;
        k.columns = 1 + (uint32_t)lw_rng_below(rng, 2 * 8 * table->kernels.block_cols);
        char text[96];
        describe(&k, text);
        if (all) printf("%s: %s\n", table->kernels.isa, text);
        check_kind(table, &k, rng);
        checked++;
    }
    printf("%s: %zu kinds%s\n", table->kernels.isa, checked, x_int8 ? ", x in int8" : "");
}

static void each_table(bool x_int8)
{
    const bool all = getenv("LW_TEST_LONG") != NULL;
    linear_table tables[LINEAR_TABLES_MAX];
    const size_t table_count = linear_tables(tables);
    lw_rng rng = lw_rng_make(SEED);
    printf("seed %d, %s\n", SEED, all ? "every kind" : "a sample of the kinds (LW_TEST_LONG runs all)");
    for (size_t t = 0; t < table_count; t++) {
        if (tables[t].can_run) check_kinds(&tables[t], x_int8, all, &rng);
        else printf("SKIPPED: this CPU has no %s\n", tables[t].kernels.isa);
    }
}

static void rows_together_are_rows_alone(void **state)
{
    (void)state;
    each_table(false);
}

static void rows_in_int8_are_rows_alone(void **state)
{
    (void)state;
    each_table(true);
}

/* ---- what a row holds stays in it ---- */

static const kind form_kinds[] = {
    KIND(LW_MAP_INTEGER, 2, 64, LW_DTYPE_F16, BIAS_STORED, .inputs = 192),
    KIND(LW_MAP_INTEGER, 3, 32, LW_DTYPE_BF16, BIAS_NONE, .inputs = 96),
    KIND(LW_MAP_INTEGER, 4, 64, LW_DTYPE_BF16, BIAS_STORED, .inputs = 192),
    KIND(LW_MAP_INTEGER, 5, 96, LW_DTYPE_F32, BIAS_STORED, .inputs = 288),
    KIND(LW_MAP_INTEGER, 6, 256, LW_DTYPE_F16, BIAS_PER_SCALE, .inputs = 512),
    KIND(LW_MAP_INTEGER, 8, 128, LW_DTYPE_F32, BIAS_STORED, .inputs = 384),
    KIND(LW_MAP_BF16, 16, 0, LW_DTYPE_F32, BIAS_NONE, .inputs = 301),
    KIND(LW_MAP_FP16, 16, 0, LW_DTYPE_F32, BIAS_NONE, .inputs = 128),
    KIND(LW_MAP_FP32, 32, 0, LW_DTYPE_F32, BIAS_NONE, .inputs = 65),
    KIND(LW_MAP_E4M3, 8, 128, LW_DTYPE_F32, BIAS_NONE, .inputs = 301, .group_rows = 4),
    KIND(LW_MAP_E4M3, 8, 0, LW_DTYPE_F32, BIAS_NONE, .inputs = 130, .global = 0.1f),
    KIND(LW_MAP_TABLE16, 4, 16, LW_DTYPE_F8_E4M3, BIAS_NONE, .inputs = 208, .global = 7.0f, .divides = true),
};
enum { FORM_KINDS = sizeof form_kinds / sizeof form_kinds[0] };

enum { ROWS_ODD = 72, BF16_NAN = 0x7FC1, BF16_INFINITY = 0x7F80, BF16_HUGE = 0x7F7F, BF16_MINUS = 0x8000 };

/* What row r gets; rows without an oddity are its neighbours on both sides. */
typedef enum oddity {
    ODD_NAN = 1, ODD_INFINITY = 3, ODD_INFINITIES = 5, ODD_SUBNORMAL = 7, ODD_HUGE = 9, ODD_ALL = 11,
    ODD_PERIOD = 12
} oddity;

static lw_bf16 odd_value(oddity odd, lw_rng *rng)
{
    const lw_bf16 sign = lw_rng_below(rng, 2) == 0 ? 0 : BF16_MINUS;
    switch (odd) {
    case ODD_NAN: return BF16_NAN | sign;
    case ODD_INFINITY: return BF16_INFINITY;
    case ODD_INFINITIES: return BF16_INFINITY | sign;
    case ODD_SUBNORMAL: return (lw_bf16)((1 + lw_rng_below(rng, 0x7F)) | sign);
    case ODD_HUGE: return BF16_HUGE | sign;
    case ODD_ALL: return (lw_bf16)(lw_rng_next(rng) & 0xFFFFu);
    case ODD_PERIOD: break;
    }
    return 0;
}

static void make_odd(inputs *in, lw_rng *rng)
{
    for (uint32_t r = 1; r < in->rows; r += 2) {
        const oddity odd = (oddity)(r % ODD_PERIOD);
        const bool everywhere = odd == ODD_SUBNORMAL || odd == ODD_HUGE || odd == ODD_ALL;
        const uint32_t count = everywhere ? in->cols : 1 + (odd == ODD_INFINITIES);
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t k = everywhere ? i : (uint32_t)lw_rng_below(rng, in->cols);
            in->x[r * in->stride + k] = odd_value(odd, rng);
        }
    }
}

/* A NaN reaches every column of its row as the one NaN, and none of a row without oddities. */
static void check_spread(const call *one, const uint8_t *alone)
{
    const uint32_t columns = lw_cpu_weight_rows(one->weight);
    for (size_t i = 0; i < (size_t)ROWS_ODD * columns; i++) {
        const size_t row = i / columns;
        const double y = y_at(alone + row * row_bytes_of(one), one->y_f32, i % columns);
        if (row % ODD_PERIOD == ODD_NAN) assert_true(isnan(y));
        if (row % 2 == 0) assert_true(isfinite(y));
    }
}

static void check_odd_rows(const linear_table *table, const kind *k, lw_rng *rng)
{
    static const uint32_t counts[] = { 2, 3, 5, 16, 31, ROWS_ODD };
    matter m;
    matter_init(&m, k, rng);
    inputs in = inputs_make(ROWS_ODD, k->inputs, rng);
    make_odd(&in, rng);
    lw_cpu_weight *const weight = repacked(&table->kernels, &m.weight);
    for (int f32 = 0; f32 < 2; f32++) {
        const call one = { .kernels = &table->kernels, .weight = weight, .rows = 1, .parts = 1,
            .y_f32 = f32 != 0 };
        uint8_t *const alone = run_alone(&one, &in);
        check_spread(&one, alone);
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
            check_company(&one, &in, alone, counts[i], rng);
        free(alone);
    }
    lw_cpu_weight_free(weight);
    free(in.x);
    matter_deinit(&m);
}

/* Runs check on one kind of every form, for every table that this CPU can run. */
static void each_form(void (*check)(const linear_table *table, const kind *k, lw_rng *rng))
{
    linear_table tables[LINEAR_TABLES_MAX];
    const size_t table_count = linear_tables(tables);
    lw_rng rng = lw_rng_make(SEED);
    for (size_t t = 0; t < table_count; t++) {
        if (!tables[t].can_run) {
            printf("SKIPPED: this CPU has no %s\n", tables[t].kernels.isa);
            continue;
        }
        for (size_t i = 0; i < FORM_KINDS; i++) {
            kind k = form_kinds[i];
            k.columns = 2 * tables[t].kernels.block_cols + 1 + (uint32_t)lw_rng_below(&rng, 40);
            check(&tables[t], &k, &rng);
            k.x_int8 = takes_int8(&k);
            if (k.x_int8) check(&tables[t], &k, &rng);
        }
    }
}

static void odd_values_stay_in_their_row(void **state)
{
    (void)state;
    each_form(check_odd_rows);
}

/* ---- stacks ---- */

enum { MEMBERS = 3 };

/* Whether member's y has the bits of its columns in the y of all members as one matrix. */
static bool is_member(const call *one, const uint8_t *y, const uint8_t *whole, uint32_t member, uint32_t rows)
{
    const size_t bytes = (size_t)lw_cpu_weight_rows(one->weight) * sizeof(float);
    const size_t gap = Y_GAP * sizeof(float), stride = bytes + gap, whole_stride = MEMBERS * bytes + gap;
    for (size_t r = 0; r < rows; r++)
        if (memcmp(y + r * stride, whole + r * whole_stride + member * bytes, bytes) != 0) return false;
    return true;
}

/* A stack's members against the same rows of the checkpoint as one matrix: a column's bits do not depend on
 * where it stands. */
static void check_stack(const linear_table *table, const kind *k, lw_rng *rng)
{
    static const uint32_t counts[] = { 1, 3, 17 };
    kind all = *k;
    const uint32_t each = group_rows_of(k), columns = (k->columns + each - 1) / each * each;
    all.columns = MEMBERS * columns;
    matter m;
    matter_init(&m, &all, rng);
    lw_weight stacked = m.weight;
    stacked.stack_count = MEMBERS;
    stacked.rows = columns;
    lw_cpu_weight *const matrix = repacked(&table->kernels, &m.weight);
    lw_cpu_weight *const stack = repacked(&table->kernels, &stacked);
    assert_int_equal(lw_cpu_weight_members(stack), MEMBERS);
    const inputs in = inputs_make(counts[2], k->inputs, rng);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        call c = { .kernels = &table->kernels, .weight = matrix, .x = in.x, .x_stride = in.stride,
            .rows = counts[i], .parts = 2, .y_f32 = true };
        uint8_t *const whole = run(&c);
        c.weight = stack;
        for (c.member = 0; c.member < MEMBERS; c.member++) {
            uint8_t *const y = run(&c);
            assert_true(is_member(&c, y, whole, c.member, c.rows));
            /* planted control: the next member's columns */
            assert_false(is_member(&c, y, whole, (c.member + 1) % MEMBERS, c.rows));
            free(y);
        }
        free(whole);
    }
    lw_cpu_weight_free(stack);
    lw_cpu_weight_free(matrix);
    free(in.x);
    matter_deinit(&m);
}

/* A stack of matrices in tensors of their own, each with its own global scale, against each by itself. */
static void check_gathered(const linear_table *table, const kind *k, lw_rng *rng)
{
    enum { ROWS_RUN = 5 };
    matter m[MEMBERS];
    lw_weight members[MEMBERS];
    lw_cpu_weight *alone[MEMBERS];
    for (uint32_t i = 0; i < MEMBERS; i++) {
        kind own = *k;
        if (has_global(k)) own.global = k->global * (1.0f + (float)i);
        matter_init(&m[i], &own, rng);
        members[i] = m[i].weight;
        alone[i] = repacked(&table->kernels, &members[i]);
    }
    lw_weight gathered = members[0];
    gathered.stack_count = MEMBERS;
    gathered.members = members;
    gathered.codes = gathered.scales = gathered.biases = NULL;
    lw_cpu_weight *const stack = repacked(&table->kernels, &gathered);
    const inputs in = inputs_make(ROWS_RUN, k->inputs, rng);
    call c = { .kernels = &table->kernels, .x = in.x, .x_stride = in.stride, .rows = ROWS_RUN, .parts = 2,
        .y_f32 = true };
    for (uint32_t i = 0; i < MEMBERS; i++) {
        c.weight = alone[i], c.member = 0;
        uint8_t *const own = run(&c);
        c.weight = stack, c.member = i;
        uint8_t *const member = run(&c);
        c.member = (i + 1) % MEMBERS;
        uint8_t *const other = run(&c);
        assert_memory_equal(member, own, ROWS_RUN * row_bytes_of(&c));
        assert_memory_not_equal(other, own, ROWS_RUN * row_bytes_of(&c)); /* planted control */
        free(own); free(member); free(other);
    }
    lw_cpu_weight_free(stack);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        lw_cpu_weight_free(alone[i]);
        matter_deinit(&m[i]);
    }
    free(in.x);
}

static void gathered_members_are_matrices_of_their_own(void **state)
{
    (void)state;
    each_form(check_gathered);
}

static void members_of_a_stack_are_matrices_of_their_own(void **state)
{
    (void)state;
    each_form(check_stack);
}

/* Their dots are whole numbers: nothing else of an int8 product depends on the set, where all have fma. */
static void int8_has_the_same_bits_on_every_set_with_fma(void **state)
{
    (void)state;
    linear_table tables[LINEAR_TABLES_MAX];
    const size_t table_count = linear_tables(tables);
    lw_rng rng = lw_rng_make(SEED);
    for (size_t i = 0; i < FORM_KINDS; i++) {
        kind k = form_kinds[i];
        if (!takes_int8(&k)) continue;
        k.x_int8 = true;
        k.columns = 77;
        matter m;
        matter_init(&m, &k, &rng);
        const inputs in = inputs_make(ROWS_SLICED, k.inputs, &rng);
        uint8_t *first = NULL;
        for (size_t t = 1; t < table_count; t++) {
            if (!tables[t].can_run) continue;
            lw_cpu_weight *const weight = repacked(&tables[t].kernels, &m.weight);
            const call c = { .kernels = &tables[t].kernels,
                             .weight = weight,
                             .x = in.x,
                             .x_stride = in.stride,
                             .rows = ROWS_SLICED,
                             .parts = 2,
                             .y_f32 = true };
            uint8_t *const y = run(&c);
            if (first != NULL) assert_memory_equal(y, first, ROWS_SLICED * row_bytes_of(&c));
            lw_cpu_weight_free(weight);
            free(first);
            first = y;
        }
        free(first);
        free(in.x);
        matter_deinit(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_together_are_rows_alone),
        cmocka_unit_test(rows_in_int8_are_rows_alone),
        cmocka_unit_test(int8_has_the_same_bits_on_every_set_with_fma),
        cmocka_unit_test(odd_values_stay_in_their_row),
        cmocka_unit_test(members_of_a_stack_are_matrices_of_their_own),
        cmocka_unit_test(gathered_members_are_matrices_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
