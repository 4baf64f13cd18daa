/* The linear op by products of tiles (AMX), for weights whose codes are exact in bf16; all others go through
 * the kernels of AVX-512. The including file names its functions in LW_LINEAR(name).
 *
 * Order of every sum, at every row count: a group is cut into steps of 32 k (16 where 32 does not divide it);
 * its dot starts at 0 and takes the steps ascending, each by TILE_DOT (tile_ops.h), whose two partial sums
 * start anew in each step. Groups enter as everywhere: acc = fma(scale, dot, fma(bias, sum_x, acc)), and
 * acc + dot where nothing is scaled. The rows of a tile do not meet, so one row is the same as sixteen.
 *
 * Rows go in tiles of equal height, the last filled up with zeros. A patch is two neighbouring blocks times
 * one or two groups. All rows that run together go through a patch, which was decoded to tiles in the
 * first-level cache while the patch before was multiplied. Products of tiles leave the vector units to others
 * and run well only if those have something to do: so between two of them a step of the next patch is
 * decoded, and some sums are entered that the product before left. bf16 weights are stored as tiles. x is
 * prepared as [row tile]{ [group][step][row][k], sums [group][row] }.
 */
#ifndef LW_DEVICE_CPU_LINEAR_AMX_INC_H
#define LW_DEVICE_CPU_LINEAR_AMX_INC_H

#define LINEAR_AVX512
#include "device/cpu/linear_kernels.h"
#include "device/cpu/linear_amx_codes.inc.h"
#include "device/cpu/linear_values.inc.h"
#include "device/cpu/tile_ops.h"
#include "base/pool.h"
#include "base/size.h"

enum {
    PATCH_BLOCKS = LW__BLOCKS_UNIT,
    PATCH_GROUPS = 2,
    PATCH = PATCH_BLOCKS * PATCH_GROUPS,
    PATCH_COLS_MAX = 256,        /* of its groups together: a group above 128 goes alone */
    COL_BYTES = LANES * 2,       /* of one k of a decoded block */
    DECODED_BYTES = PATCH_BLOCKS * PATCH_COLS_MAX * COL_BYTES,
    DOT_FLOATS = TILE_ROWS * LANES,
    ROWS_TOGETHER = 256,         /* whose sums of two blocks stay in the first-level cache */
    ROWS_PANEL = 32,             /* up to here a whole panel's do, and a panel is read in order */
    X_BYTES = 1 << 20,           /* prepared rows that stay in the second-level cache while columns pass */
    AHEAD_BYTES = 8 << 10,       /* how far codes are asked for */
};

/* ---- decoding ---- */

/* Some pairs of one block, from the words of both planes on, as rows of a tile. */
LINEAR_INLINE void pairs_decode(int form, int pairs, const code_table *table, const uint8_t *low,
                                const uint8_t *high, uint8_t *tile)
{
    const code_table held = *table; /* the tile might be where table is, for all that compilers know */
    LINEAR_UNROLL
    for (int p = 0; p < pairs; p++)
        _mm512_store_si512(tile + p * TILE_BYTES, pair_decoded(form, &held, low, high, p));
}

