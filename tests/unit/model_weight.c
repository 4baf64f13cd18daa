/* Rows of every weight format: the worked examples of the format, every width against an independent
 * dequantiser, and controls that must differ.
 */
#include "model/weight.h"

#include "base/float16.h"
#include "base/rng.h"
#include "model_files.h"
#include "../ref/ref_dequant.h"

#include <math.h>

enum { COLS = 256, ROWS = 3, STACK = 2, SEED = 20 };

static const unsigned widths[] = { 2, 3, 4, 5, 6, 8 };
enum { WIDTH_COUNT = sizeof widths / sizeof widths[0] };

/* A quantised stack whose tensors begin at odd addresses, as the format allows. */
typedef struct quantised {
    uint32_t words[STACK * ROWS][COLS];   /* [cols * bits / 32] used */
    double scales[STACK * ROWS][COLS / 32]; /* exact in the stored type */
    double biases[STACK * ROWS][COLS / 32];
    uint8_t code_bytes[STACK * ROWS * COLS * 4 + 1];
    uint8_t scale_bytes[STACK * ROWS * (COLS / 32) * 4 + 1];
    uint8_t bias_bytes[STACK * ROWS * (COLS / 32) * 4 + 1];
    lw_tensor codes, scale_tensor, bias_tensor;
    lw_weight weight;
} quantised;

static lw_tensor tensor_of(lw_dtype dtype, const uint8_t *bytes, uint64_t last)
{
    return (lw_tensor){
        .name = "m.weight", .file = "none", .dtype = dtype, .dim_count = 3, .dims = { STACK, ROWS, last },
        .bytes = bytes, .byte_count = STACK * ROWS * (size_t)last * lw_dtype_bytes(dtype),
    };
}

/* Stores value at index and returns what was stored. fp16 takes only values that fit exactly. */
static double store(uint8_t *bytes, lw_dtype dtype, size_t index, float value)
{
    if (dtype == LW_DTYPE_F32) {
        memcpy(bytes + index * 4, &value, 4);
        return (double)value;
    }
    uint16_t half = lw_bf16_of_float(value);
    if (dtype == LW_DTYPE_F16) half = (uint16_t)((half & 0x8000u) | 0x3000u | (half & 0x3FFu));
    memcpy(bytes + index * 2, &half, 2);
    return (double)(dtype == LW_DTYPE_BF16 ? lw_float_of_bf16(half) : lw_float_of_fp16(half));
}

static quantised *quantised_make(unsigned bits, uint32_t group, lw_dtype scale_type, uint64_t seed)
{
    lw_rng rng = lw_rng_make(seed);
    quantised *q = calloc(1, sizeof *q);
    assert_non_null(q);
    const size_t groups = COLS / group, word_count = COLS * bits / 32;
    for (size_t r = 0; r < STACK * ROWS; r++) {
        for (size_t k = 0; k < COLS; k++)
            ref_dequant_pack(q->words[r], bits, k, (unsigned)lw_rng_below(&rng, 1u << bits));
        memcpy(q->code_bytes + 1 + r * word_count * 4, q->words[r], word_count * 4);
        for (size_t g = 0; g < groups; g++) {
            q->scales[r][g] =
                store(q->scale_bytes + 1, scale_type, r * groups + g, lw_rng_normal(&rng) * 0.01f);
            q->biases[r][g] = store(q->bias_bytes + 1, scale_type, r * groups + g, lw_rng_normal(&rng));
        }
    }
    q->codes = tensor_of(LW_DTYPE_U32, q->code_bytes + 1, word_count);
    q->scale_tensor = tensor_of(scale_type, q->scale_bytes + 1, groups);
    q->bias_tensor = tensor_of(scale_type, q->bias_bytes + 1, groups);
    q->weight = (lw_weight){
        .name = "m",
        .stack_count = STACK,
        .rows = ROWS,
        .cols = COLS,
        .map = LW_MAP_INTEGER,
        .code_bits = bits,
        .group = group,
        .scale_type = scale_type,
        .has_bias = true,
        .global_scale = 1.0f,
        .codes = &q->codes,
        .scales = &q->scale_tensor,
        .biases = &q->bias_tensor,
    };
    return q;
}

static ref_dequant_row ref_row(const quantised *q, size_t r)
{
    return (ref_dequant_row){ .words = q->words[r],
                              .scales = q->scales[r],
                              .biases = q->biases[r],
                              .cols = COLS,
                              .group = q->weight.group,
                              .bits = q->weight.code_bits };
}

