"""The FP64 references written from the formulas agree with those that other code made for the same weights: to the
rounding of the stored fp32. Reading a config a little wrong is seen."""
import json
import shutil
import sys

import pytest

from checking import IS_LONG, ROOT, SHARED

sys.path.insert(0, str(ROOT / "tests" / "ref"))
import forward64  # noqa: E402
import lfm3_ref64  # noqa: E402
import nemotron_ref64  # noqa: E402
import qwen35_ref64  # noqa: E402
from checkpoint64 import stfile  # noqa: E402

DATA = ROOT / "tests" / "data"
FAMILIES = {"lfm3": lfm3_ref64, "qwen": qwen35_ref64, "nemo": nemotron_ref64}
FOLDERS = [DATA / name for name in ("qwen-a", "qwen-moe", "nemo-a", "nemo-latent")] + \
    [SHARED / name for name in ("lfm3-mlx4", "qwen35-bf16", "qwen35-mlx4", "qwen35-gptq4", "nemotron-mlx4")]


def agrees(folder):
    """Whether our tensors are the stored ones; of the larger shipped models only the first prompt is run."""
    source = stfile.read(folder / "ref64.safetensors")[0]
    if folder.parent == SHARED and not IS_LONG:
        source = {name: tensor for name, tensor in source.items() if name.startswith("p0.")}
    return forward64.compare(FAMILIES[folder.name[:4]].reference(folder, source), source)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_agrees(folder):
    if not folder.exists():
        pytest.skip(f"{folder} is absent")
    assert agrees(folder)


CONTROLS = {
    "qwen-a, another eps": lambda c: c.update(rms_norm_eps=2e-6),
    "qwen-a, rotates by another base": lambda c: c["rope_parameters"].update(rope_theta=10010.0),
    "qwen-a, rotates more pairs": lambda c: c["rope_parameters"].update(partial_rotary_factor=0.5),
    "qwen-moe, an expert fewer": lambda c: c["text_config"].update(num_experts_per_tok=2),
    "qwen-moe, rotates by another base": lambda c: c["text_config"]["rope_parameters"].update(rope_theta=1e6),
    "nemo-a, another eps": lambda c: c.update(layer_norm_epsilon=1.1e-5),
    "nemo-a, a router group more": lambda c: c.update(topk_group=3),
    "nemo-a, no router groups": lambda c: c.update(n_group=1),
    "nemo-a, another routing factor": lambda c: c.update(routed_scaling_factor=2.4),
    "nemo-a, shares not normalised": lambda c: c.update(norm_topk_prob=False),
    "nemo-a, dt clamped": lambda c: c.update(time_step_limit=[0.001, 1.0]),
    "nemo-latent, dt not clamped": lambda c: c.pop("time_step_limit"),
    "nemo-latent, shares normalised": lambda c: c.update(norm_topk_prob=True),
}


@pytest.mark.parametrize("control", CONTROLS)
def test_sees_planted_faults(control, tmp_path):
    folder = tmp_path / control.partition(",")[0]
    shutil.copytree(DATA / folder.name, folder)
    config = json.loads((folder / "config.json").read_text())
    CONTROLS[control](config)
    (folder / "config.json").write_text(json.dumps(config))
    assert not agrees(folder)
