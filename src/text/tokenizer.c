/* Encoding, and what a tokenizer tells about its ids. The steps are in text_internal.h; here they are strung
 * together, with a cache of words in the thread's scratch: most words of a text stand in it many times.
 */
#include "text/tokenizer_internal.h"

#include "base/size.h"

#include <stdlib.h>
#include <string.h>

enum {
    CACHE_WORDS = 1 << 15,
    CACHE_WORD_BYTES = 30,   /* longer words are rare, and are merged each time */
    CACHE_WORD_IDS = 8,
    JIT_STACK_BYTES_MIN = 32 << 10,
    JIT_STACK_BYTES_MAX = 1 << 20,
};

/* One word and its ids; a cache line. id_count == 0: empty. */
typedef struct cached_word {
    uint8_t byte_count, id_count;
    char bytes[CACHE_WORD_BYTES];
    int32_t ids[CACHE_WORD_IDS];
} cached_word;

struct lw_token_scratch {
    const lw_tokenizer *tokenizer;
    cached_word *cache;      /* [CACHE_WORDS], by hash; a newer word takes the place of an older one */
    lw__bpe_scratch bpe;
    lw__nfc_scratch nfc;
    lw__text_buf repaired;
    lw__text_buf normal;
    pcre2_match_data *match;
    pcre2_match_context *limits;
    pcre2_jit_stack *stack;
};

void lw_tokenizer_close(lw_tokenizer *tokenizer)
{
    if (tokenizer == NULL) return;
    lw__pretok_deinit(&tokenizer->pretok);
    pcre2_code_free(tokenizer->word);
    lw_arena_deinit(&tokenizer->arena);
    free(tokenizer);
}

void lw_ids_deinit(lw_ids *list)
{
    free(list->ids);
    *list = (lw_ids){ .ids = NULL };
}

lw_status lw_ids_append(lw_ids *list, int32_t id)
{
    const lw_status status = lw__ids_reserve(list, 1);
    if (status == LW_OK) list->ids[list->count++] = id;
    return status;
}

/* ---- scratch ---- */

lw_status lw_token_scratch_make(const lw_tokenizer *tokenizer, lw_token_scratch **out, lw_diag *d)
{
    *out = NULL;
    lw_token_scratch *scratch = calloc(1, sizeof *scratch);
    if (scratch == NULL) return lw_fail(d, LW_NO_ROOM, "no memory to encode text");
    scratch->tokenizer = tokenizer;
    scratch->cache = calloc(CACHE_WORDS, sizeof *scratch->cache);
    scratch->match = pcre2_match_data_create(1, NULL);
    scratch->limits = pcre2_match_context_create(NULL);
    scratch->stack = pcre2_jit_stack_create(JIT_STACK_BYTES_MIN, JIT_STACK_BYTES_MAX, NULL);
    if (scratch->cache == NULL || scratch->match == NULL || scratch->limits == NULL) {
        lw_token_scratch_free(scratch);
        return lw_fail(d, LW_NO_ROOM, "no memory to encode text");
    }
    pcre2_set_match_limit(scratch->limits, LW_LIMIT_PATTERN_STEPS);
    pcre2_set_depth_limit(scratch->limits, LW_LIMIT_PATTERN_STEPS);
    pcre2_set_heap_limit(scratch->limits, LW_LIMIT_PATTERN_KIB);
    /* Without a JIT in the library there is no stack, and none is needed. */
    if (scratch->stack != NULL) pcre2_jit_stack_assign(scratch->limits, NULL, scratch->stack);
    *out = scratch;
    return LW_OK;
}

void lw_token_scratch_free(lw_token_scratch *scratch)
{
    if (scratch == NULL) return;
    free(scratch->cache);
    free(scratch->bpe.nodes);
    free(scratch->bpe.heap);
    free(scratch->nfc.items);
    free(scratch->nfc.sorted);
    lw__text_buf_deinit(&scratch->repaired);
    lw__text_buf_deinit(&scratch->normal);
    pcre2_match_data_free(scratch->match);
    pcre2_match_context_free(scratch->limits);
    pcre2_jit_stack_free(scratch->stack);
    free(scratch);
}

/* ---- encoding ---- */

