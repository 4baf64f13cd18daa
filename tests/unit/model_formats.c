/* Published weight formats, from files to exact values: the formats' worked examples, whole matrices against
 * an independent dequantiser, stacks in every way that files hold them, and what must be refused by name.
 */
#include "model/names.h"

#include "base/float16.h"
#include "base/limits.h"
#include "base/rng.h"
#include "model_files.h"
#include "../ref/ref_dequant.h"

#include <math.h>

enum { SEED = 41, DATA_BYTES = 1 << 20, HEADER_BYTES = 1 << 16, EXPERTS = 3 };

static const char *const prefixes[] = { "model.", "", NULL };
static const lw_names_options options = { .prefixes = prefixes };

static const char gptq[] = "{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32,"
                           "\"sym\":true,\"desc_act\":false,\"checkpoint_format\":\"gptq\","
                           "\"modules_to_not_convert\":[\"kept\"],\"dynamic\":{\"-:.*mtp.*\":{}},"
                           "\"extra_config\":{\"model.own\":{\"bits\":4,\"group_size\":64},"
                           "\"model.plain\":{\"bits\":16}}}}";
static const char round_config[] = "{\"quantization_config\":{\"quant_method\":\"auto-round\",\"bits\":4,"
                                   "\"group_size\":32,\"sym\":true,\"data_type\":\"int\","
                                   "\"packing_format\":\"auto_round:auto_gptq\"}}";
static const char packed[] =
    "{\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\","
    "\"ignore\":[\"lm_head\",\"re:.*mtp.*\"],\"config_groups\":{\"group_0\":{\"targets\":[\"Linear\"],"
    "\"weights\":{\"num_bits\":4,\"type\":\"int\",\"symmetric\":true,\"strategy\":\"group\","
    "\"group_size\":32}},\"group_1\":{\"weights\":{\"num_bits\":8,\"type\":\"int\",\"symmetric\":true,"
    "\"strategy\":\"channel\"}},\"group_2\":{\"weights\":{\"num_bits\":8,\"type\":\"float\","
    "\"strategy\":\"channel\"}},\"group_3\":{\"weights\":{\"num_bits\":4,\"type\":\"float\","
    "\"strategy\":\"tensor_group\",\"group_size\":16}}}}}";
static const char fp8[] = "{\"quantization_config\":{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\","
                          "\"activation_scheme\":\"dynamic\",\"weight_block_size\":[128,128]}}";
static const char modelopt[] = "{\"quantization_config\":{\"quant_method\":\"modelopt\","
                               "\"quant_algo\":\"MIXED_PRECISION\",\"exclude_modules\":[\"kept*\"]}}";

/* ---- files ---- */

typedef struct build {
    folder f;
    char header[HEADER_BYTES];
    uint8_t data[DATA_BYTES];
    size_t data_bytes;
    lw_rng rng;
    lw_checkpoint *c;
    lw_names *names;
    lw_diag d;
} build;

static build *build_make(const char *config)
{
    build *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->f = folder_make();
    b->rng = lw_rng_make(SEED);
    text_write(&b->f, "config.json", config);
    return b;
}

/* A shape's text, for one call. */
typedef struct shape_text {
    char text[32];
} shape_text;

static shape_text shape_make(uint32_t rows, uint32_t cols)
{
    shape_text shape;
    snprintf(shape.text, sizeof shape.text, "%u,%u", rows, cols);
    return shape;
}
#define shape2(rows, cols) shape_make(rows, cols).text

/* Adds a tensor whose bytes the caller fills. */
static uint8_t *add(build *b, const char *module, const char *suffix, const char *dtype, const char *shape,
                    size_t bytes)
{
    const size_t at = strlen(b->header);
    assert_true(at + 512 < sizeof b->header && b->data_bytes + bytes < sizeof b->data);
    snprintf(b->header + at, sizeof b->header - at,
             "%s\"model.%s%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
             at == 0 ? "{" : ",", module, suffix, dtype, shape, b->data_bytes, b->data_bytes + bytes);
    b->data_bytes += bytes;
    return b->data + b->data_bytes - bytes;
}

static void start(build *b)
{
    const size_t end = strlen(b->header);
    snprintf(b->header + end, sizeof b->header - end, "}");
    const uint64_t header_bytes = strlen(b->header);
    const size_t count = 8 + header_bytes + b->data_bytes;
    uint8_t *bytes = malloc(count);
    assert_non_null(bytes);
    memcpy(bytes, &header_bytes, 8);
    memcpy(bytes + 8, b->header, header_bytes);
    memcpy(bytes + 8 + header_bytes, b->data, b->data_bytes);
    file_write(&b->f, "model.safetensors", bytes, count);
    free(bytes);
    if (lw_checkpoint_open(b->f.path, &b->c, &b->d) != LW_OK) fail_msg("%s", b->d.text);
    if (lw_names_make(b->c, &options, &b->names, &b->d) != LW_OK) fail_msg("%s", b->d.text);
}

static void build_free(build *b)
{
    lw_names_free(b->names);
    lw_checkpoint_close(b->c);
    folder_free(&b->f);
    free(b);
}

/* ---- matrices: what a file holds, and the values by the reference ---- */

typedef enum format { FORMAT_BF16, FORMAT_GPTQ, FORMAT_PACKED4, FORMAT_PACKED8, FORMAT_FP8_BLOCK,
                      FORMAT_FP8_TENSOR, FORMAT_FP8_CHANNEL, FORMAT_NVFP4, FORMAT_NVFP4_PACKED,
                      FORMAT_COUNT } format;

