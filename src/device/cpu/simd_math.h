/* Functions of one vector, built on simd.h alone: exp, sigmoid, silu, softplus, sums and maxima over lanes,
 * short loads. A tail goes through the same vector code, padded with zeros, so no element ever sees another
 * formula.
 */
#ifndef LW_DEVICE_CPU_SIMD_MATH_H
#define LW_DEVICE_CPU_SIMD_MATH_H

#include "device/cpu/simd.h"

/* e^x within 2 ulp (subnormal results: 2 of their spacing). -inf and all below -104 give 0, +inf and all
 * above 89 give +inf, NaN stays NaN. x = n ln 2 + r with |r| <= ln 2 / 2; the high part of ln 2 has 9 bits,
 * so that n times it is exact without fma; e^r = 1 + r + r^2 q(r). */
SIMD_INLINE simd_f simd_exp(simd_f x)
{
    x = simd_max(simd_set(-104.0f), simd_min(simd_set(89.0f), x));
    const simd_f t = simd_add(simd_mul(x, simd_set(0x1.715476p0f)), simd_set(SIMD_ROUND));
    const simd_f n = simd_sub(t, simd_set(SIMD_ROUND));
    simd_f r = simd_sub(x, simd_mul(n, simd_set(0x1.63p-1f)));
    r = simd_sub(r, simd_mul(n, simd_set(-0x1.bd0106p-13f)));
    simd_f q = simd_set(0x1.a1256cp-13f);
    q = simd_fma(q, r, simd_set(0x1.6d43bp-10f));
    q = simd_fma(q, r, simd_set(0x1.1110ep-7f));
    q = simd_fma(q, r, simd_set(0x1.5554e8p-5f));
    q = simd_fma(q, r, simd_set(0x1.555556p-3f));
    q = simd_fma(q, r, simd_set(0x1p-1f));
    const simd_f tail = simd_fma(simd_mul(r, r), q, r);
    return simd_scale(simd_add(tail, simd_set(1.0f)), t);
}

SIMD_INLINE float simd_exp_one(float x)
{
    float lanes[SIMD_WIDTH];
    simd_store(lanes, simd_exp(simd_set(x)));
    return lanes[0];
}

/* 1 / (1 + e^-x), of e^-|x| on both sides so that neither overflows nor cancels. */
SIMD_INLINE simd_f simd_sigmoid(simd_f x)
{
    const simd_f e = simd_exp(simd_neg_abs(x)), one = simd_set(1.0f);
    return simd_div(simd_select(simd_ge(x, simd_set(0.0f)), one, e), simd_add(one, e));
}

/* x sigmoid(x); -inf counts as the least finite number, so that it gives -0 and not NaN. */
SIMD_INLINE simd_f simd_silu(simd_f x)
{
    const simd_f finite = simd_max(simd_set(-0x1.fffffep127f), x);
    return simd_mul(finite, simd_sigmoid(finite));
}

/* ln(1 + x) for x in [0, 1] within 3 ulp: 2 atanh(s) = 2 s + 2 s^3 p(s^2) where s = x / (2 + x) <= 1/3, so
 * that nothing cancels where x is small. */
SIMD_INLINE simd_f simd_log1p_unit(simd_f x)
{
    const simd_f twice = simd_div(simd_add(x, x), simd_add(x, simd_set(2.0f)));
    const simd_f s = simd_mul(twice, simd_set(0.5f)), z = simd_mul(s, s);
    simd_f p = simd_set(0x1.dba26p-4f);
    p = simd_fma(p, z, simd_set(0x1.bc8cf8p-4f));
    p = simd_fma(p, z, simd_set(0x1.24c926p-3f));
    p = simd_fma(p, z, simd_set(0x1.9998d4p-3f));
    p = simd_fma(p, z, simd_set(0x1.555556p-2f));
    return simd_fma(simd_mul(twice, z), p, twice);
}

/* ln(1 + e^x), of e^-|x| on both sides: -inf gives 0, +inf stays, NaN stays NaN. */
SIMD_INLINE simd_f simd_softplus(simd_f x)
{
    const simd_f above = simd_max(simd_set(0.0f), x);
    return simd_add(above, simd_log1p_unit(simd_exp(simd_neg_abs(x))));
}

/* Lanes i and i + half, halves until one is left. */
SIMD_INLINE float simd_sum_lanes(simd_f x)
{
    float lanes[SIMD_WIDTH];
    simd_store(lanes, x);
    SIMD_UNROLL
    for (int half = SIMD_WIDTH / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
    }
    return lanes[0];
}

SIMD_INLINE float simd_max_lanes(simd_f x)
{
    float lanes[SIMD_WIDTH];
    simd_store(lanes, x);
    SIMD_UNROLL
    for (int half = SIMD_WIDTH / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) lanes[i] = lanes[i] > lanes[i + half] ? lanes[i] : lanes[i + half];
    }
    return lanes[0];
}

/* The first count of a vector; lanes past them read as 0 and are not written. */
SIMD_INLINE simd_f simd_load_some(const float *p, size_t count)
{
    if (count >= SIMD_WIDTH) return simd_load(p);
    float lanes[SIMD_WIDTH] = { 0 };
    memcpy(lanes, p, count * sizeof *p);
    return simd_load(lanes);
}

SIMD_INLINE void simd_store_some(float *p, simd_f x, size_t count)
{
    float lanes[SIMD_WIDTH];
    if (count >= SIMD_WIDTH) {
        simd_store(p, x);
        return;
    }
    simd_store(lanes, x);
    memcpy(p, lanes, count * sizeof *p);
}

SIMD_INLINE simd_f simd_load_bf_some(const uint16_t *p, size_t count)
{
    if (count >= SIMD_WIDTH) return simd_load_bf(p);
    uint16_t lanes[SIMD_WIDTH] = { 0 };
    memcpy(lanes, p, count * sizeof *p);
    return simd_load_bf(lanes);
}

SIMD_INLINE simd_f simd_load_i8_some(const int8_t *p, size_t count)
{
    if (count >= SIMD_WIDTH) return simd_load_i8(p);
    int8_t lanes[SIMD_WIDTH] = { 0 };
    memcpy(lanes, p, count * sizeof *p);
    return simd_load_i8(lanes);
}

SIMD_INLINE void simd_store_bf_some(uint16_t *p, simd_f x, size_t count)
{
    uint16_t lanes[SIMD_WIDTH];
    if (count >= SIMD_WIDTH) {
        simd_store_bf(p, x);
        return;
    }
    simd_store_bf(lanes, x);
    memcpy(p, lanes, count * sizeof *p);
}

/* Rounds to bf16, ties to even, and widens again. */
SIMD_INLINE simd_f simd_round_bf(simd_f x)
{
    uint16_t lanes[SIMD_WIDTH];
    simd_store_bf(lanes, x);
    return simd_load_bf(lanes);
}

#endif
