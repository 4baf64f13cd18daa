"""The command line as its users meet it: the real binary, its streams, its exit codes."""

import glob
import hashlib
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import time

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OUT = os.environ.get("LW_TEST_OUT", "")
BINARY = os.path.join(ROOT, OUT, "lanewise") if OUT else os.path.join(ROOT, "build", "lanewise")
MODEL = os.path.join(ROOT, "models", "lfm3-mlx4")
PROMPT = "Count to five."
LONG = ["--ignore-eos", "--max-tokens", "8000", "--threads", "1"]
SECONDS = 60

needs_model = pytest.mark.skipif(not os.path.isdir(MODEL), reason=f"no model at {MODEL}")
VERBS = ["run", "info", "tokenize", "devices", "check", "bench"]


def environment(**more):
    env = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    env.update(more)
    return env


def lanewise(*args, data=None, env=None):
    """Runs to the end; standard input is data, or empty."""
    return subprocess.run([BINARY, *args], input=data if data is not None else b"", stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=SECONDS, env=env or environment(), check=False)


def reply(*args, data=None):
    # One thread unless args say more: two that wait for each other are slow beside other work.
    done = lanewise("run", MODEL, "--threads", "1", *args, "--json", data=data)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr == b""
    return json.loads(done.stdout)


def ids_of(text, *args):
    done = lanewise("tokenize", MODEL, "--json", *args, "--", text)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)["ids"]


def read_until(fd, wanted, seconds=SECONDS):
    """Bytes of a terminal or pipe until wanted was seen or it ended."""
    got, end = b"", time.monotonic() + seconds
    while wanted is None or wanted not in got:
        left = end - time.monotonic()
        if left <= 0 or not select.select([fd], [], [], left)[0]:
            raise AssertionError(f"{wanted!r} did not come within {seconds} s; got {got!r}")
        try:
            part = os.read(fd, 4096)
        except OSError:  # a terminal whose other side was closed
            break
        if not part:
            break
        got += part
    return got


def on_terminal(args, env=None, stdin=subprocess.DEVNULL):
    """Starts with output and errors on a terminal of their own; returns the process and that terminal."""
    main, other = pty.openpty()
    process = subprocess.Popen([BINARY, *args], stdin=other if stdin == "terminal" else stdin, stdout=other,
                               stderr=other, env=env or environment(), start_new_session=True)
    os.close(other)
    return process, main


def links(folder, *without):
    """A folder of links to the model's files, less some."""
    for path in glob.glob(MODEL + "/*"):
        if os.path.basename(path) not in without:
            os.symlink(path, os.path.join(folder, os.path.basename(path)))


# ---- usage ----


def test_help_is_on_standard_output():
    done = lanewise("--help")
    assert done.returncode == 0 and done.stderr == b""
    for verb in VERBS:
        assert re.search(rf"^  {verb} ", done.stdout.decode(), re.M)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_examples(verb):
    done = lanewise(verb, "--help")
    assert done.returncode == 0 and done.stderr == b""
    text = done.stdout.decode()
    assert text.startswith(f"usage: lanewise {verb} ")
    assert f"\nexamples:\n  lanewise {verb}" in text or f" lanewise {verb}" in text.split("examples:")[1]
    assert max(len(line) for line in text.splitlines()) <= 130


def test_version():
    done = lanewise("--version")
    assert done.returncode == 0
    assert re.fullmatch(rb"lanewise \d+\.\d+\.\d+ \(([0-9a-f]{7,40}(-changed)?|unknown)\)\n", done.stdout)
    assert lanewise("run", "--version").stdout == done.stdout