static const struct { const char *name, *config; } formats[] = {
    [FORMAT_BF16] = { "bf16", "{}" },
    [FORMAT_GPTQ] = { "int4 group 32", gptq },
    [FORMAT_PACKED4] = { "int4 group 32", packed },
    [FORMAT_PACKED8] = { "int8 group 160", packed },
    [FORMAT_FP8_BLOCK] = { "e4m3 block 128x128", fp8 },
    [FORMAT_FP8_TENSOR] = { "e4m3", modelopt },
    [FORMAT_FP8_CHANNEL] = { "e4m3 group 160", packed },
    [FORMAT_NVFP4] = { "table4 group 16", modelopt },
    [FORMAT_NVFP4_PACKED] = { "table4 group 16", packed },
};

/* 136 x 160: rows end inside a block, columns too. */
enum { ROWS = 136, COLS = 160, INT_GROUP = 32, BLOCK = 128 };

static double bf16_put(build *b, uint8_t *at)
{
    const uint16_t half = lw_bf16_of_float(lw_rng_normal(&b->rng) * 0.01f);
    memcpy(at, &half, 2);
    return (double)lw_float_of_bf16(half);
}

static uint8_t e4m3_draw(build *b)
{
    const uint8_t code = (uint8_t)lw_rng_below(&b->rng, 256);
    return (code & 0x7Fu) == 0x7Fu ? 0 : code;
}

static void add_bf16(build *b, const char *module, double *want)
{
    uint8_t *codes = add(b, module, ".weight", "BF16", shape2(ROWS, COLS), ROWS * COLS * 2);
    for (size_t i = 0; i < ROWS * COLS; i++) want[i] = bf16_put(b, codes + i * 2);
}

static void add_gptq(build *b, const char *module, double *want)
{
    enum { GROUPS = COLS / INT_GROUP };
    uint8_t *codes = add(b, module, ".qweight", "I32", shape2(COLS / 8, ROWS), COLS / 8 * ROWS * 4);
    uint8_t *scales = add(b, module, ".scales", "BF16", shape2(GROUPS, ROWS), GROUPS * ROWS * 2);
    uint8_t *zeros = add(b, module, ".qzeros", "I32", shape2(GROUPS, ROWS / 8), GROUPS * ROWS / 8 * 4);
    memset(zeros, 0x77, GROUPS * ROWS / 8 * 4);
    for (uint32_t g = 0; g < GROUPS; g++)
        for (uint32_t n = 0; n < ROWS; n++) {
            const double scale = bf16_put(b, scales + (g * ROWS + n) * 2);
            for (uint32_t k = g * INT_GROUP; k < (g + 1) * INT_GROUP; k++) {
                const unsigned q = (unsigned)lw_rng_below(&b->rng, 16);
                codes[((size_t)k / 8 * ROWS + n) * 4 + k % 8 / 2] |= (uint8_t)(q << k % 2 * 4);
                want[n * COLS + k] = scale * ((double)q - 8.0);
            }
        }
}

static void add_packed(build *b, const char *module, unsigned bits, double *want)
{
    const uint32_t group = bits == 4 ? INT_GROUP : COLS, groups = COLS / group;
    const int64_t shape[2] = { ROWS, COLS };
    const size_t bytes = ROWS * COLS / 8 * bits;
    uint8_t *codes = add(b, module, ".weight_packed", "I32", shape2(ROWS, COLS * bits / 32), bytes);
    uint8_t *scales = add(b, module, ".weight_scale", "BF16", shape2(ROWS, groups), ROWS * groups * 2);
    memcpy(add(b, module, ".weight_shape", "I64", "2", sizeof shape), shape, sizeof shape);
    double scale = 0.0;
    for (uint32_t n = 0; n < ROWS; n++)
        for (uint32_t k = 0; k < COLS; k++) {
            if (k % group == 0) scale = bf16_put(b, scales + (n * groups + k / group) * 2);
            const unsigned q = (unsigned)lw_rng_below(&b->rng, 1u << bits);
            codes[(n * COLS + k) * bits / 8] |= (uint8_t)(q << (bits == 4 ? k % 2 * 4 : 0));
            want[n * COLS + k] = scale * ((double)q - (bits == 4 ? 8.0 : 128.0));
        }
}

static void add_fp8(build *b, const char *module, format form, double *want)
{
    const uint32_t rows = form == FORMAT_FP8_BLOCK ? 2 : form == FORMAT_FP8_CHANNEL ? ROWS : 1;
    const uint32_t cols = form == FORMAT_FP8_BLOCK ? 2 : 1;
    uint8_t *codes = add(b, module, ".weight", "F8_E4M3", shape2(ROWS, COLS), ROWS * COLS);
    float scales[ROWS * 2];
    for (uint32_t i = 0; i < rows * cols; i++) scales[i] = lw_rng_normal(&b->rng);
    const char *suffix = form == FORMAT_FP8_BLOCK ? ".weight_scale_inv" : ".weight_scale";
    const shape_text shape = form == FORMAT_FP8_TENSOR ? (shape_text){ "" } : shape_make(rows, cols);
    memcpy(add(b, module, suffix, "F32", shape.text, rows * cols * 4), scales, rows * cols * 4);
    for (uint32_t i = 0; i < ROWS * COLS; i++) {
        const uint32_t n = i / COLS, k = i % COLS;
        codes[i] = e4m3_draw(b);
        const float scale = form == FORMAT_FP8_BLOCK ? scales[n / BLOCK * 2 + k / BLOCK]
            : scales[form == FORMAT_FP8_CHANNEL ? n : 0];
        want[i] = ref_dequant_e4m3(codes[i]) * (double)scale;
    }
}

