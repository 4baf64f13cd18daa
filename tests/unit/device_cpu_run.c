/* Runners of the cpu device over values with several slots: a row's vectors stand one after the other, each
 * as far from the next as two rows of one slot, and an elementwise op goes over all of them and no further.
 */
#include "device/cpu/exec.h"
#include "ops/record.h"

#include "base/float16.h"
#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { ROWS = 5, TOP = 3, WIDTH = 21, STRIDE = 32, VECTORS = ROWS * TOP, VALUES_MAX = 16, BEYOND = 2 };

typedef struct bench {
    lw_plan plan;
    lw_device device;
    lw_exec exec;
    lw_batch batch;
    lw_cpu_buffer buffers[VALUES_MAX];
    uint16_t numbers[VALUES_MAX][(VECTORS + BEYOND) * STRIDE];
    lw_ref a, b, relu2, sum, product, gated;
} bench;

static lw_wref weight(lw_plan *plan, uint32_t rows, uint32_t cols)
{
    return lw_plan_weight(plan, &(lw_weight){ .name = "w", .stack_count = 1, .rows = rows, .cols = cols });
}

static void record(bench *b)
{
    lw_plan *p = &b->plan;
    const lw_route_params params = { .experts = 8, .top = TOP, .groups = 1, .top_groups = 1 };
    assert_int_equal(lw_plan_init(p, NULL), LW_OK);
    lw_plan_entry_begin(p, "main");
    const lw_ref x = lw_plan_embed(p, weight(p, 9, 16));
    const lw_ref logits = lw_plan_linear(p, x, weight(p, 8, 16), LW_TYPE_F32);
    const lw_ref route = lw_plan_route(p, logits, (lw_wref){ LW_NONE }, &params);
    b->a = lw_plan_expert_linear(p, x, route, weight(p, WIDTH, 16));
    b->b = lw_plan_expert_linear(p, x, route, weight(p, WIDTH, 16));
    b->relu2 = lw_plan_relu2(p, b->a);
    b->sum = lw_plan_add(p, b->a, b->b);
    b->product = lw_plan_mul(p, b->a, b->b);
    b->gated = lw_plan_swiglu(p, b->a, b->b);
}

/* Runs the last four ops over made-up outputs of the experts. */
static bench *bench_run(const lw_cpu_kernels *kernels)
{
    bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    record(b);
    assert_true(b->plan.value_count <= VALUES_MAX);
    assert_int_equal(lw_pool_open(2, kernels->thread_setup, &b->device.pool, NULL), LW_OK);
    b->device.kernels = kernels;
    b->batch.row_count = ROWS;
    b->exec = (lw_exec){ .device = &b->device, .plan = &b->plan, .buffers = b->buffers, .batch = &b->batch };
    memset(b->numbers, 0xAB, sizeof b->numbers);
    for (uint32_t v = 0; v < b->plan.value_count; v++) {
        b->buffers[v] = (lw_cpu_buffer){ (uint8_t *)b->numbers[v], STRIDE };
    }
    lw_rng rng = lw_rng_make(0x601);
    for (size_t i = 0; i < VECTORS * STRIDE; i++) {
        b->numbers[b->a.index][i] = lw_bf16_of_float(lw_rng_normal(&rng));
        b->numbers[b->b.index][i] = lw_bf16_of_float(lw_rng_normal(&rng));
    }
    lw__cpu_run_ops(&b->exec, b->plan.op_count - 4, b->plan.op_count);
    return b;
}

static void bench_free(bench *b)
{
    lw_pool_close(b->device.pool);
    lw_plan_deinit(&b->plan);
    free(b);
}

static uint16_t want(const bench *b, lw_ref out, size_t at)
{
    const float x = lw_float_of_bf16(b->numbers[b->a.index][at]);
    const float y = lw_float_of_bf16(b->numbers[b->b.index][at]);
    if (out.index == b->relu2.index) return lw_bf16_of_float(x < 0 ? 0 : x * x);
    return lw_bf16_of_float(out.index == b->sum.index ? x + y : x * y);
}

static void every_slot_of_every_row_is_computed(void **state)
{
    (void)state;
    for (const lw_cpu_kernels *const *at = lw_cpu_available(); *at != NULL; at++) {
        bench *b = bench_run(*at);
        const lw_ref exact[] = { b->relu2, b->sum, b->product };
        for (size_t i = 0; i < 3 * VECTORS * WIDTH; i++) {
            const lw_ref out = exact[i / WIDTH / VECTORS];
            const size_t cell = i / WIDTH % VECTORS * STRIDE + i % WIDTH;
            assert_int_equal(b->numbers[out.index][cell], want(b, out, cell));
        }
        const uint16_t *gated = b->numbers[b->gated.index];
        for (size_t i = 0; i < VECTORS; i++) assert_int_not_equal(gated[i * STRIDE], 0xABAB);
        bench_free(b);
    }
}

static void nothing_is_written_beyond_a_vector(void **state)
{
    (void)state;
    for (const lw_cpu_kernels *const *at = lw_cpu_available(); *at != NULL; at++) {
        bench *b = bench_run(*at);
        for (uint32_t v = b->relu2.index; v <= b->gated.index; v++) {
            for (size_t i = 0; i < (VECTORS + BEYOND) * STRIDE; i++) {
                const bool inside = i / STRIDE < VECTORS && i % STRIDE < WIDTH;
                if (!inside) assert_int_equal(b->numbers[v][i], 0xABAB);
            }
        }
        bench_free(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_slot_of_every_row_is_computed),
        cmocka_unit_test(nothing_is_written_beyond_a_vector),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
