/* Walks a plan's ops: each becomes a kernel's arguments and one launch (a linear or a convolution may need
 * two).
 */
#include "device/xpu/run.h"

#include "base/float16.h"

static lw_status run_embed(op_run *run, lw_diag *d)
{
    const lw_exec *exec = run->exec;
    const uint32_t index = run->op->weights[0].index;
    const lw_weight *w = &exec->plan->weights[index];
    const bool has_global = w->global_scale < 1.0f || w->global_scale > 1.0f;
    LW_ASSERT(w->members == NULL);
    const lw_xpu_embed_args args = { .table = exec->weights[index].matrix,
                                     .tokens = table_address(exec, exec->tables.tokens),
                                     .y = address_of(exec, run->op->out),
                                     .y_stride = stride_of(exec, run->op->out),
                                     .is_paired = exec->weights[index].is_paired,
                                     .global_kind = !has_global        ? LW_XPU_GLOBAL_NONE
                                         : w->global_divides ? LW_XPU_GLOBAL_DIVIDES
                                                             : LW_XPU_GLOBAL_MULTIPLIES,
                                     .factor = w->global_scale };
    return launch_columns(run, LW_XPU_KERNEL_embed, args.table.cols, &args, sizeof args, d);
}

static lw_status run_norm(op_run *run, lw_diag *d)
{
    const lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    const lw_xpu_norm_args args = { .x = address_of(exec, op->in[0]), .x_stride = stride_of(exec, op->in[0]),
                                    .y = address_of(exec, op->out), .y_stride = stride_of(exec, op->out),
                                    .w = vector_of(run, 0), .x_is_f32 = is_wide(exec, op->in[0]),
                                    .segment = op->p.norm.segment,
                                    .scale = op->p.norm.scale, .eps = op->p.norm.eps };
    /* A work-group a segment. */
    const size_t columns = (size_t)(value_of(exec, op->out)->width / args.segment) * LW_XPU_TILE;
    return launch_columns(run, LW_XPU_KERNEL_rms_norm, columns, &args, sizeof args, d);
}

lw_status lw__xpu_group_sums(op_run *run, const lw_xpu_matrix *matrix, uint32_t vectors, lw_diag *d)
{
    lw_exec *exec = run->exec;
    const lw_ref x = run->op->in[0];
    if (!matrix->is_offset) return LW_OK;
    if (exec->summed_value == x.index && exec->summed_group == matrix->group) return LW_OK;
    const lw_xpu_sums_args args = { .x = address_of(exec, x), .x_stride = stride_of(exec, x),
                                    .sums = (uintptr_t)exec->sums.at, .groups = matrix->groups,
                                    .group = matrix->group, .cols = matrix->cols };
    exec->summed_value = x.index;
    exec->summed_group = matrix->group;
    op_run over = *run;
    over.vectors = vectors;
    return launch_columns(&over, LW_XPU_KERNEL_group_sums, matrix->groups, &args, sizeof args, d);
}

lw_xpu_linear_args lw__xpu_linear_args(const lw_exec *exec, const lw_op *op)
{
    return (lw_xpu_linear_args){ .weight = exec->weights[op->weights[0].index].matrix,
                                 .x = address_of(exec, op->in[0]), .x_stride = stride_of(exec, op->in[0]),
                                 .sums = (uintptr_t)exec->sums.at, .y = address_of(exec, op->out),
                                 .y_stride = stride_of(exec, op->out), .y_is_f32 = is_wide(exec, op->out) };
}

static lw_status run_linear(op_run *run, lw_diag *d)
{
    const lw_exec *exec = run->exec;
    const lw_xpu_weight *weight = &exec->weights[run->op->weights[0].index];
    const lw_status status = lw__xpu_group_sums(run, &weight->matrix, run->rows, d);
    if (status != LW_OK) return status;
    lw_xpu_linear_args args = lw__xpu_linear_args(exec, run->op);
    args.rows = run->rows;
    const lw_weight *stored = &exec->plan->weights[run->op->weights[0].index];
    const lw_xpu_pass pass = lw__xpu_pass(exec->device, stored, LW_XPU_PRODUCT_LINEAR, run->rows);
    lw_xpu_launch launch =
        lw__xpu_product_launch(pass, &args.weight, (uint32_t)size_div_up(run->rows, pass.rows));
    launch.args = &args;
    launch.args_bytes = sizeof args;
    return lw__xpu_launch(exec->device, &launch, d);
}

