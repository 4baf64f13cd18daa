/* Part of emulated_builtins.h: numbers, vectors in memory, atomics. */
#ifndef TESTS_XPU_EMULATED_NUMBERS_H
#define TESTS_XPU_EMULATED_NUMBERS_H

#define HALVES1(name, type) \
    type##2 OVER name(type##2 a) { return (type##2)(name(a.x), name(a.y)); } \
    type##4 OVER name(type##4 a) { return (type##4)(name(a.lo), name(a.hi)); } \
    type##8 OVER name(type##8 a) { return (type##8)(name(a.lo), name(a.hi)); }
#define HALVES2(name, type) \
    type##2 OVER name(type##2 a, type##2 b) { return (type##2)(name(a.x, b.x), name(a.y, b.y)); } \
    type##4 OVER name(type##4 a, type##4 b) { return (type##4)(name(a.lo, b.lo), name(a.hi, b.hi)); } \
    type##8 OVER name(type##8 a, type##8 b) { return (type##8)(name(a.lo, b.lo), name(a.hi, b.hi)); }

float OVER fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
float4 OVER fma(float4 a, float4 b, float4 c) { return __builtin_ia32_vfmaddps(a, b, c); }
float8 OVER fma(float8 a, float8 b, float8 c) { return __builtin_ia32_vfmaddps256(a, b, c); }
float2 OVER fma(float2 a, float2 b, float2 c) { return (float2)(fma(a.x, b.x, c.x), fma(a.y, b.y, c.y)); }
float16 OVER fma(float16 a, float16 b, float16 c)
{
    return (float16)(fma(a.lo, b.lo, c.lo), fma(a.hi, b.hi, c.hi));
}
uint8 OVER convert_uint8(uchar8 x) { return __builtin_convertvector(x, uint8); }
float OVER sqrt(float x) { return __builtin_sqrtf(x); }
float OVER fabs(float x) { return __builtin_fabsf(x); }
float OVER floor(float x) { return __builtin_floorf(x); }
float OVER rint(float x) { return __builtin_rintf(x); }
float OVER fmax(float a, float b) { return __builtin_fmaxf(a, b); }
float OVER fmin(float a, float b) { return __builtin_fminf(a, b); }
float OVER ldexp(float x, int e) { return __builtin_ldexpf(x, e); }
int OVER isnan(float x) { return __builtin_isnan(x); }
float expf(float x);
float OVER exp(float x) { return expf(x); }
float logf(float x);
float OVER log(float x) { return logf(x); }
HALVES1(fabs, float)
HALVES2(fmax, float)
HALVES2(fmin, float)

#define ORDERED(type) \
    type OVER min(type a, type b) { return a < b ? a : b; } \
    type OVER max(type a, type b) { return a > b ? a : b; } \
    type OVER clamp(type x, type low, type high) { return min(max(x, low), high); }
ORDERED(int)
ORDERED(uint)
ORDERED(long)
ORDERED(ulong)
uint4 OVER select(uint4 a, uint4 b, int4 which)
{
    for (int i = 0; i < 4; i++) a[i] = which[i] < 0 ? b[i] : a[i];
    return a;
}
uint OVER popcount(uint x) { return (uint)__builtin_popcount(x); }
uint OVER clz(uint x) { return x == 0 ? 32 : (uint)__builtin_clz(x); }

#define VECTOR_MEMORY(type, n, space) \
    type##n OVER vload##n(size_t at, const space type *p) \
    { \
        type##n v; \
        for (uint i = 0; i < n; i++) v[i] = p[at * n + i]; \
        return v; \
    }
#define VECTOR_STORE(type, n, space) \
    void OVER vstore##n(type##n v, size_t at, space type *p) \
    { \
        for (uint i = 0; i < n; i++) p[at * n + i] = v[i]; \
    }
#define VECTORS(type, n) \
    VECTOR_MEMORY(type, n, global) \
    VECTOR_MEMORY(type, n, local) \
    VECTOR_STORE(type, n, global) \
    VECTOR_STORE(type, n, local)
#define VECTORS_OF(type) VECTORS(type, 2) VECTORS(type, 4) VECTORS(type, 8) VECTORS(type, 16)
VECTORS_OF(uchar)
VECTORS_OF(ushort)
VECTORS_OF(uint)
VECTORS_OF(float)

#define ATOMICS(type, space) \
    type OVER atomic_add(volatile space type *p, type v) \
    { \
        return __atomic_fetch_add((volatile type *)p, v, __ATOMIC_RELAXED); \
    } \
    type OVER atomic_inc(volatile space type *p) { return atomic_add(p, (type)1); } \
    type OVER atomic_max(volatile space type *p, type v) \
    { \
        return __atomic_fetch_max((volatile type *)p, v, __ATOMIC_RELAXED); \
    }
ATOMICS(int, global)
ATOMICS(uint, global)
ATOMICS(int, local)
ATOMICS(uint, local)

#endif
