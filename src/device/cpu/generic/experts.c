/* Routing and summing of experts of the cpu device in plain C; see experts.inc.h. */
#define LW_ROW(name) lw__cpu_generic_##name
#include "device/cpu/experts.inc.h"
