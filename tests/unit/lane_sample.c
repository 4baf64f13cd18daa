/* The keyed sampler's contract: its vectors, stored draws, distribution, ties, and what it refuses. That the
 * quick method equals the definition is lane_sample_equal.c.
 */
#include "base/rng.h"
#include "base/sha256.h"
#include "lane/sample.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { VOCAB_MAX = 4096 };

static lw_sampler *sampler;   /* of the whole program: made before the first test, freed after the last */
static float logits[VOCAB_MAX];

static int sampler_setup(void **state)
{
    (void)state;
    lw_diag d;
    return lw_sampler_make(VOCAB_MAX, &sampler, &d) == LW_OK ? 0 : -1;
}

static int sampler_teardown(void **state)
{
    (void)state;
    lw_sampler_free(sampler);
    return 0;
}

static uint32_t drawn(const lw_sampling *sampling, uint32_t vocab, uint64_t position)
{
    lw_diag d;
    int32_t token = -1, token_plain = -2;
    assert_int_equal(lw_sampler_draw(sampler, sampling, logits, vocab, position, &token, &d), LW_OK);
    assert_int_equal(lw_sampler_draw_plain(sampling, logits, vocab, position, &token_plain, &d), LW_OK);
    assert_int_equal(token, token_plain);
    assert_in_range(token, 0, vocab - 1);
    return (uint32_t)token;
}

/* --- vectors -------------------------------------------------------------------------------------------- */

typedef struct vector {
    uint64_t seed, position, id, key;
    double unit, gumbel;
} vector;

static const vector vectors[] = {
    { 0, 0, 0, 0x33FE8BD4F9C57863u, 0.20310281705476102, -0.466273518654866 },
    { 7, 11, 13, 0xFFA4C0C9F2757968u, 0.9986076825175214, 6.57608910363905 },
    { 1234, 6685, 98303, 0x2E6CC58520381D67u, 0.18134722232954953, -0.534937617096928 },
    { 9223372036854775807u, 262143, 248319, 0xB01D0F448DBB8CD9u, 0.687943414913873, 0.983369302351765 },
};

static void key_unit_and_gumbel_match_their_vectors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        const vector *v = &vectors[i];
        const uint64_t key = lw_sample_key(v->seed, v->position, v->id);
        assert_true(key == v->key);
        assert_true(lw_sample_unit(key) == v->unit);
        assert_true(fabs(lw_sample_gumbel(key) - v->gumbel) < 1e-14 * 8);
        assert_true(lw_sample_key(v->seed, v->position + 1, v->id) != v->key);
        assert_true(lw_sample_key(v->seed + 1, v->position, v->id) != v->key);
        assert_true(lw_sample_key(v->seed, v->position, v->id + 1) != v->key);
    }
}

static void unit_stays_in_its_interval(void **state)
{
    (void)state;
    assert_true(lw_sample_unit(0) == 0x1p-54);
    assert_true(lw_sample_unit(UINT64_MAX) == 1.0);
    assert_true(isfinite(lw_sample_gumbel(0)));
    assert_true(lw_sample_gumbel(UINT64_MAX) == INFINITY);
}

/* --- stored draws --------------------------------------------------------------------------------------- */

enum { LINE_BYTES = 512, TOKENS_MAX = 4096, PROMPT_MAX = 16 };

typedef struct stored {
    int32_t tokens[TOKENS_MAX];
    size_t count;
    size_t prompts;
    bool sealed;
} stored;

static float logit_made(const char *kind, uint64_t word)
{
    const double grid = ((double)(word >> 44) - 524288.0) / 65536.0;
    if (strcmp(kind, "grid") == 0) return (float)grid;
    if (strcmp(kind, "peaked") == 0) return (float)(4.0 * grid);
    if (strcmp(kind, "ties") == 0) return (float)(word >> 61) - 4.0f;
    if (strcmp(kind, "equal") == 0) return 1.5f;
    if (strcmp(kind, "masked") == 0) return (word & 7) != 0 ? -INFINITY : (float)grid;
    fail_msg("no logits are called %s", kind);
    return 0.0f;
}

