/* Products of rows with a weight matrix (kargs.h), whatever form its codes have. Read by OpenCL C only.
 *
 * Order of every sum, at every row count: K is cut into slices by its length alone; in a slice groups ascend,
 * in a group one chain over k ascending; a group enters as fma(scale, dot, fma(bias, sum_x, slice)), without
 * its inner part where there are no biases, or as slice + dot where nothing is scaled; slices are added left
 * to right, and the sum is multiplied by the matrix's global. A work-group makes 16 columns: lane = column,
 * sub-group = slice of K.
 */
#ifndef LW_DEVICE_XPU_KERNELS_PRODUCT_H
#define LW_DEVICE_XPU_KERNELS_PRODUCT_H

#include "device/xpu/kernels/codes.h"

/* What a product keeps in local memory besides its arguments. */
#define PRODUCT_LOCAL(row_count, map) \
    local float parts[LW_XPU_SLICES_MAX * (row_count) * LW_XPU_LANES]; \
    local float table[(map) == LW_XPU_MAP_TABLE16 ? 16 : 1]

/* One matrix's 16 columns of this work-group. */
typedef struct product {
    const lw_xpu_linear_args *args;
    const global uint *words;            /* of the first group */
    size_t scales;                       /* of the whole matrix */
    float by;                            /* the matrix's global */
    uint block;                          /* of 16 columns */
    local float *parts, *table;
} product;

