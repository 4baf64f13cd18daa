"""The keyed sampler from its definition (docs/DESIGN.md section 5), for the draws in tests/golden/sample.txt.

    python3 tests/ref/ref_sample.py > tests/golden/sample.txt     writes the file
    python3 tests/ref/ref_sample.py --check                       compares it with the stored one

Written from the definition, not from the C code. Python's exp and log are the platform's; a stored token
only depends on them if two candidates tie to the last bit. Logits are made from integers, so they are the
same floats everywhere.
"""
import hashlib
import math
import sys

WORD = (1 << 64) - 1
GOLDEN = "tests/golden/sample.txt"


def mix(x):
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & WORD
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & WORD
    return x ^ x >> 31


def key(seed, position, id):
    of_seed = mix((seed + 0x9E3779B97F4A7C15) & WORD)
    return mix(mix(of_seed ^ (position * 0xD1B54A32D192ED03 & WORD)) ^ id)


def gumbel(word):
    u = (word >> 11) * 2.0**-53 + 2.0**-54
    w = -math.log(u)
    return math.inf if w == 0.0 else -math.log(w)


def plain_sum(values):
    total = 0.0
    for value in values:     # sum() is compensated in some versions
        total += value
    return total


def draw(logits, temperature, top_k, top_p, min_p, seed, position):
    order = sorted(range(len(logits)), key=lambda id: (-logits[id], id))
    if temperature <= 0:
        return order[0]
    if top_k > 0:
        order = order[:top_k]
    divisor = max(temperature, 1e-6)
    scaled = [logits[id] / divisor for id in order]
    kept = len(order)
    if 0 < top_p < 1:
        masses = [math.exp(s - scaled[0]) for s in scaled]
        total = plain_sum(masses)
        reached = 0.0
        for n, mass in enumerate(masses):
            reached += mass / total
            if reached >= top_p:
                kept = n + 1
                break
    if min_p > 0:
        floor = scaled[0] + math.log(min_p)
        kept = sum(1 for s in scaled[:kept] if s >= floor)
    best, best_id = -math.inf, None
    for s, id in zip(scaled[:kept], order):
        if s == -math.inf:
            continue
        value = s + gumbel(key(seed, position, id))
        if value > best:
            best, best_id = value, id
    return best_id


class Rng:
    """splitmix64, as src/base/rng.h."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & WORD
        return mix(self.state)


def grid(word):
    return ((word >> 44) - (1 << 19)) / 65536.0


KINDS = {
    "grid": grid,                                                      # -8 to 8 in steps of 2^-16
    "peaked": lambda word: 4.0 * grid(word),
    "ties": lambda word: float((word >> 61) - 4),                      # whole numbers from -4 to 3
    "equal": lambda word: 1.5,
    "masked": lambda word: -math.inf if word & 7 else grid(word),
}


def logits_make(kind, vocab, seed):
    rng = Rng(seed)
    logits = [KINDS[kind](rng.next()) for _ in range(vocab)]
    logits[vocab // 2] = 1.0         # so that no mask leaves nothing
    return logits


def prompt_seed(ids, salt):
    text = ",".join(str(id) for id in ids) + "|" + str(salt)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") & (1 << 63) - 1


OPTIONS = [  # temperature, top_k, top_p, min_p
    (0.0, 0, 1.0, 0.0), (1.0, 0, 1.0, 0.0), (0.7, 0, 1.0, 0.0), (1.0, 5, 1.0, 0.0), (0.6, 20, 0.95, 0.0),
    (1.0, 0, 0.95, 0.0), (1.0, 0, 0.5, 0.0), (1.5, 0, 0.999999, 0.0), (1.0, 0, 1.0, 0.05), (2.0, 0, 0.9, 0.1),
    (1.0, 1, 1.0, 0.0), (1e-3, 0, 1.0, 0.0), (1000.0, 0, 0.3, 0.0), (1.0, 40, 0.8, 0.02), (1.0, 0, 1e-9, 0.0),
]
VOCABS = [1, 2, 63, 64, 65, 300, 1000, 2049]


def lines():
    yield "# Draws of the keyed sampler, made by tests/ref/ref_sample.py from the definition."
    yield "# prompt IDS SALT SEED"
    yield "# draw VOCAB LOGITS LOGITS_SEED TEMPERATURE TOP_K TOP_P MIN_P SEED POSITION TOKEN"
    yield "# tokens COUNT SHA    the first 12 hex digits over all tokens above"
    seeds = []
    for ids, salt in (([1, 2, 3], 0), ([1, 2, 3], 1), ([248045], -5), ([7], 0)):
        seeds.append(prompt_seed(ids, salt))
        yield "prompt %s %d %d" % (",".join(map(str, ids)), salt, seeds[-1])
    seeds += [0, (1 << 63) - 1]
    rng = Rng(20)
    tokens = []
    for vocab in VOCABS:
        for kind in KINDS:
            for temperature, top_k, top_p, min_p in OPTIONS:
                if vocab > 300 and rng.next() % 3:
                    continue
                logits_seed = rng.next() >> 40
                seed = seeds[rng.next() % len(seeds)]
                position = rng.next() >> (rng.next() % 64)
                logits = logits_make(kind, vocab, logits_seed)
                token = draw(logits, temperature, top_k, top_p, min_p, seed, position)
                tokens.append(token)
                yield "draw %d %s %d %r %d %r %r %d %d %d" % (
                    vocab, kind, logits_seed, temperature, top_k, top_p, min_p, seed, position, token)
    text = ",".join(map(str, tokens))
    yield "tokens %d %s" % (len(tokens), hashlib.sha256(text.encode()).hexdigest()[:12])


def main():
    text = "\n".join(lines()) + "\n"
    if sys.argv[1:] == ["--check"]:
        with open(GOLDEN) as stored:
            same = stored.read() == text
        print(GOLDEN, "is what the definition gives" if same else "differs from the definition")
        return 0 if same else 1
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
