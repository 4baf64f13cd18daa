/* Part of emulated_builtins.h: what Xe2 and pvc have and Gen12LP lacks, the matrix engine and two-dimensional
 * block reads. A kernel that uses them declares them itself, since the compilers' headers do not.
 */
#ifndef TESTS_XPU_EMULATED_MATRIX_H
#define TESTS_XPU_EMULATED_MATRIX_H

static inline void matrix_check(void)
{
    if (!lw_emulated_here->has_matrix) lw_emulated_fail("this device has no matrix engine");
}

/* Lane n holds column n of b (8 words, each two values of k, the even one low) and of c; lane k holds column
 * k of a, one value a row. Each sum is one fma chain over k, then added to c: hardware's order is its own.
 * The lane that comes last multiplies for all: 16 chains keep the processor busy where one would wait.
 */
typedef struct bf16_slots {
    float8 left[16], sums[16];
    float right[16][16];        /* lane, k */
} bf16_slots;

static inline void bf16_chains(bf16_slots *s, uint lane)
{
    float8 sums[8] = { 0 };
    for (uint k = 0; k < 16; k++) {
        _Pragma("unroll") for (uint i = 0; i < 8; i++)
            sums[i] = fma(s->left[k], (float8)(s->right[lane + i][k]), sums[i]);
    }
    for (uint i = 0; i < 8; i++) s->sums[lane + i] = sums[i];
}

static inline float8 bf16_dots(ushort8 a, int8 b)
{
    const uint lane = get_sub_group_local_id();
    bf16_slots *s = (bf16_slots *)lw_emulated_here->item->slots;
    matrix_check();
    s->left[lane] = as_float8(__builtin_convertvector(a, uint8) << 16);
    const float8 even = as_float8(as_uint8(b) << 16), odd = as_float8(as_uint8(b) & 0xFFFF0000u);
    for (uint i = 0; i < 8; i++) {
        s->right[lane][2 * i] = even[i];
        s->right[lane][2 * i + 1] = odd[i];
    }
    lw_emulated_meet();
    if (lw_emulated_here->is_last) {
        bf16_chains(s, 0);
        bf16_chains(s, 8);
    }
    return s->sums[lane];
}
float8 OVER intel_sub_group_bf16_bf16_matrix_mad_k16(short8 a, int8 b, float8 c)
{
    return c + bf16_dots(as_ushort8(a), b);
}
float4 OVER intel_sub_group_bf16_bf16_matrix_mad_k16(short4 a, int8 b, float4 c)
{
    return c + bf16_dots((ushort8)(as_ushort4(a), 0, 0, 0, 0), b).lo;
}
float2 OVER intel_sub_group_bf16_bf16_matrix_mad_k16(short2 a, int8 b, float2 c)
{
    return c + bf16_dots((ushort8)(as_ushort2(a), 0, 0, 0, 0, 0, 0), b).lo.lo;
}

/* The same with four values of k in a word, and two in a lane of a: halfwords, multiplied and added in pairs.
 */
typedef struct i8_slots {
    int8 left[16], sums[16];
    int right[16][16];
} i8_slots;

static inline int low_pair(short first, short second) { return (first & 0xFFFF) | second << 16; }

static inline int8 i8_dots(short8 a, int8 b)
{
    const uint lane = get_sub_group_local_id();
    const char *bytes = (const char *)&b;
    i8_slots *s = (i8_slots *)lw_emulated_here->item->slots;
    matrix_check();
    for (uint r = 0; r < 8; r++) s->left[lane][r] = low_pair((char)a[r], a[r] >> 8);
    for (uint i = 0; i < 16; i++) s->right[lane][i] = low_pair(bytes[2 * i], bytes[2 * i + 1]);
    lw_emulated_meet();
    for (uint n = 0; n < 16 && lw_emulated_here->is_last; n++) {
        int8 sums = 0;
        for (uint i = 0; i < 16; i++) {
            const short16 right = as_short16((int8)(s->right[n][i]));
            sums += as_int8(__builtin_ia32_pmaddwd256(as_short16(s->left[i]), right));
        }
        s->sums[n] = sums;
    }
    return s->sums[lane];
}
int8 OVER intel_sub_group_i8_i8_matrix_mad_k32(short8 a, int8 b, int8 c) { return c + i8_dots(a, b); }
int4 OVER intel_sub_group_i8_i8_matrix_mad_k32(short4 a, int8 b, int4 c)
{
    return c + i8_dots((short8)(a, 0, 0, 0, 0), b).lo;
}
int2 OVER intel_sub_group_i8_i8_matrix_mad_k32(short2 a, int8 b, int2 c)
{
    return c + i8_dots((short8)(a, 0, 0, 0, 0, 0, 0), b).lo.lo;
}

/* A surface: bytes of a row, rows and bytes from row to row, each less one. What lies outside reads zero. */
static inline ushort surface_at(long base, int3 less_one, int col, int row)
{
    if (col < 0 || row < 0 || 2 * col + 1 > less_one.x || row > less_one.y) return 0;
    return *(const global ushort *)(base + (long)row * (less_one.z + 1) + 2 * col);
}

static inline void surface_check(long base, int3 less_one, int2 at)
{
    matrix_check();
    trace_add((ulong)base);
    trace_add((ulong)(uint)at.x << 32 | (uint)at.y);
    if (base % 64 != 0 || less_one.x + 1 < 64 || (less_one.z + 1) % 16 != 0 || less_one.z < less_one.x)
        lw_emulated_fail("a two-dimensional block read of a surface that is not aligned");
}

/* Lane l has column l of the block, one value a row. */
#define SURFACE_READ(rows) \
    ushort##rows __builtin_IB_subgroup_block_read_flat_u16_m##rows##k16v1(long base, int width, int height, \
                                                                         int pitch, int2 at) \
    { \
        ushort##rows v; \
        surface_check(base, (int3)(width, height, pitch), at); \
        for (int r = 0; r < rows; r++) \
            v[r] = surface_at(base, (int3)(width, height, pitch), \
                              at.x + (int)get_sub_group_local_id(), at.y + r); \
        return v; \
    }
SURFACE_READ(2)
SURFACE_READ(4)
SURFACE_READ(8)

/* 16 rows as the b of a matrix_mad: two rows a word. */
int8 __builtin_IB_subgroup_block_read_flat_transform_u16_k16(long base, int width, int height, int pitch,
                                                             int2 at)
{
    int8 v;
    const int3 less_one = (int3)(width, height, pitch);
    surface_check(base, less_one, at);
    for (int i = 0; i < 8; i++) {
        const int col = at.x + (int)get_sub_group_local_id(), row = at.y + 2 * i;
        v[i] = surface_at(base, less_one, col, row) | surface_at(base, less_one, col, row + 1) << 16;
    }
    return v;
}

#endif
