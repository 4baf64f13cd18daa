/* Linears of experts: each row takes some matrices of a stack. The rows' slots are sorted by expert, so that
 * a matrix is read once for all of its rows, and the columns of all matrices that were chosen are shared out
 * in one run. Each matrix goes through the linear kernels, so a row has the bits of a linear over that matrix
 * alone, whoever else chose it.
 *
 * A call is sort (one thread), then prepare on all parts, a barrier, and run on all parts. Calls of equal
 * route and x and the same kind of weight may share one sort and prepare.
 */
#ifndef LW_DEVICE_CPU_EXPERTS_H
#define LW_DEVICE_CPU_EXPERTS_H

#include "device/cpu/linear.h"

/* One matrix and the vectors that go through it. */
typedef struct lw_cpu_expert_load {
    uint32_t member;
    uint32_t first, count;     /* in x_rows and y_rows */
    uint8_t *prepared;
    bool owns_prepared;        /* false: another load prepares it, or did */
} lw_cpu_expert_load;

/* What sort fills; the memory is the caller's. */
typedef struct lw_cpu_expert_tables {
    uint32_t vectors_max, members_max;
    uint32_t *x_rows, *y_rows; /* [vectors_max], by expert, then by row */
    uint32_t *ends;            /* [members_max + 1] */
    uint8_t **of_row;          /* [vectors_max]: where a row that all its lone experts share is prepared */
    lw_cpu_expert_load *loads; /* [members_max], ascending */
    uint32_t load_count;
} lw_cpu_expert_tables;

typedef struct lw_cpu_expert_args {
    const lw_cpu_kernels *kernels;
    lw_cpu_expert_tables *tables;
    lw_cpu_linear_args linear; /* weight, x, y and prepared (lw_cpu_expert_prepared_bytes) of all rows; y has
                                  top vectors a row, x as many or one */
    bool x_per_slot;
    const float *route; size_t route_stride; /* as the route op leaves it */
    uint32_t top;
} lw_cpu_expert_args;

size_t lw_cpu_expert_prepared_bytes(const lw_cpu_kernels *kernels, uint32_t cols, uint32_t vectors);

void lw_cpu_experts_sort(const lw_cpu_expert_args *args);
void lw_cpu_experts_prepare(const lw_cpu_expert_args *args, unsigned part, unsigned parts);
void lw_cpu_experts_run(const lw_cpu_expert_args *args, unsigned part, unsigned parts);

#endif
