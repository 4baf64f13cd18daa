/* Option tables; see options.h. */
#include "cli/options.h"

#include "base/size.h"
#include "cli/term.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HELP_COLUMN = 24 };

static const lw_option *find_long(const lw_usage *usage, const char *name, size_t name_bytes)
{
    for (size_t i = 0; i < usage->option_count; i++) {
        const char *own = usage->options[i].name;
        if (own != NULL && strlen(own) == name_bytes && memcmp(own, name, name_bytes) == 0)
            return &usage->options[i];
    }
    return NULL;
}

static const lw_option *find_letter(const lw_usage *usage, char letter)
{
    for (size_t i = 0; i < usage->option_count; i++) {
        if (usage->options[i].letter == letter) return &usage->options[i];
    }
    return NULL;
}

/* "--name", or "-p" for an option that has a letter only; text holds 64 bytes. */
static const char *spelled(const lw_option *option, char text[64])
{
    if (option->name != NULL) snprintf(text, 64, "--%s", option->name);
    else snprintf(text, 64, "-%c", option->letter);
    return text;
}

/* Decimal digits only: strtoull would take signs and spaces and wrap negative numbers. */
static bool parse_u64(const char *text, uint64_t *out)
{
    uint64_t value = 0;
    if (*text == '\0') return false;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9') return false;
        if (__builtin_mul_overflow(value, 10u, &value)) return false;
        if (__builtin_add_overflow(value, (uint64_t)(*text - '0'), &value)) return false;
    }
    *out = value;
    return true;
}

static bool parse_real(const char *text, double *out)
{
    const bool starts = (*text >= '0' && *text <= '9') || *text == '-' || *text == '+' || *text == '.';
    char *end = NULL;
    const double value = starts ? strtod(text, &end) : 0.0;
    if (!starts || end == text || *end != '\0' || !isfinite(value)) return false;
    *out = value;
    return true;
}

static bool is_choice(const char *choices, const char *text)
{
    const size_t text_bytes = strlen(text);
    while (*choices != '\0') {
        const size_t choice_bytes = strcspn(choices, "|");
        if (choice_bytes == text_bytes && memcmp(choices, text, text_bytes) == 0) return true;
        choices += choice_bytes + (choices[choice_bytes] == '|');
    }
    return false;
}

static lw_status store_number(const lw_option *option, const char *value, lw_diag *d)
{
    char name[64];
    uint64_t number;
    if (!parse_u64(value, &number) || number < option->min || number > option->max)
        return lw_fail(d, LW_BAD_INPUT, "%s takes a whole number from %" PRIu64 " to %" PRIu64 ", not \"%s\"",
                       spelled(option, name), option->min, option->max, value);
    if (option->u32 != NULL) *option->u32 = (uint32_t)number;
    else *option->u64 = number;
    return LW_OK;
}

static lw_status store_listed(const lw_option *option, const char *value, lw_diag *d)
{
    char name[64];
    if (option->list->count == LW_OPTION_LIST_MAX)
        return lw_fail(d, LW_BAD_INPUT, "%s is taken at most %d times", spelled(option, name),
                       LW_OPTION_LIST_MAX);
    option->list->values[option->list->count++] = value;
    return LW_OK;
}

static lw_status store(const lw_option *option, const char *value, lw_diag *d)
{
    char name[64];
    if (option->given != NULL) *option->given = true;
    if (option->list != NULL) return store_listed(option, value, d);
    if (option->u32 != NULL || option->u64 != NULL) return store_number(option, value, d);
    if (option->real != NULL) {
        double number;
        if (!parse_real(value, &number) || number < option->real_min || number > option->real_max)
            return lw_fail(d, LW_BAD_INPUT, "%s takes a number from %g to %g, not \"%s\"",
                           spelled(option, name), option->real_min, option->real_max, value);
        *option->real = number;
        return LW_OK;
    }
    if (option->choices != NULL && !is_choice(option->choices, value))
        return lw_fail(d, LW_BAD_INPUT, "%s takes one of %s, not \"%s\"", spelled(option, name),
                       option->choices, value);
    *option->text = value;
    return LW_OK;
}

