"""The xpu device from the command line: what `lanewise devices` says with and without it, and a shipped model on
the emulated device, compared with double precision like on any other."""
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BINARY = ROOT / "build" / "lanewise"
LOADER = ROOT / "build" / "native" / "libze_lanewise_cpu.so"
KERNELS = ROOT / "build" / "native" / "xpu" / "kernels_cpu.so"
LFM = ROOT / "models" / "lfm3-mlx4"
DEMOS = ["lfm3-mlx4", "qwen35-mlx4"]

needs_loader = pytest.mark.skipif(not LOADER.exists(), reason=f"no {LOADER.name}: it is for x86-64")
needs_kernels = pytest.mark.skipif(not KERNELS.exists(), reason=f"no {KERNELS.name}: clang and AVX2 make it")


def lanewise(*arguments, loader=LOADER, kernels=KERNELS, **more):
    env = {name: text for name, text in os.environ.items() if not name.startswith("LANEWISE_")}
    env["LANEWISE_ZE_LOADER"] = str(loader)
    if kernels:
        env["LANEWISE_XPU_KERNELS"] = str(kernels)
    env.update(more)
    return subprocess.run([BINARY, *arguments], env=env, capture_output=True, text=True, timeout=500, check=False)


def xpu_lines(done):
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith("xpu")]


def test_devices_without_level_zero():
    lines = xpu_lines(lanewise("devices", loader="/no/such/loader.so"))
    assert len(lines) == 1 and "absent: Level Zero's loader cannot be opened: /no/such/loader.so" in lines[0]


@needs_loader
def test_devices_without_a_gpu():
    lines = xpu_lines(lanewise("devices", LW_EMULATED_NO_DRIVER="1"))
    assert len(lines) == 1 and "absent: no device" in lines[0] and "0x78000001" in lines[0]
    lines = xpu_lines(lanewise("devices", LW_EMULATED_DEVICES="0"))
    assert len(lines) == 1 and "they have no GPU" in lines[0]


@needs_loader
def test_devices_are_listed_by_their_names():
    lines = xpu_lines(lanewise("devices", LW_EMULATED_DEVICES="2"))
    assert [line.split()[0] for line in lines] == ["xpu:0", "xpu:1"]
    assert "emulated device, 0000:04:00.0, integrated, 4.0 GiB" in lines[1] and "2.0 GiB free" in lines[1]


@needs_loader
@needs_kernels
def test_refusals_say_what_is_missing():
    def refusal(folder, *arguments, **more):
        done = lanewise("run", folder, "-p", "x", *arguments, **more)
        assert done.returncode == 1 and done.stdout == ""
        return done.stderr

    assert "LANEWISE_XPU_KERNELS" in refusal(LFM, "--device", "xpu", kernels=None)
    assert 'no device "xpu:3"; there is xpu:0' in refusal(LFM, "--device", "xpu:3")
    assert "GiB are free" in refusal(LFM, "--device", "xpu", LW_EMULATED_BYTES="3000000")
    assert "there is one cpu device" in refusal(LFM, "--device", "cpu:1")
    assert "does not have the model's op \"route\"" in refusal(ROOT / "models" / "nemotron-mlx4", "--device", "xpu")


@needs_loader
@needs_kernels
def test_no_module_is_refused(tmp_path):
    broken = tmp_path / "kernels.so"
    broken.write_bytes(b"not a module")
    done = lanewise("run", LFM, "-p", "x", "--device", "xpu", kernels=broken)
    assert done.returncode == 1 and "not a module of this device" in done.stderr
    shutil.copy(LOADER, broken)
    done = lanewise("run", LFM, "-p", "x", "--device", "xpu", kernels=broken)
    assert done.returncode == 1 and "built without its glue" in done.stderr


@needs_loader
@needs_kernels
@pytest.mark.parametrize("name", DEMOS)
def test_a_shipped_model_holds(name):
    done = lanewise("check", ROOT / "models" / name, "--device", "xpu")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("passed\n") and "bit-equal" in done.stdout


@needs_loader
@needs_kernels
def test_bench_counts_launches():
    def figures(device):
        done = lanewise("bench", LFM, "--device", device, "--prompt", "4", "--decode", "2", "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    xpu = figures("xpu")
    assert 10 < xpu["launches_per_token"] <= xpu["commands_per_token"]
    assert "launches_per_token" not in figures("cpu")