static void check_stored_draw(const char *line, stored *all)
{
    char kind[16];
    unsigned vocab, top_k, token;
    unsigned long long logits_seed, seed, position;
    lw_sampling s = { .temperature = 0.0 };
    assert_int_equal(sscanf(line, "draw %u %15s %llu %lf %u %lf %lf %llu %llu %u", &vocab, kind, &logits_seed,
                            &s.temperature, &top_k, &s.top_p, &s.min_p, &seed, &position, &token), 10);
    assert_in_range(vocab, 1, VOCAB_MAX);
    s.top_k = top_k;
    s.seed = seed;
    lw_rng rng = lw_rng_make(logits_seed);
    for (unsigned id = 0; id < vocab; id++) logits[id] = logit_made(kind, lw_rng_next(&rng));
    logits[vocab / 2] = 1.0f;
    const uint32_t got = drawn(&s, vocab, position);
    if (got != token) fail_msg("drew %u: %s", got, line);
    assert_true(all->count < TOKENS_MAX);
    all->tokens[all->count++] = (int32_t)got;
}

static void check_stored_prompt(const char *line, stored *all)
{
    char text[128];
    long long salt;
    unsigned long long seed;
    assert_int_equal(sscanf(line, "prompt %127s %lld %llu", text, &salt, &seed), 3);
    int32_t ids[PROMPT_MAX];
    size_t count = 0;
    for (char *at = strtok(text, ","); at != NULL && count < PROMPT_MAX; at = strtok(NULL, ","))
        ids[count++] = (int32_t)strtol(at, NULL, 10);
    assert_true(lw_prompt_seed(ids, count, salt) == seed);
    all->prompts++;
}

static void check_stored_tokens(const char *line, stored *all)
{
    unsigned count;
    char sha[LW_TOKEN_SHA_CHARS + 1], got[LW_TOKEN_SHA_CHARS + 1];
    assert_int_equal(sscanf(line, "tokens %u %12s", &count, sha), 2);
    assert_int_equal(count, all->count);
    lw_token_sha(all->tokens, all->count, got);
    assert_string_equal(got, sha);
    all->sealed = true;
}

static void stored_draws_repeat(void **state)
{
    (void)state;
    static stored all;
    memset(&all, 0, sizeof all);
    FILE *file = fopen("tests/golden/sample.txt", "r");
    assert_non_null(file);
    char line[LINE_BYTES];
    while (fgets(line, sizeof line, file) != NULL) {
        if (line[0] == '#') continue;
        if (strncmp(line, "draw ", 5) == 0) check_stored_draw(line, &all);
        else if (strncmp(line, "prompt ", 7) == 0) check_stored_prompt(line, &all);
        else if (strncmp(line, "tokens ", 7) == 0) check_stored_tokens(line, &all);
        else fail_msg("not understood: %s", line);
    }
    fclose(file);
    assert_true(all.sealed);
    assert_true(all.count > 300);
    assert_true(all.prompts > 3);
}

/* --- distribution --------------------------------------------------------------------------------------- */

enum { DRAWS = 40000, FEW = 6 };

static const float few_logits[FEW] = { 1.0f, -0.5f, 2.0f, 0.0f, 1.5f, -2.0f };

/* The largest distance between softmax(logits / temperature) and the shares counted. */
static double distance_from_softmax(const uint32_t counts[FEW], double temperature)
{
    double total = 0.0, worst = 0.0;
    for (int i = 0; i < FEW; i++) total += exp(few_logits[i] / temperature);
    for (int i = 0; i < FEW; i++) {
        const double share = exp(few_logits[i] / temperature) / total;
        worst = fmax(worst, fabs(counts[i] / (double)DRAWS - share));
    }
    return worst;
}

