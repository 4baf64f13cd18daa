/* One vector of fp32 and of 32-bit words for the linear kernels. The including file defines LINEAR_AVX2 or
 * LINEAR_AVX512, or neither for plain C that compilers lower on SSE2, NEON and others.
 * vf_fma is one rounding where the set has it and multiply-then-add elsewhere: bits differ between
 * instruction sets, never between two uses in one. vi_srl takes any count, vi_srli and vi_slli a constant.
 * vf_load_e4m3 reads 8-bit floats as their value / 256: an fp16 of the same bits, which no mode flushes.
 * vf_lookup takes the low four bits of a lane as an index. vi_held is a constant that stays in a register:
 * compilers would load it again at each use, though that leaves no memory operand for the codes.
 */
#ifndef LW_DEVICE_CPU_LINEAR_SIMD_H
#define LW_DEVICE_CPU_LINEAR_SIMD_H

#include <stdint.h>
#include <string.h>

#define LINEAR_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define LINEAR_UNROLL _Pragma("clang loop unroll(full)")
#else
#define LINEAR_UNROLL _Pragma("GCC unroll 16")
#endif

#if defined(LINEAR_AVX512)
#include <immintrin.h>
enum { LANES = 16 };
typedef __m512 vf;
typedef __m512i vi;
LINEAR_INLINE vf vf_zero(void) { return _mm512_setzero_ps(); }
LINEAR_INLINE vf vf_set(float x) { return _mm512_set1_ps(x); }
LINEAR_INLINE vf vf_load(const void *p) { return _mm512_loadu_ps(p); }
LINEAR_INLINE void vf_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
LINEAR_INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
LINEAR_INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
LINEAR_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
LINEAR_INLINE void vf_fma_to(vf *sum, vf a, vf b) { *sum = vf_fma(a, b, *sum); }
LINEAR_INLINE vf vf_of_int(vi x) { return _mm512_cvtepi32_ps(x); }
LINEAR_INLINE vf vf_of_bits(vi x) { return _mm512_castsi512_ps(x); }
LINEAR_INLINE vi vi_load(const void *p) { return _mm512_loadu_si512(p); }
LINEAR_INLINE vi vi_and(vi x, uint32_t mask) { return _mm512_and_si512(x, _mm512_set1_epi32((int)mask)); }
LINEAR_INLINE vi vi_held(uint32_t x)
{
    vi held = _mm512_set1_epi32((int)x);
    __asm__("" : "+v"(held));
    return held;
}
LINEAR_INLINE vi vi_both(vi a, vi b) { return _mm512_and_si512(a, b); }
LINEAR_INLINE vi vi_or(vi a, vi b) { return _mm512_or_si512(a, b); }
LINEAR_INLINE vi vi_srl(vi x, unsigned count) { return _mm512_srl_epi32(x, _mm_cvtsi32_si128((int)count)); }
LINEAR_INLINE vi vi_srli(vi x, unsigned count) { return _mm512_srli_epi32(x, count); }
LINEAR_INLINE vi vi_slli(vi x, unsigned count) { return _mm512_slli_epi32(x, count); }
LINEAR_INLINE vi vi_load16(const void *p) { return _mm512_cvtepu16_epi32(_mm256_loadu_si256(p)); }
LINEAR_INLINE vf vf_load_fp16(const void *p) { return _mm512_cvtph_ps(_mm256_loadu_si256(p)); }
LINEAR_INLINE vf vf_load_e4m3(const void *p)
{
    const __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128(p)), 7);
    return _mm512_cvtph_ps(_mm256_and_si256(wide, _mm256_set1_epi16((short)0xBFFF)));
}
typedef __m512 vt;
LINEAR_INLINE vt vt_load(const float *table) { return _mm512_loadu_ps(table); }
LINEAR_INLINE vf vf_lookup(vt table, vi index) { return _mm512_permutexvar_ps(index, table); }

