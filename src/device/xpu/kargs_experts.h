/* Arguments of the expert ops' kernels; see kargs.h. */
#ifndef LW_DEVICE_XPU_KARGS_EXPERTS_H
#define LW_DEVICE_XPU_KARGS_EXPERTS_H

#include "device/xpu/kargs.h"

/* Scores and chooses one row's experts; y: top ids, then top weights. */
typedef struct lw_xpu_route_args {
    lw_xpu_u64 logits, bias, y;           /* fp32; bias [experts] or 0 */
    lw_xpu_u32 logits_stride, y_stride;
    lw_xpu_u32 is_softmax, experts, top, groups, top_groups, normalise;
    float scale;
} lw_xpu_route_args;

/* Vectors (row * top + slot) in order of their experts, cut into tiles of up to tile_rows of one expert. */
typedef struct lw_xpu_tile {
    lw_xpu_u32 member, first, count;
} lw_xpu_tile;

typedef struct lw_xpu_sorted {
    lw_xpu_u64 order;                     /* u32 [vectors] */
    lw_xpu_u64 tiles, tile_count;
} lw_xpu_sorted;

typedef struct lw_xpu_sort_args {
    lw_xpu_sorted to;
    lw_xpu_u64 route;
    lw_xpu_u32 route_stride, top, vectors, members, tile_rows;
} lw_xpu_sort_args;

/* linear.rows counts vectors of y; those of a row share its x, or each has its own. */
typedef struct lw_xpu_expert_args {
    lw_xpu_linear_args linear;
    lw_xpu_sorted sorted;
    lw_xpu_u64 route;
    lw_xpu_u32 route_stride, top, x_per_slot;
} lw_xpu_expert_args;

typedef struct lw_xpu_expert_bias_args {
    lw_xpu_u64 x, route, biases, y;       /* x and biases [experts, width]: fp32 */
    lw_xpu_u32 x_stride, route_stride, y_stride, top, width;
} lw_xpu_expert_bias_args;

typedef struct lw_xpu_expert_sum_args {
    lw_xpu_u64 x, weights, y;             /* weights: fp32 */
    lw_xpu_u32 x_stride, weights_stride, y_stride, slots, width;
} lw_xpu_expert_sum_args;

#endif
