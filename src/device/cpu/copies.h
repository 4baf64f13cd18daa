/* Ops that move numbers and compute none: the same plain C for every instruction set, run as part i of n on
 * the pool like the kernels. A part owns whole rows.
 */
#ifndef LW_DEVICE_CPU_COPIES_H
#define LW_DEVICE_CPU_COPIES_H

#include "device/cpu/kernels.h"

/* y[row][h * width + i] = x[row][h * head_stride + i], i < width: take_heads, and with one head a column
 * range. */
typedef struct lw_cpu_columns_args {
    const lw_bf16 *x; size_t x_stride;
    lw_bf16 *y;       size_t y_stride;
    uint32_t rows, heads, head_stride, width;
} lw_cpu_columns_args;

void lw__cpu_columns(const lw_cpu_columns_args *args, unsigned part, unsigned parts);

/* Each row's vector of a tail: at the row's own slot, or of the position before it. A page is (64, width). */
typedef struct lw_cpu_tail_args {
    const lw_bf16 *x; size_t x_stride;  /* what tail_store keeps */
    lw_bf16 *y;       size_t y_stride;  /* what tail_before finds; zeros at position 0 */
    lw_cpu_pages pages;
    const lw_cpu_place *places;         /* [rows] */
    uint32_t rows, width;
} lw_cpu_tail_args;

void lw__cpu_tail_store(const lw_cpu_tail_args *args, unsigned part, unsigned parts);
void lw__cpu_tail_before(const lw_cpu_tail_args *args, unsigned part, unsigned parts);

#endif
