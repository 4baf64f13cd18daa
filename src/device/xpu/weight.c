/* What of a plan the xpu kernels compute, and loading its weights: matrices (matrix.c) and vectors. */
#include "device/xpu/matrix.h"

#include "base/size.h"

static bool is_matrix_op(lw_op_kind kind)
{
    return kind == LW_OP_EMBED || kind == LW_OP_LINEAR || kind == LW_OP_EXPERT_LINEAR;
}

static lw_status op_check(const lw_plan *plan, const lw_op *op, lw_diag *d)
{
    const char *name = lw_op_table[op->kind].name;
    const char *lacks = NULL;
    if (!lw__xpu_runs(op->kind)) {
        return lw_fail(d, LW_UNSUPPORTED, "the xpu device does not have the model's op \"%s\" (layer %u)",
                       name, op->layer);
    }
    if (op->kind == LW_OP_ATTEND &&
        (op->p.attend.head_dim > LW_XPU_HEAD_DIM_MAX || op->p.attend.head_dim % 2 != 0))
        lacks = "heads wider than 256, or of odd width";
    if ((op->kind == LW_OP_LINEAR || op->kind == LW_OP_EXPERT_LINEAR)
        && plan->weights[op->weights[0].index].x_int8)
        lacks = "activations in int8";
    if (op->kind == LW_OP_KV_STORE && plan->states[op->state.index].kv == LW_KV_INT8 &&
        plan->states[op->state.index].width % LW_XPU_INT8_COLS != 0)
        lacks = "int8 heads whose width is no multiple of 4";
    if (op->kind == LW_OP_ROUTE && op->p.route.experts > LW_XPU_EXPERTS_MAX) lacks = "more than 1024 experts";
    if ((op->kind == LW_OP_GATED_DELTA || op->kind == LW_OP_SSM)
        && plan->states[op->state.index].key_width % LW_XPU_KEY_COLS != 0)
        lacks = "key heads whose width is no multiple of 8";
    if ((op->kind == LW_OP_LINEAR || op->kind == LW_OP_EXPERT_LINEAR)
        && plan->values[op->in[0].index].offset % 2 != 0)
        lacks = "views that begin at an odd column";
    if (lacks != NULL) {
        return lw_fail(d, LW_UNSUPPORTED, "the xpu device has op \"%s\" without %s (layer %u)", name, lacks,
                       op->layer);
    }
    if (!is_matrix_op(op->kind)) return LW_OK;
    const lw_weight *w = &plan->weights[op->weights[0].index];
    return op->kind == LW_OP_EMBED ? lw__xpu_table_check(w, d) : lw__xpu_matrix_check(w, d);
}

lw_status lw__xpu_plan_check(const lw_plan *plan, lw_diag *d)
{
    for (uint32_t i = 0; i < plan->op_count; i++) {
        const lw_status status = op_check(plan, &plan->ops[i], d);
        if (status != LW_OK) return status;
    }
    return LW_OK;
}

/* ---- loading ---- */

/* A norm's weights as they are, a convolution's turned to (taps, width) so that channels are neighbours. */
static lw_status vector_load(lw_exec *exec, const lw_weight *w, lw_xpu_weight *out, lw_arena *arena,
                             lw_diag *d)
{
    const size_t count = (size_t)w->stack_count * w->rows * w->cols;
    float *all = lw_arena_take_array(arena, count, sizeof *all);
    float *row = lw_arena_take_array(arena, w->cols, sizeof *row);
    if (all == NULL || row == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for %s", w->name);
    lw_weight_turned(w, row, all);
    const lw_status status = lw__xpu_alloc(exec->device, count * sizeof *all, &out->memory, d);
    return status == LW_OK ? lw__xpu_upload(exec->device, out->memory.at, all, count * sizeof *all, d)
                           : status;
}

lw_status lw__xpu_weight_load(lw_exec *exec, const lw_op *op, uint32_t index, lw_diag *d)
{
    enum { SCRATCH_BYTES_MAX = 1 << 30 };
    const lw_weight *w = &exec->plan->weights[index];
    lw_arena arena;
    lw_arena_init(&arena, SCRATCH_BYTES_MAX);
    const lw_status status = is_matrix_op(op->kind)
        ? lw__xpu_matrix_load(exec->device, w, &exec->weights[index], &arena, d)
        : vector_load(exec, w, &exec->weights[index], &arena, d);
    lw_arena_deinit(&arena);
    return status == LW_OK ? LW_OK : lw_fail_prefix(d, status, "%s", w->name);
}