/* Elements of all rows that are not exactly the reference's. */
static size_t count_different(const quantised *q, const lw_weight *weight)
{
    size_t different = 0;
    for (uint32_t r = 0; r < STACK * ROWS; r++) {
        double values[COLS];
        const ref_dequant_row ref = ref_row(q, r);
        lw_weight_row_f64(weight, r / ROWS, r % ROWS, values);
        for (size_t k = 0; k < COLS; k++) different += !(values[k] == ref_dequant_value(&ref, k));
    }
    return different;
}

static void every_width_and_group_is_exact(void **state)
{
    (void)state;
    static const uint32_t groups[] = { 32, 64, 128 };
    static const lw_dtype types[] = { LW_DTYPE_BF16, LW_DTYPE_F16, LW_DTYPE_F32 };
    print_message("seed %d\n", SEED);
    for (size_t i = 0; i < WIDTH_COUNT * 9; i++) {
        quantised *q = quantised_make(widths[i / 9], groups[i % 3], types[i / 3 % 3], SEED + i);
        assert_int_equal(count_different(q, &q->weight), 0);
        free(q);
    }
}

static void planted_controls_differ(void **state)
{
    (void)state;
    for (size_t i = 0; i < WIDTH_COUNT; i++) {
        quantised *q = quantised_make(widths[i], 64, LW_DTYPE_BF16, SEED + i);
        lw_weight wrong = q->weight;
        wrong.group = 128; /* each row then also reads half of the scales that it should */
        assert_true(count_different(q, &wrong) > STACK * ROWS * COLS / 4);
        wrong = q->weight;
        wrong.scales = &q->bias_tensor;
        wrong.biases = &q->scale_tensor;
        assert_true(count_different(q, &wrong) > STACK * ROWS * COLS / 2);
        wrong = q->weight;
        wrong.code_bits = widths[(i + 1) % WIDTH_COUNT];
        wrong.cols = (uint32_t)(COLS * 2 / 8); /* stays inside the row for any width */
        uint8_t right_codes[COLS], wrong_codes[COLS];
        lw_weight_codes8(&q->weight, 1, 2, right_codes);
        lw_weight_codes8(&wrong, 1, 2, wrong_codes);
        assert_memory_not_equal(right_codes, wrong_codes, COLS * 2 / 8);
        free(q);
    }
}

static void codes_match_bit_by_bit(void **state)
{
    (void)state;
    for (size_t i = 0; i < WIDTH_COUNT; i++) {
        quantised *q = quantised_make(widths[i], 32, LW_DTYPE_BF16, SEED + i);
        for (uint32_t cols = COLS - 9; cols <= COLS; cols++) { /* ends inside a word too */
            uint8_t codes[COLS + 1];
            codes[cols] = 0xAB;
            q->weight.cols = cols;
            lw_weight_codes8(&q->weight, 1, 1, codes);
            for (size_t k = 0; k < cols; k++)
                assert_int_equal(codes[k], ref_dequant_code(q->words[ROWS + 1], widths[i], k));
            assert_int_equal(codes[cols], 0xAB);
        }
        free(q);
    }
}

static void scales_come_as_stored_and_as_floats(void **state)
{
    (void)state;
    quantised *q = quantised_make(4, 64, LW_DTYPE_BF16, SEED);
    float scales[COLS / 64], biases[COLS / 64];
    uint16_t scale_words[COLS / 64], bias_words[COLS / 64];
    lw_weight_scales(&q->weight, 1, 2, scales, biases);
    lw_weight_scales16(&q->weight, 1, 2, scale_words, bias_words);
    for (size_t g = 0; g < COLS / 64; g++) {
        assert_true((double)scales[g] == q->scales[ROWS + 2][g] &&
                    (double)biases[g] == q->biases[ROWS + 2][g]);
        assert_true(lw_float_of_bf16(scale_words[g]) == scales[g] &&
                    lw_float_of_bf16(bias_words[g]) == biases[g]);
    }
    q->weight.has_bias = false;
    q->weight.bias_per_scale = -8.0f;
    lw_weight_scales(&q->weight, 0, 1, scales, biases);
    for (size_t g = 0; g < COLS / 64; g++) assert_true(biases[g] == -8.0f * scales[g]);
    double values[COLS];
    uint8_t codes[COLS];
    lw_weight_row_f64(&q->weight, 0, 1, values);
    lw_weight_codes8(&q->weight, 0, 1, codes);
    for (size_t k = 0; k < COLS; k++)
        assert_true(values[k] == q->scales[1][k / 64] * ((double)codes[k] - 8.0));
    free(q);
}

