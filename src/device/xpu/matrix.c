/* Weight matrices for the xpu kernels: which descriptors they read, and repacking those into blocks of 16
 * rows (kargs.h). A format is known by its axes alone: how a code reads, its bits, the group and type of
 * scales.
 */
#include "device/xpu/matrix.h"

#include "base/float16.h"
#include "base/size.h"

#include <math.h>
#include <string.h>

enum { DENSE_GROUP = 64, PIECE = 128, WORD_BITS = 32, TABLE_COUNT = 16 };

/* ---- what kernels read ---- */

enum { PASSES_MAX = 3 };

/* Rows of a pass, in the common set and in that for DPAS, and from how many on it is taken. A panel, which
 * all forms share, costs what its sixteens of rows do, and one more for decoding: linears, whose launches
 * should fill a GPU, take it where it is half full, experts, of which each has panels, at a sixteen. Linears
 * that share a launch lack it. */
typedef struct pass_rows {
    uint32_t least, rows;
} pass_rows;
static const pass_rows linear_passes[PASSES_MAX] = {
    { 1, 1 }, { 2, LW_XPU_ROWS }, { LW_XPU_PANEL / 2, LW_XPU_PANEL }
};
static const pass_rows expert_passes[PASSES_MAX] = {
    { 1, 1 }, { 2, LW_XPU_ROWS }, { LW_XPU_LANES, LW_XPU_PANEL }
};
static const pass_rows dpas_passes[PASSES_MAX] = {
    { 1, 1 }, { 2, LW_XPU_ROWS }, { LW_XPU_ROWS + 1, LW_XPU_ROWS_MANY }
};

typedef struct form_kernels {
    lw_map map;
    uint32_t bits, kernel_map;
    lw_xpu_kernel kernels[LW_XPU_PRODUCTS][PASSES_MAX];
} form_kernels;

