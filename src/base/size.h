/* Arithmetic on sizes that came from outside: each returns false instead of wrapping. */
#ifndef LW_BASE_SIZE_H
#define LW_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>

static inline bool size_mul(size_t a, size_t b, size_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}
static inline bool size_add(size_t a, size_t b, size_t *sum) { return !__builtin_add_overflow(a, b, sum); }

/* a / b rounded up; b > 0. */
static inline size_t size_div_up(size_t a, size_t b) { return a / b + (a % b != 0); }

/* a rounded up to a multiple of b; b > 0; the caller knows that the result fits. */
static inline size_t size_round_up(size_t a, size_t b) { return size_div_up(a, b) * b; }

static inline size_t size_min(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t size_max(size_t a, size_t b) { return a > b ? a : b; }

#endif
