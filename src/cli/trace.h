/* Prints every row of every op of a forward to stderr, for finding where two runs part. */
#ifndef LW_CLI_TRACE_H
#define LW_CLI_TRACE_H

#include "model/checkpoint.h"
#include "device/device.h"

/* Lines "layer op value row norm hash"; equal bits give equal lines. */
lw_trace lw_trace_printer(void);

/* FNV-1a over the bits of values[0, count). */
uint64_t lw_trace_hash(const float *values, size_t count);

#endif
