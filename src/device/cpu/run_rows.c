/* Runners of ops that copy columns, look one position back, or go over rows without being in every family;
 * the rest is in run.c.
 */
#include "device/cpu/copies.h"
#include "device/cpu/run.h"

#define COPY_PART(name, args_type) \
    static void name##_part(void *context, unsigned part, unsigned parts) \
    { \
        const args_type *args = context; \
        lw__cpu_##name(args, part, parts); \
    }

COPY_PART(columns, lw_cpu_columns_args)
COPY_PART(tail_store, lw_cpu_tail_args)
COPY_PART(tail_before, lw_cpu_tail_args)

void lw__cpu_run_take_heads(op_run *run)
{
    lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    const lw_head_columns *columns = &op->p.columns;
    lw_cpu_columns_args args = {
        .x = bf16_of(exec, op->in[0]) + columns->offset, .x_stride = stride_of(exec, op->in[0]),
        .y = bf16_of(exec, op->out), .y_stride = stride_of(exec, op->out), .rows = run->rows,
        .heads = columns->heads, .head_stride = columns->stride, .width = columns->width,
    };
    lw_pool_run(exec->device->pool, columns_part, &args);
}

void lw__cpu_run_concat(op_run *run)
{
    lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    lw_bf16 *y = bf16_of(exec, op->out);
    for (int i = 0; i < 2; i++) {
        const uint32_t width = value_of(exec, op->in[i])->width;
        lw_cpu_columns_args args = {
            .x = bf16_of(exec, op->in[i]), .x_stride = stride_of(exec, op->in[i]), .y = y,
            .y_stride = stride_of(exec, op->out), .rows = run->rows, .heads = 1, .head_stride = width,
            .width = width,
        };
        lw_pool_run(exec->device->pool, columns_part, &args);
        y += width;
    }
}

static lw_cpu_tail_args tail_args(const op_run *run)
{
    const lw_exec *exec = run->exec;
    const uint32_t index = run->op->state.index;
    const lw_state *state = &exec->plan->states[index];
    return (lw_cpu_tail_args){ .pages = exec->pages[index], .places = exec->places[state->group],
                               .rows = run->rows, .width = state->width };
}

void lw__cpu_run_tail_store(op_run *run)
{
    lw_cpu_tail_args args = tail_args(run);
    args.x = bf16_of(run->exec, run->op->in[0]);
    args.x_stride = stride_of(run->exec, run->op->in[0]);
    lw_pool_run(run->exec->device->pool, tail_store_part, &args);
}

void lw__cpu_run_tail_before(op_run *run)
{
    lw_cpu_tail_args args = tail_args(run);
    args.y = bf16_of(run->exec, run->op->out);
    args.y_stride = stride_of(run->exec, run->op->out);
    lw_pool_run(run->exec->device->pool, tail_before_part, &args);
}
