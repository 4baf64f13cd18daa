/* How the inner chains of floats and of int8 cut a call in tiles: what both do alike. Included by
 * linear.inc.h and linear_int8.inc.h.
 */
#ifndef LW_DEVICE_CPU_LINEAR_TILES_INC_H
#define LW_DEVICE_CPU_LINEAR_TILES_INC_H

#include "device/cpu/linear_values.inc.h"

enum {
    AHEAD_BYTES = 1024,   /* past the blocks that run side by side, how far codes are asked for */
    FAR_BYTES = 7168,     /* past that: wide weights, into the second-level cache */
    BLOCKS_MAX = LW__PANEL_BLOCKS,
    ROWS_KEPT_MAX = 48,   /* rows that share a decoded group: their sums stay in the first-level cache */
    DECODED_BYTES = 16 << 10, /* of decoded weights, which stay there too */
    PANEL_X_BYTES = 384 << 10, /* prepared rows that stay in the second-level cache while columns pass */
};

/* Asks for the next bytes of what lies ahead, where anything does, and returns what is left to ask for. Wide
 * weights need more lines under way than the first-level cache can wait for: the second-level one asks too.
 */
LINEAR_INLINE const uint8_t *ask_next(const uint8_t *ahead, size_t bytes, bool is_wide_form)
{
    if (ahead == NULL) return NULL;
    if (is_wide_form) ask_far(ahead + FAR_BYTES, bytes);
    ask_for(ahead, bytes);
    return ahead + bytes;
}

/* Stores the sums of some rows, acc (blocks, rows, LANES); first is the block of their first column. */
static void store_sums(const lw_cpu_linear_args *args, uint32_t first, uint32_t blocks, uint32_t row,
                       uint32_t rows, const float *acc)
{
    const uint32_t columns = args->weight->rows;
    for (uint32_t b = 0; b < blocks; b++) {
        const uint32_t col = (first + b) * LANES;
        if (col >= columns) return;
        const uint32_t count = columns - col < LANES ? columns - col : LANES;
        for (uint32_t r = 0; r < rows; r++)
            store_row(args, vector_of(args->y_rows, row + r), col, acc + (b * rows + r) * LANES, count);
    }
}

/* Rows of a tile when `left` are to come: the tallest that there is code for, but halves of what would leave
 * a short one behind, whose few chains would wait for each other. */
static uint32_t height_of(uint32_t left, uint32_t rows_max, bool (*has_height)(uint32_t rows))
{
    if (left >= 2 * rows_max) return rows_max;
    if (left <= rows_max && has_height(left)) return left;
    uint32_t rows = (left + 1) / 2;
    while (!has_height(rows)) rows++;
    return rows;
}

typedef uint32_t height_fn(const lw_cpu_linear_args *args, uint32_t row);

/* Rows that run together from `row` on: whole tiles whose prepared x, row_bytes each, stays in a cache. */
static uint32_t rows_together(const lw_cpu_linear_args *args, uint32_t row, size_t row_bytes,
                              height_fn *height)
{
    const size_t fit = PANEL_X_BYTES / row_bytes;
    const uint32_t most = fit < ROWS_KEPT_MAX ? (uint32_t)fit : ROWS_KEPT_MAX;
    uint32_t rows = height(args, row);
    while (row + rows < args->rows && rows + height(args, row + rows) <= most)
        rows += height(args, row + rows);
    return rows;
}

/* Blocks whose decoded groups, block_bytes each, are kept: whole pairs. */
static uint32_t blocks_kept(size_t block_bytes)
{
    const uint32_t fit = (uint32_t)(DECODED_BYTES / block_bytes) / LW__BLOCKS_UNIT * LW__BLOCKS_UNIT;
    return fit < LW__BLOCKS_UNIT ? LW__BLOCKS_UNIT : fit < BLOCKS_MAX ? fit : BLOCKS_MAX;
}

#endif
