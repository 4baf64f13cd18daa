/* Filters over sequences and mappings. map, select and the like compute at once what Jinja computes on
 * demand; what they give can be read once, as there.
 */
#include "text/jinja/filters.h"

#include "base/size.h"

static lw_status as_iterator(jrun *run, jvalue subject, size_t room, jvalue *out)
{
    TRY(lw__jinja_list(run, JK_ITERATOR, room, out));
    out->origin = subject.origin;
    return LW_OK;
}

static lw_status filter_default(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    static const char *const params[] = { "default_value", "boolean", NULL };
    const jvalue *given[2];
    TRY(lw__jinja_bind(run, "default", args, params, given));
    const bool by_truth = given[1] != NULL && lw__jinja_truth(*given[1]);
    *out = subject;
    if (subject.kind != JK_UNDEFINED && !(by_truth && !lw__jinja_truth(subject))) return LW_OK;
    *out = given[0] != NULL ? *given[0] : value_text(text_literal(""));
    return LW_OK;
}

static lw_status filter_length(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    size_t count;
    TRY(lw__jinja_no_args(run, "length", args));
    TRY(lw__jinja_count(run, subject, &count));
    *out = value_int((int64_t)count, subject.origin);
    return LW_OK;
}

static lw_status filter_list(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    jvalue *items;
    size_t count;
    TRY(lw__jinja_no_args(run, "list", args));
    TRY(lw__jinja_items(run, subject, &items, &count));
    TRY(lw__jinja_list(run, JK_LIST, count, out));
    TRY(lw__jinja_step(run, count * sizeof *items));
    out->origin = subject.origin;
    for (size_t i = 0; i < count; i++) lw__jinja_list_push(out, items[i]);
    return LW_OK;
}

static lw_status filter_first(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    jvalue *items;
    size_t count;
    TRY(lw__jinja_no_args(run, "first", args));
    TRY(lw__jinja_items(run, subject, &items, &count));
    if (count == 0) return lw__jinja_undefined_hint(run, "No first item, sequence was empty.", out);
    if (subject.kind == JK_ITERATOR) subject.as.list->next -= count - 1; /* only one is used up */
    *out = items[0];
    return LW_OK;
}

static lw_status filter_last(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    jvalue *items;
    size_t count;
    TRY(lw__jinja_no_args(run, "last", args));
    if (subject.kind == JK_ITERATOR)
        return lw__jinja_fail(run, LW_BAD_INPUT, "last: a '%s' cannot be read backwards",
                              lw__jinja_kind_name(subject));
    TRY(lw__jinja_items(run, subject, &items, &count));
    if (count == 0) return lw__jinja_undefined_hint(run, "No last item, sequence was empty.", out);
    *out = items[count - 1];
    return LW_OK;
}

static lw_status filter_reverse(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    jvalue *items;
    size_t count;
    TRY(lw__jinja_no_args(run, "reverse", args));
    TRY(lw__jinja_items(run, subject, &items, &count));
    if (subject.kind == JK_STRING) {
        jbuild build = { .run = run };
        for (size_t i = count; i > 0; i--) TRY(lw__jinja_put(&build, items[i - 1].as.text));
        *out = value_text(lw__jinja_built(&build));
        out->is_markup = subject.is_markup;
        return LW_OK;
    }
    TRY(lw__jinja_list(run, subject.kind == JK_ITERATOR ? JK_LIST : JK_ITERATOR, count, out));
    TRY(lw__jinja_step(run, count * sizeof *items));
    out->origin = subject.origin;
    for (size_t i = count; i > 0; i--) lw__jinja_list_push(out, items[i - 1]);
    return LW_OK;
}

