/* Repacked weights: single rows are the exact values rounded once, whatever the layout; what is not served
 * is refused by name.
 */
#include "../law/linear_tables.h"
#include "base/float16.h"
#include "base/pool.h"
#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { SEED = 77, ROWS = 75, COLS = 192, GROUP = 64, GROUPS = COLS / GROUP, MEMBERS = 5 };

/* bf16 nearest to value, by trying both neighbours in double; ties to the even one. */
static lw_bf16 nearest(double value)
{
    const uint32_t toward_zero = lw_bits_of_float((float)value) >> 16;
    lw_bf16 best = (lw_bf16)toward_zero;
    for (int step = -1; step <= 1; step++) {
        const lw_bf16 other = (lw_bf16)((int)toward_zero + step);
        const double far = fabs((double)lw_float_of_bf16(best) - value);
        const double near = fabs((double)lw_float_of_bf16(other) - value);
        if (near < far || (near <= far && (other & 1u) == 0)) best = other;
    }
    return best;
}

typedef struct stored {
    uint8_t codes[ROWS * COLS * 4];
    uint8_t scales[ROWS * GROUPS * 4], biases[ROWS * GROUPS * 4];
    lw_tensor code, scale, bias;
    lw_weight weight;
} stored;

static void fill_floats(uint8_t *bytes, size_t count, lw_dtype type, lw_rng *rng)
{
    for (size_t i = 0; i < count; i++) {
        const float value = lw_rng_normal(rng);
        const uint16_t half = type == LW_DTYPE_BF16 ? lw_bf16_of_float(value)
            : (uint16_t)(lw_rng_next(rng) & 0xBBFFu);
        if (type == LW_DTYPE_F32) memcpy(bytes + i * 4, &value, 4);
        else memcpy(bytes + i * 2, &half, 2);
    }
}

static void stored_init(stored *s, lw_map map, uint32_t bits, lw_dtype type, bool has_bias)
{
    lw_rng rng = lw_rng_make(SEED + bits);
    const bool dense = map != LW_MAP_INTEGER;
    for (size_t i = 0; i < sizeof s->codes; i++) s->codes[i] = (uint8_t)lw_rng_next(&rng);
    if (dense) fill_floats(s->codes, ROWS * COLS, type, &rng);
    fill_floats(s->scales, ROWS * GROUPS, type, &rng);
    fill_floats(s->biases, ROWS * GROUPS, type, &rng);
    const size_t bytes = ROWS * GROUPS * lw_dtype_bytes(type);
    s->code = (lw_tensor){ .name = "codes", .file = "memory", .bytes = s->codes,
        .byte_count = ROWS * COLS / 8 * bits };
    s->scale = (lw_tensor){ .name = "scales", .file = "memory", .bytes = s->scales, .byte_count = bytes };
    s->bias = (lw_tensor){ .name = "biases", .file = "memory", .bytes = s->biases, .byte_count = bytes };
    s->weight = (lw_weight){
        .name = "a.weight", .stack_count = 1, .rows = ROWS, .cols = COLS, .map = map, .code_bits = bits,
        .group = dense ? 0 : GROUP, .scale_type = type, .has_bias = !dense && has_bias,
        .bias_per_scale = dense || has_bias ? 0.0f : -(float)(1u << (bits - 1)), .global_scale = 1.0f,
        .codes = &s->code, .scales = dense ? NULL : &s->scale, .biases = !dense && has_bias ? &s->bias : NULL,
    };
}

static lw_cpu_weight *make(const lw_cpu_kernels *kernels, const lw_weight *weight, lw_pool *pool)
{
    lw_diag d;
    lw_cpu_weight *out;
    if (lw_cpu_weight_make(kernels, weight, pool, &out, &d) != LW_OK) fail_msg("%s", d.text);
    return out;
}

/* e4m3 codes in groups of 64, or indices of 4 bits in groups of 16 with e4m3 scales; a global scale. */
static void stored_init_short(stored *s, lw_map map, float global, bool divides)
{
    static const float table[16] = { 0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -.5f, -1, -1.5f, -2, -3, -4, -6 };
    const bool is_table = map == LW_MAP_TABLE16;
    stored_init(s, LW_MAP_INTEGER, is_table ? 4 : 8, LW_DTYPE_F32, false);
    for (size_t i = 0; !is_table && i < sizeof s->codes; i++)
        if ((s->codes[i] & 0x7Fu) == 0x7Fu) s->codes[i] ^= 1u;
    for (size_t i = 0; is_table && i < sizeof s->scales; i++) s->scales[i] = (uint8_t)(i % 0x7F);
    if (is_table) s->scale.byte_count = ROWS * COLS / 16;
    s->weight.map = map;
    s->weight.table = is_table ? table : NULL;
    s->weight.group = is_table ? 16 : GROUP;
    s->weight.scale_type = is_table ? LW_DTYPE_F8_E4M3 : LW_DTYPE_F32;
    s->weight.bias_per_scale = 0.0f;
    s->weight.global_scale = global;
    s->weight.global_divides = divides;
}

