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

void lw__cpu_generic_linear_prepare(const lw_cpu_linear_args *args, unsigned part, unsigned parts);
void lw__cpu_generic_linear_run(const lw_cpu_linear_args *args, unsigned part, unsigned parts);
void lw__cpu_generic_linear_blocks(const lw_cpu_linear_args *args, uint32_t begin, uint32_t end);

extern const lw_cpu_int8_kernels lw__cpu_generic_int8;

#if defined(__x86_64__)
extern const lw_cpu_int8_kernels lw__cpu_avx2_int8, lw__cpu_avx512_int8, lw__cpu_avx512vnni_int8;
void lw__cpu_avx2_linear_prepare(const lw_cpu_linear_args *args, unsigned part, unsigned parts);
void lw__cpu_avx2_linear_run(const lw_cpu_linear_args *args, unsigned part, unsigned parts);
void lw__cpu_avx2_linear_blocks(const lw_cpu_linear_args *args, uint32_t begin, uint32_t end);
void lw__cpu_avx512_linear_prepare(const lw_cpu_linear_args *args, unsigned part, unsigned parts);
void lw__cpu_avx512_linear_run(const lw_cpu_linear_args *args, unsigned part, unsigned parts);
void lw__cpu_avx512_linear_blocks(const lw_cpu_linear_args *args, uint32_t begin, uint32_t end);
void lw__cpu_avx512bf16_linear_prepare(const lw_cpu_linear_args *args, unsigned part, unsigned parts);
void lw__cpu_avx512bf16_linear_run(const lw_cpu_linear_args *args, unsigned part, unsigned parts);
void lw__cpu_avx512bf16_linear_blocks(const lw_cpu_linear_args *args, uint32_t begin, uint32_t end);

/* Flushes subnormals of this thread, as the bf16 dot instruction always does, so that the other kernels of
 * that instruction set see one arithmetic; a thread_setup. */
void lw__cpu_denormals_off(void);
#endif

#endif
