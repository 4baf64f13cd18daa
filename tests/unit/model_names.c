/* Names and quantisation settings against the shapes in the file: what agrees becomes a descriptor, what does
 * not is named, all in one error.
 */
#include "model/names.h"

#include "model_files.h"

static const char *const prefixes[] = { "model.language_model.", "language_model.model.", "model.", "",
                                        NULL };
static const char *const ignored[] = { "vision_tower.", NULL };
static const lw_alias aliases[] = {
    { "self_attn.out_proj", "self_attn.o_proj" },
    { "feed_forward", "mlp" },
    { "w1", "gate_proj" },
    { "norm_in", "input_layernorm" },
    { "norm_in", "operator_norm" },
    { NULL, NULL },
};
static const lw_names_options options = { .prefixes = prefixes, .aliases = aliases, .ignored = ignored };

/* A folder being described: tensors are added with shapes alone, their bytes count up. */
typedef struct build {
    folder f;
    char header[8192];
    size_t data_bytes;
    lw_checkpoint *c;
    lw_names *names;
    lw_diag d;
} build;

static build *build_make(const char *config)
{
    build *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->f = folder_make();
    text_write(&b->f, "config.json", config);
    return b;
}

static void add(build *b, const char *name, const char *dtype, const char *shape, size_t bytes)
{
    const size_t at = strlen(b->header);
    snprintf(b->header + at, sizeof b->header - at,
             "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}", at == 0 ? "{" : ",",
             name, dtype, shape, b->data_bytes, b->data_bytes + bytes);
    b->data_bytes += bytes;
}

/* A module of 2 x 64 in 4 bits, group 64, unless told otherwise. */
static void add_quantised(build *b, const char *module, const char *words, size_t word_bytes,
                          const char *groups, size_t group_bytes)
{
    char name[256];
    snprintf(name, sizeof name, "%s.weight", module);
    add(b, name, "U32", words, word_bytes);
    snprintf(name, sizeof name, "%s.scales", module);
    add(b, name, "BF16", groups, group_bytes);
    snprintf(name, sizeof name, "%s.biases", module);
    add(b, name, "BF16", groups, group_bytes);
}

static lw_status start(build *b)
{
    const size_t end = strlen(b->header);
    snprintf(b->header + end, sizeof b->header - end, "}");
    safetensors_write(&b->f, "model.safetensors", b->header, b->data_bytes);
    if (lw_checkpoint_open(b->f.path, &b->c, &b->d) != LW_OK) fail_msg("%s", b->d.text);
    return lw_names_make(b->c, &options, &b->names, &b->d);
}

static void build_free(build *b)
{
    lw_names_free(b->names);
    lw_checkpoint_close(b->c);
    folder_free(&b->f);
    free(b);
}

static const char global4[] = "{\"quantization\":{\"group_size\":64,\"bits\":4}}";

static void aliases_combine_and_the_prefix_sticks(void **state)
{
    (void)state;
    build *b = build_make("{}");
    lw_weight w;
    add(b, "language_model.model.layers.0.mlp.gate_proj.weight", "BF16", "2,4", 16);
    add(b, "language_model.model.layers.0.self_attn.o_proj.weight", "F16", "2,4", 16);
    add(b, "language_model.model.layers.0.operator_norm.weight", "F32", "4", 16);
    add(b, "language_model.lm_head.weight", "F32", "2,4", 32);
    add(b, "mtp.fc.weight", "F32", "2,4", 32);
    add(b, "model.layers.0.stray.weight", "F32", "2,4", 32);
    add(b, "vision_tower.x", "U8", "1", 1);
    assert_int_equal(start(b), LW_OK);
    assert_true(lw_names_matrix(b->names, &w, 2, 4, "layers.%d.feed_forward.w1", 0));
    assert_int_equal(w.map, LW_MAP_BF16);
    assert_string_equal(w.name, "language_model.model.layers.0.mlp.gate_proj.weight");
    assert_true(lw_names_matrix(b->names, &w, 2, 4, "layers.0.self_attn.out_proj"));
    assert_int_equal(w.map, LW_MAP_FP16);
    assert_true(lw_names_dense(b->names, &w, 1, 4, "layers.0.norm_in.weight"));
    assert_true(lw_names_matrix(b->names, &w, 2, 4, "lm_head"));
    assert_true(lw_names_matrix_any_rows(b->names, &w, 4, "mtp.fc"));
    assert_int_equal(w.rows, 2);
    assert_true(lw_names_has(b->names, "layers.0.feed_forward.w1"));
    assert_false(lw_names_has(b->names, "layers.0.stray")); /* only under a prefix that did not win */
    assert_int_equal(lw_names_finish(b->names, &b->d), LW_OK);
    assert_int_equal(lw_names_unused_count(b->names), 1);
    assert_string_equal(lw_names_unused(b->names, 0), "model.layers.0.stray.weight");
    build_free(b);
}

