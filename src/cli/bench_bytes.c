/* Counting what a token reads; see bench_bytes.h. */
#include "cli/bench_bytes.h"

#include <string.h>

static const lw_entry *entry_main(const lw_plan *plan)
{
    return &plan->entries[LW_ENTRY_MAIN];
}

/* What one row's op reads of a weight: of an embedding table its row, of a stack the chosen matrices. */
static uint64_t weight_reads(const lw_plan *plan, const lw_op *op, uint32_t index)
{
    const lw_weight *weight = &plan->weights[index];
    const uint64_t bytes = lw_weight_bytes(weight);
    if (op->kind == LW_OP_EMBED) return bytes / weight->rows;
    if (op->kind == LW_OP_EXPERT_LINEAR || op->kind == LW_OP_EXPERT_BIAS)
        return bytes / weight->stack_count * plan->values[op->out.index].slots;
    return bytes;
}

/* One position's share of a page; of anchors, which have one state a page, that state. */
static uint64_t position_bytes(const lw_state *state)
{
    const uint64_t page = lw_state_page_bytes(state);
    return state->kind == LW_STATE_ANCHOR ? page : page / LW_PAGE_POSITIONS;
}

static uint64_t state_reads(const lw_plan *plan, const lw_op *op, uint32_t positions)
{
    const lw_state *state = &plan->states[op->state.index];
    const uint64_t bytes = position_bytes(state);
    const uint32_t window = op->p.attend.window;
    switch ((int)op->kind) {
    case LW_OP_ATTEND: return bytes * (window != 0 && window < positions ? window : positions);
    case LW_OP_SHORT_CONV: return bytes * (op->p.conv.taps - 1);
    case LW_OP_TAIL_BEFORE: return bytes;
    case LW_OP_GATED_DELTA:
    case LW_OP_SSM:
        return bytes * (LW_ANCHOR_POSITIONS / 2) + position_bytes(&plan->states[op->anchor.index]);
    default: return 0; /* a store */
    }
}

lw_read_bytes lw_op_reads(const lw_plan *plan, const lw_op *op, uint32_t positions)
{
    lw_read_bytes out = { .weights = 0 };
    for (int i = 0; i < LW_OP_WEIGHTS_MAX; i++)
        if (op->weights[i].index != LW_NONE) out.weights += weight_reads(plan, op, op->weights[i].index);
    if (op->state.index != LW_NONE) out.states = state_reads(plan, op, positions);
    if (op->kind == LW_OP_ATTEND) out.keys = out.states;
    return out;
}

bool lw_op_is_of_layers(const lw_plan *plan, uint32_t index)
{
    const lw_entry *e = entry_main(plan);
    if (index < e->op_begin || index >= e->op_end || plan->ops[index].kind == LW_OP_EMBED) return false;
    for (uint32_t i = index; i < e->op_end; i++) { /* the last op of each layer is named */
        const uint32_t out = plan->ops[i].out.index;
        if (out != LW_NONE && strncmp(plan->values[out].name, "layer.", 6) == 0) return true;
    }
    return false;
}

static double scale_of(const lw_plan *plan, uint32_t op, const double *scales)
{
    return scales != NULL && lw_op_is_of_layers(plan, op) ? scales[plan->ops[op].layer] : 1.0;
}

static bool reads(const lw_op *op, uint32_t weight)
{
    for (int i = 0; i < LW_OP_WEIGHTS_MAX; i++)
        if (op->weights[i].index == weight) return true;
    return false;
}

lw_read_bytes lw_token_reads(const lw_plan *plan, uint32_t positions, const double *scales)
{
    const lw_entry *e = entry_main(plan);
    double weights = 0.0, states = 0.0, keys = 0.0;
    for (uint32_t i = 0; i < plan->weight_count; i++) {
        double most = 0.0, row = 0.0;
        for (uint32_t j = e->op_begin; j < e->op_end; j++) {
            const lw_op *op = &plan->ops[j];
            if (!reads(op, i)) continue;
            double *const counted = op->kind == LW_OP_EMBED ? &row : &most;
            const double bytes = (double)weight_reads(plan, op, i) * scale_of(plan, j, scales);
            *counted = bytes > *counted ? bytes : *counted;
        }
        weights += most + row;
    }
    for (uint32_t j = e->op_begin; j < e->op_end; j++) {
        const lw_read_bytes op = lw_op_reads(plan, &plan->ops[j], positions);
        states += (double)op.states * scale_of(plan, j, scales);
        keys += (double)op.keys * scale_of(plan, j, scales);
    }
    return (
        lw_read_bytes){ .weights = (uint64_t)weights, .states = (uint64_t)states, .keys = (uint64_t)keys };
}
