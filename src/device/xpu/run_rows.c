/* Runners of ops that work on rows by themselves or look back at a tail, beyond those of run.c. */
#include "device/xpu/run.h"

static lw_status run_each(const op_run *run, lw_xpu_kernel kernel, lw_diag *d)
{
    const lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    const lw_xpu_each_args args = { .x = address_of(exec, op->in[0]), .x_stride = stride_of(exec, op->in[0]),
                                    .w = vector_of(run, 0), .y = address_of(exec, op->out),
                                    .y_stride = stride_of(exec, op->out),
                                    .width = value_of(exec, op->out)->width };
    return launch_columns(run, kernel, args.width, &args, sizeof args, d);
}

lw_status lw__xpu_run_widen(op_run *run, lw_diag *d) { return run_each(run, LW_XPU_KERNEL_widen, d); }
lw_status lw__xpu_run_bias(op_run *run, lw_diag *d) { return run_each(run, LW_XPU_KERNEL_bias, d); }
lw_status lw__xpu_run_relu2(op_run *run, lw_diag *d) { return run_each(run, LW_XPU_KERNEL_relu2, d); }

lw_status lw__xpu_run_norm_gate(op_run *run, lw_diag *d)
{
    const lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    const lw_weight *weight = &exec->plan->weights[op->weights[0].index];
    const uint32_t segment = op->p.norm_gate.segment;
    const lw_xpu_norm_gate_args args = {
        .x = address_of(exec, op->in[0]), .x_stride = stride_of(exec, op->in[0]),
        .gate = address_of(exec, op->in[1]), .gate_stride = stride_of(exec, op->in[1]),
        .w = vector_of(run, 0), .y = address_of(exec, op->out), .y_stride = stride_of(exec, op->out),
        .segment = segment, .own_weights = (uint64_t)weight->rows * weight->cols != segment,
        .gate_first = op->p.norm_gate.gate_first, .eps = op->p.norm_gate.eps,
    };
    /* A work-group a segment. */
    const size_t columns = (size_t)(value_of(exec, op->out)->width / segment) * LW_XPU_TILE;
    return launch_columns(run, LW_XPU_KERNEL_norm_gate, columns, &args, sizeof args, d);
}

lw_status lw__xpu_run_take_heads(op_run *run, lw_diag *d)
{
    const lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    const lw_head_columns *columns = &op->p.columns;
    const lw_xpu_columns_args args = {
        .x = address_of(exec, op->in[0]) + columns->offset * sizeof(uint16_t),
        .x_stride = stride_of(exec, op->in[0]), .y = address_of(exec, op->out),
        .y_stride = stride_of(exec, op->out), .width = value_of(exec, op->out)->width,
        .head_stride = columns->stride, .head_width = columns->width,
    };
    return launch_columns(run, LW_XPU_KERNEL_columns, args.width, &args, sizeof args, d);
}

lw_status lw__xpu_run_concat(op_run *run, lw_diag *d)
{
    const lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    uint64_t y = address_of(exec, op->out);
    lw_status status = LW_OK;
    for (int i = 0; status == LW_OK && i < 2; i++) {
        const uint32_t width = value_of(exec, op->in[i])->width;
        const lw_xpu_columns_args args = {
            .x = address_of(exec, op->in[i]), .x_stride = stride_of(exec, op->in[i]), .y = y,
            .y_stride = stride_of(exec, op->out), .width = width, .head_stride = width, .head_width = width,
        };
        status = launch_columns(run, LW_XPU_KERNEL_columns, width, &args, sizeof args, d);
        y += width * sizeof(uint16_t);
    }
    return status;
}

/* fp32 rows are copied as twice as many halves. */
lw_status lw__xpu_run_take_wanted(op_run *run, lw_diag *d)
{
    const lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    const uint32_t halves = is_wide(exec, op->out) ? 2 : 1;
    const lw_xpu_take_args args = { .x = address_of(exec, op->in[0]),
                                    .x_stride = halves * stride_of(exec, op->in[0]),
                                    .y = address_of(exec, op->out),
                                    .y_stride = halves * stride_of(exec, op->out),
                                    .wanted = table_address(exec, exec->tables.wanted),
                                    .width = halves * value_of(exec, op->out)->width };
    return launch_columns(run, LW_XPU_KERNEL_take_wanted, args.width, &args, sizeof args, d);
}

/* ---- tails ---- */

static lw_xpu_conv_args tail_args(const op_run *run)
{
    const lw_exec *exec = run->exec;
    return (lw_xpu_conv_args){ .past = past_of(exec, run->op->state),
                               .width = exec->plan->states[run->op->state.index].width };
}

static lw_status tail_store(const op_run *run, lw_xpu_conv_args args, lw_diag *d)
{
    args.x = address_of(run->exec, run->op->in[0]);
    args.x_stride = stride_of(run->exec, run->op->in[0]);
    return launch_columns(run, LW_XPU_KERNEL_tail_store, args.width, &args, sizeof args, d);
}

lw_status lw__xpu_run_tail_store(op_run *run, lw_diag *d)
{
    return tail_store(run, tail_args(run), d);
}

lw_status lw__xpu_run_tail_before(op_run *run, lw_diag *d)
{
    lw_xpu_conv_args args = tail_args(run);
    args.y = address_of(run->exec, run->op->out);
    args.y_stride = stride_of(run->exec, run->op->out);
    return launch_columns(run, LW_XPU_KERNEL_tail_before, args.width, &args, sizeof args, d);
}

lw_status lw__xpu_run_conv(op_run *run, lw_diag *d)
{
    const lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    lw_xpu_conv_args args = tail_args(run);
    const lw_status status = tail_store(run, args, d);
    if (status != LW_OK) return status;
    args.w = vector_of(run, 0);
    args.bias = vector_of(run, 1);
    args.y = address_of(exec, op->out);
    args.y_stride = stride_of(exec, op->out);
    args.taps = op->p.conv.taps;
    args.silu = op->p.conv.silu;
    return launch_columns(run, LW_XPU_KERNEL_short_conv, args.width, &args, sizeof args, d);
}

lw_status lw__xpu_run_add_wide(op_run *run, lw_diag *d)
{
    const lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    const lw_xpu_pair_args args = { .a = address_of(exec, op->in[0]), .a_stride = stride_of(exec, op->in[0]),
                                    .b = address_of(exec, op->in[1]), .b_stride = stride_of(exec, op->in[1]),
                                    .y = address_of(exec, op->out), .y_stride = stride_of(exec, op->out),
                                    .width = value_of(exec, op->out)->width };
    return launch_columns(run, LW_XPU_KERNEL_add_wide, args.width, &args, sizeof args, d);
}
