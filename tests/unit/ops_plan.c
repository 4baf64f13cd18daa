/* Plans as families record them: the shape, type and operands of every op's output, views, states and their
 * reach groups, rope tables, entries, and the bytes of a state's page.
 */
#include "ops/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

enum { VOCAB = 50, WIDTH = 24, EXPERTS = 8, TOP = 2 };

static void plan_open(lw_plan *plan)
{
    assert_int_equal(lw_plan_init(plan, NULL), LW_OK);
    lw_plan_entry_begin(plan, "main");
}

static lw_wref weight(lw_plan *plan, uint32_t rows, uint32_t cols)
{
    return lw_plan_weight(plan, &(lw_weight){ .name = "w", .stack_count = 1, .rows = rows, .cols = cols });
}

static lw_ref embed(lw_plan *plan)
{
    return lw_plan_embed(plan, weight(plan, VOCAB, WIDTH));
}

static const lw_value *value_of(const lw_plan *plan, lw_ref x)
{
    assert_true(x.index < plan->value_count);
    return &plan->values[x.index];
}

static const lw_op *last_op(const lw_plan *plan)
{
    return &plan->ops[plan->op_count - 1];
}

/* The last op is of this kind and x is its output: one vector a row of all rows, with storage of its own. */
static void check(const lw_plan *plan, lw_ref x, lw_op_kind kind, lw_type type, uint32_t width)
{
    const lw_value *v = value_of(plan, x);
    assert_int_equal(last_op(plan)->kind, kind);
    assert_int_equal(last_op(plan)->out.index, x.index);
    assert_int_equal(v->type, type);
    assert_int_equal(v->width, width);
    assert_int_equal(v->space, LW_SPACE_ROWS);
    assert_int_equal(v->slots, 1);
    assert_int_equal(v->base, x.index);
    assert_int_equal(v->offset, 0);
}

static void a_fresh_plan_is_empty(void **state)
{
    (void)state;
    lw_plan plan;
    memset(&plan, 0xAB, sizeof plan);
    assert_int_equal(lw_plan_init(&plan, NULL), LW_OK);
    assert_int_equal(plan.op_count + plan.value_count + plan.weight_count + plan.state_count, 0);
    assert_int_equal(plan.rope_count + plan.reach_count + plan.entry_count, 0);
    assert_non_null(plan.ops);
    lw_plan_deinit(&plan);
    assert_null(plan.ops);
    lw_plan_deinit(&plan);
}

static void every_op_has_its_facts(void **state)
{
    (void)state;
    for (int i = 0; i < LW_OP_COUNT; i++) {
        const lw_op_facts *facts = &lw_op_table[i];
        assert_non_null(facts->name);
        assert_true(strlen(facts->text) > 0);
        assert_true(facts->weight_count <= LW_OP_WEIGHTS_MAX && facts->input_count <= LW_OP_INPUTS_MAX);
        for (int j = 0; j < i; j++) assert_string_not_equal(facts->name, lw_op_table[j].name);
    }
}

