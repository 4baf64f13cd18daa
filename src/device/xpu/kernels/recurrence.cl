/* Gated delta rule and state-space recurrences over anchored states; definition: ops.list and docs/DESIGN.md.
 *
 * recur_prepare and recur_weights take every row by itself: keys, queries, log-decays, and what each step of
 * a row's stretch weighs in its sums. *_run walks a lane's rows in order: a work-item owns one column of one
 * value head, and reads of what the walk writes (steps, states) its own column only, so that no item waits
 * for another. A launch takes LW_XPU_STEPS rows of each lane.
 *
 * Order of every sum: one fma chain, over key columns, then over steps, ascending; a row of a tree leaves out
 * what is no ancestor. Rows of a chain go through the state TILE at a time, and see nothing of it.
 */
#include "device/xpu/kernels/lw_xpu.h"

enum {
    STRETCH = LW_XPU_TILE,
    TILE = 4,                   /* rows that share one pass over the state */
    KEYS = LW_XPU_KEY_COLS,     /* key columns that share one pass over the steps: they are whole in a head */
};

static inline global float *keys_at(const lw_xpu_recur_args *a, lw_xpu_place place, uint key_head, uint slot)
{
    global float *page = (global float *)page_of(a->steps, place, slot);
    return page + (size_t)key_head * a->key_width * STRETCH + slot % STRETCH;
}

/* A value head's values of the slots of one page, then their log-decays. */
static inline global float *head_at(const lw_xpu_recur_args *a, lw_xpu_place place, uint head, uint slot)
{
    global float *page = (global float *)page_of(a->steps, place, slot);
    return page + STRETCH * ((size_t)a->key_heads * a->key_width + (size_t)head * (a->width + 1));
}

static inline global float *decay_at(const lw_xpu_recur_args *a, lw_xpu_place place, uint head, uint slot)
{
    return head_at(a, place, head, slot) + (size_t)STRETCH * a->width + slot % STRETCH;
}

static inline global float *state_at(const lw_xpu_recur_args *a, lw_xpu_place place, uint head, uint stretch)
{
    global float *page = (global float *)page_of(a->anchors, place, stretch * STRETCH);
    return page + (size_t)head * a->width * a->key_width;
}

/* Vectors that a row has at each key head: its key and its query, or the query alone. */
static inline uint vectors_each(const lw_xpu_recur_args *a)
{
    return a->write != 0 ? 2 : 1;
}

static inline global float *vectors_at(const lw_xpu_recur_args *a, size_t row, uint key_head)
{
    return (global float *)a->vectors + (row * a->key_heads + key_head) * vectors_each(a) * a->key_width;
}

static inline global float *weights_at(const lw_xpu_recur_args *a, size_t row, uint head)
{
    return (global float *)a->weights + (row * a->heads + head) * vectors_each(a) * STRETCH;
}

/* ---- rows by themselves ---- */

static inline float squares_of(const global ushort *x, uint width, local float *sums)
{
    const uint item = get_local_id(0);
    float sum = 0.0f;
    for (uint i = item; i < width; i += LW_XPU_TILE) sum = fma(bf_load(x, i), bf_load(x, i), sum);
    return sum_items(sums, item, sum);
}

/* A row's key and query at one key head: the key goes to the row's slot too. A work-group makes them. */
static inline void vectors_prepare(const lw_xpu_recur_args *a, size_t row, uint key_head, local float *sums)
{
    const lw_xpu_place place = place_of(a->steps, row);
    const uint width = a->key_width;
    const size_t at = row * a->x_stride + (size_t)key_head * width;
    const global ushort *k = (const global ushort *)a->keys + at, *q = (const global ushort *)a->queries + at;
    global float *slot = keys_at(a, place, key_head, place.slot), *vectors = vectors_at(a, row, key_head);
    if (a->write == 0) {
        for (uint i = get_local_id(0); i < width; i += LW_XPU_TILE) {
            slot[i * STRETCH] = bf_load(k, i);
            vectors[i] = bf_load(q, i);
        }
        return;
    }
    const float k_norm = sqrt(squares_of(k, width, sums) + 1e-6f);
    barrier(CLK_LOCAL_MEM_FENCE);
    const float q_norm = sqrt(squares_of(q, width, sums) + 1e-6f);
    const float k_by = 1.0f / k_norm, q_by = 1.0f / (q_norm * sqrt((float)width));
    for (uint i = get_local_id(0); i < width; i += LW_XPU_TILE) {
        const float key = bf_load(k, i) * k_by;
        slot[i * STRETCH] = vectors[i] = key;
        vectors[width + i] = bf_load(q, i) * q_by;
    }
}

