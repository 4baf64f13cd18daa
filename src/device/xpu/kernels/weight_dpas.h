/* A weight matrix as DPAS takes it, from the forms of codes that bf16 holds (dpas_forms.list): lane n has
 * column n of the block, two values of k in a word, the even one in its low half. Read by OpenCL C only.
 */
#ifndef LW_DEVICE_XPU_KERNELS_WEIGHT_DPAS_H
#define LW_DEVICE_XPU_KERNELS_WEIGHT_DPAS_H

#include "device/xpu/kernels/product.h"

enum { DPAS_STEP = 16, DPAS_UNIT = 64 }; /* columns of one instruction; columns that are read together */

/* Of a group: where this sub-group's words of its planes begin. */
typedef struct planes {
    const global uint *low, *high;
} planes;

static inline planes planes_of(const product *p, uint group, uint bits)
{
    const lw_xpu_matrix *w = &p->args->weight;
    planes of;
    of.low = p->words + (size_t)group * group_words(w) * LW_XPU_LANES;
    of.high = of.low + w->group * low_bits(bits) / 32 * LW_XPU_LANES;
    return of;
}

/* A lane's codes of DPAS_STEP columns: words of the low plane, and, first of high, the high one's bits.
 * Structs here have no padding, which compilers copy through memory. */
typedef struct stripe {
    uint8 low, high;
} stripe;

/* From column `at` of a group on. is_half: the group ends after eight of them; what stands for the others is
 * multiplied by zero, and is zero. */
static inline stripe stripe_load(planes from, uint at, bool is_half, uint bits)
{
    const uint low = low_bits(bits), high = bits - low;
    const global uint *words = from.low + at * low / 32 * LW_XPU_LANES;
    stripe s = { 0, 0 };
    if (low == 2) s.low.s0 = intel_sub_group_block_read(words);
    if (low == 4 && is_half) s.low.s0 = intel_sub_group_block_read(words);
    else if (low == 4) s.low.s01 = intel_sub_group_block_read2(words);
    if (low == 8 && is_half) s.low.s01 = intel_sub_group_block_read2(words);
    else if (low == 8) s.low.lo = intel_sub_group_block_read4(words);
    if (low == 16) s.low = intel_sub_group_block_read8(words);
    if (high > 0)
        s.high.s0 =
            intel_sub_group_block_read(from.high + at * high / 32 * LW_XPU_LANES) >> at * high / 2 % 16;
    return s;
}

/* Eight pairs of neighbouring codes, an even column's in the low half and an odd one's in the high half. */
static inline uint8 pairs_of(uint8 words, uint bits)
{
    const uint each = (1u << bits) - 1;
    const uint8 places = (uint8)(0, 1, 2, 3, 4, 5, 6, 7) % (16 / bits) * bits;
    uint8 of = (uint8)(words.s0);
    if (bits == 4) of = (uint8)(words.s0000, words.s1111);
    if (bits == 8) of = (uint8)(words.s00, words.s11, words.s22, words.s33);
    return of >> places & (each | each << 16);
}

/* code_value of e4m3 without a branch: a subnormal is the normal number with its mantissa, less 2^-6. */
static inline float e4m3_smooth(uint code)
{
    const uint magnitude = code & 0x7Fu, sign = (code & 0x80u) << 24;
    const bool is_small = magnitude < 8;
    const float near = as_float((magnitude << 20) + (is_small ? 0x3C800000u : 0x3C000000u));
    return as_float(as_uint(near - (is_small ? 0x1p-6f : 0.0f)) | sign);
}

static inline uint value_bits(uint code, uint map)
{
    return as_uint(map == LW_XPU_MAP_E4M3 ? e4m3_smooth(code) : code_value(code, map));
}

/* bf16 of a pair of codes; entry: of a table, the one of this lane's number. */
static inline uint pair_values(uint pair, float entry, uint map)
{
    const uint even = pair & 0xFFFFu, odd = pair >> 16;
    if (map == LW_XPU_MAP_TABLE16)
        return as_uint(intel_sub_group_shuffle(entry, even)) >> 16 |
               as_uint(intel_sub_group_shuffle(entry, odd));
    return value_bits(even, map) >> 16 | value_bits(odd, map);
}

static inline int8 right_of(stripe s, float entry, uint map, uint bits)
{
#define OF_PAIR(i) pair_values(pairs.s##i, entry, map)
    if (bits == 16) return as_int8(s.low);
    const uint low = low_bits(bits), high = bits - low;
    uint8 pairs = pairs_of(s.low, low);
    if (high > 0) pairs |= pairs_of(s.high, high) << low;
    return as_int8((uint8)(EIGHT(OF_PAIR)));
#undef OF_PAIR
}

/* DPAS_UNIT columns of a group. */
typedef struct unit {
    stripe s0, s1, s2, s3;
} unit;

static inline unit unit_load(planes from, uint at, uint bits)
{
    unit u;
    u.s0 = stripe_load(from, at, false, bits);
    u.s1 = stripe_load(from, at + DPAS_STEP, false, bits);
    u.s2 = stripe_load(from, at + 2 * DPAS_STEP, false, bits);
    u.s3 = stripe_load(from, at + 3 * DPAS_STEP, false, bits);
    return u;
}

/* The unit behind that at column `at` of a group, where it is not the slice's last; group_end: the group, and
 * the slice's end. */
static inline unit unit_next(const product *p, uint2 group_end, uint at, uint bits)
{
    const lw_xpu_matrix *w = &p->args->weight;
    const uint group = group_end.x, next = at + DPAS_UNIT;
    const bool is_same = next + DPAS_UNIT <= min(w->group, w->cols - group * w->group);
    const uint next_group = is_same ? group : min(group + 1, group_end.y - 1);
    return unit_load(planes_of(p, next_group, bits), is_same ? next : 0, bits);
}

#endif
