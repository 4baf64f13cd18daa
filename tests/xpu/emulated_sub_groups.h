/* Part of emulated_builtins.h: what the lanes of a sub-group do together. */
#ifndef TESTS_XPU_EMULATED_SUB_GROUPS_H
#define TESTS_XPU_EMULATED_SUB_GROUPS_H

/* Each lane puts its number into the slots, and after the meeting sees all of them. */
#define SLOT(type, slots, lane) (((const type *)(slots))[lane])
#define MEET(type, x) \
    (((type *)lw_emulated_here->item->slots)[lw_emulated_here->item->lane] = (x), lw_emulated_meet())

/* A reduction's order is the implementation's, and the environment's here. */
#define SUB_GROUP(type) \
    type OVER sub_group_reduce_add(type x) \
    { \
        const void *slots = MEET(type, x); \
        type v[16]; \
        for (uint i = 0; i < 16; i++) v[i] = SLOT(type, slots, i); \
        type sum = 0; \
        switch (lw_emulated_here->reduce) { \
        case EMULATED_REDUCE_LAST_FIRST: for (uint i = 16; i > 0; i--) sum += v[i - 1]; return sum; \
        case EMULATED_REDUCE_FIRST_FIRST: for (uint i = 0; i < 16; i++) sum += v[i]; return sum; \
        default: \
            for (uint half_of = 8; half_of > 0; half_of /= 2) \
                for (uint i = 0; i < half_of; i++) v[i] += v[i + half_of]; \
            return v[0]; \
        } \
    } \
    type OVER sub_group_reduce_max(type x) \
    { \
        const void *slots = MEET(type, x); \
        type most = SLOT(type, slots, 0); \
        for (uint i = 1; i < 16; i++) most = SLOT(type, slots, i) > most ? SLOT(type, slots, i) : most; \
        return most; \
    } \
    type OVER sub_group_reduce_min(type x) \
    { \
        const void *slots = MEET(type, x); \
        type least = SLOT(type, slots, 0); \
        for (uint i = 1; i < 16; i++) least = SLOT(type, slots, i) < least ? SLOT(type, slots, i) : least; \
        return least; \
    } \
    type OVER sub_group_scan_exclusive_add(type x) \
    { \
        const void *slots = MEET(type, x); \
        type sum = 0; \
        for (uint i = 0; i < get_sub_group_local_id(); i++) sum += SLOT(type, slots, i); \
        return sum; \
    } \
    type OVER sub_group_scan_inclusive_add(type x) { return sub_group_scan_exclusive_add(x) + x; } \
    type OVER sub_group_broadcast(type x, uint lane) \
    { \
        const void *slots = MEET(type, x); \
        if (lane > 15) lw_emulated_fail("a broadcast from a lane that is not there"); \
        return SLOT(type, slots, lane); \
    } \
    type OVER intel_sub_group_shuffle(type x, uint lane) \
    { \
        const void *slots = MEET(type, x); \
        if (lane > 15) lw_emulated_fail("a shuffle from a lane that is not there"); \
        return SLOT(type, slots, lane); \
    } \
    type OVER intel_sub_group_shuffle_xor(type x, uint mask) \
    { \
        return intel_sub_group_shuffle(x, get_sub_group_local_id() ^ mask); \
    } \
    /* Lanes of x, then those of y: reading delta lanes on. */ \
    type OVER intel_sub_group_shuffle_down(type x, type y, uint delta) \
    { \
        const void *slots = MEET(type##2, (type##2)(x, y)); \
        const uint lane = get_sub_group_local_id() + delta; \
        if (lane > 31) lw_emulated_fail("a shuffle from a lane that is not there"); \
        return SLOT(type##2, slots, lane % 16)[lane / 16]; \
    }
SUB_GROUP(int)
SUB_GROUP(uint)
SUB_GROUP(long)
SUB_GROUP(ulong)
SUB_GROUP(float)

int OVER sub_group_any(int predicate) { return sub_group_reduce_max(predicate != 0); }
int OVER sub_group_all(int predicate) { return sub_group_reduce_min(predicate != 0); }

/* ---- block reads: lane l has elements l, l + 16, ... from one address that all lanes name ---- */

/* Nobody waits: whether all lanes went the same way is seen at the next meeting, or when they leave. */
static inline void trace_add(ulong word)
{
    lw_emulated_here->item->trace = (lw_emulated_here->item->trace + word) * 0x9E3779B97F4A7C15ul;
}

#define BLOCK_CHECK(p, bytes) \
    do { \
        trace_add((ulong)(p)); \
        if ((ulong)(p) % (bytes) != 0) lw_emulated_fail("a block read from an address that is not aligned"); \
    } while (0)

#define BLOCK_READ_N(type, suffix, n) \
    type##n OVER intel_sub_group_block_read##suffix##n(const global type *p) \
    { \
        type##n v; \
        BLOCK_CHECK(p, 4); \
        for (uint i = 0; i < n; i++) v[i] = p[16 * i + get_sub_group_local_id()]; \
        return v; \
    } \
    void OVER intel_sub_group_block_write##suffix##n(global type *p, type##n v) \
    { \
        BLOCK_CHECK(p, 16); \
        for (uint i = 0; i < n; i++) p[16 * i + get_sub_group_local_id()] = v[i]; \
    }
#define BLOCK_READ(type, suffix) \
    type OVER intel_sub_group_block_read##suffix(const global type *p) \
    { \
        BLOCK_CHECK(p, 4); \
        return p[get_sub_group_local_id()]; \
    } \
    void OVER intel_sub_group_block_write##suffix(global type *p, type v) \
    { \
        BLOCK_CHECK(p, 16); \
        p[get_sub_group_local_id()] = v; \
    } \
    BLOCK_READ_N(type, suffix, 2) \
    BLOCK_READ_N(type, suffix, 4) \
    BLOCK_READ_N(type, suffix, 8)
BLOCK_READ(uint, )
BLOCK_READ(ushort, _us)

/* All lanes' numbers by one meeting in place of 16. */
#define LW_LANES_OF(lanes) lw_emulated_lanes(lanes)
static inline float16 lw_emulated_lanes(float mine)
{
    return *(const float16 *)MEET(float, mine);
}

#endif