static void quantised_modules_become_descriptors(void **state)
{
    (void)state;
    build *b = build_make("{\"quantization\":{\"group_size\":64,\"bits\":4,\"model.b\":{\"bits\":6,"
                          "\"group_size\":32},\"model.c\":{\"bits\":8},\"model.d\":false,"
                          "\"model.e\":{},\"model.f\":true}}");
    lw_weight w;
    char text[32];
    add_quantised(b, "model.a", "2,8", 64, "2,1", 4);
    add_quantised(b, "model.b", "2,12", 96, "2,2", 8);
    add_quantised(b, "model.c", "2,16", 128, "2,1", 4);
    add(b, "model.d.weight", "BF16", "2,64", 256);
    add(b, "model.e.weight", "BF16", "2,64", 256);
    add_quantised(b, "model.f.g", "3,2,8", 192, "3,2,1", 12);
    assert_int_equal(start(b), LW_OK);
    static const char *const formats[] = { "int4 group 64", "int6 group 32", "int8 group 64", "bf16",
                                           "bf16" };
    for (int i = 0; i < 5; i++) {
        assert_true(lw_names_matrix(b->names, &w, 2, 64, "%c", 'a' + i));
        lw_weight_format(&w, text);
        assert_string_equal(text, formats[i]);
    }
    const lw_stack_names stored = { .whole = "g" };
    assert_true(lw_names_stack_of(b->names, &w, (const uint32_t[]){ 3, 2, 64 }, &stored, "f"));
    assert_int_equal(w.stack_count, 3);
    assert_int_equal(w.rows, 2);
    assert_true(w.has_bias && w.scales != NULL && w.biases != NULL && w.scale_type == LW_DTYPE_BF16);
    assert_int_equal(lw_names_finish(b->names, &b->d), LW_OK);
    assert_int_equal(lw_names_unused_count(b->names), 0);
    build_free(b);
}

/* Side files carry their own settings in metadata. */
static void side_files_bring_their_settings(void **state)
{
    (void)state;
    build *b = build_make(global4), *side = build_make("{}");
    lw_weight w;
    add_quantised(b, "model.a", "2,8", 64, "2,1", 4);
    add_quantised(side, "fc", "2,16", 128, "2,2", 8);
    char header[8192];
    snprintf(header, sizeof header,
             "{\"__metadata__\":{\"quantization\":\"{\\\"bits\\\":8,\\\"group_size\\\":32}\"},%s}",
             side->header + 1);
    safetensors_write(&b->f, "mtp.safetensors", header, side->data_bytes);
    assert_int_equal(start(b), LW_OK);
    assert_true(lw_names_matrix(b->names, &w, 2, 64, "a"));
    assert_int_equal(w.code_bits, 4);
    assert_true(lw_names_matrix(b->names, &w, 2, 64, "mtp.fc"));
    assert_int_equal(w.code_bits, 8);
    assert_int_equal(w.group, 32);
    build_free(b);
    build_free(side);
}

