/* The linear op by fp32 multiply-add, written once for all instruction sets. A folder's linear.c defines the
 * vectors (LINEAR_AVX2, LINEAR_AVX512 or neither) and LW_LINEAR(name), and includes this.
 *
 * A lane is an output column and x[k] is broadcast, so an element's chain never crosses lanes:
 *   per group, ascending:  dot = 0;  for k ascending: dot = fma(x[k], code[k], dot)
 *                          acc = fma(scale, dot, fma(bias, sum_x, acc));  dense: acc = acc + dot
 * Neither the rows of a tile nor the blocks that run side by side enter it. sum_x is made once by prepare.
 *
 * x is prepared in tiles of tile_height() rows: per tile [k][row], then the sums [group][row]. Few rows
 * decode the codes in registers, once for every tile; many rows decode a group of a few blocks once, to the
 * same floats, for all their tiles. A NaN leaves as one fixed NaN, since which operand's payload survives an
 * fma is the compiler's choice.
 */
#include "device/cpu/linear_codes.inc.h"
#include "device/cpu/linear_tiles.inc.h"
#include "base/pool.h"
#include "base/size.h"

enum {
#if defined(LINEAR_AVX512)
    ROWS_MAX = 12,        /* rows of the tallest tile: two blocks of it leave a few registers free */
#define EACH_HEIGHT(X, form) EACH_LOW_HEIGHT(X, form) X(form, 8) X(form, 12)
#else
    ROWS_MAX = 4,         /* three blocks of it fill sixteen registers */
#define EACH_HEIGHT(X, form) EACH_LOW_HEIGHT(X, form)
#endif
#define EACH_LOW_HEIGHT(X, form) X(form, 1) X(form, 2) X(form, 3) X(form, 4)
    ROWS_DIRECT = 8,      /* up to here codes are decoded in the inner loop, above once for many tiles */
    TILES_TOGETHER = 2,   /* that take turns with the groups of a panel */
    TURN_BYTES = 16 << 10, /* of the groups of a turn: they stay in the first-level cache */
};

/* A row tile times a run of blocks of one panel. */
typedef struct tile {
    const lw_cpu_weight *weight;
    const uint8_t *groups;     /* group 0 of the first block */
    size_t group_step;         /* bytes to the next group of the same block */
    uint32_t block_count;      /* a multiple of LW__BLOCKS_UNIT */
    uint32_t row, rows;
    const float *x;            /* [k][rows] */
    const float *sums;         /* [group][rows] */
    float *acc;                /* [block_count][rows][LANES] */
#if defined(LINEAR_PAIRS)
    vi table_low, table_high;  /* codes as bf16 */
#endif
} tile;

/* Blocks that run side by side: enough chains to hide the latency of an fma, and room for them in registers.
 * Few rows wait for memory instead, which reads faster where fewer blocks take turns: all but codes of few
 * bits in fp32, whose decoding takes longer. */
LINEAR_INLINE int blocks_wide(int form, int rows)
{
    if (rows <= 2 && is_wide_form(form)) return 2;
#if defined(LINEAR_PAIRS)
    return rows <= 6 ? 4 : 2;
#elif defined(LINEAR_AVX512)
    return rows <= 2 && low_bits_of(form) < 8 ? 8 : rows <= 6 ? 4 : 2;
#elif defined(LINEAR_AVX2)
    return rows == 1 ? 8 : rows == 2 ? 4 : 3;
#else
    return rows == 1 ? 4 : 2;
#endif
}

/* Of `left` blocks, those that run next: wide, or a pair where wide would leave a single one. */
LINEAR_INLINE bool is_wide(int form, uint32_t left, int rows)
{
    const uint32_t wide = (uint32_t)blocks_wide(form, rows);
    return wide == LW__BLOCKS_UNIT || left == wide || left > wide + 1;
}

/* Where a tile stands: one group of its first blocks. */
typedef struct spot {
    const uint8_t *group;      /* the scales are read here */
    const uint8_t *words;      /* codes as stored, or decoded ones in the layout of fp32 weights */
    size_t words_step;         /* to the words of the next block */
    const float *x;
    const float *sums;
    float *acc;
    const uint8_t *ahead;      /* what to ask for; NULL: nothing */
} spot;

