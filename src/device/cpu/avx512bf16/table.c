/* The table of the cpu device in AVX-512 with bf16 dots; all but its linear kernels are those of AVX-512. */
#if defined(__x86_64__)
#include "device/cpu/linear_kernels.h"
#include "device/cpu/row_kernels.h"

const lw_cpu_kernels lw_cpu_avx512bf16 = {
    .isa = "avx512bf16",
    .block_cols = LW__CPU_AVX512_BLOCK_COLS,
    .thread_setup = lw__cpu_denormals_off,
    .rms_norm = lw__cpu_avx512_rms_norm,
    .norm_gate = lw__cpu_avx512_norm_gate,
    .add = lw__cpu_avx512_add,
    .mul = lw__cpu_avx512_mul,
    .swiglu = lw__cpu_avx512_swiglu,
    .rope = lw__cpu_avx512_rope,
    .head_gate = lw__cpu_avx512_head_gate,
    .kv_store = lw__cpu_avx512_kv_store,
    .attend = lw__cpu_avx512_attend,
    .short_conv = lw__cpu_avx512_short_conv,
    .route = lw__cpu_avx512_route,
    .expert_sum = lw__cpu_avx512_expert_sum,
    .recur_prepare = lw__cpu_avx512_recur_prepare,
    .recur_run = lw__cpu_avx512_recur_run,
    .linear_prepare = lw__cpu_avx512bf16_linear_prepare,
    .linear_run = lw__cpu_avx512bf16_linear_run,
    .linear_blocks = lw__cpu_avx512bf16_linear_blocks,
    .int8 = &lw__cpu_avx512vnni_int8,
};
#endif
