/* The prepare half of linear_int8.inc.h, which includes it: x as whole multiples of a scale for each group.
 */
#ifndef LW_DEVICE_CPU_LINEAR_INT8_PREPARE_INC_H
#define LW_DEVICE_CPU_LINEAR_INT8_PREPARE_INC_H

#define LEAST 0x1p-110f /* the inverse of a smaller d is not a number */

static int32_t largest_of(const int32_t lanes[LANES])
{
    int32_t most = lanes[0];
    for (int i = 1; i < LANES; i++) most = lanes[i] > most ? lanes[i] : most;
    return most;
}

static int32_t sum_of(const int32_t lanes[LANES])
{
    int32_t sum = 0;
    for (int i = 0; i < LANES; i++) sum += lanes[i];
    return sum;
}

/* The bits of the largest magnitude: those of floats are ordered as they are, NaN above all. */
static uint32_t largest_bits(const float *values, uint32_t count)
{
    int32_t lanes[LANES];
    vi most = vi_zero();
    for (uint32_t k = 0; k < count; k += LANES) most = vi_max(most, vi_and(vi_load(values + k), 0x7FFFFFFFu));
    vi_store(lanes, most);
    return (uint32_t)largest_of(lanes);
}

/* values to q, [count]; returns d, and the sum of q. */
static float quantise(const float *values, uint32_t count, int8_t *q, int32_t *sum)
{
    const float most = lw_float_of_bits(largest_bits(values, count));
    memset(q, 0, count);
    *sum = 0;
    if (most < LEAST) return 0.0f;
    if (lw_bits_of_float(most) >= 0x7F800000u) return lw_float_of_bits(0x7FC00000u);
    const vf inverse = vf_set(127.0f / most);
    int32_t lanes[LANES];
    vi total = vi_zero();
    for (uint32_t k = 0; k < count; k += LANES) {
        const vi near = vi_nearest(vf_mul(vf_load(values + k), inverse));
        total = vi_add(total, near);
        vi_store_bytes(q + k, near);
    }
    vi_store(lanes, total);
    *sum = sum_of(lanes);
    return most / 127.0f;
}

/* Groups are shared among the parts: one row is enough work for several. */
static void int8_prepare(const lw_cpu_linear_args *args, unsigned part, unsigned parts)
{
    const lw_cpu_weight *const w = args->weight;
    float values[LW__GROUP_MAX];
    int8_t q[LW__GROUP_MAX];
    size_t begin, end;
    lw_pool_share(w->group_count, 1, part, parts, &begin, &end);
    for (uint32_t first = 0, rows; first < args->rows; first += rows) {
        rows = tile_height(args, first);
        int8_t *const x = tile_x(args, first);
        float *const numbers = (float *)(void *)(x + q_bytes(w) * rows);
        for (size_t at = begin * rows; at < end * rows; at++) {
            const uint32_t g = (uint32_t)(at / rows), r = (uint32_t)(at % rows);
            int32_t sum;
            load_group(args, vector_of(args->x_rows, first + r), g, values);
            const float d = quantise(values, w->group, q, &sum);
            int8_t *const to = x + ((size_t)g * w->group * rows + 4 * r);
            for (uint32_t k = 0; k < w->group; k += 4) memcpy(to + k * rows, q + k, 4);
            float *const number = numbers + (size_t)g * NUMBERS * rows + r;
            const int32_t less = w->zero * sum;
            number[0] = d;
            number[rows] = d * (float)sum;
            memcpy(&number[2 * rows], &less, sizeof less);
        }
    }
}

#endif
