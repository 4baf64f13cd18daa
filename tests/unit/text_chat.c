/* Chat templates of model folders: where the template is found, what it sees, what is refused. */
#include "text/chat.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

enum { PATH_BYTES = 256 };

static void write_file(const char *dir, const char *name, const char *text)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void remove_file(const char *dir, const char *name)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    unlink(path);
}

static int make_folder(void **state)
{
    char *dir = strdup("/tmp/lanewise-chat-XXXXXX");
    *state = dir;
    return dir == NULL || mkdtemp(dir) == NULL ? -1 : 0;
}

static int remove_folder(void **state)
{
    static const char *const names[] = { "chat_template.jinja", "chat_template.json",
        "tokenizer_config.json" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) remove_file(*state, names[i]);
    const int result = rmdir(*state);
    free(*state);
    return result;
}

typedef struct request {
    const char *messages, *tools, *kwargs; /* JSON or NULL */
    bool add_generation_prompt;
} request;

static json_t *parse(const char *text) { return text == NULL ? NULL
    : json_loads(text, JSON_DECODE_ANY, NULL); }

static lw_status render(const lw_chat_template *chat, const request *r, lw_chat_prompt *prompt, lw_diag *d)
{
    json_t *messages = parse(r->messages), *tools = parse(r->tools), *kwargs = parse(r->kwargs);
    const lw_chat_input input = { .messages = messages, .tools = tools, .kwargs = kwargs,
                                  .add_generation_prompt = r->add_generation_prompt };
    const lw_status status = lw_chat_render(chat, &input, prompt, d);
    json_decref(messages);
    json_decref(tools);
    json_decref(kwargs);
    return status;
}

static void expect_render(const lw_chat_template *chat, const request *r, const char *wanted)
{
    lw_chat_prompt prompt;
    lw_diag d;
    if (render(chat, r, &prompt, &d) != LW_OK) fail_msg("%s", d.text);
    assert_string_equal(prompt.text.bytes == NULL ? "" : prompt.text.bytes, wanted);
    assert_int_equal(prompt.text.count, prompt.origins.count);
    lw_chat_prompt_deinit(&prompt);
}

static void expect_folder(const char *dir, const char *wanted)
{
    lw_chat_template *chat;
    lw_diag d;
    if (lw_chat_template_open(dir, &chat, &d) != LW_OK) fail_msg("%s", d.text);
    expect_render(chat, &(request){ .messages = "[]" }, wanted);
    lw_chat_template_close(chat);
}

static void folders_are_searched_in_order(void **state)
{
    const char *dir = *state;
    lw_chat_template *chat;
    lw_diag d;
    assert_int_equal(lw_chat_template_open(dir, &chat, &d), LW_NOT_FOUND);
    assert_null(chat);
    assert_non_null(strstr(d.text, dir));
    write_file(dir, "tokenizer_config.json",
               "{\"bos_token\": \"<b>\", \"eos_token\": {\"content\": \"<e>\"}}");
    assert_int_equal(lw_chat_template_open(dir, &chat, &d), LW_NOT_FOUND);
    write_file(dir, "tokenizer_config.json",
               "{\"bos_token\": \"<b>\", \"eos_token\": {\"content\": \"<e>\"}, \"chat_template\": "
               "[{\"name\": \"tool_use\", \"template\": \"no\"}, {\"name\": \"default\", "
               "\"template\": \"list {{ bos_token }}{{ eos_token }}\"}]}");
    expect_folder(dir, "list <b><e>");
    write_file(dir, "tokenizer_config.json", "{\"chat_template\": \"config [{{ bos_token }}]\"}");
    expect_folder(dir, "config []");
    write_file(dir, "chat_template.json", "{\"chat_template\": \"json\"}");
    expect_folder(dir, "json");
    write_file(dir, "chat_template.jinja", "jinja\n");
    expect_folder(dir, "jinja");
}

static void broken_files_are_named(void **state)
{
    const char *dir = *state;
    lw_chat_template *chat;
    lw_diag d;
    write_file(dir, "tokenizer_config.json", "{");
    assert_int_equal(lw_chat_template_open(dir, &chat, &d), LW_BAD_MODEL);
    assert_non_null(strstr(d.text, "tokenizer_config.json: line 1"));
    write_file(dir, "tokenizer_config.json", "{}");
    write_file(dir, "chat_template.jinja", "ok\n{% if %}");
    assert_int_equal(lw_chat_template_open(dir, &chat, &d), LW_BAD_INPUT);
    assert_non_null(strstr(d.text, "chat_template.jinja: line 2: "));
    assert_null(chat);
}

