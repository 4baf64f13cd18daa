"""Random LFM2 checkpoints with FP64 outputs, made with transformers' own modelling code.

Run where torch and transformers are installed:  python tools/lfm2_oracle.py OUT_DIR
Writes OUT_DIR/lfm2-a and OUT_DIR/lfm2-b. See oracle.py for the two runs behind ref64.safetensors.
"""
import json
import os
import sys

import torch
from transformers import Lfm2Config, Lfm2ForCausalLM
from transformers.models.lfm2 import modeling_lfm2 as modeling

import oracle

SHAPES = {
    "lfm2-a": dict(hidden_size=96, num_hidden_layers=5, num_attention_heads=4, num_key_value_heads=2,
                   intermediate_size=240, block_auto_adjust_ff_dim=True, block_multiple_of=32, conv_L_cache=3,
                   layer_types=["conv", "full_attention", "conv", "conv", "full_attention"]),
    "lfm2-b": dict(hidden_size=80, num_hidden_layers=4, num_attention_heads=5, num_key_value_heads=1,
                   intermediate_size=112, block_auto_adjust_ff_dim=False, conv_L_cache=4,
                   layer_types=["full_attention", "conv", "conv", "full_attention"]),
}
VOCAB, THETA = 257, 1e6
PROMPTS = [(length, range(length)) for length in (40, 90, 300)]
GENERATION = {"bos_token_id": 1, "eos_token_id": 2, "do_sample": False}


def make_model(name, seed):
    torch.manual_seed(seed)
    config = Lfm2Config(vocab_size=VOCAB, max_position_embeddings=2048, conv_bias=False, norm_eps=1e-5,
                        rope_theta=THETA, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2,
                        pad_token_id=0, **SHAPES[name])
    model = Lfm2ForCausalLM(config).eval()
    with torch.no_grad():
        for key, weight in model.named_parameters():
            norm = "norm" in key
            # A quiet head: its noise stays well below the margin of 0.1 from which tokens must agree.
            scale = 0.5 if "embed_tokens" in key else 1.5
            spread = 0.25 if norm else scale / weight.shape[-1] ** 0.5 if weight.dim() == 2 else 0.6
            weight.copy_((norm + spread * torch.randn_like(weight)).to(torch.bfloat16))
    return model


def main(out_dir):
    for seed, name in enumerate(SHAPES):
        model = make_model(name, seed)
        config, backbone = model.config, model.model
        rotary = type(backbone.rotary_emb if hasattr(backbone, "rotary_emb") else backbone.pos_emb)
        width = config.hidden_size // config.num_attention_heads
        print(name)
        ref = oracle.reference(model, VOCAB, PROMPTS, modules=[modeling],
                               rotary=(rotary, oracle.double_rotary(width, THETA)))
        tensors = {k: v.bfloat16() for k, v in model.state_dict().items() if k != "lm_head.weight"}
        text = json.loads(config.to_json_string()) | {"architectures": ["Lfm2ForCausalLM"]}
        oracle.write(os.path.join(out_dir, name), tensors, ref, (text, GENERATION))


if __name__ == "__main__":
    main(sys.argv[1])
