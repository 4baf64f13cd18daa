/* Part of emulated_builtins.h: what Xe2 and pvc have and Gen12LP lacks, the matrix engine and two-dimensional
 * block reads. A kernel that uses them declares them itself, since the compilers' headers do not.
 */
#ifndef TESTS_XPU_EMULATED_MATRIX_H
#define TESTS_XPU_EMULATED_MATRIX_H

static inline void matrix_check(void)
{
    if (!lw_emulated_here->has_matrix) lw_emulated_fail("this device has no matrix engine");
}

static inline float float_of_bf16(ushort bits) { return as_float((uint)bits << 16); }

/* Lane n holds column n of b (8 words, each two values of k, the even one low) and of c; lane k holds column
 * k of a, one value a row. Each sum is one fma chain over k, then added to c: hardware's order is its own. */
#define BF16_MAD(rows) \
    float##rows OVER intel_sub_group_bf16_bf16_matrix_mad_k16(short##rows a, int8 b, float##rows c) \
    { \
        matrix_check(); \
        const void *slots = lw_emulated_exchange(&a, sizeof a); \
        float##rows sums = 0; \
        for (uint k = 0; k < 16; k++) { \
            const uint##rows left = __builtin_convertvector(SLOT(ushort##rows, slots, k), uint##rows) << 16; \
            const float right = float_of_bf16((ushort)((uint)b[k / 2] >> (16 * (k % 2)))); \
            sums = fma(as_float##rows(left), (float##rows)(right), sums); \
        } \
        return c + sums; \
    }
BF16_MAD(2)
BF16_MAD(4)
BF16_MAD(8)

/* The same with four values of k in a word, and two in a lane of a. */
#define I8_MAD(rows) \
    int##rows OVER intel_sub_group_i8_i8_matrix_mad_k32(short##rows a, int8 b, int##rows c) \
    { \
        matrix_check(); \
        const void *slots = lw_emulated_exchange(&a, sizeof a); \
        for (uint r = 0; r < rows; r++) { \
            for (uint k = 0; k < 32; k++) { \
                const char right = (char)((uint)b[k / 4] >> (8 * (k % 4))); \
                const char left = (char)((ushort)SLOT(short##rows, slots, k / 2)[r] >> (8 * (k % 2))); \
                c[r] += (int)left * (int)right; \
            } \
        } \
        return c; \
    }
I8_MAD(2)
I8_MAD(4)
I8_MAD(8)

/* A surface: bytes of a row, rows and bytes from row to row, each less one. What lies outside reads zero. */
static inline ushort surface_at(long base, int3 less_one, int col, int row)
{
    if (col < 0 || row < 0 || 2 * col + 1 > less_one.x || row > less_one.y) return 0;
    return *(const global ushort *)(base + (long)row * (less_one.z + 1) + 2 * col);
}

static inline void surface_check(long base, int3 less_one)
{
    matrix_check();
    if (base % 64 != 0 || less_one.x + 1 < 64 || (less_one.z + 1) % 16 != 0 || less_one.z < less_one.x)
        lw_emulated_fail("a two-dimensional block read of a surface that is not aligned");
}

/* Lane l has column l of the block, one value a row. */
#define SURFACE_READ(rows) \
    ushort##rows __builtin_IB_subgroup_block_read_flat_u16_m##rows##k16v1(long base, int width, int height, \
                                                                         int pitch, int2 at) \
    { \
        ushort##rows v; \
        surface_check(base, (int3)(width, height, pitch)); \
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
    surface_check(base, less_one);
    for (int i = 0; i < 8; i++) {
        const int col = at.x + (int)get_sub_group_local_id(), row = at.y + 2 * i;
        v[i] = surface_at(base, less_one, col, row) | surface_at(base, less_one, col, row + 1) << 16;
    }
    return v;
}

#endif
