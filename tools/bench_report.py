"""Puts what tools/bench measured together, keeps it, and writes docs/perf/RESULTS.md from all that was kept.

A result is a file docs/perf/results/SHAPE.json: shape, date, commit, machine, how often, bytes, and for
each number of threads the medians with least and most of this engine and of each peer. RESULTS.md is
written from these files alone.
"""
import json
import platform
import statistics
import subprocess
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "perf" / "results"
PAGE = ROOT / "docs" / "perf" / "RESULTS.md"
INSTRUCTIONS = "instructions"

INTRO = """# Speed: what `tools/bench` measured

Written by `tools/bench --render` from the files in `docs/perf/results`; do not edit. Random weights at the
shapes of real checkpoints; nothing of the work depends on their values. Every cell is a median, with the
least and the most in brackets. This engine and its peers ran in turn, each a process of its own, on the same
machine in the same minutes; the read bandwidth was measured in those minutes too. Columns and rows:

- *ratio*: this engine's rate over the peer's, or the peer's time or memory over this engine's: above 1 is in
  our favour everywhere. Files of peers have their own formats, so bytes read a token differ; they stand above
  each table, and *of the bandwidth* is bytes of weights read a second over what memory gives.
- *window*: rows of one stream with all logits, as a round of drafts has, in plain steps of the same engine.
- *streams*: together, each with a short history. Ours run in the rounds of `serve`; a peer's in one batch a
  step.
- *behind N*: with a history of N positions. Ours is a copy of real pages; a peer computes it.
- *first token*: from a prompt of the stated length to its first token. Peers draw no token: their time is
  without it.
- *load*: ours repacks weights that lie in memory; a peer maps a file that the system has cached, and reads it
  later.
- *resident at most*: until a model is loaded (ours, random values included), or at all (peers).
"""


def spread(samples):
    values = sorted(samples)
    return {"median": statistics.median(values), "min": values[0], "max": values[-1], "samples": values}


# ---- putting turns together ----

def joined(values):
    """One object of several runs' objects: samples are joined, the rest is the first run's."""
    first = max(values, key=len) if isinstance(values[0], list) else values[0]
    if isinstance(first, list):
        return [joined([v[i] for v in values if len(v) > i]) for i in range(len(first))]
    if not isinstance(first, dict):
        return first
    if "samples" in first:
        return spread([sample for v in values for sample in v["samples"]])
    return {key: joined([v[key] for v in values if key in v]) for key in first}


def combined(runs):
    """The object of all turns; numbers that a run has once become samples, windows are taken anew."""
    for run in runs:
        whole = run.get("whole", {})
        for place, key in ((run, "load_ns"), (run, "resident_max_bytes"), (whole, "decode_tok_s")):
            if key in place:
                place[key] = spread([place[key]])
    out = joined(runs)
    for row in out.get("windows", []):
        row["steps"] = row["ns"]["median"] / out["windows"][0]["ns"]["median"]
    return out


def without_samples(value):
    """What is kept: how many samples there were instead of the samples."""
    if isinstance(value, list):
        return [without_samples(v) for v in value]
    if not isinstance(value, dict):
        return value
    out = {key: without_samples(v) for key, v in value.items() if key != "samples"}
    return out | {"count": len(value["samples"])} if "samples" in value else out


# ---- what and where ----

def machine():
    cpu = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    memory = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    return {"cpu": cpu, "memory_bytes": memory, "system": platform.system() + " " + platform.release()}


