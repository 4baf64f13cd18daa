"""FP64 reference of LFM3, written from the published formulas alone; shares no code with the engine.

  lfm3_ref64.py MODEL --source REF64 --out FILE     writes a ref64.safetensors for MODEL's weights
  lfm3_ref64.py MODEL --source REF64                compares with REF64 instead and prints the distances
"""
import numpy as np

import forward64
from forward64 import scaled, sigmoid, silu


class Model(forward64.Model):
    def norm(self, x, module):
        """Rounds after the division, then multiplies by the weight."""
        return self.round(self.weight(module) * self.round(scaled(x, self.config["norm_eps"])))

    def angles(self, positions, kind):
        """(rows, head_dim / 2). A full layer turns only the first part, in steps of head_dim."""
        rope, dim = self.config["rope_parameters"][kind], self.config["head_dim"]
        i = np.arange(dim // 2)
        freq = rope["rope_theta"] ** (-2.0 * i / dim)
        turning = int(dim * rope.get("partial_rotary_factor", 1.0)) // 2
        return positions[:, None] * np.where(i < turning, freq, 0.0)[None, :]

    def rotate(self, x, angle):
        """x (rows, heads, head_dim): element i pairs with i + head_dim / 2; one rounding."""
        cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
        a, b = np.split(x, 2, axis=-1)
        return self.round(np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1))

    def conv(self, h, name, state):
        """Short causal convolution between two gates."""
        gate_in, gate_out, v = np.split(self.linear(h, name + "in_proj"), 3, axis=-1)
        c = self.round(self.causal_conv(self.round(gate_in * v), name + "conv", state))
        return self.linear(self.round(gate_out * c), name + "out_proj")

    def gated_attention(self, h, name, kind, state):
        heads, heads_kv = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        dim, rows = self.config["head_dim"], len(h)
        begin = len(state["k"]) if "k" in state else 0
        angle = self.angles(np.arange(begin, begin + rows), kind)
        q = self.linear(h, name + "q_proj").reshape(rows, heads, dim)
        k = self.linear(h, name + "k_proj").reshape(rows, heads_kv, dim)
        v = self.linear(h, name + "v_proj").reshape(rows, heads_kv, dim)
        q = self.rotate(self.norm(q, name + "q_layernorm"), angle)
        k = self.rotate(self.norm(k, name + "k_layernorm"), angle)
        window = self.config["sliding_window"] if kind == "sliding_attention" else None
        o = self.attention(q, k, v, state, window).reshape(rows, heads, dim)
        gate = self.linear(h, name + "gate_proj").reshape(rows, heads, -1)
        o = self.round(o * sigmoid(gate))
        return self.linear(o.reshape(rows, heads * dim), name + "out_proj")

    def layer(self, x, name, kind, state):
        h = self.norm(x, name + "operator_norm")
        r = self.conv(h, name + "conv.", state) if kind == "conv" else \
            self.gated_attention(h, name + "self_attn.", kind, state)
        x = self.round(x + self.norm(r, name + "post_operator_norm"))
        f = self.norm(x, name + "ffn_norm")
        g, u = (self.linear(f, name + "feed_forward." + part) for part in ("w1", "w3"))
        r = self.linear(self.round(silu(g) * u), name + "feed_forward.w2")
        return self.round(x + self.norm(r, name + "post_ffn_norm"))

    def forward(self, ids, states):
        x = self.weight("embed_tokens")[ids]
        hidden = [x]
        for i, kind in enumerate(self.config["layer_types"]):
            x = self.layer(x, f"layers.{i}.", kind, states[i])
            hidden.append(x)
        return np.stack(hidden), self.norm(x, "embedding_norm")

    def logits(self, output):
        return output @ self.weight("embed_tokens").T

    def states(self):
        return [{} for _ in self.config["layer_types"]]


def reference(folder, source):
    return forward64.reference(Model, folder, source)


if __name__ == "__main__":
    forward64.main(Model, __doc__)
