/* The linear op in double, from its formula: y = x W^T with W[n][k] = (scale[n][k / group] * code[n][k] +
 * bias) * global. Plain arrays in, plain arrays out; knows nothing of any kernel.
 *
 * An int8 x is d * q: in fp32 d = max |x| / 127 and q = x * (127 / max |x|), to the nearest integer, ties to
 * even; both 0 where max |x| is below 2^-110.
 */
#ifndef LW_TESTS_REF_LINEAR_H
#define LW_TESTS_REF_LINEAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Deliberate mistakes, for controls that a check must catch. */
typedef enum ref_mistake {
    REF_RIGHT,
    REF_WRONG_GROUP,      /* every group takes its neighbour's scale and bias */
    REF_DROPPED_GROUP,    /* the last group is left out */
    REF_SWAPPED_SCALE,    /* scale and bias change places */
    REF_SWAPPED_HALVES,   /* the halves of every run of 8 codes change places */
    REF_NO_GLOBAL,        /* the global scale is left out */
    REF_WHOLE_X,          /* x is not rounded to int8 */
    REF_WRONG_BLOCK,      /* blocks of an int8 x are half as wide */
    REF_MISTAKE_COUNT
} ref_mistake;

typedef struct ref_linear {
    uint32_t rows, columns, inputs;
    uint32_t group;              /* 0: dense, codes are the values */
    uint32_t x_block; /* of each row, so many neighbours of x are rounded to int8 by a scale of their
                         own; 0: x is taken as it is */
    const float *x;              /* (rows, inputs) */
    const float *codes;          /* (columns, inputs) */
    const float *scales, *biases; /* (columns, inputs / group), the last group may be short */
    double global;
} ref_linear;

/* y and magnitudes are (rows, columns); a magnitude is the sum of |scale * code * x| and |bias * x| over k.
 * */
void ref_linear_run(const ref_linear *l, ref_mistake mistake, double *y, double *magnitudes);

/* The same in fp32, one sequential sum over k: what anyone would get without care. */
void ref_linear_plain(const ref_linear *l, float *y);

/* How far a result may be from y when every term passes at most `roundings` fp32 roundings and the result is
 * then stored with `significand` bits (24 for fp32, 8 for bf16).
 *   A term t that is rounded n times arrives as t (1 + e), |e| <= n u / (1 - n u), u = 2^-24, whatever the
 *   order of the sum (Higham, Accuracy and Stability, lemma 3.1); so the sum is off by at most that times
 *   sum |t|. Storing adds half an ulp. Products below 2^-126 may lose their tail, or vanish where subnormals
 *   are flushed: terms * 2^-100 covers codes that stand up to 2^26 above their value. */
double ref_linear_bound(double y, double magnitude, double roundings, double terms, int significand);

#endif
