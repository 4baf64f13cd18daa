/* Row kernels for one instruction set: norms, elementwise, rope, gate, kv_store, short_conv. Included once by
 * each set's rows.c, which names its functions through LW_ROW(name). Contracts in kernels.h, definitions in
 * ops.list.
 *
 * Invariants
 * 1. An output element depends on its own row (conv: its own stream) and on widths only; parts cut the
 *    elements.
 * 2. Widths need not be multiples of the vector: the last vector is padded with zeros and runs the same code.
 */
#include "device/cpu/row_kernels.h"
#include "device/cpu/simd_math.h"

#include "base/float16.h"
#include "base/pool.h"
#include "base/size.h"

enum {
    UNIT_COLS = 64,     /* columns that parts are cut in: whole cache lines of bf16 */
    CONV_VECTORS = 8,   /* vectors that share one look-up of where a tap's position lies */
    NORM_CHAINS = 4,    /* vectors that the squares of a segment are dealt to, in turn */
};

/* A run of neighbouring columns of one row. */
typedef struct span {
    size_t row, begin, end;
} span;

/* Columns of rows as one list of units, row by row: the span that starts at unit, cut at the row's end or at
 * last. */
static span span_at(size_t unit, size_t last, size_t width)
{
    const size_t row_units = size_div_up(width, UNIT_COLS), row = unit / row_units, first = unit % row_units;
    const size_t count = size_min(row_units - first, last - unit);
    return (span){ row, first * UNIT_COLS, size_min((first + count) * UNIT_COLS, width) };
}

static size_t span_units(span s)
{
    return size_div_up(s.end - s.begin, UNIT_COLS);
}

/* A segment as a norm sees it: bf16, fp32, or bf16 times the silu of its gate. */
typedef struct norm_input {
    const lw_bf16 *x;
    const float *wide;          /* NULL: x */
    const lw_bf16 *gate;        /* NULL: none */
} norm_input;

SIMD_INLINE simd_f norm_load(norm_input in, size_t at, size_t count)
{
    if (in.wide != NULL) return simd_load_some(in.wide + at, count);
    const simd_f x = simd_load_bf_some(in.x + at, count);
    return in.gate == NULL ? x : simd_mul(x, simd_silu(simd_load_bf_some(in.gate + at, count)));
}

/* Squares of a segment: column i goes to lane i % W of vector (i / W) % 4; the four add pairwise, then lanes
 * halve. */
SIMD_INLINE float sum_squares(norm_input in, size_t width)
{
    simd_f chains[NORM_CHAINS];
    for (int c = 0; c < NORM_CHAINS; c++) chains[c] = simd_set(0.0f);
    for (size_t i = 0; i < width; i += NORM_CHAINS * SIMD_WIDTH) {
        SIMD_UNROLL
        for (size_t c = 0; c < NORM_CHAINS; c++) {
            const size_t at = i + c * SIMD_WIDTH;
            if (at >= width) continue;
            const simd_f v = norm_load(in, at, width - at);
            chains[c] = simd_fma(v, v, chains[c]);
        }
    }
    return simd_sum_lanes(simd_add(simd_add(chains[0], chains[1]), simd_add(chains[2], chains[3])));
}

/* What a segment's columns are multiplied by. */
SIMD_INLINE simd_f norm_scale(norm_input in, size_t width, float eps)
{
    return simd_set(1.0f / sqrtf(sum_squares(in, width) / (float)width + eps));
}

SIMD_INLINE void norm_segment(const lw_cpu_norm_args *args, norm_input in, lw_bf16 *y)
{
    const size_t width = args->segment;
    const simd_f scale = norm_scale(in, width, args->eps), one = simd_set(1.0f);
    for (size_t i = 0; i < width; i += SIMD_WIDTH) {
        const simd_f r = simd_mul(norm_load(in, i, width - i), scale);
        const simd_f w = simd_load_some(args->w + i, width - i);
        const simd_f by = args->scale == LW_NORM_UNIT ? simd_add(one, w) : w;
        const simd_f out = simd_mul(by, args->scale == LW_NORM_TWICE ? simd_round_bf(r) : r);
        simd_store_bf_some(y + i, out, width - i);
    }
}

