/* The linear op where x enters in int8 (LW__READ_INT8), written once for all instruction sets. A folder's
 * linear_int8.c defines the vectors, as for linear.inc.h, and LW_INT8, the name of its table, and includes
 * this.
 *
 *   per row and group:     d = max |x| / 127,  q = x * (127 / max |x|) to the nearest, ties to even
 *   per group, ascending:  acc = fma(scale, d * dot(q, code - zero), fma(bias, d * sum(q), acc))
 * The dot and sum(q) are whole numbers below 2^24: exact in whatever order and width they are added. A group
 * whose largest |x| is below LEAST counts as zeros; one with an infinity or a NaN makes its rows NaN.
 *
 * x is prepared in tiles of tile_height() rows: per tile (k / 4, rows) fours of q, then per group the rows'
 * d, d * sum(q) and zero * sum(q). Few rows decode the codes to bytes in registers; many rows decode a group
 * of a panel once for all their tiles.
 */
#include "device/cpu/linear_int8_codes.inc.h"
#include "device/cpu/linear_kernels.h"
#include "base/pool.h"
#include "base/size.h"

#define EACH_LOW_HEIGHT(X, form) X(form, 1) X(form, 2) X(form, 3) X(form, 4)
enum {
#if defined(LINEAR_VNNI)
    ROWS_MAX = 12,
#define EACH_HEIGHT(X, form) EACH_LOW_HEIGHT(X, form) X(form, 6) X(form, 8) X(form, 12)
#elif defined(LINEAR_AVX512)
    ROWS_MAX = 6,
#define EACH_HEIGHT(X, form) EACH_LOW_HEIGHT(X, form) X(form, 6)
#else
    ROWS_MAX = 4,
#define EACH_HEIGHT(X, form) EACH_LOW_HEIGHT(X, form)
#endif
    ROWS_DIRECT = 4,        /* up to here codes are decoded in the inner loop */
    NUMBERS = 3,            /* of a group and row, beside its q */
};

/* A row tile times a run of blocks of one panel. */
typedef struct tile {
    const lw_cpu_weight *weight;
    uint32_t row, rows;
    const int8_t *x;           /* (k / 4, rows) fours */
    const float *numbers;      /* (group, NUMBERS, rows) */
    float *acc;                /* (blocks, rows, LANES) */
} tile;

/* Where a tile stands: one group of its first blocks. */
typedef struct spot {
    const uint8_t *group;      /* the scales are read here */
    const uint8_t *words;      /* codes as stored, or decoded ones */
    size_t words_step;         /* to those of the next block */
    const int8_t *x;
    const float *numbers;
    float *acc;
    const uint8_t *ahead;      /* what to ask for; NULL: nothing */
} spot;

/* ---- groups ---- */

/* Adds the totals of one group of one block to its accumulators. */
LINEAR_INLINE void enter_block(lw_dtype type, bool has_bias, const lw_cpu_weight *w, int rows,
                               const i8_total *totals, const spot *s)
{
    const vf scale = load_scales(type, s->group);
    const vf bias = has_bias ? load_scales(type, s->group + w->bias_at) : vf_zero();
    LINEAR_UNROLL
    for (int r = 0; r < rows; r++) {
        int32_t less = 0; /* with biases stored no code stands for 0 */
        if (!has_bias) memcpy(&less, s->numbers + 2 * rows + r, sizeof less);
        vf acc = vf_load(s->acc + r * LANES);
        if (has_bias) acc = vf_fma(bias, vf_set(s->numbers[rows + r]), acc);
        const vf dot = vf_mul(vf_set(s->numbers[r]), i8_value(totals[r], less));
        vf_store(s->acc + r * LANES, vf_fma(scale, dot, acc));
    }
}

/* The same for some blocks. A function of its own: inlined in every loop over codes it would be most of the
 * code. */
LINEAR_INLINE void enter_blocks(const lw_cpu_weight *w, int rows, uint32_t blocks, const i8_total *totals,
                                spot s)
{
    const bool is_usual = w->has_bias && w->scale_type == LW_DTYPE_BF16;
    for (uint32_t b = 0; b < blocks; b++, totals += rows, s.group += w->group_bytes, s.acc += rows * LANES) {
        if (is_usual) enter_block(LW_DTYPE_BF16, true, w, rows, totals, &s);
        else enter_block(w->scale_type, w->has_bias, w, rows, totals, &s);
    }
}

