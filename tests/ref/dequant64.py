"""Exact values of stored weights in double, from the published definitions of the formats alone: dense floats, MLX
affine, symmetric GPTQ, integers of compressed-tensors, FP8 and NVFP4. Shares no code with the engine or tools/requant.
"""
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import stfile  # noqa: E402

CODES = (".weight", ".qweight", ".weight_packed")


def small_float(codes, exponent_bits, mantissa_bits, bias):
    """Floats of a sign, exponent and mantissa without infinities; a zero exponent has no leading one."""
    codes = codes.astype(np.int64)
    mantissa = codes & ((1 << mantissa_bits) - 1)
    exponent = codes >> mantissa_bits & ((1 << exponent_bits) - 1)
    sign = np.where(codes >> (mantissa_bits + exponent_bits) & 1, -1.0, 1.0)
    fraction = np.where(exponent > 0, 1.0, 0.0) + mantissa / 2.0**mantissa_bits
    return sign * fraction * 2.0 ** (np.maximum(exponent, 1) - bias)


def e4m3(codes):
    return np.where((codes & 0x7F) == 0x7F, np.nan, small_float(codes, 4, 3, 7))


def e2m1(codes):
    return small_float(codes, 2, 1, 1)


def floats(tensor):
    return e4m3(tensor.data) if tensor.dtype == "F8_E4M3" else stfile.as_f64(tensor)


def unpack_codes(words, bits, cols):
    """u32 words (..., n) of a little-endian bit stream to codes (..., cols)."""
    stream = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=-1, bitorder="little")
    stream = stream[..., : cols * bits].reshape(*words.shape[:-1], cols, bits)
    return stream @ (1 << np.arange(bits)).astype(np.int64)


def spread(scales, rows, cols, block):
    """Scales (.., n, k) of blocks of rows and columns to one for each element; the last blocks may be short."""
    wide = np.repeat(np.repeat(scales, block[0], axis=-2), block[1], axis=-1)
    return wide[..., :rows, :cols]


def affine(tensors, module, settings):
    """scale * code + bias. A module's own settings start from MLX's defaults, not from the global ones."""
    words, scales = tensors[module + ".weight"].data, floats(tensors[module + ".scales"])
    own = settings.get(module, True)
    quant = settings if own is True else own
    bits, group = quant.get("bits", 4), quant.get("group_size", 64)
    cols = words.shape[-1] * 32 // bits
    assert cols == scales.shape[-1] * group, module
    codes = unpack_codes(words, bits, cols).astype(np.float64)
    biases = floats(tensors[module + ".biases"])
    return codes * np.repeat(scales, group, axis=-1) + np.repeat(biases, group, axis=-1)


def gptq(tensors, module):
    """scale * (code - 8); input k lies in word k / 8 at bit 4 * (k % 8)."""
    words, scales = tensors[module + ".qweight"].data.view(np.uint32), floats(tensors[module + ".scales"])
    codes = words[:, None, :] >> (4 * np.arange(8, dtype=np.uint32))[None, :, None] & 15
    codes = codes.reshape(-1, words.shape[1]).astype(np.float64)
    return (np.repeat(scales, len(codes) // len(scales), axis=0) * (codes - 8)).T


def packed(tensors, module):
    """scale * signed integer, stored with half its range added."""
    words, scales = tensors[module + ".weight_packed"].data, floats(tensors[module + ".weight_scale"])
    rows, cols = (int(n) for n in tensors[module + ".weight_shape"].data)
    bits = words.shape[1] * 32 // cols
    codes = unpack_codes(words, bits, cols).astype(np.float64) - 2 ** (bits - 1)
    return codes * spread(scales, rows, cols, (1, cols // scales.shape[1]))


def fp8(tensors, module, block):
    codes = e4m3(tensors[module + ".weight"].data)
    rows, cols = codes.shape
    if module + ".weight_scale_inv" in tensors:
        return codes * spread(floats(tensors[module + ".weight_scale_inv"]), rows, cols, block)
    return codes * floats(tensors[module + ".weight_scale"])


def nvfp4(tensors, module):
    """e2m1 * e4m3 * global, where the even input is the low half of a byte; or divided by the global scale."""
    divides = module + ".weight_packed" in tensors
    stored = tensors[module + (".weight_packed" if divides else ".weight")].data
    codes = np.stack([stored & 15, stored >> 4], axis=-1).reshape(len(stored), -1)
    values = e2m1(codes) * np.repeat(floats(tensors[module + ".weight_scale"]), 16, axis=-1)
    if divides:
        return values / floats(tensors[module + ".weight_global_scale"])
    return values * floats(tensors[module + ".weight_scale_2"])


def values(tensors, module, settings):
    """The exact values of a module. tensors: {name: stfile.Tensor}; settings: the config's quantisation block."""
    if module + ".qweight" in tensors:
        return gptq(tensors, module)
    packed_codes = tensors.get(module + ".weight_packed")
    if packed_codes is not None:
        return nvfp4(tensors, module) if packed_codes.dtype == "U8" else packed(tensors, module)
    stored = tensors[module + ".weight"]
    if stored.dtype == "U32":
        return affine(tensors, module, settings)
    if stored.dtype == "F8_E4M3":
        return fp8(tensors, module, settings.get("weight_block_size"))
    return nvfp4(tensors, module) if stored.dtype == "U8" else floats(stored)


def modules(tensors):
    """The modules of a file, in its order."""
    return [name.removesuffix(suffix) for name in tensors for suffix in CODES if name.endswith(suffix)]
