/* All cases of `lanewise check --ops`, and their report; see check_ops.h. */
#include "cli/check_ops.h"
#include "cli/verbs.h"

#include "base/clock.h"
#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- devices ---- */

static lw_status devices_open(lw_ops_devices *on, const lw_term *term, const lw_load_options *load,
                              lw_diag *d)
{
    lw_device_options options = lw_load_device_options(load, term);
    const lw_device_options generic = { .threads = load->threads, .isa = "generic" };
    const char *name = load->device == NULL ? "cpu" : load->device, *none;
    on->table = lw_device_find(name, &options.which);
    on->cpu_table = lw_device_find("cpu", &none);
    LW_ASSERT(on->cpu_table != NULL);
    on->act_int8 = load->act_int8;
    if (on->table == NULL)
        return lw_fail(d, LW_NOT_FOUND, "no device \"%s\"; `lanewise devices` lists them", name);
    lw_status status = on->table->open(&options, &on->device, d);
    options.fusions_off = true;
    if (status == LW_OK) status = on->table->open(&options, &on->plain, d);
    if (status == LW_OK) status = on->cpu_table->open(&generic, &on->cpu, d);
    return status;
}

static void devices_close(lw_ops_devices *on)
{
    if (on->device != NULL) on->table->close(on->device);
    if (on->plain != NULL) on->table->close(on->plain);
    if (on->cpu != NULL) on->cpu_table->close(on->cpu);
}

static void fact_take(void *context, const char *name, const char *text)
{
    json_object_set_new(context, name, lw_json_text(text, strlen(text)));
}

static json_t *device_object(const lw_ops_devices *on)
{
    char text[LW_DEVICE_TEXT_BYTES];
    json_t *facts = json_object();
    on->table->describe(on->device, text, sizeof text);
    fact_take(facts, "description", text);
    if (on->table->facts != NULL) on->table->facts(on->device, fact_take, facts);
    return facts;
}

/* ---- cases ---- */

/* What tells a case from others of its op: its own words, or the weight's format and columns. */
static lw_status form_text(uint32_t index, char text[96], lw_diag *d)
{
    const lw_ops_case *c = &lw_ops_cases[index];
    if (c->form != NULL) {
        snprintf(text, 96, "%s", c->form);
        return LW_OK;
    }
    lw_ops_plan p;
    const lw_status status = lw_ops_plan_make(&p, index, d);
    if (status == LW_OK) {
        char format[32];
        const lw_weight *w = &p.plan.weights[p.plan.ops[p.observed].weights[0].index];
        lw_weight_format(w, format);
        const char *scales = w->group > 0 ? lw_dtype_name(w->scale_type) : "no";
        snprintf(text, 96, "%s, %s scales%s, %u columns", format, scales, w->has_bias ? " and biases" : "",
                 w->cols);
    }
    lw_plan_deinit(&p.plan);
    return status;
}

/* A number that is none is null in JSON. */
static json_t *real_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *case_object(uint32_t index, const char *form, const lw_ops_result *result)
{
    const lw_ops_case *c = &lw_ops_cases[index];
    const lw_ops_bound *bound = &lw_ops_bounds[c->op];
    json_t *object = json_pack("{s:s, s:s, s:b, s:o, s:i, s:i, s:f, s:{s:f, s:f, s:s}}", "op",
                               lw_ops_case_name(c), "form", form, "passed", result->passed, "worst",
                               real_or_null(result->worst), "planted", (int)result->planted, "caught",
                               (int)result->caught, "seconds", result->seconds, "bound", "steps",
                               bound->steps, "share", bound->share, "reason", bound->reason);
    if (object != NULL && result->failure[0] != '\0')
        json_object_set_new(object, "failure", lw_json_text(result->failure, strlen(result->failure)));
    return object;
}

static lw_status cases_run(const lw_ops_devices *on, const lw_term *term, json_t *list, lw_diag *d)
{
    lw_progress_line line = lw_progress_line_make(term, "checking ops");
    lw_status status = LW_OK;
    for (uint32_t i = 0; i < lw_ops_case_count && status == LW_OK; i++) {
        char form[96];
        lw_ops_result result;
        lw_progress_line_step(&line, i, lw_ops_case_count);
        status = form_text(i, form, d);
        if (status == LW_OK) status = lw_ops_case_run(on, i, &result, d);
        if (status == LW_OK) json_array_append_new(list, case_object(i, form, &result));
    }
    lw_progress_line_clear(&line);
    return status;
}

