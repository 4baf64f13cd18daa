/* Config files on jansson; see config.h for the quirks. A child is a view into its root's JSON tree and dies
 * with it. */
#include "model/config.h"

#include "base/json.h"
#include "base/limits.h"
#include "model/file.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_BYTES = 80 }; /* of a wrong value in a text */

struct lw_config {
    json_t *root;        /* owned; NULL in children */
    const json_t *inner; /* "text_config", read before outer; NULL if there is none */
    const json_t *outer; /* the object itself; NULL if empty */
    bool is_wrong;       /* stands for a value that is not an object: every reader fails */
    char *name;          /* file, and the path of a child: "config.json: rope_parameters" */
    lw_config *children; /* owned */
    lw_config *next;     /* sibling */
};

/* A child that no memory was left for: every reader fails. Never written to and never closed. */
static const lw_config no_room = { .name = (char *)(uintptr_t)"config" };

static lw_config *config_make(const char *name, const char *path)
{
    lw_config *config = calloc(1, sizeof *config);
    if (config == NULL) return NULL;
    const int bytes =
        path == NULL ? asprintf(&config->name, "%s", name) : asprintf(&config->name, "%s: %s", name, path);
    if (bytes >= 0) return config;
    free(config);
    return NULL;
}

void lw_config_close(lw_config *config)
{
    if (config == NULL) return;
    lw_config *child = config->children;
    while (child != NULL) {
        lw_config *next = child->next;
        lw_config_close(child);
        child = next;
    }
    json_decref(config->root);
    free(config->name);
    free(config);
}

/* Bytes of a bare Infinity, -Infinity or NaN at text, 0 if there is none. */
static size_t bare_float(const char *text, size_t count)
{
    static const char *const words[] = { "Infinity", "-Infinity", "NaN" };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const size_t bytes = strlen(words[i]);
        if (count >= bytes && memcmp(text, words[i], bytes) == 0) return bytes;
    }
    return 0;
}

/* A NaN of 3 bytes becomes 19. */
enum { BARE_GROWTH = 7 };

/* Python writes infinities as bare words, which JSON lacks: turns them into {"__float__": "..."}. out holds
 * count * BARE_GROWTH + 1 bytes. Returns the bytes written. */
static size_t wrap_bare_floats(const char *json, size_t count, char *out)
{
    size_t at = 0, written = 0;
    bool in_string = false;
    while (at < count) {
        const size_t bare = in_string ? 0 : bare_float(json + at, count - at);
        if (bare > 0) {
            written += (size_t)snprintf(out + written, BARE_GROWTH * bare + 1, "{\"__float__\":\"%.*s\"}",
                                        (int)bare, json + at);
            at += bare;
            continue;
        }
        if (in_string && json[at] == '\\' && at + 1 < count) out[written++] = json[at++];
        else if (json[at] == '"') in_string = !in_string;
        out[written++] = json[at++];
    }
    return written;
}

static json_t *load_json(const char *json, size_t count, json_error_t *error)
{
    if (memmem(json, count, "Infinity", 8) == NULL && memmem(json, count, "NaN", 3) == NULL)
        return lw_json_load(json, count, JSON_REJECT_DUPLICATES, error);
    char *wrapped = malloc(count * BARE_GROWTH + 1);
    if (wrapped == NULL) return NULL;
    const size_t bytes = wrap_bare_floats(json, count, wrapped);
    json_t *root = lw_json_load(wrapped, bytes, JSON_REJECT_DUPLICATES, error);
    free(wrapped);
    return root;
}