/* One segment is one part's: its sum is one tree, and a second thread would only wait for it. */
void LW_ROW(rms_norm)(const lw_cpu_norm_args *args, unsigned part, unsigned parts)
{
    const size_t row_segments = args->width / args->segment;
    size_t begin, end;
    lw_pool_share(args->rows * row_segments, 1, part, parts, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        const size_t row = i / row_segments, column = i % row_segments * args->segment;
        const size_t at = row * args->x_stride + column;
        lw_bf16 *y = args->y + row * args->y_stride + column;
        if (args->x_wide == NULL) norm_segment(args, (norm_input){ .x = args->x + at }, y);
        else norm_segment(args, (norm_input){ .wide = args->x_wide + at }, y);
    }
}

/* Gate last: the gate multiplies what was normed and weighed. */
static void gate_normed(norm_input in, const lw_bf16 *gate, const float *w, lw_bf16 *y, size_t width,
                        float eps)
{
    const simd_f scale = norm_scale(in, width, eps);
    for (size_t i = 0; i < width; i += SIMD_WIDTH) {
        const simd_f n = simd_mul(norm_load(in, i, width - i), scale);
        const simd_f open = simd_silu(simd_load_bf_some(gate + i, width - i));
        const simd_f weighed = simd_mul(simd_load_some(w + i, width - i), n);
        simd_store_bf_some(y + i, simd_mul(weighed, open), width - i);
    }
}

/* A part owns segments, as in rms_norm; with the gate first, what follows the gate is rms_norm's. */
void LW_ROW(norm_gate)(const lw_cpu_norm_gate_args *args, unsigned part, unsigned parts)
{
    const size_t width = args->segment, row_segments = args->width / width;
    size_t begin, end;
    lw_pool_share(args->rows * row_segments, 1, part, parts, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        const size_t row = i / row_segments, column = i % row_segments * width;
        const lw_bf16 *x = args->x + row * args->x_stride + column;
        const lw_bf16 *gate = args->gate + row * args->gate_stride + column;
        const float *w = args->w + (args->own_weights ? column : 0);
        lw_bf16 *y = args->y + row * args->y_stride + column;
        if (args->gate_first) {
            const lw_cpu_norm_args norm = { .w = w, .segment = args->segment, .eps = args->eps,
                                            .scale = LW_NORM_ONCE };
            norm_segment(&norm, (norm_input){ .x = x, .gate = gate }, y);
        } else {
            gate_normed((norm_input){ .x = x }, gate, w, y, width, args->eps);
        }
    }
}

typedef simd_f pair_op(simd_f a, simd_f b);

SIMD_INLINE void pairs_run(const lw_cpu_pair_args *args, unsigned part, unsigned parts, pair_op *op)
{
    size_t unit, last;
    lw_pool_share(args->rows * size_div_up(args->width, UNIT_COLS), 1, part, parts, &unit, &last);
    while (unit < last) {
        const span s = span_at(unit, last, args->width);
        const lw_bf16 *a = args->a + s.row * args->a_stride, *b = args->b + s.row * args->b_stride;
        lw_bf16 *y = args->y + s.row * args->y_stride;
        for (size_t i = s.begin; i < s.end; i += SIMD_WIDTH) {
            const size_t count = s.end - i;
            const simd_f out = op(simd_load_bf_some(a + i, count), simd_load_bf_some(b + i, count));
            simd_store_bf_some(y + i, out, count);
        }
        unit += span_units(s);
    }
}

SIMD_INLINE simd_f gated(simd_f gate, simd_f up) { return simd_mul(simd_silu(gate), up); }

void LW_ROW(add)(const lw_cpu_pair_args *args, unsigned part, unsigned parts)
{
    pairs_run(args, part, parts, simd_add);
}

void LW_ROW(mul)(const lw_cpu_pair_args *args, unsigned part, unsigned parts)
{
    pairs_run(args, part, parts, simd_mul);
}

void LW_ROW(swiglu)(const lw_cpu_pair_args *args, unsigned part, unsigned parts)
{
    pairs_run(args, part, parts, gated);
}

static void rope_head(const lw_cpu_rope_args *args, size_t row, const lw_bf16 *x, lw_bf16 *y)
{
    const size_t half = args->half;
    const float *cosines = args->cosines + row * half, *sines = args->sines + row * half;
    for (size_t i = 0; i < half; i += SIMD_WIDTH) {
        const size_t count = half - i;
        const simd_f a = simd_load_bf_some(x + i, count), b = simd_load_bf_some(x + half + i, count);
        const simd_f c = simd_load_some(cosines + i, count), s = simd_load_some(sines + i, count);
        simd_store_bf_some(y + i, simd_sub(simd_mul(a, c), simd_mul(b, s)), count);
        simd_store_bf_some(y + half + i, simd_add(simd_mul(b, c), simd_mul(a, s)), count);
    }
    if (x != y) memcpy(y + 2 * half, x + 2 * half, (args->head_dim - 2 * half) * sizeof *y);
}

