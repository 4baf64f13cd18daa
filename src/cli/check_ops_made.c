/* Random weights of any form, in memory; see check_ops.h. */
#include "cli/check_ops.h"

#include "base/float16.h"
#include "base/size.h"

#include <string.h>

static const float table16[16] = { 0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                   -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6 };

static void put(lw_dtype type, uint8_t *at, float value)
{
    const uint16_t half = lw_bf16_of_float(value);
    if (type == LW_DTYPE_F32) memcpy(at, &value, sizeof value);
    else memcpy(at, &half, sizeof half);
}

/* Numbers of about size, of either sign; of fp16 and e4m3 of any exponent near it, every eighth subnormal. */
static void fill_numbers(lw_rng *rng, lw_dtype type, uint8_t *bytes, size_t count, float size)
{
    const size_t item = lw_dtype_bytes(type);
    for (size_t i = 0; i < count; i++) {
        const bool tiny = i % 8 == 0;
        if (type == LW_DTYPE_F16) {
            const uint64_t size_bits =
                tiny ? 1 + lw_rng_below(rng, 0x3FF) : 0x1C00 + lw_rng_below(rng, 0x0C00);
            const uint16_t half = (uint16_t)(size_bits | lw_rng_below(rng, 2) << 15);
            memcpy(bytes + i * item, &half, sizeof half);
        } else if (type == LW_DTYPE_F8_E4M3) {
            const uint64_t size_bits = tiny ? 1 + lw_rng_below(rng, 7) : 0x20 + lw_rng_below(rng, 0x20);
            bytes[i] = (uint8_t)(size_bits | lw_rng_below(rng, 2) << 7);
        } else {
            put(type, bytes + i * item, size * lw_rng_normal(rng));
        }
    }
}

/* Codes of up to 8 bits, all of them; no NaN among e4m3's. */
static void fill_codes(lw_rng *rng, lw_map map, uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = map == LW_MAP_E4M3 ? (uint8_t)(lw_rng_below(rng, 0x7F) | lw_rng_below(rng, 2) << 7)
                                      : (uint8_t)lw_rng_below(rng, 256);
}

static lw_dtype type_of_map(lw_map map)
{
    return map == LW_MAP_BF16 ? LW_DTYPE_BF16 : map == LW_MAP_FP16 ? LW_DTYPE_F16 : LW_DTYPE_F32;
}

/* A tensor of rows * cols items, whose bytes the caller fills; NULL: no memory. */
static uint8_t *tensor_make(lw_plan *plan, lw_tensor *tensor, lw_dtype type, uint32_t rows, uint32_t cols)
{
    const size_t count = (size_t)rows * cols * lw_dtype_bytes(type);
    uint8_t *bytes = lw_arena_take(&plan->arena, count);
    *tensor = (lw_tensor){ .name = "random", .file = "memory", .dtype = type, .dim_count = 2,
                           .dims = { rows, cols }, .bytes = bytes, .byte_count = bytes == NULL ? 0 : count };
    return bytes;
}

static bool codes_make(lw_plan *plan, lw_rng *rng, const lw_weight *w, lw_tensor *out)
{
    const bool dense = w->code_bits > 8;
    const uint32_t rows = w->stack_count * w->rows, cols = dense ? w->cols : w->cols * w->code_bits / 8;
    const lw_dtype type = dense ? type_of_map(w->map) : LW_DTYPE_U8;
    uint8_t *bytes = tensor_make(plan, out, type, rows, cols);
    if (bytes == NULL) return false;
    if (dense) fill_numbers(rng, type, bytes, (size_t)rows * cols, 0.5f);
    else fill_codes(rng, w->map, bytes, (size_t)rows * cols);
    return true;
}

lw_status lw_ops_weight_make(lw_plan *plan, lw_rng *rng, const lw_ops_form *form, const uint32_t shape[3],
                             lw_ops_weight *made, lw_wref *out, lw_diag *d)
{
    lw_weight w = { .name = "random", .stack_count = shape[0], .rows = shape[1], .cols = shape[2],
                    .map = form->map, .code_bits = form->bits, .group = form->group,
                    .group_rows = form->group_rows, .scale_type = form->scale_type,
                    .has_bias = form->has_bias, .bias_per_scale = form->bias_per_scale,
                    .global_scale = form->global > 0 ? form->global : 1.0f, .global_divides = form->divides,
                    .table = form->map == LW_MAP_TABLE16 ? table16 : NULL };
    *made = (lw_ops_weight){ .stack_count = shape[0] };
    bool has_room = codes_make(plan, rng, &w, &made->parts[LW_OPS_CODES]);
    w.codes = &made->parts[LW_OPS_CODES];
    const uint32_t of_rows = form->group_rows > 1 ? form->group_rows : 1;
    const uint32_t groups = lw_weight_groups(&w),
                   rows = w.stack_count * (uint32_t)size_div_up(w.rows, of_rows);
    for (lw_ops_part part = LW_OPS_SCALES; part <= LW_OPS_BIASES; part++) {
        if (form->group == 0 || (part == LW_OPS_BIASES && !form->has_bias) || !has_room) continue;
        uint8_t *bytes = tensor_make(plan, &made->parts[part], form->scale_type, rows, groups);
        const float size = form->map == LW_MAP_INTEGER ? 1.2f / (float)(1u << form->bits) : 0.1f;
        has_room = bytes != NULL;
        if (has_room) fill_numbers(rng, form->scale_type, bytes, (size_t)rows * groups, size);
    }
    if (form->group > 0) w.scales = &made->parts[LW_OPS_SCALES];
    if (form->has_bias) w.biases = &made->parts[LW_OPS_BIASES];
    *out = lw_plan_weight(plan, &w);
    return has_room ? LW_OK : lw_fail(d, LW_NO_ROOM, "no memory for a weight of %u rows", rows);
}

/* Of any float: 2, with the sign that it has not. e4m3 and the short floats have that in their top byte. */
static void plant_number(uint8_t *item, size_t item_bytes)
{
    const uint8_t top = (uint8_t)((~item[item_bytes - 1] & 0x80) | 0x40);
    memset(item, 0, item_bytes);
    item[item_bytes - 1] = top;
}

void lw_ops_weight_plant(lw_ops_weight *made, lw_ops_part part, lw_map map, size_t code_bytes)
{
    const lw_tensor *tensor = &made->parts[part];
    const size_t item = lw_dtype_bytes(tensor->dtype), rows = tensor->dims[0] / made->stack_count;
    const size_t row_bytes = tensor->dims[1] * item;
    /* The bytes are the arena's own; a tensor borrows them as a checkpoint's, which nobody writes. */
    uint8_t *bytes = (uint8_t *)(uintptr_t)tensor->bytes;
    for (size_t m = 0; m < made->stack_count; m++) {
        uint8_t *at = bytes + (m * rows + (rows > 1)) * row_bytes;
        const bool is_code = part == LW_OPS_CODES && (map == LW_MAP_INTEGER || map == LW_MAP_TABLE16);
        for (size_t i = 0; is_code && i < code_bytes; i++) at[i] = (uint8_t)~at[i];
        if (!is_code) plant_number(at, item);
    }
}
