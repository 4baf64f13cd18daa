/* Descriptors of the modules of a checkpoint; see module.h. A format's own part is one fill function: it
 * takes the tensors that belong to the module, compares every shape with what is asked for, and asks the
 * config whether it agrees.
 */
#include "model/module.h"

#include "base/float16.h"
#include "base/size.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    SHAPE_BYTES = 160,
    NVFP4_GROUP = 16,
    WORD_CODES = 8,     /* 4-bit codes of a 32-bit word */
};

const char *const lw__matrix_suffixes[] = { ".weight", ".qweight", ".weight_packed", NULL };

/* e2m1: the sign is the highest bit. */
static const float e2m1[16] = { 0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f };

/* -- shapes -- */

/* True if tensor is (stack, rows, last) or (rows, last) as asked; *rows is then the file's number. */
static bool has_shape(const lw_tensor *tensor, const lw__ask *a, uint64_t last, uint32_t *rows)
{
    const uint32_t first = a->stack == 0 ? 0 : 1;
    if (tensor->dim_count != first + 2) return false;
    if (first == 1 && tensor->dims[0] != a->stack) return false;
    if (tensor->dims[first + 1] != last) return false;
    const uint64_t stored = tensor->dims[first];
    if (!a->any_rows && stored != a->rows) return false;
    if (stored == 0 || stored > LW_LIMIT_VOCAB) return false;
    *rows = (uint32_t)stored;
    return true;
}

static void ask_shape(const lw__ask *a, uint64_t last, char text[SHAPE_BYTES])
{
    char stack[24] = "", rows[24] = "rows";
    if (a->stack != 0) snprintf(stack, sizeof stack, "%" PRIu32 ", ", a->stack);
    if (!a->any_rows) snprintf(rows, sizeof rows, "%" PRIu32, a->rows);
    snprintf(text, SHAPE_BYTES, "[%s%s, %" PRIu64 "]", stack, rows, last);
}

static bool fail_shape(lw_names *names, const lw_tensor *tensor, const char *expected)
{
    char shape[SHAPE_BYTES];
    lw_tensor_shape(tensor, shape, sizeof shape);
    lw__names_note(names, LW_BAD_MODEL, "%s: %s is %s, but the config asks for %s", lw__file_of(tensor),
                   tensor->name, shape, expected);
    return false;
}

/* -- dense -- */

static bool dense_map(lw_dtype dtype, lw_map *map)
{
    if (dtype == LW_DTYPE_BF16) *map = LW_MAP_BF16;
    else if (dtype == LW_DTYPE_F16) *map = LW_MAP_FP16;
    else if (dtype == LW_DTYPE_F32) *map = LW_MAP_FP32;
    else return false;
    return true;
}

static lw_weight dense_weight(const lw_tensor *tensor, const lw__ask *a, uint32_t rows, lw_map map)
{
    return (lw_weight){
        .name = tensor->name,
        .stack_count = a->stack == 0 ? 1 : a->stack,
        .rows = rows,
        .cols = a->cols,
        .map = map,
        .code_bits = (uint32_t)lw_dtype_bytes(tensor->dtype) * 8,
        .global_scale = 1.0f,
        .codes = tensor,
    };
}

static bool fail_dtype(lw_names *names, const lw_tensor *tensor)
{
    lw__names_note(
        names, LW_UNSUPPORTED,
        "%s: %s: %s weights are not served; served: BF16, F16, F32, F8_E4M3, MLX affine, GPTQ, NVFP4",
        lw__file_of(tensor), tensor->name, lw_dtype_name(tensor->dtype));
    return false;
}

/* Settings of a quantised or possibly quantised module: the config's own word for it, else that of the file's
 * metadata, else the global ones. *known is false when nothing speaks of quantisation. */
