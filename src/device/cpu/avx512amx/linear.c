/* The linear op of the cpu device in AVX-512 with tiles of bf16 (AMX); see linear_amx.inc.h. */
#if defined(__x86_64__)
#define LW_LINEAR(name) lw__cpu_avx512amx_linear_##name
#include "device/cpu/linear_amx.inc.h"
#endif
