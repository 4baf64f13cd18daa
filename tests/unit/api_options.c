/* Options: every range is held at its edges and named; older and newer callers' structs; facts and defaults.
 */
#include "api_open.h"

#include <dirent.h>
#include <math.h>
#include <stdlib.h>

static void model_options_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        lw_model_options options;
        const char *field;
    } cases[] = {
        { { .struct_bytes = 3 }, "struct_bytes" },
        { { .struct_bytes = sizeof(lw_model_options), .threads = 257 }, "threads" },
        { { .struct_bytes = sizeof(lw_model_options), .lanes = 65 }, "lanes" },
        { { .struct_bytes = sizeof(lw_model_options), .context = (1 << 22) + 1 }, "context" },
        { { .struct_bytes = sizeof(lw_model_options), .chunk_rows = 8193 }, "chunk_rows" },
        { { .struct_bytes = sizeof(lw_model_options), .queue = 65537 }, "queue" },
        { { .struct_bytes = sizeof(lw_model_options), .round_ms = 60001 }, "round_ms" },
        { { .struct_bytes = sizeof(lw_model_options), .drafts_max = 65 }, "drafts_max" },
        { { .struct_bytes = sizeof(lw_model_options), .mtp_drafts = 17 }, "mtp_drafts" },
        { { .struct_bytes = sizeof(lw_model_options), .draft_match = 2 }, "draft_match" },
        { { .struct_bytes = sizeof(lw_model_options), .draft_match = 1025 }, "draft_match" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lw_error error;
        lw_model *model = (lw_model *)&error;
        assert_int_equal(lw_model_open(API_MODEL, &cases[i].options, &model, &error), LW_RESULT_BAD_INPUT);
        assert_string_equal(error.field, cases[i].field);
        assert_null(model);
    }
}

static void models_that_are_none_say_why(void **state)
{
    (void)state;
    lw_error error;
    lw_model *model;
    assert_int_equal(lw_model_open("models/absent", NULL, &model, &error), LW_RESULT_NOT_FOUND);
    assert_non_null(strstr(error.text, "models/absent"));
    assert_int_equal(lw_model_open("Makefile", NULL, &model, &error), LW_RESULT_BAD_INPUT);
    assert_int_equal(lw_model_open("docs", NULL, &model, &error), LW_RESULT_NOT_FOUND);
    lw_model_options options;
    lw_model_options_init(&options);
    options.device = "abacus";
    assert_int_equal(lw_model_open(API_MODEL, &options, &model, &error), LW_RESULT_BAD_INPUT);
    assert_non_null(strstr(error.text, "abacus"));
    assert_int_equal(lw_model_open(API_MODEL, &options, &model, NULL), LW_RESULT_BAD_INPUT);
    assert_null(model);
}

static void no_options_are_the_usual_ones(void **state)
{
    (void)state;
    lw_error error = { .text = "" };
    lw_model *model = NULL;
    if (lw_model_open(API_MODEL, NULL, &model, &error) != LW_RESULT_OK) fail_msg("%s", error.text);
    lw_model_close(model);
}

typedef struct request_case {
    const char *field;
    size_t at;          /* of the double in lw_request_options */
    double good[2], bad[2];
} request_case;

#define SAMPLING(member) offsetof(lw_request_options, sampling.member)

static const request_case reals[] = {
    { "temperature", SAMPLING(temperature), { 0, 100 }, { -0.1, 100.1 } },
    { "top_p", SAMPLING(top_p), { 0.001, 1 }, { 0, 1.001 } },
    { "min_p", SAMPLING(min_p), { 0, 1 }, { -0.001, 1.001 } },
    { "repetition_penalty", SAMPLING(repetition_penalty), { 0.001, 10 }, { 0, 10.1 } },
    { "presence_penalty", SAMPLING(presence_penalty), { -2, 2 }, { -2.1, 2.1 } },
    { "frequency_penalty", SAMPLING(frequency_penalty), { -2, 2 }, { -2.1, 2.1 } },
};

static lw_result try_open(lw_model *model, const lw_request_options *options, lw_error *error)
{
    static const int32_t ids[] = { 1, 2, 3 };
    lw_prompt *prompt;
    lw_reply *reply;
    *error = (lw_error){ .wanted = 0 };
    assert_int_equal(lw_prompt_ids(model, ids, 3, &prompt, error), LW_RESULT_OK);
    const lw_result result = lw_reply_open(model, prompt, options, &reply, error);
    assert_true((result == LW_RESULT_OK) == (reply != NULL));
    lw_prompt_free(prompt);
    lw_reply_close(reply);
    return result;
}

