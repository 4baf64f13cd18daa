/* Tiles of up to 16 rows of 64 bytes, and what a CPU with AMX does with them. Who defines these before may do
 * the same in C, so that the very kernels run on any machine. The numbers of tiles are literals, 0 to 7.
 *
 * TILE_DOT(c, a, b), TDPBF16PS: a holds rows of bf16 along k, b a row of fp32-sized pairs (k, k + 1) for
 * every two k, c fp32 sums. For each row and column, from 0: even = fma(a[k], b[k], even) over the even k
 * ascending, odd likewise, then c += even + odd. Every step rounds to nearest even; subnormal inputs and
 * results are zeros, in any mode of the thread. A row of c depends on that row of a alone.
 */
#ifndef LW_DEVICE_CPU_TILE_OPS_H
#define LW_DEVICE_CPU_TILE_OPS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { TILE_COUNT = 8, TILE_ROWS = 16, TILE_BYTES = 64, TILE_LANES = 16 };

/* What LDTILECFG reads. */
typedef struct tile_config {
    uint8_t palette, start_row, zeros[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;
_Static_assert(sizeof(tile_config) == 64, "the instruction reads 64 bytes");

/* Tiles 0 to 3 are sums of `height` rows, 4 and 5 hold `height` rows of step columns, 6 and 7 the step
 * columns of 16 outputs. */
static inline tile_config tile_config_of(uint32_t height, uint32_t step)
{
    tile_config config = { .palette = 1 };
    for (int i = 0; i < TILE_COUNT; i++) {
        config.row_bytes[i] = (uint16_t)(i == 4 || i == 5 ? 2 * step : TILE_BYTES);
        config.rows[i] = (uint8_t)(i < 6 ? height : step / 2);
    }
    return config;
}

#if !defined(TILE_DOT)
#define TILES_BEGIN(config) __asm__ volatile("ldtilecfg %0" : : "m"(*(config)))
#define TILES_END() __asm__ volatile("tilerelease" : : : "memory")

/* Compilers keep these in their order, and move no access to memory past those that have one. */
#define TILE_ZERO(t) __asm__ volatile("tilezero %%tmm" #t : :)
#define TILE_LOAD(t, from, stride) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t : : "r"(from), "r"((size_t)(stride)) : "memory")
#define TILE_STORE(t, to, stride) \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" : : "r"(to), "r"((size_t)(stride)) : "memory")
#define TILE_DOT(c, a, b) \
    __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)
#endif

#endif