/* A row's log-decay at one head goes to its slot, beta or dt to scales. */
static inline void scale_prepare(const lw_xpu_recur_args *a, size_t row, uint head)
{
    const lw_xpu_place place = place_of(a->steps, row);
    const float x = bf_load((const global ushort *)a->step, row * a->step_stride + head);
    float step = softplus(x + ((const global float *)a->dt_bias)[head]), scale;
    if (a->write == 0) {
        step = step > a->step_max ? a->step_max : step;
        step = step < a->step_min ? a->step_min : step;
        scale = step;
    } else {
        scale = sigmoid(bf_load((const global ushort *)a->write, row * a->write_stride + head));
    }
    *decay_at(a, place, head, place.slot) = -(exp_of(((const global float *)a->a_log)[head]) * step);
    ((global float *)a->scales)[row * a->heads + head] = scale;
}

/* Work-groups of a row: one for each key head, then one for every 64 value heads. */
LW_KERNEL(recur_prepare, lw_xpu_recur_args)
{
    local float sums[LW_XPU_TILE];
    const uint group = get_group_id(0);
    const size_t row = get_group_id(1);
    if (group < a.key_heads) {
        vectors_prepare(&a, row, group, sums);
    } else {
        const uint head = (group - a.key_heads) * LW_XPU_TILE + get_local_id(0);
        if (head < a.heads) scale_prepare(&a, row, head);
    }
}

/* Log-decays of a stretch's steps, summed: after step j, and of all. Each sum ascends by itself: a difference
 * of two would lose what is near to what has long faded. */
typedef struct spans {
    float from_step, from_anchor;
} spans;

static inline spans spans_of(const local float *decays, uint count, uint j)
{
    spans s = { 0.0f, 0.0f };
    /* Unrolled whole, it keeps a flag for each step. */
    __attribute__((opencl_unroll_hint(4)))
    for (uint t = 0; t < count; t++) {
        s.from_anchor += decays[t];
        s.from_step += t > j ? decays[t] : 0.0f;
    }
    return s;
}

/* A work-group of 64 items is one row and some value heads of one key head; an item is one step of the row's
 * stretch, the row's own the last. */
LW_KERNEL(recur_weights, lw_xpu_recur_args)
{
    local float decays[STRETCH];
    const uint j = get_local_id(0), first = get_group_id(0) * a.heads_each, each = vectors_each(&a);
    const uint key_head = first / (a.heads / a.key_heads), width = a.key_width;
    const size_t row = get_group_id(1);
    const lw_xpu_place place = place_of(a.steps, row);
    const uint own = place.position % STRETCH, last = min(j, own);
    const uint slot = slot_of(a.steps, place, place.position - own + last);
    const global float *key = keys_at(&a, place, key_head, slot), *vectors = vectors_at(&a, row, key_head);
    float dots[2] = { 0.0f, 0.0f };
    for (uint i = 0; i < width; i++) {
        const float k = key[i * STRETCH];
        dots[0] = fma(vectors[i], k, dots[0]);
        if (each == 2) dots[1] = fma(vectors[width + i], k, dots[1]);
    }
    for (uint head = first; head < first + a.heads_each; head++) {
        barrier(CLK_LOCAL_MEM_FENCE);
        decays[j] = *decay_at(&a, place, head, slot);
        barrier(CLK_LOCAL_MEM_FENCE);
        const spans s = spans_of(decays, own + 1, j);
        const float fade = exp_of(s.from_step);
        global float *weights = weights_at(&a, row, head);
        if (j <= own) {
            weights[j] = fade * dots[0];
            if (each == 2) weights[STRETCH + j] = fade * dots[1];
        }
        if (j == own) ((global float *)a.fades)[row * a.heads + head] = exp_of(s.from_anchor);
    }
}

/* ---- rows of a lane, in order ---- */

