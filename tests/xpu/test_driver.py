"""The server against Intel's own driver, on a machine without a card: in its capture mode the driver takes every call,
builds modules and answers, but no kernel runs. So this holds calls, arguments, the build of our SPIR-V and the kept
image of it; what a reply says is nobody's. Both forms of the loader: with the validation layer before the driver,
and the driver alone."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import compiler
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "serve"))
import served  # noqa: E402

# The command streams go to a file, which nobody wants: gigabytes a minute.
CAPTURE = {"NEOReadDebugKeys": "1", "SetCommandStreamReceiver": "1", "AUBDumpCaptureFileName": "/dev/null"}
FAMILIES = {"tgllp": {"ProductFamilyOverride": "tgllp"},
            "pvc": {"ProductFamilyOverride": "pvc", "HardwareInfoOverride": "1x8x16"}}
LAYERS = {"ZE_ENABLE_LOADER_INTERCEPT": "1", "ZE_ENABLE_VALIDATION_LAYER": "1", "ZE_ENABLE_PARAMETER_VALIDATION": "1"}
INVALID_NULL_POINTER = 0x78000007
HEAD_BYTES = 24 + 32    # of a kept image, src/device/xpu/image.c
KERNELS = [name for name, needs_dpas in compiler.listed().items() if not needs_dpas]


def environment(family, **more):
    env = {name: text for name, text in os.environ.items() if not name.startswith("LANEWISE_")}
    return {**env, **CAPTURE, **FAMILIES[family], **more}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    """Skips where there is no such driver, or the program has no kernels for it."""
    said = subprocess.run([served.LANEWISE, "devices"], env=environment(request.param), capture_output=True, text=True,
                          timeout=60, check=True).stdout
    if not re.search(r"^xpu:0 .*Intel", said, re.M):
        pytest.skip("skipped: no Level Zero driver of Intel's (Debian: intel-opencl-icd, libze1)")
    if "common" not in compiler.sets_built():
        pytest.skip("skipped: built without ocloc (Debian: intel-opencl-icd), so without kernels")
    return request.param


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Two layers of random weights."""
    folder = tmp_path_factory.mktemp("model") / "two"
    subprocess.run([sys.executable, ROOT / "tools" / "synth", "two", folder, "--format", "mlx4"], check=True, timeout=60)
    return folder


@pytest.fixture(scope="module")
def cache(family, tmp_path_factory):
    return tmp_path_factory.mktemp(f"cache-{family}")


def images(cache):
    return list((cache / "lanewise" / "xpu-images").glob("*"))


def serve_and_ask(family, model, folder, **more):
    """Loading times rounds of every size before the first request comes. A reply is drawn from what lay in memory,
    which may be no number."""
    command = [served.LANEWISE, "serve", str(model), "--port", "0", "--device", "xpu", "--context", "128", "--chunk", "8",
               "--parallel", "1"]
    server = served.Server(command, str(folder / "server.log"), environment(family, **more))
    try:
        assert b"xpu (Intel" in server.start_lines
        for _ in range(2):
            status, body = server.post("/v1/completions", {"prompt": "twenty tokens of it", "max_tokens": 4})
            assert status == 200 or body["error"]["code"] == "broken_logits", body
    finally:
        code = server.stop()
    assert code == 0, server.log()
    assert not list(folder.glob("*.aub"))


def test_the_first_start_builds_behind_the_validation_layer(family, model, cache, tmp_path):
    serve_and_ask(family, model, tmp_path, XDG_CACHE_HOME=str(cache), **LAYERS)
    assert len(images(cache)) == 1


def test_the_next_start_takes_what_was_kept(family, model, cache, tmp_path):
    kept = images(cache)
    assert len(kept) == 1, "the test before this one keeps an image"
    before = kept[0].stat().st_mtime_ns
    serve_and_ask(family, model, tmp_path, XDG_CACHE_HOME=str(cache))
    assert images(cache) == kept and kept[0].stat().st_mtime_ns == before


@pytest.mark.parametrize("layers", [LAYERS, {}], ids=["layers", "plain"])
def test_the_driver_takes_the_kernels_as_they_were_meant(family, cache, layers, tmp_path):
    kept = images(cache)
    assert len(kept) == 1, "the first test keeps an image"
    image = tmp_path / "image"
    image.write_bytes(kept[0].read_bytes()[HEAD_BYTES:])
    done = subprocess.run([sys.executable, ROOT / "tests/xpu/driver.py", image, *KERNELS], env=environment(family, **layers),
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout)
    assert said.pop("refusal", None) == (INVALID_NULL_POINTER if layers else None)
    assert sorted(said) == sorted(KERNELS)
    for name, kernel in said.items():
        assert (kernel["lanes"], kernel["arguments"], kernel["spilled"]) == (compiler.LANES, 1, 0), (name, kernel)


def test_a_module_that_is_cut_is_refused_and_not_kept(family, model, tmp_path):
    wrong = tmp_path / "kernels.spv"
    wrong.write_bytes((compiler.sets_built()["common"]).read_bytes()[:64])
    done = subprocess.run([served.LANEWISE, "run", model, "--raw", "-p", "x", "--device", "xpu"], capture_output=True,
                          text=True, timeout=120, check=False,
                          env=environment(family, LANEWISE_XPU_KERNELS=str(wrong), XDG_CACHE_HOME=str(tmp_path)))
    assert done.returncode == 1 and "Level Zero answers" in done.stderr and str(wrong) in done.stderr, done.stderr
    assert not images(tmp_path)
