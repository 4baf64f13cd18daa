/* DPAS, for devices that have it. Read by OpenCL C only.
 *
 * The instruction's operands: in `left`, lane k has column k of one matrix, a row in each element; in
 * `right`, lane n has column n of the other, 16 values of k in 8 words, the even one in the low half; of the
 * sums, lane n has column n, a row in each element. What it adds to a sum is the chain over k, whose order is
 * its own.
 */
#ifndef LW_DEVICE_XPU_KERNELS_DPAS_H
#define LW_DEVICE_XPU_KERNELS_DPAS_H

/* Compilers' headers lack it. */
float8 __attribute__((overloadable)) intel_sub_group_bf16_bf16_matrix_mad_k16(short8 a, int8 b, float8 c);

static inline float8 dpas(ushort8 left, int8 right, float8 sums)
{
    return intel_sub_group_bf16_bf16_matrix_mad_k16(as_short8(left), right, sums);
}

#endif