#define PASSES(name) { LW_XPU_KERNEL_##name, LW_XPU_KERNEL_##name##_rows }
#define DPAS_PASSES(name) \
    { LW_XPU_KERNEL_dpas_##name, LW_XPU_KERNEL_dpas_##name##_rows, LW_XPU_KERNEL_dpas_##name##_many }

static const form_kernels forms[] = {
#define LW_XPU_FORM(name, code_map, code_bits) \
    { .map = LW_MAP_##code_map, \
      .bits = code_bits, \
      .kernel_map = LW_XPU_MAP_##code_map, \
      .kernels = { [LW_XPU_PRODUCT_LINEAR] = { LW_XPU_KERNEL_linear_##name, \
                                               LW_XPU_KERNEL_linear_##name##_rows, \
                                               LW_XPU_KERNEL_linear_panel }, \
                   [LW_XPU_PRODUCT_EXPERT] = { LW_XPU_KERNEL_expert_##name, \
                                               LW_XPU_KERNEL_expert_##name##_rows, \
                                               LW_XPU_KERNEL_expert_panel } } },
#include "device/xpu/forms.list"
#undef LW_XPU_FORM
};
enum { FORM_COUNT = sizeof forms / sizeof forms[0] };

static const form_kernels fused_forms[] = {
#define LW_XPU_FORM(name, code_map, code_bits) \
    { .map = LW_MAP_##code_map, .bits = code_bits, \
      .kernels = { [LW_XPU_PRODUCT_LINEARS] = PASSES(linears_##name), \
                   [LW_XPU_PRODUCT_SWIGLU] = PASSES(swiglu_##name) } },
#include "device/xpu/fused_forms.list"
#undef LW_XPU_FORM
};
enum { FUSED_FORM_COUNT = sizeof fused_forms / sizeof fused_forms[0] };

static const form_kernels dpas_forms[] = {
#define LW_XPU_FORM(name, code_map, code_bits) \
    { .map = LW_MAP_##code_map, .bits = code_bits, \
      .kernels = { [LW_XPU_PRODUCT_LINEAR] = DPAS_PASSES(linear_##name), \
                   [LW_XPU_PRODUCT_EXPERT] = DPAS_PASSES(expert_##name) } },
#include "device/xpu/dpas_forms.list"
#undef LW_XPU_FORM
};
enum { DPAS_FORM_COUNT = sizeof dpas_forms / sizeof dpas_forms[0] };

static const form_kernels fused_dpas_forms[] = {
#define LW_XPU_FORM(name, code_map, code_bits) \
    { .map = LW_MAP_##code_map, .bits = code_bits, \
      .kernels = { [LW_XPU_PRODUCT_LINEARS] = PASSES(dpas_linears_##name), \
                   [LW_XPU_PRODUCT_SWIGLU] = PASSES(dpas_swiglu_##name) } },
#include "device/xpu/fused_forms.list"
#undef LW_XPU_FORM
};

/* count: it is none of them. */
static uint32_t form_find(const form_kernels *all, uint32_t count, const lw_weight *w)
{
    uint32_t index = 0;
    while (index < count && (all[index].map != w->map || all[index].bits != w->code_bits)) index++;
    return index;
}

static uint32_t form_of(const lw_weight *w)
{
    return form_find(forms, FORM_COUNT, w);
}

bool lw__xpu_form_is_fused(const lw_weight *w)
{
    return form_find(fused_forms, FUSED_FORM_COUNT, w) < FUSED_FORM_COUNT;
}

/* The weight's form in the set of kernels that this device reads it with. */
static const form_kernels *form_in_set(const lw_weight *w, bool is_fused, bool is_dpas)
{
    if (is_fused)
        return &(is_dpas ? fused_dpas_forms : fused_forms)[form_find(fused_forms, FUSED_FORM_COUNT, w)];
    return is_dpas ? &dpas_forms[form_find(dpas_forms, DPAS_FORM_COUNT, w)] : &forms[form_of(w)];
}

static bool is_read_by_dpas(const lw_device *device, const lw_weight *w)
{
    return device->info.has_dpas && form_find(dpas_forms, DPAS_FORM_COUNT, w) < DPAS_FORM_COUNT;
}

lw_xpu_pass lw__xpu_pass(const lw_device *device, const lw_weight *w, lw_xpu_product product, uint32_t rows)
{
    const bool is_dpas = is_read_by_dpas(device, w);
    const bool is_fused = product == LW_XPU_PRODUCT_LINEARS || product == LW_XPU_PRODUCT_SWIGLU;
    const lw_xpu_kernel *kernels = form_in_set(w, is_fused, is_dpas)->kernels[product];
    const pass_rows *passes = is_dpas ? dpas_passes
        : product == LW_XPU_PRODUCT_EXPERT ? expert_passes : linear_passes;
    uint32_t last = 0;
    while (last + 1 < PASSES_MAX && rows >= passes[last + 1].least) last++;
    LW_ASSERT(last + 1 < PASSES_MAX || !is_fused);
    return (lw_xpu_pass){ kernels[last], passes[last].rows };
}

/* Bits of a code in its low plane; the rest are in the high one. */
static uint32_t low_bits(uint32_t bits)
{
    return bits == 3 ? 2 : bits == 5 || bits == 6 ? 4 : bits;
}

/* Columns of a group of the kernels: the weight's own, or pieces of a whole row or of what is not scaled. The
 * last group may be short. */
static uint32_t cut_of(const lw_weight *w)
{
    if (w->group == 0) return DENSE_GROUP;
    return w->group >= w->cols ? PIECE : w->group;
}

uint32_t lw__xpu_matrix_groups(const lw_weight *w)
{
    return (uint32_t)size_div_up(w->cols, cut_of(w));
}

uint32_t lw__xpu_matrix_sums_group(const lw_weight *w)
{
    const bool is_offset = w->has_bias || w->bias_per_scale < 0 || w->bias_per_scale > 0;
    return w->group != 0 && is_offset ? cut_of(w) : 0;
}

bool lw__xpu_matrix_is_like(const lw_weight *a, const lw_weight *b)
{
    return form_of(a) == form_of(b) && a->cols == b->cols && cut_of(a) == cut_of(b);
}

/* The fewest codes that fill whole words of each plane, in eights: kernels take eight at a time. */
static uint32_t codes_unit(uint32_t bits)
{
    enum { TAKEN = 8 };
    uint32_t unit = TAKEN;
    while (unit * low_bits(bits) % WORD_BITS != 0 || unit * (bits - low_bits(bits)) % WORD_BITS != 0)
        unit *= 2;
    return unit;
}

static uint32_t scale_type_of(const lw_weight *w)
{
    if (w->group == 0) return LW_XPU_SCALE_NONE;
    if (w->scale_type == LW_DTYPE_BF16) return LW_XPU_SCALE_BF16;
    if (w->scale_type == LW_DTYPE_F16) return LW_XPU_SCALE_FP16;
    if (w->scale_type == LW_DTYPE_F32) return LW_XPU_SCALE_FP32;
    if (w->scale_type == LW_DTYPE_F8_E4M3 && !w->has_bias) return LW_XPU_SCALE_E4M3;
    return LW_XPU_SCALE_NONE;
}

static size_t scale_bytes(const lw_xpu_matrix *m)
{
    if (m->scale_type == LW_XPU_SCALE_NONE) return 0;
    if (m->scale_type == LW_XPU_SCALE_E4M3) return 1;
    return (m->scale_type == LW_XPU_SCALE_FP32 ? sizeof(float) : sizeof(uint16_t)) * (m->has_bias ? 2 : 1);
}

static lw_xpu_matrix matrix_of(const lw_weight *w)
{
    lw_xpu_matrix m = { .rows = w->rows, .cols = w->cols, .map = forms[form_of(w)].kernel_map,
                        .bits = w->code_bits, .group = cut_of(w), .scale_type = scale_type_of(w) };
    m.groups = lw__xpu_matrix_groups(w);
    const size_t usual = size_div_up(LW_XPU_SLICE_COLS, m.group);
    m.slice_groups = (uint32_t)size_max(usual, size_div_up(m.groups, LW_XPU_SLICES_MAX));
    m.slices = (uint32_t)size_div_up(m.groups, m.slice_groups);
    m.has_bias = w->group != 0 && w->has_bias;
    m.bias_per_scale = w->group == 0 || w->has_bias ? 0.0f : w->bias_per_scale;
    m.is_offset = lw__xpu_matrix_sums_group(w) != 0;
    return m;
}

static size_t block_words_bytes(const lw_xpu_matrix *m)
{
    return (size_t)m->groups * m->group * m->bits / WORD_BITS * LW_XPU_LANES * sizeof(uint32_t);
}

static size_t block_scales_bytes(const lw_xpu_matrix *m)
{
    return (size_t)m->groups * LW_XPU_LANES * scale_bytes(m);
}

static lw_status globals_check(const lw_weight *w, lw_diag *d)
{
    for (uint32_t i = 0; i < w->stack_count; i++) {
        const float global = (float)lw_weight_global(w, i);
        if (!isfinite(global))
            return lw_fail(d, LW_BAD_MODEL, "%s: a global scale of %g", w->name, (double)global);
    }
    return LW_OK;
}

/* Tables of 16 whose values bf16 holds, as DPAS wants them. */
static bool is_table_narrow(const lw_weight *w)
{
    bool is_narrow = w->table != NULL;
    for (uint32_t i = 0; is_narrow && i < TABLE_COUNT; i++)
        is_narrow = (lw_bits_of_float(w->table[i]) & 0xFFFFu) == 0;
    return is_narrow;
}

lw_status lw__xpu_matrix_check(const lw_weight *w, lw_diag *d)
{
    char format[32];
    lw_weight_format(w, format);
    const uint32_t cut = cut_of(w), form = form_of(w);
    if (form == FORM_COUNT || (w->map == LW_MAP_TABLE16 && !is_table_narrow(w))) {
        return lw_fail(
            d, LW_UNSUPPORTED,
            "%s is %s: the xpu device has bf16, fp16, fp32, e4m3, tables of 16 bf16 and integer codes of "
            "2, 3, 4, 5, 6 and 8 bits",
            w->name, format);
    }
    if (w->group != 0 && (w->code_bits > 8 || scale_type_of(w) == LW_XPU_SCALE_NONE)) {
        return lw_fail(
            d, LW_UNSUPPORTED,
            "%s is %s with scales of type %s: the xpu device has BF16, F16, F32 and, without biases, "
            "F8_E4M3, beside codes of up to 8 bits",
            w->name, format, lw_dtype_name(w->scale_type));
    }
    if (w->group == 0 && w->map == LW_MAP_INTEGER)
        return lw_fail(d, LW_UNSUPPORTED, "%s is %s without scales", w->name, format);
    if (cut % codes_unit(w->code_bits) != 0) {
        return lw_fail(d, LW_UNSUPPORTED,
                       "%s is %s: the xpu device wants groups of a multiple of %u columns", w->name, format,
                       codes_unit(w->code_bits));
    }
    const lw_xpu_matrix m = matrix_of(w);
    if (block_words_bytes(&m) + block_scales_bytes(&m) > LW_XPU_STAGING_BYTES) {
        return lw_fail(d, LW_UNSUPPORTED,
                       "%s is %s with %u columns: the xpu device has rows of up to %d KiB", w->name, format,
                       w->cols, LW_XPU_STAGING_BYTES / LW_XPU_LANES >> 10);
    }
    return globals_check(w, d);
}

/* The embedding's values are exact before they are rounded: no device has fp64 for what needs it. */
lw_status lw__xpu_table_check(const lw_weight *w, lw_diag *d)
{
    const lw_status status = lw__xpu_matrix_check(w, d);
    if (status != LW_OK) return status;
    const double global = lw_weight_global(w, 0);
    const bool is_exact = w->group == 0 || (!w->has_bias && w->scale_type != LW_DTYPE_F32);
    const char *lacks = NULL;
    if (!is_exact && (global < 1.0 || global > 1.0)) lacks = "a global scale over fp32 scales or biases";
    if (w->group != 0 && !w->has_bias && w->map != LW_MAP_INTEGER &&
        (w->bias_per_scale < 0 || w->bias_per_scale > 0))
        lacks = "biases beside codes that are no integers";
    return lacks == NULL ? LW_OK : lw_fail(d, LW_UNSUPPORTED, "%s: the xpu device has embeddings without %s",
                                           w->name, lacks);
}

/* ---- repacking ---- */

/* Blocks in the staging ring, words before scales; and one row of the checkpoint to unpack into. */
typedef struct block {
    uint32_t *words;
    uint8_t *scales;
    size_t words_bytes, scales_bytes;    /* of a block */
    bool is_paired;                      /* as DPAS wants words */
    size_t padding;                      /* columns past a row's last, of the last group */
    uint32_t *codes, *high;              /* of the row; of a group, its high plane */
    uint16_t *codes16;
    uint8_t *codes8;
    float *row_scales, *row_biases;
} block;

static bool block_make(block *b, const lw_weight *w, const lw_xpu_matrix *m, lw_arena *arena)
{
    const size_t padded = (size_t)m->groups * m->group;
    const size_t scale_groups = (size_t)lw_weight_groups(w) + 1;
    b->padding = padded - m->cols;
    b->words_bytes = block_words_bytes(m);
    b->scales_bytes = block_scales_bytes(m);
    b->codes = lw_arena_take_array(arena, padded, sizeof *b->codes);
    b->high = lw_arena_take_array(arena, m->group, sizeof *b->high);
    b->codes16 = lw_arena_take_array(arena, m->cols, sizeof *b->codes16);
    b->codes8 = lw_arena_take_array(arena, m->cols, sizeof *b->codes8);
    b->row_scales = lw_arena_take_array(arena, scale_groups, sizeof *b->row_scales);
    b->row_biases = lw_arena_take_array(arena, scale_groups, sizeof *b->row_biases);
    return b->codes != NULL && b->high != NULL && b->codes16 != NULL && b->codes8 != NULL &&
           b->row_scales != NULL && b->row_biases != NULL;
}

static void row_read(block *b, const lw_weight *w, uint32_t member, uint32_t row)
{
    if (w->code_bits == WORD_BITS) {
        lw_weight_dense(w, member, row, (float *)(void *)b->codes);
    } else if (w->code_bits == 16) {
        lw_weight_codes16(w, member, row, b->codes16);
        for (uint32_t k = 0; k < w->cols; k++) b->codes[k] = b->codes16[k];
    } else {
        lw_weight_codes8(w, member, row, b->codes8);
        for (uint32_t k = 0; k < w->cols; k++) b->codes[k] = b->codes8[k];
    }
    memset(b->codes + w->cols, 0, b->padding * sizeof *b->codes);
    if (w->group != 0) lw_weight_scales(w, member, row, b->row_scales, b->row_biases);
}

/* Some bits of a group's codes into a lane of words, which were zero. */
static void plane_put(uint32_t *words, const uint32_t *codes, uint32_t count, uint32_t bits, bool is_paired)
{
    const uint32_t per_word = WORD_BITS / bits;
    for (uint32_t k = 0; k < count; k++) {
        const uint32_t at = k % per_word, place = is_paired ? at / 2 + at % 2 * (per_word / 2) : at;
        words[(size_t)(k / per_word) * LW_XPU_LANES] |= codes[k] << place * bits;
    }
}

static void codes_put(const block *b, const lw_xpu_matrix *m, uint32_t lane)
{
    const uint32_t low = low_bits(m->bits), high = m->bits - low;
    const size_t low_words = (size_t)m->group * low / WORD_BITS * LW_XPU_LANES;
    const size_t group_words = (size_t)m->group * m->bits / WORD_BITS * LW_XPU_LANES;
    uint32_t *words = b->words + lane;
    for (uint32_t g = 0; g < m->groups; g++, words += group_words) {
        uint32_t *codes = b->codes + (size_t)g * m->group;
        if (high > 0) {
            for (uint32_t k = 0; k < m->group; k++) b->high[k] = codes[k] >> low;
            for (uint32_t k = 0; k < m->group; k++) codes[k] &= (1u << low) - 1;
            plane_put(words + low_words, b->high, m->group, high, b->is_paired);
        }
        plane_put(words, codes, m->group, low, b->is_paired);
    }
}

/* A scale or bias in the type that it was read from. */
static void scale_put(const lw_xpu_matrix *m, uint8_t *scales, size_t index, float value)
{
    if (m->scale_type == LW_XPU_SCALE_FP32) {
        memcpy(scales + index * sizeof value, &value, sizeof value);
    } else if (m->scale_type == LW_XPU_SCALE_E4M3) {
        scales[index] = lw_e4m3_of_exact(value);
    } else {
        const uint16_t half = m->scale_type == LW_XPU_SCALE_FP16 ? lw_fp16_of_exact(value)
                                                                 : (uint16_t)(lw_bits_of_float(value) >> 16);
        memcpy(scales + index * sizeof half, &half, sizeof half);
    }
}

static void scales_put(const block *b, const lw_weight *w, const lw_xpu_matrix *m, uint32_t lane)
{
    if (m->scale_type == LW_XPU_SCALE_NONE) return;
    const size_t each = m->has_bias ? 2 : 1;
    for (uint32_t g = 0; g < m->groups; g++) {
        const size_t at = ((size_t)g * LW_XPU_LANES + lane) * each, from = (size_t)g * m->group / w->group;
        scale_put(m, b->scales, at, b->row_scales[from]);
        if (m->has_bias) scale_put(m, b->scales, at + 1, b->row_biases[from]);
    }
}

static lw_status block_fill(block *b, const lw_weight *w, const lw_xpu_matrix *m, size_t index, lw_diag *d)
{
    const size_t blocks = size_div_up(w->rows, LW_XPU_LANES);
    const uint32_t member = (uint32_t)(index / blocks), first = (uint32_t)(index % blocks) * LW_XPU_LANES;
    memset(b->words, 0, b->words_bytes);
    memset(b->scales, 0, b->scales_bytes);
    for (uint32_t lane = 0; lane < LW_XPU_LANES && first + lane < w->rows; lane++) {
        if (lw_weight_row_has_nan(w, member, first + lane))
            return lw_fail(d, LW_BAD_MODEL, "%s: row %u of matrix %u holds a code or scale that is no number",
                           w->name, first + lane, member);
        row_read(b, w, member, first + lane);
        codes_put(b, m, lane);
        scales_put(b, w, m, lane);
    }
    return LW_OK;
}

/* What stands behind the blocks: globals, then the table. */
static lw_status tail_load(lw_device *device, const lw_weight *w, const lw_xpu_matrix *m, lw_arena *arena,
                           lw_diag *d)
{
    float *globals = lw_arena_take_array(arena, w->stack_count, sizeof *globals);
    if (globals == NULL)
        return lw_fail(d, LW_NO_ROOM, "no memory for the scales of %u matrices", w->stack_count);
    for (uint32_t i = 0; i < w->stack_count; i++) globals[i] = (float)lw_weight_global(w, i);
    const lw_status status = lw__xpu_upload(device, (void *)(uintptr_t)m->globals, globals,
                                            w->stack_count * sizeof *globals, d);
    if (status != LW_OK || w->map != LW_MAP_TABLE16) return status;
    return lw__xpu_upload(device, (void *)(uintptr_t)m->table, w->table, TABLE_COUNT * sizeof *w->table, d);
}

/* Where everything lies, in memory that is allocated here. */
static lw_status memory_make(lw_device *device, const lw_weight *w, const block *b, lw_xpu_weight *out,
                             lw_diag *d)
{
    lw_xpu_matrix *m = &out->matrix;
    const size_t blocks = size_div_up(w->rows, LW_XPU_LANES);
    size_t words, scales, bytes;
    m->words_bytes = blocks * b->words_bytes;
    m->scales_bytes = blocks * b->scales_bytes;
    if (!size_mul(m->words_bytes, w->stack_count, &words) ||
        !size_mul(m->scales_bytes, w->stack_count, &scales))
        return lw_fail(d, LW_NO_ROOM, "its size does not fit this machine");
    bytes = words + scales + (w->stack_count + TABLE_COUNT) * sizeof(float);
    const lw_status status = lw__xpu_alloc(device, bytes, &out->memory, d);
    m->words = (uintptr_t)out->memory.at;
    m->scales = m->words + words;
    m->globals = m->scales + scales;
    m->table = m->globals + w->stack_count * sizeof(float);
    return status;
}

/* The next blocks, as many as one half of the staging ring holds: repacked there, then one copy of their
 * words and one of their scales, which lie behind each other on the device too. *count: how many. */
static lw_status blocks_load(lw_device *device, const lw_weight *w, const lw_xpu_weight *out, block *b,
                             size_t first, size_t *count, lw_diag *d)
{
    const size_t each = b->words_bytes + b->scales_bytes;
    uint8_t *staged = NULL;
    *count = size_min(*count, LW_XPU_STAGING_BYTES / each);
    lw_status status = lw__xpu_stage(device, *count * each, &staged, d);
    if (status != LW_OK) return status;
    uint8_t *words = staged, *scales = staged + *count * b->words_bytes;
    for (size_t i = 0; status == LW_OK && i < *count; i++) {
        b->words = (uint32_t *)(void *)(words + i * b->words_bytes);
        b->scales = scales + i * b->scales_bytes;
        status = block_fill(b, w, &out->matrix, first + i, d);
    }
    const lw_xpu_matrix *m = &out->matrix;
    uint8_t *to = out->memory.at + first * b->words_bytes;
    if (status == LW_OK) status = lw__xpu_stage_copy(device, to, words, *count * b->words_bytes, d);
    if (status != LW_OK || b->scales_bytes == 0) return status;
    to = out->memory.at + w->stack_count * m->words_bytes + first * b->scales_bytes;
    return lw__xpu_stage_copy(device, to, scales, *count * b->scales_bytes, d);
}

lw_status lw__xpu_matrix_load(lw_device *device, const lw_weight *w, lw_xpu_weight *out, lw_arena *arena,
                              lw_diag *d)
{
    block b;
    out->matrix = matrix_of(w);
    out->is_paired = b.is_paired = is_read_by_dpas(device, w);
    const lw_xpu_matrix *m = &out->matrix;
    if (!block_make(&b, w, m, arena)) return lw_fail(d, LW_NO_ROOM, "no memory to repack it");
    lw_status status = memory_make(device, w, &b, out, d);
    if (status == LW_OK) status = tail_load(device, w, m, arena, d);
    const size_t all = size_div_up(w->rows, LW_XPU_LANES) * w->stack_count;
    for (size_t at = 0, count = all; status == LW_OK && at < all; at += count) {
        count = all - at;
        status = blocks_load(device, w, out, &b, at, &count, d);
    }
    return status;
}
