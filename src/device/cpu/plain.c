/* Ops that need no vectors of their own; see plain.h. */
#include "device/cpu/plain.h"

#include "base/float16.h"
#include "base/pool.h"

#include <string.h>

void lw__cpu_columns(const lw_cpu_columns_args *args, unsigned part, unsigned parts)
{
    size_t begin, end;
    lw_pool_share(args->rows, 1, part, parts, &begin, &end);
    for (size_t row = begin; row < end; row++) {
        const lw_bf16 *x = args->x + row * args->x_stride;
        lw_bf16 *y = args->y + row * args->y_stride;
        for (uint32_t h = 0; h < args->heads; h++, x += args->head_stride, y += args->width) {
            memcpy(y, x, args->width * sizeof *y);
        }
    }
}

static lw_bf16 *tail_at(const lw_cpu_tail_args *args, size_t row, uint32_t slot)
{
    const uint32_t page = args->places[row].pages[slot / LW_PAGE_POSITIONS];
    lw_bf16 *kept = (lw_bf16 *)(void *)(args->pages.bytes + page * args->pages.page_bytes);
    return kept + (size_t)(slot % LW_PAGE_POSITIONS) * args->width;
}

void lw__cpu_tail_store(const lw_cpu_tail_args *args, unsigned part, unsigned parts)
{
    size_t begin, end;
    lw_pool_share(args->rows, 1, part, parts, &begin, &end);
    for (size_t row = begin; row < end; row++) {
        const lw_bf16 *x = args->x + row * args->x_stride;
        memcpy(tail_at(args, row, args->places[row].slot), x, args->width * sizeof *x);
    }
}

void lw__cpu_tail_before(const lw_cpu_tail_args *args, unsigned part, unsigned parts)
{
    size_t begin, end;
    lw_pool_share(args->rows, 1, part, parts, &begin, &end);
    for (size_t row = begin; row < end; row++) {
        const lw_cpu_place *place = &args->places[row];
        lw_bf16 *y = args->y + row * args->y_stride;
        if (place->position == 0) {
            memset(y, 0, args->width * sizeof *y);
            continue;
        }
        const uint32_t slot = lw_cpu_slot(place, place->position - 1);
        memcpy(y, tail_at(args, row, slot), args->width * sizeof *y);
    }
}

void lw__cpu_relu2(const lw_cpu_each_args *args, unsigned part, unsigned parts)
{
    size_t begin, end;
    lw_pool_share(args->rows, 1, part, parts, &begin, &end);
    for (size_t row = begin; row < end; row++) {
        const lw_bf16 *x = args->x + row * args->x_stride;
        lw_bf16 *y = args->y + row * args->y_stride;
        for (uint32_t i = 0; i < args->width; i++) {
            const float v = lw_float_of_bf16(x[i]), above = v < 0.0f ? 0.0f : v; /* NaN stays */
            y[i] = lw_bf16_of_float(above * above);
        }
    }
}

void lw__cpu_bias(const lw_cpu_each_args *args, unsigned part, unsigned parts)
{
    size_t begin, end;
    lw_pool_share(args->rows, 1, part, parts, &begin, &end);
    for (size_t row = begin; row < end; row++) {
        const float *x = args->x_wide + row * args->x_wide_stride;
        lw_bf16 *y = args->y + row * args->y_stride;
        for (uint32_t i = 0; i < args->width; i++) y[i] = lw_bf16_of_float(x[i] + args->w[i]);
    }
}

void lw__cpu_expert_bias(const lw_cpu_expert_bias_args *args, unsigned part, unsigned parts)
{
    size_t begin, end;
    lw_pool_share((size_t)args->rows * args->top, 1, part, parts, &begin, &end);
    for (size_t v = begin; v < end; v++) {
        const size_t expert = (size_t)args->route[v / args->top * args->route_stride + v % args->top];
        const float *x = args->x + v * args->x_stride, *bias = args->biases + expert * args->width;
        lw_bf16 *y = args->y + v * args->y_stride;
        for (uint32_t i = 0; i < args->width; i++) y[i] = lw_bf16_of_float(x[i] + bias[i]);
    }
}

void lw__cpu_widen(const lw_cpu_each_args *args, unsigned part, unsigned parts)
{
    size_t begin, end;
    lw_pool_share(args->rows, 1, part, parts, &begin, &end);
    for (size_t row = begin; row < end; row++) {
        const lw_bf16 *x = args->x + row * args->x_stride;
        float *y = args->y_wide + row * args->y_stride;
        for (uint32_t i = 0; i < args->width; i++) y[i] = lw_float_of_bf16(x[i]);
    }
}

void lw__cpu_add_wide(const lw_cpu_each_args *args, unsigned part, unsigned parts)
{
    size_t begin, end;
    lw_pool_share(args->rows, 1, part, parts, &begin, &end);
    for (size_t row = begin; row < end; row++) {
        const float *a = args->x_wide + row * args->x_wide_stride;
        const lw_bf16 *b = args->x + row * args->x_stride;
        float *y = args->y_wide + row * args->y_stride;
        for (uint32_t i = 0; i < args->width; i++) y[i] = a[i] + lw_float_of_bf16(b[i]);
    }
}
