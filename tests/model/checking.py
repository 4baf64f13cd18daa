"""What the tests of `lanewise check` share: the binary, the instruction sets of this CPU, the folders to check."""
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BINARY = ROOT / "build" / "lanewise"
SHARED = ROOT.parent / "shared" / "models"
IS_LONG = "LW_TEST_LONG" in os.environ


def isas():
    """As `lanewise devices` names them, best last."""
    text = subprocess.run([BINARY, "devices"], capture_output=True, text=True, check=True).stdout
    line = next(line for line in text.splitlines() if line.startswith("isas"))
    return line.split()[1:]


def check(folder, isa, *options):
    """The finished process of `lanewise check folder --isa isa`."""
    command = [BINARY, "check", folder, "--isa", isa, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)
