/* Where the values of a plan lie in one stretch of memory, shared by values that do not live at the same
 * time. For devices that keep activations as rows apart by a stride.
 */
#ifndef LW_DEVICE_LAYOUT_H
#define LW_DEVICE_LAYOUT_H

#include "ops/plan.h"

typedef struct lw_layout {
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

/* Takes what it makes, and its scratch, from arena. */
lw_status lw_layout_make(const lw_plan *plan, uint32_t rows_max, uint32_t wanted_max, lw_arena *arena,
                         lw_layout *out, lw_diag *d) LW_MUST_USE;

/* Its bytes alone. */
lw_status lw_layout_bytes(const lw_plan *plan, uint32_t rows_max, uint32_t wanted_max, uint64_t *bytes,
                          lw_diag *d) LW_MUST_USE;

#endif
