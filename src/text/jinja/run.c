/* Limits, errors, scopes, and the entry of a rendering; see run.h. */
#include "text/jinja/run.h"

#include "base/limits.h"
#include "text/jinja/c_locale.h"

#include <stdarg.h>
#include <stdio.h>

enum { BYTES_PER_STEP = 256 };

lw_jinja_limits lw_jinja_limits_default(void)
{
    return (lw_jinja_limits){
        .depth = LW_LIMIT_TEMPLATE_DEPTH,
        .frames = LW_LIMIT_TEMPLATE_FRAMES,
        .output_bytes = LW_LIMIT_TEMPLATE_OUTPUT,
        .memory_bytes = LW_LIMIT_TEMPLATE_MEMORY,
        .steps = LW_LIMIT_TEMPLATE_STEPS,
    };
}

lw_status lw__jinja_fail(const jrun *run, lw_status status, const char *format, ...)
{
    char text[LW_DIAG_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return lw_fail(run->diag, status, "%s: line %d: %s", run->program->name, run->line, text);
}

lw_status lw__jinja_step(jrun *run, size_t bytes)
{
    const size_t steps = 1 + bytes / BYTES_PER_STEP;
    if (steps > run->limits.steps - run->steps)
        return lw__jinja_fail(run, LW_NO_ROOM, "the template runs for more than %zu steps",
                              run->limits.steps);
    run->steps += steps;
    return LW_OK;
}

lw_status lw__jinja_enter(jrun *run)
{
    if (run->frames >= run->limits.frames)
        return lw__jinja_fail(run, LW_NO_ROOM, "calls and values nest deeper than %zu levels",
                              run->limits.frames);
    run->frames++;
    return LW_OK;
}

lw_status lw__jinja_take(jrun *run, size_t count, size_t item_bytes, void *out)
{
    void *memory = lw_arena_take_array(&run->arena, count, item_bytes);
    memcpy(out, &memory, sizeof memory);
    if (memory != NULL) return LW_OK;
    return lw__jinja_fail(run, LW_NO_ROOM, "the template needs more than %zu bytes of memory",
                          run->limits.memory_bytes);
}

lw_status lw__jinja_scope(jrun *run, jscope *parent, jscope **out)
{
    TRY(lw__jinja_take(run, 1, sizeof **out, out));
    (*out)->parent = parent;
    return LW_OK;
}

lw_status lw__jinja_set(jrun *run, jscope *scope, const jname *name, jvalue value)
{
    jbinding *binding = scope->first;
    while (binding != NULL && binding->name != name) binding = binding->next;
    if (binding == NULL) {
        TRY(lw__jinja_take(run, 1, sizeof *binding, &binding));
        binding->name = name;
        binding->next = scope->first;
        scope->first = binding;
    }
    binding->value = value;
    binding->is_set = true;
    return LW_OK;
}

lw_status lw__jinja_get(jrun *run, const jscope *scope, const jname *name, jvalue *out)
{
    for (; scope != NULL; scope = scope->parent) {
        for (const jbinding *b = scope->first; b != NULL; b = b->next) {
            if (b->name != name || !b->is_set) continue;
            *out = b->value;
            return LW_OK;
        }
    }
    const jbuiltin *builtin = lw__jinja_builtin(name->text);
    if (builtin == NULL) return lw__jinja_undefined(run, NULL, name->text, out);
    *out = (jvalue){ .kind = JK_BUILTIN, .as.builtin = builtin };
    return LW_OK;
}

/* Names that the template does not mention are not even converted. */
static lw_status set_variable(jrun *run, jscope *scope, const lw_jinja_variable *variable)
{
    const jname *name = lw__jinja_name_find(run->program, variable->name, strlen(variable->name));
    if (name == NULL) return LW_OK;
    jvalue value = value_bool(variable->truth, LW_ORIGIN_TRUSTED);
    if (variable->json != NULL) {
        TRY(lw__jinja_from_json(run, variable->json, &value));
    } else if (variable->text != NULL) {
        value = value_text(text_literal(variable->text));
        if (!lw__jinja_is_utf8(value.as.text.bytes, value.as.text.count))
            return lw__jinja_fail(run, LW_BAD_INPUT, "%s is not UTF-8", variable->name);
    }
    return lw__jinja_set(run, scope, name, value);
}

static lw_status render(jrun *run, const lw_jinja_input *input, lw_text *out)
{
    jscope *context, *top;
    TRY(lw__jinja_scope(run, NULL, &context));
    for (size_t i = 0; i < input->count; i++) TRY(set_variable(run, context, &input->variables[i]));
    TRY(lw__jinja_scope(run, context, &top));
    jbuild output = { .run = run };
    run->output = &output;
    TRY(lw__jinja_exec(run, run->program->body, top));
    *out = lw__jinja_built(&output);
    return LW_OK;
}

static lw_status hand_over(const jrun *run, lw_text from, lw_buf *text, lw_buf *origins)
{
    lw_status status = lw_buf_reserve(origins, from.count);
    if (status == LW_OK) status = lw_buf_append(text, from.bytes, from.count);
    if (status != LW_OK)
        return lw__jinja_fail(run, status, "no memory for a prompt of %zu bytes", from.count);
    if (from.origins != NULL) return lw_buf_append(origins, from.origins, from.count);
    memset(origins->bytes, LW_ORIGIN_TRUSTED, from.count);
    origins->count = from.count;
    return LW_OK;
}

lw_status lw_jinja_render(const lw_jinja *program, const lw_jinja_input *input, lw_buf *text, lw_buf *origins,
                          lw_diag *d)
{
    const c_locale locale = c_locale_enter();
    jrun run = { .program = program, .limits = input->limits, .diag = d, .line = 1 };
    run.grow.run = &run;
    lw_arena_init(&run.arena, input->limits.memory_bytes);
    lw_text out = { 0 };
    lw_status status = render(&run, input, &out);
    if (status == LW_OK) status = hand_over(&run, out, text, origins);
    if (status != LW_OK) lw_buf_clear(text);
    lw_arena_deinit(&run.arena);
    c_locale_leave(locale);
    return status;
}
