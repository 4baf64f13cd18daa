/* Expressions: one function per node kind that is more than a lookup. */
#include "text/jinja/run.h"

static lw_status eval_items(jrun *run, const jnode *node, jscope *scope, jvalue **out)
{
    TRY(lw__jinja_take(run, node->count, sizeof **out, out));
    for (size_t i = 0; i < node->count; i++) TRY(lw__jinja_eval(run, node->items[i], scope, &(*out)[i]));
    return LW_OK;
}

static lw_status eval_list(jrun *run, const jnode *node, jscope *scope, jvalue *out)
{
    TRY(lw__jinja_list(run, node->kind == JN_LIST ? JK_LIST : JK_TUPLE, node->count, out));
    for (size_t i = 0; i < node->count; i++) {
        jvalue item;
        TRY(lw__jinja_eval(run, node->items[i], scope, &item));
        lw__jinja_list_push(out, item);
    }
    return LW_OK;
}

static lw_status eval_dict(jrun *run, const jnode *node, jscope *scope, jvalue *out)
{
    TRY(lw__jinja_dict(run, JK_DICT, node->count / 2, out));
    for (size_t i = 0; i < node->count; i += 2) {
        jvalue key, value;
        TRY(lw__jinja_eval(run, node->items[i], scope, &key));
        TRY(lw__jinja_eval(run, node->items[i + 1], scope, &value));
        TRY(lw__jinja_dict_set(run, out, key, value));
    }
    return LW_OK;
}

static lw_status eval_attribute(jrun *run, const jnode *node, jscope *scope, jvalue *out)
{
    jvalue owner;
    TRY(lw__jinja_eval(run, node->left, scope, &owner));
    return lw__jinja_attribute(run, owner, node->name->text, out);
}

static lw_status eval_item(jrun *run, const jnode *node, jscope *scope, jvalue *out)
{
    jvalue owner, key;
    TRY(lw__jinja_eval(run, node->left, scope, &owner));
    TRY(lw__jinja_eval(run, node->right, scope, &key));
    return lw__jinja_item(run, owner, key, out);
}

static lw_status eval_slice(jrun *run, const jnode *node, jscope *scope, jvalue *out)
{
    jvalue owner, parts[3];
    TRY(lw__jinja_eval(run, node->left, scope, &owner));
    for (size_t i = 0; i < 3; i++) {
        parts[i] = value_none(LW_ORIGIN_TRUSTED);
        if (node->items[i] != NULL) TRY(lw__jinja_eval(run, node->items[i], scope, &parts[i]));
    }
    return lw__jinja_slice(run, owner, parts, out);
}

lw_status lw__jinja_eval_args(jrun *run, const jnode *node, jscope *scope, jargs *out)
{
    jvalue *items, *values = NULL;
    TRY(eval_items(run, node, scope, &items));
    if (node->named_count > 0) TRY(lw__jinja_take(run, node->named_count, sizeof *values, &values));
    for (size_t i = 0; i < node->named_count; i++)
        TRY(lw__jinja_eval(run, node->values[i], scope, &values[i]));
    *out = (jargs){ .items = items, .count = node->count, .names = node->names, .values = values,
                    .named_count = node->named_count };
    return LW_OK;
}

static lw_status eval_call(jrun *run, const jnode *node, jscope *scope, jvalue *out)
{
    jvalue callee;
    jargs args;
    TRY(lw__jinja_eval(run, node->left, scope, &callee));
    TRY(lw__jinja_eval_args(run, node, scope, &args));
    run->line = node->line;
    return lw__jinja_call(run, callee, &args, out);
}

static lw_status eval_filter(jrun *run, const jnode *node, jscope *scope, jvalue *out)
{
    jvalue subject;
    jargs args;
    TRY(lw__jinja_eval(run, node->left, scope, &subject));
    TRY(lw__jinja_eval_args(run, node, scope, &args));
    run->line = node->line;
    return lw__jinja_filter(run, node->name->text, subject, &args, out);
}

static lw_status eval_test(jrun *run, const jnode *node, jscope *scope, jvalue *out)
{
    jvalue subject;
    jargs args;
    TRY(lw__jinja_eval(run, node->left, scope, &subject));
    TRY(lw__jinja_eval_args(run, node, scope, &args));
    run->line = node->line;
    bool truth;
    TRY(lw__jinja_test(run, node->name->text, subject, &args, &truth));
    *out = value_bool(truth != node->is_negated, subject.origin);
    return LW_OK;
}

/* and, or: the value that decides */
static lw_status eval_logic(jrun *run, const jnode *node, jscope *scope, jvalue *out)
{
    TRY(lw__jinja_eval(run, node->left, scope, out));
    if (lw__jinja_truth(*out) == (node->kind == JN_OR)) return LW_OK;
    return lw__jinja_eval(run, node->right, scope, out);
}

