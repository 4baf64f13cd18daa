/* Statements, one function per rule of the grammar in jinja.h. */
#include "text/jinja/parser.h"

#include "text/jinja/text.h"

/* A whole body up to "{% word"; the word is skipped. */
static lw_status parse_body_to(jparser *p, const char *word, const jnode **out)
{
    const char *const until[] = { word, NULL };
    TRY(lw__jinja_parse_body(p, until, out));
    return lw__jinja_expect_word(p, word);
}

static lw_status close_tag(jparser *p) { return lw__jinja_expect_kind(p, JT_BLOCK_END,
                                                                      "the end of the statement, %}"); }

static lw_status parse_if(jparser *p, jnode *node)
{
    static const char *const until[] = { "elif", "else", "endif", NULL };
    jnodes parts = { 0 };
    do {
        const jnode *part;
        TRY(lw__jinja_parse_tuple(p, false, &part));
        TRY(lw__jinja_add(p, &parts, part));
        TRY(close_tag(p));
        TRY(lw__jinja_parse_body(p, until, &part));
        TRY(lw__jinja_add(p, &parts, part));
    } while (lw__jinja_skip_word(p, "elif"));
    node->kind = JN_IF;
    node->items = parts.items;
    node->count = parts.count;
    if (!lw__jinja_skip_word(p, "else")) return lw__jinja_expect_word(p, "endif");
    TRY(close_tag(p));
    return parse_body_to(p, "endif", &node->left);
}

static lw_status parse_target(jparser *p, const jnode **out);

/* NAME, NAME.NAME or a target in parentheses */
static lw_status parse_place(jparser *p, const jnode **out)
{
    if (lw__jinja_skip_op(p, '(')) {
        TRY(lw__jinja_parse_enter(p));
        TRY(parse_target(p, out));
        parser_leave(p);
        return lw__jinja_expect_op(p, ')');
    }
    jnode *name;
    TRY(lw__jinja_node(p, JN_NAME, &name));
    TRY(lw__jinja_expect_name(p, &name->name));
    static const char *const constants[] = { "true", "false", "none", "True", "False", "None" };
    for (size_t i = 0; i < sizeof constants / sizeof constants[0]; i++)
        if (text_is(name->name->text, constants[i]))
            return lw__jinja_parse_fail(p, LW_BAD_INPUT, "cannot assign to '%s'", constants[i]);
    TRY(lw__jinja_node_done(p, name));
    *out = name;
    if (!lw__jinja_skip_op(p, '.')) return LW_OK;
    jnode *attribute;
    TRY(lw__jinja_node(p, JN_ATTRIBUTE, &attribute));
    attribute->left = name;
    TRY(lw__jinja_expect_name(p, &attribute->name));
    *out = attribute;
    return lw__jinja_node_done(p, attribute);
}

static lw_status parse_target(jparser *p, const jnode **out)
{
    jnodes places = { 0 };
    bool is_tuple = false;
    for (;;) {
        const jnode *place;
        TRY(parse_place(p, &place));
        TRY(lw__jinja_add(p, &places, place));
        if (!lw__jinja_skip_op(p, ',')) break;
        is_tuple = true;
        if (lw__jinja_at_word(p, "in") || lw__jinja_at_op(p, '=') || lw__jinja_at_op(p, ')')) break;
    }
    *out = places.items[0];
    if (!is_tuple) return LW_OK;
    jnode *tuple;
    TRY(lw__jinja_node(p, JN_TUPLE, &tuple));
    tuple->items = places.items;
    tuple->count = places.count;
    *out = tuple;
    return lw__jinja_node_done(p, tuple);
}

static bool names_loop(const jnode *target)
{
    if (target->kind == JN_NAME) return text_is(target->name->text, "loop");
    for (size_t i = 0; i < target->count; i++)
        if (names_loop(target->items[i])) return true;
    return false;
}

static lw_status parse_for(jparser *p, jnode *node)
{
    static const char *const until[] = { "else", "endfor", NULL };
    node->kind = JN_FOR;
    TRY(parse_target(p, &node->left));
    if (names_loop(node->left))
        return lw__jinja_parse_fail(p, LW_BAD_INPUT, "a loop cannot assign to 'loop'");
    TRY(lw__jinja_expect_word(p, "in"));
    TRY(lw__jinja_parse_tuple(p, false, &node->right));
    if (lw__jinja_skip_word(p, "if")) TRY(lw__jinja_parse_expr(p, &node->third));
    if (lw__jinja_at_word(p, "recursive"))
        return lw__jinja_parse_fail(p, LW_UNSUPPORTED, "recursive loops are not supported");
    TRY(close_tag(p));
    jnodes bodies = { 0 };
    const jnode *body, *otherwise = NULL;
    p->loops++;
    TRY(lw__jinja_parse_body(p, until, &body));
    p->loops--;
    TRY(lw__jinja_add(p, &bodies, body));
    const bool has_else = lw__jinja_skip_word(p, "else");
    if (has_else) TRY(close_tag(p));
    if (has_else) TRY(parse_body_to(p, "endfor", &otherwise));
    else TRY(lw__jinja_expect_word(p, "endfor"));
    TRY(lw__jinja_add(p, &bodies, otherwise));
    node->items = bodies.items;
    node->count = bodies.count;
    return LW_OK;
}

