"""Small templates, one feature each. The context of all of them is CONTEXT."""

CONTEXT = {
    "messages": [
        {"role": "system", "content": "Sys"},
        {"role": "user", "content": " héllo Wörld\n", "n": 3, "f": 2.5, "items": "own", "b": True, "z": None},
        {"role": "assistant", "content": None, "tags": ["b", "A", "c", "a"], "d": {"y": 2, "x": 1, "Z": 0}},
        {"role": "user", "content": "1.50", "big": 9007199254740993, "deep": {"a": [1, {"b": [2.0, "q'\"\\\n\t\u00a0☃"]}]}},
    ],
    "tools": [{"name": "t1", "k": 1}, {"name": "t2", "k": 0}],
    "kwargs": {"s": "a,b,,c", "text": "line one\r\n  line two\n\nlast\u2028end", "flag": False, "num": 7,
               "floats": [0.1, 1e16, 1e-5, 123456789.125, 1e22, -0.0, 5e-324, 1.7976931348623157e308, 100.0, 0.0001],
               "sharp": "ßŉ ǆ ΑΣ ΑΣΑ İi ﬁ", "empty": "", "nul": "a\u0000b"},
    "add_generation_prompt": True,
    "bos_token": "<s>",
    "eos_token": "</s>",
}

EXPRESSIONS = r"""
1 + 2 * 3 - 4 // 3 % 2
7 // 2, -7 // 2, 7 // -2, -7 % 3, 7 % -3, 7.5 // 2, -7.5 // 2, -7.5 % 2, 7.5 % -2, 0.0 % -1
2 ** 3, 2 ** -1, 2 ** 3 ** 2, -2 ** 2, 2.0 ** 0.5, 0 ** 0, (-1) ** 3
7 / 2, 6 / 3, 1 / 3, 1e3, 1.5e-7, 10 ** 18, 1_000, 0x1F, 0b11, 0o17, 1e100
1 / 0
1 % 0
9223372036854775807 - 1
true + 1, true == 1, 1 == 1.0, false == none, "a" == "a", [1] == [1.0], (1,) == [1], {} == {}
1 < 2 < 3, 1 < 3 < 2, "a" < "b" <= "b", [1, 2] < [1, 3], 3 > 2 >= 2 != 5
"a" < 1
none < none
not true, not "", not [0], not none
1 and 2, 0 and 2, 0 or "x", "" or none, 1 or 1 / 0
"a" in "abc", "z" not in "abc", 1 in [1, 2], "x" in {"x": 1}, 2 in (1, 2), "role" in messages[0], "q" in undefinedthing
1 in "abc"
1 in 5
"yes" if flag else "no"
"yes" if flag
("yes" if flag) is undefined
1 if 0 else 2 if 0 else 3
"a" ~ 1 ~ none ~ true ~ 2.5 ~ [1, "x"] ~ {"k": (1,)} ~ undefinedthing
"con" "cat" 'ed'
"a" + "b" * 3, [1] + [2] * 2, 2 * "ab", (1,) + (2,)
"a" + 1
none + 1
[1, 2, 3][0], [1, 2, 3][-1], [1, 2, 3][5], "héllo"[1], "héllo"[-1], "héllo"[9], (1, 2)[1], {"a": 1}["a"], {"a": 1}.a
[1, 2, 3][true], [1, 2]["0"], 5[0], {"a": 1}["zz"], {1: 2}[1.0]
"héllo wörld"[1:4], "héllo"[::-1], "héllo"[::2], "héllo"[-3:], "héllo"[:-2], "abc"[5:], "abc"[-9:2], "abcdef"[4:1:-2]
[1, 2, 3, 4][1:3], [1, 2, 3][::-1], [1, 2, 3, 4][-3:-1], [1, 2, 3][::-2], (1, 2, 3)[1:], [1, 2][9:], [0, 1, 2][:9:2]
[1, 2][::0]
none[1:]
{"a": 1}[1:]
undefinedthing[1:]
undefinedthing.x
undefinedthing["x"]
messages[0].nope, messages[0].nope is defined, messages[9] is defined
messages[0].nope.nope
messages.0.role, messages[1].content, messages[1].items, messages[1]["items"]
messages[1].items()
messages[3].deep, messages[3].deep.a[1].b[1]
messages[3].big, messages[1].f, messages[1].b, messages[1].z
bos_token ~ eos_token, documents, add_generation_prompt
floats
floats | join(" ")
1e15, 1e16, 123456789012345678.0, 1e-4, 1e-5, 0.1 + 0.2, 100.0, -0.0, 1e308 * 10, -(1e308 * 10), 5e-324
[1e308 * 10, 2] | tojson
none, true, false, None, True, False
[none, true, "a'b", 'a"b', "a'\"b", "\x00\x7f\u00a0\u200b\U0001F600é"], (), (1,), [], {}
{"a": {"b": [1, (2, 3)]}, 1: none, none: 2}
{"a": 1, "a": 2}
"\t|\n|\\|\'|\"|\a|\x41|\u00e9|\101|\q"
"é" ~ "日本" ~ '😀'
"  x ".strip() ~ "|" ~ "xxaxx".strip("x") ~ "|" ~ "abcxcba".lstrip("abc") ~ "|" ~ "x\n\n".rstrip("\n") ~ "|" ~ "\u00a0é\u3000".strip()
"ééxé".strip("é"), "aéb".strip("ab"), "".strip(), "abc".strip(""), " a ".strip(none)
"a,b,,c".split(","), "a b  c ".split(), "a b c".split(" ", 1), "abc".split("x"), "".split(), "".split(","), "  a  b  c ".split(none, 1)
"abc".split("")
"a-b-c".rsplit("-", 1), "a-b-c".rsplit("-"), "aaa".rsplit("aa"), "x".rsplit("-", 2)
"a\nb\r\nc\x0bd\u2028e\n".splitlines(), "".splitlines(), "\n".splitlines()
"Hello".startswith("He"), "Hello".endswith(("x", "lo")), "Hello".startswith(""), "".endswith("x")
"a".startswith(1)
"hello".replace("l", "L"), "hello".replace("l", "L", 1), "abc".replace("", "-"), "abc".replace("", "-", 2), "".replace("", "x"), "é☃".replace("", ".")
"hello world".title(), "HELLO wORLD".capitalize(), "they're bill's".title(), "ǆx ßx".title(), "ǆX".capitalize(), "ßa".capitalize()
sharp.upper() ~ "|" ~ sharp.lower() ~ "|" ~ sharp.title() ~ "|" ~ sharp.capitalize()
sharp | upper ~ sharp | lower ~ sharp | title ~ sharp | capitalize
"hello-world (foo) [bar] {baz} <qux> a'b" | title
"x".join(["a", "b"]), ",".join("abc"), "".join([])
",".join([1])
"héllo".find("l"), "héllo".find("z"), "héllo".rfind("l"), "héllo".count("l"), "aaaa".count("aa"), "ab".count(""), "héllo".index("o")
"a".index("z")
"abc".removeprefix("a"), "abc".removesuffix("bc"), "abc".removeprefix("x")
"123".isdigit(), "".isdigit(), "a1".isalpha(), "é".isalpha(), " \t".isspace(), "AB".isupper(), "ab".islower(), "A1".isupper(), "1".isupper(), "é".isascii()
{"a": 1, "b": 2}.items() | list, {"a": 1}.keys() | list, {"a": 1}.values() | list
{"a": 1}.items(), {"a": 1}.keys(), {"a": 1}.values(), {}.items()
{"a": 1}.get("a"), {"a": 1}.get("b"), {"a": 1}.get("b", 5), messages[0].get("role")
[1, 2].append(3)
[1, 2].append is defined, {}.update is defined, {}.get is defined, "".nope is defined
{"a": 1}.pop("a")
[1, 2, 2].count(2), [1, 2].index(2), (1, 2).count(1)
"a".__class__
"abc" is string, 1 is string, messages[0] is mapping, [] is sequence, "a" is sequence, {} is sequence, 1 is sequence
1 is number, true is number, 1.0 is number, 1 is integer, true is integer, 1.0 is float, true is boolean, 1 is boolean
none is none, 0 is none, undefinedthing is none, undefinedthing is undefined, 1 is defined, none is defined
true is true, 1 is true, false is false, 0 is false, undefinedthing is false
[] is iterable, 1 is iterable, "a" is iterable, undefinedthing is iterable, undefinedthing is sequence, none is iterable
3 is odd, 4 is even, 9 is divisibleby 3, 9 is divisibleby(2), 1 is in [1, 2], "a" is in "abc", 1 is not in [2]
1 is eq 1, 1 is equalto(2), 1 is ne 2, 1 is lt 2, 2 is gt(1), 1 is ge 1, 1 is le 0, "a" is == "a"
"abc" is lower, "ABC" is upper, "aB" is lower, "1" is upper
"abc" is nosuchtest
range is callable, 1 is callable
"a" is not string, 1 is not none and 2 is defined
{}.items() is sequence, {}.items() is iterable, range(3) is sequence, ([1] | map("int")) is sequence
"  x " | trim ~ "|", "xax" | trim("x"), 5 | trim, none | trim, undefinedthing | trim
"abc" | length, [1, 2] | count, {"a": 1} | length, "é☃" | length, undefinedthing | length, range(4) | length
5 | length
none | length
[1] | map("string") | length
messages[3].deep | tojson
messages | tojson
messages | tojson(indent=2)
messages[2].d | tojson(indent=1, sort_keys=true), [] | tojson(indent=2), {"a": []} | tojson(indent="--"), [1, [2]] | tojson(indent=0)
[1, 2.0, 1e16, true, none, "\x01\x1f\x7f\u2028é😀\"\\/\b\f\n\r\t", (1,), {"k": {}}, {1: 2, 1.5: 3, true: 4, none: 5}] | tojson
["é😀\u2028", {"ü": 1}] | tojson(ensure_ascii=true)
[1, {"a": 2}] | tojson(separators=(",", ":")), [1, 2] | tojson(indent=2, separators=(" ,", " :"))
undefinedthing | tojson
"<&>'" | tojson
namespace(a=1) | tojson
range(3) | tojson
5 | string ~ none | string, [1] | string
"<a>&'\"" | e, "<a>" | escape | e, "<a>" | safe | e, 5 | e
("<a>" | safe) + "<b>", "<b>" + ("<a>" | safe), ("<a>" | safe) ~ "<b>", ("<a>" | e) + ("<b>" | e)
[("<a>" | safe)]
("<a>" | safe) | trim | upper
"5" | int, "5.7" | int, "x" | int, "x" | int(3), " 12 " | int, "1_0" | int, 5.9 | int, -5.9 | int, true | int, none | int, "0x1f" | int(0, 16), "ff" | int(base=16), "1e3" | int, "-3" | int, "" | int, "inf" | int, [] | int, "0b1" | int(base=2), "_1" | int
undefinedthing | int
"5.5" | float, "x" | float, "x" | float(1.5), 3 | float, " 1e3 " | float, none | float, "nan" | float, "-Infinity" | float, "1_0.5" | float, "0x10" | float
undefinedthing | default("d"), none | default("d"), none | default("d", true), "" | d("e", true), 0 | default(1, boolean=true), undefinedthing | default
[1, 2, 3] | join(", "), ["a", none, 1.0] | join, "abc" | join("-"), messages | join("|", attribute="role"), undefinedthing | join
none | join
[1, 2] | first, [] | first, "abc" | first, {"a": 1} | first, [1, 2] | last, [] | last, "abé" | last, {"a": 1, "b": 2} | last, undefinedthing | first
[3, 1, 2] | sort, ["b", "A", "c"] | sort, ["b", "A", "c"] | sort(case_sensitive=true), [3, 1, 2] | sort(reverse=true), messages | sort(attribute="role") | map(attribute="role") | list
["b", "A", "a", "B"] | sort, ["b", "A", "a", "B"] | sort(reverse=true)
[1, "a"] | sort
["a", "A", "b", "a"] | unique | list, [1, 1.0, 2] | unique | list, ["a", "A"] | unique(true) | list
"abc" | reverse, [1, 2, 3] | reverse | list, {"a": 1, "b": 2} | reverse | list, range(3) | reverse | list
messages | map(attribute="role") | join(","), ["a", "b"] | map("upper") | list, [1, 2] | map("string") | join, messages | map(attribute="n", default=0) | list, messages | map(attribute="d.x") | list
["ab", "cd"] | map("replace", "a", "z") | list, [[1, 2], [3]] | map("length") | list, [[1, 2], [3]] | map(attribute=0) | list
[1] | map("nosuchfilter") | list
messages | selectattr("role", "equalto", "user") | list | length, messages | rejectattr("role", "==", "user") | map(attribute="role") | list, messages | selectattr("n") | list | length, messages | selectattr("n", "defined") | list | length
[1, 2, 3, 0] | select("odd") | list, [1, 0, 2] | select | list, [1, 0, 2] | reject | list, [1, 2] | reject("in", [2]) | list, "" | select | list
messages[2].d | dictsort, messages[2].d | dictsort(true), messages[2].d | dictsort(by="value"), messages[2].d | dictsort(reverse=true)
messages[2].d | items | list, undefinedthing | items | list
none | items | list
-5 | abs, 5.5 | abs, true | abs
2.5 | round, 3.5 | round, 2.675 | round(2), 2.1 | round(0, "ceil"), 2.19 | round(1, "floor"), 5 | round, -2.5 | round, 42.55 | round | int, 0.5 | round, 1234.5678 | round(3)
"a\nb\n\nc" | indent, "a\nb" | indent(2, true), "a\n\nb" | indent(2, blank=true), "a\nb" | indent("> "), "a\n" | indent, text | indent(1)
"hello" | replace("l", "L"), "hello" | replace("l", 1), 5 | replace(5, "x"), "aaa" | replace("a", "b", 2)
"abc" | upper | lower | capitalize, 5 | upper, none | upper
[3, 1, 2] | min, [3, 1, 2] | max, [] | min, ["b", "A"] | min, [1, 2.5] | sum, tools | sum(attribute="k"), tools | sum("k", 5)
"abc" | list, {"a": 1} | list, range(3) | list, undefinedthing | list, (1, 2) | list
5 | list
"x" | nosuchfilter
range(5) | list, range(2, 5) | list, range(5, 0, -2) | list, range(3), range(1, 9, 3), range(0) | list, range(5)[2], range(5)[-1]
range(200000)
range(1, 2, 0)
dict(a=1, b="x"), dict({"a": 1}, b=2), dict()
namespace(a=1, b="x").a, namespace(a=1)["a"], namespace().x is defined, namespace(a=1)
raise_exception("own words: " ~ 5)
nosuchfunction()
"abc"()
messages[0].role()
nul | length, nul
s.split(",") | map("upper") | join("+"), s.split(",")[-1], s.split(",")[::-1] | join
text.splitlines() | join("|"), text | trim | length
num | string | length, (num / 2) | int, num is odd, "%03d" is string
(1, 2), (1), (1,), ((1, 2), 3)
[1, 2,], {"a": 1,}, (1, 2,)
{"a": {"b": 1}}.a.b, {"a b": 1}["a b"]
{"keys": 1}.keys, 1
- 1, + 1, --1, -(-1), 1 - -1
-"a"
not 1 == 2, not (1 in [1]), not not 1
1 if true else 2 if true else 3
"a" if "a" is defined and "a" else "b"
messages | length > 3 and messages[0].role == "system"
messages[1:] | map(attribute="role") | join, messages[::-1][0].content, messages[-1].content | float + 1
(messages | selectattr("role", "equalto", "user") | list)[-1].content
(messages | first).role, (messages | last)["content"]
messages[1].n * 2, messages[1].n / 2, messages[1].n ~ "", messages[1].f + 1, messages[1].n | string + "x"
undefinedthing == undefinedthing, undefinedthing == none, undefinedthing != 1
undefinedthing + 1
undefinedthing < 1
undefinedthing()
undefinedthing ~ "x", undefinedthing | upper, undefinedthing | string, [undefinedthing], undefinedthing | replace("a", "b")
loop is defined, self is defined
caller is defined, varargs is defined
"a".upper().lower().title(), "a b".split()[0].upper()
"abc"[1:].upper()[0], ("a" ~ "b")[1]
{"a": 1} | tojson | length
5.0 | int | string, 5.0 | string, 1e3 | int
"x" * 0, "x" * -1, [1] * 0, 3 * true
[[1, 2], [3, 4]] | map("first") | list, [[1], [2]] | sum(start=[])
"a" ~ ("b" if 1 else "c") ~ "d", "a" ~ 1 + 1
1 + 1 ~ 2, "a" + "b" ~ "c"
[1, 2] is sameas [1, 2]
true is sameas true, none is sameas none, 1 is sameas true
"%s" % 5
"{}".format(5)
strftime_now("%Y")
lipsum()
cycler(1)
joiner()
[1] | batch(2)
(1, 2) + [3]
"abc".center(9)
{"b": 1, "a": 2} | tojson(sort_keys=true), {"b": 1, "a": 2} | tojson
{[1]: 2}
{"a": 1}[[1]]
5.5[0], none.x, true.x
9999999999999999999
9223372036854775807 + 1
"a" is
1 +
{{
)
[1, 2
"abc
a b
1 | 
x[
x.
{"a" 1}
*x
f(*[1])
f(a=1, 2)
f(a=1, a=2)
1 is not
a if
"\N{DASH}"
"\ud83d"
"\x4"
é
a;b
$
""".strip("\n").split("\n")

