/* The likeliest token of each wanted row, found on the device: a greedy stream needs no logits on the host,
 * and a chain of drafts, or the next batch of such streams, goes on without it.
 */
#include "device/xpu/exec.h"
#include "device/xpu/kargs_fused.h"

#include "base/size.h"

#include <string.h>

static size_t ids_bytes(uint32_t wanted_max)
{
    return (size_t)LW_CHAIN_STEPS_MAX * wanted_max * sizeof(int32_t);
}

static uint32_t blocks_of(const lw_plan *plan)
{
    return (uint32_t)size_div_up(plan->vocab, LW_XPU_BEST_IDS);
}

static size_t parts_bytes(const lw_plan *plan, uint32_t wanted_max)
{
    return (size_t)wanted_max * blocks_of(plan) * sizeof(lw_xpu_best);
}

size_t lw__xpu_best_bytes(const lw_plan *plan, uint32_t wanted_max)
{
    return parts_bytes(plan, wanted_max) + ids_bytes(wanted_max);
}

lw_status lw__xpu_best_make(lw_exec *exec, lw_diag *d)
{
    const size_t parts = parts_bytes(exec->plan, exec->wanted_max);
    lw_status status = lw__xpu_alloc(exec->device, parts, &exec->best_parts, d);
    if (status == LW_OK)
        status = lw__xpu_alloc(exec->device, ids_bytes(exec->wanted_max), &exec->best_ids, d);
    if (status == LW_OK)
        status = lw__xpu_host_alloc(exec->device, LW_XPU_MARKS * ids_bytes(exec->wanted_max),
                                    &exec->best_here, d);
    return status;
}

void lw__xpu_best_free(lw_exec *exec)
{
    lw__xpu_free(exec->device, &exec->best_parts);
    lw__xpu_free(exec->device, &exec->best_ids);
    lw__xpu_host_free(exec->device, exec->best_here);
}

lw_status lw__xpu_best_launch(lw_exec *exec, bool goes_on, lw_diag *d)
{
    const lw_value *value = &exec->plan->values[exec->plan->entries[exec->entry].logits.index];
    const lw_xpu_best_args args = {
        .logits = (uintptr_t)(exec->activations.at + exec->layout.offsets[value->base]),
        .parts = (uintptr_t)exec->best_parts.at,
        .step = (uintptr_t)(exec->tables.memory.at + exec->tables.step),
        .ids = (uintptr_t)exec->best_ids.at,
        .next = goes_on ? (uintptr_t)(exec->tables.memory.at + exec->tables.tokens) : 0,
        .stride = (uint32_t)lw_layout_stride(value),
        .vocab = exec->plan->vocab,
        .blocks = blocks_of(exec->plan),
        .ids_stride = exec->wanted_max,
    };
    lw_xpu_launch launch = { .kernel = LW_XPU_KERNEL_best_parts, .items_x = LW_XPU_TILE, .items_y = 1,
                             .groups_x = args.blocks, .groups_y = exec->wanted_count, .args = &args,
                             .args_bytes = sizeof args };
    const lw_status status = lw__xpu_launch(exec->device, &launch, d);
    launch.kernel = LW_XPU_KERNEL_best_rows;
    launch.groups_x = 1;
    return status == LW_OK ? lw__xpu_launch(exec->device, &launch, d) : status;
}

lw_status lw__xpu_drawn_launch(lw_exec *exec, lw_diag *d)
{
    const lw_xpu_drawn_args args = {
        .tokens = (uintptr_t)(exec->tables.memory.at + exec->tables.tokens),
        .ids = (uintptr_t)exec->best_ids.at,
        .rows = exec->batch->row_count,
    };
    const lw_xpu_launch launch = { .kernel = LW_XPU_KERNEL_take_drawn, .items_x = LW_XPU_TILE, .items_y = 1,
                                   .groups_x = (uint32_t)size_div_up(args.rows, LW_XPU_TILE), .groups_y = 1,
                                   .args = &args, .args_bytes = sizeof args };
    return lw__xpu_launch(exec->device, &launch, d);
}

static uint8_t *ids_here(const lw_exec *exec, lw_ticket ticket)
{
    return exec->best_here + ticket % LW_XPU_MARKS * ids_bytes(exec->wanted_max);
}

lw_status lw__xpu_best_fetch(lw_exec *exec, lw_ticket ticket, uint32_t steps, lw_diag *d)
{
    const size_t bytes = (size_t)steps * exec->wanted_max * sizeof(int32_t);
    return lw__xpu_copy(exec->device, ids_here(exec, ticket), exec->best_ids.at, bytes, d);
}

int32_t lw__xpu_best_id(const lw_exec *exec, uint32_t step, uint32_t row)
{
    int32_t id;
    LW_ASSERT(step < LW_CHAIN_STEPS_MAX && row < exec->wanted_max);
    const uint8_t *ids = ids_here(exec, exec->waited);
    memcpy(&id, ids + ((size_t)step * exec->wanted_max + row) * sizeof id, sizeof id);
    return id;
}
