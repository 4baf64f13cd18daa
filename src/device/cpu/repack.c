/* Weights of the cpu device: any descriptor's rows are read once and laid out as linear_weight.h draws it.
 * Blocks are shared among the pool's threads; a block is written by one of them.
 */
#include "device/cpu/huge.h"
#include "device/cpu/linear_kernels.h"
#include "device/cpu/linear_weight.h"

#include "base/float16.h"
#include "base/limits.h"
#include "base/pool.h"
#include "base/size.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is served ---- */

static bool reads_pairs(const lw_cpu_kernels *kernels)
{
#if defined(__x86_64__)
    return kernels->linear_run == lw__cpu_avx512bf16_linear_run;
#else
    (void)kernels;
    return false;
#endif
}

static bool form_of_integer(uint32_t bits, lw__form *form)
{
    switch (bits) {
    case 2: *form = LW__FORM_INT2; return true;
    case 3: *form = LW__FORM_INT3; return true;
    case 4: *form = LW__FORM_INT4; return true;
    case 5: *form = LW__FORM_INT5; return true;
    case 6: *form = LW__FORM_INT6; return true;
    case 8: *form = LW__FORM_INT8; return true;
    default: return false;
    }
}

static bool form_of(const lw_weight *weight, lw__form *form)
{
    switch (weight->map) {
    case LW_MAP_BF16: *form = LW__FORM_BF16; return true;
    case LW_MAP_FP16: *form = LW__FORM_FP16; return true;
    case LW_MAP_FP32: *form = LW__FORM_FP32; return true;
    case LW_MAP_INTEGER: return form_of_integer(weight->code_bits, form);
    case LW_MAP_TABLE16: *form = LW__FORM_TABLE4; return weight->code_bits == 4 && weight->table != NULL;
    case LW_MAP_E4M3: *form = LW__FORM_E4M3; return true;
    case LW_MAP_COUNT: break;
    }
    return false;
}

static bool is_dense(lw__form form)
{
    return form == LW__FORM_BF16 || form == LW__FORM_FP16 || form == LW__FORM_FP32;
}

static bool is_scale_type(const lw_weight *weight)
{
    if (weight->scale_type == LW_DTYPE_F8_E4M3) return !weight->has_bias;
    return weight->scale_type == LW_DTYPE_BF16 || weight->scale_type == LW_DTYPE_F16
           || weight->scale_type == LW_DTYPE_F32;
}

/* Columns of a group of the kernels: the weight's own, or pieces of a wide one; 0: there is no such cut. An
 * int8 x is scaled by groups too: none is wider than a piece that could be one. */
static uint32_t cut_of(const lw_weight *weight, lw__form form)
{
    enum { PIECE = 128 };
    const bool is_whole_row = weight->group >= weight->cols;
    const uint32_t unit = form == LW__FORM_TABLE4 ? LW__GROUP_UNIT : LW__GROUP_UNIT_SPLIT;
    if (weight->group == 0) return is_dense(form) || form == LW__FORM_E4M3 ? LW__DENSE_GROUP : 0;
    if (weight->x_int8 && weight->group % PIECE == 0) return PIECE;
    if (weight->group <= LW__GROUP_MAX && weight->group % unit == 0) return weight->group;
    return is_whole_row || weight->group % PIECE == 0 ? PIECE : 0;
}

static bool is_table_exact(const lw_weight *weight)
{
    for (int i = 0; i < 16; i++)
        if ((lw_bits_of_float(weight->table[i]) & 0xFFFFu) != 0) return false;
    return true;
}

/* The factor of one member for the kernels, which read e4m3 as value / 256. */
static float factor_of(const lw_weight *weight, lw__form form, uint32_t member)
{
    double factor = lw_weight_global(weight, member);
    if (form == LW__FORM_E4M3) factor *= 256.0;
    if (form == LW__FORM_TABLE4 && weight->x_int8) factor *= 0.5; /* whose codes are doubled */
    if (weight->group > 0 && weight->scale_type == LW_DTYPE_F8_E4M3) factor *= 256.0;
    return (float)factor;
}

