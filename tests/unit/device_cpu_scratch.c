/* What the cpu device says that a compiled plan takes is what it takes: of every family's plan, at several
 * chunks, for values, scratch and tables of rows.
 */
#include "device/cpu/cpu.h"
#include "device/cpu/exec.h"
#include "family/family.h"
#include "ops/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

enum { WANTED = 7, SLACK_BYTES = 1024 }; /* slack: the arena rounds each table up */

static const lw_device_table *const cpu = &lw_device_cpu;

typedef struct taken {
    uint64_t said, mapped, tables;
} taken;

static taken taken_by(lw_device *device, const lw_plan *plan, uint32_t rows_max)
{
    lw_exec_options options = { .rows_max = rows_max, .wanted_max = WANTED };
    lw_exec *exec = NULL;
    lw_diag d = { "" };
    for (uint32_t g = 0; g < plan->reach_count; g++) options.page_counts[g] = 1;
    if (cpu->compile(device, plan, &options, &exec, &d) != LW_OK) fail_msg("%s", d.text);
    taken out = {
        .mapped = exec->activation_bytes + exec->sizes.prepared_bytes + exec->sizes.attend_bytes +
                  exec->sizes.recur_bytes,
        .tables = exec->arena.bytes_taken,
    };
    const lw_scratch_rows rows = { .rows_max = rows_max, .wanted_max = WANTED };
    assert_int_equal(cpu->scratch_bytes(device, plan, &rows, &out.said, &d), LW_OK);
    cpu->exec_close(exec);
    return out;
}

static void what_is_said_is_taken(void **state)
{
    (void)state;
    static const char *const models[] = { "models/lfm3-mlx4", "models/qwen35-mlx4", "models/nemotron-mlx4" };
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        lw_checkpoint *checkpoint = NULL;
        const lw_family *family = NULL;
        lw_device *device = NULL;
        lw_plan plan;
        lw_diag d = { "" };
        if (lw_checkpoint_open(models[i], &checkpoint, &d) != LW_OK) fail_msg("%s", d.text);
        assert_int_equal(lw_family_find(checkpoint, &family, &d), LW_OK);
        assert_int_equal(lw_plan_init(&plan, &d), LW_OK);
        const lw_record_options with_head = { .head = true };
        assert_int_equal(family->record(checkpoint, &with_head, &plan, &d), LW_OK);
        assert_int_equal(cpu->open(&(lw_device_options){ .threads = 2 }, &device, &d), LW_OK);
        const taken few = taken_by(device, &plan, 64), many = taken_by(device, &plan, 512);
        assert_true(few.said >= few.mapped && few.said <= few.mapped + few.tables);
        assert_true(many.mapped > few.mapped);
        /* What else the arena holds does not grow with the rows. */
        const uint64_t said_more = many.said - few.said - (many.mapped - few.mapped);
        const uint64_t tables_more = many.tables - few.tables;
        assert_true(said_more + SLACK_BYTES >= tables_more && said_more <= tables_more + SLACK_BYTES);
        cpu->close(device);
        lw_plan_deinit(&plan);
        lw_checkpoint_close(checkpoint);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(what_is_said_is_taken) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
