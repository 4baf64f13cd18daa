"""Requantised checkpoints, made by tools/requant in every format that is read: each weight is the value that an
independent dequantiser gives it, bit for bit, and LFM3 passes `lanewise check` against its own reference."""
import json
import re
import subprocess
import sys

import pytest

from checking import IS_LONG, ROOT, SHARED, check, isas

np = pytest.importorskip("numpy")
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests" / "ref")]
import dequant64  # noqa: E402
import stfile  # noqa: E402

DRIVER = ROOT / "build" / "native" / "tests" / "model" / "rows_driver"
LFM3, QWEN, NEMOTRON = (SHARED / name for name in ("lfm3-bf16", "qwen35-bf16", "nemotron-mlx4"))
MIX = ["--override", "feed_forward.w2=8:32", "--override", "conv.in_proj=3:128", "--keep", "layers.0.",
       "--keep", "gate_proj"]
MLX = [
    ["--bits", "2", "--group", "32"],
    ["--bits", "3", "--group", "64", "--scales", "F16"],
    ["--bits", "5", "--group", "128"],
    ["--bits", "6", "--group", "64", "--scales", "F32"],
    ["--bits", "4", "--group", "32", "--shards", "3", "--split-scales", *MIX],
    ["--dense", "fp16", "--shards", "2", "--no-index"],
    ["--dense", "fp32"],
]
MLX_LONG = [["--bits", str(bits), "--group", str(group), "--scales", scales]
            for bits in (2, 3, 4, 5, 6, 8) for group in (32, 64, 128) for scales in ("BF16", "F16", "F32")]
FORMATS = [
    ["--format", "gptq", "--group", "128", "--scales", "F16"],
    ["--format", "auto-round", "--group", "32", "--shards", "2"],
    ["--format", "gptq", "--group", "64", "--keep", "layers.1."],
    ["--format", "packed", "--group", "128"],
    ["--format", "packed", "--bits", "8"],
    ["--format", "fp8"],
    ["--format", "fp8-channel", "--shards", "2", "--split-scales"],
    ["--format", "modelopt"],
    ["--format", "modelopt", "--override", "_proj=fp8", "--keep", "layers.2."],
    ["--format", "nvfp4-packed"],
]
STACKS = re.compile(r"(.*)\.(experts\.)(\d+)(\.\w+)$")


def requant(source, folder, options):
    if not source.exists():
        pytest.skip(f"{source} is absent")
    subprocess.run([sys.executable, ROOT / "tools" / "requant", source, folder, *options], check=True)
    return folder


def load(folder):
    """(tensors by name, the config's quantisation block)."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        if path.name != "ref64.safetensors":
            side = "mtp." if path.name.startswith("mtp") else ""
            tensors.update({side + name: tensor for name, tensor in stfile.read(path)[0].items()})
    config = json.loads((folder / "config.json").read_text())
    return tensors, config.get("quantization") or config.get("quantization_config") or {}


def asks_of(folder):
    """[(line for the driver, values)]: matrices, stacks, and the experts of a layer as one stack."""
    tensors, settings = load(folder)
    asks, experts = [], {}
    for module in dequant64.modules(tensors):
        values = dequant64.values(tensors, module, settings)
        if values.ndim == 3 and "switch_mlp" in module:
            parent, child = module.split(".switch_mlp.")
            asks.append((f"stack {' '.join(map(str, values.shape))} {parent} switch_mlp.{child}", values))
        elif values.ndim == 2:
            asks.append((f"matrix {values.shape[0]} {values.shape[1]} {module}", values))
        expert = STACKS.match(module)
        if expert:
            experts.setdefault((expert[1], expert[2] + "*" + expert[4]), {})[int(expert[3])] = values
    for (parent, child), members in experts.items():
        values = np.stack([members[index] for index in range(len(members))])
        asks.append((f"stack {' '.join(map(str, values.shape))} {parent} {child}", values))
    return asks


def rows_of(folder, asks):
    """What the engine reads, as arrays of the same shapes."""
    done = subprocess.run([DRIVER, folder], input="".join(line + "\n" for line, _ in asks).encode(),
                          capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr.decode()
    flat = np.frombuffer(done.stdout)
    ends = np.cumsum([values.size for _, values in asks])
    assert len(flat) == ends[-1]
    return [part.reshape(values.shape) for part, (_, values) in zip(np.split(flat, ends[:-1]), asks)]


def compare(folder):
    asks = asks_of(folder)
    for read, (line, values) in zip(rows_of(folder, asks), asks):
        assert np.array_equal(read, values), line
        assert not np.array_equal(np.roll(read, 1, axis=-1), values), f"{line}: the control passes"
    return asks


# Every format of one family, some of the others, whose layouts differ in stacks and convolutions.
VALUES = [(QWEN, options) for options in MLX[:1] + FORMATS]
VALUES += [(LFM3, options) for options in (FORMATS if IS_LONG else FORMATS[::5])]
VALUES += [(NEMOTRON, options) for options in (MLX[:1] + FORMATS if IS_LONG else MLX[:1] + FORMATS[1::3])]


@pytest.mark.parametrize("source, options", VALUES, ids=lambda value: getattr(value, "name", " ".join(value)
                                                                               if isinstance(value, list) else ""))
def test_values(source, options, tmp_path):
    options = ["64" if option == "128" and source == NEMOTRON else option for option in options]
    folder = requant(source, tmp_path / "model", [*options, "--no-ref"])
    asks = compare(folder)
    assert any(line.startswith("stack") for line, _ in asks) == (source == NEMOTRON)


@pytest.mark.parametrize("name", ["qwen35-gptq4", "qwen35-mlx4", "nemotron-mlx4"])
def test_published(name):
    if not (SHARED / name).exists():
        pytest.skip(f"{SHARED / name} is absent")
    compare(SHARED / name)


@pytest.mark.parametrize("options", MLX[:2] + (MLX[2:] + FORMATS + MLX_LONG if IS_LONG else FORMATS[::5]), ids=" ".join)
def test_holds(options, tmp_path):
    folder = requant(LFM3, tmp_path / "model", options)
    for isa in isas():
        done = check(folder, isa)
        assert done.returncode == 0, f"{isa}\n{done.stdout}{done.stderr}"
