/* From the words of a repacked weight to vectors of fp32, one lane per column. Included by linear.inc.h; the
 * places of codes are drawn in linear_weight.h. form is constant at every call, so a function is a handful
 * of instructions.
 */
#ifndef LW_DEVICE_CPU_LINEAR_CODES_INC_H
#define LW_DEVICE_CPU_LINEAR_CODES_INC_H

#include "device/cpu/linear_simd.h"
#include "device/cpu/linear_weight.h"

enum { VECTOR_BYTES = LANES * 4 };

LINEAR_INLINE int low_bits_of(int form)
{
    return form == LW__FORM_INT2 || form == LW__FORM_INT3 ? 2 : form == LW__FORM_INT8 ? 8 : 4;
}

LINEAR_INLINE int high_bits_of(int form)
{
    return form == LW__FORM_INT3 || form == LW__FORM_INT5 ? 1 : form == LW__FORM_INT6 ? 2 : 0;
}

/* k that one step of the inner loop unrolls: whole low words. Of what is read as it is, no more than keeps
 * compilers from copying sums between registers. */
LINEAR_INLINE int step_of(int form)
{
    if (form == LW__FORM_FP32) return 4;
    return form == LW__FORM_INT2 || form == LW__FORM_INT3 ? 16 : 8;
}

LINEAR_INLINE int step_vectors_of(int form)
{
    switch (form) {
    case LW__FORM_INT8: case LW__FORM_E4M3: return 2;
    case LW__FORM_BF16: case LW__FORM_FP16: case LW__FORM_FP32: return 4;
    default: return 1;
    }
}

/* Floats of 16 bits and more: their bytes and not their products set the pace. */
LINEAR_INLINE bool is_wide_form(int form) { return step_vectors_of(form) >= 4; }

/* The masks of a word's codes, where they are few enough for registers. */
typedef struct code_masks { vi at[8]; } code_masks;

LINEAR_INLINE bool has_masks(int form) { return form == LW__FORM_INT4 || form == LW__FORM_INT8; }

LINEAR_INLINE code_masks code_masks_of(int form)
{
    code_masks masks;
    LINEAR_UNROLL
    for (int j = 0; j < 8; j++) {
        const bool is_used = has_masks(form) && j < 32 / low_bits_of(form) - 1;
        masks.at[j] =
            is_used ? vi_held(((1u << low_bits_of(form)) - 1u) << (low_bits_of(form) * j)) : (vi){ 0 };
    }
    return masks;
}

/* Code j of a word, at its place (see linear_weight.h). high holds the high plane, shifted for this low
 * word. */
LINEAR_INLINE vf code_at(int form, const code_masks *masks, vi low, vi high, int j)
{
    const int bits = low_bits_of(form), more = high_bits_of(form), last = 32 / bits - 1;
    const uint32_t mask = (1u << bits) - 1u, mask_more = (1u << more) - 1u;
    vi code;
    if (j < last && has_masks(form)) {
        code = vi_both(low, masks->at[j]);
    } else if (j < last) {
        code = vi_and(low, mask << (bits * j));
        if (more > 0) code = vi_or(code, vi_and(high, mask_more << (bits * (j + 1))));
    } else {
        code = vi_srli(low, (unsigned)(32 - bits));
        if (more > 0) code = vi_or(code, vi_and(vi_slli(high, (unsigned)bits), mask_more << bits));
    }
    return vf_of_int(code);
}

/* The weight of the j-th k of a step; table is read by LW__FORM_TABLE4 alone. */
LINEAR_INLINE vf weight_at(int form, vt table, const code_masks *masks, const uint8_t *words, vi high, int j)
{
    if (form == LW__FORM_FP32) return vf_load(words + j * VECTOR_BYTES);
    if (form == LW__FORM_FP16) return vf_load_fp16(words + j * (VECTOR_BYTES / 2));
    if (form == LW__FORM_E4M3) return vf_load_e4m3(words + j * (VECTOR_BYTES / 4));
    if (form == LW__FORM_BF16) {
        const vi pair = vi_load(words + j / 2 * VECTOR_BYTES);
        return vf_of_bits(j % 2 == 0 ? vi_slli(pair, 16) : vi_and(pair, 0xFFFF0000u));
    }
    if (form == LW__FORM_TABLE4) return vf_lookup(table, vi_srli(vi_load(words), (unsigned)(4 * j)));
    const int codes = 32 / low_bits_of(form);
    return code_at(form, masks, vi_load(words + j / codes * VECTOR_BYTES), high, j % codes);
}

/* The high plane of one block for the low word of a step. */
LINEAR_INLINE vi high_at(int form, const uint8_t *high, uint32_t step)
{
    const uint32_t more = (uint32_t)high_bits_of(form), words = (uint32_t)low_bits_of(form) / more;
    return vi_srl(vi_load(high + step / words * VECTOR_BYTES), step % words * more);
}

#endif
