"""Random Nemotron-H checkpoints with FP64 outputs, made with transformers' own modelling code.

Run where torch and transformers are installed:  python tools/nemotron_oracle.py OUT_DIR
Writes OUT_DIR/nemo-a (hybrid_override_pattern, router groups, every bias, a dense block) and
OUT_DIR/nemo-latent (layers_block_type, experts behind a latent projection, a finite time_step_limit, two
shards). Sizes are odd on purpose. See oracle.py for the two runs behind ref64.safetensors.

Both runs clamp dt to the config's time_step_limit, which the modelling code replaces by [time_step_min, inf];
and attention_bias, which it does not read, adds the biases that it stands for.
"""
import json
import math
import os
import sys

import torch
from transformers import NemotronHConfig, NemotronHForCausalLM
from transformers.models.nemotron_h import modeling_nemotron_h as modeling
from transformers.models.zamba2 import modeling_zamba2

import oracle

COMMON = dict(tie_word_embeddings=False, max_position_embeddings=2048, layer_norm_epsilon=1e-5,
              bos_token_id=1, pad_token_id=0, use_mamba_kernels=False, n_shared_experts=1,
              mlp_hidden_act="relu2", expand=2)
BIASED = dict(vocab_size=251, hidden_size=80, hybrid_override_pattern="MEM*-ME", num_attention_heads=4,
              num_key_value_heads=2, head_dim=20, mamba_num_heads=6, mamba_head_dim=12, ssm_state_size=24,
              n_groups=2, conv_kernel=4, chunk_size=16, intermediate_size=56, n_routed_experts=12, n_group=4,
              topk_group=2, num_experts_per_tok=3, moe_intermediate_size=20,
              moe_shared_expert_intermediate_size=40, norm_topk_prob=True, routed_scaling_factor=2.5,
              use_conv_bias=True, use_bias=True, mamba_proj_bias=True, mlp_bias=True, attention_bias=True,
              eos_token_id=[2, 11])
LATENT = dict(vocab_size=259, hidden_size=72, num_attention_heads=3, num_key_value_heads=1, head_dim=28,
              layers_block_type=["mamba", "moe", "attention", "mamba", "moe"], mamba_num_heads=5,
              mamba_head_dim=16, ssm_state_size=20, n_groups=1, conv_kernel=3, chunk_size=64,
              intermediate_size=56, n_routed_experts=10, num_experts_per_tok=4, moe_intermediate_size=24,
              moe_shared_expert_intermediate_size=32, moe_latent_size=40, norm_topk_prob=False,
              routed_scaling_factor=1.5, use_conv_bias=False, residual_in_fp32=True,
              time_step_limit=(0.004, 0.06), eos_token_id=2)
PROMPTS = [(5, [0, 1, 2, 3, 4]), (70, [0, 1, 31, 62, 63, 64, 65, 66, 67, 68, 69]),
           (150, [0, 62, 63, 64, 65, 127, 128, 129, 130, 147, 148, 149])]
SCAN = ("A_log", "mixer.D", "dt_bias")
# Quiet branches, quieter experts and a head of moderate logits: bf16 noise and the exchange of two experts at
# a near tie stay well below the margin of 0.1 from which tokens must agree. The first part that fits a name
# counts.
SCALES = {"lm_head": 1.5, "gate.weight": 1.5, ".experts.down_proj": 0.03, "down_proj": 0.3, "out_proj": 0.5,
          "o_proj": 0.5}
GENERATION = {"bos_token_id": 1, "eos_token_id": [2, 11], "do_sample": False}


def add_attention_biases(model):
    for layer in model.model.layers:
        if layer.block_type == "full_attention":
            for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
                old = getattr(layer.mixer, name)
                setattr(layer.mixer, name, torch.nn.Linear(old.in_features, old.out_features, bias=True))


def values(name, like):
    """Random values that keep activations alive and dt between 0.001 and 0.3 about."""
    noise = torch.randn_like(like)
    if name.endswith("A_log"):
        return torch.log(torch.empty_like(like).uniform_(0.05, 8.0))
    if name.endswith("dt_bias"):
        dt = torch.exp(torch.empty_like(like).uniform_(math.log(1e-3), math.log(0.3)))
        return dt + torch.log(-torch.expm1(-dt))
    if "e_score_correction_bias" in name:
        return 0.1 * noise
    if name.endswith(".bias"):
        return 0.2 * noise
    if "norm" in name or name.endswith("mixer.D"):
        return 1.0 + 0.25 * noise
    if "embeddings" in name:
        return noise
    if "conv1d" in name:
        return 0.5 * noise
    scale = next((scale for part, scale in SCALES.items() if part in name), 1.0)
    return scale / like.shape[-1] ** 0.5 * noise


def make(name, seed, shape, stays_float):
    torch.manual_seed(seed)
    config = NemotronHConfig(**COMMON, **shape)
    config._experts_implementation = "batched_mm"
    model = NemotronHForCausalLM(config).eval()
    if config.attention_bias:
        add_attention_biases(model)
    with torch.no_grad():
        for key, tensor in [*model.named_parameters(), *model.named_buffers()]:
            filled = values(key, tensor)
            tensor.copy_(filled if any(part in key for part in stays_float) else filled.bfloat16())
    for layer in model.model.layers:
        if layer.block_type == "linear_attention":
            layer.mixer.time_step_limit = tuple(config.time_step_limit)
    print(name)
    ref = oracle.reference(model, config.vocab_size, PROMPTS, stays_float,
                           modules=[modeling, modeling_zamba2])
    return config, published(model.state_dict(), stays_float), ref


def published(state, stays_float):
    """The names and types of a published file: one tensor for every expert."""
    tensors = {}
    for key, tensor in state.items():
        name = key.replace("model.", "backbone.", 1) if key.startswith("model.") else key
        tensor = tensor if any(part in key for part in stays_float) else tensor.bfloat16()
        base, dot, part = name.rpartition(".experts.")
        if dot:
            tensors |= {f"{base}.experts.{e}.{part}.weight": one.clone() for e, one in enumerate(tensor)}
        else:
            tensors[name] = tensor
    return tensors


def text_of(config):
    return json.loads(config.to_json_string()) | {"architectures": ["NemotronHForCausalLM"],
                                                  "dtype": "bfloat16"}


def main(out_dir):
    config, tensors, ref = make("nemo-a", 20, BIASED, (*SCAN, "e_score_correction_bias"))
    text = text_of(config)
    for key in ("layers_block_type", "layer_types", "time_step_limit"):
        text.pop(key, None)
    text |= {"hybrid_override_pattern": BIASED["hybrid_override_pattern"], "num_hidden_layers": 7}
    oracle.write(os.path.join(out_dir, "nemo-a"), tensors, ref, (text, GENERATION))

    config, tensors, ref = make("nemo-latent", 21, LATENT, ("e_score_correction_bias",))
    text = text_of(config) | {"layers_block_type": LATENT["layers_block_type"]}
    oracle.write(os.path.join(out_dir, "nemo-latent"), tensors, ref, (text, GENERATION), shards=2)


if __name__ == "__main__":
    main(sys.argv[1])
