/* Tiny models of the families with recurrences: two layers of Qwen3.5, and one block of each kind of
 * Nemotron-H, both with a draft head.
 */
#ifndef TESTS_FAMILY_TINY_H
#define TESTS_FAMILY_TINY_H

#include "family_made.h"

LW_UNUSED static const char made_qwen_config[] =
    "{'model_type': 'qwen3_5', 'hidden_size': 64, 'num_hidden_layers': 2, 'vocab_size': 64,"
    " 'num_attention_heads': 2, 'num_key_value_heads': 1, 'head_dim': 32, 'linear_num_key_heads': 1,"
    " 'linear_num_value_heads': 2, 'linear_key_head_dim': 32, 'linear_value_head_dim': 32,"
    " 'intermediate_size': 64, 'layer_types': ['linear_attention', 'full_attention'],"
    " 'rope_parameters': {'rope_type': 'default', 'rope_theta': 10000, 'partial_rotary_factor': 0.25},"
    " 'max_position_embeddings': 256, 'eos_token_id': [3, 5]}";

typedef struct made_qwen {
    bool is_mlx;              /* its names, and convolutions turned */
    double norms, head_norms; /* about which the weights lie */
} made_qwen;

LW_UNUSED static void made_qwen_attention(made *m, const char *at, double norms)
{
    made_tensor(m, "BF16", 0.02, "128, 64", "%s.self_attn.q_proj.weight", at);
    made_tensor(m, "BF16", 0.01, "32, 64", "%s.self_attn.k_proj.weight", at);
    made_tensor(m, "BF16", 0.01, "32, 64", "%s.self_attn.v_proj.weight", at);
    made_tensor(m, "BF16", 0.01, "64, 64", "%s.self_attn.o_proj.weight", at);
    made_tensor(m, "BF16", norms, "32", "%s.self_attn.q_norm.weight", at);
    made_tensor(m, "BF16", norms, "32", "%s.self_attn.k_norm.weight", at);
}

LW_UNUSED static void made_qwen_block(made *m, const char *at, double norms)
{
    made_tensor(m, "BF16", norms, "64", "%s.input_layernorm.weight", at);
    made_tensor(m, "BF16", norms, "64", "%s.post_attention_layernorm.weight", at);
    made_tensor(m, "BF16", 0.02, "64, 64", "%s.mlp.gate_proj.weight", at);
    made_tensor(m, "BF16", 0.01, "64, 64", "%s.mlp.up_proj.weight", at);
    made_tensor(m, "BF16", 0.03, "64, 64", "%s.mlp.down_proj.weight", at);
}

LW_UNUSED static folder made_qwen_make(const made_qwen *o)
{
    made m = made_begin();
    const char *prefix = o->is_mlx ? "language_model.model." : "model.language_model.";
    char at[64];
    made_tensor(&m, "BF16", 0.01, "64, 64", "%sembed_tokens.weight", prefix);
    made_tensor(&m, "BF16", o->norms, "64", "%snorm.weight", prefix);
    made_tensor(&m, "BF16", 0.0, "64, 64", o->is_mlx ? "language_model.lm_head.weight" : "lm_head.weight");
    snprintf(at, sizeof at, "%slayers.0", prefix);
    made_qwen_block(&m, at, o->norms);
    made_tensor(&m, "BF16", 0.01, "128, 64", "%s.linear_attn.in_proj_qkv.weight", at);
    made_tensor(&m, "BF16", 0.02, "64, 64", "%s.linear_attn.in_proj_z.weight", at);
    made_tensor(&m, "BF16", 0.01, "2, 64", "%s.linear_attn.in_proj_a.weight", at);
    made_tensor(&m, "BF16", 0.01, "2, 64", "%s.linear_attn.in_proj_b.weight", at);
    made_tensor(&m, "BF16", 0.2, o->is_mlx ? "128, 4, 1" : "128, 1, 4", "%s.linear_attn.conv1d.weight", at);
    made_tensor(&m, "F32", 0.1, "2", "%s.linear_attn.A_log", at);
    made_tensor(&m, "F32", 0.1, "2", "%s.linear_attn.dt_bias", at);
    made_tensor(&m, "BF16", 1.0, "32", "%s.linear_attn.norm.weight", at);
    made_tensor(&m, "BF16", 0.02, "64, 64", "%s.linear_attn.out_proj.weight", at);
    snprintf(at, sizeof at, "%slayers.1", prefix);
    made_qwen_block(&m, at, o->norms);
    made_qwen_attention(&m, at, o->norms);
    made_tensor(&m, "BF16", o->head_norms, "64", "mtp.pre_fc_norm_embedding.weight");
    made_tensor(&m, "BF16", o->head_norms, "64", "mtp.pre_fc_norm_hidden.weight");
    made_tensor(&m, "BF16", 0.01, "64, 128", "mtp.fc.weight");
    made_tensor(&m, "BF16", o->head_norms, "64", "mtp.norm.weight");
    made_qwen_block(&m, "mtp.layers.0", o->head_norms);
    made_qwen_attention(&m, "mtp.layers.0", o->head_norms);
    const folder f = made_end(&m);
    config_write(&f, made_qwen_config, "{}");
    return f;
}

