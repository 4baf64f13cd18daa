/* Gated delta rule and state-space recurrences over anchored states for one instruction set. Included once by
 * each set's recurrence.c, which names its functions through LW_ROW(name). Definition: ops.list and DESIGN.md
 * 1.3. Both ops are one driver: gated_delta corrects what it writes, ssm does not.
 *
 * A unit of work is a value head of one lane; its rows go by in order. A *block* is neighbouring rows of one
 * lane and one stretch between anchors; it reads the state and the keys once. A *group* is a few of its rows
 * that follow one another as a chain, or one row of a tree.
 *
 * Invariants
 * 1. Every dot product, and every column of an output, a correction or a new state is one chain: over key
 *    columns, then over steps, ascending. Blocks, groups and vectors cut elements only.
 * 2. Steps that are no ancestors of a row are left out of its chains, not multiplied by 0.
 * 3. prepare writes all keys and decays; after a barrier, run writes values and states of its own heads.
 * 4. The decay from one step to another is the sum of the log-decays between, ascending, never a difference
 *    of two sums: what is near must not lose bits to what has long faded.
 * 5. Trees end at anchors: the row at an anchor and the stretch before it stand at slots == positions.
 */
#include "device/cpu/row_kernels.h"
#include "device/cpu/simd_math.h"

#include "base/float16.h"
#include "base/pool.h"
#include "base/size.h"

#include "device/cpu/product.inc.h"

enum {
    STRETCH = LW_ANCHOR_POSITIONS,
    GROUP = LW_CPU_RECUR_GROUP, /* vectors that a group has: keys and queries of its rows */
    COLS = LW_CPU_STATE_COLS,
};
_Static_assert(LW_ANCHOR_POSITIONS == LW_PAGE_POSITIONS, "a page of steps is one stretch");
_Static_assert((int)GROUP == (int)PRODUCT_ROWS, "a group is one block of a product");
_Static_assert(STRETCH % SIMD_WIDTH == 0 && COLS % (2 * SIMD_WIDTH) == 0, "whole vectors");

/* ---- where things lie ---- */

typedef struct block {
    const lw_cpu_recur_args *args;
    size_t row_begin, row_end;
    size_t stretch;             /* of its rows: position / STRETCH */
    size_t key_head, head;
    size_t each;                /* vectors of a row: its key and its query, or the query alone */
    size_t width_pad;
    float *dots;                /* (rows * each, STRETCH): vector times key */
    float *sums;                /* (rows * each, width_pad): correction and output */
    float *weights;             /* (GROUP, STRETCH): dots faded to the row */
    float *faded;               /* (STRETCH, width_pad): values faded to an anchor */
    float *gathered;            /* (key_width, STRETCH): keys of a tree row's open ancestors */
} block;

/* What prepare leaves to run. */
typedef struct prepared {
    float *vectors;             /* (key_heads, rows, each, key_width) */
    float *scales;              /* (rows, heads_pad): beta of gated_delta, dt of ssm */
    size_t heads_pad;
} prepared;

static float *take(float **scratch, size_t count)
{
    float *at = *scratch;
    *scratch += count;
    return at;
}

static size_t vectors_each(const lw_cpu_recur_args *args)
{
    return args->write != NULL ? 2 : 1;
}

/* lw_cpu_recur_prepared_floats adds up the same list. */
static prepared prepared_of(const lw_cpu_recur_args *args)
{
    float *at = args->prepared;
    prepared p = { .heads_pad = size_round_up(args->heads, LW_CPU_HEADS_ROUND) };
    p.scales = take(&at, args->rows * p.heads_pad);
    p.vectors = at;
    return p;
}

