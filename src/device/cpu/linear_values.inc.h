/* What all inner chains of the linear op share: reading x and scales, asking for codes ahead, and storing y.
 * Included where the vectors are defined (linear_simd.h).
 */
#ifndef LW_DEVICE_CPU_LINEAR_VALUES_INC_H
#define LW_DEVICE_CPU_LINEAR_VALUES_INC_H

#include "device/cpu/linear_simd.h"
#include "device/cpu/linear_weight.h"
#include "base/float16.h"

enum { LINE_BYTES = 64 };

LINEAR_INLINE vf load_scales(lw_dtype type, const uint8_t *at)
{
    if (type == LW_DTYPE_BF16) return vf_load_bf16(at);
    if (type == LW_DTYPE_F16) return vf_load_fp16(at);
    if (type == LW_DTYPE_F8_E4M3) return vf_load_e4m3(at);
    return vf_load(at);
}

/* Asks for the lines of [at, at + bytes); outside of a weight that is in vain, and harmless. */
LINEAR_INLINE void ask_for(const uint8_t *at, size_t bytes)
{
    LINEAR_UNROLL
    for (size_t i = 0; i < bytes; i += LINE_BYTES) __builtin_prefetch(at + i);
}

/* The same into the second-level cache. */
LINEAR_INLINE void ask_far(const uint8_t *at, size_t bytes)
{
    LINEAR_UNROLL
    for (size_t i = 0; i < bytes; i += LINE_BYTES) __builtin_prefetch(at + i, 0, 2);
}

/* Where row r of a call lies in x or y. */
static uint32_t vector_of(const uint32_t *rows, uint32_t r) { return rows == NULL ? r : rows[r]; }

/* Sums as LANES chains of every LANES-th k, folded in halves. */
LINEAR_INLINE float group_sum(const float *x, uint32_t count)
{
    float lane[LANES];
    vf sum = vf_zero();
    for (uint32_t k = 0; k < count; k += LANES) sum = vf_add(sum, vf_load(x + k));
    vf_store(lane, sum);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) lane[i] += lane[i + half];
    return lane[0];
}

/* One group of one row as fp32, zeros past the end of x. */
static void load_group(const lw_cpu_linear_args *args, uint32_t row, uint32_t group, float *values)
{
    const lw_cpu_weight *const w = args->weight;
    const uint32_t begin = group * w->group;
    const uint32_t count = begin >= w->cols ? 0 : w->cols - begin < w->group ? w->cols - begin : w->group;
    const lw_bf16 *const x = args->x + row * args->x_stride + begin;
    uint32_t k = 0;
    for (; k + LANES <= count; k += LANES) vf_store(values + k, vf_load_bf16(x + k));
    for (; k < count; k++) values[k] = lw_float_of_bf16(x[k]);
    for (; k < w->group; k++) values[k] = 0.0f;
}

static uint32_t one_nan(uint32_t bits) { return (bits & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FC00000u : bits; }

/* Stores count columns of one row of one block. */
static void store_row(const lw_cpu_linear_args *args, size_t row, uint32_t col, const float *acc,
                      uint32_t count)
{
    const float factor = args->weight->globals[args->member].factor;
    uint32_t bits[LANES];
    for (int i = 0; i < LANES; i++) bits[i] = one_nan(lw_bits_of_float(acc[i] * factor));
    if (args->y_f32) {
        memcpy((float *)args->y + row * args->y_stride + col, bits, count * sizeof *bits);
        return;
    }
    lw_bf16 values[LANES];
    for (int i = 0; i < LANES; i++) {
        const uint32_t near = bits[i] + 0x7FFFu + (bits[i] >> 16 & 1u);
        values[i] = (lw_bf16)((bits[i] == 0x7FC00000u ? bits[i] : near) >> 16);
    }
    memcpy((lw_bf16 *)args->y + row * args->y_stride + col, values, count * sizeof *values);
}

#endif
