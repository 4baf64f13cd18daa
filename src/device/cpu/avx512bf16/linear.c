/* The linear op of the cpu device in AVX-512 with the bf16 dot; see linear.inc.h and linear_pairs.inc.h.
 * Weights of 16-bit and 32-bit floats whose values do not fit bf16 take the fp32 fma, at every row count.
 */
#if defined(__x86_64__)
#include "device/cpu/linear_kernels.h"

#define LINEAR_AVX512
#define LINEAR_PAIRS
#define LW_LINEAR(name) lw__cpu_avx512bf16_linear_##name
#include "device/cpu/linear.inc.h"

void lw__cpu_denormals_off(void)
{
    enum { FLUSH_TO_ZERO = 0x8000, DENORMALS_ARE_ZERO = 0x0040 };
    _mm_setcsr(_mm_getcsr() | FLUSH_TO_ZERO | DENORMALS_ARE_ZERO);
}
#endif