static lw_status run_pair(op_run *run, lw_diag *d)
{
    const lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    if (is_wide(exec, op->in[0])) return lw__xpu_run_add_wide(run, d);
    const lw_xpu_pair_args args = { .a = address_of(exec, op->in[0]), .a_stride = stride_of(exec, op->in[0]),
                                    .b = address_of(exec, op->in[1]), .b_stride = stride_of(exec, op->in[1]),
                                    .y = address_of(exec, op->out), .y_stride = stride_of(exec, op->out),
                                    .width = value_of(exec, op->out)->width };
    const lw_xpu_kernel kernel = op->kind == LW_OP_ADD ? LW_XPU_KERNEL_add
        : op->kind == LW_OP_MUL                        ? LW_XPU_KERNEL_mul
                                                       : LW_XPU_KERNEL_swiglu;
    return launch_columns(run, kernel, args.width, &args, sizeof args, d);
}

static lw_status run_rope(op_run *run, lw_diag *d)
{
    const lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    const uint32_t table = op->p.rope.table;
    const lw_xpu_rope_args args = { .x = address_of(exec, op->in[0]), .x_stride = stride_of(exec, op->in[0]),
                                    .y = address_of(exec, op->out), .y_stride = stride_of(exec, op->out),
                                    .cosines = table_address(exec, exec->tables.cosines[table]),
                                    .sines = table_address(exec, exec->tables.sines[table]),
                                    .width = value_of(exec, op->out)->width, .head_dim = op->p.rope.head_dim,
                                    .half_dim = exec->plan->ropes[table].half };
    return launch_columns(run, LW_XPU_KERNEL_rope, args.width, &args, sizeof args, d);
}

static lw_status run_kv_store(op_run *run, lw_diag *d)
{
    const lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    const lw_state *state = &exec->plan->states[op->state.index];
    const lw_xpu_kv_args args = { .past = past_of(exec, op->state), .k = address_of(exec, op->in[0]),
                                  .k_stride = stride_of(exec, op->in[0]), .v = address_of(exec, op->in[1]),
                                  .v_stride = stride_of(exec, op->in[1]), .heads = state->heads,
                                  .head_dim = state->width };
    /* A work-group a head. */
    const size_t heads = (size_t)state->heads * LW_XPU_TILE, pairs = (size_t)state->heads * state->width / 2;
    if (is_int8(exec, op->state))
        return launch_columns(run, LW_XPU_KERNEL_kv_store_int8, heads, &args, sizeof args, d);
    return launch_columns(run, LW_XPU_KERNEL_kv_store, pairs, &args, sizeof args, d);
}

static lw_status run_gate(op_run *run, lw_diag *d)
{
    const lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    const uint32_t width = value_of(exec, op->out)->width;
    const lw_xpu_gate_args args = { .x = address_of(exec, op->in[0]), .x_stride = stride_of(exec, op->in[0]),
                                    .gate = address_of(exec, op->in[1]),
                                    .gate_stride = stride_of(exec, op->in[1]), .y = address_of(exec, op->out),
                                    .y_stride = stride_of(exec, op->out), .width = width,
                                    .gate_width = width / op->p.gate.heads };
    return launch_columns(run, LW_XPU_KERNEL_head_gate, width, &args, sizeof args, d);
}

static lw_status (*const runners[LW_OP_COUNT])(op_run *run, lw_diag *d) = {
    [LW_OP_EMBED] = run_embed,
    [LW_OP_RMS_NORM] = run_norm,
    [LW_OP_LINEAR] = run_linear,
    [LW_OP_ADD] = run_pair,
    [LW_OP_MUL] = run_pair,
    [LW_OP_SWIGLU] = run_pair,
    [LW_OP_ROPE] = run_rope,
    [LW_OP_KV_STORE] = run_kv_store,
    [LW_OP_ATTEND] = lw__xpu_run_attend,
    [LW_OP_HEAD_GATE] = run_gate,
    [LW_OP_SHORT_CONV] = lw__xpu_run_conv,
    [LW_OP_WIDEN] = lw__xpu_run_widen,
    [LW_OP_NORM_GATE] = lw__xpu_run_norm_gate,
    [LW_OP_BIAS] = lw__xpu_run_bias,
    [LW_OP_RELU2] = lw__xpu_run_relu2,
    [LW_OP_CONCAT] = lw__xpu_run_concat,
    [LW_OP_TAKE_HEADS] = lw__xpu_run_take_heads,
    [LW_OP_TAIL_STORE] = lw__xpu_run_tail_store,
    [LW_OP_TAIL_BEFORE] = lw__xpu_run_tail_before,
    [LW_OP_GATED_DELTA] = lw__xpu_run_recurrence,
    [LW_OP_SSM] = lw__xpu_run_recurrence,
    [LW_OP_ROUTE] = lw__xpu_run_route,
    [LW_OP_EXPERT_LINEAR] = lw__xpu_run_expert_linear,
    [LW_OP_EXPERT_BIAS] = lw__xpu_run_expert_bias,
    [LW_OP_EXPERT_SUM] = lw__xpu_run_expert_sum,
    [LW_OP_TAKE_WANTED] = lw__xpu_run_take_wanted,
};

