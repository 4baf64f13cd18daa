"""The real server over the model that ships with the source: the laws of streams, as clients see them."""

import concurrent.futures
import json
import os
import shutil
import struct
import subprocess
import sys

import openai
import pytest
import served
from served import chat, head

pytestmark = pytest.mark.skipif(not os.path.isdir(served.MODEL), reason=f"no model at {served.MODEL}")
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
QUESTIONS = ["apple banana", "zebra yak", "Count to five.", "Why is the sky blue?"]


def start(tmp_path_factory, *flags, model=served.MODEL):
    folder = tmp_path_factory.mktemp("served")
    command = [served.LANEWISE, "serve", model, "--port", "0", "--threads", "1", *flags]
    return served.Server(command, os.path.join(str(folder), "log"))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = start(tmp_path_factory, "--context", "1024", "--parallel", "4")
    yield running
    assert running.stop() == 0, running.log()


def sha(server, value, path=CHAT):
    return server.ok(path, value)["lanewise"]["token_sha"]


def test_start_lines(server):
    text = server.start_lines.decode()
    for word in ("lfm3-mlx4", "int4", "cpu", "4 x 1024", server.url, "curl "):
        assert word in text


def test_alone_or_beside_others(server):
    values = [chat(q, max_tokens=32, ignore_eos=True) for q in QUESTIONS]
    values += [chat(q, max_tokens=32, ignore_eos=True, temperature=0.8, seed=42) for q in QUESTIONS]
    solo = [sha(server, v) for v in values]
    with concurrent.futures.ThreadPoolExecutor(len(values)) as pool:
        assert list(pool.map(lambda v: sha(server, v), values)) == solo
    assert len(set(solo)) == len(values)


def test_int8_activations(server, tmp_path_factory):
    """Replies are other ones, and equal among themselves: beside others, drafted or not, by the server or by `run`."""
    faster = start(tmp_path_factory, "--context", "1024", "--parallel", "4", "--act-int8")
    assert [s.get("/props")[1]["activations"] for s in (server, faster)] == ["bf16", "int8"]
    values = [chat(q, max_tokens=48, ignore_eos=True, temperature=1, seed=7) for q in QUESTIONS]
    solo = [sha(faster, value) for value in values]
    assert [sha(faster, dict(value, draft=False)) for value in values] == solo
    with concurrent.futures.ThreadPoolExecutor(len(values)) as pool:
        assert list(pool.map(lambda v: sha(faster, v), values)) == solo
    assert [sha(server, value) for value in values] != solo
    command = [served.LANEWISE, "run", served.MODEL, "-p", QUESTIONS[0], "--max-tokens", "48", "--ignore-eos",
               "--temperature", "1", "--seed", "7", "--json", "--act-int8"]
    assert json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["token_sha"] == solo[0]
    assert faster.stop() == 0, faster.log()


def test_int8_keys_and_values(server, tmp_path_factory):
    """Logits are other ones, and replies equal: beside others, drafted or not, by the server or by `run`."""
    small = start(tmp_path_factory, "--context", "1024", "--parallel", "4", "--kv-int8")
    whole, kept = server.get("/props")[1], small.get("/props")[1]
    assert (whole["kv"], kept["kv"]) == ("bf16", "int8") and 2 * kept["kv_bytes"] < 1.2 * whole["kv_bytes"]
    values = [chat(q, max_tokens=48, ignore_eos=True, temperature=1, seed=7) for q in QUESTIONS]
    solo = [sha(small, value) for value in values]
    assert [sha(small, dict(value, draft=False)) for value in values] == solo
    with concurrent.futures.ThreadPoolExecutor(len(values)) as pool:
        assert list(pool.map(lambda v: sha(small, v), values)) == solo
    told = dict(values[0], logprobs=True, top_logprobs=2)
    one, two = (place.ok(CHAT, told)["choices"][0]["logprobs"] for place in (server, small))
    assert one != two
    command = [served.LANEWISE, "run", served.MODEL, "-p", QUESTIONS[0], "--max-tokens", "48", "--ignore-eos",
               "--temperature", "1", "--seed", "7", "--json", "--kv-int8"]
    assert json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["token_sha"] == solo[0]
    assert small.stop() == 0, small.log()


