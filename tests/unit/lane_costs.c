/* Window costs: keys that tell things apart, files that are whole or refused, folders that may not be
 * written. */
#include "../fake/fake_model.h"

#include "base/kept.h"
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

static const lw_timings some = { .rounds = { .items = { { 1, 1000 }, { 2, 1100 }, { 4, 1300.4 } },
                                             .count = 3 },
                                 .steps = { .items = { { 1, 90 }, { 2, 95 } }, .count = 2 } };
static const lw_timings headless = { .rounds = { .items = { { 1, 1000 } }, .count = 1 } };

static void put_file(const char *dir, const char *name, const char *text)
{
    char path[LW_KEPT_PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    fclose(file);
}

static void what_was_saved_is_read(void **state)
{
    (void)state;
    char dir[LW_KEPT_PATH_BYTES];
    lw_timings read;
    lw_diag d;
    assert_true(lw_kept_dir(folder, NULL, "window-costs", dir));
    assert_int_equal(lw_costs_read(dir, "key", &read, &d), LW_NOT_FOUND);
    assert_int_equal(lw_costs_save(dir, "key", &some, &d), LW_OK);
    assert_int_equal(lw_costs_read(dir, "key", &read, &d), LW_OK);
    assert_int_equal(read.rounds.count, 3);
    assert_true(read.rounds.items[2].rows == 4 && read.rounds.items[2].ns == 1300.0);
    assert_int_equal(read.steps.count, 2);
    assert_true(read.steps.items[1].rows == 2 && read.steps.items[1].ns == 95.0);
    assert_int_equal(lw_costs_save(dir, "key", &headless, &d), LW_OK);
    assert_int_equal(lw_costs_read(dir, "key", &read, &d), LW_OK);
    assert_int_equal(read.rounds.count, 1);
    assert_int_equal(read.steps.count, 0);
    assert_int_equal(lw_costs_read(dir, "other", &read, &d), LW_NOT_FOUND);
}

static void what_was_not_saved_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "lanewise",
        "lanewise window costs 2\n",
        "lanewise window costs 1\n1 5\n",
        "lanewise window costs 2\nstep 1 5\n",
        "lanewise window costs 2\n1 5\nstep 2 5\nstep 1 5\n",
        "lanewise window costs 2\n1 5\nstep\n",
        "lanewise window costs 2\n1 5",
        "lanewise window costs 2\n2 5\n1 5\n",
        "lanewise window costs 2\n1 5\n1 5\n",
        "lanewise window costs 2\n1 -5\n",
        "lanewise window costs 2\n1 nan\n",
        "lanewise window costs 2\n1 inf\n",
        "lanewise window costs 2\n0 5\n",
        "lanewise window costs 2\n99999999999 5\n",
        "lanewise window costs 2\n1 5\nx\n",
        "lanewise window costs 2\n1 5\n2 5\n3 5\n4 5\n5 5\n6 5\n7 5\n8 5\n9 5\n10 5\n11 5\n12 5\n13 5\n14 "
        "5\n15 5\n"
        "16 5\n17 5\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        lw_timings read = some;
        lw_diag d;
        put_file(folder, "bad", texts[i]);
        if (lw_costs_read(folder, "bad", &read, &d) != LW_BAD_INPUT) fail_msg("taken: %s", texts[i]);
        assert_int_equal(read.rounds.count + read.steps.count, 0);
    }
}

static void a_folder_that_cannot_be_is_a_failure_and_no_more(void **state)
{
    (void)state;
    lw_diag d;
    char below[LW_KEPT_PATH_BYTES];
    put_file(folder, "file", "x");
    snprintf(below, sizeof below, "%s/file/below", folder);
    assert_int_equal(lw_costs_save(below, "key", &some, &d), LW_IO);
}

static void keys_tell_devices_and_shapes_apart(void **state)
{
    (void)state;
    char keys[9][LW_COSTS_KEY_CHARS + 1];
    lw_plan plan;
    assert_int_equal(lw_plan_init(&plan, NULL), LW_OK);
    plan.vocab = 100;
    lw_costs_key("cpu (avx2, 2 threads)", &plan, 512, 16, keys[0]);
    lw_costs_key("cpu (avx2, 4 threads)", &plan, 512, 16, keys[1]);
    lw_costs_key("cpu (avx2, 2 threads)", &plan, 256, 16, keys[2]);
    lw_costs_key("cpu (avx2, 2 threads)", &plan, 512, 1, keys[4]); /* without drafts: fewer logits */
    plan.vocab = 101;
    lw_costs_key("cpu (avx2, 2 threads)", &plan, 512, 16, keys[3]);
    char again[LW_COSTS_KEY_CHARS + 1];
    lw_costs_key("cpu (avx2, 2 threads)", &plan, 512, 128, again); /* no window is as large */
    assert_string_equal(again, keys[3]);
    lw_plan_state_kv(&plan, "kv", 1, 8, 0);
    lw_costs_key("cpu (avx2, 2 threads)", &plan, 512, 16, keys[5]);
    lw_plan_keep_kv(&plan, LW_KV_INT8);
    lw_costs_key("cpu (avx2, 2 threads)", &plan, 512, 16, keys[6]);
    const lw_wref weight =
        lw_plan_weight(&plan, &(lw_weight){ .name = "w", .stack_count = 1, .rows = 8, .cols = 64,
                                           .map = LW_MAP_INTEGER, .code_bits = 4, .group = 64 });
    lw_costs_key("cpu (avx2, 2 threads)", &plan, 512, 16, keys[7]);
    plan.weights[weight.index].x_int8 = true;
    lw_costs_key("cpu (avx2, 2 threads)", &plan, 512, 16, keys[8]);
    for (size_t i = 0; i < 9; i++) {
        assert_int_equal(strlen(keys[i]), LW_COSTS_KEY_CHARS);
        for (size_t j = 0; j < i; j++) assert_string_not_equal(keys[i], keys[j]);
    }
    lw_plan_deinit(&plan);
}

/* On the null device, where every step takes next to nothing: which classes there are. */
static void steps_are_timed_where_there_is_a_head(void **state)
{
    (void)state;
    for (uint32_t has_head = 0; has_head < 2; has_head++) {
        fake_model fake;
        lw_timings timings;
        const fake_options options = { .context = 512, .rows_max = 100, .reach = 80, .recurs = true,
                                       .has_head = has_head == 1, .page_counts = { 8, 8, 8, 8, 8, 8 } };
        fake_open(&fake, &options);
        const lw_core_device device = fake_device(&fake);
        assert_int_equal(lw_null_set_model(fake.exec, NULL, NULL), LW_OK);
        assert_int_equal(lw_costs_time(&device, 100, 5, &timings, NULL), LW_OK);
        assert_int_equal(timings.rounds.count, 7);
        assert_int_equal(timings.rounds.items[6].rows, 64);
        assert_int_equal(timings.steps.count, has_head == 1 ? 3 : 0);
        if (has_head == 1) assert_int_equal(timings.steps.items[2].rows, 4);
        for (uint32_t g = 0; g < fake.pool.group_count; g++) /* nothing is kept */
            assert_int_equal(fake.pool.groups[g].free_count, 8);
        fake_close(&fake);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_saved_is_read),
        cmocka_unit_test(what_was_not_saved_is_refused),
        cmocka_unit_test(a_folder_that_cannot_be_is_a_failure_and_no_more),
        cmocka_unit_test(steps_are_timed_where_there_is_a_head),
        cmocka_unit_test(keys_tell_devices_and_shapes_apart),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
