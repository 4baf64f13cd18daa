"""The weights of a checkpoint folder as exact doubles, whatever format stores them; for the FP64 references.

Names come without what stands in front of a text model; the formats are dequant64's.
"""
import json
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "tools"), str(Path(__file__).resolve().parent)]
import dequant64  # noqa: E402
import stfile  # noqa: E402

PREFIXES = ("model.language_model.", "language_model.model.", "language_model.", "model.", "backbone.")


def plain_name(path, name):
    """Names of a draft head's own file lack the "mtp." that they have beside the model."""
    if path.name.startswith("mtp"):
        return "mtp." + name.removeprefix("mtp.")
    prefix = next((prefix for prefix in PREFIXES if name.startswith(prefix)), "")
    return name.removeprefix(prefix)


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
        return module in self.tensors or any(module + suffix in self.tensors for suffix in dequant64.CODES)

    def weight(self, module):
        """The matrix, stack or vector of a module. Fused stacks of experts carry no ".weight"."""
        if module in self.tensors:
            return self.tensor(module)
        codes = next(module + suffix for suffix in dequant64.CODES if module + suffix in self.tensors)
        settings = dict(self.quantization[codes])
        own = settings.get(self.names[codes].rpartition(".")[0])
        if own is not None:
            settings[module] = own
        return dequant64.values(self.tensors, module, settings)

    def x_block(self, module):
        """Neighbours that share a scale where x enters a linear over the module in int8; None: it never does. Of
        integer codes MLX's alone are known here: the shipped models hold no others."""
        codes = self.tensors.get(module + ".weight")
        if codes is None or codes.dtype != "U32":
            return None
        group = self.weight(module).shape[-1] // self.tensors[module + ".scales"].data.shape[-1]
        return 128 if group % 128 == 0 else group
