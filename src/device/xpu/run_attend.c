/* Runs attend: where rows are few and their histories long, chunks of keys are shared out among work-groups
 * and merged by a second launch; otherwise a work-group walks all chunks of its row. The bits are the same.
 *
 * A launch takes a power of two of chunks, so that a recorded list serves many tokens; work-groups of chunks
 * that a row does not have leave at once.
 */
#include "device/xpu/kargs_attend.h"
#include "device/xpu/run.h"

enum {
    SPLIT_HEADS_MAX = 1024, /* heads of all rows: more keep a GPU busy by themselves */
    PARTS_MAX = 4096, /* chunks of heads that one launch leaves; further ones take launches of their own */
};

static size_t part_bytes(size_t head_dim)
{
    return (head_dim + 2) * sizeof(float);
}

size_t lw__xpu_attend_bytes(const lw_plan *plan)
{
    size_t most = 0;
    for (uint32_t i = 0; i < plan->op_count; i++) {
        const lw_op *op = &plan->ops[i];
        if (op->kind == LW_OP_ATTEND) most = size_max(most, part_bytes(op->p.attend.head_dim));
    }
    return most * (PARTS_MAX + SPLIT_HEADS_MAX);
}

/* Chunks of the row that has most. */
static uint32_t chunks_most(const op_run *run)
{
    const lw_batch *batch = run->exec->batch;
    uint32_t most = 0;
    for (uint32_t r = 0; r < batch->row_count; r++) {
        const uint32_t seen = lw_xpu_chunks_seen(batch->rows[r].position, run->op->p.attend.window,
                                                 run->op->p.attend.first);
        most = seen > most ? seen : most;
    }
    return most;
}

/* Query heads of one KV head are cut into parts as equal as can be. */
static uint32_t heads_each(const lw_xpu_attend_args *args)
{
    const size_t sharing = args->heads / args->heads_kv;
    return (uint32_t)size_div_up(sharing, size_div_up(sharing, LW_XPU_HEADS_EACH));
}

/* count: chunks of the row that has most. */
static lw_status attend_split(const op_run *run, lw_xpu_attend_args *args, uint32_t count, lw_diag *d)
{
    const lw_exec *exec = run->exec;
    args->parts = (uintptr_t)exec->attention.at;
    args->carried = args->parts + PARTS_MAX * part_bytes(args->head_dim);
    args->heads_each = heads_each(args);
    args->chunks = 1;
    while (args->chunks < count && 2 * args->chunks * args->heads * run->rows <= PARTS_MAX) args->chunks *= 2;
    const size_t groups = args->heads_kv * size_div_up(args->heads / args->heads_kv, args->heads_each);
    const lw_xpu_kernel kernel =
        is_int8(exec, run->op->state) ? LW_XPU_KERNEL_attend_chunks_int8 : LW_XPU_KERNEL_attend_chunks;
    const size_t columns = groups * args->chunks * LW_XPU_TILE, merged = (size_t)args->heads * LW_XPU_TILE;
    lw_status status = LW_OK;
    for (; status == LW_OK && args->from < count; args->from += args->chunks) {
        status = launch_columns(run, kernel, columns, args, sizeof *args, d);
        if (status == LW_OK)
            status = launch_columns(run, LW_XPU_KERNEL_attend_merge, merged, args, sizeof *args, d);
    }
    return status;
}

lw_status lw__xpu_run_attend(op_run *run, lw_diag *d)
{
    const lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    lw_xpu_attend_args args = { .past = past_of(exec, op->state), .q = address_of(exec, op->in[0]),
                                .q_stride = stride_of(exec, op->in[0]), .y = address_of(exec, op->out),
                                .y_stride = stride_of(exec, op->out), .heads = op->p.attend.heads,
                                .heads_kv = op->p.attend.heads_kv, .head_dim = op->p.attend.head_dim,
                                .window = op->p.attend.window, .first = op->p.attend.first,
                                .scale = op->p.attend.scale };
    LW_ASSERT(value_of(exec, op->out)->space == LW_SPACE_ROWS);
    const bool is_few = (uint64_t)run->rows * args.heads <= SPLIT_HEADS_MAX;
    const uint32_t chunks = is_few && !exec->device->off[LW_XPU_SWITCH_split] ? chunks_most(run) : 1;
    if (chunks > 1) return attend_split(run, &args, chunks, d);
    /* A work-group a head. */
    const size_t columns = (size_t)args.heads * LW_XPU_TILE;
    const lw_xpu_kernel kernel = is_int8(exec, op->state) ? LW_XPU_KERNEL_attend_int8 : LW_XPU_KERNEL_attend;
    return launch_columns(run, kernel, columns, &args, sizeof args, d);
}