static lw_status check_globals(const lw_weight *weight, lw__form form, lw_diag *d)
{
    for (uint32_t i = 0; i < weight->stack_count; i++) {
        const double global = lw_weight_global(weight, i);
        const bool is_one = !(global < 1.0) && !(global > 1.0);
        if (!is_one && (is_dense(form) || weight->has_bias))
            return lw_fail(d, LW_UNSUPPORTED, "%s: the cpu device has no global scale (%g) for it",
                           weight->name, global);
        if (!isfinite(factor_of(weight, form, i)))
            return lw_fail(d, LW_BAD_MODEL, "%s: a global scale of %g", weight->name, global);
    }
    return LW_OK;
}

static lw_status check(const lw_weight *weight, lw__form *form, lw_diag *d)
{
    char format[32];
    lw_weight_format(weight, format);
    if (!form_of(weight, form))
        return lw_fail(d, LW_UNSUPPORTED, "%s: the cpu device has no %s weights; it has bf16, fp16, fp32, "
                       "e4m3, tables of 16 and integer codes of 2, 3, 4, 5, 6 and 8 bits", weight->name,
                       format);
    if (weight->rows == 0 || weight->cols == 0 || weight->stack_count == 0)
        return lw_fail(d, LW_BAD_MODEL, "%s: an empty weight (%u x %u x %u)", weight->name,
                       weight->stack_count, weight->rows, weight->cols);
    if (weight->cols > LW_LIMIT_WIDTH)
        return lw_fail(d, LW_UNSUPPORTED, "%s: %u inputs, the limit is %d", weight->name, weight->cols,
                       LW_LIMIT_WIDTH);
    if (is_dense(*form) && weight->group != 0)
        return lw_fail(d, LW_UNSUPPORTED, "%s: the cpu device has no scaled %s weights", weight->name,
                       format);
    if (cut_of(weight, *form) == 0)
        return lw_fail(d, LW_UNSUPPORTED, "%s: groups of %u columns share a scale; the cpu device has "
                       "multiples of %d up to %d, of 128, and whole rows", weight->name, weight->group,
                       *form == LW__FORM_TABLE4 ? LW__GROUP_UNIT : LW__GROUP_UNIT_SPLIT, LW__GROUP_MAX);
    if (weight->group != 0 && !is_scale_type(weight))
        return lw_fail(d, LW_UNSUPPORTED, "%s: %s of type %s; the cpu device has BF16, F16, F32 and, without "
                       "biases, F8_E4M3", weight->name, weight->has_bias ? "scales and biases" : "scales",
                       lw_dtype_name(weight->scale_type));
    if (*form == LW__FORM_TABLE4 && !is_table_exact(weight))
        return lw_fail(d, LW_UNSUPPORTED, "%s: a table of values that bf16 does not hold", weight->name);
    return check_globals(weight, *form, d);
}

/* ---- the layout ---- */

static lw__plane plane_make(lw__read read, uint32_t bits, uint32_t drop)
{
    lw__plane plane = { .bits = bits, .drop = drop };
    for (uint32_t j = 0; bits > 0 && j < 32 / bits; j++) {
        if (read == LW__READ_INT8) plane.shift[j] = (uint8_t)(j % 4 * 8 + j / 4 * bits);
        else if (read == LW__READ_PAIRS || drop == 0)
            plane.shift[j] = (uint8_t)(read == LW__READ_PAIRS ? j / 2 * bits + j % 2 * 16 : j * bits);
        else /* beside code j mod (32 / drop) of the low word that it continues */
            plane.shift[j] = (uint8_t)(drop * (j % (32 / drop) + 1) % 32 + j / (32 / drop) * bits);
    }
    return plane;
}

static const struct { uint8_t float_low, float_high, pairs_low, pairs_high; } plane_bits[LW__FORM_COUNT] = {
    [LW__FORM_INT2] = { 2, 0, 2, 0 },  [LW__FORM_INT3] = { 2, 1, 2, 1 },  [LW__FORM_INT4] = { 4, 0, 4, 0 },
    [LW__FORM_INT5] = { 4, 1, 4, 1 },  [LW__FORM_INT6] = { 4, 2, 4, 2 },  [LW__FORM_INT8] = { 8, 0, 4, 4 },
    [LW__FORM_TABLE4] = { 4, 0, 4, 0 },
    [LW__FORM_BF16] = { 16, 0, 16, 0 }, [LW__FORM_E4M3] = { 8, 0, 8, 0 },
    [LW__FORM_FP16] = { 16, 0, 16, 0 }, [LW__FORM_FP32] = { 32, 0, 32, 0 },
};

