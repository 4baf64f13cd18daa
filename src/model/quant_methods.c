/* The "quantization_config" of GPTQ, AutoRound, FP8, ModelOpt and compressed-tensors; see quant_config.h.
 * What a method could ask for and no device could give is refused when the config is read; what its tensors
 * show is held against it module by module.
 */
#include "model/quant_config.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { NVFP4_GROUP = 16, TEXT_BYTES = 96 };

typedef lw_status reader(lw_quant_config *config, const lw__quant_source *from, lw_diag *d);
typedef bool judge(const lw_quant_config *config, const char *path, const lw_stored *stored);

static const json_t *value_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

/* The string under key; "" if it is absent or none. */
static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text == NULL ? "" : text;
}

static bool is_among(const char *text, const char *const *list)
{
    for (; *list != NULL; list++)
        if (strcmp(text, *list) == 0) return true;
    return false;
}

static lw_status refuse(const lw__quant_source *from, const char *key, const char *value, lw_diag *d)
{
    return lw_fail(d, LW_UNSUPPORTED, "%s: %s: %s \"%.64s\" is not served", from->file, from->where, key,
                   value);
}

/* ---- GPTQ ---- */

/* dynamic holds {"-:regex": {}} for what stays dense; entries of other settings would need their regex. */
static lw_status check_dynamic(const lw__quant_source *from, lw_diag *d)
{
    const json_t *dynamic = value_of(from->object, "dynamic");
    if (dynamic == NULL) return LW_OK;
    for (void *at = json_object_iter((json_t *)dynamic); at != NULL;
         at = json_object_iter_next((json_t *)dynamic, at)) {
        const char *key = json_object_iter_key(at);
        if (strncmp(key, "-:", 2) != 0) return refuse(from, "dynamic", key, d);
    }
    return LW_OK;
}

static lw_status read_gptq(lw_quant_config *config, const lw__quant_source *from, lw_diag *d)
{
    static const uint32_t bits[] = { 4 }, groups[] = { 32, 64, 128 };
    static const char *const formats[] = { "", "gptq", NULL };
    static const char *const packings[] = { "", "auto_round:auto_gptq", "auto_gptq", NULL };
    static const char *const types[] = { "", "int", NULL };
    const char *format = text_of(from->object, "checkpoint_format");
    const char *packing = text_of(from->object, "packing_format");
    const char *type = text_of(from->object, "data_type");
    if (!is_among(format, formats)) return refuse(from, "checkpoint_format", format, d);
    if (!is_among(packing, packings)) return refuse(from, "packing_format", packing, d);
    if (!is_among(type, types)) return refuse(from, "data_type", type, d);
    const json_t *symmetric = value_of(from->object, "sym");
    if (symmetric != NULL && !json_is_true(symmetric))
        return lw_fail(d, LW_UNSUPPORTED, "%s: %s: only symmetric weights are served (\"sym\": true)",
                       from->file, from->where);
    config->is_reordered = json_is_true(json_object_get(from->object, "desc_act"));
    lw_status status = check_dynamic(from, d);
    if (status == LW_OK) status = lw__quant_choice(from, "bits", bits, 1, &config->global.bits, d);
    if (status == LW_OK) status = lw__quant_choice(from, "group_size", groups, 3, &config->global.group, d);
    if (status == LW_OK && (config->global.bits == 0 || config->global.group == 0))
        return lw_fail(d, LW_BAD_MODEL, "%s: %s: \"bits\" or \"group_size\" is missing", from->file,
                       from->where);
    return status;
}

static bool integer_is(const json_t *object, const char *key, uint32_t expected)
{
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) && json_integer_value(value) == (json_int_t)expected;
}

static bool judge_gptq(const lw_quant_config *config, const char *path, const lw_stored *stored)
{
    const json_t *own = json_object_get(json_object_get(config->settings, "extra_config"), path);
    const bool bits_differ = value_of(own, "bits") != NULL && !integer_is(own, "bits", stored->bits);
    if (value_of(own, "group_size") != NULL)
        return integer_is(own, "group_size", stored->group) && !bits_differ;
    return stored->group == config->global.group && !bits_differ;
}

/* ---- FP8 ---- */

static lw_status read_block(const lw__quant_source *from, const char *key, uint32_t block[2], lw_diag *d)
{
    enum { BLOCK_MAX = 1 << 16 };
    const json_t *sizes = value_of(from->object, key);
    block[0] = block[1] = 0;
    if (sizes == NULL) return LW_OK;
    for (size_t i = 0; i < 2; i++) {
        const json_int_t size = json_integer_value(json_array_get(sizes, i));
        if (json_array_size(sizes) != 2 || size < 1 || size > BLOCK_MAX)
            return lw_fail(d, LW_BAD_MODEL, "%s: %s: \"%s\" is not two sizes", from->file, from->where, key);
        block[i] = (uint32_t)size;
    }
    return LW_OK;
}