#elif defined(LINEAR_AVX2)
#include <immintrin.h>
enum { LANES = 8 };
typedef __m256 vf;
typedef __m256i vi;
LINEAR_INLINE vf vf_zero(void) { return _mm256_setzero_ps(); }
LINEAR_INLINE vf vf_set(float x) { return _mm256_set1_ps(x); }
LINEAR_INLINE vf vf_load(const void *p) { return _mm256_loadu_ps(p); }
LINEAR_INLINE void vf_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
LINEAR_INLINE vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
LINEAR_INLINE vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
LINEAR_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
LINEAR_INLINE void vf_fma_to(vf *sum, vf a, vf b) { *sum = vf_fma(a, b, *sum); }
LINEAR_INLINE vf vf_of_int(vi x) { return _mm256_cvtepi32_ps(x); }
LINEAR_INLINE vf vf_of_bits(vi x) { return _mm256_castsi256_ps(x); }
LINEAR_INLINE vi vi_load(const void *p) { return _mm256_loadu_si256(p); }
LINEAR_INLINE vi vi_and(vi x, uint32_t mask) { return _mm256_and_si256(x, _mm256_set1_epi32((int)mask)); }
LINEAR_INLINE vi vi_held(uint32_t x)
{
    vi held = _mm256_set1_epi32((int)x);
    __asm__("" : "+x"(held));
    return held;
}
LINEAR_INLINE vi vi_both(vi a, vi b) { return _mm256_and_si256(a, b); }
LINEAR_INLINE vi vi_or(vi a, vi b) { return _mm256_or_si256(a, b); }
LINEAR_INLINE vi vi_srl(vi x, unsigned count) { return _mm256_srl_epi32(x, _mm_cvtsi32_si128((int)count)); }
LINEAR_INLINE vi vi_srli(vi x, unsigned count) { return _mm256_srli_epi32(x, (int)count); }
LINEAR_INLINE vi vi_slli(vi x, unsigned count) { return _mm256_slli_epi32(x, (int)count); }
LINEAR_INLINE vi vi_load16(const void *p) { return _mm256_cvtepu16_epi32(_mm_loadu_si128(p)); }
LINEAR_INLINE vf vf_load_fp16(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128(p)); }
LINEAR_INLINE vf vf_load_e4m3(const void *p)
{
    const __m128i wide = _mm_slli_epi16(_mm_cvtepi8_epi16(_mm_loadl_epi64(p)), 7);
    return _mm256_cvtph_ps(_mm_and_si128(wide, _mm_set1_epi16((short)0xBFFF)));
}
typedef struct vt { __m256 lo, hi; } vt;
LINEAR_INLINE vt vt_load(const float *table)
{
    return (vt){ _mm256_loadu_ps(table), _mm256_loadu_ps(table + 8) };
}
LINEAR_INLINE vf vf_lookup(vt table, vi index)
{
    const vf high_half = _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)); /* bit 3 as the sign */
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(table.lo, index),
                            _mm256_permutevar8x32_ps(table.hi, index), high_half);
}

