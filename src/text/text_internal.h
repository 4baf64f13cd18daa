/* What the files of the tokenizer share: tables made once at load and read-only afterwards, and the scratch
 * that one encoding thread owns. The way of a text: repair (unicode.c), added tokens in the raw text
 * (added.c), normalisation (unicode.c), added tokens in the normalised text, pre-tokens (pretok.c), merges
 * (bpe.c).
 */
#ifndef LW_TEXT_TEXT_INTERNAL_H
#define LW_TEXT_TEXT_INTERNAL_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include "base/arena.h"
#include "base/limits.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

#include <pcre2.h>

/* ---- bpe.c ---- */

enum {
    LW__TOKEN_NAMED = 1,
    LW__TOKEN_MODEL = 2,     /* stands in the model's vocabulary: merging may give it */
    LW__TOKEN_ADDED = 4,
    LW__TOKEN_SPECIAL = 8,
};

typedef struct lw__token {
    const char *text;        /* as written in the file */
    const char *bytes;       /* what it stands for */
    uint32_t text_count;
    uint32_t bytes_count;
    uint8_t flags;           /* LW__TOKEN_* */
} lw__token;

typedef struct lw__vocab {
    lw__token *tokens;       /* [id_room] */
    uint32_t id_room;        /* ids below it may be named */
    uint32_t id_count;       /* one more than the largest named id */
    uint32_t *slots;         /* id + 1 by hash of the text; 0 is empty */
    uint32_t slot_mask;
} lw__vocab;

uint64_t lw__hash_bytes(const char *bytes, size_t count);
lw_status lw__vocab_init(lw__vocab *vocab, lw_arena *arena, uint32_t id_room) LW_MUST_USE;
int32_t lw__vocab_find(const lw__vocab *vocab, const char *text, size_t count);

/* Names id; the caller has checked that neither the id nor the text is taken. text is borrowed. */
void lw__vocab_add(lw__vocab *vocab, uint32_t id, const char *text, size_t count);

typedef struct lw__merge {
    uint32_t left, right;
    uint32_t rank;           /* LW__RANK_NONE: an empty slot */
    uint32_t id;             /* what left and right become */
} lw__merge;

enum {
    LW__RANK_NONE = INT32_MAX,
    LW__WHOLE_TEXT_MAX =
        2048, /* bytes of text of a token that ignore_merges may look for; longer ones are refused */
};

typedef struct lw__bpe {
    const lw__vocab *vocab;
    lw__merge *slots;
    uint32_t slot_mask;
    int32_t byte_ids[256];   /* -1: the vocabulary has no token for this byte */
    bool ignore_merges;      /* a word that is a token as a whole stays whole */
} lw__bpe;

typedef struct lw__bpe_node lw__bpe_node;

typedef struct lw__bpe_scratch {
    lw__bpe_node *nodes;     /* [room] */
    uint64_t *heap;          /* [2 room] rank << 32 | node */
    size_t room;
} lw__bpe_scratch;

lw_status lw__bpe_init(lw__bpe *bpe, const lw__vocab *vocab, lw_arena *arena, size_t merge_count) LW_MUST_USE;
void lw__bpe_add(lw__bpe *bpe, lw__merge merge);

/* Appends the ids of one word. with_heap: merge through the heap however short the word is (both ways agree).
 */
lw_status lw__bpe_encode(const lw__bpe *bpe, lw__bpe_scratch *scratch, lw_text word, bool with_heap,
                         lw_ids *out, lw_diag *d) LW_MUST_USE;

/* The character of a byte in byte-level texts, as UTF-8 of 1 or 2 bytes; returns how many. */
size_t lw__byte_char(uint8_t byte, char text[4]);

/* The byte of such a character, or -1. */
int lw__byte_of(uint32_t point);

/* Makes room for more ids. */
lw_status lw__ids_reserve(lw_ids *list, size_t more) LW_MUST_USE;

/* ---- added.c ---- */

typedef struct lw__added_token {
    const char *text;        /* what to look for: normalised if the token is */
    uint32_t count;
    int32_t id;
    uint32_t same_next;      /* the next token with this text, or LW__NO_INDEX */
    bool special, single_word, strip_left, strip_right;
} lw__added_token;

enum { LW__NO_INDEX = UINT32_MAX >> 1 };

typedef struct lw__trie_node lw__trie_node;

typedef struct lw__added {
    lw__added_token *tokens; /* [token_count] */
    uint32_t token_count;
    lw__trie_node *nodes;
    uint32_t node_count;
    uint32_t first[256];     /* the node of a first byte; 0: no token begins with it */
    const pcre2_code *word;  /* borrowed: one word character at the beginning, for single_word */
} lw__added;

/* Builds the trie over tokens, which are borrowed; earlier tokens win over later ones of the same text. */
lw_status lw__added_init(lw__added *added, lw_arena *arena, lw__added_token *tokens, uint32_t count)
    LW_MUST_USE;

/* What is looked through: one text, its position, and the rule for special tokens. */
typedef struct lw__added_walk {
    lw_text text;
    lw_specials specials;
    pcre2_match_data *match;
    size_t at;               /* where the next match may begin */
    size_t done;             /* text before it is spoken for */
} lw__added_walk;

typedef struct lw__added_match {
    size_t begin, end;
    int32_t id;
} lw__added_match;

/* Finds the next added token at or after walk->at and moves the walk; false when there is none. */
bool lw__added_next(const lw__added *added, lw__added_walk *walk, lw__added_match *found);

/* ---- pretok.c ---- */

typedef struct lw__split lw__split;

typedef struct lw__pretok {
    lw__split *splits;       /* [split_count] */
    size_t split_count;
} lw__pretok;

typedef struct lw__split_rule {
    const char *pattern;
    size_t count;
    bool is_regex;
    const char *behavior;    /* as in the file: "Isolated", ... */
    bool invert;
} lw__split_rule;

lw_status lw__pretok_add(lw__pretok *pretok, lw_arena *arena, const lw__split_rule *rule, const char *name,
                         lw_diag *d) LW_MUST_USE;
void lw__pretok_deinit(lw__pretok *pretok);

typedef struct lw__pretok_run {
    const lw__pretok *pretok;
    pcre2_match_data *match;
    pcre2_match_context *limits;
    lw_status (*word)(void *context, const char *bytes,
                      size_t count); /* called for each pre-token in order */
    void *context;
    lw_diag *d;
} lw__pretok_run;

/* Cuts well-formed text into pre-tokens. */
lw_status lw__pretok_cut(const lw__pretok_run *run, const char *bytes, size_t count) LW_MUST_USE;

/* ---- pretok_pattern.c ---- */

/* Rewrites an Oniguruma pattern into a PCRE2 one that means the same; what would not is refused by name. */
lw_status lw__pattern_rewrite(const char *pattern, size_t count, lw_buf *out, lw_diag *d) LW_MUST_USE;

/* Compiles a PCRE2 pattern for well-formed UTF-8. *out is freed by pcre2_code_free. */
lw_status lw__pattern_compile(const char *pattern, size_t count, pcre2_code **out, lw_diag *d) LW_MUST_USE;

#endif
