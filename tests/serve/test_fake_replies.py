"""Replies over HTTP: shapes, streams, stop strings, reasoning, log-probabilities, as clients see them."""

import json

import openai
import pytest
import served
from served import chat

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served.fake(tmp_path_factory.mktemp("fake"), "token_us=200", "--alias", "other") as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def whole(server, value):
    return server.ok(CHAT, value)["choices"][0]


def joined(events, name):
    return "".join(e["choices"][0]["delta"].get(name) or "" for e in events if e["choices"])


def both_ways(server, value):
    """(content, reasoning, finish) whole and streamed; they must be equal."""
    choice = whole(server, value)
    events = server.events(CHAT, value)
    finish = [e["choices"][0]["finish_reason"] for e in events if e["choices"]]
    assert finish[:-1] == [None] * (len(finish) - 1)
    one = (
        choice["message"]["content"],
        choice["message"].get("reasoning_content", ""),
        choice["finish_reason"],
    )
    two = (joined(events, "content"), joined(events, "reasoning_content"), finish[-1])
    assert one == two
    return one


def ids(*parts):
    """[[ids ...]] of text and ids."""
    out = []
    for part in parts:
        out += list(part.encode()) if isinstance(part, str) else [part]
    return "[[ids %s]]" % ",".join(map(str, out))


OPEN, CLOSE, END = 258, 259, 257


def test_whole_chat(server):
    body = server.ok(CHAT, chat("[[say hello]]", model="nobody"))
    assert body["object"] == "chat.completion" and body["id"].startswith("chatcmpl-")
    assert body["model"] == "fake"
    choice = body["choices"][0]
    assert choice == {
        "index": 0,
        "message": {"role": "assistant", "content": "hello"},
        "finish_reason": "stop",
        "logprobs": None,
    }
    assert body["usage"]["completion_tokens"] == 6
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + 6
    extras = body["lanewise"]
    assert len(extras["token_sha"]) == 12 and extras["seed"] < 2**63
    assert extras["drafts"] == {"offered": 2, "kept": 1} and extras["cached_tokens"] == 0
    assert set(extras["timings"]) == {"queued_ms", "prompt_ms", "decode_ms", "tokens_per_second"}


def test_known_names_are_echoed(server):
    assert server.ok(CHAT, chat("[[say x]]", model="other"))["model"] == "other"
    assert [m["id"] for m in server.get("/v1/models")[1]["data"]] == ["fake", "other"]


def test_stream_shapes(server):
    events = server.events(CHAT, chat("[[say hello]]"))
    assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [e["choices"][0]["delta"] for e in events[1:-1]] == [{"content": c} for c in "hello"]
    assert events[-1]["choices"][0] == {"index": 0, "delta": {}, "finish_reason": "stop", "logprobs": None}
    assert len(events[-1]["lanewise"]["token_sha"]) == 12
    assert all("usage" not in e and e["object"] == "chat.completion.chunk" for e in events)
    assert len({e["id"] for e in events}) == 1 and len({e["created"] for e in events}) == 1


def test_usage_chunk(server):
    events = server.events(CHAT, chat("[[say hello]]", stream_options={"include_usage": True}))
    assert events[-1]["choices"] == [] and events[-1]["usage"]["completion_tokens"] == 6
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    assert all(e["usage"] is None for e in events[:-1])


def test_openai_client(client):
    reply = client.chat.completions.create(model="fake", messages=[{"role": "user", "content": "[[say hi]]"}])
    assert reply.choices[0].message.content == "hi" and reply.usage.completion_tokens == 3
    stream = client.chat.completions.create(
        model="fake",
        stream=True,
        stream_options={"include_usage": True},
        messages=[{"role": "user", "content": "[[say hi]]"}],
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "hi"
    assert chunks[-1].usage.completion_tokens == 3
    assert client.completions.create(model="fake", prompt="[[say yo]]").choices[0].text == "yo"
    assert [m.id for m in client.models.list()] == ["fake", "other"]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="fake", messages=[])
    assert caught.value.param == "messages"


def test_code_point_over_tokens(server):
    value = chat("[[hex F09F9880]]")
    events = server.events(CHAT, value)
    deltas = [e["choices"][0]["delta"].get("content") for e in events]
    assert [d for d in deltas if d] == ["\U0001f600"]
    assert both_ways(server, value)[0] == "\U0001f600"


def test_cut_code_point(server):
    assert both_ways(server, chat("[[hex 41F09F]]"))[0] == "A\ufffd"


def test_stop_over_tokens(server):
    value = chat("[[say A B C D E F G]]", stop=["D E"])
    assert both_ways(server, value) == ("A B C ", "", "stop")
    assert server.ok(CHAT, value)["lanewise"]["stop"] == "D E"
    assert server.ok(CHAT, value)["usage"]["completion_tokens"] == 9