static void positions_follow_softmax(void **state)
{
    (void)state;
    memcpy(logits, few_logits, sizeof few_logits);
    static const double temperatures[] = { 0.5, 1.0, 2.0 };
    for (size_t t = 0; t < 3; t++) {
        uint32_t counts[FEW] = { 0 }, counts_stuck[FEW] = { 0 };
        for (uint64_t position = 0; position < DRAWS; position++) {
            const lw_sampling s = { .temperature = temperatures[t], .seed = 99 };
            counts[drawn(&s, FEW, position)]++;
            counts_stuck[drawn(&s, FEW, 0)]++;
        }
        assert_true(distance_from_softmax(counts, temperatures[t]) < 0.01);
        /* Planted control: a key without the position. */
        assert_false(distance_from_softmax(counts_stuck, temperatures[t]) < 0.01);
        assert_false(distance_from_softmax(counts, temperatures[t] * 1.2) < 0.01);
    }
}

static void seeds_follow_softmax(void **state)
{
    (void)state;
    memcpy(logits, few_logits, sizeof few_logits);
    uint32_t counts[FEW] = { 0 };
    for (uint64_t seed = 0; seed < DRAWS; seed++) {
        const lw_sampling s = { .temperature = 1.0, .seed = seed };
        counts[drawn(&s, FEW, 1234567)]++;
    }
    assert_true(distance_from_softmax(counts, 1.0) < 0.01);
}

/* --- ties, cuts and ends -------------------------------------------------------------------------------- */

/* Which ids of [0, 64) some position draws, as bits. */
static uint64_t ids_drawn(const lw_sampling *sampling, uint32_t vocab)
{
    assert_true(vocab <= 64);
    uint64_t ids = 0;
    for (uint64_t position = 0; position < 2000; position++) ids |= 1ull << drawn(sampling, vocab, position);
    return ids;
}

static void greedy_takes_the_lowest_of_equals(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < 1000; id++) logits[id] = -1.0f;
    logits[700] = logits[130] = logits[131] = 0.5f;
    assert_int_equal(drawn(&(lw_sampling){ .temperature = 0.0 }, 1000, 5), 130);
    assert_int_equal(drawn(&(lw_sampling){ .temperature = -1.0, .top_k = 3, .top_p = 0.1 }, 1000, 6), 130);
    logits[700] = 0.0f;
    logits[130] = -0.0f;
    logits[131] = 0.0f;
    assert_int_equal(drawn(&(lw_sampling){ .temperature = 0.0 }, 1000, 5), 130);
    logits[129] = 0.0f;
    assert_int_equal(drawn(&(lw_sampling){ .temperature = 0.0 }, 1000, 5), 129);
    logits[999] = 1.0f;
    assert_int_equal(drawn(&(lw_sampling){ .temperature = 0.0 }, 1000, 5), 999);
}

static void top_k_of_one_is_greedy(void **state)
{
    (void)state;
    lw_rng rng = lw_rng_make(3);
    for (uint64_t position = 0; position < 500; position++) {
        for (uint32_t id = 0; id < 200; id++) logits[id] = (float)lw_rng_below(&rng, 40);
        const uint32_t first = drawn(&(lw_sampling){ .temperature = 0.0 }, 200, position);
        assert_int_equal(drawn(&(lw_sampling){ .temperature = 5.0, .top_k = 1 }, 200, position), first);
        assert_int_equal(drawn(&(lw_sampling){ .temperature = 5.0, .top_p = 1e-300 }, 200, position), first);
    }
}

static void top_k_cuts_equals_by_id(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < 20; id++) logits[id] = 0.0f;
    logits[9] = 0.25f;
    logits[3] = -0.0f;
    assert_true(ids_drawn(&(lw_sampling){ .temperature = 1.0, .top_k = 4 }, 20) == 0x207);
    assert_true(ids_drawn(&(lw_sampling){ .temperature = 1.0, .top_k = 5 }, 20) == 0x20F);
    assert_true(ids_drawn(&(lw_sampling){ .temperature = 1.0, .top_k = 20 }, 20) == 0xFFFFF);
    assert_true(ids_drawn(&(lw_sampling){ .temperature = 1.0, .top_k = UINT32_MAX }, 20) == 0xFFFFF);
}

