/* Reads tokenizer.json into the tables of a tokenizer. What the file gets wrong is LW_BAD_MODEL, what it asks
 * and is not served is LW_UNSUPPORTED; both name the thing. truncation and padding are not read: they are
 * about batches.
 */
#include "text/tokenizer_internal.h"

#include "base/json.h"
#include "base/size.h"
#include "model/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- vocabulary ---- */

/* id's value if it can be one, else -1. */
static int64_t id_of(const json_t *value)
{
    const json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
    return id >= 0 && id < LW_LIMIT_VOCAB ? (int64_t)id : -1;
}

static lw_status bad_id(const char *name, const char *what, const char *text, lw_diag *d)
{
    return lw_fail(d, LW_BAD_MODEL, "%s: %s '%.200s' has no id in [0, %d)", name, what, text, LW_LIMIT_VOCAB);
}

/* Finds one more than the largest id of the file. */
static lw_status count_ids(const json_t *vocab, const json_t *added, const char *name, uint32_t *count,
                           lw_diag *d)
{
    *count = 0;
    for (void *at = json_object_iter((json_t *)vocab); at != NULL;
         at = json_object_iter_next((json_t *)vocab, at)) {
        const int64_t id = id_of(json_object_iter_value(at));
        if (id < 0) return bad_id(name, "model.vocab", json_object_iter_key(at), d);
        if (id >= *count) *count = (uint32_t)id + 1;
    }
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *token = json_array_get(added, i);
        const char *content = json_string_value(json_object_get(token, "content"));
        const int64_t id = id_of(json_object_get(token, "id"));
        if (content == NULL) return lw_fail(d, LW_BAD_MODEL, "%s: added_tokens[%zu] has no content", name, i);
        if (id < 0) return bad_id(name, "added token", content, d);
        if (id >= *count) *count = (uint32_t)id + 1;
    }
    return LW_OK;
}

/* Names id; text is copied. */
static lw_status name_token(lw_tokenizer *tokenizer, const char *text, uint32_t id, const char *name,
                            lw_diag *d)
{
    lw__vocab *vocab = &tokenizer->vocab;
    const size_t count = strlen(text);
    if (count > LW_LIMIT_TOKEN_BYTES) {
        return lw_fail(d, LW_NO_ROOM, "%s: token %u has %zu bytes of text; at most %d are read", name, id,
                       count, LW_LIMIT_TOKEN_BYTES);
    }
    if ((vocab->tokens[id].flags & LW__TOKEN_NAMED) != 0) {
        return lw_fail(d, LW_BAD_MODEL, "%s: '%.200s' and '%.200s' both have the id %u", name,
                       vocab->tokens[id].text, text, id);
    }
    const char *copy = lw_arena_copy_text(&tokenizer->arena, text, count);
    if (copy == NULL) return lw_fail(d, LW_NO_ROOM, "%s: no memory for the vocabulary", name);
    lw__vocab_add(vocab, id, copy, count);
    return LW_OK;
}

/* Gives a vocabulary token the bytes that its characters stand for. One with a character that stands for no
 * byte keeps its text. */
static lw_status token_set_bytes(lw_tokenizer *tokenizer, lw__token *token)
{
    char *bytes = lw_arena_take(&tokenizer->arena, token->text_count);
    if (bytes == NULL) return LW_NO_ROOM;
    uint32_t count = 0;
    for (size_t at = 0, used; at < token->text_count; at += used) {
        const int byte = lw__byte_of(lw__utf8_decode(token->text + at, &used));
        if (byte < 0) return LW_OK;
        bytes[count++] = (char)byte;
    }
    token->bytes = bytes;
    token->bytes_count = count;
    return LW_OK;
}

static lw_status load_vocab(lw_tokenizer *tokenizer, const json_t *vocab, const char *name, lw_diag *d)
{
    lw_status status = LW_OK;
    for (void *at = json_object_iter((json_t *)vocab); at != NULL;
         at = json_object_iter_next((json_t *)vocab, at)) {
        const uint32_t id = (uint32_t)id_of(json_object_iter_value(at));
        status = name_token(tokenizer, json_object_iter_key(at), id, name, d);
        if (status != LW_OK) return status;
        tokenizer->vocab.tokens[id].flags |= LW__TOKEN_MODEL;
        status = token_set_bytes(tokenizer, &tokenizer->vocab.tokens[id]);
        if (status != LW_OK) return lw_fail(d, status, "%s: no memory for the vocabulary", name);
    }
    return LW_OK;
}

