"""Requantised checkpoints, made by tools/requant with their own double-precision references: every width, group, mix,
scale type, dense type and shard split passes `lanewise check`."""
import subprocess
import sys

import pytest

from checking import IS_LONG, ROOT, SHARED, check, isas

SOURCE = SHARED / "lfm3-bf16"
MIX = ["--override", "feed_forward.w2=8:32", "--override", "conv.in_proj=3:128", "--keep", "layers.0.",
       "--keep", "gate_proj"]
QUICK = [
    ["--bits", "2", "--group", "32"],
    ["--bits", "3", "--group", "64", "--scales", "F16"],
    ["--bits", "5", "--group", "128"],
    ["--bits", "6", "--group", "64", "--scales", "F32"],
    ["--bits", "4", "--group", "32", "--shards", "3", "--split-scales", *MIX],
    ["--dense", "fp16", "--shards", "2", "--no-index"],
    ["--dense", "fp32"],
]
LONG = [["--bits", str(bits), "--group", str(group), "--scales", scales]
        for bits in (2, 3, 4, 5, 6, 8) for group in (32, 64, 128) for scales in ("BF16", "F16", "F32")]


@pytest.mark.parametrize("options", QUICK + (LONG if IS_LONG else []), ids=" ".join)
def test_holds(options, tmp_path):
    if not SOURCE.exists():
        pytest.skip(f"{SOURCE} is absent")
    folder = tmp_path / "model"
    subprocess.run([sys.executable, ROOT / "tools" / "requant", SOURCE, folder, *options], check=True)
    for isa in isas():
        done = check(folder, isa)
        assert done.returncode == 0, f"{isa}\n{done.stdout}{done.stderr}"
