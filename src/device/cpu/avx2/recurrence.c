/* The recurrences of the cpu device in AVX2 and FMA; see recurrence.inc.h. */
#if defined(__x86_64__)
#define SIMD_AVX2
#define LW_ROW(name) lw__cpu_avx2_##name
#include "device/cpu/recurrence.inc.h"
#endif
