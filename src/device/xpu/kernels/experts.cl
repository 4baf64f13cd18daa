/* Experts: a router's choice, linears over a stack of matrices of which each row takes some, and the sum of
 * what they gave. Definitions in ops.list.
 *
 * An expert linear's forms have the same bits. For few rows a work-group takes one vector of y and reads its
 * expert's id from the route. For more the vectors are sorted by expert first, in one work-group, and cut
 * into tiles, so that a matrix is read once for all rows of a tile; the host launches as many work-groups as
 * there may be tiles, and those past the last one leave at once. Without DPAS, tiles for many rows are panels
 * (panel.cl).
 */
#include "device/xpu/kernels/shapes.h"

/* ---- route: a work-group of LW_XPU_TILE items a row ---- */

static inline float number_of(float x)
{
    return x != x ? -INFINITY : x;
}

/* Halves are added, or compared, until one is left; all items call them, values[item] is each one's own. */
static inline float tile_sum(local float *values)
{
    const uint item = get_local_id(0);
    for (uint half_count = LW_XPU_TILE / 2; half_count > 0; half_count /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item < half_count) values[item] += values[item + half_count];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return values[0];
}

static inline float tile_max(local float *values)
{
    const uint item = get_local_id(0);
    for (uint half_count = LW_XPU_TILE / 2; half_count > 0; half_count /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item < half_count && values[item + half_count] > values[item])
            values[item] = values[item + half_count];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return values[0];
}

/* Item i takes experts i, i + 64, ...; the exponentials are summed in that interleave. */
static inline void softmax(const global float *logits, uint experts, local float *scores, local float *tile)
{
    const uint item = get_local_id(0);
    float largest = -INFINITY, sum = 0.0f;
    for (uint e = item; e < experts; e += LW_XPU_TILE) largest = logits[e] > largest ? logits[e] : largest;
    tile[item] = largest;
    largest = tile_max(tile);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint e = item; e < experts; e += LW_XPU_TILE) {
        scores[e] = exp_of(logits[e] - largest);
        sum += scores[e];
    }
    tile[item] = sum;
    sum = tile_sum(tile);
    for (uint e = item; e < experts; e += LW_XPU_TILE) scores[e] /= sum;
}

/* The sum of the two best choice scores of the experts [begin, end). */
static inline float group_score(const local float *choice, const local float *summed, uint begin, uint end)
{
    uint best = begin, second = end;
    for (uint e = begin + 1; e < end; e++) {
        if (choice[e] > choice[best]) {
            second = best;
            best = e;
        } else if (second == end || choice[e] > choice[second]) {
            second = e;
        }
    }
    return number_of(summed[best] + (second < end ? summed[second] : 0.0f));
}

/* How many of the values [begin, end) stand before the index-th: greater ones, and equal ones before it. */
static inline uint rank_of(const local float *values, uint begin, uint end, uint index)
{
    uint rank = 0;
    for (uint i = begin; i < end; i++)
        rank += values[i] > values[index] || (values[i] == values[index] && i < index) ? 1 : 0;
    return rank;
}

LW_KERNEL(route, lw_xpu_route_args)
{
    local float scores[LW_XPU_EXPERTS_MAX], choice[LW_XPU_EXPERTS_MAX], tile[LW_XPU_TILE];
    local float best_groups[LW_XPU_TOP_MAX];
    local uint chosen[LW_XPU_TOP_MAX], open[LW_XPU_TOP_MAX];
    const uint item = get_local_id(0), size = a.experts / a.groups;
    const size_t row = get_group_id(1);
    const global float *logits = (const global float *)a.logits + row * a.logits_stride;
    const global float *bias = (const global float *)a.bias;
    if (a.is_softmax) softmax(logits, a.experts, scores, tile);
    /* Without a bias the order of softmax is that of its logits, where no two are made equal by rounding. */
    const bool by_logit = a.is_softmax && a.bias == 0;
    for (uint e = item; e < a.experts; e += LW_XPU_TILE) {
        if (!a.is_softmax) scores[e] = sigmoid(logits[e]);
        const float ranked = by_logit ? logits[e] : scores[e];
        choice[e] = number_of(a.bias == 0 ? ranked : ranked + bias[e]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < a.groups)
        best_groups[item] = a.groups == 1
            ? 0.0f
            : group_score(choice, by_logit ? scores : choice, item * size, (item + 1) * size);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < a.groups) open[item] = rank_of(best_groups, 0, a.groups, item) < a.top_groups;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint e = item; e < a.experts; e += LW_XPU_TILE) {
        if (!open[e / size]) continue;
        uint rank = 0;
        for (uint group = 0; group < a.groups; group++)
            rank += open[group] ? rank_of(choice, group * size, (group + 1) * size, e) : 0;
        if (rank < a.top) chosen[rank] = e;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item >= a.top) return;
    float sum = 0.0f;
    for (uint i = 0; i < a.top; i++) sum += scores[chosen[i]];
    if (!a.is_softmax) sum = a.normalise ? sum + 1e-20f : 1.0f;
    global float *y = (global float *)a.y + row * a.y_stride;
    y[item] = (float)chosen[item];
    y[a.top + item] = scores[chosen[item]] / sum * a.scale;
}

