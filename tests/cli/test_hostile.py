"""The program where little is as it should be: odd locales, closed streams, no home, odd names, small limits."""

import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import urllib.request

import pytest

from test_cli import BINARY, MODEL, OUT, PROMPT, SECONDS, environment, lanewise, links, needs_model

FEW = ["--max-tokens", "4", "--threads", "1"]
pytestmark = needs_model


def run(*args, folder=MODEL, env=None, limits=(), shell=None):
    """`lanewise run` under limits (resource, count); shell: redirections that only a shell can make."""
    def limit():
        for kind, count in limits:
            resource.setrlimit(kind, (count, count))
    words = [BINARY, "run", folder, "-p", PROMPT, *FEW, *args]
    if shell is not None:
        words = ["sh", "-c", f'exec "$0" "$@" {shell}', *words]
    return subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=SECONDS, env=env or environment(), check=False, preexec_fn=limit)


def ids(done):
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)["ids"]


@pytest.fixture(scope="module", name="whole")
def of_a_whole_run():
    return run().stdout


# ---- locales ----


def lasting(done):
    """What a verb prints, less what changes from one moment to the next."""
    told = json.loads(done.stdout)
    for device in told.get("devices", []):
        assert isinstance(device.pop("free_bytes", 0), int)
    return told


@pytest.mark.parametrize("name", ["de_DE.UTF-8", "tr_TR.UTF-8"])
def test_locales_change_no_number(tmp_path, name):
    made = shutil.which("localedef") and subprocess.run(
        ["localedef", "-i", name.split(".", 1)[0], "-f", "UTF-8", str(tmp_path / name)], check=False,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    if not made:
        pytest.skip(f"localedef cannot make {name} here")
    env = environment(LC_ALL=name, LOCPATH=str(tmp_path))
    warm = ["--json", "--temperature", "0.75", "--seed", "3"]
    assert ids(run(*warm, env=env)) == ids(run(*warm))
    assert re.search(r"prompt \d+ tokens, \d+\.\d tok/s; ", run(env=env).stderr.decode())
    assert run("--temperature", "0,75", env=env).returncode == 2
    for verb in (["devices"], ["info", MODEL]):
        assert lasting(lanewise(*verb, "--json", env=env)) == lasting(lanewise(*verb, "--json"))


# ---- streams ----


@pytest.mark.parametrize("shell, code, text", [
    ("<&-", 0, b"; length; "),
    (">&-", 1, b"lanewise: cannot write to standard output: "),
    ("2>&-", 0, b""),
    ("<&- 2>&-", 0, b""),
    ("<&- >&- 2>&-", 1, b""),
])
def test_closed_streams(whole, shell, code, text):
    done = run(shell=shell)
    assert done.returncode == code and text in done.stderr
    assert done.stdout == (whole if code == 0 else b"")


def test_closed_standard_input_is_no_prompt():
    done = subprocess.run(["sh", "-c", f'exec "$0" run "{MODEL}" <&-', BINARY], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=SECONDS, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"lanewise: standard input: Bad file descriptor\n"


class Server:
    """`lanewise serve` on a free port, with redirections and limits."""

    def __init__(self, shell="", limits=()):
        def limit():
            for kind, count in limits:
                resource.setrlimit(kind, (count, count))
        words = ["sh", "-c", f'exec "$0" "$@" {shell}', BINARY, "serve", MODEL, "--port", "0", "--threads",
                 "1", "--context", "256"]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        env=environment(), preexec_fn=limit)
        for line in self.process.stdout:
            if line.startswith(b"url "):
                self.url = line.split()[1].decode().removesuffix("/v1")
                return
        raise AssertionError(f"the server ended with {self.process.wait(SECONDS)}")

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=SECONDS) as answer:
            return json.load(answer)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(SECONDS)
        finally:
            self.process.kill()
            self.process.stdout.close()


def test_connections_do_not_take_the_place_of_closed_streams():
    server = Server("<&- 2>&-")
    try:
        for fd in (0, 2):
            assert os.readlink(f"/proc/{server.process.pid}/fd/{fd}") == "/dev/null"
        assert server.get("/health")["status"] == "ok"
    finally:
        assert server.end() == 0


# ---- places and names ----


@pytest.mark.parametrize("change", [
    {"HOME": None, "XDG_CACHE_HOME": None, "TMPDIR": None, "PATH": None},
    {"HOME": "", "XDG_CACHE_HOME": "", "TMPDIR": ""},
    {"HOME": "/nowhere", "XDG_CACHE_HOME": "/proc/nowhere", "TMPDIR": "/nowhere"},
    {"HOME": "not absolute", "XDG_CACHE_HOME": "\n", "LC_ALL": "nonsense", "TERM": ""},
])
def test_odd_environments(whole, change):
    env = {key: value for key, value in environment(**change).items() if value is not None}
    done = run(env=env)
    assert (done.returncode, done.stdout) == (0, whole), done.stderr.decode()


@pytest.mark.parametrize("name", ["a b", "a\nb", b"\xff\xfe", "'\"$x;`", "ü" * 100, "-p", "%s%n"])
def test_odd_names_of_folders(tmp_path, whole, name):
    name = os.fsdecode(name)
    folder = tmp_path / name
    folder.mkdir()
    links(folder, "ref64.safetensors")
    done = run(folder=str(folder))
    assert (done.returncode, done.stdout) == (0, whole), done.stderr.decode()
    found = json.loads(lanewise("info", str(folder), "--json").stdout)
    assert found["served"] and found["model"] == os.fsencode(str(folder)).decode(errors="replace")
    (folder / "tokenizer.json").unlink()
    assert os.fsencode(name) in run(folder=str(folder)).stderr
    assert "tokenizer.json" in json.loads(lanewise("info", str(folder), "--json").stdout)["tokenizer_error"]


# ---- limits ----


@pytest.mark.parametrize("count", range(3, 9))
def test_few_descriptors(whole, count):
    done = run(limits=[(resource.RLIMIT_NOFILE, count)])
    assert done.returncode in (0, 1, 127)  # 127: the loader itself found none
    assert done.stdout == (whole if done.returncode == 0 else b"")
    assert done.returncode == 0 or done.stderr != b""


def test_a_server_with_few_descriptors_goes_on():
    server = Server("2>/dev/null", [(resource.RLIMIT_NOFILE, 24)])
    address = server.url.removeprefix("http://").rsplit(":", 1)
    try:
        crowd = [socket.create_connection((address[0], int(address[1])), SECONDS) for _ in range(40)]
        for one in crowd:
            one.close()
        assert server.get("/health")["status"] == "ok"
    finally:
        assert server.end() == 0


@pytest.mark.skipif("san" in OUT, reason="sanitizers want an address space of terabytes")
def test_memory_that_runs_out_is_an_error(whole):
    refused = answered = 0
    for kib in range(16000, 120001, 8000):
        done = run(limits=[(resource.RLIMIT_AS, kib << 10)])
        if done.returncode == 127:  # the loader
            continue
        assert done.returncode in (0, 1), (kib, done.returncode, done.stderr)
        assert done.stdout == (whole if done.returncode == 0 else b"")
        assert done.returncode == 0 or re.match(rb"lanewise: .*memory", done.stderr), (kib, done.stderr)
        refused += done.returncode
        answered += done.returncode == 0
    assert refused > 0 and answered > 0
