/* Values: making, truth, equality, order, membership, iteration; see value.h. */
#include "text/jinja/run.h"

#include "base/size.h"

#include <math.h>

const char *lw__jinja_kind_name(jvalue v)
{
    static const char *const names[] = {
        [JK_UNDEFINED] = "Undefined object", [JK_NONE] = "None", [JK_BOOL] = "bool object",
        [JK_INT] = "int object", [JK_FLOAT] = "float object", [JK_STRING] = "str object",
        [JK_LIST] = "list object", [JK_TUPLE] = "tuple object", [JK_DICT] = "dict object",
        [JK_VIEW] = "dict view object", [JK_RANGE] = "range object", [JK_ITERATOR] = "generator object",
        [JK_NAMESPACE] = "jinja2.utils.Namespace object", [JK_MACRO] = "jinja2.runtime.Macro object",
        [JK_LOOP] = "jinja2.runtime.LoopContext object", [JK_BUILTIN] = "function object",
        [JK_METHOD] = "builtin_function_or_method object",
    };
    return names[v.kind];
}

lw_status lw__jinja_undefined(jrun *run, const char *owner, lw_text name, jvalue *out)
{
    jundefined *undefined;
    TRY(lw__jinja_take(run, 1, sizeof *undefined, &undefined));
    *undefined = (jundefined){ .owner = owner, .name = name };
    *out = (jvalue){ .kind = JK_UNDEFINED, .as.undefined = undefined };
    return LW_OK;
}

lw_status lw__jinja_undefined_hint(jrun *run, const char *hint, jvalue *out)
{
    jundefined *undefined;
    TRY(lw__jinja_take(run, 1, sizeof *undefined, &undefined));
    *undefined = (jundefined){ .hint = hint };
    *out = (jvalue){ .kind = JK_UNDEFINED, .as.undefined = undefined };
    return LW_OK;
}

lw_status lw__jinja_fail_undefined(const jrun *run, jvalue v)
{
    const jundefined *u = v.as.undefined;
    if (u == NULL) return lw__jinja_fail(run, LW_BAD_INPUT, "a value is undefined");
    if (u->hint != NULL) return lw__jinja_fail(run, LW_BAD_INPUT, "%s", u->hint);
    const int count = (int)size_min(u->name.count, 200);
    if (u->is_unsafe)
        return lw__jinja_fail(run, LW_BAD_INPUT, "access to attribute '%.*s' of '%s' is unsafe", count,
                              u->name.bytes,
                              u->owner);
    if (u->owner == NULL)
        return lw__jinja_fail(run, LW_BAD_INPUT, "'%.*s' is undefined", count, u->name.bytes);
    return lw__jinja_fail(run, LW_BAD_INPUT, "'%s' has no attribute or element '%.*s'", u->owner, count,
                          u->name.bytes);
}

bool lw__jinja_truth(jvalue v)
{
    switch (v.kind) {
    case JK_UNDEFINED:
    case JK_NONE: return false;
    case JK_BOOL: return v.as.truth;
    case JK_INT: return v.as.integer != 0;
    case JK_FLOAT: return v.as.real != 0.0;
    case JK_STRING: return v.as.text.count > 0;
    case JK_LIST:
    case JK_TUPLE:
    case JK_VIEW:
    case JK_RANGE: return v.as.list->count > 0;
    case JK_DICT: return v.as.dict->count > 0;
    case JK_ITERATOR:
    case JK_NAMESPACE:
    case JK_MACRO:
    case JK_LOOP:
    case JK_BUILTIN:
    case JK_METHOD: return true;
    }
    return true;
}

/* -1, 0, 1, or 2 when one is NaN. A long double holds each 64-bit integer exactly. */
static int order_numbers(jvalue a, jvalue b)
{
    const long double x = a.kind == JK_FLOAT ? (long double)a.as.real : (long double)value_integer(a);
    const long double y = b.kind == JK_FLOAT ? (long double)b.as.real : (long double)value_integer(b);
    return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
}

