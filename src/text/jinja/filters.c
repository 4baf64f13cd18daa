/* Lookup of filters, and what text filters and string methods share; see filters.h. */
#include "text/jinja/filters.h"

static const jfilter *find(const jfilter *table, size_t count, lw_text name)
{
    for (size_t i = 0; i < count; i++)
        if (table[i].name != NULL && text_is(name, table[i].name)) return &table[i];
    return NULL;
}

lw_status lw__jinja_filter(jrun *run, lw_text name, jvalue subject, const jargs *args, jvalue *out)
{
    const jfilter *filter = find(lw__jinja_text_filters, JINJA_TEXT_FILTERS, name);
    if (filter == NULL) filter = find(lw__jinja_list_filters, JINJA_LIST_FILTERS, name);
    if (filter == NULL)
        return lw__jinja_fail(run, LW_UNSUPPORTED, "the filter '%.*s' is not supported",
                              name.count < 100 ? (int)name.count : 100, name.bytes);
    TRY(lw__jinja_step(run, 0));
    TRY(lw__jinja_enter(run));
    const lw_status status = filter->apply(run, subject, args, out);
    run_leave(run);
    return status;
}

lw_status lw__jinja_no_args(jrun *run, const char *what, const jargs *args)
{
    if (args->count + args->named_count == 0) return LW_OK;
    return lw__jinja_fail(run, LW_BAD_INPUT, "%s takes no arguments", what);
}

/* Whether the code point at `at` is one of chars. */
static bool is_among(lw_text text, size_t at, lw_text chars)
{
    const size_t bytes = lw__jinja_char_bytes(text.bytes + at, text.count - at);
    return lw__jinja_find(chars, text_cut(text, at, at + bytes), 0) != SIZE_MAX;
}

lw_status lw__jinja_strip(jrun *run, lw_text text, const jvalue *chars, const bool sides[static 2],
                          lw_text *out)
{
    size_t begin = 0, end = text.count;
    TRY(lw__jinja_step(run, text.count));
    if (chars == NULL || chars->kind == JK_NONE) {
        if (sides[1]) end = lw__jinja_trim_right(text);
        if (sides[0]) begin = end - lw__jinja_trim_left(text_cut(text, 0, end));
        *out = text_cut(text, begin, end);
        return LW_OK;
    }
    lw_text set;
    TRY(lw__jinja_need_text(run, "strip", chars, &set));
    while (sides[0] && begin < end && is_among(text, begin, set)) {
        TRY(lw__jinja_step(run, set.count));
        begin += lw__jinja_char_bytes(text.bytes + begin, end - begin);
    }
    while (sides[1] && end > begin) {
        size_t last = end - 1;
        while (last > begin && ((unsigned char)text.bytes[last] & 0xC0) == 0x80) last--;
        TRY(lw__jinja_step(run, set.count));
        if (!is_among(text_cut(text, 0, end), last, set)) break;
        end = last;
    }
    *out = text_cut(text, begin, end);
    return LW_OK;
}

/* An empty old text stands before each character and at the end. */
static size_t next_match(lw_text text, lw_text old, size_t from, size_t *step)
{
    if (old.count > 0) {
        *step = 0;
        return lw__jinja_find(text, old, from);
    }
    *step = from < text.count ? lw__jinja_char_bytes(text.bytes + from, text.count - from) : 1;
    return from <= text.count ? from : SIZE_MAX;
}

lw_status lw__jinja_replace(jrun *run, lw_text text, const lw_text pair[static 2], int64_t times,
                            lw_text *out)
{
    jbuild build = { .run = run };
    size_t from = 0, step = 0;
    TRY(lw__jinja_step(run, text.count));
    while (times != 0) {
        const size_t at = next_match(text, pair[0], from, &step);
        if (at == SIZE_MAX) break;
        TRY(lw__jinja_step(run, 0));
        TRY(lw__jinja_put(&build, text_cut(text, from, at)));
        TRY(lw__jinja_put(&build, pair[1]));
        from = at + pair[0].count;
        if (times > 0) times--;
        if (step == 0) continue;
        if (from >= text.count) {
            from = text.count;
            break;
        }
        TRY(lw__jinja_put(&build, text_cut(text, from, from + step)));
        from += step;
    }
    TRY(lw__jinja_put(&build, text_cut(text, from, text.count)));
    *out = lw__jinja_built(&build);
    return LW_OK;
}

/* Bytes of the line end at bytes[0], as str.splitlines knows them; 0 when there is none. */
static size_t line_end_bytes(const char *bytes, size_t count)
{
    const uint32_t c = lw__jinja_decode(bytes, count);
    if (c == '\r') return count > 1 && bytes[1] == '\n' ? 2 : 1;
    const bool is_end = c == '\n' || c == '\v' || c == '\f' || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
        c == 0x2028 ||
                        c == 0x2029;
    return is_end ? lw__jinja_char_bytes(bytes, count) : 0;
}

static size_t count_lines(lw_text text)
{
    size_t count = 1;
    for (size_t at = 0; at < text.count; at += lw__jinja_char_bytes(text.bytes + at, text.count - at))
        count += line_end_bytes(text.bytes + at, text.count - at) > 0;
    return count;
}

lw_status lw__jinja_split_lines(jrun *run, lw_text text, jvalue *out)
{
    TRY(lw__jinja_step(run, text.count));
    TRY(lw__jinja_list(run, JK_LIST, count_lines(text), out));
    size_t begin = 0, at = 0;
    while (at < text.count) {
        const size_t end_bytes = line_end_bytes(text.bytes + at, text.count - at);
        if (end_bytes == 0) {
            at += lw__jinja_char_bytes(text.bytes + at, text.count - at);
            continue;
        }
        lw__jinja_list_push(out, value_text(text_cut(text, begin, at)));
        begin = at += end_bytes;
    }
    if (begin < text.count) lw__jinja_list_push(out, value_text(text_cut(text, begin, text.count)));
    return LW_OK;
}