@pytest.mark.parametrize("args, text", [
    ([], "no verb given"),
    (["frobnicate"], 'there is no verb "frobnicate"'),
    (["run"], "run needs MODEL"),
    (["run", "m", "--frob"], "run has no option --frob"),
    (["run", "m", "-p"], "-p TEXT"),
    (["run", "m", "n", "-p", "x"], '"n" is one argument too many'),
    (["run", "m", "-p", "x", "--max-tokens", "0"],
     '--max-tokens takes a whole number from 1 to 4194304, not "0"'),
    (["run", "m", "-p", "x", "--temperature=-1"], '--temperature takes a number from 0 to 100, not "-1"'),
    (["run", "m", "-p", "x", "--top-p", "1.5"], '--top-p takes a number from 0 to 1, not "1.5"'),
    (["run", "m", "-p", "x", "--min-p", "x"], '--min-p takes a number from 0 to 1, not "x"'),
    (["run", "m", "-p", "x", "--top-k", "-3"], '--top-k takes a whole number from 0 to 2097152, not "-3"'),
    (["run", "m", "-p", "x", "--seed", "9223372036854775808"], "--seed takes a whole number from 0 to"),
    (["run", "m", "-p", "x", "--threads", "257"], '--threads takes a whole number from 1 to 256, not "257"'),
    (["run", "m", "-p", "x", "--isa", "sse2"], "--isa takes one of generic|avx2|"),
    (["run", "m", "-p", "x", "--context", "0"], "--context takes a whole number from 1 to"),
    (["run", "m", "-p", "x", "--chunk", "1e3"], "--chunk takes a whole number from 1 to"),
    (["run", "m", "-p", "x", "--raw=yes"], "--raw takes no value"),
    (["run", "m", "--chat", "--raw"], "--chat speaks through the template"),
    (["run", "m", "--chat", "--json"], "--json prints one object"),
    (["run", "m", "-p", "x", "--ids", "y"], "-p and --ids are both prompts"),
    (["run", "m", "-p", "x", "--raw", "--system", "y"], "--system needs the chat template"),
    (["run", "m", "-p", "x", "--no-specials"], "--no-specials is for --raw"),
    (["tokenize"], "tokenize needs MODEL"),
    (["devices", "x"], "devices takes no argument"),
    (["bench"], "give either MODEL or --synth SHAPE"),
    (["bench", "--synth", "lfm9-4bit"], 'no synthetic model "lfm9-4bit"'),
    (["bench", "m", "--streams", "0"], '--streams takes a whole number from 1 to 64, not "0"'),
    (["bench", "m", "--depth", "8k"], '--depth takes a whole number from 1 to 1048576, not "8k"'),
    (["bench", "m", *["--more-prompt", "9"] * 5], "--more-prompt may be given 4 times"),
    (["bench", "m", "--config"], "--config goes with --synth"),
    (["bench", "--synth", "qwen3.5-0.8b-4bit", "--drafts", "--streams", "2"], "leave out --streams"),
    (["bench", "m", "--reps", "2"], "--reps takes a whole number from 3 to"),
    (["check", "m", "--context"], "--context needs a value"),
])
def test_wrong_usage_says_what_is_right(args, text):
    done = lanewise(*args)
    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.startswith(b"lanewise: ")
    assert text in done.stderr.decode()
    assert "--help" in done.stderr.decode()


@pytest.mark.parametrize("verb", ["run", "info", "tokenize", "check", "bench"])
def test_missing_model(verb):
    done = lanewise(verb, "/no/such/model", data=b"x")
    assert done.returncode == 1 and done.stdout == b""
    assert done.stderr.startswith(b"lanewise: ") and b"/no/such/model" in done.stderr
    assert b"config.json" in done.stderr


def test_devices():
    done = lanewise("devices")
    assert done.returncode == 0
    assert re.search(rb"^cpu +cpu \(", done.stdout, re.M)
    found = json.loads(lanewise("devices", "--json").stdout)
    assert "generic" in found["isas"]
    assert found["threads"] >= 1 and found["memory_bytes"] > 1 << 28
    assert [device["name"] for device in found["devices"] if device["opens"]][0] == "cpu"


# ---- run ----


@needs_model
def test_text_and_timings_have_a_stream_each():
    done = lanewise("run", MODEL, "-p", PROMPT)
    assert done.returncode == 0
    assert done.stdout.endswith(b"\n") and len(done.stdout) > 1
    timings = r"prompt \d+ tokens, [\d.]+ tok/s; reply \d+ tokens, [\d.]+ tok/s; stop; cpu \(.*\)\n"
    assert re.fullmatch(timings, done.stderr.decode())
    assert done.stdout.decode().rstrip("\n") == reply("-p", PROMPT)["text"].rstrip("\n")