void LW_ROW(rope)(const lw_cpu_rope_args *args, unsigned part, unsigned parts)
{
    size_t begin, end;
    lw_pool_share((size_t)args->rows * args->heads, 1, part, parts, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        const size_t row = i / args->heads, column = i % args->heads * args->head_dim;
        const lw_bf16 *x = args->x + row * args->x_stride + column;
        rope_head(args, row, x, args->y + row * args->y_stride + column);
    }
}

/* One gate for count neighbouring columns. */
static void gate_span(const lw_bf16 *x, lw_bf16 gate, lw_bf16 *y, size_t count)
{
    lw_bf16 same[SIMD_WIDTH];
    for (int i = 0; i < SIMD_WIDTH; i++) same[i] = gate;
    const simd_f open = simd_sigmoid(simd_load_bf(same));
    for (size_t i = 0; i < count; i += SIMD_WIDTH) {
        simd_store_bf_some(y + i, simd_mul(simd_load_bf_some(x + i, count - i), open), count - i);
    }
}

SIMD_INLINE simd_f gated_column(simd_f x, simd_f gate) { return simd_mul(x, simd_sigmoid(gate)); }

void LW_ROW(head_gate)(const lw_cpu_gate_args *args, unsigned part, unsigned parts)
{
    if (args->gates == args->width) {
        const lw_cpu_pair_args pair = {
            .a = args->x, .a_stride = args->x_stride, .b = args->gate, .b_stride = args->gate_stride,
            .y = args->y, .y_stride = args->y_stride, .rows = args->rows, .width = args->width,
        };
        pairs_run(&pair, part, parts, gated_column);
        return;
    }
    const size_t cols = args->width / args->gates;
    size_t begin, end;
    lw_pool_share((size_t)args->rows * args->gates, 1, part, parts, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        const size_t row = i / args->gates, g = i % args->gates;
        gate_span(args->x + row * args->x_stride + g * cols, args->gate[row * args->gate_stride + g],
                  args->y + row * args->y_stride + g * cols, cols);
    }
}

/* The page that holds a slot. */
static uint8_t *page_at(lw_cpu_pages pages, const lw_cpu_place *place, uint32_t slot)
{
    return pages.bytes + place->pages[slot / LW_PAGE_POSITIONS] * pages.page_bytes;
}

/* Of a vector in int8: the largest magnitude over 127; NaN where a number is not finite. bf16 magnitudes
 * order as their bits. */
static float int8_scale(const lw_bf16 *x, size_t dim)
{
    enum { MAGNITUDE = 0x7FFF, INFINITE = 0x7F80 };
    uint16_t largest = 0;
    for (size_t i = 0; i < dim; i++) {
        const uint16_t size = x[i] & MAGNITUDE;
        largest = size > largest ? size : largest;
    }
    return largest >= INFINITE ? NAN : lw_float_of_bf16(largest) / 127.0f;
}

/* The code of x at a scale above 0: at most 127 in magnitude, since the scale is the largest over 127,
 * rounded once. */
SIMD_INLINE int8_t int8_code(lw_bf16 x, float scale)
{
    return (int8_t)(lw_float_of_bf16(x) / scale + SIMD_ROUND - SIMD_ROUND);
}

/* Where columns of one row's keys and values go: a head, and which of its dims. */
typedef struct kv_span {
    lw_cpu_kv_head head;
    const lw_bf16 *k, *v;       /* [dim] */
    size_t dim, key, begin, end;
} kv_span;

static void kv_store_bf16(const kv_span *s)
{
    lw_bf16 *keys = (lw_bf16 *)(void *)s->head.keys, *values = (lw_bf16 *)(void *)s->head.values;
    for (size_t i = s->begin; i < s->end; i++) {
        keys[i * LW_PAGE_POSITIONS + s->key] = s->k[i];
        values[s->key * s->dim + i] = s->v[i];
    }
}

/* Whoever has dim 0 writes the scales. */
static void kv_store_int8(const kv_span *s)
{
    const float k = int8_scale(s->k, s->dim), v = int8_scale(s->v, s->dim);
    int8_t *keys = (int8_t *)(void *)s->head.keys, *values = (int8_t *)(void *)s->head.values;
    for (size_t i = s->begin; i < s->end; i++) {
        keys[i * LW_PAGE_POSITIONS + s->key] = k > 0.0f ? int8_code(s->k[i], k) : 0;
        values[s->key * s->dim + i] = v > 0.0f ? int8_code(s->v[i], v) : 0;
    }
    if (s->begin > 0) return;
    s->head.key_scales[s->key] = k;
    s->head.value_scales[s->key] = v;
}

