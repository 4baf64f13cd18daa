/* Expert ops through the whole xpu device, on the emulated one: routers, linears over stacks and sums, for
 * rows alone, whose slots go one by one, against rows in any company, which are sorted by expert; FP64 of
 * what each was given. Planted: mistakes of routing, a neighbour's expert, another stream's rows, swapped
 * weights.
 */
enum { VOCAB = 40, LENGTH = 160 };

#include "../ref/ref_experts.h"
#include "plan_formats.h"
#include "plan_meaning.h"
#include "plan_rows.h"
#include "xpu_law.h"

enum { COLS = 64, MIDDLE = 40, CHECKED = 300 };

/* Few experts of many rows each, more than one walk of the sort has items, and those between. */
static const struct { lw_route_params route; bool has_bias; lw_ops_form up, down; } cases[] = {
    { { LW_ROUTER_SOFTMAX, 5, 2, 1, 1, false, 1.0f }, false,
      { LW_MAP_INTEGER, 4, 32, 0, LW_DTYPE_BF16, true, 0, 0, false },
      { LW_MAP_BF16, 16, 0, 0, LW_DTYPE_F32, false, 0, 0, false } },
    { { LW_ROUTER_SIGMOID, 12, 3, 4, 2, true, 2.5f }, true,
      { LW_MAP_E4M3, 8, 128, 128, LW_DTYPE_F32, false, 0, 0, false },
      { LW_MAP_INTEGER, 8, 8, 0, LW_DTYPE_BF16, true, 0, 0, false } },
    { { LW_ROUTER_SIGMOID, 300, 2, 1, 1, false, 1.0f }, true,
      { LW_MAP_INTEGER, 4, 64, 0, LW_DTYPE_F16, false, -8, 0, false },
      { LW_MAP_TABLE16, 4, 40, 0, LW_DTYPE_F8_E4M3, false, 0, 0.3f, false } },
    { { LW_ROUTER_SOFTMAX, 66, 33, 33, 20, false, 0.5f }, true,
      { LW_MAP_INTEGER, 6, 32, 0, LW_DTYPE_BF16, true, 0, 0, false },
      { LW_MAP_FP32, 32, 0, 0, LW_DTYPE_F32, false, 0, 0, false } },
};
enum { CASES = sizeof cases / sizeof cases[0] };

/* Makes the second row of the newest weight, fp32, its first: two experts are always equal. */
static void repeat_row(bench *b, uint32_t cols)
{
    float *values = b->weights[b->weight_count - 1].bytes[0];
    memcpy(values + cols, values, cols * sizeof *values);
}

/* The experts' other linear, which has biases where the router has one. */
static lw_ref record_wide(bench *b, lw_rng *rng, size_t i, lw_ref x, lw_ref route)
{
    const lw_ops_form plain = { LW_MAP_FP32, 32, 0, 0, LW_DTYPE_F32, false, 0, 0, false };
    const uint32_t members = cases[i].route.experts, up[] = { MIDDLE, COLS }, one[] = { 1, MIDDLE };
    const lw_wref w = formed(b, rng, &cases[i].up, members, up);
    if (!cases[i].has_bias) return lw_plan_expert_linear(&b->plan, x, route, w);
    const lw_ref sums = lw_plan_expert_linear_f32(&b->plan, x, route, w);
    return lw_plan_expert_bias(&b->plan, sums, route, formed(b, rng, &plain, members, one));
}

static void record_experts(bench *b, lw_rng *rng)
{
    lw_plan *p = &b->plan;
    lw_plan_entry_begin(p, "main");
    lw_ref x = lw_plan_embed(p, dense(b, rng, VOCAB, COLS));
    for (size_t i = 0; i < CASES; i++) {
        const lw_route_params *params = &cases[i].route;
        const uint32_t members = params->experts, up[] = { MIDDLE, COLS }, down[] = { COLS, MIDDLE };
        const lw_wref router = i % 2 == 0 ? vector(b, rng, members, COLS) : dense(b, rng, members, COLS);
        if (!cases[i].has_bias) repeat_row(b, COLS);
        const lw_ref logits = lw_plan_linear(p, x, router, LW_TYPE_F32);
        const lw_wref bias = cases[i].has_bias ? vector(b, rng, 1, members) : (lw_wref){ LW_NONE };
        const lw_ref route = lw_plan_route(p, logits, bias, params);
        const lw_ref gate = lw_plan_expert_linear(p, x, route, formed(b, rng, &cases[i].up, members, up));
        const lw_ref wide = record_wide(b, rng, i, x, route);
        const lw_ref both = lw_plan_swiglu(p, gate, lw_plan_relu2(p, wide));
        const lw_ref out =
            lw_plan_expert_linear(p, both, route, formed(b, rng, &cases[i].down, members, down));
        const lw_wref norm = vector(b, rng, 1, COLS);
        x = lw_plan_rms_norm(p, lw_plan_expert_sum(p, out, route), norm, 1e-5f, LW_NORM_ONCE);
    }
    const lw_ref wanted = lw_plan_take_wanted(p, x);
    lw_plan_entry_end(p, lw_plan_linear(p, wanted, dense(b, rng, VOCAB, COLS), LW_TYPE_F32));
}