@needs_model
def test_json_object():
    found = reply("-p", PROMPT)
    assert sorted(found) == ["finish", "ids", "prompt_tokens", "seed", "text", "timings", "token_sha"]
    assert sorted(found["timings"]) == ["decode_ms", "decode_tok_s", "prompt_ms", "prompt_tok_s"]
    assert all(value > 0 for value in found["timings"].values())
    text = ",".join(str(i) for i in found["ids"])
    assert found["token_sha"] == hashlib.sha256(text.encode()).hexdigest()[:12]
    assert found["finish"] == "stop"
    assert found["ids"][-1] == ids_of("<|im_end|>")[0]
    assert "<|im_end|>" not in found["text"]


@needs_model
def test_seed_comes_from_the_prompt():
    ids = ids_of("Once upon")
    found = reply("--raw", "-p", "Once upon", "--max-tokens", "2")
    text = ",".join(str(i) for i in ids) + "|0"
    expected = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") & (2**63 - 1)
    assert found["seed"] == expected
    assert found["prompt_tokens"] == len(ids)
    assert reply("-p", PROMPT, "--seed", "7", "--max-tokens", "2")["seed"] == 7


@needs_model
def test_prompts_of_all_kinds_agree(tmp_path):
    whole = reply("-p", PROMPT)
    from_pipe = reply(data=(PROMPT + "\n").encode())
    assert from_pipe["text"] == whole["text"]
    text = f"<|startoftext|><|im_start|>user\n{PROMPT}<|im_end|>\n<|im_start|>assistant\n"
    raw = reply("--raw", "-p", text)
    path = tmp_path / "ids.json"
    path.write_text(json.dumps(ids_of(text)))
    from_file = reply("--ids", str(path))
    from_stdin = reply("--ids", "-", data=path.read_bytes())
    for other in (from_pipe, raw, from_file, from_stdin):
        assert (other["ids"], other["seed"]) == (whole["ids"], whole["seed"])


@needs_model
@pytest.mark.parametrize("text, error", [
    ("{}", "not a JSON list"), ("[1, 2", "line 1"), ("[1, -2]", "item 1"), ("[1.5]", "item 0"),
    ('["1"]', "item 0"),
    ("[999999]", "999999"), ("[]", "no tokens"),
])
def test_wrong_ids(text, error):
    done = lanewise("run", MODEL, "--ids", "-", data=text.encode())
    assert done.returncode == 1
    assert error in done.stderr.decode()