static lw_status equal_lists(jrun *run, const jlist *a, const jlist *b, bool *out)
{
    *out = a->count == b->count;
    for (size_t i = 0; i < a->count && *out; i++) TRY(lw__jinja_equal(run, a->items[i], b->items[i], out));
    return LW_OK;
}

static lw_status equal_dicts(jrun *run, jvalue a, jvalue b, bool *out)
{
    *out = a.as.dict->count == b.as.dict->count;
    for (size_t i = 0; i < a.as.dict->count && *out; i++) {
        const jvalue *other;
        TRY(lw__jinja_dict_get(run, b, a.as.dict->keys[i], &other));
        if (other == NULL) *out = false;
        else TRY(lw__jinja_equal(run, a.as.dict->values[i], *other, out));
    }
    return LW_OK;
}

static lw_status equal_same_kind(jrun *run, jvalue a, jvalue b, bool *out)
{
    switch (a.kind) {
    case JK_UNDEFINED:
    case JK_NONE: *out = true; return LW_OK;
    case JK_STRING: *out = text_equal(a.as.text, b.as.text); return LW_OK;
    case JK_LIST:
    case JK_TUPLE:
    case JK_RANGE: return equal_lists(run, a.as.list, b.as.list, out);
    case JK_DICT: return equal_dicts(run, a, b, out);
    case JK_VIEW:
    case JK_METHOD: return lw__jinja_fail(run, LW_UNSUPPORTED,
                                          "comparing dict views or methods is not supported");
    case JK_ITERATOR: *out = a.as.list == b.as.list; return LW_OK;
    case JK_NAMESPACE: *out = a.as.dict == b.as.dict; return LW_OK;
    case JK_MACRO: *out = a.as.macro == b.as.macro; return LW_OK;
    case JK_LOOP: *out = a.as.loop == b.as.loop; return LW_OK;
    case JK_BUILTIN: *out = a.as.builtin == b.as.builtin; return LW_OK;
    case JK_BOOL:
    case JK_INT:
    case JK_FLOAT: *out = order_numbers(a, b) == 0; return LW_OK;
    }
    return LW_OK;
}

lw_status lw__jinja_equal(jrun *run, jvalue a, jvalue b, bool *out)
{
    *out = false;
    TRY(lw__jinja_step(run, a.kind == JK_STRING ? a.as.text.count : 0));
    if (value_is_number(a) && value_is_number(b)) {
        *out = order_numbers(a, b) == 0;
        return LW_OK;
    }
    if (a.kind != b.kind) return LW_OK;
    TRY(lw__jinja_enter(run));
    const lw_status status = equal_same_kind(run, a, b, out);
    run_leave(run);
    return status;
}

static lw_status order_lists(jrun *run, const jlist *a, const jlist *b, int *out)
{
    for (size_t i = 0; i < a->count && i < b->count; i++) {
        bool same;
        TRY(lw__jinja_equal(run, a->items[i], b->items[i], &same));
        if (!same) return lw__jinja_order(run, a->items[i], b->items[i], out);
    }
    *out = (a->count > b->count) - (a->count < b->count);
    return LW_OK;
}

lw_status lw__jinja_order(jrun *run, jvalue a, jvalue b, int *out)
{
    TRY(lw__jinja_step(run, 0));
    if (a.kind == JK_UNDEFINED) return lw__jinja_fail_undefined(run, a);
    if (b.kind == JK_UNDEFINED) return lw__jinja_fail_undefined(run, b);
    if (value_is_number(a) && value_is_number(b)) {
        *out = order_numbers(a, b);
        return LW_OK;
    }
    if (a.kind == JK_STRING && b.kind == JK_STRING) {
        /* UTF-8 sorts as its code points do. */
        const size_t both = size_min(a.as.text.count, b.as.text.count);
        const int order = both == 0 ? 0 : memcmp(a.as.text.bytes, b.as.text.bytes, both);
        *out = order != 0 ? (order > 0) - (order < 0)
                          : (a.as.text.count > b.as.text.count) - (a.as.text.count < b.as.text.count);
        return lw__jinja_step(run, both);
    }
    if (a.kind == b.kind && (a.kind == JK_LIST || a.kind == JK_TUPLE)) {
        TRY(lw__jinja_enter(run));
        const lw_status status = order_lists(run, a.as.list, b.as.list, out);
        run_leave(run);
        return status;
    }
    return lw__jinja_fail(run, LW_BAD_INPUT, "cannot order a '%s' and a '%s'", lw__jinja_kind_name(a),
                          lw__jinja_kind_name(b));
}

