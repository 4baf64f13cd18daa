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

#include "device/xpu/kernels/lw_xpu.h"

/* What a product keeps in local memory besides its arguments. */
#define PRODUCT_LOCAL(row_count, map) \
    local float parts[LW_XPU_SLICES_MAX * (row_count) * LW_XPU_LANES]; \
    local float table[(map) == LW_XPU_MAP_TABLE16 ? 16 : 1]

/* Vectors of eight stand where arrays could: compilers keep them in registers without unrolling anything. */
#define EIGHT(of) of(0), of(1), of(2), of(3), of(4), of(5), of(6), of(7)

/* One matrix's 16 columns of this work-group. */
typedef struct product {
    const lw_xpu_linear_args *args;
    const global uint *words;            /* of the first group */
    size_t scales;                       /* of the whole matrix */
    float by;                            /* the matrix's global */
    local float *parts, *table;
} product;

/* A float of fewer bits than fp32's, without its sign: exponent and mantissa are moved by shift to where
 * fp32's lie; least is the smallest normal one. Nothing here is subnormal in fp32, which some devices flush. */
static inline float small_float(uint magnitude, uint shift, float least)
{
    const uint bits = magnitude << shift, one = 0x00800000u;
    if (bits < one) return as_float(as_uint(least) | bits) - least;
    return as_float(bits - one + as_uint(least));
}

static inline float e4m3_value(uint code)
{
    return as_float(as_uint(small_float(code & 0x7Fu, 20, 0x1p-6f)) | (code & 0x80u) << 24);
}

static inline float fp16_value(uint code)
{
    const uint magnitude = code & 0x7FFFu, sign = (code & 0x8000u) << 16;
    if (magnitude >= 0x7C00u) return as_float(0x7F800000u | (magnitude & 0x3FFu) << 13 | sign);
    return as_float(as_uint(small_float(magnitude, 13, 0x1p-14f)) | sign);
}

/* Bits of a code in the low plane (kargs.h). */
static inline uint low_bits(uint bits)
{
    return bits == 3 ? 2 : bits == 5 || bits == 6 ? 4 : bits;
}

/* Eight neighbouring codes of a plane of so many bits: the at-th eight of this lane's words. */
static inline uint8 plane_codes(const global uint *words, uint at, uint bits)
{
    const uint8 order = (uint8)(0, 1, 2, 3, 4, 5, 6, 7);
    if (bits <= 4) {
        const uint per_word = 4 / bits, word = words[at / per_word * LW_XPU_LANES] >> at % per_word * 8 * bits;
        return (uint8)(word) >> order * bits & (1u << bits) - 1;
    }
    words += at * (bits / 4) * LW_XPU_LANES;
    const uint4 first = (uint4)(words[0], words[LW_XPU_LANES], bits < 16 ? 0 : words[2 * LW_XPU_LANES],
                                bits < 16 ? 0 : words[3 * LW_XPU_LANES]);
    if (bits == 8) return (uint8)(first.xxxx, first.yyyy) >> order % 4 * 8 & 0xFFu;
    if (bits == 16) return (uint8)(first.xx, first.yy, first.zz, first.ww) >> order % 2 * 16 & 0xFFFFu;
    words += 4 * LW_XPU_LANES;
    return (uint8)(first, words[0], words[LW_XPU_LANES], words[2 * LW_XPU_LANES], words[3 * LW_XPU_LANES]);
}

/* The at-th eight codes of a group of so many, whose planes begin at words. */
static inline uint8 octet_codes(const global uint *words, uint group, uint at, uint bits)
{
    const uint low = low_bits(bits);
    const uint8 codes = plane_codes(words, at, low);
    if (low == bits) return codes;
    return codes | plane_codes(words + group * low / 32 * LW_XPU_LANES, at, bits - low) << low;
}

/* Of a code that is no index into a table. */
static inline float code_value(uint code, uint map)
{
    if (map == LW_XPU_MAP_E4M3) return e4m3_value(code);
    if (map == LW_XPU_MAP_BF16) return as_float(code << 16);
    if (map == LW_XPU_MAP_FP16) return fp16_value(code);
    if (map == LW_XPU_MAP_FP32) return as_float(code);
    return (float)code;
}

static inline float half_value(uint code, uint type)
{
    return type == LW_XPU_SCALE_FP16 ? fp16_value(code) : as_float(code << 16);
}

typedef struct affine { float scale, bias; } affine;

/* Of a group's lane: the at-th scale, or pair of scale and bias, behind scales. */
static inline affine affine_load(const lw_xpu_matrix *w, size_t scales, size_t at)
{
    affine of;
    if (w->has_bias && w->scale_type != LW_XPU_SCALE_FP32) {
        const uint pair = ((const global uint *)scales)[at];
        of.scale = half_value(pair & 0xFFFFu, w->scale_type);
        of.bias = half_value(pair >> 16, w->scale_type);
    } else if (w->has_bias) {
        of.scale = ((const global float *)scales)[2 * at];
        of.bias = ((const global float *)scales)[2 * at + 1];
    } else {
        if (w->scale_type == LW_XPU_SCALE_FP32) of.scale = ((const global float *)scales)[at];
        else if (w->scale_type == LW_XPU_SCALE_E4M3) of.scale = e4m3_value(((const global uchar *)scales)[at]);
        else of.scale = half_value(((const global ushort *)scales)[at], w->scale_type);
        of.bias = w->bias_per_scale * of.scale;
    }
    return of;
}