/* How many of all values differ from the nearest bf16 of the row `shift` further on, rows counted through the
 * stack. */
static size_t count_wrong(const lw_cpu_weight *weight, const lw_weight *from, uint32_t shift)
{
    size_t wrong = 0;
    lw_bf16 got[COLS];
    double want[COLS];
    const uint32_t rows = lw_cpu_weight_rows(weight), all = lw_cpu_weight_members(weight) * rows;
    for (uint32_t row = 0; row < all; row++) {
        const uint32_t other = (row + shift) % all;
        lw_cpu_weight_row(weight, row / rows, row % rows, got);
        lw_weight_row_f64(from, other / rows, other % rows, want);
        for (uint32_t k = 0; k < COLS; k++) wrong += got[k] != nearest(want[k]) && want[k] != 0.0;
    }
    return wrong;
}

static void rows_are_the_values_rounded_once(void **state)
{
    (void)state;
    static stored s;
    static const struct { lw_map map; uint32_t bits; lw_dtype type; } kinds[] = {
        { LW_MAP_INTEGER, 2, LW_DTYPE_BF16 }, { LW_MAP_INTEGER, 3, LW_DTYPE_F16 },
        { LW_MAP_INTEGER, 4, LW_DTYPE_BF16 },
        { LW_MAP_INTEGER, 5, LW_DTYPE_F32 },  { LW_MAP_INTEGER, 6, LW_DTYPE_F16 },
        { LW_MAP_INTEGER, 8, LW_DTYPE_F32 },
        { LW_MAP_BF16, 16, LW_DTYPE_BF16 },   { LW_MAP_FP16, 16, LW_DTYPE_F16 },
        { LW_MAP_FP32, 32, LW_DTYPE_F32 },
    };
    linear_table tables[LINEAR_TABLES_MAX];
    const size_t count = linear_tables(tables);
    for (size_t t = 0; t < count; t++) { /* repacking needs no instruction of the set that it is for */
        for (size_t i = 0; i < 4 * sizeof kinds / sizeof kinds[0]; i++) {
            stored_init(&s, kinds[i / 4].map, kinds[i / 4].bits, kinds[i / 4].type, i % 2 == 0);
            s.weight.x_int8 = i % 4 > 1 && lw_weight_takes_int8(&s.weight);
            lw_cpu_weight *const weight = make(&tables[t].kernels, &s.weight, NULL);
            assert_int_equal(count_wrong(weight, &s.weight, 0), 0);
            assert_true(count_wrong(weight, &s.weight, 1) > 0); /* planted control: the neighbour's row */
            assert_int_equal(lw_cpu_weight_rows(weight), ROWS);
            assert_int_equal(lw_cpu_weight_cols(weight), COLS);
            lw_cpu_weight_free(weight);
        }
    }
}

static void short_floats_are_rounded_once(void **state)
{
    (void)state;
    static stored s;
    static const float globals[] = { 1.0f, 0.3f, 3e-4f, 7.0f };
    linear_table tables[LINEAR_TABLES_MAX];
    const size_t count = linear_tables(tables);
    for (size_t i = 0; i < count * 16; i++) {
        const bool divides = i / count % 2 != 0;
        const float global = globals[i / count / 2 % 4];
        stored_init_short(&s, i / count / 8 != 0 ? LW_MAP_TABLE16 : LW_MAP_E4M3, global, divides);
        s.weight.x_int8 = i % 2 != 0 && lw_weight_takes_int8(&s.weight);
        lw_cpu_weight *const weight = make(&tables[i % count].kernels, &s.weight, NULL);
        assert_int_equal(count_wrong(weight, &s.weight, 0), 0);
        s.weight.global_divides = !divides; /* planted control: the wrong way round */
        assert_true(global == 1.0f || count_wrong(weight, &s.weight, 0) > 0);
        lw_cpu_weight_free(weight);
    }
}

