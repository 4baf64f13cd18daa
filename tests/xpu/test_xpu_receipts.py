"""Receipts on the emulated device: every law of streams, for each shipped model that it runs, on each kind."""
import json

import pytest
from emulated import DEMOS, KINDS, ROOT, lanewise, needs_kernels, needs_loader

RUNS = [(name, kind, []) for name in DEMOS for kind in KINDS] + [("lfm3-mlx4", "gen12lp", ["--kv-int8"])]
LAWS = 7


@needs_loader
@needs_kernels
@pytest.mark.parametrize("name, kind, options", RUNS)
def test_a_shipped_model_keeps_every_law(name, kind, options):
    done = lanewise("receipts", ROOT / "models" / name, "--device", "xpu", "--quick", "--tokens", "16", "--json",
                    *options, LW_EMULATED_KIND=kind)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["holds"] is True and len(report["receipts"]) == LAWS
    for receipt in report["receipts"]:
        assert receipt["holds"] and receipt["shown"] and receipt["control_caught"], receipt
