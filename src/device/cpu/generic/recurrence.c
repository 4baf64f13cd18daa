/* The recurrences of the cpu device in plain C; see recurrence.inc.h. */
#define LW_ROW(name) lw__cpu_generic_##name
#include "device/cpu/recurrence.inc.h"