typedef void enter_fn(const lw_cpu_weight *w, uint32_t blocks, const i8_total *totals, const spot *s);
#define ENTER_MAKE(form, rows) \
    static __attribute__((noinline)) void enter_##rows(const lw_cpu_weight *w, uint32_t blocks, \
                                                       const i8_total *totals, const spot *s) \
    { \
        enter_blocks(w, rows, blocks, totals, *s); \
    }
#define ENTER_ENTRY(form, rows) [rows] = enter_##rows,
EACH_HEIGHT(ENTER_MAKE, )
static enter_fn *const enters[ROWS_MAX + 1] = { EACH_HEIGHT(ENTER_ENTRY, ) };

/* Codes of every block, which are held, against the x of one row. */
LINEAR_INLINE void row_run(int form, int blocks, int r, i8_x x, vi codes[PLANES_MAX][BLOCKS_MAX],
                           i8_sum sums[PLANES_MAX][BLOCKS_MAX][ROWS_MAX])
{
    LINEAR_UNROLL
    for (int b = 0; b < blocks; b++)
        LINEAR_UNROLL
        for (int p = 0; p < planes_of(form); p++) i8_add(&sums[p][b][r], codes[p][b], x);
}

/* One step: the codes of every block against the x of every row. */
LINEAR_INLINE void step_run(int form, int blocks, int rows, const step *at,
                            i8_sum sums[PLANES_MAX][BLOCKS_MAX][ROWS_MAX])
{
    LINEAR_UNROLL
    for (int i = 0; i < fours_of(form); i++) {
        vi codes[PLANES_MAX][BLOCKS_MAX];
        LINEAR_UNROLL
        for (int b = 0; b < blocks; b++)
            LINEAR_UNROLL
            for (int p = 0; p < planes_of(form); p++) codes[p][b] = codes_at(form, at, b, i, p);
        LINEAR_UNROLL
        for (int r = 0; r < rows; r++)
            row_run(form, blocks, r, i8_x_load(at->x + 4 * (i * rows + r)), codes, sums);
    }
}

/* Of one plane. Loops in loops: a longer one than compilers unroll would keep all of them in memory. */
LINEAR_INLINE void sums_clear(int blocks, int rows, i8_sum sums[BLOCKS_MAX][ROWS_MAX])
{
    LINEAR_UNROLL
    for (int b = 0; b < blocks; b++)
        LINEAR_UNROLL
        for (int r = 0; r < rows; r++) sums[b][r] = i8_sum_zero();
}

LINEAR_INLINE void sums_enter(int blocks, int rows, i8_sum sums[BLOCKS_MAX][ROWS_MAX], int weight,
                              i8_total totals[BLOCKS_MAX * ROWS_MAX])
{
    LINEAR_UNROLL
    for (int b = 0; b < blocks; b++)
        LINEAR_UNROLL
        for (int r = 0; r < rows; r++) i8_enter(&totals[b * rows + r], sums[b][r], weight);
}

/* Those steps into sums, and these into totals. */
LINEAR_INLINE void steps_run(int form, int blocks, int rows, step *at, spot *s,
                             i8_total totals[BLOCKS_MAX * ROWS_MAX])
{
    const lw_cpu_weight *const w = at->weight;
    i8_sum sums[PLANES_MAX][BLOCKS_MAX][ROWS_MAX];
    LINEAR_UNROLL
    for (int p = 0; p < planes_of(form); p++) sums_clear(blocks, rows, sums[p]);
    for (; at->i < at->end; at->i++) {
        if (high_bits_of(form) > 0)
            LINEAR_UNROLL
            for (int b = 0; b < blocks; b++)
                at->high[b] = high_word(form, s->group + (size_t)b * w->group_bytes + w->high_at, at->i);
        s->ahead = ask_next(s->ahead, (size_t)(blocks * step_bytes_of(form)), false);
        step_run(form, blocks, rows, at, sums);
        at->words += step_bytes_of(form);
        at->x += 4 * fours_of(form) * rows;
    }
    LINEAR_UNROLL
    for (int p = 0; p < planes_of(form); p++) sums_enter(blocks, rows, sums[p], p == 0 ? 1 : 16, totals);
}

