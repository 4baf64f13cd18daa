"""Writes a GGUF file with random weights at the shape of a synthetic model, so that other engines can be
timed on it.

  python3 tools/synth_gguf.py lfm2-1.2b q4_0 OUT.gguf [--table q4_0]

Shapes are those of `lanewise bench --synth`, whose config.json says the sizes; build/lanewise must be
there. Formats: q4_0, q8_0, bf16. Norms, convolutions, recurrences' vectors and routers are fp32, as
llama.cpp's converters leave them. The embedding and the head are q8_0 in a q4_0 file, near to what is
published, unless --table says otherwise. Draft heads are left out. LFM3 is written as lfm2, the nearest
that is known there: the same matrices and taps, without output gates and second norms, and all attention
over all positions.

The last line of standard output is a JSON object: file_bytes, bytes_per_token (what decoding one token
reads of weights: of a stack the chosen experts, of an embedding that is not the head too one row),
parameters, architecture. Tensors are written one after the other from one block of random bytes, so memory
stays small. Needs no packages.
"""
import argparse
import array
import json
import math
import random
import struct
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
BINARY = ROOT / "build" / "lanewise"
MAGIC, VERSION, ALIGN = b"GGUF", 3, 32
U32, I32, F32, BOOL, TEXT, LIST = 4, 5, 6, 7, 8, 9      # kinds of metadata
CODES = {"f32": 0, "q4_0": 2, "q8_0": 8, "bf16": 30}    # kinds of tensors
BLOCK = 32                                              # weights that share a scale
BLOCK_BYTES = {"f32": 128, "q4_0": 18, "q8_0": 34, "bf16": 64}
FILE_TYPES = {"q4_0": 2, "q8_0": 7, "bf16": 32}
NOISE_BYTES = 1 << 22
SEED = 1234


class Tensor(NamedTuple):
    name: str
    dims: tuple         # innermost first, as GGUF has them
    kind: str           # a key of CODES
    share: float = 1.0  # of its bytes, that a token reads

    @property
    def count(self):
        return math.prod(self.dims)

    @property
    def bytes(self):
        return self.count // BLOCK * BLOCK_BYTES[self.kind] if self.kind != "f32" else 4 * self.count


# ---- what each architecture's files hold ----

class Model:
    """Tensors and metadata as they are collected; c is the shape's config."""

    def __init__(self, architecture, c, kinds):
        self.architecture, self.c = architecture, c
        self.kind, self.table = kinds
        self.tensors, self.metadata = [], []

    def matrix(self, name, cols, rows):
        self.tensors.append(Tensor(name + ".weight", (cols, rows), self.kind))

    def stack(self, name, cols, rows):
        chosen = self.c["num_experts_per_tok"] / experts_of(self.c)
        self.tensors.append(Tensor(name + ".weight", (cols, rows, experts_of(self.c)), self.kind, chosen))

    def vector(self, name, *dims):
        self.tensors.append(Tensor(name, dims, "f32"))

    def tables(self, norm, tied):
        width, vocab = self.c["hidden_size"], self.c["vocab_size"]
        row = 1.0 if tied else 1.0 / vocab
        self.tensors.append(Tensor("token_embd.weight", (width, vocab), self.table, row))
        if not tied:
            self.tensors.append(Tensor("output.weight", (width, vocab), self.table))
        self.vector(norm + ".weight", width)

    def set(self, key, kind, value):
        self.metadata.append((f"{self.architecture}.{key}", kind, value))

    def counts(self, **values):
        for key, value in values.items():
            self.set(key.replace("__", "."), U32, value)


def experts_of(c):
    return c.get("n_routed_experts") or c.get("num_experts") or 0


def attention(m, at, query_times=1):
    c = m.c
    width, dim = c["hidden_size"], c["head_dim"]
    m.matrix(at + "attn_q", width, c["num_attention_heads"] * dim * query_times)
    m.matrix(at + "attn_k", width, c["num_key_value_heads"] * dim)
    m.matrix(at + "attn_v", width, c["num_key_value_heads"] * dim)
    m.matrix(at + "attn_output", c["num_attention_heads"] * dim, width)


def swiglu(m, at, names, inner):
    gate, up, down = names
    m.matrix(at + gate, m.c["hidden_size"], inner)
    m.matrix(at + up, m.c["hidden_size"], inner)
    m.matrix(at + down, inner, m.c["hidden_size"])


