/* JSON is read whole or not at all, whichever of jansson's allocations fail; errors keep jansson's words. */
#include "base/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Which allocations fail: those in [begin, end). */
static struct {
    uint64_t seen, begin, end;
} memory;

static void *take(size_t bytes)
{
    const uint64_t at = memory.seen++;
    return at >= memory.begin && at < memory.end ? NULL : malloc(bytes);
}

/* A token of each kind is the longest so far when it is read. */
static const char *const texts[] = {
    "{}",
    " [ ] ",
    "{\"a_key_of_more_than_sixteen_bytes\": 1, \"b\": [true, false, null]}",
    "{\"a\": \"" "a string that is longer than any buffer which is there at first, and than the next" "\"}",
    "[12345678901234567]",
    "[0.12345678901234567890123456789e-17]",
    "{\"n\":[1234567890123456,-0.1234567890123456]}",
    "[\"\\u00e9\\\"\\\\ escapes that make a string long, \\n and quotes \\\" inside\", {\"a\":[[[{}]]]}]",
    "{\"\xC3\xA9\xE2\x82\xAC, bytes of UTF-8, many of them: \xF0\x9F\x98\x80\": {\"b\": \"\"}}",
};
enum { TEXT_COUNT = sizeof texts / sizeof texts[0] };

static void texts_are_read_as_jansson_reads_them(void **state)
{
    (void)state;
    memory.begin = memory.end = UINT64_MAX;
    for (size_t i = 0; i < TEXT_COUNT; i++) {
        json_error_t error;
        const size_t count = strlen(texts[i]);
        json_t *root = lw_json_load(texts[i], count, 0, &error);
        json_t *plain = json_loadb(texts[i], count, 0, NULL);
        assert_non_null(root);
        assert_true(json_equal(root, plain));
        json_decref(root);
        json_decref(plain);
        assert_false(lw_json_take_failure());
    }
}

static void errors_are_those_of_the_text_alone(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "", " ", "{", "[1, 2", "[1,2]]", "1], [2", "\"x", "{\"a\":1,\"a\":2}", "\xFF", "[\"\xC3\"]", "nul",
        "7", "\"text\"", "{\"a\" 1}", "[123456789012345678901234567890]", "[\"\\ud800\"]", "\"\\", "]",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const size_t count = strlen(wrong[i]);
        json_error_t error, plain;
        assert_null(lw_json_load(wrong[i], count, JSON_REJECT_DUPLICATES, &error));
        assert_null(json_loadb(wrong[i], count, JSON_REJECT_DUPLICATES, &plain));
        assert_string_equal(error.text, plain.text);
        assert_true(error.text[0] != '\0');
        assert_int_equal(error.line, plain.line);
        assert_int_equal(error.column, plain.column);
        assert_int_equal(json_error_code(&error), json_error_code(&plain));
        assert_null(lw_json_load(wrong[i], count, JSON_REJECT_DUPLICATES, NULL));
    }
    json_t *word = lw_json_load("7", 1, JSON_DECODE_ANY, NULL);
    assert_int_equal(json_integer_value(word), 7);
    json_decref(word);
}

/* One read with allocations [begin, end) failing; true while begin is reached. */
static bool read_with(const char *text, uint64_t begin, uint64_t end)
{
    json_error_t error = { .text = "?" };
    json_t *whole = lw_json_load(text, strlen(text), 0, NULL);
    memory.seen = 0;
    memory.begin = begin;
    memory.end = end;
    json_t *root = lw_json_load(text, strlen(text), 0, &error);
    const bool is_reached = memory.seen > begin;
    memory.begin = memory.end = UINT64_MAX;
    assert_true(is_reached == (root == NULL));
    assert_true(root == NULL || json_equal(root, whole));
    assert_true(root != NULL || error.text[0] == '\0');
    assert_false(lw_json_take_failure());
    json_decref(root);
    json_decref(whole);
    return is_reached;
}

static void memory_that_runs_out_is_seen(void **state)
{
    (void)state;
    for (size_t i = 0; i < TEXT_COUNT; i++) {
        uint64_t tried = 0;
        for (uint64_t run = 1; run <= 4; run++) /* the n-th alone, and a few after it */
            for (uint64_t n = 0; read_with(texts[i], n, n + run); n++) tried++;
        for (uint64_t n = 0; read_with(texts[i], n, UINT64_MAX); n++) tried++;
        assert_true(tried > 4);
    }
}

