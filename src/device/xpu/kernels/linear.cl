/* y = x W^T. A work-group makes 16 columns of up to 8 rows: lane = column, sub-group = slice of K.
 *
 * Order of every sum, at every row count: K is cut into slices by its length alone; in a slice groups ascend,
 * in a group one chain over k ascending; a group enters as fma(scale, dot, fma(bias, sum_x, slice)), or as
 * slice + dot where nothing is scaled; slices are added left to right. The forms differ in how many rows
 * share one pass over the weight, and in nothing that a row's sum sees.
 */
#include "device/xpu/kernels/lw_xpu.h"

/* An item is one group of one row. */
LW_KERNEL(group_sums, lw_xpu_sums_args)
{
    const uint group = get_global_id(0);
    const size_t row = get_group_id(1);
    if (group >= a.groups) return;
    const global ushort *x = (const global ushort *)a.x + row * a.x_stride + (size_t)group * a.group;
    float sum = 0.0f;
    for (uint k = 0; k < a.group; k++) sum += bf_load(x, k);
    ((global float *)a.sums)[row * a.groups + group] = sum;
}

static inline float code_of(uint word, uint index, uint bits)
{
    if (bits == 16) return as_float(index == 0 ? word << 16 : word & 0xFFFF0000u);
    return (float)(word >> (index * bits) & ((1u << bits) - 1));
}

/* rows and bits are constants of each kernel. */
static inline void slice_run(const lw_xpu_linear_args *a, size_t first_row, uint rows, uint bits, float *sums)
{
    const uint lane = get_local_id(0), slice = get_local_id(1), per_word = 32 / bits;
    const uint words_of_group = a->weight.group / per_word;
    const global uint *words = (const global uint *)a->weight.words;
    const global uint *scales = (const global uint *)a->weight.scales;
    const uint begin = slice * a->weight.slice_groups;
    const uint end = min(begin + a->weight.slice_groups, a->weight.groups);
    /* Rows past the last one repeat it, and are not stored. */
    size_t row[LW_XPU_ROWS];
    for (uint r = 0; r < rows; r++) row[r] = min(first_row + r, (size_t)a->rows - 1);
    for (uint r = 0; r < rows; r++) sums[r] = 0.0f;
    for (uint group = begin; group < end; group++) {
        const size_t at = get_group_id(0) * (size_t)a->weight.groups + group;
        float dot[LW_XPU_ROWS];
        for (uint r = 0; r < rows; r++) dot[r] = 0.0f;
        for (uint w = 0; w < words_of_group; w++) {
            const uint word = words[(at * words_of_group + w) * LW_XPU_LANES + lane];
            const size_t k = (size_t)group * a->weight.group + w * per_word;
            for (uint i = 0; i < per_word; i++) {
                const float code = code_of(word, i, bits);
                for (uint r = 0; r < rows; r++) {
                    const float x = bf_load((const global ushort *)a->x, row[r] * a->x_stride + k + i);
                    dot[r] = fma(code, x, dot[r]);
                }
            }
        }
        if (bits == 16) {
            for (uint r = 0; r < rows; r++) sums[r] += dot[r];
            continue;
        }
        const uint pair = scales[at * LW_XPU_LANES + lane];
        const float scale = as_float(pair << 16), bias = as_float(pair & 0xFFFF0000u);
        for (uint r = 0; r < rows; r++) {
            const float sum_x = ((const global float *)a->sums)[row[r] * a->weight.groups + group];
            sums[r] = fma(scale, dot[r], fma(bias, sum_x, sums[r]));
        }
    }
}

static inline void y_store(const lw_xpu_linear_args *a, size_t row, size_t col, float value)
{
    if (row >= a->rows || col >= a->weight.rows) return;
    if (a->y_is_f32) ((global float *)a->y)[row * a->y_stride + col] = value;
    else ((global ushort *)a->y)[row * a->y_stride + col] = bf_of(value);
}

#define LINEAR(name, row_count, bit_count) \
    LW_KERNEL(name, lw_xpu_linear_args) \
    { \
        local float parts[LW_XPU_SLICES_MAX][row_count][LW_XPU_LANES]; \
        const uint lane = get_local_id(0), slice = get_local_id(1); \
        const size_t first_row = get_group_id(1) * row_count, col = get_global_id(0); \
        float sums[row_count]; \
        slice_run(&a, first_row, row_count, bit_count, sums); \
        for (uint r = 0; r < row_count; r++) parts[slice][r][lane] = sums[r]; \
        barrier(CLK_LOCAL_MEM_FENCE); \
        for (uint r = slice; r < row_count; r += a.weight.slices) { \
            float sum = parts[0][r][lane]; \
            for (uint s = 1; s < a.weight.slices; s++) sum += parts[s][r][lane]; \
            y_store(&a, first_row + r, col, sum); \
        } \
    }

LINEAR(linear4, 1, 4)
LINEAR(linear4_rows, LW_XPU_ROWS, 4)
LINEAR(linear8, 1, 8)
LINEAR(linear8_rows, LW_XPU_ROWS, 8)
LINEAR(linear16, 1, 16)
LINEAR(linear16_rows, LW_XPU_ROWS, 16)
