/* Runners of the expert ops, and the tables that they need. */
#include "device/cpu/plain.h"
#include "device/cpu/run.h"

#include "base/size.h"

KERNEL_PART(route, lw_cpu_route_args)
KERNEL_PART(expert_sum, lw_cpu_expert_sum_args)

void lw__cpu_run_route(op_run *run)
{
    lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    const uint32_t bias = op->weights[0].index;
    route_job job = {
        exec->device->kernels,
        { .logits = f32_of(exec, op->in[0]),
          .logits_stride = stride_of(exec, op->in[0]),
          .bias = bias == LW_NONE ? NULL : exec->vectors[bias],
          .y = f32_of(exec, op->out),
          .y_stride = stride_of(exec, op->out),
          .scratch = exec->route_scratch,
          .rows = run->rows,
          .params = op->p.route },
    };
    run_parts(run, route_part, &job, numbers_of(run, op->in[0]));
}

static void expert_prepare_part(void *context, unsigned part, unsigned parts)
{
    lw_cpu_experts_prepare(context, part, parts);
}

static void expert_run_part(void *context, unsigned part, unsigned parts)
{
    lw_cpu_experts_run(context, part, parts);
}

void lw__cpu_run_expert_linear(op_run *run)
{
    lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    const uint32_t route = op->in[1].index, top = value_of(exec, op->out)->slots;
    lw_cpu_expert_args args = {
        .kernels = exec->device->kernels,
        .tables = &exec->experts,
        .linear = { .weight = exec->weights[op->weights[0].index],
                    .x = bf16_of(exec, op->in[0]),
                    .x_stride = stride_of(exec, op->in[0]),
                    .y = bytes_of(exec, op->out),
                    .y_stride = stride_of(exec, op->out),
                    .y_f32 = value_of(exec, op->out)->type == LW_TYPE_F32,
                    .rows = run->rows,
                    .prepared = exec->prepared },
        .x_per_slot = value_of(exec, op->in[0])->slots == top,
        .route = f32_of(exec, op->in[1]),
        .route_stride = stride_of(exec, op->in[1]),
        .top = top,
    };
    if (!is_prepared(run, route)) {
        lw_cpu_experts_sort(&args);
        run_parts(run, expert_prepare_part, &args, numbers_of(run, op->in[0]));
        set_prepared(run, route);
    }
    lw_pool_run(exec->device->pool, expert_run_part, &args);
}

static void expert_bias_part(void *context, unsigned part, unsigned parts)
{
    lw__cpu_expert_bias(context, part, parts);
}

void lw__cpu_run_expert_bias(op_run *run)
{
    lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    lw_cpu_expert_bias_args args = {
        .x = f32_of(exec, op->in[0]),
        .x_stride = stride_of(exec, op->in[0]),
        .y = bf16_of(exec, op->out),
        .y_stride = stride_of(exec, op->out),
        .biases = exec->vectors[op->weights[0].index],
        .route = f32_of(exec, op->in[1]),
        .route_stride = stride_of(exec, op->in[1]),
        .rows = run->rows,
        .top = value_of(exec, op->out)->slots,
        .width = value_of(exec, op->out)->width,
    };
    run_parts(run, expert_bias_part, &args, numbers_of(run, op->out));
}

void lw__cpu_run_expert_sum(op_run *run)
{
    lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    const uint32_t slots = value_of(exec, op->in[0])->slots;
    expert_sum_job job = {
        exec->device->kernels,
        { .x = bf16_of(exec, op->in[0]),
          .x_stride = stride_of(exec, op->in[0]),
          .weights = f32_of(exec, op->in[1]) + slots,
          .weights_stride = stride_of(exec, op->in[1]),
          .y = bf16_of(exec, op->out),
          .y_stride = stride_of(exec, op->out),
          .rows = run->rows,
          .slots = slots,
          .width = value_of(exec, op->out)->width },
    };
    run_parts(run, expert_sum_part, &job, numbers_of(run, op->in[0]));
}
