/* The keyed sampler's quick method equals its definition: same token on every row, whatever the logits and
 * options.
 * Usage: lane_sample_equal [long]: a million random draws instead of the quick count.
 */
#include "base/rng.h"
#include "lane/sample.h"
#include "lane/sample_row.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { VOCAB_MAX = 248320, DRAWS_QUICK = 50000, DRAWS_LONG = 1000000 };
static const uint64_t RNG_SEED = 20240229;

static lw_sampler *sampler;   /* of the whole program: made before the first test, freed after the last */
static float *logits;
static uint32_t draws = DRAWS_QUICK;

static int sampler_setup(void **state)
{
    (void)state;
    lw_diag d;
    logits = calloc(VOCAB_MAX, sizeof *logits);
    return logits != NULL && lw_sampler_make(VOCAB_MAX, &sampler, &d) == LW_OK ? 0 : -1;
}

static int sampler_teardown(void **state)
{
    (void)state;
    lw_sampler_free(sampler);
    free(logits);
    return 0;
}

/* --- random rows ---------------------------------------------------------------------------------------- */

typedef float logit_fn(lw_rng *rng, float spread);

static float normal_logit(lw_rng *rng, float spread) { return spread * lw_rng_normal(rng); }
static float tied_logit(lw_rng *rng, float spread) { return floorf(spread * lw_rng_normal(rng)); }
static float equal_logit(lw_rng *rng, float spread) { return lw_rng_next(rng) % 64 == 0 ? spread : 1.0f; }
static float zero_logit(lw_rng *rng, float spread) { return lw_rng_next(rng) & 1 ? 0.0f * spread : -0.0f; }
static float masked_logit(lw_rng *rng, float spread)
{
    return lw_rng_next(rng) % 8 != 0 ? -INFINITY : spread * lw_rng_normal(rng);
}

/* Any finite float or -infinity, so also the largest and those below the normal ones. */
static float any_logit(lw_rng *rng, float spread LW_UNUSED)
{
    const uint32_t bits = (uint32_t)lw_rng_next(rng);
    float logit;
    memcpy(&logit, &bits, sizeof logit);
    return isfinite(logit) ? logit : -INFINITY;
}

/* So far from zero that a double's last bit is as large as the noises: sums tie. */
static float coarse_logit(lw_rng *rng, float spread LW_UNUSED)
{
    return 4e15f + 0x1p29f * (float)lw_rng_below(rng, 3);
}

static logit_fn *const logit_fns[] = { normal_logit, tied_logit, equal_logit, zero_logit, masked_logit,
                                       any_logit, coarse_logit, normal_logit };
static const float spreads[] = { 3.0f, 1.0f, 0.01f, 10.0f, 0.2f, 100.0f };
static const double temperatures[] = { 1.0, 0.7, 1.3, 0.3, 0.0, 1e-3, 1e-9, 30.0, 1e6, 1e300, 1.0, 0.8 };
static const double top_ps[] = { 0.95, 0.5, 0.25, 0.9, 0.999, 1e-12, 0.99999999999, 0.1 };
static const double min_ps[] = { 0.05, 1.0, 0.5, 1e-300, 0.001, 0.1 };

#define PICK(rng, table) ((table)[lw_rng_below((rng), sizeof(table) / sizeof(table)[0])])

static void fill_logits(lw_rng *rng, uint32_t vocab)
{
    logit_fn *const make = PICK(rng, logit_fns);
    const float spread = PICK(rng, spreads);
    for (uint32_t id = 0; id < vocab; id++) logits[id] = make(rng, spread);
    if (lw_rng_below(rng, 4) == 0) logits[lw_rng_below(rng, vocab)] = spread * 5.0f;
    const uint32_t place = (uint32_t)lw_rng_below(rng, vocab);
    if (logits[place] == -INFINITY) logits[place] = spread;
}

static lw_sampling sampling_any(lw_rng *rng, uint32_t vocab)
{
    lw_sampling s = { .temperature = PICK(rng, temperatures), .seed = lw_rng_next(rng) >> 1 };
    const uint32_t top_k_max = lw_rng_below(rng, 2) ? 10 : vocab + 2;
    if (lw_rng_below(rng, 3) == 0) s.top_k = 1 + (uint32_t)lw_rng_below(rng, top_k_max);
    if (lw_rng_below(rng, 2) == 0) s.top_p = lw_rng_below(rng, 2) ? PICK(rng, top_ps) : lw_rng_unit(rng);
    if (lw_rng_below(rng, 4) == 0) s.min_p = lw_rng_below(rng, 2) ? PICK(rng, min_ps) : lw_rng_unit(rng);
    return s;
}

