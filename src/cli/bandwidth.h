/* How fast this machine's memory is read by a number of threads: the measure against which decoding is held.
 */
#ifndef LW_CLI_BANDWIDTH_H
#define LW_CLI_BANDWIDTH_H

#include "base/status.h"

/* The sum, modulo 2^64, of the 64-bit words of [at, at + bytes), a multiple of LW_BANDWIDTH_UNIT that begins
 * at a line: read as fast as one thread can, by wide loads that are asked for ahead. */
enum { LW_BANDWIDTH_UNIT = 128 };
uint64_t lw_bandwidth_read(const void *at, size_t bytes);

/* Reads a buffer larger than caches a few times with threads like the engine's (0: all cores); the fastest
 * pass. */
lw_status lw_bandwidth_measure(uint32_t threads, double *bytes_per_second, lw_diag *d) LW_MUST_USE;

#endif
