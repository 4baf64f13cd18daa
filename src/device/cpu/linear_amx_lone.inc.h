/* A call of one row, of weights that are read by tiles: vectors do what TILE_DOT is defined to do
 * (tile_ops.h), to the bit. Memory decides such a call, which vectors keep up with; a tile of one row costs
 * as much as one of sixteen. x stays bf16, since the fp32 of a long row would crowd the first-level cache.
 * Included by linear_amx.inc.h.
 */
#ifndef LW_DEVICE_CPU_LINEAR_AMX_LONE_INC_H
#define LW_DEVICE_CPU_LINEAR_AMX_LONE_INC_H

enum {
    LONE_BLOCKS = 4,              /* side by side: two chains of each hide the latency of an fma */
    LONE_AHEAD_BYTES = 2048,      /* past them, how far codes are asked for */
};

/* One group of some blocks side by side. */
typedef struct lone {
    const lw_cpu_weight *weight;
    const code_table *table;
    const uint8_t *stored;        /* of the first block */
    const uint8_t *ahead;
    const lw_bf16 *x;
    float sum;                    /* of x */
    float *acc;                   /* [blocks][LANES] */
} lone;

/* Where one of its steps stands in the first block. */
typedef struct lone_spot {
    const uint8_t *low, *high;
    const uint8_t *ahead;
    const lw_bf16 *x;
} lone_spot;

/* dots += a step of every block: partial sums of even and odd k, from 0 on. */
LINEAR_INLINE void lone_step(int form, int pairs, int blocks, const lone *l, const lone_spot *at,
                             vf dots[LONE_BLOCKS])
{
    const size_t pair_bytes = (size_t)(blocks * VECTOR_BYTES * pair_bits(form) / 16);
    const size_t next = l->weight->group_bytes;
    const code_table table = *l->table;
    vf even[LONE_BLOCKS], odd[LONE_BLOCKS];
    LINEAR_UNROLL
    for (int b = 0; b < blocks; b++) even[b] = odd[b] = vf_zero();
    LINEAR_UNROLL
    for (int p = 0; p < pairs; p++) {
        ask_for(at->ahead + (size_t)p * pair_bytes, pair_bytes);
        uint32_t both;
        memcpy(&both, at->x + 2 * p, sizeof both);
        const twin one = twin_of_pair(_mm512_set1_epi32((int)both));
        LINEAR_UNROLL
        for (int b = 0; b < blocks; b++) {
            const twin t =
                twin_decoded(form, &table, at->low + (size_t)b * next, at->high + (size_t)b * next, p);
            vf_fma_to(&even[b], one.even, t.even);
            vf_fma_to(&odd[b], one.odd, t.odd);
        }
    }
    LINEAR_UNROLL
    for (int b = 0; b < blocks; b++) dots[b] = vf_add(dots[b], vf_add(even[b], odd[b]));
}

static void lone_enter(const lone *l, int block, vf dot)
{
    const lw_cpu_weight *const w = l->weight;
    const uint8_t *const stored = l->stored + (size_t)block * w->group_bytes;
    float *const acc = l->acc + block * LANES;
    vf sum = vf_load(acc);
    if (w->has_scale) {
        const vf scale = load_scales(w->scale_type, stored), x = vf_set(l->sum);
        if (w->has_bias) sum = vf_fma(load_scales(w->scale_type, stored + w->bias_at), x, sum);
        else if (w->bias_per_scale != 0.0f) sum = vf_fma(vf_mul(vf_set(w->bias_per_scale), scale), x, sum);
        sum = vf_fma(scale, dot, sum);
    } else {
        sum = vf_add(sum, dot);
    }
    vf_store(acc, sum);
}