/* 'a.b.0': each part is an index when it is all digits, else a key or attribute. */
static lw_status get_path(jrun *run, jvalue item, jvalue path, jvalue *out)
{
    *out = item;
    if (path.kind != JK_STRING) return lw__jinja_item(run, item, path, out);
    size_t begin = 0;
    while (begin <= path.as.text.count) {
        size_t end = lw__jinja_find(path.as.text, text_literal("."), begin);
        if (end == SIZE_MAX) end = path.as.text.count;
        const lw_text part = text_cut(path.as.text, begin, end);
        int64_t number = 0;
        bool is_number = part.count > 0 && part.count < 18;
        for (size_t i = 0; i < part.count && is_number; i++) {
            is_number = part.bytes[i] >= '0' && part.bytes[i] <= '9';
            number = number * 10 + (part.bytes[i] - '0');
        }
        TRY(lw__jinja_step(run, 0));
        TRY(lw__jinja_item(run, *out, is_number ? value_int(number, path.origin) : value_text(part), out));
        begin = end + 1;
    }
    return LW_OK;
}

static lw_status filter_join(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    static const char *const params[] = { "d", "attribute", NULL };
    const jvalue *given[2];
    jvalue *items;
    size_t count;
    lw_text between = { .bytes = "" }, text;
    jbuild build = { .run = run };
    TRY(lw__jinja_bind(run, "join", args, params, given));
    if (given[0] != NULL) TRY(lw__jinja_text(run, *given[0], &between));
    TRY(lw__jinja_items(run, subject, &items, &count));
    for (size_t i = 0; i < count; i++) {
        jvalue item = items[i];
        if (given[1] != NULL && given[1]->kind != JK_NONE) TRY(get_path(run, items[i], *given[1], &item));
        TRY(lw__jinja_step(run, 0));
        if (i > 0) TRY(lw__jinja_put(&build, between));
        TRY(lw__jinja_text(run, item, &text));
        TRY(lw__jinja_put(&build, text));
    }
    *out = value_text(lw__jinja_built(&build));
    return LW_OK;
}

static lw_status make_pair(jrun *run, const jdict *dict, size_t at, jvalue *out)
{
    TRY(lw__jinja_list(run, JK_TUPLE, 2, out));
    lw__jinja_list_push(out, dict->keys[at]);
    lw__jinja_list_push(out, dict->values[at]);
    return LW_OK;
}

static lw_status push_pairs(jrun *run, const jdict *dict, jvalue *out)
{
    for (size_t i = 0; i < dict->count; i++) {
        jvalue pair;
        TRY(make_pair(run, dict, i, &pair));
        lw__jinja_list_push(out, pair);
    }
    return LW_OK;
}

static lw_status filter_items(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    TRY(lw__jinja_no_args(run, "items", args));
    if (subject.kind == JK_UNDEFINED) return as_iterator(run, subject, 0, out);
    if (subject.kind != JK_DICT)
        return lw__jinja_fail(run, LW_BAD_INPUT, "Can only get item pairs from a mapping.");
    TRY(as_iterator(run, subject, subject.as.dict->count, out));
    return push_pairs(run, subject.as.dict, out);
}

/* What sorting compares: the item, or what a path names, in lower case unless case counts. */
static lw_status sort_key(jrun *run, jvalue item, const jvalue *path, bool is_exact, jvalue *out)
{
    *out = item;
    if (path != NULL && path->kind != JK_NONE) TRY(get_path(run, item, *path, out));
    if (is_exact || out->kind != JK_STRING) return LW_OK;
    lw_text lower;
    TRY(lw__jinja_case(run, out->as.text, JCASE_LOWER, &lower));
    *out = value_text(lower);
    return LW_OK;
}

typedef struct jsorted {
    jvalue key;
    jvalue item;
} jsorted;