#else
/* Pairs of 16-byte vectors: every target has those, and functions pass them without an ABI of their own. */
enum { LANES = 8 };
typedef float v4f __attribute__((vector_size(16)));
typedef uint32_t v4u __attribute__((vector_size(16)));
typedef int32_t v4i __attribute__((vector_size(16)));
typedef uint16_t v4h __attribute__((vector_size(8)));
typedef struct vf { v4f lo, hi; } vf;
typedef struct vi { v4u lo, hi; } vi;
LINEAR_INLINE v4f v4f_set(float x) { return (v4f){ x, x, x, x }; }
LINEAR_INLINE v4u v4u_set(uint32_t x) { return (v4u){ x, x, x, x }; }
LINEAR_INLINE vf vf_set(float x) { return (vf){ v4f_set(x), v4f_set(x) }; }
LINEAR_INLINE vf vf_zero(void) { return vf_set(0.0f); }
LINEAR_INLINE vf vf_load(const void *p)
{
    vf x;
    memcpy(&x.lo, p, sizeof x.lo);
    memcpy(&x.hi, (const char *)p + sizeof x.lo, sizeof x.hi);
    return x;
}
LINEAR_INLINE void vf_store(float *p, vf x)
{
    memcpy(p, &x.lo, sizeof x.lo);
    memcpy(p + 4, &x.hi, sizeof x.hi);
}
LINEAR_INLINE vf vf_mul(vf a, vf b) { return (vf){ a.lo * b.lo, a.hi * b.hi }; }
LINEAR_INLINE vf vf_add(vf a, vf b) { return (vf){ a.lo + b.lo, a.hi + b.hi }; }
LINEAR_INLINE vf vf_fma(vf a, vf b, vf c) { return (vf){ a.lo * b.lo + c.lo, a.hi * b.hi + c.hi }; }
LINEAR_INLINE void vf_fma_to(vf *sum, vf a, vf b) { *sum = vf_fma(a, b, *sum); }
LINEAR_INLINE vf vf_of_int(vi x)
{
    return (vf){ __builtin_convertvector((v4i)x.lo, v4f), __builtin_convertvector((v4i)x.hi, v4f) };
}
LINEAR_INLINE vf vf_of_bits(vi x) { return (vf){ (v4f)x.lo, (v4f)x.hi }; }
LINEAR_INLINE vi vi_load(const void *p)
{
    vi x;
    memcpy(&x.lo, p, sizeof x.lo);
    memcpy(&x.hi, (const char *)p + sizeof x.lo, sizeof x.hi);
    return x;
}
LINEAR_INLINE vi vi_and(vi x, uint32_t mask) { return (vi){ x.lo & v4u_set(mask), x.hi & v4u_set(mask) }; }
LINEAR_INLINE vi vi_held(uint32_t x) { return (vi){ v4u_set(x), v4u_set(x) }; }
LINEAR_INLINE vi vi_both(vi a, vi b) { return (vi){ a.lo & b.lo, a.hi & b.hi }; }
LINEAR_INLINE vi vi_or(vi a, vi b) { return (vi){ a.lo | b.lo, a.hi | b.hi }; }
LINEAR_INLINE vi vi_srl(vi x, unsigned count) { return (vi){ x.lo >> count, x.hi >> count }; }
LINEAR_INLINE vi vi_srli(vi x, unsigned count) { return vi_srl(x, count); }
LINEAR_INLINE vi vi_slli(vi x, unsigned count) { return (vi){ x.lo << count, x.hi << count }; }
LINEAR_INLINE vi vi_load16(const void *p)
{
    v4h lo, hi;
    memcpy(&lo, p, sizeof lo);
    memcpy(&hi, (const char *)p + sizeof lo, sizeof hi);
    return (vi){ __builtin_convertvector(lo, v4u), __builtin_convertvector(hi, v4u) };
}
/* A half's exponent and mantissa as a float are its value times 2^-112; infinity and NaN keep an exponent of
 * ones. */
LINEAR_INLINE v4f v4f_of_fp16(v4u half)
{
    const v4f magnitude = (v4f)((half & v4u_set(0x7FFFu)) << 13) * v4f_set(0x1p112f);
    const v4u special = (v4u)((half & v4u_set(0x7C00u)) == v4u_set(0x7C00u)) & v4u_set(0x7F800000u);
    return (v4f)((v4u)magnitude | special | ((half & v4u_set(0x8000u)) << 16));
}
LINEAR_INLINE vf vf_load_fp16(const void *p)
{
    const vi halves = vi_load16(p);
    return (vf){ v4f_of_fp16(halves.lo), v4f_of_fp16(halves.hi) };
}
LINEAR_INLINE v4u v4u_of_e4m3(const uint8_t *p) /* to the bits of an fp16 */
{
    const v4u codes = { p[0], p[1], p[2], p[3] };
    return (codes & v4u_set(0x80u)) << 8 | (codes & v4u_set(0x7Fu)) << 7;
}
LINEAR_INLINE vf vf_load_e4m3(const void *p)
{
    return (vf){ v4f_of_fp16(v4u_of_e4m3(p)), v4f_of_fp16(v4u_of_e4m3((const uint8_t *)p + 4)) };
}
typedef struct vt { const float *values; } vt;
LINEAR_INLINE vt vt_load(const float *table) { return (vt){ table }; }
LINEAR_INLINE v4f v4f_lookup(vt t, v4u i)
{
    const v4u at = i & v4u_set(15);
    return (v4f){ t.values[at[0]], t.values[at[1]], t.values[at[2]], t.values[at[3]] };
}
LINEAR_INLINE vf vf_lookup(vt t, vi index)
{
    return (vf){ v4f_lookup(t, index.lo), v4f_lookup(t, index.hi) };
}
#endif

LINEAR_INLINE vf vf_load_bf16(const void *p) { return vf_of_bits(vi_slli(vi_load16(p), 16)); }

#endif
