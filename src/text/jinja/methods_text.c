/* Methods of strings. Results are cut from the owner where they can be, so that origins follow. */
#include "text/jinja/filters.h"
#include "text/jinja/methods.h"

#include <utf8proc.h>

const char *const lw__jinja_text_names[] = {
    "capitalize", "casefold", "center", "count", "encode", "endswith", "expandtabs", "find", "format",
        "format_map",
    "index", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric",
    "isprintable", "isspace", "istitle", "isupper", "join", "ljust", "lower", "lstrip", "maketrans",
        "partition",
    "removeprefix", "removesuffix", "replace", "rfind", "rindex", "rjust", "rpartition", "rsplit", "rstrip",
        "split",
    "splitlines", "startswith", "strip", "swapcase", "title", "translate", "upper", "zfill", NULL,
};

typedef lw_status text_method(jrun *run, lw_text text, const jargs *args, jvalue *out);

static lw_status give_text(lw_text text, jvalue *out)
{
    *out = value_text(text);
    return LW_OK;
}

static lw_status strip_sides(jrun *run, lw_text text, const jargs *args, const bool sides[static 2],
                             jvalue *out)
{
    static const char *const params[] = { "chars", NULL };
    const jvalue *chars;
    TRY(lw__jinja_bind(run, "strip", args, params, &chars));
    TRY(lw__jinja_strip(run, text, chars, sides, &text));
    return give_text(text, out);
}

static lw_status method_strip(jrun *run, lw_text text, const jargs *args, jvalue *out)
{
    return strip_sides(run, text, args, (const bool[2]){ true, true }, out);
}

static lw_status method_lstrip(jrun *run, lw_text text, const jargs *args, jvalue *out)
{
    return strip_sides(run, text, args, (const bool[2]){ true, false }, out);
}

static lw_status method_rstrip(jrun *run, lw_text text, const jargs *args, jvalue *out)
{
    return strip_sides(run, text, args, (const bool[2]){ false, true }, out);
}

static lw_status with_case(jrun *run, lw_text text, const jargs *args, jcase how, jvalue *out)
{
    TRY(lw__jinja_no_args(run, "a case method", args));
    TRY(lw__jinja_case(run, text, how, &text));
    return give_text(text, out);
}

static lw_status method_upper(jrun *run, lw_text text, const jargs *args, jvalue *out)
{
    return with_case(run, text, args, JCASE_UPPER, out);
}

static lw_status method_lower(jrun *run, lw_text text, const jargs *args, jvalue *out)
{
    return with_case(run, text, args, JCASE_LOWER, out);
}

static lw_status method_title(jrun *run, lw_text text, const jargs *args, jvalue *out)
{
    return with_case(run, text, args, JCASE_TITLE, out);
}

static lw_status method_capitalize(jrun *run, lw_text text, const jargs *args, jvalue *out)
{
    return with_case(run, text, args, JCASE_CAPITAL, out);
}

/* The first run of white space at or after from, or none: *begin == *end. */
static void find_space(lw_text text, size_t from, size_t *begin, size_t *end)
{
    size_t at = from, bytes;
    while (at < text.count && lw__jinja_space_bytes(text.bytes + at, text.count - at) == 0)
        at += lw__jinja_char_bytes(text.bytes + at, text.count - at);
    *begin = at;
    while (at < text.count && (bytes = lw__jinja_space_bytes(text.bytes + at, text.count - at)) > 0)
        at += bytes;
    *end = at;
}

static lw_status split_space(jrun *run, lw_text text, int64_t times, jvalue *out)
{
    TRY(lw__jinja_list(run, JK_LIST, text.count / 2 + 1, out));
    text = text_cut(text, text.count - lw__jinja_trim_left(text), text.count);
    size_t from = 0;
    while (from < text.count) {
        size_t begin, end;
        find_space(text, from, &begin, &end);
        if (times == 0 || end == begin) break;
        times--;
        lw__jinja_list_push(out, value_text(text_cut(text, from, begin)));
        from = end;
    }
    if (from >= text.count) return LW_OK;
    lw__jinja_list_push(out, value_text(text_cut(text, from, text.count)));
    return LW_OK;
}

