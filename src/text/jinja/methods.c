/* Methods of dicts and lists, and which attributes Python's types have; string methods are in
 * methods_text.c. */
#include "text/jinja/methods.h"

/* What would change a value is refused by the sandbox: reading the name gives an undefined value. */
static const char *const dict_safe[] = { "get", "items", "keys", "values", "copy", "fromkeys", NULL };
static const char *const dict_unsafe[] = { "clear", "pop", "popitem", "setdefault", "update", NULL };
static const char *const list_safe[] = { "count", "index", "copy", NULL };
static const char *const list_unsafe[] = { "append", "clear", "pop", "reverse", "insert", "sort", "extend",
    "remove",
                                           NULL };
static const char *const tuple_safe[] = { "count", "index", NULL };
static const char *const int_safe[] = { "real", "imag", "numerator", "denominator", "conjugate", "bit_length",
                                        "bit_count", "to_bytes", "from_bytes", "as_integer_ratio", NULL };
static const char *const float_safe[] = { "real", "imag", "conjugate", "as_integer_ratio", "fromhex", "hex",
                                          "is_integer", NULL };
static const char *const range_safe[] = { "start", "stop", "step", "count", "index", NULL };
static const char *const view_safe[] = { "mapping", "isdisjoint", NULL };
static const char *const macro_safe[] = { "name", "arguments", "catch_kwargs", "catch_varargs", "caller",
    NULL };
static const char *const no_names[] = { NULL };

static bool is_listed(const char *const *names, lw_text name)
{
    while (*names != NULL && !text_is(name, *names)) names++;
    return *names != NULL;
}

static const char *const *safe_names(jkind kind)
{
    switch ((int)kind) {
    case JK_STRING: return lw__jinja_text_names;
    case JK_DICT: return dict_safe;
    case JK_LIST: return list_safe;
    case JK_TUPLE: return tuple_safe;
    case JK_BOOL:
    case JK_INT: return int_safe;
    case JK_FLOAT: return float_safe;
    case JK_RANGE: return range_safe;
    case JK_VIEW: return view_safe;
    case JK_MACRO: return macro_safe;
    default: return no_names;
    }
}

bool lw__jinja_has_method(jkind kind, lw_text name, bool *is_safe)
{
    *is_safe = is_listed(safe_names(kind), name);
    if (*is_safe) return true;
    if (kind == JK_DICT && is_listed(dict_unsafe, name)) return true;
    if (kind == JK_LIST && is_listed(list_unsafe, name)) return true;
    return name.count > 4 && memcmp(name.bytes, "__", 2) == 0 &&
        memcmp(name.bytes + name.count - 2, "__", 2) == 0;
}

static lw_status make_view(jrun *run, jvalue owner, const char *label, jvalue *out)
{
    const jdict *dict = owner.as.dict;
    TRY(lw__jinja_list(run, JK_VIEW, dict->count, out));
    out->as.list->label = label;
    for (size_t i = 0; i < dict->count; i++) {
        jvalue item = label[5] == 'v' ? dict->values[i] : dict->keys[i];
        if (label[5] == 'i') {
            TRY(lw__jinja_list(run, JK_TUPLE, 2, &item));
            lw__jinja_list_push(&item, dict->keys[i]);
            lw__jinja_list_push(&item, dict->values[i]);
        }
        lw__jinja_list_push(out, item);
    }
    out->origin |= owner.origin;
    return LW_OK;
}

static lw_status dict_get(jrun *run, jvalue owner, const jargs *args, jvalue *out)
{
    if (args->named_count > 0 || args->count < 1 || args->count > 2)
        return lw__jinja_fail(run, LW_BAD_INPUT, "get takes a key and maybe a default");
    const jvalue *found;
    TRY(lw__jinja_dict_get(run, owner, args->items[0], &found));
    *out = found != NULL ? *found : args->count == 2 ? args->items[1] : value_none(LW_ORIGIN_TRUSTED);
    return LW_OK;
}

static lw_status dict_method(jrun *run, jvalue owner, lw_text name, const jargs *args, jvalue *out)
{
    if (text_is(name, "get")) return dict_get(run, owner, args, out);
    if (text_is(name, "fromkeys"))
        return lw__jinja_fail(run, LW_UNSUPPORTED, "dict.fromkeys is not supported");
    if (args->count + args->named_count > 0)
        return lw__jinja_fail(run, LW_BAD_INPUT, "dict.%.*s takes no arguments", (int)name.count, name.bytes);
    *out = owner;
    if (text_is(name, "items")) return make_view(run, owner, "dict_items", out);
    if (text_is(name, "keys")) return make_view(run, owner, "dict_keys", out);
    if (text_is(name, "values")) return make_view(run, owner, "dict_values", out);
    return LW_OK; /* copy: values never change */
}

static lw_status list_method(jrun *run, jvalue owner, lw_text name, const jargs *args, jvalue *out)
{
    const bool is_copy = text_is(name, "copy");
    *out = owner;
    if (args->named_count > 0 || args->count != !is_copy)
        return lw__jinja_fail(run, args->count > 1 ? LW_UNSUPPORTED : LW_BAD_INPUT, "%.*s with %zu arguments",
                              (int)name.count, name.bytes, args->count);
    if (is_copy) return LW_OK;
    int64_t count = 0;
    for (size_t i = 0; i < owner.as.list->count; i++) {
        bool same;
        TRY(lw__jinja_equal(run, owner.as.list->items[i], args->items[0], &same));
        count += same;
        if (!same || !text_is(name, "index")) continue;
        *out = value_int((int64_t)i, owner.origin);
        return LW_OK;
    }
    *out = value_int(count, owner.origin);
    if (text_is(name, "count")) return LW_OK;
    return lw__jinja_fail(run, LW_BAD_INPUT, "index: the value is not in the list");
}

lw_status lw__jinja_method(jrun *run, jvalue owner, lw_text name, const jargs *args, jvalue *out)
{
    if (owner.kind == JK_STRING) return lw__jinja_text_method(run, owner, name, args, out);
    if (owner.kind == JK_DICT) return dict_method(run, owner, name, args, out);
    if (owner.kind == JK_LIST || owner.kind == JK_TUPLE) return list_method(run, owner, name, args, out);
    return lw__jinja_fail(run, LW_UNSUPPORTED, "the method '%.*s' of a '%s' is not supported",
                          (int)name.count,
                          name.bytes, lw__jinja_kind_name(owner));
}