static void elementwise_ops_keep_the_shape(void **state)
{
    (void)state;
    lw_plan p;
    plan_open(&p);
    const lw_ref x = embed(&p);
    check(&p, x, LW_OP_EMBED, LW_TYPE_BF16, WIDTH);
    const lw_ref y = lw_plan_add(&p, x, x);
    check(&p, y, LW_OP_ADD, LW_TYPE_BF16, WIDTH);
    check(&p, lw_plan_mul(&p, x, y), LW_OP_MUL, LW_TYPE_BF16, WIDTH);
    check(&p, lw_plan_swiglu(&p, y, x), LW_OP_SWIGLU, LW_TYPE_BF16, WIDTH);
    assert_int_equal(last_op(&p)->in[0].index, y.index);
    assert_int_equal(last_op(&p)->in[1].index, x.index);
    assert_int_equal(last_op(&p)->in[2].index, LW_NONE);
    assert_int_equal(last_op(&p)->weights[0].index, LW_NONE);
    assert_int_equal(last_op(&p)->state.index, LW_NONE);
    check(&p, lw_plan_relu2(&p, x), LW_OP_RELU2, LW_TYPE_BF16, WIDTH);
    check(&p, lw_plan_rms_norm(&p, x, weight(&p, 1, 8), 1e-5f, LW_NORM_UNIT), LW_OP_RMS_NORM, LW_TYPE_BF16,
          WIDTH);
    assert_int_equal(last_op(&p)->p.norm.segment, 8);
    assert_int_equal(last_op(&p)->p.norm.scale, LW_NORM_UNIT);
    const lw_norm_gate gate = { 8, 1e-6f, true };
    check(&p, lw_plan_norm_gate(&p, x, y, weight(&p, 8, 1), gate), LW_OP_NORM_GATE, LW_TYPE_BF16, WIDTH);
    check(&p, lw_plan_norm_gate(&p, x, y, weight(&p, 1, WIDTH), gate), LW_OP_NORM_GATE, LW_TYPE_BF16, WIDTH);
    assert_int_equal(last_op(&p)->p.norm_gate.segment, 8);
    assert_true(last_op(&p)->p.norm_gate.gate_first);
    check(&p, lw_plan_head_gate(&p, x, lw_plan_view(&p, y, 0, 3)), LW_OP_HEAD_GATE, LW_TYPE_BF16, WIDTH);
    assert_int_equal(last_op(&p)->p.gate.heads, 3);
    lw_plan_deinit(&p);
}

static void matrices_and_columns_change_the_width(void **state)
{
    (void)state;
    lw_plan p;
    plan_open(&p);
    const lw_ref x = embed(&p);
    check(&p, lw_plan_linear(&p, x, weight(&p, 40, WIDTH), LW_TYPE_BF16), LW_OP_LINEAR, LW_TYPE_BF16, 40);
    const lw_ref wide = lw_plan_linear(&p, x, weight(&p, 30, WIDTH), LW_TYPE_F32);
    check(&p, wide, LW_OP_LINEAR, LW_TYPE_F32, 30);
    check(&p, lw_plan_bias(&p, wide, weight(&p, 30, 1)), LW_OP_BIAS, LW_TYPE_BF16, 30);
    check(&p, lw_plan_concat(&p, x, lw_plan_view(&p, x, 3, 5)), LW_OP_CONCAT, LW_TYPE_BF16, WIDTH + 5);
    const lw_head_columns columns = { .heads = 3, .stride = 8, .offset = 3, .width = 5 };
    check(&p, lw_plan_take_heads(&p, x, columns), LW_OP_TAKE_HEADS, LW_TYPE_BF16, 15);
    assert_memory_equal(&last_op(&p)->p.columns, &columns, sizeof columns);
    lw_plan_deinit(&p);
}

static void a_residual_may_be_fp32(void **state)
{
    (void)state;
    lw_plan p;
    plan_open(&p);
    const lw_ref x = embed(&p), wide = lw_plan_widen(&p, x);
    check(&p, wide, LW_OP_WIDEN, LW_TYPE_F32, WIDTH);
    const lw_ref sum = lw_plan_add(&p, wide, x);
    check(&p, sum, LW_OP_ADD, LW_TYPE_F32, WIDTH);
    assert_int_equal(last_op(&p)->in[0].index, wide.index);
    assert_int_equal(last_op(&p)->in[1].index, x.index);
    check(&p, lw_plan_rms_norm(&p, sum, weight(&p, 1, WIDTH), 1e-5f, LW_NORM_TWICE), LW_OP_RMS_NORM,
          LW_TYPE_BF16, WIDTH);
    const lw_value *wanted = value_of(&p, lw_plan_take_wanted(&p, sum));
    assert_int_equal(wanted->type, LW_TYPE_F32);
    assert_int_equal(wanted->space, LW_SPACE_WANTED);
    assert_int_equal(wanted->width, WIDTH);
    lw_plan_deinit(&p);
}

