/* See ref_dequant.h. One bit at a time, so that no shift or mask can be wrong for one width only. */
#include "ref_dequant.h"

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
