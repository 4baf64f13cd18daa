/* Runs gated_delta and ssm: rows by themselves in two launches, then each lane's rows in order, a bounded
 * number of them a launch.
 */
#include "device/xpu/run.h"

_Static_assert((int)LW_XPU_STEPS == (int)LW_ANCHOR_POSITIONS && (int)LW_XPU_TILE == (int)LW_ANCHOR_POSITIONS,
               "a page of steps is one stretch, and its steps are a work-group's items");

/* From this many rows on, the value heads of a key head share its dot products; below, heads are what keeps
 * the device busy. */
enum { ROWS_SHARING = 16 };

/* Floats of what a batch's rows leave to the walk, one array after the other. */
typedef struct scratch {
    size_t vectors, scales, fades, weights, end;
} scratch;

static uint32_t vectors_each(lw_op_kind kind)
{
    return kind == LW_OP_GATED_DELTA ? 2 : 1;
}

static scratch scratch_of(const lw_state *s, lw_op_kind kind, size_t rows)
{
    const size_t each = vectors_each(kind), heads = rows * s->heads;
    scratch at = { 0 };
    at.scales = at.vectors + rows * s->key_heads * each * s->key_width;
    at.fades = at.scales + heads;
    at.weights = at.fades + heads;
    at.end = at.weights + heads * each * LW_XPU_TILE;
    return at;
}

size_t lw__xpu_recurrence_bytes(const lw_plan *plan, uint32_t rows)
{
    size_t floats = 0;
    for (uint32_t i = 0; i < plan->op_count; i++) {
        const lw_op *op = &plan->ops[i];
        if (op->kind != LW_OP_GATED_DELTA && op->kind != LW_OP_SSM) continue;
        floats = size_max(floats, scratch_of(&plan->states[op->state.index], op->kind, rows).end);
    }
    return floats * sizeof(float);
}

/* What both ops have alike. */
static lw_xpu_recur_args args_make(const op_run *run)
{
    const lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    const lw_state *s = &exec->plan->states[op->state.index];
    const scratch at = scratch_of(s, op->kind, exec->rows_max);
    const uint64_t floats = (uintptr_t)exec->recurrence.at;
    return (lw_xpu_recur_args){
        .steps = past_of(exec, op->state),
        .anchors = past_of(exec, op->anchor),
        .step = address_of(exec, op->in[1]),
        .step_stride = stride_of(exec, op->in[1]),
        .a_log = vector_of(run, 0),
        .dt_bias = vector_of(run, 1),
        .y = address_of(exec, op->out),
        .y_stride = stride_of(exec, op->out),
        .vectors = floats + at.vectors * sizeof(float),
        .scales = floats + at.scales * sizeof(float),
        .fades = floats + at.fades * sizeof(float),
        .weights = floats + at.weights * sizeof(float),
        .spans = table_address(exec, exec->tables.spans),
        .x_stride = stride_of(exec, op->in[0]),
        .heads = s->heads,
        .width = s->width,
        .key_heads = s->key_heads,
        .key_width = s->key_width,
        .heads_each = run->rows < ROWS_SHARING ? 1 : s->heads / s->key_heads,
    };
}

/* x is q | k | v. */
static void delta_fill(const op_run *run, lw_xpu_recur_args *args)
{
    const uint64_t keys = (uint64_t)args->key_heads * args->key_width;
    args->queries = address_of(run->exec, run->op->in[0]);
    args->keys = args->queries + keys * sizeof(uint16_t);
    args->values = args->keys + keys * sizeof(uint16_t);
    args->write = address_of(run->exec, run->op->in[2]);
    args->write_stride = stride_of(run->exec, run->op->in[2]);
}

/* x is x | B | C. */
static void ssm_fill(const op_run *run, lw_xpu_recur_args *args)
{
    const uint64_t keys = (uint64_t)args->key_heads * args->key_width;
    args->values = address_of(run->exec, run->op->in[0]);
    args->keys = args->values + (uint64_t)args->heads * args->width * sizeof(uint16_t);
    args->queries = args->keys + keys * sizeof(uint16_t);
    args->skip = vector_of(run, 2);
    args->step_min = run->op->p.ssm.step_min;
    args->step_max = run->op->p.ssm.step_max;
}

/* A work-group for 64 columns of a head, and every lane. */
static lw_status lanes_run(const op_run *run, lw_xpu_recur_args *args, lw_diag *d)
{
    const lw_exec *exec = run->exec;
    lw_status status = LW_OK;
    for (args->first = 0; status == LW_OK && args->first < exec->span_rows_max; args->first += LW_XPU_STEPS) {
        const lw_xpu_launch launch = {
            .kernel = run->op->kind == LW_OP_SSM ? LW_XPU_KERNEL_ssm_run : LW_XPU_KERNEL_delta_run,
            .items_x = LW_XPU_TILE, .items_y = 1,
            .groups_x = args->heads * (uint32_t)size_div_up(args->width, LW_XPU_TILE),
            .groups_y = exec->span_count, .args = args, .args_bytes = sizeof *args,
        };
        status = lw__xpu_launch(exec->device, &launch, d);
    }
    return status;
}

lw_status lw__xpu_run_recurrence(op_run *run, lw_diag *d)
{
    lw_xpu_recur_args args = args_make(run);
    LW_ASSERT(value_of(run->exec, run->op->in[0])->space == LW_SPACE_ROWS);
    if (run->op->kind == LW_OP_GATED_DELTA) delta_fill(run, &args);
    else ssm_fill(run, &args);
    const size_t prepare = (args.key_heads + size_div_up(args.heads, LW_XPU_TILE)) * LW_XPU_TILE;
    const size_t weights = (size_t)args.heads / args.heads_each * LW_XPU_TILE;
    lw_status status = launch_columns(run, LW_XPU_KERNEL_recur_prepare, prepare, &args, sizeof args, d);
    if (status == LW_OK)
        status = launch_columns(run, LW_XPU_KERNEL_recur_weights, weights, &args, sizeof args, d);
    return status == LW_OK ? lanes_run(run, &args, d) : status;
}