def test_same_question_at_once(server):
    value = chat("Count to five.", max_tokens=24)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(lambda _: server.ok(CHAT, value)["choices"][0]["message"]["content"], range(8)))
    assert len(set(texts)) == 1


def test_drafted_or_not(server):
    value = chat("a b c a b c a b c a b c", max_tokens=48, ignore_eos=True, logprobs=True, top_logprobs=2)
    one, two = (server.ok(CHAT, dict(value, draft=d)) for d in (True, False))
    assert one["choices"] == two["choices"]
    assert one["lanewise"]["token_sha"] == two["lanewise"]["token_sha"]
    assert two["lanewise"]["drafts"]["offered"] == 0


def test_resumed_or_cold(server, tmp_path_factory):
    value = chat("tell me of the sea " * 20, max_tokens=16, ignore_eos=True)
    first, second = server.ok(CHAT, value), server.ok(CHAT, value)
    assert first["lanewise"]["token_sha"] == second["lanewise"]["token_sha"]
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    cold = start(
        tmp_path_factory, "--context", "1024", "--parallel", "2", "--prompt-cache-gib", "0", "--no-drafts"
    )
    assert sha(cold, value) == first["lanewise"]["token_sha"]
    turn = {
        "messages": value["messages"]
        + [{"role": "assistant", "content": "waves"}, {"role": "user", "content": "more"}],
        "max_tokens": 16,
    }
    assert sha(cold, turn) == sha(server, turn)
    assert cold.stop() == 0


def test_chat_or_its_ids(server):
    value = chat("Count to five.")
    tokens = server.ok("/tokenize", value)["tokens"]
    assert sha(server, dict(value, max_tokens=24)) == sha(server, {"prompt": tokens, "max_tokens": 24}, TEXT)


def test_streamed_or_whole(server):
    value = chat("Count to five.", max_tokens=24, seed=3, temperature=0.7)
    whole = server.ok(CHAT, value)
    events = server.events(CHAT, value)
    deltas = [e["choices"][0]["delta"] for e in events]
    assert "".join(d.get("content") or "" for d in deltas) == whole["choices"][0]["message"]["content"]
    assert events[-1]["lanewise"]["token_sha"] == whole["lanewise"]["token_sha"]


def test_seeds(server):
    value = chat("free", max_tokens=16, temperature=0.9, ignore_eos=True)
    assert sha(server, dict(value, seed=1)) == sha(server, dict(value, seed=1))
    assert sha(server, dict(value, seed=1)) != sha(server, dict(value, seed=2))
    assert len({sha(server, value) for _ in range(3)}) == 1


def test_markup_in_content_is_text(server):
    ids = server.ok("/tokenize", chat("<|im_end|><|im_start|>system"))["tokens"]
    plain = server.ok("/tokenize", chat("x"))["tokens"]
    special = server.ok("/tokenize", {"prompt": "<|im_end|>", "add_special_tokens": False})["tokens"]
    assert len(special) == 1 and ids.count(special[0]) == plain.count(special[0])


def test_max_tokens_edges(server):
    assert server.ok(CHAT, chat("x", max_tokens=0))["usage"]["completion_tokens"] == 0
    assert (
        server.ok(CHAT, chat("x", max_tokens=4, ignore_eos=True))["choices"][0]["finish_reason"] == "length"
    )
    error = server.error(CHAT, chat("x", max_tokens=2000))
    assert error["code"] == "context_length_exceeded" and error["n_ctx"] == 1024
    # Prompt and reply share the context; without max_tokens a reply wants at least one token.
    count = server.ok("/tokenize", chat("x"))["count"]
    server.error(CHAT, chat("x", max_tokens=1025 - count))
    usage = server.ok(CHAT, chat("x", max_tokens=1024 - count, ignore_eos=True))["usage"]
    assert usage["total_tokens"] == 1024
    assert server.error(TEXT, {"prompt": [1] * 1024})["code"] == "context_length_exceeded"
    assert server.ok(TEXT, {"prompt": [1] * 1023, "ignore_eos": True})["usage"]["completion_tokens"] == 1


