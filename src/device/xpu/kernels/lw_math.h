/* Functions of one number, built on the operations that IEEE 754 fixes: their bits are the same whatever
 * library the compiler brings. Read by OpenCL C only, through lw_xpu.h.
 */
#ifndef LW_DEVICE_XPU_KERNELS_LW_MATH_H
#define LW_DEVICE_XPU_KERNELS_LW_MATH_H

/* 2^n for n in [-126, 127]. */
static inline float power_of_two(int n)
{
    return as_float(((uint)n + 127u) << 23);
}

static inline float minus_abs(float x)
{
    return as_float(as_uint(x) | 0x80000000u);
}

/* e^x within 2 ulp (subnormal results: 2 of their spacing). -inf and all below -104 give 0, +inf and all
 * above 89 give +inf, NaN stays NaN. x = n ln 2 + r with |r| <= ln 2 / 2; the high part of ln 2 has 9 bits,
 * so that n times it is exact; e^r = 1 + r + r^2 q(r). */
static inline float exp_of(float x)
{
    const float shift = 0x1.8p23f;
    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    const float t = x * 0x1.715476p0f + shift, n = t - shift;
    const float r = fma(n, 0x1.bd0106p-13f, fma(n, -0x1.63p-1f, x));
    float q = 0x1.a1256cp-13f;
    q = fma(q, r, 0x1.6d43bp-10f);
    q = fma(q, r, 0x1.1110ep-7f);
    q = fma(q, r, 0x1.5554e8p-5f);
    q = fma(q, r, 0x1.555556p-3f);
    q = fma(q, r, 0.5f);
    const float near = fma(r * r, q, r) + 1.0f;
    /* Two powers, since one may not exist; a NaN stays one by whatever it is multiplied. */
    const int power = as_int(t) - as_int(shift), part = power >> 1;
    return near * power_of_two(part) * power_of_two(power - part);
}

/* ln(1 + x) for x in [0, 1] within 3 ulp: 2 atanh(s) = 2 s + 2 s^3 p(s^2) where s = x / (2 + x) <= 1/3, so
 * that nothing cancels where x is small. */
static inline float log1p_unit(float x)
{
    const float twice = (x + x) / (x + 2.0f), s = twice * 0.5f, z = s * s;
    float p = 0x1.dba26p-4f;
    p = fma(p, z, 0x1.bc8cf8p-4f);
    p = fma(p, z, 0x1.24c926p-3f);
    p = fma(p, z, 0x1.9998d4p-3f);
    p = fma(p, z, 0x1.555556p-2f);
    return fma(twice * z, p, twice);
}

/* 1 / (1 + e^-x), of e^-|x| on both sides so that neither overflows nor cancels. */
static inline float sigmoid(float x)
{
    const float e = exp_of(minus_abs(x));
    return (x >= 0.0f ? 1.0f : e) / (1.0f + e);
}

/* x sigmoid(x); -inf counts as the least finite number, so that it gives -0 and not NaN. */
static inline float silu(float x)
{
    const float finite = x < -0x1.fffffep127f ? -0x1.fffffep127f : x;
    return finite * sigmoid(finite);
}

/* ln(1 + e^x), of e^-|x| on both sides: -inf gives 0, +inf stays, NaN stays NaN. */
static inline float softplus(float x)
{
    return (x < 0.0f ? 0.0f : x) + log1p_unit(exp_of(minus_abs(x)));
}

#endif
