/* UTF-8 and NFC: against each other's inverse, against utf8proc's own normaliser, and in their time. */
#include "text_made.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <utf8proc.h>
#include <cmocka.h>

static void every_code_point_goes_both_ways(void **state)
{
    (void)state;
    for (uint32_t point = 0; point < 0x110000; point++) {
        char bytes[4];
        size_t used;
        const size_t count = lw__utf8_encode(point, bytes);
        const bool is_surrogate = point >= 0xD800 && point < 0xE000;
        assert_int_equal(lw__utf8_valid(bytes, count), !is_surrogate);
        if (is_surrogate) continue;
        assert_int_equal(lw__utf8_scan(bytes, count, &used), LW__UTF8_WHOLE);
        assert_int_equal(used, count);
        assert_int_equal(lw__utf8_decode(bytes, &used), point);
        for (size_t cut = 1; cut < count; cut++) {
            assert_int_equal(lw__utf8_scan(bytes, cut, &used), LW__UTF8_PART);
            assert_int_equal(used, cut);
        }
    }
}

static void white_space_is_the_unicode_property(void **state)
{
    (void)state;
    int white = 0;
    for (uint32_t point = 0; point < 0x110000; point++) white += lw__is_white(point);
    assert_int_equal(white, 25);
    assert_true(lw__is_white(0x85) && lw__is_white(0x3000) && lw__is_white(0x0B));
    assert_false(lw__is_white(0x180E) || lw__is_white(0x200B) || lw__is_white(0xFEFF));
}

/* Code points that NFC works on, and a few that it leaves alone. */
static uint32_t random_point(lw_rng *rng)
{
    static const uint32_t bases[] = { 'a',     'e',    'A',    'o',     0x1100,  0x1161,  0x11A8, 0xAC00,
                                      0x0B47,  0x0B3E, 0x3B1,  0x1F80,  0x212B,  0x958,   0xFB1D, 0x2ADC,
                                      0x1D15E, 0x6F22, 0xF900, 0x2F800, 0x110BA, 0x11099, 0xE9,   0x1E69 };
    const uint64_t kind = lw_rng_below(rng, 10);
    if (kind < 4) return bases[lw_rng_below(rng, sizeof bases / sizeof bases[0])];
    if (kind < 8) return 0x300 + (uint32_t)lw_rng_below(rng, 0x46);
    if (kind < 9) return 0x5B0 + (uint32_t)lw_rng_below(rng, 0x14);
    const uint32_t point = (uint32_t)lw_rng_below(rng, 0x30000);
    return point >= 0xD800 && point < 0xE000 ? 'x' : point;
}

static void check_nfc(const lw__nfc *nfc, lw__nfc_scratch *scratch, lw__text_buf *out, const lw_buf *text)
{
    utf8proc_uint8_t *expected = NULL;
    const utf8proc_ssize_t count =
        utf8proc_map((const utf8proc_uint8_t *)text->bytes, (utf8proc_ssize_t)text->count, &expected,
                     UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    assert_true(count >= 0);
    uint8_t origins[512] = { 0 };
    assert_true(text->count <= sizeof origins);
    const lw_text view = { .bytes = text->bytes, .count = text->count, .origins = origins };
    assert_int_equal(lw__nfc_apply(nfc, scratch, view, out), LW_OK);
    assert_int_equal(out->bytes.count, count);
    assert_int_equal(out->origins.count, count);
    assert_memory_equal(out->bytes.bytes, expected, (size_t)count);
    const bool is_same = (size_t)count == text->count && memcmp(expected, text->bytes, text->count) == 0;
    if (lw__nfc_is_plain(nfc, text->bytes, text->count)) assert_true(is_same);
    free(expected);
}

static void nfc_is_what_utf8proc_gives(void **state)
{
    (void)state;
    lw_arena arena;
    lw_arena_init(&arena, 1 << 20);
    const lw__nfc *nfc = lw__nfc_make(&arena);
    assert_non_null(nfc);
    lw__nfc_scratch scratch = { .room = 0 };
    lw__text_buf out = { .bytes = { .count_max = 0 } };
    lw_buf text;
    lw_buf_init(&text, 0);
    lw_rng rng = lw_rng_make(5);
    for (int round = 0; round < 30000; round++) {
        lw_buf_clear(&text);
        for (uint64_t left = 1 + lw_rng_below(&rng, 100); left > 0; left -= left > 10 ? 10 : 1) {
            char bytes[4];
            const size_t count = lw__utf8_encode(random_point(&rng), bytes);
            assert_int_equal(lw_buf_append(&text, bytes, count), LW_OK);
        }
        check_nfc(nfc, &scratch, &out, &text);
    }
    for (uint32_t point = 0; point < 0x110000; point++) {
        char bytes[4];
        if (point >= 0xD800 && point < 0xE000) continue;
        lw_buf_clear(&text);
        assert_int_equal(lw_buf_append(&text, bytes, lw__utf8_encode(point, bytes)), LW_OK);
        check_nfc(nfc, &scratch, &out, &text);
    }
    lw_buf_deinit(&text);
    lw__text_buf_deinit(&out);
    free(scratch.items);
    free(scratch.sorted);
    lw_arena_deinit(&arena);
}

/* A run of marks in the worst order: sorting them in quadratic time would not end within the test's time. */
static void long_runs_of_marks_take_linear_time(void **state)
{
    (void)state;
    enum { PAIRS = 1000000 };
    lw_arena arena;
    lw_arena_init(&arena, 1 << 20);
    const lw__nfc *nfc = lw__nfc_make(&arena);
    lw__nfc_scratch scratch = { .room = 0 };
    lw__text_buf out = { .bytes = { .count_max = 0 } };
    lw_buf text;
    lw_buf_init(&text, 0);
    for (int i = 0; i < PAIRS; i++) assert_int_equal(lw_buf_append_text(&text, "\u0301\u0323"), LW_OK);
    const lw_text view = { .bytes = text.bytes, .count = text.count };
    assert_int_equal(lw__nfc_apply(nfc, &scratch, view, &out), LW_OK);
    assert_int_equal(out.bytes.count, text.count);
    assert_memory_equal(out.bytes.bytes, "\u0323\u0323", 4);
    assert_memory_equal(out.bytes.bytes + 2 * PAIRS - 2, "\u0323\u0301", 4);
    lw_buf_deinit(&text);
    lw__text_buf_deinit(&out);
    free(scratch.items);
    free(scratch.sorted);
    lw_arena_deinit(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point_goes_both_ways),
        cmocka_unit_test(white_space_is_the_unicode_property),
        cmocka_unit_test(nfc_is_what_utf8proc_gives),
        cmocka_unit_test(long_runs_of_marks_take_linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