/* ---- merges ---- */

/* The two texts of a merge. */
typedef struct merge_texts {
    const char *left, *right;
    size_t left_count, right_count;
} merge_texts;

/* Reads "a b" or ["a", "b"]. */
static bool merge_read(const json_t *merge, merge_texts *t)
{
    if (json_is_string(merge)) {
        const char *text = json_string_value(merge), *space = strchr(text, ' ');
        if (space == NULL || strchr(space + 1, ' ') != NULL) return false;
        *t = (merge_texts){ text, space + 1, (size_t)(space - text), strlen(space + 1) };
        return true;
    }
    const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
    if (json_array_size(merge) != 2 || !json_is_string(left) || !json_is_string(right)) return false;
    *t = (merge_texts){
        json_string_value(left),
        json_string_value(right),
        json_string_length(left),
        json_string_length(right),
    };
    return true;
}

static lw_status load_merge(lw_tokenizer *tokenizer, const merge_texts *t, uint32_t rank, const char *name,
                            lw_diag *d)
{
    const lw__vocab *vocab = &tokenizer->vocab;
    char whole[LW_LIMIT_TOKEN_BYTES];
    if (t->left_count > sizeof whole || t->right_count > sizeof whole - t->left_count) {
        return lw_fail(d, LW_NO_ROOM, "%s: merge %u makes a token of more than %d bytes", name, rank,
                       LW_LIMIT_TOKEN_BYTES);
    }
    memcpy(whole, t->left, t->left_count);
    memcpy(whole + t->left_count, t->right, t->right_count);
    const size_t count = t->left_count + t->right_count;
    const int32_t left = lw__vocab_find(vocab, t->left, t->left_count);
    const int32_t right = lw__vocab_find(vocab, t->right, t->right_count);
    const int32_t id = lw__vocab_find(vocab, whole, count);
    if (left < 0 || right < 0 || id < 0) {
        const char *text = left < 0 ? t->left : right < 0 ? t->right : whole;
        const size_t shown = left < 0 ? t->left_count : right < 0 ? t->right_count : count;
        return lw_fail(d, LW_BAD_MODEL, "%s: merge %u needs '%.*s', which is not in the vocabulary", name,
                       rank, (int)size_min(shown, 200), text);
    }
    lw__bpe_add(&tokenizer->bpe, (lw__merge){ (uint32_t)left, (uint32_t)right, rank, (uint32_t)id });
    return LW_OK;
}

static lw_status load_merges(lw_tokenizer *tokenizer, const json_t *merges, const char *name, lw_diag *d)
{
    const size_t merge_count = json_array_size(merges);
    if (merge_count > LW_LIMIT_MERGES) {
        return lw_fail(d, LW_NO_ROOM, "%s: %zu merges; at most %d are read", name, merge_count,
                       LW_LIMIT_MERGES);
    }
    lw_status status = lw__bpe_init(&tokenizer->bpe, &tokenizer->vocab, &tokenizer->arena, merge_count);
    if (status != LW_OK) return lw_fail(d, status, "%s: no memory for the merges", name);
    for (size_t i = 0; i < merge_count && status == LW_OK; i++) {
        merge_texts texts;
        if (!merge_read(json_array_get(merges, i), &texts)) {
            return lw_fail(d, LW_BAD_MODEL, "%s: merge %zu is neither \"a b\" nor [\"a\", \"b\"]", name, i);
        }
        status = load_merge(tokenizer, &texts, (uint32_t)i, name, d);
    }
    return status;
}

/* ---- model ---- */