bool lw__xpu_runs(lw_op_kind kind)
{
    return runners[kind] != NULL;
}

/* A row at a time: a trace is for looking, not for speed. */
static lw_status trace_op(const op_run *run, lw_diag *d)
{
    lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    if (exec->trace.row == NULL) return LW_OK;
    const lw_status appended = lw__xpu_tape_run(exec, false, d);
    if (appended != LW_OK || op->out.index == LW_NONE) return appended;
    const lw_value *v = value_of(exec, op->out);
    const size_t item_bytes = v->type == LW_TYPE_F32 ? sizeof(float) : sizeof(uint16_t);
    float *row = exec->trace_row;
    uint16_t *stored = (uint16_t *)(void *)(exec->trace_row + exec->layout.widest);
    for (uint32_t r = 0; r < run->vectors; r++) {
        const uint8_t *from = bytes_of(exec, op->out) + r * stride_of(exec, op->out) * item_bytes;
        void *to = v->type == LW_TYPE_F32 ? (void *)row : (void *)stored;
        const lw_status status = lw__xpu_download(exec->device, to, from, v->width * item_bytes, d);
        if (status != LW_OK) return status;
        for (uint32_t i = 0; v->type == LW_TYPE_BF16 && i < v->width; i++)
            row[i] = lw_float_of_bf16(stored[i]);
        exec->trace.row(exec->trace.context, op, v, r, row);
    }
    return LW_OK;
}

static op_run run_of(lw_exec *exec, uint32_t op)
{
    const lw_op *o = &exec->plan->ops[op];
    const lw_value *value = value_of(exec, o->out.index == LW_NONE ? o->in[0] : o->out);
    const uint32_t rows = space_rows(exec, value->space);
    return (op_run){ .exec = exec, .op = o, .rows = rows, .vectors = rows * value->slots };
}

/* Whether a pass of each of a step's linears serves more rows than one that they share. */
static bool step_comes_apart(const op_run *run, const lw_xpu_step *step)
{
    if (!lw__xpu_step_has_parts(step)) return false;
    const lw_weight *w = &run->exec->plan->weights[run->op->weights[0].index];
    return lw__xpu_pass(run->exec->device, w, LW_XPU_PRODUCT_LINEAR, run->rows).rows > LW_XPU_ROWS;
}

/* The ops of a step stand in one row space. Linears that share a launch go one by one where there are many
 * rows: what they would save is lost among these. */
static lw_status run_step(lw_exec *exec, const lw_xpu_step *step, lw_diag *d)
{
    uint32_t first = 0;
    while (step->ops[first] == LW_NONE) first++;
    op_run run = run_of(exec, step->ops[first]);
    if (run.rows == 0) return LW_OK;
    if (step->fusion != LW_XPU_SWITCH_COUNT && !step_comes_apart(&run, step))
        return lw__xpu_run_fused(&run, step, d);
    lw_status status = LW_OK;
    for (uint32_t i = first; status == LW_OK && i < LW_XPU_STEP_OPS_MAX; i++) {
        if (step->ops[i] == LW_NONE) continue;
        run = run_of(exec, step->ops[i]);
        status = runners[run.op->kind](&run, d);
        if (status == LW_OK) status = trace_op(&run, d);
    }
    return status;
}

lw_status lw__xpu_run_entry(lw_exec *exec, uint32_t entry, lw_diag *d)
{
    lw__xpu_tape_begin(exec->device);
    if (exec->takes_drawn) {
        const lw_status status = lw__xpu_drawn_launch(exec, d);
        if (status != LW_OK) return status;
    }
    for (uint32_t i = exec->schedule.begin[entry]; i < exec->schedule.end[entry]; i++) {
        const lw_status status = run_step(exec, &exec->schedule.steps[i], d);
        if (status != LW_OK) return status;
    }
    return LW_OK;
}
