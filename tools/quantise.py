"""How the published formats store a matrix: each function gives the tensors of one module, by the suffix of
their names. Codes are chosen with the scales as stored, so that rounding a scale costs no second error.
"""
import numpy as np

import stfile

Tensor = stfile.Tensor

E4M3 = np.array([m / 8 * 2.0**-6 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7)
                 for e in range(16) for m in range(8)][:127])
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def nearest(values, table, sign_bit):
    """Codes of a float whose magnitudes are the ascending table; the sign is bit sign_bit."""
    magnitude = np.minimum(np.abs(values), table[-1])
    codes = np.searchsorted((table[1:] + table[:-1]) / 2, magnitude)
    return (codes | (values < 0).astype(np.int64) << sign_bit).astype(np.uint8)


def decoded(codes, table, sign_bit):
    return np.where(codes >> sign_bit & 1, -1.0, 1.0) * table[codes & ((1 << sign_bit) - 1)]


def pack_codes(codes, bits):
    """Codes (rows, cols) to u32 words: each row is one little-endian bit stream."""
    ones = (codes[..., None] >> np.arange(bits)) & 1
    stream = np.packbits(ones.reshape(len(codes), -1).astype(np.uint8), axis=-1, bitorder="little")
    return stream.view(np.uint32)


def grouped(values, group):
    return values.reshape(len(values), -1, group)


def affine(values, bits, group, scale_type):
    """MLX: each group spans its least to its greatest value."""
    groups = grouped(values, group)
    low, high = groups.min(axis=-1), groups.max(axis=-1)
    scales = stfile.from_f64(np.maximum((high - low) / (2**bits - 1), 1e-8), scale_type)
    biases = stfile.from_f64(low, scale_type)
    codes = np.rint((groups - stfile.as_f64(biases)[..., None]) / stfile.as_f64(scales)[..., None])
    codes = np.clip(codes, 0, 2**bits - 1).astype(np.int64).reshape(values.shape)
    return {".weight": Tensor("U32", pack_codes(codes, bits)), ".scales": scales, ".biases": biases}


def symmetric(values, bits, group, scale_type):
    """(codes with half their range added, scales)."""
    groups, half = grouped(values, group), 2 ** (bits - 1)
    scale = np.maximum(np.maximum(groups.max(axis=-1) / (half - 1), -groups.min(axis=-1) / half), 1e-6)
    scales = stfile.from_f64(scale, scale_type)
    codes = np.rint(groups / stfile.as_f64(scales)[..., None]) + half
    return np.clip(codes, 0, 2 * half - 1).astype(np.int64).reshape(values.shape), scales


def gptq(values, group, scale_type, is_bare):
    """is_bare: zero points and order left empty, as some exporters do."""
    codes, scales = symmetric(values, 4, group, scale_type)
    rows, cols = values.shape
    zero, order = (0, np.zeros(cols)) if is_bare else (0x77777777, np.arange(cols) // group)
    return {
        ".qweight": Tensor("I32", np.ascontiguousarray(pack_codes(codes, 4).T).view(np.int32)),
        ".scales": Tensor(scales.dtype, np.ascontiguousarray(scales.data.T)),
        ".qzeros": Tensor("I32", np.full((cols // group, rows // 8), zero, np.int32)),
        ".g_idx": Tensor("I32", order.astype(np.int32)),
    }


def packed(values, bits, group, scale_type):
    """Integers of compressed-tensors; group 0: one scale a row."""
    codes, scales = symmetric(values, bits, group or values.shape[1], scale_type)
    return {
        ".weight_packed": Tensor("I32", pack_codes(codes, bits).view(np.int32)),
        ".weight_scale": scales,
        ".weight_shape": Tensor("I64", np.array(values.shape, np.int64)),
    }


def fp8(values, scale):
    """e4m3 codes for scales that broadcast to the matrix, as stored in fp32."""
    return Tensor("F8_E4M3", nearest(values / scale, E4M3, 7))


def fp32_scales(largest):
    return Tensor("F32", np.maximum(largest / E4M3[-1], 1e-12).astype(np.float32))


def fp8_block(values, block=128):
    rows, cols = (-(-n // block) for n in values.shape)
    padded = np.zeros((rows * block, cols * block))
    padded[: values.shape[0], : values.shape[1]] = np.abs(values)
    scales = fp32_scales(padded.reshape(rows, block, cols, block).max(axis=(1, 3)))
    wide = np.repeat(np.repeat(scales.data, block, axis=0), block, axis=1)
    codes = fp8(values, wide[: values.shape[0], : values.shape[1]].astype(np.float64))
    return {".weight": codes, ".weight_scale_inv": scales}


def fp8_tensor(values):
    scale = fp32_scales(np.array(np.abs(values).max()))
    return {".weight": fp8(values, float(scale.data)), ".weight_scale": scale,
            ".input_scale": Tensor("F32", np.array(1.0, np.float32))}


def fp8_channel(values):
    scales = fp32_scales(np.abs(values).max(axis=1, keepdims=True))
    return {".weight": fp8(values, scales.data.astype(np.float64)), ".weight_scale": scales}


def nvfp4(values, divides):
    """Groups of 16 with an e4m3 scale each, and a global scale that multiplies or divides."""
    groups = grouped(values, 16)
    largest = np.abs(groups).max(axis=-1)
    one = np.float32(max(largest.max(), 1e-12) / (E4M3[-1] * E2M1[-1]))
    stored = np.float32(1) / one if divides else one
    factor = 1 / float(stored) if divides else float(stored)
    scales = nearest(largest / E2M1[-1] / factor, E4M3, 7)
    real = np.maximum(decoded(scales, E4M3, 7), E4M3[1])[..., None] * factor
    codes = nearest(groups / real, E2M1, 3).reshape(values.shape)
    return {
        ".weight_packed" if divides else ".weight": Tensor("U8", codes[:, ::2] | codes[:, 1::2] << 4),
        ".weight_scale": Tensor("F8_E4M3", scales),
        ".weight_global_scale" if divides else ".weight_scale_2":
            Tensor("F32", np.array([stored]) if divides else np.array(stored)),
    }