lw_status lw_config_parse(const char *json, size_t count, const char *name, lw_config **out, lw_diag *d)
{
    *out = NULL;
    if (count == 0) return lw_fail(d, LW_BAD_MODEL, "%s: the file is empty", name);
    if (count > LW_LIMIT_CONFIG_BYTES)
        return lw_fail(d, LW_BAD_MODEL, "%s: %zu bytes are above the limit of %d", name, count,
                       LW_LIMIT_CONFIG_BYTES);
    lw_status status = lw__lfs_check(name, json, count, d);
    if (status != LW_OK) return status;
    lw_config *config = config_make(name, NULL);
    if (config == NULL) return lw_fail(d, LW_NO_ROOM, "%s: no memory", name);
    json_error_t error = { .text = "" };
    config->root = load_json(json, count, &error);
    if (config->root == NULL && error.text[0] == '\0') { /* nothing is wrong with the text itself */
        status = lw_fail(d, LW_NO_ROOM, "%s: no memory", name);
        goto fail;
    }
    if (config->root == NULL) {
        status = lw_fail(d, LW_BAD_MODEL, "%s: line %d: %s", name, error.line, error.text);
        goto fail;
    }
    if (!json_is_object(config->root)) {
        status = lw_fail(d, LW_BAD_MODEL, "%s: is not a JSON object", name);
        goto fail;
    }
    config->outer = config->root;
    const json_t *inner = json_object_get(config->root, "text_config");
    if (inner != NULL && !json_is_null(inner) && !json_is_object(inner)) {
        status = lw_fail(d, LW_BAD_MODEL, "%s: \"text_config\" is not an object", name);
        goto fail;
    }
    config->inner = json_is_object(inner) ? inner : NULL;
    *out = config;
    return LW_OK;
fail:
    lw_config_close(config);
    return status;
}

lw_status lw_config_open(const char *path, lw_config **out, lw_diag *d)
{
    lw_mapping mapping;
    *out = NULL;
    lw_status status = lw__mapping_open(path, &mapping, d);
    if (status != LW_OK) return status;
    status = lw_config_parse((const char *)mapping.bytes, mapping.count, path, out, d);
    lw__mapping_close(&mapping);
    return status;
}

const char *lw_config_name(const lw_config *config)
{
    return config == NULL ? "config" : config->name;
}

/* The value under the first of keys in one object that is there and not null. */
static const json_t *get_in(const json_t *object, const char *keys)
{
    while (object != NULL && *keys != '\0') {
        const size_t bytes = strcspn(keys, "|");
        const json_t *value = json_object_getn(object, keys, bytes);
        if (value != NULL && !json_is_null(value)) return value;
        keys += bytes + (keys[bytes] == '|');
    }
    return NULL;
}

const json_t *lw_config_get(const lw_config *config, const char *keys)
{
    if (config == NULL) return NULL;
    const json_t *value = get_in(config->inner, keys);
    return value != NULL ? value : get_in(config->outer, keys);
}

static lw_status fail_value(const lw_config *config, const char *keys, const json_t *value,
                            const char *wanted, lw_diag *d)
{
    char *shown = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    const lw_status status =
        lw_fail(d, LW_BAD_MODEL, "%s: \"%.*s\" is %.*s, but must be %s", lw_config_name(config),
                (int)strcspn(keys, "|"), keys, SHOWN_BYTES, shown == NULL ? "wrong" : shown, wanted);
    free(shown);
    return status;
}

/* LW_OK with *value NULL when the key is absent and may be. */
static lw_status get_checked(const lw_config *config, const char *keys, bool must, const json_t **value,
                             lw_diag *d)
{
    *value = NULL;
    if (config == &no_room)
        return lw_fail(d, LW_NO_ROOM, "no memory for the config that holds \"%.*s\"",
                       (int)strcspn(keys, "|"), keys);
    if (config != NULL && config->is_wrong)
        return lw_fail(d, LW_BAD_MODEL, "%s is not an object", config->name);
    *value = lw_config_get(config, keys);
    if (*value == NULL && must)
        return lw_fail(d, LW_BAD_MODEL, "%s: \"%.*s\" is missing", lw_config_name(config),
                       (int)strcspn(keys, "|"), keys);
    return LW_OK;
}

bool lw_config_number(const json_t *value, double *out)
{
    if (json_is_object(value) && json_object_size(value) == 1) {
        const char *word = json_string_value(json_object_get(value, "__float__"));
        const bool is_up = word != NULL && strcmp(word, "Infinity") == 0;
        if (!is_up && (word == NULL || strcmp(word, "-Infinity") != 0)) return false;
        *out = is_up ? (double)INFINITY : -(double)INFINITY;
        return true;
    }
    if (!json_is_number(value)) return false;
    *out = json_number_value(value);
    return true;
}

