/* The option parser: every kind of option at, under and over its limits, and the texts of its errors. */
#include "cli/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

enum { WORDS_MAX = 8 };

/* What a test table writes to. */
typedef struct target {
    bool flag, given;
    const char *text, *choice;
    uint32_t small;
    uint64_t large;
    double real;
} target;

static lw_status parse(target *t, lw_arguments *arguments, lw_diag *d, const char *const *words)
{
    const lw_option options[] = {
        { .name = "flag", .flag = &t->flag, .help = "a flag" },
        { .name = "text", .letter = 't', .value = "TEXT", .text = &t->text, .help = "a text" },
        { .name = "choice",
          .value = "X",
          .text = &t->choice,
          .choices = "one|two|twenty",
          .help = "a choice" },
        { .name = "small",
          .value = "N",
          .u32 = &t->small,
          .min = 1,
          .max = 256,
          .given = &t->given,
          .help = "a count" },
        { .name = "large", .value = "N", .u64 = &t->large, .max = INT64_MAX, .help = "a seed" },
        { .name = "real", .value = "P", .real = &t->real, .real_max = 1, .help = "a share" },
    };
    const lw_usage usage = {
        .verb = "test",
        .arguments = "MODEL [TEXT]",
        .arguments_min = 1,
        .arguments_max = 2,
        .summary = "Tests.",
        .examples = "  lanewise test\n",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    char *argv[WORDS_MAX];
    int argc = 0;
    for (; words[argc] != NULL; argc++) {
        LW_ASSERT(argc < WORDS_MAX);
        argv[argc] = (char *)words[argc];
    }
    *t = (target){ .small = 7, .large = 8, .real = 0.5 };
    return lw_options_parse(&usage, argc, argv, arguments, d);
}

#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void values_are_taken_in_both_spellings(void **state)
{
    (void)state;
    target t;
    lw_arguments a;
    lw_diag d;
    assert_int_equal(parse(&t, &a, &d, WORDS("m", "--small", "12", "--text=x=y", "--flag")), LW_OK);
    assert_int_equal(t.small, 12);
    assert_string_equal(t.text, "x=y");
    assert_true(t.flag && t.given);
    assert_int_equal(a.count, 1);
    assert_string_equal(a.values[0], "m");
    assert_int_equal(parse(&t, &a, &d, WORDS("-t", "--flag", "--real=0.25", "m", "second")), LW_OK);
    assert_string_equal(t.text, "--flag");
    assert_false(t.flag);
    assert_true(t.real == 0.25);
    assert_int_equal(a.count, 2);
    assert_int_equal(parse(&t, &a, &d, WORDS("m", "--small=1", "--small=2")), LW_OK);
    assert_int_equal(t.small, 2);
    assert_int_equal(parse(&t, &a, &d, WORDS("m", "--text=")), LW_OK);
    assert_string_equal(t.text, "");
}

static void untouched_options_keep_their_values(void **state)
{
    (void)state;
    target t;
    lw_arguments a;
    assert_int_equal(parse(&t, &a, NULL, WORDS("m")), LW_OK);
    assert_true(t.small == 7 && t.large == 8 && t.real == 0.5 && t.text == NULL && !t.given && !t.flag);
}

static void limits_hold_exactly(void **state)
{
    (void)state;
    target t;
    lw_arguments a;
    assert_int_equal(parse(&t, &a, NULL, WORDS("m", "--small=1")), LW_OK);
    assert_int_equal(parse(&t, &a, NULL, WORDS("m", "--small=256")), LW_OK);
    assert_int_equal(parse(&t, &a, NULL, WORDS("m", "--small=0")), LW_BAD_INPUT);
    assert_int_equal(parse(&t, &a, NULL, WORDS("m", "--small=257")), LW_BAD_INPUT);
    assert_int_equal(parse(&t, &a, NULL, WORDS("m", "--large=9223372036854775807")), LW_OK);
    assert_true(t.large == INT64_MAX);
    assert_int_equal(parse(&t, &a, NULL, WORDS("m", "--large=9223372036854775808")), LW_BAD_INPUT);
    assert_int_equal(parse(&t, &a, NULL, WORDS("m", "--large=18446744073709551616")), LW_BAD_INPUT);
    assert_int_equal(parse(&t, &a, NULL, WORDS("m", "--real=1")), LW_OK);
    assert_int_equal(parse(&t, &a, NULL, WORDS("m", "--real=0")), LW_OK);
    assert_int_equal(parse(&t, &a, NULL, WORDS("m", "--real=1.001")), LW_BAD_INPUT);
    assert_int_equal(parse(&t, &a, NULL, WORDS("m", "--real=-0.001")), LW_BAD_INPUT);
}

static void what_is_no_number_is_refused(void **state)
{
    (void)state;
    static const char *const numbers[] = { "", "-1", "+1", " 1", "1 ", "1.0", "1e2", "0x10", "one" };
    static const char *const reals[] = { "", " 0.5", "0.5x", "nan", "inf", "-inf", "half", "0,5" };
    target t;
    lw_arguments a;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        assert_int_equal(parse(&t, &a, NULL, WORDS("m", "--small", numbers[i])), LW_BAD_INPUT);
    }
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++) {
        assert_int_equal(parse(&t, &a, NULL, WORDS("m", "--real", reals[i])), LW_BAD_INPUT);
    }
}

