"""What the FP64 references of the families share: steps of a forward, greedy tokens, ref64 files.

The same forward runs twice: in double throughout, and with a rounding to bf16 at every point where the
public modelling code stores bf16 (weights too). The second gives bf16_gap, the yardstick for all that
computes in bf16. A third run gives int8_gap where source has it: rounded as the second, and what enters a linear
over integer codes is rounded to int8, each block of neighbours by a scale of its own.
"""
import argparse
import sys

import numpy as np

from checkpoint64 import Checkpoint, stfile

GREEDY_TOKENS = 64
LOGIT_ROWS = 16
DRAFT_ROWS = 16
# Two double forwards agree to the rounding to fp32. An l2norm eps of twice its value lies at 5e-7.
SAME_DISTANCE = 1e-7


def exact(x):
    return x


def to_bf16(x):
    return stfile.bf16_values(stfile.bf16_words(x)).astype(np.float64)


def to_int8(x, block):
    """x (rows, columns): blocks of columns to whole multiples of their largest magnitude / 127."""
    rows, columns = x.shape
    wide = np.pad(x, ((0, 0), (0, -columns % block))).reshape(rows, -1, block)
    step = np.abs(wide).max(axis=-1, keepdims=True) / 127
    step[step == 0] = 1.0
    return (np.rint(wide / step) * step).reshape(rows, -1)[:, :columns]


def sigmoid(x):
    return np.exp(-np.logaddexp(0.0, -x))


def silu(x):
    return x * sigmoid(x)


def softplus(x):
    return np.logaddexp(0.0, x)


def scaled(x, eps):
    """x by its root mean square over the last axis."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)


def best(scores, count):
    """(rows, count) columns of the largest scores, largest first; equal ones in the order of columns."""
    return np.argsort(-scores, axis=-1, kind="stable")[:, :count]


class Model:
    """Weights of a folder, one way of rounding, and steps of more than one family. A family adds
    forward(ids, states) -> (hidden (layers + 1, rows, width), output of the final norm), logits(output), states(),
    and draft(ids, output), None where the checkpoint has no draft head. Blocks with experts append to choices
    what their experts are chosen by, (rows, experts); of closed groups -inf."""

    x_int8 = False  # linears over integer codes take x in int8

    def __init__(self, folder, rounding):
        self.checkpoint = Checkpoint(folder)
        self.config = self.checkpoint.text
        self.round = rounding
        self.weights, self.blocks = {}, {}
        self.choices = []

    def weight(self, module):
        if module not in self.weights:
            self.weights[module] = self.round(self.checkpoint.weight(module))
        return self.weights[module]

    def entered(self, x, module):
        """x as a linear over the module takes it; * in the name of experts stands for each of them."""
        module = module.replace("*", "0")
        if module not in self.blocks:
            self.blocks[module] = self.checkpoint.x_block(module)
        block = self.blocks[module] if self.x_int8 else None
        return x if block is None else to_int8(x, block)

    def linear(self, x, module):
        y = self.entered(x, module) @ self.weight(module).T
        if module + ".bias" in self.checkpoint:
            y = y + self.checkpoint.tensor(module + ".bias")
        return self.round(y)

    def stack_name(self, layer, stacked, single):
        name = f"{layer}switch_mlp.{stacked}"
        return name if self.checkpoint.holds(name) else f"{layer}experts.*.{single}"

    def expert_stack(self, layer, stacked, single):
        """(experts, out, in): a stack as MLX stores it, or one tensor for every expert."""
        name = self.stack_name(layer, stacked, single)
        if name not in self.weights and "*" in name:
            count = sum(self.checkpoint.holds(name.replace("*", str(e))) for e in range(self.expert_count()))
            assert count == self.expert_count(), name
            self.weights[name] = np.stack([self.weight(name.replace("*", str(e))) for e in range(count)])
        return self.weight(name)

    def causal_conv(self, x, module, state):
        """Depthwise sum over the newest taps, before any rounding; state holds the inputs that later rows read."""
        kernel = self.weight(module)
        kernel = kernel.reshape(x.shape[1], -1)
        taps, rows = kernel.shape[1], len(x)
        stream = np.concatenate([state.get("conv", np.zeros((taps - 1, x.shape[1]))), x])
        state["conv"] = stream[len(stream) - (taps - 1):]
        return sum(kernel[:, k] * stream[k:k + rows] for k in range(taps))

    def attention(self, q, k, v, state, window=None):
        """q (rows, heads, dim), k and v (rows, fewer heads, dim) of the newest rows to (rows, heads * dim)."""
        rows, heads, dim = q.shape
        begin = len(state["k"]) if "k" in state else 0
        if begin > 0:
            k, v = np.concatenate([state["k"], k]), np.concatenate([state["v"], v])
        state["k"], state["v"] = k, v
        shared = heads // k.shape[1]
        q, k, v = (np.moveaxis(part, 0, 1) for part in (q, k, v))
        k, v = np.repeat(k, shared, axis=0), np.repeat(v, shared, axis=0)
        scores = q @ np.swapaxes(k, 1, 2) / np.sqrt(dim)
        distance = np.arange(begin, begin + rows)[:, None] - np.arange(begin + rows)[None, :]
        visible = distance >= 0
        if window is not None:
            visible &= distance < window
        scores = np.where(visible[None], scores, -np.inf)
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        p /= p.sum(axis=-1, keepdims=True)
        return self.round(np.moveaxis(p @ v, 0, 1).reshape(rows, heads * dim))

    def draft(self, ids, output):
        return None


def rotate(model, x, angle):
    """x (rows, heads, dim) with element i paired with i + half of the turning part; angle (rows, half)."""
    cos, sin = model.round(np.cos(angle))[:, None, :], model.round(np.sin(angle))[:, None, :]
    half = angle.shape[1]
    a, b, still = x[..., :half], x[..., half:2 * half], x[..., 2 * half:]
    first = model.round(model.round(a * cos) - model.round(b * sin))
    second = model.round(model.round(b * cos) + model.round(a * sin))
    return np.concatenate([first, second, still], axis=-1)


def greedy(model, output, states):
    """Tokens after the prompt and the lead of each over the second best; equal logits go to the lower id."""
    tokens, margins = [], []
    for _ in range(GREEDY_TOKENS):
        logits = model.logits(output[-1:])[0]
        token = int(np.argmax(logits))
        tokens.append(token)
        margins.append(logits[token] - np.partition(logits, -2)[-2])
        output = model.forward(np.array([token]), states)[1]
    return np.array(tokens, dtype=np.int32), np.array(margins)


def choice_scores(model, rows):
    """{"choice": (blocks with experts, rows, experts)} of the forward that just ran; {} without experts."""
    return {"choice": np.stack(model.choices)[:, rows]} if model.choices else {}


def gap_of(model, ids, rows, hidden):
    """(layers + 1, rows): how far a model's rows lie from hidden."""
    rounded = model.forward(ids, model.states())[0][:, rows]
    return np.linalg.norm(rounded - hidden, axis=-1) / np.linalg.norm(hidden, axis=-1)