/* What a value held for a slot of a position. */
static const float *slot_held(const bench *b, const kept *k, lw_ref x, spot at, uint32_t slot)
{
    const lw_value *v = &b->plan.values[x.index];
    return (*k)[x.index][at.lane] + (at.position * v->slots + slot) * v->width;
}

static spot spot_any(lw_rng *rng)
{
    return (spot){ lw_rng_below(rng, LANES), lw_rng_below(rng, LENGTH), 0 };
}

/* ---- what each op means ---- */

typedef enum slip { NO_SLIP, OTHER_LANE, OTHER_EXPERT } slip;

static double linear_worst(const bench *b, const kept *k, const lw_op *op, lw_rng *rng, slip wrong)
{
    const lw_weight *w = &b->plan.weights[op->weights[0].index];
    const uint32_t top = b->plan.values[op->out.index].slots, x_slots = b->plan.values[op->in[0].index].slots;
    double most = 0;
    for (int n = 0; n < CHECKED; n++) {
        const spot at = spot_any(rng), from = { wrong == OTHER_LANE ? 1 - at.lane : at.lane, at.position, 0 };
        const uint32_t slot = (uint32_t)lw_rng_below(rng, top), row = (uint32_t)lw_rng_below(rng, w->rows);
        const uint32_t chosen = (uint32_t)held(b, k, op->in[1], at)[slot];
        const uint32_t member = (chosen + (wrong == OTHER_EXPERT)) % w->stack_count;
        const product_terms t =
            product_of(w, member, row, slot_held(b, k, op->in[0], at, x_slots == top ? slot : 0));
        const meaning m = { t.sum, product_roundings(w) * REF_EPS_F32 * t.size, false };
        most = fmax(most,
                    error_of(&b->plan.values[op->out.index], slot_held(b, k, op->out, from, slot)[row], m));
    }
    return most;
}

static double sum_worst(const bench *b, const kept *k, const lw_op *op, lw_rng *rng, slip wrong)
{
    const lw_value *v = &b->plan.values[op->out.index];
    const uint32_t slots = b->plan.values[op->in[0].index].slots;
    double most = 0;
    for (int n = 0; n < CHECKED; n++) {
        const spot at = spot_any(rng), from = { wrong == OTHER_LANE ? 1 - at.lane : at.lane, at.position, 0 };
        const size_t column = lw_rng_below(rng, v->width);
        double sum = 0, size = 0;
        for (uint32_t slot = 0; slot < slots; slot++) {
            const uint32_t of = wrong == OTHER_EXPERT ? (slot + 1) % slots : slot;
            const double term = (double)held(b, k, op->in[1], at)[slots + of]
                * (double)slot_held(b, k, op->in[0], at, slot)[column];
            sum += term;
            size += fabs(term);
        }
        const meaning m = { sum, (double)(slots + 1) * REF_EPS_F32 * size, false };
        most = fmax(most, error_of(v, held(b, k, op->out, from)[column], m));
    }
    return most;
}

static double bias_worst(const bench *b, const kept *k, const lw_op *op, lw_rng *rng, slip wrong)
{
    const lw_value *v = &b->plan.values[op->out.index];
    const lw_weight *w = &b->plan.weights[op->weights[0].index];
    double most = 0;
    for (int n = 0; n < CHECKED; n++) {
        const spot at = spot_any(rng), from = { wrong == OTHER_LANE ? 1 - at.lane : at.lane, at.position, 0 };
        const uint32_t slot = (uint32_t)lw_rng_below(rng, v->slots);
        const size_t column = lw_rng_below(rng, v->width);
        const uint32_t chosen = (uint32_t)held(b, k, op->in[1], at)[slot];
        const uint32_t member = (chosen + (wrong == OTHER_EXPERT)) % w->stack_count;
        float biases[MIDDLE];
        lw_weight_dense(w, member, 0, biases);
        const double x = (double)slot_held(b, k, op->in[0], at, slot)[column];
        const double sum = x + (double)biases[column];
        const meaning m = { sum, REF_EPS_F32 * fabs(sum), false };
        most = fmax(most, error_of(v, slot_held(b, k, op->out, from, slot)[column], m));
    }
    return most;
}

/* ---- routers ---- */

/* Rows whose route is not the reference's: other ids where no two scores are close, or weights beyond a
 * bound. */
