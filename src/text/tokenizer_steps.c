/* Reads what tokenizer.json says beside its model: normalizer, pre_tokenizer, post_processor, decoder. Each
 * has one form that is served; every other is refused by its name.
 */
#include "text/tokenizer_internal.h"

#include <string.h>

/* The pattern of a ByteLevel step with use_regex. */
static const char byte_level_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

typedef struct load {
    lw_tokenizer *tokenizer;
    const char *name;        /* of the file, for texts */
    lw_diag *d;
    bool has_byte_level;     /* the pre-tokenizer's last step has come */
} load;

const char *lw__type_of(const json_t *object)
{
    const char *type = json_string_value(json_object_get(object, "type"));
    return type != NULL ? type : json_is_null(object) || object == NULL ? "null" : "(a value without a type)";
}

static bool type_is(const json_t *object, const char *type)
{
    return strcmp(lw__type_of(object), type) == 0;
}

static lw_status refuse_type(const load *l, const char *what, const json_t *object)
{
    return lw_fail(l->d, LW_UNSUPPORTED, "%s: %s '%.100s' is not served", l->name, what, lw__type_of(object));
}

/* Hands object, or each member of list if object is a Sequence, to one. Sequences do not nest. */
static lw_status for_each(load *l, const json_t *object, const char *list,
                          lw_status (*one)(load *, const json_t *))
{
    if (!type_is(object, "Sequence")) return one(l, object);
    const json_t *members = json_object_get(object, list);
    if (!json_is_array(members)) {
        return lw_fail(l->d, LW_BAD_MODEL, "%s: a Sequence has no list '%s'", l->name, list);
    }
    lw_status status = LW_OK;
    for (size_t i = 0; i < json_array_size(members) && status == LW_OK; i++) {
        status = one(l, json_array_get(members, i));
    }
    return status;
}

static lw_status load_normalizer(load *l, const json_t *object)
{
    if (!type_is(object, "NFC")) return refuse_type(l, "normalizer", object);
    lw_tokenizer *tokenizer = l->tokenizer;
    if (tokenizer->nfc == NULL) tokenizer->nfc = lw__nfc_make(&tokenizer->arena);
    return tokenizer->nfc != NULL ? LW_OK
                                  : lw_fail(l->d, LW_NO_ROOM, "%s: no memory for the normalizer", l->name);
}

/* ---- pre_tokenizer ---- */

static lw_status load_byte_level(load *l, const json_t *object)
{
    const json_t *prefix = json_object_get(object, "add_prefix_space");
    const json_t *regex = json_object_get(object, "use_regex");
    l->has_byte_level = true;
    if (!json_is_false(prefix)) {
        return lw_fail(l->d, LW_UNSUPPORTED,
                       "%s: pre_tokenizer: ByteLevel with add_prefix_space is not served", l->name);
    }
    if (json_is_false(regex)) return LW_OK;
    const lw__split_rule rule = {
        .pattern = byte_level_pattern,
        .count = strlen(byte_level_pattern),
        .is_regex = true,
        .behavior = "Isolated",
    };
    return lw__pretok_add(&l->tokenizer->pretok, &l->tokenizer->arena, &rule, l->name, l->d);
}

static lw_status load_pre_tokenizer(load *l, const json_t *object)
{
    if (l->has_byte_level) {
        return lw_fail(l->d, LW_UNSUPPORTED,
                       "%s: pre_tokenizer: a step '%.100s' after ByteLevel is not served", l->name,
                       lw__type_of(object));
    }
    if (type_is(object, "ByteLevel")) return load_byte_level(l, object);
    if (!type_is(object, "Split")) return refuse_type(l, "pre_tokenizer", object);
    const json_t *pattern = json_object_get(object, "pattern");
    const json_t *regex = json_object_get(pattern, "Regex"), *string = json_object_get(pattern, "String");
    const json_t *text = regex != NULL ? regex : string, *behavior = json_object_get(object, "behavior");
    if (!json_is_string(text) || !json_is_string(behavior)) {
        return lw_fail(l->d, LW_BAD_MODEL,
                       "%s: pre_tokenizer: a Split needs pattern.Regex or pattern.String, and a "
                       "behavior",
                       l->name);
    }
    const lw__split_rule rule = {
        .pattern = json_string_value(text), .count = json_string_length(text), .is_regex = regex != NULL,
        .behavior = json_string_value(behavior), .invert = json_is_true(json_object_get(object, "invert")),
    };
    return lw__pretok_add(&l->tokenizer->pretok, &l->tokenizer->arena, &rule, l->name, l->d);
}

/* ---- post_processor ---- */

