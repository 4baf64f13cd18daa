/* Weights for the xpu kernels: what they can read, and repacking it into blocks of 16 rows (kargs.h). */
#include "device/xpu/exec.h"

#include "base/size.h"

#include <stdlib.h>
#include <string.h>

enum { DENSE_GROUP = 64, WORD_BITS = 32 };

static bool is_dense(const lw_weight *w)
{
    return w->map == LW_MAP_BF16;
}

static bool is_affine(const lw_weight *w)
{
    return w->map == LW_MAP_INTEGER && (w->code_bits == 4 || w->code_bits == 8) && w->group > 0
        && w->group % (WORD_BITS / w->code_bits) == 0 && w->group_rows <= 1
        && w->scale_type == LW_DTYPE_BF16 && w->has_bias && w->global_scale == 1.0f;
}

static lw_status matrix_check(const lw_weight *w, lw_diag *d)
{
    char format[32];
    lw_weight_format(w, format);
    if (w->stack_count != 1 || (!is_dense(w) && !is_affine(w))) {
        return lw_fail(d, LW_UNSUPPORTED,
                       "%s is %s: the xpu device has bf16, and int4 and int8 with bf16 scales and biases",
                       w->name, format);
    }
    const uint32_t group = is_dense(w) ? DENSE_GROUP : w->group;
    if (w->cols % group != 0) {
        return lw_fail(d, LW_UNSUPPORTED, "%s has %u columns: the xpu device wants whole groups of %u",
                       w->name, w->cols, group);
    }
    return LW_OK;
}

static bool is_matrix_op(lw_op_kind kind)
{
    return kind == LW_OP_EMBED || kind == LW_OP_LINEAR;
}

static lw_status op_check(const lw_plan *plan, const lw_op *op, lw_diag *d)
{
    const char *name = lw_op_table[op->kind].name;
    const char *lacks = NULL;
    if (!lw__xpu_runs(op->kind)) {
        return lw_fail(d, LW_UNSUPPORTED, "the xpu device does not have the model's op \"%s\" (layer %u)",
                       name, op->layer);
    }
    if (op->kind == LW_OP_ATTEND &&
        (op->p.attend.head_dim > LW_XPU_HEAD_DIM_MAX || op->p.attend.head_dim % 2 != 0))
        lacks = "heads wider than 256, or of odd width";
    if ((op->kind == LW_OP_GATED_DELTA || op->kind == LW_OP_SSM)
        && plan->states[op->state.index].key_width % LW_XPU_KEY_COLS != 0)
        lacks = "key heads whose width is no multiple of 8";
    if (lacks != NULL) {
        return lw_fail(d, LW_UNSUPPORTED, "the xpu device has op \"%s\" without %s (layer %u)", name, lacks,
                       op->layer);
    }
    return is_matrix_op(op->kind) ? matrix_check(&plan->weights[op->weights[0].index], d) : LW_OK;
}

lw_status lw__xpu_plan_check(const lw_plan *plan, lw_diag *d)
{
    for (uint32_t i = 0; i < plan->op_count; i++) {
        const lw_status status = op_check(plan, &plan->ops[i], d);
        if (status != LW_OK) return status;
    }
    return LW_OK;
}

/* ---- repacking ---- */

static lw_xpu_matrix matrix_of(const lw_weight *w)
{
    lw_xpu_matrix m = { .rows = w->rows, .cols = w->cols };
    m.group = is_dense(w) ? DENSE_GROUP : w->group;
    m.bits = is_dense(w) ? 16 : w->code_bits;
    m.groups = w->cols / m.group;
    const size_t usual = size_div_up(LW_XPU_SLICE_COLS, m.group);
    m.slice_groups = (uint32_t)size_max(usual, size_div_up(m.groups, LW_XPU_SLICES_MAX));
    m.slices = (uint32_t)size_div_up(m.groups, m.slice_groups);
    return m;
}

/* Host memory of one block: its words, then its scales; and one row of codes to unpack into. */
typedef struct block {
    uint32_t *words, *scales;
    size_t word_count, scale_count;      /* of a block */
    uint16_t *codes16, *row_scales, *row_biases;
    uint8_t *codes8;
} block;

static bool block_make(block *b, const lw_xpu_matrix *m, lw_arena *arena)
{
    b->word_count = (size_t)m->cols * m->bits / WORD_BITS * LW_XPU_LANES;
    b->scale_count = m->bits == 16 ? 0 : (size_t)m->groups * LW_XPU_LANES;
    b->words = lw_arena_take_array(arena, b->word_count, sizeof *b->words);
    b->scales = lw_arena_take_array(arena, b->scale_count + 1, sizeof *b->scales);
    b->codes16 = lw_arena_take_array(arena, m->cols, sizeof *b->codes16);
    b->codes8 = lw_arena_take_array(arena, m->cols, sizeof *b->codes8);
    b->row_scales = lw_arena_take_array(arena, m->groups, sizeof *b->row_scales);
    b->row_biases = lw_arena_take_array(arena, m->groups, sizeof *b->row_biases);
    return b->words != NULL && b->scales != NULL && b->codes16 != NULL && b->codes8 != NULL
        && b->row_scales != NULL && b->row_biases != NULL;
}