static size_t count_parts(lw_text text, lw_text separator)
{
    size_t count = 0, at = 0;
    while ((at = lw__jinja_find(text, separator, at)) != SIZE_MAX) {
        at += separator.count;
        count++;
    }
    return count;
}

static lw_status split_at(jrun *run, lw_text text, lw_text separator, int64_t times, jvalue *out)
{
    if (separator.count == 0) return lw__jinja_fail(run, LW_BAD_INPUT, "split: an empty separator");
    TRY(lw__jinja_list(run, JK_LIST, count_parts(text, separator) + 1, out));
    size_t from = 0;
    for (; times != 0; times--) {
        const size_t at = lw__jinja_find(text, separator, from);
        if (at == SIZE_MAX) break;
        lw__jinja_list_push(out, value_text(text_cut(text, from, at)));
        from = at + separator.count;
    }
    lw__jinja_list_push(out, value_text(text_cut(text, from, text.count)));
    return LW_OK;
}

/* The last place of part that ends at or before end, or SIZE_MAX. */
static size_t find_last(lw_text text, lw_text part, size_t end)
{
    for (size_t at = end < part.count ? SIZE_MAX : end - part.count; at != SIZE_MAX; at--)
        if (part.count == 0 || memcmp(text.bytes + at, part.bytes, part.count) == 0) return at;
    return SIZE_MAX;
}

static lw_status rsplit_at(jrun *run, lw_text text, lw_text separator, int64_t times, jvalue *out)
{
    size_t begin = text.count;
    size_t parts = 1;
    if (separator.count == 0) return lw__jinja_fail(run, LW_BAD_INPUT, "rsplit: an empty separator");
    TRY(lw__jinja_step(run, text.count * separator.count));
    for (int64_t left = times; left != 0; left--) {
        const size_t at = find_last(text, separator, begin);
        if (at == SIZE_MAX) break;
        begin = at;
        parts++;
    }
    TRY(lw__jinja_list(run, JK_LIST, parts, out));
    jvalue *items = out->as.list->items;
    size_t end = text.count;
    for (size_t i = parts - 1; i > 0; i--) {
        const size_t at = find_last(text, separator, end);
        items[i] = value_text(text_cut(text, at + separator.count, end));
        end = at;
    }
    items[0] = value_text(text_cut(text, 0, end));
    out->as.list->count = parts;
    out->origin = text.origins == NULL ? LW_ORIGIN_TRUSTED : LW_ORIGIN_OUTSIDE;
    return LW_OK;
}

static lw_status split_either(jrun *run, lw_text text, const jargs *args, bool from_right, jvalue *out)
{
    static const char *const params[] = { "sep", "maxsplit", NULL };
    const jvalue *given[2];
    int64_t times = -1;
    lw_text separator;
    TRY(lw__jinja_bind(run, "split", args, params, given));
    TRY(lw__jinja_step(run, text.count));
    if (given[1] != NULL) TRY(lw__jinja_need_int(run, "split", given[1], &times));
    const bool by_space = given[0] == NULL || given[0]->kind == JK_NONE;
    if (by_space && from_right && times >= 0)
        return lw__jinja_fail(run, LW_UNSUPPORTED, "rsplit at white space with a limit is not supported");
    if (by_space) return split_space(run, text, times, out);
    TRY(lw__jinja_need_text(run, "split", given[0], &separator));
    return from_right ? rsplit_at(run, text, separator, times, out)
        : split_at(run, text, separator, times, out);
}

static lw_status method_split(jrun *run, lw_text text, const jargs *args, jvalue *out)
{
    return split_either(run, text, args, false, out);
}

static lw_status method_rsplit(jrun *run, lw_text text, const jargs *args, jvalue *out)
{
    return split_either(run, text, args, true, out);
}