static lw_status read_fp8(lw_quant_config *config, const lw__quant_source *from, lw_diag *d)
{
    static const char *const formats[] = { "", "e4m3", "float8_e4m3fn", NULL };
    const char *format = text_of(from->object, "fmt");
    uint32_t block[2];
    if (!is_among(format, formats)) return refuse(from, "fmt", format, d);
    const lw_status status = read_block(from, "weight_block_size", block, d);
    config->block_rows = block[0];
    config->block_cols = block[1];
    return status;
}

static bool judge_fp8(const lw_quant_config *config, const char *path, const lw_stored *stored)
{
    (void)path;
    if (config->block_cols == 0) return stored->group == 0 || stored->is_channel;
    return stored->group_rows == config->block_rows && stored->group == config->block_cols;
}

/* ---- ModelOpt ---- */

static const struct {
    const char *name;
    bool has_fp8, has_nvfp4;
} algorithms[] = {
    { "FP8", true, false },        { "FP8_PER_CHANNEL_PER_TOKEN", true, false },
    { "FP8_PB_WO", true, false },  { "NVFP4", false, true },
    { "W4A16_NVFP4", false, true }, { "MIXED_PRECISION", true, true },
};
enum { ALGORITHM_COUNT = sizeof algorithms / sizeof algorithms[0] };

/* Some exporters write lower case. */
static size_t find_algorithm(const char *name)
{
    size_t i = 0;
    while (i < ALGORITHM_COUNT && strcasecmp(algorithms[i].name, name) != 0) i++;
    return i;
}

/* Of all modules, or of those of one entry of quantized_layers. */
static lw_status check_algorithm(const lw__quant_source *from, lw_diag *d)
{
    static const uint32_t groups[] = { NVFP4_GROUP };
    const json_t *name = json_object_get(from->object, "quant_algo");
    uint32_t group = NVFP4_GROUP;
    if (!json_is_string(name))
        return lw_fail(d, LW_BAD_MODEL, "%s: %s: \"quant_algo\" is missing or not a string", from->file,
                       from->where);
    const size_t i = find_algorithm(json_string_value(name));
    if (i == ALGORITHM_COUNT) return refuse(from, "quant_algo", json_string_value(name), d);
    if (algorithms[i].has_fp8) return LW_OK; /* what is said of groups concerns no FP8 */
    return lw__quant_choice(from, "group_size", groups, 1, &group, d);
}

static lw_status check_names(const lw__quant_source *from, const char *key, lw_diag *d)
{
    const json_t *list = value_of(from->object, key);
    bool is_good = list == NULL || json_is_array(list);
    for (size_t i = 0; i < json_array_size(list); i++)
        is_good = is_good && json_is_string(json_array_get(list, i));
    if (is_good) return LW_OK;
    return lw_fail(d, LW_BAD_MODEL, "%s: %s: \"%s\" is not a list of names", from->file, from->where, key);
}

static lw_status read_modelopt(lw_quant_config *config, const lw__quant_source *from, lw_diag *d)
{
    static const char key[] = "quantized_layers";
    const json_t *layers = value_of(from->object, key);
    config->block_rows = config->block_cols = 128; /* of FP8_PB_WO, which writes no sizes */
    lw_status status = check_algorithm(from, d);
    if (status == LW_OK) status = check_names(from, "exclude_modules", d);
    if (status == LW_OK && layers != NULL && !json_is_object(layers))
        return lw_fail(d, LW_BAD_MODEL, "%s: %s: \"%s\" is not an object", from->file, from->where, key);
    for (void *at = json_object_iter((json_t *)layers); at != NULL && status == LW_OK;
         at = json_object_iter_next((json_t *)layers, at)) {
        char where[TEXT_BYTES];
        snprintf(where, sizeof where, "%s.%.64s", key, json_object_iter_key(at));
        const lw__quant_source own = { .file = from->file, .where = where,
                                       .object = json_object_iter_value(at) };
        status = check_algorithm(&own, d);
    }
    return status;
}

static bool judge_modelopt(const lw_quant_config *config, const char *path, const lw_stored *stored)
{
    const json_t *own = json_object_get(json_object_get(config->settings, "quantized_layers"), path);
    const size_t i = find_algorithm(text_of(own != NULL ? own : config->settings, "quant_algo"));
    LW_ASSERT(i < ALGORITHM_COUNT);
    return stored->storage == LW_STORED_FP8 ? algorithms[i].has_fp8 : algorithms[i].has_nvfp4;
}

/* ---- compressed-tensors ---- */

/* The weights of one of config_groups. */
typedef struct scheme {
    const char *type, *strategy;
    uint32_t bits, group, block[2];
} scheme;