def lfm(m):
    c, width = m.c, m.c["hidden_size"]
    m.tables("token_embd_norm", tied=True)
    for i, kind in enumerate(c["layer_types"]):
        at = f"blk.{i}."
        m.vector(at + "attn_norm.weight", width)
        m.vector(at + "ffn_norm.weight", width)
        if kind == "conv":
            m.vector(at + "shortconv.conv.weight", c["conv_L_cache"], width)
            m.matrix(at + "shortconv.in_proj", width, 3 * width)
            m.matrix(at + "shortconv.out_proj", width, width)
        else:
            attention(m, at)
            m.vector(at + "attn_q_norm.weight", c["head_dim"])
            m.vector(at + "attn_k_norm.weight", c["head_dim"])
        swiglu(m, at, ("ffn_gate", "ffn_up", "ffn_down"), c["intermediate_size"])
    heads_kv = [0 if kind == "conv" else c["num_key_value_heads"] for kind in c["layer_types"]]
    m.set("attention.head_count_kv", LIST, (I32, heads_kv))
    m.counts(feed_forward_length=c["intermediate_size"], shortconv__l_cache=c["conv_L_cache"])


def delta(m, at):
    c, width = m.c, m.c["hidden_size"]
    heads = c["linear_num_value_heads"]
    keys = c["linear_num_key_heads"] * c["linear_key_head_dim"]
    values = heads * c["linear_value_head_dim"]
    m.matrix(at + "attn_qkv", width, 2 * keys + values)
    m.matrix(at + "attn_gate", width, values)
    m.matrix(at + "ssm_beta", width, heads)
    m.matrix(at + "ssm_alpha", width, heads)
    m.matrix(at + "ssm_out", values, width)
    m.vector(at + "ssm_conv1d.weight", c["linear_conv_kernel_dim"], 2 * keys + values)
    m.vector(at + "ssm_dt.bias", heads)
    m.vector(at + "ssm_a", heads)
    m.vector(at + "ssm_norm.weight", c["linear_value_head_dim"])


def qwen_experts(m, at):
    c, width = m.c, m.c["hidden_size"]
    m.vector(at + "ffn_gate_inp.weight", width, experts_of(c))
    m.vector(at + "ffn_gate_inp_shexp.weight", width)
    m.stack(at + "ffn_gate_exps", width, c["moe_intermediate_size"])
    m.stack(at + "ffn_up_exps", width, c["moe_intermediate_size"])
    m.stack(at + "ffn_down_exps", c["moe_intermediate_size"], width)
    swiglu(m, at, ("ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"), c["shared_expert_intermediate_size"])


def qwen(m):
    c, width = m.c, m.c["hidden_size"]
    m.tables("output_norm", tied=c["tie_word_embeddings"])
    for i in range(c["num_hidden_layers"]):
        at = f"blk.{i}."
        m.vector(at + "attn_norm.weight", width)
        m.vector(at + "post_attention_norm.weight", width)
        if (i + 1) % c["full_attention_interval"] == 0:
            attention(m, at, query_times=2)  # the other half is its gate
            m.vector(at + "attn_q_norm.weight", c["head_dim"])
            m.vector(at + "attn_k_norm.weight", c["head_dim"])
        else:
            delta(m, at)
        if experts_of(c):
            qwen_experts(m, at)
        else:
            swiglu(m, at, ("ffn_gate", "ffn_up", "ffn_down"), c["intermediate_size"])
    m.set("rope.dimension_sections", LIST, (I32, [11, 11, 10, 0]))
    m.counts(attention__head_count_kv=c["num_key_value_heads"],
             full_attention_interval=c["full_attention_interval"],
             ssm__conv_kernel=c["linear_conv_kernel_dim"], ssm__state_size=c["linear_key_head_dim"],
             ssm__inner_size=c["linear_num_value_heads"] * c["linear_value_head_dim"],
             ssm__time_step_rank=c["linear_num_value_heads"], ssm__group_count=c["linear_num_key_heads"])
    if not experts_of(c):
        m.counts(feed_forward_length=c["intermediate_size"])
        return
    m.counts(expert_count=experts_of(c), expert_used_count=c["num_experts_per_tok"],
             expert_feed_forward_length=c["moe_intermediate_size"],
             expert_shared_feed_forward_length=c["shared_expert_intermediate_size"])