static size_t routes_wrong(const bench *b, const kept *k, const lw_op *op, ref_route_mistake wrongly,
                           size_t *unclear)
{
    const lw_route_params *p = &op->p.route;
    double logits[REF_EXPERTS_MAX], bias[REF_EXPERTS_MAX], weights[REF_EXPERTS_MAX];
    size_t ids[REF_EXPERTS_MAX], wrong = 0;
    const bool biased = op->weights[0].index != LW_NONE;
    for (size_t e = 0; biased && e < p->experts; e++) bias[e] = number_of(b, op->weights[0], e);
    const ref_router router = { p->kind == LW_ROUTER_SOFTMAX, p->experts, p->top, p->groups, p->top_groups,
                                biased ? bias : NULL, p->normalise, (double)p->scale, wrongly };
    *unclear = 0;
    for (size_t n = 0; n < LANES * LENGTH; n++) {
        const spot at = { n / LENGTH, n % LENGTH, 0 };
        const float *given = held(b, k, op->in[0], at), *got = held(b, k, op->out, at);
        double spread = 0;
        for (size_t e = 0; e < p->experts; e++) logits[e] = (double)given[e];
        for (size_t e = 0; e < p->experts; e++) spread = fmax(spread, fabs(logits[e]));
        if (ref_route(&router, logits, ids, weights) < 1e-6) {
            *unclear += 1;
            continue;
        }
        bool same = true;
        /* A score has a few eps and, of softmax, its logit's; then the sum of the chosen, quotient and scale.
         */
        const double bound = (4 * spread + (double)p->experts / 64 + (double)p->top + 32) * REF_EPS_F32;
        for (size_t i = 0; i < p->top; i++)
            same = same && got[i] == (float)ids[i]
                && fabs((double)got[p->top + i] - weights[i]) <= bound * fabs(weights[i]);
        wrong += same ? 0 : 1;
    }
    return wrong;
}

static void check_router(const bench *b, const kept *k, const lw_op *op)
{
    const lw_route_params *p = &op->p.route;
    size_t unclear, wrong = routes_wrong(b, k, op, REF_ROUTE_RIGHT, &unclear);
    if (wrong > 0) fail_msg("%u experts: %zu rows are routed otherwise", p->experts, wrong);
    if (unclear > LANES * LENGTH / 2) fail_msg("%u experts: %zu rows tell nothing", p->experts, unclear);
    const bool can[REF_ROUTE_MISTAKE_COUNT] = {
        [REF_ROUTE_TIES_UP] = op->weights[0].index == LW_NONE,
        [REF_ROUTE_NO_GROUPS] = p->groups > 1,
        [REF_ROUTE_BIASED_WEIGHTS] = op->weights[0].index != LW_NONE,
        [REF_ROUTE_ALL_SHARES] = p->kind == LW_ROUTER_SOFTMAX || p->normalise,
    };
    for (int m = REF_ROUTE_RIGHT + 1; m < REF_ROUTE_MISTAKE_COUNT; m++) {
        if (can[m] && routes_wrong(b, k, op, (ref_route_mistake)m, &unclear) == 0)
            fail_msg("%u experts: planted mistake %d passes", p->experts, m);
    }
}

typedef double (*worst_of)(const bench *, const kept *, const lw_op *, lw_rng *, slip);

static void check_op(const bench *b, const kept *k, const lw_op *op, lw_rng *rng)
{
    const worst_of of = op->kind == LW_OP_EXPERT_LINEAR ? linear_worst
        : op->kind == LW_OP_EXPERT_BIAS                 ? bias_worst
                                                        : sum_worst;
    const double error = of(b, k, op, rng, NO_SLIP);
    const char *name = lw_op_table[op->kind].name;
    if (!(error <= 1)) fail_msg("op %td, %s: %g of its bound", op - b->plan.ops, name, error);
    for (slip wrong = OTHER_LANE; wrong <= OTHER_EXPERT; wrong++) {
        if (!(of(b, k, op, rng, wrong) > 1))
            fail_msg("op %td, %s: planted mistake %d passes", op - b->plan.ops, name, (int)wrong);
    }
}

static void check_experts(bool has_dpas)
{
    xpu_kind_set(has_dpas);
    lw_rng rng = law_rng(0x711);
    xpu_bench *x = xpu_bench_open(record_experts, &rng);
    bench *b = x->b;
    kept *alone = kept_make(b);
    streams_run(b, alone, &rng, 1, LENGTH, ALONE);
    for (uint32_t i = 0; i < b->plan.op_count; i++) {
        const lw_op *op = &b->plan.ops[i];
        if (op->kind == LW_OP_ROUTE) check_router(b, alone, op);
        if (op->kind == LW_OP_EXPERT_LINEAR || op->kind == LW_OP_EXPERT_BIAS || op->kind == LW_OP_EXPERT_SUM)
            check_op(b, alone, op, &rng);
    }
    check_law(b, &rng, alone);
    kept_free(b, alone);
    xpu_bench_close(x);
}

static void experts_keep_their_law_and_meaning(void **state)
{
    (void)state;
    check_experts(false);
}

static void experts_by_dpas_keep_their_law_and_meaning(void **state)
{
    (void)state;
    check_experts(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(experts_keep_their_law_and_meaning),
                                        cmocka_unit_test(experts_by_dpas_keep_their_law_and_meaning) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