static void views_reach_into_the_first_base(void **state)
{
    (void)state;
    lw_plan p;
    plan_open(&p);
    const lw_ref x = embed(&p), outer = lw_plan_view(&p, x, 4, 16), inner = lw_plan_view(&p, outer, 3, 13);
    assert_int_equal(value_of(&p, outer)->base, x.index);
    assert_int_equal(value_of(&p, outer)->offset, 4);
    assert_int_equal(value_of(&p, inner)->base, x.index);
    assert_int_equal(value_of(&p, inner)->offset, 7);
    assert_int_equal(value_of(&p, inner)->width, 13);
    assert_int_equal(p.op_count, 1);
    check(&p, lw_plan_mul(&p, inner, inner), LW_OP_MUL, LW_TYPE_BF16, 13);
    lw_plan_deinit(&p);
}

static void attention_takes_its_shape_from_the_state(void **state)
{
    (void)state;
    lw_plan p;
    plan_open(&p);
    const double turns[4] = { 1.0, 0.5, 0.25, 0 };
    const lw_ref x = embed(&p), half = lw_plan_view(&p, x, 0, 8);
    const lw_sref kv = lw_plan_state_kv(&p, "kv", 1, 8, 256);
    check(&p, lw_plan_rope(&p, x, 3, lw_plan_rope_table(&p, turns, 4)), LW_OP_ROPE, LW_TYPE_BF16, WIDTH);
    assert_int_equal(last_op(&p)->p.rope.head_dim, 8);
    lw_plan_kv_store(&p, kv, half, half);
    assert_int_equal(last_op(&p)->kind, LW_OP_KV_STORE);
    assert_int_equal(last_op(&p)->out.index, LW_NONE);
    assert_int_equal(last_op(&p)->state.index, kv.index);
    check(&p, lw_plan_attend(&p, kv, x, 3, 0.5f), LW_OP_ATTEND, LW_TYPE_BF16, WIDTH);
    assert_int_equal(last_op(&p)->p.attend.window, 256);
    assert_int_equal(last_op(&p)->p.attend.first, 0);
    const lw_attention from = { .heads = 3, .first = 1, .scale = 0.5f };
    check(&p, lw_plan_attend_from(&p, kv, x, from), LW_OP_ATTEND, LW_TYPE_BF16, WIDTH);
    assert_int_equal(last_op(&p)->p.attend.first, 1);
    assert_int_equal(last_op(&p)->p.attend.heads_kv, 1);
    assert_int_equal(last_op(&p)->p.attend.head_dim, 8);
    lw_plan_deinit(&p);
}

