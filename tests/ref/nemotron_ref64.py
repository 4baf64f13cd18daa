"""FP64 reference of Nemotron-H, written from the published formulas alone; shares no code with the engine.

  nemotron_ref64.py MODEL --source REF64 --out FILE     writes a ref64.safetensors for MODEL's weights
  nemotron_ref64.py MODEL --source REF64                compares with REF64 instead and prints the distances
  nemotron_ref64.py MODEL --source REF64 --add-choice   adds the choice scores of its experts to REF64
"""
import math

import numpy as np

import forward64
from forward64 import scaled, sigmoid, silu, softplus

SPELLINGS = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp", "linear_attention": "mamba",
             "full_attention": "attention"}


def number(value):
    """A number of a config; infinity may stand as {"__float__": "Infinity"}."""
    return float(value["__float__"]) if isinstance(value, dict) else float(value)


class Model(forward64.Model):
    def __init__(self, folder, rounding):
        super().__init__(folder, rounding)
        blocks = self.config.get("layers_block_type") or self.config["hybrid_override_pattern"]
        self.kinds = [SPELLINGS.get(block, block) for block in blocks]
        self.eps = self.config.get("layer_norm_epsilon", self.config.get("norm_eps", 1e-5))
        self.dt_limit = [number(bound) for bound in self.config.get("time_step_limit", (0.0, math.inf))]
        self.has_draft = "mtp.layers.0.eh_proj.weight" in self.checkpoint

    def expert_count(self):
        return self.config["n_routed_experts"]

    def states(self):
        return [{} for _ in self.kinds]

    def norm(self, x, module):
        """Rounds after the division, then multiplies by the weight."""
        return self.round(self.weight(module) * self.round(scaled(x, self.eps)))

    def attend(self, h, name, state):
        """No rotation: positions enter by the causal order alone."""
        q, k, v = (self.linear(h, name + part).reshape(len(h), -1, self.config["head_dim"])
                   for part in ("q_proj", "k_proj", "v_proj"))
        return self.linear(self.attention(q, k, v, state), name + "o_proj")

    def steps(self, raw, name):
        """(rows, heads) step widths; the modelling code adds and applies softplus in the type of its input."""
        bias = self.round(self.checkpoint.tensor(name + "dt_bias"))
        return np.clip(self.round(softplus(self.round(raw + bias))), *self.dt_limit)

    def scan(self, x, b, c, dt, name, state):
        """x (rows, heads, dim), b and c (rows, heads, states), one row after the other."""
        decay = np.exp(-np.exp(self.checkpoint.tensor(name + "A_log")) * dt)
        memory = state.get("S", np.zeros((x.shape[1], x.shape[2], b.shape[2])))
        y = np.empty_like(x)
        for t in range(len(x)):
            written = (dt[t, :, None] * x[t])[:, :, None] * b[t, :, None, :]
            memory = decay[t, :, None, None] * memory + written
            y[t] = (memory @ c[t, :, :, None])[..., 0]
        state["S"] = memory
        return y + self.checkpoint.tensor(name + "D")[:, None] * x

    def mamba(self, h, name, state):
        c, rows = self.config, len(h)
        heads, groups, width = c["mamba_num_heads"], c["n_groups"], c["mamba_num_heads"] * c["mamba_head_dim"]
        both = groups * c["ssm_state_size"]
        z, mixed, raw = np.split(self.linear(h, name + "in_proj"), [width, 2 * width + 2 * both], axis=-1)
        mixed = self.causal_conv(mixed, name + "conv1d", state)
        if name + "conv1d.bias" in self.checkpoint:
            mixed = mixed + self.checkpoint.tensor(name + "conv1d.bias")
        mixed = self.round(silu(self.round(mixed)))
        x, b, read = np.split(mixed, [width, width + both], axis=-1)
        b, read = (np.repeat(part.reshape(rows, groups, -1), heads // groups, axis=1) for part in (b, read))
        y = self.scan(x.reshape(rows, heads, -1), b, read, self.steps(raw, name), name, state)
        v = (y.reshape(rows, width) * silu(z)).reshape(rows, groups, -1)
        out = self.round(self.weight(name + "norm") * scaled(v, self.eps).reshape(rows, width))
        return self.linear(out, name + "out_proj")

    def mlp(self, x, name):
        u = self.linear(x, name + "up_proj")
        return self.linear(self.round(np.maximum(u, 0.0) ** 2), name + "down_proj")

    def route(self, h, name):
        """Chosen experts, best first, and their weights. The correction steers the choice alone."""
        c, rows = self.config, len(h)
        scores = sigmoid(self.entered(h, name + "gate") @ self.weight(name + "gate").T)
        choice = scores + self.checkpoint.tensor(name + "gate.e_score_correction_bias")
        groups, kept = c.get("n_group", 1), c.get("topk_group", 1)
        if groups > 1:
            grouped = choice.reshape(rows, groups, -1)
            strength = np.sort(grouped, axis=-1)[:, :, -2:].sum(axis=-1)
            closed = np.ones((rows, groups), dtype=bool)
            np.put_along_axis(closed, forward64.best(strength, kept), False, axis=-1)
            choice = np.where(closed[:, :, None], -np.inf, grouped).reshape(rows, -1)
        self.choices.append(choice)
        chosen = forward64.best(choice, c["num_experts_per_tok"])
        share = np.take_along_axis(scores, chosen, axis=-1)
        if c.get("norm_topk_prob", True):
            share = share / (share.sum(axis=-1, keepdims=True) + 1e-20)
        return chosen, share * c.get("routed_scaling_factor", 1.0)

    def expert_bias(self, name, e, part):
        """What one expert adds to its product: publishers' files may hold it, transformers' never do."""
        bias = f"{name}experts.{e}.{part}.bias"
        return self.checkpoint.tensor(bias) if bias in self.checkpoint else 0.0

    def moe(self, h, name):
        chosen, share = self.route(h, name)
        is_latent = self.checkpoint.holds(name + "fc1_latent_proj")
        x = self.linear(h, name + "fc1_latent_proj") if is_latent else h
        stacks = ("fc1", "up_proj"), ("fc2", "down_proj")
        up, down = (self.expert_stack(name, *parts) for parts in stacks)
        up_name, down_name = (self.stack_name(name, *parts) for parts in stacks)
        out = np.zeros_like(x)
        for e in np.unique(chosen):
            rows, slots = np.nonzero(chosen == e)
            u = self.round(self.entered(x[rows], up_name) @ up[e].T + self.expert_bias(name, e, "up_proj"))
            a = self.round(np.maximum(u, 0.0) ** 2)
            d = self.round(self.entered(a, down_name) @ down[e].T + self.expert_bias(name, e, "down_proj"))
            out[rows] += d * share[rows, slots, None]
        out = self.round(out)
        if is_latent:
            out = self.linear(out, name + "fc2_latent_proj")
        return self.round(out + self.mlp(h, name + "shared_experts."))

    def block(self, x, name, kind, state):
        h = self.norm(x, name + "norm")
        if kind in ("mamba", "attention"):
            return self.round(x + (self.mamba if kind == "mamba" else self.attend)(h, name + "mixer.", state))
        return self.round(x + (self.moe if kind == "moe" else self.mlp)(h, name + "mixer."))

    def forward(self, ids, states):
        x = self.weight("embeddings")[ids]
        hidden = [x]
        for i, kind in enumerate(self.kinds):
            x = self.block(x, f"layers.{i}.", kind, states[i])
            hidden.append(x)
        return np.stack(hidden), self.norm(x, "norm_f")

    def logits(self, output):
        return output @ self.weight("lm_head" if self.checkpoint.holds("lm_head") else "embeddings").T

    def draft(self, ids, output):
        """The head's outputs: row i reads output i and token i + 1."""
        if not self.has_draft:
            return None
        embedded = self.norm(self.weight("embeddings")[ids[1:]], "mtp.layers.0.enorm")
        hidden = self.norm(output[:-1], "mtp.layers.0.hnorm")
        x = self.linear(np.concatenate([embedded, hidden], axis=-1), "mtp.layers.0.eh_proj")
        blocks = self.config.get("mtp_layers_block_type") or self.config["mtp_hybrid_override_pattern"]
        for i, block in enumerate(blocks):
            x = self.block(x, f"mtp.layers.{i}.", SPELLINGS.get(block, block), {})
        return self.norm(x, f"mtp.layers.{len(blocks) - 1}.final_layernorm")


def reference(folder, source):
    return forward64.reference(Model, folder, source)


if __name__ == "__main__":
    forward64.main(Model, __doc__)