/* The deepest text that is read is read with both guards: no memory that lacks makes jansson assert about its
 * number. One level more is refused, though jansson would read it. */
static void the_deepest_text_is_guarded(void **state)
{
    (void)state;
    enum { DEEPEST = JSON_PARSER_MAX_DEPTH - 2 };
    static const char number[] = "12345678901234567", strings[] = "[\"]]}}[[{{\\\"[\",";
    static char text[2 * (DEEPEST + 1) + sizeof number + sizeof strings];
    for (size_t depth = DEEPEST; depth <= DEEPEST + 1; depth++) {
        json_error_t error = { .text = "" };
        const size_t head = sizeof strings - 1, digits = sizeof number - 1;
        memcpy(text, strings, head);
        memset(text + head, '[', depth - 1);
        memcpy(text + head + depth - 1, number, digits);
        memset(text + head + depth - 1 + digits, ']', depth);
        const size_t count = head + 2 * depth - 1 + digits;
        text[count] = '\0';
        json_t *root = lw_json_load(text, count, 0, &error), *plain = json_loadb(text, count, 0, NULL);
        assert_non_null(plain);
        assert_true((root != NULL) == (depth == DEEPEST));
        if (root == NULL) {
            assert_non_null(strstr(error.text, "nested deeper than 2046 levels"));
            assert_int_equal(json_error_code(&error), json_error_stack_overflow);
        }
        json_decref(root);
        json_decref(plain);
        uint64_t tried = 0;
        for (uint64_t n = 0; depth == DEEPEST && read_with(text, n, UINT64_MAX); n += 1 + n / 16) tried++;
        assert_true(depth != DEEPEST || tried > 50);
    }
}

/* The planted control: jansson alone reads another text, and nobody would know. */
static void jansson_alone_goes_on(void **state)
{
    (void)state;
    static const char text[] = "{\"a_key_of_more_than_sixteen_bytes\": 1}";
    json_t *whole = lw_json_load(text, sizeof text - 1, 0, NULL);
    uint64_t other = 0;
    for (uint64_t n = 0; n < 20; n++) {
        memory.seen = 0;
        memory.begin = n;
        memory.end = n + 1;
        json_t *root = json_loadb(text, sizeof text - 1, 0, NULL);
        memory.begin = memory.end = UINT64_MAX;
        other += root != NULL && !json_equal(root, whole);
        assert_int_equal(lw_json_take_failure(), memory.seen > n);
        json_decref(root);
    }
    json_decref(whole);
    assert_true(other > 0);
}

static void texts_of_any_bytes_are_strings(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "", "" }, { "a/\xC3\xA9", "a/\xC3\xA9" }, { "\xFF", "\xEF\xBF\xBD" },
        { "a\xC3", "a\xEF\xBF\xBD" }, { "\xE2\x82z", "\xEF\xBF\xBD\xEF\xBF\xBDz" },
        { "\xF0\x9F\x98\x80\x80.", "\xF0\x9F\x98\x80\xEF\xBF\xBD." },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *text = lw_json_text(cases[i][0], strlen(cases[i][0]));
        assert_string_equal(json_string_value(text), cases[i][1]);
        json_decref(text);
    }
}

static void what_is_built_without_memory_is_noted(void **state)
{
    (void)state;
    json_t *object = json_object();
    memory.seen = memory.begin = 0;
    memory.end = 1;
    assert_int_equal(json_object_set_new(object, "key", json_integer(5)), -1);
    memory.begin = memory.end = UINT64_MAX;
    assert_true(lw_json_has_failed());
    assert_true(lw_json_take_failure());
    assert_false(lw_json_has_failed());
    json_decref(object);
}

int main(void)
{
    /* Before the first parse: what a program gives jansson stays in place. */
    json_set_alloc_funcs(take, free);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_read_as_jansson_reads_them),
        cmocka_unit_test(errors_are_those_of_the_text_alone),
        cmocka_unit_test(memory_that_runs_out_is_seen),
        cmocka_unit_test(the_deepest_text_is_guarded),
        cmocka_unit_test(jansson_alone_goes_on),
        cmocka_unit_test(texts_of_any_bytes_are_strings),
        cmocka_unit_test(what_is_built_without_memory_is_noted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