static void expect_refused(lw_model *model, const lw_request_options *options, const char *field)
{
    lw_error error;
    assert_int_equal(try_open(model, options, &error), LW_RESULT_BAD_INPUT);
    assert_string_equal(error.field, field);
    assert_non_null(strstr(error.text, field));
}

static void sampling_ranges_are_held_at_their_edges(void **state)
{
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++) {
        for (size_t edge = 0; edge < 2; edge++) {
            lw_request_options options;
            lw_error error;
            lw_request_options_init(*state, &options);
            double *value = (double *)((char *)&options + reals[i].at);
            *value = reals[i].good[edge];
            if (try_open(*state, &options, &error) != LW_RESULT_OK)
                fail_msg("%s: %s", reals[i].field, error.text);
            *value = reals[i].bad[edge];
            expect_refused(*state, &options, reals[i].field);
            *value = (double)NAN;
            expect_refused(*state, &options, reals[i].field);
        }
    }
}

static void other_request_options_are_refused_by_name(void **state)
{
    lw_request_options options;
    lw_model_facts facts;
    lw_model_read_facts(*state, &facts);
    lw_request_options_init(*state, &options);
    options.has_seed = true;
    options.seed = (uint64_t)1 << 63;
    expect_refused(*state, &options, "seed");
    options.has_seed = false;
    static const int32_t tops[] = { -2, 21 };
    for (size_t i = 0; i < 2; i++) {
        options.top_logprobs = tops[i];
        expect_refused(*state, &options, "top_logprobs");
    }
    options.top_logprobs = -1;
    const lw_token_bias biases[] = { { -1, 0.0f },     { (int32_t)facts.vocab, 0.0f }, { 1, 100.5f },
                                     { 1, -100.5f },   { 1, INFINITY },                { 1, NAN } };
    for (size_t i = 0; i < sizeof biases / sizeof biases[0]; i++) {
        options.biases = &biases[i];
        options.bias_count = 1;
        expect_refused(*state, &options, "logit_bias");
    }
    options.bias_count = 1025;
    expect_refused(*state, &options, "logit_bias");
}

static void room_is_counted(void **state)
{
    lw_request_options options;
    lw_error error;
    lw_request_options_init(*state, &options);
    options.tokens_max = 253;
    assert_int_equal(try_open(*state, &options, &error), LW_RESULT_OK);
    static const int64_t over[] = { 254, INT64_MAX };
    for (size_t i = 0; i < 2; i++) {
        options.tokens_max = over[i];
        assert_int_equal(try_open(*state, &options, &error), LW_RESULT_TOO_LONG);
        assert_int_equal(error.wanted, (uint64_t)over[i] + 3);
        assert_int_equal(error.there, 256);
        assert_string_equal(error.field, "tokens_max");
    }
    int32_t ids[256] = { 0 };
    lw_prompt *prompt;
    lw_reply *reply;
    assert_int_equal(lw_prompt_ids(*state, ids, 256, &prompt, &error), LW_RESULT_OK);
    assert_int_equal(lw_reply_open(*state, prompt, NULL, &reply, &error), LW_RESULT_TOO_LONG);
    assert_string_equal(error.field, "prompt");
    assert_null(reply);
    lw_prompt_free(prompt);
}

/* A struct of an older version is shorter; one of a newer version is longer and may not ask for the unknown.
 */
static void structs_of_other_versions(void **state)
{
    struct {
        lw_request_options known;
        uint64_t unknown;
    } newer = { .unknown = 0 };
    lw_error error;
    lw_request_options_init(*state, &newer.known);
    newer.known.struct_bytes = sizeof newer;
    assert_int_equal(try_open(*state, &newer.known, &error), LW_RESULT_OK);
    newer.unknown = 1;
    assert_int_equal(try_open(*state, &newer.known, &error), LW_RESULT_UNSUPPORTED);
    assert_string_equal(error.field, "struct_bytes");
    newer.known.struct_bytes = offsetof(lw_request_options, top_logprobs);
    newer.known.top_logprobs = 99; /* beyond what the caller says it has */
    assert_int_equal(try_open(*state, &newer.known, &error), LW_RESULT_OK);
}

