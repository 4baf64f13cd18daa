/* The linear kernels of tiles (AMX) over the emulated tiles of tile_ops.h, and those tiles' product by
 * itself: they run wherever AVX-512 does. */
#ifndef LW_TESTS_FAKE_CPU_TILES_H
#define LW_TESTS_FAKE_CPU_TILES_H

#include "device/cpu/kernels.h"

void fake_tiles_linear_prepare(const lw_cpu_linear_args *args, unsigned part, unsigned parts);
void fake_tiles_linear_run(const lw_cpu_linear_args *args, unsigned part, unsigned parts);
void fake_tiles_linear_blocks(const lw_cpu_linear_args *args, uint32_t begin, uint32_t end);

/* sums (rows, 16) += a (rows, step) times b (step / 2, 16 pairs), as TILE_DOT does. */
void fake_tiles_product(float *sums, const uint16_t *a, const uint16_t *b, uint32_t rows, uint32_t step);

#endif
