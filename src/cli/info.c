/* `lanewise info`: what a model folder holds, whether it is served, and if not, why. Works on any folder
 * whose config and tensors can be read. One JSON object is made first; the text for people is printed from
 * it.
 */
#include "base/json.h"
#include "cli/load.h"
#include "cli/verbs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNUSED_SHOWN = 12 };

static const char info_summary[] =
    "Says what a model folder holds, and whether this build serves it: exit code 0 if it does, 1 if\n"
    "not. Models of unknown kinds are described too.";

static const char info_examples[] = "  lanewise info models/lfm3-mlx4\n"
                                    "  lanewise info models/lfm3-mlx4 --json\n";

/* Paths and names of tensors may be any bytes. */
static json_t *text_json(const char *text)
{
    return lw_json_text(text, strlen(text));
}

/* Adds one tensor or weight to the entry of its kind in list: {"name", "count", "bytes"}. */
static void tally(json_t *list, const char *name, uint64_t bytes)
{
    json_t *item = NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *other = json_array_get(list, i);
        if (strcmp(json_string_value(json_object_get(other, "name")), name) == 0) item = other;
    }
    if (item == NULL) {
        item = json_pack("{s:s, s:i, s:i}", "name", name, "count", 0, "bytes", 0);
        if (item == NULL || json_array_append_new(list, item) != 0) return;
    }
    const json_int_t count = json_integer_value(json_object_get(item, "count"));
    const json_int_t sum = json_integer_value(json_object_get(item, "bytes"));
    json_object_set_new(item, "count", json_integer(count + 1));
    json_object_set_new(item, "bytes", json_integer(sum + (json_int_t)bytes));
}

static void add_tensors(json_t *object, const lw_checkpoint *checkpoint)
{
    json_t *list = json_array();
    const size_t count = lw_checkpoint_tensor_count(checkpoint);
    for (size_t i = 0; i < count; i++) {
        const lw_tensor *tensor = lw_checkpoint_tensor(checkpoint, i);
        tally(list, lw_dtype_name(tensor->dtype), tensor->byte_count);
    }
    json_object_set_new(object, "tensors", json_integer((json_int_t)count));
    json_object_set_new(object, "bytes", json_integer((json_int_t)lw_checkpoint_bytes(checkpoint)));
    json_object_set_new(object, "stored", list);
}

/* Copies a value of config.json if it is there; wrong types are shown as they are. */
static void add_config(json_t *object, const lw_config *config, const char *name, const char *keys)
{
    const json_t *value = lw_config_get(config, keys);
    json_object_set_new(object, name, value != NULL ? json_deep_copy(value) : json_null());
}

static void on_unused(void *context, const char *name)
{
    json_array_append_new(context, text_json(name));
}

/* Bytes that keys and values of one token take, as they are kept. */
static void add_kv(json_t *object, lw_plan *plan)
{
    const json_int_t whole = (json_int_t)lw_plan_kv_bytes(plan);
    lw_plan_keep_kv(plan, LW_KV_INT8);
    const json_int_t codes = (json_int_t)lw_plan_kv_bytes(plan);
    json_object_set_new(object, "kv_bytes", json_pack("{s:I, s:I}", "bf16", whole, "int8", codes));
}

/* Whether a family records this checkpoint; its weights by format, and the tensors that it leaves. */
static void add_family(json_t *object, const lw_checkpoint *checkpoint)
{
    lw_diag d;
    lw_plan plan = { 0 };
    const lw_family *family = NULL;
    json_t *unused = json_array(), *formats = json_array();
    const lw_record_options options = { .head = true, .unused = on_unused, .context = unused };
    lw_status status = lw_family_find(checkpoint, &family, &d);
    if (family != NULL) json_object_set_new(object, "family", json_string(family->name));
    if (status == LW_OK) status = lw_plan_init(&plan, &d);
    if (status == LW_OK) status = family->record(checkpoint, &options, &plan, &d);
    for (uint32_t i = 0; status == LW_OK && i < plan.weight_count; i++) {
        char format[32];
        lw_weight_format(&plan.weights[i], format);
        tally(formats, format, lw_weight_bytes(&plan.weights[i]));
    }
    if (status == LW_OK) add_kv(object, &plan);
    lw_plan_deinit(&plan);
    json_object_set_new(object, "served", json_boolean(status == LW_OK));
    if (status != LW_OK) json_object_set_new(object, "why", text_json(d.text));
    json_object_set_new(object, "formats", formats);
    json_object_set_new(object, "unused", unused);
}