/* { "|" filter } over the text that the block catches */
static lw_status parse_captured(jparser *p, jnode **captured, const jnode **out)
{
    TRY(lw__jinja_node(p, JN_CAPTURED, captured));
    *out = *captured;
    while (lw__jinja_skip_op(p, '|')) TRY(lw__jinja_parse_filter(p, out));
    return lw__jinja_node_done(p, *captured);
}

static lw_status parse_set(jparser *p, jnode *node)
{
    TRY(parse_target(p, &node->left));
    if (lw__jinja_skip_op(p, '=')) {
        node->kind = JN_SET;
        return lw__jinja_parse_tuple(p, true, &node->right);
    }
    node->kind = JN_SET_BLOCK;
    jnode *captured;
    TRY(parse_captured(p, &captured, &node->right));
    TRY(close_tag(p));
    jnodes bodies = { 0 };
    const jnode *body;
    TRY(parse_body_to(p, "endset", &body));
    TRY(lw__jinja_add(p, &bodies, body));
    node->items = bodies.items;
    node->count = bodies.count;
    return LW_OK;
}

static lw_status parse_params(jparser *p, jnode *macro)
{
    jnodes params = { 0 };
    TRY(lw__jinja_expect_op(p, '('));
    while (!lw__jinja_at_op(p, ')')) {
        if (params.count > 0) TRY(lw__jinja_expect_op(p, ','));
        const jname *name;
        const jnode *otherwise = NULL;
        TRY(lw__jinja_expect_name(p, &name));
        if (lw__jinja_skip_op(p, '=')) TRY(lw__jinja_parse_expr(p, &otherwise));
        else if (params.count > 0 && params.items[params.count - 1] != NULL)
            return lw__jinja_parse_fail(p, LW_BAD_INPUT,
                                        "a parameter without a default after one that has it");
        TRY(lw__jinja_add_named(p, &params, name, otherwise));
    }
    macro->names = params.names;
    macro->values = params.items;
    macro->named_count = params.count;
    return lw__jinja_expect_op(p, ')');
}

/* The body of a macro or a call block: loops outside do not reach in, and its use of varargs and the like is
 * noted. */
static lw_status parse_macro_body(jparser *p, jnode *macro, const char *end)
{
    jnode *outer = p->macro;
    const size_t loops = p->loops;
    p->macro = macro;
    p->loops = 0;
    TRY(close_tag(p));
    TRY(parse_body_to(p, end, &macro->left));
    p->macro = outer;
    p->loops = loops;
    return LW_OK;
}

static lw_status parse_macro(jparser *p, jnode *node)
{
    node->kind = JN_MACRO;
    TRY(lw__jinja_expect_name(p, &node->name));
    TRY(parse_params(p, node));
    TRY(parse_macro_body(p, node, "endmacro"));
    const jname *again;
    return parser_token(p)->kind == JT_NAME ? lw__jinja_expect_name(p, &again) : LW_OK;
}

static lw_status parse_call_block(jparser *p, jnode *node)
{
    node->kind = JN_CALL_BLOCK;
    jnode *caller;
    TRY(lw__jinja_node(p, JN_MACRO, &caller));
    if (lw__jinja_at_op(p, '(')) TRY(parse_params(p, caller));
    TRY(lw__jinja_parse_expr(p, &node->left));
    if (node->left->kind != JN_CALL) return lw__jinja_unexpected(p, "a call after the word call");
    TRY(parse_macro_body(p, caller, "endcall"));
    node->right = caller;
    return lw__jinja_node_done(p, caller);
}

static lw_status parse_filter_block(jparser *p, jnode *node)
{
    node->kind = JN_FILTER_BLOCK;
    jnode *captured;
    TRY(lw__jinja_node(p, JN_CAPTURED, &captured));
    TRY(lw__jinja_node_done(p, captured));
    node->left = captured;
    do TRY(lw__jinja_parse_filter(p, &node->left));
    while (lw__jinja_skip_op(p, '|'));
    TRY(close_tag(p));
    return parse_body_to(p, "endfilter", &node->right);
}

static lw_status parse_with(jparser *p, jnode *node)
{
    node->kind = JN_WITH;
    jnodes named = { 0 };
    while (parser_token(p)->kind != JT_BLOCK_END) {
        if (named.count > 0) TRY(lw__jinja_expect_op(p, ','));
        const jname *name;
        const jnode *value;
        TRY(lw__jinja_expect_name(p, &name));
        TRY(lw__jinja_expect_op(p, '='));
        TRY(lw__jinja_parse_expr(p, &value));
        TRY(lw__jinja_add_named(p, &named, name, value));
    }
    node->names = named.names;
    node->values = named.items;
    node->named_count = named.count;
    TRY(close_tag(p));
    return parse_body_to(p, "endwith", &node->left);
}