/* What the kernels of int8 need beside it: codes less zero, times the scale, are the weights. */
static void layout_int8(const lw_cpu_kernels *kernels, const lw_weight *weight, lw_cpu_weight *w)
{
    w->read = LW__READ_INT8;
    w->int8 = kernels->int8;
    w->zero = (int32_t)-w->bias_per_scale;
    if (w->form != LW__FORM_TABLE4) return;
    w->zero = 2 * LW_TABLE_INT8_MAX;
    for (int i = 0; i < 16; i++) w->table_codes[i] = (uint8_t)((int32_t)(2.0f * weight->table[i]) + w->zero);
}

/* Everything but the memory. */
static void layout(const lw_cpu_kernels *kernels, const lw_weight *weight, lw__form form, lw_cpu_weight *w)
{
    const bool pairs = reads_pairs(kernels) && form <= LW__FORM_BF16 && !weight->x_int8;
    const bool scaled = weight->group != 0;
    w->stack_count = weight->stack_count;
    w->rows = weight->rows;
    w->cols = weight->cols;
    w->form = form;
    w->read = pairs ? LW__READ_PAIRS : LW__READ_FLOAT;
    w->block_cols = kernels->block_cols;
    w->block_count = (uint32_t)size_round_up(size_div_up(w->rows, w->block_cols), LW__BLOCKS_UNIT);
    w->group = cut_of(weight, form);
    w->group_count = (uint32_t)size_div_up(w->cols, w->group);
    const uint32_t low = pairs ? plane_bits[form].pairs_low : plane_bits[form].float_low;
    const uint32_t high = pairs ? plane_bits[form].pairs_high : plane_bits[form].float_high;
    w->has_scale = scaled;
    w->has_bias = scaled && weight->has_bias;
    w->scale_type = scaled ? weight->scale_type : LW_DTYPE_F32;
    w->bias_per_scale = !scaled || weight->has_bias ? 0.0f : weight->bias_per_scale;
    if (form == LW__FORM_TABLE4) memcpy(w->table, weight->table, sizeof w->table);
    if (weight->x_int8) layout_int8(kernels, weight, w);
    w->low = plane_make(w->read, low, 0);
    w->high = plane_make(w->read, high, low);

    const uint32_t scale_bytes = w->has_scale ? w->block_cols * (uint32_t)lw_dtype_bytes(w->scale_type) : 0;
    w->bias_at = scale_bytes;
    w->words_at = scale_bytes + (w->has_bias ? scale_bytes : 0);
    w->high_at = w->words_at + w->group * low / 8 * w->block_cols;
    w->group_bytes = w->high_at + w->group * high / 8 * w->block_cols;
}

/* ---- filling it ---- */

/* How the words of a lane come from those of the checkpoint's row. */
typedef enum word_way {
    WAY_CODES,      /* they do not: code by code */
    WAY_SAME,       /* as they are */
    WAY_PAIRS,      /* 4 bits: even codes to the lower half, odd ones to the upper */
    WAY_NIBBLES,    /* 8 bits: the low halves of 8 codes to a word of the low plane, the high ones to the high
                     * plane, each as pairs */
} word_way;

/* What one thread needs to hold one row of the checkpoint. */
typedef struct row_scratch {
    uint8_t *codes8;       /* [padded cols] */
    uint16_t *codes16;      /* codes16, dense and words share their room */
    float *dense;
    uint32_t *words;
    word_way way;
    float *scales, *biases; /* [the checkpoint's groups] */
} row_scratch;

typedef struct repack_job {
    const lw_weight *from;
    lw_cpu_weight *to;
    word_way way;
    uint8_t *scratch;      /* scratch_bytes per part */
    size_t scratch_bytes, padded, scale_count;
    uint64_t nan_at[LW_POOL_THREADS_MAX]; /* of each part: the first row with a NaN, counted from 1 */
} repack_job;

static row_scratch scratch_of(const repack_job *job, unsigned part)
{
    uint8_t *at = job->scratch + part * job->scratch_bytes;
    row_scratch s = { .dense = (float *)at, .way = job->way };
    s.codes16 = (uint16_t *)at;
    s.words = (uint32_t *)at;
    at += job->padded * sizeof(float);
    s.scales = (float *)at;
    s.biases = s.scales + job->scale_count;
    s.codes8 = (uint8_t *)(s.biases + job->scale_count);
    return s;
}

