"""What a server owes to those who ask wrongly, or in pieces: errors, limits, access, HTTP itself."""

import http.client
import json
import os
import re
import signal
import subprocess
import time

import pytest
import served
from served import chat, head

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
MIB = 1 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    flags = ["--read-timeout", "2", "--body-mib", "4"]
    with served.fake(tmp_path_factory.mktemp("fake"), "token_us=100", *flags) as running:
        yield running


def alive(server):
    assert server.ok(CHAT, chat("[[say ok]]"))["choices"][0]["message"]["content"] == "ok"


# ---- values of fields ----

USER = {"role": "user", "content": "q"}
BAD_FIELDS = [
    ("temperature", -1),
    ("temperature", "hot"),
    ("temperature", 101),
    ("temperature", [1]),
    ("top_p", 5),
    ("top_p", 0),
    ("top_p", "1"),
    ("top_k", -2),
    ("top_k", 1.5),
    ("top_k", "4"),
    ("min_p", -0.1),
    ("min_p", 1.1),
    ("repetition_penalty", 0),
    ("repetition_penalty", 11),
    ("presence_penalty", 3),
    ("frequency_penalty", -2.1),
    ("seed", -1),
    ("seed", 2**63),
    ("seed", 2**64),
    ("seed", 1.5),
    ("seed", "7"),
    ("seed", True),
    ("max_tokens", "4"),
    ("max_tokens", -5),
    ("max_tokens", 2.5),
    ("max_tokens", True),
    ("max_tokens", [4]),
    ("max_completion_tokens", "4"),
    ("max_completion_tokens", -1),
    ("n", 2),
    ("n", "1"),
    ("best_of", 2),
    ("stop", [""]),
    ("stop", ""),
    ("stop", 5),
    ("stop", ["a", None]),
    ("stop", ["x"] * 65),
    ("stop", "x" * 1025),
    ("stream", "yes"),
    ("stream", 1),
    ("stream_options", 5),
    ("ignore_eos", 1),
    ("draft", "no"),
    ("logit_bias", {"99999": 1}),
    ("logit_bias", {"-1": 1}),
    ("logit_bias", {"a": 1}),
    ("logit_bias", {"5": 101}),
    ("logit_bias", {"5": "x"}),
    ("logit_bias", [1]),
    ("logprobs", 3),
    ("logprobs", "true"),
    ("top_logprobs", 3),
    ("chat_template_kwargs", "x"),
    ("tools", 5),
    ("tools", [{"function": {"name": "f"}}] * 1025),
    ("tool_choice", "perhaps"),
    ("response_format", {"type": "json_object"}),
    ("response_format", "x"),
    ("guided_json", {}),
    ("model", 5),
    ("functions", [{}]),
    ("modalities", ["audio"]),
    ("reasoning_effort", "huge"),
    ("model", "x" * 300),
]


@pytest.mark.parametrize("name,value", BAD_FIELDS)
def test_bad_field(server, name, value):
    error = server.error(CHAT, chat("[[say x]]", **{name: value}))
    assert error["param"] == name and error["type"] == "invalid_request_error"
    assert name in error["message"]


GOOD_FIELDS = [
    ("max_tokens", None),
    ("max_tokens", 4.0),
    ("seed", None),
    ("stop", None),
    ("stop", []),
    ("n", 1),
    ("n", None),
    ("temperature", 0),
    ("top_k", -1),
    ("top_k", 0),
    ("logit_bias", {"5": -100}),
    ("logit_bias", {}),
    ("tool_choice", "auto"),
    ("user", "me"),
    ("unknown_field", {"x": 1}),
    ("response_format", {"type": "text"}),
    ("tools", []),
    ("logprobs", None),
    ("top_p", 1),
    ("echo", True),
    ("stream", None),
    ("functions", None),
    ("tools", [{"type": "function", "function": {"name": "f", "parameters": {}}}]),
    ("reasoning_effort", "low"),
]


@pytest.mark.parametrize("name,value", GOOD_FIELDS)
def test_good_field(server, name, value):
    server.ok(CHAT, chat("[[say x]]", **{name: value}))


