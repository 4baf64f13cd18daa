/* Expressions, one function per rule of the grammar in jinja.h. */
#include "text/jinja/parser.h"

#include "text/jinja/text.h"

static lw_status parse_not(jparser *p, const jnode **out);
static lw_status parse_unary(jparser *p, bool with_filters, const jnode **out);
static lw_status parse_primary(jparser *p, const jnode **out);
static lw_status parse_postfix(jparser *p, const jnode **node);

typedef lw_status rule(jparser *p, const jnode **out);

static lw_status make_pair(jparser *p, jnode_kind kind, const jnode *left, const jnode *right,
                           const jnode **out)
{
    jnode *node;
    TRY(lw__jinja_node(p, kind, &node));
    node->left = left;
    node->right = right;
    *out = node;
    return lw__jinja_node_done(p, node);
}

static lw_status parse_and(jparser *p, const jnode **out)
{
    TRY(parse_not(p, out));
    while (lw__jinja_skip_word(p, "and")) {
        const jnode *right;
        TRY(parse_not(p, &right));
        TRY(make_pair(p, JN_AND, *out, right, out));
    }
    return LW_OK;
}

lw_status lw__jinja_parse_or(jparser *p, const jnode **out)
{
    TRY(parse_and(p, out));
    while (lw__jinja_skip_word(p, "or")) {
        const jnode *right;
        TRY(parse_and(p, &right));
        TRY(make_pair(p, JN_OR, *out, right, out));
    }
    return LW_OK;
}

static lw_status parse_condition(jparser *p, const jnode **out)
{
    TRY(lw__jinja_parse_or(p, out));
    while (lw__jinja_skip_word(p, "if")) {
        jnode *node;
        TRY(lw__jinja_node(p, JN_CONDITION, &node));
        node->left = *out;
        TRY(lw__jinja_parse_or(p, &node->right));
        if (lw__jinja_skip_word(p, "else")) TRY(lw__jinja_parse_expr(p, &node->third));
        TRY(lw__jinja_node_done(p, node));
        *out = node;
    }
    return LW_OK;
}

lw_status lw__jinja_parse_expr(jparser *p, const jnode **out)
{
    TRY(lw__jinja_parse_enter(p));
    const lw_status status = parse_condition(p, out);
    parser_leave(p);
    return status;
}

/* One operator of a table at the cursor, else 0. */
static int take_op(jparser *p, const int *ops)
{
    for (; *ops != 0; ops++)
        if (lw__jinja_skip_op(p, *ops)) return *ops;
    return 0;
}

static lw_status parse_binary(jparser *p, rule *operand, const int *ops, const jnode **out)
{
    TRY(operand(p, out));
    int op;
    while ((op = take_op(p, ops)) != 0) {
        jnode *node;
        TRY(lw__jinja_node(p, JN_BINARY, &node));
        node->op = op;
        node->left = *out;
        TRY(operand(p, &node->right));
        TRY(lw__jinja_node_done(p, node));
        *out = node;
    }
    return LW_OK;
}

static lw_status parse_operand(jparser *p, const jnode **out) { return parse_unary(p, true, out); }

static lw_status parse_power(jparser *p, const jnode **out)
{
    static const int ops[] = { JOP('*', '*'), 0 };
    return parse_binary(p, parse_operand, ops, out);
}

static lw_status parse_product(jparser *p, const jnode **out)
{
    static const int ops[] = { '*', '/', JOP('/', '/'), '%', 0 };
    return parse_binary(p, parse_power, ops, out);
}

static lw_status parse_concat(jparser *p, const jnode **out)
{
    TRY(parse_product(p, out));
    if (!lw__jinja_at_op(p, '~')) return LW_OK;
    jnodes parts = { 0 };
    TRY(lw__jinja_add(p, &parts, *out));
    while (lw__jinja_skip_op(p, '~')) {
        const jnode *part;
        TRY(parse_product(p, &part));
        TRY(lw__jinja_add(p, &parts, part));
    }
    jnode *node;
    TRY(lw__jinja_node(p, JN_CONCAT, &node));
    node->items = parts.items;
    node->count = parts.count;
    *out = node;
    return lw__jinja_node_done(p, node);
}