/* One lane of one plane of one group: codes[0, count) into every stride-th word. */
static void pack_plane(const lw__plane *plane, const uint16_t *codes, uint32_t count, uint32_t *words,
                       uint32_t stride)
{
    if (plane->bits == 0) return;
    const uint32_t codes_per_word = 32 / plane->bits, mask = (1u << plane->bits) - 1u;
    for (uint32_t i = 0; i < count / codes_per_word; i++) {
        uint32_t word = 0;
        for (uint32_t j = 0; j < codes_per_word; j++)
            word |= ((uint32_t)codes[i * codes_per_word + j] >> plane->drop & mask) << plane->shift[j];
        words[i * stride] = word;
    }
}

/* The fields of a standard word of plane->bits that each stand where the plane wants them. */
static bool is_plane(const lw__plane *plane, uint32_t drop, bool pairs)
{
    for (uint32_t j = 0; j < 32 / plane->bits; j++) {
        const uint32_t shift = pairs ? j / 2 * plane->bits + j % 2 * 16 : j * plane->bits;
        if (plane->shift[j] != shift) return false;
    }
    return plane->drop == drop;
}

static word_way way_of(const lw_weight *from, const lw_cpu_weight *to)
{
    const uint32_t bits = from->code_bits;
    const bool whole = to->high.bits == 0 && to->low.bits == bits;
    if (to->form == LW__FORM_FP16 || to->form == LW__FORM_FP32 || to->form == LW__FORM_E4M3) return WAY_CODES;
    if (whole && 32 % bits == 0 && is_plane(&to->low, 0, false)) return WAY_SAME;
    if (whole && bits == 4 && is_plane(&to->low, 0, true)) return WAY_PAIRS;
    if (bits == 8 && to->low.bits == 4 && to->high.bits == 4 && is_plane(&to->low, 0, true) &&
        is_plane(&to->high, 4, true))
        return WAY_NIBBLES;
    return WAY_CODES;
}

/* Every second of 8 fields of 4 bits, from the lowest on, next to each other. */
static uint32_t every_second(uint32_t word)
{
    word &= 0x0F0F0F0Fu;
    word = (word | word >> 4) & 0x00FF00FFu;
    return (word | word >> 8) & 0xFFFFu;
}

static uint32_t paired(uint32_t word)
{
    return every_second(word) | every_second(word >> 4) << 16;
}

/* The low halves of 8 bytes. */
static uint32_t low_nibbles(uint32_t first, uint32_t second)
{
    return every_second(first) | every_second(second) << 16;
}

/* One lane of one group from the row's words. */
static void put_words(const lw_cpu_weight *w, word_way way, const uint32_t *from, uint8_t *at, uint32_t lane)
{
    const uint32_t count = w->group * w->low.bits / 32, stride = w->block_cols;
    uint32_t *const low = (uint32_t *)(at + w->words_at) + lane;
    if (way == WAY_SAME) {
        for (uint32_t i = 0; i < count; i++) low[i * stride] = from[i];
    } else if (way == WAY_PAIRS) {
        for (uint32_t i = 0; i < count; i++) low[i * stride] = paired(from[i]);
    } else {
        uint32_t *const high = (uint32_t *)(at + w->high_at) + lane;
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t first = from[2 * i], second = from[2 * i + 1];
            low[i * stride] = paired(low_nibbles(first, second));
            high[i * stride] = paired(low_nibbles(first >> 4, second >> 4));
        }
    }
}

/* Stores the scale or bias of one lane in the type that it was read from. */
static void put_scale(lw_dtype type, uint8_t *at, uint32_t lane, float value)
{
    if (type == LW_DTYPE_F8_E4M3) {
        at[lane] = lw_e4m3_of_exact(value);
        return;
    }
    if (type == LW_DTYPE_F32) {
        memcpy(at + lane * sizeof value, &value, sizeof value);
        return;
    }
    const uint16_t half = type == LW_DTYPE_F16 ? lw_fp16_of_exact(value)
        : (uint16_t)(lw_bits_of_float(value) >> 16);
    memcpy(at + lane * sizeof half, &half, sizeof half);
}

