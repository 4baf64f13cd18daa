/* Tables that hold the linear kernels only, and whether this CPU can run them; for tests and tools of the
 * linear op. */
#ifndef LW_TESTS_LINEAR_TABLES_H
#define LW_TESTS_LINEAR_TABLES_H

#include "device/cpu/linear.h"
#include "device/cpu/linear_kernels.h"

#include <stdio.h>

enum { LINEAR_TABLES_MAX = 6 };

typedef struct linear_table {
    lw_cpu_kernels kernels;
    bool can_run;
} linear_table;

static inline size_t linear_tables(linear_table tables[LINEAR_TABLES_MAX])
{
    size_t count = 0;
#define LINEAR_TABLE(name, cols, runs, reads) \
    tables[count++] = (linear_table){ \
        .kernels = { .isa = #name, .read = reads, .block_cols = cols, \
                     .linear_prepare = lw__cpu_##name##_linear_prepare, \
                     .linear_run = lw__cpu_##name##_linear_run }, \
        .can_run = (runs) }
    LINEAR_TABLE(generic, LW__CPU_GENERIC_BLOCK_COLS, true, LW__READ_FLOAT);
#if defined(__x86_64__)
    const bool wide = lw__cpu_has_avx512();
    LINEAR_TABLE(avx2, LW__CPU_AVX2_BLOCK_COLS, __builtin_cpu_supports("avx2")
                 && __builtin_cpu_supports("fma"), LW__READ_FLOAT);
    LINEAR_TABLE(avx512, LW__CPU_AVX512_BLOCK_COLS, wide, LW__READ_FLOAT);
    LINEAR_TABLE(avx512bf16, LW__CPU_AVX512_BLOCK_COLS, wide && __builtin_cpu_supports("avx512bf16"),
                 LW__READ_PAIRS);
    tables[count - 1].kernels.thread_setup = lw__cpu_denormals_off;
    LINEAR_TABLE(avx512amx, LW__CPU_AVX512_BLOCK_COLS, lw__cpu_has_tiles(), LW__READ_TILES);
    tables[count - 1].kernels.thread_setup = lw__cpu_denormals_off;
#endif
#undef LINEAR_TABLE
    return count;
}

#endif
