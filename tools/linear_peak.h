/* What a linear can at best reach on one thread: products a second of its instruction, chains in registers
 * with nothing else to do. For tools/linear_speed.c.
 */
#ifndef LW_TOOLS_LINEAR_PEAK_H
#define LW_TOOLS_LINEAR_PEAK_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { PEAK_CHAINS = 12, PEAK_STEPS = 100000 };

/* One function a set: PEAK_STEPS steps of PEAK_CHAINS products, `lanes` numbers each. The empty
 * statement says that a may have changed, or a product would be made once for all steps. */
#define PEAK_RUN(name, isa, vector, set, step) \
    static __attribute__((target(isa), noinline)) float name(float from) \
    { \
        vector sums[PEAK_CHAINS]; \
        _Pragma("GCC unroll 12") \
        for (int i = 0; i < PEAK_CHAINS; i++) sums[i] = set(from + (float)i); \
        vector a = set(from), b = set(from + 0.5f); \
        for (int n = 0; n < PEAK_STEPS; n++) { \
            _Pragma("GCC unroll 12") \
            for (int i = 0; i < PEAK_CHAINS; i++) sums[i] = step; \
            __asm__("" : "+v"(a)); \
        } \
        float out[PEAK_CHAINS]; \
        _Pragma("GCC unroll 12") \
        for (int i = 0; i < PEAK_CHAINS; i++) memcpy(&out[i], &sums[i], sizeof out[i]); \
        for (int i = 1; i < PEAK_CHAINS; i++) out[0] += out[i]; \
        return out[0]; \
    }
#if defined(__x86_64__)
#define PEAK_BYTES_AVX2(x) _mm256_castps_si256(_mm256_set1_ps(x))
#define PEAK_BYTES_AVX512(x) _mm512_castps_si512(_mm512_set1_ps(x))
PEAK_RUN(peak_sse, "sse2", __m128, _mm_set1_ps, _mm_add_ps(_mm_mul_ps(a, b), sums[i]))
PEAK_RUN(peak_avx2, "avx2,fma", __m256, _mm256_set1_ps, _mm256_fmadd_ps(a, b, sums[i]))
PEAK_RUN(peak_avx512, "avx512f", __m512, _mm512_set1_ps, _mm512_fmadd_ps(a, b, sums[i]))
PEAK_RUN(peak_bf16, "avx512f,avx512bf16", __m512, _mm512_set1_ps,
         _mm512_dpbf16_ps(sums[i], (__m512bh)_mm512_castps_si512(a), (__m512bh)_mm512_castps_si512(b)))
/* Four products a lane and step: bytes to sums of 16 bits, or by one instruction to 32. */
PEAK_RUN(peak_avx2_bytes, "avx2", __m256i, PEAK_BYTES_AVX2,
         _mm256_add_epi16(sums[i], _mm256_maddubs_epi16(a, b)))
PEAK_RUN(peak_avx512_bytes, "avx512f,avx512bw", __m512i, PEAK_BYTES_AVX512,
         _mm512_add_epi16(sums[i], _mm512_maddubs_epi16(a, b)))
PEAK_RUN(peak_vnni, "avx512f,avx512vnni", __m512i, PEAK_BYTES_AVX512, _mm512_dpbusd_epi32(sums[i], a, b))
#endif

typedef struct linear_peak {
    float (*run)(float from);   /* NULL: not known for this set */
    double products;            /* of one run */
} linear_peak;

/* x_int8: of products with an int8 x. */
static inline linear_peak linear_peak_of(const char *isa, bool x_int8)
{
    const double steps = (double)PEAK_STEPS * PEAK_CHAINS;
#if defined(__x86_64__)
    const bool has_dot = strcmp(isa, "avx512vnni") == 0 || strcmp(isa, "avx512bf16") == 0;
    if (x_int8 && has_dot) return (linear_peak){ peak_vnni, steps * 64 };
    if (x_int8 && strcmp(isa, "avx512") == 0) return (linear_peak){ peak_avx512_bytes, steps * 64 };
    if (x_int8 && strcmp(isa, "avx2") == 0) return (linear_peak){ peak_avx2_bytes, steps * 32 };
    if (strcmp(isa, "generic") == 0) return (linear_peak){ peak_sse, steps * 4 };
    if (strcmp(isa, "avx2") == 0) return (linear_peak){ peak_avx2, steps * 8 };
    if (strcmp(isa, "avx512") == 0 || strcmp(isa, "avx512vnni") == 0)
        return (linear_peak){ peak_avx512, steps * 16 };
    if (strcmp(isa, "avx512bf16") == 0) return (linear_peak){ peak_bf16, steps * 32 };
#endif
    return (linear_peak){ NULL, steps };
}

#endif