static bool module_quant(lw_names *names, const lw__found *f, lw_quant *out, bool *known)
{
    lw_diag d;
    lw_status status = LW_OK;
    *out = (lw_quant){ 0 };
    *known = lw__names_quant(names)->method == LW_QUANT_MLX;
    if (*known) status = lw__quant_config_module(lw__names_quant(names), f->path, out, &d);
    const char *metadata =
        lw_checkpoint_metadata(lw__names_checkpoint(names), f->tensor, "quantization");
    if (status == LW_OK && !out->is_explicit && metadata != NULL) {
        status = lw__quant_parse(metadata, lw__file_of(f->tensor), out, &d);
        *known = true;
    }
    if (status == LW_OK) return true;
    lw__names_note(names, status, "%s", d.text);
    return false;
}

/* What stands beside the codes of a quantised module, and never beside a dense weight. */
static const char *const quantised_parts[] = { ".scales", ".qweight", ".weight_packed", ".weight_scale",
                                               ".weight_scale_inv" };

static bool fill_dense(lw_names *names, const lw__ask *a, const lw__found *f, lw_weight *out)
{
    lw_map map;
    lw_quant quant;
    bool known;
    uint32_t rows;
    char expected[SHAPE_BYTES];
    if (!dense_map(f->tensor->dtype, &map)) return fail_dtype(names, f->tensor);
    if (!module_quant(names, f, &quant, &known)) return false;
    if (quant.is_explicit && !quant.is_off) {
        lw__names_note(names, LW_BAD_MODEL, "%s: %s is %s, but %s says that it is quantized",
                       lw__file_of(f->tensor), f->tensor->name, lw_dtype_name(f->tensor->dtype),
                       lw__config_of(names));
        return false;
    }
    for (size_t i = 0; i < sizeof quantised_parts / sizeof quantised_parts[0]; i++) {
        if (!lw__names_holds(names, f->path, quantised_parts[i])) continue;
        lw__names_note(names, LW_BAD_MODEL, "%s: %s is %s, yet %s%s is there", lw__file_of(f->tensor),
                       f->tensor->name, lw_dtype_name(f->tensor->dtype), f->path, quantised_parts[i]);
        return false;
    }
    if (!has_shape(f->tensor, a, a->cols, &rows)) {
        ask_shape(a, a->cols, expected);
        return fail_shape(names, f->tensor, expected);
    }
    *out = dense_weight(f->tensor, a, rows, map);
    return true;
}

bool lw__module_fill_dense(lw_names *names, const lw__ask *a, const lw__found *f, lw_weight *out)
{
    lw_map map;
    char expected[SHAPE_BYTES];
    if (!dense_map(f->tensor->dtype, &map)) return fail_dtype(names, f->tensor);
    const uint64_t count = (uint64_t)a->rows * a->cols;
    if (f->tensor->byte_count / lw_dtype_bytes(f->tensor->dtype) != count) {
        snprintf(expected, sizeof expected, "%" PRIu64 " elements", count);
        return fail_shape(names, f->tensor, expected);
    }
    *out = dense_weight(f->tensor, a, a->rows, map);
    return true;
}

/* -- MLX affine -- */

/* Says what the config claims and what the file holds, so that the reader sees which of the two is wrong. */
static bool fail_quant_shape(lw_names *names, const lw__ask *a, const lw_weight *w)
{
    char held[64] = "which fits no width";
    const uint64_t words = w->codes->dim_count == 0 ? 0 : w->codes->dims[w->codes->dim_count - 1];
    const uint64_t groups = w->scales->dim_count == 0 ? 0 : w->scales->dims[w->scales->dim_count - 1];
    if (words <= a->cols && groups > 0 && a->cols % groups == 0 && words * 32 % a->cols == 0)
        snprintf(held, sizeof held, "which is %" PRIu64 " bits, group %" PRIu64, words * 32 / a->cols,
                 a->cols / groups);
    char codes[SHAPE_BYTES], scales[SHAPE_BYTES], expected[SHAPE_BYTES];
    lw_tensor_shape(w->codes, codes, sizeof codes);
    lw_tensor_shape(w->scales, scales, sizeof scales);
    ask_shape(a, a->cols, expected);
    lw__names_note(names, LW_BAD_MODEL,
             "%s: %s: the config asks for %s in %" PRIu32 " bits, group %" PRIu32
             ", but the file holds weight %s and scales %s, %s",
             lw__file_of(w->codes), w->name, expected, w->code_bits, w->group, codes, scales, held);
    return false;
}

