/* Arenas give zeroed, aligned, unmoving memory up to a limit, and survive reset and deinit. */
#include "base/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <string.h>

static bool all_zero(const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != 0) return false;
    }
    return true;
}

static void objects_are_zeroed_aligned_and_apart(void **state)
{
    (void)state;
    enum { COUNT = 300 };
    lw_arena arena;
    unsigned char *objects[COUNT];
    lw_arena_init(&arena, SIZE_MAX);
    for (size_t i = 0; i < COUNT; i++) {
        objects[i] = lw_arena_take(&arena, i * 7 + 1);
        assert_non_null(objects[i]);
        assert_int_equal((uintptr_t)objects[i] % 16, 0);
        assert_true(all_zero(objects[i], i * 7 + 1));
        memset(objects[i], (int)i, i * 7 + 1);
    }
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(objects[i][0], i % 256);
        assert_int_equal(objects[i][i * 7], i % 256);
    }
    lw_arena_deinit(&arena);
}

static void the_limit_is_exact(void **state)
{
    (void)state;
    lw_arena arena;
    lw_arena_init(&arena, 64);
    assert_non_null(lw_arena_take(&arena, 48));
    assert_null(lw_arena_take(&arena, 17));
    assert_non_null(lw_arena_take(&arena, 16));
    assert_null(lw_arena_take(&arena, 0));
    assert_int_equal(arena.bytes_taken, 64);
    assert_int_equal(arena.bytes_peak, 64);
    lw_arena_deinit(&arena);
}

static void sizes_do_not_wrap(void **state)
{
    (void)state;
    lw_arena arena;
    lw_arena_init(&arena, SIZE_MAX);
    assert_null(lw_arena_take(&arena, SIZE_MAX));
    assert_null(lw_arena_take_array(&arena, SIZE_MAX / 2, 3));
    assert_null(lw_arena_copy_text(&arena, "", SIZE_MAX));
    assert_int_equal(arena.bytes_taken, 0);
    lw_arena_deinit(&arena);
}

static void reset_keeps_a_block_and_clears_it(void **state)
{
    (void)state;
    lw_arena arena;
    lw_arena_init(&arena, SIZE_MAX);
    memset(lw_arena_take(&arena, 100), 0xAB, 100);
    const size_t peak = arena.bytes_peak;
    lw_arena_reset(&arena);
    assert_int_equal(arena.bytes_taken, 0);
    assert_int_equal(arena.bytes_peak, peak);
    assert_true(all_zero(lw_arena_take(&arena, 100), 100));
    memset(lw_arena_take(&arena, 100000), 0xCD, 100000);
    lw_arena_reset(&arena);
    assert_true(all_zero(lw_arena_take(&arena, 100000), 100000));
    lw_arena_deinit(&arena);
    assert_non_null(lw_arena_take(&arena, 1));
    lw_arena_deinit(&arena);
}

static void texts_are_copied_with_an_end(void **state)
{
    (void)state;
    lw_arena arena;
    lw_arena_init(&arena, 4096);
    assert_string_equal(lw_arena_copy_text(&arena, "lane wise", 4), "lane");
    assert_string_equal(lw_arena_copy_text(&arena, NULL, 0), "");
    lw_arena_deinit(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_are_zeroed_aligned_and_apart),
        cmocka_unit_test(the_limit_is_exact),
        cmocka_unit_test(sizes_do_not_wrap),
        cmocka_unit_test(reset_keeps_a_block_and_clears_it),
        cmocka_unit_test(texts_are_copied_with_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