static lw_status parse_sum(jparser *p, const jnode **out)
{
    static const int ops[] = { '+', '-', 0 };
    return parse_binary(p, parse_concat, ops, out);
}

static int take_comparison(jparser *p)
{
    static const int ops[] = { JOP('=', '='), JOP('!', '='), JOP('<', '='), JOP('>', '='), '<', '>', 0 };
    const int op = take_op(p, ops);
    if (op != 0) return op;
    if (lw__jinja_skip_word(p, "in")) return JOP_IN;
    if (!lw__jinja_at_word(p, "not")) return 0;
    const jtoken *ahead = parser_ahead(p);
    if (ahead->kind != JT_NAME || ahead->count != 2 || memcmp(ahead->bytes, "in", 2) != 0) return 0;
    lw__jinja_advance(p);
    lw__jinja_advance(p);
    return JOP_NOT_IN;
}

static lw_status parse_compare(jparser *p, const jnode **out)
{
    TRY(parse_sum(p, out));
    jnodes operands = { 0 };
    int op;
    while ((op = take_comparison(p)) != 0) {
        jnode *operand;
        TRY(lw__jinja_node(p, JN_OPERAND, &operand));
        operand->op = op;
        TRY(parse_sum(p, &operand->left));
        TRY(lw__jinja_node_done(p, operand));
        TRY(lw__jinja_add(p, &operands, operand));
    }
    if (operands.count == 0) return LW_OK;
    jnode *node;
    TRY(lw__jinja_node(p, JN_COMPARE, &node));
    node->left = *out;
    node->items = operands.items;
    node->count = operands.count;
    *out = node;
    return lw__jinja_node_done(p, node);
}

static lw_status parse_not(jparser *p, const jnode **out)
{
    if (!lw__jinja_skip_word(p, "not")) return parse_compare(p, out);
    TRY(lw__jinja_parse_enter(p));
    const jnode *inner;
    TRY(parse_not(p, &inner));
    parser_leave(p);
    return make_pair(p, JN_NOT, inner, NULL, out);
}

/* name = expr, or expr; positional ones come first. */
static lw_status parse_argument(jparser *p, jnodes *plain, jnodes *named)
{
    if (lw__jinja_at_op(p, '*') || lw__jinja_at_op(p, JOP('*', '*')))
        return lw__jinja_parse_fail(p, LW_UNSUPPORTED, "*args and **kwargs in calls are not supported");
    const jnode *value;
    const jtoken *ahead = parser_ahead(p);
    if (parser_token(p)->kind == JT_NAME && ahead->kind == JT_OPERATOR && ahead->op == '=') {
        const jname *name;
        TRY(lw__jinja_expect_name(p, &name));
        lw__jinja_advance(p);
        TRY(lw__jinja_parse_expr(p, &value));
        for (size_t i = 0; i < named->count; i++)
            if (named->names[i] == name)
                return lw__jinja_parse_fail(p, LW_BAD_INPUT, "argument '%s' given twice", name->text.bytes);
        return lw__jinja_add_named(p, named, name, value);
    }
    if (named->count > 0)
        return lw__jinja_parse_fail(p, LW_BAD_INPUT, "a positional argument after a named one");
    TRY(lw__jinja_parse_expr(p, &value));
    return lw__jinja_add(p, plain, value);
}

static lw_status parse_arguments(jparser *p, jnode *node)
{
    jnodes plain = { 0 }, named = { 0 };
    TRY(lw__jinja_expect_op(p, '('));
    while (!lw__jinja_at_op(p, ')')) {
        if (plain.count + named.count > 0) {
            TRY(lw__jinja_expect_op(p, ','));
            if (lw__jinja_at_op(p, ')')) break;
        }
        TRY(parse_argument(p, &plain, &named));
    }
    node->items = plain.items;
    node->count = plain.count;
    node->names = named.names;
    node->values = named.items;
    node->named_count = named.count;
    return lw__jinja_expect_op(p, ')');
}

static lw_status parse_call(jparser *p, const jnode **node)
{
    jnode *call;
    TRY(lw__jinja_node(p, JN_CALL, &call));
    call->left = *node;
    TRY(parse_arguments(p, call));
    *node = call;
    return lw__jinja_node_done(p, call);
}

