/* One op of the batch in flight: how a runner reaches its values, and how it runs a kernel on the pool. */
#ifndef LW_DEVICE_CPU_RUN_H
#define LW_DEVICE_CPU_RUN_H

#include "base/float16.h"
#include "device/cpu/exec.h"

typedef struct op_run {
    lw_exec *exec;
    const lw_op *op;
    uint32_t rows;               /* of the output's row space, or the input's where there is no output */
} op_run;

/* Runners that do not stand in run.c. */
void lw__cpu_run_take_heads(op_run *run);
void lw__cpu_run_concat(op_run *run);
void lw__cpu_run_tail_store(op_run *run);
void lw__cpu_run_tail_before(op_run *run);
void lw__cpu_run_norm_gate(op_run *run);
void lw__cpu_run_bias(op_run *run);
void lw__cpu_run_relu2(op_run *run);
void lw__cpu_run_widen(op_run *run);
void lw__cpu_run_add_wide(op_run *run);
void lw__cpu_run_take_wanted(op_run *run);
void lw__cpu_run_recurrence(op_run *run);
/* Runners that stand in run_experts.c. */
void lw__cpu_run_route(op_run *run);
void lw__cpu_run_expert_linear(op_run *run);
void lw__cpu_run_expert_bias(op_run *run);
void lw__cpu_run_expert_sum(op_run *run);

static inline const lw_value *value_of(const lw_exec *exec, lw_ref x)
{
    return &exec->plan->values[x.index];
}

static inline uint32_t space_rows(const lw_exec *exec, lw_space space)
{
    return space == LW_SPACE_ROWS ? exec->batch->row_count : exec->wanted_count;
}

/* Elements from one vector of a value to the next: slots of a row, then the next row. */
static inline size_t stride_of(const lw_exec *exec, lw_ref x)
{
    return exec->buffers[value_of(exec, x)->base].stride;
}

/* Vectors of a value: its slots, row by row. */
static inline uint32_t vectors_of(const op_run *run, lw_ref x)
{
    return run->rows * value_of(run->exec, x)->slots;
}

static inline void *bytes_of(const lw_exec *exec, lw_ref x)
{
    const lw_value *v = value_of(exec, x);
    const size_t item_bytes = v->type == LW_TYPE_F32 ? sizeof(float) : sizeof(lw_bf16);
    return exec->buffers[v->base].bytes + v->offset * item_bytes;
}

static inline lw_bf16 *bf16_of(const lw_exec *exec, lw_ref x)
{
    LW_ASSERT(value_of(exec, x)->type == LW_TYPE_BF16);
    return bytes_of(exec, x);
}

static inline float *f32_of(const lw_exec *exec, lw_ref x)
{
    LW_ASSERT(value_of(exec, x)->type == LW_TYPE_F32);
    return bytes_of(exec, x);
}

/* Whether the op's x lies prepared for its weight, sorted by that route (LW_NONE: in order). */
static inline bool is_prepared(const op_run *run, uint32_t route)
{
    const lw_exec *exec = run->exec;
    return exec->prepared_value == run->op->in[0].index && exec->prepared_route == route
        && lw_cpu_same_prepare(exec->prepared_for, exec->weights[run->op->weights[0].index]);
}

static inline void set_prepared(const op_run *run, uint32_t route)
{
    run->exec->prepared_value = run->op->in[0].index;
    run->exec->prepared_route = route;
    run->exec->prepared_for = run->exec->weights[run->op->weights[0].index];
}

enum { RUN_ALONE_NUMBERS = 8192 };

/* Runs part on the pool's threads; on this one alone where it meets so few numbers that waiting for the
 * others would take longer: most ops of a decode step. The bits do not depend on the number of parts. */
static inline void run_parts(const op_run *run, lw_pool_fn *part, void *job, size_t numbers)
{
    if (numbers <= RUN_ALONE_NUMBERS) part(job, 0, 1);
    else lw_pool_run(run->exec->device->pool, part, job);
}

/* The numbers of a value's rows. */
static inline size_t numbers_of(const op_run *run, lw_ref x)
{
    return (size_t)vectors_of(run, x) * value_of(run->exec, x)->width;
}

/* A runner fills the kernel's arguments on the calling thread, then runs the kernel on all parts: a job and
 * the function that the pool calls with it. */
#define KERNEL_PART(name, args_type) \
    typedef struct name##_job { const lw_cpu_kernels *kernels; args_type args; } name##_job; \
    static void name##_part(void *context, unsigned part, unsigned parts) \
    { \
        const name##_job *job = context; \
        job->kernels->name(&job->args, part, parts); \
    }

#endif