/* What an item works on. Items past the width share the last column, and store nothing. */
typedef struct column {
    uint key_head, head, index;
    bool is_stored;
} column;

/* The row at an anchor makes the state of its own stretch: the steps of the one before, ascending, onto the
 * state before, faded. */
static inline void state_fold(const lw_xpu_recur_args *a, column c, size_t row, local float *decays)
{
    const lw_xpu_place place = place_of(a->steps, row), anchor = place_of(a->anchors, row);
    const uint stretch = place.position / STRETCH, item = get_local_id(0), width = a->width;
    global float *to = state_at(a, anchor, c.head, stretch) + c.index;
    if (stretch == 0) {
        for (uint d = 0; c.is_stored && d < a->key_width; d++) to[d * width] = 0.0f;
        return;
    }
    const uint before = place.position - STRETCH;
    decays[item] = *decay_at(a, place, c.head, before + item);
    barrier(CLK_LOCAL_MEM_FENCE);
    const spans s = spans_of(decays, STRETCH, item);
    const float fade = exp_of(s.from_anchor);
    barrier(CLK_LOCAL_MEM_FENCE);
    decays[item] = exp_of(s.from_step);
    barrier(CLK_LOCAL_MEM_FENCE);
    const global float *from = state_at(a, anchor, c.head, stretch - 1) + c.index;
    const global float *values = head_at(a, place, c.head, before) + c.index;
    const global float *keys = keys_at(a, place, c.key_head, before);
    for (uint first = 0; first < a->key_width; first += KEYS) {
        float sums[KEYS];
        for (uint d = 0; d < KEYS; d++) sums[d] = from[(first + d) * width] * fade;
        for (uint j = 0; j < STRETCH; j++) {
            const float value = values[j * width] * decays[j];
            for (uint d = 0; d < KEYS; d++) sums[d] = fma(keys[(first + d) * STRETCH + j], value, sums[d]);
        }
        for (uint d = 0; c.is_stored && d < KEYS; d++) to[(first + d) * width] = sums[d];
    }
}

/* sums (rows, each): every vector of the rows times the state's column, faded to its row. */
static inline void state_read(const lw_xpu_recur_args *a, column c, size_t row, uint rows, uint each,
                              float *sums)
{
    const lw_xpu_place anchor = place_of(a->anchors, row);
    const global float *state = state_at(a, anchor, c.head, anchor.position / STRETCH) + c.index;
    const global float *vectors = vectors_at(a, row, c.key_head);
    const size_t stride = (size_t)a->key_heads * each * a->key_width;
    for (uint i = 0; i < rows * each; i++) sums[i] = 0.0f;
    for (uint first = 0; first < a->key_width; first += KEYS) {
        float columns[KEYS];
        for (uint d = 0; d < KEYS; d++) columns[d] = state[(first + d) * a->width];
        for (uint i = 0; i < rows * each; i++) {
            const global float *vector = vectors + i / each * stride + i % each * a->key_width + first;
            for (uint d = 0; d < KEYS; d++) sums[i] = fma(vector[d], columns[d], sums[i]);
        }
    }
    const global float *fades = (const global float *)a->fades + row * a->heads + c.head;
    for (uint i = 0; i < rows * each; i++) sums[i] *= fades[i / each * a->heads];
}

/* The row's own step: its value is corrected or scaled, kept at its slot, and enters its output last. */
static inline float row_finish(const lw_xpu_recur_args *a, column c, size_t row, uint each, const float *sums)
{
    const lw_xpu_place place = place_of(a->steps, row);
    const global float *weights = weights_at(a, row, c.head) + (each - 1) * STRETCH;
    const size_t at = (size_t)c.head * a->width + c.index;
    const float v = bf_load((const global ushort *)a->values, row * a->x_stride + at);
    const float scale = ((const global float *)a->scales)[row * a->heads + c.head];
    const float u = scale * (each == 2 ? v - sums[0] : v);
    float out = fma(weights[place.position % STRETCH], u, sums[each - 1]);
    if (each == 1) out = fma(((const global float *)a->skip)[c.head], v, out);
    if (c.is_stored) {
        const size_t slot = place.slot % STRETCH;
        head_at(a, place, c.head, place.slot)[slot * a->width + c.index] = u;
        ((global ushort *)a->y)[row * a->y_stride + at] = bf_of(out);
    }
    return u;
}