static void add_text(json_t *object, lw_loaded *model)
{
    lw_diag d;
    if (lw_load_tokenizer(model, &d) == LW_OK) {
        json_object_set_new(object, "tokenizer_ids", json_integer(lw_tokenizer_id_count(model->tokenizer)));
    } else {
        json_object_set_new(object, "tokenizer_error", text_json(d.text));
        if (lw_family_end_ids(model->checkpoint, model->end_ids, &model->end_id_count, NULL) != LW_OK) {
            model->end_id_count = 0;
        }
    }
    if (lw_load_chat(model, &d) != LW_OK) json_object_set_new(object, "template_error", text_json(d.text));
    json_object_set_new(object, "template", json_boolean(model->chat != NULL));
    json_t *ends = json_array();
    for (size_t i = 0; i < model->end_id_count; i++) {
        const int32_t id = model->end_ids[i];
        json_t *text = NULL;
        if (model->tokenizer != NULL) {
            const lw_text bytes = lw_tokenizer_bytes(model->tokenizer, id);
            text = json_stringn(bytes.count > 0 ? bytes.bytes : "", bytes.count);
        }
        json_array_append_new(ends,
                              json_pack("{s:i, s:o}", "id", id, "text", text != NULL ? text : json_null()));
    }
    json_object_set_new(object, "end", ends);
}

/* ---- for people ---- */

/* A string member; what jansson refused (a path that is no UTF-8) reads as "?". */
static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "?";
}

static void print_value(const char *label, const json_t *value)
{
    char *text = NULL;
    if (json_is_null(value) || value == NULL) {
        printf("%-14s not given\n", label);
    } else if (json_is_string(value)) {
        printf("%-14s %s\n", label, json_string_value(value));
    } else {
        text = json_dumps(value, JSON_ENCODE_ANY);
        printf("%-14s %s\n", label, text != NULL ? text : "?");
    }
    free(text);
}

static void print_tally(const char *label, const char *unit, const json_t *list)
{
    size_t at;
    json_t *item;
    json_array_foreach(list, at, item)
    {
        const double bytes = json_number_value(json_object_get(item, "bytes"));
        const bool is_small = bytes < (double)(1 << 26);
        printf("%-14s %-16s %6lld %s %9.3f %s\n", at == 0 ? label : "", text_of(item, "name"),
               (long long)json_integer_value(json_object_get(item, "count")), unit,
               bytes / (double)(is_small ? 1 << 20 : 1 << 30), is_small ? "MiB" : "GiB");
    }
}

static void print_text(const json_t *object)
{
    if (json_object_get(object, "tokenizer_ids") == NULL) {
        printf("%-14s not served: %s\n", "tokenizer", text_of(object, "tokenizer_error"));
    } else {
        print_value("tokenizer ids", json_object_get(object, "tokenizer_ids"));
    }
    if (json_object_get(object, "template_error") != NULL) {
        printf("%-14s not served: %s\n", "template", text_of(object, "template_error"));
    } else {
        printf("%-14s %s\n", "template", json_is_true(json_object_get(object, "template")) ? "yes" : "none");
    }
    printf("%-14s", "end tokens");
    size_t at;
    json_t *item;
    json_array_foreach(json_object_get(object, "end"), at, item)
    {
        const char *text = json_string_value(json_object_get(item, "text"));
        printf(" %lld %s", (long long)json_integer_value(json_object_get(item, "id")),
               text != NULL ? text : "");
    }
    printf("%s\n", at == 0 ? " none" : "");
}