static inline uint group_words(const lw_xpu_matrix *w)
{
    return w->group * w->bits / 32;
}

/* All items of the work-group call it; map is a constant. */
static inline product product_make(const lw_xpu_linear_args *args, uint member, uint map, local float *parts,
                                   local float *table)
{
    const lw_xpu_matrix *w = &args->weight;
    const size_t first = get_group_id(0) * (size_t)w->groups, bytes = sizeof(uint) * LW_XPU_LANES;
    product p;
    p.args = args;
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

/* The first count, fewer than eight, of what stands at x; zeros behind them. */
static inline uint4 x_load_some(const global uint *x, uint count)
{
    uint4 some = 0;
    some.x = x[0];
    if (count > 2) some.y = x[1];
    if (count > 4) some.z = x[2];
    if (count > 6) some.w = x[3];
    const uint4 last = (uint4)(0, 2, 4, 6) + 1;
    return some & select((uint4)0xFFFFFFFFu, (uint4)0xFFFFu, last == (uint4)count);
}

/* A chain over eight neighbouring columns of a row of x; a row begins at an even column. */
static inline float octet_dot(const product *p, float8 values, uint x_row, uint k, float dot)
{
    const lw_xpu_linear_args *a = p->args;
    const uint left = a->weight.cols - k;
    const global uint *from = (const global uint *)((const global ushort *)a->x + (size_t)x_row * a->x_stride + k);
    const uint4 x = left < 8 ? x_load_some(from, left) : vload4(0, from);
    dot = fma(values.s0, as_float(x.x << 16), dot);
    dot = fma(values.s1, as_float(x.x & 0xFFFF0000u), dot);
    dot = fma(values.s2, as_float(x.y << 16), dot);
    dot = fma(values.s3, as_float(x.y & 0xFFFF0000u), dot);
    dot = fma(values.s4, as_float(x.z << 16), dot);
    dot = fma(values.s5, as_float(x.z & 0xFFFF0000u), dot);
    dot = fma(values.s6, as_float(x.w << 16), dot);
    return fma(values.s7, as_float(x.w & 0xFFFF0000u), dot);
}

/* Products of one group with one vector of x or eight; x_rows: where those are. */
static inline float8 group_dots(const product *p, uint8 x_rows, uint group, uint rows, uint map, uint bits)
{
    const lw_xpu_matrix *w = &p->args->weight;
    const global uint *words = p->words + (size_t)group * group_words(w) * LW_XPU_LANES + get_local_id(0);
    float8 dots = 0.0f;
    const uint first = group * w->group, count = min(w->group, w->cols - first);
    for (uint at = 0; at * 8 < count; at++) {
        const float8 values = octet_values(p, octet_codes(words, w->group, at, bits), map);
#define DOT(i) octet_dot(p, values, x_rows.s##i, first + at * 8, dots.s##i)
        if (rows == 1) dots.s0 = DOT(0);
        else dots = (float8)(EIGHT(DOT));
#undef DOT
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

/* This sub-group's slice, into its place in parts; rows (1 or 8), map and bits are constants of each kernel. */
static inline void slice_run(const product *p, uint8 x_rows, uint rows, uint map, uint bits)
{
    const lw_xpu_matrix *w = &p->args->weight;
    const uint lane = get_local_id(0), slice = get_local_id(1);
    const uint begin = slice * w->slice_groups, end = min(begin + w->slice_groups, w->groups);
    float8 sums = 0.0f;
    for (uint group = begin; group < end; group++) {
        const float8 dots = group_dots(p, x_rows, group, rows, map, bits);
        if (bits >= 16 || w->scale_type == LW_XPU_SCALE_NONE) {
            sums += dots;
            continue;
        }
        const size_t at = (get_group_id(0) * (size_t)w->groups + group) * LW_XPU_LANES + lane;
        const affine of = affine_load(w, p->scales, at);
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

/* The slices of the r-th of rows vectors, once every sub-group is done, into row y_row of y. */
static inline void y_store(const product *p, uint rows, uint r, size_t y_row)
{
    const lw_xpu_linear_args *a = p->args;
    const uint lane = get_local_id(0);
    const size_t col = get_global_id(0);
    float sum = p->parts[r * LW_XPU_LANES + lane];
    for (uint s = 1; s < a->weight.slices; s++) sum += p->parts[(s * rows + r) * LW_XPU_LANES + lane];
    sum *= p->by;
    if (col >= a->weight.rows) return;
    if (a->y_is_f32) ((global float *)a->y)[y_row * a->y_stride + col] = sum;
    else ((global ushort *)a->y)[y_row * a->y_stride + col] = bf_of(sum);
}

#endif