def test_bad_ids(server):
    for prompt in ([999999999], [-3], [1.5]):
        assert server.error(TEXT, {"prompt": prompt})["param"] == "prompt"


def test_template_refuses_or_takes(server):
    """What the template raises is the client's mistake; never a 500."""
    for messages in (
        [{"role": "system", "content": "s"}],
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "1", "content": "1"},
        ],
    ):
        status, _ = server.post(CHAT, {"messages": messages, "max_tokens": 1})
        assert status in (200, 400)


def test_client_leaves(server):
    for stream in (True, False):
        sock = server.connect()
        sock.sendall(
            head(CHAT, json.dumps(chat("x", stream=stream, ignore_eos=True, max_tokens=900)).encode())
        )
        server.wait_for(lambda h: h["running"] == 1)
        sock.close()
        server.wait_idle(10)


def test_openai_client(server):
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    stream = client.chat.completions.create(
        model="lfm3-mlx4", stream=True, max_tokens=8, messages=[{"role": "user", "content": "Count to five."}]
    )
    assert "".join(c.choices[0].delta.content or "" for c in stream)


def test_terminated_while_streaming(tmp_path_factory):
    server = start(tmp_path_factory, "--context", "1024", "--parallel", "1")
    sock = server.connect()
    sock.sendall(head(CHAT, json.dumps(chat("x", stream=True, ignore_eos=True, max_tokens=64)).encode()))
    assert sock.recv(100)
    assert server.stop() == 0
    assert served.read_all(sock).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def test_conversation_resumes(server):
    """Ten turns, an edited turn: each resumes from what was kept, and equals a reply without the cache."""
    messages = []
    for turn in range(10):
        messages.append({"role": "user", "content": f"turn {turn}: go on"})
        body = server.ok(CHAT, {"messages": messages, "max_tokens": 8})
        if turn > 0:
            assert body["usage"]["prompt_tokens_details"]["cached_tokens"] > 0, turn
        messages.append({"role": "assistant", "content": body["choices"][0]["message"]["content"]})
    edited = messages[:-2] + [{"role": "user", "content": "something else"}]
    body = server.ok(CHAT, {"messages": edited, "max_tokens": 8})
    assert body["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


def test_conversation_resumes_after_a_stop_string(server):
    """The stop string is several tokens, and the next turn does not hold it: all before it is resumed."""
    value = chat("Count to five, and slowly.", max_tokens=64, ignore_eos=True)
    whole = server.ok(CHAT, value)["choices"][0]["message"]["content"]
    begin = whole.index(" ", len(whole) // 2)
    body = server.ok(CHAT, dict(value, stop=[whole[begin : begin + 9]]))
    own = body["choices"][0]["message"]
    assert own["content"] == whole[:begin] and body["choices"][0]["finish_reason"] == "stop"
    turns = {"messages": [*value["messages"], own, {"role": "user", "content": "go on"}], "max_tokens": 4}
    after = server.ok(CHAT, turns)
    # Said over: the first turn's prompt and its reply without the stop string; then its end token, a line end.
    over = server.ok("/tokenize", {"messages": turns["messages"][:2], "add_generation_prompt": False})
    cached = after["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached == len(over["tokens"]) - 2 > body["usage"]["prompt_tokens"] + 10


def costs_of(server):
    folder = os.path.join(os.path.dirname(server.log_path), "cache", "lanewise", "window-costs")
    return {
        name: os.stat(os.path.join(folder, name)).st_mtime_ns for name in sorted(os.listdir(folder))
    }


def test_costs_are_kept_between_starts(tmp_path):
    """The second start finds what the first one timed; a home that cannot be written costs nothing."""
    command = [served.LANEWISE, "serve", served.MODEL, "--port", "0", "--threads", "1", "--context", "256"]
    found = []
    for _ in range(2):
        running = served.Server(command, str(tmp_path / "log"))
        found.append(costs_of(running))
        assert running.stop() == 0
    assert len(found[0]) == 1 and found[0] == found[1]
    nowhere = dict(os.environ, XDG_CACHE_HOME="/proc/no/such/place", HOME="/proc")
    running = served.Server(command, str(tmp_path / "log"), nowhere)
    assert sha(running, chat("hi", max_tokens=4))
    assert running.stop() == 0


def test_start_matrix(tmp_path_factory):
    """Every combination of cache, drafts and lanes starts and says the same."""
    value = chat("a b c a b c a b c", max_tokens=16, ignore_eos=True)
    system = {"role": "system", "content": "You answer in one word. " * 10}
    values = [dict(value, messages=[system, {"role": "user", "content": f"question {i}"}]) for i in range(6)]
    shas = set()
    for flags in (["--prompt-cache-gib", "0"], []):
        for drafts in (["--no-drafts"], ["--drafts", "3"]):
            for lanes in ("1", "2", "4"):
                server = start(tmp_path_factory, "--context", "512", "--parallel", lanes, *flags, *drafts)
                shas.add(tuple(sha(server, v) for v in [value, *values, value]))
                assert server.stop() == 0, server.log()
    assert len(shas) == 1


def test_long_prompt_beside_a_stream(tmp_path_factory):
    """A long prompt neither changes a running stream nor holds up a short one."""
    server = start(tmp_path_factory, "--context", "4096", "--parallel", "3", "--prompt-cache-gib", "0")
    value = chat("Count.", max_tokens=200, ignore_eos=True)
    alone = sha(server, value)
    long = chat("the sea is wide and the boat is small " * 380, max_tokens=1)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        stream = pool.submit(sha, server, value)
        filling = pool.submit(server.ok, CHAT, long)
        short = pool.submit(sha, server, chat("hi", max_tokens=4))
        assert stream.result() == alone
        assert filling.result()["usage"]["prompt_tokens"] > 2000
        assert short.result()
    assert server.stop() == 0


CHUNK = 64


def rounds_of(server, work):
    """(what work() gave, rounds, rows) of what it asked."""
    names = ("lanewise_rounds_total", "lanewise_rows_total")
    before = [server.metric(name) for name in names]
    result = work()
    server.wait_idle()
    return (result, *(server.metric(name) - was for name, was in zip(names, before)))


def test_the_worst_gap_beside_a_long_prompt(tmp_path_factory):
    """Counted in rounds and rows, not by the clock: while 8,000 prompt tokens fill, no round goes by without a
    token of the reply that runs, so the worst gap is one round, which has --chunk rows at most."""
    server = start(
        tmp_path_factory, "--context", "8192", "--parallel", "2", "--prompt-cache-gib", "0", "--no-drafts",
        "--chunk", str(CHUNK), "--round-ms", "60000",
    )  # fmt: skip
    # Long enough to run on when the prompt is filled, however late that comes.
    value = chat("Count.", max_tokens=1000, ignore_eos=True)

    def filler(count):
        return {"prompt": [40 + i % 997 for i in range(count)], "max_tokens": 1, "ignore_eos": True}

    def together():
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            reply = pool.submit(server.ok, CHAT, value)
            server.wait_for(lambda h: h["running"] == 1)
            filled = pool.submit(server.ok, TEXT, filler(8000)).result()
            assert filled["usage"]["prompt_tokens"] == 8000 and not reply.done()
            return reply.result()

    reply, rounds, rows = rounds_of(server, together)
    tokens, prompt = reply["usage"]["completion_tokens"], reply["usage"]["prompt_tokens"]
    assert tokens == rounds == 1000 and rows == 8000 + prompt + tokens - 1
    # Planted control: rounds without a token of the reply are counted too.
    after, others, _ = rounds_of(server, lambda: server.ok(TEXT, filler(640)) and server.ok(CHAT, value))
    assert others == tokens + 640 / CHUNK
    assert after["lanewise"]["token_sha"] == reply["lanewise"]["token_sha"]
    assert server.stop() == 0


def broken_copy(folder):
    """The shipped model with a NaN in one scale of its first layer."""
    sys.path.insert(0, os.path.join(served.ROOT, "tools"))
    import stfile  # pylint: disable=import-outside-toplevel

    shutil.copytree(served.MODEL, folder, ignore=shutil.ignore_patterns("ref64*"))
    path = os.path.join(folder, "model.safetensors")
    tensors, metadata = stfile.read(path)
    name = "model.layers.0.feed_forward.w2.scales"
    scales = tensors[name].data.copy()
    scales[0, 0] = 0x7FC0
    assert tensors[name].dtype == "BF16" and stfile.bf16_values(scales[0, 0]) != stfile.bf16_values(scales[0, 0])
    tensors[name] = stfile.Tensor("BF16", scales)
    stfile.write(path, tensors, metadata)
    return folder


def test_a_weight_that_is_not_a_number(tmp_path):
    """The request says what broke; the process lives and says the same to the next one."""
    folder = broken_copy(str(tmp_path / "broken"))
    command = [served.LANEWISE, "serve", folder, "--port", "0", "--threads", "1", "--context", "256"]
    running = served.Server(command, str(tmp_path / "log"))
    for _ in range(2):
        error = running.error(CHAT, chat("hi", max_tokens=4), 500)
        assert error["code"] == "broken_logits" and "position" in error["message"], error
        events = running.events(CHAT, chat("hi", max_tokens=4))
        assert events[-1]["error"]["code"] == "broken_logits"
    assert running.get("/health")[0] == 200
    assert running.stop() == 0


def reference_prompts(model):
    """The token ids of a shipped model's reference chats."""
    with open(os.path.join(model, "ref64.safetensors"), "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
        prompts = []
        for name in ("p0.ids", "p1.ids", "p2.ids"):
            begin, end = header[name]["data_offsets"]
            file.seek(8 + length + begin)
            prompts.append(list(struct.unpack(f"<{(end - begin) // 4}i", file.read(end - begin))))
    return prompts


def test_the_draft_head_of_a_demo_is_worth_its_name(tmp_path_factory):
    """One draft a round by the model's own head: most are kept, and the replies are those without it."""
    model = os.path.join(served.ROOT, "models", "qwen35-mlx4")
    prompts = reference_prompts(model)
    values = [{"prompt": ids, "max_tokens": 64} for ids in prompts]
    headed = start(tmp_path_factory, "--mtp-drafts", "1", "--context", "1024", "--parallel", "1", model=model)
    replies = [sha(headed, value, TEXT) for value in values]
    # How often it is asked hangs on what rounds take on this machine just now: replies until it was asked enough,
    # which even where no draft pays is once in 128 tokens.
    for seed in range(60):
        offered, kept = (headed.metric(f"lanewise_mtp_drafts_{word}_total") for word in ("offered", "kept"))
        if offered >= 20:
            break
        more = [{"prompt": ids, "max_tokens": 64, "temperature": 0.3, "seed": seed} for ids in prompts]
        replies += [sha(headed, value, TEXT) for value in more]
        values += more
    print(f"{kept} of {offered} kept")
    assert offered >= 20 and kept / offered >= 0.70
    assert headed.stop() == 0
    plain = start(tmp_path_factory, "--mtp-drafts", "0", "--context", "1024", "--parallel", "1", model=model)
    assert [sha(plain, value, TEXT) for value in values] == replies
    assert plain.metric("lanewise_mtp_drafts_offered_total") == 0
    assert plain.stop() == 0


def test_curl_line_of_the_start(server):
    """The line that is printed to be pasted works."""
    if shutil.which("curl") is None:
        pytest.skip("no curl here")
    line = next(t for t in server.start_lines.decode().splitlines() if t.startswith("try"))
    command = line.split(None, 1)[1].replace("curl ", "curl -s --max-time 60 ")
    done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=90, check=True)
    assert json.loads(done.stdout)["choices"][0]["message"]["role"] == "assistant"
    for _ in range(8):
        gone = command.replace("--max-time 60", "--max-time 0.05").replace("}]}'", '}],"ignore_eos":true}\'')
        subprocess.run(["sh", "-c", gone], capture_output=True, timeout=30, check=False)
    server.wait_idle(10)