/* Merges two sorted runs; equal keys keep their order, also when reversed. */
static lw_status merge(jrun *run, const jsorted *from, jsorted *to, const size_t ends[static 3],
                       bool is_reversed)
{
    size_t left = ends[0], right = ends[1], at = ends[0];
    while (left < ends[1] && right < ends[2]) {
        int order;
        if (is_reversed) TRY(lw__jinja_order(run, from[left].key, from[right].key, &order));
        else TRY(lw__jinja_order(run, from[right].key, from[left].key, &order));
        to[at++] = order == -1 ? from[right++] : from[left++];
    }
    while (left < ends[1]) to[at++] = from[left++];
    while (right < ends[2]) to[at++] = from[right++];
    return LW_OK;
}

static lw_status sort_all(jrun *run, jsorted **items, size_t count, bool is_reversed)
{
    jsorted *other;
    TRY(lw__jinja_take(run, count, sizeof *other, &other));
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t begin = 0; begin < count; begin += 2 * width) {
            const size_t ends[3] = { begin, size_min(begin + width, count),
                size_min(begin + 2 * width, count) };
            TRY(merge(run, *items, other, ends, is_reversed));
        }
        jsorted *swap = *items;
        *items = other;
        other = swap;
    }
    return LW_OK;
}

static bool flag(const jvalue *v) { return v != NULL && lw__jinja_truth(*v); }

static lw_status filter_sort(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    static const char *const params[] = { "reverse", "case_sensitive", "attribute", NULL };
    const jvalue *given[3];
    jvalue *items;
    size_t count;
    jsorted *sorted;
    TRY(lw__jinja_bind(run, "sort", args, params, given));
    if (given[2] != NULL && given[2]->kind == JK_STRING &&
        lw__jinja_find(given[2]->as.text, text_literal(","), 0) != SIZE_MAX)
        return lw__jinja_fail(run, LW_UNSUPPORTED, "sort by several attributes is not supported");
    TRY(lw__jinja_items(run, subject, &items, &count));
    TRY(lw__jinja_take(run, count, sizeof *sorted, &sorted));
    for (size_t i = 0; i < count; i++) {
        sorted[i].item = items[i];
        TRY(sort_key(run, items[i], given[2], flag(given[1]), &sorted[i].key));
    }
    TRY(sort_all(run, &sorted, count, flag(given[0])));
    TRY(lw__jinja_list(run, JK_LIST, count, out));
    out->origin = subject.origin;
    for (size_t i = 0; i < count; i++) lw__jinja_list_push(out, sorted[i].item);
    return LW_OK;
}

static lw_status filter_dictsort(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    static const char *const params[] = { "case_sensitive", "by", "reverse", NULL };
    const jvalue *given[3];
    lw_text by = text_literal("key");
    jsorted *sorted;
    TRY(lw__jinja_bind(run, "dictsort", args, params, given));
    if (given[1] != NULL) TRY(lw__jinja_need_text(run, "dictsort", given[1], &by));
    if (!text_is(by, "key") && !text_is(by, "value"))
        return lw__jinja_fail(run, LW_BAD_INPUT, "dictsort: by is either key or value");
    if (subject.kind == JK_UNDEFINED) return lw__jinja_fail_undefined(run, subject);
    if (subject.kind != JK_DICT)
        return lw__jinja_fail(run, LW_BAD_INPUT, "dictsort of a '%s'", lw__jinja_kind_name(subject));
    const jdict *dict = subject.as.dict;
    TRY(lw__jinja_take(run, dict->count, sizeof *sorted, &sorted));
    for (size_t i = 0; i < dict->count; i++) {
        const jvalue key = text_is(by, "key") ? dict->keys[i] : dict->values[i];
        TRY(make_pair(run, dict, i, &sorted[i].item));
        TRY(sort_key(run, key, NULL, flag(given[0]), &sorted[i].key));
    }
    TRY(sort_all(run, &sorted, dict->count, flag(given[2])));
    TRY(lw__jinja_list(run, JK_LIST, dict->count, out));
    out->origin = subject.origin;
    for (size_t i = 0; i < dict->count; i++) lw__jinja_list_push(out, sorted[i].item);
    return LW_OK;
}

