/* The cases of `lanewise check --ops`: plans around one op, and how far each may be off; see check_ops.h.
 * Every input is a view of an embedded bf16 row, so that it has the same bits on all devices, and what comes
 * out is off by the op alone.
 */
#include "cli/check_ops.h"

#include <math.h>

const lw_ops_bound lw_ops_bounds[LW_OP_COUNT + 1] = {
    [LW_OP_EMBED] = { 0, 0, false, "an exact value, rounded once" },
    [LW_OP_WIDEN] = { 0, 0, false, "nothing is computed" },
    [LW_OP_RMS_NORM] = { 2, 0x1p-20, false, "sums of squares in other orders; two roundings" },
    [LW_OP_LINEAR] = { 0, 0x1p-16, false, "chains of up to 128 and slices in other orders" },
    [LW_OP_ADD] = { 0, 0, false, "one addition" },
    [LW_OP_MUL] = { 0, 0, false, "the product of two bf16 is exact in fp32" },
    [LW_OP_SWIGLU] = { 1, 0x1p-20, false, "an exp of the device's own" },
    [LW_OP_ROPE] = { 1, 0x1p-20, false, "two products, whose sum may cancel" },
    [LW_OP_KV_STORE] = { 0, 0, false, "nothing is computed" },
    [LW_OP_ATTEND] = { 1, 0x1p-14, false, "scores, exp and both sums in other orders" },
    [LW_OP_HEAD_GATE] = { 1, 0x1p-20, false, "an exp of the device's own" },
    [LW_OP_SHORT_CONV] = { 1, 0x1p-20, false, "taps may be fused or not; an exp of the device's own" },
    [LW_OP_NORM_GATE] = { 1, 0x1p-18, false, "sums of squares in other orders; an exp" },
    [LW_OP_BIAS] = { 0, 0, false, "one addition" },
    [LW_OP_RELU2] = { 0, 0, false, "the square of a bf16 is exact in fp32" },
    [LW_OP_CONCAT] = { 0, 0, false, "nothing is computed" },
    [LW_OP_TAKE_HEADS] = { 0, 0, false, "nothing is computed" },
    [LW_OP_TAIL_STORE] = { 0, 0, false, "nothing is computed" },
    [LW_OP_TAIL_BEFORE] = { 0, 0, false, "nothing is computed" },
    [LW_OP_GATED_DELTA] = { 1, 0x1p-12, false, "up to 64 steps that build on each other" },
    [LW_OP_SSM] = { 1, 0x1p-12, false, "up to 64 terms, and a state of their sums" },
    [LW_OP_ROUTE] = { 0, 0x1p-17, true, "a softmax's sum in other orders, an exp; ids are exact" },
    [LW_OP_EXPERT_LINEAR] = { 1, 0x1p-16, false, "as linear, rounded to bf16" },
    [LW_OP_EXPERT_BIAS] = { 0, 0, false, "one addition" },
    [LW_OP_EXPERT_SUM] = { 1, 0x1p-14, false, "weights as route's, one rounding" },
    [LW_OP_TAKE_WANTED] = { 0, 0, false, "nothing is computed" },
    [LW_OP_COUNT] = { 0, 0x1p-4, false, "a layer's roundings, each of which may fall the other way" },
};

static const lw_ops_form bf16_form = { LW_MAP_BF16, 16, 0, 0, LW_DTYPE_BF16, false, 0, 0, false };
static const lw_ops_form fp32_form = { LW_MAP_FP32, 32, 0, 0, LW_DTYPE_F32, false, 0, 0, false };

static lw_wref stack_made(lw_ops_plan *p, const lw_ops_form *form, const uint32_t shape[3])
{
    lw_wref out = { LW_NONE };
    LW_ASSERT(p->plan.weight_count < LW_OPS_WEIGHTS_MAX);
    lw_ops_weight *made = &p->weights[p->plan.weight_count];
    const lw_status status = lw_ops_weight_make(&p->plan, &p->rng, form, shape, made, &out, p->d);
    if (p->status == LW_OK) p->status = status;
    return out;
}

