/* Numbers of a tile as attention by DPAS has them: of eight pairs, one in each element, where lanes are keys
 * or columns; or of 16, one in each lane. Read by OpenCL C only.
 */
#ifndef LW_DEVICE_XPU_KERNELS_TILE_DPAS_H
#define LW_DEVICE_XPU_KERNELS_TILE_DPAS_H

#include "device/xpu/kernels/codes.h"
#include "device/xpu/kernels/dpas.h"
#include "device/xpu/kernels/kv_int8.h"

static inline float8 eight_of(float16 pairs, uint eight)
{
    return eight == 0 ? pairs.lo : pairs.hi;
}

static inline uint bf_pair(float even, float odd)
{
    return as_uint(even) >> 16 | as_uint(odd);
}

/* 16 columns of this lane's key. */
static inline int8 key_right(const global uint *k, uint step, bool is_int8)
{
#define PAIR_OF(i) k[(step * 8 + i) * LW_XPU_TILE]
#define CODES_OF(i) k[(step * 4 + i) * LW_XPU_TILE]
#define LOW_OF(c) bf_pair(int8_of(c, 0), int8_of(c, 1))
#define HIGH_OF(c) bf_pair(int8_of(c, 2), int8_of(c, 3))
    if (!is_int8) return as_int8((uint8)(EIGHT(PAIR_OF)));
    const uint4 c = (uint4)(CODES_OF(0), CODES_OF(1), CODES_OF(2), CODES_OF(3));
    return as_int8((uint8)(LOW_OF(c.s0), HIGH_OF(c.s0), LOW_OF(c.s1), HIGH_OF(c.s1), LOW_OF(c.s2),
                           HIGH_OF(c.s2), LOW_OF(c.s3), HIGH_OF(c.s3)));
#undef PAIR_OF
#undef CODES_OF
#undef LOW_OF
#undef HIGH_OF
}

/* of in that lane, others elsewhere. */
static inline float lane_pick(uint lane, float of, float others)
{
    return get_local_id(0) == lane ? of : others;
}

/* The largest number of each of eight pairs, in its lane: v has a key in each lane, a pair in each element.
 */
static inline float largest_of(float8 v, uint first)
{
    float most = -INFINITY;
#define MOST(i) most = lane_pick(first + i, sub_group_reduce_max(v.s##i), most)
    EIGHT(MOST);
#undef MOST
    return most;
}

static inline float8 exps_of(float8 x)
{
#define EXP(i) exp_of(x.s##i)
    return (float8)(EIGHT(EXP));
#undef EXP
}

typedef struct two_parts {
    ushort8 high, low;
} two_parts;

static inline two_parts parts_of(float8 x)
{
    two_parts p;
#define HIGH(i) bf_of(x.s##i)
#define LOW(i) bf_of(x.s##i - as_float((uint)p.high.s##i << 16))
    p.high = (ushort8)(EIGHT(HIGH));
    p.low = (ushort8)(EIGHT(LOW));
    return p;
#undef HIGH
#undef LOW
}

/* The sum of each of eight pairs' weights, in its lane. */
static inline float sums_of(two_parts p, uint first)
{
    const int8 ones = 0x3F803F80;
    const float8 sums = dpas(p.low, ones, dpas(p.high, ones, (float8)(0.0f)));
    float mine = 0.0f;
#define SUM(i) mine = lane_pick(first + i, sums.s##i, mine)
    EIGHT(SUM);
#undef SUM
    return mine;
}

/* Two neighbouring columns of 16 keys' values: the even column's, and the odd one's. */
typedef struct value_rights {
    int8 even, odd;
} value_rights;

static inline value_rights values_load(const local ulong8 *values, uint col, bool is_int8)
{
    const ulong8 a = values[0], b = values[1];
    value_rights r;
#define TWO(at) ((const global uint *)(at))[col / 2]
#define CODES(at) ((uint)((const global ushort *)(at))[col / 2])
    if (!is_int8) {
        const uint8 x =
            (uint8)(TWO(a.s0), TWO(a.s2), TWO(a.s4), TWO(a.s6), TWO(b.s0), TWO(b.s2), TWO(b.s4), TWO(b.s6));
        const uint8 y =
            (uint8)(TWO(a.s1), TWO(a.s3), TWO(a.s5), TWO(a.s7), TWO(b.s1), TWO(b.s3), TWO(b.s5), TWO(b.s7));
        r.even = as_int8((x & 0xFFFFu) | y << 16);
        r.odd = as_int8(x >> 16 | (y & 0xFFFF0000u));
        return r;
    }
    const uint8 x = (uint8)(CODES(a.s0), CODES(a.s2), CODES(a.s4), CODES(a.s6), CODES(b.s0), CODES(b.s2),
                            CODES(b.s4), CODES(b.s6));
    const uint8 y = (uint8)(CODES(a.s1), CODES(a.s3), CODES(a.s5), CODES(a.s7), CODES(b.s1), CODES(b.s3),
                            CODES(b.s5), CODES(b.s7));
    const uint8 codes = x | y << 16;
#define EVEN(i) bf_pair(int8_of(codes.s##i, 0), int8_of(codes.s##i, 2))
#define ODD(i) bf_pair(int8_of(codes.s##i, 1), int8_of(codes.s##i, 3))
    r.even = as_int8((uint8)(EIGHT(EVEN)));
    r.odd = as_int8((uint8)(EIGHT(ODD)));
    return r;
#undef TWO
#undef CODES
#undef EVEN
#undef ODD
}

#endif
