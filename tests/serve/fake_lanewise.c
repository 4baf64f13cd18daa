/* The public API with canned replies, so that tests of the server are fast and say exactly which tokens come.
 * It is linked before the library, in place of src/api but for what judges conversations.
 *
 * The model's "folder" is its options: fake:lanes=2,queue=4,token_us=1000,row_us=10,context=4096,chunk=64.
 * Its vocabulary is the 256 bytes and a few special tokens. What it replies stands in the last [[...]] of the
 * prompt; without one it is 24 letters that depend on the prompt, and on the seed unless greedy:
 *
 *   [[say TEXT]]   [[hex F09F9880]]   [[ids 258,72,259]]   [[count N]]: N letters
 *   [[nan N]]: N letters, then a broken logit   [[lost N]]: N letters, then the device is lost
 *   [[starve N]]: after N letters the engine's thread finds no memory until the reply is closed
 */
#include "fake_lanewise.h"

#include "api/api_messages.h"
#include "base/buf.h"
#include "base/limits.h"
#include "base/rng.h"
#include "base/sha256.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LANES_MAX = 64, SCRIPT_MAX = 1 << 16, NEVER = INT32_MAX };

struct lw_prompt {
    int32_t *ids;
    size_t count;
};

struct lw_reply {
    lw_model *model;
    lw_reply *next;
    bool is_running, is_filling, has_rows_news, is_over, end_is_read;
    int32_t *script, *ids;
    size_t script_count, id_count, read_count;
    int32_t breaks_at, loses_at, starves_at; /* tokens before it happens; NEVER */
    lw_request_options options;
    uint32_t held_max, rows, rows_done, prompt_tokens;
    uint64_t seed;
    lw_end end;
    lw_result result;
    lw_token_logprob top[20];
};

struct lw_model {
    lw_model_facts facts;
    uint32_t queue, token_us, row_us;
    lw_reply *replies; /* oldest first */
    lw_model_counts counts;
    char texts[FAKE_VOCAB][16];
};

static const int32_t end_ids[] = { FAKE_END };

static lw_result fail(lw_error *error, lw_result result, const char *field, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    *error = (lw_error){ .text = "" };
    vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    snprintf(error->field, sizeof error->field, "%s", field);
    return result;
}

/* ---- the model ---- */

const char *lw_version(void)
{
    return "fake";
}

void lw_model_options_init(lw_model_options *options)
{
    *options = (lw_model_options){ .struct_bytes = sizeof *options, .cache_bytes = -1 };
}

static uint32_t option_of(const char *dir, const char *name, uint32_t other)
{
    const char *at = strstr(dir, name);
    return at == NULL ? other : (uint32_t)strtoul(at + strlen(name), NULL, 10);
}

lw_result lw_model_open(const char *dir, const lw_model_options *options, lw_model **out, lw_error *error)
{
    static const char *const specials[] = { "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<bos>" };
    if (strncmp(dir, "fake:", 5) != 0) return fail(error, LW_RESULT_NOT_FOUND, "", "%s: no such model", dir);
    lw_model *model = calloc(1, sizeof *model);
    model->facts = (lw_model_facts){
        .family = "fake", .format = "bytes", .device = "none", .weight_bytes = 1 << 20, .vocab = FAKE_VOCAB,
        .activations = "bf16",
        .kv = "bf16", .kv_bytes = 1024,
        .context = options->context != 0 ? options->context : option_of(dir, "context=", 4096),
        .context_model = 1 << 20,
        .lanes = options->lanes != 0 ? options->lanes : option_of(dir, "lanes=", 4),
        .chunk_rows = option_of(dir, "chunk=", 512), .has_template = true, .end_ids = end_ids,
        .end_id_count = 1, .think_open = "<think>", .think_close = "</think>",
        .sampling = { .top_p = 1, .repetition_penalty = 1 },
    };
    model->queue = options->queue != 0 ? options->queue : option_of(dir, "queue=", 256);
    model->token_us = option_of(dir, "token_us=", 0);
    model->row_us = option_of(dir, "row_us=", 0);
    model->counts.lanes = model->facts.lanes;
    model->counts.pages = 1000;
    for (int32_t i = 0; i < 256; i++) model->texts[i][0] = (char)i;
    for (int32_t i = 0; i < 5; i++) snprintf(model->texts[256 + i], 16, "%s", specials[i]);
    *out = model;
    return LW_RESULT_OK;
}

