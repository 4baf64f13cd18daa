/* FP64 reference of stored weights, from the formats' definitions alone. MLX affine: a row is a little-endian
 * bit stream whose code k occupies bits [k * bits, (k + 1) * bits), and w[k] = scale[k / group] * code[k] +
 * bias[k / group].
 */
#ifndef REF_DEQUANT_H
#define REF_DEQUANT_H

#include <stddef.h>
#include <stdint.h>

/* The code at k of a row of words, collected bit by bit. */
unsigned ref_dequant_code(const uint32_t *words, unsigned bits, size_t k);

/* Puts a code at k; the words' bits there must be zero. */
void ref_dequant_pack(uint32_t *words, unsigned bits, size_t k, unsigned code);

typedef struct ref_dequant_row {
    const uint32_t *words; /* [cols * bits / 32] */
    const double *scales;  /* [cols / group] */
    const double *biases;  /* [cols / group] */
    size_t cols;
    size_t group;
    unsigned bits;
} ref_dequant_row;

double ref_dequant_value(const ref_dequant_row *row, size_t k);

/* An 8-bit float of 4 exponent bits (bias 7) and 3 mantissa bits, without infinities; 0x7F and 0xFF are NaN.
 */
double ref_dequant_e4m3(unsigned code);

/* A 4-bit float of 2 exponent bits (bias 1) and 1 mantissa bit. */
double ref_dequant_e2m1(unsigned code);

#endif
