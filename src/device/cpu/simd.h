/* One vector of floats, so that every row kernel is written once for all instruction sets. The including file
 * defines SIMD_AVX2 or SIMD_AVX512, or neither for four floats in plain C, which compilers lower on SSE2,
 * NEON and others. simd_fma is one rounding where the set has it and multiply-then-add elsewhere: bits differ
 * between sets, never between two uses in one set. simd_max returns its second operand when either is NaN, as
 * x86 does.
 */
#ifndef LW_DEVICE_CPU_SIMD_H
#define LW_DEVICE_CPU_SIMD_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SIMD_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define SIMD_UNROLL _Pragma("clang loop unroll(full)")
#else
#define SIMD_UNROLL _Pragma("GCC unroll 16")
#endif

/* Adding it rounds a float below 2^22 to the nearest whole number, ties to even, and keeps that in the low
 * bits. */
#define SIMD_ROUND 0x1.8p23f

#if defined(SIMD_AVX512)
#include <immintrin.h>
enum { SIMD_WIDTH = 16 };
typedef __m512 simd_f;
typedef __mmask16 simd_mask;
SIMD_INLINE simd_f simd_set(float x) { return _mm512_set1_ps(x); }
SIMD_INLINE simd_f simd_load(const float *p) { return _mm512_loadu_ps(p); }
SIMD_INLINE void simd_store(float *p, simd_f x) { _mm512_storeu_ps(p, x); }
SIMD_INLINE simd_f simd_add(simd_f a, simd_f b) { return _mm512_add_ps(a, b); }
SIMD_INLINE simd_f simd_sub(simd_f a, simd_f b) { return _mm512_sub_ps(a, b); }
SIMD_INLINE simd_f simd_mul(simd_f a, simd_f b) { return _mm512_mul_ps(a, b); }
SIMD_INLINE simd_f simd_div(simd_f a, simd_f b) { return _mm512_div_ps(a, b); }
SIMD_INLINE simd_f simd_fma(simd_f a, simd_f b, simd_f c) { return _mm512_fmadd_ps(a, b, c); }
SIMD_INLINE simd_f simd_max(simd_f a, simd_f b) { return _mm512_max_ps(a, b); }
SIMD_INLINE simd_f simd_min(simd_f a, simd_f b) { return _mm512_min_ps(a, b); }
SIMD_INLINE simd_mask simd_ge(simd_f a, simd_f b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }
SIMD_INLINE simd_f simd_select(simd_mask m, simd_f a, simd_f b) { return _mm512_mask_blend_ps(m, b, a); }
SIMD_INLINE simd_f simd_neg_abs(simd_f x) { return _mm512_or_ps(x, _mm512_set1_ps(-0.0f)); }
SIMD_INLINE simd_f simd_of_bits(__m512i bits) { return _mm512_castsi512_ps(bits); }
SIMD_INLINE __m512i simd_bits(simd_f x) { return _mm512_castps_si512(x); }

/* x * 2^n for whole n in [-150, 128], rounded once, where t = SIMD_ROUND + n. */
SIMD_INLINE simd_f simd_scale(simd_f x, simd_f t)
{
    return _mm512_scalef_ps(x, _mm512_sub_ps(t, _mm512_set1_ps(SIMD_ROUND)));
}

SIMD_INLINE simd_f simd_load_bf(const uint16_t *p)
{
    return simd_of_bits(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)), 16));
}

SIMD_INLINE simd_f simd_load_i8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p)));
}

SIMD_INLINE void simd_store_bf(uint16_t *p, simd_f x)
{
    const __m512i bits = simd_bits(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i near = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __m512i kept = _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), near, quiet);
    _mm256_storeu_si256((void *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16)));
}

#elif defined(SIMD_AVX2)
#include <immintrin.h>
enum { SIMD_WIDTH = 8 };
typedef __m256 simd_f;
typedef __m256 simd_mask;
SIMD_INLINE simd_f simd_set(float x) { return _mm256_set1_ps(x); }
SIMD_INLINE simd_f simd_load(const float *p) { return _mm256_loadu_ps(p); }
SIMD_INLINE void simd_store(float *p, simd_f x) { _mm256_storeu_ps(p, x); }
SIMD_INLINE simd_f simd_add(simd_f a, simd_f b) { return _mm256_add_ps(a, b); }
SIMD_INLINE simd_f simd_sub(simd_f a, simd_f b) { return _mm256_sub_ps(a, b); }
SIMD_INLINE simd_f simd_mul(simd_f a, simd_f b) { return _mm256_mul_ps(a, b); }
SIMD_INLINE simd_f simd_div(simd_f a, simd_f b) { return _mm256_div_ps(a, b); }
SIMD_INLINE simd_f simd_fma(simd_f a, simd_f b, simd_f c) { return _mm256_fmadd_ps(a, b, c); }
SIMD_INLINE simd_f simd_max(simd_f a, simd_f b) { return _mm256_max_ps(a, b); }
SIMD_INLINE simd_f simd_min(simd_f a, simd_f b) { return _mm256_min_ps(a, b); }
SIMD_INLINE simd_mask simd_ge(simd_f a, simd_f b) { return _mm256_cmp_ps(a, b, _CMP_GE_OQ); }
SIMD_INLINE simd_f simd_select(simd_mask m, simd_f a, simd_f b) { return _mm256_blendv_ps(b, a, m); }
SIMD_INLINE simd_f simd_neg_abs(simd_f x) { return _mm256_or_ps(x, _mm256_set1_ps(-0.0f)); }
SIMD_INLINE simd_f simd_of_bits(__m256i bits) { return _mm256_castsi256_ps(bits); }
SIMD_INLINE __m256i simd_bits(simd_f x) { return _mm256_castps_si256(x); }

