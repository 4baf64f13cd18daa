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
    lw_arena *arena;
    unsigned prompt;
} reader;

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
    if (status == LW_OK) status = read_floats(r, "bf16_gap", 2, &gap, &p->gap, d);
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
        return lw_fail(d, LW_BAD_MODEL, "%s: the tensors of p%u do not fit each other", r->path, r->prompt);
    }
    return LW_OK;
}

lw_status lw_check_ref_read(const char *path, lw_arena *arena, lw_check_ref *out, lw_diag *d)
{
    lw_safetensors *file = NULL;
    *out = (lw_check_ref){ .width = 0 };
    lw_status status = lw_safetensors_open(path, &file, d);
    for (unsigned j = 0; j < LW_CHECK_PROMPTS && status == LW_OK; j++) {
        const reader r = { .file = file, .path = path, .arena = arena, .prompt = j };
        status = read_prompt(&r, out, d);
    }
    if (file != NULL) lw_safetensors_close(file);
    return status;
}
