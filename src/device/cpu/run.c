/* Walks a plan's ops: each becomes kernel arguments and one run on the pool (a linear may need two). */
#include "device/cpu/run.h"

#include "base/clock.h"

KERNEL_PART(rms_norm, lw_cpu_norm_args)
KERNEL_PART(rope, lw_cpu_rope_args)
KERNEL_PART(head_gate, lw_cpu_gate_args)
KERNEL_PART(kv_store, lw_cpu_kv_args)
KERNEL_PART(attend, lw_cpu_attend_args)
KERNEL_PART(short_conv, lw_cpu_conv_args)
KERNEL_PART(linear_prepare, lw_cpu_linear_args)
KERNEL_PART(linear_run, lw_cpu_linear_args)

enum { PRODUCTS_A_NUMBER = 16 }; /* of a matrix, in the time of one number of other ops */

static void embed_part(void *context, unsigned part, unsigned parts)
{
    const op_run *run = context;
    const lw_exec *exec = run->exec;
    size_t begin, end;
    lw_pool_share(run->rows, 1, part, parts, &begin, &end);
    for (size_t r = begin; r < end; r++) {
        const uint32_t token = (uint32_t)exec->batch->rows[r].token;
        lw_cpu_weight_row(exec->weights[run->op->weights[0].index], 0, token,
                          bf16_of(exec, run->op->out) + r * stride_of(exec, run->op->out));
    }
}

static void run_embed(op_run *run)
{
    run_parts(run, embed_part, run, numbers_of(run, run->op->out));
}

static void run_norm(op_run *run)
{
    lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    const bool wide = value_of(exec, op->in[0])->type == LW_TYPE_F32;
    rms_norm_job job = {
        exec->device->kernels,
        { .x = wide ? NULL : bf16_of(exec, op->in[0]), .x_wide = wide ? f32_of(exec, op->in[0]) : NULL,
          .x_stride = stride_of(exec, op->in[0]), .y = bf16_of(exec, op->out),
          .y_stride = stride_of(exec, op->out), .w = exec->vectors[op->weights[0].index], .rows = run->rows,
          .width = value_of(exec, op->out)->width, .segment = op->p.norm.segment, .eps = op->p.norm.eps,
          .scale = op->p.norm.scale },
    };
    run_parts(run, rms_norm_part, &job, numbers_of(run, op->out));
}

static void run_linear(op_run *run)
{
    lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    const lw_cpu_weight *weight = exec->weights[op->weights[0].index];
    linear_run_job job = {
        exec->device->kernels,
        { .weight = weight,
          .x = bf16_of(exec, op->in[0]),
          .x_stride = stride_of(exec, op->in[0]),
          .y = bytes_of(exec, op->out),
          .y_stride = stride_of(exec, op->out),
          .y_f32 = value_of(exec, op->out)->type == LW_TYPE_F32,
          .rows = run->rows,
          .prepared = exec->prepared },
    };
    if (!is_prepared(run, LW_NONE)) {
        linear_prepare_job prepare = { job.kernels, job.args };
        run_parts(run, linear_prepare_part, &prepare, numbers_of(run, op->in[0]));
        set_prepared(run, LW_NONE);
    }
    const size_t products = numbers_of(run, op->out) * value_of(exec, op->in[0])->width;
    run_parts(run, linear_run_part, &job, products / PRODUCTS_A_NUMBER);
}

typedef struct pair_job {
    void (*kernel)(const lw_cpu_pair_args *args, unsigned part, unsigned parts);
    lw_cpu_pair_args args;
} pair_job;

static void pair_part(void *context, unsigned part, unsigned parts)
{
    const pair_job *job = context;
    job->kernel(&job->args, part, parts);
}