/* scale * code + bias just above the middle of two bf16 numbers, by less than fp32 sees. */
static void a_tie_in_fp32_is_no_tie(void **state)
{
    (void)state;
    static stored s;
    linear_table tables[LINEAR_TABLES_MAX];
    linear_tables(tables);
    stored_init(&s, LW_MAP_INTEGER, 8, LW_DTYPE_F32, true);
    memset(s.codes, 1, sizeof s.codes);
    const float scale = 1.0f + 0x1p-8f, bias = 0x1p-40f;
    for (size_t i = 0; i < ROWS * GROUPS; i++) {
        memcpy(s.scales + i * 4, &scale, 4);
        memcpy(s.biases + i * 4, &bias, 4);
    }
    lw_cpu_weight *const weight = make(&tables[0].kernels, &s.weight, NULL);
    lw_bf16 got[COLS];
    lw_cpu_weight_row(weight, 0, 3, got);
    assert_int_equal(got[5], 0x3F81);
    assert_int_equal(lw_bf16_of_float(scale * 1.0f + bias), 0x3F80); /* planted control: rounded twice */
    lw_cpu_weight_free(weight);
}

static void threads_give_the_same_values(void **state)
{
    (void)state;
    static stored s;
    linear_table tables[LINEAR_TABLES_MAX];
    linear_tables(tables);
    lw_diag d;
    lw_pool *pool;
    assert_int_equal(lw_pool_open(2, NULL, &pool, &d), LW_OK);
    stored_init(&s, LW_MAP_INTEGER, 4, LW_DTYPE_BF16, true);
    lw_cpu_weight *const alone = make(&tables[0].kernels, &s.weight, NULL);
    lw_cpu_weight *const shared = make(&tables[0].kernels, &s.weight, pool);
    assert_int_equal(count_wrong(shared, &s.weight, 0), 0);
    assert_true(lw_cpu_weight_bytes(alone) == lw_cpu_weight_bytes(shared));
    lw_cpu_weight_free(shared);
    lw_cpu_weight_free(alone);
    lw_pool_close(pool);
}

/* The rows of one matrix read as a stack of MEMBERS; a member ends inside a block. */
static void every_member_of_a_stack_has_its_rows(void **state)
{
    (void)state;
    static stored s;
    static const uint32_t widths[] = { 3, 4, 8 };
    linear_table tables[LINEAR_TABLES_MAX];
    const size_t count = linear_tables(tables);
    lw_diag d;
    lw_pool *pool;
    assert_int_equal(lw_pool_open(2, NULL, &pool, &d), LW_OK);
    for (size_t i = 0; i < count * (sizeof widths / sizeof widths[0]); i++) {
        stored_init(&s, LW_MAP_INTEGER, widths[i / count], LW_DTYPE_BF16, true);
        s.weight.stack_count = MEMBERS;
        s.weight.rows = ROWS / MEMBERS;
        lw_cpu_weight *const stack = make(&tables[i % count].kernels, &s.weight, pool);
        assert_int_equal(lw_cpu_weight_members(stack), MEMBERS);
        assert_int_equal(lw_cpu_weight_rows(stack), ROWS / MEMBERS);
        assert_int_equal(count_wrong(stack, &s.weight, 0), 0);
        /* planted control: the next member's rows */
        assert_true(count_wrong(stack, &s.weight, ROWS / MEMBERS) > 0);
        lw_cpu_weight_free(stack);
    }
    lw_pool_close(pool);
}

static void refuse(const lw_weight *weight, lw_status status, const char *word)
{
    linear_table tables[LINEAR_TABLES_MAX];
    linear_tables(tables);
    lw_diag d;
    lw_cpu_weight *out;
    assert_int_equal(lw_cpu_weight_make(&tables[0].kernels, weight, NULL, &out, &d), status);
    assert_null(out);
    if (strstr(d.text, word) == NULL || strstr(d.text, "a.weight") == NULL) fail_msg("%s", d.text);
}

