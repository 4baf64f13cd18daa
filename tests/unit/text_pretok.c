/* Patterns and Split steps: what is rewritten, what is refused, where texts are cut. */
#include "text_made.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

/* Cuts text by one rule and writes the pieces with | between them. */
static void cut(const lw__split_rule *rule, const char *text, char *shown, size_t room);

typedef struct shown_pieces {
    char *text;
    size_t count, room;
} shown_pieces;

static lw_status show_piece(void *context, const char *bytes, size_t count)
{
    shown_pieces *shown = context;
    const int more = snprintf(shown->text + shown->count, shown->room - shown->count, "%s%.*s",
                              shown->count == 0 ? "" : "|", (int)count, bytes);
    shown->count += (size_t)more;
    return LW_OK;
}

static void cut(const lw__split_rule *rule, const char *text, char *shown, size_t room)
{
    lw_arena arena;
    lw_diag d;
    lw_arena_init(&arena, 1 << 20);
    lw__pretok pretok = { .split_count = 0 };
    if (lw__pretok_add(&pretok, &arena, rule, "test", &d) != LW_OK) fail_msg("%s", d.text);
    shown_pieces pieces = { .text = shown, .room = room };
    shown[0] = '\0';
    const lw__pretok_run run = {
        .pretok = &pretok,
        .match = pcre2_match_data_create(1, NULL),
        .limits = pcre2_match_context_create(NULL),
        .word = show_piece,
        .context = &pieces,
        .d = &d,
    };
    if (lw__pretok_cut(&run, text, strlen(text)) != LW_OK) fail_msg("%s", d.text);
    pcre2_match_data_free(run.match);
    pcre2_match_context_free(run.limits);
    lw__pretok_deinit(&pretok);
    lw_arena_deinit(&arena);
}

static void behaviors_cut_where_they_should(void **state)
{
    (void)state;
    static const struct { const char *behavior; bool invert; const char *pieces; } cases[] = {
        { "Isolated", false, "the|-|final|-|-|countdown" },
        { "Removed", false, "the|final|countdown" },
        { "MergedWithPrevious", false, "the-|final-|-|countdown" },
        { "MergedWithNext", false, "the|-final|-|-countdown" },
        { "Contiguous", false, "the|-|final|--|countdown" },
        { "Isolated", true, "the|-|final|-|-|countdown" },
        { "Removed", true, "-|-|-" },
        { "MergedWithPrevious", true, "the|-final|-|-countdown" },
        { "MergedWithNext", true, "the-|final-|-|countdown" },
        { "Contiguous", true, "the|-|final|--|countdown" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lw__split_rule rule = {
            .pattern = "-", .count = 1, .behavior = cases[i].behavior, .invert = cases[i].invert
        };
        char shown[128];
        for (int is_regex = 0; is_regex < 2; is_regex++) {
            rule.is_regex = is_regex != 0;
            cut(&rule, "the-final--countdown", shown, sizeof shown);
            if (strcmp(shown, cases[i].pieces) != 0)
                fail_msg("case %zu: %s, not %s", i, shown, cases[i].pieces);
        }
    }
}

static void patterns_mean_what_oniguruma_means(void **state)
{
    (void)state;
    static const struct { const char *pattern, *text, *pieces; } cases[] = {
        { "\\s+", "a\xC2\x85" "b\u180ec\u3000d", "a|\xC2\x85|b\u180ec|\u3000|d" },
        { "[^\\S\\n]", "a\n b\u180e", "a\n| |b\u180e" },
        { "\\w+", "a\u0301\u00b2_\u24b6-\u2460", "a\u0301\u00b2_\u24b6|-\u2460" },
        { "\\d", "1\u0663\u00b2", "1|\u0663|\u00b2" },
        { "a*", "baab", "b|aa|b" },
        { "^a|b$", "ab\nab", "a|b|\n|a|b" },
        { ".+", "ab\ncd\re", "ab|\n|cd\re" },
        { "\\v", "a\x0b\nb", "a|\x0b|\nb" },
        { "\\u00e9|\\x61", "b\u00e9ca", "b|\u00e9|c|a" },
        { "\\p{Han}+", "a\u6f22\u30fcb", "a|\u6f22|\u30fcb" },
        { "(?i:'s|'t)", "it'S don'\u017f", "it|'S| don|'\u017f" },
        { "\\p{N}{1,3}", "12345", "123|45" },
        { " ?\\p{L}+|\\s+(?!\\S)|\\s+", "a   b  ", "a|  | b|  " },
        { "(?<=a)b", "abcb", "a|b|cb" },
        { "a{|x{2}", "a{xxx", "a{|xx|x" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const lw__split_rule rule = {
            .pattern = cases[i].pattern,
            .count = strlen(cases[i].pattern),
            .is_regex = true,
            .behavior = "Isolated",
        };
        char shown[128];
        cut(&rule, cases[i].text, shown, sizeof shown);
        if (strcmp(shown, cases[i].pieces) != 0)
            fail_msg("%s: %s, not %s", rule.pattern, shown, cases[i].pieces);
    }
}

static void what_would_mean_something_else_is_refused(void **state)
{
    (void)state;
    static const char *const patterns[] = {
        "\\h",  "\\R",  "\\X",    "\\K",         "\\G",      "\\b",         "\\B",    "\\Q",   "\\N",
        "\\1",  "\\0",  "\\k<a>", "[\\W]",       "[\\b]",    "\\xe9",       "\\x{}",  "\\u12", "\\p",
        "\\pL", "\\p{", "\\p{}",  "\\p{sc:Han}", "[a&&b]",   "[[:alpha:]]", "[a[b]]", "[]a]",  "[",
        "[a",   "\\",   "(?m:a)", "(?<n>a)",     "(?P<n>a)", "(?#a)",       "a(?i)b", "(?s)a", "(*UTF)a",
        "(?R)", "(?1)", "(?|a)",  "a{1,3}+",     "a{2}?",    "a{2}*",       "a{,3}",
    };
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        lw_buf out;
        lw_diag d = { .text = "" };
        lw_buf_init(&out, 0);
        const lw_status status = lw__pattern_rewrite(patterns[i], strlen(patterns[i]), &out, &d);
        if (status != LW_UNSUPPORTED || d.text[0] == '\0')
            fail_msg("%s: %s", patterns[i], lw_status_name(status));
        lw_buf_deinit(&out);
    }
}

static void real_patterns_compile(void **state)
{
    (void)state;
    static const char *const patterns[] = {
        ("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
         "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"
         "|\\s+(?!\\S)|\\s+"),
        ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
         "?[\\p{P}\\p{S}]+[\r\n]*"),
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    };
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        lw_buf out;
        lw_diag d;
        pcre2_code *code = NULL;
        lw_buf_init(&out, 0);
        assert_int_equal(lw__pattern_rewrite(patterns[i], strlen(patterns[i]), &out, &d), LW_OK);
        assert_int_equal(lw__pattern_compile(out.bytes, out.count, &code, &d), LW_OK);
        pcre2_code_free(code);
        lw_buf_deinit(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(behaviors_cut_where_they_should),
        cmocka_unit_test(patterns_mean_what_oniguruma_means),
        cmocka_unit_test(what_would_mean_something_else_is_refused),
        cmocka_unit_test(real_patterns_compile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