static lw_status method_splitlines(jrun *run, lw_text text, const jargs *args, jvalue *out)
{
    static const char *const params[] = { "keepends", NULL };
    const jvalue *keep;
    TRY(lw__jinja_bind(run, "splitlines", args, params, &keep));
    if (keep != NULL && lw__jinja_truth(*keep))
        return lw__jinja_fail(run, LW_UNSUPPORTED, "splitlines with keepends is not supported");
    return lw__jinja_split_lines(run, text, out);
}

static bool has_affix(lw_text text, lw_text affix, bool at_end)
{
    if (affix.count > text.count) return false;
    const size_t begin = at_end ? text.count - affix.count : 0;
    return text_equal(text_cut(text, begin, begin + affix.count), affix);
}

static lw_status one_affix(jrun *run, lw_text text, jvalue affix, bool at_end, bool *out)
{
    lw_text part;
    TRY(lw__jinja_need_text(run, at_end ? "endswith" : "startswith", &affix, &part));
    *out = has_affix(text, part, at_end);
    return lw__jinja_step(run, part.count);
}

static lw_status match_affix(jrun *run, lw_text text, const jargs *args, bool at_end, jvalue *out)
{
    bool is_match = false;
    if (args->count > 1) return lw__jinja_fail(run, LW_UNSUPPORTED, "startswith and endswith with a place");
    if (args->count != 1 || args->named_count > 0)
        return lw__jinja_fail(run, LW_BAD_INPUT, "startswith and endswith take one string");
    const jvalue affix = args->items[0];
    if (affix.kind == JK_TUPLE) {
        for (size_t i = 0; i < affix.as.list->count && !is_match; i++)
            TRY(one_affix(run, text, affix.as.list->items[i], at_end, &is_match));
    } else {
        TRY(one_affix(run, text, affix, at_end, &is_match));
    }
    *out = value_bool(is_match, text.origins == NULL ? affix.origin : LW_ORIGIN_OUTSIDE);
    return LW_OK;
}

static lw_status method_startswith(jrun *run, lw_text text, const jargs *args, jvalue *out)
{
    return match_affix(run, text, args, false, out);
}

static lw_status method_endswith(jrun *run, lw_text text, const jargs *args, jvalue *out)
{
    return match_affix(run, text, args, true, out);
}

static lw_status only_text(jrun *run, const char *what, const jargs *args, lw_text *part)
{
    if (args->count > 1) return lw__jinja_fail(run, LW_UNSUPPORTED, "%s with more than one argument", what);
    if (args->count != 1 || args->named_count > 0)
        return lw__jinja_fail(run, LW_BAD_INPUT, "%s takes one string", what);
    return lw__jinja_need_text(run, what, &args->items[0], part);
}

static lw_status method_removeprefix(jrun *run, lw_text text, const jargs *args, jvalue *out)
{
    lw_text part;
    TRY(only_text(run, "removeprefix", args, &part));
    return give_text(text_cut(text, has_affix(text, part, false) ? part.count : 0, text.count), out);
}

static lw_status method_removesuffix(jrun *run, lw_text text, const jargs *args, jvalue *out)
{
    lw_text part;
    TRY(only_text(run, "removesuffix", args, &part));
    return give_text(text_cut(text, 0, text.count - (has_affix(text, part, true) ? part.count : 0)), out);
}

static lw_status give_place(jrun *run, lw_text text, size_t at, bool must_be, jvalue *out)
{
    const uint8_t origin = text.origins == NULL ? LW_ORIGIN_TRUSTED : LW_ORIGIN_OUTSIDE;
    TRY(lw__jinja_step(run, text.count));
    if (at == SIZE_MAX && must_be) return lw__jinja_fail(run, LW_BAD_INPUT, "index: substring not found");
    *out = value_int(at == SIZE_MAX ? -1 : (int64_t)lw__jinja_length(text_cut(text, 0, at)), origin);
    return LW_OK;
}

