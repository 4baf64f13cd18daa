"""A server process for tests, and plain HTTP over a socket to talk to it."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OUT = os.path.join(ROOT, os.environ.get("LW_TEST_OUT", "build/native"))
FAKE = os.path.join(OUT, "tests", "serve", "fake_driver")
LANEWISE = os.path.join(OUT, "lanewise")
MODEL = os.path.join(ROOT, "models", "lfm3-mlx4")
SECONDS = 60


class Server:
    """One process of the server. What it wrote to standard error is in self.log() after stop()."""

    def __init__(self, command, log_path, env=None):
        self.log_path = log_path
        # What a server keeps for its next start stays in this test's folder.
        own = {"XDG_CACHE_HOME": os.path.join(os.path.dirname(os.path.abspath(log_path)), "cache")}
        env = {**os.environ, **own} if env is None else env
        with open(log_path, "wb") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=env)
        self.start_lines = b""
        while b"\ntry " not in self.start_lines or not self.start_lines.endswith(b"\n"):
            piece = self.process.stdout.read1(4096)
            assert piece, f"the server did not start: {self.log()}"
            self.start_lines += piece
        self.port = int(re.search(rb"url +http://\S+:(\d+)/v1", self.start_lines).group(1))
        self.url = f"http://127.0.0.1:{self.port}"

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def connect(self, timeout=SECONDS):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def request(self, method, path, body=None, headers=None):
        """(status, headers, body bytes) over a connection of its own."""
        conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        with contextlib.closing(conn):
            conn.request(method, path, body=body, headers=headers or {})
            reply = conn.getresponse()
            return reply.status, dict((k.lower(), v) for k, v in reply.getheaders()), reply.read()

    def get(self, path, **headers):
        status, _, body = self.request("GET", path, headers=headers)
        return status, json.loads(body)

    def post(self, path, value, headers=None):
        body = value if isinstance(value, (bytes, str)) else json.dumps(value)
        status, _, got = self.request("POST", path, body=body, headers=headers)
        return status, json.loads(got)

    def ok(self, path, value):
        status, body = self.post(path, value)
        assert status == 200, body
        return body

    def error(self, path, value, status=400):
        got, body = self.post(path, value)
        assert got == status, (got, body)
        assert set(body["error"]) >= {"message", "type", "param", "code"}
        return body["error"]

    def events(self, path, value):
        """The data of each event; the last one must be [DONE]."""
        value = dict(value, stream=True)
        status, headers, body = self.request("POST", path, body=json.dumps(value))
        assert status == 200, body
        assert headers["content-type"] == "text/event-stream"
        lines = [line for line in body.decode().split("\n\n") if line]
        assert all(line.startswith(("data: ", ": ")) for line in lines), body
        datas = [line[6:] for line in lines if line.startswith("data: ")]
        assert datas[-1] == "[DONE]"
        return [json.loads(data) for data in datas[:-1]]

    def raw(self, data, timeout=SECONDS):
        """Sends bytes, then reads to the end of the connection."""
        with self.connect(timeout) as sock:
            sock.sendall(data)
            return read_all(sock)

    def metric(self, name):
        _, _, body = self.request("GET", "/metrics")
        found = re.search(rf"^{re.escape(name)}\{{[^}}]*\}} (\S+)$", body.decode(), re.M)
        assert found, name
        return float(found.group(1))

    def wait_for(self, ready, seconds=20):
        end = time.monotonic() + seconds
        while not ready(self.get("/health")[1]):
            assert time.monotonic() < end, self.get("/health")
            time.sleep(0.02)

    def wait_idle(self, seconds=20):
        self.wait_for(lambda h: h["running"] == 0 and h["waiting"] == 0 and h["open"] == 0, seconds)

    def stop(self):
        """Ends it and returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(SECONDS)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self.process.stdout.close()


def read_all(sock):
    got = b""
    while True:
        try:
            piece = sock.recv(65536)
        except ConnectionResetError:
            return got
        if not piece:
            return got
        got += piece


@contextlib.contextmanager
def fake(tmp_path, options="", *flags, env=None):
    """The server over canned replies; a clean exit is demanded."""
    server = Server(
        [FAKE, "fake:" + options, "--port", "0", "--served-name", "fake", *flags],
        os.path.join(str(tmp_path), f"log{time.monotonic_ns()}"),
        env,
    )
    try:
        yield server
    except BaseException:
        server.process.kill()
        server.stop()
        print(server.log())
        raise
    assert server.stop() == 0, server.log()
    assert "Sanitizer" not in server.log(), server.log()


def chat(text, **more):
    return dict({"messages": [{"role": "user", "content": text}]}, **more)


def head(path, body=b"", method="POST", more=b""):
    length = b"Content-Length: %d\r\n" % len(body) if method == "POST" else b""
    return b"%s %s HTTP/1.1\r\nHost: localhost\r\n%s%s\r\n%s" % (
        method.encode(),
        path.encode(),
        length,
        more,
        body,
    )
