/* Python's str() and repr() of values, byte for byte. */
#include "text/jinja/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

enum { REPR_EXPONENT_MIN = -4, REPR_EXPONENT_MAX = 16, DOUBLE_DIGITS_MAX = 17 };

/* The fewest digits that read back as the same double, laid out as Python's repr does. */
void lw__jinja_float_text(double real, char to[static 40])
{
    if (isnan(real) || isinf(real)) {
        snprintf(to, 40, "%s", isnan(real) ? "nan" : real < 0 ? "-inf" : "inf");
        return;
    }
    char text[40];
    int digits = 1;
    for (; digits <= DOUBLE_DIGITS_MAX; digits++) {
        snprintf(text, sizeof text, "%.*e", digits - 1, real);
        if (strtod(text, NULL) == real) break;
    }
    const int exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10);
    if (exponent < REPR_EXPONENT_MIN || exponent >= REPR_EXPONENT_MAX) {
        snprintf(to, 40, "%s", text);
        return;
    }
    const int decimals = digits - 1 - exponent;
    snprintf(to, 40, "%.*f", decimals > 1 ? decimals : 1, real);
}

static bool is_printable(uint32_t code)
{
    if (code < 0x7F) return code >= 0x20;
    switch ((int)utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
    }
}

static lw_status repr_char(jbuild *build, lw_text one, char quote)
{
    const uint8_t origin = one.origins == NULL ? LW_ORIGIN_TRUSTED : one.origins[0];
    const uint32_t code = lw__jinja_decode(one.bytes, one.count);
    char text[12];
    if (code == (unsigned char)quote || code == '\\') snprintf(text, sizeof text, "\\%c", (char)code);
    else if (code == '\n' || code == '\r' || code == '\t')
        snprintf(text, sizeof text, "\\%c", code == '\n' ? 'n' : code == '\r' ? 'r' : 't');
    else if (is_printable(code)) return lw__jinja_put(build, one);
    else if (code < 0x100) snprintf(text, sizeof text, "\\x%02x", code);
    else if (code < 0x10000) snprintf(text, sizeof text, "\\u%04x", code);
    else snprintf(text, sizeof text, "\\U%08x", code);
    return lw__jinja_put_word(build, text, origin);
}

static lw_status repr_string(jbuild *build, jvalue v)
{
    const lw_text text = v.as.text;
    const bool has_single = text.count > 0 && memchr(text.bytes, '\'', text.count) != NULL;
    const bool has_double = text.count > 0 && memchr(text.bytes, '"', text.count) != NULL;
    const char quote = has_single && !has_double ? '"' : '\'';
    if (v.is_markup) TRY(lw__jinja_put_word(build, "Markup(", v.origin));
    TRY(lw__jinja_put_bytes(build, &quote, 1, v.origin));
    for (size_t at = 0; at < text.count;) {
        const size_t end = at + lw__jinja_char_bytes(text.bytes + at, text.count - at);
        TRY(repr_char(build, text_cut(text, at, end), quote));
        at = end;
    }
    TRY(lw__jinja_put_bytes(build, &quote, 1, v.origin));
    return v.is_markup ? lw__jinja_put_word(build, ")", v.origin) : LW_OK;
}

static lw_status repr_items(jbuild *build, jvalue v, const char *open, const char *close)
{
    TRY(lw__jinja_put_word(build, open, v.origin));
    for (size_t i = 0; i < v.as.list->count; i++) {
        if (i > 0) TRY(lw__jinja_put_word(build, ", ", v.origin));
        TRY(lw__jinja_repr(build, v.as.list->items[i]));
    }
    return lw__jinja_put_word(build, close, v.origin);
}

static lw_status repr_dict(jbuild *build, jvalue v)
{
    TRY(lw__jinja_put_word(build, "{", v.origin));
    for (size_t i = 0; i < v.as.dict->count; i++) {
        if (i > 0) TRY(lw__jinja_put_word(build, ", ", v.origin));
        TRY(lw__jinja_repr(build, v.as.dict->keys[i]));
        TRY(lw__jinja_put_word(build, ": ", v.origin));
        TRY(lw__jinja_repr(build, v.as.dict->values[i]));
    }
    return lw__jinja_put_word(build, "}", v.origin);
}

static lw_status repr_range(jbuild *build, jvalue v)
{
    const jlist *list = v.as.list;
    char text[80];
    if (list->step == 1)
        snprintf(text, sizeof text, "range(%lld, %lld)", (long long)list->start, (long long)list->stop);
    else snprintf(text, sizeof text, "range(%lld, %lld, %lld)", (long long)list->start, (long long)list->stop,
                  (long long)list->step);
    return lw__jinja_put_word(build, text, v.origin);
}

static lw_status repr_number(jbuild *build, jvalue v)
{
    char text[40];
    if (v.kind == JK_FLOAT) lw__jinja_float_text(v.as.real, text);
    else snprintf(text, sizeof text, "%lld", (long long)v.as.integer);
    return lw__jinja_put_word(build, text, v.origin);
}

static lw_status repr_namespace(jbuild *build, jvalue v)
{
    v.origin = LW_ORIGIN_OUTSIDE;
    TRY(lw__jinja_put_word(build, "<Namespace ", v.origin));
    TRY(repr_dict(build, v));
    return lw__jinja_put_word(build, ">", v.origin);
}

static lw_status repr_view(jbuild *build, jvalue v)
{
    TRY(lw__jinja_put_word(build, v.as.list->label, v.origin));
    return repr_items(build, v, "([", "])");
}

static lw_status repr_value(jbuild *build, jvalue v)
{
    switch (v.kind) {
    case JK_UNDEFINED: return lw__jinja_put_word(build, "Undefined", v.origin);
    case JK_NONE: return lw__jinja_put_word(build, "None", v.origin);
    case JK_BOOL: return lw__jinja_put_word(build, v.as.truth ? "True" : "False", v.origin);
    case JK_INT:
    case JK_FLOAT: return repr_number(build, v);
    case JK_STRING: return repr_string(build, v);
    case JK_LIST: return repr_items(build, v, "[", "]");
    case JK_TUPLE: return repr_items(build, v, "(", v.as.list->count == 1 ? ",)" : ")");
    case JK_DICT: return repr_dict(build, v);
    case JK_VIEW: return repr_view(build, v);
    case JK_RANGE: return repr_range(build, v);
    case JK_NAMESPACE: return repr_namespace(build, v);
    case JK_ITERATOR:
    case JK_MACRO:
    case JK_LOOP:
    case JK_BUILTIN:
    case JK_METHOD: break;
    }
    return lw__jinja_fail(build->run, LW_UNSUPPORTED, "printing a '%s' is not supported",
                          lw__jinja_kind_name(v));
}

lw_status lw__jinja_repr(jbuild *build, jvalue v)
{
    TRY(lw__jinja_step(build->run, 0));
    TRY(lw__jinja_enter(build->run));
    const lw_status status = repr_value(build, v);
    run_leave(build->run);
    return status;
}

lw_status lw__jinja_text(jrun *run, jvalue v, lw_text *out)
{
    *out = (lw_text){ .bytes = "" };
    if (v.kind == JK_UNDEFINED) return LW_OK;
    if (v.kind == JK_STRING) {
        *out = v.as.text;
        return LW_OK;
    }
    jbuild build = { .run = run };
    TRY(lw__jinja_repr(&build, v));
    *out = lw__jinja_built(&build);
    return LW_OK;
}
