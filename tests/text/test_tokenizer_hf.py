"""Ids and texts of our tokenizer against the Hugging Face tokenizers library, on the same files.

Needs the shared tokenizer files (../shared) and build/native/tests/text/tokenize_driver, or the driver that
LANEWISE_TOKENIZE_DRIVER names; skips, saying so, where either is absent.
"""

import hashlib
import itertools
import os
import pathlib
import random
import subprocess
import sys
import unicodedata

import pytest

tokenizers = pytest.importorskip("tokenizers")

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
DRIVER = pathlib.Path(
    os.environ.get("LANEWISE_TOKENIZE_DRIVER", ROOT / "build/native/tests/text/tokenize_driver"))
SEED = 20240229
UNKNOWN_MAX = 20000  # code points that are newer than PCRE2's Unicode and may be cut differently
LATE_MAX = 120  # code points that the library's NFC tables are too old to know


def tokenizer_files():
    """One file of each content: several checkpoints share theirs."""
    files = {}
    for folder in ("tokenizers", "models"):
        for path in sorted((SHARED / folder).glob("*/tokenizer.json")):
            files.setdefault(hashlib.sha256(path.read_bytes()).hexdigest(), path)
    return list(files.values())


FILES = tokenizer_files()
pytestmark = [
    pytest.mark.skipif(not FILES, reason=f"no tokenizer files under {SHARED}"),
    pytest.mark.skipif(not DRIVER.exists(), reason=f"{DRIVER} is not built"),
]


@pytest.fixture(scope="module", params=FILES, ids=lambda path: path.parent.name)
def pair(request):
    theirs = tokenizers.Tokenizer.from_file(str(request.param))
    theirs.no_truncation()
    theirs.no_padding()
    return request.param, theirs


def run_driver(path, *arguments, data):
    done = subprocess.run([str(DRIVER), str(path), *arguments], input=data, stdout=subprocess.PIPE, timeout=600)
    assert done.returncode == 0
    return done.stdout


def encode_ours(path, texts, *modes):
    raw = [text.encode() if isinstance(text, str) else text for text in texts]
    out = run_driver(path, "encode", *modes, data=b"".join(b"%d\n%s" % (len(text), text) for text in raw))
    lines = out.decode().split("\n")[:-1]
    assert len(lines) == len(texts)
    for text, line in zip(texts, lines):
        assert not line.startswith("!"), (text[:80], line)
    return [[int(word) for word in line.split()] for line in lines]


def decode_ours(path, ids, mode):
    out = run_driver(path, "decode", mode, data=b"".join(b" ".join(b"%d" % i for i in one) + b"\n" for one in ids))
    texts, at = [], 0
    while at < len(out):
        end = out.index(b"\n", at)
        count = int(out[at:end])
        texts.append(out[end + 1:end + 1 + count].decode())
        at = end + 1 + count
    assert len(texts) == len(ids)
    return texts


def encode_theirs(theirs, texts, add_special_tokens=False):
    return [one.ids for one in theirs.encode_batch(list(texts), add_special_tokens=add_special_tokens)]


def differences(texts, ours, theirs):
    return [(text, a, b) for text, a, b in zip(texts, ours, theirs) if a != b]


def check_same(path, theirs, texts):
    wrong = differences(texts, encode_ours(path, texts, "always"), encode_theirs(theirs, texts))
    assert not wrong, f"{len(wrong)} of {len(texts)} differ; the first: {wrong[0]!r:.600}"


# ---- texts made for the purpose ----