/* Cuts a part's scratch into a block's arrays; lw_cpu_recur_scratch_floats adds up the same list. */
static block block_make(const lw_cpu_recur_args *args, unsigned part)
{
    float *at = args->scratch + part * lw_cpu_recur_scratch_floats(args->width, args->key_width);
    block b = { .args = args, .each = vectors_each(args), .width_pad = size_round_up(args->width, COLS) };
    b.dots = take(&at, STRETCH * 2 * STRETCH);
    b.sums = take(&at, STRETCH * 2 * b.width_pad);
    b.weights = take(&at, GROUP * STRETCH);
    b.faded = take(&at, STRETCH * b.width_pad);
    b.gathered = take(&at, args->key_width * STRETCH);
    return b;
}

static float *page_at(lw_cpu_pages pages, const lw_cpu_place *place, size_t index)
{
    return (float *)(void *)(pages.bytes + place->pages[index] * pages.page_bytes);
}

static float *keys_at(const lw_cpu_recur_args *args, const lw_cpu_place *place, size_t key_head, size_t slot)
{
    return page_at(args->steps, place, slot / STRETCH) + key_head * args->key_width * STRETCH
         + slot % STRETCH;
}

/* A value head's values of the slots of one page, then their log-decays. */
static float *head_at(const lw_cpu_recur_args *args, const lw_cpu_place *place, size_t head, size_t slot)
{
    float *page = page_at(args->steps, place, slot / STRETCH) + args->key_heads * args->key_width * STRETCH;
    return page + head * (args->width + 1) * STRETCH;
}

static float *values_at(const block *b, const lw_cpu_place *place, size_t slot)
{
    return head_at(b->args, place, b->head, slot) + slot % STRETCH * b->args->width;
}

static float *decay_at(const lw_cpu_recur_args *args, const lw_cpu_place *place, size_t head, size_t slot)
{
    return head_at(args, place, head, slot) + args->width * STRETCH + slot % STRETCH;
}

static float *state_at(const block *b, size_t stretch)
{
    const lw_cpu_place *place = &b->args->anchor_places[b->row_begin];
    const size_t head_floats = (size_t)b->args->width * b->args->key_width;
    return page_at(b->args->anchors, place, stretch) + b->head * head_floats;
}

/* ---- prepare ---- */

/* Squares of a head's columns: column i goes to lane i % W, then lanes halve. */
static float sum_squares(const lw_bf16 *x, size_t width)
{
    simd_f sum = simd_set(0.0f);
    for (size_t i = 0; i < width; i += SIMD_WIDTH) {
        const simd_f v = simd_load_bf_some(x + i, width - i);
        sum = simd_fma(v, v, sum);
    }
    return simd_sum_lanes(sum);
}

static void vector_make(const lw_bf16 *x, float *to, size_t width, float scale)
{
    const simd_f by = simd_set(scale);
    for (size_t i = 0; i < width; i += SIMD_WIDTH) {
        simd_store_some(to + i, simd_mul(simd_load_bf_some(x + i, width - i), by), width - i);
    }
}

/* A row's key and query at one key head: the key goes to the row's slot and, with the query, to vectors. */
static void vectors_prepare(const lw_cpu_recur_args *args, size_t key_head, size_t row, float *vectors)
{
    const lw_cpu_place *place = &args->places[row];
    const size_t width = args->key_width, at = row * args->x_stride + key_head * width;
    const lw_bf16 *k = args->keys + at, *q = args->queries + at;
    float *slot = keys_at(args, place, key_head, place->slot);
    if (args->write == NULL) {
        for (size_t i = 0; i < width; i++) slot[i * STRETCH] = lw_float_of_bf16(k[i]);
        vector_make(q, vectors, width, 1.0f);
        return;
    }
    const float k_norm = sqrtf(sum_squares(k, width) + 1e-6f), q_norm = sqrtf(sum_squares(q, width) + 1e-6f);
    vector_make(k, vectors, width, 1.0f / k_norm);
    vector_make(q, vectors + width, width, 1.0f / (q_norm * sqrtf((float)width)));
    for (size_t i = 0; i < width; i++) slot[i * STRETCH] = vectors[i];
}

