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
    const uint magnitude = code & 0x7Fu, sign = (code & 0x80u) << 24, one = 8;
    const float small = (float)(int)magnitude * 0x1p-9f;
    return as_float((magnitude < one ? as_uint(small) : (magnitude << 20) + 0x3C000000u) | sign);
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

/* This lane's word of the index-th 16. The lane comes last: what stands before it is one address for all.
 * in_block: all lanes ask at once, which takes no address a lane, and on a host that runs kernels as
 * functions much longer. */
static inline uint lane_word(const global uint *words, uint index, bool in_block)
{
    words += index * LW_XPU_LANES;
    return in_block ? intel_sub_group_block_read(words) : words[get_local_id(0)];
}

/* Eight neighbouring codes of a plane of so many bits: the at-th eight of this lane's words. */
static inline uint8 plane_codes(const global uint *words, uint at, uint bits, bool in_block)
{
    const uint8 order = (uint8)(0, 1, 2, 3, 4, 5, 6, 7);
#define WORD(i) lane_word(words, i, in_block)
    if (bits < 4) {
        const uint per_word = 4 / bits, word = WORD(at / per_word) >> at % per_word * 8 * bits;
        return (uint8)(word) >> order * bits & (1u << bits) - 1;
    }
    const uint first = at * (bits / 4), a = WORD(first);
    if (bits == 4) return convert_uint8(as_uchar8((uint2)(a & 0x0F0F0F0Fu, a >> 4 & 0x0F0F0F0Fu)).s04152637);
    const uint b = WORD(first + 1);
    if (bits == 8) return convert_uint8(as_uchar8((uint2)(a, b)));
    const uint c = WORD(first + 2), d = WORD(first + 3);
    if (bits == 16) return (uint8)(a, a, b, b, c, c, d, d) >> order % 2 * 16 & 0xFFFFu;
    return (uint8)(a, b, c, d, WORD(first + 4), WORD(first + 5), WORD(first + 6), WORD(first + 7));
#undef WORD
}

/* The at-th eight codes of a group of so many, whose planes begin at words. */
static inline uint8 octet_codes(const global uint *words, uint group, uint at, uint bits, bool in_block)
{
    const uint low = low_bits(bits);
    const uint8 codes = plane_codes(words, at, low, in_block);
    if (low == bits) return codes;
    words += group * low / 32 * LW_XPU_LANES;
    return codes | plane_codes(words, at, bits - low, in_block) << low;
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

/* Of a scale, with its bias where one stands beside it. */
static inline uint scale_bytes(const lw_xpu_matrix *w)
{
    const uint bytes = w->scale_type == LW_XPU_SCALE_FP32 ? 4 : w->scale_type == LW_XPU_SCALE_E4M3 ? 1 : 2;
    return w->has_bias ? 2 * bytes : bytes;
}

/* Of a lane of the index-th 16 behind scales; as above, the lane comes last. */
static inline affine affine_load(const lw_xpu_matrix *w, size_t scales, size_t index, uint lane)
{
    affine of;
    scales += index * LW_XPU_LANES * scale_bytes(w);
    if (w->has_bias && w->scale_type != LW_XPU_SCALE_FP32) {
        const uint pair = ((const global uint *)scales)[lane];
        of.scale = half_value(pair & 0xFFFFu, w->scale_type);
        of.bias = half_value(pair >> 16, w->scale_type);
    } else if (w->has_bias) {
        of.scale = ((const global float *)scales)[2 * lane];
        of.bias = ((const global float *)scales)[2 * lane + 1];
    } else {
        if (w->scale_type == LW_XPU_SCALE_FP32) of.scale = ((const global float *)scales)[lane];
        else if (w->scale_type == LW_XPU_SCALE_E4M3)
            of.scale = e4m3_value(((const global uchar *)scales)[lane]);
        else of.scale = half_value(((const global ushort *)scales)[lane], w->scale_type);
        of.bias = w->bias_per_scale * of.scale;
    }
    return of;
}

static inline uint group_words(const lw_xpu_matrix *w)
{
    return w->group * w->bits / 32;
}

#endif
