/* Reading ref64.safetensors; see check_ref.h. Shapes are checked against each other here, so that the
 * comparison may index freely.
 */
#include "cli/check_ref.h"

#include "model/checkpoint.h"

#include <stdio.h>
#include <string.h>

enum { REF_TOKENS_MAX = 1 << 20 };

typedef struct reader {
    const lw_safetensors *file;
    const char *path;
    const char *gap;           /* the tensor of how far the reference lies from itself */
    lw_arena *arena;
    unsigned prompt;
} reader;

static bool has_part(const reader *r, const char *part)
{
    char name[64];
    snprintf(name, sizeof name, "p%u.%s", r->prompt, part);
    return lw_safetensors_find(r->file, name) != NULL;
}

static lw_status misfit(const reader *r, lw_diag *d)
{
    return lw_fail(d, LW_BAD_MODEL, "%s: the tensors of p%u do not fit each other", r->path, r->prompt);
}

/* Finds p<prompt>.<part> of a dtype and number of dims; *values is an aligned copy. */
static lw_status read_part(const reader *r, const char *part, lw_dtype dtype, uint32_t dim_count,
                           const lw_tensor **tensor, const void **values, lw_diag *d)
{
    char name[64];
    snprintf(name, sizeof name, "p%u.%s", r->prompt, part);
    const lw_tensor *found = lw_safetensors_find(r->file, name);
    if (found == NULL) return lw_fail(d, LW_NOT_FOUND, "%s: no tensor %s", r->path, name);
    if (found->dtype != dtype || found->dim_count != dim_count) {
        return lw_fail(d, LW_BAD_MODEL, "%s: %s is %s with %u dimensions, expected %s with %u", r->path, name,
                       lw_dtype_name(found->dtype), found->dim_count, lw_dtype_name(dtype), dim_count);
    }
    for (uint32_t i = 0; i < dim_count; i++) {
        if (found->dims[i] == 0 || found->dims[i] > REF_TOKENS_MAX) {
            return lw_fail(d, LW_BAD_MODEL, "%s: dimension %u of %s is %llu", r->path, i, name,
                           (unsigned long long)found->dims[i]);
        }
    }
    void *copy = lw_arena_take(r->arena, found->byte_count);
    if (copy == NULL) return lw_fail(d, LW_NO_ROOM, "%s: no memory for %s", r->path, name);
    memcpy(copy, found->bytes, found->byte_count);
    *tensor = found;
    *values = copy;
    return LW_OK;
}

static lw_status read_floats(const reader *r, const char *part, uint32_t dim_count, const lw_tensor **tensor,
                             const float **values, lw_diag *d)
{
    const void *copy = NULL;
    const lw_status status = read_part(r, part, LW_DTYPE_F32, dim_count, tensor, &copy, d);
    *values = copy;
    return status;
}

static lw_status read_ints(const reader *r, const char *part, uint32_t *count, const int32_t **values,
                           lw_diag *d)
{
    const lw_tensor *tensor = NULL;
    const void *copy = NULL;
    const lw_status status = read_part(r, part, LW_DTYPE_I32, 1, &tensor, &copy, d);
    *values = copy;
    *count = status == LW_OK ? (uint32_t)tensor->dims[0] : 0;
    return status;
}

/* Stored rows ascend inside the prompt: then a row number is an index. */
static bool rows_are_right(const lw_check_prompt *p)
{
    for (uint32_t i = 0; i < p->row_count; i++) {
        const int32_t before = i == 0 ? -1 : p->rows[i - 1];
        if (p->rows[i] <= before || p->rows[i] >= (int32_t)p->id_count) return false;
    }
    return true;
}