static void add_nvfp4(build *b, const char *module, bool divides, double *want)
{
    const float global = 0.3f + (float)lw_rng_unit(&b->rng);
    uint8_t *codes = add(b, module, divides ? ".weight_packed" : ".weight", "U8", shape2(ROWS, COLS / 2),
                         ROWS * COLS / 2);
    uint8_t *scales = add(b, module, ".weight_scale", "F8_E4M3", shape2(ROWS, COLS / 16), ROWS * COLS / 16);
    memcpy(add(b, module, divides ? ".weight_global_scale" : ".weight_scale_2", "F32", divides ? "1" : "", 4),
           &global, 4);
    for (uint32_t i = 0; i < ROWS * COLS / 16; i++) scales[i] = e4m3_draw(b) & 0x7Fu;
    for (uint32_t i = 0; i < ROWS * COLS; i++) {
        const unsigned q = (unsigned)lw_rng_below(&b->rng, 16);
        codes[i / 2] |= (uint8_t)(q << i % 2 * 4);
        const double value = ref_dequant_e2m1(q) * ref_dequant_e4m3(scales[i / 16]);
        want[i] = divides ? value / (double)global : value * (double)global;
    }
}

static void add_matrix(build *b, format form, const char *module, double *want)
{
    switch (form) {
    case FORMAT_BF16: add_bf16(b, module, want); break;
    case FORMAT_GPTQ: add_gptq(b, module, want); break;
    case FORMAT_PACKED4: add_packed(b, module, 4, want); break;
    case FORMAT_PACKED8: add_packed(b, module, 8, want); break;
    case FORMAT_FP8_BLOCK: case FORMAT_FP8_TENSOR: case FORMAT_FP8_CHANNEL:
        add_fp8(b, module, form, want);
        break;
    case FORMAT_NVFP4: add_nvfp4(b, module, false, want); break;
    case FORMAT_NVFP4_PACKED: add_nvfp4(b, module, true, want); break;
    case FORMAT_COUNT: break;
    }
}

/* Values of a member that are not exactly those of want, and codes that words hold otherwise than bytes. */
static size_t count_wrong(const lw_weight *w, uint32_t member, const double *want)
{
    size_t wrong = 0;
    double values[COLS];
    uint8_t codes[COLS];
    uint32_t words[COLS];
    for (uint32_t n = 0; n < w->rows; n++) {
        lw_weight_row_f64(w, member, n, values);
        for (uint32_t k = 0; k < COLS; k++) wrong += !(values[k] == want[n * COLS + k]);
        if (w->code_bits > 8 || 32 % w->code_bits != 0) continue;
        const uint32_t each = 32 / w->code_bits;
        lw_weight_codes8(w, member, n, codes);
        lw_weight_words(w, member, n, words);
        for (uint32_t k = 0; k < COLS; k++)
            wrong += (uint8_t)(words[k / each] << (each - 1 - k % each) * w->code_bits >>
                               (32 - w->code_bits)) != codes[k];
    }
    return wrong;
}

static void matrices_have_their_exact_values(void **state)
{
    (void)state;
    static double want[ROWS * COLS];
    for (format form = FORMAT_BF16; form < FORMAT_COUNT; form++) {
        build *b = build_make(formats[form].config);
        lw_weight w;
        char text[32];
        add_matrix(b, form, "a", want);
        start(b);
        lw_names_matrix(b->names, &w, ROWS, COLS, "a");
        if (lw_names_finish(b->names, &b->d) != LW_OK) fail_msg("%s", b->d.text);
        assert_int_equal(lw_names_unused_count(b->names), 0);
        lw_weight_format(&w, text);
        assert_string_equal(text, formats[form].name);
        assert_int_equal(count_wrong(&w, 0, want), 0);
        assert_true(lw_weight_bytes(&w) <= b->data_bytes);
        /* planted controls: other groups, a global scale turned round, other rows */
        lw_weight wrong = w;
        if (w.group > 0 && w.group < COLS) wrong.group *= 2;
        else wrong.global_scale = 2.0f * w.global_scale;
        assert_true(form == FORMAT_BF16 || count_wrong(&wrong, 0, want) > 0);
        wrong = w;
        wrong.rows = ROWS - 1, wrong.rows_stored = ROWS, wrong.row_begin = 1;
        assert_true(count_wrong(&wrong, 0, want) > 0);
        assert_int_equal(count_wrong(&wrong, 0, want + COLS), 0);
        build_free(b);
    }
}

/* ---- the worked examples ---- */

static void worked_gptq(const char *zero_word, const char *order)
{
    static const uint32_t word = 0x9C8F0007u;
    static const uint16_t half = 0x3800; /* 0.5 */
    static const double want[8] = { -0.5, -4, -4, -4, 3.5, 0, 2, 0.5 };
    build *b = build_make(round_config);
    lw_weight w;
    double values[32];
    memcpy(add(b, "a", ".qweight", "I32", "4,8", 128) + 3 * 4, &word, 4); /* k 0 to 7 of output 3 */
    memcpy(add(b, "a", ".scales", "F16", "1,8", 16) + 3 * 2, &half, 2);
    memset(add(b, "a", ".qzeros", "I32", "1,1", 4), zero_word[0], 4);
    if (order != NULL) memset(add(b, "a", ".g_idx", "I32", "32", 128), order[0], 128);
    start(b);
    assert_true(lw_names_matrix_any_rows(b->names, &w, 32, "a"));
    lw_weight_row_f64(&w, 0, 3, values);
    for (size_t k = 0; k < 8; k++) assert_true(values[k] == want[k]);
    assert_true(values[8] == -4.0);
    assert_int_equal(lw_names_finish(b->names, &b->d), LW_OK);
    assert_int_equal(lw_names_unused_count(b->names), 0);
    build_free(b);
}