WORDS = """hello Hello HELLO world naïve café Zürich Ærøskøbing façade Straße ΑΒΓ αβγ привет мир ЁЖИК שלום שָׁלוֹם
مرحبا السَّلامُ नमस्ते हिन्दी বাংলা தமிழ் ไทย ภาษาไทย ລາວ မြန်မာ ქართული հայերեն ᏣᎳᎩ አማርኛ 日本語 にほんご カタカナ ｶﾀｶﾅ 漢字 中文 繁體字
한국어 각 각 tiếng Việt ǅ ǆ ﬁ ﬀ ſ K Å Ω ªº ʰ ᵃ ⅷ ² ³ ¼ ½ ٣ ९ 𝟘 𝒜 𝔘𝔫𝔦 𐍈 𒀀 𓀀 😀 👍🏽 👨‍👩‍👧‍👦 🇩🇪🇫🇷 ❤️ ☃ ✊🏿 🏴󠁧󠁢󠁥󠁮󠁧󠁿
1 12 123 1234 12345 1,234.56 3.14e-10 0x1F 1st 2nd १२३ Ⅻ don't Don'T we'LL I'd they're you'Ve it's 'S 'tis o'clock ’s 'ſ 'ſt
_ __init__ snake_case camelCase HTTPServer iOS x86_64 a.b.c a-b a/b a\\b C++ C# #include <stdio.h> {} [] () <> && || != == => -> ::
$100 €5 ¥ ₿ ± × ÷ ∑ √ ∞ ≠ ≮ … — – “quoted” ‘x’ «y» „z“ ¿qué? ¡ay! @user #tag https://example.org/a?b=c&d=e#f me@example.org
\ufeff \u00ad a\u00adb \u200b a\u200bb \u200d a\u200db \u2060 \u180e \ufffd \uffff \U0010ffff \ue000 \x00 a\x00b \x7f \x80 \x85 \x9f""".split()

SPACES = ["", " ", "  ", "   ", "    ", "\t", "\t\t", "\n", "\n\n", "\n\n\n", "\r", "\r\n", "\r\n\r\n", " \n", "\n ", " \n ",
          "  \n\n  ", "\t\n", " \t ", "\v", "\f", "\u00a0", "\u00a0 ", " \u00a0", "\u2003", "\u2009\u2009", "\u3000",
          "\u3000\u3000 ", "\u2028", "\u2029", "\u1680", "\u202f", "\u205f", "\u0085", "\u200b", "\ufeff", " \r\n \n", "\n\r"]

MARKS = ["\u0301", "\u0308\u0301", "\u0323\u0307", "\u0307\u0323", "\u0338", "\u0345\u0313", "\u094d", "\u0e4d\u0e32",
         "\u05b4\u05bc", "\u064e\u0651", "\u1161", "\u11a8", "\u3099", "\u309a", "\u20dd", "\ufe0f", "\u200d", "\u0f71\u0f74",
         "\u0344", "\u0340", "\u0315\u0300\u05ae\u0062", "\U0001d165", "\U000110ba", "\u0327\u0301\u0327"]

CODE = [
    "def f(x):\n    return x + 1\n\n\nclass A(object):\n\tdef __init__(self, *a, **k):\n\t\tpass\n",
    "#include <stdio.h>\r\nint main(void)\r\n{\r\n\tprintf(\"%d\\n\", 42);\r\n\treturn 0;\r\n}\r\n",
    "SELECT a, b FROM t WHERE x >= 10 AND y <> 'z''s' -- note\n;",
    "{\"a\": [1, 2.5e3, null, true], \"b\": {\"c\": \"\\u00e9\"}}",
    "<html>\n  <body class='x'>&nbsp;&amp;</body>\n</html>  \n\n\n",
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n```sh\n$ ls -la | grep 'x' > /dev/null 2>&1\n```\n",
    "let x = (a) => { return a ?? b?.c; } // 注释\n", "\\begin{equation} e^{i\\pi}+1=0 \\end{equation}",
]


