/* Tables that hold the linear kernels only, and whether this CPU can run them; for tests and tools of the
 * linear op. */
#ifndef LW_TESTS_LINEAR_TABLES_H
#define LW_TESTS_LINEAR_TABLES_H

#include "device/cpu/linear.h"
#include "device/cpu/linear_kernels.h"

#include <stdio.h>

enum { LINEAR_TABLES_MAX = 5 };

typedef struct linear_table {
    lw_cpu_kernels kernels;
    bool can_run;
    bool pairs;      /* codes enter by the bf16 dot */
} linear_table;

static inline size_t linear_tables(linear_table tables[LINEAR_TABLES_MAX])
{
    size_t count = 0;
#define LINEAR_TABLE(name, set, bytes, cols, runs, dot) \
    tables[count++] = (linear_table){ \
        .kernels = { .isa = #name, .block_cols = cols, .linear_prepare = lw__cpu_##set##_linear_prepare, \
                     .linear_run = lw__cpu_##set##_linear_run, .int8 = &lw__cpu_##bytes##_int8 }, \
        .can_run = (runs), .pairs = (dot) }
    LINEAR_TABLE(generic, generic, generic, LW__CPU_GENERIC_BLOCK_COLS, true, false);
#if defined(__x86_64__)
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
                      && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    const bool bytes = wide && __builtin_cpu_supports("avx512vnni");
    LINEAR_TABLE(avx2, avx2, avx2, LW__CPU_AVX2_BLOCK_COLS, __builtin_cpu_supports("avx2")
                 && __builtin_cpu_supports("fma"), false);
    LINEAR_TABLE(avx512, avx512, avx512, LW__CPU_AVX512_BLOCK_COLS, wide, false);
    LINEAR_TABLE(avx512vnni, avx512, avx512vnni, LW__CPU_AVX512_BLOCK_COLS, bytes, false);
    LINEAR_TABLE(avx512bf16, avx512bf16, avx512vnni, LW__CPU_AVX512_BLOCK_COLS,
                 bytes && __builtin_cpu_supports("avx512bf16"), true);
    tables[count - 1].kernels.thread_setup = lw__cpu_denormals_off;
#endif
#undef LINEAR_TABLE
    return count;
}

#endif
