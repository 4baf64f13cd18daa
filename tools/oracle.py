"""What the oracle scripts share: running transformers' modelling code in double, and writing a small
checkpoint folder with its ref64.safetensors in the layout that `lanewise check` reads.

The modelling code pins some steps to float32 (norms, softmax, scans, routers). widened() makes them float64
for the double run; bf16_gap comes from the same weights run in bf16 by the unchanged code.
"""
import contextlib
import copy
import json
import os

import torch
from safetensors.torch import save_file

GREEDY = 64
LOGIT_ROWS = 16


class WideTorch:
    """The torch module as modelling code sees it, with double in float32's place."""
    float32 = float = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def double_rotary(width, theta):
    """A rotary module's forward whose angles are doubles; text rows have one position in every section."""
    frequency = theta ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)

    def forward(self, x, position_ids, *args, **kwargs):
        positions = position_ids[0] if position_ids.dim() == 3 else position_ids
        angle = positions[..., None].double() * frequency
        both = torch.cat((angle, angle), dim=-1)
        return both.cos().to(x.dtype), both.sin().to(x.dtype)
    return forward


@contextlib.contextmanager
def widened(modules, rotary=None):
    """rotary: (class, its forward in double)."""
    kept_float, kept_rotary = torch.Tensor.float, rotary and rotary[0].forward
    for module in modules:
        module.torch = WideTorch()
    torch.Tensor.float = torch.Tensor.double
    if rotary:
        rotary[0].forward = rotary[1]
    try:
        yield
    finally:
        for module in modules:
            module.torch = torch
        torch.Tensor.float = kept_float
        if rotary:
            rotary[0].forward = kept_rotary


def narrowed(model, stays_float):
    """The model in bf16; parameters and buffers whose name has a part of stays_float keep what they hold."""
    narrow = copy.deepcopy(model).to(torch.bfloat16)
    wanted = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name, tensor in [*narrow.named_parameters(), *narrow.named_buffers()]:
        if any(part in name for part in stays_float):
            tensor.data = wanted[name].data.clone()
    return narrow


def run(model, ids):
    """The residual stream after the embedding and each layer, (layers + 1, rows, width), and the logits."""
    streams = []

    def keep(module, inputs, out):
        streams.append(out[0] if isinstance(out, tuple) else out)

    parts = (model.get_input_embeddings(), *model.model.layers)
    hooks = [part.register_forward_hook(keep) for part in parts]
    with torch.no_grad():
        logits = model(input_ids=ids[None], use_cache=False).logits[0]
    for hook in hooks:
        hook.remove()
    return torch.stack([s[0] for s in streams]), logits


def continued(model, ids):
    """GREEDY tokens after ids and the lead of each over the second best."""
    tokens, margin = [], []
    for _ in range(GREEDY):
        top = run(model, ids)[1][-1].topk(2)
        tokens.append(int(top.indices[0]))
        margin.append(float(top.values[0] - top.values[1]))
        ids = torch.cat((ids, top.indices[:1]))
    return torch.tensor(tokens), torch.tensor(margin)


def reference(model, vocab, prompts, stays_float=(), **widening):
    """ref64 tensors for random prompts, a list of (length, stored rows)."""
    narrow, wide, out = narrowed(model, stays_float), copy.deepcopy(model).double(), {}
    for j, (length, rows) in enumerate(prompts):
        ids = torch.randint(3, vocab, (length,), generator=torch.Generator().manual_seed(100 + j))
        rows = torch.tensor(rows)
        half = run(narrow, ids)[0]
        with widened(**widening):
            hidden, logits = run(wide, ids)
            tokens, margin = continued(wide, ids)
        gap = (half.double() - hidden).norm(dim=-1) / hidden.norm(dim=-1)
        floats = {"hidden": hidden[:, rows], "bf16_gap": gap[:, rows], "margin": margin,
                  "logits": logits[rows[-LOGIT_ROWS:]]}
        ints = {"ids": ids, "rows": rows, "greedy": tokens}
        out |= {f"p{j}.{key}": value.float().contiguous() for key, value in floats.items()}
        out |= {f"p{j}.{key}": value.int() for key, value in ints.items()}
        print(f"p{j}: gap of the last layer {gap[-1].mean():.2e}, margin {margin.mean():.3f}, "
              f"logits {logits.std():.2f}, hidden {[f'{s:.2f}' for s in hidden.std(dim=(1, 2)).tolist()]}")
    return out


def write(folder, tensors, ref, texts, shards=1):
    """A checkpoint folder as published: shards with an index if there are several. texts: (config, generation
    config)."""
    os.makedirs(folder, exist_ok=True)
    names = list(tensors)
    files = ["model.safetensors"] if shards == 1 else \
        [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)]
    weight_map = {name: files[i * shards // len(names)] for i, name in enumerate(names)}
    for file in files:
        part = {name: tensors[name].contiguous() for name in names if weight_map[name] == file}
        save_file(part, os.path.join(folder, file), metadata={"format": "pt"})
    save_file(ref, os.path.join(folder, "ref64.safetensors"))
    texts = dict(zip(("config.json", "generation_config.json"), texts))
    if shards > 1:
        size = sum(tensor.nbytes for tensor in tensors.values())
        texts["model.safetensors.index.json"] = {"metadata": {"total_size": size}, "weight_map": weight_map}
    for name, content in texts.items():
        with open(os.path.join(folder, name), "w") as file:
            json.dump(content, file, indent=1)