def mamba(m, at):
    c, width, heads = m.c, m.c["hidden_size"], m.c["mamba_num_heads"]
    inner = heads * c["mamba_head_dim"]
    mixed = inner + 2 * c["n_groups"] * c["ssm_state_size"]
    m.matrix(at + "ssm_in", width, inner + mixed + heads)
    m.matrix(at + "ssm_out", inner, width)
    m.vector(at + "ssm_conv1d.weight", c["conv_kernel"], mixed)
    m.vector(at + "ssm_conv1d.bias", mixed)
    m.vector(at + "ssm_dt.bias", heads)
    m.vector(at + "ssm_a", 1, heads)
    m.vector(at + "ssm_d", 1, heads)
    m.vector(at + "ssm_norm.weight", inner // c["n_groups"], c["n_groups"])


def nemotron_experts(m, at):
    c, width = m.c, m.c["hidden_size"]
    m.vector(at + "ffn_gate_inp.weight", width, experts_of(c))
    m.vector(at + "exp_probs_b.bias", experts_of(c))
    m.stack(at + "ffn_up_exps", width, c["moe_intermediate_size"])
    m.stack(at + "ffn_down_exps", c["moe_intermediate_size"], width)
    m.matrix(at + "ffn_up_shexp", width, c["moe_shared_expert_intermediate_size"])
    m.matrix(at + "ffn_down_shexp", c["moe_shared_expert_intermediate_size"], width)


def nemotron(m):
    c, width, pattern = m.c, m.c["hidden_size"], m.c["hybrid_override_pattern"]
    blocks = {"M": mamba, "*": attention, "E": nemotron_experts}
    m.tables("output_norm", tied=False)
    for i, letter in enumerate(pattern):
        m.vector(f"blk.{i}.attn_norm.weight", width)
        blocks[letter](m, f"blk.{i}.")
    # A block without keys and without a feed-forward width is a recurrent one.
    heads_kv = [c["num_key_value_heads"] if letter == "*" else 0 for letter in pattern]
    inner = [c["moe_intermediate_size"] if letter == "E" else 0 for letter in pattern]
    m.set("attention.head_count_kv", LIST, (I32, heads_kv))
    m.set("feed_forward_length", LIST, (I32, inner))
    m.set("attention.layer_norm_epsilon", F32, c["layer_norm_epsilon"])
    m.set("expert_weights_norm", BOOL, True)
    m.set("expert_weights_scale", F32, c["routed_scaling_factor"])
    m.counts(ssm__conv_kernel=c["conv_kernel"], ssm__state_size=c["ssm_state_size"],
             ssm__inner_size=c["mamba_num_heads"] * c["mamba_head_dim"],
             ssm__time_step_rank=c["mamba_num_heads"], ssm__group_count=c["n_groups"],
             expert_count=experts_of(c), expert_used_count=c["num_experts_per_tok"], expert_gating_func=2,
             expert_group_count=1, expert_group_used_count=1, expert_shared_count=1,
             expert_feed_forward_length=c["moe_intermediate_size"],
             expert_shared_feed_forward_length=c["moe_shared_expert_intermediate_size"])


FAMILIES = {  # model_type: architecture, its pre-tokenizer, what fills a model
    "lfm2": ("lfm2", "lfm2", lfm), "lfm3": ("lfm2", "lfm2", lfm),
    "qwen3_5_text": ("qwen35", "qwen35", qwen), "qwen3_5_moe_text": ("qwen35moe", "qwen35", qwen),
    "nemotron_h": ("nemotron_h_moe", "llama-bpe", nemotron),
}


def common(m, name):
    c = m.c
    m.metadata += [("general.architecture", TEXT, m.architecture), ("general.name", TEXT, name + " random"),
                   ("general.alignment", U32, ALIGN), ("general.file_type", U32, FILE_TYPES[m.kind])]
    rotated = {"qwen35": c["head_dim"] // 4, "qwen35moe": c["head_dim"] // 4}
    m.counts(vocab_size=c["vocab_size"], context_length=c["max_position_embeddings"],
             embedding_length=c["hidden_size"], block_count=c["num_hidden_layers"],
             attention__head_count=c["num_attention_heads"], attention__key_length=c["head_dim"],
             attention__value_length=c["head_dim"],
             rope__dimension_count=rotated.get(m.architecture, c["head_dim"]))
    m.set("rope.freq_base", F32, 1e6)
    m.set("attention.layer_norm_rms_epsilon", F32, 1e-5)


def tokenizer(m, pre):
    """The 256 bytes as byte-level BPE spells them, four control tokens, and fillers."""
    own = [b for b in range(256) if 0x21 <= b <= 0x7E or 0xA1 <= b != 0xAD]
    others = [b for b in range(256) if b not in own]
    chars = {b: chr(b) for b in own} | {b: chr(0x100 + i) for i, b in enumerate(others)}
    control = ["<|begin|>", "<|start|>", "<|end|>", "<|pad|>"]
    texts = [chars[b] for b in range(256)] + control
    texts += [f"t{i}" for i in range(len(texts), m.c["vocab_size"])]
    kinds = [1] * 256 + [3] * len(control) + [1] * (len(texts) - 256 - len(control))
    space = chars[0x20]
    m.metadata += [
        ("tokenizer.ggml.model", TEXT, "gpt2"), ("tokenizer.ggml.pre", TEXT, pre),
        ("tokenizer.ggml.tokens", LIST, (TEXT, texts)), ("tokenizer.ggml.token_type", LIST, (I32, kinds)),
        ("tokenizer.ggml.merges", LIST, (TEXT, [f"{space} {space}"])),
        ("tokenizer.ggml.bos_token_id", U32, 256), ("tokenizer.ggml.eos_token_id", U32, 258),
        ("tokenizer.ggml.add_bos_token", BOOL, False)]


def model_of(name, config, kind, table):
    """name says what metadata call it."""
    architecture, pre, fill = FAMILIES[config["model_type"]]
    m = Model(architecture, config, (kind, table))
    common(m, name)
    fill(m)
    tokenizer(m, pre)
    return m


# ---- bytes ----

def packed_text(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def packed_value(kind, value):
    if kind == TEXT:
        return packed_text(value)
    if kind == LIST:
        inner, values = value
        return struct.pack("<IQ", inner, len(values)) + b"".join(packed_value(inner, v) for v in values)
    return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], value)


def padded(count):
    return -(-count // ALIGN) * ALIGN


def header(m):
    out = [MAGIC, struct.pack("<IQQ", VERSION, len(m.tensors), len(m.metadata))]
    out += [packed_text(key) + struct.pack("<I", kind) + packed_value(kind, v) for key, kind, v in m.metadata]
    at = 0
    for tensor in m.tensors:
        out.append(packed_text(tensor.name) + struct.pack("<I", len(tensor.dims)))
        out.append(struct.pack(f"<{len(tensor.dims)}QIQ", *tensor.dims, CODES[tensor.kind], at))
        at += padded(tensor.bytes)
    data = b"".join(out)
    return data + b"\0" * (padded(len(data)) - len(data))


def half(value):
    return struct.pack("<e", value)


def noise(tensor, rng):
    """Whole blocks of bytes, to be repeated: values of variance 1 / inputs, or of a vector's own."""
    deviation = tensor.dims[0] ** -0.5
    blocks = NOISE_BYTES // BLOCK_BYTES[tensor.kind]
    if tensor.kind == "f32":
        if tensor.name.endswith("ssm_a"):  # minus e to the stored a_log
            return array.array("f", [-1.0]).tobytes()
        if "norm" in tensor.name or tensor.name.endswith("ssm_d"):
            return array.array("f", [1.0]).tobytes()
        return array.array("f", (rng.gauss(0.0, 0.3) for _ in range(1 << 14))).tobytes()
    if tensor.kind == "bf16":
        values = array.array("f", (rng.gauss(0.0, deviation) for _ in range(1 << 16))).tobytes()
        return b"".join(values[i + 2:i + 4] for i in range(0, len(values), 4))
    # Codes are uniform: of 4 bits less 8 their deviation is 4.6, of 8 bits 74.
    scale = half(deviation / (4.6 if tensor.kind == "q4_0" else 74.0))
    codes = BLOCK_BYTES[tensor.kind] - len(scale)
    random_bytes = rng.randbytes(blocks * codes)
    return b"".join(scale + random_bytes[i * codes:(i + 1) * codes] for i in range(blocks))


def write_tensor(file, tensor, block):
    left = tensor.bytes
    while left > 0:
        left -= file.write(block if left >= len(block) else block[:left])
    file.write(b"\0" * (padded(tensor.bytes) - tensor.bytes))


def write(path, m):
    rng, blocks = random.Random(SEED), {}
    with open(path, "wb") as file:
        file.write(header(m))
        for tensor in m.tensors:
            key = (tensor.kind, tensor.dims[0]) if tensor.kind != "f32" else tensor.name.split(".", 2)[-1]
            if key not in blocks:
                blocks[key] = noise(tensor, rng)
            write_tensor(file, tensor, blocks[key])


def summary(m):
    tensor_bytes = sum(tensor.bytes for tensor in m.tensors)
    read = sum(tensor.bytes * tensor.share for tensor in m.tensors)
    file_bytes = len(header(m)) + sum(padded(tensor.bytes) for tensor in m.tensors)
    return {"architecture": m.architecture, "file_bytes": file_bytes,
            "tensor_bytes": tensor_bytes, "bytes_per_token": round(read),
            "parameters": sum(tensor.count for tensor in m.tensors)}


def shape_config(shape):
    """The config.json of a shape's synthetic checkpoint."""
    command = [str(BINARY), "bench", "--synth", f"{shape}-bf16", "--config"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("shape")
    parser.add_argument("format", choices=FILE_TYPES)
    parser.add_argument("out", type=Path)
    parser.add_argument("--table", choices=FILE_TYPES, help="of embedding and head")
    args = parser.parse_args()
    table = args.table or ("q8_0" if args.format == "q4_0" else args.format)
    m = model_of(args.shape, shape_config(args.shape), args.format, table)
    write(args.out, m)
    print(json.dumps(summary(m)))


if __name__ == "__main__":
    sys.exit(main())
