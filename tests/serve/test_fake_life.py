"""Clients that leave, read slowly or come in crowds; a server told to stop. What is left is as before."""

import json
import os
import random
import signal
import socket
import subprocess
import threading
import time

import pytest
import served
from served import chat, head

CHAT = "/v1/chat/completions"
LONG = os.environ.get("LW_TEST_LONG") == "1"
FOREVER = "[[count 60000]]"


def ask(server, value):
    """An open connection on which value was asked."""
    sock = server.connect()
    sock.sendall(head(CHAT, json.dumps(value).encode()))
    return sock


def read_until(sock, wanted):
    got = b""
    while wanted not in got:
        piece = sock.recv(65536)
        assert piece, got
        got += piece
    return got


@pytest.fixture
def slow(tmp_path):
    with served.fake(tmp_path, "lanes=2,token_us=5000,context=100000,row_us=1000,chunk=10") as server:
        yield server


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("where", ["decode", "prompt"])
def test_client_leaves(slow, stream, where):
    text = FOREVER if where == "decode" else "x" * 50000
    sockets = [ask(slow, chat(text, stream=stream)) for _ in range(4)]
    slow.wait_for(lambda h: h["running"] == 2 and h["waiting"] == 2)
    begun = time.monotonic()
    for sock in sockets:
        sock.close()
    slow.wait_idle(5)
    assert time.monotonic() - begun < 2
    assert slow.metric("lanewise_clients_gone_total") == 4
    slow.ok(CHAT, chat("[[say ok]]"))


def test_client_leaves_the_queue(slow):
    running = [ask(slow, chat(FOREVER, stream=True)) for _ in range(2)]
    slow.wait_for(lambda h: h["running"] == 2)
    waiting = [ask(slow, chat(FOREVER, stream=s)) for s in (True, False)]
    slow.wait_for(lambda h: h["waiting"] == 2)
    for sock in waiting:
        sock.close()
    slow.wait_for(lambda h: h["waiting"] == 0 and h["running"] == 2)
    for sock in running:
        sock.close()
    slow.wait_idle()


def test_half_closed_is_gone(slow):
    sock = ask(slow, chat(FOREVER))
    slow.wait_for(lambda h: h["running"] == 1)
    sock.shutdown(socket.SHUT_WR)
    slow.wait_idle(5)
    sock.close()
    # What was complete is still sent.
    sock = slow.connect()
    sock.sendall(head("/health", method="GET"))
    sock.shutdown(socket.SHUT_WR)
    assert b'"status":"ok"' in served.read_all(sock)


def test_reset_is_gone(slow):
    sock = ask(slow, chat(FOREVER, stream=True))
    read_until(sock, b'"content":"a"')
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    sock.close()
    slow.wait_idle(5)


def test_sending_on_and_on_while_waiting(slow):
    sock = ask(slow, chat(FOREVER))
    slow.wait_for(lambda h: h["running"] == 1)
    with pytest.raises(OSError):
        for _ in range(1000):
            sock.sendall(b"x" * 65536)
    slow.wait_idle(5)


def test_neighbour_is_not_changed(slow):
    value = chat("free", ignore_eos=True, max_tokens=100)
    alone = slow.ok(CHAT, value)["lanewise"]["token_sha"]
    shas = []
    thread = threading.Thread(target=lambda: shas.append(slow.ok(CHAT, value)["lanewise"]["token_sha"]))
    thread.start()
    for _ in range(5):
        sock = ask(slow, chat(FOREVER, stream=True))
        read_until(sock, b'"content":"a"')
        sock.close()
    thread.join()
    assert shas == [alone]


def test_queue_is_full(tmp_path):
    with served.fake(tmp_path, "lanes=1,token_us=5000,context=100000", "--queue", "2") as server:
        sockets = [ask(server, chat(FOREVER)) for _ in range(1)]
        server.wait_for(lambda h: h["running"] == 1)
        sockets += [ask(server, chat(FOREVER)) for _ in range(2)]
        server.wait_for(lambda h: h["waiting"] == 2)
        for stream in (False, True):
            body = json.dumps(chat("x", stream=stream))
            status, headers, got = server.request("POST", CHAT, body=body)
            assert status == 503 and headers["retry-after"] == "1"
            assert json.loads(got)["error"]["code"] == "server_busy"
        for sock in sockets:
            sock.close()
        server.wait_idle()


def test_slow_reader_pauses_only_itself(tmp_path):
    with served.fake(tmp_path, "lanes=2,token_us=20,context=1000000", "--write-timeout", "3") as server:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(60)
        sock.connect(("127.0.0.1", server.port))
        body = json.dumps(chat(FOREVER, stream=True, max_tokens=60000)).encode()
        sock.sendall(head(CHAT, body))
        read_until(sock, b'"content":"a"')
        seen, at = -1, 0
        while at != seen:  # until it stands still
            seen = at
            time.sleep(0.3)
            at = server.metric("vllm:generation_tokens_total")
        assert 100 < at < 59000
        for _ in range(3):
            assert server.ok(CHAT, chat("[[say ok]]"))["choices"][0]["message"]["content"] == "ok"
        assert server.metric("lanewise_resident_bytes") < 200 << 20
        server.wait_idle(20)  # the write time-out ends it
        sock.close()