TEMPLATES = [
    "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.revindex0 }} {% endfor %}",
    "{% for m in messages %}{{ loop.previtem.role if loop.previtem is defined }}>{{ m.role }}>{{ loop.nextitem.role if not loop.last }} {% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index }}/{{ loop.length }}{{ loop.last }} {% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ loop.last }}{{ loop.nextitem is defined }} {% else %}none{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for m in messages if ns.n < 2 %}{% set ns.n = ns.n + 1 %}{{ m.role }} {% endfor %}",
    "{% set ns = namespace(n=0) %}{% for m in messages if ns.n < 2 %}{{ loop.last }}{% set ns.n = ns.n + 1 %}{{ m.role }} {% endfor %}",
    "{% for x in [] %}a{% else %}b{% endfor %}",
    "{% for x in undefinedthing %}a{% else %}b{% endfor %}",
    "{% for x in none %}a{% endfor %}",
    "{% for x in 5 %}a{% endfor %}",
    "{% for a, b in [[1, 2], (3, 4)] %}{{ a }}-{{ b }} {% endfor %}",
    "{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}",
    "{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for k, v in messages[2].d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in messages[2].d | items %}{{ k }}={{ v }}{{ loop.last }};{% endfor %}",
    "{% for k in messages[2].d %}{{ k }}{{ messages[2].d[k] }}{% endfor %}",
    "{% for c in 'héy' %}[{{ c }}]{% endfor %}",
    "{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in [1, 2] %}{% for y in [3, 4] %}{{ loop.index }}{% if y == 3 %}{% continue %}{% endif %}{{ x }}{{ y }} {% endfor %}{{ loop.index }}{% endfor %}",
    "{% for x in [1, 2, 3] %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}",
    "{% for x in [1, 2, 3] recursive %}{{ x }}{% endfor %}",
    "{% break %}",
    "{% for x in [1] %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}",
    "{% for i in [1, 2] %}{% if loop.first %}{% set y = 1 %}{% endif %}[{{ y }}]{% endfor %}[{{ y }}]",
    "{% if true %}{% set z = 5 %}{% endif %}{{ z }}",
    "{% if false %}{% set num = 5 %}{% endif %}{{ num }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% set a = 1, 2 %}{{ a }}",
    "{% set a, b = [1] %}",
    "{% set x %}  text {{ 1 + 1 }} {% endset %}[{{ x }}]{{ x | length }}",
    "{% set x | upper | trim %}  text {% endset %}[{{ x }}]",
    "{% set ns = namespace() %}{% set ns.a = 1 %}{% set ns.b %}q{% endset %}{{ ns.a }}{{ ns.b }}{{ ns.c }}",
    "{% set d = {} %}{% set d.a = 1 %}",
    "{% set none = 1 %}",
    "{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}|{{ m(1, 3) }}|{{ m(1, c=4) }}|{{ m(a=5) }}|{{ m() }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}",
    "{% macro m(x) %}{% if x > 0 %}{{ x }}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(5) }}",
    "{% macro m() %}{{ num }}{{ later }}{% endmacro %}{% set later = 3 %}{{ m() }}",
    "{% macro m() %}{% set q = 1 %}{{ q }}{% endmacro %}{{ m() }}{{ q }}",
    "{% macro m() %}  x  {% endmacro %}[{{ m() | trim }}]{{ m() is string }}{{ m()[2] }}",
    "{% macro m(b=1, a) %}{% endmacro %}",
    "{% macro outer() %}<{{ caller() }}>{% endmacro %}{% call outer() %}in{{ num }}{% endcall %}",
    "{% macro outer() %}<{{ caller(1, 2) }}>{% endmacro %}{% call(a, b) outer() %}{{ a }}{{ b }}{% endcall %}",
    "{% macro outer() %}<{{ caller is defined }}>{% endmacro %}{{ outer() }}",
    "{% filter upper %}abc{{ num }}{% endfilter %}{% filter replace('a', 'b') | trim %} aa {% endfilter %}",
    "{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% with %}{% set a = 1 %}{{ a }}{% endwith %}{{ a }}",
    "{% generation %}x{% set g = 1 %}{{ g }}{% endgeneration %}{{ g }}",
    "{% print 1 + 1, 2 %}",
    "{% raw %}{{ x }} {% if %} {# c #}{% endraw %}!",
    "a{%- raw -%}  x  {%- endraw -%}  b",
    "  {% raw %}\n x\n  {% endraw %}\nb",
    "a{# comment #}b{#- c -#} d {#+ e +#}\n f",
    "{# a #}\n{# b\n #}\nx",
    "line\n  {% if true %}\n  body\n  {% endif %}\nend\n",
    "line\n  {%+ if true %}\n  body\n  {%+ endif +%}\nend\n\n",
    "  {%- if true -%}\n  body\n  {%- endif -%}\n  x",
    "a\n\n{{ 1 }}\n\nb\n",
    "{{ 1 -}}   \n {{- 2 }}\n",
    "x {{+ 1 }} y",
    "x\t{% if 1 %} \t{% endif %} y",
    "\u00a0{% if 1 %}\u00a0x{% endif %}\n\u00a0{%- if 1 -%}\u00a0y{% endif %}",
    "a\r\nb\r{% if 1 %}\r\nc{% endif %}\r\n",
    "{{ {'a': {'b': 1}}}}",
    "{{ '}}' }}{{ \"%}\" }}{{ '{{' }}",
    "{% if 1 %}a{% elif 2 %}b{% else %}c{% endif %}{% if 0 %}a{% elif 1 %}b{% else %}c{% endif %}{% if 0 %}a{% elif 0 %}b{% else %}c{% endif %}",
    "{% if a %}x{% endif %}{% if not a %}y{% endif %}",
    "{% if 1, 2 %}t{% endif %}",
    "{% set it = [1, 2] | map('string') %}{{ it | list }}{{ it | list }}",
    "{% set it = [1, 2, 3] | select %}{{ it | first }}{{ it | list }}",
    "{% set it = [1, 2] | map('string') %}{% if it %}yes{% endif %}{{ 1 in it }}",
    "{% set v = {'a': 1}.items() %}{{ v | list }}{{ v | list }}{{ v | length }}",
    "{% set messages = messages[1:] %}{{ messages | length }}{% for m in messages %}{{ m.role }}{% endfor %}",
    "{% set ns = namespace(s='') %}{% for m in messages %}{% set ns.s = ns.s ~ m.role ~ ',' %}{% endfor %}{{ ns.s }}{{ ns.s | length }}",
    "{% set a = 'x' %}{% set b = a ~ 'y' %}{% set c = b ~ 'z' %}{% set d = b ~ 'w' %}{{ a }}{{ b }}{{ c }}{{ d }}",
    "{{ messages[1].content }}|{{- messages[1].content -}}|",
    "{{ undefinedthing }}{{ messages[0].nope }}{{ none }}",
    "{{ 'a' if 0 }}b",
    "{{ raise_exception('boom ☃') }}",
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}",
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('alternate') }}{% endif %}{% endfor %}",
    "{{ bos_token }}{% for message in messages %}{% set content = message['content'] | default('', true) | trim %}{{ '<' + message['role'] + '>' + content + eos_token }}{% endfor %}",
    "{% block a %}{% endblock %}", "{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}",
    "{% do 1 %}", "{% nosuch %}", "{% endif %}", "{% if 1 %}", "{% for x in y %}", "{% if %}", "{% for in y %}", "{% set %}",
    "{% macro %}{% endmacro %}", "{{ 1 }", "{% if 1 }", "{# open", "{% raw %}open", "{{", "{%", "{{}}", "{% %}", "{{ 1 1 }}",
    "{% for a in b %}{% else %}{% else %}{% endfor %}", "{% if 1 %}{% endfor %}", "}} %} #}", "{ { x } }", "{", "{a", "",
    "\n", "\n\n", "{{ 1 }}\n", "{% if 1 %}\n{% endif %}\n", "{%- set x = 1 -%}\n\n",
    "{% set loop = 5 %}{{ loop }}",
    "{% for loop in [1] %}{{ loop }}{% endfor %}",
    "{% for x in [1] %}{{ loop }}{% endfor %}",
    "{% for x in [3, 1] | sort %}{{ x }}{% endfor %}{% for x in 'ba' | sort %}{{ x }}{% endfor %}",
    "{% for x in [1, 2, 3] %}{% set x = x * 2 %}{{ x }}{% endfor %}",
    "{% for m in messages %}{% set role = m.role %}{% endfor %}{{ role is defined }}",
    "{% set f = range %}{{ f(2) | list }}",
    "{{ messages[0] }}{{ messages }}{{ tools }}",
]