def git(*words):
    done = subprocess.run(["git", "-C", str(ROOT), *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True)
    return done.stdout.strip()


def commit():
    """The short id, with a plus where the tree differs but for results; "unknown" outside of a repository."""
    name = git("rev-parse", "--short", "HEAD")
    return (name + ("+" if git("status", "--porcelain", "--", ".", ":!docs/perf") else "")) or "unknown"


def keep(name, result, folder=FOLDER):
    folder.mkdir(parents=True, exist_ok=True)
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    stamp = {"date": date, "commit": commit(), "machine": machine()}
    text = json.dumps({"shape": name} | stamp | without_samples(result), indent=1)
    (folder / f"{name}.json").write_text(text + "\n")


# ---- the table ----

def at(path):
    """A getter of a spread inside a run's object: ("streams", ("streams", 4), "tok_s")."""
    def get(run):
        for step in path:
            if isinstance(step, tuple):
                key, value = step
                run = next((row for row in run or [] if row[key] == value), None)
            else:
                run = (run or {}).get(step)
        return run
    return get


def tidy_number(value):
    return f"{value:.0f}" if value >= 1000 else f"{value:.1f}" if value >= 100 else f"{value:.3g}"


def cell(value, scale):
    """A spread, or a lone number."""
    if value is None:
        return ""
    if not isinstance(value, dict):
        return tidy_number(value * scale)
    low, middle, high = (tidy_number(value[key] * scale) for key in ("min", "median", "max"))
    return f"{middle} ({low} to {high})" if value.get("count", 1) > 1 else middle


class Row:
    """better: 1 the larger, -1 the smaller, 0 no ratio."""

    def __init__(self, title, get, scale=1.0, better=1):
        self.title, self.get, self.scale, self.better = title, get, scale, better

    def ratio(self, ours, theirs):
        if self.better == 0 or ours is None or theirs is None:
            return ""
        a, b = (v["median"] if isinstance(v, dict) else v for v in (ours, theirs))
        return f"{(a / b if self.better > 0 else b / a):.2f}"


def share_of(run):
    """Weights read a second over the bandwidth; a peer's run is given both from outside."""
    if "bytes_per_token" not in run or "read_bytes_s" not in run:
        return None
    return run["decode_tok_s"]["median"] * run["bytes_per_token"] / run["read_bytes_s"]["median"]


def rows_of(run):
    prompt = run["prompt_tokens"]
    rows = [Row("decode, tok/s", at(("decode_tok_s",))), Row("of the bandwidth, %", share_of, 100.0, 0),
            Row("read bandwidth, GB/s", at(("read_bytes_s",)), 1e-9, 0),
            Row(f"prompt of {prompt}, tok/s", at(("prompt_tok_s",)))]
    for n in (row["tokens"] for row in run.get("more_prompts", [])):
        rows.append(Row(f"prompt of {n}, tok/s", at(("more_prompts", ("tokens", n), "tok_s"))))
    for n in (row["rows"] for row in run.get("windows", []) if row["rows"] > 1):
        rows.append(Row(f"window of {n}, steps", at(("windows", ("rows", n), "steps")), better=0))
    for n in (row["streams"] for row in run.get("streams", [])):
        title = f"{n} stream{'' if n == 1 else 's'}, tok/s"
        rows.append(Row(title, at(("streams", ("streams", n), "tok_s"))))
    for n in (row["positions"] for row in run.get("depths", [])):
        where = ("depths", ("positions", n))
        rows.append(Row(f"decode behind {n}, tok/s", at((*where, "tok_s"))))
        rows.append(Row(f"prompt behind {n}, tok/s", at((*where, "prompt_tok_s"))))
    rows += [Row(f"first token after {prompt}, ms", at(("first_token_ns",)), 1e-6, -1),
             Row("load, s", at(("load_ns",)), 1e-9, 0),
             Row("resident at most, GB", at(("resident_max_bytes",)), 1e-9, -1)]
    return rows


def whole_lines(result):
    """Of a cut shape: how fast the whole model would be."""
    out = []
    for threads, runs in result["threads"].items():
        whole = runs["ours"].get("whole")
        if whole:
            layers, rate = f"{whole['layers_run']} of {whole['layers']}", cell(whole["decode_tok_s"], 1.0)
            out.append(f"The whole model, extrapolated from {layers} layers with {threads} "
                       f"thread{'' if threads == '1' else 's'}: decode {rate} tok/s, "
                       f"{whole['bytes_per_token'] / 2**20:.0f} MiB of weights a token.\n")
    return out


def bytes_lines(result):
    ours = next(iter(result["threads"].values()))["ours"]
    weights, read, state = (ours[key] / 2**20 for key in ("weight_bytes", "bytes_per_token",
                                                          "state_bytes_per_token"))
    out = [f"Weights {weights:.0f} MiB, of which a token reads {read:.1f} MiB, and {state:.1f} MiB of state."]
    if result.get("file"):
        file = result["file"]
        whole, read = (file[key] / 2**20 for key in ("file_bytes", "bytes_per_token"))
        out.append(f"Peers: {file['format']} as {file['architecture']}, {whole:.0f} MiB, of which a token "
                   f"reads {read:.1f} MiB.")
    return [" ".join(out) + "\n"]


def table(threads, runs):
    peers = runs.get("peers", {})
    head = [f"{threads} thread{'' if threads == '1' else 's'}", "lanewise"]
    for name in peers:
        head += [name, "ratio"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in rows_of(runs["ours"]):
        ours = row.get(runs["ours"])
        cells = [row.title, cell(ours, row.scale)]
        for run in peers.values():
            theirs = row.get(run)
            cells += [cell(theirs, row.scale), row.ratio(ours, theirs)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def section(result):
    place = result["machine"]
    times = f"{result['turns']} turn{'' if result['turns'] == 1 else 's'} of {result['reps']} repetitions"
    out = [f"## {result['shape']}\n",
           f"{result['date']}, commit {result['commit']}; {place['cpu']}, {result['device']}, "
           f"{place['memory_bytes'] / 2**30:.0f} GiB; {times}.\n"]
    out += bytes_lines(result)
    out += [table(threads, runs) for threads, runs in result["threads"].items()]
    return "\n".join(out + whole_lines(result))


def instructions_section(result):
    lines = [f"## Instructions\n\n{result['date']}, commit {result['commit']}; counted by callgrind with "
             "AVX2 kernels and one thread, on the small models that ship with the source: they repeat where "
             "times do not.\n",
             "| model | a decoded token, thousands | a prompt row, thousands |", "|---|---|---|"]
    for model, counts in result["models"].items():
        lines.append(f"| {model} | {counts['token'] / 1e3:.0f} | {counts['row'] / 1e3:.0f} |")
    return "\n".join(lines) + "\n"


def render(folder=FOLDER, page=PAGE):
    results = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    parts = [INTRO] + [section(r) for r in results if r["shape"] != INSTRUCTIONS]
    parts += [instructions_section(r) for r in results if r["shape"] == INSTRUCTIONS]
    page.write_text("\n".join(parts))
