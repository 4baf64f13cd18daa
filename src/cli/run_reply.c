/* One reply of `lanewise run`: generating, streaming with dimmed reasoning, and the report at its end. */
#include "cli/run.h"

#include "base/sha256.h"
#include "cli/think.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS_DEFAULT = 1024, PROMPT_TAIL_IDS = 8, PROMPT_TAIL_BYTES = 256 };

/* What the callbacks of one generation share. */
typedef struct printer {
    lw_run *run;
    lw_reply *reply;
    lw_detokenizer detokenizer;
    lw_buf piece; /* text that one token completed */
    lw_think think;
    int32_t think_open_id, think_close_id; /* -1: none */
    lw_progress_line line;
    lw_status status; /* of the printer itself */
} printer;

static bool print_dim(bool is_dim)
{
    const char *code = is_dim ? "\033[2m" : "\033[0m";
    return lw_out_write(code, strlen(code));
}

/* Streams bytes[0, count): the tag that opens a block stands before the dimmed part, the one that closes it
 * inside. */
static bool print_text(printer *p, const char *bytes, size_t count)
{
    const bool dims = p->run->term.has_color;
    size_t at = 0;
    while (at < count) {
        const bool inside = p->think.inside;
        const size_t part = lw_think_scan(&p->think, bytes + at, count - at);
        if (!lw_out_write(bytes + at, part)) return false;
        at += part;
        if (dims && p->think.inside != inside && !print_dim(!inside)) return false;
    }
    return true;
}

static bool is_end(const printer *p, int32_t id)
{
    const lw_loaded *model = &p->run->model;
    for (size_t i = 0; i < model->end_id_count; i++) {
        if (model->end_ids[i] == id) return true;
    }
    return false;
}

/* Keeps and streams what stands in p->piece. */
static bool print_piece(printer *p)
{
    if (p->piece.count == 0) return true;
    p->status = lw_buf_append(&p->reply->text, p->piece.bytes, p->piece.count);
    if (p->status == LW_OK && !p->run->json && !print_text(p, p->piece.bytes, p->piece.count)) {
        p->reply->reader_gone = true;
    }
    lw_buf_clear(&p->piece);
    return p->status == LW_OK && !p->reply->reader_gone;
}

static bool on_token(void *context, int32_t id)
{
    printer *p = context;
    p->status = lw_ids_append(&p->reply->ids, id);
    if (p->status != LW_OK) return false;
    if (p->run->model.tokenizer == NULL) return !lw_interrupted();
    /* Think tags are shown whether or not the tokenizer calls them special: they part the reply. */
    p->detokenizer.show_specials = id == p->think_open_id || id == p->think_close_id;
    if (!is_end(p, id)) {
        p->status = lw_detokenizer_push(&p->detokenizer, p->run->model.tokenizer, id, &p->piece);
    }
    return p->status == LW_OK && print_piece(p) && !lw_interrupted();
}

static bool on_prompt(void *context, uint32_t rows_done, uint32_t rows)
{
    printer *p = context;
    if (rows_done < rows) lw_progress_line_step(&p->line, rows_done, rows);
    else lw_progress_line_clear(&p->line);
    return !lw_interrupted();
}

/* True if the prompt's last text is an opening tag: then the reply starts inside the block. */
static bool prompt_opens_think(const lw_run *run, const lw_ids *prompt)
{
    char tail[PROMPT_TAIL_BYTES];
    size_t count = 0;
    const size_t first = prompt->count > PROMPT_TAIL_IDS ? prompt->count - PROMPT_TAIL_IDS : 0;
    for (size_t i = first; run->model.tokenizer != NULL && i < prompt->count; i++) {
        const lw_text bytes = lw_tokenizer_bytes(run->model.tokenizer, prompt->ids[i]);
        if (bytes.count > sizeof tail - count) count = 0;
        if (bytes.count > sizeof tail) continue;
        if (bytes.count > 0) memcpy(tail + count, bytes.bytes, bytes.count);
        count += bytes.count;
    }
    return lw_think_ends_open(tail, count);
}

/* The id of a think tag; -1: the vocabulary has none. */
static int32_t tag_id(const lw_run *run, const char *tag)
{
    return run->model.tokenizer != NULL ? lw_tokenizer_find(run->model.tokenizer, tag) : -1;
}

/* The reply's limit, or LW_BAD_INPUT when the prompt does not fit. */
static lw_status tokens_limit(const lw_run *run, size_t prompt_tokens, uint32_t *limit, lw_diag *d)
{
    const uint32_t context = lw_engine_context(run->model.engine);
    const uint32_t model = lw_family_context(run->model.checkpoint);
    if (prompt_tokens == 0) return lw_fail(d, LW_BAD_INPUT, "the prompt has no tokens; give some text");
    if (prompt_tokens >= context) {
        char hint[96] = "";
        if (model != 0) snprintf(hint, sizeof hint, "; this model was made for up to %u", model);
        return lw_fail(d, LW_BAD_INPUT,
                       "the prompt has %zu tokens, which leaves no room for a reply in the context of %u; "
                       "--context N sets it%s",
                       prompt_tokens, context, hint);
    }
    const uint32_t left = context - (uint32_t)prompt_tokens;
    const uint32_t asked = run->tokens_max != 0 ? run->tokens_max : TOKENS_DEFAULT;
    *limit = asked < left ? asked : left;
    return LW_OK;
}