static void tails_and_recurrences_are_looked_back_at(void **state)
{
    (void)state;
    lw_plan p;
    plan_open(&p);
    const lw_ref x = embed(&p), per_head = lw_plan_view(&p, x, 0, 2);
    const lw_sref tail = lw_plan_state_tail(&p, "tail", WIDTH, 4);
    check(&p, lw_plan_short_conv(&p, tail, x, weight(&p, WIDTH, 4)), LW_OP_SHORT_CONV, LW_TYPE_BF16, WIDTH);
    assert_false(last_op(&p)->p.conv.silu);
    assert_int_equal(last_op(&p)->weights[1].index, LW_NONE);
    const lw_wref taps = weight(&p, WIDTH, 4), bias = weight(&p, 1, WIDTH);
    check(&p, lw_plan_conv_silu(&p, tail, x, taps, bias), LW_OP_SHORT_CONV, LW_TYPE_BF16, WIDTH);
    assert_true(last_op(&p)->p.conv.silu);
    assert_int_equal(last_op(&p)->p.conv.taps, 4);
    assert_int_equal(last_op(&p)->weights[1].index, bias.index);
    lw_plan_tail_store(&p, tail, x);
    assert_int_equal(last_op(&p)->out.index, LW_NONE);
    check(&p, lw_plan_tail_before(&p, tail), LW_OP_TAIL_BEFORE, LW_TYPE_BF16, WIDTH);
    /* keys 1 of 8, values 2 of 4: q, k and v are 8 + 8 + 2 * 4 columns */
    const lw_recurrence r = lw_plan_recurrence(&p, "r", (lw_heads){ 1, 8 }, (lw_heads){ 2, 4 });
    const lw_wref a_log = weight(&p, 1, 2), dt = weight(&p, 2, 1);
    const lw_delta_inputs delta = { x, per_head, per_head };
    check(&p, lw_plan_gated_delta(&p, r, delta, a_log, dt), LW_OP_GATED_DELTA, LW_TYPE_BF16, 8);
    assert_int_equal(last_op(&p)->state.index, r.steps.index);
    assert_int_equal(last_op(&p)->anchor.index, r.anchor.index);
    const lw_ssm_weights ssm = { a_log, dt, dt, 0.0f, 1.0f };
    check(&p, lw_plan_ssm(&p, r, (lw_ssm_inputs){ x, per_head }, &ssm), LW_OP_SSM, LW_TYPE_BF16, 8);
    lw_plan_deinit(&p);
}

static void experts_give_a_vector_for_each_choice(void **state)
{
    (void)state;
    lw_plan p;
    plan_open(&p);
    const lw_ref x = embed(&p);
    const lw_route_params params = { .experts = EXPERTS, .top = TOP, .groups = 1, .top_groups = 1 };
    const lw_ref logits = lw_plan_linear(&p, x, weight(&p, EXPERTS, WIDTH), LW_TYPE_F32);
    const lw_ref route = lw_plan_route(&p, logits, (lw_wref){ LW_NONE }, &params);
    check(&p, route, LW_OP_ROUTE, LW_TYPE_F32, 2 * TOP);
    const lw_ref up = lw_plan_expert_linear(&p, x, route, weight(&p, 10, WIDTH));
    assert_int_equal(value_of(&p, up)->slots, TOP);
    assert_int_equal(value_of(&p, up)->width, 10);
    const lw_ref squared = lw_plan_relu2(&p, up), both = lw_plan_swiglu(&p, squared, up);
    assert_int_equal(value_of(&p, squared)->slots, TOP);
    assert_int_equal(value_of(&p, both)->slots, TOP);
    const lw_ref down = lw_plan_expert_linear(&p, both, route, weight(&p, WIDTH, 10));
    assert_int_equal(value_of(&p, down)->slots, TOP);
    check(&p, lw_plan_expert_sum(&p, down, route), LW_OP_EXPERT_SUM, LW_TYPE_BF16, WIDTH);
    const lw_ref wide = lw_plan_expert_linear_f32(&p, x, route, weight(&p, 10, WIDTH));
    assert_int_equal(value_of(&p, wide)->slots, TOP);
    assert_int_equal(value_of(&p, wide)->type, LW_TYPE_F32);
    const lw_wref biases = weight(&p, 1, 10);
    const lw_ref biased = lw_plan_expert_bias(&p, wide, route, biases);
    assert_int_equal(last_op(&p)->kind, LW_OP_EXPERT_BIAS);
    assert_int_equal(last_op(&p)->in[1].index, route.index);
    assert_int_equal(last_op(&p)->weights[0].index, biases.index);
    assert_int_equal(value_of(&p, biased)->slots, TOP);
    assert_int_equal(value_of(&p, biased)->type, LW_TYPE_BF16);
    assert_int_equal(value_of(&p, biased)->width, 10);
    lw_plan_deinit(&p);
}

