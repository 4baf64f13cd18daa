/* libFuzzer entry: template source, NUL, conversation JSON {messages, tools, and any other variable}.
 * Whatever renders must be UTF-8 with one origin a byte. Limits are small so that each input is quick.
 */
#include "text/jinja/jinja.h"
#include "text/jinja/text.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count);

enum { VARIABLES_MAX = 16 };

static size_t read_variables(json_t *conversation, lw_jinja_variable *variables)
{
    size_t count = 0;
    variables[count++] = (lw_jinja_variable){ .name = "bos_token", .text = "<s>" };
    variables[count++] = (lw_jinja_variable){ .name = "eos_token", .text = "</s>" };
    variables[count++] = (lw_jinja_variable){ .name = "add_generation_prompt", .truth = true };
    void *at = json_is_object(conversation) ? json_object_iter(conversation) : NULL;
    for (; at != NULL && count < VARIABLES_MAX; at = json_object_iter_next(conversation, at))
        variables[count++] = (lw_jinja_variable){ .name = json_object_iter_key(at),
            .json = json_object_iter_value(at) };
    return count;
}

static void render(const lw_jinja *program, json_t *conversation)
{
    lw_jinja_variable variables[VARIABLES_MAX];
    lw_diag d;
    lw_buf text, origins;
    lw_buf_init(&text, 0);
    lw_buf_init(&origins, 0);
    lw_jinja_input input = { .variables = variables, .count = read_variables(conversation, variables),
                             .limits = lw_jinja_limits_default() };
    input.limits.steps = 20000;
    input.limits.output_bytes = 1 << 20;
    input.limits.memory_bytes = 16 << 20;
    if (lw_jinja_render(program, &input, &text, &origins, &d) == LW_OK) {
        LW_ASSERT(text.count == origins.count);
        LW_ASSERT(text.count == 0 || lw__jinja_is_utf8(text.bytes, text.count));
        for (size_t i = 0; i < origins.count; i++) LW_ASSERT((uint8_t)origins.bytes[i] <= LW_ORIGIN_OUTSIDE);
    } else {
        LW_ASSERT(text.count == 0 && origins.count == 0);
        LW_ASSERT(d.text[0] != '\0');
    }
    lw_buf_deinit(&text);
    lw_buf_deinit(&origins);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count)
{
    const uint8_t *nul = count == 0 ? NULL : memchr(data, 0, count);
    const size_t source_count = nul == NULL ? count : (size_t)(nul - data);
    const char *rest = (const char *)data + source_count + (nul != NULL);
    lw_jinja *program;
    lw_diag d;
    if (lw_jinja_parse(count == 0 ? "" : (const char *)data, source_count, "fuzz", &program, &d) != LW_OK)
        return 0;
    json_t *conversation = json_loadb(rest, count - source_count - (nul != NULL), JSON_ALLOW_NUL, NULL);
    render(program, conversation);
    json_decref(conversation);
    lw_jinja_free(program);
    return 0;
}