/* TILE rows that follow one another as a chain within a stretch: the steps before the first one at once,
 * those among them row by row. */
static inline void recur_tile_run(const lw_xpu_recur_args *a, column c, size_t row, uint each)
{
    float sums[2 * TILE], own[TILE];
    state_read(a, c, row, TILE, each, sums);
    const lw_xpu_place place = place_of(a->steps, row);
    const uint known = place.position % STRETCH;
    const global float *values = head_at(a, place, c.head, place.slot) + c.index;
    const global float *weights = weights_at(a, row, c.head);
    const size_t stride = (size_t)a->heads * each * STRETCH;
    for (uint j = 0; j < known; j++) {
        const float value = values[j * a->width];
        for (uint i = 0; i < TILE * each; i++) {
            const float weight = weights[i / each * stride + i % each * STRETCH + j];
            sums[i] = fma(weight, value, sums[i]);
        }
    }
    for (uint r = 0; r < TILE; r++) {
        for (uint j = 0; j < r; j++) {
            for (uint i = 0; i < each; i++) {
                const float weight = weights[r * stride + i * STRETCH + known + j];
                sums[r * each + i] = fma(weight, own[j], sums[r * each + i]);
            }
        }
        own[r] = row_finish(a, c, row + r, each, sums + r * each);
    }
}

static inline void row_run(const lw_xpu_recur_args *a, column c, size_t row, uint each)
{
    float sums[2];
    state_read(a, c, row, 1, each, sums);
    const lw_xpu_place place = place_of(a->steps, row);
    const uint own = place.position % STRETCH, start = place.position - own;
    const global float *weights = weights_at(a, row, c.head), *chain = head_at(a, place, c.head, place.slot);
    for (uint j = 0; j < own; j++) {
        const global float *values = chain;
        uint at = j;
        if (place.lineage != LW_XPU_NONE) {
            const uint slot = slot_of(a->steps, place, start + j);
            values = head_at(a, place, c.head, slot);
            at = slot % STRETCH;
        }
        const float value = values[at * a->width + c.index];
        for (uint i = 0; i < each; i++) sums[i] = fma(weights[i * STRETCH + j], value, sums[i]);
    }
    row_finish(a, c, row, each, sums);
}

/* Whether TILE rows from this one on are a chain within a stretch. Where the last one is TILE - 1 positions
 * further and no row of a tree, those between are its ancestors: slots are one row's each. */
static inline bool is_tile(const lw_xpu_recur_args *a, size_t row, size_t end)
{
    if (row + TILE > end) return false;
    const lw_xpu_place begin = place_of(a->steps, row), last = place_of(a->steps, row + TILE - 1);
    return begin.lineage == LW_XPU_NONE && last.lineage == LW_XPU_NONE
        && last.position == begin.position + TILE - 1 && last.position / STRETCH == begin.position / STRETCH;
}

/* A work-group of 64 items is 64 columns of one value head; group_id(1) is the lane. */
static inline void lane_run(const lw_xpu_recur_args *a, uint each, local float *decays)
{
    const uint blocks = (a->width + LW_XPU_TILE - 1) / LW_XPU_TILE, group = get_group_id(0);
    const uint index = group % blocks * LW_XPU_TILE + get_local_id(0), head = group / blocks;
    const column c = { head / (a->heads / a->key_heads), head, min(index, a->width - 1), index < a->width };
    const lw_xpu_span span = ((const global lw_xpu_span *)a->spans)[get_group_id(1)];
    const size_t begin = (size_t)span.begin + a->first, end = min((size_t)span.end, begin + LW_XPU_STEPS);
    for (size_t row = begin; row < end;) {
        if (place_of(a->steps, row).position % STRETCH == 0) state_fold(a, c, row, decays);
        if (is_tile(a, row, end)) {
            recur_tile_run(a, c, row, each);
            row += TILE;
        } else {
            row_run(a, c, row, each);
            row++;
        }
    }
}

LW_KERNEL(delta_run, lw_xpu_recur_args)
{
    local float decays[STRETCH];
    lane_run(&a, 2, decays);
}

LW_KERNEL(ssm_run, lw_xpu_recur_args)
{
    local float decays[STRETCH];
    lane_run(&a, 1, decays);
}