LINEAR_INLINE void lone_group(int form, int pairs, int blocks, const lone *l)
{
    const lw_cpu_weight *const w = l->weight;
    const uint32_t steps = w->group / (2 * (uint32_t)pairs);
    const size_t low_step = (size_t)pairs * w->low.bits * 2 / 8 * LANES;
    const size_t high_step = (size_t)pairs * w->high.bits * 2 / 8 * LANES;
    const size_t step_bytes = (size_t)(blocks * VECTOR_BYTES * pairs * pair_bits(form) / 16);
    lone_spot at = { l->stored + w->words_at, l->stored + w->high_at, l->ahead, l->x };
    vf dots[LONE_BLOCKS];
    LINEAR_UNROLL
    for (int b = 0; b < blocks; b++) dots[b] = vf_zero();
    for (uint32_t i = 0; i < steps; i++) {
        lone_step(form, pairs, blocks, l, &at, dots);
        at.low += low_step;
        at.high += high_step;
        at.ahead += step_bytes;
        at.x += 2 * pairs;
    }
    const uint8_t *const ahead_end = l->ahead + (size_t)blocks * w->group_bytes;
    for (; at.ahead < ahead_end; at.ahead += LINE_BYTES) __builtin_prefetch(at.ahead);
    LINEAR_UNROLL
    for (int b = 0; b < blocks; b++) lone_enter(l, b, dots[b]);
}

/* Blocks [first, last) of one panel, group by group, as they lie. */
LINEAR_INLINE void lone_panel(int form, int pairs, const lw_cpu_linear_args *args, uint32_t first,
                              uint32_t last, float *acc)
{
    const lw_cpu_weight *const w = args->weight;
    const code_table table = code_table_of(w);
    const lw_bf16 *const x = args->prepared;
    const float *const sums = (const float *)((const uint8_t *)args->prepared + row_tiles_of(args).sums_at);
    for (uint32_t g = 0; g < w->group_count; g++) {
        for (uint32_t block = first, wide; block < last; block += wide) {
            wide = last - block < LONE_BLOCKS ? LW__BLOCKS_UNIT : LONE_BLOCKS;
            const uint8_t *const stored = lw__group_at(w, args->member, block, g);
            const lone l = {
                .weight = w,
                .table = &table,
                .stored = stored,
                .ahead = stored + wide * w->group_bytes + LONE_AHEAD_BYTES,
                .x = x + (size_t)g * w->group,
                .sum = sums[g],
                .acc = acc + (block - first) * LANES,
            };
            if (wide == LONE_BLOCKS) lone_group(form, pairs, LONE_BLOCKS, &l);
            else lone_group(form, pairs, LW__BLOCKS_UNIT, &l);
        }
    }
}

typedef void lone_fn(const lw_cpu_linear_args *args, uint32_t first, uint32_t last, float *acc);
#define LONE_MAKE(form, pairs) \
    static void lone_##form##_##pairs(const lw_cpu_linear_args *args, uint32_t first, uint32_t last, \
                                      float *acc) \
    { \
        lone_panel(LW__FORM_##form, pairs, args, first, last, acc); \
    }
#define LONE_ENTRY(form, pairs) [LW__FORM_##form] = lone_##form##_##pairs,
#define EACH_LONE(X) EACH_CODE(X) X(BF16, 16)
EACH_LONE(LONE_MAKE)
LONE_MAKE(TABLE4, 8)
static lone_fn *const lones[LW__FORM_COUNT] = { EACH_LONE(LONE_ENTRY) };

static void lone_blocks(const lw_cpu_linear_args *args, uint32_t begin, uint32_t end)
{
    const lw_cpu_weight *const w = args->weight;
    lone_fn *const run = step_of(w) == 16 ? lone_TABLE4_8 : lones[w->form];
    for (uint32_t block = begin, next; block < end; block = next) {
        float acc[LW__PANEL_BLOCKS * LANES] __attribute__((aligned(64))) = { 0 };
        next = block - block % LW__PANEL_BLOCKS + LW__PANEL_BLOCKS;
        if (next > end) next = end;
        run(args, block, next, acc);
        for (uint32_t b = block; b < next && b * LANES < w->rows; b++)
            store_row(args, vector_of(args->y_rows, 0), b * LANES, acc + (b - block) * LANES,
                      w->rows - b * LANES);
    }
}

#endif
