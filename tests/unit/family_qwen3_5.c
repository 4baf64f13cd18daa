/* The Qwen3.5 family: what it records of the shipped checkpoint and of tiny ones, how it takes norms by the
 * checkpoint's layout, and every config that it refuses.
 */
#include "family_tiny.h"

static const char shipped[] = "models/qwen35-mlx4";

static void the_plan_has_the_layers_of_the_config(void **state)
{
    (void)state;
    /* 6 layers of Gated DeltaNet and 2 of attention, all with SwiGLU; the head adds what it remembers of each
     * row to the model's own entry, and an entry of its own. */
    static const op_counts counts[] = {
        { LW_OP_EMBED, 1, 2 },
        { LW_OP_RMS_NORM, 8 * 2 + 2 * 2 + 1, 21 + 4 + 7 },
        { LW_OP_LINEAR, 6 * 5 + 2 * 4 + 8 * 3 + 1, 63 + 3 + 9 },
        { LW_OP_ADD, 16, 18 },
        { LW_OP_SWIGLU, 8, 9 },
        { LW_OP_ROPE, 4, 4 + 1 + 2 },
        { LW_OP_KV_STORE, 2, 4 },
        { LW_OP_ATTEND, 2, 3 },
        { LW_OP_HEAD_GATE, 2, 3 },
        { LW_OP_SHORT_CONV, 6, 6 },
        { LW_OP_NORM_GATE, 6, 6 },
        { LW_OP_CONCAT, 0, 2 },
        { LW_OP_TAKE_HEADS, 4, 6 },
        { LW_OP_TAIL_STORE, 0, 2 },
        { LW_OP_TAIL_BEFORE, 0, 2 },
        { LW_OP_GATED_DELTA, 6, 6 },
        { LW_OP_TAKE_WANTED, 2, 2 },
    };
    shipped_counts_check(shipped, counts, sizeof counts / sizeof *counts);
}

static void states_and_rotation_are_those_of_the_config(void **state)
{
    (void)state;
    folder f;
    snprintf(f.path, sizeof f.path, "%s", shipped);
    for (int head = 0; head < 2; head++) {
        recorded r;
        lw_diag d = { "" };
        assert_int_equal(made_record(&f, &(lw_record_options){ .head = head == 1 }, &r, &d), LW_OK);
        assert_int_equal(r.plan.state_count, 6 * 3 + 2 + 2 * head);
        /* Convolutions, steps, anchors and keys; the head's hidden rows. */
        assert_int_equal(r.plan.reach_count, 4 + head);
        assert_int_equal(r.plan.vocab, 4096);
        assert_int_equal(r.plan.rope_count, 1);
        assert_int_equal(r.plan.ropes[0].half, 8); /* a quarter of 64 columns, in pairs */
        assert_true(r.plan.ropes[0].frequency[0] == 1.0);
        recorded_free(&r);
    }
}

/* ---- norms ---- */

typedef struct norms_case {
    made_qwen model;
    lw_norm_scale body, head;
    const char *note;
} norms_case;

static void keep_note(void *context, const char *text)
{
    char *notes = context;
    const size_t at = strlen(notes);
    snprintf(notes + at, 1024 - at, "%s\n", text);
}

/* All norms of an entry are scaled in one way, but for what the main entry does for the head. */
static void scales_check(const lw_plan *plan, const norms_case *want)
{
    uint32_t of_head_in_main = 0;
    for (uint32_t e = 0; e < 2; e++) {
        for (uint32_t i = plan->entries[e].op_begin; i < plan->entries[e].op_end; i++) {
            const lw_op *op = &plan->ops[i];
            if (op->kind != LW_OP_RMS_NORM) continue;
            const bool of_head = strncmp(plan->weights[op->weights[0].index].name, "mtp.", 4) == 0;
            assert_true(of_head || e == LW_ENTRY_MAIN);
            assert_int_equal(op->p.norm.scale, of_head ? want->head : want->body);
            of_head_in_main += of_head && e == LW_ENTRY_MAIN;
        }
    }
    assert_int_equal(of_head_in_main, 4);
}

