/* Packing a plan's values; see layout.h. */
#include "device/layout.h"

#include "base/size.h"

size_t lw_layout_state_bytes(const lw_state *state)
{
    return size_round_up(lw_state_page_bytes(state), LW_LAYOUT_ALIGN_BYTES);
}

uint64_t lw_layout_group_bytes(const lw_plan *plan, uint32_t group)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->state_count; i++) {
        if (plan->states[i].group == group) bytes += lw_layout_state_bytes(&plan->states[i]);
    }
    return bytes;
}

size_t lw_layout_stride(const lw_value *value)
{
    return size_round_up(value->width, LW_LAYOUT_ALIGN_BYTES / sizeof(uint16_t));
}

static size_t value_bytes(const lw_value *v, uint32_t rows_max, uint32_t wanted_max)
{
    const size_t rows = (v->space == LW_SPACE_ROWS ? rows_max : wanted_max) * (size_t)v->slots;
    return size_round_up(rows * lw_layout_stride(v) * (v->type == LW_TYPE_F32 ? 4 : 2),
                         LW_LAYOUT_ALIGN_BYTES);
}

/* The i-th op to run, and its step. */
static uint32_t order_op(const lw_layout_order *order, uint32_t i)
{
    return order == NULL ? i : order->ops[i];
}

static uint32_t order_step(const lw_layout_order *order, uint32_t i)
{
    return order == NULL ? i : order->steps[i];
}

/* For each base value the last step that touches it. */
static void last_uses(const lw_plan *plan, const lw_layout_order *order, uint32_t *last)
{
    for (uint32_t i = 0; i < plan->value_count; i++) last[i] = 0;
    for (uint32_t i = 0; i < plan->op_count; i++) {
        const lw_op *op = &plan->ops[order_op(order, i)];
        const uint32_t step = order_step(order, i);
        for (uint32_t j = 0; j < LW_OP_INPUTS_MAX; j++) {
            if (op->in[j].index != LW_NONE) last[plan->values[op->in[j].index].base] = step;
        }
        if (op->out.index != LW_NONE && last[op->out.index] < step) last[op->out.index] = step;
    }
    for (uint32_t i = 0; i < plan->entry_count; i++)
        last[plan->values[plan->entries[i].logits.index].base] = UINT32_MAX;
}

/* A stretch of activation memory that values share one after the other. */
typedef struct stretch {
    size_t offset, bytes;
    uint32_t free_after;   /* the step whose end frees it; the next user comes later */
} stretch;

static stretch *stretch_find(stretch *all, uint32_t *count, size_t bytes, uint32_t step, size_t *end)
{
    stretch *best = NULL;
    for (uint32_t i = 0; i < *count; i++) {
        stretch *s = &all[i];
        if (s->free_after >= step || s->bytes < bytes) continue;
        if (best == NULL || s->bytes < best->bytes) best = s;
    }
    if (best != NULL) return best;
    all[*count] = (stretch){ .offset = *end, .bytes = bytes };
    *end += bytes;
    return &all[(*count)++];
}

lw_status lw_layout_make(const lw_plan *plan, uint32_t rows_max, uint32_t wanted_max, lw_arena *arena,
                         lw_layout *out, lw_diag *d)
{
    uint32_t *last = lw_arena_take_array(arena, plan->value_count, sizeof *last);
    stretch *all = lw_arena_take_array(arena, plan->value_count, sizeof *all);
    const lw_layout_order *order = out->order;
    LW_ASSERT(order == NULL || order->count == plan->op_count);
    *out = (lw_layout){ .order = order,
                        .offsets = lw_arena_take_array(arena, plan->value_count, sizeof *out->offsets) };
    if (last == NULL || out->offsets == NULL || all == NULL)
        return lw_fail(d, LW_NO_ROOM, "no memory for the plan's values");
    last_uses(plan, order, last);
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->op_count; i++) {
        const uint32_t index = plan->ops[order_op(order, i)].out.index;
        if (index == LW_NONE) continue;
        const lw_value *value = &plan->values[index];
        stretch *s = stretch_find(all, &count, value_bytes(value, rows_max, wanted_max),
                                  order_step(order, i), &out->bytes);
        s->free_after = last[index];
        out->offsets[index] = s->offset;
        out->widest = value->width > out->widest ? value->width : out->widest;
    }
    return LW_OK;
}

lw_status lw_layout_bytes(const lw_plan *plan, const lw_layout_order *order, uint32_t rows_max,
                          uint32_t wanted_max, uint64_t *bytes, lw_diag *d)
{
    lw_arena arena;
    lw_layout layout = { .order = order };
    lw_arena_init(&arena, SIZE_MAX);
    const lw_status status = lw_layout_make(plan, rows_max, wanted_max, &arena, &layout, d);
    lw_arena_deinit(&arena);
    *bytes = layout.bytes;
    return status;
}
