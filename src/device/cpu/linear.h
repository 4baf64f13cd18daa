/* Weights as the cpu device keeps them, and the shared parts of the linear op.
 *
 * Order of every sum (one instruction class per weight kind and ISA, at every row count): K is cut into
 * groups (the weight's own, in pieces of 128 where it is wider than 256 columns; 64 where it has none).
 * Inside a group one chain over ascending k per output column (of tiles two a step, linear_amx.inc.h); a
 * group enters its column as acc = fma(scale, dot, fma(bias, sum_x, acc)), and as acc + dot where nothing is
 * scaled; groups ascend; one slice. The sum is multiplied by the weight's global scale at the end.
 *
 * Layout: a block is block_cols output columns side by side, a panel a run of neighbouring blocks. A panel
 * lies group after group; a group holds for each block the scales, the biases and then the codes, one vector
 * lane per column. So a call reads a panel once and in order, whatever its row count, and one load serves
 * block_cols columns. linear_weight.h draws it to the bit.
 *
 * Served: dense bf16, fp16 and fp32; integer codes of 2, 3, 4, 5, 6 and 8 bits with scales and biases
 * (stored, a multiple of the scale, or none); e4m3 codes with or without scales; 4-bit indices of a table
 * whose values bf16 holds. Groups are multiples of 32 columns (of 16 for tables) up to 256, or wider ones in
 * whole pieces of 128, or whole rows; the last may be short. Scales are bf16, fp16, fp32 or e4m3. A global
 * scale, of each member its own, goes with all but biases. Other maps, code widths, groups and scale types,
 * scaled dense weights, NaNs of e4m3 and more than LW_LIMIT_WIDTH inputs are refused by the weight's name.
 */
#ifndef LW_DEVICE_CPU_LINEAR_H
#define LW_DEVICE_CPU_LINEAR_H

#include "device/cpu/kernels.h"

struct lw_pool;

/* Repacks weight (all of its stack) for kernels; uses pool's threads (NULL: the caller's alone). Memory is
 * aligned to pages, huge ones where the system gives them. LW_UNSUPPORTED names what the device lacks,
 * LW_BAD_MODEL an empty weight, LW_NO_ROOM its bytes. */
lw_status lw_cpu_weight_make(const lw_cpu_kernels *kernels, const lw_weight *weight, struct lw_pool *pool,
                             lw_cpu_weight **out, lw_diag *d) LW_MUST_USE;
void lw_cpu_weight_free(lw_cpu_weight *weight);
uint64_t lw_cpu_weight_bytes(const lw_cpu_weight *weight);   /* resident */
uint32_t lw_cpu_weight_members(const lw_cpu_weight *weight);  /* matrices of the stack; 1 for a plain one */
uint32_t lw_cpu_weight_rows(const lw_cpu_weight *weight);     /* of one member */
uint32_t lw_cpu_weight_cols(const lw_cpu_weight *weight);

/* A row of one member as bf16: the exact value (scale * code + bias) * global, rounded once (ties to even).
 * For embeddings, which are member 0 of 1. */
void lw_cpu_weight_row(const lw_cpu_weight *weight, uint32_t member, uint32_t row, lw_bf16 *values);

/* Scratch that prepare fills for `rows` rows of `cols` inputs, for any weight of these kernels. */
size_t lw_cpu_prepared_bytes(const lw_cpu_kernels *kernels, uint32_t cols, uint32_t rows);

/* True when a prepare done for a may serve b (same x, same row count): the two weights read x alike. */
bool lw_cpu_same_prepare(const lw_cpu_weight *a, const lw_cpu_weight *b);

#endif
