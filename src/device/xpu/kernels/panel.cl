/* Products of many rows: y = x W^T in panels of 64 rows and 64 columns, whatever form the codes have, of a
 * linear's rows or of those that one expert meets. The sums are those of product.h, bit for bit: a chain over
 * a group, groups into slices, slices left to right.
 *
 * A work-group of 16 sub-groups decodes codes once for all of its rows and unpacks x once for all of its
 * columns, some columns of x at a time, into local memory; each sub-group then multiplies 16 rows with 16
 * columns: a lane is a column, and takes the rows' numbers from its neighbours. Sub-groups whose rows are all
 * past the last one decode and unpack for the others.
 */
#include "device/xpu/kernels/shapes.h"

/* Numbers of a panel in local memory: eights of columns of x, of each row or column of y. */
enum { EIGHTS = LW_XPU_PANEL_DEPTH / 8, EIGHTS_STEP = LW_XPU_PANEL * LW_XPU_PANEL_STEP };

/* Which part of a panel an item makes, and what the panel's items share. */
typedef struct panel {
    product p;                           /* of the sub-group's 16 columns */
    uint col;                            /* of the panel: where the sub-group's 16 begin */
    uint part;                           /* its 16 rows; which eight of columns of x it prepares */
    local float *w, *x;                  /* (EIGHTS, LW_XPU_PANEL, LW_XPU_PANEL_STEP) */
    local float *sums;                   /* (LW_XPU_PANEL, LW_XPU_PANEL) */
    local uint *x_rows, *y_rows;         /* [LW_XPU_PANEL]: where each row is read and stored */
    uint count;                          /* of those; past the last one x_rows repeats it */
} panel;

#define PANEL_LOCAL() \
    local float w[EIGHTS * EIGHTS_STEP], x[EIGHTS * EIGHTS_STEP], table[16]; \
    local float sums[LW_XPU_PANEL * LW_XPU_PANEL]; \
    local uint x_rows[LW_XPU_PANEL], y_rows[LW_XPU_PANEL]

/* Both kernels: what is as long as this compilers call where two use it, with the struct in memory. */
#define PANEL_INLINE static inline __attribute__((always_inline))

/* An item's lane, asked for anew at each use: compilers would keep addresses made of it, in registers that
 * the sums need. */
static inline uint lane_here(void)
{
    return intel_sub_group_shuffle((uint)get_local_id(0), (uint)get_local_id(0));
}

/* The at-th eight codes of a group, as numbers; a branch for each form, which all items take alike. Which one
 * is asked for anew as well: compilers would keep an answer for each. */