lw_status lw__jinja_contains(jrun *run, jvalue whole, jvalue part, bool *out)
{
    *out = false;
    if (whole.kind == JK_STRING) {
        if (part.kind != JK_STRING)
            return lw__jinja_fail(run, LW_BAD_INPUT,
                                  "'in' of a string needs a string on its left, not a '%s'",
                                  lw__jinja_kind_name(part));
        *out = lw__jinja_find(whole.as.text, part.as.text, 0) != SIZE_MAX;
        return lw__jinja_step(run, whole.as.text.count);
    }
    if (whole.kind == JK_DICT) {
        const jvalue *found;
        TRY(lw__jinja_dict_get(run, whole, part, &found));
        *out = found != NULL;
        return LW_OK;
    }
    if (!lw__jinja_is_iterable(whole))
        return lw__jinja_fail(run, LW_BAD_INPUT, "a '%s' has no items for 'in'", lw__jinja_kind_name(whole));
    jvalue *items;
    size_t count;
    TRY(lw__jinja_items(run, whole, &items, &count));
    for (size_t i = 0; i < count && !*out; i++) TRY(lw__jinja_equal(run, items[i], part, out));
    return LW_OK;
}

lw_status lw__jinja_count(jrun *run, jvalue v, size_t *out)
{
    *out = 0;
    switch (v.kind) {
    case JK_UNDEFINED: return LW_OK;
    case JK_STRING: *out = lw__jinja_length(v.as.text); return lw__jinja_step(run, v.as.text.count);
    case JK_LIST:
    case JK_TUPLE:
    case JK_VIEW:
    case JK_RANGE: *out = v.as.list->count; return LW_OK;
    case JK_DICT: *out = v.as.dict->count; return LW_OK;
    case JK_LOOP: return lw__jinja_loop_count(run, v.as.loop, out);
    case JK_NONE:
    case JK_BOOL:
    case JK_INT:
    case JK_FLOAT:
    case JK_ITERATOR:
    case JK_NAMESPACE:
    case JK_MACRO:
    case JK_BUILTIN:
    case JK_METHOD: break;
    }
    return lw__jinja_fail(run, LW_BAD_INPUT, "a '%s' has no length", lw__jinja_kind_name(v));
}

bool lw__jinja_is_iterable(jvalue v)
{
    return v.kind == JK_UNDEFINED || v.kind == JK_STRING || v.kind == JK_LIST || v.kind == JK_TUPLE ||
           v.kind == JK_DICT || v.kind == JK_VIEW || v.kind == JK_RANGE || v.kind == JK_ITERATOR;
}

static lw_status characters(jrun *run, lw_text text, jvalue **items, size_t *count)
{
    *count = lw__jinja_length(text);
    TRY(lw__jinja_step(run, text.count));
    TRY(lw__jinja_take(run, *count, sizeof **items, items));
    size_t at = 0;
    for (size_t i = 0; i < *count; i++) {
        const size_t bytes = lw__jinja_char_bytes(text.bytes + at, text.count - at);
        (*items)[i] = value_text(text_cut(text, at, at + bytes));
        at += bytes;
    }
    return LW_OK;
}

