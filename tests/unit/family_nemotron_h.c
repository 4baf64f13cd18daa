/* The Nemotron-H family: what it records of the shipped checkpoint and of a tiny one with a block of each
 * kind, every spelling of its blocks, and every config that it refuses.
 */
#include "family_tiny.h"

static const char shipped[] = "models/nemotron-mlx4";

static void the_plan_has_the_blocks_of_the_config(void **state)
{
    (void)state;
    /* 4 blocks of Mamba-2, 2 of attention, 4 of experts beside a shared one. */
    static const op_counts counts[] = {
        { LW_OP_EMBED, 1, 2 },
        { LW_OP_RMS_NORM, 10 + 1, 11 + 3 + 5 },
        { LW_OP_LINEAR, 4 * 2 + 2 * 4 + 4 * 3 + 1, 29 + 3 + 9 },
        { LW_OP_ADD, 10 + 4, 14 + 3 },
        { LW_OP_KV_STORE, 2, 4 },
        { LW_OP_ATTEND, 2, 3 },
        { LW_OP_SHORT_CONV, 4, 4 },
        { LW_OP_NORM_GATE, 4, 4 },
        { LW_OP_RELU2, 8, 10 },
        { LW_OP_CONCAT, 0, 2 },
        { LW_OP_TAIL_STORE, 0, 2 },
        { LW_OP_TAIL_BEFORE, 0, 2 },
        { LW_OP_SSM, 4, 4 },
        { LW_OP_ROUTE, 4, 5 },
        { LW_OP_EXPERT_LINEAR, 8, 10 },
        { LW_OP_EXPERT_SUM, 4, 5 },
        { LW_OP_TAKE_WANTED, 2, 2 },
    };
    shipped_counts_check(shipped, counts, sizeof counts / sizeof *counts);
}

static void states_are_those_of_the_config(void **state)
{
    (void)state;
    folder f;
    snprintf(f.path, sizeof f.path, "%s", shipped);
    for (int head = 0; head < 2; head++) {
        recorded r;
        lw_diag d = { "" };
        assert_int_equal(made_record(&f, &(lw_record_options){ .head = head == 1 }, &r, &d), LW_OK);
        assert_int_equal(r.plan.state_count, 4 * 3 + 2 + 2 * head);
        /* Convolutions, steps, anchors and keys; the head's hidden rows. */
        assert_int_equal(r.plan.reach_count, 4 + head);
        assert_int_equal(r.plan.vocab, 4096);
        assert_int_equal(r.plan.rope_count, 0);
        recorded_free(&r);
    }
}

/* The same four blocks, however they are spelled. */
static void every_spelling_of_blocks_is_read(void **state)
{
    (void)state;
    static const char *const right[] = {
        "{}",
        "{'num_hidden_layers': null}",
        "{'hybrid_override_pattern': null, 'layers_block_type': ['mamba', 'moe', 'attention', 'mlp']}",
        "{'hybrid_override_pattern': null, 'layers_block_type': ['mamba2', 'moe', 'full_attention', 'mlp']}",
        "{'hybrid_override_pattern': null, 'layer_types': ['linear_attention', 'moe', 'attention', 'mlp']}",
        "{'n_groups': null, 'mamba_n_groups': 1, 'conv_kernel': null, 'mamba_d_conv': 4}",
        "{'ssm_state_size': null, 'mamba_d_state': 32}",
        "{'time_step_limit': [0.001, 0.1], 'norm_eps': 1e-6, 'routed_scaling_factor': 2.5}",
        "{'time_step_limit': null}",
    };
    const folder f = made_nemotron_make();
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        recorded r;
        lw_diag d = { "" };
        uint32_t counts[LW_OP_COUNT];
        config_write(&f, made_nemotron_config, right[i]);
        if (made_record(&f, &(lw_record_options){ .head = true }, &r, &d) != LW_OK) fail_msg("%s", d.text);
        count_ops(&r.plan, counts);
        assert_int_equal(r.plan.entry_count, 2);
        assert_int_equal(counts[LW_OP_SSM], 1);
        assert_int_equal(counts[LW_OP_ROUTE], 2);
        assert_int_equal(counts[LW_OP_ATTEND], 2);
        assert_int_equal(counts[LW_OP_RELU2], 2 + 1 + 2);
        recorded_free(&r);
    }
    folder_free(&f);
}