static uint32_t vocab_any(lw_rng *rng)
{
    switch (lw_rng_below(rng, 8)) {
    case 0: return 1 + (uint32_t)lw_rng_below(rng, 4);
    case 1: return 64 * (1 + (uint32_t)lw_rng_below(rng, 4)) + (uint32_t)lw_rng_below(rng, 3) - 1;
    case 2: return 1 + (uint32_t)lw_rng_below(rng, 900);
    default: return 1 + (uint32_t)lw_rng_below(rng, 200);
    }
}

typedef struct both {
    int32_t quick, plain;
} both;

static both draw_both(const lw_sampling *sampling, uint32_t vocab, uint64_t position)
{
    lw_diag d;
    both token = { .quick = -1, .plain = -2 };
    assert_int_equal(lw_sampler_draw(sampler, sampling, logits, vocab, position, &token.quick, &d), LW_OK);
    assert_int_equal(lw_sampler_draw_plain(sampling, logits, vocab, position, &token.plain, &d), LW_OK);
    return token;
}

static void check_both(const lw_sampling *sampling, uint32_t vocab, uint64_t position)
{
    const both token = draw_both(sampling, vocab, position);
    if (token.quick == token.plain) return;
    fail_msg("vocab %u, t %a, top_k %u, top_p %a, min_p %a, seed %llu, position %llu: drew %d, plain %d",
             vocab, sampling->temperature, sampling->top_k, sampling->top_p, sampling->min_p,
             (unsigned long long)sampling->seed, (unsigned long long)position, token.quick, token.plain);
}

static void any_row_draws_as_defined(void **state)
{
    (void)state;
    print_message("rng seed %llu, %u draws\n", (unsigned long long)RNG_SEED, draws);
    lw_rng rng = lw_rng_make(RNG_SEED);
    uint32_t differ = 0;
    for (uint32_t i = 0; i < draws; i++) {
        const uint32_t vocab = vocab_any(&rng);
        const lw_sampling s = sampling_any(&rng, vocab);
        const uint64_t position = lw_rng_next(&rng) >> lw_rng_below(&rng, 64);
        fill_logits(&rng, vocab);
        check_both(&s, vocab, position);

        /* Planted control: the next position's token is often another one. */
        lw_diag d;
        int32_t here = -1, next = -1;
        assert_int_equal(lw_sampler_draw(sampler, &s, logits, vocab, position, &here, &d), LW_OK);
        assert_int_equal(lw_sampler_draw(sampler, &s, logits, vocab, position + 1, &next, &d), LW_OK);
        differ += here != next;
    }
    assert_true(differ > draws / 10);
}

static void whole_vocabularies_draw_as_defined(void **state)
{
    (void)state;
    static const lw_sampling options[] = {
        { .temperature = 1.0 },
        { .temperature = 1.0, .top_k = 50 },
        { .temperature = 1.0, .top_p = 0.95 },
        { .temperature = 1.0, .min_p = 0.05 },
        { .temperature = 0.8, .top_k = 5000, .top_p = 0.9 },
    };
    lw_rng rng = lw_rng_make(RNG_SEED + 1);
    for (uint32_t i = 0; i < 20; i++) {
        const uint32_t vocab = VOCAB_MAX - (i % 2) * 7;
        fill_logits(&rng, vocab);
        check_both(&options[i % 5], vocab, i);
    }
}

/* --- near ties and infinite noise ----------------------------------------------------------------------- */

static uint64_t unshift(uint64_t x, int shift)
{
    uint64_t y = x;
    for (int done = shift; done < 64; done += shift) y = x ^ (y >> shift);
    return y;
}

/* The inverse of an odd word: each step doubles the number of right bits. */
static uint64_t inverse(uint64_t odd)
{
    uint64_t x = odd;
    for (int i = 0; i < 6; i++) x *= 2 - odd * x;
    return x;
}

static uint64_t unmix(uint64_t x)
{
    x = unshift(x, 31) * inverse(0x94D049BB133111EBu);
    x = unshift(x, 27) * inverse(0xBF58476D1CE4E5B9u);
    return unshift(x, 30);
}