/* A row in a block of its own bytes: a load past its end shows under the address checker. */
static void loads_end_with_the_row(void **state)
{
    (void)state;
    for (size_t i = 0; i < WIDTH_COUNT; i++) {
        for (uint32_t cols = 32; cols <= 96; cols += 32) {
            const size_t bytes = cols * widths[i] / 8;
            uint8_t *row = malloc(bytes), codes[96];
            assert_non_null(row);
            for (size_t at = 0; at < bytes; at++) row[at] = (uint8_t)(at * 37u + 11u);
            uint32_t words[96] = { 0 };
            memcpy(words, row, bytes);
            const lw_tensor tensor = {
                .name = "w", .dtype = LW_DTYPE_U32, .bytes = row, .byte_count = bytes
            };
            const lw_weight w = { .stack_count = 1, .rows = 1, .cols = cols, .map = LW_MAP_INTEGER,
                                  .code_bits = widths[i], .codes = &tensor };
            lw_weight_codes8(&w, 0, 0, codes);
            for (size_t k = 0; k < cols; k++)
                assert_int_equal(codes[k], ref_dequant_code(words, widths[i], k));
            if (32 % widths[i] == 0) {
                uint32_t *const same = malloc(bytes);
                assert_non_null(same);
                lw_weight_words(&w, 0, 0, same);
                assert_memory_equal(same, words, bytes);
                free(same);
            }
            free(row);
        }
    }
}

/* One row of one group with the words of the format's worked examples. */
static void worked_row(unsigned bits, const uint32_t *words, size_t word_count, double values[32])
{
    static const uint16_t scale = 0x4000, bias = 0xBF80; /* 2 and -1 */
    const lw_tensor codes = { .name = "w", .dtype = LW_DTYPE_U32, .dim_count = 2, .dims = { 1, word_count },
                              .bytes = (const uint8_t *)words, .byte_count = word_count * 4 };
    const lw_tensor scales = { .name = "s", .dtype = LW_DTYPE_BF16, .dim_count = 2, .dims = { 1, 1 },
                               .bytes = (const uint8_t *)&scale, .byte_count = 2 };
    lw_tensor biases = scales;
    biases.bytes = (const uint8_t *)&bias;
    const lw_weight w = { .name = "w", .stack_count = 1, .rows = 1, .cols = 32, .map = LW_MAP_INTEGER,
                          .code_bits = bits, .group = 32, .scale_type = LW_DTYPE_BF16, .has_bias = true,
                          .global_scale = 1.0f, .codes = &codes, .scales = &scales, .biases = &biases };
    lw_weight_row_f64(&w, 0, 0, values);
}

static void worked_examples_hold(void **state)
{
    (void)state;
    static const uint32_t four[4] = { 0x76543210u }, six[6] = { 0x85103081u, 0x1u };
    static const double want4[] = { -1, 1, 3, 5, 7, 9, 11, 13 }, want6[] = { 1, 3, 5, 7, 9, 11, -1 };
    double values[32];
    worked_row(4, four, 4, values);
    for (size_t k = 0; k < 8; k++) assert_true(values[k] == want4[k]);
    worked_row(6, six, 6, values);
    for (size_t k = 0; k < 7; k++) assert_true(values[k] == want6[k]);
}

static void dense_rows_are_exact(void **state)
{
    (void)state;
    static const uint16_t halves[] = { 0x3C00, 0xC000, 0x0001, 0x7BFF, 0x8000, 0x3555 };
    static const uint32_t words[] = { 0x3F800001u, 0x80000000u, 0x00000001u };
    const lw_tensor t16 = { .name = "t", .dtype = LW_DTYPE_F16, .dim_count = 2, .dims = { 2, 3 },
                            .bytes = (const uint8_t *)halves, .byte_count = 12 };
    const lw_tensor t32 = { .name = "t", .dtype = LW_DTYPE_F32, .dim_count = 1, .dims = { 3 },
                            .bytes = (const uint8_t *)words, .byte_count = 12 };
    lw_weight w = { .name = "t", .stack_count = 1, .rows = 2, .cols = 3, .map = LW_MAP_FP16, .code_bits = 16,
                    .global_scale = 1.0f, .codes = &t16 };
    float values[3];
    double wide[3];
    uint16_t codes[3];
    lw_weight_dense(&w, 0, 0, values);
    assert_true(values[0] == 1.0f && values[1] == -2.0f && values[2] == 0x1p-24f);
    lw_weight_codes16(&w, 0, 1, codes);
    assert_memory_equal(codes, halves + 3, sizeof codes);
    w.map = LW_MAP_BF16;
    lw_weight_row_f64(&w, 0, 0, wide);
    assert_true(wide[0] == 0x1p-7 && wide[1] == -2.0 && wide[2] == (double)lw_float_of_bits(0x10000u));
    w = (lw_weight){ .name = "t", .stack_count = 1, .rows = 1, .cols = 3, .map = LW_MAP_FP32, .code_bits = 32,
                     .global_scale = 1.0f, .codes = &t32 };
    lw_weight_dense(&w, 0, 0, values);
    assert_memory_equal(values, words, sizeof words);
    assert_int_equal(lw_weight_bytes(&w), 12);
}

