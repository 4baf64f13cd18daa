/* The product of tiles (src/device/cpu/tile_ops.h): the emulated one against double precision, its rows alone
 * against its rows together, and the CPU's, where there is one, against it, bit for bit.
 */
#include "cpu_law.h"
#include "../fake/cpu_tiles.h"
#include "device/cpu/linear_kernels.h"
#include "device/cpu/tile_ops.h"

#include <fenv.h>

enum { SEED = 4711, STEP_MAX = 32, ROUNDS = 400, COLS = TILE_LANES, BF16_ODD = 0x7F80 };

/* Sums before and after, and what is multiplied: a (rows, step), b (step / 2, 16, 2). */
typedef struct matter {
    uint32_t rows, step;
    uint16_t a[TILE_ROWS * STEP_MAX], b[STEP_MAX * COLS];
    float from[TILE_ROWS * COLS], sums[TILE_ROWS * COLS];
} matter;

/* With `odd`, some values are NaNs, infinities, subnormals or of any exponent. */
static uint16_t value_of(lw_rng *rng, bool odd)
{
    if (odd && lw_rng_below(rng, 8) == 0) return (uint16_t)lw_rng_next(rng);
    if (odd && lw_rng_below(rng, 512) == 0) return BF16_ODD;
    return lw_bf16_of_float(lw_rng_normal(rng));
}

static void matter_init(matter *m, lw_rng *rng, bool odd)
{
    m->rows = 1 + (uint32_t)lw_rng_below(rng, TILE_ROWS);
    m->step = lw_rng_below(rng, 4) == 0 ? 16 : STEP_MAX;
    for (size_t i = 0; i < sizeof m->a / sizeof *m->a; i++) m->a[i] = value_of(rng, odd);
    for (size_t i = 0; i < sizeof m->b / sizeof *m->b; i++) m->b[i] = value_of(rng, odd);
    for (size_t i = 0; i < TILE_ROWS * COLS; i++) m->from[i] = lw_rng_normal(rng);
}

static void emulated(matter *m)
{
    fenv_t mode;
    memcpy(m->sums, m->from, sizeof m->sums);
    assert_int_equal(fegetenv(&mode), 0);
    lw__cpu_denormals_off();
    fake_tiles_product(m->sums, m->a, m->b, m->rows, m->step);
    assert_int_equal(fesetenv(&mode), 0);
}

static float a_of(const matter *m, uint32_t r, uint32_t k) { return lw_float_of_bf16(m->a[r * m->step + k]); }

static float b_of(const matter *m, uint32_t k, uint32_t n)
{
    return lw_float_of_bf16(m->b[(k / 2 * COLS + n) * 2 + k % 2]);
}

/* How many sums of m->rows rows lie beyond what step / 2 + 2 roundings of fp32 can do; `skipped` is left out.
 */
static size_t count_wrong(const matter *m, uint32_t skipped)
{
    size_t wrong = 0;
    for (uint32_t r = 0; r < m->rows; r++) {
        for (uint32_t n = 0; n < COLS; n++) {
            double want = (double)m->from[r * COLS + n], magnitude = fabs(want);
            for (uint32_t k = 0; k < m->step; k++) {
                const double term = (double)a_of(m, r, k) * (double)b_of(m, k, n);
                magnitude += fabs(term);
                if (k != skipped) want += term;
            }
            const double bound = (m->step / 2 + 2) * 0x1p-24 * magnitude;
            if (!(fabs((double)m->sums[r * COLS + n] - want) <= bound)) wrong++;
        }
    }
    return wrong;
}

static void emulated_products_are_sums(void **state)
{
    (void)state;
    lw_rng rng = law_rng(SEED);
    static matter m;
    for (int i = 0; i < ROUNDS; i++) {
        matter_init(&m, &rng, false);
        emulated(&m);
        assert_int_equal(count_wrong(&m, STEP_MAX), 0);
        assert_true(count_wrong(&m, m.step - 1) > 0); /* planted control: the last odd k is lost */
    }
}

/* One chain of fma over all k: another order. */
static void chained(const matter *m, float *sums)
{
    for (uint32_t r = 0; r < m->rows; r++)
        for (uint32_t n = 0; n < COLS; n++) {
            float sum = m->from[r * COLS + n];
            for (uint32_t k = 0; k < m->step; k++) sum = fmaf(a_of(m, r, k), b_of(m, k, n), sum);
            sums[r * COLS + n] = sum;
        }
}

static void rows_do_not_meet(void **state)
{
    (void)state;
    lw_rng rng = law_rng(SEED + 1);
    static matter m, one;
    float other[TILE_ROWS * COLS];
    for (int i = 0; i < ROUNDS; i++) {
        matter_init(&m, &rng, false);
        emulated(&m);
        for (uint32_t r = 0; r < m.rows; r++) {
            one = m;
            one.rows = 1;
            memcpy(one.a, m.a + r * m.step, m.step * sizeof *m.a);
            memcpy(one.from, m.from + r * COLS, COLS * sizeof *m.from);
            emulated(&one);
            assert_memory_equal(one.sums, m.sums + r * COLS, COLS * sizeof *m.sums);
        }
        chained(&m, other);
        assert_memory_not_equal(other, m.sums, m.rows * COLS * sizeof *other); /* planted control */
    }
}

#if defined(__x86_64__)
static void silicon(const matter *m, float *sums)
{
    const tile_config config = tile_config_of(m->rows, m->step);
    memcpy(sums, m->from, sizeof m->from);
    TILES_BEGIN(&config);
    TILE_LOAD(0, sums, TILE_BYTES);
    TILE_LOAD(4, m->a, m->step * sizeof *m->a);
    TILE_LOAD(6, m->b, TILE_BYTES);
    TILE_DOT(0, 4, 6);
    TILE_STORE(0, sums, TILE_BYTES);
    TILES_END();
}

/* Bits, where any NaN is as good as another: kernels store one. */
static bool is_same(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static void the_cpu_has_the_emulated_bits(void **state)
{
    (void)state;
    if (!lw__cpu_has_tiles()) {
        printf("SKIPPED: this CPU has no tiles\n");
        return;
    }
    lw_rng rng = law_rng(SEED + 2);
    static matter m;
    float sums[TILE_ROWS * COLS];
    size_t numbers = 0;
    for (int i = 0; i < ROUNDS; i++) {
        matter_init(&m, &rng, i % 2 != 0);
        emulated(&m);
        silicon(&m, sums);
        for (uint32_t at = 0; at < m.rows * COLS; at++) {
            if (!is_same(sums[at], m.sums[at]))
                fail_msg("round %d, sum %u: %a on the CPU, %a emulated", i, at, (double)sums[at],
                         (double)m.sums[at]);
            if (!isnan(sums[at])) numbers++;
        }
        if (i % 2 != 0) continue;
        chained(&m, m.sums); /* planted control */
        assert_memory_not_equal(sums, m.sums, m.rows * COLS * sizeof *sums);
    }
    printf("%zu equal numbers\n", numbers);
}
#endif

int main(void)
{
#if defined(__x86_64__)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(emulated_products_are_sums),
        cmocka_unit_test(rows_do_not_meet),
        cmocka_unit_test(the_cpu_has_the_emulated_bits),
    };
    if (lw__cpu_has_avx512()) return cmocka_run_group_tests(tests, NULL, NULL);
#endif
    printf("SKIPPED: this CPU has no AVX-512, which the emulation is compiled for\n");
    return 0;
}