static lw_status around_full(const load *l)
{
    return lw_fail(l->d, LW_NO_ROOM, "%s: post_processor: more than %d ids on one side of a text", l->name,
                   LW_LIMIT_AROUND_IDS);
}

/* Appends the ids that the template's special token stands for. */
static lw_status load_around(load *l, const json_t *specials, const char *token, lw__around *around)
{
    const json_t *ids = json_object_get(json_object_get(specials, token), "ids");
    if (!json_is_array(ids)) {
        return lw_fail(l->d, LW_BAD_MODEL, "%s: post_processor: '%.100s' has no ids in special_tokens",
                       l->name, token);
    }
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *value = json_array_get(ids, i);
        const json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || id >= l->tokenizer->vocab.id_count) {
            return lw_fail(l->d, LW_BAD_MODEL, "%s: post_processor: '%.100s' has an id that no token has",
                           l->name, token);
        }
        if (around->count == LW_LIMIT_AROUND_IDS) return around_full(l);
        around->ids[around->count++] = (int32_t)id;
    }
    return LW_OK;
}

/* Puts more before (or behind) what around holds. */
static lw_status around_join(const load *l, lw__around *around, const lw__around *more, bool in_front)
{
    if (around->count + more->count > LW_LIMIT_AROUND_IDS) return around_full(l);
    if (in_front) memmove(around->ids + more->count, around->ids, around->count * sizeof *around->ids);
    memcpy(around->ids + (in_front ? 0 : around->count), more->ids, more->count * sizeof *more->ids);
    around->count += more->count;
    return LW_OK;
}

static lw_status load_template(load *l, const json_t *object)
{
    const json_t *single = json_object_get(object, "single"),
                 *specials = json_object_get(object, "special_tokens");
    lw__around before = { .count = 0 }, after = { .count = 0 };
    size_t text_count = 0;
    lw_status status = LW_OK;
    for (size_t i = 0; i < json_array_size(single) && status == LW_OK; i++) {
        const json_t *piece = json_array_get(single, i);
        const char *token = json_string_value(json_object_get(json_object_get(piece, "SpecialToken"), "id"));
        const char *text = json_string_value(json_object_get(json_object_get(piece, "Sequence"), "id"));
        if (token != NULL) status = load_around(l, specials, token, text_count == 0 ? &before : &after);
        else if (text != NULL && strcmp(text, "A") == 0) text_count++;
        else
            status = lw_fail(l->d, LW_BAD_MODEL,
                             "%s: post_processor: 'single' has a piece that is neither a "
                             "SpecialToken nor the Sequence A",
                             l->name);
    }
    if (status == LW_OK && text_count != 1) {
        return lw_fail(l->d, LW_UNSUPPORTED,
                       "%s: post_processor: 'single' must hold the Sequence A once; it has %zu", l->name,
                       text_count);
    }
    if (status == LW_OK) status = around_join(l, &l->tokenizer->before, &before, true);
    return status == LW_OK ? around_join(l, &l->tokenizer->after, &after, false) : status;
}

static lw_status load_post_processor(load *l, const json_t *object)
{
    if (type_is(object, "ByteLevel")) return LW_OK; /* it moves offsets, never ids */
    if (type_is(object, "TemplateProcessing")) return load_template(l, object);
    return refuse_type(l, "post_processor", object);
}

static lw_status load_decoder(load *l, const json_t *object)
{
    return type_is(object, "ByteLevel") ? LW_OK : refuse_type(l, "decoder", object);
}

static bool is_given(const json_t *object)
{
    return object != NULL && !json_is_null(object);
}

lw_status lw__load_steps(lw_tokenizer *tokenizer, const json_t *root, const char *name, lw_diag *d)
{
    load l = { .tokenizer = tokenizer, .name = name, .d = d };
    const json_t *normalizer = json_object_get(root, "normalizer");
    const json_t *post_processor = json_object_get(root, "post_processor");
    lw_status status = LW_OK;
    if (is_given(normalizer)) status = for_each(&l, normalizer, "normalizers", load_normalizer);
    if (status != LW_OK) return status;
    status = for_each(&l, json_object_get(root, "pre_tokenizer"), "pretokenizers", load_pre_tokenizer);
    if (status != LW_OK) return status;
    if (!l.has_byte_level) {
        return lw_fail(d, LW_UNSUPPORTED, "%s: pre_tokenizer: only those that end with ByteLevel are served",
                       name);
    }
    if (is_given(post_processor)) status = for_each(&l, post_processor, "processors", load_post_processor);
    if (status != LW_OK) return status;
    return for_each(&l, json_object_get(root, "decoder"), "decoders", load_decoder);
}