static bool check_scales(lw_names *names, const lw__ask *a, const lw_weight *w)
{
    lw_map map;
    uint32_t rows, scale_rows;
    if (!dense_map(w->scales->dtype, &map)) {
        lw__names_note(names, LW_UNSUPPORTED,
                 "%s: %s: scales of dtype %s are not served; affine scales are BF16, F16 or F32",
                 lw__file_of(w->scales), w->scales->name, lw_dtype_name(w->scales->dtype));
        return false;
    }
    const uint64_t words = (uint64_t)a->cols * w->code_bits / 32, groups = a->cols / w->group;
    if (a->cols % w->group != 0 || !has_shape(w->codes, a, words, &rows) ||
        !has_shape(w->scales, a, groups, &scale_rows) || rows != scale_rows)
        return fail_quant_shape(names, a, w);
    const lw_tensor *s = w->scales, *b = w->biases;
    if (b->dtype == s->dtype && b->dim_count == s->dim_count && memcmp(b->dims, s->dims, sizeof s->dims) == 0)
        return true;
    char scales[SHAPE_BYTES], biases[SHAPE_BYTES];
    lw_tensor_shape(s, scales, sizeof scales);
    lw_tensor_shape(b, biases, sizeof biases);
    lw__names_note(names, LW_BAD_MODEL, "%s: %s is %s, but %s is %s: both must be alike", lw__file_of(b),
                   b->name, biases, s->name, scales);
    return false;
}

static bool fill_affine(lw_names *names, const lw__ask *a, const lw__found *f, lw_weight *out)
{
    lw_quant quant;
    bool known;
    const lw_tensor *scales = lw__names_take(names, f->path, ".scales");
    const lw_tensor *biases = lw__names_take(names, f->path, ".biases");
    if (!module_quant(names, f, &quant, &known)) return false;
    if (!known || quant.is_off) {
        lw__names_note(names, LW_BAD_MODEL, "%s: %s is packed in U32 words, but %s %s",
                       lw__file_of(f->tensor), f->tensor->name, lw__config_of(names),
                       known                                             ? "says that it is not quantized"
                       : lw__names_quant(names)->method != LW_QUANT_NONE ? "speaks of another format"
                                                                         : "has no \"quantization\"");
        return false;
    }
    if (scales == NULL || biases == NULL) {
        lw__names_note(names, LW_BAD_MODEL, "missing: %s.%s (of the quantized %s in %s)", f->path,
                 scales == NULL ? "scales" : "biases", f->tensor->name, lw__file_of(f->tensor));
        return false;
    }
    const lw_weight weight = {
        .name = f->tensor->name,
        .stack_count = a->stack == 0 ? 1 : a->stack,
        .rows = a->rows,
        .cols = a->cols,
        .map = LW_MAP_INTEGER,
        .code_bits = quant.bits,
        .order = LW_ORDER_ROWS,
        .group = quant.group,
        .scale_type = scales->dtype,
        .has_bias = true,
        .global_scale = 1.0f,
        .codes = f->tensor,
        .scales = scales,
        .biases = biases,
    };
    if (!check_scales(names, a, &weight)) return false;
    *out = weight;
    out->rows = (uint32_t)f->tensor->dims[a->stack == 0 ? 0 : 1];
    return true;
}

/* -- the other formats: what they share -- */

static bool fail_missing(lw_names *names, const lw__found *f, const char *suffix)
{
    lw__names_note(names, LW_BAD_MODEL, "missing: %s%s (of the quantized %s in %s)", f->path, suffix,
                   f->tensor->name, lw__file_of(f->tensor));
    return false;
}

/* A tensor beside the codes that changes their meaning in a way that is not served. */
static bool is_bare(lw_names *names, const lw__found *f, const char *suffix)
{
    if (!lw__names_holds(names, f->path, suffix)) return true;
    lw__names_note(names, LW_UNSUPPORTED, "%s: %s has a %s, which is not served", lw__file_of(f->tensor),
                   f->tensor->name, suffix + 1);
    return false;
}

