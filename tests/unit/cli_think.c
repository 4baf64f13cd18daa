/* Think tags in streamed replies, cut at every byte, and replies split for the history. */
#include "cli/think.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

/* How often inside changes in text when it comes in pieces of at most piece bytes. */
static uint32_t changes(const char *text, size_t piece, bool *inside)
{
    lw_think think = { .inside = *inside };
    uint32_t count = 0;
    const size_t bytes = strlen(text);
    for (size_t at = 0; at < bytes;) {
        const bool before = think.inside;
        const size_t part = bytes - at < piece ? bytes - at : piece;
        at += lw_think_scan(&think, text + at, part);
        count += before != think.inside;
    }
    *inside = think.inside;
    return count;
}

static void tags_are_found_in_any_cut(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t changes;
        bool inside;
    } cases[] = {
        { "plain", 0, false },
        { "<think>a</think>b", 2, false },
        { "a<think>b", 1, true },
        { "<<think>", 1, true },
        { "<thi<think>", 1, true },
        { "</think>", 0, false },
        { "<think><think></think>", 2, false },
        { "<think>a</thin</think>", 2, false },
        { "<Think>", 0, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (size_t piece = 1; piece <= strlen(cases[i].text); piece++) {
            bool inside = false;
            assert_int_equal(changes(cases[i].text, piece, &inside), cases[i].changes);
            assert_int_equal(inside, cases[i].inside);
        }
    }
    bool inside = true; /* the prompt opened it */
    assert_int_equal(changes("why</think>so", 3, &inside), 1);
    assert_false(inside);
}

static void a_prompt_may_end_in_a_block(void **state)
{
    (void)state;
    assert_true(lw_think_ends_open("x<think>\n", 9));
    assert_true(lw_think_ends_open("<think>", 7));
    assert_false(lw_think_ends_open("<think>x", 8));
    assert_false(lw_think_ends_open("</think>\n", 9));
    assert_false(lw_think_ends_open("think>", 6));
    assert_false(lw_think_ends_open("", 0));
}

static void check_split(const char *text, bool is_inside, const char *reasoning, const char *content)
{
    const lw_think_parts parts = lw_think_split(text, strlen(text), is_inside);
    assert_int_equal(parts.content_bytes, strlen(content));
    assert_memory_equal(parts.content, content, parts.content_bytes);
    if (reasoning == NULL) {
        assert_null(parts.reasoning);
        return;
    }
    assert_non_null(parts.reasoning);
    assert_int_equal(parts.reasoning_bytes, strlen(reasoning));
    assert_memory_equal(parts.reasoning, reasoning, parts.reasoning_bytes);
}

static void replies_are_split(void **state)
{
    (void)state;
    check_split("hello", false, NULL, "hello");
    check_split("<think>\nhm\n</think>\nhello", false, "hm", "hello");
    check_split("hm\n</think>\nhello\n", true, "hm", "hello");
    check_split("<think>cut off", false, NULL, "<think>cut off");
    check_split("cut off", true, NULL, "cut off");
    check_split("I say <think>x</think>", false, NULL, "I say <think>x</think>");
    check_split("<think></think>", false, "", "");
    check_split("", false, NULL, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tags_are_found_in_any_cut),
        cmocka_unit_test(a_prompt_may_end_in_a_block),
        cmocka_unit_test(replies_are_split),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
