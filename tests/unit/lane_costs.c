/* Window costs: keys that tell things apart, files that are whole or refused, folders that may not be
 * written. */
#include "lane/costs.h"
#include "ops/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char folder[] = "/tmp/lanewise-costs-XXXXXX";

static int setup(void **state)
{
    (void)state;
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static const lw_cost some[] = { { 1, 1000 }, { 2, 1100 }, { 4, 1300.4 } };

static void put_file(const char *dir, const char *name, const char *text)
{
    char path[LW_COSTS_PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    fclose(file);
}

static void what_was_saved_is_read(void **state)
{
    (void)state;
    char dir[LW_COSTS_PATH_BYTES];
    lw_cost costs[LW_COST_CLASSES_MAX];
    uint32_t count;
    lw_diag d;
    assert_true(lw_costs_dir(folder, NULL, dir));
    assert_int_equal(lw_costs_read(dir, "key", costs, &count, &d), LW_NOT_FOUND);
    assert_int_equal(lw_costs_save(dir, "key", some, 3, &d), LW_OK);
    assert_int_equal(lw_costs_read(dir, "key", costs, &count, &d), LW_OK);
    assert_int_equal(count, 3);
    assert_true(costs[2].rows == 4 && costs[2].ns == 1300.0);
    assert_int_equal(lw_costs_save(dir, "key", some, 1, &d), LW_OK);
    assert_int_equal(lw_costs_read(dir, "key", costs, &count, &d), LW_OK);
    assert_int_equal(count, 1);
    assert_int_equal(lw_costs_read(dir, "other", costs, &count, &d), LW_NOT_FOUND);
}

static void what_was_not_saved_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "lanewise",
        "lanewise window costs 1\n",
        "lanewise window costs 2\n1 5\n",
        "lanewise window costs 1\n1 5",
        "lanewise window costs 1\n2 5\n1 5\n",
        "lanewise window costs 1\n1 5\n1 5\n",
        "lanewise window costs 1\n1 -5\n",
        "lanewise window costs 1\n1 nan\n",
        "lanewise window costs 1\n1 inf\n",
        "lanewise window costs 1\n0 5\n",
        "lanewise window costs 1\n99999999999 5\n",
        "lanewise window costs 1\n1 5\nx\n",
        "lanewise window costs 1\n1 5\n2 5\n3 5\n4 5\n5 5\n6 5\n7 5\n8 5\n9 5\n10 5\n11 5\n12 5\n13 5\n14 "
        "5\n15 5\n"
        "16 5\n17 5\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        lw_cost costs[LW_COST_CLASSES_MAX];
        uint32_t count = 9;
        lw_diag d;
        put_file(folder, "bad", texts[i]);
        if (lw_costs_read(folder, "bad", costs, &count, &d) != LW_BAD_INPUT) fail_msg("taken: %s", texts[i]);
        assert_int_equal(count, 0);
    }
}

static void a_folder_that_cannot_be_is_a_failure_and_no_more(void **state)
{
    (void)state;
    lw_diag d;
    char below[LW_COSTS_PATH_BYTES];
    put_file(folder, "file", "x");
    snprintf(below, sizeof below, "%s/file/below", folder);
    assert_int_equal(lw_costs_save(below, "key", some, 3, &d), LW_IO);
    char *deep = malloc(LW_COSTS_PATH_BYTES + 1);
    assert_non_null(deep);
    memset(deep, 'a', LW_COSTS_PATH_BYTES);
    deep[0] = '/';
    deep[LW_COSTS_PATH_BYTES] = '\0';
    assert_int_equal(lw_costs_save(deep, "key", some, 3, &d), LW_BAD_INPUT);
    assert_false(lw_costs_dir(deep, NULL, below));
    free(deep);
}

static void folders_follow_the_environment(void **state)
{
    (void)state;
    char dir[LW_COSTS_PATH_BYTES];
    assert_true(lw_costs_dir("/c", "/h", dir));
    assert_string_equal(dir, "/c/lanewise/window-costs");
    assert_true(lw_costs_dir(NULL, "/h", dir));
    assert_string_equal(dir, "/h/.cache/lanewise/window-costs");
    assert_true(lw_costs_dir("", "/h", dir));
    assert_true(lw_costs_dir("relative", "/h", dir));
    assert_string_equal(dir, "/h/.cache/lanewise/window-costs");
    assert_false(lw_costs_dir(NULL, NULL, dir));
    assert_false(lw_costs_dir(NULL, "", dir));
}

static void keys_tell_devices_and_shapes_apart(void **state)
{
    (void)state;
    char keys[5][LW_COSTS_KEY_CHARS + 1];
    lw_plan plan;
    assert_int_equal(lw_plan_init(&plan, NULL), LW_OK);
    plan.vocab = 100;
    lw_costs_key("cpu (avx2, 2 threads)", &plan, 512, 16, keys[0]);
    lw_costs_key("cpu (avx2, 4 threads)", &plan, 512, 16, keys[1]);
    lw_costs_key("cpu (avx2, 2 threads)", &plan, 256, 16, keys[2]);
    lw_costs_key("cpu (avx2, 2 threads)", &plan, 512, 1, keys[4]); /* without drafts: fewer logits */
    plan.vocab = 101;
    lw_costs_key("cpu (avx2, 2 threads)", &plan, 512, 16, keys[3]);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(strlen(keys[i]), LW_COSTS_KEY_CHARS);
        for (size_t j = 0; j < i; j++) assert_string_not_equal(keys[i], keys[j]);
    }
    char again[LW_COSTS_KEY_CHARS + 1];
    lw_costs_key("cpu (avx2, 2 threads)", &plan, 512, 128, again); /* no window is as large */
    assert_string_equal(again, keys[3]);
    lw_plan_deinit(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_saved_is_read),
        cmocka_unit_test(what_was_not_saved_is_refused),
        cmocka_unit_test(a_folder_that_cannot_be_is_a_failure_and_no_more),
        cmocka_unit_test(folders_follow_the_environment),
        cmocka_unit_test(keys_tell_devices_and_shapes_apart),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
