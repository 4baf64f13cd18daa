#!/usr/bin/env python3
"""Says how fast the Hugging Face library encodes a file: tokenizer_speed.py TOKENIZER.json TEXT [SECONDS]

One thread, pieces of 4 KiB one after the other, by a tokenizer that has seen the text and keeps its words;
the line is one of those that tools/tokenizer_speed.c prints.
"""
import os
import sys
import time
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
import tokenizers  # noqa: E402

PIECE_BYTES = 4096


def pieces(data):
    """Cut where a code point begins, as the other program does."""
    begin = 0
    while begin < len(data):
        end = min(begin + PIECE_BYTES, len(data))
        while end < len(data) and data[end] & 0xC0 == 0x80:
            end += 1
        yield data[begin:end].decode("utf-8")
        begin = end


def main():
    wish = float(sys.argv[3]) if len(sys.argv) > 3 else 1.0
    tokenizer = tokenizers.Tokenizer.from_file(sys.argv[1])
    tokenizer.no_truncation()
    tokenizer.no_padding()
    data = Path(sys.argv[2]).read_bytes()
    texts = list(pieces(data))
    best, spent, ids = float("inf"), 0.0, 0
    for text in texts:
        tokenizer.encode(text, add_special_tokens=False)
    while spent < wish:
        begin = time.perf_counter()
        ids = sum(len(tokenizer.encode(text, add_special_tokens=False)) for text in texts)
        took = time.perf_counter() - begin
        best, spent = min(best, took), spent + took
    print(f"warm  {PIECE_BYTES:8}-byte pieces  {len(data) / best / 1e6:7.1f} MB/s  {ids} ids")


if __name__ == "__main__":
    main()