static lw_status eval_not(jrun *run, const jnode *node, jscope *scope, jvalue *out)
{
    TRY(lw__jinja_eval(run, node->left, scope, out));
    *out = value_bool(!lw__jinja_truth(*out), out->origin);
    return LW_OK;
}

static lw_status eval_sign(jrun *run, const jnode *node, jscope *scope, jvalue *out)
{
    jvalue inner;
    TRY(lw__jinja_eval(run, node->left, scope, &inner));
    return lw__jinja_negate(run, inner, node->kind == JN_NEGATE, out);
}

static lw_status eval_binary(jrun *run, const jnode *node, jscope *scope, jvalue *out)
{
    jvalue left, right;
    TRY(lw__jinja_eval(run, node->left, scope, &left));
    TRY(lw__jinja_eval(run, node->right, scope, &right));
    return lw__jinja_binary(run, node->op, left, right, out);
}

static lw_status eval_concat(jrun *run, const jnode *node, jscope *scope, jvalue *out)
{
    jvalue *items;
    TRY(eval_items(run, node, scope, &items));
    lw_text whole, part;
    TRY(lw__jinja_text(run, items[0], &whole));
    for (size_t i = 1; i < node->count; i++) {
        TRY(lw__jinja_text(run, items[i], &part));
        TRY(lw__jinja_concat(run, whole, part, &whole));
    }
    *out = value_text(whole);
    return LW_OK;
}

/* a < b < c: each operand once, until one comparison is false */
static lw_status eval_compare(jrun *run, const jnode *node, jscope *scope, jvalue *out)
{
    jvalue left, right;
    bool truth = true;
    TRY(lw__jinja_eval(run, node->left, scope, &left));
    uint8_t origin = left.origin;
    for (size_t i = 0; i < node->count && truth; i++) {
        TRY(lw__jinja_eval(run, node->items[i]->left, scope, &right));
        TRY(lw__jinja_compare(run, node->items[i]->op, left, right, &truth));
        origin |= right.origin;
        left = right;
    }
    *out = value_bool(truth, origin);
    return LW_OK;
}

static lw_status eval_condition(jrun *run, const jnode *node, jscope *scope, jvalue *out)
{
    jvalue condition;
    TRY(lw__jinja_eval(run, node->right, scope, &condition));
    if (lw__jinja_truth(condition)) return lw__jinja_eval(run, node->left, scope, out);
    if (node->third != NULL) return lw__jinja_eval(run, node->third, scope, out);
    return lw__jinja_undefined_hint(run, "an inline if was false and has no else", out);
}

static lw_status eval_kind(jrun *run, const jnode *node, jscope *scope, jvalue *out)
{
    switch ((int)node->kind) {
    case JN_CONST: *out = node->value; return LW_OK;
    case JN_CAPTURED: *out = run->captured; return LW_OK;
    case JN_NAME: return lw__jinja_get(run, scope, node->name, out);
    case JN_TUPLE:
    case JN_LIST: return eval_list(run, node, scope, out);
    case JN_DICT: return eval_dict(run, node, scope, out);
    case JN_ATTRIBUTE: return eval_attribute(run, node, scope, out);
    case JN_ITEM: return eval_item(run, node, scope, out);
    case JN_SLICE: return eval_slice(run, node, scope, out);
    case JN_CALL: return eval_call(run, node, scope, out);
    case JN_FILTER: return eval_filter(run, node, scope, out);
    case JN_TEST: return eval_test(run, node, scope, out);
    case JN_NOT: return eval_not(run, node, scope, out);
    case JN_NEGATE:
    case JN_PLUS: return eval_sign(run, node, scope, out);
    case JN_AND:
    case JN_OR: return eval_logic(run, node, scope, out);
    case JN_BINARY: return eval_binary(run, node, scope, out);
    case JN_CONCAT: return eval_concat(run, node, scope, out);
    case JN_COMPARE: return eval_compare(run, node, scope, out);
    case JN_CONDITION: return eval_condition(run, node, scope, out);
    default: return lw__jinja_fail(run, LW_UNSUPPORTED, "a statement stands where a value is wanted");
    }
}

lw_status lw__jinja_eval(jrun *run, const jnode *node, jscope *scope, jvalue *out)
{
    *out = (jvalue){ .kind = JK_UNDEFINED };
    TRY(lw__jinja_step(run, 0));
    TRY(lw__jinja_enter(run));
    const lw_status status = eval_kind(run, node, scope, out);
    run_leave(run);
    return status;
}
