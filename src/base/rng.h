/* Seeded random numbers for tests, benchmarks and synthetic weights. Not for sampling tokens: that is
 * lane/sample. splitmix64 (Steele, Lea, Flood 2014): one 64-bit state, every seed is good.
 */
#ifndef LW_BASE_RNG_H
#define LW_BASE_RNG_H

#include <stdint.h>

typedef struct lw_rng {
    uint64_t state;
} lw_rng;

/* The splitmix64 finaliser: a bijection of 64-bit words whose output bits all depend on all input bits. */
static inline uint64_t lw_rng_mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static inline lw_rng lw_rng_make(uint64_t seed)
{
    return (lw_rng){ .state = seed };
}

static inline uint64_t lw_rng_next(lw_rng *rng)
{
    rng->state += 0x9E3779B97F4A7C15u;
    return lw_rng_mix(rng->state);
}

/* Uniform in [0, bound); bound > 0. The bias is below bound / 2^64. */
static inline uint64_t lw_rng_below(lw_rng *rng, uint64_t bound)
{
    return (uint64_t)(((unsigned __int128)lw_rng_next(rng) * bound) >> 64);
}

/* Uniform in [0, 1) with 53 bits. */
static inline double lw_rng_unit(lw_rng *rng)
{
    return (double)(lw_rng_next(rng) >> 11) * 0x1p-53;
}

/* Roughly normal with mean 0 and variance 1: a sum of twelve uniforms, bounded by 6. */
static inline float lw_rng_normal(lw_rng *rng)
{
    double sum = -6.0;
    for (int i = 0; i < 12; i++) sum += lw_rng_unit(rng);
    return (float)sum;
}

#endif