def test_stop_is_never_half_sent(server):
    events = server.events(CHAT, chat("[[say abcDEFGHIJ]]", stop="DEFGHIJ"))
    assert joined(events, "content") == "abc"
    # The match fails at its last letter: what was held comes out.
    assert both_ways(server, chat("[[say abcDEFGHIK]]", stop="DEFGHIJ"))[0] == "abcDEFGHIK"
    assert both_ways(server, chat("[[say abcDEF]]", stop="DEFGHIJ"))[0] == "abcDEF"


def test_stop_with_overlaps(server):
    assert both_ways(server, chat("[[say xaabaaby]]", stop=["aabaac", "baab"]))[0] == "xaa"
    assert both_ways(server, chat("[[say aaab]]", stop=["aab"]))[0] == "a"


def test_length(server):
    assert both_ways(server, chat("[[say hello]]", max_tokens=4)) == ("hell", "", "length")
    assert both_ways(server, chat("[[say hello]]", max_completion_tokens=2, max_tokens=4))[0] == "he"
    zero = server.ok(CHAT, chat("[[say hello]]", max_tokens=0))
    assert zero["choices"][0]["finish_reason"] == "length" and zero["usage"]["completion_tokens"] == 0
    assert zero["choices"][0]["message"]["content"] == ""


def test_ignore_eos(server):
    assert both_ways(server, chat("[[say hi]]", ignore_eos=True, max_tokens=5)) == ("hi...", "", "length")
    # Stop strings stay.
    assert both_ways(server, chat("[[say hi]]", ignore_eos=True, max_tokens=50, stop="..")) == (
        "hi",
        "",
        "stop",
    )


def test_reasoning_opened_by_prompt(server):
    value = chat(ids("because\n", CLOSE, "\n\nyes", END), chat_template_kwargs={"enable_thinking": True})
    assert both_ways(server, value) == ("yes", "because", "stop")
    assert server.ok(CHAT, value)["usage"]["completion_tokens_details"]["reasoning_tokens"] == 9


def test_reasoning_opened_by_reply(server):
    assert both_ways(server, chat(ids(OPEN, "\na\n\nb\n", CLOSE, "\nyes", END))) == ("yes", "a\n\nb", "stop")
    # Not at the begin: no opening.
    assert both_ways(server, chat(ids("x", OPEN, "a", CLOSE, "yes", END)))[0] == "x<think>a</think>yes"


def test_reasoning_cut(server):
    value = chat(
        ids("a long thought", CLOSE, "yes", END), max_tokens=6, chat_template_kwargs={"enable_thinking": True}
    )
    assert both_ways(server, value) == ("", "a long", "length")


def test_reasoning_spelled_is_text(server):
    assert both_ways(server, chat("[[say a<think>b</think>c]]"))[0] == "a<think>b</think>c"


def test_stop_at_the_tag(server):
    value = chat(
        ids("abc", CLOSE, "yes", END), stop=["c</think>"], chat_template_kwargs={"enable_thinking": True}
    )
    assert both_ways(server, value) == ("", "ab", "stop")


def test_reasoning_in_history(server):
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "a", "reasoning_content": "r"},
        {"role": "user", "content": "s"},
    ]
    tokens = server.ok("/tokenize", {"messages": messages})["tokens"]
    at = tokens.index(OPEN)
    assert tokens[at : at + 4] == [OPEN, ord("r"), CLOSE, ord("a")]


def test_user_text_never_is_a_tag(server):
    tokens = server.ok("/tokenize", {"messages": [{"role": "user", "content": "<think></think><|im_end|>"}]})[
        "tokens"
    ]
    assert OPEN not in tokens and CLOSE not in tokens and tokens.count(END) == 1


def test_logprobs(server):
    value = chat("[[say ab]]", logprobs=True, top_logprobs=2)
    content = whole(server, value)["logprobs"]["content"]
    assert [t["token"] for t in content] == ["a", "b"]
    assert content[0]["bytes"] == [97] and [t["token"] for t in content[0]["top_logprobs"]] == ["a", "b"]
    events = server.events(CHAT, value)
    streamed = sum(
        (e["choices"][0]["logprobs"]["content"] for e in events if e["choices"][0]["logprobs"]), []
    )
    assert streamed == content
    assert whole(server, chat("[[say ab]]", logprobs=True))["logprobs"]["content"][0]["top_logprobs"] == []
    assert whole(server, chat("[[say ab]]", logprobs=False))["logprobs"] is None


def test_logprobs_stay_with_held_text(server):
    events = server.events(CHAT, chat("[[say abXYc]]", stop="XYZ", logprobs=True))
    tokens = [
        t["token"]
        for e in events
        if e["choices"][0]["logprobs"]
        for t in e["choices"][0]["logprobs"]["content"]
    ]
    assert tokens == list("abXYc")


def test_completions(server):
    body = server.ok(TEXT, {"prompt": "[[say A B C D]]", "stop": ["C"], "logprobs": 1})
    choice = body["choices"][0]
    assert (
        body["object"] == "text_completion" and choice["text"] == "A B " and choice["finish_reason"] == "stop"
    )
    assert choice["logprobs"]["tokens"] == list("A B C") and choice["logprobs"]["text_offset"] == [
        0,
        1,
        2,
        3,
        4,
    ]
    assert choice["logprobs"]["top_logprobs"][0] == {"A": -0.25}
    events = server.events(TEXT, {"prompt": "[[say A B C D]]", "stop": ["C"]})
    assert "".join(e["choices"][0]["text"] for e in events) == "A B "
    assert events[-1]["choices"][0]["finish_reason"] == "stop"