typedef struct contradiction {
    const char *config;
    const char *words;
    size_t word_bytes;
    const char *groups;
    size_t group_bytes;
    lw_status status;
    const char *named[2];
} contradiction;

static void contradictions_are_never_guessed(void **state)
{
    (void)state;
    static const contradiction cases[] = {
        { "{\"quantization\":{\"bits\":8,\"group_size\":64}}", "2,8", 64, "2,1", 4,
          LW_BAD_MODEL, { "8 bits, group 64", "which is 4 bits, group 64" } },
        { "{\"quantization\":{\"bits\":4,\"group_size\":32}}", "2,8", 64, "2,1", 4,
          LW_BAD_MODEL, { "4 bits, group 32", "which is 4 bits, group 64" } },
        { "{\"quantization\":{\"bits\":4,\"group_size\":64}}", "3,8", 96, "3,1", 6,
          LW_BAD_MODEL, { "[2, 64]", "U32 [3, 8]" } },
        { "{\"quantization\":{\"bits\":4,\"group_size\":64}}", "2,8", 64, "3,1", 6,
          LW_BAD_MODEL, { "U32 [2, 8]", "BF16 [3, 1]" } },
        { "{\"quantization\":{\"bits\":4,\"group_size\":64,\"model.a\":{\"bits\":8}}}", "2,8", 64, "2,1", 4,
          LW_BAD_MODEL, { "8 bits", "which is 4 bits" } },
        { "{\"quantization\":{\"bits\":4,\"group_size\":64,\"model.a\":false}}", "2,8", 64, "2,1", 4,
          LW_BAD_MODEL, { "model.a.weight", "not quantized" } },
        { "{}", "2,8", 64, "2,1", 4, LW_BAD_MODEL, { "model.a.weight", "has no \"quantization\"" } },
        { "{\"quantization\":{\"model.a\":{\"mode\":\"mxfp4\"}}}", "2,8", 64, "2,1", 4,
          LW_UNSUPPORTED, { "mxfp4", "model.a" } },
        { "{\"quantization\":{\"model.a\":{\"bits\":7}}}", "2,8", 64, "2,1", 4,
          LW_UNSUPPORTED, { "7", "model.a" } },
        { "{\"quantization\":{\"model.a\":7}}", "2,8", 64, "2,1", 4, LW_BAD_MODEL, { "neither", "model.a" } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        build *b = build_make(cases[i].config);
        lw_weight w;
        add_quantised(b, "model.a", cases[i].words, cases[i].word_bytes, cases[i].groups,
                      cases[i].group_bytes);
        assert_int_equal(start(b), LW_OK);
        assert_false(lw_names_matrix(b->names, &w, 2, 64, "a"));
        assert_null(w.codes);
        assert_int_equal(lw_names_finish(b->names, &b->d), cases[i].status);
        assert_names(b->d.text, b->f.path, cases[i].named[0], cases[i].named[1]);
        build_free(b);
    }
}

static void parts_must_match(void **state)
{
    (void)state;
    build *b = build_make("{\"quantization\":{\"bits\":4,\"group_size\":64,\"model.d\":{\"bits\":4}}}");
    lw_weight w;
    add(b, "model.a.weight", "U32", "2,8", 64);
    add(b, "model.a.scales", "BF16", "2,1", 4);
    add(b, "model.b.weight", "U32", "2,8", 64);
    add(b, "model.b.scales", "BF16", "2,1", 4);
    add(b, "model.b.biases", "F16", "2,1", 4);
    add(b, "model.c.weight", "U32", "2,8", 64);
    add(b, "model.c.scales", "U8", "2,1", 2);
    add(b, "model.c.biases", "U8", "2,1", 2);
    add(b, "model.d.weight", "BF16", "2,64", 256);
    add(b, "model.e.weight", "BF16", "2,64", 256);
    add(b, "model.e.scales", "BF16", "2,1", 4);
    add(b, "model.f.weight", "I8", "2,64", 128);
    assert_int_equal(start(b), LW_OK);
    for (int i = 0; i < 6; i++) assert_false(lw_names_matrix(b->names, &w, 2, 64, "%c", 'a' + i));
    assert_int_equal(lw_names_finish(b->names, &b->d), LW_UNSUPPORTED);
    assert_names(b->d.text, "6 weights", "missing: model.a.biases", "model.b.biases is F16 [2, 1]",
                 "model.c.scales", "dtype U8", "model.d.weight is BF16", "model.e.scales is there",
                 "I8 weights are not served");
    build_free(b);
}

static void unserved_methods_are_refused_by_name(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "{\"quantization_config\":{\"quant_method\":\"awq\",\"bits\":4}}", "awq" },
        { "{\"quantization\":{\"mode\":\"mxfp8\",\"bits\":8,\"group_size\":32}}", "mxfp8" },
        { "{\"quantization\":{\"bits\":4,\"group_size\":16}}", "32, 64, 128" },
        { "{\"quantization\":{\"bits\":7}}", "2, 3, 4, 5, 6, 8" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        build *b = build_make(cases[i][0]);
        add(b, "model.a.weight", "BF16", "2,64", 256);
        assert_int_equal(start(b), LW_UNSUPPORTED);
        assert_null(b->names);
        assert_names(b->d.text, "config.json", cases[i][1]);
        build_free(b);
    }
    /* "quantization" is read first: what else the file says of its past does not matter. */
    build *b = build_make("{\"quantization\":{\"bits\":4},"
                          "\"quantization_config\":{\"quant_method\":\"gptq\"}}");
    add(b, "model.a.weight", "BF16", "2,64", 256);
    assert_int_equal(start(b), LW_OK);
    build_free(b);
}

