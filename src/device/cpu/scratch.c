/* What a forward of the cpu device needs beside weights, pages and values: how much, and taking it. */
#include "device/cpu/exec.h"
#include "device/layout.h"
#include "device/rows.h"

#include "base/size.h"

static void linear_measure(const lw_cpu_kernels *kernels, const lw_plan *plan, const lw_op *op,
                           uint32_t rows_max, lw_cpu_sizes *out)
{
    const lw_weight *w = &plan->weights[op->weights[0].index];
    size_t bytes = 0;
    if (op->kind == LW_OP_LINEAR) {
        bytes = lw_cpu_prepared_bytes(kernels, w->cols, rows_max);
    } else {
        const uint32_t vectors = rows_max * plan->values[op->out.index].slots;
        bytes = lw_cpu_expert_prepared_bytes(kernels, w->cols, vectors);
        out->vectors_max = vectors > out->vectors_max ? vectors : out->vectors_max;
        out->members_max = w->stack_count > out->members_max ? w->stack_count : out->members_max;
    }
    out->prepared_bytes = size_max(out->prepared_bytes, bytes);
}

lw_cpu_sizes lw__cpu_sizes(const lw_device *device, const lw_plan *plan, uint32_t rows_max)
{
    lw_cpu_sizes out = { 0 };
    size_t attend_floats = 0, recur_floats = 0, route_floats = 0;
    for (uint32_t i = 0; i < plan->op_count; i++) {
        const lw_op *op = &plan->ops[i];
        if (op->kind == LW_OP_LINEAR || op->kind == LW_OP_EXPERT_LINEAR)
            linear_measure(device->kernels, plan, op, rows_max, &out);
        if (op->kind == LW_OP_ATTEND) {
            attend_floats = size_max(attend_floats,
                                     lw_cpu_attend_scratch_floats(op->p.attend.heads, op->p.attend.heads_kv,
                                                                  op->p.attend.head_dim));
        }
        if (op->kind == LW_OP_ROUTE)
            route_floats = size_max(route_floats, lw_cpu_route_scratch_floats(op->p.route.experts));
        if (op->kind == LW_OP_GATED_DELTA || op->kind == LW_OP_SSM) {
            const lw_state *s = &plan->states[op->state.index];
            const size_t floats =
                lw_cpu_recur_prepared_floats(s->heads, s->key_heads, s->key_width, rows_max);
            out.recur_prepared = size_max(out.recur_prepared, floats);
            recur_floats = size_max(recur_floats, lw_cpu_recur_scratch_floats(s->width, s->key_width));
        }
    }
    const size_t threads = lw_pool_threads(device->pool);
    out.attend_bytes = attend_floats * threads * sizeof(float);
    out.recur_bytes = (out.recur_prepared + recur_floats * threads) * sizeof(float);
    out.route_floats = route_floats * threads;
    return out;
}

/* Of the tables that lw__cpu_scratch_make takes from the arena. */
static uint64_t table_bytes(const lw_plan *plan, const lw_cpu_sizes *sizes, uint32_t rows_max,
                            uint32_t wanted_max)
{
    const size_t of_vector = 2 * sizeof(uint32_t) + sizeof(uint8_t *);
    uint64_t row_bytes = sizeof(bool) + plan->reach_count * sizeof(lw_cpu_place), bytes = 0;
    for (uint32_t i = 0; i < plan->rope_count; i++)
        row_bytes += (uint64_t)plan->ropes[i].half * 2 * sizeof(float);
    bytes += rows_max * row_bytes + wanted_max * sizeof(uint32_t) + LW_LINEAGE_MAX * sizeof(uint32_t);
    bytes += sizes->vectors_max * of_vector + sizes->route_floats * sizeof(float);
    return bytes + (sizes->members_max + 1) * (sizeof(uint32_t) + sizeof(lw_cpu_expert_load));
}

lw_status lw__cpu_scratch_bytes(const lw_device *device, const lw_plan *plan, const lw_scratch_rows *rows,
                                uint64_t *bytes, lw_diag *d)
{
    const lw_cpu_sizes sizes = lw__cpu_sizes(device, plan, rows->rows_max);
    const lw_status status = lw_layout_bytes(plan, NULL, rows->rows_max, rows->wanted_max, bytes, d);
    *bytes += sizes.prepared_bytes + sizes.attend_bytes + sizes.recur_bytes;
    *bytes += table_bytes(plan, &sizes, rows->rows_max, rows->wanted_max);
    return status;
}

/* ---- taking it ---- */

static bool experts_make(lw_exec *exec)
{
    lw_cpu_expert_tables *t = &exec->experts;
    const lw_cpu_sizes *sizes = &exec->sizes;
    t->vectors_max = sizes->vectors_max;
    t->members_max = sizes->members_max;
    exec->route_scratch = lw_arena_take_array(&exec->arena, sizes->route_floats, sizeof(float));
    t->x_rows = lw_arena_take_array(&exec->arena, t->vectors_max, sizeof *t->x_rows);
    t->y_rows = lw_arena_take_array(&exec->arena, t->vectors_max, sizeof *t->y_rows);
    t->of_row = lw_arena_take_array(&exec->arena, t->vectors_max, sizeof *t->of_row);
    t->ends = lw_arena_take_array(&exec->arena, (size_t)t->members_max + 1, sizeof *t->ends);
    t->loads = lw_arena_take_array(&exec->arena, t->members_max, sizeof *t->loads);
    return exec->route_scratch != NULL && t->x_rows != NULL && t->y_rows != NULL && t->of_row != NULL
        && t->ends != NULL && t->loads != NULL;
}

lw_status lw__cpu_scratch_make(lw_exec *exec, lw_diag *d)
{
    const lw_plan *plan = exec->plan;
    exec->sizes = lw__cpu_sizes(exec->device, plan, exec->rows_max);
    bool ok = experts_make(exec);
    exec->prepared = lw__cpu_map(exec->sizes.prepared_bytes);
    exec->attend_scratch = lw__cpu_map(exec->sizes.attend_bytes);
    exec->recur = lw__cpu_map(exec->sizes.recur_bytes);
    ok = ok && exec->prepared != NULL && exec->attend_scratch != NULL && exec->recur != NULL;
    exec->wanted_rows = lw_arena_take_array(&exec->arena, exec->wanted_max, sizeof *exec->wanted_rows);
    exec->is_chain = lw_arena_take_array(&exec->arena, exec->rows_max, sizeof *exec->is_chain);
    exec->lineage = lw_arena_take_array(&exec->arena, LW_LINEAGE_MAX, sizeof *exec->lineage);
    ok = ok && exec->wanted_rows != NULL && exec->is_chain != NULL && exec->lineage != NULL;
    for (uint32_t g = 0; g < plan->reach_count; g++) {
        exec->places[g] = lw_arena_take_array(&exec->arena, exec->rows_max, sizeof *exec->places[g]);
        ok = ok && exec->places[g] != NULL;
    }
    for (uint32_t t = 0; t < plan->rope_count; t++) {
        const size_t count = (size_t)exec->rows_max * plan->ropes[t].half;
        exec->cosines[t] = lw_arena_take_array(&exec->arena, count, sizeof(float));
        exec->sines[t] = lw_arena_take_array(&exec->arena, count, sizeof(float));
        ok = ok && exec->cosines[t] != NULL && exec->sines[t] != NULL;
    }
    return ok ? LW_OK
              : lw_fail(d, LW_NO_ROOM, "no memory for scratch of %u rows; a smaller --chunk needs less",
                        exec->rows_max);
}