/* The position at which id's key is the one asked for. */
static uint64_t position_of_key(uint64_t seed, uint64_t id, uint64_t key)
{
    const uint64_t of_position = unmix(unmix(key) ^ id);
    const uint64_t of_seed = lw_rng_mix(seed + 0x9E3779B97F4A7C15u);
    const uint64_t position = (of_position ^ of_seed) * inverse(0xD1B54A32D192ED03u);
    assert_true(lw_sample_key(seed, position, id) == key);
    return position;
}

static void infinite_noise_wins_if_kept(void **state)
{
    (void)state;
    enum { VOCAB = 200, ID = 150 };
    for (uint64_t seed = 0; seed < 50; seed++) {
        const uint64_t position = position_of_key(seed, ID, UINT64_MAX - seed);
        for (uint32_t id = 0; id < VOCAB; id++) logits[id] = (float)(id % 10);
        logits[ID] = -3e38f;
        const lw_sampling full = { .temperature = 1.0, .seed = seed };
        const lw_sampling few = { .temperature = 1.0, .top_k = 20, .seed = seed };
        assert_int_equal(draw_both(&full, VOCAB, position).quick, ID);
        check_both(&full, VOCAB, position);
        assert_int_not_equal(draw_both(&few, VOCAB, position).quick, ID);
        check_both(&few, VOCAB, position);
        logits[ID] = -INFINITY;
        assert_int_not_equal(draw_both(&full, VOCAB, position).quick, ID);
        check_both(&full, VOCAB, position);
    }
}

/* Two ids in different blocks whose sums are as close as floats allow, everything else far behind: the
 * bound that skips must let the closer one through, at noises of every size. */
static void near_ties_draw_as_defined(void **state)
{
    (void)state;
    enum { VOCAB = 300, LEFT = 5, RIGHT = 210 };
    lw_rng rng = lw_rng_make(RNG_SEED + 2);
    uint32_t right_wins = 0;
    const uint32_t cases = draws / 5;
    for (uint32_t id = 0; id < VOCAB; id++) logits[id] = -1e6f;
    for (uint32_t i = 0; i < cases; i++) {
        const double temperature = PICK(&rng, ((const double[]){ 1.0, 0.5, 4.0, 1024.0 }));
        const lw_sampling s = { .temperature = temperature, .seed = i };
        /* High keys: rounding is coarsest where u nears 1. */
        const uint64_t key = UINT64_MAX - (lw_rng_next(&rng) >> lw_rng_below(&rng, 53));
        const uint64_t position = position_of_key(s.seed, RIGHT, key);
        const double left = lw_sample_gumbel(lw_sample_key(s.seed, position, LEFT));
        const double right = lw_sample_gumbel(key);
        if (isinf(right)) continue;
        logits[LEFT] = (float)lw_rng_below(&rng, 8);
        logits[RIGHT] = (float)(logits[LEFT] + s.temperature * (left - right));
        for (uint64_t step = lw_rng_below(&rng, 3); step > 0; step--)
            logits[RIGHT] = nextafterf(logits[RIGHT], i % 2 ? INFINITY : -INFINITY);
        const both token = draw_both(&s, VOCAB, position);
        assert_int_equal(token.quick, token.plain);
        right_wins += token.plain == RIGHT;
    }
    assert_true(right_wins > cases / 4);
    assert_true(right_wins < cases - cases / 4);
}

/* --- the nucleus ---------------------------------------------------------------------------------------- */

static lw__row row_of(uint32_t vocab, double temperature)
{
    lw__row row = {
        .sampler = sampler,
        .logits = logits,
        .vocab = vocab,
        .block_count = (vocab + LW__SAMPLE_BLOCK - 1) / LW__SAMPLE_BLOCK,
        .temperature = temperature,
    };
    assert_true(lw__row_scan(&row));
    row.scaled_first = lw__scaled(&row, row.first);
    return row;
}

static void masses_near_are_as_near_as_claimed(void **state)
{
    (void)state;
    lw_rng rng = lw_rng_make(RNG_SEED + 3);
    double worst = 0.0;
    for (int i = 0; i < 20000; i++) {
        double x[LW__SAMPLE_BLOCK], masses[LW__SAMPLE_BLOCK];
        for (int j = 0; j < LW__SAMPLE_BLOCK; j++) x[j] = -60.0 * lw_rng_unit(&rng);
        x[0] = 0.0;
        x[1] = -60.0;
        x[2] = -0.5 * M_LN2 * (1 + i % 170);
        lw__masses_near(x, masses);
        for (int j = 0; j < LW__SAMPLE_BLOCK; j++) worst = fmax(worst, fabs(masses[j] / exp(x[j]) - 1.0));
    }
    assert_true(worst <= 0x1p-36);
    assert_false(worst <= 0x1p-42);   /* planted control: a claim that the polynomial cannot keep */
}

