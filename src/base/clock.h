/* Monotonic time. Passed as values, so that tests can use times of their own. */
#ifndef LW_BASE_CLOCK_H
#define LW_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds since some fixed moment; never goes back. */
static inline uint64_t lw_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif
