/* The copy drafter: what it proposes is the continuation of the longest earlier match, the newest of equals;
 * its width grows and falls; it rests when its drafts are for nothing.
 */
#include "lane/draft.h"

#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

enum { CONTEXT = 400, MATCH = 5 };

static lw_draft_source source_make(lw_copies **copies)
{
    assert_int_equal(lw_copies_make(2, CONTEXT, MATCH, copies, NULL), LW_OK);
    const lw_draft_source source = lw_copies_source(*copies);
    source.reset(source.context, 0);
    source.reset(source.context, 1);
    return source;
}

/* The definition by looking everywhere; -1: no match. */
static int32_t end_expected(const int32_t *ids, uint32_t count)
{
    int32_t best = -1;
    uint32_t longest = MATCH - 1;
    for (uint32_t end = count - 1; end-- > 0;) {
        uint32_t length = 0;
        while (length < 64 && length <= end && ids[end - length] == ids[count - 1 - length]) length++;
        if (length <= longest) continue;
        longest = length;
        best = (int32_t)end;
    }
    return best;
}

static void proposals_continue_the_longest_match(void **state)
{
    (void)state;
    const uint64_t seed = 5;
    print_message("seed %llu\n", (unsigned long long)seed);
    lw_rng rng = lw_rng_make(seed);
    uint32_t proposed = 0;
    for (int round = 0; round < 60; round++) {
        lw_copies *copies;
        const lw_draft_source source = source_make(&copies);
        int32_t ids[CONTEXT];
        uint32_t count = 0;
        while (count < CONTEXT) {
            const bool repeats = count > 30 && lw_rng_below(&rng, 20) != 0;
            ids[count] = repeats ? ids[count - 25] : (int32_t)lw_rng_below(&rng, 7);
            count++;
            if (lw_rng_below(&rng, 3) != 0) continue;
            lw_draft out = { 0 };
            const lw_draft_ask ask = { .ids = ids, .count = count, .room = 4, .out = &out };
            source.propose(source.context, &ask, 1);
            const int32_t end = count < 3 ? -1 : end_expected(ids, count);
            uint32_t want = end < 0 ? 0 : count - 1 - (uint32_t)end;
            want = want < 4 ? want : 4;
            assert_int_equal(out.count, want);
            for (uint32_t i = 0; i < want; i++) {
                assert_int_equal(out.tokens[i], ids[(uint32_t)end + 1 + i]);
                assert_int_equal(out.parents[i], (int32_t)i - 1);
            }
            proposed += want > 0;
            if (want > 0) source.judge(source.context, 0, want, want);
        }
        lw_copies_free(copies);
    }
    assert_true(proposed > 500);
}

static uint32_t proposed(const lw_draft_source *source, const int32_t *ids, uint32_t count)
{
    lw_draft out = { 0 };
    const lw_draft_ask ask = { .lane = 1, .ids = ids, .count = count, .room = LW_DRAFTS_MAX, .out = &out };
    source->propose(source->context, &ask, 1);
    return out.count;
}

static void width_grows_with_luck_and_falls_with_a_miss(void **state)
{
    (void)state;
    lw_copies *copies;
    const lw_draft_source source = source_make(&copies);
    int32_t ids[CONTEXT];
    for (int32_t i = 0; i < 200; i++) ids[i] = ids[i + 200] = i;
    assert_int_equal(proposed(&source, ids, 200), 0);
    assert_int_equal(proposed(&source, ids, 204), 0);      /* four tokens agree, five must */
    assert_int_equal(proposed(&source, ids, 205), 7);
    source.judge(source.context, 1, 7, 7);
    assert_int_equal(proposed(&source, ids, 213), 15);
    source.judge(source.context, 1, 15, 15);
    assert_int_equal(proposed(&source, ids, 229), 31);
    source.judge(source.context, 1, 31, 30);
    assert_int_equal(proposed(&source, ids, 261), 7);
    lw_copies_free(copies);
}

static void four_misses_bring_a_rest(void **state)
{
    (void)state;
    lw_copies *copies;
    const lw_draft_source source = source_make(&copies);
    int32_t ids[CONTEXT];
    for (int32_t i = 0; i < 200; i++) ids[i] = ids[i + 200] = i;
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(proposed(&source, ids, 210 + i) > 0);
        source.judge(source.context, 1, 7, 0);
    }
    for (uint32_t i = 0; i < 16; i++) assert_int_equal(proposed(&source, ids, 214 + i), 0);
    assert_int_equal(proposed(&source, ids, 230), 7);
    source.reset(source.context, 1);
    assert_int_equal(proposed(&source, ids, 200), 0);      /* a new stream knows nothing of the last one */
    lw_copies_free(copies);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proposals_continue_the_longest_match),
        cmocka_unit_test(width_grows_with_luck_and_falls_with_a_miss),
        cmocka_unit_test(four_misses_bring_a_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