def test_chat_equals_completion_of_its_ids(server):
    tokens = server.ok("/tokenize", chat("no script"))["tokens"]
    one = server.ok(CHAT, chat("no script"))
    two = server.ok(TEXT, {"prompt": tokens})
    assert one["lanewise"]["token_sha"] == two["lanewise"]["token_sha"]
    assert one["choices"][0]["message"]["content"] == two["choices"][0]["text"]


def test_tokenize_and_back(server):
    body = server.ok("/tokenize", {"prompt": "h\u00e9<|im_end|>", "return_token_strs": True})
    assert body["tokens"] == [260, 104, 0xC3, 0xA9, 257] and body["count"] == 5
    assert body["token_strs"] == ["<bos>", "h", "\ufffd", "\ufffd", "<|im_end|>"]
    assert server.ok("/tokenize", {"prompt": "h", "add_special_tokens": False})["tokens"] == [104]
    assert server.ok("/detokenize", {"tokens": body["tokens"][1:]})["prompt"] == "h\u00e9<|im_end|>"
    assert server.ok("/detokenize", {"tokens": []})["prompt"] == ""


def test_seeds(server):
    drawn = [server.ok(CHAT, chat("free", temperature=0.8, seed=s)) for s in (1, 1, 2)]
    texts = [d["choices"][0]["message"]["content"] for d in drawn]
    assert texts[0] == texts[1] != texts[2]
    assert [d["lanewise"]["seed"] for d in drawn] == [1, 1, 2]
    again = [server.ok(CHAT, chat("free", temperature=0.8, seed=None)) for _ in range(3)]
    assert len({a["choices"][0]["message"]["content"] for a in again}) == 1
    assert server.ok(CHAT, chat("free", seed=2**63 - 1))["lanewise"]["seed"] == 2**63 - 1


def test_fresh_seeds(tmp_path):
    with served.fake(tmp_path, "", "--fresh-seeds") as server:
        drawn = [server.ok(CHAT, chat("free", temperature=0.8)) for _ in range(3)]
        assert len({d["lanewise"]["seed"] for d in drawn}) == 3
        assert len({d["choices"][0]["message"]["content"] for d in drawn}) == 3
        assert server.ok(CHAT, chat("free", seed=5))["lanewise"]["seed"] == 5


def test_raw_reasoning(tmp_path):
    with served.fake(tmp_path, "", "--reasoning", "raw") as server:
        value = chat(ids(OPEN, "\na\n", CLOSE, "\nyes", END))
        assert both_ways(server, value)[:2] == ("<think>\na\n</think>\nyes", "")


def test_drafts_off(server):
    assert server.ok(CHAT, chat("x", draft=False))["lanewise"]["drafts"] == {"offered": 0, "kept": 0}


def test_tool_turns(server):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    counts = set()
    for content in ({"content": None}, {}, {"content": []}, {"content": ""}):
        messages = [
            {"role": "user", "content": "q"},
            dict({"role": "assistant", "tool_calls": [call]}, **content),
            {"role": "tool", "tool_call_id": "c", "content": "1"},
        ]
        counts.add(json.dumps(server.ok("/tokenize", {"messages": messages})["tokens"]))
    assert len(counts) == 1


def test_text_parts(server):
    parts = [{"type": "text", "text": "[[say h"}, {"type": "text", "text": "i]]"}]
    assert whole(server, {"messages": [{"role": "user", "content": parts}]})["message"]["content"] == "h\ni"


def test_concurrent_replies_equal_solo(server):
    import concurrent.futures

    solo = [server.ok(CHAT, chat(f"free {i}"))["lanewise"]["token_sha"] for i in range(8)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        beside = list(
            pool.map(lambda i: server.ok(CHAT, chat(f"free {i}"))["lanewise"]["token_sha"], range(8))
        )
    assert solo == beside and len(set(solo)) == 8


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("after", [0, 3])
def test_memory_that_runs_out_ends_the_reply(tmp_path, stream, after):
    """Nobody waits for news that found no memory: the reply ends with an error, and the next one is whole."""
    with served.fake(tmp_path, "token_us=20000") as server:
        value = chat(f"[[starve {after}]]", ignore_eos=True, max_tokens=500)
        if stream:
            events = server.events(CHAT, value)
            assert events[-1]["error"]["code"] == "no_room"
            said = "".join(e["choices"][0]["delta"].get("content") or "" for e in events[:-1])
            assert "abc.".startswith(said)
        else:
            status, body = server.post(CHAT, value)
            assert (status, body["error"]["code"]) == (503, "no_room"), body
        server.wait_idle(5)
        assert both_ways(server, chat("[[say whole]]")) == ("whole", "", "stop")
