"""FP64 reference of LFM3, written from the published formulas alone; shares no code with the engine.

  lfm3_ref64.py MODEL --source REF64 --out FILE     writes a ref64.safetensors for MODEL's weights
  lfm3_ref64.py MODEL --source REF64                compares with REF64 instead and prints the distances

The same forward runs twice: in double throughout, and with a rounding to bf16 at every point where the
formulas store bf16 (weights too). The second gives bf16_gap, the yardstick for all that computes in bf16.
"""
import argparse
import json
import sys
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "tools"), str(Path(__file__).resolve().parent)]
import dequant64  # noqa: E402
import stfile  # noqa: E402

GREEDY_TOKENS = 64
LOGIT_ROWS = 16


def exact(x):
    return x


def to_bf16(x):
    return stfile.bf16_values(stfile.bf16_words(x)).astype(np.float64)


def load_tensors(folder):
    """All tensors of a folder by name."""
    tensors = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        if path.name != "ref64.safetensors":
            tensors.update(stfile.read(path)[0])
    return tensors


class Model:
    """Weights and one way of rounding."""

    def __init__(self, folder, rounding):
        self.config = json.loads((Path(folder) / "config.json").read_text())
        tensors = load_tensors(folder)
        settings = self.config.get("quantization") or self.config.get("quantization_config") or {}
        self.round = rounding
        self.weights = {}
        for module in dequant64.modules(tensors):
            values = dequant64.values(tensors, module, settings)
            self.weights[module.removeprefix("model.")] = rounding(values)
        for i, kind in enumerate(self.config["layer_types"]):
            if kind == "conv":
                self.weights[f"layers.{i}.conv.conv"] = self.weights[f"layers.{i}.conv.conv"].reshape(
                    self.config["hidden_size"], self.config["conv_L_cache"])

    def linear(self, x, name):
        return self.round(x @ self.weights[name].T)

    def norm(self, x, weight):
        """Rounds after the division, then multiplies by the weight."""
        scaled = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.config["norm_eps"])
        return self.round(weight * self.round(scaled))

    def inv_freq(self, kind):
        """(head_dim / 2,) frequencies. A full layer turns only the first part, in steps of head_dim."""
        rope, dim = self.config["rope_parameters"][kind], self.config["head_dim"]
        i = np.arange(dim // 2)
        freq = rope["rope_theta"] ** (-2.0 * i / dim)
        turning = int(dim * rope.get("partial_rotary_factor", 1.0)) // 2
        return np.where(i < turning, freq, 0.0)

    def rotate(self, x, positions, kind):
        """x (rows, heads, head_dim): element i pairs with i + head_dim / 2."""
        angle = positions[:, None] * self.inv_freq(kind)[None, :]
        cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
        a, b = np.split(x, 2, axis=-1)
        return self.round(np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1))

    def conv(self, h, i, state):
        """Short causal convolution between two gates; state["s"] holds every earlier sample."""
        width, taps = self.config["hidden_size"], self.config["conv_L_cache"]
        gate_in, gate_out, v = np.split(self.linear(h, f"layers.{i}.conv.in_proj"), 3, axis=-1)
        s = self.round(gate_in * v)
        past = state.get("s", np.zeros((taps - 1, width)))
        stream = np.concatenate([past, s])
        state["s"] = stream[-(taps - 1):]
        kernel, rows = self.weights[f"layers.{i}.conv.conv"], len(h)
        c = self.round(sum(kernel[:, k] * stream[k:k + rows] for k in range(taps)))
        return self.linear(self.round(gate_out * c), f"layers.{i}.conv.out_proj")

    def attention(self, h, i, kind, state):
        heads, heads_kv = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        dim, rows, name = self.config["head_dim"], len(h), f"layers.{i}.self_attn."
        begin = len(state["k"]) if "k" in state else 0
        positions = np.arange(begin, begin + rows)
        q = self.linear(h, name + "q_proj").reshape(rows, heads, dim)
        k = self.linear(h, name + "k_proj").reshape(rows, heads_kv, dim)
        v = self.linear(h, name + "v_proj").reshape(rows, heads_kv, dim)
        q = self.rotate(self.norm(q, self.weights[name + "q_layernorm"]), positions, kind)
        k = self.rotate(self.norm(k, self.weights[name + "k_layernorm"]), positions, kind)
        if begin > 0:
            k, v = np.concatenate([state["k"], k]), np.concatenate([state["v"], v])
        state["k"], state["v"] = k, v
        shared = heads // heads_kv
        scores = np.einsum("rhd,khd->hrk", q, np.repeat(k, shared, axis=1)) / np.sqrt(dim)
        distance = positions[:, None] - np.arange(len(k))[None, :]
        visible = distance >= 0
        if kind == "sliding_attention":
            visible &= distance < self.config["sliding_window"]
        scores = np.where(visible[None], scores, -np.inf)
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        p /= p.sum(axis=-1, keepdims=True)
        o = self.round(np.einsum("hrk,khd->rhd", p, np.repeat(v, shared, axis=1)))
        gate = self.linear(h, name + "gate_proj")
        gate = gate.reshape(rows, heads, -1)
        o = self.round(o * (1.0 / (1.0 + np.exp(-gate))))
        return self.linear(o.reshape(rows, heads * dim), name + "out_proj")

    def forward(self, ids, states):
        """hidden (layers + 1, rows, width) and logits (rows, vocabulary); states move on by the rows."""
        w, x = self.weights, self.weights["embed_tokens"][ids]
        hidden = [x]
        for i, kind in enumerate(self.config["layer_types"]):
            layer = f"layers.{i}."
            h = self.norm(x, w[layer + "operator_norm"])
            r = self.conv(h, i, states[i]) if kind == "conv" else self.attention(h, i, kind, states[i])
            x = self.round(x + self.norm(r, w[layer + "post_operator_norm"]))
            f = self.norm(x, w[layer + "ffn_norm"])
            g = self.linear(f, layer + "feed_forward.w1")
            u = self.linear(f, layer + "feed_forward.w3")
            r = self.linear(self.round(g / (1.0 + np.exp(-g)) * u), layer + "feed_forward.w2")
            x = self.round(x + self.norm(r, w[layer + "post_ffn_norm"]))
            hidden.append(x)
        return np.stack(hidden), self.norm(x, w["embedding_norm"]) @ w["embed_tokens"].T

    def states(self):
        return [{} for _ in self.config["layer_types"]]


