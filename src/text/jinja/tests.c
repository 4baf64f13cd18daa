/* The tests behind "is". */
#include "text/jinja/run.h"

#include "text/jinja/lexer.h"

#include <math.h>
#include <utf8proc.h>

typedef lw_status test_function(jrun *run, jvalue subject, const jvalue *argument, bool *out);

static bool is_cased(uint32_t code, bool *is_upper, bool *is_lower)
{
    const utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    *is_upper = category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LT;
    *is_lower = category == UTF8PROC_CATEGORY_LL;
    return *is_upper || *is_lower;
}

/* At least one cased character, and none of the other case. */
static lw_status has_case(jrun *run, jvalue subject, bool wants_upper, bool *out)
{
    lw_text text;
    TRY(lw__jinja_text(run, subject, &text));
    TRY(lw__jinja_step(run, text.count));
    *out = false;
    for (size_t at = 0; at < text.count; at += lw__jinja_char_bytes(text.bytes + at, text.count - at)) {
        bool is_upper, is_lower;
        if (!is_cased(lw__jinja_decode(text.bytes + at, text.count - at), &is_upper, &is_lower)) continue;
        *out = wants_upper ? is_upper : is_lower;
        if (!*out) return LW_OK;
    }
    return LW_OK;
}

static lw_status test_upper(jrun *run, jvalue s, const jvalue *argument, bool *out)
{
    (void)argument;
    return has_case(run, s, true, out);
}

static lw_status test_lower(jrun *run, jvalue s, const jvalue *argument, bool *out)
{
    (void)argument;
    return has_case(run, s, false, out);
}

static lw_status remainder_is(jrun *run, jvalue s, jvalue divisor, int64_t wanted, bool *out)
{
    jvalue rest;
    TRY(lw__jinja_binary(run, '%', s, divisor, &rest));
    return lw__jinja_equal(run, rest, value_int(wanted, LW_ORIGIN_TRUSTED), out);
}

static lw_status test_odd(jrun *run, jvalue s, const jvalue *argument, bool *out)
{
    (void)argument;
    return remainder_is(run, s, value_int(2, LW_ORIGIN_TRUSTED), 1, out);
}

static lw_status test_even(jrun *run, jvalue s, const jvalue *argument, bool *out)
{
    (void)argument;
    return remainder_is(run, s, value_int(2, LW_ORIGIN_TRUSTED), 0, out);
}

static lw_status test_divisibleby(jrun *run, jvalue s, const jvalue *argument, bool *out)
{
    return remainder_is(run, s, *argument, 0, out);
}

static lw_status test_in(jrun *run, jvalue s, const jvalue *argument, bool *out)
{
    return lw__jinja_contains(run, *argument, s, out);
}

/* One object and the same; for values that are no objects here, the same value of the same kind. */
static lw_status test_sameas(jrun *run, jvalue s, const jvalue *argument, bool *out)
{
    const bool is_simple = s.kind == JK_NONE || s.kind == JK_BOOL;
    if (!is_simple && s.kind == argument->kind)
        return lw__jinja_fail(run, LW_UNSUPPORTED, "sameas of a '%s' is not supported",
                              lw__jinja_kind_name(s));
    *out = s.kind == argument->kind && (s.kind == JK_NONE || s.as.truth == argument->as.truth);
    return LW_OK;
}

#define COMPARISON(name, op) \
    static lw_status name(jrun *run, jvalue s, const jvalue *argument, bool *out) \
    { \
        return lw__jinja_compare(run, op, s, *argument, out); \
    }
COMPARISON(test_eq, JOP('=', '='))
COMPARISON(test_ne, JOP('!', '='))
COMPARISON(test_lt, '<')
COMPARISON(test_le, JOP('<', '='))
COMPARISON(test_gt, '>')
COMPARISON(test_ge, JOP('>', '='))