PANEL_INLINE void values_put(const product *p, uint group, uint at, local float *to)
{
    const lw_xpu_matrix *w = &p->args->weight;
    const global uint *words = p->words + (size_t)group * group_words(w) * LW_XPU_LANES;
    const uint form = sub_group_broadcast(w->map << 8 | w->bits, 0);
#define LW_XPU_FORM(name, code_map, code_bits) \
    if (form == (LW_XPU_MAP_##code_map << 8 | code_bits)) \
        vstore8(octet_values(p, octet_codes(words, w->group, at, code_bits, true), \
                             LW_XPU_MAP_##code_map), \
                0, to);
#include "device/xpu/forms.list"
#undef LW_XPU_FORM
}

/* The group's columns [k, k + count), which begin at column first of x: an item decodes an eight of its
 * column and unpacks an eight of a row. */
PANEL_INLINE void panel_stage(const panel *t, uint group, uint k, uint first, uint count)
{
    if (t->part * 8 >= count) return;
    const uint here = t->col + lane_here(), step = t->part * EIGHTS_STEP + here * LW_XPU_PANEL_STEP;
    values_put(&t->p, group, k / 8 + t->part, t->w + step);
    const uint at = first + t->part * 8, left = t->p.args->weight.cols - at;
    uint4 x = x_load(&t->p, t->x_rows[here], at);
    if (left < 8) x &= first_columns(left);
    local float *to = t->x + step;
    vstore4(as_float4((uint4)(x.x << 16, x.x & 0xFFFF0000u, x.y << 16, x.y & 0xFFFF0000u)), 0, to);
    vstore4(as_float4((uint4)(x.z << 16, x.z & 0xFFFF0000u, x.w << 16, x.w & 0xFFFF0000u)), 1, to);
}

/* A group's chains of the sub-group's 16 rows, a lane's column. */
PANEL_INLINE float16 panel_dots(const panel *t, uint group)
{
    const lw_xpu_matrix *w = &t->p.args->weight;
    const uint first = group * w->group, cols = min(w->group, w->cols - first);
    float16 dots = 0.0f;
    for (uint k = 0; k < cols; k += LW_XPU_PANEL_DEPTH) {
        const uint count = min(cols - k, (uint)LW_XPU_PANEL_DEPTH);
        barrier(CLK_LOCAL_MEM_FENCE);
        panel_stage(t, group, k, first + k, count);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (t->part * LW_XPU_LANES >= t->count) continue;
        const uint lane = lane_here();
        for (uint at = 0; at * 8 < count; at++) {
            const local float *values = t->w + at * EIGHTS_STEP + (t->col + lane) * LW_XPU_PANEL_STEP;
            const local float *x =
                t->x + at * EIGHTS_STEP + (t->part * LW_XPU_LANES + lane) * LW_XPU_PANEL_STEP;
            for (uint half_of = 0; half_of < 2; half_of++) {
                const float4 v = vload4(half_of, values), of = vload4(half_of, x);
                dots = fma((float16)(v.x), LW_LANES_OF(of.x), dots);
                dots = fma((float16)(v.y), LW_LANES_OF(of.y), dots);
                dots = fma((float16)(v.z), LW_LANES_OF(of.z), dots);
                dots = fma((float16)(v.w), LW_LANES_OF(of.w), dots);
            }
        }
    }
    return dots;
}

PANEL_INLINE float16 panel_enter(const panel *t, uint group, float16 dots, float16 sums)
{
    const lw_xpu_linear_args *a = t->p.args;
    const lw_xpu_matrix *w = &a->weight;
    if (w->scale_type == LW_XPU_SCALE_NONE) return sums + dots;
    const uint lane = lane_here();
    lw_xpu_matrix fresh = *w; /* what it is told by, as above */
    fresh.scale_type = sub_group_broadcast(w->scale_type, 0);
    fresh.has_bias = sub_group_broadcast(w->has_bias, 0);
    const affine of = affine_load(&fresh, t->p.scales, t->p.block * (size_t)w->groups + group, lane);
    if (w->is_offset) {
        const uint x_row = t->x_rows[t->part * LW_XPU_LANES + lane];
        const float sum_x = ((const global float *)a->sums)[x_row * (size_t)w->groups + group];
        sums = fma((float16)(of.bias), LW_LANES_OF(sum_x), sums);
    }
    return fma((float16)(of.scale), dots, sums);
}

#define SIXTEEN(of) \
    of(0) of(1) of(2) of(3) of(4) of(5) of(6) of(7) of(8) of(9) of(a) of(b) of(c) of(d) of(e) of(f)

/* All sums of the sub-group's rows. Those of slices are added up in local memory, since registers hold the
 * sums of one; -0 and a number are that number. */
PANEL_INLINE void panel_run(const panel *t)
{
    const lw_xpu_matrix *w = &t->p.args->weight;
    local float *sums = t->sums + t->part * LW_XPU_LANES * LW_XPU_PANEL + t->col + get_local_id(0);
#define CLEAR(i) sums[0x##i * LW_XPU_PANEL] = -0.0f;
    SIXTEEN(CLEAR)
#undef CLEAR
    for (uint begin = 0; begin < w->groups; begin += w->slice_groups) {
        const uint end = min(begin + w->slice_groups, w->groups);
        float16 slice = 0.0f;
        for (uint group = begin; group < end; group++)
            slice = panel_enter(t, group, panel_dots(t, group), slice);
        sums = t->sums + t->part * LW_XPU_LANES * LW_XPU_PANEL + t->col + lane_here();
#define ADD(i) sums[0x##i * LW_XPU_PANEL] += slice.s##i;
        SIXTEEN(ADD)
#undef ADD
    }
}

/* All items call it. Columns past the last one repeat its block. */
PANEL_INLINE void panel_make(panel *t, const lw_xpu_linear_args *args, uint member, local float *table)
{
    const uint part = slice_here(), across = LW_XPU_PANEL / LW_XPU_LANES;
    const uint blocks = (args->weight.rows + LW_XPU_LANES - 1) / LW_XPU_LANES;
    const uint block = min((uint)get_group_id(0) * across + part % across, blocks - 1);
    t->p = product_make(args, member, block, LW_XPU_MAP_TABLE16, NULL, table);
    t->part = part / across;
    t->col = part % across * LW_XPU_LANES;
}

/* The sub-group's sums. */
PANEL_INLINE void panel_store(const panel *t)
{
    const lw_xpu_linear_args *a = t->p.args;
    const uint here = t->col + get_local_id(0), col = get_group_id(0) * LW_XPU_PANEL + here;
    const uint begin = t->part * LW_XPU_LANES, end = min(begin + LW_XPU_LANES, t->count);
    if (col >= a->weight.rows) return;
    for (uint r = begin; r < end; r++) {
        const size_t to = t->y_rows[r] * (size_t)a->y_stride + col;
        const float sum = t->sums[r * LW_XPU_PANEL + here] * t->p.by;
        if (a->y_is_f32) ((global float *)a->y)[to] = sum;
        else ((global ushort *)a->y)[to] = bf_of(sum);
    }
}

static inline uint panel_item(void)
{
    return get_local_id(1) * LW_XPU_LANES + get_local_id(0);
}

LW_KERNEL(linear_panel, lw_xpu_linear_args)
{
    PANEL_LOCAL();
    panel t;
    t.w = w, t.x = x, t.sums = sums, t.x_rows = x_rows, t.y_rows = y_rows;
    const uint first = get_group_id(1) * LW_XPU_PANEL, item = panel_item();
    t.count = min(a.rows - first, (uint)LW_XPU_PANEL);
    if (item < LW_XPU_PANEL) x_rows[item] = y_rows[item] = first + min(item, t.count - 1);
    panel_make(&t, &a, 0, table);
    panel_run(&t);
    panel_store(&t);
}

/* A tile of the sorted vectors, of up to LW_XPU_PANEL. */
LW_KERNEL(expert_panel, lw_xpu_expert_args)
{
    PANEL_LOCAL();
    if (get_group_id(1) >= *(const global uint *)a.sorted.tile_count) return;
    const lw_xpu_tile tile = ((const global lw_xpu_tile *)a.sorted.tiles)[get_group_id(1)];
    const global uint *order = (const global uint *)a.sorted.order + tile.first;
    panel t;
    t.w = w, t.x = x, t.sums = sums, t.x_rows = x_rows, t.y_rows = y_rows;
    t.count = tile.count;
    const uint item = panel_item();
    if (item < LW_XPU_PANEL) {
        const uint vector = order[min(item, t.count - 1)];
        x_rows[item] = x_row_of(&a, vector);
        y_rows[item] = vector;
    }
    panel_make(&t, &a.linear, tile.member, table);
    panel_run(&t);
    panel_store(&t);
}