void lw_model_close(lw_model *model)
{
    free(model);
}

void lw_model_read_facts(const lw_model *model, lw_model_facts *facts)
{
    *facts = model->facts;
}

void lw_model_read_counts(const lw_model *model, lw_model_counts *counts)
{
    *counts = model->counts;
    counts->replies_running = counts->replies_waiting = 0;
    for (const lw_reply *reply = model->replies; reply != NULL; reply = reply->next) {
        if (reply->is_over) continue;
        counts->replies_running += reply->is_running;
        counts->replies_waiting += !reply->is_running;
    }
    counts->pages_used = counts->replies_running;
}

/* ---- text ---- */

const char *lw_text_of_id(const lw_model *model, int32_t id, size_t *count)
{
    *count = id < 256 ? 1 : strlen(model->texts[id]);
    return model->texts[id];
}

bool lw_text_is_special(const lw_model *model, int32_t id)
{
    (void)model;
    return id >= 256;
}

static void add_id(lw_prompt *prompt, int32_t id)
{
    if ((prompt->count & (prompt->count - 1)) == 0)
        prompt->ids =
            realloc(prompt->ids, (prompt->count == 0 ? 1 : prompt->count * 2) * sizeof *prompt->ids);
    prompt->ids[prompt->count++] = id;
}

static void add_text(lw_prompt *prompt, const char *text, size_t count)
{
    for (size_t i = 0; i < count; i++) add_id(prompt, (unsigned char)text[i]);
}

static void add_member(lw_prompt *prompt, const json_t *text)
{
    add_text(prompt, json_string_value(text), json_string_length(text));
}

static bool add_message(lw_prompt *prompt, const json_t *message)
{
    const json_t *reasoning = json_object_get(message, "reasoning_content");
    const json_t *content = json_object_get(message, "content");
    add_id(prompt, FAKE_START);
    add_member(prompt, json_object_get(message, "role"));
    add_id(prompt, '\n');
    if (json_string_length(reasoning) > 0) {
        add_id(prompt, FAKE_THINK_OPEN);
        add_member(prompt, reasoning);
        add_id(prompt, FAKE_THINK_CLOSE);
    }
    add_member(prompt, content);
    add_id(prompt, FAKE_END);
    return json_string_length(content) < 6 || memcmp(json_string_value(content), "RAISE!", 6) != 0;
}

lw_result lw_prompt_chat(const lw_model *model, const char *request, size_t count, lw_prompt **out,
                         lw_error *error)
{
    (void)model;
    lw__chat_request chat;
    *out = NULL;
    const lw_result result = lw__chat_request_read(request, count, &chat, error);
    if (result != LW_RESULT_OK) return result;
    lw_prompt *prompt = calloc(1, sizeof *prompt);
    const bool opens = json_is_true(json_object_get(chat.kwargs, "enable_thinking"));
    bool is_fine = true;
    for (size_t i = 0; i < json_array_size(chat.messages); i++)
        is_fine = add_message(prompt, json_array_get(chat.messages, i)) && is_fine;
    if (chat.add_generation_prompt) {
        add_id(prompt, FAKE_START);
        add_text(prompt, "assistant\n", 10);
        if (opens) add_id(prompt, FAKE_THINK_OPEN);
    }
    lw__chat_request_deinit(&chat);
    if (is_fine) {
        *out = prompt;
        return LW_RESULT_OK;
    }
    lw_prompt_free(prompt);
    return fail(error, LW_RESULT_BAD_INPUT, "messages", "the chat template raised: RAISE!");
}

lw_result lw_prompt_text(const lw_model *model, const char *text, size_t count, unsigned flags,
                         lw_prompt **out, lw_error *error)
{
    (void)error;
    lw_prompt *prompt = calloc(1, sizeof *prompt);
    if ((flags & LW_PROMPT_BOS) != 0) add_id(prompt, FAKE_BOS);
    for (size_t at = 0; at < count;) {
        int32_t special = FAKE_VOCAB;
        for (int32_t id = 256; id < FAKE_VOCAB && (flags & LW_PROMPT_SPECIALS) != 0; id++) {
            const size_t bytes = strlen(model->texts[id]);
            if (bytes <= count - at && memcmp(text + at, model->texts[id], bytes) == 0) special = id;
        }
        add_id(prompt, special < FAKE_VOCAB ? special : (unsigned char)text[at]);
        at += special < FAKE_VOCAB ? strlen(model->texts[special]) : 1;
    }
    *out = prompt;
    return LW_RESULT_OK;
}