static void print_unused(const json_t *unused)
{
    const size_t count = json_array_size(unused);
    if (count == 0) return;
    printf("%-14s %zu tensors that the family does not ask for:\n", "unused", count);
    for (size_t i = 0; i < count && i < UNUSED_SHOWN; i++) {
        printf("%-14s %s\n", "", json_string_value(json_array_get(unused, i)));
    }
    if (count > UNUSED_SHOWN) printf("%-14s ... and %zu more\n", "", count - UNUSED_SHOWN);
}

static void print_kv(const json_t *bytes)
{
    if (bytes == NULL) return;
    printf("%-14s %lld bytes of keys and values; with --kv-int8 %lld\n", "a token",
           (long long)json_integer_value(json_object_get(bytes, "bf16")),
           (long long)json_integer_value(json_object_get(bytes, "int8")));
}

static void print_plain(const json_t *object)
{
    static const struct {
        const char *label, *key;
    } values[] = {
        { "model", "model" },     { "model_type", "model_type" }, { "architectures", "architectures" },
        { "context", "context" }, { "vocabulary", "vocab" },      { "layers", "layers" },
        { "width", "width" },     { "tensors", "tensors" },
    };
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        print_value(values[i].label, json_object_get(object, values[i].key));
    }
    print_tally("stored as", "tensors", json_object_get(object, "stored"));
    print_text(object);
    print_tally("weights", "weights", json_object_get(object, "formats"));
    print_unused(json_object_get(object, "unused"));
    print_kv(json_object_get(object, "kv_bytes"));
    const bool served = json_is_true(json_object_get(object, "served"));
    if (served) printf("%-14s yes, by family %s\n", "served", text_of(object, "family"));
    else printf("%-14s no: %s\n", "served", text_of(object, "why"));
}

static json_t *describe(lw_loaded *model)
{
    const lw_config *config = lw_checkpoint_config(model->checkpoint);
    json_t *object = json_object();
    json_object_set_new(object, "model", text_json(lw_checkpoint_dir(model->checkpoint)));
    add_config(object, config, "model_type", "model_type");
    add_config(object, config, "architectures", "architectures");
    add_config(object, config, "context", "max_position_embeddings");
    add_config(object, config, "vocab", "vocab_size");
    add_config(object, config, "layers", "num_hidden_layers");
    add_config(object, config, "width", "hidden_size");
    add_tensors(object, model->checkpoint);
    add_text(object, model);
    add_family(object, model->checkpoint);
    return object;
}

int lw_verb_info(const lw_term *term, int argc, char **argv)
{
    (void)term;
    bool json = false;
    const lw_option options[] = { { .name = "json", .flag = &json, .help = "one JSON object" } };
    const lw_usage usage = {
        .verb = "info",
        .arguments = "MODEL",
        .arguments_min = 1,
        .arguments_max = 1,
        .summary = info_summary,
        .examples = info_examples,
        .options = options,
        .option_count = 1,
    };
    lw_arguments arguments;
    int code = LW_EXIT_OK;
    if (!lw_options_ready(&usage, argc, argv, &arguments, &code)) return code;
    lw_diag d;
    lw_loaded model = { .checkpoint = NULL };
    if (lw_load_checkpoint(&model, arguments.values[0], &d) != LW_OK) {
        code = lw_term_error("%s", d.text);
    } else {
        json_t *object = describe(&model);
        code = json_is_true(json_object_get(object, "served")) ? LW_EXIT_OK : LW_EXIT_FAILED;
        if (!json) print_plain(object);
        if (json) lw_out_json(object);
        else json_decref(object);
    }
    lw_loaded_close(&model);
    return code;
}
