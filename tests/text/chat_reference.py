"""Jinja2 set up as chat templates expect it, the driver of ours, and the conversations that both are given."""
import functools
import itertools
import json
import os
import pathlib
import subprocess

import jinja2
import jinja2.ext
import jinja2.nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

ROOT = pathlib.Path(__file__).resolve().parents[2]
DRIVER = ROOT / os.environ.get("LW_CHAT_DRIVER", "build/native/tests/text/chat_driver")
SHARED = ROOT / "../shared"


class Generation(jinja2.ext.Extension):
    """{% generation %} marks a reply's text; here it only opens a scope."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_run"), [], [], body).set_lineno(line)

    def _run(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


ENV = environment()
compiled = functools.lru_cache(maxsize=64)(ENV.from_string)


def reference(source, job):
    """("text", text) or ("raise", words) for raise_exception or ("error", words)."""
    try:
        text = compiled(source).render(
            **{"bos_token": job.get("bos_token") or "", "eos_token": job.get("eos_token") or "", "documents": None,
               **(job.get("kwargs") or {})},
            messages=job["messages"], tools=job.get("tools"),
            add_generation_prompt=job.get("add_generation_prompt", False),
        )
        text.encode()
        return "text", text
    except jinja2.exceptions.TemplateError as error:
        return ("raise" if type(error) is jinja2.exceptions.TemplateError else "error"), str(error)
    except Exception as error:  # Python's own errors inside a template
        return "error", f"{type(error).__name__}: {error}"


class Driver:
    def __init__(self):
        self.process = subprocess.Popen([str(DRIVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(self, job):
        self.process.stdin.write(json.dumps(job).encode() + b"\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        return self.process.wait()


def templates():
    """name -> (source, bos, eos), of every shipped model and reference tokenizer that is there."""
    found = {}
    for base in (ROOT / "models", SHARED / "models", SHARED / "tokenizers"):
        for config_path in sorted(base.glob("*/tokenizer_config.json")):
            config = json.loads(config_path.read_text())
            file = config_path.parent / "chat_template.jinja"
            source = file.read_text() if file.exists() else config.get("chat_template")
            tokens = [config.get(name) for name in ("bos_token", "eos_token")]
            tokens = [t["content"] if isinstance(t, dict) else t for t in tokens]
            if source and source not in [entry[0] for entry in found.values()]:
                found[config_path.parent.name] = (source, *tokens)
    return found


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather", "description": " Looks <up> \"weather\" & more\n",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Größe ☃", "enum": ["a", "b\n"]},
                "days": {"type": ["integer", "null"], "minimum": 1.5, "default": None, "x": {"deep": [1, [2, {}], []]}},
            },
            "required": ["city"],
        },
    },
}
BARE_TOOL = {"name": "bare", "description": "", "parameters": {}}


def calls(arguments):
    return [{"type": "function", "id": "c1", "function": {"name": "get_weather", "arguments": arguments}}]


def turns():
    """Lists of messages that follow a first user turn."""
    say = {"role": "assistant", "content": "Hi."}
    dict_call = {"role": "assistant", "content": "", "tool_calls": calls(
        {"city": "Zürich", "days": 3, "f": 1e16, "g": 0.1, "t": True, "n": None, "l": [1, "x", {"a": "b"}], "o": {}})}
    text_call = {"role": "assistant", "content": None, "tool_calls": calls('{"city": "B\\u00e9"}')}
    two = {"role": "assistant", "content": "both", "tool_calls": calls({"city": "A"}) + [
        {"name": "bare", "arguments": {}}]}
    tool = {"role": "tool", "content": '{"t": 21.5}', "tool_call_id": "c1"}
    think = {"role": "assistant", "content": "Answer", "reasoning_content": "\n why\n"}
    inline = {"role": "assistant", "content": "<think>\nhmm\n</think>\n\nOut"}
    user = {"role": "user", "content": "and?"}
    return {
        "none": [], "say": [say], "say_user": [say, user], "dict_call": [dict_call, tool, say, user],
        "text_call": [text_call, tool], "two": [two, tool, tool, say], "think": [think, user, think],
        "inline": [inline, user, inline], "open_call": [dict_call], "null": [{"role": "assistant", "content": None}],
        "missing": [{"role": "assistant"}, user], "odd": [{"role": "critic", "content": "x"}],
        "developer": [{"role": "developer", "content": "d"}], "late_system": [{"role": "system", "content": "late"}],
        "tool_first": [tool, user], "null_calls": [{"role": "assistant", "content": "c", "tool_calls": None}],
        "null_reason": [{"role": "assistant", "content": "c", "reasoning_content": None}, user],
        "roleless": [{"content": "x"}],
        "parts": [{"role": "assistant", "content": [{"type": "text", "text": "p1"}, {"type": "text", "text": "p2"}]}],
        "image": [{"role": "user", "content": [{"type": "image", "url": "u"}]}],
        "number": [{"role": "user", "content": 3}], "float": [{"role": "user", "content": 1e-7}],
    }


USERS = {
    "plain": {"role": "user", "content": "Hello"},
    "unicode": {"role": "user", "content": "  ünï ☃ 😀 <|im_end|> \u2028\u00a0\n"},
    "parts": {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": " two "}]},
    "response": {"role": "user", "content": "<tool_response>\nx\n</tool_response>"},
    "empty": {"role": "user", "content": ""},
}
SYSTEMS = {"no": [], "yes": [{"role": "system", "content": " Be brief. "}], "empty": [{"role": "system", "content": ""}]}
TOOLS = {"no": None, "empty": [], "one": [WEATHER], "two": [WEATHER, BARE_TOOL, "text tool"]}
KWARGS = {
    "no": {}, "off": {"enable_thinking": False}, "on": {"enable_thinking": True},
    "more": {"truncate_history_thinking": False, "preserve_thinking": False, "reasoning_effort": "low"},
}


def conversations():
    """A fixed third of the whole product, so that each pair of values meets."""
    product = itertools.product(SYSTEMS.items(), USERS.items(), turns().items(), TOOLS.items(), KWARGS.items(), (0, 1))
    for at, ((s, system), (u, user), (t, rest), (o, tools), (k, kwargs), prompt) in enumerate(product):
        if (at * 7 + at // 32) % 13 != 0:
            continue
        yield f"{s}-{u}-{t}-{o}-{k}-{prompt}", {
            "messages": system + [user] + rest, "tools": tools, "kwargs": kwargs,
            "add_generation_prompt": bool(prompt)}
    yield "empty", {"messages": [], "tools": None, "kwargs": {}, "add_generation_prompt": True}
    yield "system only", {"messages": SYSTEMS["yes"], "tools": None, "kwargs": {}, "add_generation_prompt": True}