static void block_fill_row(block *b, const lw_weight *w, const lw_xpu_matrix *m, uint32_t row)
{
    const uint32_t lane = row % LW_XPU_LANES, per_word = WORD_BITS / m->bits;
    if (m->bits == 16) {
        lw_weight_codes16(w, 0, row, b->codes16);
    } else {
        lw_weight_codes8(w, 0, row, b->codes8);
        lw_weight_scales16(w, 0, row, b->row_scales, b->row_biases);
    }
    for (uint32_t k = 0; k < m->cols; k++) {
        const uint32_t code = m->bits == 16 ? b->codes16[k] : b->codes8[k];
        b->words[(size_t)(k / per_word) * LW_XPU_LANES + lane] |= code << (k % per_word * m->bits);
    }
    for (uint32_t g = 0; b->scale_count > 0 && g < m->groups; g++) {
        b->scales[(size_t)g * LW_XPU_LANES + lane] =
            (uint32_t)b->row_scales[g] | (uint32_t)b->row_biases[g] << 16;
    }
}

static lw_status matrix_load(lw_exec *exec, const lw_weight *w, lw_xpu_weight *out, lw_arena *arena,
                             lw_diag *d)
{
    lw_xpu_matrix m = matrix_of(w);
    block b;
    if (!block_make(&b, &m, arena)) return lw_fail(d, LW_NO_ROOM, "%s: no memory to repack it", w->name);
    const size_t blocks = size_div_up(w->rows, LW_XPU_LANES);
    const size_t words_bytes = b.word_count * 4, scales_bytes = b.scale_count * 4;
    lw_status status = lw__xpu_alloc(exec->device, blocks * (words_bytes + scales_bytes), &out->memory, d);
    uint8_t *words = out->memory.at, *scales = out->memory.at + blocks * words_bytes;
    m.words = (uintptr_t)words;
    m.scales = (uintptr_t)scales;
    for (size_t i = 0; status == LW_OK && i < blocks; i++) {
        memset(b.words, 0, words_bytes);
        memset(b.scales, 0, scales_bytes);
        const size_t end = size_min((i + 1) * LW_XPU_LANES, w->rows);
        for (size_t row = i * LW_XPU_LANES; row < end; row++) block_fill_row(&b, w, &m, (uint32_t)row);
        status = lw__xpu_upload(exec->device, words + i * words_bytes, b.words, words_bytes, d);
        if (status == LW_OK)
            status = lw__xpu_upload(exec->device, scales + i * scales_bytes, b.scales, scales_bytes, d);
    }
    out->matrix = m;
    return status;
}

/* A norm's weights as they are, a convolution's turned to (taps, width) so that channels are neighbours. */
static lw_status vector_load(lw_exec *exec, const lw_weight *w, lw_xpu_weight *out, lw_arena *arena,
                             lw_diag *d)
{
    const size_t count = (size_t)w->rows * w->cols;
    float *all = lw_arena_take_array(arena, count, sizeof *all);
    float *row = lw_arena_take_array(arena, w->cols, sizeof *row);
    if (all == NULL || row == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for %s", w->name);
    for (uint32_t n = 0; n < w->rows; n++) {
        lw_weight_dense(w, 0, n, row);
        for (uint32_t k = 0; k < w->cols; k++) all[(size_t)k * w->rows + n] = row[k];
    }
    const lw_status status = lw__xpu_alloc(exec->device, count * sizeof *all, &out->memory, d);
    return status == LW_OK ? lw__xpu_upload(exec->device, out->memory.at, all, count * sizeof *all, d)
                           : status;
}

lw_status lw__xpu_weight_load(lw_exec *exec, const lw_op *op, uint32_t index, lw_diag *d)
{
    enum { SCRATCH_BYTES_MAX = 1 << 30 };
    const lw_weight *w = &exec->plan->weights[index];
    lw_arena arena;
    lw_arena_init(&arena, SCRATCH_BYTES_MAX);
    const lw_status status = is_matrix_op(op->kind)
        ? matrix_load(exec, w, &exec->weights[index], &arena, d)
        : vector_load(exec, w, &exec->weights[index], &arena, d);
    lw_arena_deinit(&arena);
    return status == LW_OK ? LW_OK : lw_fail_prefix(d, status, "%s", w->name);
}
