"""Other engines for tools/bench: which are there, the file that they are timed on, and how each is run.

A peer is a Python package (llama_cpp, ik_llama_cpp) of some interpreter, run by tools/peer_run.py, or a
llama-bench binary that somebody built. Both give the object that `lanewise bench --json` prints, as far as
they measure it.
"""
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import synth_gguf

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"llama_cpp": "llama-cpp-python", "ik_llama_cpp": "ik-llama-cpp-python"}
FORMATS = {"4bit": "q4_0", "8bit": "q8_0", "bf16": "bf16"}
PROBE = """
import importlib.metadata as m, importlib.util as u, sys
for module, package in zip(sys.argv[1::2], sys.argv[2::2]):
    if u.find_spec(module): print(module, m.version(package))
"""


class Sizes(NamedTuple):
    """What every engine is asked for."""

    prompt: int = 512
    decode: int = 64
    reps: int = 3
    more_prompts: tuple = ()
    streams: tuple = ()
    depths: tuple = ()


def spread(samples):
    values = sorted(samples)
    return {"median": statistics.median(values), "min": values[0], "max": values[-1], "samples": values}


def peer_process(command):
    """Without the debugger that ggml calls when it ends itself: it takes minutes."""
    environment = os.environ | {"GGML_NO_BACKTRACE": "1"}
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


class PackagePeer:
    """A package of an interpreter."""

    def __init__(self, python, module, version):
        self.python, self.module = python, module
        self.name = f"{PACKAGES[module]} {version}"

    def run(self, path, threads, sizes):
        command = [self.python, str(ROOT / "tools" / "peer_run.py"), self.module, str(path),
                   "--threads", str(threads), "--prompt", str(sizes.prompt), "--decode", str(sizes.decode),
                   "--reps", str(sizes.reps)]
        for option, values in (("more-prompts", sizes.more_prompts), ("streams", sizes.streams),
                               ("depths", sizes.depths)):
            if values:
                command += [f"--{option}", ",".join(map(str, values))]
        done = peer_process(command)
        lines = done.stdout.splitlines()
        if done.returncode != 0:
            print(f"{self.name} ended early: {last_words(done.stderr)}", file=sys.stderr)
        return json.loads(lines[-1]) if lines else None


class BinaryPeer:
    """A llama-bench; more is what else it is given."""

    def __init__(self, binary, more=""):
        self.binary, self.more = str(binary), shlex.split(more)
        self.name = f"{Path(binary).name} {more}".strip()

    def command(self, path, threads, sizes):
        lengths = ",".join(map(str, [sizes.prompt, *sizes.more_prompts]))
        return [self.binary, "-m", str(path), "-t", str(threads), "-p", lengths, "-n", str(sizes.decode),
                "-r", str(sizes.reps), "-o", "json", *self.more]

    def run(self, path, threads, sizes):
        found = self.read(self.command(path, threads, sizes))
        if found is None:
            return None
        result = result_of_llama_bench(found, sizes)
        for depth in sizes.depths:
            deep = self.command(path, threads, sizes._replace(more_prompts=[], prompt=512, decode=8, reps=1))
            at_depth = self.read([*deep, "-d", str(depth)])
            if at_depth is None:
                break
            result["depths"].append(depth_of_llama_bench(at_depth, depth))
        return result

    def read(self, command):
        done = peer_process(command)
        try:
            found = json.loads(done.stdout)
        except json.JSONDecodeError:
            found = []
        if done.returncode == 0 and found:
            build = next((entry["build_commit"] for entry in found if "build_commit" in entry), "")
            words = [Path(self.binary).name, build, *self.more]
            self.name = " ".join(word for word in words if word)
            return found
        print(f"{self.name} failed: {last_words(done.stderr)}", file=sys.stderr)
        return None


def last_words(text):
    """The line of an error that says most, without colours."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip() for line in text.splitlines()]
    for sign in ("assert", "error", "cannot"):
        lines = [line for line in lines if sign in line.lower()] or lines
    return (lines or ["it said nothing"])[-1][:200]


def rates(entry):
    return spread(entry["samples_ts"]) if entry.get("samples_ts") else spread([entry["avg_ts"]])


def result_of_llama_bench(found, sizes):
    """The object of `lanewise bench --json` as far as llama-bench measures: prompts and replies."""
    prompts = {entry["n_prompt"]: rates(entry) for entry in found if entry["n_gen"] == 0}
    decode = next(rates(entry) for entry in found if entry["n_prompt"] == 0)
    more = [{"tokens": n, "tok_s": prompts[n]} for n in sizes.more_prompts if n in prompts]
    return {"prompt_tok_s": prompts[sizes.prompt], "decode_tok_s": decode, "more_prompts": more,
            "windows": [], "streams": [], "depths": []}


def depth_of_llama_bench(found, depth):
    prompt = next(rates(entry) for entry in found if entry["n_gen"] == 0)
    decode = next(rates(entry) for entry in found if entry["n_prompt"] == 0)
    return {"positions": depth, "tok_s": decode, "prompt_tok_s": prompt}


def packages_of(python):
    """Peers among an interpreter's packages."""
    words = [word for pair in PACKAGES.items() for word in pair]
    done = subprocess.run([python, "-c", PROBE, *words], stdout=subprocess.PIPE, text=True)
    lines = done.stdout.splitlines() if done.returncode == 0 else []
    return [PackagePeer(python, *line.split()) for line in lines]


def find(pythons, binaries):
    """binaries: each "PATH" or "PATH with options"."""
    peers = [peer for python in pythons for peer in packages_of(python)]
    for text in binaries:
        path, _, more = text.partition(" ")
        peers.append(BinaryPeer(path, more))
    return peers


def file_for(shape, folder, table):
    """(path, summary) of a GGUF file at the shape of "lfm2-1.2b-4bit"; None where the format has no kin."""
    model, _, form = shape.rpartition("-")
    if form not in FORMATS:
        return None
    kind = FORMATS[form]
    m = synth_gguf.model_of(model, synth_gguf.shape_config(model), kind, table if kind == "q4_0" else kind)
    summary = synth_gguf.summary(m)
    path = Path(folder) / f"{shape}.gguf"
    synth_gguf.write(path, m)
    return path, summary
