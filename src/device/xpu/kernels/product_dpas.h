/* Products of rows with a weight matrix by DPAS, for the forms of codes that are exact in bf16
 * (dpas_forms.list). Read by OpenCL C only.
 *
 * Order of every sum: that of product.h, but that a group's dot is a chain of DPAS, each over 16 neighbouring
 * columns, k ascending; the order within one is the instruction's own. It has eight rows at every row count:
 * those that nobody asks for are zero.
 *
 * Of the instruction's operands (dpas.h) `left` has rows of x, and `right` the block's columns.
 */
#ifndef LW_DEVICE_XPU_KERNELS_PRODUCT_DPAS_H
#define LW_DEVICE_XPU_KERNELS_PRODUCT_DPAS_H

#include "device/xpu/kernels/dpas.h"
#include "device/xpu/kernels/rows_dpas.h"
#include "device/xpu/kernels/weight_dpas.h"

/* Of up to 24 rows, as dpas_rows has them. */
typedef struct dpas_sums {
    float8 rows0, rows1, rows2;
} dpas_sums;

/* Of two steps. */
typedef struct rights {
    int8 s0, s1;
} rights;

static inline float8 pair_dots(const product *p, uint8 rows, uint most, uint k, rights w, float8 dots)
{
    const lefts x = lefts_load(p, rows, most, k);
    return dpas(x.s1, w.s1, dpas(x.s0, w.s0, dots));
}

/* Products of the rows from column k on with two steps' columns of the weight, and with one's, of which count
 * are there. */
static inline void pair_add(const product *p, const dpas_rows *x, uint k, rights w, dpas_sums *dots)
{
    dots->rows0 = pair_dots(p, x->rows0, x->most, k, w, dots->rows0);
    if (x->most <= LW_XPU_ROWS) return;
    if (x->count > 8) dots->rows1 = pair_dots(p, x->rows1, x->most, k, w, dots->rows1);
    if (x->count > 16) dots->rows2 = pair_dots(p, x->rows2, x->most, k, w, dots->rows2);
}

static inline void stripe_add(const product *p, const dpas_rows *x, uint k, uint count, int8 w,
                              dpas_sums *dots)
{
    dots->rows0 = dpas(left_load(p, x->rows0, x->most, k, count), w, dots->rows0);
    if (x->most <= LW_XPU_ROWS) return;
    if (x->count > 8) dots->rows1 = dpas(left_load(p, x->rows1, x->most, k, count), w, dots->rows1);
    if (x->count > 16) dots->rows2 = dpas(left_load(p, x->rows2, x->most, k, count), w, dots->rows2);
}

enum { ONE_ROW = 16 };                   /* no first lane: all have the only row's */

static inline void parts_put(local float *parts, const dpas_sums *sums, uint most)
{
#define PART0(i) parts[i * LW_XPU_LANES] = sums->rows0.s##i
#define PART1(i) parts[(8 + i) * LW_XPU_LANES] = sums->rows1.s##i
#define PART2(i) parts[(16 + i) * LW_XPU_LANES] = sums->rows2.s##i
    PART0(0);
    if (most == 1) return;
    EIGHT(PART0);
    if (most == LW_XPU_ROWS) return;
    EIGHT(PART1);
    EIGHT(PART2);
#undef PART0
#undef PART1
#undef PART2
}

static inline float sum_x_of(const product *p, uint x_row, uint group)
{
    return ((const global float *)p->args->sums)[x_row * (size_t)p->args->weight.groups + group];
}

/* Lane by lane, as dpas_rows has them. */
static inline float2 sums_x_of(const product *p, const dpas_rows *x, uint group)
{
    float2 sums = 0.0f;
    if (p->args->weight.is_offset) sums.x = sum_x_of(p, x->of_lane.x, group);
    if (p->args->weight.is_offset && x->most > LW_XPU_ROWS) sums.y = sum_x_of(p, x->of_lane.y, group);
    return sums;
}

/* Eight rows' dots of a group into their sums, where nothing else enters; lanes from `first` on have the
 * rows' sums of x. */
