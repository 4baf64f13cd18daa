/* Arguments of filters, tests and methods, matched to parameter names; see run.h. */
#include "text/jinja/run.h"

static size_t param_index(const char *const *params, lw_text name)
{
    size_t at = 0;
    while (params[at] != NULL && !text_is(name, params[at])) at++;
    return at;
}

lw_status lw__jinja_bind(jrun *run, const char *what, const jargs *args, const char *const *params,
                         const jvalue **out)
{
    size_t count = 0;
    for (; params[count] != NULL; count++) out[count] = NULL;
    if (args->count > count)
        return lw__jinja_fail(run, LW_BAD_INPUT, "%s takes at most %zu arguments, %zu are given", what, count,
                              args->count);
    for (size_t i = 0; i < args->count; i++) out[i] = &args->items[i];
    for (size_t i = 0; i < args->named_count; i++) {
        const lw_text name = args->names[i]->text;
        const size_t at = param_index(params, name);
        if (at == count)
            return lw__jinja_fail(run, LW_BAD_INPUT, "%s takes no argument '%s'", what, name.bytes);
        if (out[at] != NULL)
            return lw__jinja_fail(run, LW_BAD_INPUT, "%s: argument '%s' given twice", what, name.bytes);
        out[at] = &args->values[i];
    }
    return LW_OK;
}

lw_status lw__jinja_need_text(jrun *run, const char *what, const jvalue *v, lw_text *out)
{
    if (v == NULL) return lw__jinja_fail(run, LW_BAD_INPUT, "%s: an argument is missing", what);
    if (v->kind == JK_UNDEFINED) return lw__jinja_fail_undefined(run, *v);
    if (v->kind != JK_STRING)
        return lw__jinja_fail(run, LW_BAD_INPUT, "%s needs a string, not a '%s'", what,
                              lw__jinja_kind_name(*v));
    *out = v->as.text;
    return LW_OK;
}

lw_status lw__jinja_need_int(jrun *run, const char *what, const jvalue *v, int64_t *out)
{
    if (v == NULL) return lw__jinja_fail(run, LW_BAD_INPUT, "%s: an argument is missing", what);
    if (v->kind == JK_UNDEFINED) return lw__jinja_fail_undefined(run, *v);
    if (!value_is_integer(*v))
        return lw__jinja_fail(run, LW_BAD_INPUT, "%s needs an integer, not a '%s'", what,
                              lw__jinja_kind_name(*v));
    *out = value_integer(*v);
    return LW_OK;
}
