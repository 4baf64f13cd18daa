/* gated_delta and ssm as ops of a plan: the cpu device's outputs are the bits of the kernels called by hand.
 * The kernels' twin that takes another token must not be.
 */
#include "cpu_recurrence_rows.h"

#include "device/cpu/cpu.h"
#include "ops/record.h"

enum { LENGTH = 150, CUT = 97, PAGES = 4 };

/* A dense weight in memory. */
typedef struct memory_weight { lw_tensor tensor; lw_weight weight; } memory_weight;

static void weight_make(memory_weight *w, const void *numbers, bool is_bf16, uint32_t count, uint32_t cols)
{
    const size_t item_bytes = is_bf16 ? 2 : 4;
    w->tensor = (lw_tensor){ .name = "made", .file = "memory", .dim_count = 2, .dims = { count, cols },
                             .dtype = is_bf16 ? LW_DTYPE_BF16 : LW_DTYPE_F32, .bytes = numbers,
                             .byte_count = count * cols * item_bytes };
    w->weight = (lw_weight){ .name = "made", .stack_count = 1, .rows = count, .cols = cols,
                             .map = is_bf16 ? LW_MAP_BF16 : LW_MAP_FP32,
                             .code_bits = (uint32_t)(8 * item_bytes), .global_scale = 1.0f,
                             .codes = &w->tensor };
}

/* Token p embeds to what the stream of lane 0 brings at p. */
typedef struct made {
    memory_weight x, step, write, a_log, dt_bias, skip;
    lw_plan plan;
} made;

static void plan_make(made *m, const streams *t)
{
    const shape *s = &t->s;
    weight_make(&m->x, t->x[0], true, LENGTH, (uint32_t)t->x_width);
    weight_make(&m->step, t->step[0], true, LENGTH, s->heads);
    weight_make(&m->write, t->write[0], true, LENGTH, s->heads);
    weight_make(&m->a_log, t->a_log, false, 1, s->heads);
    weight_make(&m->dt_bias, t->dt_bias, false, 1, s->heads);
    weight_make(&m->skip, t->skip, false, 1, s->heads);
    lw_plan *plan = &m->plan;
    assert_int_equal(lw_plan_init(plan, NULL), LW_OK);
    const lw_wref table = lw_plan_weight(plan, &m->x.weight), steps = lw_plan_weight(plan, &m->step.weight);
    const lw_wref writes = lw_plan_weight(plan, &m->write.weight);
    const lw_recurrence state = lw_plan_recurrence(plan, "r", (lw_heads){ s->key_heads, s->key_width },
                                                   (lw_heads){ s->heads, s->width });
    const lw_wref a_log = lw_plan_weight(plan, &m->a_log.weight);
    const lw_wref dt_bias = lw_plan_weight(plan, &m->dt_bias.weight);
    lw_plan_entry_begin(plan, "main");
    const lw_ref x = lw_plan_embed(plan, table), step = lw_plan_embed(plan, steps);
    if (s->delta) {
        const lw_delta_inputs in = { x, step, lw_plan_embed(plan, writes) };
        lw_plan_gated_delta(plan, state, in, a_log, dt_bias);
    } else {
        const lw_wref skip = lw_plan_weight(plan, &m->skip.weight);
        const lw_ssm_weights weights = { a_log, skip, dt_bias, 0.001f, 5.0f };
        lw_plan_ssm(plan, state, (lw_ssm_inputs){ x, step }, &weights);
    }
    const lw_ref logits = lw_plan_linear(plan, lw_plan_take_wanted(plan, x), table, LW_TYPE_F32);
    lw_plan_entry_end(plan, logits);
}

typedef struct seen {
    lw_bf16 *y;                 /* (positions, y_width) */
    size_t begin;               /* position of the batch's first row */
} seen;

static void see_row(void *context, const lw_op *op, const lw_value *value, uint32_t row, const float *values)
{
    seen *s = context;
    if (op->kind != LW_OP_GATED_DELTA && op->kind != LW_OP_SSM) return;
    lw_bf16 *y = s->y + (s->begin + row) * value->width;
    for (uint32_t i = 0; i < value->width; i++) y[i] = lw_bf16_of_float(values[i]);
}

static void device_submit(lw_exec *exec, size_t begin, size_t end)
{
    static const uint32_t steps[PAGES] = { 2, 0, 3, 1 }, anchors[PAGES] = { 1, 3, 0, 2 };
    lw_row of[LENGTH] = { { 0 } };
    for (size_t i = 0; begin + i < end; i++) {
        const uint32_t p = (uint32_t)(begin + i);
        of[i] = (lw_row){ .token = (int32_t)p, .position = p, .slot = p, .parent = (int32_t)i - 1 };
    }
    of[0].wanted = true;
    const lw_batch_lane lane = { .committed = (uint32_t)begin, .page_count = PAGES,
                                 .pages = { steps, anchors } };
    const lw_batch batch = { .rows = of, .row_count = (uint32_t)(end - begin), .lanes = &lane,
                             .lane_count = 1 };
    lw_ticket ticket = 0;
    assert_int_equal(lw_device_cpu.submit(exec, 0, &batch, &ticket, NULL), LW_OK);
    assert_int_equal(lw_device_cpu.wait(exec, ticket, NULL), LW_OK);
}

/* Both cuts through the device. */
static void device_run(const streams *t, const made *m, lw_bf16 *y)
{
    lw_device *device = NULL;
    lw_exec *exec = NULL;
    const lw_device_options options = { .threads = 2, .isa = t->kernels->isa };
    assert_int_equal(lw_device_cpu.open(&options, &device, NULL), LW_OK);
    seen s = { .y = y };
    const lw_exec_options compile = { .rows_max = LENGTH, .wanted_max = 1, .page_counts = { PAGES, PAGES },
                                      .trace = { .row = see_row, .context = &s } };
    assert_int_equal(lw_device_cpu.compile(device, &m->plan, &compile, &exec, NULL), LW_OK);
    device_submit(exec, 0, CUT);
    s.begin = CUT;
    device_submit(exec, CUT, LENGTH);
    lw_device_cpu.exec_close(exec);
    lw_device_cpu.close(device);
}

static void plan_of_isa(const lw_cpu_kernels *kernels)
{
    static const shape shapes[] = { { 4, 32, 2, 32, true }, { 4, 64, 1, 128, false } };
    static const size_t lengths[LANES] = { LENGTH, 1, 1 };
    lw_rng rng = law_rng(0x504);
    for (size_t i = 0; i < 2; i++) {
        streams t = streams_make(kernels, &rng, shapes[i], lengths);
        store st = store_make(&t, NULL);
        rows r = { 0 };
        for (size_t p = 0; p < LENGTH; p++) rows_add(&r, &st, 0, p, 0);
        lw_bf16 *want = rows_run(&t, &st, &r, 1), *got = law_make(LENGTH * t.y_width, sizeof *got);
        made m;
        plan_make(&m, &t);
        device_run(&t, &m, got);
        assert_memory_equal(got, want, LENGTH * t.y_width * sizeof *got);
        r.token[1] = 2;
        lw_bf16 *wrong = rows_run(&t, &st, &r, 1);
        assert_memory_not_equal(got, wrong, LENGTH * t.y_width * sizeof *got);
        lw_plan_deinit(&m.plan);
        store_free(&st);
        streams_free(&t);
        free(want);
        free(got);
        free(wrong);
    }
}

static void plans_run_the_kernels(void **state)
{
    (void)state;
    recur_each_isa(plan_of_isa);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(plans_run_the_kernels) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