static inline float8 group_add(affine of, bool is_offset, float sums_x, uint first, float8 dots, float8 sums)
{
#define SUM_X(i) intel_sub_group_shuffle(sums_x, first + i)
    if (is_offset && first == ONE_ROW) sums = fma((float8)(of.bias), (float8)(sums_x), sums);
    else if (is_offset) sums = fma((float8)(of.bias), (float8)(EIGHT(SUM_X)), sums);
    return fma((float8)(of.scale), dots, sums);
#undef SUM_X
}

/* This sub-group's slice, into its place in parts; map and bits are constants of each kernel. A unit is read
 * while the one before it is used, and scales before both, unless there are many rows, whose sums take the
 * registers. */
static inline void slice_run_dpas(const product *p, dpas_rows x, uint map, uint bits)
{
    const lw_xpu_matrix *w = &p->args->weight;
    const uint lane = get_local_id(0), slice = slice_here(), most = x.most;
    const uint begin = slice * w->slice_groups, end = min(begin + w->slice_groups, w->groups);
    const float entry = map == LW_XPU_MAP_TABLE16 ? p->table[lane] : 0.0f;
    const bool is_scaled = bits < 16 && w->scale_type != LW_XPU_SCALE_NONE;
    dpas_sums sums = { 0.0f, 0.0f, 0.0f };
    unit ahead;
    if (most <= LW_XPU_ROWS && w->group >= DPAS_UNIT) ahead = unit_load(planes_of(p, begin, bits), 0, bits);
    for (uint group = begin; group < end; group++) {
        const planes from = planes_of(p, group, bits);
        const uint first = group * w->group, count = min(w->group, w->cols - first);
        dpas_sums dots = { 0.0f, 0.0f, 0.0f };
        const size_t scale_at = p->block * (size_t)w->groups + group;
        affine of = { 0.0f, 0.0f };
        float2 sums_x = 0.0f;
        if (is_scaled && most <= LW_XPU_ROWS) {
            of = affine_load(w, p->scales, scale_at, lane);
            sums_x = sums_x_of(p, &x, group);
        }
        uint at = 0;
        for (; at + DPAS_UNIT <= count; at += DPAS_UNIT) {
            const unit u = most <= LW_XPU_ROWS ? ahead : unit_load(from, at, bits);
            if (most <= LW_XPU_ROWS) ahead = unit_next(p, (uint2)(group, end), at, bits);
            const rights one = { right_of(u.s0, entry, map, bits), right_of(u.s1, entry, map, bits) };
            pair_add(p, &x, first + at, one, &dots);
            const rights two = { right_of(u.s2, entry, map, bits), right_of(u.s3, entry, map, bits) };
            pair_add(p, &x, first + at + 2 * DPAS_STEP, two, &dots);
        }
        for (; at < count; at += DPAS_STEP) {
            const stripe s = stripe_load(from, at, w->group - at < DPAS_STEP, bits);
            stripe_add(p, &x, first + at, count - at, right_of(s, entry, map, bits), &dots);
        }
        if (!is_scaled) {
            sums.rows0 += dots.rows0;
            if (most > LW_XPU_ROWS) sums.rows1 += dots.rows1;
            if (most > LW_XPU_ROWS) sums.rows2 += dots.rows2;
            continue;
        }
        if (most > LW_XPU_ROWS) {
            of = affine_load(w, p->scales, scale_at, lane);
            sums_x = sums_x_of(p, &x, group);
        }
        sums.rows0 = group_add(of, w->is_offset, sums_x.x, most == 1 ? ONE_ROW : 0, dots.rows0, sums.rows0);
        if (most <= LW_XPU_ROWS) continue;
        sums.rows1 = group_add(of, w->is_offset, sums_x.x, 8, dots.rows1, sums.rows1);
        sums.rows2 = group_add(of, w->is_offset, sums_x.y, 0, dots.rows2, sums.rows2);
    }
    parts_put(p->parts + slice * most * LW_XPU_LANES + lane, &sums, most);
}

#define RUN_DPAS(p, X_ROW, count, rows, map, bits) \
    slice_run_dpas(p, \
                   dpas_rows_make((uint2)(X_ROW((uint)get_local_id(0)), X_ROW(16 + (uint)get_local_id(0))), \
                                  count, rows), \
                   map, bits)

#endif
