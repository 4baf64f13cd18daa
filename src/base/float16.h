/* Conversions between fp32 and the short floats of checkpoints: bf16 (8 exponent bits), fp16 (5) and the
 * 8-bit e4m3 (4). Narrowing rounds to nearest, ties to even. NaN stays NaN.
 */
#ifndef LW_BASE_FLOAT16_H
#define LW_BASE_FLOAT16_H

#include <stdint.h>
#include <string.h>

static inline float lw_float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t lw_bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float lw_float_of_bf16(uint16_t half)
{
    return lw_float_of_bits((uint32_t)half << 16);
}

static inline uint16_t lw_bf16_of_float(float value)
{
    const uint32_t bits = lw_bits_of_float(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)((bits >> 16) | 0x40u); /* a quiet NaN */
    return (uint16_t)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

static inline float lw_float_of_fp16(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t exponent = (half >> 10) & 0x1Fu;
    const uint32_t mantissa = half & 0x3FFu;
    if (exponent == 0) { /* zero and subnormals: mantissa * 2^-24 is exact in fp32 */
        const float magnitude = (float)mantissa * 0x1p-24f;
        return lw_float_of_bits(lw_bits_of_float(magnitude) | sign);
    }
    if (exponent == 31) return lw_float_of_bits(sign | 0x7F800000u | (mantissa << 13));
    return lw_float_of_bits(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

/* e4m3fn: bias 7, no infinity, all ones is NaN. */
static inline float lw_float_of_e4m3(uint8_t code)
{
    const uint32_t sign = (uint32_t)(code & 0x80u) << 24;
    const uint32_t exponent = code >> 3 & 15u, mantissa = code & 7u;
    if (exponent == 15 && mantissa == 7) return lw_float_of_bits(sign | 0x7FC00000u);
    if (exponent == 0) return lw_float_of_bits(lw_bits_of_float((float)mantissa * 0x1p-9f) | sign);
    return lw_float_of_bits(sign | ((exponent + 120u) << 23) | (mantissa << 20));
}

/* The fp16, or e4m3, that reads as value, which was read from one. */
static inline uint16_t lw_fp16_of_exact(float value)
{
    const uint32_t bits = lw_bits_of_float(value), sign = bits >> 16 & 0x8000u;
    const uint32_t exponent = bits >> 23 & 0xFFu, mantissa = bits >> 13 & 0x3FFu;
    if (exponent == 255) return (uint16_t)(sign | 0x7C00u | mantissa);
    if (exponent > 112) return (uint16_t)(sign | (exponent - 112) << 10 | mantissa);
    return (uint16_t)(sign | (uint32_t)(lw_float_of_bits(bits & 0x7FFFFFFFu) * 0x1p24f));
}

static inline uint8_t lw_e4m3_of_exact(float value)
{
    const uint32_t bits = lw_bits_of_float(value), sign = bits >> 24 & 0x80u;
    const uint32_t exponent = bits >> 23 & 0xFFu;
    if (exponent > 120) return (uint8_t)(sign | (exponent - 120) << 3 | (bits >> 20 & 7u));
    return (uint8_t)(sign | (uint32_t)(lw_float_of_bits(bits & 0x7FFFFFFFu) * 0x1p9f));
}

#endif
