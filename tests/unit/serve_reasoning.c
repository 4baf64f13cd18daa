/* The two channels of a reply, its text cut at every byte. */
#include "serve/reasoning.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

typedef struct channels {
    lw_buf reasoning, content;
} channels;

static void say(lw_reasoning *reasoning, const char *text, size_t count, channels *out)
{
    const bool inside = lw_reasoning_channel(reasoning) == LW_CHANNEL_REASONING;
    assert_int_equal(lw_reasoning_text(reasoning, text, count, inside ? &out->reasoning : &out->content),
                     LW_OK);
}

/* '<' stands for the opening tag, '>' for the closing one; text goes in pieces of at most `piece` bytes. A
 * tag that does not move the state is text. */
static void play(const char *text, bool is_inside, size_t piece, channels *out)
{
    lw_reasoning reasoning = lw_reasoning_make(is_inside);
    lw_buf_init(&out->reasoning, 0);
    lw_buf_init(&out->content, 0);
    while (*text != '\0') {
        size_t count = strcspn(text, "<>");
        if (count > piece) count = piece;
        bool moved = false;
        if (count == 0) {
            moved = *text == '<' ? lw_reasoning_open(&reasoning) : lw_reasoning_close(&reasoning);
            count = 1;
        }
        if (!moved) say(&reasoning, text, count, out);
        text += count;
    }
}

static void channels_in_all_pieces(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool is_inside;
        const char *reasoning, *content;
    } cases[] = {
        { "plain", false, "", "plain" },
        { "\n plain\n", false, "", "\n plain\n" },
        { "<a>b", false, "a", "b" },
        { " \n<\na\n\nb\n>\n\nc\n", false, "a\n\nb", " \nc\n" },
        { "a\n>\nb", true, "a", "b" },
        { "\n\na>b", true, "a", "b" },
        { "a long one\n", true, "a long one", "" },
        { "x<a>b", false, "", "x<a>b" },
        { "<a>b<c>d", false, "a", "b<c>d" },
        { "<>b", false, "", "b" },
        { ">b", false, "", ">b" },
        { "<\n\n>\n\n", false, "", "" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (size_t piece = 1; piece <= strlen(cases[i].text); piece++) {
            channels out;
            play(cases[i].text, cases[i].is_inside, piece, &out);
            assert_string_equal(out.reasoning.count == 0 ? "" : out.reasoning.bytes, cases[i].reasoning);
            assert_string_equal(out.content.count == 0 ? "" : out.content.bytes, cases[i].content);
            lw_buf_deinit(&out.reasoning);
            lw_buf_deinit(&out.content);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(channels_in_all_pieces) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
