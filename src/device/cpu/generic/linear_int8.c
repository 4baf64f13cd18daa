/* The linear op of an int8 x in plain C; see linear_int8.inc.h. */
#define LW_INT8 lw__cpu_generic_int8
#include "device/cpu/linear_int8.inc.h"
