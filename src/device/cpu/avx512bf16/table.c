/* The table of the cpu device in AVX-512 with bf16 dots; all but its linear kernels are those of AVX-512. */
#if defined(__x86_64__)
#include "device/cpu/linear_kernels.h"
#include "device/cpu/row_kernels.h"

const lw_cpu_kernels lw_cpu_avx512bf16 = {
    .isa = "avx512bf16",
    .read = LW__READ_PAIRS,
    .block_cols = LW__CPU_AVX512_BLOCK_COLS,
    .thread_setup = lw__cpu_denormals_off,
    LW_ROW_MEMBERS(avx512),
    LW_LINEAR_MEMBERS(avx512bf16),
    .int8 = &lw__cpu_avx512vnni_int8,
};
#endif