/* One group: rows times blocks dots side by side, all constant so that the sums stay in registers. */
LINEAR_INLINE void group_run(int form, int blocks, int rows, const tile *t, spot s)
{
    const lw_cpu_weight *const w = t->weight;
    const uint32_t steps = w->group / 4 / (uint32_t)fours_of(form);
    const uint8_t *const ahead_end = s.ahead == NULL ? NULL : s.ahead + (uint32_t)blocks * w->group_bytes;
    step at = { .weight = w, .words = s.words, .block_bytes = s.words_step, .x = s.x,
                .table = vi_load_table(w->table_codes) };
    i8_total totals[BLOCKS_MAX * ROWS_MAX];
    LINEAR_UNROLL
    for (int b = 0; b < blocks; b++)
        LINEAR_UNROLL
        for (int r = 0; r < rows; r++) totals[b * rows + r] = i8_sum_zero();
#if defined(I8_SUM_LIMIT)
    while (at.i < steps) {
        at.end = steps - at.i < steps_summed(form) ? steps : at.i + steps_summed(form);
        steps_run(form, blocks, rows, &at, &s, totals);
    }
#else
    at.end = steps;
    steps_run(form, blocks, rows, &at, &s, totals);
#endif
    while (s.ahead < ahead_end) s.ahead = ask_next(s.ahead, LINE_BYTES, false);
    enters[rows](w, (uint32_t)blocks, totals, &s);
}

/* Blocks that run side by side: enough chains to hide the latency of a dot, and room for them in registers.
 */
LINEAR_INLINE int blocks_wide(int form, int rows)
{
    if (planes_of(form) > 1) return 2;
#if defined(LINEAR_VNNI)
    return rows <= 6 ? 4 : 2;
#else
    return rows <= 2 ? 4 : 2;
#endif
}

/* Blocks [0, blocks) from a spot on, whole pairs. */
LINEAR_INLINE void blocks_run(int form, int rows, uint32_t blocks, const tile *t, spot s)
{
    const uint32_t wide = (uint32_t)blocks_wide(form, rows);
    for (uint32_t left = blocks, run; left > 0; left -= run) {
        run = left >= wide ? wide : LW__BLOCKS_UNIT;
        if (run == wide) group_run(form, blocks_wide(form, rows), rows, t, s);
        else group_run(form, LW__BLOCKS_UNIT, rows, t, s);
        s.group += run * t->weight->group_bytes;
        if (s.ahead != NULL) s.ahead += run * t->weight->group_bytes;
        s.words += run * s.words_step;
        s.acc += run * (uint32_t)rows * LANES;
    }
}

typedef void blocks_fn(const tile *t, uint32_t blocks, const spot *s);
#define BLOCKS_MAKE(form, rows) \
    static void blocks_##form##_##rows(const tile *t, uint32_t blocks, const spot *s) \
    { \
        blocks_run(form, rows, blocks, t, *s); \
    }
#define BLOCKS_ENTRY(form, rows) [rows] = blocks_##form##_##rows,
#define EACH_FORM(X) X(LW__FORM_INT2) X(LW__FORM_INT3) X(LW__FORM_INT4) X(LW__FORM_INT5) X(LW__FORM_INT6) \
    X(LW__FORM_INT8) X(LW__FORM_TABLE4)
#if defined(I8_SUM_LIMIT)
#define EACH_BYTES(X) X(BYTES_15) X(BYTES_31) X(BYTES_63) X(BYTES_SPLIT)
#else
#define EACH_BYTES(X) X(BYTES_15)
#endif
#define FORM_BLOCKS(form) EACH_LOW_HEIGHT(BLOCKS_MAKE, form)
#define BYTES_BLOCKS(form) EACH_HEIGHT(BLOCKS_MAKE, form)
EACH_FORM(FORM_BLOCKS)
EACH_BYTES(BYTES_BLOCKS)
#define FORM_ROW(form) [form] = { EACH_LOW_HEIGHT(BLOCKS_ENTRY, form) },
#define BYTES_ROW(form) [form] = { EACH_HEIGHT(BLOCKS_ENTRY, form) },
static blocks_fn *const runs[BYTES_END][ROWS_MAX + 1] = { EACH_FORM(FORM_ROW) EACH_BYTES(BYTES_ROW) };

/* ---- decoded groups ---- */

