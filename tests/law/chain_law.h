/* The law of chains on one device, the including program's: what a chain of one submission draws for several
 * lanes is, bit for bit, what its rows give one by one, and as one window; and once the forward itself has
 * run over the slots that a chain wrote, nothing of the chain is left.
 */
#ifndef LW_TESTS_CHAIN_LAW_H
#define LW_TESTS_CHAIN_LAW_H

#include "chain_case.h"

static inline void a_chain_is_its_rows_one_by_one_and_as_a_window(void **state)
{
    (void)state;
    static chain_case c;
    static const uint32_t counts[LANES] = { 61, 130, 1 };
    static const uint32_t steps[LANES] = { LW_CHAIN_STEPS_MAX, 5, 1 };
    case_open(&c, 11);
    prompts_run(&c, counts);
    for (int pass = 0; pass < 2; pass++) {
        int32_t drawn[LANES][LW_CHAIN_STEPS_MAX] = { { 0 } }, plain[LANES][LW_CHAIN_STEPS_MAX];
        c.wanders = pass == 1;
        chain_run(&c, steps, true, drawn);
        for (uint32_t lane = 0; lane < LANES; lane++) {
            const span all = { lane, counts[lane], steps[lane] };
            int32_t tokens[LW_CHAIN_STEPS_MAX];
            float one[VOCAB], window[LW_CHAIN_STEPS_MAX][VOCAB];
            rows_of(&c, lane, drawn[lane], tokens);
            for (uint32_t j = 0; j < steps[lane]; j++) {
                window_run(&c, LW_ENTRY_HEAD, (span){ lane, counts[lane] + j, 1 }, &tokens[j], one);
                assert_memory_equal(one, c.logits[lane][j], sizeof one);
            }
            window_run(&c, LW_ENTRY_HEAD, all, tokens, window[0]);
            assert_memory_equal(window, c.logits[lane], steps[lane] * sizeof one);
            /* Planted control: another first token is seen by every later step. */
            tokens[0] ^= 1;
            window_run(&c, LW_ENTRY_HEAD, all, tokens, window[0]);
            for (uint32_t j = 0; j < steps[lane]; j++)
                assert_memory_not_equal(window[j], c.logits[lane][j], sizeof one);
        }
        if (c.wanders) continue;
        chain_run(&c, steps, false, plain);
        for (uint32_t lane = 0; lane < LANES; lane++)
            assert_memory_equal(plain[lane], drawn[lane], steps[lane] * sizeof(int32_t));
    }
    case_close(&c);
}

/* A chain, then the true rows over its slots, then a chain further on: the last one is what it is where the
 * first never ran. */
static inline void nothing_of_a_chain_is_left_once_true_rows_ran(void **state)
{
    (void)state;
    static chain_case c;
    static const uint32_t counts[LANES] = { 62, 100, 7 }, further[LANES] = { 68, 106, 13 };
    static const uint32_t steps[LANES] = { 6, 6, 6 };
    float fresh[LANES][LW_CHAIN_STEPS_MAX][VOCAB];
    int32_t drawn[LANES][LW_CHAIN_STEPS_MAX];
    case_open(&c, 12);
    prompts_run(&c, further);
    chain_run(&c, steps, true, drawn);
    memcpy(fresh, c.logits, sizeof fresh);
    prompts_run(&c, counts);
    c.wanders = true;
    chain_run(&c, steps, true, drawn);
    c.wanders = false;
    /* Planted control: without the true rows the chain shows. */
    memcpy(c.count, further, sizeof further);
    chain_run(&c, steps, true, drawn);
    for (uint32_t lane = 0; lane < LANES; lane++)
        assert_memory_not_equal(c.logits[lane], fresh[lane], 6 * sizeof fresh[0][0]);
    for (uint32_t lane = 0; lane < LANES; lane++) {
        const span rows = { lane, counts[lane], further[lane] - counts[lane] };
        window_run(&c, LW_ENTRY_MAIN, rows, c.ids[lane] + counts[lane], NULL);
    }
    chain_run(&c, steps, true, drawn);
    for (uint32_t lane = 0; lane < LANES; lane++)
        assert_memory_equal(c.logits[lane], fresh[lane], 6 * sizeof fresh[0][0]);
    case_close(&c);
}

static inline int chain_law_run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_is_its_rows_one_by_one_and_as_a_window),
        cmocka_unit_test(nothing_of_a_chain_is_left_once_true_rows_ran),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
