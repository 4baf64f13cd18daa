/* Quantisation settings; see quant_config.h. Missing keys of a module's own object take MLX's defaults, not
 * the block's global values: that is how MLX itself reads them.
 */
#include "model/quant_config.h"

#include "base/json.h"

#include <stdio.h>
#include <string.h>

static const lw_quant mlx_defaults = { .bits = 4, .group = 64 };

static bool is_one_of(json_int_t value, const uint32_t *allowed, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (value == (json_int_t)allowed[i]) return true;
    return false;
}

static lw_status read_mode(const lw__quant_source *from, lw_diag *d)
{
    const json_t *mode = json_object_get(from->object, "mode");
    if (mode == NULL || json_is_null(mode)) return LW_OK;
    if (!json_is_string(mode))
        return lw_fail(d, LW_BAD_MODEL, "%s: %s: \"mode\" is not a string", from->file, from->where);
    if (strcmp(json_string_value(mode), "affine") == 0) return LW_OK;
    return lw_fail(d, LW_UNSUPPORTED, "%s: %s: quantization mode \"%.64s\" is not served; served: affine",
                   from->file, from->where, json_string_value(mode));
}

lw_status lw__quant_choice(const lw__quant_source *from, const char *key, const uint32_t *allowed,
                           size_t count, uint32_t *out, lw_diag *d)
{
    const json_t *value = json_object_get(from->object, key);
    if (value == NULL || json_is_null(value)) return LW_OK;
    if (!json_is_integer(value))
        return lw_fail(d, LW_BAD_MODEL, "%s: %s: \"%s\" is not a whole number", from->file, from->where, key);
    const json_int_t number = json_integer_value(value);
    if (!is_one_of(number, allowed, count)) {
        char list[64] = "";
        size_t at = 0;
        for (size_t i = 0; i < count; i++)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%u", i == 0 ? "" : ", ",
                                   (unsigned)allowed[i]);
        return lw_fail(d, LW_UNSUPPORTED, "%s: %s: \"%s\" %lld is not served; served: %s", from->file,
                       from->where, key, (long long)number, list);
    }
    *out = (uint32_t)number;
    return LW_OK;
}

/* Fills *out, starting from MLX's defaults. */
static lw_status read_object(const lw__quant_source *from, lw_quant *out, lw_diag *d)
{
    static const uint32_t bits[] = { 2, 3, 4, 5, 6, 8 }, groups[] = { 32, 64, 128 };
    lw_quant quant = mlx_defaults;
    lw_status status = read_mode(from, d);
    if (status == LW_OK)
        status = lw__quant_choice(from, "bits", bits, sizeof bits / sizeof bits[0], &quant.bits, d);
    if (status == LW_OK)
        status =
            lw__quant_choice(from, "group_size", groups, sizeof groups / sizeof groups[0], &quant.group, d);
    if (status == LW_OK) *out = quant;
    return status;
}

/* ModelOpt's file: {"producer": ..., "quantization": {"quant_algo": ..., "exclude_modules": [...]}}. Without
 * an algorithm it tells of the KV cache alone. */
static lw_status read_side(const lw_config *side, lw_quant_config *out, lw_diag *d)
{
    static const char key[] = "quantization";
    const json_t *settings = lw_config_get(side, key);
    out->file = lw_config_name(side);
    if (!json_is_object(settings))
        return lw_fail(d, LW_BAD_MODEL, "%s: \"%s\" is missing or not an object", out->file, key);
    const json_t *algorithm = json_object_get(settings, "quant_algo");
    if (algorithm == NULL || json_is_null(algorithm)) return LW_OK;
    out->settings = settings;
    return lw__quant_method_read(out, "modelopt", key, d);
}

lw_status lw__quant_config_read(const lw_config *config, const lw_config *side, lw_quant_config *out,
                                lw_diag *d)
{
    const char *file = lw_config_name(config), *key = "quantization";
    *out = (lw_quant_config){ .file = file };
    const json_t *settings = lw_config_get(config, key);
    if (settings == NULL) {
        key = "quantization_config";
        settings = lw_config_get(config, key);
    }
    if (settings == NULL) return side == NULL ? LW_OK : read_side(side, out, d);
    if (!json_is_object(settings)) return lw_fail(d, LW_BAD_MODEL, "%s: \"%s\" is not an object", file, key);
    out->settings = settings;
    const json_t *method = json_object_get(settings, "quant_method");
    if (method != NULL && !json_is_null(method)) {
        const char *name = json_is_string(method) ? json_string_value(method) : "(not a string)";
        return lw__quant_method_read(out, name, key, d);
    }
    const lw__quant_source from = { .file = file, .where = key, .object = settings };
    out->method = LW_QUANT_MLX;
    return read_object(&from, &out->global, d);
}

lw_status lw__quant_config_module(const lw_quant_config *config, const char *path, lw_quant *out, lw_diag *d)
{
    LW_ASSERT(config->method == LW_QUANT_MLX);
    const json_t *value = json_object_get(config->settings, path);
    *out = config->global;
    if (value == NULL || json_is_null(value)) return LW_OK;
    if (json_is_boolean(value) || (json_is_object(value) && json_object_size(value) == 0)) {
        out->is_explicit = true;
        out->is_off = !json_is_true(value);
        return LW_OK;
    }
    if (!json_is_object(value))
        return lw_fail(d, LW_BAD_MODEL, "%s: quantization of \"%s\" is neither an object nor true or false",
                       config->file, path);
    const lw__quant_source from = { .file = config->file, .where = path, .object = value };
    const lw_status status = read_object(&from, out, d);
    out->is_explicit = true;
    return status;
}

lw_status lw__quant_parse(const char *json, const char *file, lw_quant *out, lw_diag *d)
{
    json_error_t error = { .text = "" };
    json_t *object = lw_json_load(json, strlen(json), JSON_REJECT_DUPLICATES, &error);
    if (object == NULL && error.text[0] == '\0') /* nothing is wrong with the text itself */
        return lw_fail(d, LW_NO_ROOM, "%s: no memory to read __metadata__ \"quantization\"", file);
    if (!json_is_object(object)) {
        json_decref(object);
        return lw_fail(d, LW_BAD_MODEL, "%s: __metadata__ \"quantization\" is not a JSON object", file);
    }
    const lw__quant_source from = { .file = file,
                                    .where = "__metadata__ \"quantization\"",
                                    .object = object };
    const lw_status status = read_object(&from, out, d);
    json_decref(object);
    return status;
}