/* What the codes of a form are decoded to. */
LINEAR_INLINE int bytes_of(int form)
{
#if defined(I8_SUM_LIMIT)
    if (form == LW__FORM_INT8) return BYTES_SPLIT;
    if (form == LW__FORM_INT6) return BYTES_63;
    if (form == LW__FORM_INT5 || form == LW__FORM_TABLE4) return BYTES_31;
#else
    (void)form;
#endif
    return BYTES_15;
}

/* One group of one block, as the inner loop of few rows makes it of the words: (k / 4, plane) vectors. */
LINEAR_INLINE void group_decode(int form, const lw_cpu_weight *w, const uint8_t *group, uint8_t *bytes)
{
    step at = { .words = group + w->words_at, .table = vi_load_table(w->table_codes) };
    for (uint32_t i = 0; i < w->group / 4 / (uint32_t)fours_of(form); i++) {
        if (high_bits_of(form) > 0) at.high[0] = high_word(form, group + w->high_at, i);
        LINEAR_UNROLL
        for (int j = 0; j < fours_of(form) * planes_of(form); j++) {
            const vi codes = codes_at(form, &at, 0, j / planes_of(form), j % planes_of(form));
            vi_store((int32_t *)(void *)(bytes + j * VECTOR_BYTES), codes);
        }
        at.words += step_bytes_of(form);
        bytes += fours_of(form) * planes_of(form) * VECTOR_BYTES;
    }
}

typedef struct decoder {
    void (*run)(const lw_cpu_weight *w, const uint8_t *group, uint8_t *bytes);
    uint32_t bytes_form, planes;
} decoder;
#define DECODE_MAKE(form) \
    static void decode_##form(const lw_cpu_weight *w, const uint8_t *group, uint8_t *bytes) \
    { \
        group_decode(form, w, group, bytes); \
    }
