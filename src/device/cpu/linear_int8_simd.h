/* Dots of four bytes at a time, beside linear_simd.h: unsigned codes of a vector of columns times the four
 * int8 of a row. LINEAR_VNNI is defined where one instruction adds such a dot to 32-bit sums.
 *
 *   i8_x      four int8 of one row, in every column
 *   i8_sum    sums of a few dots: i8_add adds one. Of 16 bits where there is no such instruction: they hold
 *             I8_SUM_LIMIT / (the largest code) of them
 *   i8_total  sums of sums: i8_enter adds `weight` times one
 * All of it is exact: order and width are free, and every instruction set has the same totals.
 */
#ifndef LW_DEVICE_CPU_LINEAR_INT8_SIMD_H
#define LW_DEVICE_CPU_LINEAR_INT8_SIMD_H

#include "device/cpu/linear_simd.h"

/* Compilers would add dots to each other before the sum, and hold them in its register's place. */
#define I8_KEEP(sum, registers) __asm__("" : "+" registers(sum))

#if defined(LINEAR_AVX512)
typedef vi i8_x;
typedef vi i8_sum;
typedef vi i8_total;
LINEAR_INLINE vi vi_zero(void) { return _mm512_setzero_si512(); }
LINEAR_INLINE vi vi_set(int32_t x) { return _mm512_set1_epi32(x); }
LINEAR_INLINE vi vi_max(vi a, vi b) { return _mm512_max_epi32(a, b); }
LINEAR_INLINE vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
LINEAR_INLINE vi vi_nearest(vf x) { return _mm512_cvtps_epi32(x); }
LINEAR_INLINE void vi_store(int32_t *p, vi x) { _mm512_storeu_si512(p, x); }
LINEAR_INLINE void vi_store_bytes(int8_t *p, vi x)
{
    _mm_storeu_si128((void *)p, _mm512_cvtepi32_epi8(x));
}
LINEAR_INLINE vi vi_load_table(const uint8_t table[16])
{
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)table));
}
LINEAR_INLINE vi vi_lookup_bytes(vi table, vi index) { return _mm512_shuffle_epi8(table, index); }
LINEAR_INLINE vf i8_value(i8_total total, int32_t less)
{
    return vf_of_int(_mm512_sub_epi32(total, _mm512_set1_epi32(less)));
}
#if defined(LINEAR_VNNI)
LINEAR_INLINE void i8_add(i8_sum *sum, vi codes, i8_x x) { *sum = _mm512_dpbusd_epi32(*sum, codes, x); }
LINEAR_INLINE void i8_enter(i8_total *total, i8_sum sum, int weight)
{
    (void)weight;
    *total = vi_add(*total, sum);
}
#else
#define I8_SUM_LIMIT (32767 / 254)
LINEAR_INLINE void i8_add(i8_sum *sum, vi codes, i8_x x)
{
    *sum = _mm512_add_epi16(*sum, _mm512_maddubs_epi16(codes, x));
    I8_KEEP(*sum, "v");
}
LINEAR_INLINE void i8_enter(i8_total *total, i8_sum sum, int weight)
{
    *total = vi_add(*total, _mm512_madd_epi16(sum, _mm512_set1_epi16((short)weight)));
}
#endif

#elif defined(LINEAR_AVX2)
typedef vi i8_x;
typedef vi i8_sum;
typedef vi i8_total;
#define I8_SUM_LIMIT (32767 / 254)
LINEAR_INLINE vi vi_zero(void) { return _mm256_setzero_si256(); }
LINEAR_INLINE vi vi_set(int32_t x) { return _mm256_set1_epi32(x); }
LINEAR_INLINE vi vi_max(vi a, vi b) { return _mm256_max_epi32(a, b); }
LINEAR_INLINE vi vi_add(vi a, vi b) { return _mm256_add_epi32(a, b); }
LINEAR_INLINE vi vi_nearest(vf x) { return _mm256_cvtps_epi32(x); }
LINEAR_INLINE void vi_store(int32_t *p, vi x) { _mm256_storeu_si256((void *)p, x); }
LINEAR_INLINE void vi_store_bytes(int8_t *p, vi x)
{
    const __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_storel_epi64((void *)p, _mm_packs_epi16(halves, halves));
}
LINEAR_INLINE vi vi_load_table(const uint8_t table[16])
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)table));
}
LINEAR_INLINE vi vi_lookup_bytes(vi table, vi index) { return _mm256_shuffle_epi8(table, index); }
LINEAR_INLINE vf i8_value(i8_total total, int32_t less)
{
    return vf_of_int(_mm256_sub_epi32(total, _mm256_set1_epi32(less)));
}
LINEAR_INLINE void i8_add(i8_sum *sum, vi codes, i8_x x)
{
    *sum = _mm256_add_epi16(*sum, _mm256_maddubs_epi16(codes, x));
    I8_KEEP(*sum, "x");
}
LINEAR_INLINE void i8_enter(i8_total *total, i8_sum sum, int weight)
{
    *total = vi_add(*total, _mm256_madd_epi16(sum, _mm256_set1_epi16((short)weight)));
}

