/* Which ops of a plan run as one launch, and in which order what is left of the plan runs. Patterns look at
 * ops and at who reads a value, never at what model they come from. A fused launch runs the very steps of its
 * ops, their roundings too: the bits are those of the ops one by one.
 */
#ifndef LW_DEVICE_XPU_FUSE_H
#define LW_DEVICE_XPU_FUSE_H

#include "device/layout.h"
#include "device/xpu/queue.h"

enum { LW_XPU_STEP_OPS_MAX = 5 };

/* Places of a fused step's ops; LW_NONE stands where the pattern did without. */
enum { LW_XPU_ADD_NORM_BRANCH, LW_XPU_ADD_NORM_ADD, LW_XPU_ADD_NORM_NORM };
enum {
    LW_XPU_HEADS_NORM,
    LW_XPU_HEADS_ROPE,
    LW_XPU_HEADS_STORE_NORM,
    LW_XPU_HEADS_STORE_ROPE,
    LW_XPU_HEADS_STORE
};
enum { LW_XPU_SWIGLU_GATE, LW_XPU_SWIGLU_UP, LW_XPU_SWIGLU_OUT };

typedef struct lw_xpu_step {
    lw_xpu_switch fusion;                /* LW_XPU_SWITCH_COUNT: ops[0] by itself */
    uint32_t ops[LW_XPU_STEP_OPS_MAX];   /* indices in the plan */
    uint32_t sums_of; /* add_norm: the linear whose groups of the norm are summed; LW_NONE */
    uint32_t parts;                      /* linears, swiglu: index of their arguments in device memory */
} lw_xpu_step;

typedef struct lw_xpu_schedule {
    lw_xpu_step *steps;                  /* in the order in which they run, entry after entry */
    uint32_t count, parts_count;
    uint32_t begin[LW_PLAN_ENTRIES_MAX], end[LW_PLAN_ENTRIES_MAX];
    lw_layout_order order;
} lw_xpu_schedule;

/* Of those that are linears, and perhaps what follows them. */
static inline bool lw__xpu_step_has_parts(const lw_xpu_step *step)
{
    return step->fusion == LW_XPU_SWITCH_linears || step->fusion == LW_XPU_SWITCH_swiglu;
}

/* off: switches, by lw_xpu_switch. Takes its memory from arena. */
lw_status lw__xpu_schedule_make(const lw_plan *plan, const bool *off, lw_arena *arena, lw_xpu_schedule *out,
                                lw_diag *d) LW_MUST_USE;

#endif
