/* for loops and the loop object. Items pass the loop's own filter one at a time and only when asked for,
 * since the filter may read a namespace that the body changes.
 */
#include "text/jinja/run.h"

struct jloop {
    const jnode *node;
    jscope *scope;      /* around the loop */
    jvalue *items;
    size_t count, next;
    size_t index;       /* of the current item, from 0 */
    jvalue before, current, after;
    bool has_before, has_after;
    bool is_counted;    /* length is known; filtered items are in `items` from then on */
    size_t length;
    size_t depth;
    jvalue changed;     /* what changed() saw last */
    bool has_changed;
};

static lw_status passes(jrun *run, const jloop *loop, jvalue item, bool *out)
{
    *out = true;
    if (loop->node->third == NULL || loop->is_counted) return LW_OK;
    jscope *inner;
    jvalue verdict;
    TRY(lw__jinja_scope(run, loop->scope, &inner));
    TRY(lw__jinja_assign(run, loop->node->left, inner, item));
    TRY(lw__jinja_eval(run, loop->node->third, inner, &verdict));
    *out = lw__jinja_truth(verdict);
    return LW_OK;
}

static lw_status fetch(jrun *run, jloop *loop, jvalue *out, bool *is_there)
{
    *is_there = loop->has_after;
    *out = loop->after;
    loop->has_after = false;
    while (!*is_there && loop->next < loop->count) {
        *out = loop->items[loop->next++];
        TRY(lw__jinja_step(run, 0));
        TRY(passes(run, loop, *out, is_there));
    }
    return LW_OK;
}

static lw_status peek(jrun *run, jloop *loop, bool *is_there)
{
    jvalue next;
    TRY(fetch(run, loop, &next, is_there));
    loop->after = next;
    loop->has_after = *is_there;
    return LW_OK;
}

lw_status lw__jinja_loop_count(jrun *run, jloop *loop, size_t *out)
{
    if (!loop->is_counted) {
        jvalue *rest;
        size_t count = 0;
        TRY(lw__jinja_take(run, loop->count - loop->next, sizeof *rest, &rest));
        for (; loop->next < loop->count; loop->next++) {
            bool is_in;
            TRY(passes(run, loop, loop->items[loop->next], &is_in));
            if (is_in) rest[count++] = loop->items[loop->next];
        }
        loop->length = loop->index + 1 + loop->has_after + count;
        loop->items = rest;
        loop->count = count;
        loop->next = 0;
        loop->is_counted = true;
    }
    *out = loop->length;
    return LW_OK;
}

static lw_status neighbour(jrun *run, bool is_there, jvalue item, const char *hint, jvalue *out)
{
    if (!is_there) return lw__jinja_undefined_hint(run, hint, out);
    *out = item;
    return LW_OK;
}

typedef enum jloop_fact {
    LOOP_INDEX, LOOP_INDEX0, LOOP_FIRST, LOOP_LAST, LOOP_LENGTH, LOOP_REVINDEX, LOOP_REVINDEX0, LOOP_PREVIOUS,
    LOOP_NEXT, LOOP_DEPTH, LOOP_DEPTH0, LOOP_CYCLE, LOOP_CHANGED
} jloop_fact;

static const struct loop_word {
    const char *word;
    jloop_fact fact;
} loop_words[] = {
    { "index", LOOP_INDEX },       { "index0", LOOP_INDEX0 },     { "first", LOOP_FIRST },
    { "last", LOOP_LAST },         { "length", LOOP_LENGTH },     { "revindex", LOOP_REVINDEX },
    { "revindex0", LOOP_REVINDEX0 }, { "previtem", LOOP_PREVIOUS }, { "nextitem", LOOP_NEXT },
    { "depth", LOOP_DEPTH },       { "depth0", LOOP_DEPTH0 },     { "cycle", LOOP_CYCLE },
    { "changed", LOOP_CHANGED },
};

static lw_status loop_method(jrun *run, jloop *loop, const char *word, jvalue *out)
{
    jmethod *method;
    TRY(lw__jinja_take(run, 1, sizeof *method, &method));
    *method = (jmethod){ .owner = { .kind = JK_LOOP, .as.loop = loop }, .name = text_literal(word) };
    *out = (jvalue){ .kind = JK_METHOD, .as.method = method };
    return LW_OK;
}