static const struct function_test {
    const char *name;
    bool takes_argument;
    test_function *run;
} function_tests[] = {
    { "upper", false, test_upper },      { "lower", false, test_lower },    { "odd", false, test_odd },
    { "even", false, test_even },        { "divisibleby", true, test_divisibleby },
    { "in", true, test_in },             { "sameas", true, test_sameas },   { "eq", true, test_eq },
    { "equalto", true, test_eq },        { "==", true, test_eq },           { "ne", true, test_ne },
    { "!=", true, test_ne },             { "lt", true, test_lt },           { "lessthan", true, test_lt },
    { "<", true, test_lt },              { "le", true, test_le },           { "<=", true, test_le },
    { "gt", true, test_gt },             { "greaterthan", true, test_gt },  { ">", true, test_gt },
    { "ge", true, test_ge },             { ">=", true, test_ge },
};

#define KIND(kind) (1u << (kind))

/* Tests that look at the kind alone. */
static const struct kind_test {
    const char *name;
    unsigned kinds;
} kind_tests[] = {
    { "undefined", KIND(JK_UNDEFINED) },
    { "none", KIND(JK_NONE) },
    { "boolean", KIND(JK_BOOL) },
    { "integer", KIND(JK_INT) },
    { "float", KIND(JK_FLOAT) },
    { "number", KIND(JK_BOOL) | KIND(JK_INT) | KIND(JK_FLOAT) },
    { "string", KIND(JK_STRING) },
    { "mapping", KIND(JK_DICT) },
    { "sequence",
        KIND(JK_UNDEFINED) | KIND(JK_STRING) | KIND(JK_LIST) | KIND(JK_TUPLE) | KIND(JK_DICT) |
            KIND(JK_RANGE) },
    { "iterable", KIND(JK_UNDEFINED) | KIND(JK_STRING) | KIND(JK_LIST) | KIND(JK_TUPLE) | KIND(JK_DICT) |
                      KIND(JK_VIEW) | KIND(JK_RANGE) | KIND(JK_ITERATOR) | KIND(JK_LOOP) },
    { "callable", KIND(JK_UNDEFINED) | KIND(JK_MACRO) | KIND(JK_BUILTIN) | KIND(JK_METHOD) | KIND(JK_LOOP) },
};

static lw_status check_count(jrun *run, lw_text name, const jargs *args, size_t wanted)
{
    if (args->count == wanted && args->named_count == 0) return LW_OK;
    return lw__jinja_fail(run, LW_BAD_INPUT, "the test '%.*s' takes %zu arguments", (int)name.count,
                          name.bytes, wanted);
}

/* defined, true and false: kinds with a word more */
static bool plain_test(lw_text name, jvalue s, bool *out)
{
    if (text_is(name, "defined")) *out = s.kind != JK_UNDEFINED;
    else if (text_is(name, "true")) *out = s.kind == JK_BOOL && s.as.truth;
    else if (text_is(name, "false")) *out = s.kind == JK_BOOL && !s.as.truth;
    else if (text_is(name, "escaped")) *out = s.kind == JK_STRING && s.is_markup;
    else return false;
    return true;
}

lw_status lw__jinja_test(jrun *run, lw_text name, jvalue subject, const jargs *args, bool *out)
{
    for (size_t i = 0; i < sizeof kind_tests / sizeof kind_tests[0]; i++) {
        if (!text_is(name, kind_tests[i].name)) continue;
        *out = (kind_tests[i].kinds & KIND(subject.kind)) != 0;
        return check_count(run, name, args, 0);
    }
    if (plain_test(name, subject, out)) return check_count(run, name, args, 0);
    for (size_t i = 0; i < sizeof function_tests / sizeof function_tests[0]; i++) {
        const struct function_test *test = &function_tests[i];
        if (!text_is(name, test->name)) continue;
        TRY(check_count(run, name, args, test->takes_argument));
        return test->run(run, subject, args->items, out);
    }
    return lw__jinja_fail(run, LW_UNSUPPORTED, "the test '%.*s' is not supported",
                          name.count < 100 ? (int)name.count : 100, name.bytes);
}
