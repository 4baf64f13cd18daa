"""Random LFM2 checkpoints with FP64 outputs, made with transformers' own modelling code.

Run where torch and transformers are installed:  python tools/lfm2_oracle.py OUT_DIR
Writes OUT_DIR/lfm2-a and OUT_DIR/lfm2-b: config.json, generation_config.json, model.safetensors (bf16) and
ref64.safetensors in the layout that `lanewise check` reads. The forward runs in float64 with the steps that
the modelling code pins to float32 (norms, rotary angles, softmax) widened; bf16_gap comes from the same
weights run in bf16 by the unchanged code.
"""
import json
import os
import sys

import torch
from safetensors.torch import save_file
from transformers import Lfm2Config, Lfm2ForCausalLM
from transformers.models.lfm2 import modeling_lfm2 as modeling

SHAPES = {
    "lfm2-a": dict(hidden_size=96, num_hidden_layers=5, num_attention_heads=4, num_key_value_heads=2,
                   intermediate_size=240, block_auto_adjust_ff_dim=True, block_multiple_of=32, conv_L_cache=3,
                   layer_types=["conv", "full_attention", "conv", "conv", "full_attention"]),
    "lfm2-b": dict(hidden_size=80, num_hidden_layers=4, num_attention_heads=5, num_key_value_heads=1,
                   intermediate_size=112, block_auto_adjust_ff_dim=False, conv_L_cache=4,
                   layer_types=["full_attention", "conv", "conv", "full_attention"]),
}
VOCAB, GREEDY = 257, 64
PROMPT_ROWS = (40, 90, 300)


def make_model(name, seed):
    torch.manual_seed(seed)
    config = Lfm2Config(vocab_size=VOCAB, max_position_embeddings=2048, conv_bias=False, norm_eps=1e-5,
                        rope_theta=1e6, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2,
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


def norm_double(self, hidden):
    variance = hidden.double().pow(2).mean(-1, keepdim=True)
    return self.weight * (hidden.double() * torch.rsqrt(variance + self.variance_epsilon)).to(hidden.dtype)


def rotary_double(head_dim, theta):
    frequency = theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)

    def forward(self, x, position_ids, *args, **kwargs):
        angle = position_ids[..., None].double() * frequency
        both = torch.cat((angle, angle), dim=-1)
        return both.cos().to(x.dtype), both.sin().to(x.dtype)
    return forward


def run(model, ids):
    """The residual stream after the embedding and each layer, (layers + 1, rows, width), and the logits."""
    streams = []

    def keep(module, inputs, out):
        streams.append(out[0] if isinstance(out, tuple) else out)

    hooks = [part.register_forward_hook(keep) for part in (model.model.embed_tokens, *model.model.layers)]
    with torch.no_grad():
        logits = model(input_ids=ids[None], use_cache=False).logits[0]
    for hook in hooks:
        hook.remove()
    return torch.stack([s[0] for s in streams]), logits


def patched(model, config):
    """The classes of the modelling code with their float32 steps in float64."""
    kept = modeling.Lfm2RMSNorm.forward
    rotary = type(model.model.rotary_emb if hasattr(model.model, "rotary_emb") else model.model.pos_emb)
    kept_rotary = rotary.forward
    modeling.Lfm2RMSNorm.forward = norm_double
    rotary.forward = rotary_double(config.hidden_size // config.num_attention_heads, 1e6)
    return lambda: (setattr(modeling.Lfm2RMSNorm, "forward", kept), setattr(rotary, "forward", kept_rotary))


def reference(model, config):
    out = {}
    model = model.to(torch.bfloat16)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    for j, rows in enumerate(PROMPT_ROWS):
        ids = torch.randint(3, VOCAB, (rows,), generator=torch.Generator().manual_seed(100 + j))
        model.load_state_dict(state)
        model.config._attn_implementation = "sdpa"
        half, _ = run(model.to(torch.bfloat16), ids)
        undo = patched(model, config)
        double = model.to(torch.float64)
        hidden, logits = run(double, ids)
        greedy, margin, sequence = [], [], ids
        for _ in range(GREEDY):
            last = run(double, sequence)[1][-1]
            best = last.topk(2)
            greedy.append(int(best.indices[0]))
            margin.append(float(best.values[0] - best.values[1]))
            sequence = torch.cat((sequence, best.indices[:1]))
        undo()
        model.to(torch.bfloat16)
        gap = (half.double() - hidden).norm(dim=-1) / hidden.norm(dim=-1)
        out |= {f"p{j}.ids": ids.int(), f"p{j}.rows": torch.arange(rows).int(),
                f"p{j}.hidden": hidden.float().contiguous(), f"p{j}.bf16_gap": gap.float().contiguous(),
                f"p{j}.logits": logits[-16:].float().contiguous(), f"p{j}.greedy": torch.tensor(greedy).int(),
                f"p{j}.margin": torch.tensor(margin).float()}
        print(f"p{j}: mean gap of the last layer {gap[-1].mean():.2e}, margin {sum(margin) / GREEDY:.3f}")
    return state, out


def main(out_dir):
    for seed, name in enumerate(SHAPES):
        folder = os.path.join(out_dir, name)
        os.makedirs(folder, exist_ok=True)
        model = make_model(name, seed)
        state, ref = reference(model, model.config)
        tensors = {k: v.contiguous() for k, v in state.items() if k != "lm_head.weight"}
        save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
        save_file(ref, os.path.join(folder, "ref64.safetensors"))
        config = json.loads(model.config.to_json_string())
        config["architectures"] = ["Lfm2ForCausalLM"]
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(config, file, indent=1)
        with open(os.path.join(folder, "generation_config.json"), "w") as file:
            json.dump({"bos_token_id": 1, "eos_token_id": 2, "do_sample": False}, file)


if __name__ == "__main__":
    main(sys.argv[1])