/* Refuses the options of a BPE model that would change ids. */
static lw_status check_options(const json_t *model, const char *name, lw_diag *d)
{
    static const char *const affixes[] = { "continuing_subword_prefix", "end_of_word_suffix" };
    if (strcmp(lw__type_of(model), "BPE") != 0) {
        return lw_fail(d, LW_UNSUPPORTED, "%s: model '%.100s' is not served; BPE is", name,
                       lw__type_of(model));
    }
    if (json_number_value(json_object_get(model, "dropout")) != 0.0) {
        return lw_fail(d, LW_UNSUPPORTED, "%s: model.dropout is not served", name);
    }
    if (json_is_true(json_object_get(model, "byte_fallback"))) {
        return lw_fail(d, LW_UNSUPPORTED, "%s: model.byte_fallback is not served; byte-level BPE is", name);
    }
    for (size_t i = 0; i < sizeof affixes / sizeof affixes[0]; i++) {
        if (json_string_length(json_object_get(model, affixes[i])) == 0) continue;
        return lw_fail(d, LW_UNSUPPORTED, "%s: model.%s is not served", name, affixes[i]);
    }
    return LW_OK;
}

/* Checks what can only be seen in the finished vocabulary. */
static lw_status check_vocab(const lw_tokenizer *tokenizer, const json_t *model, const char *name, lw_diag *d)
{
    const char *unknown = json_string_value(json_object_get(model, "unk_token"));
    for (int byte = 0; unknown != NULL && byte < 256; byte++) {
        if (tokenizer->bpe.byte_ids[byte] >= 0) continue;
        return lw_fail(d, LW_UNSUPPORTED,
                       "%s: model.unk_token '%.100s' would stand for the byte 0x%02X; only "
                       "vocabularies with all 256 bytes are served with one",
                       name, unknown, (unsigned)byte);
    }
    for (uint32_t id = 0; tokenizer->bpe.ignore_merges && id < tokenizer->vocab.id_count; id++) {
        if (tokenizer->vocab.tokens[id].text_count <= LW__WHOLE_TEXT_MAX) continue;
        return lw_fail(d, LW_UNSUPPORTED,
                       "%s: model.ignore_merges with a token of more than %d bytes (id %u)", name,
                       LW__WHOLE_TEXT_MAX, id);
    }
    return LW_OK;
}

static lw_status load_model(lw_tokenizer *tokenizer, const json_t *root, const char *name, lw_diag *d)
{
    const json_t *model = json_object_get(root, "model"), *added = json_object_get(root, "added_tokens");
    const json_t *vocab = json_object_get(model, "vocab"), *merges = json_object_get(model, "merges");
    lw_status status = check_options(model, name, d);
    if (status != LW_OK) return status;
    if (!json_is_object(vocab)) return lw_fail(d, LW_BAD_MODEL, "%s: model.vocab is not an object", name);
    if (!json_is_array(merges)) return lw_fail(d, LW_BAD_MODEL, "%s: model.merges is not a list", name);
    uint32_t id_count;
    status = count_ids(vocab, added, name, &id_count, d);
    if (status != LW_OK) return status;
    status = lw__vocab_init(&tokenizer->vocab, &tokenizer->arena, id_count);
    if (status != LW_OK) return lw_fail(d, status, "%s: no memory for the vocabulary", name);
    status = load_vocab(tokenizer, vocab, name, d);
    if (status != LW_OK) return status;
    status = load_merges(tokenizer, merges, name, d);
    if (status != LW_OK) return status;
    tokenizer->bpe.ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
    return check_vocab(tokenizer, model, name, d);
}

/* ---- added tokens ---- */

/* Names the added token in the vocabulary, where it stands for its text, or finds it in the model's, where it
 * goes on standing for what the model says. */
static lw_status name_added(lw_tokenizer *tokenizer, const json_t *object, const char *name, lw_diag *d)
{
    const char *content = json_string_value(json_object_get(object, "content"));
    const uint32_t id = (uint32_t)id_of(json_object_get(object, "id"));
    const int32_t known = lw__vocab_find(&tokenizer->vocab, content, strlen(content));
    lw__token *token = &tokenizer->vocab.tokens[id];
    if (known >= 0 && (uint32_t)known != id) {
        return lw_fail(d, LW_BAD_MODEL, "%s: added token '%.200s' has the ids %u and %d", name, content, id,
                       known);
    }
    if (known >= 0 && (token->flags & LW__TOKEN_ADDED) != 0) {
        return lw_fail(d, LW_BAD_MODEL, "%s: added token '%.200s' is there twice", name, content);
    }
    if (strlen(content) > LW_LIMIT_ADDED_BYTES) {
        return lw_fail(d, LW_NO_ROOM, "%s: added token %u has %zu bytes; at most %d are read", name, id,
                       strlen(content), LW_LIMIT_ADDED_BYTES);
    }
    if (known < 0) {
        const lw_status status = name_token(tokenizer, content, id, name, d);
        if (status != LW_OK) return status;
    }
    const bool special = json_is_true(json_object_get(object, "special"));
    token->flags |= (uint8_t)(LW__TOKEN_ADDED | (special ? LW__TOKEN_SPECIAL : 0));
    return LW_OK;
}