/* A row's log-decays go to its slot, beta or dt to scales. */
static void scales_prepare(const lw_cpu_recur_args *args, const prepared *p, size_t row)
{
    const lw_cpu_place *place = &args->places[row];
    for (size_t h = 0; h < args->heads; h += SIMD_WIDTH) {
        const size_t count = args->heads - h;
        const simd_f x = simd_load_bf_some(args->step + row * args->step_stride + h, count);
        simd_f step = simd_softplus(simd_add(x, simd_load_some(args->dt_bias + h, count)));
        simd_f scale;
        if (args->write == NULL) {
            step = simd_max(simd_set(args->step_min), simd_min(simd_set(args->step_max), step));
            scale = step;
        } else {
            scale = simd_sigmoid(simd_load_bf_some(args->write + row * args->write_stride + h, count));
        }
        float decays[SIMD_WIDTH];
        const simd_f rate = simd_exp(simd_load_some(args->a_log + h, count));
        simd_store(decays, simd_sub(simd_set(0.0f), simd_mul(rate, step)));
        simd_store(p->scales + row * p->heads_pad + h, scale);
        for (size_t i = 0; i < size_min(count, SIMD_WIDTH); i++) {
            *decay_at(args, place, h + i, place->slot) = decays[i];
        }
    }
}

/* Parts take key heads of all rows, since neighbouring slots of one head share cache lines. */
void LW_ROW(recur_prepare)(const lw_cpu_recur_args *args, unsigned part, unsigned parts)
{
    const prepared p = prepared_of(args);
    const size_t floats = vectors_each(args) * args->key_width;
    size_t begin, end;
    lw_pool_share((size_t)args->key_heads * args->rows, 1, part, parts, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        vectors_prepare(args, i / args->rows, i % args->rows, p.vectors + i * floats);
    }
    lw_pool_share(args->rows, 1, part, parts, &begin, &end);
    for (size_t row = begin; row < end; row++) scales_prepare(args, &p, row);
}

/* ---- run ---- */

static const float *vectors_of(const block *b, size_t row)
{
    const size_t index = b->key_head * b->args->rows + row;
    return prepared_of(b->args).vectors + index * b->each * b->args->key_width;
}

/* Steps of the row's stretch that stand at slot == position before the group that the row begins: for a
 * chain all of them, for a tree the committed ones. */
static size_t steps_known(const block *b, size_t row)
{
    const lw_cpu_place *place = &b->args->places[row];
    const size_t start = b->stretch * STRETCH;
    if (place->lineage == NULL) return place->position - start;
    return place->committed > start ? place->committed - start : 0;
}

static size_t group_end(const block *b, size_t row)
{
    const lw_cpu_place *places = b->args->places;
    size_t end = row + 1;
    if (places[row].lineage != NULL) return end;
    while (end < b->row_end && (end + 1 - row) * b->each <= GROUP && places[end].lineage == NULL
           && places[end].position == places[end - 1].position + 1) end++;
    return end;
}

/* The dot products of a tree row with its open ancestors and itself. */
static void dots_gathered(const block *b, size_t row, size_t known, float *dots)
{
    const lw_cpu_place *place = &b->args->places[row];
    const size_t key_width = b->args->key_width, start = b->stretch * STRETCH;
    const size_t count = place->position + 1 - start - known;
    for (size_t j = 0; j < count; j++) {
        const uint32_t slot = lw_cpu_slot(place, (uint32_t)(start + known + j));
        const float *key = keys_at(b->args, place, b->key_head, slot);
        for (size_t i = 0; i < key_width; i++) b->gathered[i * STRETCH + j] = key[i * STRETCH];
    }
    float out[2 * STRETCH];
    const product p = {
        .m = b->gathered, .m_stride = STRETCH, .coefs = vectors_of(b, row), .coef_stride = key_width,
        .out = out, .out_stride = STRETCH, .begin = 0, .end = key_width,
        .lanes = size_round_up(count, SIMD_WIDTH), .rows = b->each,
    };
    product_run(&p);
    for (size_t i = 0; i < b->each; i++) {
        memcpy(dots + i * STRETCH + known, out + i * STRETCH, count * sizeof *dots);
    }
}