static void worked_examples_hold(void **state)
{
    (void)state;
    worked_gptq("\x77", NULL);
    worked_gptq("\0", "\0"); /* zero points and order that the exporter left empty */
    static const float inverse = 0.02f, quarter = 0.25f, four = 4.0f;
    build *b = build_make(fp8);
    lw_weight w;
    double values[16];
    add(b, "a", ".weight", "F8_E4M3", "1,4", 4)[1] = 0x3C;
    memcpy(add(b, "a", ".weight_scale_inv", "F32", "1,1", 4), &inverse, 4);
    start(b);
    /* One scale where blocks are asked for: a matrix that is smaller than a block has one too. */
    assert_true(lw_names_matrix(b->names, &w, 1, 4, "a"));
    lw_weight_row_f64(&w, 0, 0, values);
    assert_true(values[0] == 0.0 && values[1] == 1.5 * (double)inverse);
    build_free(b);
    for (int divides = 0; divides < 2; divides++) {
        b = build_make(divides ? packed : modelopt);
        add(b, "a", divides ? ".weight_packed" : ".weight", "U8", "1,8", 8)[0] = 0x2B;
        add(b, "a", ".weight_scale", "F8_E4M3", "1,1", 1)[0] = 0x40;
        memcpy(add(b, "a", divides ? ".weight_global_scale" : ".weight_scale_2", "F32", "1", 4),
               divides ? &four : &quarter, 4);
        start(b);
        assert_true(lw_names_matrix(b->names, &w, 1, 16, "a"));
        lw_weight_row_f64(&w, 0, 0, values);
        assert_true(values[0] == -0.75 && values[1] == 0.5);
        build_free(b);
    }
}

/* ---- stacks ---- */

static const lw_stack_names up_names = { .whole = "switch.up", .fused = "experts.gate_up",
                                         .fused_begin = ROWS / 2, .fused_rows = ROWS,
                                         .each = "experts.*.up" };

/* A module for each member, in every format; each member is the matrix that it is alone. */
static void members_in_tensors_of_their_own(void **state)
{
    (void)state;
    static double want[EXPERTS][ROWS * COLS];
    for (format form = FORMAT_BF16; form < FORMAT_COUNT; form++) {
        build *b = build_make(formats[form].config);
        lw_weight stack, alone;
        for (int e = EXPERTS - 1; e >= 0; e--) { /* in any order of the file */
            char module[32];
            snprintf(module, sizeof module, "mlp.experts.%d.up", e);
            add_matrix(b, form, module, want[e]);
        }
        start(b);
        lw_names_stack_of(b->names, &stack, (const uint32_t[]){ EXPERTS, ROWS, COLS }, &up_names, "mlp");
        if (lw_names_finish(b->names, &b->d) != LW_OK) fail_msg("%s", b->d.text);
        assert_int_equal(lw_names_unused_count(b->names), 0);
        assert_int_equal(stack.stack_count, EXPERTS);
        for (uint32_t e = 0; e < EXPERTS; e++) {
            assert_int_equal(count_wrong(&stack, e, want[e]), 0);
            assert_true(count_wrong(&stack, (e + 1) % EXPERTS, want[e]) > 0); /* planted control */
            assert_true(lw_names_matrix(b->names, &alone, ROWS, COLS, "mlp.experts.%u.up", e));
            assert_true(lw_weight_global(&stack, e) == lw_weight_global(&alone, 0));
            const size_t each = lw_weight_tensor_count(&alone);
            for (size_t i = 0; i < each; i++)
                assert_ptr_equal(lw_weight_tensor(&stack, e * each + i), lw_weight_tensor(&alone, i));
        }
        assert_int_equal(lw_weight_bytes(&stack), EXPERTS * lw_weight_bytes(&alone));
        build_free(b);
    }
}

/* One dense tensor whose members hold the rows of two matrices: each half is a stack of its own. */
static void halves_of_a_fused_tensor(void **state)
{
    (void)state;
    static double want[EXPERTS][ROWS * COLS];
    build *b = build_make("{}");
    lw_weight gate, up;
    uint8_t *codes = add(b, "mlp.experts.gate_up", "", "BF16", "3,136,160", EXPERTS * ROWS * COLS * 2);
    for (size_t e = 0; e < EXPERTS; e++)
        for (size_t i = 0; i < ROWS * COLS; i++)
            want[e][i] = bf16_put(b, codes + (e * ROWS * COLS + i) * 2);
    start(b);
    const uint32_t dims[3] = { EXPERTS, ROWS / 2, COLS };
    lw_stack_names gate_names = up_names;
    gate_names.fused_begin = 0;
    assert_true(lw_names_stack_of(b->names, &gate, dims, &gate_names, "mlp"));
    assert_true(lw_names_stack_of(b->names, &up, dims, &up_names, "mlp"));
    assert_int_equal(lw_names_finish(b->names, &b->d), LW_OK);
    assert_int_equal(lw_names_unused_count(b->names), 0);
    for (uint32_t e = 0; e < EXPERTS; e++) {
        assert_int_equal(count_wrong(&gate, e, want[e]), 0);
        assert_int_equal(count_wrong(&up, e, want[e] + ROWS / 2 * COLS), 0);
        assert_true(count_wrong(&up, e, want[e]) > 0); /* planted control: the other half */
    }
    assert_int_equal(lw_weight_bytes(&gate) + lw_weight_bytes(&up), EXPERTS * ROWS * COLS * 2);
    build_free(b);
}

