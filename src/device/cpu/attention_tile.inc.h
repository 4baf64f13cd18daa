/* The products of attention over one tile of keys or values: chains of fma from a page as it lies there or
 * from a widened copy, with the same bits. Included by attention.inc.h, which states the invariants.
 */
#include "device/cpu/row_kernels.h"
#include "device/cpu/simd_math.h"

#include "base/size.h"

enum {
    TILE = LW_PAGE_POSITIONS,
    PANEL = 2 * SIMD_WIDTH,     /* lanes that stand side by side in a widened tile */
    BLOCK_QUERIES = 6,          /* queries that share one load of a widened vector */
    NARROW_QUERIES = 4,         /* the same of a page's vector; so few are not worth a widened copy */
};
_Static_assert(TILE % PANEL == 0 && LW_CPU_DIM_ROUND % PANEL == 0, "tiles and padded dims are whole panels");

/* A matrix of steps x lanes, either fp32 in panels or of a page's type as it lies there. */
typedef struct matrix {
    const float *wide;          /* (lanes / PANEL, steps, PANEL); NULL: take kept */
    const uint8_t *kept;        /* (steps, lanes) */
    const uint8_t *next;        /* what is read in the same way after kept, to be fetched meanwhile */
    const float *scales;        /* of the tile's keys, [64]; NULL: there are none */
    size_t steps, lanes;
} matrix;

/* Where the numbers of a matrix are. */
typedef enum source { FROM_WIDE, FROM_BF16, FROM_INT8 } source;

SIMD_INLINE size_t source_bytes(source from)
{
    return from == FROM_INT8 ? sizeof(int8_t) : sizeof(lw_bf16);
}

/* Of a page, count numbers or a whole vector; both types are exact in fp32. */
SIMD_INLINE simd_f kept_load(const uint8_t *at, size_t count, source from)
{
    if (from == FROM_INT8) return simd_load_i8_some((const int8_t *)(const void *)at, count);
    return simd_load_bf_some((const lw_bf16 *)(const void *)at, count);
}

/* out[q][lane] continues (fresh: starts from 0) by += coefs[q][step] * m[step][lane], steps [begin, end)
 * ascending. */
typedef struct chains {
    matrix m;
    const float *coefs; size_t coef_stride;
    float *out;         size_t out_stride;
    size_t begin, end;
    bool fresh;
} chains;

/* queries x vectors chains from lane on, all in registers. */
SIMD_INLINE void chains_block(const chains *c, size_t query, size_t lane, int queries, int vectors,
                              source from)
{
    const bool wide = from == FROM_WIDE;
    const float *coefs = c->coefs + query * c->coef_stride;
    float *out = c->out + query * c->out_stride + lane;
    const size_t coef_stride = c->coef_stride, out_stride = c->out_stride;
    const size_t stride = wide ? PANEL : c->m.lanes, width = (size_t)vectors * SIMD_WIDTH;
    const size_t item_bytes = source_bytes(from);
    const float *wide_at = wide ? c->m.wide + lane * c->m.steps : NULL;
    const uint8_t *kept_at = wide ? NULL : c->m.kept + lane * item_bytes;
    const uint8_t *next = wide ? NULL : c->m.next + lane * c->m.steps * item_bytes;
    simd_f sums[BLOCK_QUERIES][4], values[4];
    SIMD_UNROLL
    for (int q = 0; q < queries; q++) {
        SIMD_UNROLL
        for (int v = 0; v < vectors; v++) {
            const float *begun = out + (size_t)q * out_stride + v * SIMD_WIDTH;
            sums[q][v] = c->fresh ? simd_set(0.0f) : simd_load(begun);
        }
    }
    for (size_t step = c->begin; step < c->end; step++) {
        if (!wide) __builtin_prefetch(next + step * width * item_bytes, 0, 2);
        SIMD_UNROLL
        for (int v = 0; v < vectors; v++) {
            const size_t at = step * stride + (size_t)v * SIMD_WIDTH;
            values[v] =
                wide ? simd_load(wide_at + at) : kept_load(kept_at + at * item_bytes, SIMD_WIDTH, from);
        }
        SIMD_UNROLL
        for (int q = 0; q < queries; q++) {
            const simd_f coef = simd_set(coefs[(size_t)q * coef_stride + step]);
            SIMD_UNROLL
            for (int v = 0; v < vectors; v++) sums[q][v] = simd_fma(coef, values[v], sums[q][v]);
        }
    }
    SIMD_UNROLL
    for (int q = 0; q < queries; q++) {
        SIMD_UNROLL
        for (int v = 0; v < vectors; v++) {
            simd_store(out + (size_t)q * out_stride + v * SIMD_WIDTH, sums[q][v]);
        }
    }
}

