/* 16-bit floats: every bf16 and fp16 pattern widens to its value, and narrowing is to nearest, ties to
 * even. */
#include "base/float16.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>

static void every_bf16_survives_widening_and_narrowing(void **state)
{
    (void)state;
    for (uint32_t half = 0; half < 0x10000; half++) {
        const float wide = lw_float_of_bf16((uint16_t)half);
        const uint16_t back = lw_bf16_of_float(wide);
        if (isnan(wide)) assert_true(isnan(lw_float_of_bf16(back)));
        else assert_int_equal(back, half);
    }
}

/* Between each pair of neighbours: just below the middle goes down, just above goes up, the middle goes to
 * even. */
static void narrowing_is_to_nearest_ties_to_even(void **state)
{
    (void)state;
    for (uint32_t half = 0; half < 0x7F80; half++) {
        const uint32_t middle = half << 16 | 0x8000u;
        assert_int_equal(lw_bf16_of_float(lw_float_of_bits(middle - 1)), half);
        assert_int_equal(lw_bf16_of_float(lw_float_of_bits(middle + 1)), half + 1);
        const uint32_t even = half + (half & 1);
        assert_int_equal(lw_bf16_of_float(lw_float_of_bits(middle)), even);
        assert_int_equal(lw_bf16_of_float(lw_float_of_bits(middle | 0x80000000u)), even | 0x8000u);
    }
}

static void a_nan_stays_one_whatever_its_payload(void **state)
{
    (void)state;
    assert_true(isnan(lw_float_of_bf16(lw_bf16_of_float(lw_float_of_bits(0x7F800001u)))));
    assert_true(isnan(lw_float_of_bf16(lw_bf16_of_float(lw_float_of_bits(0xFFFFFFFFu)))));
    assert_true(isinf(lw_float_of_bf16(lw_bf16_of_float(INFINITY))));
}

static void every_fp16_has_its_value(void **state)
{
    (void)state;
    for (uint32_t half = 0; half < 0x10000; half++) {
        const int exponent = (int)(half >> 10 & 0x1F);
        const float mantissa = (float)(half & 0x3FF), got = lw_float_of_fp16((uint16_t)half);
        const float normal = ldexpf(1024.0f + mantissa, exponent - 25);
        const float size = exponent == 0 ? ldexpf(mantissa, -24) : exponent < 31 ? normal : INFINITY;
        if (exponent == 31 && mantissa > 0.0f) {
            assert_true(isnan(got));
            continue;
        }
        assert_true(fabsf(got) == size);
        assert_true((signbit(got) != 0) == (half >> 15 == 1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bf16_survives_widening_and_narrowing),
        cmocka_unit_test(narrowing_is_to_nearest_ties_to_even),
        cmocka_unit_test(a_nan_stays_one_whatever_its_payload),
        cmocka_unit_test(every_fp16_has_its_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
