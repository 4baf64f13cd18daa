/* Runners of the expert ops. Vectors are sorted by expert on the device, in a fixed number of work-groups, so
 * that the host never waits to learn who chose whom.
 */
#include "device/xpu/run.h"

_Static_assert((int)LW_XPU_TOP_MAX == (int)LW_TOP_MAX, "a row's experts have an item each");
_Static_assert((int)LW_XPU_TOP_MAX <= (int)LW_XPU_TILE, "a router's groups have an item each");

/* Tiles of so many rows that so many vectors may make: each expert that was chosen may leave one that is not
 * full. */
static uint32_t tiles_max(uint32_t vectors, uint32_t members, uint32_t rows)
{
    const size_t chosen = size_min(vectors, members);
    return (uint32_t)((vectors + (rows - 1) * chosen) / rows);
}

/* What sorting takes: how many tiles there are, then they, then the order of the vectors. */
typedef struct sort_sizes {
    size_t tiles_bytes, bytes;   /* 0: the plan has no experts */
} sort_sizes;

static sort_sizes sizes_of(const lw_plan *plan, uint32_t rows_max)
{
    uint32_t vectors = 0, members = 0;
    for (uint32_t i = 0; i < plan->op_count; i++) {
        const lw_op *op = &plan->ops[i];
        if (op->kind != LW_OP_EXPERT_LINEAR) continue;
        vectors = (uint32_t)size_max(vectors, (size_t)rows_max * plan->values[op->out.index].slots);
        members = (uint32_t)size_max(members, plan->weights[op->weights[0].index].stack_count);
    }
    if (vectors == 0) return (sort_sizes){ 0 };
    const size_t tiles_bytes = tiles_max(vectors, members, LW_XPU_ROWS) * sizeof(lw_xpu_tile);
    return (sort_sizes){ tiles_bytes, sizeof(uint32_t) + tiles_bytes + vectors * sizeof(uint32_t) };
}

size_t lw__xpu_experts_bytes(const lw_plan *plan, uint32_t rows_max)
{
    return sizes_of(plan, rows_max).bytes;
}

lw_status lw__xpu_experts_make(lw_exec *exec, lw_diag *d)
{
    const sort_sizes sizes = sizes_of(exec->plan, exec->rows_max);
    if (sizes.bytes == 0) return LW_OK;
    const lw_status status = lw__xpu_alloc(exec->device, sizes.bytes, &exec->expert_order, d);
    exec->sorted.tile_count = (uintptr_t)exec->expert_order.at;
    exec->sorted.tiles = exec->sorted.tile_count + sizeof(uint32_t);
    exec->sorted.order = exec->sorted.tiles + sizes.tiles_bytes;
    return status;
}

lw_status lw__xpu_run_route(op_run *run, lw_diag *d)
{
    const lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    const lw_route_params *p = &op->p.route;
    const lw_xpu_route_args args = { .logits = address_of(exec, op->in[0]),
                                     .logits_stride = stride_of(exec, op->in[0]),
                                     .bias = vector_of(run, 0),
                                     .y = address_of(exec, op->out), .y_stride = stride_of(exec, op->out),
                                     .is_softmax = p->kind == LW_ROUTER_SOFTMAX, .experts = p->experts,
                                     .top = p->top, .groups = p->groups, .top_groups = p->top_groups,
                                     .normalise = p->normalise, .scale = p->scale };
    /* A work-group a row. */
    return launch_columns(run, LW_XPU_KERNEL_route, LW_XPU_TILE, &args, sizeof args, d);
}

