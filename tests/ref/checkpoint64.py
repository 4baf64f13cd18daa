"""The weights of a checkpoint folder as exact doubles, whatever format stores them; for the FP64 references.

Names come without what stands in front of a text model. A format is one function in FORMATS, found by the
suffix of a tensor that only this format has; what no format claims is dense.
"""
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import stfile  # noqa: E402

PREFIXES = ("model.language_model.", "language_model.model.", "language_model.", "model.", "backbone.")


def plain_name(path, name):
    """Names of a draft head's own file lack the "mtp." that they have beside the model."""
    if path.name.startswith("mtp"):
        return "mtp." + name.removeprefix("mtp.")
    prefix = next((prefix for prefix in PREFIXES if name.startswith(prefix)), "")
    return name.removeprefix(prefix)


def unpack_codes(words, bits, cols):
    """Words (..., n) of a little-endian bit stream to codes (..., cols)."""
    if 32 % bits == 0:
        parts = np.asarray(words)[..., None] >> np.arange(0, 32, bits, dtype=np.uint32)
        return (parts & np.uint32((1 << bits) - 1)).astype(np.int64).reshape(*words.shape[:-1], -1)[..., :cols]
    stream = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=-1, bitorder="little")
    stream = stream[..., : cols * bits].reshape(*words.shape[:-1], cols, bits)
    return stream @ (1 << np.arange(bits)).astype(np.int64)


def affine(checkpoint, module):
    """MLX: scale * code + bias. A module's own settings start from MLX's defaults, not from the global ones."""
    words = checkpoint.tensors[module + ".weight"].data
    scales, biases = checkpoint.tensor(module + ".scales"), checkpoint.tensor(module + ".biases")
    quant = checkpoint.quantization[module + ".weight"]
    own = quant.get(checkpoint.names[module + ".weight"].removesuffix(".weight"), True)
    own = quant if own is True else own
    bits, group = own.get("bits", 4), own.get("group_size", 64)
    cols = words.shape[-1] * 32 // bits
    assert cols == scales.shape[-1] * group, module
    codes = unpack_codes(words, bits, cols).astype(np.float64)
    return codes * np.repeat(scales, group, axis=-1) + np.repeat(biases, group, axis=-1)


def gptq(checkpoint, module):
    """Symmetric GPTQ, first layout: scale * (code - half the range), input rows packed down the columns. The
    zero points are not read: published files hold two different constants for the same weights."""
    settings = checkpoint.config["quantization_config"]
    assert settings["sym"] and settings.get("checkpoint_format", "gptq") == "gptq", module
    bits, words = settings["bits"], checkpoint.tensors[module + ".qweight"].data
    cols = words.shape[0] * 32 // bits
    group = settings["group_size"] if settings["group_size"] > 0 else cols
    codes = unpack_codes(words.view(np.uint32).T, bits, cols) - (1 << (bits - 1))
    groups = np.arange(cols) // group
    if module + ".g_idx" in checkpoint:
        stored = checkpoint.tensors[module + ".g_idx"].data
        assert np.array_equal(stored, groups) or not stored.any(), module
    return codes * checkpoint.tensor(module + ".scales")[groups].T


FORMATS = ((".qweight", gptq), (".scales", affine))


class Checkpoint:
    def __init__(self, folder):
        self.config = json.loads((Path(folder) / "config.json").read_text())
        self.text = {**self.config, **self.config.get("text_config", {})}
        self.tensors, self.names, self.quantization = {}, {}, {}
        for path in sorted(Path(folder).glob("*.safetensors")):
            if path.name != "ref64.safetensors":
                self.add(path)

    def add(self, path):
        tensors, metadata = stfile.read(path)
        quant = self.config.get("quantization", self.config.get("quantization_config", {}))
        if "quantization" in metadata:
            quant = json.loads(metadata["quantization"])
        for name, tensor in tensors.items():
            plain = plain_name(path, name)
            self.tensors[plain], self.names[plain], self.quantization[plain] = tensor, name, quant

    def __contains__(self, name):
        return name in self.tensors

    def tensor(self, name):
        return stfile.as_f64(self.tensors[name])

    def holds(self, module):
        return any(module + suffix in self.tensors for suffix in ("", ".weight", ".qweight"))

    def weight(self, module):
        """The matrix, stack or vector of a module. Fused stacks of experts carry no ".weight"."""
        for suffix, read in FORMATS:
            if module + suffix in self.tensors:
                return read(self, module)
        return self.tensor(module if module in self.tensors else module + ".weight")
