/* From the words of a repacked weight to bytes, four k of every column in a vector. Included by
 * linear_int8.inc.h; linear_weight.h draws the words. form is constant at every call.
 */
#ifndef LW_DEVICE_CPU_LINEAR_INT8_CODES_INC_H
#define LW_DEVICE_CPU_LINEAR_INT8_CODES_INC_H

#include "device/cpu/linear_codes.inc.h"
#include "device/cpu/linear_int8_simd.h"
#include "device/cpu/linear_tiles.inc.h"

/* Codes as bytes, after the forms of linear_weight.h: by the largest one, for sums of 16 bits; SPLIT holds
 * the low and the high half of each. */
enum { BYTES_15 = LW__FORM_COUNT, BYTES_31, BYTES_63, BYTES_SPLIT, BYTES_END };

enum {
#if defined(I8_SUM_LIMIT)
    PLANES_MAX = 2,
#else
    PLANES_MAX = 1,
#endif
};

/* Fours of k in one step of the inner loop: a low word, or a pair of decoded vectors. */
LINEAR_INLINE int fours_of(int form) { return form > LW__FORM_COUNT - 1 ? 2 : 8 / low_bits_of(form); }

/* Halves that a code is multiplied in. */
LINEAR_INLINE int planes_of(int form)
{
    return PLANES_MAX > 1 && (form == LW__FORM_INT8 || form == BYTES_SPLIT) ? 2 : 1;
}

LINEAR_INLINE int step_bytes_of(int form)
{
    return (form >= LW__FORM_COUNT ? 2 * planes_of(form) : 1) * VECTOR_BYTES;
}

#if defined(I8_SUM_LIMIT)
/* Steps whose dots fit a sum. */
LINEAR_INLINE uint32_t steps_summed(int form)
{
    static const uint8_t largest[BYTES_END] = {
        [LW__FORM_INT2] = 3,   [LW__FORM_INT3] = 7,   [LW__FORM_INT4] = 15,
        [LW__FORM_INT5] = 31,  [LW__FORM_INT6] = 63,  [LW__FORM_INT8] = 15,
        [LW__FORM_TABLE4] = 4 * LW_TABLE_INT8_MAX,
        [BYTES_15] = 15,       [BYTES_31] = 31,       [BYTES_63] = 63,      [BYTES_SPLIT] = 15,
    };
    return I8_SUM_LIMIT / largest[form] / (uint32_t)fours_of(form);
}
#endif

/* Steps [i, end) of one group: what their inner loop reads. */
typedef struct step {
    uint32_t i, end;
    const lw_cpu_weight *weight;
    const uint8_t *words;      /* of the first block */
    size_t block_bytes;        /* to the words of the next block */
    const int8_t *x;
    vi_table table;
    vi high[BLOCKS_MAX];
} step;

LINEAR_INLINE vi mask_bytes(vi x, uint32_t mask) { return vi_and(x, mask * 0x01010101u); }

/* Codes of the i-th four of a step of one block; of two planes the low or the high half of each. */
LINEAR_INLINE vi codes_at(int form, const step *at, int block, int i, int plane)
{
    const uint8_t *const words = at->words + (size_t)block * at->block_bytes;
    if (form >= LW__FORM_COUNT) return vi_load(words + (i * planes_of(form) + plane) * VECTOR_BYTES);
    const vi low = vi_load(words);
    const int bits = low_bits_of(form), more = high_bits_of(form);
    if (planes_of(form) > 1) return mask_bytes(vi_srli(low, (unsigned)(4 * plane)), 15);
    if (bits == 8) return low;
    vi codes = mask_bytes(vi_srli(low, (unsigned)(bits * i)), (1u << bits) - 1u);
    if (more > 0) {
        const int down = more * i - bits;
        const vi high = down < 0 ? vi_slli(at->high[block], (unsigned)-down)
                                 : vi_srli(at->high[block], (unsigned)down);
        codes = vi_or(codes, mask_bytes(high, ((1u << more) - 1u) << bits));
    }
    return form == LW__FORM_TABLE4 ? vi_lookup_bytes(at->table, codes) : codes;
}

/* The high plane of one block for the low word of step i. */
LINEAR_INLINE vi high_word(int form, const uint8_t *high, uint32_t i)
{
    const uint32_t more = (uint32_t)high_bits_of(form), fours = (uint32_t)fours_of(form);
    const uint32_t steps = 8 / more / fours;
    return vi_srl(vi_load(high + i / steps * VECTOR_BYTES), i % steps * more * fours);
}

#endif
