"""Reads and writes safetensors files with numpy alone. bf16 and e4m3 stay words; as_f64 widens the rest."""
import json
import struct
from typing import NamedTuple

import numpy as np

NUMPY_OF = {
    "BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "F8_E4M3": np.uint8,
    "I16": np.int16, "U16": np.uint16, "F16": np.float16,
    "BF16": np.uint16, "I32": np.int32, "U32": np.uint32, "F32": np.float32, "I64": np.int64,
    "U64": np.uint64, "F64": np.float64,
}


class Tensor(NamedTuple):
    dtype: str
    data: np.ndarray


def read(path):
    """({name: Tensor}, metadata) of one file."""
    with open(path, "rb") as file:
        header_bytes = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(header_bytes))
        data = file.read()
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        array = np.frombuffer(data[begin:end], dtype=NUMPY_OF[entry["dtype"]])
        tensors[name] = Tensor(entry["dtype"], array.reshape(entry["shape"]))
    return tensors, metadata


def write(path, tensors, metadata=None):
    """Writes tensors in their order; the header is padded to 8 bytes as the format's own writer does."""
    header = {"__metadata__": metadata} if metadata else {}
    at = 0
    for name, tensor in tensors.items():
        size = tensor.data.nbytes
        shape = list(tensor.data.shape)
        header[name] = {"dtype": tensor.dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor.data).tobytes())


def bf16_words(values):
    """fp32 or fp64 values to bf16 words, nearest, ties to even."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def bf16_values(words):
    return (np.asarray(words).astype(np.uint32) << 16).view(np.float32)


def as_f64(tensor):
    data = bf16_values(tensor.data) if tensor.dtype == "BF16" else tensor.data
    return data.astype(np.float64)


def from_f64(values, dtype):
    if dtype == "BF16":
        return Tensor(dtype, bf16_words(values))
    return Tensor(dtype, values.astype(NUMPY_OF[dtype]))