/* How many names the list holds, and of how many all cases passed. Cases of one op need not be neighbours. */
static json_t *names_count(const json_t *list, uint32_t *passed)
{
    json_t *names = json_object(), *item;
    size_t at;
    json_array_foreach(list, at, item)
    {
        const char *name = json_string_value(json_object_get(item, "op"));
        const json_t *before = json_object_get(names, name);
        const bool passes = json_is_true(json_object_get(item, "passed"));
        json_object_set_new(names, name, json_boolean(passes && (before == NULL || json_is_true(before))));
    }
    const char *name;
    *passed = 0;
    json_object_foreach(names, name, item) *passed += json_is_true(item);
    return names;
}

static json_t *report_object(const lw_ops_devices *on, json_t *list, double seconds)
{
    uint32_t passed;
    json_t *names = names_count(list, &passed);
    const size_t count = json_object_size(names);
    json_decref(names);
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:f, s:i, s:i, s:b}", "version", LW_VERSION, "commit",
                     lw_commit(), "compiler", __VERSION__, "device", device_object(on), "cases", list,
                     "seconds", seconds, "ops", (int)count, "ops_passed", (int)passed, "passed",
                     passed == count);
}

lw_status lw_ops_check(const lw_term *term, const lw_load_options *load, json_t **object, lw_diag *d)
{
    lw_ops_devices on = { .device = NULL };
    json_t *list = json_array();
    *object = NULL;
    const uint64_t begin = lw_clock_ns();
    lw_status status = devices_open(&on, term, load, d);
    if (status == LW_OK) status = cases_run(&on, term, list, d);
    if (status == LW_OK) {
        *object = report_object(&on, list, (double)(lw_clock_ns() - begin) * 1e-9);
        if (*object == NULL) status = lw_fail(d, LW_NO_ROOM, "no memory for the report");
    } else {
        json_decref(list);
    }
    devices_close(&on);
    return status;
}

bool lw_ops_passed(const json_t *object)
{
    return json_is_true(json_object_get(object, "passed"));
}

/* ---- the table ---- */

static void case_print(const json_t *item)
{
    const json_t *worst = json_object_get(item, "worst"), *failure = json_object_get(item, "failure");
    char figure[32] = "-";
    if (json_is_real(worst)) snprintf(figure, sizeof figure, "%.3f", json_real_value(worst));
    printf("%-14s %-52s %8s %3d/%d %7.2f s  %s\n", json_string_value(json_object_get(item, "op")),
           json_string_value(json_object_get(item, "form")), figure,
           (int)json_integer_value(json_object_get(item, "caught")),
           (int)json_integer_value(json_object_get(item, "planted")),
           json_real_value(json_object_get(item, "seconds")),
           json_is_true(json_object_get(item, "passed")) ? "passed" : "FAILED");
    if (failure != NULL) printf("    %s\n", json_string_value(failure));
}

void lw_ops_print(const json_t *object)
{
    const char *name;
    json_t *item;
    size_t at;
    printf("%-14s lanewise %s (%s), %s\n", "program", json_string_value(json_object_get(object, "version")),
           json_string_value(json_object_get(object, "commit")),
           json_string_value(json_object_get(object, "compiler")));
    json_object_foreach(json_object_get(object, "device"), name, item)
        printf("%-14s %s\n", name, json_string_value(item));
    printf("\n%-14s %-52s %8s %s  %7s\n", "op", "form", "of bound", "caught", "time");
    json_array_foreach(json_object_get(object, "cases"), at, item) case_print(item);
    printf("\n%zu cases in %.1f s\n%d of %d ops passed\n", json_array_size(json_object_get(object, "cases")),
           json_real_value(json_object_get(object, "seconds")),
           (int)json_integer_value(json_object_get(object, "ops_passed")),
           (int)json_integer_value(json_object_get(object, "ops")));
}
