/* Where the values of a plan lie in one stretch of memory, shared by values that do not live at the same
 * time. For devices that keep activations as rows apart by a stride.
 */
#ifndef LW_DEVICE_LAYOUT_H
#define LW_DEVICE_LAYOUT_H

#include "ops/plan.h"

/* The order in which a device runs a plan's ops, where it is not the plan's own: ops of one step run at once.
 */
typedef struct lw_layout_order {
    uint32_t *ops;           /* [count] */
    uint32_t *steps;         /* [count] the step of each of those, ascending */
    uint32_t count;
} lw_layout_order;

typedef struct lw_layout {
    const lw_layout_order *order; /* set before lw_layout_make; NULL: the plan's own */
    size_t *offsets;         /* [plan->value_count] in bytes; of values that view no other */
    size_t bytes;            /* of all */
    uint32_t widest;         /* columns of the widest value */
} lw_layout;

enum { LW_LAYOUT_ALIGN_BYTES = 64 };

/* Elements from one vector of a value to the next: a row of several slots is as many vectors, each as far
 * apart as those of two rows with one slot. */
size_t lw_layout_stride(const lw_value *value);

/* Bytes of one page of a state, padded to whole lines; and of one page of a reach group, over all its states.
 */
size_t lw_layout_state_bytes(const lw_state *state);
uint64_t lw_layout_group_bytes(const lw_plan *plan, uint32_t group);

/* Takes what it makes, and its scratch, from arena. Of out, order is read. */
lw_status lw_layout_make(const lw_plan *plan, uint32_t rows_max, uint32_t wanted_max, lw_arena *arena,
                         lw_layout *out, lw_diag *d) LW_MUST_USE;

/* Its bytes alone, in this order (NULL: the plan's own). */
lw_status lw_layout_bytes(const lw_plan *plan, const lw_layout_order *order, uint32_t rows_max,
                          uint32_t wanted_max, uint64_t *bytes, lw_diag *d) LW_MUST_USE;

#endif