def test_slow_reader_gets_everything(tmp_path):
    with served.fake(tmp_path, "lanes=1,context=1000000", "--write-timeout", "20") as server:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        sock.settimeout(60)
        sock.connect(("127.0.0.1", server.port))
        body = json.dumps(chat("[[count 8000]]", stream=True, max_tokens=9000)).encode()
        sock.sendall(head(CHAT, body, more=b"Connection: close\r\n"))
        time.sleep(1)
        got = served.read_all(sock)
        assert got.count(b'"content":"') == 8001 and b"[DONE]" in got


def test_slow_reader_of_a_last_reply(tmp_path):
    """A whole reply with Connection: close, read late: nothing of it is cut off."""
    with served.fake(tmp_path, "lanes=1,context=2000000") as server:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(60)
        sock.connect(("127.0.0.1", server.port))
        value = chat("[[say x]]", ignore_eos=True, max_tokens=20000, logprobs=True)
        sock.sendall(head(CHAT, json.dumps(value).encode(), more=b"Connection: close\r\n"))
        server.wait_idle(30)
        time.sleep(3)
        body = served.read_all(sock).split(b"\r\n\r\n", 1)[1]
        assert len(json.loads(body)["choices"][0]["logprobs"]["content"]) == 20000


def test_dripping_reader_is_cut_off(tmp_path):
    """Bytes that trickle must not hold a lane for ever."""
    with served.fake(tmp_path, "lanes=1,token_us=10,context=1000000", "--write-timeout", "2") as server:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(60)
        sock.connect(("127.0.0.1", server.port))
        sock.sendall(head(CHAT, json.dumps(chat(FOREVER, stream=True, max_tokens=60000)).encode()))
        end = time.monotonic() + 20
        while server.get("/health")[1]["open"] != 0:
            assert time.monotonic() < end
            sock.recv(500)
            time.sleep(0.1)
        sock.close()


def test_keep_alive_comments(tmp_path):
    options = "lanes=1,row_us=100000,chunk=10,token_us=1000"
    with served.fake(tmp_path, options, "--keep-alive", "1") as server:
        status, _, body = server.request("POST", CHAT, body=json.dumps(chat("x" * 15, stream=True)))
        assert status == 200 and body.count(b": keep-alive\n\n") >= 1
        assert (
            body.index(b'"role":"assistant"')
            < body.index(b": keep-alive")
            < body.index(b'"finish_reason":"stop"')
        )


def test_health_during_a_crowd(slow):
    sockets = [ask(slow, chat(FOREVER, stream=True)) for _ in range(8)]
    begun = time.monotonic()
    for _ in range(20):
        assert slow.get("/health")[0] == 200
    assert time.monotonic() - begun < 5
    for sock in sockets:
        sock.close()
    slow.wait_idle()


# ---- the end ----


def test_drain(tmp_path):
    with served.fake(tmp_path, "lanes=2,token_us=10000,context=100000", "--drain-timeout", "30") as server:
        streams = [ask(server, chat("[[count 150]]", stream=True)) for _ in range(2)]
        for sock in streams:
            read_until(sock, b'"content":"a"')
        queued = [ask(server, chat("[[count 50]]", stream=s)) for s in (True, False)]
        server.wait_for(lambda h: h["waiting"] == 2)
        server.process.send_signal(signal.SIGTERM)
        for sock in queued:
            got = served.read_all(sock)
            assert got.startswith(b"HTTP/1.1 503 ") and b"server_shutting_down" in got
        assert server.get("/health") == (503, dict(server.get("/health")[1], status="shutting down"))
        assert server.error(CHAT, chat("x"), 503)["code"] == "server_shutting_down"
        for sock in streams:
            assert served.read_all(sock).endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert server.process.wait(10) == 0


def test_drain_timeout(tmp_path):
    with served.fake(tmp_path, "lanes=2,token_us=10000,context=100000", "--drain-timeout", "1") as server:
        stream = ask(server, chat(FOREVER, stream=True))
        plain = ask(server, chat(FOREVER))
        read_until(stream, b'"content":"a"')
        server.wait_for(lambda h: h["running"] == 2)
        begun = time.monotonic()
        server.process.send_signal(signal.SIGINT)
        got = served.read_all(stream)
        assert b"server_shutting_down" in got and b"[DONE]" in got
        assert served.read_all(plain).startswith(b"HTTP/1.1 503 ")
        assert server.process.wait(10) == 0
        assert 0.9 < time.monotonic() - begun < 4


def test_second_signal(tmp_path):
    with served.fake(tmp_path, "lanes=2,token_us=10000,context=100000") as server:
        stream = ask(server, chat(FOREVER, stream=True))
        read_until(stream, b'"content":"a"')
        server.process.send_signal(signal.SIGTERM)
        server.wait_for(lambda h: h["status"] == "shutting down")
        assert server.process.poll() is None
        begun = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(5) == 0 and time.monotonic() - begun < 3