static void norms_are_taken_by_the_layout(void **state)
{
    (void)state;
    static const norms_case cases[] = {
        { { false, 0.0, 0.0 }, LW_NORM_UNIT, LW_NORM_UNIT, "w of 1 + w" },
        { { true, 1.0, 1.0 }, LW_NORM_ONCE, LW_NORM_ONCE, "as they are" },
        /* The layout decides, not what the weights look like. */
        { { false, 1.0, 1.0 }, LW_NORM_UNIT, LW_NORM_UNIT, "w of 1 + w" },
        { { true, 0.0, 1.0 }, LW_NORM_ONCE, LW_NORM_ONCE, "as they are" },
        /* A head that was not converted beside a model that was. */
        { { true, 1.0, 0.0 }, LW_NORM_ONCE, LW_NORM_UNIT, "head's norm weights are taken as w of 1 + w" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char notes[1024] = "";
        recorded r;
        lw_diag d = { "" };
        const folder f = made_qwen_make(&cases[i].model);
        const lw_record_options options = { .head = true, .note = keep_note, .context = notes };
        if (made_record(&f, &options, &r, &d) != LW_OK) fail_msg("%s", d.text);
        assert_int_equal(r.plan.entry_count, 2);
        scales_check(&r.plan, &cases[i]);
        assert_names(notes, cases[i].note);
        recorded_free(&r);
        folder_free(&f);
    }
}

/* Where no convolution tells, the final norm's weights do. */
static void without_convolutions_the_final_norm_tells(void **state)
{
    (void)state;
    for (int is_mlx = 0; is_mlx < 2; is_mlx++) {
        made m = made_begin();
        recorded r;
        lw_diag d = { "" };
        made_tensor(&m, "BF16", 0.0, "64, 64", "model.embed_tokens.weight");
        made_tensor(&m, "BF16", is_mlx, "64", "model.norm.weight");
        made_tensor(&m, "BF16", 0.0, "64, 64", "lm_head.weight");
        made_qwen_block(&m, "model.layers.0", is_mlx);
        made_qwen_attention(&m, "model.layers.0", is_mlx);
        const folder f = made_end(&m);
        config_write(&f, made_qwen_config, "{'num_hidden_layers': 1, 'layer_types': ['full_attention']}");
        if (made_record(&f, &(lw_record_options){ .head = true }, &r, &d) != LW_OK) fail_msg("%s", d.text);
        assert_int_equal(r.plan.entry_count, 1); /* it has no head */
        for (uint32_t i = 0; i < r.plan.op_count; i++) {
            if (r.plan.ops[i].kind != LW_OP_RMS_NORM) continue;
            assert_int_equal(r.plan.ops[i].p.norm.scale, is_mlx == 1 ? LW_NORM_ONCE : LW_NORM_UNIT);
        }
        recorded_free(&r);
        folder_free(&f);
    }
}

/* ---- refusals ---- */

static void sizes_that_make_no_model_are_named(void **state)
{
    (void)state;
    static const refusal all[] = {
        { "{'model_type': 'qwen9'}", LW_UNSUPPORTED, "model_type", "qwen9" },
        { "{'hidden_size': null}", LW_BAD_MODEL, "hidden_size", "" },
        { "{'hidden_size': 0}", LW_BAD_MODEL, "hidden_size", "0" },
        { "{'hidden_size': 'wide'}", LW_BAD_MODEL, "hidden_size", "wide" },
        { "{'hidden_size': 300000}", LW_BAD_MODEL, "hidden_size", "300000" },
        { "{'num_hidden_layers': null}", LW_BAD_MODEL, "num_hidden_layers", "" },
        { "{'num_hidden_layers': 0}", LW_BAD_MODEL, "num_hidden_layers", "0" },
        { "{'num_hidden_layers': 2000}", LW_BAD_MODEL, "num_hidden_layers", "2000" },
        { "{'vocab_size': null}", LW_BAD_MODEL, "vocab_size", "" },
        { "{'vocab_size': 0}", LW_BAD_MODEL, "vocab_size", "0" },
        { "{'rms_norm_eps': -1}", LW_BAD_MODEL, "rms_norm_eps", "-1" },
        { "{'rms_norm_eps': 'small'}", LW_BAD_MODEL, "rms_norm_eps", "small" },
        { "{'max_position_embeddings': -5}", LW_BAD_MODEL, "max_position_embeddings", "-5" },
        { "{'tie_word_embeddings': 3}", LW_BAD_MODEL, "tie_word_embeddings", "3" },
        { "{'num_attention_heads': null}", LW_BAD_MODEL, "num_attention_heads", "" },
        { "{'num_attention_heads': 0}", LW_BAD_MODEL, "num_attention_heads", "0" },
        { "{'num_attention_heads': 3, 'num_key_value_heads': 2}", LW_BAD_MODEL, "num_key_value_heads", "2" },
        { "{'num_key_value_heads': 0}", LW_BAD_MODEL, "num_key_value_heads", "0" },
        { "{'head_dim': 33}", LW_BAD_MODEL, "head_dim", "33" },
        { "{'head_dim': 0}", LW_BAD_MODEL, "head_dim", "0" },
        { "{'head_dim': 5000}", LW_BAD_MODEL, "head_dim", "5000" },
        { "{'head_dim': null, 'hidden_size': 16384}", LW_BAD_MODEL, "head_dim",
          "must be even and from 2 to 1024" },
        { "{'num_attention_heads': 4096, 'head_dim': 512}", LW_BAD_MODEL, "num_attention_heads", "4096" },
    };
    const folder f = made_qwen_make(&(made_qwen){ .norms = 0.0 });
    refusals_check(&f, made_qwen_config, all, sizeof all / sizeof *all);
    folder_free(&f);
}

static void layers_that_are_not_served_are_named(void **state)
{
    (void)state;
    static const refusal all[] = {
        { "{'layer_types': 'all'}", LW_BAD_MODEL, "layer_types", "2" },
        { "{'layer_types': ['full_attention']}", LW_BAD_MODEL, "layer_types", "2" },
        { "{'layer_types': ['full_attention', 'mamba']}", LW_UNSUPPORTED, "layer_types[1]", "mamba" },
        { "{'layer_types': [7, 'full_attention']}", LW_UNSUPPORTED, "layer_types[0]", "?" },
        { "{'layer_types': null, 'full_attention_interval': 0}", LW_BAD_MODEL, "full_attention_interval",
          "0" },
        { "{'full_attention_interval': 1.5}", LW_BAD_MODEL, "full_attention_interval", "1.5" },
        { "{'rope_parameters': {'rope_type': 'yarn'}}", LW_UNSUPPORTED, "rope_type", "yarn" },
        { "{'rope_parameters': {'rope_type': 4}}", LW_BAD_MODEL, "rope_type", "4" },
        { "{'rope_parameters': null, 'rope_scaling': {'type': 'yarn'}}", LW_UNSUPPORTED, "rope_type",
          "yarn" },
        { "{'rope_parameters': {'rope_theta': 1}}", LW_BAD_MODEL, "rope_theta", "1" },
        { "{'rope_parameters': {'partial_rotary_factor': 1.5}}", LW_BAD_MODEL, "partial_rotary_factor",
          "1.5" },
        { "{'rope_parameters': {'partial_rotary_factor': 0}}", LW_BAD_MODEL, "partial_rotary_factor", "0" },
        { "{'rope_parameters': {'partial_rotary_factor': 0.1}}", LW_BAD_MODEL, "partial_rotary_factor",
          "0.1" },
        { "{'linear_num_key_heads': null}", LW_BAD_MODEL, "linear_num_key_heads", "" },
        { "{'linear_num_value_heads': null}", LW_BAD_MODEL, "linear_num_value_heads", "" },
        { "{'linear_key_head_dim': null}", LW_BAD_MODEL, "linear_key_head_dim", "" },
        { "{'linear_value_head_dim': null}", LW_BAD_MODEL, "linear_value_head_dim", "" },
        { "{'linear_num_key_heads': 0}", LW_BAD_MODEL, "linear_num_key_heads", "0" },
        { "{'linear_num_key_heads': 2, 'linear_num_value_heads': 3}", LW_BAD_MODEL, "linear_num_value_heads",
          "3" },
        { "{'linear_num_value_heads': 0}", LW_BAD_MODEL, "linear_num_value_heads", "0" },
        { "{'linear_key_head_dim': 0}", LW_BAD_MODEL, "linear_key_head_dim", "0" },
        { "{'linear_value_head_dim': 0}", LW_BAD_MODEL, "linear_value_head_dim", "0" },
        { "{'linear_num_value_heads': 4096, 'linear_value_head_dim': 4096}", LW_BAD_MODEL,
          "linear_value_head_dim", "4096" },
        { "{'linear_num_key_heads': 4096, 'linear_num_value_heads': 4096, 'linear_key_head_dim': 4096}",
          LW_BAD_MODEL, "linear_key_head_dim", "4096" },
        { "{'linear_conv_kernel_dim': 0}", LW_BAD_MODEL, "linear_conv_kernel_dim", "0" },
        { "{'linear_conv_kernel_dim': 65}", LW_BAD_MODEL, "linear_conv_kernel_dim", "65" },
        { "{'intermediate_size': null}", LW_BAD_MODEL, "intermediate_size", "" },
        { "{'intermediate_size': 0}", LW_BAD_MODEL, "intermediate_size", "0" },
        { "{'num_experts': 4}", LW_BAD_MODEL, "num_experts_per_tok", "" },
        { "{'num_experts': 4, 'num_experts_per_tok': 5, 'moe_intermediate_size': 64,"
          " 'shared_expert_intermediate_size': 64}",
          LW_BAD_MODEL, "num_experts_per_tok", "5" },
        { "{'num_experts': 4, 'num_experts_per_tok': 2, 'moe_intermediate_size': 0,"
          " 'shared_expert_intermediate_size': 64}",
          LW_BAD_MODEL, "moe_intermediate_size", "0" },
        { "{'num_experts': 4, 'num_experts_per_tok': 2, 'moe_intermediate_size': 64,"
          " 'shared_expert_intermediate_size': 0}",
          LW_BAD_MODEL, "shared_expert_intermediate_size", "0" },
        { "{'attention_bias': true}", LW_UNSUPPORTED, "attention_bias", "true" },
        { "{'attention_bias': 'no'}", LW_BAD_MODEL, "attention_bias", "no" },
        { "{'attn_output_gate': false}", LW_UNSUPPORTED, "attn_output_gate", "false" },
        { "{'hidden_act': 'gelu'}", LW_UNSUPPORTED, "hidden_act", "gelu" },
        { "{'decoder_sparse_step': 2}", LW_UNSUPPORTED, "decoder_sparse_step", "2" },
    };
    const folder f = made_qwen_make(&(made_qwen){ .norms = 0.0 });
    refusals_check(&f, made_qwen_config, all, sizeof all / sizeof *all);
    folder_free(&f);
}

/* One error lists everything that the file lacks. */
static void missing_tensors_are_listed_together(void **state)
{
    (void)state;
    recorded r;
    lw_diag d = { "" };
    const folder f = made_qwen_make(&(made_qwen){ .is_mlx = true, .norms = 1.0, .head_norms = 1.0 });
    config_write(&f, made_qwen_config,
                 "{'num_hidden_layers': 3,"
                 " 'layer_types': ['linear_attention', 'full_attention', 'linear_attention']}");
    assert_int_equal(made_record(&f, &(lw_record_options){ .head = true }, &r, &d), LW_BAD_MODEL);
    assert_names(d.text, "layers.2.input_layernorm", "layers.2.linear_attn.in_proj_qkv",
                 "layers.2.linear_attn.A_log");
    config_write(&f, made_qwen_config, "{'intermediate_size': 96, 'linear_conv_kernel_dim': 5}");
    assert_int_equal(made_record(&f, &(lw_record_options){ .head = true }, &r, &d), LW_BAD_MODEL);
    assert_names(d.text, "mlp.gate_proj", "conv1d", "96");
    folder_free(&f);
}

/* Layers by their interval; sections and thetas at either place; end ids of both configs. */
static void other_spellings_are_read(void **state)
{
    (void)state;
    static const char *const right[] = {
        "{'layer_types': null, 'full_attention_interval': 2}",
        "{'rope_parameters': null, 'rope_theta': 5000, 'partial_rotary_factor': 0.25}",
        "{'rope_parameters': null, 'rope_scaling': {'type': 'mrope', 'mrope_section': [1, 1, 1]}}",
        "{'model_type': 'qwen3_5_text'}",
        "{'num_experts': 0, 'decoder_sparse_step': 1, 'hidden_act': 'silu'}",
    };
    const folder f = made_qwen_make(&(made_qwen){ .norms = 0.0 });
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        recorded r;
        lw_diag d = { "" };
        config_write(&f, made_qwen_config, right[i]);
        const lw_status status = made_record(&f, &(lw_record_options){ .head = false }, &r, &d);
        if (status != LW_OK) fail_msg("%s", d.text);
        assert_int_equal(r.plan.ropes[0].half, 4);
        recorded_free(&r);
    }
    folder_free(&f);
}

