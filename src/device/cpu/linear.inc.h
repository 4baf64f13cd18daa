/* The linear op by fp32 multiply-add, written once for all instruction sets. A folder's linear.c defines the
 * vectors (LINEAR_AVX2, LINEAR_AVX512 or neither) and LW_LINEAR(name), and includes this.
 *
 * A lane is an output column and x[k] is broadcast, so an element's chain never crosses lanes:
 *   per group, ascending:  dot = 0;  for k ascending: dot = fma(x[k], code[k], dot)
 *                          acc = fma(scale, dot, fma(bias, sum_x, acc));  dense: acc = acc + dot
 * Neither the rows of a tile nor the blocks that run side by side enter it. sum_x is made once by prepare.
 *
 * x is prepared in tiles of tile_height() rows: per tile [k][row], then the sums [group][row]. Few rows
 * decode the codes in registers; many rows decode a group of two blocks once, to the same floats, for all
 * their tiles. A NaN leaves as one fixed NaN, since which operand's payload survives an fma is the
 * compiler's choice.
 */
#include "device/cpu/linear_codes.inc.h"
#include "device/cpu/linear_weight.h"
#include "base/float16.h"
#include "base/pool.h"
#include "base/size.h"

enum {
#if defined(LINEAR_AVX512)
    ROWS_MAX = 12,        /* rows of the tallest tile: two blocks of it leave a few registers free */
#define EACH_HEIGHT(X, form) EACH_LOW_HEIGHT(X, form) X(form, 8) X(form, 12)
#elif defined(LINEAR_AVX2)
    ROWS_MAX = 6,
#define EACH_HEIGHT(X, form) EACH_LOW_HEIGHT(X, form) X(form, 5) X(form, 6)
#else
    ROWS_MAX = 4,
#define EACH_HEIGHT(X, form) EACH_LOW_HEIGHT(X, form)
#endif
    ROWS_DIRECT = 4,      /* up to here codes are decoded in the inner loop, above once for many tiles */
#define EACH_LOW_HEIGHT(X, form) X(form, 1) X(form, 2) X(form, 3) X(form, 4)
    ROWS_KEPT_MAX = 48,   /* rows that share a decoded group: their sums stay in the first-level cache */
    DECODED_BLOCKS = LW__BLOCKS_UNIT,
    BLOCKS_MAX = LW__PANEL_BLOCKS,
    PANEL_X_BYTES = 192 << 10, /* prepared rows that stay in the second-level cache while columns pass */
    AHEAD_BYTES = 4096,   /* how far codes are asked for before they are read */
};

/* A row tile times a run of blocks of one panel. */
typedef struct tile {
    const lw_cpu_weight *weight;
    const uint8_t *groups;     /* group 0 of the first block */
    size_t group_step;         /* bytes to the next group of the same block */
    uint32_t block_count;      /* a multiple of LW__BLOCKS_UNIT */
    const float *x;            /* [k][rows] */
    const float *sums;         /* [group][rows] */
    float *acc;                /* [block_count][rows][LANES] */
#if defined(LINEAR_PAIRS)
    vi table_low, table_high;  /* codes as bf16 */
#endif
} tile;

/* Blocks that run side by side: enough chains to hide the latency of an fma, and room for them in registers.
 * */
LINEAR_INLINE int blocks_wide(int rows)
{
#if defined(LINEAR_AVX512)
    return rows <= 2 ? 8 : rows <= 6 ? 4 : 2;
#elif defined(LINEAR_AVX2)
    return rows == 1 ? 8 : rows == 2 ? 4 : 2;
#else
    return rows == 1 ? 4 : 2;
#endif
}

/* Where a tile stands: one group of its first blocks. */
typedef struct spot {
    const uint8_t *group;      /* the scales are read here */
    const uint8_t *words;      /* codes as stored, or decoded ones in the layout of fp32 weights */
    size_t words_step;         /* to the words of the next block */
    const float *x;
    const float *sums;
    float *acc;
} spot;

LINEAR_INLINE vf load_scales(lw_dtype type, const uint8_t *at)
{
    if (type == LW_DTYPE_BF16) return vf_load_bf16(at);
    if (type == LW_DTYPE_F16) return vf_load_fp16(at);
    return vf_load(at);
}