/* All lanes of a few queries from a widened tile, which offers two vectors side by side. */
SIMD_INLINE void chains_wide(const chains *c, size_t query, int queries)
{
    for (size_t lane = 0; lane < c->m.lanes; lane += PANEL)
        chains_block(c, query, lane, queries, 2, FROM_WIDE);
}

/* The same from a page. One or two queries take more vectors, which keeps enough chains in flight. */
SIMD_INLINE void chains_kept(const chains *c, int queries, source from)
{
    const size_t more = queries <= 2 ? c->m.lanes / (2 * PANEL) * (2 * PANEL) : 0;
    for (size_t lane = 0; lane < more; lane += 2 * PANEL) chains_block(c, 0, lane, queries, 4, from);
    for (size_t lane = more; lane < c->m.lanes; lane += PANEL) chains_block(c, 0, lane, queries, 2, from);
}

SIMD_INLINE void chains_page(const chains *c, size_t queries, source from)
{
    switch (queries) {
    case 4: chains_kept(c, 4, from); break;
    case 3: chains_kept(c, 3, from); break;
    case 2: chains_kept(c, 2, from); break;
    default: chains_kept(c, 1, from); break;
    }
}

static void chains_run(const chains *c, size_t queries)
{
    size_t query = 0;
    if (c->m.wide == NULL) {
        if (c->m.scales != NULL) chains_page(c, queries, FROM_INT8);
        else chains_page(c, queries, FROM_BF16);
        return;
    }
    for (; query + BLOCK_QUERIES <= queries; query += BLOCK_QUERIES) chains_wide(c, query, BLOCK_QUERIES);
    switch (queries - query) {
    case 5: chains_wide(c, query, 5); break;
    case 4: chains_wide(c, query, 4); break;
    case 3: chains_wide(c, query, 3); break;
    case 2: chains_wide(c, query, 2); break;
    case 1: chains_wide(c, query, 1); break;
    default: break;
    }
}

/* steps x lanes of a page into panels, read in the order of memory; lanes past them are 0. */
SIMD_INLINE void widen_from(const uint8_t *kept, size_t steps, size_t lanes, float *to, source from)
{
    const size_t whole = lanes / SIMD_WIDTH * SIMD_WIDTH, padded = size_round_up(lanes, PANEL);
    for (size_t step = 0; step < steps; step++, kept += lanes * source_bytes(from)) {
        float *at = to + step * PANEL;
        for (size_t lane = 0; lane < whole; lane += SIMD_WIDTH) {
            const simd_f some = kept_load(kept + lane * source_bytes(from), SIMD_WIDTH, from);
            simd_store(at + lane / PANEL * steps * PANEL + lane % PANEL, some);
        }
        for (size_t lane = whole; lane < padded; lane += SIMD_WIDTH) {
            const uint8_t *rest = kept + lane * source_bytes(from);
            const simd_f some = lane < lanes ? kept_load(rest, lanes - lane, from) : simd_set(0.0f);
            simd_store(at + lane / PANEL * steps * PANEL + lane % PANEL, some);
        }
    }
}

static void widen(const uint8_t *kept, size_t steps, size_t lanes, float *to, lw_kv_type type)
{
    if (type == LW_KV_INT8) widen_from(kept, steps, lanes, to, FROM_INT8);
    else widen_from(kept, steps, lanes, to, FROM_BF16);
}