static void end_ids_are_the_union_of_both_configs(void **state)
{
    (void)state;
    lw_checkpoint *checkpoint = NULL;
    int32_t ids[LW_FAMILY_END_IDS_MAX];
    size_t count = 0;
    const folder f = made_qwen_make(&(made_qwen){ .norms = 0.0 });
    text_write(&f, "generation_config.json", "{\"eos_token_id\": [5, 9]}");
    assert_int_equal(lw_checkpoint_open(f.path, &checkpoint, NULL), LW_OK);
    assert_int_equal(lw_family_end_ids(checkpoint, ids, &count, NULL), LW_OK);
    assert_int_equal(count, 3);
    assert_true(ids[0] == 3 && ids[1] == 5 && ids[2] == 9);
    assert_int_equal(lw_family_context(checkpoint), 256);
    lw_checkpoint_close(checkpoint);
    folder_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plan_has_the_layers_of_the_config),
        cmocka_unit_test(states_and_rotation_are_those_of_the_config),
        cmocka_unit_test(norms_are_taken_by_the_layout),
        cmocka_unit_test(without_convolutions_the_final_norm_tells),
        cmocka_unit_test(sizes_that_make_no_model_are_named),
        cmocka_unit_test(layers_that_are_not_served_are_named),
        cmocka_unit_test(missing_tensors_are_listed_together),
        cmocka_unit_test(other_spellings_are_read),
        cmocka_unit_test(end_ids_are_the_union_of_both_configs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
