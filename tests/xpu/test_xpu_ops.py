"""`lanewise check --ops`, which needs no model: the report that a card's owner sends, on the emulated device and the
cpu. What it catches is tested by tests/unit/cli_check_ops.c."""
import json
import platform
import re

import pytest
from emulated import KINDS, LFM, ROOT, lanewise, needs_kernels, needs_loader

OPS = len(re.findall(r"^LW_OP\(", (ROOT / "src" / "ops" / "ops.list").read_text(), re.M)) + 1  # and the layer


def assert_tells_no_place(text):
    assert str(ROOT) not in text and (len(platform.node()) < 6 or platform.node() not in text) and "/home" not in text and ".so" not in text


@needs_loader
@needs_kernels
@pytest.mark.parametrize("kind", KINDS)
def test_every_op_passes_on_the_device(kind):
    done = lanewise("check", "--ops", "--device", "xpu", "--json", LW_EMULATED_KIND=kind)
    report = json.loads(done.stdout)
    assert done.returncode == 0 and report["passed"], [case for case in report["cases"] if not case["passed"]]
    assert report["ops"] == report["ops_passed"] == len({case["op"] for case in report["cases"]}) == OPS
    assert all(case["caught"] == case["planted"] > 0 and 0 <= case["worst"] <= 1 for case in report["cases"])
    assert f"({report['commit']})" in lanewise("--version").stdout
    assert report["device"] == {**report["device"], "level zero": "1.13", "driver": "0x00000001",
                                "dpas": "yes" if kind == "xe2" else "no", "kernels": "a module of the user's"}
    assert re.fullmatch("8086:[0-9a-f]{4}", report["device"]["pci id"])
    assert re.fullmatch("0 of [0-9]+ kernels spill, at most 0 bytes", report["device"]["spills"])
    assert_tells_no_place(done.stdout)


@needs_loader
@needs_kernels
def test_a_device_that_is_lost_fails_what_was_left():
    done = lanewise("check", "--ops", "--device", "xpu", LW_EMULATED_LOSE_AT="8000")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    passed, of = re.fullmatch(r"(\d+) of (\d+) ops passed", lines[-1]).groups()
    assert 0 < int(passed) < int(of) == OPS
    assert any(line.endswith(" passed") for line in lines) and any(line.endswith(" FAILED") for line in lines)
    assert_tells_no_place(done.stdout)


def test_a_model_beside_the_ops_is_checked_too():
    done = lanewise("check", LFM, "--ops", "--threads", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"\n{OPS} of {OPS} ops passed\n" in done.stdout and "laws were shown to hold, 0 failed" in done.stdout
    assert_tells_no_place(done.stdout)


def test_without_ops_a_model_is_needed():
    done = lanewise("check")
    assert done.returncode == 2 and "--ops" in done.stderr