def made_texts(theirs):
    rng = random.Random(SEED)
    added = sorted(token.content for token in theirs.get_added_tokens_decoder().values())
    added = added[:40] + added[-10:]
    texts = [""] + WORDS + SPACES + MARKS + CODE
    texts += [a + space + b for a, space, b in
              itertools.product(["a", "1", "?", "漢", "é"], SPACES, ["b", "2", "!", "語", "'s", " x"])]
    texts += [base + mark + tail for base, mark, tail in
              itertools.product(["a", "e", "A", ">", "q", "가", "か", "가", "\u0301", "ḍ", "क", "1", " ", "\n", "👍", "ά"], MARKS,
                                ["", "z", "\u0301", " "])]
    texts += [a + token + b for token in added for a, b in
              [("", ""), ("x", "y"), (" ", " "), ("\n", "\n"), ("é", "\u0301"), ("<", ">"), ("  x ", "1"), (token, token)]]
    texts += [token[:cut] + token for token in added for cut in (1, 2, len(token) - 1)]
    texts += [token[:-1] + "\u200b" + token[-1:] for token in added]
    texts += ["".join(rng.choice(SPACES + added[:8]) for _ in range(rng.randrange(1, 12))) for _ in range(200)]
    texts += ["".join(rng.choice(WORDS) + rng.choice(SPACES) for _ in range(rng.randrange(2, 30))) for _ in range(900)]
    texts += ["".join(rng.choice(WORDS + MARKS + added) for _ in range(rng.randrange(2, 16))) for _ in range(400)]
    texts += [unit * count for unit in ["a", "A", "aB", " ", "\n", "\t", "0", "!", "漢", "ab ", "é", "e\u0301", "🙂", "\u0301",
                                        "\u0301\u0323", "ﷺ", "\u00a0", "=", "-", "lorem", "Ω"]
              for count in (2, 3, 7, 16, 31, 32, 63, 64, 65, 100, 129, 1000)]
    return texts


def test_made_texts(pair):
    path, theirs = pair
    texts = made_texts(theirs)
    assert len(texts) >= 3000
    check_same(path, theirs, texts)


def test_very_long_words(pair):
    path, theirs = pair
    rng = random.Random(SEED)
    texts = ["".join(rng.choice(letters) for _ in range(20000)) for letters in ("ab", "acgt", "etaoinshrdlu", "漢字かな", "eE\u0301")]
    check_same(path, theirs, texts)


# ---- every code point, and random ones ----

def is_known(point):
    return unicodedata.category(chr(point)) not in ("Cn", "Cs")


KNOWN = [point for point in range(0x110000) if is_known(point)]
UNKNOWN = [point for point in range(0x110000) if unicodedata.category(chr(point)) == "Cn" and point < 0xE0000]


def around(point):
    return f"x{chr(point)}y {chr(point)}{chr(point)}\n{chr(point)}1"


def test_every_known_code_point(pair):
    path, theirs = pair
    points = [point for point in KNOWN if not 0xAC02 <= point < 0xD7A0 and not 0xE001 <= point < 0xF8FF and point < 0xF0002]
    check_same(path, theirs, [around(point) for point in points])


def late_points():
    """Code points whose canonical order or composition the library does not know: its NFC tables are older than the
    rest of it. For text with them, the text that Python normalises is what the library is asked about."""
    late, nfc = set(), tokenizers.normalizers.NFC()
    for point in KNOWN:
        char = chr(point)
        for text in (char, "a\u0345" + char, "a" + char + "\u0334", unicodedata.normalize("NFD", char)):
            if nfc.normalize_str(text) != unicodedata.normalize("NFC", text):
                late.update(ord(c) for c in text if ord(c) not in (0x61, 0x345, 0x334))
    return late