static lw_status read_scheme(const lw__quant_source *from, scheme *out, lw_diag *d)
{
    static const uint32_t bits[] = { 4, 8 };
    static const char *const integers[] = { "group", "channel", NULL };
    static const char *const bytes[] = { "tensor", "channel", "block", NULL };
    static const char *const fours[] = { "tensor_group", "group", NULL };
    const json_t *symmetric = value_of(from->object, "symmetric"), *group;
    *out = (scheme){ .type = text_of(from->object, "type"), .strategy = text_of(from->object, "strategy") };
    const lw_status status = lw__quant_choice(from, "num_bits", bits, 2, &out->bits, d);
    if (status != LW_OK) return status;
    if (symmetric != NULL && !json_is_true(symmetric)) return refuse(from, "symmetric", "false", d);
    const bool is_float = strcmp(out->type, "float") == 0;
    if (!is_float && strcmp(out->type, "int") != 0) return refuse(from, "type", out->type, d);
    if (!is_among(out->strategy, !is_float ? integers : out->bits == 8 ? bytes : fours))
        return refuse(from, "strategy", out->strategy, d);
    group = value_of(from->object, "group_size");
    if (json_is_integer(group) && json_integer_value(group) > 0 && json_integer_value(group) <= UINT16_MAX)
        out->group = (uint32_t)json_integer_value(group);
    return read_block(from, "block_structure", out->block, d);
}

/* Calls for every scheme until one matches stored (found), or only reads them all where stored is NULL. */
static lw_status each_scheme(const lw_quant_config *config, const lw_stored *stored, bool *found, lw_diag *d)
{
    const json_t *groups = json_object_get(config->settings, "config_groups");
    *found = false;
    for (void *at = json_object_iter((json_t *)groups); at != NULL && !*found;
         at = json_object_iter_next((json_t *)groups, at)) {
        char where[TEXT_BYTES];
        snprintf(where, sizeof where, "config_groups.%.64s", json_object_iter_key(at));
        const json_t *weights = value_of(json_object_iter_value(at), "weights");
        const lw__quant_source from = { .file = config->file, .where = where, .object = weights };
        scheme s;
        if (weights == NULL) continue;
        const lw_status status = read_scheme(&from, &s, d);
        if (status != LW_OK) return status;
        if (stored == NULL || s.bits != stored->bits) continue;
        if (strcmp(s.type, stored->storage == LW_STORED_PACKED ? "int" : "float") != 0) continue;
        if (strcmp(s.strategy, "channel") == 0) *found = stored->is_channel;
        else if (strcmp(s.strategy, "tensor") == 0) *found = stored->group == 0;
        else if (strcmp(s.strategy, "block") == 0)
            *found = stored->group_rows == s.block[0] && stored->group == s.block[1];
        else *found = stored->group == s.group;
    }
    return LW_OK;
}

static lw_status read_compressed(lw_quant_config *config, const lw__quant_source *from, lw_diag *d)
{
    static const char *const formats[] = { "",
                                           "pack-quantized",
                                           "nvfp4-pack-quantized",
                                           "float-quantized",
                                           "naive-quantized",
                                           "mixed-precision",
                                           NULL };
    const char *format = text_of(from->object, "format");
    bool found;
    if (!is_among(format, formats)) return refuse(from, "format", format, d);
    config->block_rows = config->block_cols = 128; /* shapes show blocks; judge_compressed compares sizes */
    return each_scheme(config, NULL, &found, d);
}

static bool judge_compressed(const lw_quant_config *config, const char *path, const lw_stored *stored)
{
    bool found;
    lw_diag d;
    (void)path;
    return each_scheme(config, stored, &found, &d) == LW_OK && found;
}

/* ---- all methods ---- */

static const struct {
    const char *spellings[3];
    lw_quant_method method;
    reader *read;
    judge *agrees;
} methods[] = {
    { { "gptq", "auto-round", "auto_round" }, LW_QUANT_GPTQ, read_gptq, judge_gptq },
    { { "fp8" }, LW_QUANT_FP8, read_fp8, judge_fp8 },
    { { "modelopt" }, LW_QUANT_MODELOPT, read_modelopt, judge_modelopt },
    { { "compressed-tensors" }, LW_QUANT_COMPRESSED, read_compressed, judge_compressed },
};
enum { METHOD_COUNT = sizeof methods / sizeof methods[0] };

