/* Runs attend: where rows are few and their histories long, chunks of keys are shared out among work-groups
 * and merged by a second launch; otherwise a work-group walks all chunks of its rows. The bits are the same.
 * By DPAS are heads whose width is a multiple of 16, on devices that have it, whatever the rows.
 *
 * A launch takes a power of two of chunks, so that a recorded list serves many tokens; work-groups of chunks
 * that a row does not have leave at once.
 */
#include "device/xpu/kargs_attend.h"
#include "device/xpu/run.h"

enum {
    SPLIT_HEADS_MAX = 1024, /* heads of all rows: more keep a GPU busy by themselves */
    PARTS_MAX = 4096,   /* chunks of heads that one launch leaves; further ones take launches of their own */
    SUBS = 8,           /* sub-groups of a work-group, by DPAS, */
    SUBS_COLUMNS = 128, /* for heads of so many columns; twice as many for wider ones */
};

typedef struct form {
    lw_xpu_kernel walk, chunks;
} form;

/* [by DPAS][kept in int8] */
static const form forms[2][2] = {
    { { LW_XPU_KERNEL_attend, LW_XPU_KERNEL_attend_chunks },
      { LW_XPU_KERNEL_attend_int8, LW_XPU_KERNEL_attend_chunks_int8 } },
    { { LW_XPU_KERNEL_attend_dpas, LW_XPU_KERNEL_attend_dpas_chunks },
      { LW_XPU_KERNEL_attend_dpas_int8, LW_XPU_KERNEL_attend_dpas_chunks_int8 } },
};

static bool is_by_dpas(const lw_device *device, uint32_t head_dim)
{
    return device->info.has_dpas && head_dim % LW_XPU_LANES == 0;
}

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
        const uint32_t seen =
            lw_xpu_chunks_seen(batch->rows[r].position, run->op->p.attend.window, run->op->p.attend.first);
        most = seen > most ? seen : most;
    }
    return most;
}

/* Query heads of one KV head are cut into parts as equal as can be. */
static uint32_t heads_each(const lw_xpu_attend_args *args, size_t most)
{
    const size_t sharing = args->heads / args->heads_kv;
    return (uint32_t)size_div_up(sharing, size_div_up(sharing, most));
}

/* By DPAS: no more than share keys. Where chunks are shared out, rows of a window may begin in different
 * ones. */
static uint32_t rows_each(const lw_exec *exec, const lw_xpu_attend_args *args, bool is_split)
{
    if (is_split && args->window != 0) return 1;
    for (uint32_t r = 0; r < exec->batch->row_count; r++) {
        if (!exec->is_chain[r]) return 1;
    }
    const size_t most = LW_XPU_PAIRS / args->heads_each;
    return (uint32_t)(exec->span_rows_max < most ? exec->span_rows_max : most);
}

/* Each work-group's heads of a row's chunks, or of `chunks` of them. */
static lw_status walk_launch(const op_run *run, bool by_dpas, lw_xpu_kernel kernel, size_t chunks,
                             lw_xpu_attend_args *args, lw_diag *d)
{
    const size_t groups =
        args->heads_kv * size_div_up(args->heads / args->heads_kv, args->heads_each) * chunks;
    if (!by_dpas) return launch_columns(run, kernel, groups * LW_XPU_TILE, args, sizeof *args, d);
    const lw_xpu_launch launch = { .kernel = kernel,
                                   .items_x = LW_XPU_LANES,
                                   .items_y = args->head_dim <= SUBS_COLUMNS ? SUBS : 2 * SUBS,
                                   .groups_x = (uint32_t)groups,
                                   .groups_y = (uint32_t)size_div_up(args->rows, args->rows_each),
                                   .args = args,
                                   .args_bytes = sizeof *args };
    return lw__xpu_launch(run->exec->device, &launch, d);
}

/* count: chunks of the row that has most. */
static lw_status split_launch(const op_run *run, bool by_dpas, uint32_t count, lw_xpu_attend_args *args,
                              lw_diag *d)
{
    const lw_exec *exec = run->exec;
    args->parts = (uintptr_t)exec->attention.at;
    args->carried = args->parts + PARTS_MAX * part_bytes(args->head_dim);
    args->chunks = 1;
    while (args->chunks < count && 2 * args->chunks * args->heads * run->rows <= PARTS_MAX) args->chunks *= 2;
    const lw_xpu_kernel kernel = forms[by_dpas][is_int8(exec, run->op->state)].chunks;
    const size_t merged = (size_t)args->heads * LW_XPU_TILE;
    lw_status status = LW_OK;
    for (; status == LW_OK && args->from < count; args->from += args->chunks) {
        status = walk_launch(run, by_dpas, kernel, args->chunks, args, d);
        if (status == LW_OK)
            status = launch_columns(run, LW_XPU_KERNEL_attend_merge, merged, args, sizeof *args, d);
    }
    return status;
}

lw_status lw__xpu_run_attend(op_run *run, lw_diag *d)
{
    const lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    lw_xpu_attend_args args = { .past = past_of(exec, op->state),
                                .q = address_of(exec, op->in[0]),
                                .q_stride = stride_of(exec, op->in[0]),
                                .y = address_of(exec, op->out),
                                .y_stride = stride_of(exec, op->out),
                                .heads = op->p.attend.heads,
                                .heads_kv = op->p.attend.heads_kv,
                                .head_dim = op->p.attend.head_dim,
                                .window = op->p.attend.window,
                                .first = op->p.attend.first,
                                .rows = run->rows,
                                .scale = op->p.attend.scale };
    LW_ASSERT(value_of(exec, op->out)->space == LW_SPACE_ROWS);
    const bool by_dpas = is_by_dpas(exec->device, args.head_dim);
    const bool is_few = (uint64_t)run->rows * args.heads <= SPLIT_HEADS_MAX;
    const uint32_t chunks = is_few && !exec->device->off[LW_XPU_SWITCH_split] ? chunks_most(run) : 1;
    /* By fma, who walks all chunks is one head. */
    args.heads_each = heads_each(&args, by_dpas ? LW_XPU_PAIRS : chunks > 1 ? LW_XPU_HEADS_EACH : 1);
    args.rows_each = by_dpas ? rows_each(exec, &args, chunks > 1) : 1;
    /* Columns are stored two at once. */
    LW_ASSERT(!by_dpas || (args.y % 4 == 0 && args.y_stride % 2 == 0));
    if (chunks > 1) return split_launch(run, by_dpas, chunks, &args, d);
    return walk_launch(run, by_dpas, forms[by_dpas][is_int8(exec, op->state)].walk, 1, &args, d);
}
