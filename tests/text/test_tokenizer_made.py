"""Small random tokenizer files, read by us and by the Hugging Face tokenizers library: split behaviours, flags of
added tokens, normalisation, options of the model. The vocabularies are dense in merges, so that a pre-token cut in
another place shows in the ids.
"""

import json
import os
import pathlib
import random
import subprocess

import pytest

tokenizers = pytest.importorskip("tokenizers")

ROOT = pathlib.Path(__file__).resolve().parents[2]
DRIVER = pathlib.Path(
    os.environ.get("LANEWISE_TOKENIZE_DRIVER", ROOT / "build/native/tests/text/tokenize_driver"))
SEED = 7
pytestmark = pytest.mark.skipif(not DRIVER.exists(), reason=f"{DRIVER} is not built")

PATTERNS = [
    r"\s+", r"\S+", r"\w+", r"\W", r"\d{1,3}", r"a*", r"a*?b", r"(?=a)", r"(?<=a)b", r"(?!a)\S", r"(?<!a)b+", r"[^\s\p{L}]+",
    r"\p{L}+|\p{N}", r"(?i:'s|'t|ab)", r" ?\p{L}+|\s+(?!\S)|\s+", r"^a|b$", r".", r"[ab1\-\]]+", r"[^\S\n]+", r"(a|b)+", r"a++b",
    r"\p{Greek}+", r"\p{^L}+", r"\P{L}+", r"[\p{P}\p{S}]", r"\u00e9|\x{e9}|\x61", r"(?>a|ab)1", r"x{2}|a{1,}", r"(?i)AB|s", r"\A.",
    r"[\r\n]+", r"\n$", r"\v|\f|\t", r"a|", r"\w", r"\d+|\D",
]
LETTERS = list("aaabbb  1'sS.-\n\t") + ["é", "e\u0301", "\u0301", "α", "\u00a0", "\u180e", "x", "_", "\r", "\u200d", "\u0345", "ſ", "²"]


def byte_chars():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    shifted = [byte for byte in range(256) if byte not in printable]
    return {**{byte: chr(byte) for byte in printable}, **{byte: chr(256 + i) for i, byte in enumerate(shifted)}}


CHARS = byte_chars()


def made_file(rng):
    vocab = {CHARS[byte]: byte for byte in range(256)}
    merges = []
    frequent = [CHARS[byte] for text in LETTERS for byte in text.encode()]
    for _ in range(rng.randrange(150)):
        left, right = (rng.choice(frequent if rng.random() < 0.7 else list(vocab)) for _ in range(2))
        if [left, right] in merges or len(left + right) > 12:
            continue
        vocab.setdefault(left + right, len(vocab))
        merges.append([left, right])
    for _ in range(rng.randrange(6)):
        vocab.setdefault("".join(rng.choice(frequent) for _ in range(3)), len(vocab))
    if rng.random() < 0.5:
        merges = [" ".join(pair) for pair in merges]
    steps = [made_split(rng) for _ in range(rng.choice([0, 1, 1, 1, 2, 3]))]
    steps.append({"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": rng.random() < 0.3})
    pre_tokenizer = steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": steps}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": made_added(rng, vocab),
        "normalizer": rng.choice([None, {"type": "NFC"}, {"type": "Sequence", "normalizers": [{"type": "NFC"}]}]),
        "pre_tokenizer": pre_tokenizer, "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "ignore_merges": rng.random() < 0.3, "vocab": vocab, "merges": merges},
    }


def made_split(rng):
    pattern = {"Regex": rng.choice(PATTERNS)} if rng.random() < 0.85 else {"String": rng.choice(["a", "ab", " ", "é", "."])}
    behavior = rng.choice(["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"])
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": rng.random() < 0.3}


def made_added(rng, vocab):
    texts = ["ab", "<a>", "<a><b>", "<b>", "a b", " a", "é", "e\u0301", "é1", "aab", "1", "\n", "S.", "<", "ba"]
    chosen = rng.sample(texts, rng.randrange(6))
    ids = dict(vocab)
    for text in chosen:
        ids.setdefault(text, len(ids))
    return [{"id": ids[text], "content": text, "single_word": rng.random() < 0.2, "lstrip": rng.random() < 0.2,
             "rstrip": rng.random() < 0.2, "normalized": rng.random() < 0.5, "special": rng.random() < 0.4}
            for text in chosen]


def made_text(rng, added):
    units = LETTERS + [token["content"] for token in added] * 3
    return "".join(rng.choice(units) for _ in range(rng.randrange(40)))


def same_text_twice(file):
    """Two tokens of one normalised text: which of them wins depends on the library's hash order."""
    if file["normalizer"] is None:
        return False
    return len({"é", "e\u0301"} & {token["content"] for token in file["added_tokens"] if token["normalized"]}) == 2


def encode_theirs(theirs, text):
    """None where the library panics: it does when a token that strips the white space before it stands in white space
    that the token before has stripped."""
    try:
        return [str(i) for i in theirs.encode(text, add_special_tokens=False).ids]
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return None


@pytest.mark.parametrize("part", range(8))
def test_made_files(part, tmp_path):
    rng = random.Random(SEED * 1000 + part)
    panics = 0
    for number in range(60):
        file = made_file(rng)
        if same_text_twice(file):
            continue
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(file))
        texts = [made_text(rng, file["added_tokens"]) for _ in range(60)]
        data = b"".join(b"%d\n%s" % (len(text.encode()), text.encode()) for text in texts)
        done = subprocess.run([str(DRIVER), str(path), "encode", "always"], input=data, stdout=subprocess.PIPE,
                              timeout=60)
        assert done.returncode == 0, path
        ours = [line.split() for line in done.stdout.decode().split("\n")[:-1]]
        theirs = tokenizers.Tokenizer.from_file(str(path))
        for text, ids in zip(texts, ours):
            expected = encode_theirs(theirs, text)
            panics += expected is None
            assert expected is None or ids == expected, (
                text, file["pre_tokenizer"], file["normalizer"], file["added_tokens"])
    assert panics < 50
