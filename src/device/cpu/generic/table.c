/* The table of the cpu device in plain C; the kernels are in the files beside it. */
#include "device/cpu/linear_kernels.h"
#include "device/cpu/row_kernels.h"

const lw_cpu_kernels lw_cpu_generic = {
    .isa = "generic",
    .block_cols = LW__CPU_GENERIC_BLOCK_COLS,
    .thread_setup = lw__cpu_thread_setup,
    LW_ROW_MEMBERS(generic),
    LW_LINEAR_MEMBERS(generic),
    .int8 = &lw__cpu_generic_int8,
};
