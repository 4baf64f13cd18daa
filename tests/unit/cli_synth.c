/* Synthetic models: their images are sound, the families record them, their weights hold the random values,
 * and a cut shape counts what its whole model reads. */
#include "cli/bench_bytes.h"
#include "cli/synth.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static const char *const formats[] = { "bf16", "8bit", "6bit", "4bit" };
enum { FORMAT_COUNT = sizeof formats / sizeof formats[0] };

/* Tensors lie one after the other and fill the data; returns their number. */
static size_t check_header(const lw_buf *header, uint64_t data_bytes)
{
    uint64_t length = 0;
    for (unsigned i = 8; i > 0; i--) length = length << 8 | (uint8_t)header->bytes[i - 1];
    assert_int_equal(length, header->count - 8);
    json_t *object = json_loadb(header->bytes + 8, header->count - 8, 0, NULL);
    assert_non_null(object);
    const char *name;
    json_t *item;
    json_int_t end_before = 0;
    size_t count = 0;
    json_object_foreach(object, name, item)
    {
        if (strcmp(name, "__metadata__") == 0) continue;
        json_int_t begin = -1, end = -1;
        assert_int_equal(json_unpack(item, "{s:[I,I]}", "data_offsets", &begin, &end), 0);
        assert_int_equal(begin, end_before);
        assert_true(end > begin);
        end_before = end;
        count++;
    }
    assert_int_equal(end_before, data_bytes);
    json_decref(object);
    return count;
}

static void images_are_sound(void **state)
{
    (void)state;
    for (size_t i = 0; lw_synth_shape_name(i) != NULL; i++) {
        assert_non_null(strstr(LW_SYNTH_SHAPES, lw_synth_shape_name(i)));
        for (size_t j = 0; j < FORMAT_COUNT; j++) {
            char name[64];
            snprintf(name, sizeof name, "%s-%s", lw_synth_shape_name(i), formats[j]);
            lw_buf config, header;
            lw_buf_init(&config, 0);
            lw_buf_init(&header, 0);
            uint64_t data_bytes = 0;
            assert_int_equal(lw_synth_image(name, &config, &header, &data_bytes, NULL), LW_OK);
            json_t *object = json_loadb(config.bytes, config.count, 0, NULL);
            assert_non_null(object);
            json_decref(object);
            assert_true(check_header(&header, data_bytes) > 70);
            lw_buf_deinit(&config);
            lw_buf_deinit(&header);
        }
    }
}

static void unknown_names_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = { "",     "lfm3-1.7b",        "lfm3-1.7b-5bit",      "lfm3-1.7b-4bit ",
                                         "4bit", "qwen3.8-28b-4bit", "nemotron-30b-a3b-cut" };
    lw_diag d;
    lw_synth synth;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_int_equal(lw_synth_make(names[i], false, &synth, &d), LW_BAD_INPUT);
        assert_non_null(strstr(d.text, "lfm2-1.2b"));
    }
}

/* Which of the synth's values a weight points at: codes, dense, norms. */
static unsigned kind_of(const lw_weight *weight)
{
    if (weight->group != 0) return 0;
    return strstr(weight->name, "norm") == NULL ? 1 : 2;
}

static void check_weight(const lw_synth *synth, const lw_weight *weight)
{
    const unsigned kind = kind_of(weight);
    assert_ptr_equal(weight->codes->bytes, synth->values[kind]);
    if (kind == 0) {
        assert_ptr_equal(weight->scales->bytes, synth->values[3]);
        assert_ptr_equal(weight->biases->bytes, synth->values[4]);
    }
    double values[1 << 15];
    assert_true(weight->cols <= 1 << 15);
    lw_weight_row_f64(weight, weight->stack_count - 1, weight->rows - 1, values);
    double largest = 0.0, sum = 0.0;
    for (uint32_t i = 0; i < weight->cols; i++) {
        const double magnitude = values[i] < 0 ? -values[i] : values[i];
        largest = magnitude > largest ? magnitude : largest;
        sum += values[i];
    }
    const double mean = sum / weight->cols;
    if (kind == 2) {
        assert_true(largest < 1.5 && mean > 1.0);
        return;
    }
    assert_true(largest > 0.005 && largest < 0.1); /* sizes of trained weights */
    if (weight->cols >= 256) assert_true(mean < 0.01 && mean > -0.01);
}

