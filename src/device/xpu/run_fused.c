/* Runs fused steps: one launch each, and sums of groups before it where nobody made them yet. */
#include "device/xpu/run.h"
#include "device/xpu/kargs_fused.h"

#include <stdlib.h>

static const lw_op *op_of(const lw_exec *exec, const lw_xpu_step *step, uint32_t at)
{
    return step->ops[at] == LW_NONE ? NULL : &exec->plan->ops[step->ops[at]];
}

static lw_status run_add_norm(op_run *run, const lw_xpu_step *step, lw_diag *d)
{
    lw_exec *exec = run->exec;
    const lw_op *branch = op_of(exec, step, LW_XPU_ADD_NORM_BRANCH);
    const lw_op *add = op_of(exec, step, LW_XPU_ADD_NORM_ADD),
                *norm = op_of(exec, step, LW_XPU_ADD_NORM_NORM);
    const lw_ref x = add != NULL ? add->in[0] : norm->in[0];
    run->op = norm;
    lw_xpu_add_norm_args args = { .x = address_of(exec, x), .x_stride = stride_of(exec, x),
                                  .y = address_of(exec, norm->out), .y_stride = stride_of(exec, norm->out),
                                  .w = vector_of(run, 0), .width = norm->p.norm.segment,
                                  .is_f32 = is_wide(exec, x), .scale = norm->p.norm.scale,
                                  .eps = norm->p.norm.eps };
    if (add != NULL) {
        const lw_ref added = branch != NULL ? branch->in[0] : add->in[1];
        args.added = address_of(exec, added);
        args.added_stride = stride_of(exec, added);
        args.sum = address_of(exec, add->out);
        args.sum_stride = stride_of(exec, add->out);
    }
    if (branch != NULL) {
        run->op = branch;
        args.branch_w = vector_of(run, 0);
        args.branch_scale = branch->p.norm.scale;
        args.branch_eps = branch->p.norm.eps;
    }
    if (step->sums_of != LW_NONE) {
        const lw_op *linear = &exec->plan->ops[step->sums_of];
        const lw_xpu_matrix *matrix = &exec->weights[linear->weights[0].index].matrix;
        args.sums = (uintptr_t)exec->sums.at;
        args.groups = matrix->groups;
        args.group = matrix->group;
        exec->summed_value = norm->out.index;
        exec->summed_group = matrix->group;
    }
    return launch_columns(run, LW_XPU_KERNEL_add_norm, LW_XPU_TILE, &args, sizeof args, d);
}

static lw_xpu_head_part head_part(op_run *run, const lw_op *norm, const lw_op *rope)
{
    const lw_exec *exec = run->exec;
    if (rope == NULL) return (lw_xpu_head_part){ .heads = 0 };
    const lw_ref x = norm != NULL ? norm->in[0] : rope->in[0];
    lw_xpu_head_part part = { .x = address_of(exec, x), .x_stride = stride_of(exec, x),
                              .y = address_of(exec, rope->out), .y_stride = stride_of(exec, rope->out),
                              .heads = rope->p.rope.heads };
    if (norm == NULL) return part;
    run->op = norm;
    part.w = vector_of(run, 0);
    part.scale = norm->p.norm.scale;
    part.eps = norm->p.norm.eps;
    return part;
}

static lw_status run_heads(op_run *run, const lw_xpu_step *step, lw_diag *d)
{
    const lw_exec *exec = run->exec;
    const lw_op *plain = op_of(exec, step, LW_XPU_HEADS_ROPE),
                *stored = op_of(exec, step, LW_XPU_HEADS_STORE_ROPE);
    const lw_op *store = op_of(exec, step, LW_XPU_HEADS_STORE), *rope = plain != NULL ? plain : stored;
    const uint32_t table = rope->p.rope.table;
    lw_xpu_heads_args args = {
        .plain = head_part(run, op_of(exec, step, LW_XPU_HEADS_NORM), plain),
        .stored = head_part(run, op_of(exec, step, LW_XPU_HEADS_STORE_NORM), stored),
        .cosines = table_address(exec, exec->tables.cosines[table]),
        .sines = table_address(exec, exec->tables.sines[table]),
        .head_dim = rope->p.rope.head_dim,
        .half_dim = exec->plan->ropes[table].half,
    };
    if (store != NULL) {
        args.past = past_of(exec, store->state);
        args.stored.v = address_of(exec, store->in[1]);
        args.stored.v_stride = stride_of(exec, store->in[1]);
    }
    const lw_xpu_kernel kernel = store != NULL && is_int8(exec, store->state) ? LW_XPU_KERNEL_heads_int8
                                                                              : LW_XPU_KERNEL_heads;
    /* A work-group a head. */
    const size_t columns = (size_t)(args.plain.heads + args.stored.heads) * LW_XPU_TILE;
    run->vectors = run->rows;
    return launch_columns(run, kernel, columns, &args, sizeof args, d);
}

/* Sums of x's groups, as the first of the step's linears that needs them wants them; they are cut alike. */
static lw_status step_sums(op_run *run, const lw_xpu_step *step, uint32_t count, lw_diag *d)
{
    lw_status status = LW_OK;
    for (uint32_t i = 0; i < count && status == LW_OK; i++) {
        const lw_op *op = op_of(run->exec, step, i);
        if (op == NULL) continue;
        run->op = op;
        status = lw__xpu_group_sums(run, &run->exec->weights[op->weights[0].index].matrix, run->rows, d);
    }
    return status;
}

