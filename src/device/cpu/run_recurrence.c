/* Runs gated_delta and ssm: one pair of kernels, told apart by whether there is a write strength. */
#include "device/cpu/run.h"

KERNEL_PART(recur_prepare, lw_cpu_recur_args)
KERNEL_PART(recur_run, lw_cpu_recur_args)

static const float *vector_of(const op_run *run, uint32_t index)
{
    return run->exec->vectors[run->op->weights[index].index];
}

/* What both ops have alike. */
static lw_cpu_recur_args args_make(const op_run *run)
{
    const lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    const lw_state *steps = &exec->plan->states[op->state.index];
    const lw_state *anchors = &exec->plan->states[op->anchor.index];
    return (lw_cpu_recur_args){
        .x_stride = stride_of(exec, op->in[0]),
        .step = bf16_of(exec, op->in[1]),
        .step_stride = stride_of(exec, op->in[1]),
        .a_log = vector_of(run, 0),
        .dt_bias = vector_of(run, 1),
        .y = bf16_of(exec, op->out),
        .y_stride = stride_of(exec, op->out),
        .steps = exec->pages[op->state.index],
        .anchors = exec->pages[op->anchor.index],
        .places = exec->places[steps->group],
        .anchor_places = exec->places[anchors->group],
        .prepared = exec->recur,
        .scratch = exec->recur + exec->sizes.recur_prepared,
        .rows = run->rows,
        .heads = steps->heads,
        .width = steps->width,
        .key_heads = steps->key_heads,
        .key_width = steps->key_width,
    };
}

/* x is q | k | v. */
static void delta_fill(const op_run *run, lw_cpu_recur_args *args)
{
    const size_t keys = (size_t)args->key_heads * args->key_width;
    const lw_bf16 *x = bf16_of(run->exec, run->op->in[0]);
    args->queries = x;
    args->keys = x + keys;
    args->values = x + 2 * keys;
    args->write = bf16_of(run->exec, run->op->in[2]);
    args->write_stride = stride_of(run->exec, run->op->in[2]);
}

/* x is x | B | C. */
static void ssm_fill(const op_run *run, lw_cpu_recur_args *args)
{
    const size_t keys = (size_t)args->key_heads * args->key_width;
    args->values = bf16_of(run->exec, run->op->in[0]);
    args->keys = args->values + (size_t)args->heads * args->width;
    args->queries = args->keys + keys;
    args->skip = vector_of(run, 2);
    args->step_min = run->op->p.ssm.step_min;
    args->step_max = run->op->p.ssm.step_max;
}

void lw__cpu_run_recurrence(op_run *run)
{
    lw_exec *exec = run->exec;
    LW_ASSERT(value_of(exec, run->op->in[0])->space == LW_SPACE_ROWS);
    recur_run_job job = { exec->device->kernels, args_make(run) };
    if (run->op->kind == LW_OP_GATED_DELTA) delta_fill(run, &job.args);
    else ssm_fill(run, &job.args);
    recur_prepare_job prepare = { job.kernels, job.args };
    run_parts(run, recur_prepare_part, &prepare, numbers_of(run, run->op->in[0]));
    lw_pool_run(exec->device->pool, recur_run_part, &job);
}
