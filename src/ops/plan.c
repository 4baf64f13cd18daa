/* Recording of plans; see plan.h. Each function checks shapes, appends one op and returns its output value.
 */
#include "ops/plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { ROOM_MIN = 64, PLAN_BYTES_MAX = 1 << 28 };

const lw_op_facts lw_op_table[LW_OP_COUNT] = {
#define LW_OP(kind, op_name, weights, inputs, op_state, op_text) \
    [LW_OP_##kind] = { .name = op_name, .weight_count = weights, .input_count = inputs, .state = op_state, \
                       .text = op_text },
#include "ops/ops.list"
#undef LW_OP
};

void lw_plan_init(lw_plan *plan)
{
    *plan = (lw_plan){ 0 };
    lw_arena_init(&plan->arena, PLAN_BYTES_MAX);
}

void lw_plan_deinit(lw_plan *plan)
{
    lw_arena_deinit(&plan->arena);
    *plan = (lw_plan){ 0 };
}

/* Room for one more item; lists double inside the arena, whose old copies die with the plan. */
static void *grow(lw_plan *plan, void *items, uint32_t count, uint32_t *room, size_t item_bytes)
{
    if (count < *room) return items;
    const uint32_t larger = *room == 0 ? ROOM_MIN : *room * 2;
    LW_ASSERT(larger <= LW_PLAN_OPS_MAX * 2);
    void *copy = lw_arena_take_array(&plan->arena, larger, item_bytes);
    LW_ASSERT(copy != NULL);
    if (count > 0) memcpy(copy, items, count * item_bytes);
    *room = larger;
    return copy;
}

static const lw_value *value(const lw_plan *plan, lw_ref x)
{
    LW_ASSERT(x.index < plan->value_count);
    return &plan->values[x.index];
}

static const lw_weight *weight_of(const lw_plan *plan, lw_wref w)
{
    LW_ASSERT(w.index < plan->weight_count);
    return &plan->weights[w.index];
}

static const lw_state *state_of(const lw_plan *plan, lw_sref s, lw_state_kind kind)
{
    LW_ASSERT(s.index < plan->state_count);
    LW_ASSERT(plan->states[s.index].kind == kind);
    return &plan->states[s.index];
}

static lw_ref value_make(lw_plan *plan, lw_space space, lw_type type, uint32_t width, const char *name)
{
    LW_ASSERT(width > 0 && width <= LW_LIMIT_WIDTH * 2u);
    plan->values = grow(plan, plan->values, plan->value_count, &plan->value_room, sizeof *plan->values);
    const uint32_t index = plan->value_count++;
    plan->values[index] =
        (lw_value){ .name = name, .space = space, .type = type, .width = width, .base = index };
    return (lw_ref){ index };
}

static lw_op *op_add(lw_plan *plan, lw_op_kind kind, lw_ref out)
{
    LW_ASSERT(plan->entry_count > 0 && plan->op_count < LW_PLAN_OPS_MAX);
    plan->ops = grow(plan, plan->ops, plan->op_count, &plan->op_room, sizeof *plan->ops);
    lw_op *op = &plan->ops[plan->op_count++];
    *op = (lw_op){ .kind = kind, .out = out, .in = { { LW_NONE }, { LW_NONE } }, .weight = { LW_NONE },
                   .state = { LW_NONE }, .layer = plan->layer };
    return op;
}

void lw_plan_entry_begin(lw_plan *plan, const char *name)
{
    LW_ASSERT(plan->entry_count < LW_PLAN_ENTRIES_MAX);
    plan->entries[plan->entry_count++] = (lw_entry){ .name = name, .op_begin = plan->op_count };
}

void lw_plan_entry_end(lw_plan *plan, lw_ref logits)
{
    LW_ASSERT(plan->entry_count > 0);
    const lw_value *v = value(plan, logits);
    LW_ASSERT(v->type == LW_TYPE_F32 && v->space == LW_SPACE_WANTED);
    lw_entry *entry = &plan->entries[plan->entry_count - 1];
    entry->op_end = plan->op_count;
    entry->logits = logits;
    plan->vocab = v->width;
}

lw_wref lw_plan_weight(lw_plan *plan, const lw_weight *weight)
{
    LW_ASSERT(weight->rows > 0 && weight->cols > 0);
    plan->weights = grow(plan, plan->weights, plan->weight_count, &plan->weight_room, sizeof *plan->weights);
    plan->weights[plan->weight_count] = *weight;
    return (lw_wref){ plan->weight_count++ };
}

