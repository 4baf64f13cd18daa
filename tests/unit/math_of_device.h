/* exp, sigmoid, silu, log1p and softplus of one device against FP64, over the whole range and at its edges.
 * The including program defines them first, as exp_of, sigmoid_of, silu_of, log1p_of (of 0 to 1) and
 * softplus_of.
 */
#ifndef LW_TESTS_MATH_OF_DEVICE_H
#define LW_TESTS_MATH_OF_DEVICE_H

#include "base/float16.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <cmocka.h>
#include <math.h>

/* |got - want| in units of the last place of want as fp32; subnormals have one spacing. */
static inline double ulps(float got, double want)
{
    int exponent;
    frexp(want, &exponent);
    return fabs((double)got - want) / ldexp(1, (exponent < -125 ? -125 : exponent) - 24);
}

typedef float fp32_function(float x);
typedef double fp64_function(double x);

static inline double sigmoid_fp64(double x) { return 1 / (1 + exp(-x)); }
static inline double silu_fp64(double x) { return x / (1 + exp(-x)); }
static inline double softplus_fp64(double x) { return (x > 0 ? x : 0) + log1p(exp(-fabs(x))); }
static inline double softplus_cut(double x)
{
    return x > 12 ? x : softplus_fp64(x);
} /* planted: linear too soon */
static inline double exp_moved(double x)
{
    return exp(x * (1 + 0x1p-19));
} /* planted: a slightly wrong log2(e) */

/* The largest error over every 997th float of both signs up to a size. */
static inline double worst_ulps(fp32_function *got, fp64_function *want, float size)
{
    double worst = 0;
    for (uint32_t bits = 0; bits <= lw_bits_of_float(size); bits += 997) {
        const float x = lw_float_of_bits(bits);
        worst = fmax(worst, ulps(got(x), want((double)x)));
        worst = fmax(worst, ulps(got(-x), want((double)-x)));
    }
    return worst;
}

static inline void functions_stay_within_their_ulps(void **state)
{
    (void)state;
    const double exp_worst = worst_ulps(exp_of, exp, 88.7f);
    const double sigmoid_worst = worst_ulps(sigmoid_of, sigmoid_fp64, 87.0f);
    const double silu_worst = worst_ulps(silu_of, silu_fp64, 87.0f);
    print_message("ulp: exp %.3f, sigmoid %.3f, silu %.3f\n", exp_worst, sigmoid_worst, silu_worst);
    assert_true(exp_worst < 2);
    assert_true(sigmoid_worst < 4); /* exp, the sum and the quotient */
    assert_true(silu_worst < 5);    /* and the product */
    assert_true(worst_ulps(exp_of, exp_moved, 88.7f) > 2);
}

static inline void exp_is_sane_at_the_edges(void **state)
{
    (void)state;
    assert_true(exp_of(0.0f) == 1.0f);
    assert_true(exp_of(-0.0f) == 1.0f);
    assert_true(exp_of(INFINITY) == INFINITY);
    assert_true(exp_of(0x1.fffffep127f) == INFINITY);
    assert_true(exp_of(88.72f) < INFINITY);
    assert_true(exp_of(88.73f) == INFINITY);
    assert_true(lw_bits_of_float(exp_of(-INFINITY)) == 0);
    assert_true(lw_bits_of_float(exp_of(-0x1.fffffep127f)) == 0);
    assert_true(lw_bits_of_float(exp_of(-104.5f)) == 0);
    assert_true(exp_of(-103.0f) > 0.0f);
    assert_true(isnan(exp_of(NAN)));
    assert_true(lw_bits_of_float(silu_of(-INFINITY)) == 0x80000000u);
    assert_true(silu_of(INFINITY) == INFINITY);
    assert_true(sigmoid_of(-INFINITY) == 0.0f);
    assert_true(sigmoid_of(INFINITY) == 1.0f);
}

static inline void softplus_stays_within_its_ulps(void **state)
{
    (void)state;
    double unit_worst = 0;
    for (uint32_t bits = 0; bits <= lw_bits_of_float(1.0f); bits += 997) {
        const float x = lw_float_of_bits(bits);
        unit_worst = fmax(unit_worst, ulps(log1p_of(x), log1p((double)x)));
    }
    unit_worst = fmax(unit_worst, ulps(log1p_of(1.0f), log(2)));
    const double worst = worst_ulps(softplus_of, softplus_fp64, 87.0f);
    print_message("ulp: log1p %.3f, softplus %.3f\n", unit_worst, worst);
    assert_true(unit_worst < 3);
    assert_true(worst < 5); /* exp, log1p */
    assert_true(worst_ulps(softplus_of, softplus_cut, 87.0f) > 5);
}

/* Over steps of 2^-12 of x or 2^-14, softplus never falls; at its ends it is 0 and x. */
static inline void softplus_rises_and_is_sane_at_the_edges(void **state)
{
    (void)state;
    float before = 0.0f;
    for (float x = -110.0f; x < 110.0f; x += fmaxf(fabsf(x) * 0x1p-12f, 0x1p-14f)) {
        assert_true(softplus_of(x) >= before);
        before = softplus_of(x);
    }
    assert_true(before > 109.0f);
    assert_true(lw_bits_of_float(softplus_of(-INFINITY)) == 0);
    assert_true(softplus_of(INFINITY) == INFINITY);
    assert_true(softplus_of(1e30f) == 1e30f);
    assert_true(softplus_of(-103.0f) > 0.0f);
    assert_true(lw_bits_of_float(log1p_of(0.0f)) == 0);
    assert_true(isnan(softplus_of(NAN)));
    assert_true(isnan(softplus_of(-NAN)));
}

#define MATH_OF_DEVICE_TESTS \
    cmocka_unit_test(functions_stay_within_their_ulps), cmocka_unit_test(exp_is_sane_at_the_edges), \
        cmocka_unit_test(softplus_stays_within_its_ulps), \
        cmocka_unit_test(softplus_rises_and_is_sane_at_the_edges)

#endif