lw_status lw__jinja_items(jrun *run, jvalue v, jvalue **items, size_t *count)
{
    *items = NULL;
    *count = 0;
    if (v.kind == JK_UNDEFINED) return LW_OK;
    if (v.kind == JK_STRING) return characters(run, v.as.text, items, count);
    if (v.kind == JK_DICT) {
        *items = v.as.dict->keys;
        *count = v.as.dict->count;
        return LW_OK;
    }
    if (!lw__jinja_is_iterable(v))
        return lw__jinja_fail(run, LW_BAD_INPUT, "a '%s' cannot be iterated", lw__jinja_kind_name(v));
    jlist *list = v.as.list;
    *items = list->count == 0 ? NULL : list->items + list->next;
    *count = list->count - list->next;
    if (v.kind == JK_ITERATOR) list->next = list->count;
    return LW_OK;
}

lw_status lw__jinja_list(jrun *run, jkind kind, size_t room, jvalue *out)
{
    jlist *list;
    TRY(lw__jinja_take(run, 1, sizeof *list, &list));
    TRY(lw__jinja_take(run, room, sizeof *list->items, &list->items));
    *out = value_list(kind, list, LW_ORIGIN_TRUSTED);
    return LW_OK;
}

void lw__jinja_list_push(jvalue *list, jvalue item)
{
    list->as.list->items[list->as.list->count++] = item;
    list->origin |= item.origin;
}

lw_status lw__jinja_dict(jrun *run, jkind kind, size_t room, jvalue *out)
{
    jdict *dict;
    TRY(lw__jinja_take(run, 1, sizeof *dict, &dict));
    TRY(lw__jinja_take(run, room, sizeof *dict->keys, &dict->keys));
    TRY(lw__jinja_take(run, room, sizeof *dict->values, &dict->values));
    dict->room = room;
    *out = (jvalue){ .kind = kind, .as.dict = dict };
    return LW_OK;
}

static lw_status check_key(const jrun *run, jvalue key)
{
    if (key.kind != JK_LIST && key.kind != JK_DICT) return LW_OK;
    return lw__jinja_fail(run, LW_BAD_INPUT, "a '%s' cannot be a key", lw__jinja_kind_name(key));
}

lw_status lw__jinja_dict_get(jrun *run, jvalue dict, jvalue key, const jvalue **out)
{
    *out = NULL;
    TRY(check_key(run, key));
    const jdict *d = dict.as.dict;
    TRY(lw__jinja_step(run, d->count * 16));
    if (key.kind == JK_STRING) {
        *out = lw__jinja_dict_find(d, key.as.text);
        return LW_OK;
    }
    for (size_t i = 0; i < d->count && *out == NULL; i++) {
        bool same;
        TRY(lw__jinja_equal(run, d->keys[i], key, &same));
        if (same) *out = &d->values[i];
    }
    return LW_OK;
}

const jvalue *lw__jinja_dict_find(const jdict *dict, lw_text key)
{
    for (size_t i = 0; i < dict->count; i++)
        if (dict->keys[i].kind == JK_STRING && text_equal(dict->keys[i].as.text, key))
            return &dict->values[i];
    return NULL;
}

lw_status lw__jinja_dict_set(jrun *run, jvalue *dict, jvalue key, jvalue value)
{
    jdict *d = dict->as.dict;
    const jvalue *found;
    TRY(lw__jinja_dict_get(run, *dict, key, &found));
    dict->origin |= key.origin | value.origin;
    if (found != NULL) {
        d->values[found - d->values] = value;
        return LW_OK;
    }
    if (d->count == d->room) {
        jvalue wider;
        TRY(lw__jinja_dict(run, dict->kind, size_max(4, d->room * 2), &wider));
        if (d->count > 0) {
            memcpy(wider.as.dict->keys, d->keys, d->count * sizeof *d->keys);
            memcpy(wider.as.dict->values, d->values, d->count * sizeof *d->values);
        }
        wider.as.dict->count = d->count;
        *d = *wider.as.dict;
    }
    d->keys[d->count] = key;
    d->values[d->count++] = value;
    return LW_OK;
}
