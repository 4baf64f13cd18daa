/* Penalties: what is counted, in which order it is applied, what is refused, and that a rejected draft leaves
 * no trace. */
#include "../fake/fake_model.h"
#include "lane/penalty.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

static void each_penalty_does_its_own(void **state)
{
    (void)state;
    lw_seen seen;
    assert_int_equal(lw_seen_init(&seen, 8, 16, NULL), LW_OK);
    lw_seen_add(&seen, 1, false);
    lw_seen_add(&seen, 2, true);
    lw_seen_add(&seen, 2, true);
    lw_seen_add(&seen, 3, false);
    lw_seen_add(&seen, 3, true);
    assert_int_equal(seen.distinct_count, 3);
    const int32_t passing[] = { 5, 2, 5, 1 };
    for (size_t i = 0; i < 4; i++) lw_seen_add(&seen, passing[i], true);
    assert_int_equal(seen.distinct_count, 4);
    for (size_t i = 4; i-- > 0;) lw_seen_remove(&seen, passing[i], true); /* as if it had never been */
    assert_int_equal(seen.distinct_count, 3);
    const lw_bias biases[] = { { 0, 1.5f }, { 4, -INFINITY } };
    const lw_penalties p = { .repetition = 2.0f, .presence = 0.5f, .frequency = 0.25f, .biases = biases,
                             .bias_count = 2 };
    float logits[8] = { 1, 2, -2, 4, 1, 1, 1, 1 };
    lw_penalties_apply(&p, &seen, logits);
    const float want[8] = { 2.5f, 1.0f, -4.0f - 0.5f - 0.5f, 2.0f - 0.5f - 0.25f, -INFINITY, 1, 1, 1 };
    assert_memory_equal(logits, want, sizeof want);
    lw_seen_clear(&seen);
    float again[8] = { 1, 2, -2, 4, 1, 1, 1, 1 };
    lw_penalties_apply(&(lw_penalties){ .repetition = 2.0f, .presence = 1.0f }, &seen, again);
    const float same[8] = { 1, 2, -2, 4, 1, 1, 1, 1 };
    assert_memory_equal(again, same, sizeof same);
    lw_seen_deinit(&seen);
}

static void off_is_off(void **state)
{
    (void)state;
    const lw_bias bias = { 1, 1.0f };
    assert_true(lw_penalties_are_off(&(lw_penalties){ 0 }));
    assert_true(lw_penalties_are_off(&(lw_penalties){ .repetition = 1.0f }));
    assert_false(lw_penalties_are_off(&(lw_penalties){ .repetition = 1.1f }));
    assert_false(lw_penalties_are_off(&(lw_penalties){ .presence = 0.1f }));
    assert_false(lw_penalties_are_off(&(lw_penalties){ .frequency = -0.1f }));
    assert_false(lw_penalties_are_off(&(lw_penalties){ .biases = &bias, .bias_count = 1 }));
}

static void numbers_that_are_no_penalty_are_refused(void **state)
{
    (void)state;
    lw_diag d = { "" };
    const lw_bias far = { 8, 1.0f }, below = { -1, 1.0f }, nan = { 3, NAN }, never = { 3, -INFINITY };
    assert_int_equal(lw_penalties_check(&(lw_penalties){ .biases = &far, .bias_count = 1 }, 8, &d),
                     LW_BAD_INPUT);
    assert_non_null(strstr(d.text, "token id 8"));
    assert_int_equal(lw_penalties_check(&(lw_penalties){ .biases = &below, .bias_count = 1 }, 8, &d),
                     LW_BAD_INPUT);
    assert_int_equal(lw_penalties_check(&(lw_penalties){ .biases = &nan, .bias_count = 1 }, 8, &d),
                     LW_BAD_INPUT);
    assert_int_equal(lw_penalties_check(&(lw_penalties){ .biases = &never, .bias_count = 1 }, 8, &d), LW_OK);
    assert_int_equal(lw_penalties_check(&(lw_penalties){ .repetition = -1.0f }, 8, &d), LW_BAD_INPUT);
    assert_int_equal(lw_penalties_check(&(lw_penalties){ .repetition = NAN }, 8, &d), LW_BAD_INPUT);
    assert_int_equal(lw_penalties_check(&(lw_penalties){ .presence = INFINITY }, 8, &d), LW_BAD_INPUT);
}

/* A reply drawn row by row over the module's own counts. sees_rejected: a draft that is not kept is counted
 * too. */
static void reply_make(const lw_request *request, bool sees_rejected, int32_t *ids)
{
    lw_seen seen;
    uint64_t history = 0;
    int32_t last = 0;
    assert_int_equal(lw_seen_init(&seen, FAKE_VOCAB, 512, NULL), LW_OK);
    for (uint32_t i = 0; i < request->prompt_count; i++) {
        last = request->prompt[i];
        history = fake_history(history, last);
        lw_seen_add(&seen, last, false);
    }
    for (uint32_t i = 0; i < request->tokens_max; i++) {
        float logits[FAKE_VOCAB];
        const int32_t draft = (last & ~7) | ((last + 2) & 7); /* likely, but later */
        fake_logits(history, last, logits);
        lw_penalties_apply(&request->penalties, &seen, logits);
        assert_int_equal(lw_sampler_draw_plain(&request->sampling, logits, FAKE_VOCAB,
                                               request->prompt_count + i, &last, NULL),
                         LW_OK);
        if (sees_rejected && draft != last) lw_seen_add(&seen, draft, true);
        lw_seen_add(&seen, last, true);
        history = fake_history(history, last);
        ids[i] = last;
    }
    lw_seen_deinit(&seen);
}

static void a_rejected_draft_must_not_be_seen(void **state)
{
    (void)state;
    const int32_t prompt[] = { 1, 2, 3 };
    const lw_bias no_poison = { FAKE_POISON, -INFINITY };
    const lw_request request = { .prompt = prompt, .prompt_count = 3, .tokens_max = 40, .ignore_end = true,
                                 .penalties = { .repetition = 1.3f, .presence = 0.5f, .frequency = 0.5f,
                                                .biases = &no_poison, .bias_count = 1 } };
    fake_reply solo;
    int32_t ids[40];
    fake_solo(&request, 0, &solo);
    assert_int_equal(solo.count, 40);
    reply_make(&request, false, ids);
    assert_memory_equal(ids, solo.ids, sizeof ids);
    reply_make(&request, true, ids);
    assert_memory_not_equal(ids, solo.ids, sizeof ids); /* planted control */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_penalty_does_its_own),
        cmocka_unit_test(off_is_off),
        cmocka_unit_test(numbers_that_are_no_penalty_are_refused),
        cmocka_unit_test(a_rejected_draft_must_not_be_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
