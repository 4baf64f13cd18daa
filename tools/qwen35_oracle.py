"""Random Qwen3.5 checkpoints with FP64 outputs, made with transformers' own modelling code.

Run where torch and transformers are installed:  python tools/qwen35_oracle.py OUT_DIR
Writes OUT_DIR/qwen-a (dense, tied head, a flat config) and OUT_DIR/qwen-moe (experts, text_config, two shards
and a tensor of a vision tower). Sizes are odd on purpose. See oracle.py for the two runs behind
ref64.safetensors.
"""
import json
import math
import os
import sys

import torch
from transformers.models.qwen3_5 import modeling_qwen3_5 as dense
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as sparse

import oracle

COMMON = dict(max_position_embeddings=2048, rms_norm_eps=1e-6, linear_conv_kernel_dim=4, bos_token_id=None,
              pad_token_id=0, attention_bias=False)
DENSE = dict(vocab_size=241, hidden_size=96, num_hidden_layers=4, intermediate_size=48, num_attention_heads=3,
             num_key_value_heads=1, head_dim=24, linear_num_key_heads=2, linear_num_value_heads=6,
             linear_key_head_dim=20, linear_value_head_dim=24, tie_word_embeddings=True, eos_token_id=[2, 5],
             rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.25,
                                  mrope_section=[1, 1, 1], mrope_interleaved=True))
SPARSE = dict(vocab_size=231, hidden_size=72, num_hidden_layers=4, num_attention_heads=4,
              num_key_value_heads=2, head_dim=20, linear_num_key_heads=2, linear_num_value_heads=4,
              linear_key_head_dim=16, linear_value_head_dim=12, tie_word_embeddings=False, eos_token_id=2,
              num_experts=9, num_experts_per_tok=3, moe_intermediate_size=16,
              shared_expert_intermediate_size=20,
              layer_types=["linear_attention", "full_attention"] * 2,
              rope_parameters=dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=0.4,
                                   mrope_section=[2, 1, 1], mrope_interleaved=True))
PROMPTS = [(5, [0, 1, 2, 3, 4]), (70, [0, 1, 31, 62, 63, 64, 65, 66, 67, 68, 69]),
           (150, [0, 62, 63, 64, 65, 127, 128, 129, 130, 147, 148, 149])]
# Quiet branches, quieter experts and a head of moderate logits: bf16 noise and the exchange of two experts at
# a near tie stay well below the margin of 0.1 from which tokens must agree. The first part that fits a name
# counts.
SCALES = {"lm_head": 1.5, "mlp.gate.": 1.5, "experts.down_proj": 0.25, "out_proj": 0.5, "o_proj": 0.5,
          "down_proj": 0.5}
TIED_SCALES = {"embed": 1.5, "out_proj": 0.15, "o_proj": 0.15, "down_proj": 0.15}
FLOATS = ("A_log", "dt_bias")
GENERATION = {"bos_token_id": None, "eos_token_id": [2, 7], "do_sample": False}


def fill(model, tied):
    """Random weights that keep activations alive; all are bf16 values but those of FLOATS."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn_like(weight)
            if name.endswith("A_log"):
                weight.copy_(torch.log(torch.empty_like(weight).uniform_(0.05, 8.0)))
            elif name.endswith("dt_bias"):
                dt = torch.exp(torch.empty_like(weight).uniform_(math.log(1e-3), math.log(0.3)))
                weight.copy_(dt + torch.log(-torch.expm1(-dt)))
            elif tied and name == "model.norm.weight":
                # Signs of either kind: else a tied head of quiet branches repeats its last token.
                weight.copy_((noise - 1.0).bfloat16())
            elif "norm" in name:
                weight.copy_((name.endswith("linear_attn.norm.weight") + 0.25 * noise).bfloat16())
            elif "conv1d" in name:
                weight.copy_((0.5 * noise).bfloat16())
            elif "embed" in name and not tied:
                weight.copy_(noise.bfloat16())
            else:
                scales = TIED_SCALES if tied else SCALES
                scale = next((scale for part, scale in scales.items() if part in name), 1.0)
                weight.copy_((scale / weight.shape[-1] ** 0.5 * noise).bfloat16())


def tune(model):
    """Keys that point along the queries, as in a trained model: a row whose key and query are orthogonal
    writes almost nothing, and the norm behind it blows up its rounding."""
    with torch.no_grad():
        for layer in model.model.layers:
            if layer.block_type != "linear_attention":
                continue
            part, width = layer.linear_attn, layer.linear_attn.key_dim
            for weight in (part.in_proj_qkv.weight, part.conv1d.weight):
                q, k = weight[:width], weight[width:2 * width]
                k.copy_((0.7 * (q + k)).bfloat16())


def make(name, seed, shape, classes):
    torch.manual_seed(seed)
    config_class, model_class, modeling, rotary = classes
    config = config_class(**COMMON, **shape)
    config._experts_implementation = "batched_mm"
    model = model_class(config).eval()
    fill(model, config.tie_word_embeddings)
    tune(model)
    rope = shape["rope_parameters"]
    width = int(config.head_dim * rope["partial_rotary_factor"])
    print(name)
    ref = oracle.reference(model, config.vocab_size, PROMPTS, FLOATS, modules=[modeling],
                           rotary=(rotary, oracle.double_rotary(width, rope["rope_theta"])))
    tensors = {key: weight.detach() for key, weight in model.state_dict().items()}
    if config.tie_word_embeddings:
        del tensors["lm_head.weight"]
    tensors = {key: weight if key.endswith(FLOATS) else weight.bfloat16() for key, weight in tensors.items()}
    return config, tensors, ref


def main(out_dir):
    config, tensors, ref = make("qwen-a", 12, DENSE, (
        dense.Qwen3_5TextConfig, dense.Qwen3_5ForCausalLM, dense, dense.Qwen3_5TextRotaryEmbedding))
    text = json.loads(config.to_json_string())
    text |= {"architectures": ["Qwen3_5ForCausalLM"], "dtype": "bfloat16"}
    oracle.write(os.path.join(out_dir, "qwen-a"), tensors, ref, (text, GENERATION))

    config, tensors, ref = make("qwen-moe", 11, SPARSE, (
        sparse.Qwen3_5MoeTextConfig, sparse.Qwen3_5MoeForCausalLM, sparse,
        sparse.Qwen3_5MoeTextRotaryEmbedding))
    text = json.loads(config.to_json_string())
    del text["layer_types"]
    text |= {"full_attention_interval": 2, "dtype": "bfloat16"}
    tensors = {key.replace("model.", "model.language_model.", 1): weight for key, weight in tensors.items()}
    tensors["model.visual.merger.norm.weight"] = torch.ones(8).bfloat16()
    whole = {"architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe",
             "image_token_id": 228, "tie_word_embeddings": False, "text_config": text,
             "vision_config": {"model_type": "qwen3_5_moe", "depth": 1, "hidden_size": 8}}
    oracle.write(os.path.join(out_dir, "qwen-moe"), tensors, ref, (whole, GENERATION), shards=2)


if __name__ == "__main__":
    main(sys.argv[1])