static uint32_t reach_group(lw_plan *plan, uint32_t reach)
{
    for (uint32_t i = 0; i < plan->reach_count; i++) {
        if (plan->reaches[i] == reach) return i;
    }
    LW_ASSERT(plan->reach_count < LW_PLAN_REACHES_MAX);
    plan->reaches[plan->reach_count] = reach;
    return plan->reach_count++;
}

static lw_sref state_make(lw_plan *plan, const lw_state *state)
{
    plan->states = grow(plan, plan->states, plan->state_count, &plan->state_room, sizeof *plan->states);
    plan->states[plan->state_count] = *state;
    plan->states[plan->state_count].group = reach_group(plan, state->reach);
    return (lw_sref){ plan->state_count++ };
}

lw_sref lw_plan_state_kv(lw_plan *plan, const char *name, uint32_t heads, uint32_t head_dim, uint32_t reach)
{
    LW_ASSERT(heads > 0 && head_dim > 0);
    return state_make(plan, &(lw_state){ .name = name, .kind = LW_STATE_KV, .heads = heads, .width = head_dim,
                                         .reach = reach });
}

lw_sref lw_plan_state_tail(lw_plan *plan, const char *name, uint32_t width, uint32_t reach)
{
    LW_ASSERT(width > 0 && reach > 0);
    return state_make(plan, &(lw_state){ .name = name, .kind = LW_STATE_TAIL, .heads = 1, .width = width,
                                         .reach = reach });
}

uint32_t lw_plan_rope_table(lw_plan *plan, const double *frequency, uint32_t half)
{
    LW_ASSERT(half > 0);
    for (uint32_t i = 0; i < plan->rope_count; i++) {
        const lw_rope_table *t = &plan->ropes[i];
        if (t->half == half && memcmp(t->frequency, frequency, half * sizeof *frequency) == 0) return i;
    }
    LW_ASSERT(plan->rope_count < LW_PLAN_ROPES_MAX);
    double *copy = lw_arena_take_array(&plan->arena, half, sizeof *copy);
    LW_ASSERT(copy != NULL);
    memcpy(copy, frequency, half * sizeof *copy);
    plan->ropes[plan->rope_count] = (lw_rope_table){ .half = half, .frequency = copy };
    return plan->rope_count++;
}

lw_ref lw_plan_view(lw_plan *plan, lw_ref x, uint32_t offset, uint32_t width)
{
    const lw_value of = *value(plan, x);
    LW_ASSERT(width <= of.width && offset <= of.width - width);
    const lw_ref view = value_make(plan, of.space, of.type, width, of.name);
    plan->values[view.index].base = of.base;
    plan->values[view.index].offset = of.offset + offset;
    return view;
}

void lw_plan_name(lw_plan *plan, lw_ref x, const char *format, ...)
{
    LW_ASSERT(x.index < plan->value_count);
    char text[64];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *name = lw_arena_copy_text(&plan->arena, text, strlen(text));
    LW_ASSERT(name != NULL);
    plan->values[x.index].name = name;
}

lw_ref lw_plan_embed(lw_plan *plan, lw_wref table)
{
    const lw_ref out = value_make(plan, LW_SPACE_ROWS, LW_TYPE_BF16, weight_of(plan, table)->cols, "embed");
    op_add(plan, LW_OP_EMBED, out)->weight = table;
    return out;
}

lw_ref lw_plan_rms_norm(lw_plan *plan, lw_ref x, lw_wref weight, float eps, bool unit_offset)
{
    const lw_value in = *value(plan, x);
    const lw_weight *w = weight_of(plan, weight);
    const uint32_t segment = w->rows * w->cols;
    LW_ASSERT(in.type == LW_TYPE_BF16 && in.width % segment == 0);
    const lw_ref out = value_make(plan, in.space, LW_TYPE_BF16, in.width, "norm");
    lw_op *op = op_add(plan, LW_OP_RMS_NORM, out);
    op->in[0] = x;
    op->weight = weight;
    op->p.norm.segment = segment;
    op->p.norm.eps = eps;
    op->p.norm.unit_offset = unit_offset;
    return out;
}

lw_ref lw_plan_linear(lw_plan *plan, lw_ref x, lw_wref weight, lw_type type)
{
    const lw_value in = *value(plan, x);
    const lw_weight *w = weight_of(plan, weight);
    LW_ASSERT(in.type == LW_TYPE_BF16 && in.width == w->cols && w->stack_count == 1);
    const lw_ref out = value_make(plan, in.space, type, w->rows, "linear");
    lw_op *op = op_add(plan, LW_OP_LINEAR, out);
    op->in[0] = x;
    op->weight = weight;
    return out;
}