static lw_status read_prompt(const reader *r, lw_check_ref *ref, lw_diag *d)
{
    lw_check_prompt *p = &ref->prompts[r->prompt];
    const lw_tensor *hidden = NULL, *gap = NULL, *logits = NULL, *margin = NULL;
    lw_status status = read_ints(r, "ids", &p->id_count, &p->ids, d);
    if (status == LW_OK) status = read_ints(r, "rows", &p->row_count, &p->rows, d);
    if (status == LW_OK) status = read_floats(r, "hidden", 3, &hidden, &p->hidden, d);
    if (status == LW_OK) status = read_floats(r, r->gap, 2, &gap, &p->gap, d);
    if (status == LW_OK) status = read_floats(r, "logits", 2, &logits, &p->logits, d);
    if (status == LW_OK) status = read_ints(r, "greedy", &p->greedy_count, &p->greedy, d);
    if (status == LW_OK) status = read_floats(r, "margin", 1, &margin, &p->margin, d);
    if (status != LW_OK) return status;
    p->logit_row_count = (uint32_t)logits->dims[0];
    if (r->prompt == 0) {
        ref->layer_count = (uint32_t)hidden->dims[0] - 1;
        ref->width = (uint32_t)hidden->dims[2];
        ref->vocab = (uint32_t)logits->dims[1];
    }
    const uint64_t planes = (uint64_t)ref->layer_count + 1;
    const bool fits = hidden->dims[0] == planes && hidden->dims[1] == p->row_count &&
                      hidden->dims[2] == ref->width && gap->dims[0] == planes &&
                      gap->dims[1] == p->row_count && logits->dims[1] == ref->vocab &&
                      p->logit_row_count <= p->row_count && margin->dims[0] == p->greedy_count;
    if (!fits || !rows_are_right(p)) {
        return misfit(r, d);
    }
    return LW_OK;
}

/* What the experts of every block were chosen by. */
static lw_status read_choice(const reader *r, lw_check_ref *ref, lw_diag *d)
{
    lw_check_prompt *p = &ref->prompts[r->prompt];
    const lw_tensor *choice = NULL;
    if (!has_part(r, "choice")) return ref->block_count == 0 ? LW_OK : misfit(r, d);
    const lw_status status = read_floats(r, "choice", 3, &choice, &p->choice, d);
    if (status != LW_OK) return status;
    if (r->prompt == 0) {
        ref->block_count = (uint32_t)choice->dims[0];
        ref->experts = (uint32_t)choice->dims[2];
    }
    const bool fits = choice->dims[0] == ref->block_count && choice->dims[1] == p->row_count &&
                      choice->dims[2] == ref->experts;
    return fits ? LW_OK : misfit(r, d);
}

static bool ids_are_right(const int32_t *ids, uint32_t count, uint32_t vocab)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= vocab) return false;
    }
    return true;
}

static lw_status read_drafts(const reader *r, lw_check_ref *ref, lw_diag *d)
{
    lw_check_prompt *p = &ref->prompts[r->prompt];
    const lw_tensor *hidden = NULL;
    uint32_t count = 0;
    const bool has = has_part(r, "mtp_hidden");
    if (r->prompt == 0) ref->has_drafts = has;
    if (has != ref->has_drafts) return misfit(r, d);
    if (!has) return LW_OK;
    lw_status status = read_floats(r, "mtp_hidden", 2, &hidden, &p->draft_hidden, d);
    if (status == LW_OK) status = read_ints(r, "mtp_draft", &count, &p->drafts, d);
    if (status != LW_OK) return status;
    p->draft_row_count = (uint32_t)hidden->dims[0];
    const bool fits = hidden->dims[1] == ref->width && count + 1 == p->id_count &&
                      p->draft_row_count <= count && ids_are_right(p->drafts, count, ref->vocab);
    return fits ? LW_OK : misfit(r, d);
}

lw_status lw_check_ref_read(const char *path, bool act_int8, lw_arena *arena, lw_check_ref *out, lw_diag *d)
{
    lw_safetensors *file = NULL;
    *out = (lw_check_ref){ .width = 0 };
    lw_status status = lw_safetensors_open(path, &file, d);
    for (unsigned j = 0; j < LW_CHECK_PROMPTS && status == LW_OK; j++) {
        const reader r = { .file = file, .path = path, .gap = act_int8 ? "int8_gap" : "bf16_gap",
                           .arena = arena, .prompt = j };
        status = read_prompt(&r, out, d);
        if (status == LW_OK) status = read_choice(&r, out, d);
        if (status == LW_OK) status = read_drafts(&r, out, d);
    }
    if (file != NULL) lw_safetensors_close(file);
    return status;
}