/* Adds the dots of one group of one block to its accumulators. */
LINEAR_INLINE void enter(const lw_cpu_weight *w, int rows, const vf *dot, const spot *s)
{
    if (!w->has_scale) {
        for (int r = 0; r < rows; r++)
            vf_store(s->acc + r * LANES, vf_add(vf_load(s->acc + r * LANES), dot[r]));
        return;
    }
    const vf scale = load_scales(w->scale_type, s->group);
    const bool biased = w->has_bias || w->bias_per_scale != 0.0f;
    vf bias = vf_mul(vf_set(w->bias_per_scale), scale);
    if (w->has_bias) bias = load_scales(w->scale_type, s->group + w->bias_at);
    for (int r = 0; r < rows; r++) {
        vf acc = vf_load(s->acc + r * LANES);
        if (biased) acc = vf_fma(bias, vf_set(s->sums[r]), acc);
        vf_store(s->acc + r * LANES, vf_fma(scale, dot[r], acc));
    }
}

/* A step of one group: what its inner loop reads. */
typedef struct step {
    const uint8_t *words;      /* of the first block */
    size_t block_bytes;        /* to the words of the next block */
    const float *x;
    vi high[BLOCKS_MAX];
} step;

LINEAR_INLINE void ask_for(const uint8_t *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + i);
}

/* Code j of a step in every block against the x of every row; the rows are held in registers. */
LINEAR_INLINE void few_rows(int form, int blocks, int rows, const step *at, int j,
                            vf dot[BLOCKS_MAX][ROWS_MAX])
{
    vf held[ROWS_MAX];
    LINEAR_UNROLL
    for (int r = 0; r < rows; r++) held[r] = vf_set(at->x[j * rows + r]);
    LINEAR_UNROLL
    for (int b = 0; b < blocks; b++) {
        const vf code = weight_at(form, at->words + (size_t)b * at->block_bytes, at->high[b], j);
        LINEAR_UNROLL
        for (int r = 0; r < rows; r++) dot[b][r] = vf_fma(held[r], code, dot[b][r]);
    }
}

/* The same with the codes held, which are fewer. */
LINEAR_INLINE void many_rows(int form, int blocks, int rows, const step *at, int j,
                             vf dot[BLOCKS_MAX][ROWS_MAX])
{
    vf held[BLOCKS_MAX];
    LINEAR_UNROLL
    for (int b = 0; b < blocks; b++)
        held[b] = weight_at(form, at->words + (size_t)b * at->block_bytes, at->high[b], j);
    LINEAR_UNROLL
    for (int r = 0; r < rows; r++) {
        const vf one = vf_set(at->x[j * rows + r]);
        LINEAR_UNROLL
        for (int b = 0; b < blocks; b++) dot[b][r] = vf_fma(one, held[b], dot[b][r]);
    }
}

LINEAR_INLINE void step_run(int form, int blocks, int rows, const step *at, vf dot[BLOCKS_MAX][ROWS_MAX])
{
    LINEAR_UNROLL
    for (int j = 0; j < step_of(form); j++) {
        if (rows < blocks) few_rows(form, blocks, rows, at, j, dot);
        else many_rows(form, blocks, rows, at, j, dot);
    }
}

/* One group: rows times blocks dots side by side, all constant so that the dots stay in registers. */
LINEAR_INLINE void group_run(int form, int blocks, int rows, const tile *t, spot s)
{
    const lw_cpu_weight *const w = t->weight;
    const uint32_t steps = w->group / (uint32_t)step_of(form);
    step at = { .words = s.words, .block_bytes = s.words_step, .x = s.x };
    vf dot[BLOCKS_MAX][ROWS_MAX];
    LINEAR_UNROLL
    for (int b = 0; b < blocks; b++)
        LINEAR_UNROLL
        for (int r = 0; r < rows; r++) dot[b][r] = vf_zero();

    for (uint32_t i = 0; i < steps; i++) {
        if (high_bits_of(form) > 0)
            LINEAR_UNROLL
            for (int b = 0; b < blocks; b++)
                at.high[b] = high_at(form, s.group + (size_t)b * w->group_bytes + w->high_at, i);
        step_run(form, blocks, rows, &at, dot);
        at.words += step_vectors_of(form) * VECTOR_BYTES;
        at.x += step_of(form) * rows;
    }
    LINEAR_UNROLL
    for (int b = 0; b < blocks; b++) {
        enter(w, rows, dot[b], &s);
        s.group += w->group_bytes;
        s.acc += rows * LANES;
    }
}

