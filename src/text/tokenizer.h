/* Byte-level BPE as tokenizer.json describes it: text to ids, and ids to bytes.
 * Made once from the file; afterwards read-only and safe to share between threads: each thread that encodes
 * brings its own lw_token_scratch. Same ids as the Hugging Face tokenizers library for the same file.
 * Invalid UTF-8 in the text is replaced by U+FFFD, one per maximal ill-formed part (Unicode 3.9, as Python
 * does).
 */
#ifndef LW_TEXT_TOKENIZER_H
#define LW_TEXT_TOKENIZER_H

#include "base/buf.h"
#include "base/origin.h"
#include "base/status.h"

typedef struct lw_tokenizer lw_tokenizer;
typedef struct lw_token_scratch lw_token_scratch;

/* A growable list of ids; owned by the caller, freed by lw_ids_deinit. */
typedef struct lw_ids {
    int32_t *ids;
    size_t count;
    size_t room;
} lw_ids;

void lw_ids_deinit(lw_ids *list);
lw_status lw_ids_append(lw_ids *list, int32_t id) LW_MUST_USE;

/* Reads the file; a format that is not served is refused by name. *out is NULL on failure. */
lw_status lw_tokenizer_open(const char *path, lw_tokenizer **out, lw_diag *d) LW_MUST_USE;

/* The same from memory (used by fuzzers and tests); name stands for the path in texts. */
lw_status lw_tokenizer_parse(const char *json, size_t count, const char *name, lw_tokenizer **out, lw_diag *d)
    LW_MUST_USE;
void lw_tokenizer_close(lw_tokenizer *tokenizer);

lw_status lw_token_scratch_make(const lw_tokenizer *tokenizer, lw_token_scratch **out, lw_diag *d)
    LW_MUST_USE;
void lw_token_scratch_free(lw_token_scratch *scratch);

typedef enum lw_specials {
    LW_SPECIALS_TRUSTED, /* added tokens with special: true match in trusted bytes only (the default for
                            chats) */
    LW_SPECIALS_ALWAYS,  /* they match anywhere, as the Hugging Face library does (--trust-specials, raw
                            prompts) */
    LW_SPECIALS_NEVER,   /* they match nowhere (--no-specials) */
} lw_specials;

typedef struct lw_encode_options {
    lw_specials specials;
    bool
        post_process; /* apply the post-processor (a BOS from TemplateProcessing); false for rendered chats */
} lw_encode_options;

/* Appends the ids of text to out. On failure out is unchanged. */
lw_status lw_tokenizer_encode(const lw_tokenizer *tokenizer, lw_token_scratch *scratch, lw_text text,
                              const lw_encode_options *options, lw_ids *out, lw_diag *d) LW_MUST_USE;

/* One more than the largest id. */
uint32_t lw_tokenizer_id_count(const lw_tokenizer *tokenizer);

/* The id of an added or vocabulary token by its text as written in tokenizer.json; -1 if there is none. */
int32_t lw_tokenizer_find(const lw_tokenizer *tokenizer, const char *text);

/* The bytes that id stands for; an empty view for an id that the file does not name. Borrowed. */
lw_text lw_tokenizer_bytes(const lw_tokenizer *tokenizer, int32_t id);

/* True for added tokens with special: true: decoding for people skips them. */
bool lw_tokenizer_is_special(const lw_tokenizer *tokenizer, int32_t id);

/* ---- incremental detokenizer: never half a code point ---- */

/* Lives in a stream; zero it (= {0}) to start. Bytes of an unfinished code point wait in it. */
typedef struct lw_detokenizer {
    uint8_t pending[4];
    uint8_t pending_count;
    bool show_specials;   /* also emit the text of special tokens */
} lw_detokenizer;


/* Appends the text that id completes to out (valid UTF-8 always; ill-formed bytes become U+FFFD). */
lw_status lw_detokenizer_push(lw_detokenizer *detokenizer, const lw_tokenizer *tokenizer, int32_t id,
                              lw_buf *out) LW_MUST_USE;

/* At the end of a reply: a code point that never finished becomes U+FFFD. */
lw_status lw_detokenizer_finish(lw_detokenizer *detokenizer, lw_buf *out) LW_MUST_USE;

#endif
