/* The row kernels of the cpu device in plain C; see rows.inc.h. */
#define LW_ROW(name) lw__cpu_generic_##name
#include "device/cpu/rows.inc.h"