/* The dot products of all rows with the keys of the steps before them and with their own. */
static void dots_make(const block *b)
{
    const size_t start = b->stretch * STRETCH;
    for (size_t row = b->row_begin, end; row < b->row_end; row = end) {
        end = group_end(b, row);
        const lw_cpu_place *place = &b->args->places[row];
        const bool tree = place->lineage != NULL;
        const size_t known = steps_known(b, row);
        const size_t lanes = tree ? known : b->args->places[end - 1].position + 1 - start;
        float *dots = b->dots + (row - b->row_begin) * b->each * STRETCH;
        const product p = {
            .m = lanes > 0 ? keys_at(b->args, place, b->key_head, start) : NULL, .m_stride = STRETCH,
            .coefs = vectors_of(b, row), .coef_stride = b->args->key_width, .out = dots,
            .out_stride = STRETCH, .begin = 0, .end = b->args->key_width,
            .lanes = size_round_up(lanes, SIMD_WIDTH), .rows = (end - row) * b->each,
        };
        product_run(&p);
        if (tree) dots_gathered(b, row, known, dots);
    }
}

/* Log-decays up to a row, its stretch's steps taken one after the other. */
typedef struct spans {
    size_t count;
    float from_anchor;
    float from_step[STRETCH];
} spans;

static void spans_add(spans *s, float decay)
{
    const simd_f by = simd_set(decay);
    for (size_t j = 0; j < s->count; j += SIMD_WIDTH) {
        simd_store(s->from_step + j, simd_add(simd_load(s->from_step + j), by));
    }
    s->from_step[s->count++] = 0.0f;
    s->from_anchor += decay;
}

/* Folds the stretch before into a new state: its steps, ascending, onto the state before it, faded. */
static void state_fold(const block *b)
{
    const lw_cpu_recur_args *args = b->args;
    const size_t width = args->width, key_width = args->key_width, floats = width * key_width;
    float *to = state_at(b, b->stretch);
    if (b->stretch == 0) {
        memset(to, 0, floats * sizeof *to);
        return;
    }
    const lw_cpu_place *place = &args->places[b->row_begin];
    const size_t before = (b->stretch - 1) * STRETCH;
    const float *from = state_at(b, b->stretch - 1), *values = values_at(b, place, before);
    const float *decays = decay_at(args, place, b->head, before);
    spans to_anchor = { 0 };
    for (size_t j = 0; j < STRETCH; j++) spans_add(&to_anchor, decays[j]);
    for (size_t j = 0; j < STRETCH; j++) {
        const simd_f fade = simd_exp(simd_set(to_anchor.from_step[j]));
        for (size_t i = 0; i < width; i += SIMD_WIDTH) {
            const simd_f value = simd_load_some(values + j * width + i, width - i);
            simd_store(b->faded + j * b->width_pad + i, simd_mul(value, fade));
        }
    }
    const float fade = simd_exp_one(to_anchor.from_anchor);
    for (size_t column = 0; column < width; column += COLS) {
        const size_t cols = size_min(width - column, COLS);
        const product p = {
            .m = b->faded + column, .m_stride = b->width_pad,
            .coefs = keys_at(args, place, b->key_head, before), .coef_stride = STRETCH,
            .from = from + column * key_width, .fades = &fade, .out = to + column * key_width,
            .out_stride = cols, .begin = 0, .end = STRETCH,
            .lanes = cols, .rows = key_width,
        };
        product_run(&p);
    }
}