TEXT_PART = {"type": "text", "text": "x"}
BAD_MESSAGES = [
    ([], "messages"),
    (None, "messages"),
    ("x", "messages"),
    ([5], "messages[0]"),
    ([{"role": "wizard", "content": "x"}], "messages[0].role"),
    ([{"content": "x"}], "messages[0].role"),
    ([USER, {"role": "user", "content": 5}], "messages[1].content"),
    ([{"role": "user", "content": {}}], "messages[0].content"),
    ([USER, {"role": "user", "content": [TEXT_PART] * 4097}], "messages[1].content"),
    ([USER] * 16385, "messages"),
    ([{"role": "user", "content": [{"type": "zzz"}]}], "messages[0].content[0].type"),
    (
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
        "messages[0].content[0].type",
    ),
    ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
    ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
    ([{"role": "assistant", "content": "", "tool_calls": 5}], "messages[0].tool_calls"),
    ([{"role": "assistant", "tool_calls": [{}]}], "messages[0].tool_calls[0].function"),
    ([{"role": "assistant", "tool_calls": [{"function": {}}]}], "messages[0].tool_calls[0].function.name"),
    (
        [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}],
        "messages[0].tool_calls[0].function.arguments",
    ),
    ([{"role": "tool", "content": "", "tool_call_id": 5}], "messages[0].tool_call_id"),
    ([{"role": "user", "content": "", "name": []}], "messages[0].name"),
    ([{"role": "assistant", "content": "", "reasoning_content": 5}], "messages[0].reasoning_content"),
]


@pytest.mark.parametrize("messages,param", BAD_MESSAGES)
def test_bad_messages(server, messages, param):
    assert server.error(CHAT, {"messages": messages})["param"] == param


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_no_content_is_empty_content(server, role):
    def ids(**content):
        return server.ok("/tokenize", {"messages": [{"role": role, **content}]})["tokens"]

    assert ids() == ids(content=None) == ids(content=[]) == ids(content="") != ids(content="x")


def test_bad_tools(server):
    for tool, place in (({"type": "function"}, "function"), ({"function": {}}, "function.name")):
        error = server.error(CHAT, chat("x", tools=[tool]))
        assert error["param"] == "tools[0]." + place
        assert server.ok(CHAT, chat("[[say x]]", tools=[tool], tool_choice="none"))


def test_no_messages(server):
    assert server.error(CHAT, {})["param"] == "messages"
    assert server.error("/tokenize", {})["param"] == "prompt"
    assert server.error("/detokenize", {})["param"] == "tokens"


def test_what_a_template_refuses(server):
    error = server.error(CHAT, chat("RAISE! now"))
    assert "RAISE!" in error["message"] and error["param"] == "messages"


@pytest.mark.parametrize(
    "prompt",
    [
        [999999999],
        [-3],
        [1.5],
        [[1], [2]],
        ["a", 5],
        ["a", "b"],
        [],
        5,
        {},
        [True],
        [None],
        None,
        [2**40],
        "",
        [10**30],
    ],
)
def test_bad_prompt(server, prompt):
    body = {"prompt": prompt}
    if prompt == "":
        # The begin token alone is a prompt.
        server.ok(TEXT, body)
        return
    assert server.error(TEXT, body)["param"] == "prompt"
    alive(server)


def test_one_prompt_in_a_list(server):
    assert server.ok(TEXT, {"prompt": ["[[say x]]"]})["choices"][0]["text"] == "x"
    assert server.ok(TEXT, {"prompt": [[97, 98]]})["usage"]["prompt_tokens"] == 2


def test_completions_logprobs_are_a_number(server):
    assert server.error(TEXT, {"prompt": "x", "logprobs": True})["param"] == "logprobs"
    assert server.error(TEXT, {"prompt": "x", "logprobs": 21})["param"] == "logprobs"
    assert server.error(TEXT, {"prompt": "x", "echo": True})["param"] == "echo"


def test_context_overflow(server):
    for value, stream in [
        (chat("x" * 5000), False),
        (chat("x" * 5000), True),
        (chat("x", max_tokens=10**12), False),
        (chat("x", max_tokens=1e12), False),
        (chat("x", max_tokens=4096), False),
    ]:
        error = server.error(CHAT, dict(value, stream=stream))
        assert error["code"] == "context_length_exceeded" and error["param"] == "messages"
        assert error["n_ctx"] == 4096 and error["n_prompt_tokens"] > 0
        assert "maximum context length is 4096 tokens" in error["message"]


def test_context_is_filled_exactly(server):
    count = server.ok("/tokenize", chat("x"))["count"]
    for over in (-1, 0):
        server.ok(CHAT, chat("x", max_tokens=4096 - count + over))
    server.error(CHAT, chat("x", max_tokens=4096 - count + 1))


