/* Runs one case of `lanewise check --ops` on the device and on the cpu, and judges; see check_ops.h. */
#include "cli/check_ops.h"

#include "base/clock.h"
#include "base/float16.h"
#include "base/size.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CUT_MAX = 7,
    BEFORE_END = 5, /* where a planted input stands */
    PAGES = LW_OPS_LENGTH_MAX / LW_PAGE_POSITIONS + 1,
    PAGES_ALL = LW_OPS_LANES * PAGES,
    ROWS_MAX = LW_OPS_LANES * LW_OPS_LENGTH_MAX,
    ARENA_BYTES_MAX = 256 << 20,
    LAYER_CODE_BYTES = 4, /* codes that are planted in a layer, whose bound two of them may stay below */
};

typedef enum company { ALONE, TOGETHER, MIXED, COMPANIES } company;
static const char *const company_names[COMPANIES] = { "alone", "together", "in mixed cuts" };

/* A case's streams on one device. */
typedef struct streams {
    const lw_ops_case *c;
    const lw_ops_plan *p;
    const lw_device_table *table;
    lw_exec *exec;
    size_t width;              /* numbers that the observed op gives a row, all slots */
    float *out;                /* (lanes, length, width) of the run in flight */
    lw_row rows[ROWS_MAX];
    lw_batch_lane lanes[LW_OPS_LANES];
    uint32_t row_count;
    uint32_t pages[LW_OPS_LANES][PAGES];
} streams;

/* Where two outputs differ most: error over bound. */
typedef struct spot {
    double worst;
    size_t lane, position, column;
} spot;

static const lw_op *observed(const lw_ops_plan *p)
{
    return &p->plan.ops[p->observed];
}

static size_t numbers(const streams *s)
{
    return (size_t)LW_OPS_LANES * s->c->length * s->width;
}

static float *row_at(float *out, const streams *s, size_t lane, size_t position)
{
    return out + (lane * s->c->length + position) * s->width;
}

/* The last token stands at one place and nowhere else. */
static int32_t token_at(const lw_ops_case *c, size_t lane, size_t position)
{
    if (lane == 0 && position == c->length - BEFORE_END) return LW_OPS_TOKENS - 1;
    return (int32_t)(lw_rng_mix(lane * LW_OPS_LENGTH_MAX + position + 1) % (LW_OPS_TOKENS - 1));
}

/* ---- running ---- */

static void on_row(void *context, const lw_op *op, const lw_value *value, uint32_t row, const float *values)
{
    streams *s = context;
    if (op->kind != observed(s->p)->kind || op->out.index != observed(s->p)->out.index) return;
    const lw_row *of =
        &s->rows[row / value->slots]; /* all rows are wanted ones: their indices are the same */
    float *to = row_at(s->out, s, of->lane, of->position) + (size_t)(row % value->slots) * value->width;
    memcpy(to, values, value->width * sizeof *to);
}

/* Layers are not traced, since a traced plan runs op by op; their logits are read. */
static bool is_layer(const lw_ops_case *c)
{
    return c->op == LW_OP_COUNT;
}

static lw_status streams_open(streams *s, const lw_device_table *table, lw_device *device, lw_diag *d)
{
    const lw_value *value = &s->p->plan.values[observed(s->p)->out.index];
    s->table = table;
    s->width = (size_t)value->slots * value->width;
    lw_exec_options options = { .rows_max = LW_OPS_LANES * s->c->length,
                                .wanted_max = LW_OPS_LANES * s->c->length };
    if (!is_layer(s->c)) options.trace = (lw_trace){ .row = on_row, .context = s };
    for (uint32_t g = 0; g < s->p->plan.reach_count; g++) options.page_counts[g] = PAGES_ALL;
    return table->compile(device, &s->p->plan, &options, &s->exec, d);
}

static void window_add(streams *s, uint32_t lane, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t position = s->lanes[lane].committed + i;
        s->rows[s->row_count] = (lw_row){ .token = token_at(s->c, lane, position), .lane = lane,
                                          .position = position, .slot = position,
                                          .parent = i == 0 ? -1 : (int32_t)s->row_count - 1, .wanted = true };
        s->row_count++;
    }
}

static lw_status logits_read(streams *s, lw_diag *d)
{
    for (uint32_t i = 0; i < s->row_count; i++) {
        const float *logits;
        const lw_status status = s->table->read_logits(s->exec, i, &logits, d);
        if (status != LW_OK) return status;
        memcpy(row_at(s->out, s, s->rows[i].lane, s->rows[i].position), logits, s->width * sizeof *logits);
    }
    return LW_OK;
}