def test_random_code_points(pair):
    path, theirs = pair
    rng = random.Random(SEED)
    low = [point for point in KNOWN if point < 0x3000]
    marks = [point for point in KNOWN if unicodedata.combining(chr(point))]
    texts = []
    for _ in range(6000):
        sources = rng.choice([(low,), (KNOWN,), (low, marks), (low, low, KNOWN, marks), (marks,)])
        texts.append("".join(chr(rng.choice(rng.choice(sources))) for _ in range(rng.randrange(1, 40))))
    late = late_points() if "NFC" in repr(theirs.normalizer) else set()
    print(f"\n{path.parent.name}: {len(late)} code points newer than the library's NFC: {ranges(sorted(late))}",
          file=sys.stderr)
    assert len(late) <= LATE_MAX
    asked = [unicodedata.normalize("NFC", text) if late & set(map(ord, text)) else text for text in texts]
    wrong = differences(texts, encode_ours(path, texts, "always"), encode_theirs(theirs, asked))
    assert not wrong, f"{len(wrong)} of {len(texts)} differ; the first: {wrong[0]!r:.600}"


def ranges(points):
    text = []
    for _, group in itertools.groupby(enumerate(points), lambda pair: pair[1] - pair[0]):
        run = [point for _, point in group]
        text.append(f"U+{run[0]:04X}" + (f"..{run[-1]:04X}" if len(run) > 1 else ""))
    return " ".join(text)


def test_newer_code_points_are_few(pair):
    path, theirs = pair
    texts = [around(point) for point in UNKNOWN if point < 0x40000]
    wrong = differences(texts, encode_ours(path, texts, "always"), encode_theirs(theirs, texts))
    points = [ord(text[1]) for text, _, _ in wrong]
    print(f"\n{path.parent.name}: {len(points)} code points unassigned in Unicode {unicodedata.unidata_version} differ: "
          f"{ranges(points)}", file=sys.stderr)
    assert len(points) <= UNKNOWN_MAX


# ---- ill-formed text, specials, post-processing, decoding ----

def ill_formed():
    rng = random.Random(SEED)
    texts = [b"\xff", b"a\x80b", b"\xe2\x82", b"\xe2\x82x", b"\xf0\x9f\x98", b"\xf0\x9f\x98\xf0\x9f\x98\x80", b"\xc0\xaf",
             b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe0\x80\x80", b"\xc3", b"\xc3\xc3\xa9", b"x\xf8\x88\x80\x80\x80y"]
    sound = "é漢😀a ".encode()
    for _ in range(1000):
        texts.append(bytes(rng.choice(sound + b"\x80\xbf\xc2\xe0\xf0\xf4\xff") for _ in range(rng.randrange(1, 20))))
    return texts


def test_ill_formed_text_is_repaired_as_python_does(pair):
    path, theirs = pair
    texts = ill_formed()
    repaired = [text.decode(errors="replace") for text in texts]
    wrong = differences(texts, encode_ours(path, texts, "always"), encode_theirs(theirs, repaired))
    assert not wrong, wrong[:3]


def test_outside_text_reaches_no_special_token(pair):
    path, theirs = pair
    special = {i for i, token in theirs.get_added_tokens_decoder().items() if token.special}
    assert special
    texts = made_texts(theirs)
    outside = encode_ours(path, texts, "trusted", "outside")
    assert outside == encode_ours(path, texts, "never")
    assert not [text for text, ids in zip(texts, outside) if special & set(ids)]
    inside = encode_ours(path, texts, "trusted")
    assert inside == encode_ours(path, texts, "always")
    assert [text for text, ids in zip(texts, inside) if special & set(ids)]  # the control: they are in the texts


def test_post_processing(pair):
    path, theirs = pair
    texts = ["", "hello", "a\nb"]
    assert encode_ours(path, texts, "always", "post") == encode_theirs(theirs, texts, add_special_tokens=True)


def test_decoding(pair):
    path, theirs = pair
    rng = random.Random(SEED)
    count = theirs.get_vocab_size()
    ids = encode_theirs(theirs, made_texts(theirs))
    ids += [[rng.randrange(count) for _ in range(rng.randrange(1, 30))] for _ in range(3000)]
    for mode, skip in (("show", False), ("skip", True)):
        wrong = differences(ids, decode_ours(path, ids, mode), theirs.decode_batch(ids, skip_special_tokens=skip))
        assert not wrong, f"{len(wrong)} differ; the first: {wrong[0]!r:.600}"