static lw_status generate(printer *p, const lw_ids *prompt, uint32_t limit, lw_diag *d)
{
    lw_run *run = p->run;
    int32_t *ids = calloc(limit, sizeof *ids);
    if (ids == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for a reply of %u tokens", limit);
    lw_generate_options options = {
        .sampling = run->sampling,
        .tokens_max = limit,
        .end_ids = run->model.end_ids,
        .end_id_count = run->model.end_id_count,
        .ignore_end = run->ignore_end,
        .chunk_rows = run->load.chunk,
        .token = on_token,
        .prompt = on_prompt,
        .context = p,
    };
    options.sampling.seed = p->reply->seed;
    lw_status status = lw_generate(run->model.stream, prompt->ids, (uint32_t)prompt->count, &options, ids,
                                   &p->reply->result, d);
    lw_progress_line_clear(&p->line);
    free(ids);
    if (status == LW_OK && p->status == LW_OK) p->status = lw_detokenizer_finish(&p->detokenizer, &p->piece);
    if (status == LW_OK && p->status == LW_OK && !p->reply->reader_gone) (void)print_piece(p);
    if (status == LW_OK && p->status != LW_OK)
        status = lw_fail(d, p->status, "no memory for the reply's text");
    return status;
}

/* Ends the line of a streamed reply. */
static void finish_line(printer *p)
{
    const lw_buf *text = &p->reply->text;
    if (p->run->json || p->reply->reader_gone) return;
    if (p->run->term.has_color && p->think.inside) print_dim(false);
    if (text->count > 0 && text->bytes[text->count - 1] == '\n') return;
    p->reply->reader_gone = !lw_out_write("\n", 1);
}

lw_status lw_run_reply(lw_run *run, const lw_ids *prompt, lw_reply *reply, lw_diag *d)
{
    lw_buf_init(&reply->text, 0);
    uint32_t limit = 0;
    lw_status status = tokens_limit(run, prompt->count, &limit, d);
    if (status != LW_OK) return status;
    reply->prompt_tokens = prompt->count;
    reply->opened_by_prompt = prompt_opens_think(run, prompt);
    reply->seed = run->seed_given ? run->sampling.seed : lw_prompt_seed(prompt->ids, prompt->count, 0);
    printer p = {
        .run = run,
        .reply = reply,
        .think = { .inside = reply->opened_by_prompt },
        .think_open_id = tag_id(run, LW_THINK_OPEN),
        .think_close_id = tag_id(run, LW_THINK_CLOSE),
        .line = lw_progress_line_make(&run->term, "reading the prompt"),
    };
    lw_buf_init(&p.piece, 0);
    lw_interrupt_arm();
    if (!run->json && run->term.has_color && p.think.inside) reply->reader_gone = !print_dim(true);
    status = generate(&p, prompt, limit, d);
    if (status == LW_OK || reply->text.count > 0) finish_line(&p);
    lw_buf_deinit(&p.piece);
    return status;
}

void lw_reply_deinit(lw_reply *reply)
{
    lw_ids_deinit(&reply->ids);
    lw_buf_deinit(&reply->text);
}

/* ---- the report ---- */

static double per_second(double count, uint64_t ns)
{
    return ns == 0 ? 0.0 : count * 1e9 / (double)ns;
}

static const char *finish_name(lw_finish finish)
{
    switch (finish) {
    case LW_FINISH_END: return "stop";
    case LW_FINISH_LENGTH: return "length";
    case LW_FINISH_STOPPED: break;
    }
    return "interrupted";
}

/* The first token of a reply comes from the prompt's last row: decoding computes one row less than it draws.
 */
static double decode_rows(const lw_generate_result *result)
{
    return result->tokens > 1 ? (double)(result->tokens - 1) : 0.0;
}

static json_t *report_object(const lw_run *run, const lw_reply *reply)
{
    const lw_generate_result *result = &reply->result;
    char sha[LW_TOKEN_SHA_CHARS + 1];
    lw_token_sha(reply->ids.ids, reply->ids.count, sha);
    json_t *ids = json_array();
    for (size_t i = 0; i < reply->ids.count; i++) json_array_append_new(ids, json_integer(reply->ids.ids[i]));
    json_t *timings = json_pack("{s:f, s:f, s:f, s:f}", "prompt_ms", (double)result->prompt_ns * 1e-6,
                                "decode_ms", (double)result->decode_ns * 1e-6, "prompt_tok_s",
                                per_second(result->prompt_rows, result->prompt_ns), "decode_tok_s",
                                per_second(decode_rows(result), result->decode_ns));
    const char *bytes = reply->text.count > 0 ? reply->text.bytes : "";
    json_t *text = run->model.tokenizer != NULL ? json_stringn(bytes, reply->text.count) : json_null();
    return json_pack("{s:o, s:o, s:s, s:s, s:I, s:I, s:o}", "ids", ids, "text", text, "token_sha", sha,
                     "finish", finish_name(result->finish), "prompt_tokens",
                     (json_int_t)reply->prompt_tokens, "seed", (json_int_t)reply->seed, "timings", timings);
}

void lw_run_report(const lw_run *run, const lw_reply *reply)
{
    const lw_generate_result *result = &reply->result;
    if (run->json) {
        lw_out_json(report_object(run, reply));
        return;
    }
    if (reply->reader_gone) return;
    char device[LW_DEVICE_TEXT_BYTES];
    lw_engine_describe(run->model.engine, device, sizeof device);
    fprintf(stderr, "prompt %u tokens, %.1f tok/s; reply %u tokens, %.1f tok/s; %s; %s\n",
            result->prompt_rows, per_second(result->prompt_rows, result->prompt_ns), result->tokens,
            per_second(decode_rows(result), result->decode_ns), finish_name(result->finish), device);
}
