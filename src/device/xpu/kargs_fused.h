/* Arguments of the xpu kernels that no single op has: fused ones (fuse.h) and the search for likeliest
 * tokens. As in kargs.h.
 */
#ifndef LW_DEVICE_XPU_KARGS_FUSED_H
#define LW_DEVICE_XPU_KARGS_FUSED_H

#include "device/xpu/kargs.h"

enum { LW_XPU_BEST_IDS = 4096 };  /* ids among which one work-group finds the likeliest */

/* The likeliest of some ids; is_bad: one of their logits is not finite. */
typedef struct lw_xpu_best {
    float logit;
    lw_xpu_u32 id, is_bad;
} lw_xpu_best;

typedef struct lw_xpu_best_args {
    lw_xpu_u64 logits, parts;   /* parts: lw_xpu_best (rows, blocks) */
    lw_xpu_u64 step;            /* u32: of a chain, else 0 */
    lw_xpu_u64 ids;             /* i32 (steps, ids_stride): -1 where a logit is not finite */
    lw_xpu_u64 next;            /* i32 [rows]: tokens of a chain's next step; 0: none */
    lw_xpu_u32 stride, vocab, blocks, ids_stride;
} lw_xpu_best_args;

/* Tokens that the batch before drew, in the places of those that name them (lw_row_drawn). */
typedef struct lw_xpu_drawn_args {
    lw_xpu_u64 tokens;          /* i32 [rows] */
    lw_xpu_u64 ids;             /* i32, as best leaves them: -1 where there is none */
    lw_xpu_u32 rows, padding;
} lw_xpu_drawn_args;

/* x + added (0: x alone), which branch_w norms first (0: it does not), into sum, normed into y, whose groups'
 * columns are summed (sums 0: they are not). */
typedef struct lw_xpu_add_norm_args {
    lw_xpu_u64 x, added, branch_w, sum, w, y, sums;
    lw_xpu_u32 x_stride, added_stride, sum_stride, y_stride, width;
    lw_xpu_u32 is_f32;          /* x and sum */
    lw_xpu_u32 scale, branch_scale; /* an lw_norm_scale each */
    lw_xpu_u32 groups, group;
    float eps, branch_eps;
} lw_xpu_add_norm_args;

/* Some heads: normed (w 0: they are not) and turned into y, or into their pages, beside v. */
typedef struct lw_xpu_head_part {
    lw_xpu_u64 x, w, y, v;      /* v 0: into y */
    lw_xpu_u32 x_stride, y_stride, v_stride, heads;
    lw_xpu_u32 scale;           /* an lw_norm_scale */
    float eps;
} lw_xpu_head_part;

typedef struct lw_xpu_heads_args {
    lw_xpu_head_part plain, stored;
    lw_xpu_past past;           /* of the stored ones */
    lw_xpu_u64 cosines, sines;
    lw_xpu_u32 head_dim, half_dim;
} lw_xpu_heads_args;

enum { LW_XPU_LINEARS_MAX = 4 };

/* Matrices of one x, side by side; parts: lw_xpu_linear_args [LW_XPU_LINEARS_MAX], but for rows. */
typedef struct lw_xpu_linears_args {
    lw_xpu_u64 parts;
    lw_xpu_u32 rows;
    lw_xpu_u32 first[LW_XPU_LINEARS_MAX]; /* block of each part; LW_XPU_NONE: there are fewer */
} lw_xpu_linears_args;

/* parts: gate's and up's. */
typedef struct lw_xpu_swiglu_args {
    lw_xpu_u64 parts, y;
    lw_xpu_u32 rows, y_stride;
} lw_xpu_swiglu_args;

#endif
