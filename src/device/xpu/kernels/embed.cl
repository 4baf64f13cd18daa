/* The embedding: a token's row of a matrix of any form, each value exact until it is rounded once. An item is
 * one column, group_id(1) the row. Definitions in ops.list.
 */
#include "device/xpu/kernels/codes.h"

/* sum + rest, where rest is smaller than the sum's last bit, rounded to odd: the last bit tells that
 * something was cut off, so that rounding the result to bf16 is rounding the exact value. */
static inline float to_odd(float sum, float rest)
{
    const uint bits = as_uint(sum);
    if (rest == 0.0f || (bits & 1u) != 0) return sum;
    return as_float((rest > 0.0f) == (sum > 0.0f) ? bits + 1 : bits - 1);
}

static inline float sum_to_odd(float a, float b)
{
    const float sum = a + b, part = sum - a;
    return to_odd(sum, (a - (sum - part)) + (b - part));
}

static inline float product_to_odd(float a, float b)
{
    const float both = a * b;
    return to_odd(both, fma(a, b, -both));
}

/* a b + c: what product and sum cut off are far below the sum, or one of them is 0 since the sum is exact. */
static inline float affine_to_odd(float a, float b, float c)
{
    const float both = a * b, sum = both + c, part = sum - both;
    const float lost = (both - (sum - part)) + (c - part);
    return sum_to_odd(sum, sum_to_odd(lost, fma(a, b, -both)));
}

static inline float quotient_to_odd(float a, float b)
{
    const float quotient = a / b, rest = fma(-quotient, b, a);
    return to_odd(quotient, b < 0.0f ? -rest : rest);
}

/* The k-th code of a plane. */
static inline uint plane_code(const global uint *words, uint k, uint bits, uint is_paired)
{
    const uint per_word = 32 / bits, at = k % per_word;
    const uint place = is_paired ? at / 2 + at % 2 * (per_word / 2) : at;
    return words[k / per_word * LW_XPU_LANES] >> place * bits & 0xFFFFFFFFu >> (32 - bits);
}

LW_KERNEL(embed, lw_xpu_embed_args)
{
    const lw_xpu_matrix *w = &a.table;
    const uint col = get_global_id(0);
    const size_t row = get_group_id(1);
    if (col >= w->cols) return;
    const uint token = (uint)((const global int *)a.tokens)[row], lane = token % LW_XPU_LANES;
    const size_t group = (size_t)(token / LW_XPU_LANES) * w->groups + col / w->group;
    const global uint *words = (const global uint *)w->words + group * group_words(w) * LW_XPU_LANES + lane;
    const uint k = col % w->group, low = low_bits(w->bits);
    uint code = plane_code(words, k, low, a.is_paired);
    words += w->group * low / 32 * LW_XPU_LANES;
    if (low < w->bits) code |= plane_code(words, k, w->bits - low, a.is_paired) << low;
    const float value =
        w->map == LW_XPU_MAP_TABLE16 ? ((const global float *)w->table)[code] : code_value(code, w->map);
    const bool is_scaled = w->scale_type != LW_XPU_SCALE_NONE;
    affine of = { 1.0f, 0.0f };
    if (is_scaled) of = affine_load(w, w->scales, group, lane);
    float out = value;
    if (is_scaled && w->has_bias) out = affine_to_odd(of.scale, value, of.bias);
    else if (is_scaled) out = product_to_odd(of.scale, value + w->bias_per_scale);
    /* Where a global scale follows, that product is exact: nothing made it odd. */
    if (a.global_kind == LW_XPU_GLOBAL_MULTIPLIES) out = product_to_odd(out, a.factor);
    if (a.global_kind == LW_XPU_GLOBAL_DIVIDES) out = quotient_to_odd(out, a.factor);
    const bool is_stored = w->map == LW_XPU_MAP_BF16 && a.global_kind == LW_XPU_GLOBAL_NONE;
    ((global ushort *)a.y)[row * a.y_stride + col] = is_stored ? (ushort)code : bf_of(out);
}