static uint64_t parts_address(const lw_exec *exec, const lw_xpu_step *step)
{
    return (uintptr_t)(exec->parts.at + step->parts * LW_XPU_LINEARS_MAX * sizeof(lw_xpu_linear_args));
}

static lw_status run_linears(op_run *run, const lw_xpu_step *step, lw_diag *d)
{
    const lw_exec *exec = run->exec;
    const lw_op *first = op_of(exec, step, 0);
    const lw_weight *weight = &exec->plan->weights[first->weights[0].index];
    lw_xpu_linears_args args = { .parts = parts_address(exec, step), .rows = run->rows };
    const lw_status status = step_sums(run, step, LW_XPU_LINEARS_MAX, d);
    if (status != LW_OK) return status;
    uint32_t blocks = 0;
    for (uint32_t i = 0; i < LW_XPU_LINEARS_MAX; i++) {
        const lw_op *op = op_of(exec, step, i);
        args.first[i] = op == NULL ? LW_XPU_NONE : blocks;
        if (op != NULL) blocks += lw__xpu_blocks(&exec->weights[op->weights[0].index].matrix);
    }
    const lw_xpu_pass pass = lw__xpu_pass(exec->device, weight, LW_XPU_PRODUCT_LINEARS, run->rows);
    const lw_xpu_launch launch = { .kernel = pass.kernel,
                                   .items_x = LW_XPU_LANES,
                                   .items_y = exec->weights[first->weights[0].index].matrix.slices,
                                   .groups_x = blocks,
                                   .groups_y = (uint32_t)size_div_up(run->rows, pass.rows),
                                   .args = &args,
                                   .args_bytes = sizeof args };
    return lw__xpu_launch(exec->device, &launch, d);
}

static lw_status run_swiglu(op_run *run, const lw_xpu_step *step, lw_diag *d)
{
    const lw_exec *exec = run->exec;
    const lw_op *gate = op_of(exec, step, LW_XPU_SWIGLU_GATE), *out = op_of(exec, step, LW_XPU_SWIGLU_OUT);
    const lw_xpu_matrix *matrix = &exec->weights[gate->weights[0].index].matrix;
    const lw_status status = step_sums(run, step, LW_XPU_SWIGLU_OUT, d);
    if (status != LW_OK) return status;
    const lw_xpu_swiglu_args args = { .parts = parts_address(exec, step),
                                      .rows = run->rows,
                                      .y = address_of(exec, out->out),
                                      .y_stride = stride_of(exec, out->out) };
    const lw_weight *weight = &exec->plan->weights[gate->weights[0].index];
    const lw_xpu_pass pass = lw__xpu_pass(exec->device, weight, LW_XPU_PRODUCT_SWIGLU, run->rows);
    const lw_xpu_launch launch = {
        .kernel = pass.kernel,
        .items_x = LW_XPU_LANES, .items_y = matrix->slices,
        .groups_x = lw__xpu_blocks(matrix), .groups_y = (uint32_t)size_div_up(run->rows, pass.rows),
        .args = &args, .args_bytes = sizeof args,
    };
    return lw__xpu_launch(exec->device, &launch, d);
}

static lw_status (*const fused_runners[LW_XPU_SWITCH_COUNT])(op_run *run, const lw_xpu_step *step,
                                                             lw_diag *d) = {
    [LW_XPU_SWITCH_add_norm] = run_add_norm,
    [LW_XPU_SWITCH_heads] = run_heads,
    [LW_XPU_SWITCH_linears] = run_linears,
    [LW_XPU_SWITCH_swiglu] = run_swiglu,
};

lw_status lw__xpu_run_fused(op_run *run, const lw_xpu_step *step, lw_diag *d)
{
    return fused_runners[step->fusion](run, step, d);
}

/* Linears of a step stand first among its ops. */
static uint32_t linear_count(const lw_xpu_step *step)
{
    if (step->fusion == LW_XPU_SWITCH_swiglu) return LW_XPU_SWIGLU_OUT;
    return step->fusion == LW_XPU_SWITCH_linears ? LW_XPU_LINEARS_MAX : 0;
}

lw_status lw__xpu_fused_make(lw_exec *exec, lw_diag *d)
{
    const lw_xpu_schedule *s = &exec->schedule;
    if (s->parts_count == 0) return LW_OK;
    const size_t count = (size_t)s->parts_count * LW_XPU_LINEARS_MAX;
    lw_xpu_linear_args *parts = calloc(count, sizeof *parts);
    if (parts == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for %zu linears", count);
    for (uint32_t i = 0; i < s->count; i++) {
        const lw_xpu_step *step = &s->steps[i];
        for (uint32_t j = 0; j < linear_count(step); j++) {
            const lw_op *op = op_of(exec, step, j);
            if (op != NULL) parts[step->parts * LW_XPU_LINEARS_MAX + j] = lw__xpu_linear_args(exec, op);
        }
    }
    lw_status status = lw__xpu_alloc(exec->device, count * sizeof *parts, &exec->parts, d);
    if (status == LW_OK)
        status = lw__xpu_upload(exec->device, exec->parts.at, parts, count * sizeof *parts, d);
    free(parts);
    return status;
}
