/* gated_delta or ssm as the op of a plan over one stream, on any device: token p embeds to what the stream of
 * lane 0 (cpu_recurrence.h) brings at p, so that the op's inputs are the kernels' own.
 */
#ifndef LW_TESTS_RECURRENCE_PLAN_H
#define LW_TESTS_RECURRENCE_PLAN_H

#include "cpu_recurrence.h"

#include "ops/record.h"

enum { RECUR_PAGES = 4, RECUR_LENGTH_MAX = RECUR_PAGES * STRETCH, RECUR_COLS_ROUND = 64 };

/* The plan, its weights in memory, and the stream's inputs side by side as one table. */
typedef struct recur_plan {
    lw_plan plan;
    lw_tensor tensors[4];
    lw_bf16 *table;             /* (positions, columns): x, step, write, then zeros */
    uint32_t length;
} recur_plan;

static inline lw_wref recur_weight(recur_plan *m, int index, const void *numbers, lw_dtype dtype,
                                   const uint32_t dims[2])
{
    const bool is_bf16 = dtype == LW_DTYPE_BF16;
    m->tensors[index] = (lw_tensor){ .name = "made", .file = "memory", .dim_count = 2, .dtype = dtype,
                                     .dims = { dims[0], dims[1] }, .bytes = numbers,
                                     .byte_count = (uint64_t)dims[0] * dims[1] * (is_bf16 ? 2 : 4) };
    return lw_plan_weight(&m->plan, &(lw_weight){ .name = "made", .stack_count = 1, .rows = dims[0],
                                                  .cols = dims[1],
                                                  .map = is_bf16 ? LW_MAP_BF16 : LW_MAP_FP32,
                                                  .code_bits = is_bf16 ? 16 : 32, .global_scale = 1.0f,
                                                  .codes = &m->tensors[index] });
}

static inline void recur_table(recur_plan *m, const streams *t, size_t cols)
{
    const size_t heads = t->s.heads;
    m->table = law_make(m->length * cols, sizeof *m->table);
    for (size_t p = 0; p < m->length; p++) {
        lw_bf16 *row = m->table + p * cols;
        memcpy(row, t->x[0] + p * t->x_width, t->x_width * sizeof *row);
        memcpy(row + t->x_width, t->step[0] + p * heads, heads * sizeof *row);
        memcpy(row + t->x_width + heads, t->write[0] + p * heads, heads * sizeof *row);
    }
}

static inline void recur_plan_make(recur_plan *m, const streams *t)
{
    const shape *s = &t->s;
    lw_plan *plan = &m->plan;
    *m = (recur_plan){ .length = (uint32_t)t->lengths[0] };
    assert_true(m->length <= RECUR_LENGTH_MAX);
    const uint32_t x_width = (uint32_t)t->x_width, per_head[2] = { 1, s->heads };
    const uint32_t dims[2] = { m->length,
                               (uint32_t)size_round_up(x_width + 2 * s->heads, RECUR_COLS_ROUND) };
    recur_table(m, t, dims[1]);
    assert_int_equal(lw_plan_init(plan, NULL), LW_OK);
    const lw_wref table = recur_weight(m, 0, m->table, LW_DTYPE_BF16, dims);
    const lw_wref a_log = recur_weight(m, 1, t->a_log, LW_DTYPE_F32, per_head);
    const lw_wref dt_bias = recur_weight(m, 2, t->dt_bias, LW_DTYPE_F32, per_head);
    const lw_wref skip = recur_weight(m, 3, t->skip, LW_DTYPE_F32, per_head);
    const lw_recurrence state = lw_plan_recurrence(plan, "r", (lw_heads){ s->key_heads, s->key_width },
                                                   (lw_heads){ s->heads, s->width });
    lw_plan_entry_begin(plan, "main");
    const lw_ref all = lw_plan_embed(plan, table), x = lw_plan_view(plan, all, 0, x_width);
    const lw_ref step = lw_plan_view(plan, all, x_width, s->heads);
    if (s->delta) {
        const lw_ref write = lw_plan_view(plan, all, x_width + s->heads, s->heads);
        lw_plan_gated_delta(plan, state, (lw_delta_inputs){ x, step, write }, a_log, dt_bias);
    } else {
        const lw_ssm_weights weights = { a_log, skip, dt_bias, 0.001f, 5.0f };
        lw_plan_ssm(plan, state, (lw_ssm_inputs){ x, step }, &weights);
    }
    lw_plan_entry_end(plan, lw_plan_linear(plan, lw_plan_take_wanted(plan, all), table, LW_TYPE_F32));
}

static inline void recur_plan_free(recur_plan *m)
{
    lw_plan_deinit(&m->plan);
    free(m->table);
}

typedef struct seen {
    lw_bf16 *y;                 /* (positions, y_width) */
    size_t begin;               /* position of the batch's first row */
} seen;

static inline void see_row(void *context, const lw_op *op, const lw_value *value, uint32_t row,
                           const float *values)
{
    seen *s = context;
    if (op->kind != LW_OP_GATED_DELTA && op->kind != LW_OP_SSM) return;
    lw_bf16 *y = s->y + (s->begin + row) * value->width;
    for (uint32_t i = 0; i < value->width; i++) y[i] = lw_bf16_of_float(values[i]);
}

static inline void recur_submit(const lw_device_table *device, lw_exec *exec, size_t begin, size_t end)
{
    static const uint32_t steps[RECUR_PAGES] = { 2, 0, 3, 1 }, anchors[RECUR_PAGES] = { 1, 3, 0, 2 };
    lw_row of[RECUR_LENGTH_MAX] = { { 0 } };
    for (size_t i = 0; begin + i < end; i++) {
        const uint32_t p = (uint32_t)(begin + i);
        of[i] = (lw_row){ .token = (int32_t)p, .position = p, .slot = p, .parent = (int32_t)i - 1 };
    }
    of[0].wanted = true;
    const lw_batch_lane lane = { .committed = (uint32_t)begin, .page_count = RECUR_PAGES,
                                 .pages = { steps, anchors } };
    const lw_batch batch = { .rows = of, .row_count = (uint32_t)(end - begin), .lanes = &lane,
                             .lane_count = 1 };
    lw_ticket ticket = 0;
    assert_int_equal(device->submit(exec, 0, &batch, &ticket, NULL), LW_OK);
    assert_int_equal(device->wait(exec, ticket, NULL), LW_OK);
}

/* (positions, y_width) of the stream through the device, cut at cut. */
static inline lw_bf16 *recur_plan_run(const lw_device_table *table, const lw_device_options *options,
                                      const streams *t, size_t cut)
{
    lw_device *device = NULL;
    lw_exec *exec = NULL;
    recur_plan m;
    lw_diag d = { "" };
    recur_plan_make(&m, t);
    seen s = { .y = law_make(m.length * t->y_width, sizeof *s.y) };
    if (table->open(options, &device, &d) != LW_OK) fail_msg("%s", d.text);
    const lw_exec_options compile = { .rows_max = RECUR_LENGTH_MAX, .wanted_max = 1,
                                      .page_counts = { RECUR_PAGES, RECUR_PAGES },
                                      .trace = { .row = see_row, .context = &s } };
    if (table->compile(device, &m.plan, &compile, &exec, &d) != LW_OK) fail_msg("%s", d.text);
    recur_submit(table, exec, 0, cut);
    s.begin = cut;
    recur_submit(table, exec, cut, m.length);
    table->exec_close(exec);
    table->close(device);
    recur_plan_free(&m);
    return s.y;
}

#endif