/* ---- expert_linear ---- */

/* The members of LW_XPU_SORT_ITEMS vectors from base on, for all items to read. */
static inline void members_load(const lw_xpu_sort_args *a, uint base, local uint *here)
{
    const uint item = get_local_id(0), vector = base + item;
    barrier(CLK_LOCAL_MEM_FENCE);
    here[item] = vector < a->vectors ? member_of(a->route, a->route_stride, a->top, vector) : LW_XPU_NONE;
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* One work-group; item i has members i, i + LW_XPU_SORT_ITEMS, ...: counts, then places, in two walks over
 * all vectors, so that those of a member stay in order. */
LW_KERNEL(expert_sort, lw_xpu_sort_args)
{
    local uint here[LW_XPU_SORT_ITEMS], counts[LW_XPU_EXPERTS_MAX], firsts[LW_XPU_EXPERTS_MAX];
    local uint tiles_before[LW_XPU_EXPERTS_MAX];
    const uint item = get_local_id(0);
    global uint *order = (global uint *)a.to.order;
    global lw_xpu_tile *tiles = (global lw_xpu_tile *)a.to.tiles;
    for (uint m = item; m < a.members; m += LW_XPU_SORT_ITEMS) counts[m] = 0;
    for (uint base = 0; base < a.vectors; base += LW_XPU_SORT_ITEMS) {
        members_load(&a, base, here);
        for (uint m = item; m < a.members; m += LW_XPU_SORT_ITEMS) {
            uint count = 0;
            for (uint i = 0; i < LW_XPU_SORT_ITEMS; i++) count += here[i] == m ? 1 : 0;
            counts[m] += count;
        }
    }
    for (uint m = item; m < a.members; m += LW_XPU_SORT_ITEMS)
        tiles_before[m] = (counts[m] + a.tile_rows - 1) / a.tile_rows;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item == 0) {
        uint vectors = 0, tile_count = 0;
        for (uint m = 0; m < a.members; m++) {
            const uint tiles = tiles_before[m];
            firsts[m] = vectors;
            tiles_before[m] = tile_count;
            vectors += counts[m];
            tile_count += tiles;
        }
        *(global uint *)a.to.tile_count = tile_count;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint m = item; m < a.members; m += LW_XPU_SORT_ITEMS) {
        global lw_xpu_tile *tile = &tiles[tiles_before[m]];
        for (uint done = 0; done < counts[m]; done += a.tile_rows, tile++) {
            tile->member = m;
            tile->first = firsts[m] + done;
            tile->count = min(counts[m] - done, a.tile_rows);
        }
    }
    for (uint base = 0; base < a.vectors; base += LW_XPU_SORT_ITEMS) {
        members_load(&a, base, here);
        for (uint m = item; m < a.members; m += LW_XPU_SORT_ITEMS) {
            uint at = firsts[m];
            for (uint i = 0; i < LW_XPU_SORT_ITEMS; i++)
                if (here[i] == m) order[at++] = base + i;
            firsts[m] = at;
        }
    }
}

#define LW_XPU_FORM(name, map, bits) \
    EXPERT(expert_##name, LW_XPU_MAP_##map, bits, RUN_FMA) \
    EXPERT_ROWS(expert_##name##_rows, LW_XPU_ROWS, LW_XPU_MAP_##map, bits, RUN_FMA)
#include "device/xpu/forms.list"
#undef LW_XPU_FORM

/* ---- expert_bias ---- */

/* An item is one column of a vector. */
LW_KERNEL(expert_bias, lw_xpu_expert_bias_args)
{
    const size_t col = get_global_id(0), vector = get_group_id(1);
    if (col >= a.width) return;
    const size_t member = member_of(a.route, a.route_stride, a.top, vector);
    const float bias = ((const global float *)a.biases)[member * a.width + col];
    ((global ushort *)a.y)[vector * a.y_stride + col] =
        bf_of(((const global float *)a.x)[vector * a.x_stride + col] + bias);
}

/* ---- expert_sum ---- */

/* An item is one column: a chain over the slots. */
LW_KERNEL(expert_sum, lw_xpu_expert_sum_args)
{
    const size_t col = get_global_id(0), row = get_group_id(1);
    if (col >= a.width) return;
    const global float *weights = (const global float *)a.weights + row * a.weights_stride;
    const global ushort *x = (const global ushort *)a.x + row * a.slots * a.x_stride + col;
    float sum = 0.0f;
    for (uint slot = 0; slot < a.slots; slot++)
        sum = fma(weights[slot], bf_load(x, slot * (size_t)a.x_stride), sum);
    ((global ushort *)a.y)[row * a.y_stride + col] = bf_of(sum);
}
