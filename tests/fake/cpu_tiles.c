/* Tiles in C, and the kernels over them; see cpu_tiles.h and tile_ops.h. Subnormals are zeros in the mode of
 * lw__cpu_denormals_off, which kernels of tiles run in.
 */
#include "cpu_tiles.h"

#if defined(__x86_64__)
#define TILE_DOT(c, a, b) tile_dot(c, a, b)
#define TILE_ZERO(t) tile_zero(t)
#define TILE_LOAD(t, from, stride) tile_load(t, from, stride)
#define TILE_STORE(t, to, stride) tile_store(t, to, stride)
#define TILES_BEGIN(config) tiles_begin(config)
#define TILES_END() tiles_end()
#include "device/cpu/tile_ops.h"

typedef struct tile_state {
    tile_config config;
    uint8_t bytes[TILE_COUNT][TILE_ROWS][TILE_BYTES];
} tile_state;
static _Thread_local tile_state tiles_here;

static void tiles_begin(const tile_config *config)
{
    memset(&tiles_here, 0, sizeof tiles_here);
    tiles_here.config = *config;
}

static void tiles_end(void)
{
    memset(&tiles_here, 0, sizeof tiles_here);
}

static void tile_zero(int t)
{
    memset(tiles_here.bytes[t], 0, sizeof tiles_here.bytes[t]);
}

static void tile_load(int t, const void *from, size_t stride)
{
    tile_zero(t);
    for (size_t r = 0; r < tiles_here.config.rows[t]; r++)
        memcpy(tiles_here.bytes[t][r], (const uint8_t *)from + r * stride, tiles_here.config.row_bytes[t]);
}

static void tile_store(int t, void *to, size_t stride)
{
    for (size_t r = 0; r < tiles_here.config.rows[t]; r++)
        memcpy((uint8_t *)to + r * stride, tiles_here.bytes[t][r], tiles_here.config.row_bytes[t]);
}

/* sums += what half the pairs of a row of b hold times one bf16 of a; shift says which half. */
static void tile_fma(float *sums, uint32_t value, const uint32_t *pairs, unsigned shift)
{
    float one;
    value = value >> shift << 16;
    memcpy(&one, &value, sizeof one);
    for (int n = 0; n < TILE_LANES; n++) {
        const uint32_t bits = pairs[n] >> shift << 16;
        float weight;
        memcpy(&weight, &bits, sizeof weight);
        sums[n] = __builtin_fmaf(one, weight, sums[n]);
    }
}

static void tile_dot(int c, int a, int b)
{
    const size_t steps = tiles_here.config.row_bytes[a] / sizeof(uint32_t);
    for (size_t m = 0; m < tiles_here.config.rows[c]; m++) {
        float even[TILE_LANES] = { 0 }, odd[TILE_LANES] = { 0 }, sums[TILE_LANES];
        uint32_t values[TILE_LANES], pairs[TILE_LANES];
        memcpy(values, tiles_here.bytes[a][m], sizeof values);
        memcpy(sums, tiles_here.bytes[c][m], sizeof sums);
        for (size_t k = 0; k < steps; k++) {
            memcpy(pairs, tiles_here.bytes[b][k], sizeof pairs);
            tile_fma(even, values[k], pairs, 0);
            tile_fma(odd, values[k], pairs, 16);
        }
        for (int n = 0; n < TILE_LANES; n++) sums[n] += even[n] + odd[n];
        memcpy(tiles_here.bytes[c][m], sums, sizeof sums);
    }
}

#define LW_LINEAR(name) fake_tiles_linear_##name
#include "device/cpu/linear_amx.inc.h"

void fake_tiles_product(float *sums, const uint16_t *a, const uint16_t *b, uint32_t rows, uint32_t step)
{
    const tile_config config = tile_config_of(rows, step);
    TILES_BEGIN(&config);
    TILE_LOAD(0, sums, TILE_BYTES);
    TILE_LOAD(4, a, step * sizeof *a);
    TILE_LOAD(6, b, TILE_BYTES);
    TILE_DOT(0, 4, 6);
    TILE_STORE(0, sums, TILE_BYTES);
    TILES_END();
}
#endif
