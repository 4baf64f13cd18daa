/* Ops that are the same bits in every instruction set, so one plain C serves all: copies, and elementwise
 * ones without fma or exponential. Run as part i of n on the pool like the kernels; a part owns whole rows.
 */
#ifndef LW_DEVICE_CPU_PLAIN_H
#define LW_DEVICE_CPU_PLAIN_H

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

/* Elementwise over rows; which of the pointers an op takes stands at it. */
typedef struct lw_cpu_each_args {
    const lw_bf16 *x;    size_t x_stride;
    const float *x_wide; size_t x_wide_stride;
    lw_bf16 *y;
    float *y_wide;       size_t y_stride;   /* of either */
    const float *w;                     /* [width] */
    uint32_t rows, width;
} lw_cpu_each_args;

void lw__cpu_relu2(const lw_cpu_each_args *args, unsigned part, unsigned parts);     /* x -> y */
void lw__cpu_bias(const lw_cpu_each_args *args, unsigned part, unsigned parts);      /* x_wide, w -> y */
void lw__cpu_widen(const lw_cpu_each_args *args, unsigned part, unsigned parts);     /* x -> y_wide */
void lw__cpu_add_wide(const lw_cpu_each_args *args, unsigned part, unsigned parts);  /* x_wide, x -> y_wide */

/* y = x + the bias of the vector's own expert; x and y have top vectors a row. */
typedef struct lw_cpu_expert_bias_args {
    const float *x;     size_t x_stride;
    lw_bf16 *y;         size_t y_stride;
    const float *biases;                /* (experts, width) */
    const float *route; size_t route_stride; /* as the route op leaves it */
    uint32_t rows, top, width;
} lw_cpu_expert_bias_args;

void lw__cpu_expert_bias(const lw_cpu_expert_bias_args *args, unsigned part, unsigned parts);

#endif