LW_UNUSED static const char made_nemotron_config[] =
    "{'model_type': 'nemotron_h', 'hidden_size': 64, 'vocab_size': 64, 'hybrid_override_pattern': 'ME*-',"
    " 'num_hidden_layers': 4, 'num_attention_heads': 2, 'num_key_value_heads': 1, 'head_dim': 32,"
    " 'mamba_num_heads': 2, 'mamba_head_dim': 32, 'n_groups': 1, 'ssm_state_size': 32, 'conv_kernel': 4,"
    " 'time_step_limit': [0.0, {'__float__': 'Infinity'}], 'intermediate_size': 64, 'n_routed_experts': 4,"
    " 'num_experts_per_tok': 2, 'moe_intermediate_size': 64, 'moe_shared_expert_intermediate_size': 64,"
    " 'n_group': 1, 'topk_group': 1, 'max_position_embeddings': 256, 'eos_token_id': 3}";

LW_UNUSED static void made_nemotron_attention(made *m, const char *at)
{
    made_tensor(m, "BF16", 1.0, "64", "%s.norm.weight", at);
    made_tensor(m, "BF16", 0.02, "64, 64", "%s.mixer.q_proj.weight", at);
    made_tensor(m, "BF16", 0.01, "32, 64", "%s.mixer.k_proj.weight", at);
    made_tensor(m, "BF16", 0.01, "32, 64", "%s.mixer.v_proj.weight", at);
    made_tensor(m, "BF16", 0.01, "64, 64", "%s.mixer.o_proj.weight", at);
}

LW_UNUSED static void made_nemotron_moe(made *m, const char *at)
{
    made_tensor(m, "BF16", 1.0, "64", "%s.norm.weight", at);
    made_tensor(m, "BF16", 0.0, "4, 64", "%s.mixer.gate.weight", at);
    made_tensor(m, "F32", 0.0, "4", "%s.mixer.gate.e_score_correction_bias", at);
    made_tensor(m, "BF16", 0.02, "4, 64, 64", "%s.mixer.switch_mlp.fc1.weight", at);
    made_tensor(m, "BF16", 0.01, "4, 64, 64", "%s.mixer.switch_mlp.fc2.weight", at);
    made_tensor(m, "BF16", 0.02, "64, 64", "%s.mixer.shared_experts.up_proj.weight", at);
    made_tensor(m, "BF16", 0.01, "64, 64", "%s.mixer.shared_experts.down_proj.weight", at);
}

/* more: the name of a vector of 64 elements for each of the first count experts; NULL: none. */
LW_UNUSED static folder made_nemotron_with(const char *more, uint32_t count)
{
    made m = made_begin();
    for (uint32_t e = 0; e < count; e++) {
        char name[96];
        snprintf(name, sizeof name, more, e);
        made_tensor(&m, "BF16", 0.1, "64", "%s", name);
    }
    made_tensor(&m, "BF16", 0.01, "64, 64", "backbone.embeddings.weight");
    made_tensor(&m, "BF16", 1.0, "64", "backbone.norm_f.weight");
    made_tensor(&m, "BF16", 0.0, "64, 64", "lm_head.weight");
    made_tensor(&m, "BF16", 1.0, "64", "backbone.layers.0.norm.weight");
    made_tensor(&m, "BF16", 0.01, "194, 64", "backbone.layers.0.mixer.in_proj.weight");
    made_tensor(&m, "BF16", 0.2, "128, 1, 4", "backbone.layers.0.mixer.conv1d.weight");
    made_tensor(&m, "BF16", 0.0, "128", "backbone.layers.0.mixer.conv1d.bias");
    made_tensor(&m, "F32", 0.1, "2", "backbone.layers.0.mixer.A_log");
    made_tensor(&m, "F32", 0.5, "2", "backbone.layers.0.mixer.D");
    made_tensor(&m, "F32", 0.1, "2", "backbone.layers.0.mixer.dt_bias");
    made_tensor(&m, "BF16", 1.0, "64", "backbone.layers.0.mixer.norm.weight");
    made_tensor(&m, "BF16", 0.01, "64, 64", "backbone.layers.0.mixer.out_proj.weight");
    made_nemotron_moe(&m, "backbone.layers.1");
    made_nemotron_attention(&m, "backbone.layers.2");
    made_tensor(&m, "BF16", 1.0, "64", "backbone.layers.3.norm.weight");
    made_tensor(&m, "BF16", 0.02, "64, 64", "backbone.layers.3.mixer.up_proj.weight");
    made_tensor(&m, "BF16", 0.01, "64, 64", "backbone.layers.3.mixer.down_proj.weight");
    made_tensor(&m, "BF16", 1.0, "64", "mtp.layers.0.enorm.weight");
    made_tensor(&m, "BF16", 1.0, "64", "mtp.layers.0.hnorm.weight");
    made_tensor(&m, "BF16", 0.01, "64, 128", "mtp.layers.0.eh_proj.weight");
    made_tensor(&m, "BF16", 1.0, "64", "mtp.layers.1.final_layernorm.weight");
    made_nemotron_attention(&m, "mtp.layers.0");
    made_nemotron_moe(&m, "mtp.layers.1");
    const folder f = made_end(&m);
    config_write(&f, made_nemotron_config, "{}");
    return f;
}

LW_UNUSED static folder made_nemotron_make(void)
{
    return made_nemotron_with(NULL, 0);
}

#endif
