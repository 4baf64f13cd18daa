/* From the words of a weight that is read by tiles to pairs of bf16 and of fp32; see linear_weight.h for the
 * places of codes. form and p are constant at every call. Included by linear_amx.inc.h.
 */
#ifndef LW_DEVICE_CPU_LINEAR_AMX_CODES_INC_H
#define LW_DEVICE_CPU_LINEAR_AMX_CODES_INC_H

#include "device/cpu/linear_simd.h"
#include "device/cpu/linear_weight.h"
#include "base/float16.h"

enum { VECTOR_BYTES = LANES * 4 };

/* Forms that are decoded, and the pairs of k in a step. */
#define EACH_CODE(X) X(INT2, 16) X(INT3, 16) X(INT4, 16) X(INT5, 16) X(INT6, 16) X(INT8, 16) X(TABLE4, 16)

/* k that one product of tiles takes. */
static uint32_t step_of(const lw_cpu_weight *w) { return w->group % 32 == 0 ? 32 : 16; }

LINEAR_INLINE int tile_low_bits(int form)
{
    return form == LW__FORM_INT8 ? 8 : form <= LW__FORM_INT3 ? 2 : 4;
}

LINEAR_INLINE int tile_high_bits(int form)
{
    return form == LW__FORM_INT6 ? 2 : form == LW__FORM_INT3 || form == LW__FORM_INT5 ? 1 : 0;
}

/* Of one column and both planes. */
LINEAR_INLINE int pair_bits(int form)
{
    return form == LW__FORM_BF16 ? 16 : tile_low_bits(form) + tile_high_bits(form);
}

/* bf16 of code i mod 2^bits, for i in [0, 64). */
typedef struct code_table { vi low, high; } code_table;

static code_table code_table_of(const lw_cpu_weight *w)
{
    const uint32_t codes = 1u << (w->low.bits + w->high.bits);
    uint16_t entries[64] = { 0 };
    for (uint32_t i = 0; w->form <= LW__FORM_TABLE4 && i < 64; i++) {
        const float value = w->form == LW__FORM_TABLE4 ? w->table[i % codes] : (float)(i % codes);
        entries[i] = (uint16_t)(lw_bits_of_float(value) >> 16);
    }
    return (code_table){ vi_load(entries), vi_load(entries + 32) };
}

/* Two neighbouring k. */
typedef struct twin { vf even, odd; } twin;

LINEAR_INLINE twin twin_of_pair(vi pair)
{
    return (twin){ vf_of_bits(vi_slli(pair, 16)), vf_of_bits(vi_and(pair, 0xFFFF0000u)) };
}

/* Two bytes of a word, `at` bits up in its halves. */
LINEAR_INLINE twin twin_of_bytes(vi word, int at)
{
    const vi even = vi_and(vi_srli(word, (unsigned)at), 0xFF), odd = vi_srli(word, (unsigned)(16 + at));
    return (twin){ vf_of_int(even), vf_of_int(at == 8 ? odd : vi_and(odd, 0xFF)) };
}

/* 16-bit halves down by a constant, up where it is negative. */
LINEAR_INLINE vi halves_down(vi x, int count)
{
    return count >= 0 ? _mm512_srli_epi16(x, (uint8_t)count) : _mm512_slli_epi16(x, (uint8_t)-count);
}

/* Pair p of a step as bf16. What stands above a code in its half needs no mask: the tables repeat. */
LINEAR_INLINE vi pair_decoded(int form, const code_table *table, const uint8_t *low, const uint8_t *high,
                              int p)
{
    if (form == LW__FORM_BF16) return vi_load(low + p * VECTOR_BYTES);
    const int bits = tile_low_bits(form), more = tile_high_bits(form), in_word = 16 / bits;
    const vi word = vi_load(low + p / in_word * VECTOR_BYTES);
    if (form == LW__FORM_INT8) { /* exact in the upper halves of fp32 */
        const twin t = twin_of_bytes(word, bits * (p % in_word));
        return vi_or(vi_srli(_mm512_castps_si512(t.even), 16), _mm512_castps_si512(t.odd));
    }
    vi code = halves_down(word, bits * (p % in_word));
    if (more > 0) {
        enum { FIRST_CHOOSES = 0xCA };
        const int in_high = 16 / more;
        const vi up = halves_down(vi_load(high + p / in_high * VECTOR_BYTES), more * (p % in_high) - bits);
        const vi mask = _mm512_set1_epi16((short)((1 << bits) - 1));
        code = _mm512_ternarylogic_epi32(mask, code, up, FIRST_CHOOSES);
    }
    if (form == LW__FORM_INT6) return _mm512_permutex2var_epi16(table->low, code, table->high);
    return _mm512_permutexvar_epi16(code, table->low);
}

/* The same as fp32. */
LINEAR_INLINE twin twin_decoded(int form, const code_table *table, const uint8_t *low, const uint8_t *high,
                                int p)
{
    if (form == LW__FORM_INT8) return twin_of_bytes(vi_load(low + p / 2 * VECTOR_BYTES), 8 * (p % 2));
    return twin_of_pair(pair_decoded(form, table, low, high, p));
}

#endif
