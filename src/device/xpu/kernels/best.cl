/* The likeliest token of each row of logits: the highest logit, of equals the lowest id, which no order of
 * comparing changes. A logit that is NaN or infinite defines no token, and is told.
 */
#include "device/xpu/kernels/lw_xpu.h"
#include "device/xpu/kargs_fused.h"

static inline lw_xpu_best better(lw_xpu_best a, lw_xpu_best b)
{
    const bool b_wins = b.logit > a.logit || (b.logit == a.logit && b.id < a.id);
    lw_xpu_best best = b_wins ? b : a;
    best.is_bad = a.is_bad | b.is_bad;
    return best;
}

/* Of all items of a work-group of LW_XPU_TILE; item 0 has it. */
static inline lw_xpu_best tree_best(local lw_xpu_best *tree, lw_xpu_best mine)
{
    const uint item = get_local_id(0);
    tree[item] = mine;
    for (uint count = LW_XPU_TILE / 2; count > 0; count /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item < count) tree[item] = better(tree[item], tree[item + count]);
    }
    return tree[item];
}

static inline lw_xpu_best best_of_none(void)
{
    lw_xpu_best none = { -INFINITY, LW_XPU_NONE, 0 };
    return none;
}

/* A work-group is one block of LW_XPU_BEST_IDS ids of one row. */
LW_KERNEL(best_parts, lw_xpu_best_args)
{
    local lw_xpu_best tree[LW_XPU_TILE];
    const size_t row = get_group_id(1);
    const uint begin = get_group_id(0) * LW_XPU_BEST_IDS, end = min(begin + LW_XPU_BEST_IDS, a.vocab);
    const global float *logits = (const global float *)a.logits + row * a.stride;
    lw_xpu_best best = best_of_none();
    for (uint id = begin + get_local_id(0); id < end; id += LW_XPU_TILE) {
        const float logit = logits[id];
        const lw_xpu_best here = { logit, id, (as_uint(logit) & 0x7F800000u) == 0x7F800000u };
        best = better(best, here);
    }
    best = tree_best(tree, best);
    if (get_local_id(0) == 0) ((global lw_xpu_best *)a.parts)[row * a.blocks + get_group_id(0)] = best;
}

/* A work-group is one row: all its blocks. */
LW_KERNEL(best_rows, lw_xpu_best_args)
{
    local lw_xpu_best tree[LW_XPU_TILE];
    const size_t row = get_group_id(1);
    lw_xpu_best best = best_of_none();
    for (uint block = get_local_id(0); block < a.blocks; block += LW_XPU_TILE)
        best = better(best, ((const global lw_xpu_best *)a.parts)[row * a.blocks + block]);
    best = tree_best(tree, best);
    if (get_local_id(0) != 0) return;
    const size_t step = *(const global uint *)a.step;
    ((global int *)a.ids)[step * a.ids_stride + row] = best.is_bad != 0 ? -1 : (int)best.id;
    /* A row that draws nothing still has to go on: its chain is of no use. */
    if (a.next != 0) ((global int *)a.next)[row] = best.is_bad != 0 ? 0 : (int)best.id;
}

/* An item is one row. One whose token there is none of still has to go on: it is of no use. */
LW_KERNEL(take_drawn, lw_xpu_drawn_args)
{
    const size_t row = get_global_id(0);
    global int *tokens = (global int *)a.tokens;
    if (row >= a.rows || tokens[row] >= 0) return;
    const int drawn = ((const global int *)a.ids)[-1 - tokens[row]];
    tokens[row] = drawn < 0 ? 0 : drawn;
}