static void steps_are_bounded_as_the_config_says(void **state)
{
    (void)state;
    recorded r;
    const folder f = made_nemotron_make();
    config_write(&f, made_nemotron_config, "{'time_step_limit': [0.25, 0.5]}");
    assert_int_equal(made_record(&f, &(lw_record_options){ .head = false }, &r, NULL), LW_OK);
    uint32_t found = 0;
    for (uint32_t i = 0; i < r.plan.op_count; i++) {
        if (r.plan.ops[i].kind != LW_OP_SSM) continue;
        found++;
        assert_true(r.plan.ops[i].p.ssm.step_min == 0.25f && r.plan.ops[i].p.ssm.step_max == 0.5f);
    }
    assert_int_equal(found, 1);
    recorded_free(&r);
    folder_free(&f);
}

static void what_is_not_served_is_named(void **state)
{
    (void)state;
    static const refusal all[] = {
        { "{'hidden_size': null}", LW_BAD_MODEL, "hidden_size", "" },
        { "{'hidden_size': 0}", LW_BAD_MODEL, "hidden_size", "0" },
        { "{'vocab_size': null}", LW_BAD_MODEL, "vocab_size", "" },
        { "{'vocab_size': 0}", LW_BAD_MODEL, "vocab_size", "0" },
        { "{'vocab_size': 4000000}", LW_BAD_MODEL, "vocab_size", "4000000" },
        { "{'layer_norm_epsilon': 2}", LW_BAD_MODEL, "layer_norm_epsilon", "2" },
        { "{'max_position_embeddings': 'long'}", LW_BAD_MODEL, "max_position_embeddings", "long" },
        { "{'tie_word_embeddings': 'yes'}", LW_BAD_MODEL, "tie_word_embeddings", "yes" },
        { "{'num_attention_heads': null}", LW_BAD_MODEL, "num_attention_heads", "" },
        { "{'num_attention_heads': 3, 'num_key_value_heads': 2}", LW_BAD_MODEL, "num_key_value_heads", "2" },
        { "{'head_dim': 31}", LW_BAD_MODEL, "head_dim", "31" },
        { "{'num_attention_heads': 4096, 'head_dim': 1024}", LW_BAD_MODEL, "head_dim", "1024" },
        { "{'hybrid_override_pattern': null}", LW_BAD_MODEL, "hybrid_override_pattern", "layers_block_type" },
        { "{'hybrid_override_pattern': ''}", LW_BAD_MODEL, "hybrid_override_pattern", "0" },
        { "{'hybrid_override_pattern': 'ME*x'}", LW_UNSUPPORTED, "hybrid_override_pattern", "'x'" },
        { "{'hybrid_override_pattern': 4}", LW_BAD_MODEL, "hybrid_override_pattern", "4" },
        { "{'hybrid_override_pattern': 'ME*'}", LW_BAD_MODEL, "num_hidden_layers", "3" },
        { "{'num_hidden_layers': 7}", LW_BAD_MODEL, "num_hidden_layers", "7" },
        { "{'num_hidden_layers': 5000}", LW_BAD_MODEL, "num_hidden_layers", "5000" },
        { "{'layers_block_type': []}", LW_BAD_MODEL, "layers_block_type", "1 to" },
        { "{'layers_block_type': 'mamba'}", LW_BAD_MODEL, "layers_block_type", "1 to" },
        { "{'layers_block_type': ['mamba', 'rwkv']}", LW_UNSUPPORTED, "layers_block_type[1]", "rwkv" },
        { "{'layers_block_type': [3]}", LW_UNSUPPORTED, "layers_block_type[0]", "?" },
        { "{'mamba_num_heads': null}", LW_BAD_MODEL, "mamba_num_heads", "" },
        { "{'mamba_num_heads': 0}", LW_BAD_MODEL, "mamba_num_heads", "0" },
        { "{'mamba_head_dim': null}", LW_BAD_MODEL, "mamba_head_dim", "" },
        { "{'mamba_head_dim': 0}", LW_BAD_MODEL, "mamba_head_dim", "0" },
        { "{'n_groups': 0}", LW_BAD_MODEL, "n_groups", "0" },
        { "{'n_groups': 3}", LW_BAD_MODEL, "n_groups", "3" },
        { "{'ssm_state_size': null}", LW_BAD_MODEL, "ssm_state_size", "" },
        { "{'ssm_state_size': 0}", LW_BAD_MODEL, "ssm_state_size", "0" },
        { "{'conv_kernel': 0}", LW_BAD_MODEL, "conv_kernel", "0" },
        { "{'conv_kernel': 65}", LW_BAD_MODEL, "conv_kernel", "65" },
        { "{'mamba_num_heads': 4096, 'mamba_head_dim': 4096}", LW_BAD_MODEL, "mamba_head_dim", "4096" },
        { "{'time_step_limit': 3}", LW_BAD_MODEL, "time_step_limit", "" },
        { "{'time_step_limit': [0.1]}", LW_BAD_MODEL, "time_step_limit", "" },
        { "{'time_step_limit': [0.2, 0.1]}", LW_BAD_MODEL, "time_step_limit", "" },
        { "{'time_step_limit': [-1, 1]}", LW_BAD_MODEL, "time_step_limit", "" },
        { "{'time_step_limit': [0, 'far']}", LW_BAD_MODEL, "time_step_limit", "" },
        { "{'n_routed_experts': null}", LW_BAD_MODEL, "n_routed_experts", "" },
        { "{'n_routed_experts': 0}", LW_BAD_MODEL, "n_routed_experts", "0" },
        { "{'num_experts_per_tok': null}", LW_BAD_MODEL, "num_experts_per_tok", "" },
        { "{'num_experts_per_tok': 0}", LW_BAD_MODEL, "num_experts_per_tok", "0" },
        { "{'num_experts_per_tok': 5}", LW_BAD_MODEL, "num_experts_per_tok", "5" },
        { "{'n_group': 3}", LW_BAD_MODEL, "n_group", "3" },
        { "{'n_group': 0}", LW_BAD_MODEL, "n_group", "0" },
        { "{'n_group': 2, 'topk_group': 3}", LW_BAD_MODEL, "topk_group", "3" },
        { "{'n_group': 4, 'topk_group': 1}", LW_BAD_MODEL, "num_experts_per_tok", "2" },
        { "{'moe_intermediate_size': null}", LW_BAD_MODEL, "moe_intermediate_size", "" },
        { "{'moe_intermediate_size': 0}", LW_BAD_MODEL, "moe_intermediate_size", "0" },
        { "{'norm_topk_prob': 2}", LW_BAD_MODEL, "norm_topk_prob", "2" },
        { "{'routed_scaling_factor': 'two'}", LW_BAD_MODEL, "routed_scaling_factor", "two" },
        { "{'intermediate_size': null}", LW_BAD_MODEL, "intermediate_size", "" },
        { "{'intermediate_size': 0}", LW_BAD_MODEL, "intermediate_size", "0" },
        { "{'mlp_hidden_act': 'gelu'}", LW_UNSUPPORTED, "mlp_hidden_act", "gelu" },
        { "{'mamba_hidden_act': 'relu'}", LW_UNSUPPORTED, "mamba_hidden_act", "relu" },
    };
    const folder f = made_nemotron_make();
    refusals_check(&f, made_nemotron_config, all, sizeof all / sizeof *all);
    folder_free(&f);
}

