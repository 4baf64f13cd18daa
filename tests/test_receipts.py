"""`lanewise receipts` and `lanewise bench --url` as users run them: over the shipped models, and over a server."""

import contextlib
import json
import os
import re
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OUT = os.environ.get("LW_TEST_OUT", "")
BINARY = os.path.join(ROOT, OUT, "lanewise") if OUT else os.path.join(ROOT, "build", "lanewise")
MODELS = [os.path.join(ROOT, "models", name) for name in ("lfm3-mlx4", "qwen35-mlx4", "nemotron-mlx4")]
MODEL = MODELS[0]
SECONDS = 300

pytestmark = pytest.mark.skipif(not os.path.isdir(MODEL), reason=f"no model at {MODEL}")


def lanewise(*args):
    return subprocess.run([BINARY, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=SECONDS, check=False, text=True)


@contextlib.contextmanager
def serving(tmp_path_factory, *flags):
    server = subprocess.Popen([BINARY, "serve", MODEL, "--port", "0", "--threads", "1", *flags],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              env={**os.environ, "XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache"))})
    found = None
    for line in server.stdout:
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        if found:
            break
    assert found, "the server said no address"
    yield found.group(0)
    server.terminate()
    server.stdout.close()
    assert server.wait(timeout=SECONDS) == 0


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """A server on a port of its own choice."""
    if " serve " not in lanewise("--help").stdout:
        pytest.skip("this build has no server")
    with serving(tmp_path_factory) as found:
        yield found


def check_receipts(report, laws):
    assert report["holds"] is True
    assert len(report["receipts"]) == laws
    for receipt in report["receipts"]:
        assert receipt["holds"] and receipt["control_caught"], receipt
        for kind in ["greedy", "sampled"]:
            equal, asked = receipt[kind]
            assert equal == asked >= 4, receipt


@pytest.mark.parametrize("options", [[], ["--kv-int8"], ["--act-int8"]], ids=["plain", "int8-kv", "int8-activations"])
@pytest.mark.parametrize("model", MODELS, ids=os.path.basename)
def test_a_shipped_model_keeps_every_law(model, options):
    done = lanewise("receipts", model, "--quick", "--json", "--threads", "1", *options)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    check_receipts(report, 7)
    assert all(receipt["shown"] for receipt in report["receipts"]), report


def test_a_server_keeps_every_law_that_can_be_asked_of_it(url):
    done = lanewise("receipts", "--url", url, "--quick", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    check_receipts(report, 6)
    assert report["shown"] and all(receipt["shown"] for receipt in report["receipts"]), report


def test_a_law_that_was_not_shown_is_a_failure_unless_it_may_be(tmp_path_factory):
    with serving(tmp_path_factory, "--no-drafts") as url:
        done = lanewise("receipts", "--url", url, "--quick")
        assert done.returncode == 1, done.stdout
        assert "5 of 6 laws were shown to hold, 0 failed" in done.stdout
        assert "drafted == plain was not shown: no drafts kept" in done.stdout and "--allow-unshown" in done.stdout
        done = lanewise("receipts", "--url", url, "--quick", "--allow-unshown", "--json")
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert report["holds"] and not report["shown"]


def test_the_speed_of_a_server_is_set_against_the_bare_engine(url):
    done = lanewise("bench", MODEL, "--url", url + "/v1", "--prompt", "32", "--decode", "8", "--threads", "1", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["server"]
    assert [(row["streams"], row["resumed"]) for row in rows] == [(n, r) for n in (1, 2, 4, 8) for r in (False, True)]
    for row in rows:
        assert row["tokens"] == 8 * row["streams"] and row["tok_s"] > 0 and row["first_ms"] > 0, row
        assert (row["cached_tokens"] > 0) == row["resumed"], row


@pytest.mark.parametrize("args, words", [
    (["receipts"], "give a MODEL folder, or --url"),
    (["receipts", MODEL, "--url", "http://127.0.0.1:1"], "give a MODEL folder, or --url"),
])
def test_wrong_usage_is_named(args, words):
    done = lanewise(*args)
    assert done.returncode == 2 and words in done.stderr


@pytest.mark.parametrize("args, words", [
    (["receipts", "--url", "http://127.0.0.1:1"], "is the server running?"),
    (["receipts", "--url", "https://127.0.0.1"], "https is not spoken here"),
    (["receipts", "models/absent"], "models/absent"),
])
def test_what_cannot_be_asked_is_named(args, words):
    done = lanewise(*args)
    assert done.returncode == 1 and words in done.stderr