/* One call of lw_tokenizer_encode. */
typedef struct encoding {
    const lw_tokenizer *tokenizer;
    lw_token_scratch *scratch;
    lw_ids *out;
    lw_specials specials;
    lw_diag *d;
} encoding;

static lw_status no_memory(const encoding *e)
{
    return lw_fail(e->d, LW_NO_ROOM, "no memory for the ids of a text");
}

/* Puts the tokens of its bytes in the place of the id at out->ids[at]; returns how many they are. The token
 * came from merging, so each character of its text stands for a byte that has a token. */
static size_t spell_token(const encoding *e, size_t at)
{
    const lw__token *token = &e->tokenizer->vocab.tokens[e->out->ids[at]];
    int32_t *ids = e->out->ids + at;
    size_t count = 0;
    for (size_t i = 0, used; i < token->text_count; i += used, count++)
        lw__utf8_decode(token->text + i, &used);
    memmove(ids + count, ids + 1, (e->out->count - at - 1) * sizeof *ids);
    for (size_t i = 0, used; i < token->text_count; i += used) {
        const int byte = lw__byte_of(lw__utf8_decode(token->text + i, &used));
        LW_ASSERT(byte >= 0);
        *ids++ = e->tokenizer->bpe.byte_ids[byte];
    }
    e->out->count += count - 1;
    return count;
}

/* Spells out the special ids that merging gave: outside text must not reach one by any way. */
static lw_status spell_specials(const encoding *e, size_t from)
{
    const lw__vocab *vocab = &e->tokenizer->vocab;
    for (size_t at = from, count; at < e->out->count; at += count) {
        const lw__token *token = &vocab->tokens[e->out->ids[at]];
        count = 1;
        if ((token->flags & LW__TOKEN_SPECIAL) == 0) continue;
        if (lw__ids_reserve(e->out, token->text_count) != LW_OK) return no_memory(e);
        count = spell_token(e, at);
    }
    return LW_OK;
}

static lw_status merge_word(const encoding *e, const char *bytes, size_t count)
{
    const size_t from = e->out->count;
    const lw_text word = { .bytes = bytes, .count = count };
    const lw_status status = lw__bpe_encode(&e->tokenizer->bpe, &e->scratch->bpe, word, false, e->out, e->d);
    if (status != LW_OK || !e->tokenizer->reaches_special || e->specials == LW_SPECIALS_ALWAYS) return status;
    return spell_specials(e, from);
}

/* Appends the ids of one pre-token. */
static lw_status encode_word(void *context, const char *bytes, size_t count)
{
    const encoding *e = context;
    /* Where the rule for special tokens decides what a word becomes, the cache would mix the rules up. */
    if (count > CACHE_WORD_BYTES || e->tokenizer->reaches_special) return merge_word(e, bytes, count);
    cached_word *cached = &e->scratch->cache[lw__hash_bytes(bytes, count) % CACHE_WORDS];
    if (lw__ids_reserve(e->out, CACHE_WORD_IDS) != LW_OK) return no_memory(e);
    int32_t *ids = e->out->ids + e->out->count;
    if (cached->id_count > 0 && cached->byte_count == count && memcmp(cached->bytes, bytes, count) == 0) {
        memcpy(ids, cached->ids, sizeof cached->ids);
        e->out->count += cached->id_count;
        return LW_OK;
    }
    const size_t from = e->out->count;
    const lw_status status = merge_word(e, bytes, count);
    const size_t id_count = e->out->count - from;
    if (status != LW_OK || id_count > CACHE_WORD_IDS) return status;
    cached->byte_count = (uint8_t)count;
    cached->id_count = (uint8_t)id_count;
    memcpy(cached->bytes, bytes, count);
    memcpy(cached->ids, e->out->ids + from, id_count * sizeof *ids);
    return LW_OK;
}

static lw_text text_part(lw_text text, size_t begin, size_t end)
{
    return (lw_text){
        .bytes = text.bytes + begin,
        .origins = text.origins == NULL ? NULL : text.origins + begin,
        .count = end - begin,
    };
}

static lw_status encode_plain(encoding *e, lw_text text)
{
    const lw__pretok_run run = {
        .pretok = &e->tokenizer->pretok, .match = e->scratch->match, .limits = e->scratch->limits,
        .word = encode_word, .context = e, .d = e->d,
    };
    return lw__pretok_cut(&run, text.bytes, text.count);
}