static void equal_reaches_share_a_group_and_anchors_stand_apart(void **state)
{
    (void)state;
    lw_plan p;
    plan_open(&p);
    const lw_sref all = lw_plan_state_kv(&p, "all", 1, 8, 0);
    const lw_sref tail = lw_plan_state_tail(&p, "tail", 8, 2); /* as far as an anchor, but no anchor */
    const lw_recurrence a = lw_plan_recurrence(&p, "a", (lw_heads){ 1, 8 }, (lw_heads){ 1, 8 });
    const lw_recurrence b = lw_plan_recurrence(&p, "b", (lw_heads){ 1, 4 }, (lw_heads){ 1, 4 });
    const lw_sref near = lw_plan_state_kv(&p, "near", 1, 8, LW_ANCHOR_POSITIONS + 1);
    const lw_sref more = lw_plan_state_kv(&p, "more", 2, 16, 0);
    assert_int_equal(p.reach_count, 4);
    assert_int_equal(p.states[all.index].group, p.states[more.index].group);
    assert_int_equal(p.states[a.steps.index].group, p.states[b.steps.index].group);
    assert_int_equal(p.states[a.steps.index].group, p.states[near.index].group);
    assert_int_equal(p.states[a.anchor.index].group, p.states[b.anchor.index].group);
    assert_int_not_equal(p.states[a.anchor.index].group, p.states[tail.index].group);
    const uint32_t anchors = p.states[a.anchor.index].group;
    for (uint32_t g = 0; g < p.reach_count; g++) assert_int_equal(p.reach_is_anchor[g], g == anchors);
    assert_int_equal(p.reaches[anchors], 2);
    assert_int_equal(p.reaches[p.states[tail.index].group], 2);
    lw_plan_deinit(&p);
}

static void a_page_holds_64_positions(void **state)
{
    (void)state;
    lw_plan p;
    plan_open(&p);
    const lw_sref kv = lw_plan_state_kv(&p, "kv", 2, 16, 0);
    const lw_sref tail = lw_plan_state_tail(&p, "tail", 24, 4);
    const lw_recurrence r = lw_plan_recurrence(&p, "r", (lw_heads){ 3, 8 }, (lw_heads){ 6, 5 });
    assert_int_equal(lw_state_page_bytes(&p.states[kv.index]), 64 * 2 * 2 * 16 * 2); /* k and v, bf16 */
    assert_int_equal(lw_state_page_bytes(&p.states[tail.index]), 64 * 24 * 2);
    assert_int_equal(lw_state_page_bytes(&p.states[r.steps.index]), 64 * (3 * 8 + 6 * 5 + 6) * 4);
    assert_int_equal(lw_state_page_bytes(&p.states[r.anchor.index]), 6 * 5 * 8 * 4); /* one state a page */
    assert_int_equal(lw_plan_kv_bytes(&p), 2 * 2 * 16 * 2);
    const uint64_t tail_bytes = lw_state_page_bytes(&p.states[tail.index]);
    lw_plan_keep_kv(&p, LW_KV_INT8);
    /* A code each and two scales for each head, and nothing of other states changes. */
    assert_int_equal(lw_state_page_bytes(&p.states[kv.index]), 64 * 2 * (2 * 16 + 2 * 4));
    assert_int_equal(lw_state_head_bytes(&p.states[kv.index]), 64 * (2 * 16 + 2 * 4));
    assert_int_equal(lw_state_page_bytes(&p.states[tail.index]), tail_bytes);
    assert_int_equal(p.states[tail.index].kv, LW_KV_BF16);
    assert_int_equal(lw_plan_kv_bytes(&p), 2 * (2 * 16 + 2 * 4));
    lw_plan_deinit(&p);
}