static void missing_tensors_are_listed_together(void **state)
{
    (void)state;
    recorded r;
    lw_diag d = { "" };
    const folder f = made_nemotron_make();
    config_write(&f, made_nemotron_config, "{'hybrid_override_pattern': 'ME*-M*', 'num_hidden_layers': 6}");
    assert_int_equal(made_record(&f, &(lw_record_options){ .head = true }, &r, &d), LW_BAD_MODEL);
    assert_names(d.text, "layers.4.norm", "layers.4.mixer.in_proj", "layers.4.mixer.A_log");
    config_write(&f, made_nemotron_config, "{'moe_latent_size': 32}");
    assert_int_equal(made_record(&f, &(lw_record_options){ .head = true }, &r, &d), LW_BAD_MODEL);
    assert_names(d.text, "layers.1.mixer.switch_mlp.fc1", "layers.1.mixer.fc1_latent_proj");
    folder_free(&f);
}

/* As publishers' modelling code has them: each half of the experts may have its own. */
static void experts_may_have_biases(void **state)
{
    (void)state;
    recorded r;
    lw_diag d = { "" };
    uint32_t counts[LW_OP_COUNT];
    folder f = made_nemotron_with("backbone.layers.1.mixer.experts.%u.up_proj.bias", 4);
    assert_int_equal(made_record(&f, &(lw_record_options){ .head = true }, &r, &d), LW_OK);
    count_ops(&r.plan, counts);
    assert_int_equal(counts[LW_OP_EXPERT_LINEAR], 4);
    assert_int_equal(counts[LW_OP_EXPERT_BIAS], 1);
    recorded_free(&r);
    folder_free(&f);
    f = made_nemotron_with("mtp.layers.1.mixer.experts.%u.down_proj.bias", 3); /* one lacks it */
    assert_int_equal(made_record(&f, &(lw_record_options){ .head = true }, &r, &d), LW_BAD_MODEL);
    assert_names(d.text, "missing", "mtp.layers.1.mixer.experts.3.down_proj.bias");
    folder_free(&f);
}