static lw_wref made(lw_ops_plan *p, const lw_ops_form *form, uint32_t rows, uint32_t cols)
{
    return stack_made(p, form, (const uint32_t[]){ 1, rows, cols });
}

static lw_wref vector(lw_ops_plan *p, uint32_t count) { return made(p, &fp32_form, 1, count); }

/* The row of a token, which everything is a view of. */
static lw_ref row(lw_ops_plan *p, uint32_t width)
{
    lw_plan_entry_begin(&p->plan, "main");
    return lw_plan_embed(&p->plan, made(p, &bf16_form, LW_OPS_TOKENS, width));
}

static lw_ref part(lw_ops_plan *p, lw_ref x, uint32_t offset, uint32_t width)
{
    return lw_plan_view(&p->plan, x, offset, width);
}

/* Part of x that a control plants a number in the first column of. */
static lw_ref input(lw_ops_plan *p, lw_ref x, uint32_t offset, uint32_t width)
{
    LW_ASSERT(p->probe_count < LW_OPS_PROBES_MAX);
    p->probes[p->probe_count++] = offset;
    return part(p, x, offset, width);
}

/* The op recorded last is the one to look at; logits that nobody reads end the plan. */
static void end(lw_ops_plan *p, lw_ref x)
{
    enum { WIDTH = 16, LOGITS = 16 };
    p->observed = p->plan.op_count - 1;
    const lw_ref wanted = lw_plan_take_wanted(&p->plan, part(p, x, 0, WIDTH));
    lw_plan_entry_end(&p->plan,
                      lw_plan_linear(&p->plan, wanted, made(p, &bf16_form, LOGITS, WIDTH), LW_TYPE_F32));
}

/* ---- weights of every form ---- */

/* a columns */
static void record_embed(lw_ops_plan *p, const lw_ops_case *c)
{
    lw_plan_entry_begin(&p->plan, "main");
    end(p, lw_plan_embed(&p->plan, made(p, &c->weight, LW_OPS_TOKENS, c->a)));
}

/* a columns to b */
static void record_linear(lw_ops_plan *p, const lw_ops_case *c)
{
    const lw_ref x = row(p, c->a + 16);
    lw_plan_linear(&p->plan, input(p, x, 2, c->a), made(p, &c->weight, c->b, c->a), LW_TYPE_F32);
    end(p, x);
}

/* a experts of which b are chosen, c columns to e */
static void record_expert_linear(lw_ops_plan *p, const lw_ops_case *c)
{
    const lw_route_params params = { LW_ROUTER_SOFTMAX, c->a, c->b, 1, 1, true, 1.0f };
    const uint32_t up[] = { c->a, c->e, c->c };
    const lw_ref x = row(p, c->a + c->c + 16);
    const lw_ref logits = lw_plan_widen(&p->plan, part(p, x, c->c, c->a));
    const lw_ref route = lw_plan_route(&p->plan, logits, (lw_wref){ LW_NONE }, &params);
    lw_plan_expert_linear(&p->plan, input(p, x, 0, c->c), route, stack_made(p, &c->weight, up));
    end(p, x);
}

/* ---- rows by themselves ---- */

static void record_widen(lw_ops_plan *p, const lw_ops_case *c)
{
    const lw_ref x = row(p, 64);
    lw_plan_widen(&p->plan, input(p, x, c->a, 45));
    end(p, x);
}

/* a columns, segments of b, c the scale, e: fp32 */
static void record_norm(lw_ops_plan *p, const lw_ops_case *c)
{
    const lw_ref x = row(p, c->a), of = input(p, x, 0, c->a);
    const lw_ref in = c->e ? lw_plan_widen(&p->plan, of) : of;
    lw_plan_rms_norm(&p->plan, in, vector(p, c->b), 1e-5f, (lw_norm_scale)c->c);
    end(p, x);
}

