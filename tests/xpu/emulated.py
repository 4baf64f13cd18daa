"""What tests of the xpu device share: where the emulated one lies, the shipped models, and the program run with
it. LW_EMULATED_ variables are explained in emulated.h."""
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BINARY = ROOT / "build" / "lanewise"
LOADER = ROOT / "build" / "native" / "libze_lanewise_cpu.so"
KERNELS = ROOT / "build" / "native" / "xpu" / "kernels_cpu.so"
LFM = ROOT / "models" / "lfm3-mlx4"

DEMOS = ["lfm3-mlx4", "qwen35-mlx4", "nemotron-mlx4"]
KINDS = ["xe2", "gen12lp"]
SECONDS = 900

needs_loader = pytest.mark.skipif(not LOADER.exists(), reason=f"no {LOADER.name}: it is for x86-64")
needs_kernels = pytest.mark.skipif(not KERNELS.exists(), reason=f"no {KERNELS.name}: clang and AVX2 make it")


def environment(loader=LOADER, kernels=KERNELS, **more):
    env = {name: text for name, text in os.environ.items() if not name.startswith("LANEWISE_")}
    if loader:
        env["LANEWISE_ZE_LOADER"] = str(loader)
    if kernels:
        env["LANEWISE_XPU_KERNELS"] = str(kernels)
    env.update(more)
    return env


def lanewise(*arguments, loader=LOADER, kernels=KERNELS, **more):
    return subprocess.run([BINARY, *arguments], env=environment(loader, kernels, **more), capture_output=True,
                          text=True, timeout=SECONDS, check=False)