static void the_queue_has_an_end(void **state)
{
    (void)state;
    lw_model_options model_options;
    lw_model_options_init(&model_options);
    model_options.context = 64;
    model_options.queue = 2;
    model_options.threads = 1;
    lw_model *model;
    lw_error error;
    assert_int_equal(lw_model_open(API_MODEL, &model_options, &model, &error), LW_RESULT_OK);
    static const int32_t ids[] = { 1, 2, 3 };
    lw_prompt *prompt;
    lw_reply *replies[2], *third;
    assert_int_equal(lw_prompt_ids(model, ids, 3, &prompt, &error), LW_RESULT_OK);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(lw_reply_open(model, prompt, NULL, &replies[i], &error), LW_RESULT_OK);
    assert_int_equal(lw_reply_open(model, prompt, NULL, &third, &error), LW_RESULT_BUSY);
    assert_null(third);
    lw_reply_cancel(replies[0]);
    assert_int_equal(lw_reply_open(model, prompt, NULL, &third, &error), LW_RESULT_OK);
    for (size_t i = 0; i < 2; i++) lw_reply_close(replies[i]);
    lw_reply_close(third);
    lw_prompt_free(prompt);
    lw_model_close(model);
}

static size_t files_in(const char *dir)
{
    size_t count = 0;
    DIR *open = opendir(dir);
    for (const struct dirent *at = open != NULL ? readdir(open) : NULL; at != NULL; at = readdir(open))
        count += at->d_name[0] != '.';
    if (open != NULL) closedir(open);
    return count;
}

/* Timed once and kept; where nothing can be kept the model opens all the same. */
static void round_costs_are_kept_where_they_can_be(void **state)
{
    (void)state;
    char folder[] = "/tmp/lanewise-open-XXXXXX", dir[64];
    assert_non_null(mkdtemp(folder));
    snprintf(dir, sizeof dir, "%s/costs", folder);
    const char *const dirs[] = { dir, dir, "/proc/no/such/place" };
    for (size_t i = 0; i < 3; i++) {
        lw_model_options options;
        lw_error error;
        lw_model *model;
        lw_model_options_init(&options);
        options.context = 64;
        options.threads = 1;
        options.costs_dir = dirs[i];
        if (lw_model_open(API_MODEL, &options, &model, &error) != LW_RESULT_OK) fail_msg("%s", error.text);
        lw_model_close(model);
        assert_int_equal(files_in(dir), 1);
    }
}

static void facts_are_the_models(void **state)
{
    lw_model_facts facts;
    lw_model_read_facts(*state, &facts);
    assert_string_equal(facts.family, "lfm3");
    assert_non_null(strstr(facts.format, "4"));
    assert_non_null(strstr(facts.device, "cpu ("));
    assert_true(facts.weight_bytes > 1000000);
    assert_int_equal(facts.vocab, 4096);
    assert_int_equal(facts.context, 256);
    assert_int_equal(facts.context_model, 8192);
    assert_true(facts.lanes > 0 && facts.chunk_rows > 0);
    assert_true(facts.has_template);
    assert_int_equal(facts.end_id_count, 1);
    assert_int_equal(facts.end_ids[0], 4089);
    assert_true(facts.sampling.temperature == 0.0 && facts.sampling.top_p == 1.0);
    assert_true(facts.sampling.repetition_penalty == 1.0);
    assert_string_equal(facts.think_open, "<think>");
    assert_string_equal(facts.think_close, "</think>");
    assert_true(strlen(lw_version()) >= 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model_options_are_refused_by_name),
        cmocka_unit_test(models_that_are_none_say_why),
        cmocka_unit_test(no_options_are_the_usual_ones),
        cmocka_unit_test(sampling_ranges_are_held_at_their_edges),
        cmocka_unit_test(other_request_options_are_refused_by_name),
        cmocka_unit_test(room_is_counted),
        cmocka_unit_test(structs_of_other_versions),
        cmocka_unit_test(the_queue_has_an_end),
        cmocka_unit_test(round_costs_are_kept_where_they_can_be),
        cmocka_unit_test(facts_are_the_models),
    };
    return cmocka_run_group_tests(tests, api_setup, api_teardown);
}
