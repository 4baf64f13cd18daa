/* The trace of `lanewise run --trace`; see trace.h. */
#include "cli/trace.h"

#include "base/float16.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

uint64_t lw_trace_hash(const float *values, size_t count)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < count; i++) {
        const uint32_t bits = lw_bits_of_float(values[i]);
        for (unsigned shift = 0; shift < 32; shift += 8) {
            hash ^= (bits >> shift) & 0xFFu;
            hash *= 0x100000001B3u;
        }
    }
    return hash;
}

static void print_row(void *context, const lw_op *op, const lw_value *value, uint32_t row,
                      const float *values)
{
    (void)context;
    double sum = 0.0;
    for (uint32_t i = 0; i < value->width; i++) sum += (double)values[i] * (double)values[i];
    fprintf(stderr, "layer %" PRIu32 " %s %s row %" PRIu32 " norm %.6g hash %016" PRIx64 "\n", op->layer,
            lw_op_table[op->kind].name, value->name, row, sqrt(sum),
            lw_trace_hash(values, value->width));
}

lw_trace lw_trace_printer(void)
{
    return (lw_trace){ .row = print_row };
}