/* Every vector of the block times the state. */
static void state_read(const block *b)
{
    const size_t width = b->args->width, key_width = b->args->key_width;
    for (size_t column = 0; column < width; column += COLS) {
        const size_t cols = size_min(width - column, COLS);
        const product p = {
            .m = state_at(b, b->stretch) + column * key_width, .m_stride = cols,
            .coefs = vectors_of(b, b->row_begin), .coef_stride = key_width, .out = b->sums + column,
            .out_stride = b->width_pad, .begin = 0, .end = key_width, .lanes = cols,
            .rows = (b->row_end - b->row_begin) * b->each,
        };
        product_run(&p);
    }
}

/* The row's dots, faded from each step to the row; returns what fades its reading of the state. chain goes
 * along with the rows of a chain; a row of a tree sums its own ancestors. */
static float row_fade(const block *b, size_t row, spans *chain, float *weights)
{
    const lw_cpu_place *place = &b->args->places[row];
    const size_t start = b->stretch * STRETCH, count = place->position + 1 - start;
    const float *dots = b->dots + (row - b->row_begin) * b->each * STRETCH;
    spans branch = { 0 }, *s = place->lineage != NULL ? &branch : chain;
    while (s->count < count) {
        const size_t slot = lw_cpu_slot(place, (uint32_t)(start + s->count));
        spans_add(s, *decay_at(b->args, place, b->head, slot));
    }
    for (size_t j = 0; j < count; j += SIMD_WIDTH) {
        const simd_f faded = simd_exp(simd_load(s->from_step + j));
        for (size_t i = 0; i < b->each; i++) {
            const size_t at = i * STRETCH + j;
            simd_store(weights + at, simd_mul(faded, simd_load(dots + at)));
        }
    }
    return simd_exp_one(s->from_anchor);
}

/* The row's own step: its value is corrected or scaled, kept at its slot, and enters its output last. */
static void row_finish(const block *b, size_t row, const float *weights)
{
    const lw_cpu_recur_args *args = b->args;
    const lw_cpu_place *place = &args->places[row];
    const prepared p = prepared_of(args);
    const size_t width = args->width, column = b->head * width;
    const lw_bf16 *x = args->values + row * args->x_stride + column;
    lw_bf16 *y = args->y + row * args->y_stride + column;
    float *kept = values_at(b, place, place->slot);
    const float *sums = b->sums + (row - b->row_begin) * b->each * b->width_pad;
    const float *out = sums + (b->each - 1) * b->width_pad;
    const simd_f scale = simd_set(p.scales[row * p.heads_pad + b->head]);
    const simd_f weight = simd_set(weights[(b->each - 1) * STRETCH + place->position % STRETCH]);
    const simd_f skip = simd_set(args->skip != NULL ? args->skip[b->head] : 0.0f);
    for (size_t i = 0; i < width; i += SIMD_WIDTH) {
        const size_t count = width - i;
        const simd_f v = simd_load_bf_some(x + i, count);
        const simd_f u = simd_mul(scale, b->each == 2 ? simd_sub(v, simd_load(sums + i)) : v);
        simd_store_some(kept + i, u, count);
        simd_f sum = simd_fma(weight, u, simd_load(out + i));
        if (args->skip != NULL) sum = simd_fma(skip, v, sum);
        simd_store_bf_some(y + i, sum, count);
    }
}

/* The steps [begin, end) of the page at slot start onto the sums of a few rows. */
static void steps_add(const block *b, size_t row, size_t rows, const float *weights, product steps)
{
    steps.m_stride = steps.lanes = b->args->width;
    steps.coefs = weights;
    steps.coef_stride = STRETCH;
    steps.from = steps.out = b->sums + (row - b->row_begin) * b->each * b->width_pad;
    steps.out_stride = b->width_pad;
    steps.rows = rows * b->each;
    product_run(&steps);
}