/* One sort serves all linears of a route's experts whose tiles have that many rows. */
static lw_status sort_vectors(op_run *run, const lw_xpu_expert_args *args, uint32_t members, uint32_t rows,
                              lw_diag *d)
{
    lw_exec *exec = run->exec;
    const uint32_t route = run->op->in[1].index;
    if (exec->sorted_route == route && exec->sorted_rows == rows) return LW_OK;
    exec->sorted_route = route;
    exec->sorted_rows = rows;
    const lw_xpu_sort_args sort = { .to = args->sorted, .route = args->route,
                                    .route_stride = args->route_stride, .top = args->top,
                                    .vectors = args->linear.rows, .members = members,
                                    .tile_rows = rows };
    const lw_xpu_launch launch = { .kernel = LW_XPU_KERNEL_expert_sort, .items_x = LW_XPU_SORT_ITEMS,
                                   .items_y = 1, .groups_x = 1, .groups_y = 1, .args = &sort,
                                   .args_bytes = sizeof sort };
    return lw__xpu_launch(exec->device, &launch, d);
}

lw_status lw__xpu_run_expert_linear(op_run *run, lw_diag *d)
{
    const lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    const lw_weight *weight = &exec->plan->weights[op->weights[0].index];
    const lw_xpu_matrix *matrix = &exec->weights[op->weights[0].index].matrix;
    const uint32_t top = value_of(exec, op->out)->slots, x_slots = value_of(exec, op->in[0])->slots;
    const uint32_t members = weight->stack_count;
    const lw_xpu_pass pass =
        lw__xpu_pass(exec->device, weight, LW_XPU_PRODUCT_EXPERT, run->vectors / members);
    const bool sorted = pass.rows > 1;
    const lw_xpu_expert_args args = {
        .linear = { .weight = *matrix,
                    .x = address_of(exec, op->in[0]),
                    .x_stride = stride_of(exec, op->in[0]),
                    .sums = (uintptr_t)exec->sums.at,
                    .y = address_of(exec, op->out),
                    .y_stride = stride_of(exec, op->out),
                    .rows = run->vectors,
                    .y_is_f32 = is_wide(exec, op->out) },
        .sorted = exec->sorted,
        .route = address_of(exec, op->in[1]),
        .route_stride = stride_of(exec, op->in[1]),
        .top = top,
        .x_per_slot = x_slots == top,
    };
    lw_status status = lw__xpu_group_sums(run, matrix, run->rows * x_slots, d);
    if (status == LW_OK && sorted) status = sort_vectors(run, &args, members, pass.rows, d);
    if (status != LW_OK) return status;
    lw_xpu_launch launch = lw__xpu_product_launch(
        pass, matrix, sorted ? tiles_max(run->vectors, members, pass.rows) : run->vectors);
    launch.args = &args;
    launch.args_bytes = sizeof args;
    return lw__xpu_launch(exec->device, &launch, d);
}

lw_status lw__xpu_run_expert_bias(op_run *run, lw_diag *d)
{
    const lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    const lw_value *out = value_of(exec, op->out);
    const lw_xpu_expert_bias_args args = { .x = address_of(exec, op->in[0]),
                                           .route = address_of(exec, op->in[1]),
                                           .biases = vector_of(run, 0),
                                           .y = address_of(exec, op->out),
                                           .x_stride = stride_of(exec, op->in[0]),
                                           .route_stride = stride_of(exec, op->in[1]),
                                           .y_stride = stride_of(exec, op->out),
                                           .top = out->slots,
                                           .width = out->width };
    return launch_columns(run, LW_XPU_KERNEL_expert_bias, args.width, &args, sizeof args, d);
}

lw_status lw__xpu_run_expert_sum(op_run *run, lw_diag *d)
{
    const lw_exec *exec = run->exec;
    const lw_op *op = run->op;
    const uint32_t slots = value_of(exec, op->in[0])->slots, width = value_of(exec, op->out)->width;
    const lw_xpu_expert_sum_args args = { .x = address_of(exec, op->in[0]),
                                          .x_stride = stride_of(exec, op->in[0]),
                                          .weights = address_of(exec, op->in[1]) + slots * sizeof(float),
                                          .weights_stride = stride_of(exec, op->in[1]),
                                          .y = address_of(exec, op->out),
                                          .y_stride = stride_of(exec, op->out), .slots = slots,
                                          .width = width };
    return launch_columns(run, LW_XPU_KERNEL_expert_sum, width, &args, sizeof args, d);
}