def test_idle_end_is_quick(tmp_path):
    with served.fake(tmp_path) as server:
        idle = server.connect()
        begun = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(5) == 0 and time.monotonic() - begun < 3
        idle.close()


def test_killed_and_started_again(tmp_path):
    with served.fake(tmp_path) as first:
        port = first.port
        sha = first.ok(CHAT, chat("free"))["lanewise"]["token_sha"]
        stream = ask(first, chat(FOREVER, stream=True))
        first.process.kill()
        first.process.wait()
        stream.close()
        second = served.Server(
            [served.FAKE, "fake:", "--port", str(port)], os.path.join(str(tmp_path), "second")
        )
        assert second.ok(CHAT, chat("free"))["lanewise"]["token_sha"] == sha
        assert second.stop() == 0
        first.stop = lambda: 0


def test_lost_device(tmp_path):
    server = served.Server(
        [served.FAKE, "fake:token_us=2000,context=100000", "--port", "0"], os.path.join(str(tmp_path), "log")
    )
    stream = ask(server, chat(FOREVER, stream=True))
    read_until(stream, b'"content":"a"')
    assert server.error(CHAT, chat("[[lost 3]]"), 503)["code"] == "device_lost"
    assert b"device_lost" in served.read_all(stream)
    assert server.process.wait(10) == 1
    server.stop()
    assert "the device is lost" in server.log()


# ---- crowds ----


def hold_crowd(server, count, seconds, rng):
    """count connections held, half of them dropped at random and opened again, for a while."""
    values = [chat(f"free {i}", stream=i % 2 == 0, ignore_eos=i % 3 == 0, max_tokens=50) for i in range(7)]
    sockets = [server.connect() for _ in range(count)]
    for _ in range(2):
        assert server.get("/health")[0] == 200
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for at in rng.sample(range(count), count // 20):
            if rng.random() < 0.5:
                sockets[at].close()
                sockets[at] = server.connect()
            else:
                data = head(CHAT, json.dumps(rng.choice(values)).encode())
                try:
                    sockets[at].sendall(data[: rng.randrange(len(data))] if rng.random() < 0.3 else data)
                except OSError:
                    sockets[at] = server.connect()
    for at in rng.sample(range(count), count // 2):
        sockets[at].close()
    time.sleep(0.5)
    for sock in sockets:
        sock.close()


def test_crowd(tmp_path):
    """No lane is lost, memory stays, the next reply is the same."""
    seed = int.from_bytes(os.urandom(4), "little")
    print("seed", seed)
    count, seconds = (1000, 120) if LONG else (1000 if "asan" not in served.OUT else 300, 4)
    with served.fake(
        tmp_path, "lanes=4,token_us=100", "--read-timeout", "300", "--write-timeout", "300"
    ) as server:
        sha = server.ok(CHAT, chat("free"))["lanewise"]["token_sha"]
        rng = random.Random(seed)
        hold_crowd(server, count, 2, rng)  # pools and buffers find their size
        server.wait_idle(60)
        before = server.metric("lanewise_resident_bytes")
        hold_crowd(server, count, seconds, rng)
        server.wait_idle(60)
        after = server.metric("lanewise_resident_bytes")
        if "san" not in served.OUT:
            assert after - before <= 8 << 20, (before, after)
        assert (
            server.metric("vllm:num_requests_running") == 0 and server.metric("lanewise_requests_open") == 0
        )
        assert server.ok(CHAT, chat("free"))["lanewise"]["token_sha"] == sha


def test_connection_limit(tmp_path):
    with served.fake(tmp_path, "", "--connections", "4") as server:
        held = [server.connect() for _ in range(4)]
        time.sleep(0.2)
        waiting = server.connect()
        waiting.sendall(head("/health", method="GET"))
        waiting.settimeout(0.5)
        with pytest.raises(TimeoutError):
            waiting.recv(1)
        held[0].close()
        waiting.settimeout(10)
        assert waiting.recv(12) == b"HTTP/1.1 200"
        for sock in held[1:] + [waiting]:
            sock.close()


def test_terminal(tmp_path):
    """A live line on a terminal only; start lines in a pipe have no escapes."""
    import pty

    master, slave = pty.openpty()
    process = subprocess.Popen(
        [served.FAKE, "fake:token_us=20000", "--port", "0"], stdout=subprocess.PIPE, stderr=slave
    )
    os.close(slave)
    lines = b""
    while b"\ntry " not in lines:
        lines += process.stdout.read1(4096)
    assert b"\033" not in lines
    import re

    port = int(re.search(rb":(\d+)/v1", lines).group(1))
    sock = socket.create_connection(("127.0.0.1", port))
    sock.sendall(head(CHAT, json.dumps(chat("[[count 100]]")).encode(), more=b"Connection: close\r\n"))
    served.read_all(sock)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    got = os.read(master, 65536)
    assert b"1 streams, 0 waiting" in got and b"tok/s" in got
    process.stdout.close()
    os.close(master)