/* Decodes one step of one block; words of the low and of the high plane. */
typedef void decode_fn(const code_table *table, const uint8_t *low, const uint8_t *high, uint8_t *tile);
#define DECODE_MAKE(form, pairs) \
    static void decode_##form##_##pairs(const code_table *table, const uint8_t *low, const uint8_t *high, \
                                        uint8_t *tile) \
    { \
        pairs_decode(LW__FORM_##form, pairs, table, low, high, tile); \
    }
#define DECODE_ENTRY(form, pairs) [LW__FORM_##form] = decode_##form##_##pairs,
EACH_CODE(DECODE_MAKE)
DECODE_MAKE(TABLE4, 8)

/* NULL: stored as tiles. */
static decode_fn *decoder_of(const lw_cpu_weight *w, uint32_t step)
{
    static decode_fn *const decoders[LW__FORM_COUNT] = { EACH_CODE(DECODE_ENTRY) };
    return step == 16 ? decode_TABLE4_8 : decoders[w->form];
}

/* ---- rows ---- */

/* How the rows of a call lie in its prepared x. */
typedef struct row_tiles {
    uint32_t height, count;
    size_t sums_at, bytes;     /* in and of one tile */
} row_tiles;

static row_tiles row_tiles_of(const lw_cpu_linear_args *args)
{
    const lw_cpu_weight *const w = args->weight;
    const uint32_t least = (uint32_t)size_div_up(args->rows, TILE_ROWS);
    const uint32_t height = (uint32_t)size_div_up(args->rows, least);
    const size_t sums_at = (size_t)height * w->group_count * w->group * sizeof(lw_bf16);
    return (row_tiles){
        .height = height,
        .count = (uint32_t)size_div_up(args->rows, height),
        .sums_at = sums_at,
        .bytes = size_round_up(sums_at + (size_t)height * w->group_count * sizeof(float), TILE_BYTES),
    };
}

/* One group of one row, narrowed to bf16 as it came, into its steps. */
static void place_group(const lw_cpu_weight *w, const float *values, uint8_t *x, uint32_t height)
{
    const uint32_t step = step_of(w);
    for (uint32_t k = 0; k < w->group; k += LANES) {
        const vi bits = _mm512_castps_si512(vf_load(values + k));
        uint8_t *const to = x + ((size_t)(k / step) * height * step + k % step) * sizeof(lw_bf16);
        _mm256_storeu_si256((void *)to, _mm512_cvtepi32_epi16(vi_srli(bits, 16)));
    }
}

/* Groups are shared among the parts. */
void LW_LINEAR(prepare)(const lw_cpu_linear_args *args, unsigned part, unsigned parts)
{
    const lw_cpu_weight *const w = args->weight;
    if (w->read != LW__READ_TILES) {
        lw__cpu_avx512_linear_prepare(args, part, parts);
        return;
    }
    const row_tiles rows = row_tiles_of(args);
    const size_t step = step_of(w), group_bytes = (size_t)rows.height * w->group * sizeof(lw_bf16);
    float values[LW__GROUP_MAX];
    size_t begin, end;
    lw_pool_share(w->group_count, 1, part, parts, &begin, &end);
    for (uint32_t row = 0; row < rows.count * rows.height; row++) {
        uint8_t *const tile = (uint8_t *)args->prepared + row / rows.height * rows.bytes;
        const uint32_t r = row % rows.height;
        float *const sums = (float *)(tile + rows.sums_at);
        if (row >= args->rows) memset(values, 0, sizeof values);
        for (size_t g = begin; g < end; g++) {
            if (row < args->rows) load_group(args, vector_of(args->x_rows, row), (uint32_t)g, values);
            place_group(w, values, tile + g * group_bytes + r * step * sizeof(lw_bf16), rows.height);
            sums[g * rows.height + r] = group_sum(values, w->group);
        }
    }
}

#include "device/cpu/linear_amx_lone.inc.h"

/* ---- patches ---- */

typedef struct patch {
    const uint8_t *stored[PATCH]; /* group i / PATCH_BLOCKS of block i % PATCH_BLOCKS */
    const uint8_t *tiles[PATCH];  /* its codes */
    uint8_t *decoded;             /* where they are decoded, one after the other */
    const uint8_t *ahead;         /* what to ask for; NULL: nothing */
    uint32_t group, groups;       /* the first, and how many */
    uint32_t block;               /* the first, counted within the span */
    float scales[PATCH][LANES] __attribute__((aligned(64))); /* where there are any */
    float biases[PATCH][LANES] __attribute__((aligned(64)));
} patch;

/* What a product left. */
typedef struct entry {
    const patch *patch;           /* NULL: nothing */
    const float *sums;            /* of x, [group][row], from the patch's first group on */
    float *acc;                   /* of the first block's rows */
    const float *dots;            /* [PATCH][TILE_ROWS][LANES] */
} entry;

/* What is done between the tiles of one product. */
typedef struct gaps {
    const patch *ready;           /* is decoded, a step of a block in a gap; NULL: nothing */
    const entry *left;            /* is entered: a block in the first gap, the other half way */
    uint32_t gap, half;           /* gaps so far; half of all */
} gaps;

/* How dots enter sums: as they are, by scales, by scales and biases. */
typedef enum entering { ENTER_PLAIN, ENTER_SCALED, ENTER_BIASED } entering;

struct span;
typedef void product_fn(const struct span *s, const patch *p, const uint8_t *x, float *dots, gaps *at);

/* Row tiles times blocks of one panel that take turns with its groups. */
typedef struct span {
    const lw_cpu_weight *weight;
    row_tiles rows;
    const uint8_t *x;             /* of the first row tile */
    uint32_t tile_count;
    uint32_t step, steps;         /* k of a product; products of a group */
    size_t low_step, high_step;   /* bytes of a block's step in each plane */
    size_t step_share;            /* of the bytes of a group of a block */
    decode_fn *decode;
    code_table table;
    entering entering;
    product_fn *product;
    const uint8_t *groups;        /* group 0 of the first block */
    const uint8_t *next;          /* the same of the span after this one; NULL: there is none */
    size_t group_step;            /* bytes to the next group of a block */
    uint32_t blocks, together;    /* groups of a patch */
    uint32_t patches, ahead;      /* how many patches, and how many on codes are asked for */
    patch at[4];                  /* patch i is i mod 4 */
    float acc[ROWS_TOGETHER * PATCH_BLOCKS * LANES] __attribute__((aligned(64))); /* (blocks, rows, LANES) */
    float dots[2][PATCH * DOT_FLOATS] __attribute__((aligned(64)));
    uint8_t decoded[2][DECODED_BYTES] __attribute__((aligned(64)));
} span;

/* Where patch i begins, or one of the span after this one. */
static const uint8_t *patch_stored(const span *s, uint32_t i)
{
    const uint8_t *groups = s->groups;
    if (i >= s->patches) {
        if (s->next == NULL) return NULL;
        groups = s->next;
        i -= s->patches;
    }
    const uint32_t pairs = s->blocks / PATCH_BLOCKS;
    return groups + i / pairs * s->together * s->group_step
        + i % pairs * PATCH_BLOCKS * s->weight->group_bytes;
}

static void load_scaling(const span *s, patch *p, uint32_t j)
{
    const lw_cpu_weight *const w = s->weight;
    if (s->entering == ENTER_PLAIN) return;
    const vf scale = load_scales(w->scale_type, p->stored[j]);
    vf_store(p->scales[j], scale);
    if (s->entering != ENTER_BIASED) return;
    const bool stored = w->has_bias;
    vf_store(p->biases[j], stored ? load_scales(w->scale_type, p->stored[j] + w->bias_at)
                                  : vf_mul(vf_set(w->bias_per_scale), scale));
}

static const patch *patch_open(span *s, uint32_t i)
{
    const lw_cpu_weight *const w = s->weight;
    const uint32_t pairs = s->blocks / PATCH_BLOCKS, group = i / pairs * s->together;
    const uint32_t left = w->group_count - group;
    const uint8_t *const stored = patch_stored(s, i);
    patch *const p = &s->at[i % 4];
    p->group = group;
    p->groups = left < s->together ? left : s->together;
    p->block = i % pairs * PATCH_BLOCKS;
    p->ahead = patch_stored(s, i + s->ahead);
    p->decoded = s->decoded[i % 2];
    for (uint32_t j = 0; j < PATCH; j++) {
        p->stored[j] = stored + j / PATCH_BLOCKS * s->group_step + j % PATCH_BLOCKS * w->group_bytes;
        p->tiles[j] = s->decode == NULL ? p->stored[j] + w->words_at : p->decoded + j * w->group * COL_BYTES;
        if (j < p->groups * PATCH_BLOCKS) load_scaling(s, p, j);
    }
    return p;
}

/* Makes ready step i of group g of block b of a patch that is multiplied next, and asks for as much of one
 * that comes later. */
static void step_ready(const span *s, const patch *p, uint32_t g, uint32_t i, uint32_t b)
{
    const lw_cpu_weight *const w = s->weight;
    const uint32_t j = g * PATCH_BLOCKS + b;
    if (p->ahead != NULL) {
        const uint8_t *const at = p->ahead + g * s->group_step + b * w->group_bytes + i * s->step_share;
        for (size_t n = 0; n < s->step_share; n += LINE_BYTES) __builtin_prefetch(at + n);
    }
    if (s->decode == NULL) return;
    s->decode(&s->table, p->stored[j] + w->words_at + i * s->low_step,
              p->stored[j] + w->high_at + i * s->high_step,
              p->decoded + (j * w->group + i * s->step) * COL_BYTES);
}

/* ---- entering ---- */

/* Adds the dots of one block's groups to the sums of its rows. */
LINEAR_INLINE void enter_rows(int groups, entering how, const span *s, const entry *e, uint32_t block)
{
    const bool scaled = how != ENTER_PLAIN, biased = how == ENTER_BIASED;
    const uint32_t height = s->rows.height;
    const float *const sums = e->sums, *const dots = e->dots + block * DOT_FLOATS;
    float *const acc = e->acc + (size_t)block * s->tile_count * height * LANES;
    vf scale[PATCH_GROUPS], bias[PATCH_GROUPS];
    LINEAR_UNROLL
    for (int g = 0; g < groups; g++) {
        if (scaled) scale[g] = vf_load(e->patch->scales[(uint32_t)g * PATCH_BLOCKS + block]);
        if (biased) bias[g] = vf_load(e->patch->biases[(uint32_t)g * PATCH_BLOCKS + block]);
    }
    for (size_t r = 0; r < height; r++) {
        vf sum = vf_load(acc + r * LANES);
        LINEAR_UNROLL
        for (int g = 0; g < groups; g++) {
            const vf dot = vf_load(dots + g * PATCH_BLOCKS * DOT_FLOATS + r * LANES);
            if (biased) sum = vf_fma(bias[g], vf_set(sums[(uint32_t)g * height + r]), sum);
            sum = scaled ? vf_fma(scale[g], dot, sum) : vf_add(sum, dot);
        }
        vf_store(acc + r * LANES, sum);
    }
}

LINEAR_INLINE void enter(entering how, const span *s, const entry *e, uint32_t block)
{
    if (e->patch->groups == 1) enter_rows(1, how, s, e, block);
    else enter_rows(PATCH_GROUPS, how, s, e, block);
}

static void enter_all(const span *s, const entry *e)
{
    for (uint32_t b = 0; b < PATCH_BLOCKS; b++) {
        if (s->entering == ENTER_PLAIN) enter(ENTER_PLAIN, s, e, b);
        else if (s->entering == ENTER_SCALED) enter(ENTER_SCALED, s, e, b);
        else enter(ENTER_BIASED, s, e, b);
    }
}

/* ---- products ---- */

LINEAR_INLINE void gap_fill(entering how, const span *s, gaps *at, uint32_t g, uint32_t i, uint32_t b)
{
    if (at->ready != NULL && g < at->ready->groups) step_ready(s, at->ready, g, i, b);
    if (at->left->patch != NULL && (at->gap == 0 || at->gap == at->half))
        enter(how, s, at->left, at->gap != 0);
    at->gap++;
}

/* Group g of both blocks times the rows of tile a, by literals: sums in tiles c and d. */
#define GROUP_PRODUCT(g, c, d, a) \
    do { \
        const uint8_t *u_ = p->tiles[(g) * PATCH_BLOCKS], *v_ = p->tiles[(g) * PATCH_BLOCKS + 1]; \
        TILE_ZERO(c); \
        TILE_ZERO(d); \
        for (uint32_t i = 0; i < s->steps; i++, x += step_x, u_ += step_tile, v_ += step_tile) { \
            gap_fill(how, s, at, g, i, 0); \
            TILE_LOAD(a, x, step_bytes); \
            TILE_LOAD(6, u_, TILE_BYTES); \
            TILE_DOT(c, a, 6); \
            gap_fill(how, s, at, g, i, 1); \
            TILE_LOAD(7, v_, TILE_BYTES); \
            TILE_DOT(d, a, 7); \
        } \
        TILE_STORE(c, dots + (g) * PATCH_BLOCKS * DOT_FLOATS, TILE_BYTES); \
        TILE_STORE(d, dots + ((g) * PATCH_BLOCKS + 1) * DOT_FLOATS, TILE_BYTES); \
    } while (0)

/* All of a patch times one row tile, whose first x is given. */
LINEAR_INLINE void patch_product(entering how, const span *s, const patch *p, const uint8_t *x, float *dots,
                                 gaps *at)
{
    const size_t step_bytes = s->step * sizeof(lw_bf16), step_x = s->rows.height * step_bytes;
    const size_t step_tile = s->step * COL_BYTES;
    GROUP_PRODUCT(0, 0, 1, 4);
    if (p->groups > 1) GROUP_PRODUCT(1, 2, 3, 5);
}

#define PRODUCT_MAKE(name, how) \
    static void product_##name(const span *s, const patch *p, const uint8_t *x, float *dots, gaps *at) \
    { \
        patch_product(how, s, p, x, dots, at); \
    }
PRODUCT_MAKE(plain, ENTER_PLAIN)
PRODUCT_MAKE(scaled, ENTER_SCALED)
PRODUCT_MAKE(biased, ENTER_BIASED)
static product_fn *const products[] = { product_plain, product_scaled, product_biased };

/* A patch times row tile t. left is what the product before left, and then what this one did. */
static void product(span *s, const patch *p, const patch *next, uint32_t t, float *dots, entry *left)
{
    const uint32_t height = s->rows.height, rows = s->tile_count * height;
    const uint8_t *const tile = s->x + t * s->rows.bytes;
    const uint8_t *const x = tile + (size_t)p->group * s->steps * height * s->step * sizeof(lw_bf16);
    gaps at = { .ready = t == 0 ? next : NULL, .left = left, .half = p->groups * s->steps };
    s->product(s, p, x, dots, &at);
    *left = (entry){
        .patch = p,
        .sums = (const float *)(tile + s->rows.sums_at) + p->group * height,
        .acc = s->acc + ((size_t)p->block * rows + t * height) * LANES,
        .dots = dots,
    };
}

/* ---- running ---- */

static void span_run(span *s)
{
    entry left = { 0 };
    uint32_t count = 0;
    memset(s->acc, 0, (size_t)s->blocks * s->tile_count * s->rows.height * LANES * sizeof *s->acc);
    const patch *p = patch_open(s, 0);
    for (uint32_t i = 0; i < p->groups * s->steps * PATCH_BLOCKS; i++)
        step_ready(s, p, i / PATCH_BLOCKS / s->steps, i / PATCH_BLOCKS % s->steps, i % PATCH_BLOCKS);
    for (uint32_t i = 0; i < s->patches; i++) {
        const patch *const next = i + 1 < s->patches ? patch_open(s, i + 1) : NULL;
        for (uint32_t t = 0; t < s->tile_count; t++) product(s, p, next, t, s->dots[count++ % 2], &left);
        p = next;
    }
    enter_all(s, &left);
}

/* row is the first of the span, first its first block. */
static void span_store(const span *s, const lw_cpu_linear_args *args, uint32_t row, uint32_t first)
{
    const uint32_t rows = s->tile_count * s->rows.height, columns = args->weight->rows;
    const uint32_t count = rows < args->rows - row ? rows : args->rows - row;
    for (uint32_t r = 0; r < count; r++) {
        const uint32_t to = vector_of(args->y_rows, row + r);
        for (uint32_t b = 0, col = first * LANES; b < s->blocks && col < columns; b++, col += LANES)
            store_row(args, to, col, s->acc + ((size_t)b * rows + r) * LANES, columns - col);
    }
}

/* Row tiles that run together. */
static uint32_t tiles_together(const row_tiles *rows)
{
    const size_t fit = size_min(X_BYTES / rows->bytes, ROWS_TOGETHER / rows->height);
    const size_t runs = size_div_up(rows->count, size_max(fit, 1));
    return (uint32_t)size_div_up(rows->count, runs);
}

/* Blocks [begin, end) for the span's rows, which begin at `row`. */
static void run_blocks(span *s, const lw_cpu_linear_args *args, uint32_t row, uint32_t begin, uint32_t end)
{
    const lw_cpu_weight *const w = args->weight;
    const uint32_t most = s->tile_count * s->rows.height <= ROWS_PANEL ? LW__PANEL_BLOCKS : PATCH_BLOCKS;
    for (uint32_t block = begin, next; block < end; block = next) {
        next = block - block % most + most;
        if (next > end) next = end;
        s->groups = lw__group_at(w, args->member, block, 0);
        s->next = next < end ? lw__group_at(w, args->member, next, 0) : NULL;
        s->group_step = lw__panel_blocks(w, block - block % LW__PANEL_BLOCKS) * w->group_bytes;
        s->blocks = next - block;
        s->patches = (uint32_t)size_div_up(w->group_count, s->together) * (s->blocks / PATCH_BLOCKS);
        span_run(s);
        span_store(s, args, row, block);
    }
}

void LW_LINEAR(blocks)(const lw_cpu_linear_args *args, uint32_t begin, uint32_t end)
{
    const lw_cpu_weight *const w = args->weight;
    if (w->read != LW__READ_TILES) {
        lw__cpu_avx512_linear_blocks(args, begin, end);
        return;
    }
    LW_ASSERT(w->block_cols == LANES);
    LW_ASSERT(args->member < w->stack_count);
    LW_ASSERT(end <= w->block_count);
    if (args->rows == 1) {
        lone_blocks(args, begin, end);
        return;
    }
    span s;
    s.weight = w;
    s.rows = row_tiles_of(args);
    s.step = step_of(w);
    s.steps = w->group / s.step;
    s.low_step = (size_t)s.step * w->low.bits / 8 * LANES;
    s.high_step = (size_t)s.step * w->high.bits / 8 * LANES;
    s.step_share = w->group_bytes / s.steps;
    s.decode = decoder_of(w, s.step);
    s.table = code_table_of(w);
    const bool biased = w->has_bias || w->bias_per_scale != 0.0f;
    s.entering = !w->has_scale ? ENTER_PLAIN : biased ? ENTER_BIASED : ENTER_SCALED;
    s.product = products[s.entering];
    s.together = PATCH_GROUPS * w->group <= PATCH_COLS_MAX ? PATCH_GROUPS : 1;
    s.ahead = (uint32_t)size_max(2, AHEAD_BYTES / (s.together * PATCH_BLOCKS * w->group_bytes));
    const uint32_t most = tiles_together(&s.rows);
    const tile_config config = tile_config_of(s.rows.height, s.step);
    TILES_BEGIN(&config);
    for (uint32_t tile = 0; tile < s.rows.count; tile += s.tile_count) {
        s.x = (const uint8_t *)args->prepared + tile * s.rows.bytes;
        s.tile_count = s.rows.count - tile < most ? s.rows.count - tile : most;
        run_blocks(&s, args, tile * s.rows.height, begin, end);
    }
    TILES_END();
}

void LW_LINEAR(run)(const lw_cpu_linear_args *args, unsigned part, unsigned parts)
{
    size_t begin, end;
    lw_pool_share(args->weight->block_count, LW__BLOCKS_UNIT, part, parts, &begin, &end);
    LW_LINEAR(blocks)(args, (uint32_t)begin, (uint32_t)end);
}

#endif
