/* The xpu kernels' own exp, sigmoid, silu and softplus against FP64: their source as C, whose float has the
 * same operations.
 */
#include "base/float16.h"

#include <math.h>

typedef unsigned int uint;
static inline float as_float(uint bits) { return lw_float_of_bits(bits); }
static inline uint as_uint(float x) { return lw_bits_of_float(x); }
static inline int as_int(float x) { return (int)lw_bits_of_float(x); }
#define fma fmaf /* OpenCL C's takes the type of its arguments */

#include "device/xpu/kernels/lw_math.h"

#define sigmoid_of sigmoid
#define silu_of silu
#define log1p_of log1p_unit
#define softplus_of softplus

#include "math_of_device.h"

int main(void)
{
    const struct CMUnitTest tests[] = { MATH_OF_DEVICE_TESTS };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
