/* The linear kernels of every instruction set, for the tables in <isa>/table.c. Contracts are in kernels.h
 * and linear.h.
 */
#ifndef LW_DEVICE_CPU_LINEAR_KERNELS_H
#define LW_DEVICE_CPU_LINEAR_KERNELS_H

#include "device/cpu/kernels.h"

/* What block_cols is in each table. */
enum {
    LW__CPU_GENERIC_BLOCK_COLS = 8,
    LW__CPU_AVX2_BLOCK_COLS = 8,
    LW__CPU_AVX512_BLOCK_COLS = 16,
};

#define LW_LINEAR_KERNELS(isa) \
    void lw__cpu_##isa##_linear_prepare(const lw_cpu_linear_args *args, unsigned part, unsigned parts); \
    void lw__cpu_##isa##_linear_run(const lw_cpu_linear_args *args, unsigned part, unsigned parts); \
    void lw__cpu_##isa##_linear_blocks(const lw_cpu_linear_args *args, uint32_t begin, uint32_t end);

/* The same as members of a table. */
#define LW_LINEAR_MEMBERS(isa) \
    .linear_prepare = lw__cpu_##isa##_linear_prepare, \
    .linear_run = lw__cpu_##isa##_linear_run, \
    .linear_blocks = lw__cpu_##isa##_linear_blocks

LW_LINEAR_KERNELS(generic)
extern const lw_cpu_int8_kernels lw__cpu_generic_int8;

#if defined(__x86_64__)
LW_LINEAR_KERNELS(avx2)
LW_LINEAR_KERNELS(avx512)
LW_LINEAR_KERNELS(avx512bf16)
LW_LINEAR_KERNELS(avx512amx)
extern const lw_cpu_int8_kernels lw__cpu_avx2_int8, lw__cpu_avx512_int8, lw__cpu_avx512vnni_int8;

/* Whether this CPU has AVX-512 as the kernels need it, and bf16 tiles that the system gives this process. */
bool lw__cpu_has_avx512(void);
bool lw__cpu_has_tiles(void);

/* Flushes subnormals of this thread, as the bf16 dot and products of tiles always do, so that the other
 * kernels of that instruction set see one arithmetic; a thread_setup. */
void lw__cpu_denormals_off(void);
#endif

#endif