#if defined(LINEAR_PAIRS)
#include "device/cpu/linear_pairs.inc.h"
#define GROUP_RUN(form, ...) \
    ((form) <= LW__FORM_BF16 ? pairs_run(form, __VA_ARGS__) : group_run(form, __VA_ARGS__))
#else
#define GROUP_RUN(form, ...) group_run(form, __VA_ARGS__)
#endif

/* A whole tile: groups ascending, and each group through all blocks before the next, so that codes stream in
 * order. */
LINEAR_INLINE void tile_run(int form, int rows, const tile *t)
{
    const lw_cpu_weight *const w = t->weight;
    const size_t x_step = lw__prepared_x_words(w) / w->group_count * (size_t)rows;
    const uint32_t wide = (uint32_t)blocks_wide(rows);
    for (uint32_t g = 0; g < w->group_count; g++) {
        spot s = {
            .group = t->groups + g * t->group_step,
            .words = t->groups + g * t->group_step + w->words_at,
            .words_step = w->group_bytes,
            .x = t->x + g * x_step,
            .sums = t->sums + (size_t)g * (size_t)rows,
            .acc = t->acc,
        };
        ask_for(s.group + AHEAD_BYTES, t->block_count * w->group_bytes);
        uint32_t left = t->block_count;
        for (; left >= wide; left -= wide) {
            GROUP_RUN(form, blocks_wide(rows), rows, t, s);
            s.group += wide * w->group_bytes;
            s.words += wide * w->group_bytes;
            s.acc += wide * (uint32_t)rows * LANES;
        }
        for (; left > 0; left -= LW__BLOCKS_UNIT) {
            GROUP_RUN(form, LW__BLOCKS_UNIT, rows, t, s);
            s.group += LW__BLOCKS_UNIT * w->group_bytes;
            s.words += LW__BLOCKS_UNIT * w->group_bytes;
            s.acc += LW__BLOCKS_UNIT * rows * LANES;
        }
    }
}

typedef void tile_fn(const tile *t);
#define TILE_MAKE(form, rows) \
    static void tile_##form##_##rows(const tile *t) { tile_run(LW__FORM_##form, rows, t); }
#define TILE_ENTRY(form, rows) [rows] = tile_##form##_##rows,
#define EACH_INTEGER(X) X(INT2) X(INT3) X(INT4) X(INT5) X(INT6) X(INT8)
#define EACH_FORM(X) EACH_INTEGER(X) X(BF16) X(FP16) X(FP32)
#if defined(LINEAR_PAIRS)
#define FORM_TILES(form) EACH_HEIGHT(TILE_MAKE, form)
#define FORM_ROW(form) [LW__FORM_##form] = { EACH_HEIGHT(TILE_ENTRY, form) },
#else
#define FORM_TILES(form) EACH_LOW_HEIGHT(TILE_MAKE, form)
#define FORM_ROW(form) [LW__FORM_##form] = { EACH_LOW_HEIGHT(TILE_ENTRY, form) },
#endif
EACH_FORM(FORM_TILES)
static tile_fn *const tiles[LW__FORM_COUNT][ROWS_MAX + 1] = { EACH_FORM(FORM_ROW) };

