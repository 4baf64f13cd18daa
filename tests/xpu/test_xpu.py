"""The xpu device from the command line: what `lanewise devices` says with and without it, and a shipped model on
the emulated device, compared with double precision like on any other."""
import ctypes
import json
import shutil

import pytest
from emulated import DEMOS, KINDS, LFM, LOADER, ROOT, lanewise, needs_kernels, needs_loader


def has_real_loader():
    """Whether Level Zero's loader is there, and the device was built with its headers, for the loader's tables."""
    try:
        ctypes.CDLL("libze_loader.so.1")
        return hasattr(ctypes.CDLL(str(LOADER)), "zeGetGlobalProcAddrTable")
    except OSError:
        return False


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

    # With the program's own kernels, if the build made them, or with none.
    text = refusal(LFM, "--device", "xpu", kernels=None)
    assert "SPIR-V, which takes LW_EMULATED_COMPILED" in text or "LANEWISE_XPU_KERNELS" in text
    assert 'no device "xpu:3"; there is xpu:0' in refusal(LFM, "--device", "xpu:3")
    assert "GiB are free" in refusal(LFM, "--device", "xpu", LW_EMULATED_BYTES="3000000")
    assert 'op "linear" without activations in int8' in refusal(LFM, "--device", "xpu", "--act-int8")
    assert "there is one cpu device" in refusal(LFM, "--device", "cpu:1")


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
@pytest.mark.parametrize("name", ["qwen-moe", "nemo-a"])
def test_a_small_model_of_experts_holds(name):
    """Softmax and sigmoid routers, shared experts, and matrices of 20 columns, which fill no eights."""
    done = lanewise("check", ROOT / "tests" / "data" / name, "--device", "xpu")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("passed\n") and "experts of layer" in done.stdout


@needs_loader
@needs_kernels
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", DEMOS)
def test_a_shipped_model_holds(name, kind):
    done = lanewise("check", ROOT / "models" / name, "--device", "xpu", LW_EMULATED_KIND=kind)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("passed\n") and "bit-equal" in done.stdout


@needs_loader
@needs_kernels
@pytest.mark.parametrize("name", DEMOS)
def test_int8_keys_and_values_keep_the_same_limits(name):
    done = lanewise("check", ROOT / "models" / name, "--device", "xpu", "--kv-int8")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("passed\n")


@needs_loader
@needs_kernels
@pytest.mark.parametrize("name", DEMOS)
def test_what_the_implementation_may_choose_changes_nothing(name):
    """The order of a sub-group's own sums, and how many threads share a launch."""
    choices = [{"LW_EMULATED_REDUCE": order} for order in "012"] + [{"LW_EMULATED_WORKERS": "1"}]
    texts = set()
    for choice in choices:
        done = lanewise("run", ROOT / "models" / name, "--raw", "-p", "One, two", "--max-tokens", "8", "--ignore-eos",
                        "--device", "xpu", **choice)
        assert done.returncode == 0 and done.stdout, done.stderr
        texts.add(done.stdout)
    assert len(texts) == 1


@needs_loader
@needs_kernels
def test_either_of_two_devices_answers_alike():
    texts = {}
    for which in ("xpu:0", "xpu:1", "xpu:04:00.0"):
        done = lanewise("run", LFM, "--raw", "-p", "One, two", "--max-tokens", "12", "--device", which,
                        LW_EMULATED_DEVICES="2")
        assert done.returncode == 0, done.stderr
        texts[which] = done.stdout
    assert texts["xpu:0"] and len(set(texts.values())) == 1


@needs_loader
@needs_kernels
@pytest.mark.skipif(not has_real_loader(), reason="no libze_loader.so.1 (Debian: libze1)")
@pytest.mark.parametrize("intercept", ["0", "1"])
def test_through_level_zeros_own_loader(intercept):
    """The loader finds the device by its tables of entries, and wraps what it hands out when told to."""
    through = {"ZE_ENABLE_ALT_DRIVERS": str(LOADER), "ZE_ENABLE_LOADER_INTERCEPT": intercept}
    lines = xpu_lines(lanewise("devices", loader=None, LW_EMULATED_DEVICES="2", **through))
    assert [line.split()[0] for line in lines] == ["xpu:0", "xpu:1"] and "integrated" in lines[1]
    question = ["run", LFM, "--raw", "-p", "One, two", "--max-tokens", "12", "--device", "xpu"]
    done = lanewise(*question, loader=None, **through)
    assert done.returncode == 0, done.stderr
    assert done.stdout and done.stdout == lanewise(*question).stdout


NAMES = ["launches_per_token", "commands_per_token", "bytes_per_token", "kv_bytes_per_token"]


@needs_loader
@needs_kernels
def test_bench_counts_launches():
    def figures(device, **more):
        done = lanewise("bench", LFM, "--device", device, "--prompt", "4", "--decode", "2", "--json", **more)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    xpu = figures("xpu")
    # A recorded batch is one command, however many launches it holds.
    assert 0 < xpu["commands_per_token"] < xpu["launches_per_token"] and xpu["launches_per_token"] > 10
    assert "launches_per_token" not in figures("cpu")
    # Where nothing runs, as many are made: what tools/xpu_table counts by.
    idle = figures("xpu", LW_EMULATED_IDLE="1")
    assert [idle[name] for name in NAMES] == [xpu[name] for name in NAMES]


@needs_loader
@needs_kernels
def test_rounds_go_ahead_and_change_nothing():
    shares, texts = [], set()
    for without in ("", "ahead"):
        done = lanewise("bench", LFM, "--device", "xpu", "--prompt", "4", "--decode", "6", "--streams", "2", "--json",
                        LANEWISE_XPU_WITHOUT=without)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        shares.append(found["stream_rounds_ahead"] / found["stream_rounds"])
        done = lanewise("run", LFM, "--raw", "-p", "One, two", "--max-tokens", "12", "--ignore-eos",
                        "--temperature", "0", "--device", "xpu", LANEWISE_XPU_WITHOUT=without)
        assert done.returncode == 0 and done.stdout, done.stderr
        texts.add(done.stdout)
    assert shares[0] > 0.5 and shares[1] == 0 and len(texts) == 1
