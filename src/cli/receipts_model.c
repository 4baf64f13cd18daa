/* Asking a model folder. Each way is a model opened anew, so that nothing of one way can reach another. */
#include "cli/receipts_model.h"

#include "base/buf.h"
#include "lanewise.h"

#include <stdlib.h>
#include <string.h>

enum { CUT_ROWS = 7, STEPS_MAX = 10000000 };

static lw_status fail(lw_diag *d, const lw_error *error)
{
    return lw_fail(d, LW_BAD_INPUT, "%s", error->text);
}

struct lw_receipt_model {
    const lw_receipt_model_options *options;
    lw_model *model;         /* of the way in hand; NULL before the first */
};

lw_receipt_model *lw_receipt_model_make(const lw_receipt_model_options *options)
{
    lw_receipt_model *m = calloc(1, sizeof *m);
    if (m != NULL) m->options = options;
    return m;
}

void lw_receipt_model_free(lw_receipt_model *m)
{
    if (m == NULL) return;
    lw_model_close(m->model);
    free(m);
}

static lw_status model_turn(void *context, lw_way way, lw_diag *d)
{
    lw_receipt_model *m = context;
    lw_model_options options;
    lw_error error;
    lw_model_close(m->model);
    m->model = NULL;
    lw_model_options_init(&options);
    options.threads = m->options->threads;
    options.isa = m->options->isa;
    options.device = m->options->device;
    options.ze_loader = m->options->ze_loader;
    options.xpu_kernels = m->options->xpu_kernels;
    options.xpu_images = m->options->xpu_images;
    options.context = m->options->context;
    options.act_int8 = m->options->act_int8;
    options.kv_int8 = m->options->kv_int8;
    options.chunk_rows = way == LW_WAY_CUT ? CUT_ROWS : m->options->chunk_rows;
    /* More drafts than serving would try, right and wrong ones, also where they do not pay. */
    options.draft_match = 3;
    options.timing_off = true;
    if (way != LW_WAY_SERVED) {
        options.lanes = 1;
        options.cache_bytes = 0;
        options.drafts_off = true;
    }
    return lw_model_open(m->options->dir, &options, &m->model, &error) == LW_RESULT_OK ? LW_OK
                                                                                       : fail(d, &error);
}

static lw_status chat_make(const lw_model *model, const char *messages, lw_prompt **out, lw_diag *d)
{
    lw_buf request;
    lw_error error;
    lw_buf_init(&request, 0);
    lw_status status = lw_buf_printf(&request, "{\"messages\":%s}", messages);
    if (status != LW_OK) status = lw_fail(d, status, "no memory for a request");
    else if (lw_prompt_chat(model, request.bytes, request.count, out, &error) != LW_RESULT_OK)
        status = fail(d, &error);
    lw_buf_deinit(&request);
    return status;
}

/* The ids of chat, the last one moved by altered; frees chat. */
static lw_status ids_make(const lw_model *model, lw_prompt *chat, uint32_t altered, lw_prompt **out,
                          lw_diag *d)
{
    size_t count;
    lw_error error;
    lw_model_facts facts;
    const int32_t *from = lw_prompt_read_ids(chat, &count);
    int32_t *ids = malloc(count * sizeof *ids);
    lw_status status = LW_OK;
    *out = NULL;
    lw_model_read_facts(model, &facts);
    if (ids == NULL) {
        status = lw_fail(d, LW_NO_ROOM, "no memory for %zu ids", count);
    } else {
        memcpy(ids, from, count * sizeof *ids);
        /* Any step that is no multiple of the vocabulary leads to another token; this one leads far away. */
        if (altered != 0)
            ids[count - 1] = (int32_t)(((uint32_t)ids[count - 1] + altered * 97u) % facts.vocab);
        if (lw_prompt_ids(model, ids, count, out, &error) != LW_RESULT_OK) status = fail(d, &error);
    }
    free(ids);
    lw_prompt_free(chat);
    return status;
}

static lw_status reply_open(const lw_receipt_model *m, const lw_ask *ask, lw_reply **out, lw_diag *d)
{
    lw_prompt *prompt = NULL;
    lw_error error;
    lw_status status = chat_make(m->model, lw_receipt_cases[ask->item], &prompt, d);
    if (status == LW_OK && ask->by_ids) status = ids_make(m->model, prompt, ask->altered, &prompt, d);
    if (status != LW_OK) return status;
    lw_request_options options;
    lw_request_options_init(m->model, &options);
    options.sampling.temperature = ask->is_sampled ? 0.8 : 0.0;
    options.has_seed = true;
    options.seed = 1000 + ask->item;
    options.tokens_max = m->options->tokens;
    options.drafts_off = !ask->drafts;
    /* Replies of a length that is known, whatever the model has to say. */
    options.ignore_end = true;
    if (lw_reply_open(m->model, prompt, &options, out, &error) != LW_RESULT_OK) status = fail(d, &error);
    lw_prompt_free(prompt);
    return status;
}

/* Reads what waits; true once the reply has ended. */
static lw_status reply_drain(lw_reply *reply, bool *has_ended, lw_diag *d)
{
    lw_event event;
    for (lw_reply_read(reply, &event); event.kind != LW_EVENT_NONE; lw_reply_read(reply, &event)) {
        if (event.kind != LW_EVENT_END) continue;
        *has_ended = true;
        if (event.end == LW_END_FAILED) return lw_fail(d, LW_BAD_INPUT, "a reply failed: %s", event.error);
    }
    return LW_OK;
}

static lw_status replies_finish(lw_model *model, lw_reply **replies, size_t count, lw_diag *d)
{
    size_t ended_count = 0;
    bool ended[LW_RECEIPT_TOGETHER_MAX] = { false };
    for (int step = 0; step < STEPS_MAX; step++) {
        for (size_t i = 0; i < count; i++) {
            const bool before = ended[i];
            const lw_status status = before ? LW_OK : reply_drain(replies[i], &ended[i], d);
            if (status != LW_OK) return status;
            ended_count += ended[i] != before;
        }
        if (ended_count == count) return LW_OK;
        bool worked;
        lw_error error;
        if (lw_model_step(model, &worked, &error) != LW_RESULT_OK) return fail(d, &error);
    }
    return lw_fail(d, LW_BAD_INPUT, "replies did not end after %d rounds", STEPS_MAX);
}

static lw_status model_ask(void *context, const lw_ask *asks, size_t count, lw_answer *answers, lw_diag *d)
{
    const lw_receipt_model *m = context;
    lw_reply *replies[LW_RECEIPT_TOGETHER_MAX] = { NULL };
    lw_status status = LW_OK;
    LW_ASSERT(count <= LW_RECEIPT_TOGETHER_MAX);
    for (size_t i = 0; i < count && status == LW_OK; i++) status = reply_open(m, &asks[i], &replies[i], d);
    if (status == LW_OK) status = replies_finish(m->model, replies, count, d);
    for (size_t i = 0; i < count && status == LW_OK; i++) {
        lw_reply_counts counts;
        lw_reply_read_counts(replies[i], &counts);
        answers[i] = (lw_answer){ .tokens = counts.reply_tokens, .cached_tokens = counts.cached_tokens,
                                  .drafts_kept = counts.drafts_kept };
        memcpy(answers[i].sha, counts.token_sha, sizeof answers[i].sha);
    }
    for (size_t i = 0; i < count; i++) lw_reply_close(replies[i]);
    return status;
}

lw_asker lw_receipt_model_asker(lw_receipt_model *model)
{
    return (lw_asker){ .context = model, .has_cut = true, .turn = model_turn, .ask = model_ask };
}
