/* The prepare half of the linear op: x as the inner chains read it, and the sums of its groups. Included by
 * linear.inc.h.
 */
#ifndef LW_DEVICE_CPU_LINEAR_PREPARE_INC_H
#define LW_DEVICE_CPU_LINEAR_PREPARE_INC_H

/* Sums as LANES chains of every LANES-th k, folded in halves. */
static float group_sum(const float *x, uint32_t count)
{
    float lane[LANES];
    vf sum = vf_zero();
    for (uint32_t k = 0; k < count; k += LANES) sum = vf_add(sum, vf_load(x + k));
    vf_store(lane, sum);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) lane[i] += lane[i + half];
    return lane[0];
}

/* The x of one group of one row goes to every rows-th word of its tile. */
static void place_group(const lw_cpu_weight *w, const float *values, const float *factors, float *x,
                        uint32_t rows)
{
#if defined(LINEAR_PAIRS)
    if (w->read == LW__READ_PAIRS) {
        pairs_place(w, values, x, rows);
        return;
    }
#endif
    for (uint32_t k = 0; k < w->group; k += LW__GROUP_UNIT) {
        float scaled[LW__GROUP_UNIT];
        for (uint32_t i = 0; i < LW__GROUP_UNIT; i++) scaled[i] = values[k + i] * factors[i];
        if (rows == 1) memcpy(x + k, scaled, sizeof scaled);
        else
            for (uint32_t i = 0; i < LW__GROUP_UNIT; i++) x[(k + i) * rows] = scaled[i];
    }
}

/* Groups are shared among the parts: one row is enough work for several. */
void LW_LINEAR(prepare)(const lw_cpu_linear_args *args, unsigned part, unsigned parts)
{
    const lw_cpu_weight *const w = args->weight;
    if (w->int8 != NULL) {
        w->int8->prepare(args, part, parts);
        return;
    }
    const size_t x_words = lw__prepared_x_words(w), group_words = x_words / w->group_count;
    float factors[LW__GROUP_UNIT], values[LW__GROUP_MAX];
    for (uint32_t k = 0; k < LW__GROUP_UNIT; k++) factors[k] = lw__x_factor(w, k);
    size_t begin, end;
    lw_pool_share(w->group_count, 1, part, parts, &begin, &end);
    for (uint32_t first = 0, rows; first < args->rows; first += rows) {
        rows = tile_height(args, first);
        float *const x = tile_x(args, first);
        float *const sums = x + x_words * rows;
        for (size_t at = begin * rows; at < end * rows; at++) {
            const uint32_t g = (uint32_t)(at / rows), r = (uint32_t)(at % rows);
            load_group(args, vector_of(args->x_rows, first + r), g, values);
            place_group(w, values, factors, x + g * group_words * rows + r, rows);
            sums[g * rows + r] = group_sum(values, w->group);
        }
    }
}

#endif