/* a columns, segments of b, weights of c, e: gate first */
static void record_norm_gate(lw_ops_plan *p, const lw_ops_case *c)
{
    const lw_ref x = row(p, 2 * c->a), of = input(p, x, 0, c->a), gate = input(p, x, c->a, c->a);
    lw_plan_norm_gate(&p->plan, of, gate, vector(p, c->c), (lw_norm_gate){ c->b, 1e-5f, c->e != 0 });
    end(p, x);
}

/* a columns; of add, b: the first is fp32 */
static void record_pair(lw_ops_plan *p, const lw_ops_case *c)
{
    const lw_ref x = row(p, 2 * c->a), second = input(p, x, c->a, c->a);
    lw_ref first = input(p, x, 0, c->a);
    if (c->b != 0) first = lw_plan_widen(&p->plan, first);
    if (c->op == LW_OP_ADD) lw_plan_add(&p->plan, first, second);
    if (c->op == LW_OP_MUL) lw_plan_mul(&p->plan, first, second);
    if (c->op == LW_OP_SWIGLU) lw_plan_swiglu(&p->plan, first, second);
    if (c->op == LW_OP_CONCAT) lw_plan_concat(&p->plan, first, second);
    end(p, x);
}

static void record_bias(lw_ops_plan *p, const lw_ops_case *c)
{
    const lw_ref x = row(p, c->a);
    lw_plan_bias(&p->plan, lw_plan_widen(&p->plan, input(p, x, 0, c->a)), vector(p, c->a));
    end(p, x);
}

static void record_relu2(lw_ops_plan *p, const lw_ops_case *c)
{
    const lw_ref x = row(p, c->a);
    lw_plan_relu2(&p->plan, input(p, x, 0, c->a));
    end(p, x);
}

/* a heads of b columns, of which e from c on */
static void record_take_heads(lw_ops_plan *p, const lw_ops_case *c)
{
    const lw_ref x = row(p, c->a * c->b);
    p->probes[p->probe_count++] = c->c;
    lw_plan_take_heads(&p->plan, x, (lw_head_columns){ c->a, c->b, c->c, c->e });
    end(p, x);
}

static void record_take_wanted(lw_ops_plan *p, const lw_ops_case *c)
{
    const lw_ref x = row(p, c->a), of = input(p, x, 0, c->a);
    lw_plan_take_wanted(&p->plan, c->b != 0 ? lw_plan_widen(&p->plan, of) : of);
    end(p, x);
}

/* a heads of b columns, c pairs of them turn */
static void record_rope(lw_ops_plan *p, const lw_ops_case *c)
{
    double frequency[LW_ROPE_HALF_MAX];
    for (uint32_t i = 0; i < c->c; i++) frequency[i] = pow(10000.0, -(double)i / (double)c->c);
    const lw_ref x = row(p, c->a * c->b);
    const uint32_t table = lw_plan_rope_table(&p->plan, frequency, c->c);
    lw_plan_rope(&p->plan, input(p, x, 0, c->a * c->b), c->a, table);
    end(p, x);
}

/* a columns, b gates */
static void record_head_gate(lw_ops_plan *p, const lw_ops_case *c)
{
    const lw_ref x = row(p, c->a + c->b), of = input(p, x, 0, c->a);
    lw_plan_head_gate(&p->plan, of, input(p, x, c->a, c->b));
    end(p, x);
}

/* a experts, b chosen, c groups of which e are open; more than one group: sigmoid with a bias */
static void record_route(lw_ops_plan *p, const lw_ops_case *c)
{
    const bool sigmoid = c->c > 1;
    const lw_route_params params = { sigmoid ? LW_ROUTER_SIGMOID : LW_ROUTER_SOFTMAX, c->a, c->b, c->c, c->e,
                                     sigmoid, 2.5f };
    const lw_ref x = row(p, c->a + 16);
    const lw_ref logits = lw_plan_widen(&p->plan, input(p, x, 0, c->a));
    lw_plan_route(&p->plan, logits, sigmoid ? vector(p, c->a) : (lw_wref){ LW_NONE }, &params);
    end(p, x);
}