def greedy(model, logits, states):
    """Tokens after the prompt and the lead of each over the second best; equal logits go to the lower id."""
    tokens, margins = [], []
    for _ in range(GREEDY_TOKENS):
        token = int(np.argmax(logits))
        second = np.partition(logits, -2)[-2]
        tokens.append(token)
        margins.append(logits[token] - second)
        logits = model.forward(np.array([token]), states)[1][-1]
    return np.array(tokens, dtype=np.int32), np.array(margins)


def reference(folder, source):
    """The tensors of ref64.safetensors for a folder, on the ids and rows of source."""
    wide, narrow = Model(folder, exact), Model(folder, to_bf16)
    out, prompt = {}, 0
    while f"p{prompt}.ids" in source:
        ids, rows = source[f"p{prompt}.ids"].data, source[f"p{prompt}.rows"].data
        states = wide.states()
        hidden, logits = wide.forward(ids, states)
        tokens, margins = greedy(wide, logits[-1], states)
        hidden = hidden[:, rows]
        rounded = narrow.forward(ids, narrow.states())[0][:, rows]
        gap = np.linalg.norm(rounded - hidden, axis=-1) / np.linalg.norm(hidden, axis=-1)
        name = f"p{prompt}."
        for key, values in (("bf16_gap", gap), ("hidden", hidden), ("logits", logits[rows[-LOGIT_ROWS:]]),
                            ("margin", margins)):
            out[name + key] = stfile.from_f64(values, "F32")
        for key, values in (("greedy", tokens), ("ids", ids), ("rows", rows)):
            out[name + key] = stfile.Tensor("I32", values.astype(np.int32))
        prompt += 1
    return out


def compare(ours, source):
    """Prints the distances to a stored reference; true if they are those of two FP64 runs."""
    is_same = True
    for name in sorted(source):
        a, b = ours[name].data, source[name].data
        if source[name].dtype == "I32":
            is_same &= bool(np.array_equal(a, b))
            print(f"{name}: {int((a != b).sum())} of {b.size} differ")
            continue
        a, b = a.astype(np.float64), b.astype(np.float64)
        if name.endswith("bf16_gap"):
            print(f"{name}: mean {a.mean():.3e}, stored {b.mean():.3e}, ratio {a.mean() / b.mean():.3f}")
            continue
        distance = np.linalg.norm(a - b) / np.linalg.norm(b)
        is_same &= bool(distance < 1e-6)
        print(f"{name}: relative distance {distance:.3e}, largest difference {np.abs(a - b).max():.3e}")
    return is_same


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("model")
    parser.add_argument("--source", required=True, help="ref64.safetensors that gives ids and rows")
    parser.add_argument("--out", help="file to write; without it the source is compared")
    args = parser.parse_args()
    source = stfile.read(args.source)[0]
    tensors = reference(args.model, source)
    if args.out:
        stfile.write(args.out, tensors)
        return 0
    return 0 if compare(tensors, source) else 1


if __name__ == "__main__":
    sys.exit(main())
