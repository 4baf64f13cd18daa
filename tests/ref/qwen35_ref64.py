"""FP64 reference of Qwen3.5, dense and with experts, written from the published formulas alone; shares no
code with the engine.

  qwen35_ref64.py MODEL --source REF64 --out FILE     writes a ref64.safetensors for MODEL's weights
  qwen35_ref64.py MODEL --source REF64                compares with REF64 instead and prints the distances
  qwen35_ref64.py MODEL --source REF64 --add-choice   adds the choice scores of its experts to REF64
"""
import numpy as np

import forward64
from forward64 import scaled, sigmoid, silu, softplus

L2_EPS = 1e-6


class Model(forward64.Model):
    def __init__(self, folder, rounding):
        super().__init__(folder, rounding)
        interval = self.config.get("full_attention_interval", 4)
        self.kinds = self.config.get("layer_types") or [
            "linear_attention" if (i + 1) % interval else "full_attention"
            for i in range(self.config["num_hidden_layers"])]
        self.shift = {"": self.norm_shift(""), "mtp.": self.norm_shift("mtp.")}
        self.has_draft = "mtp.norm.weight" in self.checkpoint

    def norm_shift(self, part):
        """1 where the norms hold w for 1 + w. A file laid out as MLX does it has added the 1 already, and a
        draft head's own file may follow either custom, which the mean of its weights tells."""
        convs = [t for name, t in self.checkpoint.tensors.items() if name.endswith("linear_attn.conv1d.weight")]
        if convs and part == "":
            return 0.0 if convs[0].data.shape[-1] == 1 else 1.0
        norms = [self.checkpoint.tensor(name).mean() for name in self.checkpoint.tensors
                 if name.startswith(part) and name.endswith("layernorm.weight")]
        return 1.0 if norms and np.mean(norms) < 0.5 else 0.0

    def expert_count(self):
        return self.config["num_experts"]

    def states(self):
        return [{} for _ in self.kinds]

    def norm(self, x, module):
        """One rounding, after the product with 1 + w."""
        shift = self.shift["mtp." if module.startswith("mtp.") else ""]
        return self.round(scaled(x, self.config["rms_norm_eps"]) * (shift + self.weight(module)))

    def angles(self, positions):
        rope = self.config.get("rope_parameters") or self.config
        turning = int(self.config["head_dim"] * rope.get("partial_rotary_factor", 0.25))
        freq = rope["rope_theta"] ** (-np.arange(0, turning, 2) / turning)
        return positions[:, None] * freq[None, :]

    def full(self, h, name, state):
        heads, heads_kv = self.config["num_attention_heads"], self.config["num_key_value_heads"]
        dim, rows = self.config["head_dim"], len(h)
        begin = len(state["k"]) if "k" in state else 0
        angle = self.angles(np.arange(begin, begin + rows))
        q, gate = np.split(self.linear(h, name + "q_proj").reshape(rows, heads, 2 * dim), 2, axis=-1)
        k = self.linear(h, name + "k_proj").reshape(rows, heads_kv, dim)
        v = self.linear(h, name + "v_proj").reshape(rows, heads_kv, dim)
        q = forward64.rotate(self, self.norm(q, name + "q_norm"), angle)
        k = forward64.rotate(self, self.norm(k, name + "k_norm"), angle)
        o = self.attention(q, k, v, state)
        o = self.round(o * self.round(sigmoid(gate.reshape(rows, heads * dim))))
        return self.linear(o, name + "o_proj")

    def delta_heads(self, h, name, state):
        """q, k (rows, value heads, key dim) and v of the rows after convolution and scaling."""
        c, rows = self.config, len(h)
        heads_k, heads_v = c["linear_num_key_heads"], c["linear_num_value_heads"]
        key_width = heads_k * c["linear_key_head_dim"]
        mixed = self.causal_conv(self.linear(h, name + "in_proj_qkv"), name + "conv1d", state)
        mixed = self.round(silu(self.round(mixed)))
        q, k, v = np.split(mixed, [key_width, 2 * key_width], axis=-1)
        q, k = (part.reshape(rows, heads_k, -1) for part in (q, k))
        q, k = (part / np.sqrt(np.sum(part * part, axis=-1, keepdims=True) + L2_EPS) for part in (q, k))
        q = q / np.sqrt(c["linear_key_head_dim"])
        q, k = (np.repeat(part, heads_v // heads_k, axis=1) for part in (q, k))
        return q, k, v.reshape(rows, heads_v, -1)

    def delta(self, h, name, state):
        """Gated DeltaNet, one row after the other."""
        q, k, v = self.delta_heads(h, name, state)
        beta = self.round(sigmoid(self.linear(h, name + "in_proj_b")))
        a = self.linear(h, name + "in_proj_a") + self.checkpoint.tensor(name + "dt_bias")
        alpha = np.exp(-np.exp(self.checkpoint.tensor(name + "A_log")) * softplus(a))
        memory = state.get("S", np.zeros((v.shape[1], v.shape[2], k.shape[2])))
        y = np.empty_like(v)
        for t in range(len(h)):
            memory = alpha[t, :, None, None] * memory
            write = beta[t, :, None] * (v[t] - (memory @ k[t, :, :, None])[..., 0])
            memory = memory + write[:, :, None] * k[t, :, None, :]
            y[t] = (memory @ q[t, :, :, None])[..., 0]
        state["S"] = memory
        n = self.round(scaled(self.round(y), self.config["rms_norm_eps"]))
        z = self.linear(h, name + "in_proj_z").reshape(y.shape)
        out = self.round(self.round(self.weight(name + "norm") * n) * silu(z))
        return self.linear(out.reshape(len(h), -1), name + "out_proj")

    def mlp(self, x, name):
        g, u = self.linear(x, name + "gate_proj"), self.linear(x, name + "up_proj")
        return self.linear(self.round(self.round(silu(g)) * u), name + "down_proj")

    def expert_weights(self, name):
        """Gate, up and down stacks; a fused tensor holds the gate's rows before the up rows."""
        if self.checkpoint.holds(name + "experts.gate_up_proj"):
            gate, up = np.split(self.weight(name + "experts.gate_up_proj"), 2, axis=1)
            return gate, up, self.weight(name + "experts.down_proj")
        parts = ("gate_proj", "up_proj", "down_proj")
        return tuple(self.expert_stack(name, part, part) for part in parts)

    def experts(self, x, name):
        logits = self.linear(x, name + "gate")
        self.choices.append(logits)
        p = np.exp(logits - logits.max(axis=-1, keepdims=True))
        p /= p.sum(axis=-1, keepdims=True)
        chosen = forward64.best(p, self.config["num_experts_per_tok"])
        share = np.take_along_axis(p, chosen, axis=-1)
        share = self.round(share / share.sum(axis=-1, keepdims=True))
        gate, up, down = self.expert_weights(name)
        out = np.zeros_like(x)
        for e in np.unique(chosen):
            rows, slots = np.nonzero(chosen == e)
            g, u = self.round(x[rows] @ gate[e].T), self.round(x[rows] @ up[e].T)
            d = self.round(self.round(self.round(silu(g)) * u) @ down[e].T)
            out[rows] += self.round(d * share[rows, slots, None])
        open_share = self.round(sigmoid(self.linear(x, name + "shared_expert_gate")))
        shared = self.round(open_share * self.mlp(x, name + "shared_expert."))
        return self.round(self.round(out) + shared)

    def layer(self, x, name, kind, state):
        h = self.norm(x, name + "input_layernorm")
        is_linear = kind == "linear_attention"
        mixed = self.delta(h, name + "linear_attn.", state) if is_linear else \
            self.full(h, name + "self_attn.", state)
        x = self.round(x + mixed)
        h = self.norm(x, name + "post_attention_layernorm")
        is_dense = self.checkpoint.holds(name + "mlp.gate_proj")
        return self.round(x + (self.mlp if is_dense else self.experts)(h, name + "mlp."))

    def forward(self, ids, states):
        x = self.weight("embed_tokens")[ids]
        hidden = [x]
        for i, kind in enumerate(self.kinds):
            x = self.layer(x, f"layers.{i}.", kind, states[i])
            hidden.append(x)
        return np.stack(hidden), self.norm(x, "norm")

    def logits(self, output):
        return output @ self.weight("lm_head" if self.checkpoint.holds("lm_head") else "embed_tokens").T

    def draft(self, ids, output):
        """The head's outputs: row i reads output i and token i + 1."""
        if not self.has_draft:
            return None
        embedded = self.norm(self.weight("embed_tokens")[ids[1:]], "mtp.pre_fc_norm_embedding")
        hidden = self.norm(output[:-1], "mtp.pre_fc_norm_hidden")
        x = self.linear(np.concatenate([embedded, hidden], axis=-1), "mtp.fc")
        return self.norm(self.layer(x, "mtp.layers.0.", "full_attention", {}), "mtp.norm")


def reference(folder, source):
    return forward64.reference(Model, folder, source)


if __name__ == "__main__":
    forward64.main(Model, __doc__)