static lw_status filter_unique(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    static const char *const params[] = { "case_sensitive", "attribute", NULL };
    const jvalue *given[2];
    jvalue *items, *keys;
    size_t count;
    TRY(lw__jinja_bind(run, "unique", args, params, given));
    TRY(lw__jinja_items(run, subject, &items, &count));
    TRY(as_iterator(run, subject, count, out));
    TRY(lw__jinja_take(run, count, sizeof *keys, &keys));
    for (size_t i = 0; i < count; i++) {
        const size_t kept = out->as.list->count;
        bool is_seen = false;
        TRY(sort_key(run, items[i], given[1], flag(given[0]), &keys[kept]));
        if (keys[kept].kind == JK_LIST || keys[kept].kind == JK_DICT)
            return lw__jinja_fail(run, LW_BAD_INPUT, "unique: a '%s' has no hash",
                                  lw__jinja_kind_name(keys[kept]));
        for (size_t k = 0; k < kept && !is_seen; k++)
            TRY(lw__jinja_equal(run, keys[k], keys[kept], &is_seen));
        if (!is_seen) lw__jinja_list_push(out, items[i]);
    }
    return LW_OK;
}

static lw_status extreme(jrun *run, jvalue subject, const jargs *args, int wanted, jvalue *out)
{
    static const char *const params[] = { "case_sensitive", "attribute", NULL };
    const jvalue *given[2];
    jvalue *items, best, key;
    size_t count;
    TRY(lw__jinja_bind(run, wanted < 0 ? "min" : "max", args, params, given));
    TRY(lw__jinja_items(run, subject, &items, &count));
    if (count == 0) return lw__jinja_undefined_hint(run, "No aggregated item, sequence was empty.", out);
    *out = items[0];
    TRY(sort_key(run, items[0], given[1], flag(given[0]), &best));
    for (size_t i = 1; i < count; i++) {
        int order;
        TRY(sort_key(run, items[i], given[1], flag(given[0]), &key));
        TRY(lw__jinja_order(run, key, best, &order));
        if (order != wanted) continue;
        best = key;
        *out = items[i];
    }
    return LW_OK;
}

static lw_status filter_min(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    return extreme(run, subject, args, -1, out);
}

static lw_status filter_max(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    return extreme(run, subject, args, 1, out);
}

static lw_status filter_sum(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    static const char *const params[] = { "attribute", "start", NULL };
    const jvalue *given[2];
    jvalue *items;
    size_t count;
    TRY(lw__jinja_bind(run, "sum", args, params, given));
    TRY(lw__jinja_items(run, subject, &items, &count));
    *out = given[1] != NULL ? *given[1] : value_int(0, subject.origin);
    for (size_t i = 0; i < count; i++) {
        jvalue item = items[i];
        if (given[0] != NULL && given[0]->kind != JK_NONE) TRY(get_path(run, items[i], *given[0], &item));
        if (!value_is_number(*out) || !value_is_number(item))
            return lw__jinja_fail(run, LW_UNSUPPORTED, "sum of other values than numbers is not supported");
        TRY(lw__jinja_binary(run, '+', *out, item, out));
    }
    return LW_OK;
}

static const jvalue *named_arg(const jargs *args, const char *word)
{
    for (size_t i = 0; i < args->named_count; i++)
        if (text_is(args->names[i]->text, word)) return &args->values[i];
    return NULL;
}

/* args without the first `count` positional ones */
static jargs args_after(const jargs *args, size_t count)
{
    jargs rest = *args;
    rest.items += count;
    rest.count -= count;
    return rest;
}

static lw_status map_attribute(jrun *run, jvalue item, const jargs *args, jvalue *out)
{
    const jvalue *otherwise = named_arg(args, "default");
    TRY(get_path(run, item, *named_arg(args, "attribute"), out));
    if (out->kind == JK_UNDEFINED && otherwise != NULL) *out = *otherwise;
    return LW_OK;
}