/* One option at argv[*at]; *at moves past its value. */
static lw_status parse_option(const lw_usage *usage, int argc, char **argv, int *at, lw_diag *d)
{
    const char *word = argv[*at];
    const bool is_long = word[1] == '-';
    const char *equals = is_long ? strchr(word, '=') : NULL;
    const size_t name_bytes = equals != NULL ? (size_t)(equals - word) : strlen(word);
    const lw_option *option = NULL;
    if (is_long) option = find_long(usage, word + 2, name_bytes - 2);
    else if (name_bytes == 2) option = find_letter(usage, word[1]);
    if (option == NULL)
        return lw_fail(d, LW_BAD_INPUT,
                       "%s has no option %.*s (put -- before an argument that starts with a dash)",
                       usage->verb, (int)size_min(name_bytes, 80), word);
    char name[64];
    if (option->flag != NULL) {
        if (equals != NULL)
            return lw_fail(d, LW_BAD_INPUT, "%s takes no value, but \"%s\" was given", spelled(option, name),
                           equals + 1);
        *option->flag = true;
        return LW_OK;
    }
    if (equals != NULL) return store(option, equals + 1, d);
    if (*at + 1 >= argc)
        return lw_fail(d, LW_BAD_INPUT, "%s needs a value: %s %s", spelled(option, name), word,
                       option->value);
    *at += 1;
    return store(option, argv[*at], d);
}

lw_status lw_options_parse(const lw_usage *usage, int argc, char **argv, lw_arguments *out, lw_diag *d)
{
    LW_ASSERT(usage->arguments_max <= LW_ARGUMENTS_MAX);
    *out = (lw_arguments){ .count = 0 };
    bool options_ended = false;
    for (int at = 0; at < argc; at++) {
        const char *word = argv[at];
        if (options_ended || word[0] != '-' || word[1] == '\0') {
            if (out->count == usage->arguments_max)
                return lw_fail(d, LW_BAD_INPUT, "%s takes %s, so \"%s\" is one argument too many",
                               usage->verb, usage->arguments_max == 0 ? "no argument" : usage->arguments,
                               word);
            out->values[out->count++] = word;
            continue;
        }
        if (strcmp(word, "--") == 0) {
            options_ended = true;
            continue;
        }
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            out->help = true;
            return LW_OK;
        }
        const lw_status status = parse_option(usage, argc, argv, &at, d);
        if (status != LW_OK) return status;
    }
    if (out->count < usage->arguments_min)
        return lw_fail(d, LW_BAD_INPUT, "%s needs %s", usage->verb, usage->arguments);
    return LW_OK;
}

static lw_status help_option(const lw_option *option, lw_buf *out)
{
    char left[96], range[96] = "";
    const char *value = option->value == NULL ? "" : option->value;
    const char *space = option->value == NULL ? "" : " ";
    if (option->name == NULL) snprintf(left, sizeof left, "-%c%s%s", option->letter, space, value);
    else if (option->letter != 0)
        snprintf(left, sizeof left, "-%c, --%s%s%s", option->letter, option->name, space, value);
    else snprintf(left, sizeof left, "--%s%s%s", option->name, space, value);
    if (option->u32 != NULL || option->u64 != NULL)
        snprintf(range, sizeof range, " [%" PRIu64 " to %" PRIu64 "]", option->min, option->max);
    if (option->real != NULL)
        snprintf(range, sizeof range, " [%g to %g]", option->real_min, option->real_max);
    if (option->choices != NULL) snprintf(range, sizeof range, " [%s]", option->choices);
    return lw_buf_printf(out, "  %-*s %s%s\n", HELP_COLUMN, left, option->help, range);
}

lw_status lw_options_help(const lw_usage *usage, lw_buf *out)
{
    const bool has_arguments = usage->arguments_max > 0;
    lw_status status =
        lw_buf_printf(out, "usage: lanewise %s [options]%s%s\n\n%s\n\noptions:\n", usage->verb,
                      has_arguments ? " " : "", has_arguments ? usage->arguments : "", usage->summary);
    for (size_t i = 0; i < usage->option_count && status == LW_OK; i++)
        status = help_option(&usage->options[i], out);
    if (status != LW_OK) return status;
    return lw_buf_printf(out, "  %-*s this text\n\nexamples:\n%s", HELP_COLUMN, "-h, --help",
                         usage->examples);
}

int lw_usage_error(const char *verb, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("lanewise: ", stderr);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\nlanewise: `lanewise %s%s--help` lists what there is\n", verb,
            *verb == '\0' ? "" : " ");
    return LW_EXIT_USAGE;
}

bool lw_options_ready(const lw_usage *usage, int argc, char **argv, lw_arguments *out, int *exit_code)
{
    lw_diag d;
    if (lw_options_parse(usage, argc, argv, out, &d) != LW_OK) {
        *exit_code = lw_usage_error(usage->verb, "%s", d.text);
        return false;
    }
    if (!out->help) return true;
    lw_buf text;
    lw_buf_init(&text, 0);
    *exit_code = lw_options_help(usage, &text) == LW_OK ? LW_EXIT_OK : LW_EXIT_FAILED;
    if (*exit_code == LW_EXIT_OK) fwrite(text.bytes, 1, text.count, stdout);
    lw_buf_deinit(&text);
    return false;
}