static lw_status parse_slice_part(jparser *p, const jnode **out)
{
    *out = NULL;
    if (lw__jinja_at_op(p, ':') || lw__jinja_at_op(p, ']') || lw__jinja_at_op(p, ',')) return LW_OK;
    return lw__jinja_parse_expr(p, out);
}

/* After the first part of [first:stop:step], at its colon. */
static lw_status parse_slice(jparser *p, const jnode *first, const jnode **node)
{
    jnodes parts = { 0 };
    TRY(lw__jinja_add(p, &parts, first));
    for (int i = 0; i < 2; i++) {
        const jnode *part = NULL;
        if (lw__jinja_skip_op(p, ':')) TRY(parse_slice_part(p, &part));
        TRY(lw__jinja_add(p, &parts, part));
    }
    jnode *slice;
    TRY(lw__jinja_node(p, JN_SLICE, &slice));
    slice->left = *node;
    slice->items = parts.items;
    slice->count = parts.count;
    *node = slice;
    return lw__jinja_node_done(p, slice);
}

static lw_status parse_subscript(jparser *p, const jnode **node)
{
    const jnode *index;
    TRY(parse_slice_part(p, &index));
    if (lw__jinja_at_op(p, ':')) {
        TRY(parse_slice(p, index, node));
    } else if (index == NULL) {
        return lw__jinja_unexpected(p, "a subscript");
    } else {
        TRY(make_pair(p, JN_ITEM, *node, index, node));
    }
    if (lw__jinja_at_op(p, ','))
        return lw__jinja_parse_fail(p, LW_UNSUPPORTED, "several subscripts in one bracket are not supported");
    return lw__jinja_expect_op(p, ']');
}

static lw_status parse_dot(jparser *p, const jnode **node)
{
    const jtoken *token = parser_token(p);
    if (token->kind == JT_INTEGER) {
        jnode *index;
        TRY(lw__jinja_node(p, JN_CONST, &index));
        index->value = value_int(token->integer, LW_ORIGIN_TRUSTED);
        TRY(lw__jinja_node_done(p, index));
        lw__jinja_advance(p);
        return make_pair(p, JN_ITEM, *node, index, node);
    }
    jnode *attribute;
    TRY(lw__jinja_node(p, JN_ATTRIBUTE, &attribute));
    attribute->left = *node;
    TRY(lw__jinja_expect_name(p, &attribute->name));
    *node = attribute;
    return lw__jinja_node_done(p, attribute);
}

static lw_status parse_postfix(jparser *p, const jnode **node)
{
    for (;;) {
        if (lw__jinja_skip_op(p, '.')) TRY(parse_dot(p, node));
        else if (lw__jinja_skip_op(p, '[')) TRY(parse_subscript(p, node));
        else if (lw__jinja_at_op(p, '(')) TRY(parse_call(p, node));
        else return LW_OK;
    }
}

lw_status lw__jinja_parse_filter(jparser *p, const jnode **node)
{
    jnode *filter;
    TRY(lw__jinja_node(p, JN_FILTER, &filter));
    filter->left = *node;
    TRY(lw__jinja_expect_name(p, &filter->name));
    if (lw__jinja_at_op(p, '.'))
        return lw__jinja_parse_fail(p, LW_UNSUPPORTED, "filters with dots are not supported");
    if (lw__jinja_at_op(p, '(')) TRY(parse_arguments(p, filter));
    *node = filter;
    return lw__jinja_node_done(p, filter);
}

/* Whether the one argument of a test may stand here without parentheses. */
static bool at_bare_argument(const jparser *p)
{
    const jtoken_kind kind = parser_token(p)->kind;
    if (kind == JT_STRING || kind == JT_INTEGER || kind == JT_FLOAT) return true;
    if (lw__jinja_at_op(p, '[') || lw__jinja_at_op(p, '{')) return true;
    return kind == JT_NAME && !lw__jinja_at_word(p, "else") && !lw__jinja_at_word(p, "or") &&
           !lw__jinja_at_word(p, "and");
}

