/* Text whose bytes remember where they came from.
 * A chat template writes trusted bytes; what arrived in a message, a tool result or an argument is outside
 * data. Only trusted bytes may match added tokens with special: true (DESIGN.md, Text). One origin byte
 * stands beside each text byte, so any cut, filter or method keeps the two in step.
 */
#ifndef LW_BASE_ORIGIN_H
#define LW_BASE_ORIGIN_H

#include "base/status.h"

enum { LW_ORIGIN_TRUSTED = 0, LW_ORIGIN_OUTSIDE = 1 };

/* A borrowed view. origins == NULL means that every byte is trusted. */
typedef struct lw_text {
    const char *bytes;
    const uint8_t *origins; /* [count] LW_ORIGIN_*, or NULL */
    size_t count;
} lw_text;

#endif
