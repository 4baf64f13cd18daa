/* Large aligned memory, in huge pages where the system gives them: weights are read once per round from end
 * to end, and small pages would spend that time in address translation.
 */
#ifndef LW_DEVICE_CPU_HUGE_H
#define LW_DEVICE_CPU_HUGE_H

#include <stddef.h>

/* bytes zeroed bytes, aligned to 64 or better; NULL when the system has none or bytes is 0. */
void *lw_huge_make(size_t bytes);
/* Accepts NULL; bytes as given to make. */
void lw_huge_free(void *memory, size_t bytes);

#endif
