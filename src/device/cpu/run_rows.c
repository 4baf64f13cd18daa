/* Runners of the ops in plain.h and of norm_gate; the rest is in run.c. */
#include "device/cpu/plain.h"
#include "device/cpu/run.h"

#include <string.h>

#define PLAIN_PART(name, args_type) \
    static void name##_part(void *context, unsigned part, unsigned parts) \
    { \
        const args_type *args = context; \
        lw__cpu_##name(args, part, parts); \
    }

PLAIN_PART(columns, lw_cpu_columns_args)
PLAIN_PART(tail_store, lw_cpu_tail_args)
PLAIN_PART(tail_before, lw_cpu_tail_args)
PLAIN_PART(relu2, lw_cpu_each_args)
PLAIN_PART(bias, lw_cpu_each_args)
PLAIN_PART(widen, lw_cpu_each_args)
PLAIN_PART(add_wide, lw_cpu_each_args)
KERNEL_PART(norm_gate, lw_cpu_norm_gate_args)

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
    run_parts(run, columns_part, &args, numbers_of(run, op->out));
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
        run_parts(run, columns_part, &args, numbers_of(run, op->in[i]));
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
    run_parts(run, tail_store_part, &args, numbers_of(run, run->op->in[0]));
}

void lw__cpu_run_tail_before(op_run *run)
{
    lw_cpu_tail_args args = tail_args(run);
    args.y = bf16_of(run->exec, run->op->out);
    args.y_stride = stride_of(run->exec, run->op->out);
    run_parts(run, tail_before_part, &args, numbers_of(run, run->op->out));
}

void lw__cpu_run_norm_gate(op_run *run)
{
    lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    const uint32_t width = value_of(exec, op->out)->width, segment = op->p.norm_gate.segment;
    const lw_weight *weight = &exec->plan->weights[op->weights[0].index];
    norm_gate_job job = {
        exec->device->kernels,
        { .x = bf16_of(exec, op->in[0]), .x_stride = stride_of(exec, op->in[0]),
          .gate = bf16_of(exec, op->in[1]), .gate_stride = stride_of(exec, op->in[1]),
          .y = bf16_of(exec, op->out), .y_stride = stride_of(exec, op->out),
          .w = exec->vectors[op->weights[0].index], .rows = run->rows, .width = width, .segment = segment,
          .eps = op->p.norm_gate.eps, .own_weights = weight->rows * weight->cols != segment,
          .gate_first = op->p.norm_gate.gate_first },
    };
    run_parts(run, norm_gate_part, &job, numbers_of(run, op->out));
}

/* Elementwise: each operand goes where its type says. */
static void run_each(const op_run *run, lw_pool_fn *part)
{
    lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    const uint32_t weight = op->weights[0].index;
    lw_cpu_each_args args = { .w = weight == LW_NONE ? NULL : exec->vectors[weight],
                              .rows = vectors_of(run, op->out), .width = value_of(exec, op->out)->width };
    for (uint32_t i = 0; i < lw_op_table[op->kind].input_count; i++) {
        if (value_of(exec, op->in[i])->type == LW_TYPE_F32) {
            args.x_wide = f32_of(exec, op->in[i]);
            args.x_wide_stride = stride_of(exec, op->in[i]);
        } else {
            args.x = bf16_of(exec, op->in[i]);
            args.x_stride = stride_of(exec, op->in[i]);
        }
    }
    if (value_of(exec, op->out)->type == LW_TYPE_F32) args.y_wide = f32_of(exec, op->out);
    else args.y = bf16_of(exec, op->out);
    args.y_stride = stride_of(exec, op->out);
    run_parts(run, part, &args, numbers_of(run, op->out));
}

void lw__cpu_run_relu2(op_run *run) { run_each(run, relu2_part); }
void lw__cpu_run_bias(op_run *run) { run_each(run, bias_part); }
void lw__cpu_run_widen(op_run *run) { run_each(run, widen_part); }
void lw__cpu_run_add_wide(op_run *run) { run_each(run, add_wide_part); }

void lw__cpu_run_take_wanted(op_run *run)
{
    const lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    const lw_value *v = value_of(exec, op->out);
    const size_t item_bytes = v->type == LW_TYPE_F32 ? sizeof(float) : sizeof(lw_bf16);
    const size_t from_bytes = stride_of(exec, op->in[0]) * item_bytes;
    const size_t to_bytes = stride_of(exec, op->out) * item_bytes;
    const uint8_t *from = bytes_of(exec, op->in[0]);
    uint8_t *to = bytes_of(exec, op->out);
    for (uint32_t i = 0; i < run->rows; i++) {
        memcpy(to + i * to_bytes, from + exec->wanted_rows[i] * from_bytes, v->width * item_bytes);
    }
}