static lw_ref pair(lw_plan *plan, lw_op_kind kind, lw_ref a, lw_ref b)
{
    const lw_value left = *value(plan, a), right = *value(plan, b);
    LW_ASSERT(left.type == LW_TYPE_BF16 && right.type == LW_TYPE_BF16);
    LW_ASSERT(left.width == right.width && left.space == right.space);
    const lw_ref out = value_make(plan, left.space, LW_TYPE_BF16, left.width, lw_op_table[kind].name);
    lw_op *op = op_add(plan, kind, out);
    op->in[0] = a;
    op->in[1] = b;
    return out;
}

lw_ref lw_plan_add(lw_plan *plan, lw_ref a, lw_ref b) { return pair(plan, LW_OP_ADD, a, b); }
lw_ref lw_plan_mul(lw_plan *plan, lw_ref a, lw_ref b) { return pair(plan, LW_OP_MUL, a, b); }
lw_ref lw_plan_swiglu(lw_plan *plan, lw_ref gate, lw_ref up) { return pair(plan, LW_OP_SWIGLU, gate, up); }

lw_ref lw_plan_rope(lw_plan *plan, lw_ref x, uint32_t heads, uint32_t table)
{
    const lw_value in = *value(plan, x);
    LW_ASSERT(table < plan->rope_count && heads > 0 && in.width % heads == 0);
    LW_ASSERT(plan->ropes[table].half * 2 <= in.width / heads);
    const lw_ref out = value_make(plan, in.space, LW_TYPE_BF16, in.width, "rope");
    lw_op *op = op_add(plan, LW_OP_ROPE, out);
    op->in[0] = x;
    op->p.rope.heads = heads;
    op->p.rope.head_dim = in.width / heads;
    op->p.rope.table = table;
    return out;
}

void lw_plan_kv_store(lw_plan *plan, lw_sref state, lw_ref k, lw_ref v)
{
    const lw_state *s = state_of(plan, state, LW_STATE_KV);
    LW_ASSERT(value(plan, k)->width == s->heads * s->width && value(plan, v)->width == s->heads * s->width);
    lw_op *op = op_add(plan, LW_OP_KV_STORE, (lw_ref){ LW_NONE });
    op->in[0] = k;
    op->in[1] = v;
    op->state = state;
}

lw_ref lw_plan_attend(lw_plan *plan, lw_sref state, lw_ref q, uint32_t heads, float scale)
{
    const lw_state s = *state_of(plan, state, LW_STATE_KV);
    const lw_value in = *value(plan, q);
    LW_ASSERT(in.width == heads * s.width && heads % s.heads == 0);
    const lw_ref out = value_make(plan, in.space, LW_TYPE_BF16, in.width, "attend");
    lw_op *op = op_add(plan, LW_OP_ATTEND, out);
    op->in[0] = q;
    op->state = state;
    op->p.attend.heads = heads;
    op->p.attend.heads_kv = s.heads;
    op->p.attend.head_dim = s.width;
    op->p.attend.window = s.reach;
    op->p.attend.scale = scale;
    return out;
}

lw_ref lw_plan_head_gate(lw_plan *plan, lw_ref x, lw_ref gate)
{
    const lw_value in = *value(plan, x), by = *value(plan, gate);
    LW_ASSERT(in.width % by.width == 0 && in.space == by.space);
    const lw_ref out = value_make(plan, in.space, LW_TYPE_BF16, in.width, "gate");
    lw_op *op = op_add(plan, LW_OP_HEAD_GATE, out);
    op->in[0] = x;
    op->in[1] = gate;
    op->p.gate.heads = by.width;
    return out;
}

lw_ref lw_plan_short_conv(lw_plan *plan, lw_sref state, lw_ref x, lw_wref weight)
{
    const lw_state s = *state_of(plan, state, LW_STATE_TAIL);
    const lw_value in = *value(plan, x);
    const lw_weight *w = weight_of(plan, weight);
    LW_ASSERT(in.width == s.width && w->rows == s.width && w->cols == s.reach && in.space == LW_SPACE_ROWS);
    const lw_ref out = value_make(plan, in.space, LW_TYPE_BF16, in.width, "conv");
    lw_op *op = op_add(plan, LW_OP_SHORT_CONV, out);
    op->in[0] = x;
    op->state = state;
    op->weight = weight;
    op->p.conv.taps = w->cols;
    return out;
}

lw_ref lw_plan_take_wanted(lw_plan *plan, lw_ref x)
{
    const lw_value in = *value(plan, x);
    LW_ASSERT(in.space == LW_SPACE_ROWS);
    const lw_ref out = value_make(plan, LW_SPACE_WANTED, in.type, in.width, in.name);
    op_add(plan, LW_OP_TAKE_WANTED, out)->in[0] = x;
    return out;
}
