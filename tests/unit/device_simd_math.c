/* exp, sigmoid, silu and softplus of the cpu device against FP64, over the whole range and at its edges.
 * This program is built for the plain C vectors; the other sets run the same source with their fma.
 */
#include "device/cpu/simd_math.h"

static float exp_of(float x)
{
    float lanes[SIMD_WIDTH];
    simd_store(lanes, simd_exp(simd_set(x)));
    return lanes[SIMD_WIDTH - 1];
}

static float sigmoid_of(float x)
{
    float lanes[SIMD_WIDTH];
    simd_store(lanes, simd_sigmoid(simd_set(x)));
    return lanes[0];
}

static float silu_of(float x)
{
    float lanes[SIMD_WIDTH];
    simd_store(lanes, simd_silu(simd_set(x)));
    return lanes[0];
}

static float log1p_of(float x)
{
    float lanes[SIMD_WIDTH];
    simd_store(lanes, simd_log1p_unit(simd_set(x)));
    return lanes[1];
}

static float softplus_of(float x)
{
    float lanes[SIMD_WIDTH];
    simd_store(lanes, simd_softplus(simd_set(x)));
    return lanes[SIMD_WIDTH - 1];
}

#include "math_of_device.h"

/* Every lane and every short count give what a full vector gives. */
static void short_vectors_are_full_ones(void **state)
{
    (void)state;
    float x[SIMD_WIDTH];
    uint16_t half[SIMD_WIDTH], out[SIMD_WIDTH + 1];
    for (int i = 0; i < SIMD_WIDTH; i++) {
        x[i] = 0.37f * (float)i - 1.0f;
        half[i] = lw_bf16_of_float(x[i]);
    }
    for (size_t count = 1; count <= SIMD_WIDTH; count++) {
        memset(out, 0xAB, sizeof out);
        simd_store_bf_some(out, simd_exp(simd_load_bf_some(half, count)), count);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(out[i], lw_bf16_of_float(exp_of(lw_float_of_bf16(half[i]))));
        }
        for (size_t i = count; i <= SIMD_WIDTH; i++) assert_int_equal(out[i], 0xABAB);
        float wide[SIMD_WIDTH + 1];
        for (size_t i = 0; i <= SIMD_WIDTH; i++) wide[i] = 77.0f;
        simd_store_some(wide, simd_exp(simd_load_some(x, count)), count);
        for (size_t i = 0; i < count; i++) assert_true(wide[i] == exp_of(x[i]));
        for (size_t i = count; i <= SIMD_WIDTH; i++) assert_true(wide[i] == 77.0f);
    }
    float sum = x[0], largest = x[0];
    for (int i = 1; i < SIMD_WIDTH; i++) {
        sum += x[i];
        largest = fmaxf(largest, x[i]);
    }
    assert_true(fabsf(simd_sum_lanes(simd_load(x)) - sum) < 1e-5f);
    assert_true(simd_max_lanes(simd_load(x)) == largest);
}

/* Rounding to bf16 against the scalar definition: ties, NaN, infinities, subnormals. */
static void narrowing_agrees_with_the_scalar_one(void **state)
{
    (void)state;
    for (uint32_t high = 0; high < 0x10000; high++) {
        static const uint32_t lows[] = { 0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF };
        for (size_t i = 0; i < sizeof lows / sizeof lows[0]; i++) {
            const float x = lw_float_of_bits(high << 16 | lows[i]);
            uint16_t out[SIMD_WIDTH];
            simd_store_bf(out, simd_set(x));
            assert_int_equal(out[SIMD_WIDTH / 2], lw_bf16_of_float(x));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MATH_OF_DEVICE_TESTS,
        cmocka_unit_test(short_vectors_are_full_ones),
        cmocka_unit_test(narrowing_agrees_with_the_scalar_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
