/* JSON in and out: outside data becomes values, and values become what Python's json.dumps writes. */
#include "text/jinja/run.h"

static lw_status outside_text(jrun *run, const char *bytes, size_t count, jvalue *out)
{
    uint8_t *origins;
    TRY(lw__jinja_take(run, count, 1, &origins));
    memset(origins, LW_ORIGIN_OUTSIDE, count);
    *out = value_text((lw_text){ .bytes = bytes, .origins = origins, .count = count });
    return LW_OK;
}

static lw_status convert(jrun *run, const json_t *json, size_t depth, jvalue *out);

static lw_status convert_array(jrun *run, const json_t *json, size_t depth, jvalue *out)
{
    const size_t count = json_array_size(json);
    TRY(lw__jinja_list(run, JK_LIST, count, out));
    out->origin = LW_ORIGIN_OUTSIDE;
    for (size_t i = 0; i < count; i++) {
        jvalue item;
        TRY(convert(run, json_array_get(json, i), depth + 1, &item));
        lw__jinja_list_push(out, item);
    }
    return LW_OK;
}

/* Keys of a parsed object are unique, so they are stored without a search. */
static lw_status convert_object(jrun *run, json_t *json, size_t depth, jvalue *out)
{
    TRY(lw__jinja_dict(run, JK_DICT, json_object_size(json), out));
    out->origin = LW_ORIGIN_OUTSIDE;
    jdict *dict = out->as.dict;
    for (void *at = json_object_iter(json); at != NULL; at = json_object_iter_next(json, at)) {
        const char *key = json_object_iter_key(at);
        TRY(outside_text(run, key, strlen(key), &dict->keys[dict->count]));
        TRY(convert(run, json_object_iter_value(at), depth + 1, &dict->values[dict->count]));
        dict->count++;
    }
    return LW_OK;
}

static lw_status convert(jrun *run, const json_t *json, size_t depth, jvalue *out)
{
    if (depth > run->limits.depth)
        return lw__jinja_fail(run, LW_NO_ROOM, "the conversation nests deeper than %zu levels",
                              run->limits.depth);
    switch (json_typeof(json)) {
    case JSON_OBJECT: return convert_object(run, (json_t *)(uintptr_t)json, depth, out);
    case JSON_ARRAY: return convert_array(run, json, depth, out);
    case JSON_STRING: return outside_text(run, json_string_value(json), json_string_length(json), out);
    case JSON_INTEGER: *out = value_int(json_integer_value(json), LW_ORIGIN_OUTSIDE); break;
    case JSON_REAL: *out = value_float(json_real_value(json), LW_ORIGIN_OUTSIDE); break;
    case JSON_TRUE: *out = value_bool(true, LW_ORIGIN_OUTSIDE); break;
    case JSON_FALSE: *out = value_bool(false, LW_ORIGIN_OUTSIDE); break;
    case JSON_NULL: *out = value_none(LW_ORIGIN_OUTSIDE); break;
    }
    return LW_OK;
}

lw_status lw__jinja_from_json(jrun *run, const json_t *json,
                              jvalue *out) { return convert(run, json, 0, out); }

static lw_status put_escaped(jbuild *build, uint32_t code, uint8_t origin)
{
    static const char hex[] = "0123456789abcdef";
    const char text[6] = { '\\', 'u', hex[code >> 12 & 15], hex[code >> 8 & 15], hex[code >> 4 & 15],
        hex[code & 15] };
    return lw__jinja_put_bytes(build, text, sizeof text, origin);
}

/* One character that cannot stand as it is. */
static lw_status put_special(jbuild *build, uint32_t code, uint8_t origin)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *found = code == 0 || code > 0x7F ? NULL : strchr(from, (int)code);
    if (found != NULL) {
        const char text[2] = { '\\', to[found - from] };
        return lw__jinja_put_bytes(build, text, 2, origin);
    }
    if (code < 0x10000) return put_escaped(build, code, origin);
    TRY(put_escaped(build, 0xD800 + ((code - 0x10000) >> 10), origin));
    return put_escaped(build, 0xDC00 + ((code - 0x10000) & 0x3FF), origin);
}

static bool is_special(unsigned char c, bool is_ascii)
{
    return c < 0x20 || c == '"' || c == '\\' || (is_ascii && c >= 0x80);
}

static lw_status dump_string(jbuild *build, const jjson_style *style, lw_text text, uint8_t origin)
{
    TRY(lw__jinja_put_word(build, "\"", origin));
    size_t begin = 0, at = 0;
    while (at < text.count) {
        if (!is_special((unsigned char)text.bytes[at], style->is_ascii)) {
            at++;
            continue;
        }
        TRY(lw__jinja_put(build, text_cut(text, begin, at)));
        TRY(put_special(build, lw__jinja_decode(text.bytes + at, text.count - at),
                        text.origins == NULL ? LW_ORIGIN_TRUSTED : text.origins[at]));
        at += lw__jinja_char_bytes(text.bytes + at, text.count - at);
        begin = at;
    }
    TRY(lw__jinja_put(build, text_cut(text, begin, at)));
    return lw__jinja_put_word(build, "\"", origin);
}

static lw_status new_line(jbuild *build, const jjson_style *style, size_t level, uint8_t origin)
{
    if (!style->has_indent) return LW_OK;
    TRY(lw__jinja_put_word(build, "\n", origin));
    for (size_t i = 0; i < level; i++) {
        TRY(lw__jinja_put(build, style->indent));
        TRY(lw__jinja_step(build->run, 0));
    }
    return LW_OK;
}

