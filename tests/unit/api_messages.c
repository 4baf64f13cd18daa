/* Chat requests: what is refused is refused by the name of the field, and what is spelled differently but
 * means the same becomes the same prompt.
 */
#include "api_open.h"

#include <stdlib.h>

typedef struct refusal {
    const char *request;
    lw_result result;
    const char *field;
} refusal;

#define USER "{\"role\":\"user\",\"content\":\"a\"}"
#define CALL(function) \
    "{\"messages\":[" USER ",{\"role\":\"assistant\",\"tool_calls\":[{\"function\":" function "}]}]}"

static const refusal refusals[] = {
    { "", LW_RESULT_BAD_INPUT, "" },
    { "{", LW_RESULT_BAD_INPUT, "" },
    { "[]", LW_RESULT_BAD_INPUT, "" },
    { "{\"messages\":[" USER "]} x", LW_RESULT_BAD_INPUT, "" },
    { "{}", LW_RESULT_BAD_INPUT, "messages" },
    { "{\"messages\":null}", LW_RESULT_BAD_INPUT, "messages" },
    { "{\"messages\":{}}", LW_RESULT_BAD_INPUT, "messages" },
    { "{\"messages\":[]}", LW_RESULT_BAD_INPUT, "messages" },
    { "{\"messages\":[" USER ",5]}", LW_RESULT_BAD_INPUT, "messages[1]" },
    { "{\"messages\":[{\"content\":\"a\"}]}", LW_RESULT_BAD_INPUT, "messages[0].role" },
    { "{\"messages\":[{\"role\":3,\"content\":\"a\"}]}", LW_RESULT_BAD_INPUT, "messages[0].role" },
    { "{\"messages\":[{\"role\":\"wizard\",\"content\":\"a\"}]}", LW_RESULT_BAD_INPUT, "messages[0].role" },
    { "{\"messages\":[{\"role\":\"user\",\"content\":5}]}", LW_RESULT_BAD_INPUT, "messages[0].content" },
    { "{\"messages\":[{\"role\":\"user\",\"content\":{}}]}", LW_RESULT_BAD_INPUT, "messages[0].content" },
    { "{\"messages\":[{\"role\":\"user\",\"content\":[\"a\"]}]}", LW_RESULT_BAD_INPUT,
      "messages[0].content[0]" },
    { "{\"messages\":[{\"role\":\"user\",\"content\":[{\"text\":\"a\"}]}]}", LW_RESULT_BAD_INPUT,
      "messages[0].content[0].type" },
    { "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"zzz\"}]}]}", LW_RESULT_UNSUPPORTED,
      "messages[0].content[0].type" },
    { "{\"messages\":[" USER "," USER
      ",{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image_url\"}]}]}",
      LW_RESULT_UNSUPPORTED, "messages[2].content[1].type" },
    { "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]}", LW_RESULT_BAD_INPUT,
      "messages[0].content[0].text" },
    { "{\"messages\":[{\"role\":\"assistant\",\"reasoning_content\":1}]}", LW_RESULT_BAD_INPUT,
      "messages[0].reasoning_content" },
    { "{\"messages\":[{\"role\":\"user\",\"name\":1}]}", LW_RESULT_BAD_INPUT, "messages[0].name" },
    { "{\"messages\":[{\"role\":\"tool\",\"tool_call_id\":1}]}", LW_RESULT_BAD_INPUT,
      "messages[0].tool_call_id" },
    { "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":{}}]}", LW_RESULT_BAD_INPUT,
      "messages[0].tool_calls" },
    { "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[1]}]}", LW_RESULT_BAD_INPUT,
      "messages[0].tool_calls[0]" },
    { "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{}]}]}", LW_RESULT_BAD_INPUT,
      "messages[0].tool_calls[0].function" },
    { CALL("{}"), LW_RESULT_BAD_INPUT, "messages[1].tool_calls[0].function.name" },
    { CALL("{\"name\":\"f\",\"arguments\":\"{\"}"), LW_RESULT_BAD_INPUT,
      "messages[1].tool_calls[0].function.arguments" },
    { CALL("{\"name\":\"f\",\"arguments\":\"[]\"}"), LW_RESULT_BAD_INPUT,
      "messages[1].tool_calls[0].function.arguments" },
    { CALL("{\"name\":\"f\",\"arguments\":[]}"), LW_RESULT_BAD_INPUT,
      "messages[1].tool_calls[0].function.arguments" },
    { "{\"messages\":[" USER "],\"tools\":{}}", LW_RESULT_BAD_INPUT, "tools" },
    { "{\"messages\":[" USER "],\"tools\":[\"f\"]}", LW_RESULT_BAD_INPUT, "tools[0]" },
    { "{\"messages\":[" USER "],\"tools\":[{\"function\":1}]}", LW_RESULT_BAD_INPUT, "tools[0].function" },
    { "{\"messages\":[" USER "],\"tools\":[{\"type\":\"function\"}]}", LW_RESULT_BAD_INPUT,
      "tools[0].function" },
    { "{\"messages\":[" USER "],\"tools\":[{\"function\":{}}]}", LW_RESULT_BAD_INPUT,
      "tools[0].function.name" },
    { "{\"messages\":[" USER "],\"chat_template_kwargs\":[]}", LW_RESULT_BAD_INPUT, "chat_template_kwargs" },
    { "{\"messages\":[" USER "],\"chat_template_kwargs\":{\"messages\":[]}}", LW_RESULT_BAD_INPUT,
      "messages" },
    { "{\"messages\":[" USER "],\"add_generation_prompt\":1}", LW_RESULT_BAD_INPUT, "add_generation_prompt" },
};

