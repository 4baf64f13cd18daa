/* The linear op of the cpu device in plain C; see linear.inc.h. */
#include "device/cpu/linear_kernels.h"

#define LW_LINEAR(name) lw__cpu_generic_linear_##name
#include "device/cpu/linear.inc.h"
