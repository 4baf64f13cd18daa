/* Calls: macros, the global functions, methods. */
#include "text/jinja/run.h"

#include "base/size.h"

enum { RANGE_ITEMS_MAX = 100000 /* the sandbox's own limit */ };

static lw_status bind_position(jrun *run, const jnode *macro, jscope *scope, const jargs *args)
{
    if (args->count > macro->named_count && !macro->uses_varargs)
        return lw__jinja_fail(run, LW_BAD_INPUT, "macro '%s' takes not more than %zu arguments",
                              macro->name == NULL ? "caller" : macro->name->text.bytes, macro->named_count);
    for (size_t i = 0; i < args->count && i < macro->named_count; i++)
        TRY(lw__jinja_set(run, scope, macro->names[i], args->items[i]));
    if (!macro->uses_varargs) return LW_OK;
    jvalue rest;
    TRY(lw__jinja_list(run, JK_TUPLE, args->count, &rest));
    for (size_t i = macro->named_count; i < args->count; i++) lw__jinja_list_push(&rest, args->items[i]);
    return lw__jinja_set(run, scope, lw__jinja_name_find(run->program, "varargs", strlen("varargs")), rest);
}

static size_t param_at(const jnode *macro, const jname *name)
{
    size_t at = 0;
    while (at < macro->named_count && macro->names[at] != name) at++;
    return at;
}

static lw_status bind_named(jrun *run, const jnode *macro, jscope *scope, const jargs *args)
{
    jvalue rest;
    TRY(lw__jinja_dict(run, JK_DICT, args->named_count, &rest));
    for (size_t i = 0; i < args->named_count; i++) {
        const jname *name = args->names[i];
        const size_t at = param_at(macro, name);
        const bool is_caller = at == macro->named_count && macro->uses_caller &&
            text_is(name->text, "caller");
        if (at < args->count && at < macro->named_count)
            return lw__jinja_fail(run, LW_BAD_INPUT, "macro argument '%s' given twice", name->text.bytes);
        if (at < macro->named_count || is_caller) TRY(lw__jinja_set(run, scope, name, args->values[i]));
        else if (macro->uses_kwargs)
            TRY(lw__jinja_dict_set(run, &rest, value_text(name->text), args->values[i]));
        else return lw__jinja_fail(run, LW_BAD_INPUT, "macro '%s' takes no keyword argument '%s'",
                                   macro->name == NULL ? "caller" : macro->name->text.bytes,
                                       name->text.bytes);
    }
    if (!macro->uses_kwargs) return LW_OK;
    return lw__jinja_set(run, scope, lw__jinja_name_find(run->program, "kwargs", strlen("kwargs")), rest);
}

/* Defaults are computed at the call, in order, and see the parameters before them. */
static lw_status bind_defaults(jrun *run, const jnode *macro, jscope *scope, const jargs *args)
{
    for (size_t i = args->count; i < macro->named_count; i++) {
        bool is_given = false;
        for (size_t k = 0; k < args->named_count; k++) is_given |= args->names[k] == macro->names[i];
        if (is_given) continue;
        jvalue value;
        if (macro->values[i] != NULL) TRY(lw__jinja_eval(run, macro->values[i], scope, &value));
        else TRY(lw__jinja_undefined_hint(run, "a macro parameter was not provided", &value));
        TRY(lw__jinja_set(run, scope, macro->names[i], value));
    }
    return LW_OK;
}

static lw_status call_macro(jrun *run, const jmacro *macro, const jargs *args, jvalue *out)
{
    const jnode *node = macro->node;
    jscope *scope;
    TRY(lw__jinja_scope(run, macro->scope, &scope));
    if (node->uses_caller) {
        jvalue none;
        TRY(lw__jinja_undefined_hint(run, "No caller defined", &none));
        TRY(lw__jinja_set(run, scope, lw__jinja_name_find(run->program, "caller", strlen("caller")), none));
    }
    TRY(bind_position(run, node, scope, args));
    TRY(bind_named(run, node, scope, args));
    TRY(bind_defaults(run, node, scope, args));
    lw_text text;
    const int line = run->line;
    TRY(lw__jinja_catch(run, node->left, scope, &text));
    run->line = line;
    *out = value_text(text);
    return LW_OK;
}

