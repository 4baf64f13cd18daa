/* Requests from JSON: what lands where, every limit at its edges, and the conversation as it is passed on.
 */
#include "serve/request.h"

#include "base/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static const lw_request_rules rules = {
    .sampling = { .temperature = 0.5, .top_p = 1, .repetition_penalty = 1 }, .vocab = 100
};

static lw_failure failure; /* of the last request that was refused */

static bool read_text(lw_request *request, lw_request_kind kind, const char *body)
{
    return lw_request_read(request, kind, &rules, body, strlen(body), &failure);
}

/* A chat request with one more member. */
static bool read_member(lw_request *request, const char *member)
{
    char body[4096];
    snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]%s%s}",
             *member == '\0' ? "" : ",", member);
    return read_text(request, LW_REQUEST_CHAT, body);
}

static bool is_taken(const char *member)
{
    lw_request request;
    const bool is_read = read_member(&request, member);
    lw_request_deinit(&request);
    return is_read;
}

static void defaults(void **state)
{
    (void)state;
    lw_request request;
    assert_true(read_member(&request, ""));
    assert_true(request.sampling.temperature == 0.5 && request.drafts && !request.stream);
    assert_int_equal(lw_request_tokens_max(&request), -1);
    assert_int_equal(request.logprobs, -1);
    assert_false(request.has_seed);
    assert_null(request.model);
    lw_request_deinit(&request);
}

static void values(void **state)
{
    (void)state;
    lw_request request;
    assert_true(read_member(
        &request, "\"temperature\":0.25,\"top_k\":7,\"seed\":9223372036854775807,\"max_tokens\":5,"
                  "\"stop\":[\"a\",\"bc\"],\"logit_bias\":{\"99\":-100,\"0\":2.5},\"stream\":true,"
                  "\"stream_options\":{\"include_usage\":true},\"logprobs\":true,\"top_logprobs\":3,"
                  "\"ignore_eos\":true,\"draft\":false,\"model\":\"m\""));
    assert_true(request.sampling.temperature == 0.25 && request.sampling.top_k == 7);
    assert_true(request.has_seed && request.seed == INT64_MAX);
    assert_int_equal(lw_request_tokens_max(&request), 5);
    assert_int_equal(request.stop_count, 2);
    assert_string_equal(request.stops[1].bytes, "bc");
    assert_int_equal(request.bias_count, 2);
    assert_true(request.stream && request.include_usage && request.ignore_end && !request.drafts);
    assert_int_equal(request.logprobs, 3);
    assert_string_equal(request.model, "m");
    lw_request_deinit(&request);
}