static void equal_rope_tables_are_one(void **state)
{
    (void)state;
    lw_plan p;
    plan_open(&p);
    const double one[4] = { 1.0, 0.5, 0.25, 0 }, other[4] = { 1.0, 0.5, 0.25, 0.125 };
    assert_int_equal(lw_plan_rope_table(&p, one, 4), 0);
    assert_int_equal(lw_plan_rope_table(&p, other, 4), 1);
    assert_int_equal(lw_plan_rope_table(&p, one, 3), 2);
    assert_int_equal(lw_plan_rope_table(&p, one, 4), 0);
    assert_int_equal(lw_plan_rope_table(&p, other, 3), 2); /* the fourth is not theirs */
    assert_int_equal(p.rope_count, 3);
    lw_plan_deinit(&p);
}

static void entries_follow_one_another(void **state)
{
    (void)state;
    lw_plan p;
    plan_open(&p);
    lw_ref logits[2];
    for (int i = 0; i < 2; i++) {
        if (i == 1) lw_plan_entry_begin(&p, "head");
        p.layer = (uint32_t)i + 7;
        const lw_ref wanted = lw_plan_take_wanted(&p, embed(&p));
        logits[i] = lw_plan_linear(&p, wanted, weight(&p, VOCAB, WIDTH), LW_TYPE_F32);
        lw_plan_entry_end(&p, logits[i]);
    }
    lw_plan_name(&p, logits[1], "guess %d", 1);
    assert_string_equal(value_of(&p, logits[1])->name, "guess 1");
    assert_int_equal(p.entry_count, 2);
    assert_int_equal(p.vocab, VOCAB);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(p.entries[i].op_begin, 3 * i);
        assert_int_equal(p.entries[i].op_end, 3 * i + 3);
        assert_int_equal(p.entries[i].logits.index, logits[i].index);
        assert_int_equal(p.ops[3 * i].layer, i + 7);
        assert_int_equal(value_of(&p, logits[i])->space, LW_SPACE_WANTED);
    }
    lw_plan_deinit(&p);
}

/* Of linears alone, by their weight: a table that is only embedded stays as it is. */
static void linears_over_whole_codes_take_int8(void **state)
{
    (void)state;
    lw_plan p;
    lw_weight w = { .name = "w", .stack_count = 1, .rows = WIDTH, .cols = WIDTH, .map = LW_MAP_INTEGER,
                    .code_bits = 4, .group = 64 };
    assert_int_equal(lw_plan_init(&p, NULL), LW_OK);
    lw_plan_entry_begin(&p, "main");
    const lw_wref codes = lw_plan_weight(&p, &w);
    w.rows = VOCAB;
    const lw_wref table = lw_plan_weight(&p, &w);
    w.rows = WIDTH, w.map = LW_MAP_E4M3, w.code_bits = 8;
    const lw_wref floats = lw_plan_weight(&p, &w);
    const lw_ref x = lw_plan_linear(&p, lw_plan_embed(&p, table), codes, LW_TYPE_BF16);
    lw_plan_linear(&p, x, floats, LW_TYPE_BF16);
    lw_plan_take_int8(&p);
    assert_true(p.weights[codes.index].x_int8);
    assert_false(p.weights[table.index].x_int8);
    assert_false(p.weights[floats.index].x_int8);
    lw_plan_deinit(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fresh_plan_is_empty),
        cmocka_unit_test(every_op_has_its_facts),
        cmocka_unit_test(elementwise_ops_keep_the_shape),
        cmocka_unit_test(matrices_and_columns_change_the_width),
        cmocka_unit_test(a_residual_may_be_fp32),
        cmocka_unit_test(views_reach_into_the_first_base),
        cmocka_unit_test(attention_takes_its_shape_from_the_state),
        cmocka_unit_test(tails_and_recurrences_are_looked_back_at),
        cmocka_unit_test(experts_give_a_vector_for_each_choice),
        cmocka_unit_test(equal_reaches_share_a_group_and_anchors_stand_apart),
        cmocka_unit_test(a_page_holds_64_positions),
        cmocka_unit_test(equal_rope_tables_are_one),
        cmocka_unit_test(entries_follow_one_another),
        cmocka_unit_test(linears_over_whole_codes_take_int8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
