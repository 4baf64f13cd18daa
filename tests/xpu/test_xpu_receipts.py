"""Receipts on the emulated device: every law of streams, for each shipped model that it runs, on each kind."""
import json

import pytest
from emulated import DEMOS, ROOT, lanewise, needs_kernels, needs_loader

RUNS = [(name, kind) for name, kinds in DEMOS.items() for kind in kinds]
LAWS = 7


@needs_loader
@needs_kernels
@pytest.mark.parametrize("name, kind", RUNS)
def test_a_shipped_model_keeps_every_law(name, kind):
    done = lanewise("receipts", ROOT / "models" / name, "--device", "xpu", "--quick", "--tokens", "16", "--json",
                    LW_EMULATED_KIND=kind)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["holds"] is True and len(report["receipts"]) == LAWS
    for receipt in report["receipts"]:
        assert receipt["holds"] and receipt["shown"] and receipt["control_caught"], receipt