static lw_status name_all_added(lw_tokenizer *tokenizer, const json_t *list, const char *name, lw_diag *d)
{
    lw_status status = LW_OK;
    for (size_t i = 0; i < json_array_size(list) && status == LW_OK; i++) {
        status = name_added(tokenizer, json_array_get(list, i), name, d);
    }
    return status;
}

/* The text that a token with normalized: true is looked for by. NULL: no memory. */
static const char *normal_text(lw_tokenizer *tokenizer, lw_text text, uint32_t *count)
{
    lw__nfc_scratch scratch = { .room = 0 };
    lw__text_buf out = { .bytes = { .count_max = 0 } };
    const char *copy = NULL;
    if (lw__nfc_apply(tokenizer->nfc, &scratch, text, &out) == LW_OK) {
        copy = lw_arena_copy_text(&tokenizer->arena, out.bytes.bytes, out.bytes.count);
        *count = (uint32_t)out.bytes.count;
    }
    lw__text_buf_deinit(&out);
    free(scratch.items);
    free(scratch.sorted);
    return copy;
}

static bool flag(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

/* Fills the table of those tokens whose normalized is as asked. */
static lw_status added_fill(lw_tokenizer *tokenizer, const json_t *list, bool normalized, lw__added *added)
{
    const size_t room = json_array_size(list);
    lw__added_token *tokens = lw_arena_take_array(&tokenizer->arena, room, sizeof *tokens);
    if (tokens == NULL) return LW_NO_ROOM;
    uint32_t count = 0;
    for (size_t i = 0; i < room; i++) {
        const json_t *object = json_array_get(list, i);
        const uint32_t id = (uint32_t)id_of(json_object_get(object, "id"));
        const lw__token *token = &tokenizer->vocab.tokens[id];
        if (flag(object, "normalized") != normalized || token->text_count == 0) continue;
        lw__added_token *made = &tokens[count++];
        *made = (lw__added_token){
            .text = token->text,
            .count = token->text_count,
            .id = (int32_t)id,
            .special = flag(object, "special"),
            .single_word = flag(object, "single_word"),
            .strip_left = flag(object, "lstrip"),
            .strip_right = flag(object, "rstrip"),
        };
        if (!normalized || tokenizer->nfc == NULL) continue;
        made->text = normal_text(tokenizer, (lw_text){ .bytes = token->text, .count = token->text_count },
                                 &made->count);
        if (made->text == NULL) return LW_NO_ROOM;
    }
    return lw__added_init(added, &tokenizer->arena, tokens, count);
}

lw_status lw__load_added(lw_tokenizer *tokenizer, const json_t *root, const char *name, lw_diag *d)
{
    static const char word[] = "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}]";
    const json_t *list = json_object_get(root, "added_tokens");
    bool asks_word = false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        asks_word = asks_word || flag(json_array_get(list, i), "single_word");
    }
    lw_status status = asks_word ? lw__pattern_compile(word, strlen(word), &tokenizer->word, d) : LW_OK;
    if (status != LW_OK) return lw_fail_prefix(d, status, "%s: single_word", name);
    status = added_fill(tokenizer, list, false, &tokenizer->added_raw);
    if (status == LW_OK) status = added_fill(tokenizer, list, true, &tokenizer->added_normal);
    if (status != LW_OK) return lw_fail(d, status, "%s: no memory for the added tokens", name);
    tokenizer->added_raw.word = tokenizer->added_normal.word = tokenizer->word;
    return LW_OK;
}