static void choices_are_whole_words(void **state)
{
    (void)state;
    target t;
    lw_arguments a;
    assert_int_equal(parse(&t, &a, NULL, WORDS("m", "--choice=two")), LW_OK);
    assert_int_equal(parse(&t, &a, NULL, WORDS("m", "--choice=twenty")), LW_OK);
    assert_int_equal(parse(&t, &a, NULL, WORDS("m", "--choice=one")), LW_OK);
    assert_int_equal(parse(&t, &a, NULL, WORDS("m", "--choice=tw")), LW_BAD_INPUT);
    assert_int_equal(parse(&t, &a, NULL, WORDS("m", "--choice=one|two")), LW_BAD_INPUT);
    assert_int_equal(parse(&t, &a, NULL, WORDS("m", "--choice=")), LW_BAD_INPUT);
}

static void errors_name_option_value_and_range(void **state)
{
    (void)state;
    target t;
    lw_arguments a;
    lw_diag d;
    assert_int_equal(parse(&t, &a, &d, WORDS("m", "--small", "300")), LW_BAD_INPUT);
    assert_string_equal(d.text, "--small takes a whole number from 1 to 256, not \"300\"");
    assert_int_equal(parse(&t, &a, &d, WORDS("m", "--real", "2")), LW_BAD_INPUT);
    assert_string_equal(d.text, "--real takes a number from 0 to 1, not \"2\"");
    assert_int_equal(parse(&t, &a, &d, WORDS("m", "--choice", "six")), LW_BAD_INPUT);
    assert_string_equal(d.text, "--choice takes one of one|two|twenty, not \"six\"");
    assert_int_equal(parse(&t, &a, &d, WORDS("m", "--small")), LW_BAD_INPUT);
    assert_string_equal(d.text, "--small needs a value: --small N");
    assert_int_equal(parse(&t, &a, &d, WORDS("m", "--flag=yes")), LW_BAD_INPUT);
    assert_non_null(strstr(d.text, "--flag takes no value"));
    assert_int_equal(parse(&t, &a, &d, WORDS("m", "--smal", "1")), LW_BAD_INPUT);
    assert_non_null(strstr(d.text, "no option --smal "));
    assert_int_equal(parse(&t, &a, &d, WORDS("m", "-x")), LW_BAD_INPUT);
    assert_non_null(strstr(d.text, "no option -x "));
}

static void arguments_are_counted(void **state)
{
    (void)state;
    target t;
    lw_arguments a;
    lw_diag d;
    assert_int_equal(parse(&t, &a, &d, WORDS("--flag")), LW_BAD_INPUT);
    assert_string_equal(d.text, "test needs MODEL [TEXT]");
    assert_int_equal(parse(&t, &a, &d, WORDS("a", "b", "c")), LW_BAD_INPUT);
    assert_non_null(strstr(d.text, "\"c\" is one argument too many"));
    assert_int_equal(parse(&t, &a, &d, WORDS("--", "-x", "--flag")), LW_OK);
    assert_string_equal(a.values[0], "-x");
    assert_string_equal(a.values[1], "--flag");
    assert_false(t.flag);
    assert_int_equal(parse(&t, &a, &d, WORDS("-")), LW_OK);
    assert_string_equal(a.values[0], "-");
}

static void help_wins_and_lists_everything(void **state)
{
    (void)state;
    target t;
    lw_arguments a;
    assert_int_equal(parse(&t, &a, NULL, WORDS("--help")), LW_OK);
    assert_true(a.help);
    assert_int_equal(parse(&t, &a, NULL, WORDS("-h", "--unknown")), LW_OK);
    assert_true(a.help);
    uint32_t count = 0;
    const lw_option option = {
        .name = "count", .letter = 'c', .value = "N", .u32 = &count, .min = 1, .max = 9, .help = "how many"
    };
    const lw_usage usage = { .verb = "test",
                             .arguments = "MODEL",
                             .arguments_max = 1,
                             .summary = "Tests.",
                             .examples = "  lanewise test m\n",
                             .options = &option,
                             .option_count = 1 };
    lw_buf text;
    lw_buf_init(&text, 0);
    assert_int_equal(lw_options_help(&usage, &text), LW_OK);
    assert_non_null(strstr(text.bytes, "usage: lanewise test [options] MODEL\n"));
    assert_non_null(strstr(text.bytes, "-c, --count N"));
    assert_non_null(strstr(text.bytes, "how many [1 to 9]\n"));
    assert_non_null(strstr(text.bytes, "lanewise test m\n"));
    lw_buf_deinit(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_taken_in_both_spellings),
        cmocka_unit_test(untouched_options_keep_their_values),
        cmocka_unit_test(limits_hold_exactly),
        cmocka_unit_test(what_is_no_number_is_refused),
        cmocka_unit_test(choices_are_whole_words),
        cmocka_unit_test(errors_name_option_value_and_range),
        cmocka_unit_test(arguments_are_counted),
        cmocka_unit_test(help_wins_and_lists_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