static void run_pair(op_run *run)
{
    lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    const lw_cpu_kernels *k = exec->device->kernels;
    if (value_of(exec, op->out)->type == LW_TYPE_F32) {
        lw__cpu_run_add_wide(run);
        return;
    }
    pair_job job = {
        op->kind == LW_OP_ADD   ? k->add
        : op->kind == LW_OP_MUL ? k->mul
                                : k->swiglu,
        { .a = bf16_of(exec, op->in[0]),
          .a_stride = stride_of(exec, op->in[0]),
          .b = bf16_of(exec, op->in[1]),
          .b_stride = stride_of(exec, op->in[1]),
          .y = bf16_of(exec, op->out),
          .y_stride = stride_of(exec, op->out),
          .rows = vectors_of(run, op->out),
          .width = value_of(exec, op->out)->width },
    };
    run_parts(run, pair_part, &job, numbers_of(run, op->out));
}

static void run_rope(op_run *run)
{
    lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    const uint32_t table = op->p.rope.table;
    LW_ASSERT(value_of(exec, op->in[0])->space == LW_SPACE_ROWS);
    rope_job job = {
        exec->device->kernels,
        { .x = bf16_of(exec, op->in[0]), .x_stride = stride_of(exec, op->in[0]), .y = bf16_of(exec, op->out),
          .y_stride = stride_of(exec, op->out), .cosines = exec->cosines[table], .sines = exec->sines[table],
          .rows = run->rows, .heads = op->p.rope.heads, .head_dim = op->p.rope.head_dim,
          .half = exec->plan->ropes[table].half },
    };
    run_parts(run, rope_part, &job, numbers_of(run, op->out));
}

static void run_kv_store(op_run *run)
{
    lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    const lw_state *state = &exec->plan->states[op->state.index];
    kv_store_job job = {
        exec->device->kernels,
        { .k = bf16_of(exec, op->in[0]),
          .k_stride = stride_of(exec, op->in[0]),
          .v = bf16_of(exec, op->in[1]),
          .v_stride = stride_of(exec, op->in[1]),
          .pages = exec->pages[op->state.index],
          .places = exec->places[state->group],
          .type = state->kv,
          .rows = run->rows,
          .heads_kv = state->heads,
          .head_dim = state->width },
    };
    run_parts(run, kv_store_part, &job, numbers_of(run, op->in[0]));
}

static void run_attend(op_run *run)
{
    lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    const lw_state *state = &exec->plan->states[op->state.index];
    LW_ASSERT(value_of(exec, op->in[0])->space == LW_SPACE_ROWS);
    attend_job job = {
        exec->device->kernels,
        { .q = bf16_of(exec, op->in[0]), .q_stride = stride_of(exec, op->in[0]), .y = bf16_of(exec, op->out),
          .y_stride = stride_of(exec, op->out), .pages = exec->pages[op->state.index],
          .places = exec->places[state->group], .scratch = exec->attend_scratch, .type = state->kv,
          .rows = run->rows, .heads = op->p.attend.heads, .heads_kv = op->p.attend.heads_kv,
          .head_dim = op->p.attend.head_dim, .window = op->p.attend.window, .first = op->p.attend.first,
          .scale = op->p.attend.scale },
    };
    lw_pool_run(exec->device->pool, attend_part, &job);
}

static void run_gate(op_run *run)
{
    lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    head_gate_job job = {
        exec->device->kernels,
        { .x = bf16_of(exec, op->in[0]),
          .x_stride = stride_of(exec, op->in[0]),
          .gate = bf16_of(exec, op->in[1]),
          .gate_stride = stride_of(exec, op->in[1]),
          .y = bf16_of(exec, op->out),
          .y_stride = stride_of(exec, op->out),
          .rows = run->rows,
          .width = value_of(exec, op->out)->width,
          .gates = op->p.gate.heads },
    };
    run_parts(run, head_gate_part, &job, numbers_of(run, op->out));
}

static void run_conv(op_run *run)
{
    lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    const uint32_t bias = op->weights[1].index;
    short_conv_job job = {
        exec->device->kernels,
        { .x = bf16_of(exec, op->in[0]),
          .x_stride = stride_of(exec, op->in[0]),
          .y = bf16_of(exec, op->out),
          .y_stride = stride_of(exec, op->out),
          .w = exec->vectors[op->weights[0].index],
          .bias = bias == LW_NONE ? NULL : exec->vectors[bias],
          .silu = op->p.conv.silu,
          .pages = exec->pages[op->state.index],
          .places = exec->places[exec->plan->states[op->state.index].group],
          .rows = run->rows,
          .width = value_of(exec, op->out)->width,
          .taps = op->p.conv.taps },
    };
    run_parts(run, short_conv_part, &job, numbers_of(run, op->out) * op->p.conv.taps);
}

