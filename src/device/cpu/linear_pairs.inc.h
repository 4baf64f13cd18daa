/* The inner chain of the linear op by the bf16 dot, for weights whose codes are exact in bf16. Included by
 * linear.inc.h where LINEAR_PAIRS is defined; the order of groups, scales and sums is the same.
 *
 *   per group, pairs (k, k + 1) ascending: dot = dpbf16(dot, low codes, x); then, where there is a high
 *   plane,
 *                                          dot = dpbf16(dot, high codes, x)
 * The instruction adds the product of the upper halves and then that of the lower ones, each sum rounded.
 * A 16-bit half, shifted to its code, indexes a table of 32 bf16 values whose entry i is that of the low
 * bits of i: what stands above the code needs no mask.
 */
#ifndef LW_DEVICE_CPU_LINEAR_PAIRS_INC_H
#define LW_DEVICE_CPU_LINEAR_PAIRS_INC_H

LINEAR_INLINE int pair_low_bits(int form) { return form <= LW__FORM_INT3 ? 2 : 4; }

LINEAR_INLINE int pair_high_bits(int form)
{
    return form == LW__FORM_INT8 ? 4 : high_bits_of(form);
}

/* Pairs of one step: one low word; dense bf16 takes four words at once. */
LINEAR_INLINE int pair_step(int form) { return form == LW__FORM_BF16 ? 4 : 16 / pair_low_bits(form); }

LINEAR_INLINE int pair_step_vectors(int form) { return form == LW__FORM_BF16 ? 4 : 1; }

LINEAR_INLINE vf pair_dot(vf dot, vi codes, vf x)
{
    return _mm512_dpbf16_ps(dot, (__m512bh)codes, (__m512bh)_mm512_castps_si512(x));
}

/* bf16 of (i mod 2^bits) * 2^up, for i in [0, 32). */
static vi pair_table(uint32_t bits, uint32_t up)
{
    uint16_t entries[32];
    for (uint32_t i = 0; i < 32; i++)
        entries[i] = (uint16_t)(lw_bits_of_float((float)((i & ((1u << bits) - 1u)) << up)) >> 16);
    return vi_load(entries);
}

/* The same of a table of 16 values that bf16 holds. */
static vi pair_values(const float table[16])
{
    uint16_t entries[32];
    for (uint32_t i = 0; i < 32; i++) entries[i] = (uint16_t)(lw_bits_of_float(table[i % 16]) >> 16);
    return vi_load(entries);
}

/* A step of one group: what its inner loop reads. */
typedef struct pair_spot {
    const uint8_t *words;
    size_t block_bytes;
    const float *x;            /* bf16 pairs, moved as fp32 bits */
    vi table_low, table_high;
    vi high[BLOCKS_MAX];
} pair_spot;

/* The i-th pair of codes of one block, as bf16: the low plane's, or dense ones. */
LINEAR_INLINE vi pair_low(int form, const pair_spot *at, int block, int i)
{
    const uint8_t *const words = at->words + (size_t)block * at->block_bytes;
    if (form == LW__FORM_BF16) return vi_load(words + i * VECTOR_BYTES);
    const vi shifted = _mm512_srli_epi16(vi_load(words), (uint8_t)(pair_low_bits(form) * i));
    return _mm512_permutexvar_epi16(shifted, at->table_low);
}

LINEAR_INLINE vi pair_high(int form, const pair_spot *at, int block, int i)
{
    const vi shifted = _mm512_srli_epi16(at->high[block], (uint8_t)(pair_high_bits(form) * i));
    return _mm512_permutexvar_epi16(shifted, at->table_high);
}

/* The pairs of one row against those of every block: the low plane, then the high one. */
LINEAR_INLINE void pair_row(int form, int blocks, int r, vf one, vi planes[2][BLOCKS_MAX],
                            vf dot[BLOCKS_MAX][ROWS_MAX])
{
    LINEAR_UNROLL
    for (int b = 0; b < blocks; b++) {
        dot[b][r] = pair_dot(dot[b][r], planes[0][b], one);
        if (pair_high_bits(form) > 0) dot[b][r] = pair_dot(dot[b][r], planes[1][b], one);
    }
}

LINEAR_INLINE void pair_step_run(int form, int blocks, int rows, const pair_spot *at,
                                 vf dot[BLOCKS_MAX][ROWS_MAX])
{
    LINEAR_UNROLL
    for (int i = 0; i < pair_step(form); i++) {
        const float *x = at->x + i * rows;
        vi planes[2][BLOCKS_MAX];
        LINEAR_UNROLL
        for (int b = 0; b < blocks; b++) {
            planes[0][b] = pair_low(form, at, b, i);
            if (pair_high_bits(form) > 0) planes[1][b] = pair_high(form, at, b, i);
        }
        LINEAR_UNROLL
        for (int r = 0; r < rows; r++) pair_row(form, blocks, r, vf_set(x[r]), planes, dot);
    }
}

/* The high plane of one block for the low word of step i. */
LINEAR_INLINE vi pair_high_word(int form, const uint8_t *high, uint32_t i)
{
    const uint32_t more = (uint32_t)pair_high_bits(form), words = (uint32_t)pair_low_bits(form) / more;
    const vi word = vi_load(high + i / words * VECTOR_BYTES);
    if (words == 1) return word;
    return _mm512_srl_epi16(word, _mm_cvtsi32_si128((int)(i % words * more * (uint32_t)pair_step(form))));
}

/* One group, as group_run. */
LINEAR_INLINE void pairs_run(int form, int blocks, int rows, const tile *t, spot s)
{
    const lw_cpu_weight *const w = t->weight;
    const uint32_t steps = w->group / 2 / (uint32_t)pair_step(form);
    pair_spot at = {
        .words = s.words,
        .block_bytes = s.words_step,
        .x = s.x,
        .table_low = t->table_low,
        .table_high = t->table_high,
    };
    const uint8_t *const ahead_end = ahead_end_of(&s, blocks, w);
    vf dot[BLOCKS_MAX][ROWS_MAX];
    LINEAR_UNROLL
    for (int b = 0; b < blocks; b++)
        LINEAR_UNROLL
        for (int r = 0; r < rows; r++) dot[b][r] = vf_zero();

    for (uint32_t i = 0; i < steps; i++) {
        s.ahead = ask_next(s.ahead, (size_t)(blocks * pair_step_vectors(form) * VECTOR_BYTES),
                           is_wide_form(form));
        if (pair_high_bits(form) > 0)
            LINEAR_UNROLL
            for (int b = 0; b < blocks; b++)
                at.high[b] = pair_high_word(form, s.group + (size_t)b * w->group_bytes + w->high_at, i);
        pair_step_run(form, blocks, rows, &at, dot);
        at.words += pair_step_vectors(form) * VECTOR_BYTES;
        at.x += pair_step(form) * rows;
    }
    while (s.ahead < ahead_end) s.ahead = ask_next(s.ahead, LINE_BYTES, is_wide_form(form));
    enter(w, blocks, rows, dot, &s);
}

/* The x of one group of one row: pairs, the even k in the lower half. The values were bf16 and narrow
 * exactly. */
static void pairs_place(const lw_cpu_weight *w, const float *values, float *x, uint32_t rows)
{
    for (uint32_t k = 0; k < w->group; k += 2) {
        const uint32_t even = lw_bits_of_float(values[k]) >> 16;
        const uint32_t odd = lw_bits_of_float(values[k + 1]) & 0xFFFF0000u;
        const uint32_t pair = odd | even;
        memcpy(&x[k / 2 * rows], &pair, sizeof pair);
    }
}

#endif
