/* The attention of the cpu device in plain C; see attention.inc.h. */
#define LW_ROW(name) lw__cpu_generic_##name
#include "device/cpu/attention.inc.h"
