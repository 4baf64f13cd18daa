/* Prompts: a text, ids, or a conversation through the chat template. Runs in any thread: what it needs of the
 * model is read-only, and token scratches come from a pool.
 */
#include "api/api.h"

#include "base/limits.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- scratches ---- */

enum { SCRATCHES_MAX = 256 };

struct lw__scratches {
    pthread_mutex_t lock;
    lw_token_scratch *idle[SCRATCHES_MAX];
    size_t idle_count;
};

lw__scratches *lw__scratches_make(void)
{
    lw__scratches *scratches = calloc(1, sizeof *scratches);
    if (scratches == NULL) return NULL;
    if (pthread_mutex_init(&scratches->lock, NULL) != 0) {
        free(scratches);
        return NULL;
    }
    return scratches;
}

void lw__scratches_free(lw__scratches *scratches)
{
    if (scratches == NULL) return;
    for (size_t i = 0; i < scratches->idle_count; i++) lw_token_scratch_free(scratches->idle[i]);
    pthread_mutex_destroy(&scratches->lock);
    free(scratches);
}

static lw_status scratch_take(const lw_model *model, lw_token_scratch **out, lw_diag *d)
{
    lw__scratches *pool = model->scratches;
    *out = NULL;
    pthread_mutex_lock(&pool->lock);
    if (pool->idle_count > 0) *out = pool->idle[--pool->idle_count];
    pthread_mutex_unlock(&pool->lock);
    return *out != NULL ? LW_OK : lw_token_scratch_make(model->tokenizer, out, d);
}

static void scratch_give(const lw_model *model, lw_token_scratch *scratch)
{
    lw__scratches *pool = model->scratches;
    pthread_mutex_lock(&pool->lock);
    const bool has_room = pool->idle_count < SCRATCHES_MAX;
    if (has_room) pool->idle[pool->idle_count++] = scratch;
    pthread_mutex_unlock(&pool->lock);
    if (!has_room) lw_token_scratch_free(scratch);
}

lw_status lw__api_encode(const lw_model *model, lw_text text, const lw_encode_options *options, lw_ids *out,
                         lw_diag *d)
{
    lw_token_scratch *scratch;
    lw_status status = scratch_take(model, &scratch, d);
    if (status != LW_OK) return status;
    status = lw_tokenizer_encode(model->tokenizer, scratch, text, options, out, d);
    scratch_give(model, scratch);
    return status;
}

/* ---- prompts ---- */

lw_prompt *lw__prompt_make(void)
{
    return calloc(1, sizeof(lw_prompt));
}

void lw_prompt_free(lw_prompt *prompt)
{
    if (prompt == NULL) return;
    lw_ids_deinit(&prompt->ids);
    free(prompt);
}

const int32_t *lw_prompt_read_ids(const lw_prompt *prompt, size_t *count)
{
    *count = prompt->ids.count;
    return prompt->ids.ids;
}

bool lw_prompt_is_thinking(const lw_prompt *prompt)
{
    return prompt->is_thinking;
}

/* Takes prompt: into *out, or freed when it cannot be one. Ids of a conversation have its marks; the last
 * place from which the same prompt can resume is one in any. */
static lw_result prompt_finish(const lw_model *model, lw_prompt *prompt, lw_prompt **out, lw_error *error)
{
    if (prompt->ids.count > 0) {
        lw__prompt_mark_openings(model, prompt);
        lw__prompt_mark(prompt, prompt->ids.count - 1);
        *out = prompt;
        return LW_RESULT_OK;
    }
    lw_prompt_free(prompt);
    return lw__api_fail(error, LW_RESULT_BAD_INPUT, "prompt", "the prompt has no tokens; give some text");
}

/* A prompt that was not rendered has no tail of the template's: the block is open when its last tokens opened
 * it. */
static bool ids_are_thinking(const lw_model *model, const lw_ids *ids)
{
    enum { TAIL_IDS = 8 };
    if (model->think_open_id < 0) return false;
    for (size_t i = ids->count; i > 0 && ids->count - i < TAIL_IDS; i--) {
        if (ids->ids[i - 1] == model->think_close_id) return false;
        if (ids->ids[i - 1] == model->think_open_id) return true;
    }
    return false;
}

lw_result lw_prompt_text(const lw_model *model, const char *text, size_t count, unsigned flags,
                         lw_prompt **out, lw_error *error)
{
    *out = NULL;
    if ((flags & ~(unsigned)(LW_PROMPT_SPECIALS | LW_PROMPT_BOS)) != 0)
        return lw__api_fail(error, LW_RESULT_BAD_INPUT, "flags", "flags has bits that mean nothing: 0x%x",
                            flags);
    if (count > LW_LIMIT_PROMPT_BYTES) {
        lw__api_fail(error, LW_RESULT_NO_ROOM, "prompt", "the prompt has %zu bytes; at most %d are read",
                     count, LW_LIMIT_PROMPT_BYTES);
        return lw__api_counts(error, LW_RESULT_NO_ROOM, "prompt", count, LW_LIMIT_PROMPT_BYTES);
    }
    lw_prompt *prompt = lw__prompt_make();
    if (prompt == NULL) return lw__api_fail(error, LW_RESULT_NO_ROOM, "", "no memory for a prompt");
    const bool has_specials = (flags & LW_PROMPT_SPECIALS) != 0;
    const lw_encode_options options = {
        .specials = has_specials ? LW_SPECIALS_ALWAYS : LW_SPECIALS_NEVER,
        .post_process = (flags & LW_PROMPT_BOS) != 0,
    };
    lw_diag d;
    const lw_text view = { .bytes = count > 0 ? text : "", .count = count };
    const lw_status status = lw__api_encode(model, view, &options, &prompt->ids, &d);
    if (status != LW_OK) {
        lw_prompt_free(prompt);
        return lw__api_status(error, status, "prompt", &d);
    }
    prompt->is_thinking = has_specials && ids_are_thinking(model, &prompt->ids);
    return prompt_finish(model, prompt, out, error);
}

lw_result lw_prompt_ids(const lw_model *model, const int32_t *ids, size_t count, lw_prompt **out,
                        lw_error *error)
{
    *out = NULL;
    if (count > LW_LIMIT_CONTEXT) {
        lw__api_fail(error, LW_RESULT_TOO_LONG, "prompt", "the prompt has %zu tokens; at most %d are served",
                     count, LW_LIMIT_CONTEXT);
        return lw__api_counts(error, LW_RESULT_TOO_LONG, "prompt", count, model->facts.context);
    }
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < 0 || (uint32_t)ids[i] >= model->facts.vocab)
            return lw__api_fail(error, LW_RESULT_BAD_INPUT, "prompt",
                                "prompt[%zu] is token %d; the vocabulary has ids from 0 to %u", i, ids[i],
                                model->facts.vocab - 1);
    }
    lw_prompt *prompt = lw__prompt_make();
    if (prompt == NULL) return lw__api_fail(error, LW_RESULT_NO_ROOM, "", "no memory for a prompt");
    for (size_t i = 0; i < count; i++) {
        if (lw_ids_append(&prompt->ids, ids[i]) == LW_OK) continue;
        lw_prompt_free(prompt);
        return lw__api_fail(error, LW_RESULT_NO_ROOM, "prompt", "no memory for %zu tokens", count);
    }
    prompt->is_thinking = ids_are_thinking(model, &prompt->ids);
    return prompt_finish(model, prompt, out, error);
}