static void one_module_of_all_members(void **state)
{
    (void)state;
    build *b = build_make("{\"quantization\":{\"group_size\":32,\"bits\":4}}");
    lw_weight w;
    add(b, "mlp.switch.up", ".weight", "U32", "3,136,20", EXPERTS * ROWS * 80);
    add(b, "mlp.switch.up", ".scales", "BF16", "3,136,5", EXPERTS * ROWS * 10);
    add(b, "mlp.switch.up", ".biases", "BF16", "3,136,5", EXPERTS * ROWS * 10);
    start(b);
    assert_true(lw_names_stack_of(b->names, &w, (const uint32_t[]){ EXPERTS, ROWS, COLS }, &up_names, "mlp"));
    assert_int_equal(w.stack_count, EXPERTS);
    assert_true(w.members == NULL && w.has_bias);
    build_free(b);
}

static const lw_stack_names bias_names = { .whole = "switch.up.bias", .each = "experts.*.up.bias" };

/* In one tensor or in one for each member: a member's vector is its only row. */
static void vectors_of_members(void **state)
{
    (void)state;
    const uint32_t dims[2] = { EXPERTS, COLS };
    static double want[EXPERTS][COLS];
    for (int whole = 0; whole < 2; whole++) {
        build *b = build_make("{}");
        lw_weight w;
        uint8_t *one =
            whole == 1 ? add(b, "mlp.switch.up", ".bias", "BF16", "3,160", EXPERTS * COLS * 2) : NULL;
        for (int e = EXPERTS - 1; e >= 0; e--) {
            char module[32];
            snprintf(module, sizeof module, "mlp.experts.%d.up", e);
            uint8_t *to = whole == 1 ? one + e * COLS * 2 : add(b, module, ".bias", "BF16", "160", COLS * 2);
            for (size_t i = 0; i < COLS; i++) want[e][i] = bf16_put(b, to + i * 2);
        }
        start(b);
        assert_false(lw_names_has_vectors(b->names, EXPERTS, &bias_names, "other"));
        assert_true(lw_names_has_vectors(b->names, EXPERTS, &bias_names, "mlp"));
        assert_true(lw_names_vectors_of(b->names, &w, dims, &bias_names, "mlp"));
        if (lw_names_finish(b->names, &b->d) != LW_OK) fail_msg("%s", b->d.text);
        assert_int_equal(lw_names_unused_count(b->names), 0);
        assert_int_equal(w.stack_count, EXPERTS);
        assert_int_equal(w.rows, 1);
        assert_int_equal(lw_weight_bytes(&w), EXPERTS * COLS * 2);
        for (uint32_t e = 0; e < EXPERTS; e++) {
            float got[COLS];
            bool is_next = true;
            lw_weight_dense(&w, e, 0, got);
            for (size_t i = 0; i < COLS; i++) {
                assert_true((double)got[i] == want[e][i]);
                is_next = is_next && (double)got[i] == want[(e + 1) % EXPERTS][i];
            }
            assert_false(is_next); /* planted control: another member */
        }
        build_free(b);
    }
}

/* A vector that some members lack, or of another length, is no zero. */
static void vectors_with_gaps_are_refused(void **state)
{
    (void)state;
    const uint32_t dims[2] = { EXPERTS, COLS };
    build *b = build_make("{}");
    lw_weight w;
    add(b, "mlp.experts.2.up", ".bias", "BF16", "160", COLS * 2);
    add(b, "long.switch.up", ".bias", "BF16", "3,161", EXPERTS * (COLS + 1) * 2);
    start(b);
    assert_true(lw_names_has_vectors(b->names, EXPERTS, &bias_names, "mlp"));
    assert_false(lw_names_has_vectors(b->names, EXPERTS - 1, &bias_names, "mlp"));
    assert_false(lw_names_vectors_of(b->names, &w, dims, &bias_names, "mlp"));
    assert_false(lw_names_vectors_of(b->names, &w, dims, &bias_names, "long"));
    assert_false(lw_names_vectors_of(b->names, &w, (const uint32_t[]){ 0, COLS }, &bias_names, "none"));
    assert_int_equal(lw_names_finish(b->names, &b->d), LW_BAD_MODEL);
    assert_names(b->d.text, "mlp.experts.0.up.bias", "mlp.experts.1.up.bias",
                 "long.switch.up.bias is BF16 [3, 161]", "the config makes it empty");
    build_free(b);
}

