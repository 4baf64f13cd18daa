/* Products of a few rows of coefficients with a matrix of fp32, for one instruction set: each element of the
 * result is one chain of fma, steps ascending, however rows and lanes are blocked. Included by kernels' text
 * after simd_math.h.
 */
#ifndef LW_DEVICE_CPU_PRODUCT_INC_H
#define LW_DEVICE_CPU_PRODUCT_INC_H

enum { PRODUCT_ROWS = 6 };  /* that share one load of the matrix */

/* out[row][lane] = from[row][lane] * fades[row] + coefs[row][step] * m[step][lane], steps [begin, end)
 * ascending. */
typedef struct product {
    const float *m;     size_t m_stride;
    const float *coefs; size_t coef_stride;
    const float *from;                          /* as far apart as out, and may be it; NULL: 0 */
    const float *fades; size_t fade_stride;     /* NULL: 1 */
    float *out;         size_t out_stride;
    size_t begin, end, lanes, rows;
} product;

/* What the chains of a vector start from; at counts floats from out's first. */
SIMD_INLINE simd_f product_start(const product *p, size_t row, size_t at, size_t count)
{
    if (p->from == NULL) return simd_set(0.0f);
    const simd_f from = simd_load_some(p->from + at, count);
    return p->fades == NULL ? from : simd_mul(from, simd_set(p->fades[row * p->fade_stride]));
}

/* rows x vectors chains from lane on, all in registers. A short last vector touches no lane past the end. */
SIMD_INLINE void product_block(const product *p, size_t row, size_t lane, int rows, int vectors, bool some)
{
    const size_t count = p->lanes - lane, m_stride = p->m_stride;
    const size_t coef_stride = p->coef_stride, out_stride = p->out_stride;
    const float *m = p->m + lane, *coefs = p->coefs + row * coef_stride;
    float *out = p->out + row * out_stride + lane;
    simd_f sums[PRODUCT_ROWS][4], values[4];
    SIMD_UNROLL
    for (int r = 0; r < rows; r++) {
        SIMD_UNROLL
        for (int v = 0; v < vectors; v++) {
            const size_t at = (row + (size_t)r) * out_stride + lane + (size_t)v * SIMD_WIDTH;
            sums[r][v] = product_start(p, row + (size_t)r, at, some ? count : SIMD_WIDTH);
        }
    }
    for (size_t step = p->begin; step < p->end; step++) {
        SIMD_UNROLL
        for (int v = 0; v < vectors; v++) {
            const float *from = m + step * m_stride + (size_t)v * SIMD_WIDTH;
            values[v] = some ? simd_load_some(from, count) : simd_load(from);
        }
        SIMD_UNROLL
        for (int r = 0; r < rows; r++) {
            const simd_f coef = simd_set(coefs[(size_t)r * coef_stride + step]);
            SIMD_UNROLL
            for (int v = 0; v < vectors; v++) sums[r][v] = simd_fma(coef, values[v], sums[r][v]);
        }
    }
    SIMD_UNROLL
    for (int r = 0; r < rows; r++) {
        SIMD_UNROLL
        for (int v = 0; v < vectors; v++) {
            float *to = out + (size_t)r * out_stride + v * SIMD_WIDTH;
            if (some) simd_store_some(to, sums[r][v], count);
            else simd_store(to, sums[r][v]);
        }
    }
}

/* All lanes of a few rows. One or two rows take more vectors, which keeps enough chains in flight. */
SIMD_INLINE void product_rows(const product *p, size_t row, int rows)
{
    const size_t lanes = p->lanes;
    size_t lane = 0;
    if (rows <= 2) {
        for (; lanes - lane >= 4 * SIMD_WIDTH; lane += 4 * SIMD_WIDTH) {
            product_block(p, row, lane, rows, 4, false);
        }
    }
    for (; lanes - lane >= 2 * SIMD_WIDTH; lane += 2 * SIMD_WIDTH) {
        product_block(p, row, lane, rows, 2, false);
    }
    if (lanes - lane >= SIMD_WIDTH) {
        product_block(p, row, lane, rows, 1, false);
        lane += SIMD_WIDTH;
    }
    if (lane < lanes) product_block(p, row, lane, rows, 1, true);
}

static void product_run(const product *p)
{
    size_t row = 0;
    for (; row + PRODUCT_ROWS <= p->rows; row += PRODUCT_ROWS) product_rows(p, row, PRODUCT_ROWS);
    switch (p->rows - row) {
    case 5: product_rows(p, row, 5); break;
    case 4: product_rows(p, row, 4); break;
    case 3: product_rows(p, row, 3); break;
    case 2: product_rows(p, row, 2); break;
    case 1: product_rows(p, row, 1); break;
    default: break;
    }
}

#endif