@needs_model
def test_ids_in_and_ids_out_need_no_tokenizer(tmp_path):
    links(tmp_path, "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
    ids = json.dumps(ids_of("<|startoftext|><|im_start|>user\nCount to five.<|im_end|>\n")).encode()
    args = ["--ids", "-", "--threads", "1", "--max-tokens", "20"]
    whole = reply("--ids", "-", "--max-tokens", "20", data=ids)
    done = lanewise("run", str(tmp_path), *args, "--json", data=ids)
    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    assert found["text"] is None and found["ids"]
    assert {**found, "text": 0, "timings": 0} == {**whole, "text": 0, "timings": 0}
    for more in (args, ["-p", "x"]):  # text needs it
        done = lanewise("run", str(tmp_path), *more, data=ids)
        assert done.returncode == 1 and done.stdout == b""
        assert b"tokenizer.json: No such file" in done.stderr
    (tmp_path / "tokenizer.json").write_text("{")  # one that is there must be right
    done = lanewise("run", str(tmp_path), *args, "--json", data=ids)
    assert done.returncode == 1 and b"tokenizer.json" in done.stderr


@needs_model
@pytest.mark.parametrize("args, data, text", [
    ([], b"", "is empty"), ([], b" \r\n\t\n", "is white space alone"), (["--raw"], b"", "is empty"),
])
def test_standard_input_without_a_prompt(args, data, text):
    done = lanewise("run", MODEL, *args, data=data)
    assert done.returncode == 1 and done.stdout == b""
    assert f"lanewise: standard input {text}; give -p TEXT" in done.stderr.decode()


@needs_model
def test_white_space_is_a_raw_prompt_but_no_turn():
    assert reply("--raw", "--max-tokens", "1", data=b" \n")["prompt_tokens"] == len(ids_of(" \n"))
    done = lanewise("run", MODEL, "--chat", "--max-tokens", "1", data=b" \n\t\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@needs_model
@pytest.mark.parametrize("without", [["model.safetensors"], []])
def test_half_a_download_is_named(tmp_path, without):
    links(tmp_path, *without)
    (tmp_path / "model.safetensors.incomplete").write_bytes(b"x")
    for verb in ("run", "info"):
        done = lanewise(verb, str(tmp_path), data=b"x")
        assert done.returncode == 1
        assert "half a download: model.safetensors.incomplete is not finished" in done.stderr.decode()


@needs_model
def test_missing_ids_file():
    done = lanewise("run", MODEL, "--ids", "/no/such/file")
    assert done.returncode == 1
    assert done.stderr == b"lanewise: /no/such/file: No such file or directory\n"


@needs_model
def test_bits_do_not_depend_on_threads_and_chunks():
    sampled = ["-p", "Tell me about the sea.", "--temperature", "1", "--seed", "11", "--max-tokens", "40",
               "--ignore-eos"]
    first = reply(*sampled, "--threads", "1")
    assert len(first["ids"]) == 40
    for more in (["--threads", "2"], ["--chunk", "1"], ["--chunk", "3"], ["--chunk", "64", "--threads", "2"],
                 ["--context", "600"]):
        assert reply(*sampled, *more)["token_sha"] == first["token_sha"], more


@needs_model
def test_sampling_options():
    args = ["-p", "Tell me about the sea.", "--max-tokens", "40", "--ignore-eos"]
    greedy = reply(*args)["token_sha"]
    hot = [*args, "--temperature", "5", "--seed", "3"]
    drawn = reply(*hot)["token_sha"]
    assert drawn != greedy
    assert reply(*hot)["token_sha"] == drawn
    assert reply(*args, "--temperature", "5", "--seed", "4")["token_sha"] != drawn
    assert reply(*args, "--temperature", "0", "--seed", "3")["token_sha"] == greedy
    assert reply(*hot, "--top-k", "1")["token_sha"] == greedy
    assert reply(*hot, "--top-p", "0.000001")["token_sha"] == greedy
    assert reply(*hot, "--min-p", "1")["token_sha"] == greedy


@needs_model
@pytest.mark.parametrize("config, same_as", [
    ({"do_sample": False, "temperature": 5}, ["--temperature", "0"]),
    ({"do_sample": True, "temperature": 5}, ["--temperature", "5"]),
    ({"temperature": 5}, ["--temperature", "5"]),
    ({"do_sample": True}, ["--temperature", "1"]),
    ({"do_sample": True, "temperature": 5, "top_k": 1}, ["--temperature", "0"]),
    ({}, ["--temperature", "0"]),
])
def test_defaults_come_from_the_generation_config(tmp_path, config, same_as):
    links(tmp_path, "generation_config.json", "ref64.safetensors")
    (tmp_path / "generation_config.json").write_text(json.dumps(config))
    args = ["-p", "Tell me about the sea.", "--max-tokens", "30", "--ignore-eos", "--json"]
    done = lanewise("run", str(tmp_path), *args)
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["ids"] == reply(*args, *same_as)["ids"]


@needs_model
@pytest.mark.parametrize("name, change", [
    ("config.json", {"max_position_embeddings": "x"}),
    ("config.json", {"max_position_embeddings": -1}),
    ("config.json", {"norm_eps": -1}),
    ("config.json", {"norm_eps": 1e300}),
    ("generation_config.json", {"temperature": float("inf")}),
    ("generation_config.json", {"min_p": 5}),
])
def test_numbers_that_mean_nothing_are_refused_by_name(tmp_path, name, change):
    links(tmp_path, name, "ref64.safetensors")
    with open(os.path.join(MODEL, name), encoding="utf-8") as file:
        config = json.load(file)
    (tmp_path / name).write_text(json.dumps({**config, "do_sample": True, **change}))
    done = lanewise("run", str(tmp_path), "-p", PROMPT, "--max-tokens", "2")
    assert done.returncode == 1
    assert f"/{name}: ".encode() in done.stderr and next(iter(change)).encode() in done.stderr


@needs_model
def test_limits_of_the_reply():
    short = reply("-p", PROMPT, "--max-tokens", "3")
    assert (len(short["ids"]), short["finish"]) == (3, "length")
    assert reply("-p", PROMPT)["ids"][:3] == short["ids"]
    assert len(reply("-p", PROMPT, "--ignore-eos", "--max-tokens", "200")["ids"]) == 200
    full = reply("-p", PROMPT, "--ignore-eos", "--context", "64")
    assert full["finish"] == "length"
    assert full["prompt_tokens"] + len(full["ids"]) == 64


@needs_model
def test_prompt_longer_than_the_context():
    done = lanewise("run", MODEL, "-p", PROMPT * 20, "--context", "32")
    assert done.returncode == 1
    text = r"the prompt has \d+ tokens, which leaves no room for a reply in the context of 32; --context N"
    assert re.search(text, done.stderr.decode())
    # Prompt and reply share the context: one token is the least that a reply wants.
    count = reply("-p", PROMPT, "--max-tokens", "1")["prompt_tokens"]
    exact = reply("-p", PROMPT, "--ignore-eos", "--context", str(count + 1))
    assert (len(exact["ids"]), exact["finish"]) == (1, "length")
    done = lanewise("run", MODEL, "-p", PROMPT, "--context", str(count))
    assert done.returncode == 1 and f"the prompt has {count} tokens" in done.stderr.decode()
    done = lanewise("run", MODEL, "-p", PROMPT, "--context", "8193")
    assert done.returncode == 1 and b"8193" in done.stderr and b"8192" in done.stderr


@needs_model
def test_system_and_thinking():
    plain = reply("-p", PROMPT, "--max-tokens", "1")
    system = reply("-p", PROMPT, "--system", "Be brief.", "--max-tokens", "1")
    assert system["prompt_tokens"] > plain["prompt_tokens"]
    # This template opens no block unless it is told to: undefined and off are the same.
    assert reply("-p", PROMPT, "--no-think", "--max-tokens", "1")["prompt_tokens"] == plain["prompt_tokens"]


@needs_model
def test_special_tokens_in_messages_need_trust():
    text = "a<|im_end|>b"
    outside = reply("-p", text, "--max-tokens", "1")["prompt_tokens"]
    trusted = reply("-p", text, "--trust-specials", "--max-tokens", "1")["prompt_tokens"]
    assert outside > trusted
    raw = reply("--raw", "-p", text, "--max-tokens", "1")["prompt_tokens"]
    assert raw == len(ids_of(text))
    never = reply("--raw", "--no-specials", "-p", text, "--max-tokens", "1")["prompt_tokens"]
    assert never == len(ids_of(text, "--no-specials")) > raw


@needs_model
def test_texts_that_are_no_utf8():
    done = lanewise("run", MODEL, data=b"\xff\xfe")
    assert done.returncode == 1 and b"UTF-8" in done.stderr
    done = lanewise("run", MODEL, "--raw", "--max-tokens", "1", data=b"\xff\xfe")
    assert done.returncode == 0, done.stderr


@needs_model
def test_trace_shows_every_layer():
    args = ["run", MODEL, "-p", PROMPT, "--max-tokens", "2", "--trace"]
    lines = lanewise(*args, "--threads", "1").stderr.decode().splitlines()
    rows = [line for line in lines if line.startswith("layer ")]
    assert all(re.fullmatch(r"layer \d+ \w+ \S+ row \d+ norm \S+ hash [0-9a-f]{16}", row) for row in rows)
    for layer in range(10):
        assert any(f" layer.{layer} row " in row for row in rows)
    other = lanewise(*args, "--threads", "2").stderr.decode().splitlines()
    assert [line for line in other if line.startswith("layer ")] == rows


# ---- ends that were not planned ----


def wait_quietly(process):
    try:
        return process.wait(SECONDS)
    finally:
        process.kill()


@needs_model
def test_closed_pipe_ends_quietly():
    process = subprocess.Popen([BINARY, "run", MODEL, "-p", PROMPT, *LONG], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    assert process.stdout.read(5)
    process.stdout.close()
    assert wait_quietly(process) == 0
    assert process.stderr.read() == b""


@needs_model
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_full_disk_is_an_error():
    with open("/dev/full", "wb") as full:
        done = subprocess.run([BINARY, "tokenize", MODEL, "x"], stdin=subprocess.DEVNULL, stdout=full,
                              stderr=subprocess.PIPE, timeout=SECONDS, check=False)
    assert done.returncode == 1
    assert b"cannot write to standard output" in done.stderr


@needs_model
def test_interrupt_prints_what_is_there():
    process = subprocess.Popen([BINARY, "run", MODEL, "-p", PROMPT, *LONG], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    begin = process.stdout.read(5)
    process.send_signal(signal.SIGINT)
    rest, error = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert begin and rest.endswith(b"\n")
    assert b"; interrupted; " in error


@needs_model
def test_interrupt_completes_the_json_object():
    process = subprocess.Popen([BINARY, "run", MODEL, "-p", PROMPT, "--json", "--trace", *LONG],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=environment())
    read_until(process.stderr.fileno(), b" logits ")  # the reply has begun
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    found = json.loads(out)
    assert found["finish"] == "interrupted"
    assert len(found["ids"]) < 8000


# ---- terminals ----

THINKING = ["--raw", "-p", "<|im_start|>assistant\n<think>\n", "--max-tokens", "4"]


@needs_model
@pytest.mark.parametrize("env, dims", [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True)])
def test_reasoning_is_dimmed_on_a_terminal(env, dims):
    process, terminal = on_terminal(["run", MODEL, *THINKING], environment(**env))
    text = read_until(terminal, None)
    assert wait_quietly(process) == 0
    os.close(terminal)
    assert (b"\x1b[2m" in text) == dims
    assert (b"\x1b[0m" in text) == dims


@needs_model
def test_progress_is_for_terminals():
    process, terminal = on_terminal(["run", MODEL, "-p", PROMPT, "--max-tokens", "1"])
    text = read_until(terminal, None)
    assert wait_quietly(process) == 0
    os.close(terminal)
    assert b"\rloading " in text and b"100%" in text
    done = lanewise("run", MODEL, *THINKING)
    assert b"\r" not in done.stderr and b"\x1b" not in done.stderr + done.stdout


@needs_model
def test_chat_on_a_terminal():
    process, terminal = on_terminal(["run", MODEL, "--chat", *LONG], stdin="terminal")
    read_until(terminal, b"> ")
    os.write(terminal, b"Count to five.\n")
    read_until(terminal, b"\r\n")
    assert read_until(terminal, b"e")
    process.send_signal(signal.SIGINT)
    assert b"interrupted" in read_until(terminal, b"> ")
    process.send_signal(signal.SIGINT)
    assert wait_quietly(process) == 130
    os.close(terminal)


@needs_model
def test_chat_keeps_its_history():
    few = ["--max-tokens", "40", "--threads", "1"]
    done = lanewise("run", MODEL, "--chat", *few, data=b"Count to five.\n\nThank you.\n")
    assert done.returncode == 0
    assert b"> " not in done.stdout
    counts = [int(n) for n in re.findall(rb"prompt (\d+) tokens", done.stderr)]
    assert len(counts) == 2
    alone = lanewise("run", MODEL, "-p", "Count to five.", *few).stdout
    assert done.stdout.startswith(alone)
    first = lanewise("run", MODEL, "--chat", "-p", "Count to five.", *few, data=b"Thank you.\n")
    assert first.stdout == done.stdout


# ---- info, tokenize, check, bench ----


@needs_model
def test_info():
    done = lanewise("info", MODEL)
    assert done.returncode == 0
    for text in ("lfm3", "Lfm3ForCausalLM", "8192", "4096", "int4 group 64", "4089 <|im_end|>",
                 "yes, by family lfm3", "bytes of keys and values; with --kv-int8 "):
        assert text in done.stdout.decode()
    found = json.loads(lanewise("info", MODEL, "--json").stdout)
    assert found["served"] is True and found["kv_bytes"]["bf16"] > found["kv_bytes"]["int8"] > 0


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, (dtype, dims, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": dims, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def test_info_of_an_unknown_model(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "sphinx", "architectures": ["SphinxForRiddles"]}')
    riddle = ("F32", [2], struct.pack("<2f", 1, 2))
    write_safetensors(tmp_path / "model.safetensors", {"riddle.weight": riddle})
    done = lanewise("info", str(tmp_path))
    assert done.returncode == 1
    for text in ("sphinx", "SphinxForRiddles", "F32", "not served", "lfm3"):
        assert text in done.stdout.decode()
    assert done.stderr == b""


@needs_model
def test_info_names_missing_and_unused_tensors(tmp_path):
    shutil.copy(os.path.join(MODEL, "config.json"), tmp_path)
    write_safetensors(tmp_path / "model.safetensors", {"model.stray.weight": ("BF16", [1], b"\0\0")})
    done = lanewise("info", str(tmp_path))
    assert done.returncode == 1
    assert "embed_tokens" in done.stdout.decode()


@needs_model
def test_tokenize():
    ids = ids_of("Hello, world")
    done = lanewise("tokenize", MODEL, "Hello, world")
    assert done.stdout.decode() == " ".join(str(i) for i in ids) + "\n"
    assert lanewise("tokenize", MODEL, data=b"Hello, world").stdout == done.stdout
    table = lanewise("tokenize", MODEL, "--pieces", "Hello, world").stdout.decode().splitlines()
    assert [int(line.split()[0]) for line in table] == ids
    assert "".join(json.loads(line.split(maxsplit=1)[1]) for line in table) == "Hello, world"
    assert len(ids_of("<|im_end|>")) == 1
    assert len(ids_of("<|im_end|>", "--no-specials")) > 1
    assert lanewise("tokenize", MODEL, data=b"").returncode == 0


@needs_model
def test_check_passes_on_the_shipped_model():
    done = lanewise("check", MODEL)
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    assert done.stdout.decode().rstrip().endswith("passed")
    found = json.loads(lanewise("check", MODEL, "--json", "--threads", "1", "--chunk", "50").stdout)
    assert found["passed"] and found["failures"] == []
    assert found["greedy"]["same"] + found["greedy"]["near_ties"] == 3 * 64


def damage(source, target, name, change):
    """Copies a safetensors file with the floats of one tensor changed."""
    data = bytearray(open(source, "rb").read())
    header_bytes = struct.unpack("<Q", data[:8])[0]
    begin, end = json.loads(data[8:8 + header_bytes])[name]["data_offsets"]
    first = 8 + header_bytes + begin
    count = (end - begin) // 4
    values = list(struct.unpack_from(f"<{count}f", data, first))
    change(values)
    struct.pack_into(f"<{count}f", data, first, *values)
    target.write_bytes(data)


def scale_layer(values):
    plane = len(values) // 11
    values[4 * plane:5 * plane] = [value * 1.02 for value in values[4 * plane:5 * plane]]


def shift_embedding(values):
    values[3] += 1


def turn_logits(values):
    values.reverse()


@needs_model
@pytest.mark.parametrize("name, change, broken", [
    ("p0.hidden", scale_layer, "broken: layer 3: "),
    ("p1.hidden", shift_embedding, "broken: embedding: "),
    ("p2.logits", turn_logits, "broken: logits: "),
])
def test_check_fails_on_planted_faults(tmp_path, name, change, broken):
    links(tmp_path, "ref64.safetensors")
    damage(os.path.join(MODEL, "ref64.safetensors"), tmp_path / "ref64.safetensors", name, change)
    done = lanewise("check", str(tmp_path), "--threads", "1")
    assert done.returncode == 1
    assert broken in done.stdout.decode()
    assert done.stdout.decode().rstrip().endswith("failed")


@needs_model
def test_bench():
    args = ["bench", MODEL, "--prompt", "16", "--decode", "4", "--threads", "1"]
    done = lanewise(*args)
    assert done.returncode == 0, done.stderr.decode()
    assert "tok/s" in done.stdout.decode() and "GB/s" in done.stdout.decode()
    found = json.loads(lanewise(*args, "--reps", "4", "--json").stdout)
    assert found["reps"] == 4
    for name in ("prompt_tok_s", "decode_tok_s", "read_bytes_s"):
        assert 0 < found[name]["min"] <= found[name]["median"] <= found[name]["max"]
    assert 0 < found["bytes_per_token"] <= found["weight_bytes"] * 1.01
    assert found["first_token_ns"]["min"] > 0 and found["load_ns"] > 0
    assert 0 < found["resident_bytes"] <= found["resident_max_bytes"]


@pytest.mark.parametrize("what", [[MODEL], ["--synth", "lfm3-350m-4bit"]], ids=["model", "synth"])
@needs_model
def test_bench_reads_fewer_bytes_of_int8_states(what):
    args = ["bench", *what, "--prompt", "4", "--decode", "1", "--json"]
    whole, kept = (json.loads(lanewise(*args, *more).stdout)["state_bytes_per_token"] for more in ([], ["--kv-int8"]))
    assert 0.5 * whole < kept < whole


@needs_model
def test_bench_of_more():
    lists = ["--more-prompt", "24", "--streams", "1", "--streams", "3", "--depth", "512", "--depth", "64"]
    done = lanewise("bench", MODEL, "--prompt", "16", "--decode", "4", "--threads", "1", "--json", *lists)
    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    assert [row["tokens"] for row in found["more_prompts"]] == [24]
    assert [row["streams"] for row in found["streams"]] == [1, 3]
    assert found["stream_rounds"] > 0 and found["stream_rounds_ahead"] == 0  # the cpu runs a round at once
    assert [row["positions"] for row in found["depths"]] == [512, 64]
    assert [row["rows"] for row in found["windows"]] == [1, 2, 4, 8] and found["windows"][0]["steps"] == 1
    rates = [row["tok_s"] for key in ("more_prompts", "streams", "depths") for row in found[key]]
    rates += [row["prompt_tok_s"] for row in found["depths"]] + [row["ns"] for row in found["windows"]]
    for rate in [*rates, found["decode_tok_s"]]:
        assert len(rate["samples"]) == 3 and rate["samples"] == sorted(rate["samples"]) and rate["min"] > 0
        assert rate["median"] == rate["samples"][1] and rate["max"] == rate["samples"][2]


def test_bench_tells_the_config_of_a_shape():
    config = json.loads(lanewise("bench", "--synth", "nemotron-30b-a3b-cut-4bit", "--config").stdout)
    assert config["model_type"] == "nemotron_h" and config["hidden_size"] == 2688
    assert config["quantization"]["bits"] == 4 and len(config["hybrid_override_pattern"]) == 7


def test_bench_of_random_weights_keeps_memory_small():
    before = set(glob.glob("/tmp/lanewise-*"))
    done = lanewise("bench", "--synth", "lfm3-350m-4bit", "--prompt", "4", "--decode", "1", "--json")
    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    assert found["weight_bytes"] > 100 << 20
    if "san" not in OUT:  # sanitizers keep freed memory
        assert found["weight_bytes"] * 0.9 < found["anon_bytes"] < found["weight_bytes"] * 1.3 + (64 << 20)
    assert set(glob.glob("/tmp/lanewise-*")) <= before
