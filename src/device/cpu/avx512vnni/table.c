/* The table of the cpu device in AVX-512 with the dot of bytes; all but that are the kernels of AVX-512. */
#if defined(__x86_64__)
#include "device/cpu/linear_kernels.h"
#include "device/cpu/row_kernels.h"

const lw_cpu_kernels lw_cpu_avx512vnni = {
    .isa = "avx512vnni",
    .block_cols = LW__CPU_AVX512_BLOCK_COLS,
    .thread_setup = lw__cpu_thread_setup,
    LW_ROW_MEMBERS(avx512),
    LW_LINEAR_MEMBERS(avx512),
    .int8 = &lw__cpu_avx512vnni_int8,
};
#endif
