/* Synthetic models: their images are sound, the families record them, and their weights hold the random
 * values. */
#include "cli/synth.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static const char *const shapes[] = { "lfm3-1.7b", "lfm3-350m", "lfm2-1.2b" };
static const char *const formats[] = { "bf16", "8bit", "6bit", "4bit" };
enum { SHAPE_COUNT = sizeof shapes / sizeof shapes[0], FORMAT_COUNT = sizeof formats / sizeof formats[0] };

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
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        for (size_t j = 0; j < FORMAT_COUNT; j++) {
            char name[64];
            snprintf(name, sizeof name, "%s-%s", shapes[i], formats[j]);
            assert_true(lw_synth_is_known(name));
            lw_buf config, header;
            lw_buf_init(&config, 0);
            lw_buf_init(&header, 0);
            uint64_t data_bytes = 0;
            assert_int_equal(lw_synth_image(name, &config, &header, &data_bytes, NULL), LW_OK);
            json_t *object = json_loadb(config.bytes, config.count, 0, NULL);
            assert_non_null(object);
            json_decref(object);
            assert_true(check_header(&header, data_bytes) > 100);
            lw_buf_deinit(&config);
            lw_buf_deinit(&header);
        }
    }
}

static void unknown_names_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = { "", "lfm3-1.7b", "lfm3-1.7b-5bit", "lfm3-1.7b-4bit ", "4bit" };
    lw_diag d;
    lw_synth synth;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_false(lw_synth_is_known(names[i]));
        assert_int_equal(lw_synth_make(names[i], &synth, &d), LW_BAD_INPUT);
        assert_non_null(strstr(d.text, "lfm2-1.2b"));
    }
}

static void check_weight(const lw_synth *synth, const lw_weight *weight)
{
    const bool is_dense = weight->group == 0;
    assert_ptr_equal(weight->codes->bytes, synth->values[is_dense ? 1 : 0]);
    if (!is_dense) {
        assert_ptr_equal(weight->scales->bytes, synth->values[2]);
        assert_ptr_equal(weight->biases->bytes, synth->values[3]);
    }
    double values[8192];
    assert_true(weight->cols <= 8192);
    lw_weight_row_f64(weight, 0, weight->rows - 1, values);
    double largest = 0.0, sum = 0.0;
    for (uint32_t i = 0; i < weight->cols; i++) {
        const double magnitude = values[i] < 0 ? -values[i] : values[i];
        largest = magnitude > largest ? magnitude : largest;
        sum += values[i];
    }
    assert_true(largest > 0.005 && largest < 0.1); /* sizes of trained weights */
    if (weight->cols >= 256) assert_true(sum < 0.01 * weight->cols && sum > -0.01 * weight->cols);
}

static void weights_hold_random_values(void **state)
{
    (void)state;
    static const char *const names[] = { "lfm3-350m-4bit", "lfm3-350m-8bit", "lfm3-350m-bf16",
                                         "lfm2-1.2b-6bit" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        lw_diag d = { .text = "" };
        lw_synth synth;
        if (lw_synth_make(names[i], &synth, &d) != LW_OK) fail_msg("%s: %s", names[i], d.text);
        assert_true(synth.plan.weight_count > 100);
        for (uint32_t j = 0; j < synth.plan.weight_count; j++) check_weight(&synth, &synth.plan.weights[j]);
        lw_synth_drop(&synth);
        lw_synth_close(&synth);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_are_sound),
        cmocka_unit_test(unknown_names_are_refused),
        cmocka_unit_test(weights_hold_random_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