# ---- bodies ----


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"5",
        b"\xff\xfe",
        b'{"messages":[{"role":"user","content":"\\ud800"}]}',
        b'{"messages":[{"role":"user","content":"a\\u0000b"}]}',
        b"[" * 100000,
        b'{"a":' * 100000,
        b'{"messages":[{"role":"user","content":"\xff"}]}',
        b'{"messages":NaN}',
        b"{}}",
        b"\x00",
    ],
)
def test_body_that_is_no_request(server, body):
    status, _, got = server.request("POST", CHAT, body=body)
    assert status == 400 and "error" in json.loads(got)
    alive(server)


def test_deep_json_in_known_fields(server):
    deep = (
        b'{"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"a":'
        + b"[" * 1500
        + b"]" * 1500
    )
    status, _, _ = server.request("POST", CHAT, body=deep + b"}}")
    assert status in (200, 400)
    alive(server)


def test_body_limit(server):
    pad = lambda count: json.dumps(chat("[[say x]]", pad="y" * count)).encode()
    room = 4 * MIB - len(pad(0))
    for more, wanted in [(-1, 200), (0, 200), (1, 413)]:
        status, _, got = server.request("POST", CHAT, body=pad(room + more))
        assert status == wanted, got[:200]
    got = server.raw(
        head(CHAT, more=b"Transfer-Encoding: chunked\r\n").replace(b"Content-Length: 0\r\n", b"")
        + b"500000\r\n"
        + b"x" * 0x100
    )
    assert got.startswith(b"HTTP/1.1 413 "), got[:100]
    got = server.raw(
        b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 67108864\r\n\r\n" % CHAT.encode()
    )
    assert got.startswith(b"HTTP/1.1 413 ") and b"Connection: close" in got
    alive(server)


def test_chunked_body(server):
    body = json.dumps(chat("[[say x]]")).encode()
    chunks = b"".join(
        b"%x;ext=1\r\n%s\r\n" % (len(body[i : i + 7]), body[i : i + 7]) for i in range(0, len(body), 7)
    )
    start = b"POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    got = server.raw(start % CHAT.encode() + chunks + b"0\r\nTrailer: x\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 200 ") and b'"content":"x"' in got