static lw_status parse_scope(jparser *p, jnode *node)
{
    node->kind = JN_SCOPE;
    TRY(close_tag(p));
    const size_t loops = p->loops;
    p->loops = 0;
    TRY(parse_body_to(p, "endgeneration", &node->left));
    p->loops = loops;
    return LW_OK;
}

static lw_status parse_print(jparser *p, jnode *node)
{
    jnodes outputs = { 0 };
    while (parser_token(p)->kind != JT_BLOCK_END) {
        jnode *output;
        if (outputs.count > 0) TRY(lw__jinja_expect_op(p, ','));
        TRY(lw__jinja_node(p, JN_OUTPUT, &output));
        TRY(lw__jinja_parse_expr(p, &output->left));
        TRY(lw__jinja_node_done(p, output));
        TRY(lw__jinja_add(p, &outputs, output));
    }
    node->items = outputs.items;
    node->count = outputs.count;
    return LW_OK;
}

static lw_status parse_jump(jparser *p, jnode *node, jnode_kind kind)
{
    node->kind = kind;
    return p->loops > 0 ? LW_OK : lw__jinja_parse_fail(p, LW_BAD_INPUT, "break or continue outside a loop");
}

static lw_status parse_break(jparser *p, jnode *node) { return parse_jump(p, node, JN_BREAK); }
static lw_status parse_continue(jparser *p, jnode *node) { return parse_jump(p, node, JN_CONTINUE); }

static const struct statement {
    const char *word;
    lw_status (*parse)(jparser *p, jnode *node); /* NULL: refused by name */
} statements[] = {
    { "if", parse_if },           { "for", parse_for },           { "set", parse_set },
    { "macro", parse_macro },     { "call", parse_call_block },   { "filter", parse_filter_block },
    { "with", parse_with },       { "generation", parse_scope },  { "print", parse_print },
    { "break", parse_break },     { "continue", parse_continue }, { "block", NULL },
    { "extends", NULL },          { "include", NULL },            { "import", NULL },
    { "from", NULL },             { "autoescape", NULL },         { "do", NULL },
    { "trans", NULL },
};

/* After "{%", at the statement's word; ends behind "%}". */
static lw_status parse_statement(jparser *p, const jnode **out)
{
    for (size_t i = 0; i < sizeof statements / sizeof statements[0]; i++) {
        const struct statement *found = &statements[i];
        if (!lw__jinja_at_word(p, found->word)) continue;
        if (found->parse == NULL)
            return lw__jinja_parse_fail(p, LW_UNSUPPORTED, "the statement '%s' is not supported",
                                        found->word);
        jnode *node;
        TRY(lw__jinja_node(p, JN_BODY, &node));
        lw__jinja_advance(p);
        TRY(lw__jinja_parse_enter(p));
        TRY(found->parse(p, node));
        parser_leave(p);
        *out = node;
        TRY(lw__jinja_node_done(p, node));
        return close_tag(p);
    }
    return lw__jinja_unexpected(p, "a statement");
}

static lw_status parse_output(jparser *p, const jnode **out)
{
    jnode *node;
    TRY(lw__jinja_node(p, JN_OUTPUT, &node));
    TRY(lw__jinja_parse_tuple(p, true, &node->left));
    TRY(lw__jinja_expect_kind(p, JT_VARIABLE_END, "the end of the expression, }}"));
    *out = node;
    return lw__jinja_node_done(p, node);
}

static lw_status parse_data(jparser *p, const jnode **out)
{
    jnode *node, *text;
    const jtoken *token = parser_token(p);
    TRY(lw__jinja_node(p, JN_CONST, &text));
    text->value = value_text((lw_text){ .bytes = token->bytes, .count = token->count });
    TRY(lw__jinja_node_done(p, text));
    lw__jinja_advance(p);
    TRY(lw__jinja_node(p, JN_OUTPUT, &node));
    node->left = text;
    *out = node;
    return lw__jinja_node_done(p, node);
}

static bool at_any(const jparser *p, const char *const *until)
{
    while (*until != NULL && !lw__jinja_at_word(p, *until)) until++;
    return *until != NULL;
}

lw_status lw__jinja_parse_body(jparser *p, const char *const *until, const jnode **out)
{
    jnodes items = { 0 };
    jnode *body;
    TRY(lw__jinja_node(p, JN_BODY, &body));
    for (;;) {
        const jnode *item = NULL;
        const jtoken_kind kind = parser_token(p)->kind;
        if (kind == JT_END) {
            if (until[0] != NULL) return lw__jinja_unexpected(p, until[0]);
            break;
        }
        if (kind == JT_DATA) {
            TRY(parse_data(p, &item));
        } else {
            lw__jinja_advance(p);
            if (kind == JT_BLOCK_BEGIN && at_any(p, until)) break;
            TRY(kind == JT_BLOCK_BEGIN ? parse_statement(p, &item) : parse_output(p, &item));
        }
        TRY(lw__jinja_add(p, &items, item));
    }
    body->items = items.items;
    body->count = items.count;
    *out = body;
    return lw__jinja_node_done(p, body);
}