static void stacks_with_gaps_are_refused(void **state)
{
    (void)state;
    static double want[ROWS * COLS];
    const uint32_t dims[3] = { EXPERTS, ROWS, COLS };
    build *b = build_make(modelopt);
    lw_weight w;
    add_matrix(b, FORMAT_NVFP4, "mlp.experts.0.up", want);
    add_matrix(b, FORMAT_FP8_TENSOR, "mlp.experts.1.up", want);
    add_matrix(b, FORMAT_NVFP4, "mlp.experts.2.up", want);
    add_matrix(b, FORMAT_NVFP4, "other.experts.0.up", want);
    start(b);
    assert_false(lw_names_stack_of(b->names, &w, dims, &up_names, "mlp"));
    assert_null(w.members);
    assert_false(lw_names_stack_of(b->names, &w, dims, &up_names, "other"));
    assert_false(lw_names_stack_of(b->names, &w, dims, &up_names, "none"));
    assert_false(lw_names_stack_of(b->names, &w, (const uint32_t[]){ 0, ROWS, COLS }, &up_names, "none"));
    assert_int_equal(lw_names_finish(b->names, &b->d), LW_UNSUPPORTED);
    assert_names(b->d.text, "mlp.experts.1.up.weight is stored in another way", "other.experts.1.up.weight",
                 "missing: the experts of none (as switch.up, experts.gate_up or experts.*.up)",
                 "the config makes it empty");
    build_free(b);
}

/* ---- refusals ---- */