/* Reads one row of the checkpoint into scratch; what lies past its end in the scratch is zero already. */
static void read_row(const lw_weight *from, uint32_t member, uint32_t row, const row_scratch *s)
{
    if (s->way != WAY_CODES) {
        lw_weight_words(from, member, row, s->words);
        if (from->group != 0) lw_weight_scales(from, member, row, s->scales, s->biases);
    } else if (from->map == LW_MAP_FP32) lw_weight_dense(from, member, row, s->dense);
    else if (from->code_bits == 16) lw_weight_codes16(from, member, row, s->codes16);
    else {
        lw_weight_codes8(from, member, row, s->codes8);
        if (from->map != LW_MAP_E4M3)
            for (uint32_t k = 0; k < from->cols; k++) s->codes16[k] = s->codes8[k];
        if (from->group != 0) lw_weight_scales(from, member, row, s->scales, s->biases);
    }
}

/* group is the kernels', scale the checkpoint's, which may be wider. */
static void put_group(const lw_cpu_weight *w, uint8_t *at, uint32_t lane, uint32_t group, uint32_t scale,
                      const row_scratch *s)
{
    const size_t begin = (size_t)group * w->group;
    if (w->has_scale) put_scale(w->scale_type, at, lane, s->scales[scale]);
    if (w->has_bias) put_scale(w->scale_type, at + w->bias_at, lane, s->biases[scale]);
    uint8_t *const words = at + w->words_at;
    if (s->way != WAY_CODES) {
        put_words(w, s->way, s->words + begin * (w->low.bits + w->high.bits) / 32, at, lane);
    } else if (w->form == LW__FORM_FP32) {
        for (uint32_t k = 0; k < w->group; k++)
            ((float *)words)[k * w->block_cols + lane] = s->dense[begin + k];
    } else if (w->form == LW__FORM_FP16) {
        for (uint32_t k = 0; k < w->group; k++)
            ((uint16_t *)words)[k * w->block_cols + lane] = s->codes16[begin + k];
    } else if (w->form == LW__FORM_E4M3) {
        for (uint32_t k = 0; k < w->group; k++) words[k * w->block_cols + lane] = s->codes8[begin + k];
    } else {
        pack_plane(&w->low, s->codes16 + begin, w->group, (uint32_t *)words + lane, w->block_cols);
        pack_plane(&w->high, s->codes16 + begin, w->group, (uint32_t *)(at + w->high_at) + lane,
                   w->block_cols);
    }
}

static void repack_row(const repack_job *job, uint32_t member, uint32_t row, const row_scratch *scratch)
{
    const lw_cpu_weight *const w = job->to;
    const uint32_t block = row / w->block_cols, lane = row % w->block_cols;
    read_row(job->from, member, row, scratch);
    for (uint32_t g = 0; g < w->group_count; g++) {
        const uint32_t scale = w->has_scale ? g * w->group / job->from->group : 0;
        put_group(w, lw__group_at(w, member, block, g), lane, g, scale, scratch);
    }
}

static void repack_part(void *context, unsigned part, unsigned parts)
{
    repack_job *const job = context;
    const lw_cpu_weight *const w = job->to;
    const row_scratch scratch = scratch_of(job, part);
    size_t begin, end;
    lw_pool_share((size_t)w->stack_count * w->block_count, 1, part, parts, &begin, &end);
    for (size_t item = begin; item < end; item++) {
        const uint32_t member = (uint32_t)(item / w->block_count), block = (uint32_t)(item % w->block_count);
        for (uint32_t lane = 0; lane < w->block_cols; lane++) {
            const uint64_t row = (uint64_t)block * w->block_cols + lane;
            if (row >= w->rows) break;
            repack_row(job, member, (uint32_t)row, &scratch);
            if (job->nan_at[part] == 0 && lw_weight_row_has_nan(job->from, member, (uint32_t)row))
                job->nan_at[part] = (uint64_t)member * w->rows + row + 1;
        }
    }
}

static lw_status repack(const lw_weight *from, lw_cpu_weight *to, lw_pool *pool, lw_diag *d)
{
    const unsigned parts = pool == NULL ? 1 : lw_pool_threads(pool);
    repack_job job = { .from = from,
                       .to = to,
                       .way = way_of(from, to),
                       .padded = (size_t)to->group * to->group_count,
                       .scale_count = lw_weight_groups(from) };
    const size_t bytes = job.padded * (sizeof(float) + 1) + 2 * sizeof(float) * job.scale_count;
    job.scratch_bytes = size_round_up(bytes, 64);
    job.scratch = calloc(parts, job.scratch_bytes);
    if (job.scratch == NULL)
        return lw_fail(d, LW_NO_ROOM, "%s: no memory for %zu bytes to repack it", from->name,
                       parts * job.scratch_bytes);
    if (pool == NULL) repack_part(&job, 0, 1);
    else lw_pool_run(pool, repack_part, &job);
    free(job.scratch);
    for (unsigned part = 0; part < parts; part++) {
        if (job.nan_at[part] == 0) continue;
        const uint64_t row = job.nan_at[part] - 1;
        return lw_fail(d, LW_BAD_MODEL, "%s: row %u of matrix %u holds a code or scale that is no number",
                       from->name, (unsigned)(row % from->rows), (unsigned)(row / from->rows));
    }
    return LW_OK;
}

