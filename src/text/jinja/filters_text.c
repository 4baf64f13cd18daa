/* Filters that give texts or numbers. */
#include "text/jinja/filters.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUND_DIGITS_MAX = 323, ROUND_SCALE_MAX = 15 };
static const double EXACT_INTEGER_MAX = 9007199254740992.0; /* 2**53 */

static lw_status filter_string(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    lw_text text;
    TRY(lw__jinja_no_args(run, "string", args));
    TRY(lw__jinja_text(run, subject, &text));
    *out = value_text(text);
    out->is_markup = subject.kind == JK_STRING && subject.is_markup;
    return LW_OK;
}

static lw_status filter_safe(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    TRY(filter_string(run, subject, args, out));
    out->is_markup = true;
    return LW_OK;
}

static lw_status filter_forceescape(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    lw_text text;
    TRY(filter_string(run, subject, args, out));
    TRY(lw__jinja_escape(run, out->as.text, &text));
    *out = value_text(text);
    out->is_markup = true;
    return LW_OK;
}

static lw_status filter_escape(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    *out = subject;
    if (subject.kind == JK_STRING && subject.is_markup) return lw__jinja_no_args(run, "escape", args);
    return filter_forceescape(run, subject, args, out);
}

static lw_status filter_trim(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    static const char *const params[] = { "chars", NULL };
    static const bool sides[2] = { true, true };
    const jvalue *chars;
    lw_text text;
    TRY(lw__jinja_bind(run, "trim", args, params, &chars));
    TRY(lw__jinja_text(run, subject, &text));
    TRY(lw__jinja_strip(run, text, chars, sides, &text));
    *out = value_text(text);
    out->is_markup = subject.kind == JK_STRING && subject.is_markup;
    return LW_OK;
}

static lw_status change_case(jrun *run, jvalue subject, const jargs *args, jcase how, jvalue *out)
{
    lw_text text;
    TRY(lw__jinja_no_args(run, "a case filter", args));
    TRY(lw__jinja_text(run, subject, &text));
    TRY(lw__jinja_case(run, text, how, &text));
    *out = value_text(text);
    out->is_markup = subject.kind == JK_STRING && subject.is_markup;
    return LW_OK;
}

static lw_status filter_upper(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    return change_case(run, subject, args, JCASE_UPPER, out);
}

static lw_status filter_lower(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    return change_case(run, subject, args, JCASE_LOWER, out);
}

static lw_status filter_capitalize(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    return change_case(run, subject, args, JCASE_CAPITAL, out);
}

static bool splits_words(lw_text text, size_t at)
{
    const char c = text.bytes[at];
    return lw__jinja_space_bytes(text.bytes + at, text.count - at) > 0 ||
        (c != '\0' && strchr("-({[<", c) != NULL);
}

static lw_status put_title_word(jbuild *build, lw_text word)
{
    if (word.count == 0) return LW_OK;
    const size_t first = lw__jinja_char_bytes(word.bytes, word.count);
    lw_text head, tail;
    TRY(lw__jinja_case(build->run, text_cut(word, 0, first), JCASE_UPPER, &head));
    TRY(lw__jinja_case(build->run, text_cut(word, first, word.count), JCASE_LOWER, &tail));
    TRY(lw__jinja_put(build, head));
    return lw__jinja_put(build, tail);
}

/* Words end at white space and opening signs only, unlike those of str.title. */
static lw_status filter_title(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    jbuild build = { .run = run };
    lw_text text;
    TRY(lw__jinja_no_args(run, "title", args));
    TRY(lw__jinja_text(run, subject, &text));
    size_t begin = 0, at = 0;
    while (at < text.count) {
        const size_t end = at + lw__jinja_char_bytes(text.bytes + at, text.count - at);
        if (splits_words(text, at)) {
            TRY(put_title_word(&build, text_cut(text, begin, at)));
            TRY(lw__jinja_put(&build, text_cut(text, at, end)));
            begin = end;
        }
        at = end;
    }
    TRY(put_title_word(&build, text_cut(text, begin, at)));
    *out = value_text(lw__jinja_built(&build));
    return LW_OK;
}

static lw_status filter_replace(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    static const char *const params[] = { "old", "new", "count", NULL };
    const jvalue *given[3];
    lw_text text, pair[2];
    int64_t times = -1;
    TRY(lw__jinja_bind(run, "replace", args, params, given));
    if (given[0] == NULL || given[1] == NULL)
        return lw__jinja_fail(run, LW_BAD_INPUT, "replace needs an old and a new text");
    for (size_t i = 0; i < 2; i++) TRY(lw__jinja_text(run, *given[i], &pair[i]));
    if (given[2] != NULL && given[2]->kind != JK_NONE)
        TRY(lw__jinja_need_int(run, "replace", given[2], &times));
    TRY(lw__jinja_text(run, subject, &text));
    TRY(lw__jinja_replace(run, text, pair, times, &text));
    *out = value_text(text);
    return LW_OK;
}