static lw_status method_find(jrun *run, lw_text text, const jargs *args, jvalue *out)
{
    lw_text part;
    TRY(only_text(run, "find", args, &part));
    return give_place(run, text, lw__jinja_find(text, part, 0), false, out);
}

static lw_status method_index(jrun *run, lw_text text, const jargs *args, jvalue *out)
{
    lw_text part;
    TRY(only_text(run, "index", args, &part));
    return give_place(run, text, lw__jinja_find(text, part, 0), true, out);
}

static lw_status method_rfind(jrun *run, lw_text text, const jargs *args, jvalue *out)
{
    lw_text part;
    TRY(only_text(run, "rfind", args, &part));
    TRY(lw__jinja_step(run, text.count * part.count));
    return give_place(run, text, find_last(text, part, text.count), false, out);
}

static lw_status method_count(jrun *run, lw_text text, const jargs *args, jvalue *out)
{
    lw_text part;
    TRY(only_text(run, "count", args, &part));
    TRY(lw__jinja_step(run, text.count));
    const size_t count = part.count == 0 ? lw__jinja_length(text) + 1 : count_parts(text, part);
    *out = value_int((int64_t)count, text.origins == NULL ? LW_ORIGIN_TRUSTED : LW_ORIGIN_OUTSIDE);
    return LW_OK;
}

static lw_status method_replace(jrun *run, lw_text text, const jargs *args, jvalue *out)
{
    lw_text pair[2];
    int64_t times = -1;
    if (args->named_count > 0 || args->count < 2 || args->count > 3)
        return lw__jinja_fail(run, LW_BAD_INPUT, "replace takes two strings and maybe a count");
    for (size_t i = 0; i < 2; i++) TRY(lw__jinja_need_text(run, "replace", &args->items[i], &pair[i]));
    if (args->count == 3) TRY(lw__jinja_need_int(run, "replace", &args->items[2], &times));
    TRY(lw__jinja_replace(run, text, pair, times, &text));
    return give_text(text, out);
}

static lw_status method_join(jrun *run, lw_text text, const jargs *args, jvalue *out)
{
    jvalue *items;
    size_t count;
    jbuild build = { .run = run };
    if (args->count != 1 || args->named_count > 0)
        return lw__jinja_fail(run, LW_BAD_INPUT, "join takes one iterable");
    TRY(lw__jinja_items(run, args->items[0], &items, &count));
    for (size_t i = 0; i < count; i++) {
        lw_text part;
        TRY(lw__jinja_step(run, 0));
        TRY(lw__jinja_need_text(run, "join", &items[i], &part));
        if (i > 0) TRY(lw__jinja_put(&build, text));
        TRY(lw__jinja_put(&build, part));
    }
    return give_text(lw__jinja_built(&build), out);
}

typedef bool is_member(uint32_t code);

static bool is_alpha(uint32_t code)
{
    const utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)code);
    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT ||
           c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_LO;
}

static bool is_decimal(uint32_t code)
{
    return utf8proc_category((utf8proc_int32_t)code) == UTF8PROC_CATEGORY_ND;
}

static bool is_blank(uint32_t code)
{
    char bytes[LW_JINJA_CHAR_BYTES_MAX];
    return lw__jinja_space_bytes(bytes, lw__jinja_encode(code, bytes)) > 0;
}

static bool is_ascii(uint32_t code) { return code < 0x80; }

static lw_status all_members(jrun *run, lw_text text, const jargs *args, is_member *is_in, jvalue *out)
{
    TRY(lw__jinja_no_args(run, "a string test", args));
    TRY(lw__jinja_step(run, text.count));
    bool all = text.count > 0 || is_in == is_ascii;
    for (size_t at = 0; at < text.count && all; at += lw__jinja_char_bytes(text.bytes + at, text.count - at))
        all = is_in(lw__jinja_decode(text.bytes + at, text.count - at));
    *out = value_bool(all, text.origins == NULL ? LW_ORIGIN_TRUSTED : LW_ORIGIN_OUTSIDE);
    return LW_OK;
}