/* Rows that follow one another: the steps before the group at once, those within it row by row. */
static void group_run(const block *b, size_t row_begin, size_t row_end, spans *chain)
{
    const lw_cpu_place *place = &b->args->places[row_begin];
    const size_t start = b->stretch * STRETCH, known = steps_known(b, row_begin);
    float fades[GROUP];
    for (size_t row = row_begin, i = 0; row < row_end; row++) {
        const float fade = row_fade(b, row, chain, b->weights + (row - row_begin) * b->each * STRETCH);
        for (size_t j = 0; j < b->each; j++) fades[i++] = fade;
    }
    /* Where none is known, start may lie in a page that is out of reach. */
    const float *page = values_at(b, place, known > 0 ? start : place->slot - place->slot % STRETCH);
    steps_add(b, row_begin, row_end - row_begin, b->weights,
              (product){ .m = page, .fades = fades, .fade_stride = 1, .end = known });
    for (size_t row = row_begin; row < row_end; row++) {
        const float *weights = b->weights + (row - row_begin) * b->each * STRETCH;
        place = &b->args->places[row];
        const size_t own = place->position - start;
        if (place->lineage == NULL && known < own) {
            steps_add(b, row, 1, weights, (product){ .m = page, .begin = known, .end = own });
        }
        for (size_t j = known; place->lineage != NULL && j < own; j++) {
            const float *value = values_at(b, place, lw_cpu_slot(place, (uint32_t)(start + j)));
            steps_add(b, row, 1, weights + j, (product){ .m = value, .end = 1 });
        }
        row_finish(b, row, weights);
    }
}

static void head_run(const block *b)
{
    if (b->args->places[b->row_begin].position % STRETCH == 0) state_fold(b);
    state_read(b);
    spans chain = { 0 };
    for (size_t row = b->row_begin, end; row < b->row_end; row = end) {
        end = group_end(b, row);
        group_run(b, row, end, &chain);
    }
}

/* Rows from row on that one block takes: same stretch, at most as many as it has positions; a row at an
 * anchor begins a block. */
static size_t block_rows_end(const lw_cpu_recur_args *args, size_t row, size_t lane_end)
{
    const size_t stretch = args->places[row].position / STRETCH, last = size_min(lane_end, row + STRETCH);
    size_t end = row + 1;
    while (end < last && args->places[end].position / STRETCH == stretch
           && args->places[end].position % STRETCH != 0) end++;
    return end;
}

/* The value heads [head_begin, head_end) of one lane's rows; those of one key head share its dot products. */
static void lane_run(block *b, size_t lane_begin, size_t lane_end, size_t head_begin, size_t head_end)
{
    const lw_cpu_recur_args *args = b->args;
    const size_t shared = args->heads / args->key_heads;
    for (size_t head = head_begin, next; head < head_end; head = next) {
        b->key_head = head / shared;
        next = size_min(head_end, (b->key_head + 1) * shared);
        for (b->row_begin = lane_begin; b->row_begin < lane_end; b->row_begin = b->row_end) {
            b->row_end = block_rows_end(args, b->row_begin, lane_end);
            b->stretch = args->places[b->row_begin].position / STRETCH;
            dots_make(b);
            for (b->head = head; b->head < next; b->head++) head_run(b);
        }
    }
}

static size_t lane_rows_end(const lw_cpu_recur_args *args, size_t row)
{
    size_t end = row + 1;
    while (end < args->rows && args->places[end].pages == args->places[row].pages) end++;
    return end;
}

/* Units are (head, lane), lanes side by side, so that a part has nearly the same heads of every lane. */
void LW_ROW(recur_run)(const lw_cpu_recur_args *args, unsigned part, unsigned parts)
{
    block b = block_make(args, part);
    size_t lanes = 0, lane = 0, begin, end;
    for (size_t row = 0; row < args->rows; row = lane_rows_end(args, row)) lanes++;
    lw_pool_share(args->heads * lanes, 1, part, parts, &begin, &end);
    for (size_t row = 0, next; row < args->rows; row = next, lane++) {
        next = lane_rows_end(args, row);
        const size_t head_begin = begin > lane ? size_div_up(begin - lane, lanes) : 0;
        const size_t head_end = end > lane ? size_div_up(end - lane, lanes) : 0;
        lane_run(&b, row, next, head_begin, head_end);
    }
}