static lw_chat_template *parse_template(const char *source)
{
    lw_chat_template *chat;
    lw_diag d;
    if (lw_chat_template_parse(source, strlen(source), "test", "<b>", NULL, &chat, &d) != LW_OK)
        fail_msg("%s", d.text);
    return chat;
}

static void settings_of_another_type_are_named(void **state)
{
    static const struct { const char *file, *named; } bad[] = {
        { "[]", "not an object" },
        { "{\"bos_token\": 5}", "bos_token" },
        { "{\"eos_token\": {\"content\": 7}}", "eos_token" },
        { "{\"chat_template\": 5}", "chat_template" },
    };
    const char *dir = *state;
    lw_chat_template *chat = NULL;
    lw_diag d;
    write_file(dir, "chat_template.jinja", "x");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_file(dir, "tokenizer_config.json", bad[i].file);
        assert_int_equal(lw_chat_template_open(dir, &chat, &d), LW_BAD_MODEL);
        assert_non_null(strstr(d.text, bad[i].named));
    }
    write_file(dir, "tokenizer_config.json", "{\"bos_token\": null, \"eos_token\": {\"content\": \"e\"}}");
    assert_int_equal(lw_chat_template_open(dir, &chat, &d), LW_OK);
    lw_chat_template_close(chat);
}

static void templates_see_their_variables(void **state)
{
    (void)state;
    lw_chat_template *chat = parse_template("{{ bos_token }}{{ eos_token }}|{{ tools }}|{{ documents }}|"
                                            "{{ add_generation_prompt }}|{{ messages[0].content is none }}|"
                                            "{{ k is defined }}{{ k }}");
    expect_render(chat, &(request){ .messages = "[{\"content\": null}]" }, "<b>|None|None|False|True|False");
    expect_render(chat,
                  &(request){ .messages = "[{}]", .tools = "[1]",
                      .kwargs = "{\"k\": \"v\", \"documents\": []}",
                                    .add_generation_prompt = true }, "<b>|[1]|[]|True|False|Truev");
    lw_chat_template_close(chat);
}

static void outside_values_are_marked(void **state)
{
    (void)state;
    static const char wanted_text[] = "<b>Utk", wanted_origins[] = "000111";
    lw_chat_template *chat = parse_template("{{ bos_token }}{{ messages[0].content }}{{ tools[0] }}{{ k }}");
    const request r = { .messages = "[{\"content\": \"U\"}]", .tools = "[\"t\"]",
        .kwargs = "{\"k\": \"k\"}" };
    lw_chat_prompt prompt;
    assert_int_equal(render(chat, &r, &prompt, NULL), LW_OK);
    assert_string_equal(prompt.text.bytes, wanted_text);
    for (size_t i = 0; i < prompt.origins.count; i++)
        assert_int_equal(prompt.origins.bytes[i] == LW_ORIGIN_OUTSIDE, wanted_origins[i] == '1');
    lw_chat_prompt_deinit(&prompt);
    lw_chat_template_close(chat);
}

static void bad_requests_are_refused(void **state)
{
    (void)state;
    lw_chat_template *chat = parse_template("{{ raise_exception('no: ' ~ messages | length) }}");
    static const struct row {
        request r;
        const char *words;
    } rows[] = {
        { { .messages = NULL }, "messages are an array" },
        { { .messages = "{}" }, "messages are an array" },
        { { .messages = "[]", .kwargs = "[]" }, "template arguments are an object" },
        { { .messages = "[]", .kwargs = "{\"messages\": []}" }, "'messages' is set by the request" },
        { { .messages = "[1]" }, "chat template raises: no: 1" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lw_chat_prompt prompt;
        lw_diag d;
        assert_int_equal(render(chat, &rows[i].r, &prompt, &d), LW_BAD_INPUT);
        if (strstr(d.text, rows[i].words) == NULL) fail_msg("%s", d.text);
        assert_null(prompt.text.bytes);
        lw_chat_prompt_deinit(&prompt);
    }
    lw_chat_template_close(chat);
}

static void one_template_renders_again_and_again(void **state)
{
    (void)state;
    lw_chat_template *chat = parse_template("{% set n = namespace(c=0) %}{% for m in messages %}"
                                            "{% set n.c = n.c + 1 %}"
                                            "{% endfor %}{{ n.c }}");
    for (int i = 0; i < 3; i++) expect_render(chat, &(request){ .messages = "[1, 2]" }, "2");
    lw_chat_template_close(chat);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(folders_are_searched_in_order, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(broken_files_are_named, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(settings_of_another_type_are_named, make_folder, remove_folder),
        cmocka_unit_test(templates_see_their_variables),
        cmocka_unit_test(outside_values_are_marked),
        cmocka_unit_test(bad_requests_are_refused),
        cmocka_unit_test(one_template_renders_again_and_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