static lw_status call_range(jrun *run, const jargs *args, jvalue *out)
{
    int64_t parts[3] = { 0, 0, 1 };
    uint8_t origin = LW_ORIGIN_TRUSTED;
    if (args->count < 1 || args->count > 3 || args->named_count > 0)
        return lw__jinja_fail(run, LW_BAD_INPUT, "range takes one to three numbers");
    for (size_t i = 0; i < args->count; i++) {
        TRY(lw__jinja_need_int(run, "range", &args->items[i], &parts[args->count == 1 ? 1 : i]));
        origin |= args->items[i].origin;
    }
    const int64_t start = parts[0], stop = parts[1], step = parts[2];
    if (step == 0) return lw__jinja_fail(run, LW_BAD_INPUT, "range: a step of zero");
    const __int128 distance = step > 0 ? (__int128)stop - start : (__int128)start - stop;
    const __int128 stride = step > 0 ? (__int128)step : -(__int128)step;
    const __int128 count = distance <= 0 ? 0 : (distance - 1) / stride + 1;
    if (count > RANGE_ITEMS_MAX)
        return lw__jinja_fail(run, LW_BAD_INPUT, "range: more than %d items", RANGE_ITEMS_MAX);
    TRY(lw__jinja_step(run, (size_t)count * sizeof(jvalue)));
    TRY(lw__jinja_list(run, JK_RANGE, (size_t)count, out));
    for (int64_t i = 0; i < (int64_t)count; i++)
        lw__jinja_list_push(out, value_int(start + i * step, origin));
    out->origin = origin;
    out->as.list->start = start;
    out->as.list->stop = stop;
    out->as.list->step = step;
    return LW_OK;
}

/* dict(x, a=1) and namespace(x, a=1): a mapping, then names */
static lw_status call_mapping(jrun *run, jkind kind, const jargs *args, jvalue *out)
{
    TRY(lw__jinja_dict(run, kind, args->named_count, out));
    if (args->count > 1)
        return lw__jinja_fail(run, LW_BAD_INPUT, "dict and namespace take one positional argument");
    if (args->count == 1) {
        const jvalue from = args->items[0];
        if (from.kind != JK_DICT)
            return lw__jinja_fail(run, LW_UNSUPPORTED, "dict or namespace of a '%s' is not supported",
                                  lw__jinja_kind_name(from));
        out->origin |= from.origin;
        for (size_t i = 0; i < from.as.dict->count; i++)
            TRY(lw__jinja_dict_set(run, out, from.as.dict->keys[i], from.as.dict->values[i]));
    }
    for (size_t i = 0; i < args->named_count; i++)
        TRY(lw__jinja_dict_set(run, out, value_text(args->names[i]->text), args->values[i]));
    return LW_OK;
}

static lw_status call_dict(jrun *run, const jargs *args, jvalue *out)
{
    return call_mapping(run, JK_DICT, args, out);
}

static lw_status call_namespace(jrun *run, const jargs *args, jvalue *out)
{
    return call_mapping(run, JK_NAMESPACE, args, out);
}

static lw_status call_raise(jrun *run, const jargs *args, jvalue *out)
{
    static const char *const params[] = { "message", NULL };
    const jvalue *message;
    lw_text text;
    *out = value_none(LW_ORIGIN_TRUSTED);
    TRY(lw__jinja_bind(run, "raise_exception", args, params, &message));
    if (message == NULL) return lw__jinja_fail(run, LW_BAD_INPUT, "raise_exception needs a message");
    TRY(lw__jinja_text(run, *message, &text));
    return lw_fail(run->diag, LW_BAD_INPUT, "chat template raises: %.*s",
                   (int)size_min(text.count, LW_DIAG_BYTES),
                   text.bytes);
}

struct jbuiltin {
    const char *name;
    lw_status (*call)(jrun *run, const jargs *args, jvalue *out); /* NULL: refused by name */
};

static const jbuiltin builtins[] = {
    { "range", call_range },
    { "dict", call_dict },
    { "namespace", call_namespace },
    { "raise_exception", call_raise },
    { "strftime_now", NULL },
    { "cycler", NULL },
    { "joiner", NULL },
    { "lipsum", NULL },
    { "self", NULL },
};

const jbuiltin *lw__jinja_builtin(lw_text name)
{
    for (size_t i = 0; i < sizeof builtins / sizeof builtins[0]; i++)
        if (text_is(name, builtins[i].name)) return &builtins[i];
    return NULL;
}

static lw_status call_kind(jrun *run, jvalue callee, const jargs *args, jvalue *out)
{
    switch ((int)callee.kind) {
    case JK_UNDEFINED: return lw__jinja_fail_undefined(run, callee);
    case JK_MACRO: return call_macro(run, callee.as.macro, args, out);
    case JK_METHOD: break;
    case JK_BUILTIN:
        if (callee.as.builtin->call != NULL) return callee.as.builtin->call(run, args, out);
        return lw__jinja_fail(run, LW_UNSUPPORTED, "the function '%s' is not supported",
                              callee.as.builtin->name);
    case JK_LOOP: return lw__jinja_fail(run, LW_UNSUPPORTED, "recursive loops are not supported");
    default: return lw__jinja_fail(run, LW_BAD_INPUT, "a '%s' cannot be called", lw__jinja_kind_name(callee));
    }
    const jmethod *method = callee.as.method;
    if (method->owner.kind == JK_LOOP)
        return lw__jinja_loop_call(run, method->owner.as.loop, method->name, args, out);
    return lw__jinja_method(run, method->owner, method->name, args, out);
}

lw_status lw__jinja_call(jrun *run, jvalue callee, const jargs *args, jvalue *out)
{
    TRY(lw__jinja_step(run, 0));
    TRY(lw__jinja_enter(run));
    const lw_status status = call_kind(run, callee, args, out);
    run_leave(run);
    return status;
}