/* A model that has no head, or is not asked for it. */
static void without_a_head_there_is_one_entry(void **state)
{
    (void)state;
    recorded r;
    const folder f = made_nemotron_make();
    assert_int_equal(made_record(&f, &(lw_record_options){ .head = false }, &r, NULL), LW_OK);
    assert_int_equal(r.plan.entry_count, 1);
    recorded_free(&r);
    folder_free(&f);
}

static void end_ids_are_the_union_of_both_configs(void **state)
{
    (void)state;
    lw_checkpoint *checkpoint = NULL;
    int32_t ids[LW_FAMILY_END_IDS_MAX];
    size_t count = 0;
    const folder f = made_nemotron_make();
    text_write(&f, "generation_config.json", "{\"eos_token_id\": [11, 3, 2]}");
    assert_int_equal(lw_checkpoint_open(f.path, &checkpoint, NULL), LW_OK);
    assert_int_equal(lw_family_end_ids(checkpoint, ids, &count, NULL), LW_OK);
    assert_int_equal(count, 3);
    assert_true(ids[0] == 3 && ids[1] == 11 && ids[2] == 2);
    lw_checkpoint_close(checkpoint);
    folder_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plan_has_the_blocks_of_the_config),
        cmocka_unit_test(states_are_those_of_the_config),
        cmocka_unit_test(every_spelling_of_blocks_is_read),
        cmocka_unit_test(steps_are_bounded_as_the_config_says),
        cmocka_unit_test(what_is_not_served_is_named),
        cmocka_unit_test(missing_tensors_are_listed_together),
        cmocka_unit_test(experts_may_have_biases),
        cmocka_unit_test(without_a_head_there_is_one_entry),
        cmocka_unit_test(end_ids_are_the_union_of_both_configs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
