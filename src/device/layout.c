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

/* For each base value the last op that touches it, and for each op what dies after it. */
static void last_uses(const lw_plan *plan, uint32_t *last)
{
    for (uint32_t i = 0; i < plan->value_count; i++) last[i] = 0;
    for (uint32_t i = 0; i < plan->op_count; i++) {
        const lw_op *op = &plan->ops[i];
        for (uint32_t j = 0; j < LW_OP_INPUTS_MAX; j++) {
            if (op->in[j].index != LW_NONE) last[plan->values[op->in[j].index].base] = i;
        }
        if (op->out.index != LW_NONE) last[op->out.index] = i;
    }
    for (uint32_t i = 0; i < plan->entry_count; i++)
        last[plan->values[plan->entries[i].logits.index].base] = UINT32_MAX;
}

/* A stretch of activation memory that values share one after the other. */
typedef struct stretch {
    size_t offset, bytes;
    uint32_t free_after;   /* op index whose end frees it; the next user comes later */
} stretch;

static stretch *stretch_find(stretch *all, uint32_t *count, size_t bytes, uint32_t op, size_t *end)
{
    stretch *best = NULL;
    for (uint32_t i = 0; i < *count; i++) {
        stretch *s = &all[i];
        if (s->free_after >= op || s->bytes < bytes) continue;
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
    *out = (lw_layout){ .offsets = lw_arena_take_array(arena, plan->value_count, sizeof *out->offsets) };
    if (last == NULL || out->offsets == NULL || all == NULL)
        return lw_fail(d, LW_NO_ROOM, "no memory for the plan's values");
    last_uses(plan, last);
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->op_count; i++) {
        const uint32_t index = plan->ops[i].out.index;
        if (index == LW_NONE) continue;
        const lw_value *value = &plan->values[index];
        stretch *s = stretch_find(all, &count, value_bytes(value, rows_max, wanted_max), i, &out->bytes);
        s->free_after = last[index];
        out->offsets[index] = s->offset;
        out->widest = value->width > out->widest ? value->width : out->widest;
    }
    return LW_OK;
}

lw_status lw_layout_bytes(const lw_plan *plan, uint32_t rows_max, uint32_t wanted_max, uint64_t *bytes,
                          lw_diag *d)
{
    lw_arena arena;
    lw_layout layout;
    lw_arena_init(&arena, SIZE_MAX);
    const lw_status status = lw_layout_make(plan, rows_max, wanted_max, &arena, &layout, d);
    lw_arena_deinit(&arena);
    *bytes = layout.bytes;
    return status;
}
