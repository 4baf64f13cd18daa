/* OpenCL C's built-ins for x86-64, put in front of every kernel file that is compiled for the emulated
 * device: as many as the kernels use. clang's own OpenCL header has the prototypes.
 */
#include "emulated_glue.h"

/* Every file has them, so that they are compiled into their callers; the linker keeps one of each. */
#define OVER __attribute__((overloadable))

size_t OVER get_local_id(uint d) { return lw_emulated_local_id(d); }
size_t OVER get_group_id(uint d) { return lw_emulated_group_id(d); }
size_t OVER get_local_size(uint d) { return lw_emulated_local_size(d); }
size_t OVER get_num_groups(uint d) { return lw_emulated_group_count(d); }
size_t OVER get_global_id(uint d)
{
    return (size_t)lw_emulated_group_id(d) * lw_emulated_local_size(d) + lw_emulated_local_id(d);
}
void OVER barrier(cl_mem_fence_flags flags) { lw_emulated_barrier(); }

/* A reduction's order is the implementation's: this one starts at the last lane, so that a result which
 * leans on another order shows. */
#define SLOT(type, slots, lane) (*(const type *)((const char *)(slots) + 64 * (lane)))
float OVER sub_group_reduce_add(float x)
{
    const void *slots = lw_emulated_exchange(&x, sizeof x);
    float sum = SLOT(float, slots, 15);
    for (int lane = 14; lane >= 0; lane--) sum += SLOT(float, slots, lane);
    return sum;
}
float OVER sub_group_broadcast(float x, uint lane)
{
    return SLOT(float, lw_emulated_exchange(&x, sizeof x), lane);
}
float OVER intel_sub_group_shuffle_xor(float x, uint mask)
{
    const uint lane = lw_emulated_local_id(0) % 16;
    return SLOT(float, lw_emulated_exchange(&x, sizeof x), lane ^ mask);
}

float OVER fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
float8 OVER fma(float8 a, float8 b, float8 c)
{
    for (int i = 0; i < 8; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
}
uint4 OVER select(uint4 a, uint4 b, int4 which)
{
    for (int i = 0; i < 4; i++) a[i] = which[i] < 0 ? b[i] : a[i];
    return a;
}
uint4 OVER vload4(size_t at, const global uint *p)
{
    p += 4 * at;
    return (uint4)(p[0], p[1], p[2], p[3]);
}
float OVER sqrt(float x) { return __builtin_sqrtf(x); }
float OVER fmax(float a, float b) { return __builtin_fmaxf(a, b); }
float expf(float x);
float OVER exp(float x) { return expf(x); }
uint OVER min(uint a, uint b) { return a < b ? a : b; }
ulong OVER min(ulong a, ulong b) { return a < b ? a : b; }
uint OVER max(uint a, uint b) { return a > b ? a : b; }

/* The device calls a kernel with the address of its argument. */
#define LW_KERNEL(name, args) \
    kernel void lw_##name(args a); \
    void lw_call_lw_##name(const args *a); \
    void lw_call_lw_##name(const args *a) { lw_##name(*a); } \
    constant uint lw_bytes_lw_##name = sizeof(args); \
    kernel void lw_##name(args a)