static lw_status filter_map(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    jvalue *items;
    size_t count;
    lw_text name = { 0 };
    const bool by_attribute = args->count == 0 && named_arg(args, "attribute") != NULL;
    if (!by_attribute && args->count == 0)
        return lw__jinja_fail(run, LW_BAD_INPUT, "map needs a filter or an attribute");
    if (by_attribute && args->named_count > 1u + (named_arg(args, "default") != NULL))
        return lw__jinja_fail(run, LW_BAD_INPUT, "map takes attribute and default only");
    if (!by_attribute) TRY(lw__jinja_need_text(run, "map", &args->items[0], &name));
    const bool is_empty = !lw__jinja_truth(subject);
    if (is_empty) return as_iterator(run, subject, 0, out);
    TRY(lw__jinja_items(run, subject, &items, &count));
    TRY(as_iterator(run, subject, count, out));
    for (size_t i = 0; i < count; i++) {
        jvalue item;
        const jargs rest = by_attribute ? *args : args_after(args, 1);
        TRY(by_attribute ? map_attribute(run, items[i], args, &item)
                         : lw__jinja_filter(run, name, items[i], &rest, &item));
        lw__jinja_list_push(out, item);
    }
    return LW_OK;
}

/* select and its kin: an attribute first if asked, then a test or plain truth */
static lw_status choose(jrun *run, jvalue subject, const jargs *args, const bool how[static 2], jvalue *out)
{
    const bool by_attribute = how[0], wanted = how[1];
    jvalue *items;
    size_t count;
    lw_text name = { 0 };
    if (!lw__jinja_truth(subject)) return as_iterator(run, subject, 0, out);
    if (by_attribute && args->count == 0)
        return lw__jinja_fail(run, LW_BAD_INPUT, "an attribute's name is missing");
    const bool by_test = args->count > by_attribute;
    if (by_test) TRY(lw__jinja_need_text(run, "select", &args->items[by_attribute], &name));
    const jargs rest = args_after(args, by_test ? 1u + by_attribute : args->count);
    TRY(lw__jinja_items(run, subject, &items, &count));
    TRY(as_iterator(run, subject, count, out));
    for (size_t i = 0; i < count; i++) {
        jvalue item = items[i];
        bool verdict;
        if (by_attribute) TRY(get_path(run, items[i], args->items[0], &item));
        if (by_test) TRY(lw__jinja_test(run, name, item, &rest, &verdict));
        else verdict = lw__jinja_truth(item);
        TRY(lw__jinja_step(run, 0));
        if (verdict == wanted) lw__jinja_list_push(out, items[i]);
    }
    return LW_OK;
}

static lw_status filter_select(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    return choose(run, subject, args, (const bool[2]){ false, true }, out);
}

static lw_status filter_reject(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    return choose(run, subject, args, (const bool[2]){ false, false }, out);
}

static lw_status filter_selectattr(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    return choose(run, subject, args, (const bool[2]){ true, true }, out);
}

static lw_status filter_rejectattr(jrun *run, jvalue subject, const jargs *args, jvalue *out)
{
    return choose(run, subject, args, (const bool[2]){ true, false }, out);
}

const jfilter lw__jinja_list_filters[JINJA_LIST_FILTERS] = {
    { "default", filter_default },       { "d", filter_default },
    { "length", filter_length },         { "count", filter_length },
    { "list", filter_list },             { "first", filter_first },
    { "last", filter_last },             { "reverse", filter_reverse },
    { "join", filter_join },             { "items", filter_items },
    { "sort", filter_sort },             { "dictsort", filter_dictsort },
    { "unique", filter_unique },         { "min", filter_min },
    { "max", filter_max },               { "sum", filter_sum },
    { "map", filter_map },               { "select", filter_select },
    { "reject", filter_reject },         { "selectattr", filter_selectattr },
    { "rejectattr", filter_rejectattr },
};
