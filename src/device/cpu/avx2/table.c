/* The table of the cpu device in AVX2 and FMA; the kernels are in the files beside it. */
#if defined(__x86_64__)
#include "device/cpu/linear_kernels.h"
#include "device/cpu/row_kernels.h"

const lw_cpu_kernels lw_cpu_avx2 = {
    .isa = "avx2",
    .block_cols = LW__CPU_AVX2_BLOCK_COLS,
    .thread_setup = lw__cpu_thread_setup,
    LW_ROW_MEMBERS(avx2),
    LW_LINEAR_MEMBERS(avx2),
    .int8 = &lw__cpu_avx2_int8,
};
#endif