def test_no_length_is_no_body(server):
    got = server.raw(b"POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % CHAT.encode())
    assert got.startswith(b"HTTP/1.1 400 ")


# ---- HTTP ----

BAD_HEADS = [
    (b"\x00\x01\x02\r\n\r\n", 400),
    (b"GET\r\n\r\n", 400),
    (b"GET / HTTP/1.1\n\n", 400),
    (b"GET health HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    (b"GET /health HTTP/2.0\r\nHost: a\r\n\r\n", 505),
    (b"GET /health HTTP/1.1\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: a\r\n folded: b\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost : a\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: a\r\nnocolon\r\n\r\n", 400),
    (b"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
    (b"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
    (b"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\n", 400),
    (b"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n", 413),
    (b"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    (b"POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
    (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: a\r\nExpect: magic\r\n\r\n", 417),
    (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
    (b"GET /" + b"x" * 70000, 414),
    (b"GET /health HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 101 + b"\r\n", 431),
    (b"GET /health HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 70000 + b"\r\n\r\n", 431),
]


@pytest.mark.parametrize("sent,code", BAD_HEADS, ids=range(len(BAD_HEADS)))
def test_bad_head(server, sent, code):
    got = server.raw(sent)
    assert got.startswith(b"HTTP/1.1 %d " % code), got[:120]
    assert b"Connection: close" in got and b'"error"' in got
    alive(server)


def test_request_in_pieces(server):
    data = head("/tokenize", b'{"prompt":"ab"}', more=b"Connection: close\r\n")
    with server.connect() as sock:
        for byte in data:
            sock.sendall(bytes([byte]))
        assert b'"count":3' in served.read_all(sock)


def test_pipelined_requests(server):
    body = json.dumps(chat("[[say one]]")).encode()
    last = head("/tokenize", b'{"prompt":"ab"}', more=b"Connection: close\r\n")
    got = server.raw(head(CHAT, body) + head("/health", method="GET") + b"\r\n" + last)
    assert got.count(b"HTTP/1.1 200 OK") == 3
    assert got.index(b"one") < got.index(b'"status"') < got.index(b'"count":3')


def test_keep_alive(server):
    conn = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    for _ in range(3):
        conn.request("POST", CHAT, body=json.dumps(chat("[[say x]]", stream=True)))
        reply = conn.getresponse()
        assert reply.read().endswith(b"data: [DONE]\n\n")
    conn.close()


def test_http10(server):
    got = server.raw(b"GET /health HTTP/1.0\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 200 ") and b"Connection: close" in got
    body = json.dumps(chat("[[say x]]", stream=True)).encode()
    got = server.raw(b"POST %s HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s" % (CHAT.encode(), len(body), body))
    assert b"chunked" not in got and got.endswith(b"data: [DONE]\n\n")


def test_expect_continue(server):
    body = b'{"prompt":"ab"}'
    with server.connect() as sock:
        sock.sendall(
            head("/tokenize", more=b"Expect: 100-continue\r\nConnection: close\r\n").replace(
                b"Content-Length: 0", b"Content-Length: %d" % len(body)
            )
        )
        assert sock.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(body)
        assert b'"count":3' in served.read_all(sock)


def test_head_method(server):
    status, headers, body = server.request("HEAD", "/health")
    assert status == 200 and body == b"" and int(headers["content-length"]) > 0


def test_unknown_paths(server):
    assert server.request("GET", "/nothing")[0] == 404
    assert server.request("GET", CHAT)[0] == 405
    assert server.request("DELETE", "/v1/models")[0] == 405
    assert server.get("/health?x=1")[0] == 200
    assert json.loads(server.request("GET", "/nothing")[2])["error"]["code"] == "unknown_path"


def test_half_request_times_out(server):
    got = server.raw(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{")
    assert got.startswith(b"HTTP/1.1 408 ")


# ---- access ----


def test_places(server):
    for host in ("localhost", f"localhost:{server.port}", "127.0.0.1:1", "[::1]:80", "10.1.2.3"):
        assert server.request("GET", "/health", headers={"Host": host})[0] == 200, host
    for host in (
        "evil.example",
        f"evil.example:{server.port}",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
    ):
        status, _, body = server.request("GET", "/health", headers={"Host": host})
        assert status == 403 and "--allow-host" in json.loads(body)["error"]["message"], host
    for origin in ("https://evil.example", "null", "http://localhost:1"):
        status, _, body = server.request("POST", CHAT, body="{}", headers={"Origin": origin})
        assert status == 403 and "--cors" in json.loads(body)["error"]["message"]
    own = f"http://127.0.0.1:{server.port}"
    assert server.request("GET", "/health", headers={"Origin": own})[0] == 200


def test_allowed_places(tmp_path):
    flags = ["--allow-host", "box.lan", "--cors", "https://a.example", "--cors", "https://b.example"]
    with served.fake(tmp_path, "", *flags) as server:
        assert server.request("GET", "/health", headers={"Host": "BOX.lan:80"})[0] == 200
        status, headers, _ = server.request("GET", "/health", headers={"Origin": "https://b.example"})
        assert status == 200 and headers["access-control-allow-origin"] == "https://b.example"
        status, headers, body = server.request("OPTIONS", CHAT, headers={"Origin": "https://a.example"})
        assert status == 204 and "POST" in headers["access-control-allow-methods"] and body == b""
        assert server.request("OPTIONS", CHAT, headers={"Origin": "https://c.example"})[0] == 403


def test_keys(tmp_path):
    path = tmp_path / "keys"
    path.write_text("# comment\n  from-file  \n\n")
    env = dict(os.environ, LANEWISE_API_KEY="env-a,env-b")
    with served.fake(tmp_path, "", "--api-key", "flag", "--api-key-file", str(path), env=env) as server:
        for key in ("flag", "from-file", "env-a", "env-b"):
            assert server.request("GET", "/v1/models", headers={"Authorization": "Bearer " + key})[0] == 200
            assert server.request("GET", "/v1/models", headers={"x-api-key": key})[0] == 200
        for headers in (
            {},
            {"Authorization": "Bearer fla"},
            {"Authorization": "Basic flag"},
            {"x-api-key": ""},
            {"Authorization": "Bearer # comment"},
        ):
            status, got, body = server.request("POST", CHAT, body="{}", headers=headers)
            assert status == 401 and got["www-authenticate"] == "Bearer"
            assert json.loads(body)["error"]["code"] == "invalid_api_key"
        assert server.request("GET", "/metrics")[0] == 401
        assert server.get("/health") == (200, {"status": "ok"})
        assert (
            b"flag" not in server.start_lines and "Authorization: Bearer KEY" in server.start_lines.decode()
        )


def test_keys_are_read_again(tmp_path):
    """SIGHUP: new keys count and old ones no more; a file that cannot be used leaves all as it was."""
    path = tmp_path / "keys"
    path.write_text("old")

    def status(server, key):
        return server.request("GET", "/v1/models", headers={"x-api-key": key})[0]

    def hang_up(server, text, said):
        path.write_text(text)
        server.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + served.SECONDS
        while said not in server.log():
            assert time.monotonic() < end, server.log()
            time.sleep(0.02)

    with served.fake(tmp_path, "", "--api-key", "flag", "--api-key-file", str(path)) as server:
        assert [status(server, key) for key in ("old", "new", "flag")] == [200, 401, 200]
        hang_up(server, "new\n", "read again: 2 of them")
        assert [status(server, key) for key in ("old", "new", "flag")] == [401, 200, 200]
        hang_up(server, "# none\n", "stay as they were: --api-key-file")
        assert [status(server, key) for key in ("old", "new", "flag")] == [401, 200, 200]


def test_metrics_may_be_open(tmp_path):
    with served.fake(tmp_path, "", "--api-key", "k", "--open-metrics") as server:
        assert server.request("GET", "/metrics")[0] == 200
        assert server.request("GET", "/props")[0] == 401


def test_bad_starts(tmp_path):
    empty = tmp_path / "empty"
    empty.write_text("# no key\n")
    for words, text in [
        (["--api-key-file", str(empty)], "no key"),
        (["--api-key-file", "/nowhere"], "/nowhere"),
        (["--api-key", ""], "--api-key"),
        (["--port", "70000"], "--port"),
        (["--host", "no.such.host.invalid"], "--host"),
        (["--parallel", "many"], "--parallel"),
        (["--reasoning", "both"], "--reasoning"),
        (["--served-name", 'a"b'], "--served-name"),
    ]:
        done = subprocess.run(
            [served.FAKE, "fake:", "--port", "0", *words], capture_output=True, timeout=60, check=False
        )
        assert done.returncode in (1, 2) and text in done.stderr.decode(), (words, done)
    done = subprocess.run(
        [served.FAKE, "/nowhere", "--port", "0"], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 1 and b"/nowhere" in done.stderr


def test_port_in_use(server):
    done = subprocess.run(
        [served.FAKE, "fake:", "--port", str(server.port)], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 1 and f"port {server.port}" in done.stderr.decode()


def test_warning_beyond_loopback(tmp_path):
    with served.fake(tmp_path, "", "--host", "0.0.0.0") as server:
        # Behind a name that others gave us, Host is not ours to judge.
        assert server.request("GET", "/health", headers={"Host": "box.lan"})[0] == 200
        assert server.request("GET", "/health", headers={"Origin": "https://evil.example"})[0] == 403
    assert "--api-key" in server.log()
    with served.fake(tmp_path, "", "--host", "0.0.0.0", "--api-key", "k") as server:
        pass
    assert "warning" not in server.log()


# ---- what is told ----


def test_metrics(server):
    status, headers, body = server.request("GET", "/metrics")
    text = body.decode()
    assert status == 200 and headers["content-type"].startswith("text/plain; version=0.0.4")
    for line in text.splitlines():
        assert line.startswith("# ") or re.fullmatch(r"[a-z0-9_:]+\{[^}]*\} [0-9.e+-]+", line), line
    # The engine's counts are told once a round is over, and a reply may be read before that.
    server.wait_idle()
    before = server.metric("vllm:generation_tokens_total")
    server.ok(CHAT, chat("[[say hello]]"))
    server.wait_for(lambda _: server.metric("vllm:generation_tokens_total") == before + 6)
    assert 'finished_reason="stop"' in text and server.metric("lanewise_lanes") == 4
    assert server.metric("vllm:e2e_request_latency_seconds_count") >= 1


def test_props(server):
    props = server.get("/props")[1]
    assert all(props["equalities"].values()) and props["limits"]["context"] == 4096
    assert props["sampling"]["temperature"] == 0 and props["limits"]["body_bytes"] == 4 * MIB


def test_log(tmp_path):
    with served.fake(tmp_path, "", "--log-format", "json") as server:
        server.ok(CHAT, chat("[[say secret]]"))
        server.error(CHAT, chat("secret", temperature=-1))
    lines = [json.loads(line) for line in server.log().splitlines()]
    assert "secret" not in server.log()
    done = [line for line in lines if line.get("event") == "request"]
    assert done[0]["code"] == 200 and done[0]["reply_tokens"] == 7 and len(done[0]["token_sha"]) == 12
    assert done[1]["code"] == 400
    with served.fake(tmp_path, "", "--log-prompts") as server:
        server.ok(CHAT, chat("[[say secret]]"))
    assert "secret" in server.log()


def test_broken_logits(server):
    error = server.error(CHAT, chat("[[nan 3]]"), 500)
    assert error["code"] == "broken_logits" and "not a number" in error["message"]
    events = server.events(CHAT, chat("[[nan 3]]"))
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in events[:-1]) == "abc"
    assert events[-1]["error"]["type"] == "server_error"
    alive(server)