#else
/* Totals are below 2^24, so fp32 holds them exactly. */
typedef struct i8_x { float at[4]; } i8_x;
typedef vf i8_sum;
typedef vf i8_total;
LINEAR_INLINE vi vi_set(int32_t x) { return vi_held((uint32_t)x); }
LINEAR_INLINE vi vi_zero(void) { return vi_set(0); }
LINEAR_INLINE v4u v4u_max(v4u a, v4u b)
{
    const v4u above = (v4u)((v4i)a > (v4i)b);
    return (a & above) | (b & ~above);
}
LINEAR_INLINE vi vi_max(vi a, vi b) { return (vi){ v4u_max(a.lo, b.lo), v4u_max(a.hi, b.hi) }; }
LINEAR_INLINE vi vi_add(vi a, vi b) { return (vi){ a.lo + b.lo, a.hi + b.hi }; }
/* For magnitudes below 2^22: the sum's last bit is 1, and it is rounded to nearest even. */
LINEAR_INLINE v4u v4u_nearest(v4f x)
{
    const v4f big = v4f_set(0x1.8p23f);
    return (v4u)(x + big) - (v4u)big;
}
LINEAR_INLINE vi vi_nearest(vf x) { return (vi){ v4u_nearest(x.lo), v4u_nearest(x.hi) }; }
LINEAR_INLINE void vi_store(int32_t *p, vi x)
{
    memcpy(p, &x.lo, sizeof x.lo);
    memcpy(p + 4, &x.hi, sizeof x.hi);
}
LINEAR_INLINE void vi_store_bytes(int8_t *p, vi x)
{
    int32_t wide[LANES];
    vi_store(wide, x);
    for (int i = 0; i < LANES; i++) p[i] = (int8_t)wide[i];
}
typedef struct vi_table { const uint8_t *codes; } vi_table;
LINEAR_INLINE vi_table vi_load_table(const uint8_t table[16]) { return (vi_table){ table }; }
LINEAR_INLINE vi vi_lookup_bytes(vi_table table, vi index)
{
    uint8_t bytes[LANES * 4];
    vi_store((int32_t *)(void *)bytes, index);
    for (int i = 0; i < LANES * 4; i++) bytes[i] = table.codes[bytes[i]];
    return vi_load(bytes);
}
LINEAR_INLINE vf i8_value(i8_total total, int32_t less)
{
    const vf minus = vf_set(-(float)less);
    return vf_add(total, minus);
}
LINEAR_INLINE void i8_add(i8_sum *sum, vi codes, i8_x x)
{
    LINEAR_UNROLL
    for (unsigned i = 0; i < 4; i++)
        vf_fma_to(sum, vf_of_int(vi_and(vi_srli(codes, 8 * i), 0xFFu)), vf_set(x.at[i]));
}
LINEAR_INLINE void i8_enter(i8_total *total, i8_sum sum, int weight)
{
    (void)weight;
    *total = vf_add(*total, sum);
}
#endif

#if defined(LINEAR_AVX512) || defined(LINEAR_AVX2)
typedef vi vi_table;
LINEAR_INLINE i8_sum i8_sum_zero(void) { return vi_zero(); }
LINEAR_INLINE i8_x i8_x_load(const int8_t *x)
{
    int32_t word;
    memcpy(&word, x, sizeof word);
    return vi_set(word);
}
#else
LINEAR_INLINE i8_sum i8_sum_zero(void) { return vf_zero(); }
LINEAR_INLINE i8_x i8_x_load(const int8_t *x)
{
    return (i8_x){ { (float)x[0], (float)x[1], (float)x[2], (float)x[3] } };
}
#endif

#endif