static lw_status parse_test(jparser *p, const jnode **node)
{
    jnode *test;
    TRY(lw__jinja_node(p, JN_TEST, &test));
    test->left = *node;
    test->is_negated = lw__jinja_skip_word(p, "not");
    TRY(lw__jinja_expect_name(p, &test->name));
    if (lw__jinja_at_op(p, '.'))
        return lw__jinja_parse_fail(p, LW_UNSUPPORTED, "tests with dots are not supported");
    if (lw__jinja_at_op(p, '(')) {
        TRY(parse_arguments(p, test));
    } else if (at_bare_argument(p)) {
        if (lw__jinja_at_word(p, "is"))
            return lw__jinja_parse_fail(p, LW_BAD_INPUT, "tests cannot be chained with is");
        jnodes plain = { 0 };
        const jnode *argument;
        TRY(parse_primary(p, &argument));
        TRY(parse_postfix(p, &argument));
        TRY(lw__jinja_add(p, &plain, argument));
        test->items = plain.items;
        test->count = plain.count;
    }
    *node = test;
    return lw__jinja_node_done(p, test);
}

static lw_status parse_filters(jparser *p, const jnode **node)
{
    for (;;) {
        if (lw__jinja_skip_op(p, '|')) TRY(lw__jinja_parse_filter(p, node));
        else if (lw__jinja_skip_word(p, "is")) TRY(parse_test(p, node));
        else if (lw__jinja_at_op(p, '(')) TRY(parse_call(p, node));
        else return LW_OK;
    }
}

static lw_status parse_unary(jparser *p, bool with_filters, const jnode **out)
{
    const bool is_minus = lw__jinja_at_op(p, '-');
    if (is_minus || lw__jinja_at_op(p, '+')) {
        lw__jinja_advance(p);
        TRY(lw__jinja_parse_enter(p));
        const jnode *inner;
        TRY(parse_unary(p, false, &inner));
        parser_leave(p);
        TRY(make_pair(p, is_minus ? JN_NEGATE : JN_PLUS, inner, NULL, out));
    } else {
        TRY(parse_primary(p, out));
    }
    TRY(parse_postfix(p, out));
    return with_filters ? parse_filters(p, out) : LW_OK;
}

static bool at_tuple_end(const jparser *p)
{
    const jtoken_kind kind = parser_token(p)->kind;
    return kind == JT_VARIABLE_END || kind == JT_BLOCK_END || lw__jinja_at_op(p, ')');
}

static lw_status parse_items(jparser *p, bool with_condition, jnodes *items, bool *is_tuple)
{
    *is_tuple = false;
    while (!at_tuple_end(p)) {
        const jnode *item;
        TRY(with_condition ? lw__jinja_parse_expr(p, &item) : lw__jinja_parse_or(p, &item));
        TRY(lw__jinja_add(p, items, item));
        if (!lw__jinja_skip_op(p, ',')) return LW_OK;
        *is_tuple = true;
    }
    return LW_OK;
}

static lw_status make_tuple(jparser *p, const jnodes *items, const jnode **out)
{
    jnode *node;
    TRY(lw__jinja_node(p, JN_TUPLE, &node));
    node->items = items->items;
    node->count = items->count;
    *out = node;
    return lw__jinja_node_done(p, node);
}

lw_status lw__jinja_parse_tuple(jparser *p, bool with_condition, const jnode **out)
{
    jnodes items = { 0 };
    bool is_tuple;
    TRY(parse_items(p, with_condition, &items, &is_tuple));
    if (is_tuple) return make_tuple(p, &items, out);
    if (items.count == 0) return lw__jinja_unexpected(p, "an expression");
    *out = items.items[0];
    return LW_OK;
}

static lw_status parse_parentheses(jparser *p, const jnode **out)
{
    jnodes items = { 0 };
    bool is_tuple;
    TRY(parse_items(p, true, &items, &is_tuple));
    if (is_tuple || items.count == 0) TRY(make_tuple(p, &items, out));
    else *out = items.items[0];
    return lw__jinja_expect_op(p, ')');
}

