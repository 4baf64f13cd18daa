/* Hashes of id lists against published vectors. */
#include "base/sha256.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void token_sha_matches_its_vectors(void **state)
{
    (void)state;
    const int32_t ids[] = { 1, 2, 3 };
    char text[LW_TOKEN_SHA_CHARS + 1];
    lw_token_sha(ids, 3, text);
    assert_string_equal(text, "8a6ae1512200");
}

static void prompt_seed_matches_its_vectors(void **state)
{
    (void)state;
    const int32_t ids[] = { 1, 2, 3 }, one[] = { 248045 };
    assert_true(lw_prompt_seed(ids, 3, 0) == 2418267834652783048u);
    assert_true(lw_prompt_seed(ids, 3, 1) == 9112986171628125109u);
    assert_true(lw_prompt_seed(one, 1, -5) == 891880401311172337u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(token_sha_matches_its_vectors),
        cmocka_unit_test(prompt_seed_matches_its_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