/* True if value is a whole number in [0, max]; a real without a fraction counts. */
static bool whole(const json_t *value, uint32_t max, uint32_t *out)
{
    if (json_is_real(value)) {
        const double real = json_real_value(value);
        if (!(real >= 0.0 && real <= (double)max) || floor(real) < real) return false;
        *out = (uint32_t)real;
        return true;
    }
    if (!json_is_integer(value)) return false;
    const json_int_t integer = json_integer_value(value);
    if (integer < 0 || integer > (json_int_t)max) return false;
    *out = (uint32_t)integer;
    return true;
}

lw_status lw_config_u32(const lw_config *config, const char *keys, const uint32_t *fallback, uint32_t max,
                        uint32_t *out, lw_diag *d)
{
    const json_t *value;
    const lw_status status = get_checked(config, keys, fallback == NULL, &value, d);
    if (status != LW_OK) return status;
    if (value == NULL) {
        *out = *fallback;
        return LW_OK;
    }
    uint32_t number;
    if (!whole(value, max, &number)) {
        char wanted[64];
        snprintf(wanted, sizeof wanted, "a whole number from 0 to %" PRIu32, max);
        return fail_value(config, keys, value, wanted, d);
    }
    *out = number;
    return LW_OK;
}

lw_status lw_config_f64(const lw_config *config, const char *keys, const double *fallback, double *out,
                        lw_diag *d)
{
    const json_t *value;
    const lw_status status = get_checked(config, keys, fallback == NULL, &value, d);
    if (status != LW_OK) return status;
    if (value == NULL) {
        *out = *fallback;
        return LW_OK;
    }
    return lw_config_number(value, out) ? LW_OK : fail_value(config, keys, value, "a number", d);
}

lw_status lw_config_bool(const lw_config *config, const char *keys, bool fallback, bool *out, lw_diag *d)
{
    const json_t *value;
    const lw_status status = get_checked(config, keys, false, &value, d);
    if (status != LW_OK) return status;
    if (value != NULL && !json_is_boolean(value)) return fail_value(config, keys, value, "true or false", d);
    *out = value == NULL ? fallback : json_is_true(value);
    return LW_OK;
}

lw_status lw_config_text(const lw_config *config, const char *keys, const char *fallback, const char **out,
                         lw_diag *d)
{
    const json_t *value;
    const lw_status status = get_checked(config, keys, false, &value, d);
    if (status != LW_OK) return status;
    if (value != NULL && !json_is_string(value)) return fail_value(config, keys, value, "a string", d);
    *out = value == NULL ? fallback : json_string_value(value);
    return LW_OK;
}

lw_status lw_config_ids(const lw_config *config, const char *keys, int32_t *ids, size_t *count, lw_diag *d)
{
    const json_t *value;
    const lw_status status = get_checked(config, keys, false, &value, d);
    if (status != LW_OK || value == NULL) return status;
    const size_t listed = json_is_array(value) ? json_array_size(value) : 1;
    size_t kept = *count;
    for (size_t i = 0; i < listed; i++) {
        uint32_t id;
        if (!whole(json_is_array(value) ? json_array_get(value, i) : value, LW_LIMIT_VOCAB - 1, &id))
            return fail_value(config, keys, value, "a token id or a list of token ids", d);
        size_t at = 0;
        while (at < kept && ids[at] != (int32_t)id) at++;
        if (at < kept) continue;
        if (kept == LW_CONFIG_IDS_MAX)
            return fail_value(config, keys, value, "fewer ids: at most 16 different ones are kept", d);
        ids[kept++] = (int32_t)id;
    }
    *count = kept;
    return LW_OK;
}

lw_config *lw_config_child(lw_config *config, const char *keys)
{
    if (config == NULL || config == &no_room) return config;
    const json_t *value = lw_config_get(config, keys);
    char path[128];
    snprintf(path, sizeof path, "%.*s", (int)strcspn(keys, "|"), keys);
    lw_config *child = config_make(config->name, path);
    if (child == NULL) return (lw_config *)(uintptr_t)&no_room;
    child->outer = json_is_object(value) ? value : NULL;
    child->is_wrong = config->is_wrong || (value != NULL && !json_is_object(value));
    child->next = config->children;
    config->children = child;
    return child;
}
