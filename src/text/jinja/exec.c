/* Statements other than loops. They write to run->output. */
#include "text/jinja/run.h"

/* Runs body with its output caught. */
lw_status lw__jinja_catch(jrun *run, const jnode *body, jscope *scope, lw_text *out)
{
    jbuild caught = { .run = run };
    jbuild *outer = run->output;
    run->output = &caught;
    const lw_status status = lw__jinja_exec(run, body, scope);
    run->output = outer;
    *out = lw__jinja_built(&caught);
    return status;
}

static lw_status exec_output(jrun *run, const jnode *node, jscope *scope)
{
    jvalue value;
    lw_text text;
    TRY(lw__jinja_eval(run, node->left, scope, &value));
    TRY(lw__jinja_text(run, value, &text));
    return lw__jinja_put(run->output, text);
}

static lw_status exec_body(jrun *run, const jnode *node, jscope *scope)
{
    for (size_t i = 0; i < node->count && run->flow == JF_ON; i++)
        TRY(lw__jinja_exec(run, node->items[i], scope));
    return LW_OK;
}

static lw_status exec_if(jrun *run, const jnode *node, jscope *scope)
{
    for (size_t i = 0; i < node->count; i += 2) {
        jvalue condition;
        TRY(lw__jinja_eval(run, node->items[i], scope, &condition));
        if (lw__jinja_truth(condition)) return lw__jinja_exec(run, node->items[i + 1], scope);
    }
    return node->left == NULL ? LW_OK : lw__jinja_exec(run, node->left, scope);
}

static lw_status assign_tuple(jrun *run, const jnode *target, jscope *scope, jvalue value)
{
    jvalue *items;
    size_t count;
    if (value.kind == JK_UNDEFINED && target->count > 0)
        return lw__jinja_fail(run, LW_BAD_INPUT, "not enough values to unpack");
    TRY(lw__jinja_items(run, value, &items, &count));
    if (count != target->count)
        return lw__jinja_fail(run, LW_BAD_INPUT, "%zu values to unpack into %zu names", count, target->count);
    for (size_t i = 0; i < count; i++) TRY(lw__jinja_assign(run, target->items[i], scope, items[i]));
    return LW_OK;
}

lw_status lw__jinja_assign(jrun *run, const jnode *target, jscope *scope, jvalue value)
{
    if (target->kind == JN_NAME) return lw__jinja_set(run, scope, target->name, value);
    if (target->kind == JN_TUPLE) return assign_tuple(run, target, scope, value);
    jvalue owner;
    TRY(lw__jinja_eval(run, target->left, scope, &owner));
    if (owner.kind != JK_NAMESPACE)
        return lw__jinja_fail(run, LW_BAD_INPUT,
                              "cannot assign attribute '%s' on a '%s'; only on a namespace",
                              target->name->text.bytes, lw__jinja_kind_name(owner));
    return lw__jinja_dict_set(run, &owner, value_text(target->name->text), value);
}

static lw_status exec_set(jrun *run, const jnode *node, jscope *scope)
{
    jvalue value;
    TRY(lw__jinja_eval(run, node->right, scope, &value));
    return lw__jinja_assign(run, node->left, scope, value);
}

/* The filters of a block see its text as JN_CAPTURED; blocks nest, so the outer one's is kept. */
static lw_status filter_captured(jrun *run, const jnode *filters, jscope *scope, lw_text text, jvalue *out)
{
    const jvalue outer = run->captured;
    run->captured = value_text(text);
    const lw_status status = lw__jinja_eval(run, filters, scope, out);
    run->captured = outer;
    return status;
}

static lw_status exec_set_block(jrun *run, const jnode *node, jscope *scope)
{
    jscope *inner;
    lw_text text;
    jvalue value;
    TRY(lw__jinja_scope(run, scope, &inner));
    TRY(lw__jinja_catch(run, node->items[0], inner, &text));
    if (run->flow != JF_ON) return LW_OK;
    TRY(filter_captured(run, node->right, inner, text, &value));
    return lw__jinja_assign(run, node->left, scope, value);
}

