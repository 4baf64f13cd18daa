/* Codes, scales and biases of a weight matrix as numbers, whatever its form (kargs.h). OpenCL C only. */
#ifndef LW_DEVICE_XPU_KERNELS_CODES_H
#define LW_DEVICE_XPU_KERNELS_CODES_H

#include "device/xpu/kernels/lw_xpu.h"

/* Vectors of eight stand where arrays could: compilers keep them in registers without unrolling anything. */
#define EIGHT(of) of(0), of(1), of(2), of(3), of(4), of(5), of(6), of(7)

/* A float of fewer bits than fp32's, without its sign: exponent and mantissa are moved by shift to where
 * fp32's lie; least is the smallest normal one. Nothing here is subnormal in fp32, which some devices flush.
 */
static inline float small_float(uint magnitude, uint shift, float least)
{
    const uint bits = magnitude << shift, one = 0x00800000u;
    if (bits < one) return as_float(as_uint(least) | bits) - least;
    return as_float(bits - one + as_uint(least));
}

static inline float e4m3_value(uint code)
{
    return as_float(as_uint(small_float(code & 0x7Fu, 20, 0x1p-6f)) | (code & 0x80u) << 24);
}

static inline float fp16_value(uint code)
{
    const uint magnitude = code & 0x7FFFu, sign = (code & 0x8000u) << 16;
    if (magnitude >= 0x7C00u) return as_float(0x7F800000u | (magnitude & 0x3FFu) << 13 | sign);
    return as_float(as_uint(small_float(magnitude, 13, 0x1p-14f)) | sign);
}

/* Bits of a code in the low plane (kargs.h). */
static inline uint low_bits(uint bits)
{
    return bits == 3 ? 2 : bits == 5 || bits == 6 ? 4 : bits;
}

/* Eight neighbouring codes of a plane of so many bits: the at-th eight of this lane's words. */
static inline uint8 plane_codes(const global uint *words, uint at, uint bits)
{
    const uint8 order = (uint8)(0, 1, 2, 3, 4, 5, 6, 7);
    if (bits == 4) {
        const uint word = words[at * LW_XPU_LANES];
        const uchar4 even = as_uchar4(word & 0x0F0F0F0Fu), odd = as_uchar4(word >> 4 & 0x0F0F0F0Fu);
        return (uint8)(even.x, odd.x, even.y, odd.y, even.z, odd.z, even.w, odd.w);
    }
    if (bits < 4) {
        const uint per_word = 4 / bits,
                   word = words[at / per_word * LW_XPU_LANES] >> at % per_word * 8 * bits;
        return (uint8)(word) >> order * bits & (1u << bits) - 1;
    }
    words += at * (bits / 4) * LW_XPU_LANES;
    const uint4 first = (uint4)(words[0], words[LW_XPU_LANES], bits < 16 ? 0 : words[2 * LW_XPU_LANES],
                                bits < 16 ? 0 : words[3 * LW_XPU_LANES]);
    if (bits == 8) return (uint8)(first.xxxx, first.yyyy) >> order % 4 * 8 & 0xFFu;
    if (bits == 16) return (uint8)(first.xx, first.yy, first.zz, first.ww) >> order % 2 * 16 & 0xFFFFu;
    words += 4 * LW_XPU_LANES;
    return (uint8)(first, words[0], words[LW_XPU_LANES], words[2 * LW_XPU_LANES], words[3 * LW_XPU_LANES]);
}

/* The at-th eight codes of a group of so many, whose planes begin at words. */
static inline uint8 octet_codes(const global uint *words, uint group, uint at, uint bits)
{
    const uint low = low_bits(bits);
    const uint8 codes = plane_codes(words, at, low);
    if (low == bits) return codes;
    return codes | plane_codes(words + group * low / 32 * LW_XPU_LANES, at, bits - low) << low;
}

/* Of a code that is no index into a table. */
static inline float code_value(uint code, uint map)
{
    if (map == LW_XPU_MAP_E4M3) return e4m3_value(code);
    if (map == LW_XPU_MAP_BF16) return as_float(code << 16);
    if (map == LW_XPU_MAP_FP16) return fp16_value(code);
    if (map == LW_XPU_MAP_FP32) return as_float(code);
    return (float)code;
}

static inline float half_value(uint code, uint type)
{
    return type == LW_XPU_SCALE_FP16 ? fp16_value(code) : as_float(code << 16);
}

typedef struct affine { float scale, bias; } affine;

/* Of a group's lane: the at-th scale, or pair of scale and bias, behind scales. */
static inline affine affine_load(const lw_xpu_matrix *w, size_t scales, size_t at)
{
    affine of;
    if (w->has_bias && w->scale_type != LW_XPU_SCALE_FP32) {
        const uint pair = ((const global uint *)scales)[at];
        of.scale = half_value(pair & 0xFFFFu, w->scale_type);
        of.bias = half_value(pair >> 16, w->scale_type);
    } else if (w->has_bias) {
        of.scale = ((const global float *)scales)[2 * at];
        of.bias = ((const global float *)scales)[2 * at + 1];
    } else {
        if (w->scale_type == LW_XPU_SCALE_FP32) of.scale = ((const global float *)scales)[at];
        else if (w->scale_type == LW_XPU_SCALE_E4M3)
            of.scale = e4m3_value(((const global uchar *)scales)[at]);
        else of.scale = half_value(((const global ushort *)scales)[at], w->scale_type);
        of.bias = w->bias_per_scale * of.scale;
    }
    return of;
}

static inline uint group_words(const lw_xpu_matrix *w)
{
    return w->group * w->bits / 32;
}

#endif