static void weights_hold_random_values(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t weights_least, entries;
    } cases[] = {
        { "lfm3-350m-4bit", 100, 1 },           { "lfm3-350m-8bit", 100, 1 },
        { "lfm3-350m-bf16", 100, 1 },           { "lfm2-1.2b-6bit", 100, 1 },
        { "qwen3.5-0.8b-4bit", 100, 2 },        { "qwen3.5-35b-a3b-cut-4bit", 70, 2 },
        { "nemotron-30b-a3b-cut-4bit", 50, 2 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lw_diag d = { .text = "" };
        lw_synth synth;
        if (lw_synth_make(cases[i].name, true, &synth, &d) != LW_OK)
            fail_msg("%s: %s", cases[i].name, d.text);
        assert_true(synth.plan.weight_count > cases[i].weights_least);
        assert_int_equal(synth.plan.entry_count, cases[i].entries);
        for (uint32_t j = 0; j < synth.plan.weight_count; j++) check_weight(&synth, &synth.plan.weights[j]);
        lw_synth_drop(&synth);
        lw_synth_close(&synth);
    }
}

static lw_read_bytes reads_of(const char *name, bool is_stretched)
{
    lw_diag d = { .text = "" };
    lw_synth synth;
    double scales[64];
    if (lw_synth_make(name, false, &synth, &d) != LW_OK) fail_msg("%s: %s", name, d.text);
    for (uint32_t i = 0; i < strlen(synth.shape->layers); i++)
        scales[i] = lw_synth_stands_for(synth.shape, i);
    const lw_read_bytes out = lw_token_reads(&synth.plan, 1000, is_stretched ? scales : NULL);
    lw_synth_close(&synth);
    return out;
}

/* relative: a share of b. */
static bool is_near(uint64_t a, double b, double relative)
{
    return (double)a >= b * (1.0 - relative) && (double)a <= b * (1.0 + relative);
}

/* Sums over the parameters that a token meets, 4.5 bits each; routers, norms and convolutions in 16. */
static void tokens_read_what_the_parameters_say(void **state)
{
    (void)state;
    const double bytes = 4.5 / 8;
    const double nemotron = bytes * (890.3e6 + 140.4e6 + 1376.9e6 + 459.0e6 + 352.3e6) + 15.8e6 + 2e6;
    const lw_read_bytes whole = reads_of("nemotron-30b-a3b-4bit", false);
    assert_true(is_near(whole.weights, nemotron, 0.005));
    /* anchors of 23 recurrences, half a stretch of their steps, keys and values of 6 layers */
    const double steps = 32.0 * 4 * (1024 + 4096 + 64);
    assert_true(is_near(whole.states, 23 * (64 * 64 * 128 * 4.0 + steps) + 6144e3 + 0.9e6, 0.01));

    assert_true(is_near(whole.keys, 6144e3, 0.001));

    const lw_read_bytes stretched = reads_of("nemotron-30b-a3b-cut-4bit", true);
    assert_true(is_near(stretched.weights, (double)whole.weights, 1e-6));
    assert_true(is_near(stretched.states, (double)whole.states, 1e-6));
    assert_true(is_near(stretched.keys, (double)whole.keys, 1e-6));
    const lw_read_bytes cut = reads_of("nemotron-30b-a3b-cut-4bit", false);
    assert_false(is_near(cut.weights, (double)whole.weights, 0.5)); /* the check can fail */
}

static void cut_layers_stand_for_the_whole(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t whole;
        double first, last;
    } cases[] = {
        { "qwen3.8-27b-cut-4bit", 64, 16.0, 16.0 },
        { "qwen3.5-35b-a3b-cut-4bit", 40, 10.0, 10.0 },
        { "nemotron-30b-a3b-cut-4bit", 52, 23.0 / 3, 23.0 / 3 },
        { "nemotron-30b-a3b-4bit", 52, 1.0, 1.0 },
        { "qwen3.5-0.8b-bf16", 24, 1.0, 1.0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const lw_synth_shape *shape = NULL;
        uint32_t bits;
        assert_int_equal(lw_synth_shape_find(cases[i].name, &shape, &bits, NULL), LW_OK);
        const uint32_t last = (uint32_t)strlen(shape->layers) - 1;
        double sum = 0.0;
        for (uint32_t layer = 0; layer <= last; layer++) sum += lw_synth_stands_for(shape, layer);
        assert_int_equal(lw_synth_layers_whole(shape), cases[i].whole);
        assert_true(sum > cases[i].whole - 1e-9 && sum < cases[i].whole + 1e-9);
        assert_true(lw_synth_stands_for(shape, 0) == cases[i].first);
        assert_true(lw_synth_stands_for(shape, last) == cases[i].last);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_are_sound),
        cmocka_unit_test(unknown_names_are_refused),
        cmocka_unit_test(weights_hold_random_values),
        cmocka_unit_test(tokens_read_what_the_parameters_say),
        cmocka_unit_test(cut_layers_stand_for_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
