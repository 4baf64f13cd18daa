/* The linear op of the cpu device in AVX-512 (F, BW, DQ, VL); see linear.inc.h. */
#if defined(__x86_64__)
#include "device/cpu/linear_kernels.h"

#define LINEAR_AVX512
#define LW_LINEAR(name) lw__cpu_avx512_linear_##name
#include "device/cpu/linear.inc.h"
#endif