lw_status lw__quant_method_read(lw_quant_config *config, const char *method, const char *where, lw_diag *d)
{
    const lw__quant_source from = { .file = config->file, .where = where, .object = config->settings };
    for (size_t i = 0; i < METHOD_COUNT; i++) {
        for (size_t j = 0; j < 3 && methods[i].spellings[j] != NULL; j++) {
            if (strcmp(methods[i].spellings[j], method) != 0) continue;
            config->method = methods[i].method;
            return methods[i].read(config, &from, d);
        }
    }
    return lw_fail(d, LW_UNSUPPORTED,
                   "%s: %s: quant_method \"%.64s\" is not served; served: gptq, auto-round, fp8, modelopt, "
                   "compressed-tensors, MLX affine, or dense weights",
                   config->file, where, method);
}

/* Whether a name of a list of dense modules covers path: a glob of '*', or whole dotted parts of it. */
static bool covers(const char *name, const char *path)
{
    const size_t bytes = strlen(name);
    if (strncmp(name, "re:", 3) == 0 || bytes == 0) return false;
    for (const char *at = strstr(path, name); at != NULL; at = strstr(at + 1, name)) {
        const bool begins = at == path || at[-1] == '.', ends = at[bytes] == '\0' || at[bytes] == '.';
        if (begins && ends) return true;
    }
    const char *star = NULL, *resume = NULL; /* the last '*', and what it has swallowed up to */
    while (*path != '\0') {
        if (*name == '*') {
            star = name++;
            resume = path;
        } else if (*name == *path) {
            name++;
            path++;
        } else if (star != NULL) {
            name = star + 1;
            path = ++resume;
        } else return false;
    }
    while (*name == '*') name++;
    return *name == '\0';
}

static bool is_kept_dense(const lw_quant_config *config, const char *path)
{
    static const char *const lists[] = { "modules_to_not_convert", "ignored_layers", "ignore",
                                         "exclude_modules" };
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        const json_t *list = json_object_get(config->settings, lists[i]);
        for (size_t j = 0; j < json_array_size(list); j++) {
            const char *name = json_string_value(json_array_get(list, j));
            if (name != NULL && covers(name, path)) return true;
        }
    }
    const json_t *own = json_object_get(json_object_get(config->settings, "extra_config"), path);
    return json_integer_value(json_object_get(own, "bits")) >= 16;
}

static const struct {
    const char *text;
    lw_quant_method methods[3]; /* that write it */
} storages[LW_STORED_COUNT] = {
    [LW_STORED_GPTQ] = { "GPTQ (qweight)", { LW_QUANT_GPTQ } },
    [LW_STORED_PACKED] = { "packed integers (weight_packed)", { LW_QUANT_COMPRESSED } },
    [LW_STORED_FP8] = { "FP8", { LW_QUANT_FP8, LW_QUANT_MODELOPT, LW_QUANT_COMPRESSED } },
    [LW_STORED_NVFP4] = { "NVFP4", { LW_QUANT_MODELOPT } },
    [LW_STORED_NVFP4_PACKED] = { "NVFP4 (weight_packed)", { LW_QUANT_COMPRESSED } },
};

static void describe(const lw_stored *stored, char text[TEXT_BYTES])
{
    const char *name = storages[stored->storage].text;
    if (stored->is_channel) snprintf(text, TEXT_BYTES, "%s, %u bits, one scale a row", name, stored->bits);
    else if (stored->group == 0) snprintf(text, TEXT_BYTES, "%s, %u bits, one scale", name, stored->bits);
    else if (stored->group_rows > 1)
        snprintf(text, TEXT_BYTES, "%s, %u bits, blocks of %u x %u", name, stored->bits, stored->group_rows,
                 stored->group);
    else snprintf(text, TEXT_BYTES, "%s, %u bits, group %u", name, stored->bits, stored->group);
}

lw_status lw__quant_config_hold(const lw_quant_config *config, const char *path, const lw_stored *stored,
                                lw_diag *d)
{
    char text[TEXT_BYTES];
    describe(stored, text);
    if (config->method == LW_QUANT_NONE)
        return lw_fail(d, LW_BAD_MODEL, "%s is stored as %s, but %s has no \"quantization_config\"", path,
                       text, config->file);
    size_t i = 0;
    while (i < METHOD_COUNT && methods[i].method != config->method) i++;
    bool is_own = false;
    for (size_t j = 0; i < METHOD_COUNT && j < 3; j++)
        is_own |= storages[stored->storage].methods[j] == config->method;
    if (!is_own)
        return lw_fail(d, LW_BAD_MODEL, "%s is stored as %s, which is not what %s's quantization writes",
                       path, text, config->file);
    if (is_kept_dense(config, path))
        return lw_fail(d, LW_BAD_MODEL, "%s is stored as %s, but %s says that it is not quantized", path,
                       text, config->file);
    if (!methods[i].agrees(config, path, stored))
        return lw_fail(d, LW_BAD_MODEL, "%s is stored as %s, which is not what %s says of it", path, text,
                       config->file);
    return LW_OK;
}