static void edges(void **state)
{
    (void)state;
    static const struct {
        const char *member;
        bool is_taken;
    } cases[] = {
        { "\"temperature\":0", true },
        { "\"temperature\":100", true },
        { "\"temperature\":100.01", false },
        { "\"temperature\":-0.01", false },
        { "\"top_p\":1e-9", true },
        { "\"top_p\":0", false },
        { "\"top_p\":1", true },
        { "\"top_p\":1.001", false },
        { "\"top_k\":-1", true },
        { "\"top_k\":-2", false },
        { "\"top_k\":2147483647", true },
        { "\"top_k\":2147483648", false },
        { "\"seed\":0", true },
        { "\"seed\":9223372036854775808", false },
        { "\"seed\":-1", false },
        { "\"seed\":1e3", true },
        { "\"seed\":1e30", false },
        { "\"max_tokens\":0", true },
        { "\"max_tokens\":-1", false },
        { "\"max_tokens\":1e12", true },
        { "\"max_tokens\":0.5", false },
        { "\"n\":1", true },
        { "\"n\":2", false },
        { "\"logit_bias\":{\"99\":1}", true },
        { "\"logit_bias\":{\"100\":1}", false },
        { "\"logit_bias\":{\"0\":100}", true },
        { "\"logit_bias\":{\"0\":-100.1}", false },
        { "\"logit_bias\":{\"\":1}", false },
        { "\"logprobs\":true,\"top_logprobs\":20", true },
        { "\"logprobs\":true,\"top_logprobs\":21", false },
        { "\"top_logprobs\":1", false },
        { "\"stream_options\":{\"include_usage\":true}", false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (is_taken(cases[i].member) != cases[i].is_taken) print_error("%s\n", cases[i].member);
        assert_int_equal(is_taken(cases[i].member), cases[i].is_taken);
    }
}

static void stop_limits(void **state)
{
    (void)state;
    for (int more = -1; more <= 1; more++) {
        char member[LW_LIMIT_STOP_BYTES + 100];
        snprintf(member, sizeof member, "\"stop\":\"%0*d\"", LW_LIMIT_STOP_BYTES + more, 0);
        assert_int_equal(is_taken(member), more <= 0);
        int at = snprintf(member, sizeof member, "\"stop\":[\"x\"");
        for (int i = 1; i < LW_LIMIT_STOPS + more; i++)
            at += snprintf(member + at, sizeof member - (size_t)at, ",\"x\"");
        snprintf(member + at, sizeof member - (size_t)at, "]");
        assert_int_equal(is_taken(member), more <= 0);
    }
}

/* What is in the messages is the API's to judge; only what an HTTP client says about them is read here. */
static void conversation(void **state)
{
    (void)state;
#define MESSAGES "\"messages\":[{\"role\":\"wizard\",\"content\":5}]"
    static const struct {
        const char *members, *chat;
    } cases[] = {
        { "", "{" MESSAGES ",\"chat_template_kwargs\":{}}" },
        { ",\"tools\":[1],\"tool_choice\":\"auto\",\"temperature\":1,\"reasoning_effort\":\"low\"",
          "{" MESSAGES ",\"chat_template_kwargs\":{\"tool_choice\":\"auto\","
          "\"reasoning_effort\":\"low\"},\"tools\":[1]}" },
        { ",\"tools\":[1],\"tool_choice\":\"none\"",
          "{" MESSAGES ",\"chat_template_kwargs\":{\"tool_choice\":\"none\"}}" },
        { ",\"chat_template_kwargs\":{\"reasoning_effort\":3},\"reasoning_effort\":\"low\"",
          "{" MESSAGES ",\"chat_template_kwargs\":{\"reasoning_effort\":3}}" },
        { ",\"chat_template_kwargs\":7,\"add_generation_prompt\":8",
          "{" MESSAGES ",\"add_generation_prompt\":8,\"chat_template_kwargs\":7}" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char body[512];
        lw_request request;
        snprintf(body, sizeof body, "{" MESSAGES "%s}", cases[i].members);
        assert_true(read_text(&request, LW_REQUEST_CHAT, body));
        assert_string_equal(request.chat, cases[i].chat);
        lw_request_deinit(&request);
    }
#undef MESSAGES
}

static void prompts(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        bool is_taken;
    } cases[] = {
        { "{\"prompt\":\"x\"}", true },
        { "{\"prompt\":[0,99]}", true },
        { "{\"prompt\":[100]}", false },
        { "{\"prompt\":[-1]}", false },
        { "{\"prompt\":[[1,2]]}", true },
        { "{\"prompt\":[[1],[2]]}", false },
        { "{\"prompt\":[\"x\"]}", true },
        { "{\"prompt\":[\"x\",1]}", false },
        { "{\"prompt\":[1,\"x\"]}", false },
        { "{\"prompt\":[1.5]}", false },
        { "{\"prompt\":[]}", false },
        { "{}", false },
        { "{\"prompt\":[1.0]}", false },
        { "{\"prompt\":[true]}", false },
        { "[]", false },
        { "", false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lw_request request;
        assert_int_equal(read_text(&request, LW_REQUEST_COMPLETION, cases[i].body), cases[i].is_taken);
        lw_request_deinit(&request);
    }
}

static void failures_name_the_field(void **state)
{
    (void)state;
    assert_false(is_taken("\"seed\":18446744073709551616"));
    assert_string_equal(failure.param, "seed");
    assert_int_equal(failure.code, 400);
    assert_false(is_taken("\"temperature\":\"hot\""));
    assert_string_equal(failure.text, "temperature must be a number, not a string");
    json_t *object = lw_failure_json(&failure);
    char *text = json_dumps(object, JSON_COMPACT);
    assert_string_equal(text, "{\"error\":{\"message\":\"temperature must be a number, not a string\","
                              "\"type\":\"invalid_request_error\",\"param\":\"temperature\",\"code\":null}}");
    free(text);
    json_decref(object);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(values),
        cmocka_unit_test(edges),
        cmocka_unit_test(stop_limits),
        cmocka_unit_test(conversation),
        cmocka_unit_test(prompts),
        cmocka_unit_test(failures_name_the_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