static void top_p_cuts_equals_by_id(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < 16; id++) logits[id] = 2.0f;
    /* Sixteenths are exact: a mass of 4/16 is reached by four, and anything more takes a fifth. */
    assert_true(ids_drawn(&(lw_sampling){ .temperature = 1.0, .top_p = 0.25 }, 16) == 0xF);
    assert_true(ids_drawn(&(lw_sampling){ .temperature = 1.0, .top_p = nextafter(0.25, 1.0) }, 16) == 0x1F);
    assert_true(ids_drawn(&(lw_sampling){ .temperature = 1.0, .top_p = 0.24 }, 16) == 0xF);
    /* The mass is counted over what top_k left. */
    assert_true(ids_drawn(&(lw_sampling){ .temperature = 1.0, .top_k = 8, .top_p = 0.25 }, 16) == 0x3);
    assert_true(ids_drawn(&(lw_sampling){ .temperature = 1.0, .top_p = 1.0 }, 16) == 0xFFFF);
    assert_true(ids_drawn(&(lw_sampling){ .temperature = 1.0, .top_p = nextafter(1.0, 0.0) }, 16) == 0xFFFF);
}

static void min_p_keeps_its_floor(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < 10; id++) logits[id] = 1.0f - 0.5f * (float)id;
    assert_true(ids_drawn(&(lw_sampling){ .temperature = 1.0, .min_p = 1.0 }, 10) == 0x1);
    assert_true(ids_drawn(&(lw_sampling){ .temperature = 1.0, .min_p = exp(-1.01) }, 10) == 0x7);
    assert_true(ids_drawn(&(lw_sampling){ .temperature = 2.0, .min_p = exp(-1.01) }, 10) == 0x1F);
}

static void masked_ids_are_never_drawn(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < 64; id++) logits[id] = id % 3 == 1 ? -40.0f : -INFINITY;
    uint64_t allowed = 0;
    for (uint32_t id = 1; id < 64; id += 3) allowed |= 1ull << id;
    assert_true(ids_drawn(&(lw_sampling){ .temperature = 1.0 }, 64) == allowed);
    const lw_sampling cut = { .temperature = 1e-9, .top_k = 60, .top_p = 0.999 };
    assert_true((ids_drawn(&cut, 64) & ~allowed) == 0);
    assert_int_equal(drawn(&(lw_sampling){ .temperature = 0.0 }, 64, 0), 1);
}

static void one_id_is_always_drawn(void **state)
{
    (void)state;
    static const float ones[] = { 0.0f, -0.0f, 3.4e38f, -3.4e38f, 1e-45f };
    for (size_t i = 0; i < sizeof ones / sizeof ones[0]; i++) {
        logits[0] = ones[i];
        assert_int_equal(drawn(&(lw_sampling){ .temperature = 0.0 }, 1, 0), 0);
        assert_int_equal(drawn(&(lw_sampling){ .temperature = 1.0 }, 1, UINT64_MAX), 0);
        assert_int_equal(drawn(&(lw_sampling){ 0.7, 1, 0.5, 0.5, 1 }, 1, 3), 0);
    }
}

static void temperatures_reach_their_limits(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < 32; id++) logits[id] = (float)id;
    for (uint64_t position = 0; position < 200; position++) {
        assert_int_equal(drawn(&(lw_sampling){ .temperature = 1e-6 }, 32, position), 31);
        assert_int_equal(drawn(&(lw_sampling){ .temperature = 5e-324 }, 32, position), 31);
    }
    assert_true(ids_drawn(&(lw_sampling){ .temperature = 1e300 }, 32) == 0xFFFFFFFF);
    assert_true(ids_drawn(&(lw_sampling){ .temperature = 1.7e308, .top_p = 0.5 }, 32) == 0xFFFF0000);
}

/* --- refusals ------------------------------------------------------------------------------------------- */

