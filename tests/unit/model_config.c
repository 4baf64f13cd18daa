/* Configs with the quirks that exporters write, and values that must be refused by key. */
#include "model/config.h"

#include "model_files.h"

#include <math.h>

static lw_config *config_of(const char *json)
{
    lw_config *config;
    lw_diag d;
    if (lw_config_parse(json, strlen(json), "config.json", &config, &d) != LW_OK) fail_msg("%s", d.text);
    return config;
}

static void inner_values_come_first(void **state)
{
    (void)state;
    lw_config *c = config_of("{\"a\":1,\"b\":2,\"d\":4,\"text_config\":{\"a\":10,\"b\":null,\"c\":30}}");
    uint32_t value;
    lw_diag d;
    assert_int_equal(lw_config_u32(c, "a", NULL, 100, &value, &d), LW_OK);
    assert_int_equal(value, 10);
    assert_int_equal(lw_config_u32(c, "b", NULL, 100, &value, &d), LW_OK);
    assert_int_equal(value, 2);
    assert_int_equal(lw_config_u32(c, "x|d|c", NULL, 100, &value, &d), LW_OK);
    assert_int_equal(value, 30); /* c stands under text_config, d only outside */
    const uint32_t fallback = 7;
    assert_int_equal(lw_config_u32(c, "absent", &fallback, 100, &value, &d), LW_OK);
    assert_int_equal(value, 7);
    assert_int_equal(lw_config_u32(c, "absent|other", NULL, 100, &value, &d), LW_BAD_MODEL);
    assert_names(d.text, "config.json", "\"absent\"", "missing");
    lw_config_close(c);
}

static void wrong_numbers_are_refused(void **state)
{
    (void)state;
    lw_config *c = config_of("{\"neg\":-1,\"frac\":1.5,\"real\":64.0,\"big\":4294967296,\"text\":\"4\","
                             "\"bool\":true,\"list\":[1],\"ten\":10,\"exp\":1e300}");
    static const char *const bad[] = { "neg", "frac", "big", "text", "bool", "list", "exp" };
    lw_diag d;
    uint32_t value = 99;
    double real;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(lw_config_u32(c, bad[i], NULL, UINT32_MAX, &value, &d), LW_BAD_MODEL);
        assert_names(d.text, "config.json", bad[i]);
        assert_int_equal(value, 99);
    }
    assert_int_equal(lw_config_u32(c, "real", NULL, 64, &value, &d), LW_OK);
    assert_int_equal(value, 64);
    assert_int_equal(lw_config_u32(c, "ten", NULL, 9, &value, &d), LW_BAD_MODEL);
    assert_names(d.text, "\"ten\" is 10", "from 0 to 9");
    assert_int_equal(lw_config_u32(c, "ten", NULL, 10, &value, &d), LW_OK);
    assert_int_equal(lw_config_f64(c, "text", NULL, &real, &d), LW_BAD_MODEL);
    lw_config_close(c);
}

static void infinities_are_numbers(void **state)
{
    (void)state;
    lw_config *c = config_of("{\"a\":{\"__float__\":\"Infinity\"},\"b\":[0.0,Infinity],"
                             "\"s\":\"a \\\"Infinity\\\" NaN\",\"n\":-Infinity,"
                             "\"w\":{\"__float__\":\"NaN\"},\"m\":NaN}");
    double value;
    lw_diag d;
    const char *text;
    assert_int_equal(lw_config_f64(c, "a", NULL, &value, &d), LW_OK);
    assert_true(isinf(value) && value > 0);
    assert_int_equal(lw_config_f64(c, "n", NULL, &value, &d), LW_OK);
    assert_true(isinf(value) && value < 0);
    assert_true(lw_config_number(json_array_get(lw_config_get(c, "b"), 1), &value));
    assert_true(isinf(value));
    assert_int_equal(lw_config_text(c, "s", NULL, &text, &d), LW_OK);
    assert_string_equal(text, "a \"Infinity\" NaN");
    assert_int_equal(lw_config_f64(c, "w", NULL, &value, &d), LW_BAD_MODEL);
    assert_int_equal(lw_config_f64(c, "m", NULL, &value, &d), LW_BAD_MODEL);
    lw_config_close(c);
}