static void what_is_not_served_is_named(void **state)
{
    (void)state;
    static stored s;
    stored_init(&s, LW_MAP_INTEGER, 4, LW_DTYPE_BF16, true);
    lw_weight w = s.weight;
    w.map = LW_MAP_TABLE16, refuse(&w, LW_UNSUPPORTED, "table4"); /* without a table */
    w = s.weight, w.code_bits = 7, refuse(&w, LW_UNSUPPORTED, "int7");
    w = s.weight, w.group = 48, refuse(&w, LW_UNSUPPORTED, "48");
    w = s.weight, w.group = 16, refuse(&w, LW_UNSUPPORTED, "groups of 16");
    w = s.weight, w.group = 0, refuse(&w, LW_UNSUPPORTED, "groups of 0");
    w = s.weight, w.scale_type = LW_DTYPE_F8_E4M3, refuse(&w, LW_UNSUPPORTED, "biases of type F8_E4M3");
    w = s.weight, w.global_scale = 2.0f, refuse(&w, LW_UNSUPPORTED, "global scale");
    w = s.weight, w.scale_type = LW_DTYPE_F8_E8M0, refuse(&w, LW_UNSUPPORTED, "F8_E8M0");
    w = s.weight, w.cols = LW_LIMIT_WIDTH + 64, refuse(&w, LW_UNSUPPORTED, "limit");
    w = s.weight, w.rows = 0, refuse(&w, LW_BAD_MODEL, "empty");
}

static void a_nan_of_e4m3_is_refused(void **state)
{
    (void)state;
    static stored s;
    stored_init_short(&s, LW_MAP_E4M3, 1.0f, false);
    s.codes[(size_t)(ROWS - 1) * COLS + 5] = 0xFF;
    refuse(&s.weight, LW_BAD_MODEL, "row 74");
    stored_init_short(&s, LW_MAP_TABLE16, 1.0f, false);
    s.scales[COLS / 16 * 3] = 0x7F;
    refuse(&s.weight, LW_BAD_MODEL, "row 3 ");
    s.scales[COLS / 16 * 3] = 0x7E;
    s.weight.global_scale = INFINITY;
    refuse(&s.weight, LW_BAD_MODEL, "global scale");
}

static void weights_that_read_x_alike_share_a_prepare(void **state)
{
    (void)state;
    static stored four, six, eight;
    linear_table tables[LINEAR_TABLES_MAX];
    linear_tables(tables);
    stored_init(&four, LW_MAP_INTEGER, 4, LW_DTYPE_BF16, true);
    stored_init(&six, LW_MAP_INTEGER, 6, LW_DTYPE_F32, false);
    stored_init(&eight, LW_MAP_INTEGER, 8, LW_DTYPE_BF16, true);
    lw_cpu_weight *const a = make(&tables[0].kernels, &four.weight, NULL);
    lw_cpu_weight *const b = make(&tables[0].kernels, &six.weight, NULL);
    lw_cpu_weight *const c = make(&tables[0].kernels, &eight.weight, NULL);
    four.weight.group = 32;
    four.scale.byte_count = four.bias.byte_count = ROWS * (COLS / 32) * 2;
    lw_cpu_weight *const other = make(&tables[0].kernels, &four.weight, NULL);
    assert_true(lw_cpu_same_prepare(a, b));
    assert_false(lw_cpu_same_prepare(a, c));
    assert_false(lw_cpu_same_prepare(a, other));
    eight.weight.x_int8 = six.weight.x_int8 = true;
    lw_cpu_weight *const c8 = make(&tables[0].kernels, &eight.weight, NULL);
    lw_cpu_weight *const b8 = make(&tables[0].kernels, &six.weight, NULL);
    six.weight.code_bits = 4, six.code.byte_count = ROWS * COLS / 2;
    six.weight.bias_per_scale = -8.0f;
    lw_cpu_weight *const symmetric = make(&tables[0].kernels, &six.weight, NULL);
    eight.weight.code_bits = 4, eight.code.byte_count = ROWS * COLS / 2;
    lw_cpu_weight *const a8 = make(&tables[0].kernels, &eight.weight, NULL);
    assert_true(lw_cpu_same_prepare(a8, c8));       /* whatever the bits */
    assert_false(lw_cpu_same_prepare(c8, c));
    assert_false(lw_cpu_same_prepare(b8, symmetric)); /* another code stands for 0 */
    lw_cpu_weight_free(a8);
    lw_cpu_weight_free(b8);
    lw_cpu_weight_free(c8);
    lw_cpu_weight_free(symmetric);
    lw_cpu_weight_free(a);
    lw_cpu_weight_free(b);
    lw_cpu_weight_free(c);
    lw_cpu_weight_free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_the_values_rounded_once),
        cmocka_unit_test(short_floats_are_rounded_once),
        cmocka_unit_test(a_tie_in_fp32_is_no_tie),
        cmocka_unit_test(threads_give_the_same_values),
        cmocka_unit_test(every_member_of_a_stack_has_its_rows),
        cmocka_unit_test(what_is_not_served_is_named),
        cmocka_unit_test(a_nan_of_e4m3_is_refused),
        cmocka_unit_test(weights_that_read_x_alike_share_a_prepare),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
