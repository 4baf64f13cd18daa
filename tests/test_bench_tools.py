"""What tools/bench stands on, without timing anything: files for other engines, their results, and the page of results.
"""
import json
import os
import stat
import struct
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import bench_peers  # noqa: E402
import bench_report  # noqa: E402
import synth_gguf  # noqa: E402

MIB = 1 << 20
SHAPES = ("lfm3-1.7b", "lfm3-350m", "lfm2-1.2b", "qwen3.5-0.8b", "qwen3.8-27b-cut", "qwen3.5-35b-a3b-cut",
          "nemotron-30b-a3b-cut", "nemotron-30b-a3b")


# ---- files ----

class Reader:
    """The header of a GGUF file, read by its published layout."""

    KINDS = {4: "<I", 5: "<i", 6: "<f", 7: "<?"}
    BLOCKS = {0: (1, 4), 2: (32, 18), 8: (32, 34), 30: (1, 2)}

    def __init__(self, data):
        self.data, self.at = data, 0
        assert self.take("<4sI") == (b"GGUF", 3)
        tensors, pairs = self.take("<QQ")
        self.metadata = {self.text(): self.value(self.take("<I")[0]) for _ in range(pairs)}
        self.tensors = {}
        for _ in range(tensors):
            name, dims = self.text(), self.take(f"<{self.take('<I')[0]}Q")
            self.tensors[name] = (dims, *self.take("<IQ"))
        self.data_at = -(-self.at // 32) * 32

    def take(self, form):
        out = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return out

    def text(self):
        count = self.take("<Q")[0]
        return self.take(f"<{count}s")[0].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            inner, count = self.take("<IQ")
            return [self.value(inner) for _ in range(count)]
        return self.take(self.KINDS[kind])[0]

    def bytes_of(self, name):
        dims, kind, _ = self.tensors[name]
        count = 1
        for dim in dims:
            count *= dim
        block, block_bytes = self.BLOCKS[kind]
        assert dims[0] % block == 0
        return count // block * block_bytes


def small_nemotron():
    config = synth_gguf.shape_config("nemotron-30b-a3b-cut")
    return config | {"hidden_size": 64, "vocab_size": 300, "num_attention_heads": 2, "num_key_value_heads": 1,
                     "head_dim": 32, "mamba_num_heads": 4, "mamba_head_dim": 16, "n_groups": 2,
                     "ssm_state_size": 16, "n_routed_experts": 8, "num_experts_per_tok": 2,
                     "moe_intermediate_size": 32, "moe_shared_expert_intermediate_size": 64}


@pytest.mark.parametrize("kind", synth_gguf.FILE_TYPES)
def test_a_file_is_what_its_header_says(kind, tmp_path):
    m = synth_gguf.model_of("small", small_nemotron(), kind, "q8_0" if kind == "q4_0" else kind)
    path = tmp_path / "small.gguf"
    synth_gguf.write(path, m)
    data, told = path.read_bytes(), synth_gguf.summary(m)
    found = Reader(data)
    assert len(data) == told["file_bytes"] and found.metadata["general.architecture"] == "nemotron_h_moe"
    assert found.metadata["nemotron_h_moe.attention.head_count_kv"] == [0, 0, 0, 0, 0, 1, 0]
    assert len(found.metadata["tokenizer.ggml.tokens"]) == 300
    end = 0
    for name, (_, _, offset) in found.tensors.items():
        assert offset == -(-end // 32) * 32, name
        end = offset + found.bytes_of(name)
    assert found.data_at + -(-end // 32) * 32 == len(data)
    dims, _, offset = found.tensors["blk.1.ffn_up_exps.weight"]
    assert dims == (64, 32, 8)
    if kind == "q4_0":  # a block: its scale, then 16 bytes of codes that differ
        scale = struct.unpack_from("<e", data, found.data_at + offset)[0]
        codes = data[found.data_at + offset + 2:found.data_at + offset + 18]
        assert 0.01 < scale < 0.1 and len(set(codes)) > 8


def test_what_a_token_reads_of_a_small_file():
    m = synth_gguf.model_of("small", small_nemotron(), "q4_0", "q4_0")
    by_name = {tensor.name: tensor for tensor in m.tensors}
    told = synth_gguf.summary(m)
    read = sum(t.bytes for t in m.tensors)
    read -= sum(by_name[f"blk.{i}.ffn_{part}_exps.weight"].bytes * 6 / 8 for i in (1, 3, 6) for part in ("up", "down"))
    read -= by_name["token_embd.weight"].bytes * 299 / 300
    assert abs(told["bytes_per_token"] - read) <= 1 and told["tensor_bytes"] > read


# What `lanewise bench` counts for the same shapes in 4 bits; there routers are bf16 and here fp32.
READS = {"lfm2-1.2b": 628.3 * MIB, "qwen3.5-0.8b": 404.3 * MIB, "nemotron-30b-a3b-cut": 394.5 * MIB,
         "nemotron-30b-a3b": 1.828e9}


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_have_files_of_their_size(shape):
    m = synth_gguf.model_of(shape, synth_gguf.shape_config(shape), "q4_0", "q4_0")
    told = synth_gguf.summary(m)
    billions = next(size for name, size in (("27b-cut", 4.06), ("35b-a3b-cut", 4.38), ("30b-a3b-cut", 4.74),
                                            ("30b-a3b", 31.6), ("350m", 0.35), ("1.2b", 1.17), ("1.7b", 1.75),
                                            ("0.8b", 0.75)) if shape.endswith(name))
    assert abs(told["parameters"] / 1e9 - billions) < 0.01 * billions + 0.01
    if shape in READS:
        assert abs(told["bytes_per_token"] - READS[shape]) < 0.015 * READS[shape]
    names = [tensor.name for tensor in m.tensors]
    assert len(set(names)) == len(names)


# ---- other engines ----


def script(path, text):
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


LLAMA_BENCH = """#!/usr/bin/env python3
import json, sys
words = sys.argv[1:]
lengths = [int(n) for n in words[words.index("-p") + 1].split(",")]
depth = int(words[words.index("-d") + 1]) if "-d" in words else 0
if depth > 9000: sys.exit("error: no room for that")
out = [{"n_prompt": n, "n_gen": 0, "samples_ts": [n - depth / 100, n + 1.0, n + 2.0]} for n in lengths]
out.append({"n_prompt": 0, "n_gen": 64, "avg_ts": 30.0 - depth / 1000, "build_commit": "abc"})
print(json.dumps(out))
"""


def test_llama_bench_is_read(tmp_path, capfd):
    peer = bench_peers.find([], [f"{script(tmp_path / 'llama-bench', LLAMA_BENCH)} -rtr 1"])[0]
    run = peer.run("x.gguf", 2, bench_peers.Sizes(more_prompts=(4096,), depths=(8192, 32768)))
    assert peer.name == "llama-bench abc -rtr 1"
    assert run["prompt_tok_s"]["median"] == 513 and run["decode_tok_s"]["median"] == 30
    assert [row["tokens"] for row in run["more_prompts"]] == [4096]
    assert run["more_prompts"][0]["tok_s"]["max"] == 4098
    assert [row["positions"] for row in run["depths"]] == [8192]  # what stands before a failure is kept
    assert run["depths"][0]["tok_s"]["median"] < 30
    assert "error: no room for that" in capfd.readouterr().err


def test_a_peer_that_fails_is_left_out(tmp_path, capfd):
    peer = bench_peers.BinaryPeer(script(tmp_path / "llama-bench", "#!/bin/sh\necho cannot load >&2; exit 1\n"))
    assert peer.run("x.gguf", 2, bench_peers.Sizes()) is None
    assert "cannot load" in capfd.readouterr().err


# A package that decodes nothing, but refuses rows that no stream could have.
PACKAGE = '''
import ctypes

class Params(ctypes.Structure):
    _fields_ = [("n_ctx", ctypes.c_uint32), ("n_threads", ctypes.c_int32), ("n_seq_max", ctypes.c_uint32)]

class Batch:
    def __init__(self, room):
        self.token, self.pos, self.n_seq_id, self.logits = ([0] * room for _ in range(4))
        self.seq_id = [[0] for _ in range(room)]

held, logits, settings = {}, (ctypes.c_float * 4)(), []
def llama_backend_init(): pass
def llama_model_default_params(): return None
def llama_context_default_params(): return Params()
def llama_model_load_from_file(path, params): return 0 if b"absent" in path else 1
def llama_init_from_model(model, params): settings.append(params); return 1
def llama_model_get_vocab(model): return 1
def llama_vocab_n_tokens(vocab): return 100
def llama_batch_init(rows, embd, streams): return Batch(rows)
def llama_get_memory(context): return 1
def llama_memory_clear(memory, data): held.clear()
def llama_get_logits_ith(context, row): return logits
def llama_decode(context, batch):
    for i in range(batch.n_tokens):
        stream, position = batch.seq_id[i][0], batch.pos[i]
        if position != held.get(stream, 0) or stream >= settings[0].n_seq_max: return 1
        if not 0 <= batch.token[i] < 100 or batch.n_seq_id[i] != 1: return 1
        held[stream] = position + 1
    if sum(held.values()) > settings[0].n_ctx or not batch.logits[batch.n_tokens - 1]: return 1
    return LAST if len(held) > 3 else 0
'''


def run_package(tmp_path, last, **more):
    folder = tmp_path / "llama_cpp"
    folder.mkdir()
    (folder / "__init__.py").write_text(PACKAGE.replace("LAST", str(last)))
    os.environ["PYTHONPATH"] = str(tmp_path)
    try:
        peer = bench_peers.PackagePeer(sys.executable, "llama_cpp", "1.0")
        return peer.run(tmp_path / "x.gguf", 2, bench_peers.Sizes(prompt=700, decode=5, **more))
    finally:
        del os.environ["PYTHONPATH"]


def test_a_package_is_run(tmp_path):
    run = run_package(tmp_path, 0, more_prompts=(1100,), streams=(1, 4), depths=(2048, 1024))
    assert run["decode_tok_s"]["median"] > 0 and len(run["decode_tok_s"]["samples"]) == 3
    assert [row["rows"] for row in run["windows"]] == [1, 2, 4, 8]
    assert [row["streams"] for row in run["streams"]] == [1, 4]
    assert [row["positions"] for row in run["depths"]] == [1024, 2048]
    assert run["resident_max_bytes"] > 0


def test_what_stands_before_an_engine_ends_is_kept(tmp_path, capfd):
    run = run_package(tmp_path, 1, streams=(1, 4), depths=(64,))
    assert run["decode_tok_s"]["median"] > 0 and len(run["depths"]) == 1 and run["streams"] == []
    assert "llama_decode says 1 for 64 rows at position 0" in capfd.readouterr().err


def test_packages_of_an_interpreter_are_found():
    assert {peer.module for peer in bench_peers.packages_of(sys.executable)} <= set(bench_peers.PACKAGES)
    assert bench_peers.packages_of("/bin/false") == []


# ---- the page ----

def a_run(decode, **more):
    return {"decode_tok_s": bench_report.spread([decode, decode + 1, decode + 5]), "prompt_tokens": 512,
            "prompt_tok_s": bench_report.spread([100.0]), "load_ns": 2e9, "resident_max_bytes": 3e9,
            "first_token_ns": bench_report.spread([5e8]),
            "windows": [{"rows": 1, "steps": 1, "ns": bench_report.spread([10.0])},
                        {"rows": 4, "steps": 1, "ns": bench_report.spread([15.0])}],
            "streams": [{"streams": 8, "tok_s": bench_report.spread([decode * 4])}], **more}


OURS = {"bytes_per_token": MIB, "weight_bytes": 2 * MIB, "state_bytes_per_token": MIB,
        "read_bytes_s": bench_report.spread([100.0 * MIB])}


def test_turns_are_put_together():
    both = bench_report.combined([a_run(10.0, **OURS), a_run(20.0, **OURS)])
    assert both["decode_tok_s"]["samples"] == [10, 11, 15, 20, 21, 25] and both["decode_tok_s"]["median"] == 17.5
    assert both["windows"][1]["steps"] == 1.5 and both["load_ns"]["median"] == 2e9
    assert both["streams"][0]["tok_s"] == bench_report.spread([40.0, 80.0])
    shorter = bench_report.combined([a_run(10.0), a_run(20.0) | {"streams": []}])
    assert shorter["streams"][0]["tok_s"]["samples"] == [40.0]
    kept = bench_report.without_samples(both)
    assert "samples" not in json.dumps(kept) and kept["decode_tok_s"]["count"] == 6


def test_the_page_has_every_result(tmp_path):
    ours, peer = bench_report.combined([a_run(20.0, **OURS)]), bench_report.combined([a_run(10.0)])
    peer["first_token_ns"] = bench_report.spread([10e8])
    peer |= {"bytes_per_token": MIB / 2, "read_bytes_s": OURS["read_bytes_s"], "streams": []}
    result = {"device": "cpu (avx2, 1 thread)", "turns": 1, "reps": 3,
              "file": {"format": "q4_0", "architecture": "lfm2", "file_bytes": 4 * MIB, "bytes_per_token": MIB / 2},
              "threads": {"1": {"ours": ours, "peers": {"other": peer}}}}
    bench_report.keep("lfm2-1.2b-4bit", result, tmp_path)
    bench_report.keep(bench_report.INSTRUCTIONS, {"models": {"small": {"token": 5e6, "row": 4e6}}}, tmp_path)
    bench_report.render(tmp_path, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    for line in ("## lfm2-1.2b-4bit", "1 turn of 3 repetitions", "a token reads 1.0 MiB", "reads 0.5 MiB",
                 "| decode, tok/s | 21 (20 to 25) | 11 (10 to 15) | 1.91 |", "| window of 4, steps | 1.5 | 1.5 |  |",
                 "| of the bandwidth, % | 21 | 5.5 |  |", "| 8 streams, tok/s | 80 |  |  |",
                 "| first token after 512, ms | 500.0 | 1000 | 2.00 |", "| small | 5000 | 4000 |"):
        assert line in page, line
    assert page.index("## lfm2") < page.index("## Instructions")


def test_the_script_refuses_what_it_does_not_know():
    done = subprocess.run([ROOT / "tools" / "bench", "lfm9-4bit"], capture_output=True, text=True)
    assert done.returncode == 2 and "no shape lfm9-4bit" in done.stderr