static bool fail_scales(lw_names *names, const lw_tensor *codes, const lw_tensor *scales)
{
    lw__names_note(names, LW_UNSUPPORTED, "%s: %s: %s weights with %s scales are not served",
                   lw__file_of(codes), codes->name, lw_dtype_name(codes->dtype),
                   lw_dtype_name(scales->dtype));
    return false;
}

static bool is_float(lw_names *names, const lw_tensor *codes, const lw_tensor *scales)
{
    lw_map map;
    return dense_map(scales->dtype, &map) || fail_scales(names, codes, scales);
}

/* Whether a two-dimensional tensor is as expected; else a note. */
static bool is_shape(lw_names *names, const lw_tensor *tensor, uint64_t rows, uint64_t cols)
{
    char expected[SHAPE_BYTES];
    if (tensor->dim_count == 2 && tensor->dims[0] == rows && tensor->dims[1] == cols) return true;
    snprintf(expected, sizeof expected, "[%" PRIu64 ", %" PRIu64 "]", rows, cols);
    return fail_shape(names, tensor, expected);
}

/* Rows of a matrix of codes whose rows are packed to `last` elements; else a note. */
static bool packed_rows(lw_names *names, const lw__ask *a, const lw_tensor *codes, uint64_t last,
                        uint32_t *rows)
{
    char expected[SHAPE_BYTES];
    if (a->stack == 0 && has_shape(codes, a, last, rows)) return true;
    ask_shape(a, last, expected);
    return fail_shape(names, codes, expected);
}

static bool holds(lw_names *names, const lw__found *f, const lw_stored *stored)
{
    lw_diag d;
    const lw_status status = lw__quant_config_hold(lw__names_quant(names), f->path, stored, &d);
    if (status == LW_OK) return true;
    lw__names_note(names, status, "%s: %s", lw__file_of(f->tensor), d.text);
    return false;
}

/* The one number of a tensor of one element. */
static bool read_scalar(lw_names *names, const lw_tensor *tensor, float *out)
{
    uint16_t half;
    if (tensor->byte_count != lw_dtype_bytes(tensor->dtype)) return fail_shape(names, tensor, "one element");
    if (!is_float(names, tensor, tensor)) return false;
    if (tensor->dtype == LW_DTYPE_F32) memcpy(out, tensor->bytes, sizeof *out);
    else {
        memcpy(&half, tensor->bytes, sizeof half);
        *out = tensor->dtype == LW_DTYPE_BF16 ? lw_float_of_bf16(half) : lw_float_of_fp16(half);
    }
    if (isfinite(*out)) return true;
    lw__names_note(names, LW_BAD_MODEL, "%s: %s is not a number", lw__file_of(tensor), tensor->name);
    return false;
}

/* -- GPTQ -- */

static uint32_t word_at(const lw_tensor *tensor, uint64_t index)
{
    uint32_t word;
    memcpy(&word, tensor->bytes + index * sizeof word, sizeof word);
    return word;
}

/* Zero points of a symmetric export: 8 - 1 in every code, or nothing at all; sym says 8 in both. */
static bool has_plain_zeros(lw_names *names, const lw_tensor *zeros)
{
    const uint64_t count = zeros->byte_count / sizeof(uint32_t);
    const uint32_t first = count == 0 ? 0 : word_at(zeros, 0);
    bool is_plain = first == 0x77777777u || first == 0;
    for (uint64_t i = 0; i < count; i++) is_plain &= word_at(zeros, i) == first;
    if (is_plain) return true;
    lw__names_note(names, LW_UNSUPPORTED,
                   "%s: %s holds zero points of its own; only symmetric weights are served (8 throughout)",
                   lw__file_of(zeros), zeros->name);
    return false;
}

/* The group of each input: k / group, or zeros where the exporter did not fill it in. */
static bool has_plain_order(lw_names *names, const lw_tensor *order, uint32_t group)
{
    bool is_zero = true, is_plain = true;
    for (uint64_t k = 0; k < order->dims[0]; k++) {
        is_zero &= word_at(order, k) == 0;
        is_plain &= word_at(order, k) == k / group;
    }
    if (is_plain || (is_zero && !lw__names_quant(names)->is_reordered)) return true;
    lw__names_note(names, LW_UNSUPPORTED,
                   "%s: %s reorders the inputs (desc_act); only groups of neighbouring inputs are served",
                   lw__file_of(order), order->name);
    return false;
}