static lw_status exec_filter_block(jrun *run, const jnode *node, jscope *scope)
{
    jscope *inner;
    lw_text text;
    jvalue value;
    TRY(lw__jinja_scope(run, scope, &inner));
    TRY(lw__jinja_catch(run, node->right, inner, &text));
    if (run->flow != JF_ON) return LW_OK;
    TRY(filter_captured(run, node->left, inner, text, &value));
    TRY(lw__jinja_text(run, value, &text));
    return lw__jinja_put(run->output, text);
}

static lw_status make_macro(jrun *run, const jnode *node, jscope *scope, jvalue *out)
{
    jmacro *macro;
    TRY(lw__jinja_take(run, 1, sizeof *macro, &macro));
    *macro = (jmacro){ .node = node, .scope = scope };
    *out = (jvalue){ .kind = JK_MACRO, .as.macro = macro };
    return LW_OK;
}

static lw_status exec_macro(jrun *run, const jnode *node, jscope *scope)
{
    jvalue macro;
    TRY(make_macro(run, node, scope, &macro));
    return lw__jinja_set(run, scope, node->name, macro);
}

/* The call gets one more named argument: caller. */
static lw_status exec_call_block(jrun *run, const jnode *node, jscope *scope)
{
    jvalue caller, callee, result;
    jargs args;
    lw_text text;
    const jname **names;
    jvalue *values;
    const jname *word = lw__jinja_name_find(run->program, "caller", strlen("caller"));
    TRY(make_macro(run, node->right, scope, &caller));
    TRY(lw__jinja_eval(run, node->left->left, scope, &callee));
    TRY(lw__jinja_eval_args(run, node->left, scope, &args));
    TRY(lw__jinja_take(run, args.named_count + 1, sizeof *names, &names));
    TRY(lw__jinja_take(run, args.named_count + 1, sizeof *values, &values));
    for (size_t i = 0; i < args.named_count; i++) {
        names[i] = args.names[i];
        values[i] = args.values[i];
    }
    if (word == NULL) return lw__jinja_fail(run, LW_BAD_INPUT, "a call block, but no macro uses caller");
    names[args.named_count] = word;
    values[args.named_count++] = caller;
    args.names = names;
    args.values = values;
    TRY(lw__jinja_call(run, callee, &args, &result));
    TRY(lw__jinja_text(run, result, &text));
    return lw__jinja_put(run->output, text);
}

static lw_status exec_with(jrun *run, const jnode *node, jscope *scope)
{
    jscope *inner;
    TRY(lw__jinja_scope(run, scope, &inner));
    for (size_t i = 0; i < node->named_count; i++) {
        jvalue value;
        TRY(lw__jinja_eval(run, node->values[i], scope, &value));
        TRY(lw__jinja_set(run, inner, node->names[i], value));
    }
    return lw__jinja_exec(run, node->left, inner);
}

static lw_status exec_scope(jrun *run, const jnode *node, jscope *scope)
{
    jscope *inner;
    TRY(lw__jinja_scope(run, scope, &inner));
    return lw__jinja_exec(run, node->left, inner);
}

static lw_status exec_kind(jrun *run, const jnode *node, jscope *scope)
{
    switch ((int)node->kind) {
    case JN_BODY: return exec_body(run, node, scope);
    case JN_OUTPUT: return exec_output(run, node, scope);
    case JN_IF: return exec_if(run, node, scope);
    case JN_FOR: return lw__jinja_exec_for(run, node, scope);
    case JN_SET: return exec_set(run, node, scope);
    case JN_SET_BLOCK: return exec_set_block(run, node, scope);
    case JN_MACRO: return exec_macro(run, node, scope);
    case JN_CALL_BLOCK: return exec_call_block(run, node, scope);
    case JN_FILTER_BLOCK: return exec_filter_block(run, node, scope);
    case JN_WITH: return exec_with(run, node, scope);
    case JN_SCOPE: return exec_scope(run, node, scope);
    case JN_BREAK: run->flow = JF_BREAK; return LW_OK;
    case JN_CONTINUE: run->flow = JF_CONTINUE; return LW_OK;
    default: return lw__jinja_fail(run, LW_UNSUPPORTED, "a value stands where a statement is wanted");
    }
}

lw_status lw__jinja_exec(jrun *run, const jnode *node, jscope *scope)
{
    run->line = node->line;
    TRY(lw__jinja_step(run, 0));
    TRY(lw__jinja_enter(run));
    const lw_status status = exec_kind(run, node, scope);
    run_leave(run);
    return status;
}