/* a experts, b chosen; what is summed, or gets its bias, are products of two numbers, the same on all devices
 */
static void record_expert_rows(lw_ops_plan *p, const lw_ops_case *c)
{
    enum { WIDTH = 24 };
    const lw_route_params params = { LW_ROUTER_SOFTMAX, c->a, c->b, 1, 1, true, 1.0f };
    const uint32_t one[] = { c->a, WIDTH, 1 }, biases[] = { c->a, 1, WIDTH };
    const lw_ref x = row(p, c->a + 16), logits = lw_plan_widen(&p->plan, input(p, x, 1, c->a));
    const lw_ref route = lw_plan_route(&p->plan, logits, (lw_wref){ LW_NONE }, &params);
    const lw_ref of = input(p, x, 0, 1);
    const lw_wref stack = stack_made(p, &bf16_form, one);
    if (c->op == LW_OP_EXPERT_SUM) {
        lw_plan_expert_sum(&p->plan, lw_plan_expert_linear(&p->plan, of, route, stack), route);
    } else {
        const lw_ref each = lw_plan_expert_linear_f32(&p->plan, of, route, stack);
        lw_plan_expert_bias(&p->plan, each, route, stack_made(p, &fp32_form, biases));
    }
    end(p, x);
}

/* ---- rows that look back ---- */

/* a heads, b of keys, c columns each, e: 0 all keys, 1 from position 1 on, else a window */
static void record_attend(lw_ops_plan *p, const lw_ops_case *c)
{
    const uint32_t q = c->a * c->c, k = c->b * c->c;
    const lw_sref kv = lw_plan_state_kv(&p->plan, "kv", c->b, c->c, c->e > 1 ? c->e : 0);
    const lw_ref x = row(p, q + 2 * k), of = input(p, x, 0, q);
    lw_plan_kv_store(&p->plan, kv, input(p, x, q, k), input(p, x, q + k, k));
    lw_plan_attend_from(&p->plan, kv, of, (lw_attention){ c->a, c->e == 1, 1.0f / sqrtf((float)c->c) });
    end(p, x);
}

/* A window of one key, whose weight is exactly 1: what was stored comes out. */
static void record_kv_store(lw_ops_plan *p, const lw_ops_case *c)
{
    const lw_sref kv = lw_plan_state_kv(&p->plan, "kv", c->a, c->b, 1);
    const uint32_t k = c->a * c->b;
    const lw_ref x = row(p, 3 * k);
    lw_plan_kv_store(&p->plan, kv, part(p, x, k, k), input(p, x, 2 * k, k));
    lw_plan_attend(&p->plan, kv, part(p, x, 0, k), c->a, 0.25f);
    end(p, x);
}

static void record_attend_int8(lw_ops_plan *p, const lw_ops_case *c)
{
    record_attend(p, c);
    lw_plan_keep_kv(&p->plan, LW_KV_INT8);
}

static void record_kv_store_int8(lw_ops_plan *p, const lw_ops_case *c)
{
    record_kv_store(p, c);
    lw_plan_keep_kv(&p->plan, LW_KV_INT8);
}

/* a columns */
static void record_tail(lw_ops_plan *p, const lw_ops_case *c)
{
    const lw_sref tail = lw_plan_state_tail(&p->plan, "tail", c->a, 2);
    const lw_ref x = row(p, c->a);
    lw_plan_tail_store(&p->plan, tail, input(p, x, 0, c->a));
    lw_plan_tail_before(&p->plan, tail);
    end(p, x);
}

/* a columns, b taps, c: silu, with a bias where it is 2 */
static void record_conv(lw_ops_plan *p, const lw_ops_case *c)
{
    const lw_sref state = lw_plan_state_tail(&p->plan, "conv", c->a, c->b);
    const lw_ref x = row(p, c->a + 8), of = input(p, x, 8, c->a);
    const lw_wref taps = made(p, c->c == 0 ? &bf16_form : &fp32_form, c->a, c->b);
    if (c->c == 0) lw_plan_short_conv(&p->plan, state, of, taps);
    else lw_plan_conv_silu(&p->plan, state, of, taps, c->c == 2 ? vector(p, c->a) : (lw_wref){ LW_NONE });
    end(p, x);
}