static bool check_order(lw_names *names, const lw__ask *a, const lw__found *f, uint32_t group)
{
    char expected[SHAPE_BYTES];
    const lw_tensor *order = lw__names_take(names, f->path, ".g_idx");
    if (order == NULL) {
        if (!lw__names_quant(names)->is_reordered) return true;
        return fail_missing(names, f, ".g_idx");
    }
    if (order->dim_count == 1 && order->dims[0] == a->cols && lw_dtype_bytes(order->dtype) == 4)
        return has_plain_order(names, order, group);
    snprintf(expected, sizeof expected, "%" PRIu32 " whole numbers", a->cols);
    return fail_shape(names, order, expected);
}

static bool fill_gptq(lw_names *names, const lw__ask *a, const lw__found *f, lw_weight *out)
{
    const lw_tensor *codes = f->tensor, *scales = lw__names_take(names, f->path, ".scales");
    const lw_tensor *zeros = lw__names_take(names, f->path, ".qzeros");
    const uint64_t rows = codes->dim_count == 2 ? codes->dims[1] : 0;
    if (codes->dtype != LW_DTYPE_I32 && codes->dtype != LW_DTYPE_U32) return fail_dtype(names, codes);
    if (rows == 0 || rows > LW_LIMIT_VOCAB || a->cols % WORD_CODES != 0)
        return fail_shape(names, codes, "whole words of 8 codes along the inputs");
    if (!is_shape(names, codes, a->cols / WORD_CODES, a->any_rows ? rows : a->rows)) return false;
    if (scales == NULL || zeros == NULL)
        return fail_missing(names, f, scales == NULL ? ".scales" : ".qzeros");
    const uint64_t groups = scales->dim_count == 2 ? scales->dims[0] : 0;
    if (groups == 0 || a->cols % groups != 0 || lw_dtype_bytes(zeros->dtype) != 4)
        return fail_shape(names, scales, "whole groups of the inputs");
    const lw_stored stored = { .storage = LW_STORED_GPTQ, .bits = 4, .group = a->cols / (uint32_t)groups,
                               .group_rows = 1 };
    if (!is_float(names, codes, scales) || !is_shape(names, scales, groups, rows) ||
        !is_shape(names, zeros, groups, size_div_up(rows, WORD_CODES)) || !holds(names, f, &stored) ||
        !has_plain_zeros(names, zeros) || !check_order(names, a, f, stored.group))
        return false;
    *out = (lw_weight){
        .name = codes->name,
        .stack_count = 1,
        .rows = (uint32_t)rows,
        .cols = a->cols,
        .map = LW_MAP_INTEGER,
        .code_bits = 4,
        .order = LW_ORDER_INPUTS,
        .group = stored.group,
        .group_rows = 1,
        .scale_type = scales->dtype,
        .bias_per_scale = -8.0f,
        .global_scale = 1.0f,
        .codes = codes,
        .scales = scales,
    };
    return true;
}

/* -- integers of compressed-tensors -- */

static bool check_weight_shape(lw_names *names, const lw__ask *a, const lw__found *f, uint32_t rows)
{
    char expected[SHAPE_BYTES];
    const lw_tensor *shape = lw__names_take(names, f->path, ".weight_shape");
    if (shape == NULL) return true;
    const size_t bytes = lw_dtype_bytes(shape->dtype);
    uint64_t stored[2] = { 0 };
    if (shape->byte_count == 2 * bytes)
        for (size_t i = 0; i < 2; i++) memcpy(&stored[i], shape->bytes + i * bytes, bytes);
    if (stored[0] == rows && stored[1] == a->cols) return true;
    snprintf(expected, sizeof expected, "to say %" PRIu32 " x %" PRIu32, rows, a->cols);
    return fail_shape(names, shape, expected);
}