/* All items of the work-group call it; map is a constant. */
static inline product product_make(const lw_xpu_linear_args *args, uint member, uint block, uint map,
                                   local float *parts, local float *table)
{
    const lw_xpu_matrix *w = &args->weight;
    const size_t first = block * (size_t)w->groups, bytes = sizeof(uint) * LW_XPU_LANES;
    product p;
    p.args = args;
    p.block = block;
    p.words = (const global uint *)(w->words + member * w->words_bytes + first * group_words(w) * bytes);
    p.scales = w->scales + member * w->scales_bytes;
    p.by = ((const global float *)w->globals)[member];
    p.parts = parts;
    p.table = table;
    if (map == LW_XPU_MAP_TABLE16) {
        if (get_local_id(1) == 0) table[get_local_id(0)] = ((const global float *)w->table)[get_local_id(0)];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    return p;
}

/* Their values; map is a constant. */
static inline float8 octet_values(const product *p, uint8 codes, uint map)
{
#define OF_TABLE(i) p->table[codes.s##i]
#define OF_MAP(i) code_value(codes.s##i, map)
    return map == LW_XPU_MAP_TABLE16 ? (float8)(EIGHT(OF_TABLE)) : (float8)(EIGHT(OF_MAP));
#undef OF_TABLE
#undef OF_MAP
}

/* Eight neighbouring columns of a row of x, from column k on; a row begins at an even column. Past a row's
 * last one stands anything: memory of activations is longer than they are, so that it can be read. */
static inline uint4 x_load(const product *p, uint x_row, uint k)
{
    const lw_xpu_linear_args *a = p->args;
    const global ushort *x = (const global ushort *)a->x + (size_t)x_row * a->x_stride + k;
    return vload4(0, (const global uint *)x);
}

/* Bits of the first count, fewer than eight, of eight columns. */
static inline uint4 first_columns(uint count)
{
    const uint4 last = (uint4)(1, 3, 5, 7);
    const uint4 some = select((uint4)0, (uint4)0xFFFFu, last == (uint4)count);
    return select(some, (uint4)0xFFFFFFFFu, last < (uint4)count);
}

/* A chain over those. */
static inline float octet_dot(float8 values, uint4 x, float dot)
{
    dot = fma(values.s0, as_float(x.x << 16), dot);
    dot = fma(values.s1, as_float(x.x & 0xFFFF0000u), dot);
    dot = fma(values.s2, as_float(x.y << 16), dot);
    dot = fma(values.s3, as_float(x.y & 0xFFFF0000u), dot);
    dot = fma(values.s4, as_float(x.z << 16), dot);
    dot = fma(values.s5, as_float(x.z & 0xFFFF0000u), dot);
    dot = fma(values.s6, as_float(x.w << 16), dot);
    return fma(values.s7, as_float(x.w & 0xFFFF0000u), dot);
}

/* Eight columns of four rows. */
static inline uint16 x_load_four(const product *p, uint4 x_rows, uint k)
{
    return (uint16)(x_load(p, x_rows.x, k), x_load(p, x_rows.y, k), x_load(p, x_rows.z, k),
                    x_load(p, x_rows.w, k));
}

/* Products of one group with one vector of x, eight times the same, or with eight; x_rows: where those are.
 * No element of a vector is set alone: Intel's compiler 22.43 takes a loop's sums for one another where some
 * never change. */
static inline float8 group_dots(const product *p, uint8 x_rows, uint group, uint rows, uint map, uint bits)
{
    const lw_xpu_matrix *w = &p->args->weight;
    const global uint *words = p->words + (size_t)group * group_words(w) * LW_XPU_LANES;
    float8 dots = 0.0f;
    const uint first = group * w->group, count = min(w->group, w->cols - first);
    for (uint at = 0; at * 8 < count; at++) {
        const float8 v = octet_values(p, octet_codes(words, w->group, at, bits, false), map);
        const uint k = first + at * 8, left = w->cols - k;
        uint16 x = x_load_four(p, rows == 1 ? x_rows.s0000 : x_rows.lo, k);
        uint16 y = rows == 1 ? x : x_load_four(p, x_rows.hi, k);
        if (left < 8) {
            const uint4 here = first_columns(left);
            x &= (uint16)(here, here, here, here);
            y &= (uint16)(here, here, here, here);
        }
        if (rows == 1) {
            dots = (float8)(octet_dot(v, x.s0123, dots.s0));
            continue;
        }
        dots.lo = (float4)(octet_dot(v, x.s0123, dots.s0), octet_dot(v, x.s4567, dots.s1),
                           octet_dot(v, x.s89ab, dots.s2), octet_dot(v, x.scdef, dots.s3));
        dots.hi = (float4)(octet_dot(v, y.s0123, dots.s4), octet_dot(v, y.s4567, dots.s5),
                           octet_dot(v, y.s89ab, dots.s6), octet_dot(v, y.scdef, dots.s7));
    }
    return dots;
}

static inline float8 group_sums_of(const product *p, uint8 x_rows, uint group, uint rows)
{
    const global float *sums = (const global float *)p->args->sums + group;
    const size_t groups = p->args->weight.groups;
#define SUM(i) sums[x_rows.s##i * groups]
    return rows == 1 ? (float8)(SUM(0)) : (float8)(EIGHT(SUM));
#undef SUM
}

/* A sub-group is a row of 16 items. Its lanes ask the first of them, so that compilers know that all say the
 * same: what follows from it, addresses of x above all, is then kept once and not once a lane. */
static inline uint slice_here(void)
{
    return sub_group_broadcast((uint)get_local_id(1), 0);
}

/* This sub-group's slice, into its place in parts; rows (1 or 8), map and bits are constants of each kernel.
 */
static inline void slice_run(const product *p, uint8 x_rows, uint rows, uint map, uint bits)
{
    const lw_xpu_matrix *w = &p->args->weight;
    const uint lane = get_local_id(0), slice = slice_here();
    const uint begin = slice * w->slice_groups, end = min(begin + w->slice_groups, w->groups);
    float8 sums = 0.0f;
    for (uint group = begin; group < end; group++) {
        const float8 dots = group_dots(p, x_rows, group, rows, map, bits);
        if (bits >= 16 || w->scale_type == LW_XPU_SCALE_NONE) {
            sums += dots;
            continue;
        }
        const affine of = affine_load(w, p->scales, p->block * (size_t)w->groups + group, lane);
        if (w->is_offset) sums = fma((float8)(of.bias), group_sums_of(p, x_rows, group, rows), sums);
        sums = fma((float8)(of.scale), dots, sums);
    }
    local float *parts = p->parts + slice * rows * LW_XPU_LANES + lane;
    parts[0] = sums.s0;
    if (rows == 1) return;
#define PART(i) parts[i * LW_XPU_LANES] = sums.s##i
    EIGHT(PART);
#undef PART
}

#define RUN_FMA(p, X_ROW, count, rows, map, bits) slice_run(p, (uint8)(EIGHT(X_ROW)), rows, map, bits)

/* The slices of the r-th of rows vectors, once every sub-group is done. */
static inline float slices_sum(const local float *parts, uint slices, uint rows, uint r)
{
    const uint lane = get_local_id(0);
    float sum = parts[r * LW_XPU_LANES + lane];
    for (uint s = 1; s < slices; s++) sum += parts[(s * rows + r) * LW_XPU_LANES + lane];
    return sum;
}

/* Those, into row y_row of y. */
static inline void y_store(const product *p, uint rows, uint r, size_t y_row)
{
    const lw_xpu_linear_args *a = p->args;
    const size_t col = p->block * LW_XPU_LANES + get_local_id(0);
    const float sum = slices_sum(p->parts, a->weight.slices, rows, r) * p->by;
    if (col >= a->weight.rows) return;
    if (a->y_is_f32) ((global float *)a->y)[y_row * a->y_stride + col] = sum;
    else ((global ushort *)a->y)[y_row * a->y_stride + col] = bf_of(sum);
}

#endif