/* Adds the dots of one group of one block to its accumulators. */
LINEAR_INLINE void enter_block(lw_dtype type, bool has_bias, const lw_cpu_weight *w, int rows, const vf *dot,
                               const spot *s)
{
    const vf scale = load_scales(type, s->group);
    const bool biased = has_bias || w->bias_per_scale != 0.0f;
    const vf bias =
        has_bias ? load_scales(type, s->group + w->bias_at) : vf_mul(vf_set(w->bias_per_scale), scale);
    LINEAR_UNROLL
    for (int r = 0; r < rows; r++) {
        vf acc = vf_load(s->acc + r * LANES);
        if (biased) acc = vf_fma(bias, vf_set(s->sums[r]), acc);
        vf_store(s->acc + r * LANES, vf_fma(scale, dot[r], acc));
    }
}

LINEAR_INLINE void enter_plain(int rows, const vf *dot, const spot *s)
{
    LINEAR_UNROLL
    for (int r = 0; r < rows; r++) vf_store(s->acc + r * LANES, vf_add(vf_load(s->acc + r * LANES), dot[r]));
}

/* The same for some blocks, dot after dot. A function of its own: inlined in every loop over codes it would
 * be most of the code. */
LINEAR_INLINE void enter_blocks(const lw_cpu_weight *w, int rows, uint32_t blocks, const vf *dot, spot s)
{
    const bool is_usual = w->has_bias && w->scale_type == LW_DTYPE_BF16;
    const size_t next = w->group_bytes;
#define ENTER_EACH(enter) \
    for (uint32_t b = 0; b < blocks; b++, dot += rows, s.group += next, s.acc += rows * LANES) enter
    if (!w->has_scale) ENTER_EACH(enter_plain(rows, dot, &s));
    else if (is_usual) ENTER_EACH(enter_block(LW_DTYPE_BF16, true, w, rows, dot, &s));
    else ENTER_EACH(enter_block(w->scale_type, w->has_bias, w, rows, dot, &s));
#undef ENTER_EACH
}

typedef void enter_fn(const lw_cpu_weight *w, uint32_t blocks, const vf *dot, const spot *s);
#define ENTER_MAKE(form, rows) \
    static __attribute__((noinline)) void enter_##rows(const lw_cpu_weight *w, uint32_t blocks, \
                                                       const vf *dot, const spot *s) \
    { \
        enter_blocks(w, rows, blocks, dot, *s); \
    }
#define ENTER_ENTRY(form, rows) [rows] = enter_##rows,
EACH_HEIGHT(ENTER_MAKE, )
static enter_fn *const enters[ROWS_MAX + 1] = { EACH_HEIGHT(ENTER_ENTRY, ) };

/* Stores what the inner loop held in registers, and enters it. */
LINEAR_INLINE void enter(const lw_cpu_weight *w, int blocks, int rows, vf dot[BLOCKS_MAX][ROWS_MAX],
                         const spot *s)
{
    vf dots[BLOCKS_MAX * ROWS_MAX];
    LINEAR_UNROLL
    for (int b = 0; b < blocks; b++)
        LINEAR_UNROLL
        for (int r = 0; r < rows; r++) dots[b * rows + r] = dot[b][r];
    enters[rows](w, (uint32_t)blocks, dots, s);
}

/* A step of one group: what its inner loop reads. */
typedef struct step {
    const uint8_t *words;      /* of the first block */
    size_t block_bytes;        /* to the words of the next block */
    const float *x;
    vt table;
    code_masks masks;
    vi high[BLOCKS_MAX];
} step;

/* Where a group's share of that ends. */
LINEAR_INLINE const uint8_t *ahead_end_of(const spot *s, int blocks, const lw_cpu_weight *w)
{
    return s->ahead == NULL ? NULL : s->ahead + (uint32_t)blocks * w->group_bytes;
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
        const vf code =
            weight_at(form, at->table, &at->masks, at->words + (size_t)b * at->block_bytes, at->high[b], j);
        LINEAR_UNROLL
        for (int r = 0; r < rows; r++) vf_fma_to(&dot[b][r], held[r], code);
    }
}