static lw_status batch_run(streams *s, lw_diag *d)
{
    lw_ticket ticket;
    const lw_batch batch = { .rows = s->rows, .row_count = s->row_count, .lanes = s->lanes,
                             .lane_count = LW_OPS_LANES };
    if (s->row_count == 0) return LW_OK;
    lw_status status = s->table->submit(s->exec, LW_ENTRY_MAIN, &batch, &ticket, d);
    if (status == LW_OK) status = s->table->wait(s->exec, ticket, d);
    if (status == LW_OK && is_layer(s->c)) status = logits_read(s, d);
    s->row_count = 0;
    return status;
}

/* How many rows a lane brings at a turn. */
static uint32_t count_at(const streams *s, company how, uint32_t turn, uint32_t lane)
{
    const uint32_t left = s->c->length - s->lanes[lane].committed;
    if (how == TOGETHER) return left;
    if (how == ALONE) return turn % LW_OPS_LANES == lane && left > 0 ? 1 : 0;
    const uint32_t cut = (uint32_t)(lw_rng_mix(turn * LW_OPS_LANES + lane + 1) % (CUT_MAX + 1));
    return cut < left ? cut : left;
}

/* Pages are others in each run: what an earlier one left there is not this one's. */
static void streams_begin(streams *s, company how)
{
    for (uint32_t l = 0; l < LW_OPS_LANES; l++) {
        s->lanes[l] = (lw_batch_lane){ .page_count = PAGES };
        for (uint32_t i = 0; i < PAGES; i++)
            s->pages[l][i] = (i * LW_OPS_LANES + l + (uint32_t)how * 3) % PAGES_ALL;
        for (uint32_t g = 0; g < s->p->plan.reach_count; g++) s->lanes[l].pages[g] = s->pages[l];
    }
}

static bool is_done(const streams *s)
{
    for (uint32_t l = 0; l < LW_OPS_LANES; l++) {
        if (s->lanes[l].committed < s->c->length) return false;
    }
    return true;
}

/* Rows that no run reaches stay NaN, which is off by more than any bound. */
static lw_status streams_run(streams *s, company how, float *out, lw_diag *d)
{
    s->out = out;
    memset(out, 0xFF, numbers(s) * sizeof *out);
    streams_begin(s, how);
    for (uint32_t turn = 0; !is_done(s); turn++) {
        uint32_t counts[LW_OPS_LANES];
        for (uint32_t l = 0; l < LW_OPS_LANES; l++) {
            counts[l] = count_at(s, how, turn, l);
            window_add(s, l, counts[l]);
        }
        const lw_status status = batch_run(s, d);
        if (status != LW_OK) return status;
        for (uint32_t l = 0; l < LW_OPS_LANES; l++) s->lanes[l].committed += counts[l];
    }
    return LW_OK;
}