/* Appends the ids of the added tokens in text; what lies between them goes to rest. */
static lw_status encode_around(encoding *e, const lw__added *added, lw_text text,
                               lw_status (*rest)(encoding *, lw_text))
{
    lw__added_walk walk = { .text = text, .specials = e->specials, .match = e->scratch->match };
    lw__added_match found;
    lw_status status = LW_OK;
    while (status == LW_OK && lw__added_next(added, &walk, &found)) {
        if (walk.done < found.begin) status = rest(e, text_part(text, walk.done, found.begin));
        if (status == LW_OK && lw_ids_append(e->out, found.id) != LW_OK) status = no_memory(e);
        walk.done = found.end;
    }
    if (status == LW_OK && walk.done < text.count) status = rest(e, text_part(text, walk.done, text.count));
    return status;
}

static lw_status encode_raw_part(encoding *e, lw_text text)
{
    const lw_tokenizer *tokenizer = e->tokenizer;
    if (tokenizer->nfc != NULL && !lw__nfc_is_plain(tokenizer->nfc, text.bytes, text.count)) {
        lw__text_buf *normal = &e->scratch->normal;
        if (lw__nfc_apply(tokenizer->nfc, &e->scratch->nfc, text, normal) != LW_OK) return no_memory(e);
        text = lw__text_buf_view(normal, text.origins != NULL);
    }
    return encode_around(e, &tokenizer->added_normal, text, encode_plain);
}

static lw_status append_around(const encoding *e, const lw__around *around)
{
    for (size_t i = 0; i < around->count; i++) {
        if (lw_ids_append(e->out, around->ids[i]) != LW_OK) return no_memory(e);
    }
    return LW_OK;
}

lw_status lw_tokenizer_encode(const lw_tokenizer *tokenizer, lw_token_scratch *scratch, lw_text text,
                              const lw_encode_options *options, lw_ids *out, lw_diag *d)
{
    LW_ASSERT(scratch->tokenizer == tokenizer);
    if (text.count > LW_LIMIT_PROMPT_BYTES) {
        return lw_fail(d, LW_NO_ROOM, "the text has %zu bytes; at most %d are encoded", text.count,
                       LW_LIMIT_PROMPT_BYTES);
    }
    encoding e = {
        .tokenizer = tokenizer, .scratch = scratch, .out = out, .specials = options->specials, .d = d
    };
    const size_t count = out->count;
    lw_status status = LW_OK;
    if (!lw__utf8_valid(text.bytes, text.count)) {
        if (lw__utf8_repair(text, &scratch->repaired) != LW_OK) return no_memory(&e);
        text = lw__text_buf_view(&scratch->repaired, text.origins != NULL);
    }
    if (options->post_process) status = append_around(&e, &tokenizer->before);
    if (status == LW_OK) status = encode_around(&e, &tokenizer->added_raw, text, encode_raw_part);
    if (status == LW_OK && options->post_process) status = append_around(&e, &tokenizer->after);
    if (status != LW_OK) out->count = count;
    return status;
}

/* ---- facts ---- */

uint32_t lw_tokenizer_id_count(const lw_tokenizer *tokenizer)
{
    return tokenizer->vocab.id_count;
}

int32_t lw_tokenizer_find(const lw_tokenizer *tokenizer, const char *text)
{
    return lw__vocab_find(&tokenizer->vocab, text, strlen(text));
}

/* The token of an id that may come from anywhere; NULL if there is none. */
static const lw__token *token_of(const lw_tokenizer *tokenizer, int32_t id)
{
    if (id < 0 || (uint32_t)id >= tokenizer->vocab.id_count) return NULL;
    return &tokenizer->vocab.tokens[id];
}

lw_text lw_tokenizer_bytes(const lw_tokenizer *tokenizer, int32_t id)
{
    const lw__token *token = token_of(tokenizer, id);
    if (token == NULL || token->bytes == NULL) return (lw_text){ .bytes = "" };
    return (lw_text){ .bytes = token->bytes, .count = token->bytes_count };
}

bool lw_tokenizer_is_special(const lw_tokenizer *tokenizer, int32_t id)
{
    const lw__token *token = token_of(tokenizer, id);
    return token != NULL && (token->flags & LW__TOKEN_SPECIAL) != 0;
}
