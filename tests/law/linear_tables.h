/* Tables that hold the linear kernels only, and whether this CPU can run them; for tests and tools of the
 * linear op. */
#ifndef LW_TESTS_LINEAR_TABLES_H
#define LW_TESTS_LINEAR_TABLES_H

#include "device/cpu/linear.h"
#include "device/cpu/linear_kernels.h"

#include <stdio.h>

enum { LINEAR_TABLES_MAX = 7 };

typedef struct linear_table {
    lw_cpu_kernels kernels;
    bool can_run;
} linear_table;

static inline size_t linear_tables(linear_table tables[LINEAR_TABLES_MAX])
{
    size_t count = 0;
#define LINEAR_TABLE(name, set, bytes, cols, runs, reads) \
    tables[count++] = (linear_table){ \
        .kernels = { .isa = #name, .read = reads, .block_cols = cols, \
                     .linear_prepare = lw__cpu_##set##_linear_prepare, \
                     .linear_run = lw__cpu_##set##_linear_run, .int8 = &lw__cpu_##bytes##_int8 }, \
        .can_run = (runs) }
    LINEAR_TABLE(generic, generic, generic, LW__CPU_GENERIC_BLOCK_COLS, true, LW__READ_FLOAT);
#if defined(__x86_64__)
    const bool wide = lw__cpu_has_avx512();
    const bool bytes = wide && __builtin_cpu_supports("avx512vnni");
    LINEAR_TABLE(avx2, avx2, avx2, LW__CPU_AVX2_BLOCK_COLS, __builtin_cpu_supports("avx2")
                 && __builtin_cpu_supports("fma"), LW__READ_FLOAT);
    LINEAR_TABLE(avx512, avx512, avx512, LW__CPU_AVX512_BLOCK_COLS, wide, LW__READ_FLOAT);
    LINEAR_TABLE(avx512vnni, avx512, avx512vnni, LW__CPU_AVX512_BLOCK_COLS, bytes, LW__READ_FLOAT);
    LINEAR_TABLE(avx512bf16, avx512bf16, avx512vnni, LW__CPU_AVX512_BLOCK_COLS,
                 bytes && __builtin_cpu_supports("avx512bf16"), LW__READ_PAIRS);
    tables[count - 1].kernels.thread_setup = lw__cpu_denormals_off;
    LINEAR_TABLE(avx512amx, avx512amx, avx512vnni, LW__CPU_AVX512_BLOCK_COLS, bytes && lw__cpu_has_tiles(),
                 LW__READ_TILES);
    tables[count - 1].kernels.thread_setup = lw__cpu_denormals_off;
#endif
#undef LINEAR_TABLE
    return count;
}

#endif
