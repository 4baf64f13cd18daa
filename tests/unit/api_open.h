/* The shipped model, opened small, for programs that test the public API. */
#ifndef LW_TESTS_API_OPEN_H
#define LW_TESTS_API_OPEN_H

#include "lanewise.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define API_MODEL "models/lfm3-mlx4"

static inline int api_setup(void **state)
{
    lw_model_options options;
    lw_error error;
    lw_model *model;
    lw_model_options_init(&options);
    options.context = 256;
    options.threads = 1;
    const lw_result result = lw_model_open(API_MODEL, &options, &model, &error);
    if (result != LW_RESULT_OK) fprintf(stderr, "%s\n", error.text);
    *state = model;
    return result == LW_RESULT_OK ? 0 : -1;
}

static inline int api_teardown(void **state)
{
    lw_model_close(*state);
    return 0;
}

static inline lw_prompt *api_chat(const lw_model *model, const char *request)
{
    lw_error error;
    lw_prompt *prompt;
    if (lw_prompt_chat(model, request, strlen(request), &prompt, &error) != LW_RESULT_OK)
        fail_msg("%s", error.text);
    return prompt;
}

static inline void api_expect_same_ids(const lw_prompt *a, const lw_prompt *b)
{
    size_t a_count, b_count;
    const int32_t *a_ids = lw_prompt_read_ids(a, &a_count), *b_ids = lw_prompt_read_ids(b, &b_count);
    assert_int_equal(a_count, b_count);
    assert_memory_equal(a_ids, b_ids, a_count * sizeof *a_ids);
}

#endif