/* The indentation as a text; spaces that the filter makes have the origin of what they indent. */
static lw_status indentation(jrun *run, const jvalue *width, uint8_t origin, lw_text *out)
{
    if (width != NULL && width->kind == JK_STRING) {
        *out = width->as.text;
        return LW_OK;
    }
    int64_t count = 4;
    if (width != NULL) TRY(lw__jinja_need_int(run, "indent", width, &count));
    jbuild build = { .run = run };
    for (int64_t i = 0; i < count; i++) {
        TRY(lw__jinja_step(run, 0));
        TRY(lw__jinja_put_word(&build, " ", origin));
    }
    *out = lw__jinja_built(&build);
    return LW_OK;
}

static bool flag(const jvalue *v) { return v != NULL && lw__jinja_truth(*v); }

static lw_status filter_indent(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    static const char *const params[] = { "width", "first", "blank", NULL };
    const jvalue *given[3];
    lw_text text, indent;
    jvalue lines;
    jbuild build = { .run = run };
    TRY(lw__jinja_bind(run, "indent", args, params, given));
    TRY(lw__jinja_need_text(run, "indent", &subject, &text));
    if (subject.is_markup) return lw__jinja_fail(run, LW_UNSUPPORTED, "indent of safe text is not supported");
    TRY(indentation(run, given[0], subject.origin, &indent));
    TRY(lw__jinja_concat(run, text, text_literal("\n"), &text));
    TRY(lw__jinja_split_lines(run, text, &lines));
    if (flag(given[1])) TRY(lw__jinja_put(&build, indent));
    for (size_t i = 0; i < lines.as.list->count; i++) {
        const lw_text line = lines.as.list->items[i].as.text;
        if (i > 0) TRY(lw__jinja_put_word(&build, "\n", subject.origin));
        if (i > 0 && (line.count > 0 || flag(given[2]))) TRY(lw__jinja_put(&build, indent));
        TRY(lw__jinja_put(&build, line));
    }
    *out = value_text(lw__jinja_built(&build));
    return LW_OK;
}

static lw_status read_separators(jrun *run, const jvalue *given, jjson_style *style)
{
    if (given == NULL || given->kind == JK_NONE) return LW_OK;
    if ((given->kind != JK_TUPLE && given->kind != JK_LIST) || given->as.list->count != 2)
        return lw__jinja_fail(run, LW_BAD_INPUT, "tojson: separators are two strings");
    TRY(lw__jinja_need_text(run, "tojson", &given->as.list->items[0], &style->item_separator));
    return lw__jinja_need_text(run, "tojson", &given->as.list->items[1], &style->key_separator);
}

static lw_status filter_tojson(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    static const char *const params[] = { "ensure_ascii", "indent", "separators", "sort_keys", NULL };
    const jvalue *given[4];
    TRY(lw__jinja_bind(run, "tojson", args, params, given));
    jjson_style style = {
        .is_ascii = flag(given[0]),
        .has_indent = given[1] != NULL && given[1]->kind != JK_NONE,
        .sort_keys = flag(given[3]),
        .item_separator = text_literal(", "),
        .key_separator = text_literal(": "),
    };
    if (style.has_indent) {
        style.item_separator = text_literal(",");
        TRY(indentation(run, given[1], subject.origin, &style.indent));
    }
    TRY(read_separators(run, given[2], &style));
    jbuild build = { .run = run };
    TRY(lw__jinja_json(&build, &style, subject, 0));
    *out = value_text(lw__jinja_built(&build));
    return LW_OK;
}

/* Copies digits without their underscores (which must stand between digits); false: not a number's text. */
static bool copy_number(lw_text text, char *to, size_t room)
{
    size_t count = 0;
    if (text.count >= room) return false;
    for (size_t i = 0; i < text.count; i++) {
        const char c = text.bytes[i];
        if (c == '\0') return false;
        if (c != '_') {
            to[count++] = c;
            continue;
        }
        if (i == 0 || i + 1 == text.count) return false;
        if (!isalnum((unsigned char)text.bytes[i - 1]) || !isalnum((unsigned char)text.bytes[i + 1]))
            return false;
    }
    to[count] = '\0';
    return count > 0;
}

enum { NUMBER_TEXT_MAX = 512 };

static lw_text trimmed(lw_text text)
{
    const size_t end = lw__jinja_trim_right(text);
    return text_cut(text, end - lw__jinja_trim_left(text_cut(text, 0, end)), end);
}

