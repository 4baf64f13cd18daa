/* From a vector of sums to what is stored, beside linear_simd.h. vf_one_nan makes every NaN the same, since
 * which operand's payload survives is the compiler's choice; vf_store_bf16 rounds numbers and that NaN to
 * nearest even.
 */
#ifndef LW_DEVICE_CPU_LINEAR_STORE_SIMD_H
#define LW_DEVICE_CPU_LINEAR_STORE_SIMD_H

#include "device/cpu/linear_simd.h"

enum { NAN_BITS = 0x7FC00000 };

#if defined(LINEAR_AVX512)
LINEAR_INLINE vf vf_one_nan(vf x)
{
    const vf nan = vf_of_bits(_mm512_set1_epi32(NAN_BITS));
    return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), nan);
}
LINEAR_INLINE void vf_store_bf16(void *p, vf x)
{
    const vi bits = _mm512_castps_si512(x), odd = vi_and(vi_srli(bits, 16), 1);
    const vi near = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    _mm256_storeu_si256(p, _mm512_cvtepi32_epi16(vi_srli(near, 16)));
}

#elif defined(LINEAR_AVX2)
LINEAR_INLINE vf vf_one_nan(vf x)
{
    const vf nan = vf_of_bits(_mm256_set1_epi32(NAN_BITS));
    return _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}
LINEAR_INLINE void vf_store_bf16(void *p, vf x)
{
    const vi bits = _mm256_castps_si256(x), odd = vi_and(vi_srli(bits, 16), 1);
    const vi near = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    const vi high = vi_srli(near, 16);
    _mm_storeu_si128(p, _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1)));
}

#else
LINEAR_INLINE v4f v4f_one_nan(v4f x)
{
    const v4u is_nan = (v4u)(x != x);
    return (v4f)(((v4u)x & ~is_nan) | (v4u_set(NAN_BITS) & is_nan));
}
LINEAR_INLINE vf vf_one_nan(vf x) { return (vf){ v4f_one_nan(x.lo), v4f_one_nan(x.hi) }; }
LINEAR_INLINE v4h v4h_of_v4f(v4f x)
{
    const v4u bits = (v4u)x, odd = bits >> 16 & v4u_set(1);
    return __builtin_convertvector((bits + odd + v4u_set(0x7FFF)) >> 16, v4h);
}
LINEAR_INLINE void vf_store_bf16(void *p, vf x)
{
    const v4h lo = v4h_of_v4f(x.lo), hi = v4h_of_v4f(x.hi);
    memcpy(p, &lo, sizeof lo);
    memcpy((char *)p + sizeof lo, &hi, sizeof hi);
}
#endif

#endif