/* A row tile times DECODED_BLOCKS blocks of one decoded group. */
typedef void decoded_fn(const tile *t, const spot *s);
#define DECODED_MAKE(form, rows) \
    static void decoded_##rows(const tile *t, const spot *s) \
    { \
        group_run(LW__FORM_##form, DECODED_BLOCKS, rows, t, *s); \
    }
#define DECODED_ENTRY(form, rows) [rows] = decoded_##rows,
EACH_HEIGHT(DECODED_MAKE, FP32)
static decoded_fn *const decoded_tiles[ROWS_MAX + 1] = { EACH_HEIGHT(DECODED_ENTRY, FP32) };

/* The weights of one group of one block, as [k][LANES]: what the inner loop of few rows makes of the codes.
 * */
LINEAR_INLINE void group_decode(int form, const lw_cpu_weight *w, const uint8_t *group, float *values)
{
    const uint8_t *words = group + w->words_at;
    for (uint32_t i = 0; i < w->group / (uint32_t)step_of(form); i++) {
        vi high = { 0 };
        if (high_bits_of(form) > 0) high = high_at(form, group + w->high_at, i);
        LINEAR_UNROLL
        for (int j = 0; j < step_of(form); j++) vf_store(values + j * LANES, weight_at(form, words, high, j));
        words += step_vectors_of(form) * VECTOR_BYTES;
        values += step_of(form) * LANES;
    }
}

typedef void decode_fn(const lw_cpu_weight *w, const uint8_t *group, float *values);
#define DECODE_MAKE(form) \
    static void decode_##form(const lw_cpu_weight *w, const uint8_t *group, float *values) \
    { \
        group_decode(LW__FORM_##form, w, group, values); \
    }
#define DECODE_ENTRY(form) [LW__FORM_##form] = decode_##form,
EACH_FORM(DECODE_MAKE)
static decode_fn *const decoders[LW__FORM_COUNT] = { EACH_FORM(DECODE_ENTRY) };

/* Rows of the next tile when `left` rows are left: the tallest that there is code for. */
static uint32_t tile_height(uint32_t left)
{
    uint32_t rows = left < ROWS_MAX ? left : ROWS_MAX;
    while (decoded_tiles[rows] == NULL) rows--;
    return rows;
}

/* The part of prepared that belongs to the tile that begins at `row`: x, then sums. */
static float *tile_x(const lw_cpu_linear_args *args, uint32_t row)
{
    return (float *)args->prepared + row * (lw__prepared_x_words(args->weight) + args->weight->group_count);
}

/* Where row r of a call lies in x or y. */
static uint32_t vector_of(const uint32_t *rows, uint32_t r) { return rows == NULL ? r : rows[r]; }

/* ---- prepare ---- */

/* Sums as LANES chains of every LANES-th k, folded in halves. */
static float group_sum(const float *x, uint32_t count)
{
    float lane[LANES];
    vf sum = vf_zero();
    for (uint32_t k = 0; k < count; k += LANES) sum = vf_add(sum, vf_load(x + k));
    vf_store(lane, sum);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) lane[i] += lane[i + half];
    return lane[0];
}

/* One group of one row as fp32, zeros past the end of x. */
static void load_group(const lw_cpu_linear_args *args, uint32_t row, uint32_t group, float *values)
{
    const lw_cpu_weight *const w = args->weight;
    const uint32_t begin = group * w->group;
    const uint32_t count = begin >= w->cols ? 0 : w->cols - begin < w->group ? w->cols - begin : w->group;
    const lw_bf16 *const x = args->x + row * args->x_stride + begin;
    uint32_t k = 0;
    for (; k + LANES <= count; k += LANES) vf_store(values + k, vf_load_bf16(x + k));
    for (; k < count; k++) values[k] = lw_float_of_bf16(x[k]);
    for (; k < w->group; k++) values[k] = 0.0f;
}

/* The x of one group of one row goes to every rows-th word of its tile. */
static void place_group(const lw_cpu_weight *w, const float *values, const float *factors, float *x,
                        uint32_t rows)
{
#if defined(LINEAR_PAIRS)
    if (w->read == LW__READ_PAIRS) {
        pairs_place(w, values, x, rows);
        return;
    }
#endif
    for (uint32_t k = 0; k < w->group; k += LW__GROUP_UNIT) {
        float scaled[LW__GROUP_UNIT];
        for (uint32_t i = 0; i < LW__GROUP_UNIT; i++) scaled[i] = values[k + i] * factors[i];
        if (rows == 1) memcpy(x + k, scaled, sizeof scaled);
        else
            for (uint32_t i = 0; i < LW__GROUP_UNIT; i++) x[(k + i) * rows] = scaled[i];
    }
}

/* Groups are shared among the parts: one row is enough work for several. */
void LW_LINEAR(prepare)(const lw_cpu_linear_args *args, unsigned part, unsigned parts)
{
    const lw_cpu_weight *const w = args->weight;
    const size_t x_words = lw__prepared_x_words(w), group_words = x_words / w->group_count;
    float factors[LW__GROUP_UNIT], values[LW__GROUP_MAX];
    for (uint32_t k = 0; k < LW__GROUP_UNIT; k++) factors[k] = lw__x_factor(w, k);
    size_t begin, end;
    lw_pool_share(w->group_count, 1, part, parts, &begin, &end);
    for (uint32_t first = 0, rows; first < args->rows; first += rows) {
        rows = tile_height(args->rows - first);
        float *const x = tile_x(args, first);
        float *const sums = x + x_words * rows;
        for (size_t at = begin * rows; at < end * rows; at++) {
            const uint32_t g = (uint32_t)(at / rows), r = (uint32_t)(at % rows);
            load_group(args, vector_of(args->x_rows, first + r), g, values);
            place_group(w, values, factors, x + g * group_words * rows + r, rows);
            sums[g * rows + r] = group_sum(values, w->group);
        }
    }
}

/* ---- run ---- */

static uint32_t one_nan(uint32_t bits) { return (bits & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FC00000u : bits; }

/* Stores count columns of one row of one block. */
static void store_row(const lw_cpu_linear_args *args, size_t row, uint32_t col, const float *acc,
                      uint32_t count)
{
    uint32_t bits[LANES];
    for (int i = 0; i < LANES; i++) bits[i] = one_nan(lw_bits_of_float(acc[i]));
    if (args->y_f32) {
        memcpy((float *)args->y + row * args->y_stride + col, bits, count * sizeof *bits);
        return;
    }
    lw_bf16 values[LANES];
    for (int i = 0; i < LANES; i++) {
        const uint32_t near = bits[i] + 0x7FFFu + (bits[i] >> 16 & 1u);
        values[i] = (lw_bf16)((bits[i] == 0x7FC00000u ? bits[i] : near) >> 16);
    }
    memcpy((lw_bf16 *)args->y + row * args->y_stride + col, values, count * sizeof *values);
}

static void store_tile(const lw_cpu_linear_args *args, const tile *t, uint32_t first_row,
                       uint32_t first_block)
{
    const uint32_t rows = tile_height(args->rows - first_row), columns = args->weight->rows;
    for (uint32_t b = 0; b < t->block_count; b++) {
        const uint32_t col = (first_block + b) * LANES;
        if (col >= columns) return;
        const uint32_t count = columns - col < LANES ? columns - col : LANES;
        for (uint32_t r = 0; r < rows; r++)
            store_row(args, vector_of(args->y_rows, first_row + r), col, t->acc + (b * rows + r) * LANES,
                      count);
    }
}

/* Rows [begin, end), whole tiles, of blocks [first, last) of one panel. */
static void run_panel(const lw_cpu_linear_args *args, uint32_t begin, uint32_t end, uint32_t first,
                      uint32_t last)
{
    const lw_cpu_weight *const w = args->weight;
    float acc[BLOCKS_MAX * ROWS_MAX * LANES] __attribute__((aligned(64)));
    tile t = {
        .weight = w,
        .groups = lw__group_at(w, args->member, first, 0),
        .group_step = lw__panel_blocks(w, first - first % LW__PANEL_BLOCKS) * w->group_bytes,
        .block_count = last - first,
        .acc = acc,
    };
#if defined(LINEAR_PAIRS)
    if (w->read == LW__READ_PAIRS && w->form != LW__FORM_BF16) {
        t.table_low = pair_table(w->low.bits, 0);
        t.table_high = pair_table(w->high.bits, w->low.bits);
    }
#endif
    for (uint32_t row = begin, rows; row < end; row += rows) {
        rows = tile_height(args->rows - row);
        t.x = tile_x(args, row);
        t.sums = t.x + lw__prepared_x_words(w) * rows;
        memset(acc, 0, (size_t)t.block_count * rows * LANES * sizeof *acc);
        tiles[w->form][rows](&t);
        store_tile(args, &t, row, first);
    }
}

/* As run_panel, a pair of blocks after the other, each group decoded once for all rows. */
static void run_decoded(const lw_cpu_linear_args *args, uint32_t begin, uint32_t end, uint32_t first,
                        uint32_t last)
{
    const lw_cpu_weight *const w = args->weight;
    float acc[ROWS_KEPT_MAX * DECODED_BLOCKS * LANES] __attribute__((aligned(64)));
    float values[DECODED_BLOCKS * LW__GROUP_MAX * LANES] __attribute__((aligned(64)));
    const size_t x_words = lw__prepared_x_words(w), block_words = (size_t)w->group * LANES;
    const size_t group_step = lw__panel_blocks(w, first - first % LW__PANEL_BLOCKS) * w->group_bytes;
    tile t = { .weight = w, .block_count = DECODED_BLOCKS };
    for (uint32_t block = first; block < last; block += DECODED_BLOCKS) {
        const uint8_t *const groups = lw__group_at(w, args->member, block, 0);
        memset(acc, 0, (size_t)(end - begin) * DECODED_BLOCKS * LANES * sizeof *acc);
        for (uint32_t g = 0; g < w->group_count; g++) {
            const uint8_t *const group = groups + g * group_step;
            ask_for(group + 2 * group_step, DECODED_BLOCKS * w->group_bytes);
            for (uint32_t b = 0; b < DECODED_BLOCKS; b++)
                decoders[w->form](w, group + b * w->group_bytes, values + b * block_words);
            for (uint32_t row = begin, rows; row < end; row += rows) {
                rows = tile_height(args->rows - row);
                const float *const x = tile_x(args, row);
                const spot s = {
                    .group = group,
                    .words = (const uint8_t *)values,
                    .words_step = block_words * sizeof *values,
                    .x = x + (size_t)g * w->group * rows,
                    .sums = x + (x_words + g) * rows,
                    .acc = acc + (row - begin) * DECODED_BLOCKS * LANES,
                };
                decoded_tiles[rows](&t, &s);
            }
        }
        for (uint32_t row = begin; row < end; row += tile_height(args->rows - row)) {
            t.acc = acc + (row - begin) * DECODED_BLOCKS * LANES;
            store_tile(args, &t, row, block);
        }
    }
}

void LW_LINEAR(blocks)(const lw_cpu_linear_args *args, uint32_t begin, uint32_t end)
{
    const lw_cpu_weight *const w = args->weight;
    LW_ASSERT(w->block_cols == LANES);
    LW_ASSERT(args->member < w->stack_count);
    LW_ASSERT(end <= w->block_count);
    const size_t row_bytes = lw__prepared_x_words(w) * sizeof(float);
    const uint32_t tiles_kept = (uint32_t)size_max(1, PANEL_X_BYTES / (row_bytes * ROWS_MAX));
    const uint32_t rows_kept = tiles_kept * ROWS_MAX < ROWS_KEPT_MAX ? tiles_kept * ROWS_MAX : ROWS_KEPT_MAX;
    const bool decoded = w->read == LW__READ_FLOAT && args->rows > ROWS_DIRECT;
    for (uint32_t row = 0; row < args->rows; row += rows_kept) {
        const uint32_t row_end = args->rows - row < rows_kept ? args->rows : row + rows_kept;
        for (uint32_t block = begin, next; block < end; block = next) {
            next = block - block % LW__PANEL_BLOCKS + LW__PANEL_BLOCKS;
            if (next > end) next = end;
            if (decoded) run_decoded(args, row, row_end, block, next);
            else run_panel(args, row, row_end, block, next);
        }
    }
}

void LW_LINEAR(run)(const lw_cpu_linear_args *args, unsigned part, unsigned parts)
{
    size_t begin, end;
    lw_pool_share(args->weight->block_count, LW__BLOCKS_UNIT, part, parts, &begin, &end);
    LW_LINEAR(blocks)(args, (uint32_t)begin, (uint32_t)end);
}
