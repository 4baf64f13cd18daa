/* The table of the cpu device in plain C; the kernels are in the files beside it. */
#include "device/cpu/linear_kernels.h"
#include "device/cpu/row_kernels.h"

const lw_cpu_kernels lw_cpu_generic = {
    .isa = "generic",
    .block_cols = LW__CPU_GENERIC_BLOCK_COLS,
    .thread_setup = lw__cpu_thread_setup,
    .rms_norm = lw__cpu_generic_rms_norm,
    .norm_gate = lw__cpu_generic_norm_gate,
    .add = lw__cpu_generic_add,
    .mul = lw__cpu_generic_mul,
    .swiglu = lw__cpu_generic_swiglu,
    .rope = lw__cpu_generic_rope,
    .head_gate = lw__cpu_generic_head_gate,
    .kv_store = lw__cpu_generic_kv_store,
    .attend = lw__cpu_generic_attend,
    .short_conv = lw__cpu_generic_short_conv,
    .route = lw__cpu_generic_route,
    .expert_sum = lw__cpu_generic_expert_sum,
    .recur_prepare = lw__cpu_generic_recur_prepare,
    .recur_run = lw__cpu_generic_recur_run,
    .linear_prepare = lw__cpu_generic_linear_prepare,
    .linear_run = lw__cpu_generic_linear_run,
    .linear_blocks = lw__cpu_generic_linear_blocks,
    .int8 = &lw__cpu_generic_int8,
};