static void what_is_refused_is_named(void **state)
{
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const refusal *r = &refusals[i];
        lw_error error = { .text = "" };
        lw_prompt *prompt = (lw_prompt *)&error; /* has to be closed by the call */
        const lw_result result = lw_prompt_chat(*state, r->request, strlen(r->request), &prompt, &error);
        if (result != r->result || strcmp(error.field, r->field) != 0)
            fail_msg("%s: result %d, field \"%s\": %s", r->request, result, error.field, error.text);
        assert_null(prompt);
        assert_true(error.text[0] != '\0');
    }
}

static void same_meanings_are_same_prompts(void **state)
{
    static const char *const pairs[][2] = {
        { "{\"messages\":[{\"role\":\"user\",\"content\":\"\"}]}", "{\"messages\":[{\"role\":\"user\"}]}" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":\"\"}]}",
          "{\"messages\":[{\"role\":\"user\",\"content\":null}]}" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":\"\"}]}",
          "{\"messages\":[{\"role\":\"user\",\"content\":[]}]}" },
        { "{\"messages\":[{\"role\":\"user\",\"content\":\"a\\nb\"}]}",
          "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
          "{\"type\":\"text\",\"text\":\"b\"}]}]}" },
        { "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"}," USER "]}",
          "{\"messages\":[{\"role\":\"developer\",\"content\":\"s\"}," USER
          "],\"tools\":[],\"temperature\":{}}" },
        { CALL("{\"name\":\"f\",\"arguments\":{\"n\":5}}"),
          CALL("{\"name\":\"f\",\"arguments\":\"{\\\"n\\\":5}\"}") },
        { CALL("{\"name\":\"f\",\"arguments\":{}}"), CALL("{\"name\":\"f\"}") },
        { CALL("{\"name\":\"f\",\"arguments\":{}}"), CALL("{\"name\":\"f\",\"arguments\":\"\"}") },
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        lw_prompt *a = api_chat(*state, pairs[i][0]), *b = api_chat(*state, pairs[i][1]);
        api_expect_same_ids(a, b);
        lw_prompt_free(a);
        lw_prompt_free(b);
    }
}

/* Lists as long as they may be, and one longer. */
static void lists_have_limits(void **state)
{
    enum { BYTES = 1 << 20 };
    static const struct {
        const char *begin, *item, *end, *field;
        int most;
    } lists[] = {
        { "{\"messages\":[", USER, "]}", "messages", 16384 },
        { "{\"messages\":[{\"role\":\"user\",\"content\":[", "{\"type\":\"text\",\"text\":\"\"}", "]}]}",
          "messages[0].content", 4096 },
        { "{\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[", "{\"function\":{\"name\":\"f\"}}",
          "]}]}", "messages[0].tool_calls", 1024 },
        { "{\"messages\":[" USER "],\"tools\":[", "{\"name\":\"f\"}", "]}", "tools", 1024 },
    };
    char *request = malloc(BYTES);
    assert_non_null(request);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        for (int more = 0; more < 2; more++) {
            size_t at = (size_t)snprintf(request, BYTES, "%s", lists[i].begin);
            for (int j = 0; j < lists[i].most + more; j++)
                at += (size_t)snprintf(request + at, BYTES - at, "%s%s", j > 0 ? "," : "", lists[i].item);
            at += (size_t)snprintf(request + at, BYTES - at, "%s", lists[i].end);
            assert_true(at < BYTES - 1);
            lw_prompt *prompt;
            lw_error error = { .text = "" };
            const lw_result result = lw_prompt_chat(*state, request, at, &prompt, &error);
            if (result != (more ? LW_RESULT_BAD_INPUT : LW_RESULT_OK))
                fail_msg("%s: %s", lists[i].field, error.text);
            assert_string_equal(error.field, more ? lists[i].field : "");
            lw_prompt_free(prompt);
        }
    }
    free(request);
}

/* The deepest nesting that is read and one more: neither may reach the parser's own limits. */
static void nesting_has_a_limit(void **state)
{
    enum { DEEP = 20000 };
    const char *begin = "{\"messages\":[" USER "],\"x\":";
    const size_t begin_bytes = strlen(begin);
    char *request = malloc(begin_bytes + 2 * DEEP + 2);
    assert_non_null(request);
    static const size_t depths[] = { 98, 100, 5000, DEEP };
    for (size_t i = 0; i < sizeof depths / sizeof depths[0]; i++) {
        const size_t depth = depths[i];
        memcpy(request, begin, begin_bytes);
        memset(request + begin_bytes, '[', depth);
        memset(request + begin_bytes + depth, ']', depth);
        request[begin_bytes + 2 * depth] = '}';
        lw_prompt *prompt;
        lw_error error;
        const lw_result result =
            lw_prompt_chat(*state, request, begin_bytes + 2 * depth + 1, &prompt, &error);
        assert_int_equal(result, depth <= 98 ? LW_RESULT_OK : LW_RESULT_BAD_INPUT);
        lw_prompt_free(prompt);
    }
    free(request);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_refused_is_named),
        cmocka_unit_test(same_meanings_are_same_prompts),
        cmocka_unit_test(lists_have_limits),
        cmocka_unit_test(nesting_has_a_limit),
    };
    return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