/* A case's plan on a device, all rows together. */
static lw_status plan_run(const lw_ops_case *c, const lw_ops_plan *p, const lw_ops_devices *on, float *out,
                          lw_diag *d)
{
    streams *s = calloc(1, sizeof *s);
    if (s == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for a case's rows");
    s->c = c;
    s->p = p;
    lw_status status = streams_open(s, on->cpu_table, on->cpu, d);
    if (status == LW_OK) status = streams_run(s, TOGETHER, out, d);
    if (s->exec != NULL) on->cpu_table->exec_close(s->exec);
    free(s);
    return status;
}

/* ---- comparing ---- */

/* Between neighbours of bf16 at this size. */
static double bf16_step(double value)
{
    int exponent;
    frexp(value, &exponent);
    return ldexp(1.0, exponent - 8);
}

static double error_over(const lw_ops_bound *bound, double got, double want, double largest)
{
    const double off = fabs(got - want);
    if (!isfinite(got) || !isfinite(want)) return INFINITY;
    if (!(off > 0)) return 0;
    const double limit = bound->steps * bf16_step(fmax(fabs(got), fabs(want))) +
                         bound->share * (bound->own ? fabs(want) : largest);
    return limit > 0 ? off / limit : INFINITY;
}

static double largest_of(const float *row, size_t width)
{
    double largest = 0;
    for (size_t i = 0; i < width; i++) largest = fmax(largest, fabs((double)row[i]));
    return largest;
}

/* The worst of the rows that a planted input reaches, or of the others. */
typedef enum which_rows { ALL_ROWS, REACHED, NOT_REACHED } which_rows;

static bool is_among(const lw_ops_case *c, which_rows which, size_t lane, size_t position)
{
    const bool reached = lane == 0 && position >= c->length - BEFORE_END;
    return which == ALL_ROWS || reached == (which == REACHED);
}

static spot differ(const streams *s, float *got, float *want, which_rows which)
{
    const lw_ops_bound *bound = &lw_ops_bounds[s->c->op];
    spot most = { 0 };
    for (size_t n = 0; n < (size_t)LW_OPS_LANES * s->c->length; n++) {
        const size_t lane = n / s->c->length, position = n % s->c->length;
        if (!is_among(s->c, which, lane, position)) continue;
        const float *a = row_at(got, s, lane, position), *b = row_at(want, s, lane, position);
        const double largest = largest_of(b, s->width);
        for (size_t i = 0; i < s->width; i++) {
            const double error = error_over(bound, (double)a[i], (double)b[i], largest);
            if (error > most.worst) most = (spot){ error, lane, position, i };
        }
    }
    return most;
}

/* The first number whose bits differ; false: none. */
static bool bits_differ(const streams *s, const float *a, const float *b, spot *at)
{
    for (size_t i = 0; i < numbers(s); i++) {
        if (memcmp(&a[i], &b[i], sizeof a[i]) == 0) continue;
        const size_t row = i / s->width;
        *at = (spot){ 0, row / s->c->length, row % s->c->length, i % s->width };
        return true;
    }
    return false;
}

LW_PRINTF(2, 3) static void fail(lw_ops_result *result, const char *format, ...)
{
    va_list args;
    if (result->failure[0] != '\0') return;
    va_start(args, format);
    vsnprintf(result->failure, sizeof result->failure, format, args);
    va_end(args);
}

static void law_judge(const streams *s, float *alone, float *other, const char *how, lw_ops_result *result)
{
    spot at;
    if (!bits_differ(s, alone, other, &at)) return;
    fail(result, "row law: stream %zu, position %zu, column %zu: alone %.9g, %s %.9g", at.lane, at.position,
         at.column, (double)row_at(alone, s, at.lane, at.position)[at.column], how,
         (double)row_at(other, s, at.lane, at.position)[at.column]);
}

static void value_judge(const streams *s, float *got, float *want, lw_ops_result *result)
{
    const spot at = differ(s, got, want, ALL_ROWS);
    result->worst = at.worst;
    if (at.worst <= 1) return;
    fail(result, "value: stream %zu, position %zu, column %zu: device %.9g, cpu %.9g, %.3g of the bound",
         at.lane, at.position, at.column, (double)row_at(got, s, at.lane, at.position)[at.column],
         (double)row_at(want, s, at.lane, at.position)[at.column], at.worst);
}

static lw_status plan_make(const lw_ops_devices *on, uint32_t index, lw_ops_plan *p, lw_diag *d)
{
    const lw_status status = lw_ops_plan_make(p, index, d);
    if (status == LW_OK && on->act_int8) lw_plan_take_int8(&p->plan);
    return status;
}

/* ---- what is planted ---- */

/* Of the first weight's last row, which one row of one stream is. */
static void input_plant(lw_ops_plan *p, uint32_t column)
{
    const lw_tensor *table = &p->weights[0].parts[LW_OPS_CODES];
    uint8_t *at = (uint8_t *)(uintptr_t)table->bytes + ((LW_OPS_TOKENS - 1) * table->dims[1] + column) * 2;
    uint16_t half;
    memcpy(&half, at, sizeof half);
    half = lw_bf16_of_float(fabsf(lw_float_of_bf16(half)) + 2.0f);
    memcpy(at, &half, sizeof half);
}

/* One thing that can be planted: an input's column, or a part of one of the op's weights. */
typedef struct planted {
    bool is_input;
    uint32_t which;
    lw_ops_part part;
} planted;

static bool plant_apply(const lw_ops_case *c, lw_ops_plan *p, planted what)
{
    if (what.is_input) {
        if (what.which >= p->probe_count) return false;
        input_plant(p, p->probes[what.which]);
        return true;
    }
    const lw_wref w = observed(p)->weights[what.which];
    if (w.index == LW_NONE || p->weights[w.index].parts[what.part].bytes == NULL) return false;
    lw_ops_weight_plant(&p->weights[w.index], what.part, p->plan.weights[w.index].map,
                        is_layer(c) ? LAYER_CODE_BYTES : 1);
    return true;
}

static void plant_judge(const streams *s, float *got, float *want, planted what, lw_ops_result *result)
{
    static const char *const parts[LW_OPS_PARTS] = { "numbers", "scales", "biases" };
    const bool caught = differ(s, got, want, what.is_input ? REACHED : ALL_ROWS).worst > 1 &&
                        (!what.is_input || !(differ(s, got, want, NOT_REACHED).worst > 1));
    result->planted++;
    result->caught += caught;
    if (caught) return;
    if (what.is_input) fail(result, "a planted number of input %u was not seen where it belongs", what.which);
    else fail(result, "a planted number of weight %u's %s was not seen", what.which, parts[what.part]);
}

static lw_status plant_run(const lw_ops_devices *on, uint32_t index, const streams *s, planted what,
                           float *buffers[2], lw_ops_result *result, lw_diag *d)
{
    lw_ops_plan p;
    lw_status status = plan_make(on, index, &p, d);
    if (status == LW_OK && plant_apply(s->c, &p, what)) {
        status = plan_run(s->c, &p, on, buffers[1], d);
        if (status == LW_OK) plant_judge(s, buffers[0], buffers[1], what, result);
    }
    lw_plan_deinit(&p.plan);
    return status;
}

static lw_status plants_run(const lw_ops_devices *on, uint32_t index, const streams *s, float *buffers[2],
                            lw_ops_result *result, lw_diag *d)
{
    lw_status status = LW_OK;
    for (uint32_t i = 0; i < LW_OPS_PROBES_MAX && status == LW_OK; i++)
        status = plant_run(on, index, s, (planted){ true, i, LW_OPS_CODES }, buffers, result, d);
    for (uint32_t i = 0; i < LW_OP_WEIGHTS_MAX * LW_OPS_PARTS && status == LW_OK; i++) {
        const planted what = { false, i / LW_OPS_PARTS, (lw_ops_part)(i % LW_OPS_PARTS) };
        status = plant_run(on, index, s, what, buffers, result, d);
    }
    if (status == LW_OK && result->planted == 0) fail(result, "nothing could be planted");
    return status;
}

/* ---- a case ---- */

/* On the device, in every company: alone into buffers[0]. False: it refused, or gave up. */
static bool device_runs(streams *s, const lw_ops_devices *on, float *buffers[2], lw_ops_result *result)
{
    lw_diag d = { "" };
    lw_status status = streams_open(s, on->table, on->device, &d);
    if (status == LW_OK) status = streams_run(s, ALONE, buffers[0], &d);
    for (company how = TOGETHER; how < COMPANIES && status == LW_OK; how++) {
        status = streams_run(s, how, buffers[1], &d);
        if (status == LW_OK) law_judge(s, buffers[0], buffers[1], company_names[how], result);
    }
    if (s->exec != NULL) on->table->exec_close(s->exec);
    s->exec = NULL;
    if (status == LW_OK && is_layer(s->c)) {
        status = streams_open(s, on->table, on->plain, &d);
        if (status == LW_OK) status = streams_run(s, MIXED, buffers[1], &d);
        if (status == LW_OK) law_judge(s, buffers[0], buffers[1], "without fusions", result);
        if (s->exec != NULL) on->table->exec_close(s->exec);
        s->exec = NULL;
    }
    if (status != LW_OK) fail(result, "%s", d.text);
    return status == LW_OK;
}

lw_status lw_ops_case_run(const lw_ops_devices *devices, uint32_t index, lw_ops_result *result, lw_diag *d)
{
    lw_arena arena;
    lw_ops_plan p;
    *result = (lw_ops_result){ .worst = NAN };
    lw_arena_init(&arena, ARENA_BYTES_MAX);
    lw_status status = plan_make(devices, index, &p, d);
    streams *s = lw_arena_take_array(&arena, 1, sizeof *s);
    float *buffers[2] = { NULL, NULL };
    if (status == LW_OK && s != NULL) {
        *s = (streams){ .c = &lw_ops_cases[index], .p = &p };
        const lw_value *value = &p.plan.values[observed(&p)->out.index];
        s->width = (size_t)value->slots * value->width;
        for (int i = 0; i < 2; i++) buffers[i] = lw_arena_take_array(&arena, numbers(s), sizeof *buffers[i]);
    }
    if (status == LW_OK && (buffers[0] == NULL || buffers[1] == NULL))
        status = lw_fail(d, LW_NO_ROOM, "no memory for the rows of case %u", index);
    if (status == LW_OK) {
        const uint64_t begin = lw_clock_ns();
        const bool ran = device_runs(s, devices, buffers, result);
        result->seconds = (double)(lw_clock_ns() - begin) * 1e-9;
        if (ran) status = plan_run(s->c, &p, devices, buffers[1], d);
        if (ran && status == LW_OK) value_judge(s, buffers[0], buffers[1], result);
        if (ran && status == LW_OK) status = plants_run(devices, index, s, buffers, result, d);
    }
    result->passed = status == LW_OK && result->failure[0] == '\0';
    lw_plan_deinit(&p.plan);
    lw_arena_deinit(&arena);
    return status;
}
