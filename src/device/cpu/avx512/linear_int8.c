/* The linear op of an int8 x in AVX-512 (F, BW, DQ, VL); see linear_int8.inc.h. */
#if defined(__x86_64__)
#define LINEAR_AVX512
#define LW_INT8 lw__cpu_avx512_int8
#include "device/cpu/linear_int8.inc.h"
#endif