static lw_status check_number_text(jrun *run, lw_text text)
{
    for (size_t i = 0; i < text.count; i++)
        if ((unsigned char)text.bytes[i] >= 0x80)
            return lw__jinja_fail(run, LW_UNSUPPORTED,
                                  "numbers with characters outside ASCII are not supported");
    if (text.count < NUMBER_TEXT_MAX) return LW_OK;
    return lw__jinja_fail(run, LW_UNSUPPORTED, "a number of %zu characters is not supported", text.count);
}

/* Python's float(text); *is_number is false where Python raises. */
static lw_status parse_real(jrun *run, lw_text text, double *out, bool *is_number)
{
    char copy[NUMBER_TEXT_MAX];
    text = trimmed(text);
    TRY(check_number_text(run, text));
    *is_number = copy_number(text, copy, sizeof copy);
    if (!*is_number) return LW_OK;
    const char *body = copy + (copy[0] == '+' || copy[0] == '-');
    /* strtod also reads hexadecimal and nan(...), which Python does not. */
    if (strpbrk(body, "xX(+-") == body || strpbrk(body, "xX(") != NULL || isspace((unsigned char)*body)) {
        *is_number = false;
        return LW_OK;
    }
    char *end;
    *out = strtod(copy, &end);
    *is_number = *end == '\0' && end > copy;
    return LW_OK;
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return isalpha((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10 : 99;
}

/* Python's int(text, base) */
static lw_status parse_whole(jrun *run, lw_text text, int64_t base, int64_t *out, bool *is_number)
{
    char copy[NUMBER_TEXT_MAX];
    text = trimmed(text);
    TRY(check_number_text(run, text));
    *is_number = copy_number(text, copy, sizeof copy);
    if (!*is_number) return LW_OK;
    const bool is_minus = copy[0] == '-';
    const char *at = copy + (is_minus || copy[0] == '+');
    const int prefix = at[0] == '0' ? (at[1] | 0x20) : 0;
    if ((base == 16 && prefix == 'x') || (base == 8 && prefix == 'o') || (base == 2 && prefix == 'b'))
        at += 2;
    *is_number = *at != '\0';
    *out = 0;
    for (; *at != '\0' && *is_number; at++) {
        const int digit = digit_value(*at);
        *is_number = digit < base;
        if (!*is_number) break;
        if (__builtin_mul_overflow(*out, base, out) ||
            __builtin_add_overflow(*out, is_minus ? -digit : digit, out))
            return lw__jinja_fail(run, LW_UNSUPPORTED, "an integer beyond 64 bits is not supported");
    }
    return LW_OK;
}

static lw_status whole_of_real(jrun *run, double real, jvalue *out, bool *is_number)
{
    *is_number = isfinite(real);
    if (!*is_number) return LW_OK;
    if (real >= 9223372036854775808.0 || real < -9223372036854775808.0)
        return lw__jinja_fail(run, LW_UNSUPPORTED, "an integer beyond 64 bits is not supported");
    out->as.integer = (int64_t)real;
    return LW_OK;
}

static lw_status int_of_text(jrun *run, jvalue subject, int64_t base, jvalue *out, bool *is_number)
{
    double real;
    TRY(parse_whole(run, subject.as.text, base, &out->as.integer, is_number));
    if (*is_number) return LW_OK;
    TRY(parse_real(run, subject.as.text, &real, is_number));
    return *is_number ? whole_of_real(run, real, out, is_number) : LW_OK;
}

static lw_status filter_int(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    static const char *const params[] = { "default", "base", NULL };
    const jvalue *given[2];
    int64_t base = 10;
    bool is_number = false;
    TRY(lw__jinja_bind(run, "int", args, params, given));
    if (given[1] != NULL) TRY(lw__jinja_need_int(run, "int", given[1], &base));
    if (base < 2 || base > 36) return lw__jinja_fail(run, LW_UNSUPPORTED, "int: base %lld", (long long)base);
    if (subject.kind == JK_UNDEFINED) return lw__jinja_fail_undefined(run, subject);
    *out = value_int(0, subject.origin);
    if (subject.kind == JK_STRING) TRY(int_of_text(run, subject, base, out, &is_number));
    else if (subject.kind == JK_FLOAT) TRY(whole_of_real(run, subject.as.real, out, &is_number));
    else if (value_is_integer(subject)) {
        out->as.integer = value_integer(subject);
        is_number = true;
    }
    if (is_number) return LW_OK;
    *out = value_int(0, subject.origin);
    if (subject.kind == JK_FLOAT && isinf(subject.as.real))
        return lw__jinja_fail(run, LW_BAD_INPUT, "int of an infinite float");
    if (given[0] != NULL) *out = *given[0];
    return LW_OK;
}

static lw_status filter_float(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    static const char *const params[] = { "default", NULL };
    const jvalue *given;
    bool is_number = false;
    TRY(lw__jinja_bind(run, "float", args, params, &given));
    if (subject.kind == JK_UNDEFINED) return lw__jinja_fail_undefined(run, subject);
    *out = value_float(0.0, subject.origin);
    if (subject.kind == JK_STRING) TRY(parse_real(run, subject.as.text, &out->as.real, &is_number));
    if (value_is_number(subject)) out->as.real = value_real(subject);
    if (is_number || value_is_number(subject)) return LW_OK;
    *out = given != NULL ? *given : value_float(0.0, subject.origin);
    return LW_OK;
}

static lw_status filter_abs(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    TRY(lw__jinja_no_args(run, "abs", args));
    if (subject.kind == JK_UNDEFINED) return lw__jinja_fail_undefined(run, subject);
    if (!value_is_number(subject))
        return lw__jinja_fail(run, LW_BAD_INPUT, "abs of a '%s'", lw__jinja_kind_name(subject));
    *out = value_float(fabs(value_real(subject)), subject.origin);
    if (subject.kind == JK_FLOAT) return LW_OK;
    return lw__jinja_negate(run, subject, value_integer(subject) < 0, out);
}

static lw_status round_common(jrun *run, jvalue subject, int64_t digits, jvalue *out)
{
    *out = subject;
    if (value_is_integer(subject)) {
        *out = value_int(value_integer(subject), subject.origin);
        return LW_OK;
    }
    if (isnan(subject.as.real) || isinf(subject.as.real) || digits > ROUND_DIGITS_MAX) return LW_OK;
    char text[1024];
    snprintf(text, sizeof text, "%.*f", (int)digits, subject.as.real);
    *out = value_float(strtod(text, NULL), subject.origin);
    return lw__jinja_step(run, 0);
}

static lw_status round_towards(jrun *run, jvalue subject, int64_t digits, bool is_up, jvalue *out)
{
    double scale = 1.0;
    if (digits > ROUND_SCALE_MAX) return lw__jinja_fail(run, LW_UNSUPPORTED, "round: more than 15 digits");
    for (int64_t i = 0; i < digits; i++) scale *= 10.0;
    const double scaled = value_real(subject) * scale;
    if (!(fabs(scaled) <= EXACT_INTEGER_MAX))
        return lw__jinja_fail(run, LW_UNSUPPORTED, "round of numbers beyond 2**53 is not supported");
    /* Python goes through an int, which has no negative zero. */
    *out = value_float(((is_up ? ceil(scaled) : floor(scaled)) + 0.0) / scale, subject.origin);
    return LW_OK;
}

static lw_status filter_round(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    static const char *const params[] = { "precision", "method", NULL };
    const jvalue *given[2];
    int64_t digits = 0;
    lw_text method = text_literal("common");
    TRY(lw__jinja_bind(run, "round", args, params, given));
    if (given[0] != NULL) TRY(lw__jinja_need_int(run, "round", given[0], &digits));
    if (given[1] != NULL) TRY(lw__jinja_need_text(run, "round", given[1], &method));
    if (subject.kind == JK_UNDEFINED) return lw__jinja_fail_undefined(run, subject);
    if (!value_is_number(subject))
        return lw__jinja_fail(run, LW_BAD_INPUT, "round of a '%s'", lw__jinja_kind_name(subject));
    if (digits < 0)
        return lw__jinja_fail(run, LW_UNSUPPORTED, "round with a negative precision is not supported");
    if (text_is(method, "common")) return round_common(run, subject, digits, out);
    const bool is_up = text_is(method, "ceil");
    if (!is_up && !text_is(method, "floor"))
        return lw__jinja_fail(run, LW_BAD_INPUT, "round: method must be common, ceil or floor");
    return round_towards(run, subject, digits, is_up, out);
}

const jfilter lw__jinja_text_filters[JINJA_TEXT_FILTERS] = {
    { "string", filter_string },   { "safe", filter_safe },       { "forceescape", filter_forceescape },
    { "escape", filter_escape },   { "e", filter_escape },        { "trim", filter_trim },
    { "upper", filter_upper },     { "lower", filter_lower },     { "capitalize", filter_capitalize },
    { "title", filter_title },     { "replace", filter_replace }, { "indent", filter_indent },
    { "tojson", filter_tojson },   { "int", filter_int },         { "float", filter_float },
    { "abs", filter_abs },         { "round", filter_round },
};
