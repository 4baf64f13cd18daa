"""Times another engine's Python package on a GGUF file, as `lanewise bench` times this one.

  PYTHON tools/peer_run.py llama_cpp FILE --threads 2 --prompt 512 --decode 64 --streams 1,8 --depths 8192

PYTHON has the package: llama-cpp-python (llama_cpp) or ik-llama-cpp-python (ik_llama_cpp); only their C
functions are called, nothing of their own sampling or prompts. Ids are random, and a reply draws no token,
so what is timed is the decode call alone. A long history is computed, once; its samples are of one filled
context.

A line of JSON follows each part: prompts and replies, long histories, streams; the last line holds all parts
so far, so that what was measured stands when the engine dies in a later part. tools/bench calls this.
"""
import argparse
import ctypes
import importlib
import json
import os
import random
import statistics
import sys
import time

CHUNK = 512             # rows of a prompt's batches
STEPS = 8               # decode steps of a depth's sample
STREAM_PROMPT = 64
WINDOWS = (1, 2, 4, 8)


def spread(samples):
    values = sorted(samples)
    return {"median": statistics.median(values), "min": values[0], "max": values[-1], "samples": values}


def memory_bytes(name):
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    return 0


class Engine:
    """One model and one context of a package."""

    def __init__(self, module, path, args):
        api = importlib.import_module(module + ("._ctypes_api" if module == "ik_llama_cpp" else ""))
        self.api, self.rng = api, random.Random(1)
        api.llama_backend_init()
        begin = time.perf_counter_ns()
        self.model = api.llama_model_load_from_file(os.fsencode(path), api.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"{module} cannot load {path}")
        self.context = api.llama_init_from_model(self.model, self.settings(args))
        if not self.context:
            raise RuntimeError(f"{module} has no context of {self.positions(args)} positions for {path}")
        self.load_ns = time.perf_counter_ns() - begin
        self.vocab = self.vocab_size()
        self.batch = api.llama_batch_init(CHUNK, 0, 1)

    @staticmethod
    def positions(args):
        """Cells for the longest prompt, for all streams, and for the deepest history."""
        longest = max([args.prompt, *args.more_prompts]) + args.decode + 2 * sum(WINDOWS)
        streams = max(args.streams, default=1) * (STREAM_PROMPT + args.decode)
        deepest = max(args.depths, default=0) + CHUNK + 2 * STEPS
        return -(-max(longest, streams, deepest) // 256) * 256

    def settings(self, args):
        out = self.api.llama_context_default_params()
        wanted = {"n_ctx": self.positions(args), "n_batch": CHUNK, "n_ubatch": CHUNK,
                  "n_threads": args.threads, "n_threads_batch": args.threads,
                  "n_seq_max": max(args.streams, default=1), "kv_unified": True}
        known = {name for name, _ in out._fields_}
        for name, value in wanted.items():
            if name in known:
                setattr(out, name, value)
        return out

    def vocab_size(self):
        vocab = self.api.llama_model_get_vocab(self.model)
        return self.api.llama_vocab_n_tokens(vocab)

    def clear(self):
        if hasattr(self.api, "llama_kv_cache_clear"):
            self.api.llama_kv_cache_clear(self.context)
        else:
            self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)

    def run(self, rows, all_logits=False):
        """One batch of (position, stream) rows with random ids; returns its nanoseconds."""
        batch = self.batch
        batch.n_tokens = len(rows)
        for i, (position, stream) in enumerate(rows):
            batch.token[i] = self.rng.randrange(self.vocab)
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = stream
            batch.logits[i] = all_logits or i + 1 == len(rows)
        begin = time.perf_counter_ns()
        code = self.api.llama_decode(self.context, batch)
        if code != 0:
            raise RuntimeError(f"llama_decode says {code} for {len(rows)} rows at position {rows[0][0]}")
        # The last logits are looked at, so that nothing is left to be done.
        logits = ctypes.cast(self.api.llama_get_logits_ith(self.context, len(rows) - 1),
                             ctypes.POINTER(ctypes.c_float))
        if logits[0] != logits[0]:
            raise RuntimeError("a logit is no number")
        return time.perf_counter_ns() - begin

    def chain(self, begin, count):
        """count rows of stream 0 from position begin on, in batches; returns their nanoseconds."""
        rows = [(begin + i, 0) for i in range(count)]
        return sum(self.run(rows[i:i + CHUNK]) for i in range(0, count, CHUNK))


