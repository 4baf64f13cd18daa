/* Weights as the cpu device keeps them, and the shared parts of the linear op.
 *
 * Order of every sum (one instruction class per weight kind and ISA, at every row count): K is cut into
 * groups (the weight's own; 64 where it has none). Inside a group one chain over ascending k per output
 * column; a group enters its column as acc = fma(scale, dot, fma(bias, sum_x, acc)); groups ascend; one
 * slice.
 *
 * Layout: block_cols output columns stand side by side. For each such block and each group lie the scales,
 * the biases and then 32-bit words, one per column, each holding the codes of consecutive k; so one row
 * streams through memory once, in order, and one load serves block_cols columns.
 */
#ifndef LW_DEVICE_CPU_LINEAR_H
#define LW_DEVICE_CPU_LINEAR_H

#include "device/cpu/kernels.h"

/* Repacks weight (all of its stack) for kernels; uses pool's threads; memory is 64-byte aligned in huge pages
 * where the system gives them. LW_UNSUPPORTED names a map or width that the device lacks. */
struct lw_pool;
lw_status lw_cpu_weight_make(const lw_cpu_kernels *kernels, const lw_weight *weight, struct lw_pool *pool,
                             lw_cpu_weight **out, lw_diag *d) LW_MUST_USE;
void lw_cpu_weight_free(lw_cpu_weight *weight);
uint64_t lw_cpu_weight_bytes(const lw_cpu_weight *weight);   /* resident */
uint32_t lw_cpu_weight_rows(const lw_cpu_weight *weight);
uint32_t lw_cpu_weight_cols(const lw_cpu_weight *weight);

/* Row n as bf16: the exact value scale * code + bias, rounded once (ties to even). For embeddings. */
void lw_cpu_weight_row(const lw_cpu_weight *weight, uint32_t row, lw_bf16 *values);

/* Scratch that prepare fills for `rows` rows of `cols` inputs, for any weight of these kernels. */
size_t lw_cpu_prepared_bytes(const lw_cpu_kernels *kernels, uint32_t cols, uint32_t rows);

/* True when a prepare done for a may serve b (same x, same row count): the two weights read x alike. */
bool lw_cpu_same_prepare(const lw_cpu_weight *a, const lw_cpu_weight *b);

#endif
