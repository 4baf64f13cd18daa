/* The linear op of an int8 x in AVX2; see linear_int8.inc.h. */
#if defined(__x86_64__)
#define LINEAR_AVX2
#define LW_INT8 lw__cpu_avx2_int8
#include "device/cpu/linear_int8.inc.h"
#endif
