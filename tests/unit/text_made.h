/* Small tokenizer files for tests: 256 byte tokens whose id is the byte, and what a test adds. */
#ifndef LW_TESTS_TEXT_MADE_H
#define LW_TESTS_TEXT_MADE_H

#include "text/text_internal.h"

#include <stdio.h>
#include <string.h>

/* Pieces of JSON; NULL: the plain form. */
typedef struct made {
    const char *vocab;          /* more tokens: ,"ab":256 */
    const char *merges;         /* "a b",["b","c"] */
    const char *model;          /* more members of the model: ,"ignore_merges":true */
    const char *model_type;
    const char *added;          /* {"id":256,...},{...} */
    const char *normalizer;
    const char *pre_tokenizer;
    const char *post_processor;
    const char *decoder;
} made;

#define MADE_SPLIT(pattern, behavior) \
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" pattern "\"},\"behavior\":\"" behavior \
    "\",\"invert\":false}"
#define MADE_BYTES "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"
#define MADE_STEPS(steps) "{\"type\":\"Sequence\",\"pretokenizers\":[" steps "," MADE_BYTES "]}"

static inline const char *made_or(const char *text, const char *plain)
{
    return text != NULL ? text : plain;
}

static inline void made_vocab(const made *m, lw_buf *json)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[4];
        const int count = (int)lw__byte_char((uint8_t)byte, text);
        const char *escape = byte == '"' || byte == '\\' ? "\\" : "";
        if (lw_buf_printf(json, "%s\"%s%.*s\":%u", byte == 0 ? "" : ",", escape, count, text, byte) != LW_OK)
            return;
    }
    if (lw_buf_append_text(json, made_or(m->vocab, "")) != LW_OK) lw_buf_clear(json);
}

/* Writes the file that m describes. */
static inline void made_json(const made *m, lw_buf *json)
{
    lw_buf_init(json, 0);
    lw_status status = lw_buf_printf(
        json,
        "{\"added_tokens\":[%s],\"normalizer\":%s,\"pre_tokenizer\":%s,"
        "\"post_processor\":%s,\"decoder\":%s,\"model\":{\"type\":\"%s\",\"merges\":[%s]%s,"
        "\"vocab\":{",
        made_or(m->added, ""), made_or(m->normalizer, "null"), made_or(m->pre_tokenizer, MADE_BYTES),
        made_or(m->post_processor, "null"), made_or(m->decoder, "{\"type\":\"ByteLevel\"}"),
        made_or(m->model_type, "BPE"), made_or(m->merges, ""), made_or(m->model, ""));
    if (status == LW_OK) made_vocab(m, json);
    if (status == LW_OK) status = lw_buf_append_text(json, "}}}");
    LW_ASSERT(status == LW_OK);
}

static inline lw_status made_open(const made *m, lw_tokenizer **out, lw_diag *d)
{
    lw_buf json;
    made_json(m, &json);
    const lw_status status = lw_tokenizer_parse(json.bytes, json.count, "made.json", out, d);
    lw_buf_deinit(&json);
    return status;
}

/* What a test asks to be encoded. */
typedef struct made_text {
    const char *text;
    const char *origins;        /* '.' trusted, 'o' outside, one a byte; NULL: all trusted */
    lw_specials specials;
    bool post_process;
} made_text;

static inline lw_status made_encode(const lw_tokenizer *tokenizer, const made_text *t, lw_ids *out,
                                    lw_diag *d)
{
    uint8_t origins[256] = { 0 };
    const size_t count = strlen(t->text);
    LW_ASSERT(count <= sizeof origins && (t->origins == NULL || strlen(t->origins) == count));
    for (size_t i = 0; t->origins != NULL && i < count; i++) {
        origins[i] = t->origins[i] == 'o' ? LW_ORIGIN_OUTSIDE : LW_ORIGIN_TRUSTED;
    }
    const lw_text text = { .bytes = t->text, .count = count, .origins = t->origins == NULL ? NULL : origins };
    const lw_encode_options options = { .specials = t->specials, .post_process = t->post_process };
    lw_token_scratch *scratch;
    lw_status status = lw_token_scratch_make(tokenizer, &scratch, d);
    if (status == LW_OK) status = lw_tokenizer_encode(tokenizer, scratch, text, &options, out, d);
    lw_token_scratch_free(scratch);
    return status;
}

/* Writes ids for comparing: a byte token as its character, another as [id]. */
static inline void made_show(const lw_ids *ids, char *text, size_t room)
{
    size_t count = 0;
    text[0] = '\0';
    for (size_t i = 0; i < ids->count && count + 16 < room; i++) {
        const int32_t id = ids->ids[i];
        if (id > ' ' && id < 0x7F && id != '[') text[count++] = (char)id;
        else count += (size_t)snprintf(text + count, 16, "[%d]", id);
        text[count] = '\0';
    }
}

#endif
