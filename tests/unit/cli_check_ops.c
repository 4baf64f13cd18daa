/* `lanewise check --ops` on the cpu, and on devices that do one op wrong: cpu devices whose outputs are
 * changed on their way. Each wrong is found in the cases of that op, told by what it is and where.
 */
#include "cli/check_ops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

typedef enum wrong { NOTHING, COMPANY, VALUE, NO_NUMBER, SILENCE } wrong;

/* What the wrapped device does, and to what; the trace that it stands before. */
static struct {
    wrong how;
    lw_op_kind op;
    uint32_t column;
    lw_trace trace;
    const lw_device_table *real;
    bool refuses;
} sabotage;

static void row_changed(void *context, const lw_op *op, const lw_value *value, uint32_t row,
                        const float *values)
{
    static float changed[4096];
    (void)context;
    assert_true(value->width <= sizeof changed / sizeof changed[0]);
    memcpy(changed, values, value->width * sizeof *changed);
    if (op->kind == sabotage.op && sabotage.column < value->width) {
        float *at = &changed[sabotage.column];
        if (sabotage.how == SILENCE) return;
        if (sabotage.how == COMPANY && row > 0) *at = nextafterf(*at, INFINITY);
        if (sabotage.how == VALUE) *at = *at * 1.01f + 0.01f;
        if (sabotage.how == NO_NUMBER) *at = NAN;
    }
    sabotage.trace.row(sabotage.trace.context, op, value, row, changed);
}

static lw_status compile_wrapped(lw_device *device, const lw_plan *plan, const lw_exec_options *options,
                                 lw_exec **out, lw_diag *d)
{
    lw_exec_options own = *options;
    if (sabotage.refuses) return lw_fail(d, LW_UNSUPPORTED, "the device has no such op");
    sabotage.trace = options->trace;
    if (own.trace.row != NULL) own.trace.row = row_changed;
    return sabotage.real->compile(device, plan, &own, out, d);
}

static lw_device_table wrapped;

static void devices_open(lw_ops_devices *on)
{
    const char *which;
    const lw_device_options generic = { .threads = 1, .isa = "generic" };
    sabotage.real = lw_device_find("cpu", &which);
    sabotage.how = NOTHING;
    sabotage.refuses = false;
    wrapped = *sabotage.real;
    wrapped.compile = compile_wrapped;
    *on = (lw_ops_devices){ .table = &wrapped, .cpu_table = sabotage.real };
    assert_int_equal(on->table->open(&generic, &on->device, NULL), LW_OK);
    assert_int_equal(on->table->open(&generic, &on->plain, NULL), LW_OK);
    assert_int_equal(on->cpu_table->open(&generic, &on->cpu, NULL), LW_OK);
}

static void devices_close(lw_ops_devices *on)
{
    on->table->close(on->device);
    on->table->close(on->plain);
    on->cpu_table->close(on->cpu);
}

static void every_op_has_a_case_and_a_bound(void **state)
{
    (void)state;
    for (int kind = 0; kind <= LW_OP_COUNT; kind++) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < lw_ops_case_count; i++) count += (int)lw_ops_cases[i].op == kind;
        if (count == 0) fail_msg("op %s has no case", kind < LW_OP_COUNT ? lw_op_table[kind].name : "layer");
        assert_non_null(lw_ops_bounds[kind].reason);
    }
}

static void case_passes(const lw_ops_devices *on, uint32_t index)
{
    lw_ops_result result;
    lw_diag d;
    assert_int_equal(lw_ops_case_run(on, index, &result, &d), LW_OK);
    if (!result.passed) fail_msg("%s: %s", lw_ops_case_name(&lw_ops_cases[index]), result.failure);
    assert_true(result.worst >= 0 && result.worst <= 1);
    assert_true(result.planted > 0 && result.caught == result.planted);
}

static void the_cpu_passes_and_all_that_is_planted_is_caught(void **state)
{
    (void)state;
    lw_ops_devices on;
    devices_open(&on);
    for (uint32_t i = 0; i < lw_ops_case_count; i++) case_passes(&on, i);
    on.act_int8 = true;
    for (uint32_t i = 0; i < lw_ops_case_count; i++) {
        const lw_op_kind op = lw_ops_cases[i].op;
        if (op == LW_OP_LINEAR || op == LW_OP_EXPERT_LINEAR || op == LW_OP_COUNT) case_passes(&on, i);
    }
    devices_close(&on);
}

/* The cases of one op with it done wrong: each must fail, saying why. */
static void wrong_is_told(lw_op_kind op, wrong how, uint32_t column, const char *why)
{
    lw_ops_devices on;
    devices_open(&on);
    sabotage.how = how;
    sabotage.op = op;
    sabotage.column = column;
    for (uint32_t i = 0; i < lw_ops_case_count; i++) {
        lw_ops_result result;
        if (lw_ops_cases[i].op != op) continue;
        assert_int_equal(lw_ops_case_run(&on, i, &result, NULL), LW_OK);
        assert_false(result.passed);
        if (strstr(result.failure, why) == NULL)
            fail_msg("%s says \"%s\", not \"%s\"", lw_op_table[op].name, result.failure, why);
    }
    devices_close(&on);
}

static void what_company_changes_is_told(void **state)
{
    (void)state;
    wrong_is_told(LW_OP_LINEAR, COMPANY, 3, "row law: stream 0, position 1, column 3: alone");
    wrong_is_told(LW_OP_RMS_NORM, COMPANY, 5, "column 5");
    wrong_is_told(LW_OP_GATED_DELTA, COMPANY, 0, "together");
}

static void what_is_off_is_told(void **state)
{
    (void)state;
    wrong_is_told(LW_OP_LINEAR, VALUE, 2, "value: ");
    wrong_is_told(LW_OP_ATTEND, VALUE, 7, "column 7: device ");
    wrong_is_told(LW_OP_ROUTE, VALUE, 1, "value: ");
    wrong_is_told(LW_OP_SSM, VALUE, 4, "column 4: device ");
    wrong_is_told(LW_OP_SWIGLU, NO_NUMBER, 6, "device nan");
    wrong_is_told(LW_OP_EMBED, NO_NUMBER, 9, "inf of the bound");
}

static void what_never_came_is_told(void **state)
{
    (void)state;
    wrong_is_told(LW_OP_CONCAT, SILENCE, 0, "value: stream 0, position 0, column 0: device ");
}

static void a_refusal_is_a_failure_with_its_text(void **state)
{
    (void)state;
    lw_ops_devices on;
    lw_ops_result result;
    devices_open(&on);
    sabotage.refuses = true;
    assert_int_equal(lw_ops_case_run(&on, 0, &result, NULL), LW_OK);
    assert_false(result.passed);
    assert_string_equal(result.failure, "the device has no such op");
    devices_close(&on);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_has_a_case_and_a_bound),
        cmocka_unit_test(the_cpu_passes_and_all_that_is_planted_is_caught),
        cmocka_unit_test(what_company_changes_is_told),
        cmocka_unit_test(what_is_off_is_told),
        cmocka_unit_test(what_never_came_is_told),
        cmocka_unit_test(a_refusal_is_a_failure_with_its_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