static void (*const runners[LW_OP_COUNT])(op_run *run) = {
    [LW_OP_EMBED] = run_embed,
    [LW_OP_RMS_NORM] = run_norm,
    [LW_OP_LINEAR] = run_linear,
    [LW_OP_ADD] = run_pair,
    [LW_OP_MUL] = run_pair,
    [LW_OP_SWIGLU] = run_pair,
    [LW_OP_ROPE] = run_rope,
    [LW_OP_KV_STORE] = run_kv_store,
    [LW_OP_ATTEND] = run_attend,
    [LW_OP_HEAD_GATE] = run_gate,
    [LW_OP_SHORT_CONV] = run_conv,
    [LW_OP_CONCAT] = lw__cpu_run_concat,
    [LW_OP_TAKE_HEADS] = lw__cpu_run_take_heads,
    [LW_OP_TAIL_STORE] = lw__cpu_run_tail_store,
    [LW_OP_TAIL_BEFORE] = lw__cpu_run_tail_before,
    [LW_OP_ROUTE] = lw__cpu_run_route,
    [LW_OP_EXPERT_LINEAR] = lw__cpu_run_expert_linear,
    [LW_OP_EXPERT_BIAS] = lw__cpu_run_expert_bias,
    [LW_OP_EXPERT_SUM] = lw__cpu_run_expert_sum,
    [LW_OP_NORM_GATE] = lw__cpu_run_norm_gate,
    [LW_OP_BIAS] = lw__cpu_run_bias,
    [LW_OP_RELU2] = lw__cpu_run_relu2,
    [LW_OP_WIDEN] = lw__cpu_run_widen,
    [LW_OP_GATED_DELTA] = lw__cpu_run_recurrence,
    [LW_OP_SSM] = lw__cpu_run_recurrence,
    [LW_OP_TAKE_WANTED] = lw__cpu_run_take_wanted,
};

bool lw__cpu_runs(lw_op_kind kind)
{
    return runners[kind] != NULL;
}

static void trace_op(const op_run *run)
{
    const lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    if (exec->trace.row == NULL || op->out.index == LW_NONE) return;
    const lw_value *v = value_of(exec, op->out);
    for (uint32_t r = 0; r < vectors_of(run, op->out); r++) {
        const size_t at = r * stride_of(exec, op->out);
        const float *row = exec->trace_row;
        if (v->type == LW_TYPE_F32) {
            row = (const float *)bytes_of(exec, op->out) + at;
        } else {
            const lw_bf16 *from = bf16_of(exec, op->out) + at;
            for (uint32_t i = 0; i < v->width; i++) exec->trace_row[i] = lw_float_of_bf16(from[i]);
        }
        exec->trace.row(exec->trace.context, op, v, r, row);
    }
}

static void run_timed(op_run *run)
{
    const lw_trace *trace = &run->exec->trace;
    const uint64_t begin = lw_clock_ns();
    runners[run->op->kind](run);
    trace->op(trace->context, run->op, lw_clock_ns() - begin);
}

void lw__cpu_run_ops(lw_exec *exec, uint32_t begin, uint32_t end)
{
    for (uint32_t i = begin; i < end; i++) {
        const lw_op *op = &exec->plan->ops[i];
        const lw_ref shaped = op->out.index == LW_NONE ? op->in[0] : op->out;
        op_run run = { .exec = exec, .op = op, .rows = space_rows(exec, value_of(exec, shaped)->space) };
        if (run.rows == 0) continue;
        if (exec->trace.op != NULL) run_timed(&run);
        else runners[op->kind](&run);
        trace_op(&run);
    }
}
