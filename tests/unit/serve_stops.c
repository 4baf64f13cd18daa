/* Stop strings: the cut does not depend on the pieces, and a plain search finds the same one. */
#include "serve/stops.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Pushes text in pieces of at most `piece` bytes; out is what was let through. */
static bool cut(const lw_stop_text *texts, size_t count, const char *text, size_t piece, lw_buf *out)
{
    lw_stops stops;
    lw_stops_init(&stops, texts, count);
    const size_t bytes = strlen(text);
    for (size_t at = 0; at < bytes && !stops.is_stopped; at += piece) {
        const size_t part = bytes - at < piece ? bytes - at : piece;
        assert_int_equal(lw_stops_push(&stops, text + at, part, out), LW_OK);
        /* Nothing that is let through may be the start of a match. */
        assert_true(stops.is_stopped || out->count + stops.held.count == at + part);
    }
    assert_int_equal(lw_stops_flush(&stops, out), LW_OK);
    const bool is_stopped = stops.is_stopped;
    lw_stops_deinit(&stops);
    return is_stopped;
}

/* The definition: the match that ends first; of those the longest. Its begin, or the text's length. */
static size_t plain_cut(const lw_stop_text *texts, size_t count, const char *text)
{
    for (size_t end = 1; end <= strlen(text); end++) {
        size_t longest = 0;
        for (size_t i = 0; i < count; i++) {
            const size_t own = texts[i].count;
            if (own <= end && own > longest && memcmp(text + end - own, texts[i].bytes, own) == 0)
                longest = own;
        }
        if (longest > 0) return end - longest;
    }
    return strlen(text);
}

static lw_stop_text stop_of(const char *text)
{
    return (lw_stop_text){ .bytes = text, .count = strlen(text) };
}

static void cases_in_all_pieces(void **state)
{
    (void)state;
    static const struct {
        const char *text, *one, *two, *wanted;
        bool is_stopped;
    } cases[] = {
        { "A B C D E", "D E", "x", "A B C ", true },
        { "abcDEFGHIJ", "DEFGHIJ", "x", "abc", true },
        { "abcDEFGHIK", "DEFGHIJ", "x", "abcDEFGHIK", false },
        { "abcDEF", "DEFGHIJ", "x", "abcDEF", false },
        { "aaab", "aab", "x", "a", true },
        { "xaabaaby", "aabaac", "baab", "xaa", true },
        { "abc", "bc", "abc", "", true },
        { "abcd", "bcd", "abc", "", true },
        { "", "a", "b", "", false },
        { "a", "a", "a", "", true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const lw_stop_text texts[] = { stop_of(cases[i].one), stop_of(cases[i].two) };
        for (size_t piece = 1; piece <= strlen(cases[i].text) + 1; piece++) {
            lw_buf out;
            lw_buf_init(&out, 0);
            assert_int_equal(cut(texts, 2, cases[i].text, piece, &out), cases[i].is_stopped);
            assert_string_equal(out.count == 0 ? "" : out.bytes, cases[i].wanted);
            lw_buf_deinit(&out);
        }
    }
}

static void random_texts_equal_a_plain_search(void **state)
{
    (void)state;
    lw_rng rng = lw_rng_make(7);
    print_message("seed 7\n");
    size_t stopped = 0;
    for (int round = 0; round < 3000; round++) {
        char text[24], words[3][6];
        lw_stop_text texts[3];
        const size_t bytes = lw_rng_below(&rng, sizeof text);
        for (size_t i = 0; i < bytes; i++) text[i] = (char)('a' + lw_rng_below(&rng, 2));
        text[bytes] = '\0';
        for (size_t i = 0; i < 3; i++) {
            const size_t own = 1 + lw_rng_below(&rng, 5);
            for (size_t k = 0; k < own; k++) words[i][k] = (char)('a' + lw_rng_below(&rng, 2));
            texts[i] = (lw_stop_text){ .bytes = words[i], .count = own };
        }
        const size_t wanted = plain_cut(texts, 3, text);
        const size_t piece = 1 + lw_rng_below(&rng, 6);
        lw_buf out;
        lw_buf_init(&out, 0);
        stopped += cut(texts, 3, text, piece, &out);
        assert_int_equal(out.count, wanted);
        assert_memory_equal(out.count == 0 ? "" : out.bytes, text, wanted);
        lw_buf_deinit(&out);
    }
    assert_true(stopped > 100 && stopped < 2900);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cases_in_all_pieces),
        cmocka_unit_test(random_texts_equal_a_plain_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