static bool fill_packed(lw_names *names, const lw__ask *a, const lw__found *f, lw_weight *out)
{
    const lw_tensor *codes = f->tensor, *scales = lw__names_take(names, f->path, ".weight_scale");
    uint32_t rows;
    if (scales == NULL) return fail_missing(names, f, ".weight_scale");
    if (!is_bare(names, f, ".weight_zero_point") || !is_bare(names, f, ".weight_g_idx")) return false;
    const uint64_t words = codes->dim_count == 2 ? codes->dims[1] : 0;
    const uint32_t bits = words == size_div_up(a->cols, 4) ? 8 : 4;
    if (!packed_rows(names, a, codes, size_div_up(a->cols, 32 / bits), &rows)) return false;
    const uint64_t groups = scales->dim_count == 2 ? scales->dims[1] : 0;
    if (groups == 0 || a->cols % groups != 0)
        return fail_shape(names, scales, "whole groups of the inputs");
    const lw_stored stored = { .storage = LW_STORED_PACKED, .bits = bits,
                               .group = a->cols / (uint32_t)groups, .group_rows = 1,
                               .is_channel = groups == 1 };
    if (!is_float(names, codes, scales) || !is_shape(names, scales, rows, groups) ||
        !check_weight_shape(names, a, f, rows) || !holds(names, f, &stored))
        return false;
    *out = (lw_weight){
        .name = codes->name,
        .stack_count = 1,
        .rows = rows,
        .cols = a->cols,
        .map = LW_MAP_INTEGER,
        .code_bits = bits,
        .order = LW_ORDER_ROWS,
        .group = stored.group,
        .group_rows = 1,
        .scale_type = scales->dtype,
        .bias_per_scale = bits == 8 ? -128.0f : -8.0f,
        .global_scale = 1.0f,
        .codes = codes,
        .scales = scales,
    };
    return true;
}

/* -- FP8 -- */

/* Which rows and columns share one of `scales`: all, one row, or a block of the config's size. */
static bool fp8_groups(lw_names *names, const lw__ask *a, const lw_tensor *scales, uint32_t rows,
                       lw_stored *stored)
{
    const lw_quant_config *config = lw__names_quant(names);
    const uint64_t count = scales->byte_count / lw_dtype_bytes(scales->dtype);
    const bool has_blocks = config->method == LW_QUANT_FP8 && config->block_rows != 0;
    *stored = (lw_stored){ .storage = LW_STORED_FP8, .bits = 8, .group_rows = 1 };
    if (count == 1 && !has_blocks) return true;
    const bool is_column = scales->dim_count == 1 || (scales->dim_count == 2 && scales->dims[1] == 1);
    if (count == rows && is_column && !has_blocks) {
        stored->group = a->cols;
        stored->is_channel = true;
        return true;
    }
    stored->group = config->block_cols;
    stored->group_rows = config->block_rows;
    if (config->block_rows == 0) return fail_shape(names, scales, "one scale, or one for each row");
    return is_shape(names, scales, size_div_up(rows, config->block_rows),
                    size_div_up(a->cols, config->block_cols));
}

static bool fill_fp8(lw_names *names, const lw__ask *a, const lw__found *f, lw_weight *out)
{
    const lw_tensor *codes = f->tensor, *scales = lw__names_take(names, f->path, ".weight_scale_inv");
    uint32_t rows;
    lw_stored stored;
    float global = 1.0f;
    if (scales == NULL) scales = lw__names_take(names, f->path, ".weight_scale");
    lw__names_take(names, f->path, ".input_scale");
    if (scales == NULL) return fail_missing(names, f, ".weight_scale");
    if (!is_bare(names, f, ".pre_quant_scale") || !packed_rows(names, a, codes, a->cols, &rows) ||
        !is_float(names, codes, scales) || !fp8_groups(names, a, scales, rows, &stored) ||
        !holds(names, f, &stored))
        return false;
    if (stored.group == 0 && !read_scalar(names, scales, &global)) return false;
    *out = (lw_weight){
        .name = codes->name,
        .stack_count = 1,
        .rows = rows,
        .cols = a->cols,
        .map = LW_MAP_E4M3,
        .code_bits = 8,
        .order = LW_ORDER_ROWS,
        .group = stored.group,
        .group_rows = stored.group_rows,
        .scale_type = stored.group == 0 ? LW_DTYPE_F32 : scales->dtype,
        .global_scale = global,
        .codes = codes,
        .scales = stored.group == 0 ? NULL : scales,
    };
    return true;
}