static void everything_missing_comes_in_one_error(void **state)
{
    (void)state;
    build *b = build_make("{}");
    lw_weight w;
    add(b, "model.norm.weight", "BF16", "1,8,1", 16);
    add(b, "model.wide.weight", "BF16", "2,8", 32);
    assert_int_equal(start(b), LW_OK);
    assert_true(lw_names_dense(b->names, &w, 8, 1, "norm.weight"));
    assert_int_equal(w.rows, 8);
    assert_false(lw_names_dense(b->names, &w, 1, 7, "norm.weight"));
    assert_false(lw_names_matrix(b->names, &w, 8, 2, "wide"));
    assert_false(lw_names_matrix(b->names, &w, 0, 8, "wide"));
    assert_false(lw_names_matrix_any_rows(b->names, &w, 0, "wide"));
    const lw_stack_names stored = { .whole = "stack" };
    assert_false(lw_names_stack_of(b->names, &w, (const uint32_t[]){ 0, 2, 8 }, &stored, "wide"));
    assert_false(lw_names_dense(b->names, &w, 0, 8, "norm.weight"));
    for (int i = 0; i < 20; i++)
        assert_false(lw_names_matrix(b->names, &w, 2, 4, "layers.%d.self_attn.out_proj", i));
    assert_int_equal(lw_names_finish(b->names, &b->d), LW_BAD_MODEL);
    assert_names(
        b->d.text, "26 weights", "7 elements", "BF16 [2, 8]", "[8, 2]", "wide: the config makes it empty",
        "layers.3.self_attn.out_proj.weight",
        "tried model.layers.3.self_attn.out_proj.weight, model.layers.3.self_attn.o_proj.weight", "more");
    assert_null(strstr(b->d.text, "layers.19."));
    build_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(aliases_combine_and_the_prefix_sticks),
        cmocka_unit_test(quantised_modules_become_descriptors),
        cmocka_unit_test(side_files_bring_their_settings),
        cmocka_unit_test(contradictions_are_never_guessed),
        cmocka_unit_test(parts_must_match),
        cmocka_unit_test(unserved_methods_are_refused_by_name),
        cmocka_unit_test(everything_missing_comes_in_one_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