/* The same with the codes held, which are fewer. */
LINEAR_INLINE void many_rows(int form, int blocks, int rows, const step *at, int j,
                             vf dot[BLOCKS_MAX][ROWS_MAX])
{
    vf held[BLOCKS_MAX];
    LINEAR_UNROLL
    for (int b = 0; b < blocks; b++)
        held[b] =
            weight_at(form, at->table, &at->masks, at->words + (size_t)b * at->block_bytes, at->high[b], j);
    LINEAR_UNROLL
    for (int r = 0; r < rows; r++) {
        const vf one = vf_set(at->x[j * rows + r]);
        LINEAR_UNROLL
        for (int b = 0; b < blocks; b++) vf_fma_to(&dot[b][r], one, held[b]);
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

/* Bytes of the low plane that one step of some blocks reads: the pace of what is asked for. */
LINEAR_INLINE size_t step_bytes_of(int form, int blocks)
{
    return (size_t)(blocks * step_vectors_of(form) * VECTOR_BYTES);
}

/* One group: rows times blocks dots side by side, all constant so that the dots stay in registers. */
LINEAR_INLINE void group_run(int form, int blocks, int rows, const tile *t, spot s)
{
    const lw_cpu_weight *const w = t->weight;
    const uint32_t steps = w->group / (uint32_t)step_of(form);
    const uint8_t *const ahead_end = ahead_end_of(&s, blocks, w);
    step at = { .words = s.words, .block_bytes = s.words_step, .x = s.x, .table = vt_load(w->table),
                .masks = code_masks_of(form) };
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
        s.ahead = ask_next(s.ahead, step_bytes_of(form, blocks), is_wide_form(form));
        step_run(form, blocks, rows, &at, dot);
        at.words += step_vectors_of(form) * VECTOR_BYTES;
        at.x += step_of(form) * rows;
    }
    while (s.ahead < ahead_end) s.ahead = ask_next(s.ahead, LINE_BYTES, is_wide_form(form));
    enter(w, blocks, rows, dot, &s);
}

#if defined(LINEAR_PAIRS)
#include "device/cpu/linear_pairs.inc.h"
#define GROUP_RUN(form, ...) \
    ((form) <= LW__FORM_BF16 ? pairs_run(form, __VA_ARGS__) : group_run(form, __VA_ARGS__))
#else
#define GROUP_RUN(form, ...) group_run(form, __VA_ARGS__)
#endif

/* Groups [begin, end) of a tile, ascending, and each group through all blocks before the next, so that codes
 * stream in order. */
LINEAR_INLINE void tile_run(int form, int rows, const tile *t, uint32_t begin, uint32_t end)
{
    const lw_cpu_weight *const w = t->weight;
    const size_t x_step = lw__prepared_x_words(w) / w->group_count * (size_t)rows;
    const uint32_t wide = (uint32_t)blocks_wide(form, rows);
    for (uint32_t g = begin; g < end; g++) {
        spot s = {
            .group = t->groups + g * t->group_step,
            .words = t->groups + g * t->group_step + w->words_at,
            .words_step = w->group_bytes,
            .x = t->x + g * x_step,
            .sums = t->sums + (size_t)g * (size_t)rows,
            .acc = t->acc,
            .ahead = t->groups + g * t->group_step + wide * w->group_bytes + AHEAD_BYTES,
        };
        for (uint32_t left = t->block_count, run; left > 0; left -= run) {
            run = is_wide(form, left, rows) ? wide : LW__BLOCKS_UNIT;
            if (is_wide(form, left, rows)) GROUP_RUN(form, blocks_wide(form, rows), rows, t, s);
            else GROUP_RUN(form, LW__BLOCKS_UNIT, rows, t, s);
            s.group += run * w->group_bytes;
            s.ahead += run * w->group_bytes;
            s.words += run * w->group_bytes;
            s.acc += run * (uint32_t)rows * LANES;
        }
    }
}

typedef void tile_fn(const tile *t, uint32_t begin, uint32_t end);
#define TILE_MAKE(form, rows) \
    static void tile_##form##_##rows(const tile *t, uint32_t begin, uint32_t end) \
    { \
        tile_run(LW__FORM_##form, rows, t, begin, end); \
    }
#define TILE_ENTRY(form, rows) [rows] = tile_##form##_##rows,
#define EACH_CODE(X) X(INT2) X(INT3) X(INT4) X(INT5) X(INT6) X(INT8) X(TABLE4) X(E4M3)
#define EACH_FORM(X) EACH_CODE(X) X(BF16) X(FP16) X(FP32)
#if defined(LINEAR_PAIRS)
#define EACH_DIRECT_HEIGHT EACH_HEIGHT
#elif defined(LINEAR_AVX512)
#define EACH_DIRECT_HEIGHT(X, form) EACH_LOW_HEIGHT(X, form) X(form, 8)
#else
#define EACH_DIRECT_HEIGHT EACH_LOW_HEIGHT
#endif
#define FORM_TILES(form) EACH_DIRECT_HEIGHT(TILE_MAKE, form)
#define FORM_ROW(form) [LW__FORM_##form] = { EACH_DIRECT_HEIGHT(TILE_ENTRY, form) },
EACH_FORM(FORM_TILES)
static tile_fn *const tiles[LW__FORM_COUNT][ROWS_MAX + 1] = { EACH_FORM(FORM_ROW) };

/* A row tile times the blocks of one decoded group; the scales are where the group is stored. */
LINEAR_INLINE void decoded_run(int rows, const tile *t, spot s)
{
    const lw_cpu_weight *const w = t->weight;
    const uint32_t wide = (uint32_t)blocks_wide(LW__FORM_FP32, rows);
    for (uint32_t left = t->block_count, run; left > 0; left -= run) {
        run = is_wide(LW__FORM_FP32, left, rows) ? wide : LW__BLOCKS_UNIT;
        if (run == wide) group_run(LW__FORM_FP32, blocks_wide(LW__FORM_FP32, rows), rows, t, s);
        else group_run(LW__FORM_FP32, LW__BLOCKS_UNIT, rows, t, s);
        s.group += run * w->group_bytes;
        s.words += run * s.words_step;
        s.acc += run * (uint32_t)rows * LANES;
    }
}

typedef void decoded_fn(const tile *t, const spot *s);
#define DECODED_MAKE(form, rows) \
    static void decoded_##rows(const tile *t, const spot *s) \
    { \
        spot at = *s; \
        at.ahead = NULL; \
        decoded_run(rows, t, at); \
    }
#define DECODED_ENTRY(form, rows) [rows] = decoded_##rows,
EACH_HEIGHT(DECODED_MAKE, FP32)
static decoded_fn *const decoded_tiles[ROWS_MAX + 1] = { EACH_HEIGHT(DECODED_ENTRY, FP32) };

/* The weights of one group of one block, as [k][LANES]: what the inner loop of few rows makes of the codes.
 * */
LINEAR_INLINE void group_decode(int form, const lw_cpu_weight *w, const uint8_t *group, float *values)
{
    const uint8_t *words = group + w->words_at;
    const vt table = vt_load(w->table);
    const code_masks masks = code_masks_of(form);
    for (uint32_t i = 0; i < w->group / (uint32_t)step_of(form); i++) {
        vi high = { 0 };
        if (high_bits_of(form) > 0) high = high_at(form, group + w->high_at, i);
        LINEAR_UNROLL
        for (int j = 0; j < step_of(form); j++)
            vf_store(values + j * LANES, weight_at(form, table, &masks, words, high, j));
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

/* ---- tiles of a call ---- */

/* Few rows are run on codes as they are stored, and so are all by the dot, which reads them as they are. */
static bool is_direct(const lw_cpu_linear_args *args)
{
    return args->weight->read == LW__READ_PAIRS || args->rows <= ROWS_DIRECT;
}

static bool has_height(uint32_t rows) { return decoded_tiles[rows] != NULL; }

/* Rows of the tile that begins at `row`. */
static uint32_t tile_height(const lw_cpu_linear_args *args, uint32_t row)
{
    return height_of(args->rows - row, ROWS_MAX, has_height);
}

/* The part of prepared that belongs to the tile that begins at `row`: x, then sums. */
static float *tile_x(const lw_cpu_linear_args *args, uint32_t row)
{
    return (float *)args->prepared + row * (lw__prepared_x_words(args->weight) + args->weight->group_count);
}

/* The tile that begins at `row`, of blocks [first, last) of one panel. */
static tile tile_of(const lw_cpu_linear_args *args, uint32_t row, uint32_t first, uint32_t last)
{
    const lw_cpu_weight *const w = args->weight;
    const uint32_t rows = tile_height(args, row);
    float *const x = tile_x(args, row);
    return (tile){
        .weight = w,
        .groups = lw__group_at(w, args->member, first, 0),
        .group_step = lw__panel_blocks(w, first - first % LW__PANEL_BLOCKS) * w->group_bytes,
        .block_count = last - first,
        .row = row,
        .rows = rows,
        .x = x,
        .sums = x + lw__prepared_x_words(w) * rows,
    };
}

#include "device/cpu/linear_prepare.inc.h"
#include "device/cpu/linear_run.inc.h"