/* -- NVFP4 -- */

/* ModelOpt's weight_scale_2 multiplies; compressed-tensors' weight_global_scale divides. */
static bool fill_nvfp4(lw_names *names, const lw__ask *a, const lw__found *f, lw_weight *out)
{
    const bool divides = strcmp(f->suffix, ".weight_packed") == 0;
    const char *global_suffix = divides ? ".weight_global_scale" : ".weight_scale_2";
    const lw_tensor *codes = f->tensor, *scales = lw__names_take(names, f->path, ".weight_scale");
    const lw_tensor *global = lw__names_take(names, f->path, global_suffix);
    const lw_stored stored = { .storage = divides ? LW_STORED_NVFP4_PACKED : LW_STORED_NVFP4, .bits = 4,
                               .group = NVFP4_GROUP, .group_rows = 1 };
    uint32_t rows;
    float factor;
    lw__names_take(names, f->path, ".input_scale");
    lw__names_take(names, f->path, ".input_global_scale");
    if (scales == NULL) return fail_missing(names, f, ".weight_scale");
    if (scales->dtype != LW_DTYPE_F8_E4M3) return fail_scales(names, codes, scales);
    if (global == NULL) return fail_missing(names, f, global_suffix);
    if (a->cols % NVFP4_GROUP != 0) return fail_shape(names, codes, "whole groups of 16 inputs");
    if (!is_bare(names, f, ".pre_quant_scale") || !packed_rows(names, a, codes, a->cols / 2, &rows) ||
        !is_shape(names, scales, rows, a->cols / NVFP4_GROUP) || !holds(names, f, &stored) ||
        !read_scalar(names, global, &factor))
        return false;
    if (divides && !(factor < 0.0f || factor > 0.0f)) {
        lw__names_note(names, LW_BAD_MODEL, "%s: %s divides by zero", lw__file_of(global), global->name);
        return false;
    }
    *out = (lw_weight){
        .name = codes->name,
        .stack_count = 1,
        .rows = rows,
        .cols = a->cols,
        .map = LW_MAP_TABLE16,
        .code_bits = 4,
        .order = LW_ORDER_ROWS,
        .group = NVFP4_GROUP,
        .group_rows = 1,
        .scale_type = LW_DTYPE_F8_E4M3,
        .global_scale = factor,
        .global_divides = divides,
        .table = e2m1,
        .codes = codes,
        .scales = scales,
    };
    return true;
}

/* -- all -- */

typedef bool filler(lw_names *names, const lw__ask *a, const lw__found *f, lw_weight *out);

static const struct {
    const char *suffix;
    lw_dtype dtype; /* COUNT: any */
    filler *fill;
} fillers[] = {
    { ".qweight", LW_DTYPE_COUNT, fill_gptq },
    { ".weight_packed", LW_DTYPE_I32, fill_packed },
    { ".weight_packed", LW_DTYPE_U8, fill_nvfp4 },
    { ".weight", LW_DTYPE_U32, fill_affine },
    { ".weight", LW_DTYPE_F8_E4M3, fill_fp8 },
    { ".weight", LW_DTYPE_U8, fill_nvfp4 },
};

bool lw__module_fill(lw_names *names, const lw__ask *a, const lw__found *f, lw_weight *out)
{
    for (size_t i = 0; i < sizeof fillers / sizeof fillers[0]; i++) {
        const bool fits = fillers[i].dtype == LW_DTYPE_COUNT || fillers[i].dtype == f->tensor->dtype;
        if (fits && strcmp(fillers[i].suffix, f->suffix) == 0) return fillers[i].fill(names, a, f, out);
    }
    return fill_dense(names, a, f, out);
}