/* [a, b] and {a: b}: the items up to the closing bracket */
static lw_status parse_display(jparser *p, jnode_kind kind, char close, const jnode **out)
{
    jnodes items = { 0 };
    while (!lw__jinja_at_op(p, close)) {
        if (items.count > 0) {
            TRY(lw__jinja_expect_op(p, ','));
            if (lw__jinja_at_op(p, close)) break;
        }
        const jnode *item;
        TRY(lw__jinja_parse_expr(p, &item));
        TRY(lw__jinja_add(p, &items, item));
        if (kind != JN_DICT) continue;
        TRY(lw__jinja_expect_op(p, ':'));
        TRY(lw__jinja_parse_expr(p, &item));
        TRY(lw__jinja_add(p, &items, item));
    }
    jnode *node;
    TRY(lw__jinja_node(p, kind, &node));
    node->items = items.items;
    node->count = items.count;
    *out = node;
    TRY(lw__jinja_expect_op(p, close));
    return lw__jinja_node_done(p, node);
}

/* Adjacent strings are one. */
static lw_status parse_string(jparser *p, jnode *node)
{
    size_t count = 0;
    for (size_t at = p->at; p->tokens.items[at].kind == JT_STRING; at++) count += p->tokens.items[at].count;
    char *bytes = lw_arena_take(&p->program->arena, count + 1);
    if (bytes == NULL) return lw__jinja_parse_fail(p, LW_NO_ROOM, "no memory for a string");
    size_t used = 0;
    for (; parser_token(p)->kind == JT_STRING; lw__jinja_advance(p)) {
        memcpy(bytes + used, parser_token(p)->bytes, parser_token(p)->count);
        used += parser_token(p)->count;
    }
    node->value = value_text((lw_text){ .bytes = bytes, .count = count });
    return LW_OK;
}

static bool constant_word(const jparser *p, jvalue *out)
{
    if (lw__jinja_at_word(p, "true") || lw__jinja_at_word(p, "True"))
        *out = value_bool(true, LW_ORIGIN_TRUSTED);
    else if (lw__jinja_at_word(p, "false") || lw__jinja_at_word(p, "False"))
        *out = value_bool(false, LW_ORIGIN_TRUSTED);
    else if (lw__jinja_at_word(p, "none") || lw__jinja_at_word(p, "None"))
        *out = value_none(LW_ORIGIN_TRUSTED);
    else return false;
    return true;
}

static void note_macro_use(jparser *p, const jname *name)
{
    if (p->macro == NULL) return;
    p->macro->uses_varargs |= text_is(name->text, "varargs");
    p->macro->uses_kwargs |= text_is(name->text, "kwargs");
    p->macro->uses_caller |= text_is(name->text, "caller");
}

static lw_status parse_atom(jparser *p, const jnode **out)
{
    jnode *node;
    TRY(lw__jinja_node(p, JN_CONST, &node));
    *out = node;
    const jtoken *token = parser_token(p);
    if (token->kind == JT_STRING) {
        TRY(parse_string(p, node));
        return lw__jinja_node_done(p, node);
    }
    if (token->kind == JT_INTEGER || token->kind == JT_FLOAT) {
        node->value = token->kind == JT_INTEGER ? value_int(token->integer, LW_ORIGIN_TRUSTED)
                                                : value_float(token->real, LW_ORIGIN_TRUSTED);
        lw__jinja_advance(p);
        return lw__jinja_node_done(p, node);
    }
    if (constant_word(p, &node->value)) {
        lw__jinja_advance(p);
        return lw__jinja_node_done(p, node);
    }
    node->kind = JN_NAME;
    if (token->kind != JT_NAME) return lw__jinja_unexpected(p, "an expression");
    TRY(lw__jinja_expect_name(p, &node->name));
    note_macro_use(p, node->name);
    return lw__jinja_node_done(p, node);
}

static lw_status parse_primary(jparser *p, const jnode **out)
{
    if (lw__jinja_skip_op(p, '(')) return parse_parentheses(p, out);
    if (lw__jinja_skip_op(p, '[')) return parse_display(p, JN_LIST, ']', out);
    if (lw__jinja_skip_op(p, '{')) return parse_display(p, JN_DICT, '}', out);
    return parse_atom(p, out);
}