/* True if merging alone may give the id of a special token. */
static bool reaches_special(const lw_tokenizer *tokenizer)
{
    const lw__bpe *bpe = &tokenizer->bpe;
    for (size_t i = 0; i <= bpe->slot_mask; i++) {
        const lw__merge *merge = &bpe->slots[i];
        if (merge->rank == LW__RANK_NONE) continue;
        if ((tokenizer->vocab.tokens[merge->id].flags & LW__TOKEN_SPECIAL) != 0) return true;
    }
    for (uint32_t id = 0; bpe->ignore_merges && id < tokenizer->vocab.id_count; id++) {
        const lw__token *token = &tokenizer->vocab.tokens[id];
        if ((token->flags & LW__TOKEN_SPECIAL) != 0 && (token->flags & LW__TOKEN_MODEL) != 0) return true;
    }
    return false;
}

/* ---- the file ---- */

static lw_status load_root(lw_tokenizer *tokenizer, const json_t *root, const char *name, lw_diag *d)
{
    const json_t *added = json_object_get(root, "added_tokens");
    if (!json_is_object(root)) return lw_fail(d, LW_BAD_MODEL, "%s: not an object", name);
    if (added != NULL && !json_is_array(added) && !json_is_null(added)) {
        return lw_fail(d, LW_BAD_MODEL, "%s: added_tokens is not a list", name);
    }
    lw_status status = load_model(tokenizer, root, name, d);
    if (status == LW_OK) status = name_all_added(tokenizer, added, name, d);
    if (status == LW_OK) status = lw__load_steps(tokenizer, root, name, d);
    if (status == LW_OK) status = lw__load_added(tokenizer, root, name, d);
    if (status != LW_OK) return status;
    tokenizer->reaches_special = reaches_special(tokenizer);
    return LW_OK;
}

lw_status lw_tokenizer_parse(const char *json, size_t count, const char *name, lw_tokenizer **out, lw_diag *d)
{
    *out = NULL;
    if (count > LW_LIMIT_TOKENIZER_BYTES) {
        return lw_fail(d, LW_NO_ROOM, "%s: %zu bytes; at most %d are read", name, count,
                       LW_LIMIT_TOKENIZER_BYTES);
    }
    const lw_status pointer = lw__lfs_check(name, json, count, d);
    if (pointer != LW_OK) return pointer;
    json_error_t error = { .text = "" };
    json_t *root = lw_json_load(json, count, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL && error.text[0] == '\0') /* nothing is wrong with the text itself */
        return lw_fail(d, LW_NO_ROOM, "%s: no memory to read it", name);
    if (root == NULL) {
        return lw_fail(d, LW_BAD_MODEL, "%s: line %d, column %d: %s", name, error.line, error.column,
                       error.text);
    }
    lw_tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    lw_status status = LW_NO_ROOM;
    if (tokenizer != NULL) {
        lw_arena_init(&tokenizer->arena, 4 * (size_t)LW_LIMIT_TOKENIZER_BYTES);
        status = load_root(tokenizer, root, name, d);
    } else {
        lw_fail(d, status, "%s: no memory for the tokenizer", name);
    }
    json_decref(root);
    if (status == LW_OK) *out = tokenizer;
    else lw_tokenizer_close(tokenizer);
    return status;
}

/* Reads fd to its end into buf. */
static lw_status read_all(int fd, const char *path, lw_buf *buf, lw_diag *d)
{
    for (;;) {
        if (lw_buf_reserve(buf, 1 << 20) != LW_OK) {
            return lw_fail(d, LW_NO_ROOM, "%s: more than %d bytes, or no memory for them", path,
                           LW_LIMIT_TOKENIZER_BYTES);
        }
        const ssize_t got = read(fd, buf->bytes + buf->count, 1 << 20);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return lw_fail(d, LW_IO, "%s: %s", path, strerror(errno));
        if (got == 0) return LW_OK;
        buf->count += (size_t)got;
    }
}

lw_status lw_tokenizer_open(const char *path, lw_tokenizer **out, lw_diag *d)
{
    *out = NULL;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return lw_fail(d, errno == ENOENT ? LW_NOT_FOUND : LW_IO, "%s: %s", path, strerror(errno));
    lw_buf buf;
    lw_buf_init(&buf, LW_LIMIT_TOKENIZER_BYTES + (1 << 20));
    lw_status status = read_all(fd, path, &buf, d);
    close(fd);
    if (status == LW_OK) status = lw_tokenizer_parse(buf.bytes, buf.count, path, out, d);
    lw_buf_deinit(&buf);
    return status;
}
