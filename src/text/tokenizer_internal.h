/* The tokenizer as its loader fills it and its encoder reads it. */
#ifndef LW_TEXT_TOKENIZER_INTERNAL_H
#define LW_TEXT_TOKENIZER_INTERNAL_H

#include "text/text_internal.h"

#include <jansson.h>

typedef struct lw__around {
    int32_t ids[LW_LIMIT_AROUND_IDS];
    size_t count;
} lw__around;

struct lw_tokenizer {
    lw_arena arena;            /* everything below but compiled patterns */
    lw__vocab vocab;
    lw__bpe bpe;
    lw__added added_raw;       /* normalized: false, looked for in the text as it came */
    lw__added added_normal;    /* normalized: true, looked for in normalised text */
    lw__nfc *nfc;              /* NULL: no normalisation */
    lw__pretok pretok;
    pcre2_code *word;          /* one word character, for single_word; NULL if no token asks */
    lw__around before, after;  /* what the post-processor puts around a text */
    bool reaches_special;      /* merging may give the id of a special token */
};

/* The normalizer, pre_tokenizer, post_processor and decoder of the file; the vocabulary is complete. */
lw_status lw__load_steps(lw_tokenizer *tokenizer, const json_t *root, const char *name, lw_diag *d)
    LW_MUST_USE;

/* The tables of added tokens, which the vocabulary holds; the normalizer is known. */
lw_status lw__load_added(lw_tokenizer *tokenizer, const json_t *root, const char *name, lw_diag *d)
    LW_MUST_USE;

/* object's "type"; never NULL. */
const char *lw__type_of(const json_t *object);

#endif
