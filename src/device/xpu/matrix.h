/* Weight matrices of the xpu device. Called while a plan is checked and loaded, and for the kernels' names.
 */
#ifndef LW_DEVICE_XPU_MATRIX_H
#define LW_DEVICE_XPU_MATRIX_H

#include "device/xpu/exec.h"

/* LW_UNSUPPORTED or LW_BAD_MODEL, naming the weight and what about it no kernel reads; of one that is to be
 * embedded from, too. */
lw_status lw__xpu_matrix_check(const lw_weight *w, lw_diag *d) LW_MUST_USE;
lw_status lw__xpu_table_check(const lw_weight *w, lw_diag *d) LW_MUST_USE;

/* Groups that the kernels see in a row of it; their sums of x may be needed. */
uint32_t lw__xpu_matrix_groups(const lw_weight *w);

/* Of the groups whose sums of x the kernels need, 0: they need none. And whether two matrices of equal x are
 * cut alike and read by the same kernels. */
uint32_t lw__xpu_matrix_sums_group(const lw_weight *w);
bool lw__xpu_matrix_is_like(const lw_weight *a, const lw_weight *b);
/* Whether linears of this form share launches. */
bool lw__xpu_form_is_fused(const lw_weight *w);

/* Repacks and uploads a weight that was checked; scratch comes from arena. */
lw_status lw__xpu_matrix_load(lw_device *device, const lw_weight *w, lw_xpu_weight *out, lw_arena *arena,
                              lw_diag *d) LW_MUST_USE;

typedef enum lw_xpu_product {
    LW_XPU_PRODUCT_LINEAR,
    LW_XPU_PRODUCT_EXPERT,
    LW_XPU_PRODUCT_LINEARS,
    LW_XPU_PRODUCT_SWIGLU,
    LW_XPU_PRODUCTS
} lw_xpu_product;

/* A kernel, and how many rows one pass of it over the weight serves. */
typedef struct lw_xpu_pass {
    lw_xpu_kernel kernel;
    uint32_t rows;
} lw_xpu_pass;

/* What multiplies so many rows, of experts those that one meets on average, by a weight that was checked;
 * linears that share a launch ask for LW_XPU_ROWS at most where single ones have passes of more. Which set of
 * kernels it is from depends on device and weight alone, so that a row's sums are the same in every pass. */
lw_xpu_pass lw__xpu_pass(const lw_device *device, const lw_weight *w, lw_xpu_product product, uint32_t rows);

#endif