def one_stream(engine, args, samples):
    engine.clear()
    ns = engine.chain(0, args.prompt)
    samples["prompt"].append(args.prompt * 1e9 / ns)
    samples["first"].append(ns)
    ns = sum(engine.run([(args.prompt + i, 0)]) for i in range(args.decode))
    samples["decode"].append(args.decode * 1e9 / ns)
    at = args.prompt + args.decode
    for rows in WINDOWS:
        ns = engine.run([(at + i, 0) for i in range(rows)], all_logits=True)
        samples["windows", rows].append(ns)
        at += rows


def many_streams(engine, args, count):
    engine.clear()
    for stream in range(count):
        engine.run([(i, stream) for i in range(STREAM_PROMPT)])
    ns = sum(engine.run([(STREAM_PROMPT + i, stream) for stream in range(count)], all_logits=True)
             for i in range(args.decode))
    return args.decode * count * 1e9 / ns


def depths_run(engine, args):
    out, filled = [], 0
    engine.clear()
    for depth in sorted(args.depths):
        engine.chain(filled, depth - filled)
        ns = sum(engine.run([(depth + i, 0)]) for i in range(STEPS))
        prompt_ns = engine.chain(depth + STEPS, CHUNK)
        filled = depth + STEPS + CHUNK
        out.append({"positions": depth, "tok_s": spread([STEPS * 1e9 / ns]),
                    "prompt_tok_s": spread([CHUNK * 1e9 / prompt_ns])})
    return out


class Samples(dict):
    def __missing__(self, key):
        self[key] = []
        return self[key]


def prompts_and_replies(engine, args):
    samples = Samples()
    for _ in range(args.reps):
        one_stream(engine, args, samples)
        for count in args.more_prompts:
            engine.clear()
            samples["more", count].append(count * 1e9 / engine.chain(0, count))
    plain = statistics.median(samples["windows", 1])
    return {
        "prompt_tok_s": spread(samples["prompt"]), "decode_tok_s": spread(samples["decode"]),
        "first_token_ns": spread(samples["first"]),
        "windows": [{"rows": rows, "steps": statistics.median(samples["windows", rows]) / plain,
                     "ns": spread(samples["windows", rows])} for rows in WINDOWS],
        "more_prompts": [{"tokens": n, "tok_s": spread(samples["more", n])} for n in args.more_prompts],
    }


def streams_run(engine, args):
    return [{"streams": n, "tok_s": spread([many_streams(engine, args, n) for _ in range(args.reps)])}
            for n in args.streams]


def numbers(text):
    return [int(part) for part in text.split(",") if part]


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("module", choices=("llama_cpp", "ik_llama_cpp"))
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    for name, default in (("prompt", 512), ("decode", 64), ("reps", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    for name in ("more-prompts", "streams", "depths"):
        parser.add_argument(f"--{name}", type=numbers, default=[])
    args = parser.parse_args()
    # What the libraries say while they load goes to standard error with the rest.
    out = os.dup(1)
    os.dup2(2, 1)
    engine = Engine(args.module, args.model, args)
    result = {"module": args.module, "threads": args.threads, "reps": args.reps, "load_ns": engine.load_ns,
              "prompt_tokens": args.prompt, "decode_tokens": args.decode, "streams": [], "depths": []}
    # Several streams come last: there are engines that end themselves there.
    for part in (lambda: prompts_and_replies(engine, args), lambda: {"depths": depths_run(engine, args)},
                 lambda: {"streams": streams_run(engine, args)}):
        result |= part()
        result |= {"resident_bytes": memory_bytes("VmRSS"), "resident_max_bytes": memory_bytes("VmHWM")}
        os.write(out, json.dumps(result).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
