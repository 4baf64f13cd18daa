/* Recording of plans; see record.h. */
#include "ops/record.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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

/* A new value of the shape of `like`. */
static lw_ref value_make(lw_plan *plan, lw_value like, const char *name)
{
    LW_ASSERT(like.width > 0 && like.width <= LW_LIMIT_WIDTH * 2u && like.slots > 0);
    LW_ASSERT(plan->value_count < LW_PLAN_OPS_MAX);
    const uint32_t index = plan->value_count++;
    lw_value *v = &plan->values[index];
    *v = (lw_value){ .space = like.space, .type = like.type, .slots = like.slots, .width = like.width,
                     .base = index };
    snprintf(v->name, sizeof v->name, "%s", name);
    return (lw_ref){ index };
}

static lw_value shaped(lw_value like, lw_type type, uint32_t width)
{
    like.type = type;
    like.width = width;
    return like;
}

static bool same_shape(const lw_value *a, const lw_value *b)
{
    return a->space == b->space && a->type == b->type && a->slots == b->slots && a->width == b->width;
}

static lw_op *op_add(lw_plan *plan, lw_op_kind kind, lw_ref out)
{
    LW_ASSERT(plan->entry_count > 0 && plan->op_count < LW_PLAN_OPS_MAX);
    lw_op *op = &plan->ops[plan->op_count++];
    *op = (lw_op){ .kind = kind, .out = out, .state = { LW_NONE }, .anchor = { LW_NONE },
                   .layer = plan->layer };
    for (int i = 0; i < LW_OP_INPUTS_MAX; i++) op->in[i].index = LW_NONE;
    for (int i = 0; i < LW_OP_WEIGHTS_MAX; i++) op->weights[i].index = LW_NONE;
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
    LW_ASSERT(plan->weight_count < LW_PLAN_OPS_MAX);
    plan->weights[plan->weight_count] = *weight;
    return (lw_wref){ plan->weight_count++ };
}

static uint32_t reach_group(lw_plan *plan, uint32_t reach, bool is_anchor)
{
    for (uint32_t i = 0; i < plan->reach_count; i++) {
        if (plan->reaches[i] == reach && plan->reach_is_anchor[i] == is_anchor) return i;
    }
    LW_ASSERT(plan->reach_count < LW_PLAN_REACHES_MAX);
    plan->reaches[plan->reach_count] = reach;
    plan->reach_is_anchor[plan->reach_count] = is_anchor;
    return plan->reach_count++;
}