/* a key heads of b columns, c value heads of e */
static void record_recurrence(lw_ops_plan *p, const lw_ops_case *c)
{
    lw_plan *plan = &p->plan;
    const uint32_t width = 2 * c->a * c->b + c->c * c->e;
    const lw_recurrence state =
        lw_plan_recurrence(plan, "state", (lw_heads){ c->a, c->b }, (lw_heads){ c->c, c->e });
    const lw_ref x = row(p, width + 2 * c->c), of = input(p, x, 0, width);
    const lw_ref step = input(p, x, width, c->c);
    const lw_wref a_log = vector(p, c->c), dt_bias = vector(p, c->c);
    if (c->op == LW_OP_GATED_DELTA) {
        const lw_ref write = input(p, x, width + c->c, c->c);
        lw_plan_gated_delta(plan, state, (lw_delta_inputs){ of, step, write }, a_log, dt_bias);
    } else {
        const lw_ssm_weights weights = { a_log, vector(p, c->c), dt_bias, 0.001f, 5.0f };
        lw_plan_ssm(plan, state, (lw_ssm_inputs){ of, step }, &weights);
    }
    end(p, x);
}

/* ---- a layer of everything that devices fuse ---- */

static lw_ref layer_heads(lw_ops_plan *p, lw_ref x, lw_wref norm, uint32_t heads, uint32_t table)
{
    const lw_ref normed = lw_plan_rms_norm(&p->plan, x, norm, 1e-5f, LW_NORM_ONCE);
    return lw_plan_rope(&p->plan, normed, heads, table);
}

static lw_ref layer_linear(lw_ops_plan *p, const lw_ops_case *c, lw_ref x, uint32_t rows, uint32_t cols)
{
    return lw_plan_linear(&p->plan, x, made(p, &c->weight, rows, cols), LW_TYPE_BF16);
}

/* a columns, b heads of c columns, one of keys, e columns within; the logits are what is looked at */
static void record_layer(lw_ops_plan *p, const lw_ops_case *c)
{
    lw_plan *plan = &p->plan;
    double frequency[LW_ROPE_HALF_MAX];
    for (uint32_t i = 0; i < c->c / 2; i++) frequency[i] = pow(10000.0, -2.0 * (double)i / (double)c->c);
    const uint32_t table = lw_plan_rope_table(plan, frequency, c->c / 2), width = c->b * c->c;
    const lw_sref kv = lw_plan_state_kv(plan, "kv", 1, c->c, 0);
    const lw_ref x = row(p, c->a);
    p->probes[p->probe_count++] = 0;
    const lw_wref norm = vector(p, c->a), head_norm = vector(p, c->c);
    lw_ref h = lw_plan_rms_norm(plan, x, norm, 1e-5f, LW_NORM_ONCE);
    const lw_ref q = layer_linear(p, c, h, width, c->a), k = layer_linear(p, c, h, c->c, c->a);
    const lw_ref v = layer_linear(p, c, h, c->c, c->a);
    const lw_ref turned = layer_heads(p, q, head_norm, c->b, table);
    lw_plan_kv_store(plan, kv, layer_heads(p, k, head_norm, 1, table), v);
    const lw_ref seen = lw_plan_attend(plan, kv, turned, c->b, 1.0f / sqrtf((float)c->c));
    const lw_ref sum = lw_plan_add(plan, x, layer_linear(p, c, seen, c->a, width));
    h = lw_plan_rms_norm(plan, sum, norm, 1e-5f, LW_NORM_ONCE);
    const lw_ref gate = layer_linear(p, c, h, c->e, c->a), up = layer_linear(p, c, h, c->e, c->a);
    const lw_ref down = layer_linear(p, c, lw_plan_swiglu(plan, gate, up), c->a, c->e);
    h = lw_plan_rms_norm(plan, lw_plan_add(plan, sum, down), norm, 1e-5f, LW_NORM_ONCE);
    const lw_ref wanted = lw_plan_take_wanted(plan, h);
    lw_plan_entry_end(plan, lw_plan_linear(plan, wanted, made(p, &c->weight, 32, c->a), LW_TYPE_F32));
    p->observed = plan->op_count - 1;
}

