"""The server on the emulated device: receipts over HTTP, and what clients see when the device is lost or hangs."""
import json
import os
import re
import sys
import threading
import time

import pytest
from emulated import BINARY, KINDS, LFM, ROOT, environment, lanewise, needs_kernels, needs_loader

sys.path.insert(0, str(ROOT / "tests" / "serve"))
import served  # noqa: E402

pytestmark = [needs_loader, needs_kernels]


def start(folder, *flags, **more):
    env = environment(XDG_CACHE_HOME=str(folder / "cache"), **more)
    command = [str(BINARY), "serve", str(LFM), "--device", "xpu", "--port", "0", *flags]
    return served.Server(command, os.path.join(str(folder), "log"), env)


def test_a_server_keeps_every_law(tmp_path):
    server = start(tmp_path, "--context", "1024", "--parallel", "8")
    try:
        assert "xpu" in server.start_lines.decode()
        done = lanewise("receipts", "--url", server.url, "--quick", "--tokens", "8", "--json",
                        "--allow-unshown")
        assert done.returncode == 0, done.stdout + done.stderr
        report = json.loads(done.stdout)
        assert report["holds"] and len(report["receipts"]) == 6
        # Drafts are tried where they are worth their time, and the clock here says nothing of a device.
        assert all(r["shown"] or r["law"] == "drafted == plain" for r in report["receipts"]), report
    finally:
        code = server.stop()
    assert code == 0, server.log()


# Launches: past the start, of which the server before has kept the times, and within the reply.
LOSE_AT = "4000"
# Past the start too, which times rounds: more of them where nothing is computed.
HANG_AT = "60000"


def events_of(body):
    return [line[6:] for line in body.decode().split("\n\n") if line.startswith("data: ")]


def test_a_lost_device_ends_replies_and_the_process(tmp_path):
    """Text so far stands and is a prefix of the reply on a sound device; then an error, and the process leaves for
    what started it to start it again."""
    value = {"prompt": "One, two, three", "max_tokens": 80, "stream": True, "ignore_eos": True, "temperature": 0}
    flags = ["--context", "1024", "--parallel", "1", "--no-drafts"]
    sound = start(tmp_path, *flags)
    whole = "".join(event["choices"][0]["text"] for event in sound.events("/v1/completions", value))
    assert sound.stop() == 0

    server = start(tmp_path, *flags, LW_EMULATED_LOSE_AT=LOSE_AT)
    status, _, body = server.request("POST", "/v1/completions", body=json.dumps(value))
    events = events_of(body)
    code = server.process.wait(served.SECONDS)
    server.stop()
    assert status == 200 and events[-1] == "[DONE]", body
    last = json.loads(events[-2])
    assert last["error"]["code"] == "device_lost", last
    text = "".join(json.loads(event)["choices"][0]["text"] for event in events[:-2])
    assert text and whole.startswith(text) and text != whole
    assert code == 1 and "device lost" in server.log()


def test_a_hung_device_is_told_of_and_given_up(tmp_path):
    """While it is waited for, /health says so; then the request fails by name and the process leaves. Nothing is
    computed before."""
    value = {"prompt": "One, two, three", "max_tokens": 900, "ignore_eos": True, "temperature": 0}
    server = start(tmp_path, "--context", "1024", "--parallel", "1", "--no-drafts", "--device-wait", "4",
                   LW_EMULATED_IDLE="1", LW_EMULATED_HANG_AT=HANG_AT)
    assert server.get("/health")[1]["status"] == "ok"
    replies = []
    asking = threading.Thread(target=lambda: replies.append(server.post("/v1/completions", value)))
    asking.start()
    end = time.monotonic() + served.SECONDS
    health = 200, {"status": "ok"}
    while health[0] == 200 and time.monotonic() < end:
        time.sleep(0.1)
        health = server.get("/health")
    asking.join(served.SECONDS)
    code = server.process.wait(served.SECONDS)
    server.stop()
    assert health[0] == 503 and health[1]["status"] == "stalled", health
    (status, body), = replies
    assert status == 503 and body["error"]["code"] == "device_lost", body
    assert "did not finish in 4 s" in body["error"]["message"]
    assert code == 1 and "did not finish in 4 s" in server.log()


@pytest.mark.parametrize("kind", KINDS)
def test_a_device_that_is_too_small_says_so(tmp_path, kind):
    def refusal(flags, megabytes):
        done = lanewise("serve", LFM, "--device", "xpu", "--port", "0", *flags, LW_EMULATED_KIND=kind,
                        LW_EMULATED_BYTES=str(megabytes * 10**6), LW_EMULATED_NO_SYSMAN="1",
                        XDG_CACHE_HOME=str(tmp_path))
        assert done.returncode == 1 and done.stdout == "", done.stdout
        return done.stderr

    assert re.search(r"the model wants 0\.\d\d GiB .*, and 0\.01 GiB are free", refusal([], 9))
    text = refusal(["--context", "8192", "--parallel", "8"], 120)
    assert re.search(r"--parallel 8 wants 0\.\d\d GiB .* and 0\.\d\d GiB are left .* --parallel \d .* would fit", text)