EACH_FORM(DECODE_MAKE)
static decoder decoder_of(lw__form form)
{
#define DECODE_CASE(form) \
    case form: return (decoder){ decode_##form, (uint32_t)bytes_of(form), (uint32_t)planes_of(form) };
    switch ((int)form) { EACH_FORM(DECODE_CASE) default: LW_ASSERT(false); return (decoder){ 0 }; }
}

/* ---- tiles of a call ---- */

static bool has_height(uint32_t rows) { return runs[BYTES_15][rows] != NULL; }

/* Rows of the tile that begins at `row`. */
static uint32_t tile_height(const lw_cpu_linear_args *args, uint32_t row)
{
    return height_of(args->rows - row, ROWS_MAX, has_height);
}

/* Of one prepared row: its q. */
static size_t q_bytes(const lw_cpu_weight *w) { return (size_t)w->group * w->group_count; }

static size_t prepared_row_bytes(const lw_cpu_weight *w)
{
    return q_bytes(w) + (size_t)w->group_count * NUMBERS * sizeof(float);
}

/* The part of prepared that belongs to the tile that begins at `row`: q, then numbers. */
static int8_t *tile_x(const lw_cpu_linear_args *args, uint32_t row)
{
    return (int8_t *)args->prepared + row * prepared_row_bytes(args->weight);
}

static tile tile_of(const lw_cpu_linear_args *args, uint32_t row, float *acc)
{
    const uint32_t rows = tile_height(args, row);
    const int8_t *const x = tile_x(args, row);
    return (tile){ .weight = args->weight, .row = row, .rows = rows, .x = x, .acc = acc,
                   .numbers = (const float *)(const void *)(x + q_bytes(args->weight) * rows) };
}

/* The tile at a group, whose first block and codes are the caller's. */
static spot spot_of(const tile *t, uint32_t g, const uint8_t *group)
{
    const size_t rows = t->rows;
    return (spot){ .group = group, .x = t->x + (size_t)g * t->weight->group * rows,
                   .numbers = t->numbers + (size_t)g * NUMBERS * rows, .acc = t->acc };
}

/* Bytes from a group of a panel to the next. */
static size_t group_step_of(const lw_cpu_weight *w, uint32_t block)
{
    return lw__panel_blocks(w, block - block % LW__PANEL_BLOCKS) * w->group_bytes;
}

/* One tile of blocks [first, last) of one panel, on the codes as they are stored. */
static void run_direct(const lw_cpu_linear_args *args, uint32_t row, uint32_t first, uint32_t last)
{
    const lw_cpu_weight *const w = args->weight;
    float acc[BLOCKS_MAX * ROWS_DIRECT * LANES] __attribute__((aligned(64)));
    const tile t = tile_of(args, row, acc);
    const uint8_t *group = lw__group_at(w, args->member, first, 0);
    memset(acc, 0, sizeof acc);
    for (uint32_t g = 0; g < w->group_count; g++, group += group_step_of(w, first)) {
        spot s = spot_of(&t, g, group);
        s.words = group + w->words_at;
        s.words_step = w->group_bytes;
        s.ahead = group + AHEAD_BYTES;
        runs[w->form][t.rows](&t, last - first, &s);
    }
    store_sums(args, first, last - first, row, t.rows, acc);
}

enum {
    BYTES_PAIR = LW__GROUP_MAX * PLANES_MAX * LW__BLOCKS_UNIT * LANES,
    BYTES_MAX = DECODED_BYTES > BYTES_PAIR ? DECODED_BYTES : BYTES_PAIR,
};

/* Rows and blocks that share decoded groups. */
typedef struct decoded_job {
    tile tiles[ROWS_KEPT_MAX];
    uint32_t count;
    float acc[ROWS_KEPT_MAX * BLOCKS_MAX * LANES] __attribute__((aligned(64)));
    uint8_t bytes[BYTES_MAX] __attribute__((aligned(64)));
} decoded_job;

static void run_decoded_group(decoded_job *job, const decoder *d, uint32_t g, const uint8_t *group,
                              uint32_t blocks)
{
    const lw_cpu_weight *const w = job->tiles->weight;
    const size_t block_bytes = (size_t)w->group * d->planes * LANES;
    for (uint32_t b = 0; b < blocks; b++) {
        const uint8_t *const block = group + b * w->group_bytes;
        ask_for(block + 2 * LW__PANEL_BLOCKS * w->group_bytes, w->group_bytes);
        d->run(w, block, job->bytes + b * block_bytes);
    }
    for (uint32_t i = 0; i < job->count; i++) {
        spot s = spot_of(&job->tiles[i], g, group);
        s.words = job->bytes;
        s.words_step = block_bytes;
        runs[d->bytes_form][job->tiles[i].rows](&job->tiles[i], blocks, &s);
    }
}

/* Rows [begin, end), whole tiles, of blocks [first, last) of one panel, each group decoded once. */
static void run_decoded(const lw_cpu_linear_args *args, uint32_t begin, uint32_t end, uint32_t first,
                        uint32_t last)
{
    const lw_cpu_weight *const w = args->weight;
    const decoder d = decoder_of(w->form);
    const uint32_t together = blocks_kept((size_t)w->group * d.planes * LANES);
    decoded_job job;
    for (uint32_t block = first, next; block < last; block = next) {
        next = last - block < together ? last : block + together;
        float *acc = job.acc;
        job.count = 0;
        for (uint32_t row = begin; row < end; row += job.tiles[job.count++].rows) {
            job.tiles[job.count] = tile_of(args, row, acc);
            acc += (next - block) * job.tiles[job.count].rows * LANES;
        }
        memset(job.acc, 0, (size_t)(acc - job.acc) * sizeof *acc);
        const uint8_t *group = lw__group_at(w, args->member, block, 0);
        for (uint32_t g = 0; g < w->group_count; g++, group += group_step_of(w, block))
            run_decoded_group(&job, &d, g, group, next - block);
        for (uint32_t i = 0; i < job.count; i++)
            store_sums(args, block, next - block, job.tiles[i].row, job.tiles[i].rows, job.tiles[i].acc);
    }
}

static void int8_blocks(const lw_cpu_linear_args *args, uint32_t begin, uint32_t end)
{
    const size_t row_bytes = prepared_row_bytes(args->weight);
    for (uint32_t row = 0, rows; row < args->rows; row += rows) {
        rows = rows_together(args, row, row_bytes, tile_height);
        for (uint32_t block = begin, next; block < end; block = next) {
            next = block - block % LW__PANEL_BLOCKS + LW__PANEL_BLOCKS;
            if (next > end) next = end;
            if (rows <= ROWS_DIRECT) run_direct(args, row, block, next);
            else run_decoded(args, row, row + rows, block, next);
        }
    }
}

#include "device/cpu/linear_int8_prepare.inc.h"

const lw_cpu_int8_kernels LW_INT8 = { .prepare = int8_prepare, .blocks = int8_blocks };