def prompt_tensors(wide, narrow, ids, rows):
    wide.choices, states = [], wide.states()
    hidden, output = wide.forward(ids, states)
    choice = choice_scores(wide, rows)
    tokens, margins = greedy(wide, output, states)
    hidden = hidden[:, rows]
    floats = {"bf16_gap": gap_of(narrow, ids, rows, hidden), "hidden": hidden, "logits": wide.logits(output[rows[-LOGIT_ROWS:]]),
              "margin": margins, **choice}
    ints = {"greedy": tokens, "ids": ids, "rows": rows}
    drafted = wide.draft(ids, output)
    if drafted is not None:
        floats["mtp_hidden"] = drafted[-DRAFT_ROWS:]
        ints["mtp_draft"] = np.argmax(wide.logits(drafted), axis=-1)
    return ({key: stfile.from_f64(values, "F32") for key, values in floats.items()}
            | {key: stfile.Tensor("I32", values.astype(np.int32)) for key, values in ints.items()})


def prompts(source):
    """(prefix of its names, ids, stored rows) of each prompt."""
    prompt = 0
    while f"p{prompt}.ids" in source:
        yield f"p{prompt}.", source[f"p{prompt}.ids"].data, source[f"p{prompt}.rows"].data
        prompt += 1


def reference(family, folder, source):
    """The tensors of ref64.safetensors for a folder, on the ids and rows of source."""
    wide, narrow = family(folder, exact), family(folder, to_bf16)
    out = {}
    for prefix, ids, rows in prompts(source):
        parts = prompt_tensors(wide, narrow, ids, rows)
        out |= {prefix + key: tensor for key, tensor in parts.items()}
    if "p0.int8_gap" in source:
        out |= int8_gaps(family, folder, out)
    return out


def int8_gaps(family, folder, source):
    """The int8_gap of each prompt of source, from its stored hidden rows."""
    model, out = family(folder, to_bf16), {}
    model.x_int8 = True
    for prefix, ids, rows in prompts(source):
        gap = gap_of(model, ids, rows, source[prefix + "hidden"].data.astype(np.float64))
        out[prefix + "int8_gap"] = stfile.from_f64(gap, "F32")
    return out


def with_choice(family, folder, source):
    """The tensors of source and the choice scores of the folder's experts."""
    model, out = family(folder, exact), dict(source)
    for prefix, ids, rows in prompts(source):
        model.choices = []
        model.forward(ids, model.states())
        out |= {prefix + key: stfile.from_f64(values, "F32")
                for key, values in choice_scores(model, rows).items()}
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
        if name.endswith("_gap"):
            print(f"{name}: mean {a.mean():.3e}, stored {b.mean():.3e}, ratio {a.mean() / b.mean():.3f}, "
                  f"of medians {np.median(a[1:]) / np.median(b[1:]):.3f}")
            continue
        is_same &= bool(np.array_equal(np.isfinite(a), np.isfinite(b)))
        a, b = (np.where(np.isfinite(part), part, 0.0) for part in (a, b))  # closed groups of experts
        distance = np.linalg.norm(a - b) / np.linalg.norm(b)
        is_same &= bool(distance < SAME_DISTANCE)
        print(f"{name}: relative distance {distance:.3e}, largest difference {np.abs(a - b).max():.3e}")
    return is_same


def main(family, doc):
    """The command line of a family's reference; exits 0 if a comparison holds."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=doc, formatter_class=raw)
    parser.add_argument("model")
    parser.add_argument("--source", required=True, help="ref64.safetensors that gives ids and rows")
    parser.add_argument("--out", help="file to write; without it the source is compared")
    parser.add_argument("--add-choice", action="store_true", help="write source anew with choice scores")
    parser.add_argument("--add-int8", action="store_true", help="write source anew with int8_gap")
    args = parser.parse_args()
    source = stfile.read(args.source)[0]
    if args.add_int8:
        stfile.write(args.source, source | int8_gaps(family, args.model, source))
        return
    if args.add_choice:
        stfile.write(args.source, with_choice(family, args.model, source))
        return
    tensors = reference(family, args.model, source)
    if args.out:
        stfile.write(args.out, tensors)
    elif not compare(tensors, source):
        sys.exit(1)