static void ids_are_numbers_or_lists(void **state)
{
    (void)state;
    lw_config *c = config_of("{\"eos\":[5,7,5],\"one\":9,\"none\":null,\"bad\":[1,\"x\"],\"neg\":-3,"
                             "\"many\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}");
    int32_t ids[LW_CONFIG_IDS_MAX];
    size_t count = 0;
    lw_diag d;
    assert_int_equal(lw_config_ids(c, "eos", ids, &count, &d), LW_OK);
    assert_int_equal(lw_config_ids(c, "one", ids, &count, &d), LW_OK);
    assert_int_equal(lw_config_ids(c, "none", ids, &count, &d), LW_OK);
    assert_int_equal(count, 3);
    assert_int_equal(ids[0], 5);
    assert_int_equal(ids[1], 7);
    assert_int_equal(ids[2], 9);
    assert_int_equal(lw_config_ids(c, "bad", ids, &count, &d), LW_BAD_MODEL);
    assert_int_equal(lw_config_ids(c, "neg", ids, &count, &d), LW_BAD_MODEL);
    assert_int_equal(lw_config_ids(c, "many", ids, &count, &d), LW_BAD_MODEL);
    assert_int_equal(count, 3);
    lw_config_close(c);
}

static void children_name_their_path(void **state)
{
    (void)state;
    lw_config *c = config_of("{\"rope\":{\"full\":{\"theta\":1e6}},\"wrong\":5,\"theta\":3}");
    lw_diag d;
    double value;
    uint32_t whole;
    lw_config *rope = (lw_config *)(uintptr_t)lw_config_child(c, "rope_parameters|rope");
    const lw_config *full = lw_config_child(rope, "full"), *none = lw_config_child(rope, "none");
    assert_int_equal(lw_config_f64(full, "theta", NULL, &value, &d), LW_OK);
    assert_true(value == 1e6);
    assert_int_equal(lw_config_f64(none, "theta", NULL, &value, &d), LW_BAD_MODEL); /* not the outer theta */
    assert_names(d.text, "config.json: rope_parameters: none", "\"theta\"");
    const double fallback = 2.0;
    assert_int_equal(lw_config_f64(none, "theta", &fallback, &value, &d), LW_OK);
    assert_true(value == 2.0);
    const uint32_t zero = 0;
    assert_int_equal(lw_config_u32(lw_config_child(c, "wrong"), "x", &zero, 9, &whole, &d), LW_BAD_MODEL);
    assert_names(d.text, "wrong is not an object");
    assert_int_equal(lw_config_f64(NULL, "theta", &fallback, &value, &d), LW_OK);
    lw_config_close(c);
}

static void texts_and_switches(void **state)
{
    (void)state;
    lw_config *c = config_of("{\"type\":\"lfm3\",\"tie\":true,\"n\":1}");
    const char *text;
    bool tie;
    lw_diag d;
    assert_int_equal(lw_config_text(c, "model_type|type", NULL, &text, &d), LW_OK);
    assert_string_equal(text, "lfm3");
    assert_int_equal(lw_config_text(c, "absent", NULL, &text, &d), LW_OK);
    assert_null(text);
    assert_int_equal(lw_config_text(c, "n", NULL, &text, &d), LW_BAD_MODEL);
    assert_int_equal(lw_config_bool(c, "tie", false, &tie, &d), LW_OK);
    assert_true(tie);
    assert_int_equal(lw_config_bool(c, "absent", true, &tie, &d), LW_OK);
    assert_true(tie);
    assert_int_equal(lw_config_bool(c, "n", false, &tie, &d), LW_BAD_MODEL);
    lw_config_close(c);
}

static void broken_files_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "", "[]", "{", "{\"a\":1,\"a\":2}", "{\"text_config\":3}", "\xff\xfe", "{\"a\":Infinit}",
        "version https://git-lfs.github.com/spec/v1\nsize 5\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        lw_config *config;
        lw_diag d;
        assert_int_equal(lw_config_parse(bad[i], strlen(bad[i]), "c.json", &config, &d), LW_BAD_MODEL);
        assert_null(config);
        assert_names(d.text, "c.json");
    }
    enum { DEEP = 100000 };
    char *deep = malloc(DEEP);
    assert_non_null(deep);
    memset(deep, '[', DEEP);
    lw_config *config;
    assert_int_equal(lw_config_parse(deep, DEEP, "deep.json", &config, NULL), LW_BAD_MODEL);
    free(deep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inner_values_come_first), cmocka_unit_test(wrong_numbers_are_refused),
        cmocka_unit_test(infinities_are_numbers),  cmocka_unit_test(ids_are_numbers_or_lists),
        cmocka_unit_test(children_name_their_path), cmocka_unit_test(texts_and_switches),
        cmocka_unit_test(broken_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
