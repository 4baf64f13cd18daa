/* The recurrences of the cpu device in AVX-512; see recurrence.inc.h. */
#if defined(__x86_64__)
#define SIMD_AVX512
#define LW_ROW(name) lw__cpu_avx512_##name
#include "device/cpu/recurrence.inc.h"
#endif
