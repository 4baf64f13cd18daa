/* Files of the cache folder: whole or absent, within their limit, and folders that may not be written. */
#include "base/kept.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char folder[] = "/tmp/lanewise-kept-XXXXXX";

static int setup(void **state)
{
    (void)state;
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int teardown(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static void folders_follow_the_environment(void **state)
{
    (void)state;
    char dir[LW_KEPT_PATH_BYTES];
    assert_true(lw_kept_dir("/c", "/h", "x", dir));
    assert_string_equal(dir, "/c/lanewise/x");
    assert_true(lw_kept_dir(NULL, "/h", "x", dir));
    assert_string_equal(dir, "/h/.cache/lanewise/x");
    assert_true(lw_kept_dir("", "/h", "x", dir));
    assert_true(lw_kept_dir("relative", "/h", "x", dir));
    assert_string_equal(dir, "/h/.cache/lanewise/x");
    assert_false(lw_kept_dir(NULL, NULL, "x", dir));
    assert_false(lw_kept_dir(NULL, "", "x", dir));
}

/* Bytes of every value, in more than one read. */
static void what_was_saved_is_read(void **state)
{
    (void)state;
    enum { BYTES = 200001 };
    char dir[LW_KEPT_PATH_BYTES];
    uint8_t *bytes = malloc(BYTES);
    lw_buf read;
    lw_diag d;
    assert_non_null(bytes);
    for (size_t i = 0; i < BYTES; i++) bytes[i] = (uint8_t)(i * 2654435761u >> 11);
    assert_true(lw_kept_dir(folder, NULL, "made", dir));
    lw_buf_init(&read, BYTES);
    assert_int_equal(lw_kept_read(dir, "key", &read, &d), LW_NOT_FOUND);
    assert_int_equal(lw_kept_save(dir, "key", bytes, BYTES, &d), LW_OK);
    assert_int_equal(lw_kept_read(dir, "key", &read, &d), LW_OK);
    assert_int_equal(read.count, BYTES);
    assert_memory_equal(read.bytes, bytes, BYTES);
    lw_buf_clear(&read);
    assert_int_equal(lw_kept_save(dir, "key", bytes, 3, &d), LW_OK);
    assert_int_equal(lw_kept_read(dir, "key", &read, &d), LW_OK);
    assert_int_equal(read.count, 3);
    assert_int_equal(lw_kept_read(dir, "other", &read, &d), LW_NOT_FOUND);
    lw_buf_deinit(&read);
    free(bytes);
}

static void the_limit_is_exact(void **state)
{
    (void)state;
    lw_diag d;
    assert_int_equal(lw_kept_save(folder, "ten", "0123456789", 10, &d), LW_OK);
    for (size_t limit = 9; limit <= 11; limit++) {
        lw_buf read;
        lw_buf_init(&read, limit);
        assert_int_equal(lw_kept_read(folder, "ten", &read, &d), limit < 10 ? LW_BAD_INPUT : LW_OK);
        lw_buf_deinit(&read);
    }
}

static void a_folder_that_cannot_be_is_a_failure_and_no_more(void **state)
{
    (void)state;
    lw_diag d;
    lw_buf read;
    char below[sizeof folder + 16];
    assert_int_equal(lw_kept_save(folder, "file", "x", 1, &d), LW_OK);
    snprintf(below, sizeof below, "%s/file/below", folder);
    assert_int_equal(lw_kept_save(below, "key", "x", 1, &d), LW_IO);
    lw_buf_init(&read, 0);
    assert_int_equal(lw_kept_read(below, "key", &read, &d), LW_IO);
    snprintf(below, sizeof below, "%s/folder", folder);
    assert_int_equal(mkdir(below, 0700), 0);
    assert_int_equal(lw_kept_read(folder, "folder", &read, &d), LW_IO);
    assert_int_equal(lw_kept_save(folder, "folder", "x", 1, &d), LW_IO); /* and nothing is left beside it */
    lw_buf_deinit(&read);
    char *deep = malloc(LW_KEPT_PATH_BYTES + 1);
    assert_non_null(deep);
    memset(deep, 'a', LW_KEPT_PATH_BYTES);
    deep[0] = '/';
    deep[LW_KEPT_PATH_BYTES] = '\0';
    assert_int_equal(lw_kept_save(deep, "key", "x", 1, &d), LW_BAD_INPUT);
    char dir[LW_KEPT_PATH_BYTES];
    assert_false(lw_kept_dir(deep, NULL, "x", dir));
    free(deep);
    char command[96];
    snprintf(command, sizeof command, "! ls -A %s | grep -q '^.new-'", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_follow_the_environment),
        cmocka_unit_test(what_was_saved_is_read),
        cmocka_unit_test(the_limit_is_exact),
        cmocka_unit_test(a_folder_that_cannot_be_is_a_failure_and_no_more),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