static void tables_and_floats_of_8_bits(void **state)
{
    (void)state;
    static const float table[16] = { 0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -.5f, -1, -1.5f, -2, -3, -4, -6 };
    static const uint8_t bytes[] = { 0x2B, 0x3C, 0x01, 0x7E, 0xFF, 0, 0, 0 };
    const lw_tensor codes = {
        .name = "t", .dtype = LW_DTYPE_U8, .dim_count = 2, .dims = { 1, 8 }, .bytes = bytes, .byte_count = 8
    };
    lw_weight w = { .name = "t",
                    .stack_count = 1,
                    .rows = 1,
                    .cols = 2,
                    .map = LW_MAP_TABLE16,
                    .code_bits = 4,
                    .global_scale = 0.25f,
                    .table = table,
                    .codes = &codes };
    double values[8];
    lw_weight_row_f64(&w, 0, 0, values);
    assert_true(values[0] == -0.375 && values[1] == 0.25);
    w = (lw_weight){ .name = "t", .stack_count = 1, .rows = 1, .cols = 8, .map = LW_MAP_E4M3, .code_bits = 8,
                     .global_scale = 1.0f, .codes = &codes };
    lw_weight_row_f64(&w, 0, 0, values);
    assert_true(values[1] == 1.5 && values[2] == 0x1p-9 && values[3] == 448.0 && isnan(values[4]));
}

static void formats_have_names(void **state)
{
    (void)state;
    char text[32];
    lw_weight_format(&(lw_weight){ .map = LW_MAP_BF16 }, text);
    assert_string_equal(text, "bf16");
    lw_weight_format(&(lw_weight){ .map = LW_MAP_INTEGER, .code_bits = 4, .group = 64 }, text);
    assert_string_equal(text, "int4 group 64");
}

static void int8_products_are_of_whole_codes(void **state)
{
    (void)state;
    float table[16] = { 0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -.5f, -1, -1.5f, -2, -3, -4, -6 };
    lw_weight w = { .map = LW_MAP_INTEGER, .code_bits = 4, .group = 64, .bias_per_scale = -8.0f };
    assert_true(lw_weight_takes_int8(&w));
    w.bias_per_scale = -7.5f;
    assert_false(lw_weight_takes_int8(&w));
    w = (lw_weight){ .map = LW_MAP_TABLE16, .code_bits = 4, .group = 16, .table = table };
    assert_true(lw_weight_takes_int8(&w));
    table[3] = 1.25f;
    assert_false(lw_weight_takes_int8(&w));
    table[3] = 6.5f;
    assert_false(lw_weight_takes_int8(&w));
    w = (lw_weight){ .map = LW_MAP_E4M3, .code_bits = 8, .group = 64 };
    assert_false(lw_weight_takes_int8(&w));
    assert_false(lw_weight_takes_int8(&(lw_weight){ .map = LW_MAP_BF16, .code_bits = 16 }));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_width_and_group_is_exact),
        cmocka_unit_test(planted_controls_differ),
        cmocka_unit_test(codes_match_bit_by_bit),
        cmocka_unit_test(scales_come_as_stored_and_as_floats),
        cmocka_unit_test(worked_examples_hold),
        cmocka_unit_test(dense_rows_are_exact),
        cmocka_unit_test(tables_and_floats_of_8_bits),
        cmocka_unit_test(formats_have_names),
        cmocka_unit_test(int8_products_are_of_whole_codes),
        cmocka_unit_test(loads_end_with_the_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