/* A part owns dims of all rows: two keys of one page share cache lines, two dims do not. */
void LW_ROW(kv_store)(const lw_cpu_kv_args *args, unsigned part, unsigned parts)
{
    const size_t dim = args->head_dim;
    size_t begin, end;
    lw_pool_share(args->heads_kv * dim, UNIT_COLS / 2, part, parts, &begin, &end);
    for (uint32_t row = 0; row < args->rows; row++) {
        const lw_cpu_place *place = &args->places[row];
        const lw_bf16 *k = args->k + row * args->k_stride, *v = args->v + row * args->v_stride;
        uint8_t *page = page_at(args->pages, place, place->slot);
        for (size_t head = begin / dim; head * dim < end; head++) {
            const kv_span some = {
                .head = lw_cpu_kv_head_at(page, head, dim, args->type),
                .k = k + head * dim, .v = v + head * dim, .dim = dim, .key = place->slot % LW_PAGE_POSITIONS,
                .begin = size_max(begin, head * dim) - head * dim,
                .end = size_min(end, (head + 1) * dim) - head * dim,
            };
            if (args->type == LW_KV_INT8) kv_store_int8(&some);
            else kv_store_bf16(&some);
        }
    }
}

/* What follows the sum over taps. */
SIMD_INLINE simd_f conv_finish(const lw_cpu_conv_args *args, simd_f sum, size_t column, size_t count)
{
    if (args->bias != NULL) sum = simd_add(sum, simd_load_some(args->bias + column, count));
    return args->silu ? simd_silu(sum) : sum;
}

/* One row's output for up to CONV_VECTORS vectors of channels. Positions below 0 are skipped: they come
 * first, where the sum is still +0, and w * 0 leaves +0 as it is. */
static void conv_columns(const lw_cpu_conv_args *args, size_t row, size_t column, size_t count)
{
    const lw_cpu_place *place = &args->places[row];
    const uint32_t back = args->taps - 1;
    simd_f sums[CONV_VECTORS];
    for (int v = 0; v < CONV_VECTORS; v++) sums[v] = simd_set(0.0f);
    const uint32_t first = place->position < back ? back - place->position : 0;
    for (uint32_t tap = first; tap <= back; tap++) {
        const uint32_t slot = lw_cpu_slot(place, place->position + tap - back);
        const lw_bf16 *page = (const lw_bf16 *)(const void *)page_at(args->pages, place, slot);
        const lw_bf16 *x = page + slot % LW_PAGE_POSITIONS * args->width + column;
        const float *w = args->w + (size_t)tap * args->width + column;
        SIMD_UNROLL
        for (size_t v = 0; v < CONV_VECTORS; v++) {
            const size_t at = v * SIMD_WIDTH;
            if (at >= count) continue;
            const simd_f taken = simd_load_bf_some(x + at, count - at);
            sums[v] = simd_fma(simd_load_some(w + at, count - at), taken, sums[v]);
        }
    }
    lw_bf16 *y = args->y + row * args->y_stride + column;
    SIMD_UNROLL
    for (size_t v = 0; v < CONV_VECTORS; v++) {
        const size_t at = v * SIMD_WIDTH;
        if (at >= count) continue;
        simd_store_bf_some(y + at, conv_finish(args, sums[v], column + at, count - at), count - at);
    }
}

/* A part owns channels of all rows and goes through the rows in order, so it reads only what it wrote itself
 * or what an earlier call wrote: a row's past may be in the same batch without a barrier. */
void LW_ROW(short_conv)(const lw_cpu_conv_args *args, unsigned part, unsigned parts)
{
    size_t begin, end;
    lw_pool_share(args->width, UNIT_COLS, part, parts, &begin, &end);
    if (begin == end) return;
    for (uint32_t row = 0; row < args->rows; row++) {
        const lw_cpu_place *place = &args->places[row];
        const lw_bf16 *x = args->x + row * args->x_stride;
        lw_bf16 *kept = (lw_bf16 *)(void *)page_at(args->pages, place, place->slot);
        kept += place->slot % LW_PAGE_POSITIONS * args->width;
        memcpy(kept + begin, x + begin, (end - begin) * sizeof *x);
        for (size_t i = begin; i < end; i += CONV_VECTORS * SIMD_WIDTH) conv_columns(args, row, i, end - i);
    }
}