/* x * 2^n for whole n in [-150, 128], rounded once, where t = SIMD_ROUND + n: two powers, since one may not
 * exist. */
SIMD_INLINE simd_f simd_scale(simd_f x, simd_f t)
{
    const __m256i n = _mm256_sub_epi32(simd_bits(t), simd_bits(_mm256_set1_ps(SIMD_ROUND)));
    const __m256i half = _mm256_srai_epi32(n, 1), rest = _mm256_sub_epi32(n, half);
    const __m256i one = _mm256_set1_epi32(127); /* the exponent bits of 2^0 */
    const simd_f scaled = _mm256_mul_ps(x, simd_of_bits(_mm256_slli_epi32(_mm256_add_epi32(half, one), 23)));
    return _mm256_mul_ps(scaled, simd_of_bits(_mm256_slli_epi32(_mm256_add_epi32(rest, one), 23)));
}

SIMD_INLINE simd_f simd_load_bf(const uint16_t *p)
{
    return simd_of_bits(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p)), 16));
}

SIMD_INLINE simd_f simd_load_i8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p)));
}

SIMD_INLINE void simd_store_bf(uint16_t *p, simd_f x)
{
    const __m256i bits = simd_bits(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i near = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i is_nan = simd_bits(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i kept = _mm256_srli_epi32(_mm256_blendv_epi8(near, quiet, is_nan), 16);
    const __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(kept), _mm256_extracti128_si256(kept, 1));
    _mm_storeu_si128((void *)p, packed);
}

#else
enum { SIMD_WIDTH = 4 };
typedef float simd_f __attribute__((vector_size(16)));
typedef int32_t simd_mask __attribute__((vector_size(16)));
typedef uint32_t simd_u __attribute__((vector_size(16)));
typedef uint16_t simd_h __attribute__((vector_size(8)));
typedef int8_t simd_b __attribute__((vector_size(4)));
SIMD_INLINE simd_f simd_set(float x) { return (simd_f){ x, x, x, x }; }
SIMD_INLINE simd_f simd_load(const float *p) { simd_f x; memcpy(&x, p, sizeof x); return x; }
SIMD_INLINE void simd_store(float *p, simd_f x) { memcpy(p, &x, sizeof x); }
SIMD_INLINE simd_f simd_add(simd_f a, simd_f b) { return a + b; }
SIMD_INLINE simd_f simd_sub(simd_f a, simd_f b) { return a - b; }
SIMD_INLINE simd_f simd_mul(simd_f a, simd_f b) { return a * b; }
SIMD_INLINE simd_f simd_div(simd_f a, simd_f b) { return a / b; }
SIMD_INLINE simd_f simd_fma(simd_f a, simd_f b, simd_f c) { return a * b + c; }
SIMD_INLINE simd_mask simd_ge(simd_f a, simd_f b) { return (simd_mask)(a >= b); }
SIMD_INLINE simd_u simd_bits(simd_f x) { return (simd_u)x; }
SIMD_INLINE simd_f simd_of_bits(simd_u bits) { return (simd_f)bits; }
SIMD_INLINE simd_u simd_u_set(uint32_t x) { return (simd_u){ x, x, x, x }; }

SIMD_INLINE simd_f simd_select(simd_mask m, simd_f a, simd_f b)
{
    return simd_of_bits((simd_bits(a) & (simd_u)m) | (simd_bits(b) & ~(simd_u)m));
}
SIMD_INLINE simd_f simd_max(simd_f a, simd_f b) { return simd_select((simd_mask)(a > b), a, b); }
SIMD_INLINE simd_f simd_min(simd_f a, simd_f b) { return simd_select((simd_mask)(a < b), a, b); }
SIMD_INLINE simd_f simd_neg_abs(simd_f x) { return simd_of_bits(simd_bits(x) | simd_u_set(0x80000000u)); }

SIMD_INLINE simd_f simd_load_bf(const uint16_t *p)
{
    simd_h half;
    memcpy(&half, p, sizeof half);
    return simd_of_bits(__builtin_convertvector(half, simd_u) << 16);
}

SIMD_INLINE simd_f simd_load_i8(const int8_t *p)
{
    simd_b codes;
    memcpy(&codes, p, sizeof codes);
    return __builtin_convertvector(codes, simd_f);
}

SIMD_INLINE void simd_store_bf(uint16_t *p, simd_f x)
{
    const simd_u bits = simd_bits(x), near = bits + simd_u_set(0x7FFF) + ((bits >> 16) & simd_u_set(1));
    const simd_u quiet = bits | simd_u_set(0x400000), number = (simd_u)(x == x);
    const simd_h half = __builtin_convertvector(((near & number) | (quiet & ~number)) >> 16, simd_h);
    memcpy(p, &half, sizeof half);
}

/* x * 2^n for whole n in [-150, 128], rounded once, where t = SIMD_ROUND + n: two powers, since one may not
 * exist. */
SIMD_INLINE simd_f simd_scale(simd_f x, simd_f t)
{
    const simd_mask n = (simd_mask)(simd_bits(t) - simd_bits(simd_set(SIMD_ROUND))), half = n >> 1;
    const simd_f scaled = x * simd_of_bits(((simd_u)half + simd_u_set(127)) << 23);
    return scaled * simd_of_bits(((simd_u)(n - half) + simd_u_set(127)) << 23);
}
#endif

#endif
