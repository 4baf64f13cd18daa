"""Our chat templates against Jinja2 itself: byte for byte on every template at hand and on small snippets.

A snippet that ours refuses by name as unsupported is counted and must stand in REFUSED; silence is never a pass.
"""
import pytest

import chat_reference as ref
import chat_snippets as snippets

RAISES = "chat template raises: "

# What Jinja2 renders and we refuse by name: part of a name's text, as the refusal says it.
REFUSED = [
    "half a surrogate", "64 bits", "is not supported", "not supported", "several subscripts",
]


@pytest.fixture(scope="module")
def driver():
    if not ref.DRIVER.exists():
        pytest.skip(f"{ref.DRIVER} is not built")
    driver = ref.Driver()
    yield driver
    assert driver.close() == 0, "the driver did not end well"


def check(driver, source, job):
    """Returns 'same', 'both fail' or 'refused'; anything else fails the test."""
    kind, wanted = ref.reference(source, job)
    got = driver.render({**job, "template": source})
    if "text" in got:
        assert kind == "text", f"{source!r}: Jinja2 fails with {wanted!r}, ours gives {got['text']!r}"
        assert got["text"] == wanted, source
        assert len(got["origins"]) == len(wanted.encode())
        return "same"
    if kind == "text":
        assert got["status"] == "unsupported", f"{source!r}: Jinja2 gives {wanted!r}, ours fails with {got['error']}"
        assert any(word in got["error"] for word in REFUSED), got["error"]
        return "refused"
    if kind == "raise":
        assert got["error"] == RAISES + wanted
    else:
        assert not got["error"].startswith(RAISES), got["error"]
    assert got["status"] in ("bad input", "unsupported", "no room"), got
    return "both fail"


@pytest.mark.parametrize("name", sorted(ref.templates()))
def test_template(driver, name):
    source, bos, eos = ref.templates()[name]
    seen = {"same": 0, "both fail": 0, "refused": 0}
    for _, job in ref.conversations():
        seen[check(driver, source, {**job, "bos_token": bos, "eos_token": eos})] += 1
    print(name, seen)
    assert seen["same"] > 300 and seen["refused"] == 0, seen


def test_templates_are_there():
    if not ref.templates():
        pytest.skip("no model folder with a chat template here")


@pytest.mark.parametrize("expression", snippets.EXPRESSIONS)
def test_expression(driver, expression):
    check(driver, "{{ " + expression + " }}", snippets.CONTEXT)


@pytest.mark.parametrize("at", range(len(snippets.TEMPLATES)))
def test_snippet(driver, at):
    check(driver, snippets.TEMPLATES[at], snippets.CONTEXT)


def test_few_snippets_are_refused(driver):
    sources = ["{{ " + e + " }}" for e in snippets.EXPRESSIONS] + snippets.TEMPLATES
    verdicts = [check(driver, source, snippets.CONTEXT) for source in sources]
    refused = [s for s, v in zip(sources, verdicts) if v == "refused"]
    print(len(sources), verdicts.count("same"), verdicts.count("both fail"), refused)
    assert verdicts.count("same") > 200
    assert len(refused) < 25, refused


def test_control_a_wrong_template_shows(driver):
    """The comparison itself can fail."""
    with pytest.raises(AssertionError):
        kind, wanted = ref.reference("a", snippets.CONTEXT)
        assert driver.render({**snippets.CONTEXT, "template": "b"})["text"] == wanted


FIRST_MARK = 0xE000


def mark(value):
    """The same data with every text made of private characters (keys and roles stay: templates look them up)."""
    if isinstance(value, str):
        return "".join(chr(FIRST_MARK + ord(c) % 256) for c in value)
    if isinstance(value, list):
        return [mark(v) for v in value]
    if isinstance(value, dict):
        return {k: (v if k in ("role", "type") else mark(v)) for k, v in value.items()}
    return value


@pytest.mark.parametrize("name", sorted(ref.templates()))
def test_origins(driver, name):
    """Each byte of private text is outside; the template's own words between them are trusted."""
    source, bos, eos = ref.templates()[name]
    marked = 0
    for _, job in ref.conversations():
        job = {**job, "bos_token": bos, "eos_token": eos,
               "messages": [mark(m) for m in job["messages"]], "tools": mark(job["tools"])}
        got = driver.render({**job, "template": source})
        if "text" not in got:
            continue
        at = 0
        for c in got["text"]:
            count = len(c.encode())
            flags = got["origins"][at : at + count]
            at += count
            if "\ue000" <= c <= "\ue0ff":
                assert flags == "1" * count, (source, got["text"])
                marked += 1
        for word in ("<|im_start|>", "<|im_end|>", "<think>", "<｜Assistant｜>", "<｜User｜>"):
            where = got["text"].find(word)
            while where >= 0:
                begin = len(got["text"][:where].encode())
                assert set(got["origins"][begin : begin + len(word.encode())]) == {"0"}, (word, got["text"])
                where = got["text"].find(word, where + 1)
    assert marked > 1000