static lw_status globals_make(const lw_weight *weight, lw_cpu_weight *w, lw_diag *d)
{
    w->globals = calloc(weight->stack_count, sizeof *w->globals);
    if (w->globals == NULL) return lw_fail(d, LW_NO_ROOM, "%s: no memory for its descriptor", weight->name);
    for (uint32_t i = 0; i < weight->stack_count; i++) {
        const lw_weight *member = weight->members == NULL ? weight : &weight->members[i];
        w->globals[i] = (lw__global){ .factor = factor_of(weight, w->form, i),
            .scale = member->global_scale, .divides = member->global_divides };
    }
    return LW_OK;
}

lw_status lw_cpu_weight_make(const lw_cpu_kernels *kernels, const lw_weight *weight, struct lw_pool *pool,
                             lw_cpu_weight **out, lw_diag *d)
{
    *out = NULL;
    lw__form form = LW__FORM_COUNT;
    lw_status status = check(weight, &form, d);
    if (status != LW_OK) return status;
    lw_cpu_weight *w = calloc(1, sizeof *w);
    if (w == NULL) return lw_fail(d, LW_NO_ROOM, "%s: no memory for its descriptor", weight->name);
    layout(kernels, weight, form, w);
    status = globals_make(weight, w, d);
    if (status != LW_OK) goto fail;

    size_t bytes;
    if (!size_mul((size_t)w->block_count * w->group_count, w->group_bytes, &w->member_bytes)
        || !size_mul(w->member_bytes, w->stack_count, &bytes)) {
        status = lw_fail(d, LW_NO_ROOM, "%s: its size does not fit this machine", weight->name);
        goto fail;
    }
    w->memory = lw_huge_make(bytes);
    if (w->memory == NULL) {
        status = lw_fail(d, LW_NO_ROOM, "%s: no memory for %zu bytes of repacked weight", weight->name,
                         bytes);
        goto fail;
    }
    status = repack(weight, w, pool, d);
    if (status != LW_OK) goto fail;
    *out = w;
    return LW_OK;
fail:
    lw_cpu_weight_free(w);
    return status;
}

void lw_cpu_weight_free(lw_cpu_weight *weight)
{
    if (weight == NULL) return;
    lw_huge_free(weight->memory, weight->member_bytes * weight->stack_count);
    free(weight->globals);
    free(weight);
}

uint64_t lw_cpu_weight_bytes(const lw_cpu_weight *weight)
{
    return weight->member_bytes * weight->stack_count;
}
uint32_t lw_cpu_weight_members(const lw_cpu_weight *weight) { return weight->stack_count; }
uint32_t lw_cpu_weight_rows(const lw_cpu_weight *weight) { return weight->rows; }
uint32_t lw_cpu_weight_cols(const lw_cpu_weight *weight) { return weight->cols; }

size_t lw_cpu_prepared_bytes(const lw_cpu_kernels *kernels, uint32_t cols, uint32_t rows)
{
    (void)kernels;
    const size_t padded = size_round_up(cols, LW__GROUP_MAX);
    return size_round_up((padded + padded / LW__GROUP_UNIT) * rows * sizeof(float), 64);
}

bool lw_cpu_same_prepare(const lw_cpu_weight *a, const lw_cpu_weight *b)
{
    if (a->read != b->read || a->group != b->group || a->cols != b->cols || a->block_cols != b->block_cols
        || a->zero != b->zero)
        return false;
    for (uint32_t k = 0; k < LW__GROUP_UNIT; k++)
        if (lw__x_factor(a, k) != lw__x_factor(b, k)) return false;
    return true;
}

/* ---- single rows ---- */

static uint32_t plane_code(const lw__plane *plane, const uint32_t *words, uint32_t k, uint32_t stride)
{
    if (plane->bits == 0) return 0;
    const uint32_t codes_per_word = 32 / plane->bits;
    const uint32_t word = words[k / codes_per_word * stride] >> plane->shift[k % codes_per_word];
    return (word & ((1u << plane->bits) - 1u)) << plane->drop;
}