lw_result lw_prompt_ids(const lw_model *model, const int32_t *ids, size_t count, lw_prompt **out,
                        lw_error *error)
{
    (void)model, (void)error;
    lw_prompt *prompt = calloc(1, sizeof *prompt);
    for (size_t i = 0; i < count; i++) add_id(prompt, ids[i]);
    *out = prompt;
    return LW_RESULT_OK;
}

void lw_prompt_free(lw_prompt *prompt)
{
    free(prompt->ids);
    free(prompt);
}

const int32_t *lw_prompt_read_ids(const lw_prompt *prompt, size_t *count)
{
    *count = prompt->count;
    return prompt->ids;
}

bool lw_prompt_is_thinking(const lw_prompt *prompt)
{
    return prompt->count > 0 && prompt->ids[prompt->count - 1] == FAKE_THINK_OPEN;
}

struct lw_text_reader {
    const lw_model *model;
    bool shows_specials;
    char pending[8], text[32];
    size_t pending_count;
};

lw_result lw_text_reader_open(const lw_model *model, bool show_specials, lw_text_reader **out)
{
    *out = calloc(1, sizeof **out);
    (*out)->model = model;
    (*out)->shows_specials = show_specials;
    return LW_RESULT_OK;
}

void lw_text_reader_close(lw_text_reader *reader)
{
    free(reader);
}

static size_t wanted_bytes(unsigned char lead)
{
    return lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
}

const char *lw_text_reader_push(lw_text_reader *reader, int32_t id, size_t *count)
{
    *count = 0;
    if (id >= 256) return reader->shows_specials ? lw_text_of_id(reader->model, id, count) : "";
    reader->pending[reader->pending_count++] = (char)id;
    if (reader->pending_count < wanted_bytes((unsigned char)reader->pending[0])) return "";
    return lw_text_reader_finish(reader, count);
}

const char *lw_text_reader_finish(lw_text_reader *reader, size_t *count)
{
    *count = 0;
    if (reader->pending_count == 0) return "";
    json_t *valid = json_stringn(reader->pending, reader->pending_count);
    *count = valid != NULL ? reader->pending_count : 3;
    memcpy(reader->text, valid != NULL ? reader->pending : "\xEF\xBF\xBD", *count);
    json_decref(valid);
    reader->pending_count = 0;
    return reader->text;
}

/* ---- replies ---- */

static void script_add(lw_reply *reply, int32_t id)
{
    if (reply->script_count < SCRIPT_MAX) reply->script[reply->script_count++] = id;
}

static void script_letters(lw_reply *reply, size_t count)
{
    for (size_t i = 0; i < count; i++) script_add(reply, (int32_t)('a' + i % 26));
}

static void script_hex(lw_reply *reply, const char *text)
{
    unsigned byte;
    for (; sscanf(text, "%2x", &byte) == 1 && text[1] != '\0'; text += 2) script_add(reply, (int32_t)byte);
}

static void script_ids(lw_reply *reply, const char *text)
{
    for (char *end; *text >= '0' && *text <= '9'; text = *end == ',' ? end + 1 : end) {
        const long id = strtol(text, &end, 10);
        if (id < FAKE_VOCAB) script_add(reply, (int32_t)id);
    }
}

static void script_of(lw_reply *reply, const char *word)
{
    const long number = strtol(word + strcspn(word, " "), NULL, 10);
    if (strncmp(word, "say ", 4) == 0) {
        for (const char *c = word + 4; *c != '\0'; c++) script_add(reply, (unsigned char)*c);
    } else if (strncmp(word, "hex ", 4) == 0) {
        script_hex(reply, word + 4);
    } else if (strncmp(word, "ids ", 4) == 0) {
        script_ids(reply, word + 4);
    } else if (strncmp(word, "count ", 6) == 0) {
        script_letters(reply, (size_t)number);
    } else {
        script_letters(reply, (size_t)number + 1);
        if (strncmp(word, "nan ", 4) == 0) reply->breaks_at = (int32_t)number;
        else if (strncmp(word, "lost ", 5) == 0) reply->loses_at = (int32_t)number;
        else reply->starves_at = (int32_t)number;
    }
}

