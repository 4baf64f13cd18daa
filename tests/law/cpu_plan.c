/* Ops through the whole cpu device: a plan of every op that reaches across rows or columns is recorded,
 * compiled and submitted, and a trace keeps what each op gave each position of each stream.
 * Law: those are the bits of the stream alone, token by token, whatever cut, company, order of pages, tree or
 * rejected guess it comes in. Meaning: copies hold what their inputs held at the right row and column, and
 * the rest meets its formula in FP64 from what its inputs held. Planted: another stream's outputs, mistakes
 * of each op's kind, and a changed token.
 */
enum { VOCAB = 40, LENGTH = 150 };

#include "plan_meaning.h"
#include "plan_rows.h"

#include "device/cpu/cpu.h"

static void law_of_kv(const lw_cpu_kernels *kernels, lw_kv_type kv)
{
    lw_rng rng = law_rng(0x501);
    bench *b = bench_make(record_rows, &rng);
    lw_plan_keep_kv(&b->plan, kv);
    b->table = &lw_device_cpu;
    b->options = (lw_device_options){ .threads = LAW_PARTS_MAX, .isa = kernels->isa };
    kept *alone = kept_make(b);
    streams_run(b, alone, &rng, 1, LENGTH, ALONE);
    check_meaning(b, alone, &rng);
    check_law(b, &rng, alone);
    kept_free(b, alone);
    bench_free(b);
}

static void law_of_isa(const lw_cpu_kernels *kernels)
{
    law_of_kv(kernels, LW_KV_BF16);
    law_of_kv(kernels, LW_KV_INT8);
}

static void plans_keep_the_row_law(void **state)
{
    (void)state;
    law_each_isa(law_of_isa);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(plans_keep_the_row_law) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