static void bounded_and_exact_masses_cut_alike(void **state)
{
    (void)state;
    lw_rng rng = lw_rng_make(RNG_SEED + 4);
    uint32_t decided = 0, differ = 0;
    const uint32_t cases = draws / 10;
    for (uint32_t i = 0; i < cases; i++) {
        const uint32_t vocab = 1 + (uint32_t)lw_rng_below(&rng, 2000);
        const double temperature = PICK(&rng, ((const double[]){ 1.0, 0.6, 1.7, 50.0, 1e-6 }));
        const double mass = lw_rng_unit(&rng) * 0.998 + 0.001;
        fill_logits(&rng, vocab);
        lw__row bounded = row_of(vocab, temperature);
        if (i % 3 == 0) lw__row_keep_count(&bounded, 1 + (uint32_t)lw_rng_below(&rng, vocab));
        const uint64_t cut_before = bounded.cut;
        lw__row exact = bounded, other = bounded;
        lw__row_keep_mass_exact(&exact, mass);
        lw__row_keep_mass_exact(&other, mass * 0.98);
        if (lw__row_keep_mass_bounded(&bounded, mass)) {
            decided++;
            assert_true(bounded.cut == exact.cut);
            differ += bounded.cut != other.cut;
        } else {
            assert_true(bounded.cut == cut_before);
        }
    }
    assert_true(decided > cases - cases / 50);
    assert_true(differ > cases / 10);   /* planted control: another mass cuts elsewhere */
}

/* A mass that the definition reaches, or misses, by rounding alone must be left to its own sums. */
static void bounds_leave_exact_edges_open(void **state)
{
    (void)state;
    for (uint32_t vocab = 2; vocab <= 4096; vocab *= 2) {
        for (uint32_t id = 0; id < vocab; id++) logits[id] = 0.5f;
        lw__row row = row_of(vocab, 1.0);
        assert_false(lw__row_keep_mass_bounded(&row, 0.5));
        assert_false(lw__row_keep_mass_bounded(&row, nextafter(0.5, 1.0)));
        assert_true(lw__row_keep_mass_bounded(&row, 0.5 + 0x1p-20));
        assert_true(row.cut == lw__rank(row.first, vocab / 2));
    }
}

static void ranks_sort_in_the_order_of_the_definition(void **state)
{
    (void)state;
    lw_rng rng = lw_rng_make(RNG_SEED + 5);
    for (uint32_t i = 0; i < 400; i++) {
        const uint32_t vocab = 1 + (uint32_t)lw_rng_below(&rng, 600);
        fill_logits(&rng, vocab);
        const lw__row row = row_of(vocab, 1.0);
        const uint32_t count = lw__row_gather(&row, 0, row.cut);
        uint32_t finite = 0;
        for (uint32_t id = 0; id < vocab; id++) finite += logits[id] > -INFINITY;
        assert_int_equal(count, finite);
        lw__ranks_sort(sampler, count);
        for (uint32_t at = 1; at < count; at++) {
            const uint32_t a = lw__rank_id(sampler->ranks[at - 1]), b = lw__rank_id(sampler->ranks[at]);
            assert_true(logits[a] > logits[b] || (logits[a] == logits[b] && a < b));
            assert_true(lw__logit_of(lw__rank_high(sampler->ranks[at])) == logits[b]);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "long") == 0) draws = DRAWS_LONG;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_row_draws_as_defined),
        cmocka_unit_test(whole_vocabularies_draw_as_defined),
        cmocka_unit_test(infinite_noise_wins_if_kept),
        cmocka_unit_test(near_ties_draw_as_defined),
        cmocka_unit_test(masses_near_are_as_near_as_claimed),
        cmocka_unit_test(bounded_and_exact_masses_cut_alike),
        cmocka_unit_test(bounds_leave_exact_edges_open),
        cmocka_unit_test(ranks_sort_in_the_order_of_the_definition),
    };
    return cmocka_run_group_tests(tests, sampler_setup, sampler_teardown);
}