static void script_random(lw_reply *reply, const lw_prompt *prompt)
{
    const bool is_greedy = reply->options.sampling.temperature <= 0;
    lw_rng rng = lw_rng_make(lw_prompt_seed(prompt->ids, prompt->count, 1) ^ (is_greedy ? 0 : reply->seed));
    for (int i = 0; i < 24; i++) script_add(reply, (int32_t)('a' + lw_rng_below(&rng, 26)));
}

static void make_script(lw_reply *reply, const lw_prompt *prompt)
{
    char *text = malloc(prompt->count + 1);
    for (size_t i = 0; i < prompt->count; i++)
        text[i] = prompt->ids[i] > 0 && prompt->ids[i] < 256 ? (char)prompt->ids[i] : ' ';
    text[prompt->count] = '\0';
    char *begin = NULL;
    for (char *at = strstr(text, "[["); at != NULL; at = strstr(at + 2, "[[")) begin = at;
    char *close = begin == NULL ? NULL : strstr(begin, "]]");
    reply->script = malloc(SCRIPT_MAX * sizeof *reply->script);
    if (close != NULL) {
        *close = '\0';
        script_of(reply, begin + 2);
    } else {
        script_random(reply, prompt);
    }
    free(text);
}

lw_result lw_reply_open(lw_model *model, const lw_prompt *prompt, const lw_request_options *options,
                        lw_reply **out, lw_error *error)
{
    lw_model_counts counts;
    lw_model_read_counts(model, &counts);
    if (counts.replies_waiting >= model->queue)
        return fail(error, LW_RESULT_BUSY, "", "%u requests are waiting", counts.replies_waiting);
    lw_reply *reply = calloc(1, sizeof *reply);
    reply->model = model;
    reply->options = *options;
    reply->held_max = NEVER;
    reply->breaks_at = reply->loses_at = reply->starves_at = NEVER;
    reply->seed = options->has_seed ? options->seed : lw_prompt_seed(prompt->ids, prompt->count, 0);
    reply->rows = reply->prompt_tokens = (uint32_t)prompt->count;
    make_script(reply, prompt);
    reply->ids = malloc(((size_t)options->tokens_max + 1) * sizeof *reply->ids);
    lw_reply **end = &model->replies;
    while (*end != NULL) end = &(*end)->next;
    *end = reply;
    *out = reply;
    return LW_RESULT_OK;
}

static void end_reply(lw_reply *reply, lw_end end, lw_result result)
{
    if (reply->is_over) return;
    reply->is_over = true;
    reply->is_running = false;
    reply->end = end;
    reply->result = result;
}

static void read_token(lw_reply *reply, lw_event *event)
{
    event->kind = LW_EVENT_TOKEN;
    event->id = reply->ids[reply->read_count++];
    event->is_end_token = event->id == FAKE_END;
    event->logprob = -0.25f * (float)(event->id % 4);
    event->top = reply->top;
    event->top_count = reply->options.top_logprobs > 0 ? (uint32_t)reply->options.top_logprobs : 0;
    for (uint32_t i = 0; i < event->top_count; i++)
        reply->top[i] = (lw_token_logprob){ .id = (event->id + (int32_t)i) % 256,
                                            .logprob = event->logprob - (float)i };
}

void lw_reply_read(lw_reply *reply, lw_event *event)
{
    *event = (lw_event){ .kind = LW_EVENT_NONE };
    if (reply->end_is_read) return;
    if (reply->has_rows_news) {
        reply->has_rows_news = false;
        event->kind = LW_EVENT_FILLING;
        event->rows_done = reply->rows_done;
        event->rows = reply->rows;
    } else if (reply->read_count < reply->id_count) {
        read_token(reply, event);
    } else if (reply->is_over) {
        event->kind = LW_EVENT_END;
        event->end = reply->end;
        event->result = reply->result;
        event->error = reply->result == LW_RESULT_BROKEN ? "a logit is not a number" :
                       reply->result == LW_RESULT_DEVICE_LOST ? "the device is lost" : "";
        reply->end_is_read = true;
    }
}

uint32_t lw_reply_waiting(const lw_reply *reply)
{
    return (uint32_t)(reply->id_count - reply->read_count);
}

void lw_reply_hold(lw_reply *reply, uint32_t held_max)
{
    reply->held_max = held_max;
}

void lw_reply_stop(lw_reply *reply, uint32_t kept)
{
    (void)kept;
    reply->id_count = reply->read_count;
    reply->is_over = false;
    end_reply(reply, LW_END_STOP, LW_RESULT_OK);
}