static lw_status dump_separator(jbuild *build, lw_text separator, uint8_t origin)
{
    return lw__jinja_put_bytes(build, separator.bytes, separator.count, origin);
}

static lw_status dump_list(jbuild *build, const jjson_style *style, jvalue v, size_t level)
{
    const jlist *list = v.as.list;
    if (list->count == 0) return lw__jinja_put_word(build, "[]", v.origin);
    TRY(lw__jinja_put_word(build, "[", v.origin));
    for (size_t i = 0; i < list->count; i++) {
        if (i > 0) TRY(dump_separator(build, style->item_separator, v.origin));
        TRY(new_line(build, style, level + 1, v.origin));
        TRY(lw__jinja_json(build, style, list->items[i], level + 1));
    }
    TRY(new_line(build, style, level, v.origin));
    return lw__jinja_put_word(build, "]", v.origin);
}

static lw_status dump_number(jbuild *build, jvalue v)
{
    char text[40];
    if (v.kind == JK_FLOAT) lw__jinja_float_text(v.as.real, text);
    if (v.kind == JK_FLOAT && text[v.as.real < 0] == 'i')
        return lw__jinja_put_word(build, v.as.real < 0 ? "-Infinity" : "Infinity", v.origin);
    if (v.kind == JK_FLOAT) return lw__jinja_put_word(build, text[0] == 'n' ? "NaN" : text, v.origin);
    jvalue plain = v;
    lw_text digits;
    TRY(lw__jinja_text(build->run, plain, &digits));
    return lw__jinja_put(build, digits);
}

/* A key that is no string is written as its JSON text, in quotes. */
static lw_status dump_key(jbuild *build, const jjson_style *style, jvalue key, uint8_t origin)
{
    if (key.kind == JK_STRING) return dump_string(build, style, key.as.text, origin);
    if (!value_is_number(key) && key.kind != JK_NONE)
        return lw__jinja_fail(build->run, LW_BAD_INPUT, "tojson: a '%s' cannot be a key",
                              lw__jinja_kind_name(key));
    TRY(lw__jinja_put_word(build, "\"", origin));
    TRY(lw__jinja_json(build, style, key, 0));
    return lw__jinja_put_word(build, "\"", origin);
}

/* The order of the entries: as they stand, or sorted by key (insertion, since keys are few where this is
 * asked). */
static lw_status dump_order(jrun *run, const jdict *dict, bool sorted, size_t **out)
{
    size_t *order;
    TRY(lw__jinja_take(run, dict->count, sizeof *order, &order));
    for (size_t i = 0; i < dict->count; i++) {
        size_t at = i;
        for (; sorted && at > 0; at--) {
            int sign;
            TRY(lw__jinja_order(run, dict->keys[order[at - 1]], dict->keys[i], &sign));
            if (sign <= 0) break;
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
    *out = order;
    return LW_OK;
}

static lw_status dump_dict(jbuild *build, const jjson_style *style, jvalue v, size_t level)
{
    const jdict *dict = v.as.dict;
    if (dict->count == 0) return lw__jinja_put_word(build, "{}", v.origin);
    size_t *order;
    TRY(dump_order(build->run, dict, style->sort_keys, &order));
    TRY(lw__jinja_put_word(build, "{", v.origin));
    for (size_t i = 0; i < dict->count; i++) {
        if (i > 0) TRY(dump_separator(build, style->item_separator, v.origin));
        TRY(new_line(build, style, level + 1, v.origin));
        TRY(dump_key(build, style, dict->keys[order[i]], v.origin));
        TRY(dump_separator(build, style->key_separator, v.origin));
        TRY(lw__jinja_json(build, style, dict->values[order[i]], level + 1));
    }
    TRY(new_line(build, style, level, v.origin));
    return lw__jinja_put_word(build, "}", v.origin);
}

static lw_status dump_value(jbuild *build, const jjson_style *style, jvalue v, size_t level)
{
    switch (v.kind) {
    case JK_NONE: return lw__jinja_put_word(build, "null", v.origin);
    case JK_BOOL: return lw__jinja_put_word(build, v.as.truth ? "true" : "false", v.origin);
    case JK_INT:
    case JK_FLOAT: return dump_number(build, v);
    case JK_STRING: return dump_string(build, style, v.as.text, v.origin);
    case JK_LIST:
    case JK_TUPLE: return dump_list(build, style, v, level);
    case JK_DICT: return dump_dict(build, style, v, level);
    case JK_UNDEFINED:
    case JK_VIEW:
    case JK_RANGE:
    case JK_ITERATOR:
    case JK_NAMESPACE:
    case JK_MACRO:
    case JK_LOOP:
    case JK_BUILTIN:
    case JK_METHOD: break;
    }
    return lw__jinja_fail(build->run, LW_BAD_INPUT, "tojson: a '%s' is not JSON serializable",
                          lw__jinja_kind_name(v));
}

lw_status lw__jinja_json(jbuild *build, const jjson_style *style, jvalue v, size_t level)
{
    TRY(lw__jinja_step(build->run, 0));
    TRY(lw__jinja_enter(build->run));
    const lw_status status = dump_value(build, style, v, level);
    run_leave(build->run);
    return status;
}
