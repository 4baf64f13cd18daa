/* The memory of a plan and the table of ops; recording is in record.c. */
#include "ops/plan.h"

#include <stdlib.h>

enum { PLAN_BYTES_MAX = 1 << 28 };

const lw_op_facts lw_op_table[LW_OP_COUNT] = {
#define LW_OP(kind, op_name, weights, inputs, op_state, op_text) \
    [LW_OP_##kind] = { .name = op_name, .weight_count = weights, .input_count = inputs, .state = op_state, \
                       .text = op_text },
#include "ops/ops.list"
#undef LW_OP
};

uint64_t lw_state_head_bytes(const lw_state *state)
{
    const uint64_t numbers = 2 * (uint64_t)state->width;
    const bool is_int8 = state->kv == LW_KV_INT8;
    return LW_PAGE_POSITIONS * (is_int8 ? numbers + 2 * sizeof(float) : numbers * sizeof(uint16_t));
}

uint64_t lw_state_page_bytes(const lw_state *state)
{
    const uint64_t values = (uint64_t)state->heads * state->width;
    switch (state->kind) {
    case LW_STATE_KV: return state->heads * lw_state_head_bytes(state);
    case LW_STATE_TAIL: return values * LW_PAGE_POSITIONS * sizeof(uint16_t);
    case LW_STATE_STEPS: {
        const uint64_t keys = (uint64_t)state->key_heads * state->key_width;
        return (keys + values + state->heads) * LW_PAGE_POSITIONS * sizeof(float);
    }
    case LW_STATE_ANCHOR: return values * state->key_width * sizeof(float);
    case LW_STATE_NONE: break;
    }
    return 0;
}

void lw_plan_take_int8(lw_plan *plan)
{
    for (uint32_t i = 0; i < plan->op_count; i++) {
        const lw_op *op = &plan->ops[i];
        if (op->kind != LW_OP_LINEAR && op->kind != LW_OP_EXPERT_LINEAR) continue;
        lw_weight *weight = &plan->weights[op->weights[0].index];
        weight->x_int8 = lw_weight_takes_int8(weight);
    }
}

void lw_plan_keep_kv(lw_plan *plan, lw_kv_type type)
{
    for (uint32_t i = 0; i < plan->state_count; i++) {
        if (plan->states[i].kind == LW_STATE_KV) plan->states[i].kv = type;
    }
}

uint64_t lw_plan_kv_bytes(const lw_plan *plan)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->state_count; i++) {
        const lw_state *state = &plan->states[i];
        if (state->kind == LW_STATE_KV) bytes += lw_state_page_bytes(state) / LW_PAGE_POSITIONS;
    }
    return bytes;
}

lw_status lw_plan_init(lw_plan *plan, lw_diag *d)
{
    *plan = (lw_plan){ 0 };
    lw_arena_init(&plan->arena, PLAN_BYTES_MAX);
    /* The system gives these pages as they are touched. */
    plan->ops = calloc(LW_PLAN_OPS_MAX, sizeof *plan->ops);
    plan->values = calloc(LW_PLAN_OPS_MAX, sizeof *plan->values);
    plan->weights = calloc(LW_PLAN_OPS_MAX, sizeof *plan->weights);
    plan->states = calloc(LW_PLAN_OPS_MAX, sizeof *plan->states);
    if (plan->ops != NULL && plan->values != NULL && plan->weights != NULL && plan->states != NULL) {
        return LW_OK;
    }
    lw_plan_deinit(plan);
    return lw_fail(d, LW_NO_ROOM, "no memory for the plan of a model");
}

void lw_plan_deinit(lw_plan *plan)
{
    free(plan->ops);
    free(plan->values);
    free(plan->weights);
    free(plan->states);
    lw_arena_deinit(&plan->arena);
    *plan = (lw_plan){ 0 };
}
