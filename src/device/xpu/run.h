/* One op of the batch in flight: how a runner reaches its values, and how it launches a kernel over them. */
#ifndef LW_DEVICE_XPU_RUN_H
#define LW_DEVICE_XPU_RUN_H

#include "base/size.h"
#include "device/xpu/matrix.h"

typedef struct op_run {
    lw_exec *exec;
    const lw_op *op;
    uint32_t rows;               /* of the output's row space, or the input's where there is no output */
    uint32_t vectors;            /* of that value: its slots, row by row */
} op_run;

/* Sums of the groups of the op's input, `vectors` of them, unless they are there already or nobody asks. */
lw_status lw__xpu_group_sums(op_run *run, const lw_xpu_matrix *matrix, uint32_t vectors, lw_diag *d)
    LW_MUST_USE;

/* Runners that stand in run_rows.c. */
lw_status lw__xpu_run_widen(op_run *run, lw_diag *d) LW_MUST_USE;
lw_status lw__xpu_run_bias(op_run *run, lw_diag *d) LW_MUST_USE;
lw_status lw__xpu_run_relu2(op_run *run, lw_diag *d) LW_MUST_USE;
lw_status lw__xpu_run_add_wide(op_run *run, lw_diag *d) LW_MUST_USE;
lw_status lw__xpu_run_norm_gate(op_run *run, lw_diag *d) LW_MUST_USE;
lw_status lw__xpu_run_concat(op_run *run, lw_diag *d) LW_MUST_USE;
lw_status lw__xpu_run_take_heads(op_run *run, lw_diag *d) LW_MUST_USE;
lw_status lw__xpu_run_take_wanted(op_run *run, lw_diag *d) LW_MUST_USE;
lw_status lw__xpu_run_conv(op_run *run, lw_diag *d) LW_MUST_USE;
lw_status lw__xpu_run_tail_store(op_run *run, lw_diag *d) LW_MUST_USE;
lw_status lw__xpu_run_tail_before(op_run *run, lw_diag *d) LW_MUST_USE;
/* Stands in run_attend.c. */
lw_status lw__xpu_run_attend(op_run *run, lw_diag *d) LW_MUST_USE;
/* Runners that stand in run_experts.c. */
lw_status lw__xpu_run_route(op_run *run, lw_diag *d) LW_MUST_USE;
lw_status lw__xpu_run_expert_linear(op_run *run, lw_diag *d) LW_MUST_USE;
lw_status lw__xpu_run_expert_bias(op_run *run, lw_diag *d) LW_MUST_USE;
lw_status lw__xpu_run_expert_sum(op_run *run, lw_diag *d) LW_MUST_USE;
/* Of gated_delta and ssm; stands in run_recurrence.c. */
lw_status lw__xpu_run_recurrence(op_run *run, lw_diag *d) LW_MUST_USE;

/* All but its rows. */
lw_xpu_linear_args lw__xpu_linear_args(const lw_exec *exec, const lw_op *op);

/* A fused step; run: over the first of its ops. Stands in run_fused.c. */
lw_status lw__xpu_run_fused(op_run *run, const lw_xpu_step *step, lw_diag *d) LW_MUST_USE;

/* Work-groups of a product's columns. */
static inline uint32_t lw__xpu_blocks(const lw_xpu_matrix *matrix)
{
    return (uint32_t)size_div_up(matrix->rows, LW_XPU_LANES);
}

/* So many passes over a matrix: all of their launch but its arguments. */
static inline lw_xpu_launch lw__xpu_product_launch(lw_xpu_pass pass, const lw_xpu_matrix *matrix,
                                                   uint32_t passes)
{
    enum { PARTS = LW_XPU_PANEL / LW_XPU_LANES };
    const bool is_panel = pass.rows == LW_XPU_PANEL;
    const size_t cols = is_panel ? LW_XPU_PANEL : LW_XPU_LANES;
    return (lw_xpu_launch){ .kernel = pass.kernel, .items_x = LW_XPU_LANES,
                            .items_y = is_panel ? PARTS * PARTS : matrix->slices,
                            .groups_x = (uint32_t)size_div_up(matrix->rows, cols), .groups_y = passes };
}

static inline const lw_value *value_of(const lw_exec *exec, lw_ref x)
{
    return &exec->plan->values[x.index];
}

static inline bool is_wide(const lw_exec *exec, lw_ref x)
{
    return value_of(exec, x)->type == LW_TYPE_F32;
}

static inline uint32_t space_rows(const lw_exec *exec, lw_space space)
{
    return space == LW_SPACE_ROWS ? exec->batch->row_count : exec->wanted_count;
}

static inline uint8_t *bytes_of(const lw_exec *exec, lw_ref x)
{
    const lw_value *v = value_of(exec, x);
    const size_t item_bytes = is_wide(exec, x) ? sizeof(float) : sizeof(uint16_t);
    return exec->activations.at + exec->layout.offsets[v->base] + v->offset * item_bytes;
}

static inline uint64_t address_of(const lw_exec *exec, lw_ref x)
{
    return (uintptr_t)bytes_of(exec, x);
}

/* Elements from one vector of a value to the next: slots of a row, then the next row. */
static inline uint32_t stride_of(const lw_exec *exec, lw_ref x)
{
    return (uint32_t)lw_layout_stride(&exec->plan->values[value_of(exec, x)->base]);
}

static inline uint64_t table_address(const lw_exec *exec, size_t offset)
{
    return (uintptr_t)(exec->tables.memory.at + offset);
}

/* The op's index-th weight, one vector of fp32; 0: it has none. */
static inline uint64_t vector_of(const op_run *run, uint32_t index)
{
    const uint32_t weight = run->op->weights[index].index;
    return weight == LW_NONE ? 0 : (uintptr_t)run->exec->weights[weight].memory.at;
}

/* Whether a KV state's pages are. */
static inline bool is_int8(const lw_exec *exec, lw_sref ref)
{
    return exec->plan->states[ref.index].kv == LW_KV_INT8;
}

static inline lw_xpu_past past_of(const lw_exec *exec, lw_sref ref)
{
    const lw_state *state = &exec->plan->states[ref.index];
    return (lw_xpu_past){
        .pages = (uintptr_t)exec->pages[ref.index].at,
        .page_bytes = lw_layout_state_bytes(state),
        .places = table_address(exec, exec->tables.places[state->group]),
        .ids = table_address(exec, exec->tables.ids[state->group]),
        .lineage = table_address(exec, exec->tables.lineage),
    };
}

/* One item for each of columns, a group of 64 at a time, in each vector. */
static inline lw_status launch_columns(const op_run *run, lw_xpu_kernel kernel, size_t columns,
                                       const void *args, size_t args_bytes, lw_diag *d)
{
    const lw_xpu_launch launch = { .kernel = kernel, .items_x = LW_XPU_TILE, .items_y = 1,
                                   .groups_x = (uint32_t)size_div_up(columns, LW_XPU_TILE),
                                   .groups_y = run->vectors, .args = args, .args_bytes = args_bytes };
    return lw__xpu_launch(run->exec->device, &launch, d);
}

#endif