static lw_status method_isalpha(jrun *run, lw_text text, const jargs *args, jvalue *out)
{
    return all_members(run, text, args, is_alpha, out);
}

static lw_status method_isdecimal(jrun *run, lw_text text, const jargs *args, jvalue *out)
{
    return all_members(run, text, args, is_decimal, out);
}

/* isdigit and isnumeric know more characters than the decimal ones, all outside ASCII. */
static lw_status method_isdigit(jrun *run, lw_text text, const jargs *args, jvalue *out)
{
    for (size_t i = 0; i < text.count; i++)
        if ((unsigned char)text.bytes[i] >= 0x80)
            return lw__jinja_fail(run, LW_UNSUPPORTED,
                                  "isdigit of characters outside ASCII is not supported");
    return all_members(run, text, args, is_decimal, out);
}

static lw_status method_isspace(jrun *run, lw_text text, const jargs *args, jvalue *out)
{
    return all_members(run, text, args, is_blank, out);
}

static lw_status method_isascii(jrun *run, lw_text text, const jargs *args, jvalue *out)
{
    return all_members(run, text, args, is_ascii, out);
}

static lw_status by_test(jrun *run, lw_text text, const jargs *args, const char *test, jvalue *out)
{
    bool truth;
    TRY(lw__jinja_test(run, text_literal(test), value_text(text), args, &truth));
    *out = value_bool(truth, text.origins == NULL ? LW_ORIGIN_TRUSTED : LW_ORIGIN_OUTSIDE);
    return LW_OK;
}

static lw_status method_isupper(jrun *run, lw_text text, const jargs *args, jvalue *out)
{
    return by_test(run, text, args, "upper", out);
}

static lw_status method_islower(jrun *run, lw_text text, const jargs *args, jvalue *out)
{
    return by_test(run, text, args, "lower", out);
}

/* keeps_markup: on safe text Jinja's type gives safe text again and escapes no argument. */
static const struct text_method_row {
    const char *name;
    text_method *call;
    bool keeps_markup;
} text_methods[] = {
    { "strip", method_strip, true },           { "lstrip", method_lstrip, true },
    { "rstrip", method_rstrip, true },         { "upper", method_upper, true },
    { "lower", method_lower, true },           { "title", method_title, true },
    { "capitalize", method_capitalize, true }, { "split", method_split, false },
    { "rsplit", method_rsplit, false },        { "splitlines", method_splitlines, false },
    { "startswith", method_startswith, true }, { "endswith", method_endswith, true },
    { "removeprefix", method_removeprefix, true }, { "removesuffix", method_removesuffix, true },
    { "find", method_find, true },             { "index", method_index, true },
    { "rfind", method_rfind, true },           { "count", method_count, true },
    { "replace", method_replace, false },      { "join", method_join, false },
    { "isalpha", method_isalpha, true },       { "isdecimal", method_isdecimal, true },
    { "isdigit", method_isdigit, true },       { "isnumeric", method_isdigit, true },
    { "isspace", method_isspace, true },       { "isascii", method_isascii, true },
    { "isupper", method_isupper, true },       { "islower", method_islower, true },
};

lw_status lw__jinja_text_method(jrun *run, jvalue owner, lw_text name, const jargs *args, jvalue *out)
{
    for (size_t i = 0; i < sizeof text_methods / sizeof text_methods[0]; i++) {
        const struct text_method_row *row = &text_methods[i];
        if (!text_is(name, row->name)) continue;
        if (owner.is_markup && !row->keeps_markup)
            return lw__jinja_fail(run, LW_UNSUPPORTED, "the method '%s' of safe text is not supported",
                                  row->name);
        TRY(row->call(run, owner.as.text, args, out));
        if (out->kind == JK_STRING) out->is_markup = owner.is_markup;
        return LW_OK;
    }
    return lw__jinja_fail(run, LW_UNSUPPORTED, "the string method '%.*s' is not supported", (int)name.count,
                          name.bytes);
}
