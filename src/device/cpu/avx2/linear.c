/* The linear op of the cpu device in AVX2 and FMA; see linear.inc.h. */
#if defined(__x86_64__)
#include "device/cpu/linear_kernels.h"

#define LINEAR_AVX2
#define LW_LINEAR(name) lw__cpu_avx2_linear_##name
#include "device/cpu/linear.inc.h"
#endif