void lw_reply_cancel(lw_reply *reply)
{
    end_reply(reply, LW_END_CANCELLED, LW_RESULT_OK);
}

void lw_reply_read_counts(const lw_reply *reply, lw_reply_counts *counts)
{
    *counts = (lw_reply_counts){ .prompt_tokens = reply->prompt_tokens,
                                 .reply_tokens = (uint32_t)reply->id_count,
                                 .rounds = (uint32_t)reply->id_count,
                                 .drafts_offered = reply->options.drafts_off ? 0 : 2,
                                 .drafts_kept = reply->options.drafts_off ? 0 : 1,
                                 .prompt_ns = 1000, .decode_ns = 1000000, .seed = reply->seed };
    lw_token_sha(reply->ids, reply->id_count, counts->token_sha);
}

void lw_reply_close(lw_reply *reply)
{
    lw_reply **at = &reply->model->replies;
    while (*at != reply) at = &(*at)->next;
    *at = reply->next;
    if (reply->starves_at != NEVER) fake_starve(false);
    free(reply->script);
    free(reply->ids);
    free(reply);
}

/* ---- rounds ---- */

static void admit(lw_model *model)
{
    uint32_t running = 0;
    for (lw_reply *reply = model->replies; reply != NULL; reply = reply->next) running += reply->is_running;
    for (lw_reply *reply = model->replies; reply != NULL && running < model->facts.lanes;
         reply = reply->next) {
        if (reply->is_running || reply->is_over) continue;
        reply->is_running = reply->is_filling = true;
        running++;
    }
}

static void draw(lw_reply *reply)
{
    const size_t at = reply->id_count;
    if ((int64_t)at >= reply->options.tokens_max) {
        end_reply(reply, LW_END_LENGTH, LW_RESULT_OK);
        return;
    }
    if ((int64_t)at == reply->breaks_at) {
        end_reply(reply, LW_END_FAILED, LW_RESULT_BROKEN);
        return;
    }
    if ((int64_t)at == reply->starves_at) fake_starve(true);
    const int32_t past = reply->options.ignore_end ? '.' : FAKE_END;
    reply->ids[reply->id_count++] = at < reply->script_count ? reply->script[at] : past;
    reply->model->counts.reply_tokens++;
    if (reply->ids[at] == FAKE_END) end_reply(reply, LW_END_STOP, LW_RESULT_OK);
    else if ((int64_t)reply->id_count >= reply->options.tokens_max)
        end_reply(reply, LW_END_LENGTH, LW_RESULT_OK);
}

/* One reply's share of a round; the microseconds it takes. */
static uint32_t step_reply(lw_reply *reply)
{
    lw_model *model = reply->model;
    if (reply->is_filling) {
        const uint32_t left = reply->rows - reply->rows_done;
        const uint32_t rows = left < model->facts.chunk_rows ? left : model->facts.chunk_rows;
        reply->rows_done += rows;
        model->counts.prompt_tokens += rows;
        reply->is_filling = reply->rows_done < reply->rows;
        reply->has_rows_news = true;
        return 1 + rows * model->row_us;
    }
    if (lw_reply_waiting(reply) > reply->held_max) return 0;
    draw(reply);
    return 1 + model->token_us;
}

static void wait_us(uint32_t us)
{
    const struct timespec time = { .tv_sec = us / 1000000, .tv_nsec = (long)(us % 1000000) * 1000 };
    if (us > 1) nanosleep(&time, NULL);
}

lw_result lw_model_step(lw_model *model, bool *worked, lw_error *error)
{
    uint32_t us = 0;
    admit(model);
    for (lw_reply *reply = model->replies; reply != NULL; reply = reply->next) {
        if (!reply->is_running) continue;
        if ((int64_t)reply->id_count == reply->loses_at) {
            for (lw_reply *other = model->replies; other != NULL; other = other->next)
                end_reply(other, LW_END_FAILED, LW_RESULT_DEVICE_LOST);
            *worked = true;
            return fail(error, LW_RESULT_DEVICE_LOST, "", "the device is lost");
        }
        const uint32_t own_us = step_reply(reply);
        us = own_us > us ? own_us : us;
    }
    *worked = us > 0;
    model->counts.rounds += us > 0;
    wait_us(us);
    return LW_RESULT_OK;
}
