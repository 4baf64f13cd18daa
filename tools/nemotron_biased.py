"""Makes tests/data/nemo-biased of tests/data/nemo-latent: what transformers' modelling code has no place for.

  build/venv/bin/python tools/nemotron_biased.py

Publishers' own modelling code makes every expert a module whose matrices have biases where the config says
mlp_bias, as the shared expert and the latent projections have; and their files hold an MTP head. So the
checkpoint gets those biases, and a head of one attention block and one block of experts in
model_extra_tensors.safetensors, in the layout of such files. ref64.safetensors is by
tests/ref/nemotron_ref64.py, on the ids and rows of nemo-latent.
"""
import json
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests" / "ref")]
import nemotron_ref64  # noqa: E402
import stfile  # noqa: E402

SOURCE, OUT = ROOT / "tests" / "data" / "nemo-latent", ROOT / "tests" / "data" / "nemo-biased"
BIASED = ("up_proj.weight", "down_proj.weight", "fc1_latent_proj.weight", "fc2_latent_proj.weight")
# As nemotron_oracle.py scales them: an exchange of two experts at a near tie stays small. The first that fits
# counts.
SCALES = {"experts.*.down_proj": 0.03, "down_proj": 0.3, "o_proj": 0.5, "gate.weight": 1.5}
BIAS_SIZES = {"experts.*.down_proj": 0.05, "": 0.2}
SEED = 22


def size_of(name, sizes, default):
    parts = ["*" if part.isdigit() else part for part in name.split(".")]
    plain = ".".join(parts)
    return next((size for part, size in sizes.items() if part in plain), default)


def matrix(rng, name, rows, cols):
    scale = size_of(name, SCALES, 1.0) / cols ** 0.5
    return stfile.from_f64(scale * rng.standard_normal((rows, cols)), "BF16")


def norm(rng, width):
    return stfile.from_f64(1.0 + 0.25 * rng.standard_normal(width), "BF16")


def with_biases(rng, tensors):
    """A bias beside each matrix of an expert, the shared one too, and of a latent projection."""
    out = {}
    for name, tensor in tensors.items():
        out[name] = tensor
        if name.endswith(BIASED):
            size = size_of(name, BIAS_SIZES, 0.2)
            bias = size * rng.standard_normal(tensor.data.shape[0])
            out[name.removesuffix("weight") + "bias"] = stfile.from_f64(bias, "BF16")
    return out


def head(rng, c):
    width, at = c["hidden_size"], "mtp.layers.0."
    heads, heads_kv = c["num_attention_heads"], c["num_key_value_heads"]
    q_width, kv_width = heads * c["head_dim"], heads_kv * c["head_dim"]
    out = {at + part + ".weight": norm(rng, width) for part in ("enorm", "hnorm", "norm")}
    shapes = {"eh_proj": (width, 2 * width), "mixer.q_proj": (q_width, width),
              "mixer.k_proj": (kv_width, width), "mixer.v_proj": (kv_width, width),
              "mixer.o_proj": (width, q_width)}
    out |= {at + part + ".weight": matrix(rng, part, *shape) for part, shape in shapes.items()}
    at, latent, experts = "mtp.layers.1.", c["moe_latent_size"], c["n_routed_experts"]
    out |= {at + part + ".weight": norm(rng, width) for part in ("norm", "final_layernorm")}
    inner, shared = c["moe_intermediate_size"], c["moe_shared_expert_intermediate_size"]
    shapes = {"gate": (experts, width), "fc1_latent_proj": (latent, width),
              "fc2_latent_proj": (width, latent), "shared_experts.up_proj": (shared, width),
              "shared_experts.down_proj": (width, shared)}
    for e in range(experts):
        shapes |= {f"experts.{e}.up_proj": (inner, latent), f"experts.{e}.down_proj": (latent, inner)}
    for part, shape in shapes.items():
        out[f"{at}mixer.{part}.weight"] = matrix(rng, f"{part}.weight", *shape)
    choice = stfile.from_f64(0.1 * rng.standard_normal(experts), "F32")
    out[at + "mixer.gate.e_score_correction_bias"] = choice
    return with_biases(rng, out)


def main():
    rng = np.random.default_rng(SEED)
    tensors = {}
    for path in sorted(SOURCE.glob("model-*.safetensors")):
        tensors |= stfile.read(path)[0]
    config = json.loads((SOURCE / "config.json").read_text())
    config |= {"mlp_bias": True, "num_nextn_predict_layers": 1, "mtp_hybrid_override_pattern": "*E"}
    del config["mtp_layers_block_type"]
    OUT.mkdir(exist_ok=True)
    stfile.write(OUT / "model.safetensors", with_biases(rng, tensors), {"format": "pt"})
    stfile.write(OUT / "model_extra_tensors.safetensors", head(rng, config), {"format": "pt"})
    (OUT / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (OUT / "generation_config.json").write_text((SOURCE / "generation_config.json").read_text())
    source = stfile.read(SOURCE / "ref64.safetensors")[0]
    stfile.write(OUT / "ref64.safetensors", nemotron_ref64.reference(OUT, source))


if __name__ == "__main__":
    main()