static void settings_that_are_not_served(void **state)
{
    (void)state;
#define GPTQ(more) "{\"quantization_config\":{\"quant_method\":\"gptq\",\"group_size\":128" more "}}"
#define TENSORS(more) "{\"quantization_config\":{\"quant_method\":\"compressed-tensors\"" more "}}"
#define WEIGHTS(more) TENSORS(",\"config_groups\":{\"group_7\":{\"weights\":{" more "}}}")
    static const char *const cases[][2] = {
        { GPTQ(",\"bits\":8"), "\"bits\" 8" },
        { GPTQ(",\"bits\":4,\"sym\":false"), "symmetric" },
        { GPTQ(",\"bits\":4,\"checkpoint_format\":\"gptq_v2\""), "gptq_v2" },
        { GPTQ(",\"bits\":4,\"packing_format\":\"auto_round:auto_awq\""), "auto_awq" },
        { GPTQ(",\"bits\":4,\"data_type\":\"mx_fp\""), "mx_fp" },
        { GPTQ(",\"bits\":4,\"dynamic\":{\"+:.*down.*\":{\"bits\":8}}"), "+:.*down.*" },
        { TENSORS(",\"format\":\"marlin-24\""), "marlin-24" },
        { WEIGHTS("\"num_bits\":4,\"type\":\"int\",\"symmetric\":false"), "group_7" },
        { WEIGHTS("\"num_bits\":3,\"type\":\"int\""), "\"num_bits\" 3" },
        { WEIGHTS("\"num_bits\":8,\"type\":\"float\",\"strategy\":\"group\""), "strategy \"group\"" },
        { WEIGHTS("\"num_bits\":8,\"type\":\"posit\""), "posit" },
        { "{\"quantization_config\":{\"quant_method\":\"fp8\",\"fmt\":\"e5m2\"}}", "e5m2" },
        { "{\"quantization_config\":{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4_AWQ\"}}",
          "NVFP4_AWQ" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        build *b = build_make(cases[i][0]);
        safetensors_write(&b->f, "model.safetensors",
                          "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1);
        assert_int_equal(lw_checkpoint_open(b->f.path, &b->c, &b->d), LW_OK);
        assert_int_equal(lw_names_make(b->c, &options, &b->names, &b->d), LW_UNSUPPORTED);
        assert_names(b->d.text, "config.json", cases[i][1]);
        build_free(b);
    }
}

/* ---- ModelOpt's own file ---- */

static const char side_name[] = "hf_quant_config.json";

/* A folder whose config.json says nothing of quantisation but more. */
static build *sided(const char *more, const char *side)
{
    build *b = build_make(more);
    text_write(&b->f, side_name, side);
    return b;
}

static void a_side_file_tells_of_quantisation(void **state)
{
    (void)state;
    static double want[ROWS * COLS];
    static const char mixed[] =
        "{\"producer\":{\"name\":\"modelopt\",\"version\":\"0.41\"},\"quantization\":{"
        "\"quant_algo\":\"MIXED_PRECISION\",\"kv_cache_quant_algo\":\"FP8\",\"exclude_modules\":[\"lm_head\"]"
        ","
        "\"quantized_layers\":{\"model.a\":{\"quant_algo\":\"NVFP4\",\"group_size\":16},"
        "\"model.b\":{\"quant_algo\":\"fp8\"}}}}";
    const struct {
        format form;
        const char *module;
    } sound[] = { { FORMAT_NVFP4, "a" }, { FORMAT_FP8_TENSOR, "b" }, { FORMAT_FP8_TENSOR, "c" } };
    for (size_t i = 0; i < sizeof sound / sizeof sound[0]; i++) {
        build *b = sided("{}", mixed);
        lw_weight w;
        char text[32];
        add_matrix(b, sound[i].form, sound[i].module, want);
        start(b);
        lw_names_matrix(b->names, &w, ROWS, COLS, "%s", sound[i].module);
        if (lw_names_finish(b->names, &b->d) != LW_OK) fail_msg("%s", b->d.text);
        lw_weight_format(&w, text);
        assert_string_equal(text, formats[sound[i].form].name);
        assert_int_equal(count_wrong(&w, 0, want), 0);
        build_free(b);
    }
    /* what it says of a module is held against the tensors, and config.json goes before it */
    const struct {
        const char *config;
        format form;
        const char *module, *named;
    } faults[] = {
        { "{}", FORMAT_FP8_TENSOR, "a", side_name },
        { "{}", FORMAT_NVFP4, "b", side_name },
        { "{}", FORMAT_NVFP4, "lm_head", "says that it is not quantized" },
        { "{}", FORMAT_GPTQ, "c", side_name },
        { fp8, FORMAT_NVFP4, "c", "config.json" },
    };
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        build *b = sided(faults[i].config, mixed);
        lw_weight w;
        add_matrix(b, faults[i].form, faults[i].module, want);
        start(b);
        assert_false(lw_names_matrix(b->names, &w, ROWS, COLS, "%s", faults[i].module));
        assert_true(lw_names_finish(b->names, &b->d) != LW_OK);
        assert_names(b->d.text, faults[i].module, faults[i].named);
        build_free(b);
    }
}

/* How a folder with this side file opens and is named. */
static lw_status side_status(build *b)
{
    safetensors_write(&b->f, "model.safetensors",
                      "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1);
    const lw_status status = lw_checkpoint_open(b->f.path, &b->c, &b->d);
    return status != LW_OK ? status : lw_names_make(b->c, &options, &b->names, &b->d);
}

static void hostile_side_files_are_refused(void **state)
{
    (void)state;
#define SIDE(more) "{\"quantization\":{" more "}}"
    static const struct {
        const char *side;
        lw_status status;
        const char *named;
    } cases[] = {
        { "", LW_BAD_MODEL, side_name },
        { "[]", LW_BAD_MODEL, side_name },
        { "{\"quantization\":{", LW_BAD_MODEL, side_name },
        { "{}", LW_BAD_MODEL, "\"quantization\" is missing" },
        { "{\"quantization\":[\"NVFP4\"]}", LW_BAD_MODEL, "not an object" },
        { SIDE("\"quant_algo\":4"), LW_BAD_MODEL, "\"quant_algo\"" },
        { SIDE("\"quant_algo\":\"W4A8_AWQ\""), LW_UNSUPPORTED, "W4A8_AWQ" },
        { SIDE("\"quant_algo\":\"NVFP4\",\"group_size\":32"), LW_UNSUPPORTED, "\"group_size\" 32" },
        { SIDE("\"quant_algo\":\"NVFP4\",\"group_size\":\"16\""), LW_BAD_MODEL, "\"group_size\"" },
        { SIDE("\"quant_algo\":\"FP8\",\"exclude_modules\":\"lm_head\""), LW_BAD_MODEL,
          "\"exclude_modules\"" },
        { SIDE("\"quant_algo\":\"FP8\",\"exclude_modules\":[1]"), LW_BAD_MODEL, "\"exclude_modules\"" },
        { SIDE("\"quant_algo\":\"FP8\",\"quantized_layers\":[]"), LW_BAD_MODEL, "\"quantized_layers\"" },
        { SIDE("\"quant_algo\":\"FP8\",\"quantized_layers\":{\"x.y\":7}"), LW_BAD_MODEL,
          "quantized_layers.x.y" },
        { SIDE("\"quant_algo\":\"FP8\",\"quantized_layers\":{\"x.y\":{\"quant_algo\":\"INT4_AWQ\"}}"),
          LW_UNSUPPORTED, "INT4_AWQ" },
        { SIDE("\"quant_algo\":null,\"kv_cache_quant_algo\":\"FP8\""), LW_OK, "" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        build *b = sided("{}", cases[i].side);
        assert_int_equal(side_status(b), cases[i].status);
        if (cases[i].status != LW_OK) assert_names(b->d.text, side_name, cases[i].named);
        build_free(b);
    }
    build *b = sided("{}", "{}");
    char path[512];
    snprintf(path, sizeof path, "%s/%s", b->f.path, side_name);
    assert_int_equal(truncate(path, (off_t)LW_LIMIT_CONFIG_BYTES + 1), 0);
    assert_true(side_status(b) != LW_OK);
    assert_names(b->d.text, side_name, "bytes");
    build_free(b);
    b = sided(fp8, "[]"); /* what is not needed is not read */
    assert_int_equal(side_status(b), LW_OK);
    build_free(b);
}

/* A file that is well formed but for one thing, told apart by the text of its refusal. */
typedef struct fault {
    const char *config;
    format form;
    const char *module;
    const char *extra, *dtype, *shape; /* a further tensor beside the module's; NULL: none */
    size_t bytes;
    uint8_t byte;                      /* what fills it */
    const char *named;
} fault;

static void contradictions_are_named(void **state)
{
    (void)state;
    static double want[ROWS * COLS];
    static const char reordered[] = "{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,"
                                    "\"group_size\":32,\"sym\":true,\"desc_act\":true}}";
    static const char coarse[] = "{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,"
                                 "\"group_size\":128,\"sym\":true}}";
    static const char only4[] = "{\"quantization_config\":{\"quant_method\":\"modelopt\","
                                "\"quant_algo\":\"NVFP4\"}}";
    static const char blocks64[] = "{\"quantization_config\":{\"quant_method\":\"fp8\","
                                   "\"weight_block_size\":[64,64]}}";
    static const fault faults[] = {
        { "{}", FORMAT_GPTQ, "a", NULL, NULL, NULL, 0, 0, "has no \"quantization_config\"" },
        { fp8, FORMAT_GPTQ, "a", NULL, NULL, NULL, 0, 0, "not what" },
        { coarse, FORMAT_GPTQ, "a", NULL, NULL, NULL, 0, 0, "group 32, which is not what" },
        { gptq, FORMAT_GPTQ, "own", NULL, NULL, NULL, 0, 0, "group 32, which is not what" },
        { gptq, FORMAT_GPTQ, "plain", NULL, NULL, NULL, 0, 0, "says that it is not quantized" },
        { gptq, FORMAT_GPTQ, "deep.kept.in", NULL, NULL, NULL, 0, 0, "says that it is not quantized" },
        { gptq, FORMAT_GPTQ, "a", ".g_idx", "I32", "160", 640, 1, "reorders the inputs" },
        { gptq, FORMAT_GPTQ, "a", ".g_idx", "I32", "32", 128, 0, "160 whole numbers" },
        { reordered, FORMAT_GPTQ, "a", ".g_idx", "I32", "160", 640, 0, "reorders the inputs" },
        { reordered, FORMAT_GPTQ, "a", NULL, NULL, NULL, 0, 0, "missing: model.a.g_idx" },
        { packed, FORMAT_PACKED4, "lm_head", NULL, NULL, NULL, 0, 0, "says that it is not quantized" },
        { packed, FORMAT_PACKED4, "a", ".weight_zero_point", "I32", "1", 4, 0, "weight_zero_point" },
        { packed, FORMAT_PACKED4, "a", ".weight_g_idx", "I32", "1", 4, 0, "weight_g_idx" },
        { packed, FORMAT_FP8_TENSOR, "a", NULL, NULL, NULL, 0, 0, "FP8, 8 bits, one scale, which is not" },
        { blocks64, FORMAT_FP8_BLOCK, "a", NULL, NULL, NULL, 0, 0, "asks for [3, 3]" },
        { modelopt, FORMAT_NVFP4, "kept_one", NULL, NULL, NULL, 0, 0, "FP4" },
        { modelopt, FORMAT_NVFP4, "a", ".pre_quant_scale", "F32", "1", 4, 0, "pre_quant_scale" },
        { only4, FORMAT_FP8_TENSOR, "a", NULL, NULL, NULL, 0, 0, "not what" },
        { gptq, FORMAT_BF16, "a", ".qweight", "I32", "1", 4, 0, "model.a.qweight is there" },
    };
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        const fault *f = &faults[i];
        build *b = build_make(f->config);
        lw_weight w;
        add_matrix(b, f->form, f->module, want);
        if (f->extra != NULL)
            memset(add(b, f->module, f->extra, f->dtype, f->shape, f->bytes), f->byte, f->bytes);
        start(b);
        if (strcmp(f->module, "kept_one") ==
            0) { /* a glob covers whole names: "kept*" is not "model.kept_one" */
            assert_true(lw_names_matrix(b->names, &w, ROWS, COLS, "%s", f->module));
            build_free(b);
            continue;
        }
        assert_false(lw_names_matrix(b->names, &w, ROWS, COLS, "%s", f->module));
        assert_true(lw_names_finish(b->names, &b->d) != LW_OK);
        assert_names(b->d.text, f->named);
        build_free(b);
    }
}

static void values_that_cannot_be_are_named(void **state)
{
    (void)state;
    build *b = build_make(packed);
    lw_weight w;
    const uint32_t nan = 0x7FC00000u;
    add(b, "a", ".weight_packed", "U8", "1,8", 8);
    add(b, "a", ".weight_scale", "F8_E4M3", "1,1", 1);
    add(b, "a", ".weight_global_scale", "F32", "1", 4);
    add(b, "b", ".weight_packed", "U8", "1,8", 8);
    add(b, "b", ".weight_scale", "F8_E4M3", "1,1", 1);
    memcpy(add(b, "b", ".weight_global_scale", "F32", "1", 4), &nan, 4);
    add(b, "c", ".weight_packed", "U8", "1,8", 8);
    add(b, "c", ".weight_scale", "U8", "1,1", 1);
    add(b, "d", ".weight", "F8_E4M3", "1,32", 32);
    add(b, "d", ".weight_scale", "U8", "1,1", 1);
    start(b);
    for (int i = 0; i < 3; i++) assert_false(lw_names_matrix(b->names, &w, 1, 16, "%c", 'a' + i));
    assert_false(lw_names_matrix(b->names, &w, 1, 32, "d"));
    assert_int_equal(lw_names_finish(b->names, &b->d), LW_UNSUPPORTED);
    assert_names(b->d.text, "divides by zero", "model.b.weight_global_scale is not a number",
                 "U8 weights with U8 scales", "F8_E4M3 weights with U8 scales");
    build_free(b);
}

static void zero_points_must_be_plain(void **state)
{
    (void)state;
    static double want[ROWS * COLS];
    build *b = build_make(gptq);
    lw_weight w;
    add_gptq(b, "a", want);
    b->data[b->data_bytes - 1] = 0x76; /* the last of the zero points */
    start(b);
    assert_false(lw_names_matrix(b->names, &w, ROWS, COLS, "a"));
    assert_int_equal(lw_names_finish(b->names, &b->d), LW_UNSUPPORTED);
    assert_names(b->d.text, "model.a.qzeros holds zero points of its own");
    build_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrices_have_their_exact_values),
        cmocka_unit_test(worked_examples_hold),
        cmocka_unit_test(members_in_tensors_of_their_own),
        cmocka_unit_test(halves_of_a_fused_tensor),
        cmocka_unit_test(one_module_of_all_members),
        cmocka_unit_test(stacks_with_gaps_are_refused),
        cmocka_unit_test(vectors_of_members),
        cmocka_unit_test(vectors_with_gaps_are_refused),
        cmocka_unit_test(a_side_file_tells_of_quantisation),
        cmocka_unit_test(hostile_side_files_are_refused),
        cmocka_unit_test(settings_that_are_not_served),
        cmocka_unit_test(contradictions_are_named),
        cmocka_unit_test(values_that_cannot_be_are_named),
        cmocka_unit_test(zero_points_must_be_plain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