static void assert_refused(const lw_sampling *sampling, uint32_t vocab, const char *text)
{
    lw_diag d = { .text = "" };
    int32_t token = 77;
    assert_int_equal(lw_sampler_draw(sampler, sampling, logits, vocab, 0, &token, &d), LW_BAD_INPUT);
    if (strstr(d.text, text) == NULL) fail_msg("\"%s\" does not say \"%s\"", d.text, text);
    assert_int_equal(lw_sampler_draw(sampler, sampling, logits, vocab, 0, &token, NULL), LW_BAD_INPUT);
    lw_diag d_plain = { .text = "" };
    assert_int_equal(lw_sampler_draw_plain(sampling, logits, vocab, 0, &token, &d_plain), LW_BAD_INPUT);
    assert_string_equal(d.text, d_plain.text);
    assert_int_equal(token, 77);
}

static void unusable_logits_are_refused_by_id(void **state)
{
    (void)state;
    static const uint32_t places[] = { 0, 63, 64, 197, 199 };
    static const double temperatures[] = { 0.0, 1.0 };
    for (size_t i = 0; i < 10; i++) {
        const uint32_t place = places[i / 2];
        const lw_sampling s = { .temperature = temperatures[i % 2] };
        char text[32];
        snprintf(text, sizeof text, "id %u ", place);
        for (uint32_t id = 0; id < 200; id++) logits[id] = id % 2 == 0 ? -INFINITY : 1.0f;
        (void)drawn(&s, 200, 0);
        logits[place] = INFINITY;
        assert_refused(&s, 200, text);
        logits[place] = NAN;
        assert_refused(&s, 200, text);
        logits[place] = -NAN;
        assert_refused(&s, 200, text);
        logits[199] = INFINITY;
        assert_refused(&s, 200, text);
    }
    for (uint32_t id = 0; id < 200; id++) logits[id] = -INFINITY;
    assert_refused(&(lw_sampling){ .temperature = 0.0 }, 200, "ids 0 to 199");
    assert_refused(&(lw_sampling){ .temperature = 1.0 }, 1, "ids 0 to 0");
}

static void unusable_options_are_refused_by_name(void **state)
{
    (void)state;
    for (uint32_t id = 0; id < 8; id++) logits[id] = 0.0f;
    assert_refused(&(lw_sampling){ .temperature = NAN }, 8, "temperature");
    assert_refused(&(lw_sampling){ .temperature = INFINITY }, 8, "temperature");
    assert_refused(&(lw_sampling){ .temperature = 1.0, .top_p = NAN }, 8, "top_p");
    assert_refused(&(lw_sampling){ .temperature = 1.0, .min_p = NAN }, 8, "min_p");
    assert_refused(&(lw_sampling){ .temperature = 1.0, .min_p = 1.5 }, 8, "min_p is 1.5");
    (void)drawn(&(lw_sampling){ .temperature = 1.0, .top_p = 7.0, .min_p = -2.0 }, 8, 0);
}

static void impossible_vocabularies_are_refused(void **state)
{
    (void)state;
    lw_diag d;
    lw_sampler *none = sampler;
    assert_int_equal(lw_sampler_make(0, &none, &d), LW_BAD_INPUT);
    assert_null(none);
    assert_int_equal(lw_sampler_make(UINT32_MAX, &none, &d), LW_BAD_INPUT);
    lw_sampler_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(key_unit_and_gumbel_match_their_vectors),
        cmocka_unit_test(unit_stays_in_its_interval),
        cmocka_unit_test(stored_draws_repeat),
        cmocka_unit_test(positions_follow_softmax),
        cmocka_unit_test(seeds_follow_softmax),
        cmocka_unit_test(greedy_takes_the_lowest_of_equals),
        cmocka_unit_test(top_k_of_one_is_greedy),
        cmocka_unit_test(top_k_cuts_equals_by_id),
        cmocka_unit_test(top_p_cuts_equals_by_id),
        cmocka_unit_test(min_p_keeps_its_floor),
        cmocka_unit_test(masked_ids_are_never_drawn),
        cmocka_unit_test(one_id_is_always_drawn),
        cmocka_unit_test(temperatures_reach_their_limits),
        cmocka_unit_test(unusable_logits_are_refused_by_id),
        cmocka_unit_test(unusable_options_are_refused_by_name),
        cmocka_unit_test(impossible_vocabularies_are_refused),
    };
    return cmocka_run_group_tests(tests, sampler_setup, sampler_teardown);
}
