"""Every checkpoint with a double-precision reference passes `lanewise check` on every instruction set of this CPU, and
checkpoints that are read a little wrong do not."""
import json
import shutil

import pytest

from checking import ROOT, SHARED, check, isas

HERE = [ROOT / "models" / "lfm3-mlx4", ROOT / "tests" / "data" / "lfm2-a", ROOT / "tests" / "data" / "lfm2-b"]
ELSEWHERE = [SHARED / name for name in ("lfm3-bf16", "lfm3-mlx4", "lfm3-mlx8")]


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("folder", HERE + ELSEWHERE, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_holds(folder, isa):
    if not folder.exists():
        pytest.skip(f"{folder} is absent")
    done = check(folder, isa)
    assert done.returncode == 0, done.stdout + done.stderr


def read_wrong(folder, change):
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))


CONTROLS = {
    "rotates fewer pairs": lambda c: c["rope_parameters"]["full_attention"].update(partial_rotary_factor=0.25),
    "rotates by another base": lambda c: c["rope_parameters"]["sliding_attention"].update(rope_theta=20000.0),
    "window one short": lambda c: c.update(sliding_window=c["sliding_window"] - 1),
    "window one long": lambda c: c.update(sliding_window=c["sliding_window"] + 1),
    "another eps": lambda c: c.update(norm_eps=1e-2),
}


@pytest.mark.parametrize("control", CONTROLS)
def test_sees_planted_faults(control, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(HERE[0], folder)
    read_wrong(folder, CONTROLS[control])
    done = check(folder, isas()[0])
    assert done.returncode == 1, done.stdout
    assert "broken" in done.stdout + done.stderr