static lw_status loop_number(jrun *run, jloop *loop, jloop_fact fact, jvalue *out)
{
    size_t length = 0;
    if (fact == LOOP_LENGTH || fact == LOOP_REVINDEX || fact == LOOP_REVINDEX0)
        TRY(lw__jinja_loop_count(run, loop, &length));
    const int64_t index = (int64_t)loop->index, count = (int64_t)length;
    int64_t number = 0;
    if (fact == LOOP_INDEX || fact == LOOP_INDEX0) number = index + (fact == LOOP_INDEX);
    if (fact == LOOP_LENGTH) number = count;
    if (fact == LOOP_REVINDEX) number = count - index;
    if (fact == LOOP_REVINDEX0) number = count - index - 1;
    if (fact == LOOP_DEPTH) number = 1;
    *out = value_int(number, LW_ORIGIN_TRUSTED);
    return LW_OK;
}

lw_status lw__jinja_loop_attribute(jrun *run, jloop *loop, lw_text name, jvalue *out, bool *is_there)
{
    const size_t words = sizeof loop_words / sizeof loop_words[0];
    size_t at = 0;
    while (at < words && !text_is(name, loop_words[at].word)) at++;
    *is_there = at < words;
    if (!*is_there) return LW_OK;
    const jloop_fact fact = loop_words[at].fact;
    bool has_next;
    switch ((int)fact) {
    case LOOP_FIRST: *out = value_bool(loop->index == 0, LW_ORIGIN_TRUSTED); return LW_OK;
    case LOOP_LAST:
        TRY(peek(run, loop, &has_next));
        *out = value_bool(!has_next, LW_ORIGIN_TRUSTED);
        return LW_OK;
    case LOOP_PREVIOUS: return neighbour(run, loop->has_before, loop->before, "there is no previous item",
                                         out);
    case LOOP_NEXT:
        TRY(peek(run, loop, &has_next));
        return neighbour(run, has_next, loop->after, "there is no next item", out);
    case LOOP_CYCLE:
    case LOOP_CHANGED: return loop_method(run, loop, loop_words[at].word, out);
    default: return loop_number(run, loop, fact, out);
    }
}

lw_status lw__jinja_loop_call(jrun *run, jloop *loop, lw_text name, const jargs *args, jvalue *out)
{
    if (args->named_count > 0)
        return lw__jinja_fail(run, LW_BAD_INPUT, "loop methods take no named arguments");
    if (text_is(name, "cycle")) {
        if (args->count == 0)
            return lw__jinja_fail(run, LW_BAD_INPUT, "loop.cycle: no items for cycling given");
        *out = args->items[loop->index % args->count];
        return LW_OK;
    }
    jvalue seen;
    bool same = false;
    TRY(lw__jinja_list(run, JK_TUPLE, args->count, &seen));
    for (size_t i = 0; i < args->count; i++) lw__jinja_list_push(&seen, args->items[i]);
    if (loop->has_changed) TRY(lw__jinja_equal(run, loop->changed, seen, &same));
    loop->changed = seen;
    loop->has_changed = true;
    *out = value_bool(!same, LW_ORIGIN_TRUSTED);
    return LW_OK;
}

static void forget(jscope *scope)
{
    for (jbinding *b = scope->first; b != NULL; b = b->next) b->is_set = false;
}

static lw_status run_items(jrun *run, jloop *loop, jscope *inner, const jname *word, bool *is_empty)
{
    *is_empty = true;
    for (;;) {
        jvalue item;
        bool is_there;
        TRY(fetch(run, loop, &item, &is_there));
        if (!is_there) return LW_OK;
        loop->index += !*is_empty;
        loop->has_before = !*is_empty;
        loop->before = loop->current;
        loop->current = item;
        *is_empty = false;
        forget(inner);
        if (word != NULL) TRY(lw__jinja_set(run, inner, word, (jvalue){ .kind = JK_LOOP, .as.loop = loop }));
        TRY(lw__jinja_assign(run, loop->node->left, inner, item));
        TRY(lw__jinja_exec(run, loop->node->items[0], inner));
        const jflow flow = run->flow;
        run->flow = JF_ON;
        if (flow == JF_BREAK) return LW_OK;
    }
}

lw_status lw__jinja_exec_for(jrun *run, const jnode *node, jscope *scope)
{
    jvalue whole;
    jloop *loop;
    jscope *inner;
    bool is_empty;
    TRY(lw__jinja_eval(run, node->right, scope, &whole));
    TRY(lw__jinja_take(run, 1, sizeof *loop, &loop));
    *loop = (jloop){ .node = node, .scope = scope };
    TRY(lw__jinja_items(run, whole, &loop->items, &loop->count));
    TRY(lw__jinja_scope(run, scope, &inner));
    const jname *word = lw__jinja_name_find(run->program, "loop", strlen("loop"));
    TRY(run_items(run, loop, inner, word, &is_empty));
    if (!is_empty || node->items[1] == NULL) return LW_OK;
    jscope *otherwise;
    TRY(lw__jinja_scope(run, scope, &otherwise));
    return lw__jinja_exec(run, node->items[1], otherwise);
}