static float get_scale(lw_dtype type, const uint8_t *at, uint32_t lane)
{
    if (type == LW_DTYPE_F8_E4M3) return lw_float_of_e4m3(at[lane]);
    if (type == LW_DTYPE_F32) return ((const float *)at)[lane];
    const uint16_t half = ((const uint16_t *)at)[lane];
    return type == LW_DTYPE_F16 ? lw_float_of_fp16(half) : lw_float_of_bf16(half);
}

/* value + addend rounded to odd: the last bit tells that something was cut off, so that rounding the result
 * to a much shorter type is rounding the exact sum. */
static double sum_to_odd(double value, double addend)
{
    const double sum = value + addend, part = sum - value;
    const double lost = (value - (sum - part)) + (addend - part);
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    if (!(fabs(lost) > 0.0) || !isfinite(sum) || (bits & 1u) != 0) return sum;
    return nextafter(sum, lost > 0.0 ? INFINITY : -INFINITY);
}

/* value / divisor rounded to odd in the same way. */
static double quotient_to_odd(double value, double divisor)
{
    const double quotient = value / divisor, rest = fma(-quotient, divisor, value);
    uint64_t bits;
    memcpy(&bits, &quotient, sizeof bits);
    if (!(fabs(rest) > 0.0) || !isfinite(quotient) || (bits & 1u) != 0) return quotient;
    const bool is_above = (rest > 0.0) == (divisor > 0.0);
    return nextafter(quotient, is_above ? INFINITY : -INFINITY);
}

/* bf16 of a double, rounded once. To fp32 it goes by rounding to odd, then to nearest even. */
static lw_bf16 bf16_of_double(double value)
{
    float narrow = (float)value;
    if (isfinite(value) && isfinite(narrow) && (double)narrow != value) {
        if (fabs((double)narrow) > fabs(value)) narrow = nextafterf(narrow, 0.0f);
        narrow = lw_float_of_bits(lw_bits_of_float(narrow) | 1u);
    }
    return lw_bf16_of_float(narrow);
}

/* The value of a code of the packed forms. */
static double code_value(const lw_cpu_weight *w, const uint8_t *at, uint32_t lane, uint32_t k)
{
    const uint8_t *const words = at + w->words_at;
    if (w->form == LW__FORM_E4M3) return (double)lw_float_of_e4m3(words[k * w->block_cols + lane]);
    const uint32_t low = plane_code(&w->low, (const uint32_t *)words + lane, k, w->block_cols);
    if (w->form == LW__FORM_BF16) return (double)lw_float_of_bf16((uint16_t)low);
    if (w->form == LW__FORM_TABLE4) return (double)w->table[low];
    return (double)(low + plane_code(&w->high, (const uint32_t *)(at + w->high_at) + lane, k, w->block_cols));
}

/* Without the global scale. */
static double element(const lw_cpu_weight *w, const uint8_t *at, uint32_t lane, uint32_t k)
{
    const uint8_t *const words = at + w->words_at;
    if (w->form == LW__FORM_FP32) return (double)((const float *)words)[k * w->block_cols + lane];
    if (w->form == LW__FORM_FP16)
        return (double)lw_float_of_fp16(((const uint16_t *)words)[k * w->block_cols + lane]);
    const double code = code_value(w, at, lane, k);
    if (!w->has_scale) return code;
    const double scale = (double)get_scale(w->scale_type, at, lane);
    if (w->has_bias) return sum_to_odd(scale * code, (double)get_scale(w->scale_type, at + w->bias_at, lane));
    return scale * (code + (double)w->bias_per_scale);
}

void lw_cpu_weight_row(const lw_cpu_weight *weight, uint32_t member, uint32_t row, lw_bf16 *values)
{
    LW_ASSERT(member < weight->stack_count);
    LW_ASSERT(row < weight->rows);
    const uint32_t block = row / weight->block_cols, lane = row % weight->block_cols;
    const lw__global *const global = &weight->globals[member];
    for (uint32_t k = 0; k < weight->cols; k++) {
        const uint8_t *const at = lw__group_at(weight, member, block, k / weight->group);
        const double value = element(weight, at, lane, k % weight->group), scale = (double)global->scale;
        values[k] = bf16_of_double(global->divides ? quotient_to_odd(value, scale) : value * scale);
    }
}
