/* See ref_dequant.h. One bit at a time, so that no shift or mask can be wrong for one width only. */
#include "ref_dequant.h"

#include <math.h>

unsigned ref_dequant_code(const uint32_t *words, unsigned bits, size_t k)
{
    unsigned code = 0;
    for (unsigned b = 0; b < bits; b++) {
        const size_t bit = k * bits + b;
        if (words[bit / 32] >> bit % 32 & 1u) code += 1u << b;
    }
    return code;
}

void ref_dequant_pack(uint32_t *words, unsigned bits, size_t k, unsigned code)
{
    for (unsigned b = 0; b < bits; b++) {
        const size_t bit = k * bits + b;
        words[bit / 32] |= (uint32_t)(code >> b & 1u) << bit % 32;
    }
}

double ref_dequant_value(const ref_dequant_row *row, size_t k)
{
    const size_t group = k / row->group;
    return row->scales[group] * (double)ref_dequant_code(row->words, row->bits, k) + row->biases[group];
}

/* (1 + mantissa / 2^m) * 2^(exponent - bias), or mantissa / 2^m * 2^(1 - bias) where the exponent is 0. */
static double small_float(unsigned code, int exponent_bits, int mantissa_bits, int bias)
{
    const int exponent = (int)(code >> mantissa_bits) & ((1 << exponent_bits) - 1);
    const int mantissa = (int)code & ((1 << mantissa_bits) - 1);
    const double fraction = (exponent > 0 ? 1.0 : 0.0) + mantissa / pow(2.0, mantissa_bits);
    const double magnitude = fraction * pow(2.0, (exponent > 0 ? exponent : 1) - bias);
    return code >> (exponent_bits + mantissa_bits) & 1u ? -magnitude : magnitude;
}

double ref_dequant_e4m3(unsigned code)
{
    return (code & 0x7Fu) == 0x7Fu ? (double)NAN : small_float(code, 4, 3, 7);
}

double ref_dequant_e2m1(unsigned code)
{
    return small_float(code, 2, 1, 1);
}