/* ---- all cases ---- */

/* Forms in which checkpoints come, a table of each where devices have one. */
#define LINEAR(cols, ...) { LW_OP_LINEAR, NULL, record_linear, 72, cols, 19, 0, 0, { __VA_ARGS__ } }
#define EMBED(cols, ...) { LW_OP_EMBED, NULL, record_embed, 72, cols, 0, 0, 0, { __VA_ARGS__ } }
#define EXPERT(experts, top, cols, ...) \
    { LW_OP_EXPERT_LINEAR, NULL, record_expert_linear, 72, experts, top, cols, 24, { __VA_ARGS__ } }
#define OP(kind, form, record, length, ...) { LW_OP_##kind, form, record, length, __VA_ARGS__, { .bits = 0 } }

const lw_ops_case lw_ops_cases[] = {
    EMBED(64, LW_MAP_BF16, 16, 0, 0, LW_DTYPE_BF16, false, 0, 0, false),
    EMBED(64, LW_MAP_FP16, 16, 0, 0, LW_DTYPE_BF16, false, 0, 0, false),
    EMBED(64, LW_MAP_FP32, 32, 0, 0, LW_DTYPE_F32, false, 0, 0, false),
    EMBED(128, LW_MAP_INTEGER, 4, 64, 0, LW_DTYPE_BF16, true, 0, 0, false),
    EMBED(128, LW_MAP_INTEGER, 6, 64, 0, LW_DTYPE_BF16, true, 0, 0, false),
    EMBED(128, LW_MAP_INTEGER, 8, 32, 0, LW_DTYPE_F16, true, 0, 0, false),
    EMBED(128, LW_MAP_E4M3, 8, 128, 16, LW_DTYPE_F32, false, 0, 0, false),
    EMBED(64, LW_MAP_E4M3, 8, 0, 0, LW_DTYPE_F32, false, 0, 0.013f, false),
    EMBED(128, LW_MAP_TABLE16, 4, 16, 0, LW_DTYPE_F8_E4M3, false, 0, 0.37f, false),
    EMBED(128, LW_MAP_TABLE16, 4, 16, 0, LW_DTYPE_F8_E4M3, false, 0, 3.7f, true),
    LINEAR(20, LW_MAP_BF16, 16, 0, 0, LW_DTYPE_BF16, false, 0, 0, false),
    LINEAR(768, LW_MAP_BF16, 16, 0, 0, LW_DTYPE_BF16, false, 0, 0, false),
    LINEAR(77, LW_MAP_FP16, 16, 0, 0, LW_DTYPE_BF16, false, 0, 0, false),
    LINEAR(650, LW_MAP_FP32, 32, 0, 0, LW_DTYPE_F32, false, 0, 0, false),
    LINEAR(192, LW_MAP_INTEGER, 2, 32, 0, LW_DTYPE_BF16, true, 0, 0, false),
    LINEAR(192, LW_MAP_INTEGER, 3, 64, 0, LW_DTYPE_BF16, true, 0, 0, false),
    LINEAR(192, LW_MAP_INTEGER, 4, 32, 0, LW_DTYPE_F16, true, 0, 0, false),
    LINEAR(768, LW_MAP_INTEGER, 4, 64, 0, LW_DTYPE_BF16, true, 0, 0, false),
    LINEAR(192, LW_MAP_INTEGER, 4, 64, 0, LW_DTYPE_F32, true, 0, 0, false),
    LINEAR(256, LW_MAP_INTEGER, 4, 128, 0, LW_DTYPE_F16, false, -8, 0, false),
    LINEAR(96, LW_MAP_INTEGER, 5, 32, 0, LW_DTYPE_BF16, true, 0, 0, false),
    LINEAR(192, LW_MAP_INTEGER, 6, 64, 0, LW_DTYPE_BF16, true, 0, 0, false),
    LINEAR(512, LW_MAP_INTEGER, 8, 64, 0, LW_DTYPE_BF16, true, 0, 0, false),
    LINEAR(200, LW_MAP_INTEGER, 8, 200, 0, LW_DTYPE_BF16, false, -128, 0, false),
    LINEAR(208, LW_MAP_TABLE16, 4, 16, 0, LW_DTYPE_F8_E4M3, false, 0, 0.37f, false),
    LINEAR(48, LW_MAP_TABLE16, 4, 16, 0, LW_DTYPE_F8_E4M3, false, 0, 3.7f, true),
    LINEAR(200, LW_MAP_E4M3, 8, 128, 128, LW_DTYPE_F32, false, 0, 0, false),
    LINEAR(768, LW_MAP_E4M3, 8, 128, 8, LW_DTYPE_BF16, false, 0, 0, false),
    LINEAR(328, LW_MAP_E4M3, 8, 328, 0, LW_DTYPE_F32, false, 0, 0, false),
    LINEAR(76, LW_MAP_E4M3, 8, 0, 0, LW_DTYPE_F32, false, 0, 0.013f, false),
    EXPERT(5, 2, 64, LW_MAP_INTEGER, 4, 32, 0, LW_DTYPE_BF16, true, 0, 0, false),
    EXPERT(12, 3, 128, LW_MAP_E4M3, 8, 128, 128, LW_DTYPE_F32, false, 0, 0, false),
    EXPERT(40, 8, 64, LW_MAP_BF16, 16, 0, 0, LW_DTYPE_BF16, false, 0, 0, false),
    EXPERT(8, 2, 80, LW_MAP_TABLE16, 4, 16, 0, LW_DTYPE_F8_E4M3, false, 0, 0.3f, false),
    OP(WIDEN, "bf16 to fp32", record_widen, 16, 9, 0, 0, 0),
    OP(RMS_NORM, "w * bf(r)", record_norm, 72, 96, 96, LW_NORM_TWICE, 0),
    OP(RMS_NORM, "w * r, fp32", record_norm, 72, 1000, 1000, LW_NORM_ONCE, 1),
    OP(RMS_NORM, "(1 + w) * r, heads", record_norm, 72, 192, 64, LW_NORM_UNIT, 0),
    OP(ADD, "bf16", record_pair, 16, 45, 0, 0, 0),
    OP(ADD, "fp32", record_pair, 16, 45, 1, 0, 0),
    OP(MUL, "bf16", record_pair, 16, 45, 0, 0, 0),
    OP(SWIGLU, "bf16", record_pair, 72, 200, 0, 0, 0),
    OP(ROPE, "whole heads", record_rope, 72, 3, 64, 32, 0),
    OP(ROPE, "part of heads", record_rope, 72, 2, 64, 8, 0),
    OP(KV_STORE, "bf16", record_kv_store, 72, 2, 16, 0, 0),
    OP(KV_STORE, "int8", record_kv_store_int8, 72, 2, 96, 0, 0),
    OP(ATTEND, "heads of 64", record_attend, 72, 4, 2, 64, 0),
    OP(ATTEND, "heads of 256", record_attend, 72, 2, 1, 256, 0),
    OP(ATTEND, "window", record_attend, 140, 2, 1, 32, 70),
    OP(ATTEND, "from position 1", record_attend, 72, 3, 1, 16, 1),
    OP(ATTEND, "two chunks", record_attend, 530, 1, 1, 16, 0),
    OP(ATTEND, "int8, heads of 128", record_attend_int8, 72, 4, 1, 128, 0),
    OP(ATTEND, "int8, window", record_attend_int8, 140, 2, 1, 32, 70),
    OP(HEAD_GATE, "a gate a head", record_head_gate, 72, 96, 3, 0, 0),
    OP(HEAD_GATE, "a gate a column", record_head_gate, 72, 48, 48, 0, 0),
    OP(SHORT_CONV, "3 taps", record_conv, 72, 40, 3, 0, 0),
    OP(SHORT_CONV, "4 taps, silu", record_conv, 72, 40, 4, 1, 0),
    OP(SHORT_CONV, "4 taps, bias, silu", record_conv, 72, 40, 4, 2, 0),
    OP(NORM_GATE, "gate last", record_norm_gate, 72, 128, 32, 32, 0),
    OP(NORM_GATE, "gate first", record_norm_gate, 72, 128, 64, 128, 1),
    OP(BIAS, "fp32", record_bias, 16, 45, 0, 0, 0),
    OP(RELU2, "bf16", record_relu2, 16, 45, 0, 0, 0),
    OP(CONCAT, "bf16", record_pair, 16, 45, 0, 0, 0),
    OP(TAKE_HEADS, "bf16", record_take_heads, 16, 3, 15, 4, 7),
    OP(TAIL_STORE, "bf16", record_tail, 72, 45, 0, 0, 0),
    OP(TAIL_BEFORE, "bf16", record_tail, 140, 24, 0, 0, 0),
    OP(GATED_DELTA, "2 heads for a key head", record_recurrence, 140, 2, 32, 4, 32),
    OP(SSM, "4 heads for a key head", record_recurrence, 140, 1, 64, 4, 32),
    OP(ROUTE, "softmax, 2 of 16", record_route, 72, 16, 2, 1, 1),
    OP(ROUTE, "softmax, 8 of 300", record_route, 72, 300, 8, 1, 1),
    OP(ROUTE, "sigmoid, bias, 2 of 4 groups", record_route, 72, 12, 3, 4, 2),
    OP(EXPERT_BIAS, "3 of 9", record_expert_rows, 72, 9, 3, 0, 0),
    OP(EXPERT_SUM, "3 of 9", record_expert_rows, 72, 9, 3, 0, 0),
    OP(TAKE_WANTED, "bf16", record_take_wanted, 72, 45, 0, 0, 0),
    OP(TAKE_WANTED, "fp32", record_take_wanted, 72, 45, 1, 0, 0),
    { LW_OP_COUNT, "bf16", record_layer, 72, 64, 3, 32, 80,
      { LW_MAP_BF16, 16, 0, 0, LW_DTYPE_BF16, false, 0, 0, false } },
    { LW_OP_COUNT, "int4 group 64", record_layer, 72, 128, 4, 64, 192,
      { LW_MAP_INTEGER, 4, 64, 0, LW_DTYPE_BF16, true, 0, 0, false } },
};
const uint32_t lw_ops_case_count = sizeof lw_ops_cases / sizeof lw_ops_cases[0];

const char *lw_ops_case_name(const lw_ops_case *c)
{
    return c->op == LW_OP_COUNT ? "layer" : lw_op_table[c->op].name;
}

/* By the case's place among those of its op, so that cases of other ops may come and go. */
static uint64_t seed_of(uint32_t index)
{
    const lw_op_kind op = lw_ops_cases[index].op;
    uint64_t before = 0;
    for (uint32_t i = 0; i < index; i++) before += lw_ops_cases[i].op == op;
    return 0x0B63 + ((uint64_t)op << 8) + before;
}

lw_status lw_ops_plan_make(lw_ops_plan *p, uint32_t index, lw_diag *d)
{
    const lw_ops_case *c = &lw_ops_cases[index];
    LW_ASSERT(c->length <= LW_OPS_LENGTH_MAX);
    *p = (lw_ops_plan){ .rng = lw_rng_make(seed_of(index)), .d = d };
    const lw_status status = lw_plan_init(&p->plan, d);
    if (status != LW_OK) return status;
    c->record(p, c);
    return p->status;
}