static lw_sref state_make(lw_plan *plan, const lw_state *state)
{
    LW_ASSERT(plan->state_count < LW_PLAN_OPS_MAX);
    plan->states[plan->state_count] = *state;
    plan->states[plan->state_count].group = reach_group(plan, state->reach, state->kind == LW_STATE_ANCHOR);
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

lw_recurrence lw_plan_recurrence(lw_plan *plan, const char *name, lw_heads keys, lw_heads values)
{
    LW_ASSERT(keys.count > 0 && keys.width > 0 && values.width > 0);
    LW_ASSERT(values.count > 0 && values.count % keys.count == 0);
    lw_state state = { .name = name, .kind = LW_STATE_STEPS, .heads = values.count, .width = values.width,
                       .key_heads = keys.count, .key_width = keys.width, .reach = LW_ANCHOR_POSITIONS + 1 };
    const lw_sref steps = state_make(plan, &state);
    state.kind = LW_STATE_ANCHOR;
    state.reach = 2;
    return (lw_recurrence){ .steps = steps, .anchor = state_make(plan, &state) };
}

uint32_t lw_plan_rope_table(lw_plan *plan, const double *frequency, uint32_t half)
{
    LW_ASSERT(half > 0 && half <= LW_ROPE_HALF_MAX);
    for (uint32_t i = 0; i < plan->rope_count; i++) {
        const lw_rope_table *t = &plan->ropes[i];
        if (t->half == half && memcmp(t->frequency, frequency, half * sizeof *frequency) == 0) return i;
    }
    LW_ASSERT(plan->rope_count < LW_PLAN_ROPES_MAX);
    plan->ropes[plan->rope_count].half = half;
    memcpy(plan->ropes[plan->rope_count].frequency, frequency, half * sizeof *frequency);
    return plan->rope_count++;
}

lw_ref lw_plan_view(lw_plan *plan, lw_ref x, uint32_t offset, uint32_t width)
{
    const lw_value of = *value(plan, x);
    LW_ASSERT(of.slots == 1 && width <= of.width && offset <= of.width - width);
    const lw_ref view = value_make(plan, shaped(of, of.type, width), of.name);
    plan->values[view.index].base = of.base;
    plan->values[view.index].offset = of.offset + offset;
    return view;
}

void lw_plan_name(lw_plan *plan, lw_ref x, const char *format, ...)
{
    LW_ASSERT(x.index < plan->value_count);
    va_list args;
    va_start(args, format);
    vsnprintf(plan->values[x.index].name, sizeof plan->values->name, format, args);
    va_end(args);
}

/* ---- ops ---- */

lw_ref lw_plan_embed(lw_plan *plan, lw_wref table)
{
    const lw_value rows = { .space = LW_SPACE_ROWS, .slots = 1 };
    const lw_ref out =
        value_make(plan, shaped(rows, LW_TYPE_BF16, weight_of(plan, table)->cols), "embed");
    op_add(plan, LW_OP_EMBED, out)->weights[0] = table;
    return out;
}

lw_ref lw_plan_widen(lw_plan *plan, lw_ref x)
{
    const lw_value in = *value(plan, x);
    LW_ASSERT(in.type == LW_TYPE_BF16 && in.slots == 1);
    lw_op *op = op_add(plan, LW_OP_WIDEN, value_make(plan, shaped(in, LW_TYPE_F32, in.width), "wide"));
    op->in[0] = x;
    return op->out;
}

static uint32_t vector_length(const lw_plan *plan, lw_wref w)
{
    return weight_of(plan, w)->rows * weight_of(plan, w)->cols;
}

lw_ref lw_plan_rms_norm(lw_plan *plan, lw_ref x, lw_wref weight, float eps, lw_norm_scale scale)
{
    const lw_value in = *value(plan, x);
    const uint32_t segment = vector_length(plan, weight);
    LW_ASSERT(in.slots == 1 && in.width % segment == 0);
    lw_op *op = op_add(plan, LW_OP_RMS_NORM, value_make(plan, shaped(in, LW_TYPE_BF16, in.width), "norm"));
    op->in[0] = x;
    op->weights[0] = weight;
    op->p.norm.segment = segment;
    op->p.norm.eps = eps;
    op->p.norm.scale = scale;
    return op->out;
}

lw_ref lw_plan_norm_gate(lw_plan *plan, lw_ref x, lw_ref gate, lw_wref weight, lw_norm_gate params)
{
    const lw_value in = *value(plan, x);
    const uint32_t length = vector_length(plan, weight);
    LW_ASSERT(same_shape(&in, value(plan, gate)) && in.type == LW_TYPE_BF16 && in.slots == 1);
    LW_ASSERT(in.width % params.segment == 0 && (length == params.segment || length == in.width));
    lw_op *op = op_add(plan, LW_OP_NORM_GATE, value_make(plan, in, "norm_gate"));
    op->in[0] = x;
    op->in[1] = gate;
    op->weights[0] = weight;
    op->p.norm_gate.segment = params.segment;
    op->p.norm_gate.eps = params.eps;
    op->p.norm_gate.gate_first = params.gate_first;
    return op->out;
}

lw_ref lw_plan_linear(lw_plan *plan, lw_ref x, lw_wref weight, lw_type type)
{
    const lw_value in = *value(plan, x);
    const lw_weight *w = weight_of(plan, weight);
    LW_ASSERT(in.type == LW_TYPE_BF16 && in.slots == 1 && in.width == w->cols && w->stack_count == 1);
    lw_op *op = op_add(plan, LW_OP_LINEAR, value_make(plan, shaped(in, type, w->rows), "linear"));
    op->in[0] = x;
    op->weights[0] = weight;
    return op->out;
}

lw_ref lw_plan_bias(lw_plan *plan, lw_ref x, lw_wref bias)
{
    const lw_value in = *value(plan, x);
    LW_ASSERT(in.type == LW_TYPE_F32 && in.slots == 1 && in.width == vector_length(plan, bias));
    lw_op *op = op_add(plan, LW_OP_BIAS, value_make(plan, shaped(in, LW_TYPE_BF16, in.width), "bias"));
    op->in[0] = x;
    op->weights[0] = bias;
    return op->out;
}

static lw_ref pair(lw_plan *plan, lw_op_kind kind, lw_ref a, lw_ref b)
{
    const lw_value left = *value(plan, a);
    LW_ASSERT(left.type == LW_TYPE_BF16 && same_shape(&left, value(plan, b)));
    lw_op *op = op_add(plan, kind, value_make(plan, left, lw_op_table[kind].name));
    op->in[0] = a;
    op->in[1] = b;
    return op->out;
}

lw_ref lw_plan_add(lw_plan *plan, lw_ref a, lw_ref b)
{
    const lw_value left = *value(plan, a), right = *value(plan, b);
    if (left.type == LW_TYPE_BF16) return pair(plan, LW_OP_ADD, a, b);
    const lw_value half = shaped(left, LW_TYPE_BF16, left.width);
    LW_ASSERT(left.slots == 1 && same_shape(&half, &right));
    lw_op *op = op_add(plan, LW_OP_ADD, value_make(plan, left, lw_op_table[LW_OP_ADD].name));
    op->in[0] = a;
    op->in[1] = b;
    return op->out;
}

lw_ref lw_plan_mul(lw_plan *plan, lw_ref a, lw_ref b) { return pair(plan, LW_OP_MUL, a, b); }
lw_ref lw_plan_swiglu(lw_plan *plan, lw_ref gate, lw_ref up) { return pair(plan, LW_OP_SWIGLU, gate, up); }

lw_ref lw_plan_relu2(lw_plan *plan, lw_ref x)
{
    const lw_value in = *value(plan, x);
    LW_ASSERT(in.type == LW_TYPE_BF16);
    lw_op *op = op_add(plan, LW_OP_RELU2, value_make(plan, in, "relu2"));
    op->in[0] = x;
    return op->out;
}

lw_ref lw_plan_concat(lw_plan *plan, lw_ref a, lw_ref b)
{
    const lw_value left = *value(plan, a), right = *value(plan, b);
    LW_ASSERT(left.type == LW_TYPE_BF16 && right.type == LW_TYPE_BF16 && left.space == right.space);
    LW_ASSERT(left.slots == 1 && right.slots == 1);
    const lw_value both = shaped(left, LW_TYPE_BF16, left.width + right.width);
    lw_op *op = op_add(plan, LW_OP_CONCAT, value_make(plan, both, "concat"));
    op->in[0] = a;
    op->in[1] = b;
    return op->out;
}

lw_ref lw_plan_take_heads(lw_plan *plan, lw_ref x, lw_head_columns columns)
{
    const lw_value in = *value(plan, x);
    LW_ASSERT(in.type == LW_TYPE_BF16 && in.slots == 1 && in.width == columns.heads * columns.stride);
    LW_ASSERT(columns.width > 0 && columns.offset + columns.width <= columns.stride);
    const lw_value some = shaped(in, LW_TYPE_BF16, columns.heads * columns.width);
    lw_op *op = op_add(plan, LW_OP_TAKE_HEADS, value_make(plan, some, in.name));
    op->in[0] = x;
    op->p.columns = columns;
    return op->out;
}

lw_ref lw_plan_rope(lw_plan *plan, lw_ref x, uint32_t heads, uint32_t table)
{
    const lw_value in = *value(plan, x);
    LW_ASSERT(table < plan->rope_count && heads > 0 && in.width % heads == 0 && in.slots == 1);
    LW_ASSERT(in.type == LW_TYPE_BF16 && plan->ropes[table].half * 2 <= in.width / heads);
    lw_op *op = op_add(plan, LW_OP_ROPE, value_make(plan, in, "rope"));
    op->in[0] = x;
    op->p.rope.heads = heads;
    op->p.rope.head_dim = in.width / heads;
    op->p.rope.table = table;
    return op->out;
}

void lw_plan_kv_store(lw_plan *plan, lw_sref state, lw_ref k, lw_ref v)
{
    const lw_state *s = state_of(plan, state, LW_STATE_KV);
    LW_ASSERT(value(plan, k)->width == s->heads * s->width && same_shape(value(plan, k), value(plan, v)));
    LW_ASSERT(value(plan, k)->type == LW_TYPE_BF16);
    lw_op *op = op_add(plan, LW_OP_KV_STORE, (lw_ref){ LW_NONE });
    op->in[0] = k;
    op->in[1] = v;
    op->state = state;
}

lw_ref lw_plan_attend(lw_plan *plan, lw_sref state, lw_ref q, uint32_t heads, float scale)
{
    return lw_plan_attend_from(plan, state, q, (lw_attention){ .heads = heads, .scale = scale });
}

lw_ref lw_plan_attend_from(lw_plan *plan, lw_sref state, lw_ref q, lw_attention params)
{
    const lw_state s = *state_of(plan, state, LW_STATE_KV);
    const lw_value in = *value(plan, q);
    LW_ASSERT(in.width == params.heads * s.width && params.heads % s.heads == 0);
    LW_ASSERT(in.type == LW_TYPE_BF16 && in.slots == 1);
    lw_op *op = op_add(plan, LW_OP_ATTEND, value_make(plan, in, "attend"));
    op->in[0] = q;
    op->state = state;
    op->p.attend.heads = params.heads;
    op->p.attend.heads_kv = s.heads;
    op->p.attend.head_dim = s.width;
    op->p.attend.window = s.reach;
    op->p.attend.first = params.first;
    op->p.attend.scale = params.scale;
    return op->out;
}

lw_ref lw_plan_head_gate(lw_plan *plan, lw_ref x, lw_ref gate)
{
    const lw_value in = *value(plan, x), by = *value(plan, gate);
    LW_ASSERT(in.width % by.width == 0 && in.space == by.space && in.slots == 1 && by.slots == 1);
    LW_ASSERT(in.type == LW_TYPE_BF16 && by.type == LW_TYPE_BF16);
    lw_op *op = op_add(plan, LW_OP_HEAD_GATE, value_make(plan, in, "gate"));
    op->in[0] = x;
    op->in[1] = gate;
    op->p.gate.heads = by.width;
    return op->out;
}

/* ---- states that rows look back at ---- */

static lw_op *conv(lw_plan *plan, lw_sref state, lw_ref x, lw_wref weight)
{
    const lw_state s = *state_of(plan, state, LW_STATE_TAIL);
    const lw_value in = *value(plan, x);
    const lw_weight *w = weight_of(plan, weight);
    LW_ASSERT(in.width == s.width && w->rows == s.width && w->cols == s.reach);
    LW_ASSERT(in.type == LW_TYPE_BF16 && in.space == LW_SPACE_ROWS && in.slots == 1);
    lw_op *op = op_add(plan, LW_OP_SHORT_CONV, value_make(plan, in, "conv"));
    op->in[0] = x;
    op->state = state;
    op->weights[0] = weight;
    op->p.conv.taps = w->cols;
    return op;
}

lw_ref lw_plan_short_conv(lw_plan *plan, lw_sref state, lw_ref x, lw_wref weight)
{
    return conv(plan, state, x, weight)->out;
}

lw_ref lw_plan_conv_silu(lw_plan *plan, lw_sref state, lw_ref x, lw_wref weight, lw_wref bias)
{
    LW_ASSERT(bias.index == LW_NONE || vector_length(plan, bias) == value(plan, x)->width);
    lw_op *op = conv(plan, state, x, weight);
    op->weights[1] = bias;
    op->p.conv.silu = true;
    return op->out;
}

void lw_plan_tail_store(lw_plan *plan, lw_sref state, lw_ref x)
{
    const lw_value in = *value(plan, x);
    LW_ASSERT(state_of(plan, state, LW_STATE_TAIL)->width == in.width && in.type == LW_TYPE_BF16);
    LW_ASSERT(in.space == LW_SPACE_ROWS && in.slots == 1);
    lw_op *op = op_add(plan, LW_OP_TAIL_STORE, (lw_ref){ LW_NONE });
    op->in[0] = x;
    op->state = state;
}

lw_ref lw_plan_tail_before(lw_plan *plan, lw_sref state)
{
    const lw_state s = *state_of(plan, state, LW_STATE_TAIL);
    LW_ASSERT(s.reach >= 2);
    const lw_value rows = { .space = LW_SPACE_ROWS, .slots = 1 };
    lw_op *op = op_add(plan, LW_OP_TAIL_BEFORE,
                       value_make(plan, shaped(rows, LW_TYPE_BF16, s.width), "before"));
    op->state = state;
    return op->out;
}

/* An op over an anchored recurrence, whose x holds extra + values' columns; its output holds the values'. */
static lw_op *recurrence(lw_plan *plan, lw_op_kind kind, lw_recurrence state, lw_ref x)
{
    const lw_state s = *state_of(plan, state.steps, LW_STATE_STEPS);
    const lw_value in = *value(plan, x);
    LW_ASSERT(state_of(plan, state.anchor, LW_STATE_ANCHOR)->heads == s.heads);
    LW_ASSERT(in.width == 2 * s.key_heads * s.key_width + s.heads * s.width);
    LW_ASSERT(in.type == LW_TYPE_BF16 && in.space == LW_SPACE_ROWS && in.slots == 1);
    const lw_value out = shaped(in, LW_TYPE_BF16, s.heads * s.width);
    lw_op *op = op_add(plan, kind, value_make(plan, out, lw_op_table[kind].name));
    op->in[0] = x;
    op->state = state.steps;
    op->anchor = state.anchor;
    return op;
}

static bool one_per_head(const lw_plan *plan, const lw_op *op, lw_ref x)
{
    const lw_value *v = value(plan, x);
    return v->width == plan->states[op->state.index].heads && v->type == LW_TYPE_BF16 &&
           v->space == LW_SPACE_ROWS && v->slots == 1;
}

lw_ref lw_plan_gated_delta(lw_plan *plan, lw_recurrence state, lw_delta_inputs in, lw_wref a_log,
                           lw_wref dt_bias)
{
    lw_op *op = recurrence(plan, LW_OP_GATED_DELTA, state, in.x);
    const uint32_t heads = plan->states[op->state.index].heads;
    LW_ASSERT(one_per_head(plan, op, in.a) && one_per_head(plan, op, in.b));
    LW_ASSERT(vector_length(plan, a_log) == heads && vector_length(plan, dt_bias) == heads);
    op->in[1] = in.a;
    op->in[2] = in.b;
    op->weights[0] = a_log;
    op->weights[1] = dt_bias;
    return op->out;
}

lw_ref lw_plan_ssm(lw_plan *plan, lw_recurrence state, lw_ssm_inputs in, const lw_ssm_weights *weights)
{
    lw_op *op = recurrence(plan, LW_OP_SSM, state, in.x);
    const uint32_t heads = plan->states[op->state.index].heads;
    LW_ASSERT(one_per_head(plan, op, in.step));
    LW_ASSERT(vector_length(plan, weights->a_log) == heads && vector_length(plan, weights->d) == heads &&
              vector_length(plan, weights->dt_bias) == heads);
    op->in[1] = in.step;
    op->weights[0] = weights->a_log;
    op->weights[1] = weights->dt_bias;
    op->weights[2] = weights->d;
    op->p.ssm.step_min = weights->step_min;
    op->p.ssm.step_max = weights->step_max;
    return op->out;
}

/* ---- experts ---- */

lw_ref lw_plan_route(lw_plan *plan, lw_ref logits, lw_wref bias, const lw_route_params *params)
{
    const lw_value in = *value(plan, logits);
    LW_ASSERT(in.type == LW_TYPE_F32 && in.slots == 1 && in.width == params->experts);
    LW_ASSERT(params->top > 0 && params->top <= params->experts && params->top <= LW_TOP_MAX);
    LW_ASSERT(params->groups > 0 && params->experts % params->groups == 0);
    LW_ASSERT(params->groups <= LW_TOP_MAX && params->top_groups > 0 && params->top_groups <= params->groups);
    LW_ASSERT(params->top <= params->experts / params->groups * params->top_groups);
    LW_ASSERT(bias.index == LW_NONE || vector_length(plan, bias) == params->experts);
    lw_op *op =
        op_add(plan, LW_OP_ROUTE, value_make(plan, shaped(in, LW_TYPE_F32, 2 * params->top), "route"));
    op->in[0] = logits;
    op->weights[0] = bias;
    op->p.route = *params;
    return op->out;
}

static lw_ref expert_linear(lw_plan *plan, lw_ref x, lw_ref route, lw_wref stack, lw_type type)
{
    const lw_value in = *value(plan, x), by = *value(plan, route);
    const lw_weight *w = weight_of(plan, stack);
    const uint32_t top = by.width / 2;
    LW_ASSERT(by.type == LW_TYPE_F32 && by.space == in.space && in.type == LW_TYPE_BF16);
    LW_ASSERT(in.width == w->cols && (in.slots == 1 || in.slots == top));
    lw_value out = shaped(in, type, w->rows);
    out.slots = top;
    lw_op *op = op_add(plan, LW_OP_EXPERT_LINEAR, value_make(plan, out, "expert_linear"));
    op->in[0] = x;
    op->in[1] = route;
    op->weights[0] = stack;
    return op->out;
}

lw_ref lw_plan_expert_linear(lw_plan *plan, lw_ref x, lw_ref route, lw_wref stack)
{
    return expert_linear(plan, x, route, stack, LW_TYPE_BF16);
}

lw_ref lw_plan_expert_linear_f32(lw_plan *plan, lw_ref x, lw_ref route, lw_wref stack)
{
    return expert_linear(plan, x, route, stack, LW_TYPE_F32);
}

lw_ref lw_plan_expert_bias(lw_plan *plan, lw_ref x, lw_ref route, lw_wref biases)
{
    const lw_value in = *value(plan, x), by = *value(plan, route);
    LW_ASSERT(in.type == LW_TYPE_F32 && in.slots == by.width / 2 && in.space == by.space);
    LW_ASSERT(by.type == LW_TYPE_F32 && vector_length(plan, biases) == in.width);
    lw_value out = in;
    out.type = LW_TYPE_BF16;
    lw_op *op = op_add(plan, LW_OP_EXPERT_BIAS, value_make(plan, out, "expert_bias"));
    op->in[0] = x;
    op->in[1] = route;
    op->weights[0] = biases;
    return op->out;
}

lw_ref lw_plan_expert_sum(lw_plan *plan, lw_ref x, lw_ref route)
{
    const lw_value in = *value(plan, x), by = *value(plan, route);
    LW_ASSERT(in.slots == by.width / 2 && in.space == by.space && in.type == LW_TYPE_BF16);
    lw_value out = in;
    out.slots = 1;
    lw_op *op = op_add(plan, LW_OP_EXPERT_SUM, value_make(plan, out, "expert_sum"));
    op->in[0] = x;
    op->in[1] = route;
    return op->out;
}

lw_ref lw_plan_take_wanted(lw_plan *plan, lw_ref x)
{
    lw_value in = *value(plan, x);
    LW_ASSERT(in.space == LW_SPACE_ROWS && in.slots == 1);
    in.space = LW_SPACE_WANTED;
    lw_op *op = op_add(plan, LW_OP_TAKE_WANTED, value_make(plan, in, in.name));
    op->in[0] = x;
    return op->out;
}
