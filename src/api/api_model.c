/* Opening a model folder: its texts first, so that what is wrong with them is said before gigabytes are read.
 */
#include "api/api.h"

#include "base/limits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH_BYTES = 4096 };

static lw_status folder_check(const char *dir, lw_diag *d)
{
    struct stat place;
    if (stat(dir, &place) != 0)
        return lw_fail(d, LW_NOT_FOUND,
                       "model %s: %s; a model is a folder with config.json and *.safetensors", dir,
                       strerror(errno));
    if (!S_ISDIR(place.st_mode))
        return lw_fail(d, LW_BAD_INPUT,
                       "model %s is a file; give the folder that holds config.json and *.safetensors", dir);
    return LW_OK;
}

static lw_status tokenizer_open(lw_model *model, const char *dir, lw_diag *d)
{
    char path[PATH_BYTES];
    const int count = snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    if (count < 0 || count >= PATH_BYTES)
        return lw_fail(d, LW_BAD_INPUT, "the path of tokenizer.json is too long");
    lw_status status = lw_tokenizer_open(path, &model->tokenizer, d);
    if (status != LW_OK) return status;
    for (uint32_t id = 0; id < lw_tokenizer_id_count(model->tokenizer); id++) {
        const size_t bytes = lw_tokenizer_bytes(model->tokenizer, (int32_t)id).count;
        if (bytes > model->token_bytes_max) model->token_bytes_max = (uint32_t)bytes;
    }
    model->think_open_id = lw_tokenizer_find(model->tokenizer, "<think>");
    model->think_close_id = lw_tokenizer_find(model->tokenizer, "</think>");
    model->scratches = lw__scratches_make();
    return model->scratches != NULL ? LW_OK : lw_fail(d, LW_NO_ROOM, "no memory for a tokenizer");
}

static lw_status texts_open(lw_model *model, const char *dir, lw_diag *d)
{
    lw_status status = tokenizer_open(model, dir, d);
    if (status != LW_OK) return status;
    status = lw_family_end_ids(model->checkpoint, model->end_ids, &model->end_id_count, d);
    if (status != LW_OK) return status;
    status = lw_chat_template_open(dir, &model->chat, d);
    if (status == LW_NOT_FOUND) return LW_OK;
    if (status == LW_OK) lw__api_learn_opening(model);
    return status;
}

/* do_sample false is greedy; a file that speaks of sampling without a temperature means 1. */
static lw_status sampling_read(lw_model *model, lw_diag *d)
{
    const lw_config *config = lw_checkpoint_generation(model->checkpoint);
    lw_sampling_options *s = &model->sampling;
    const double off = 1.0, none = 0.0, usual = lw_config_get(config, "do_sample") != NULL ? 1.0 : 0.0;
    const uint32_t all = 0;
    bool samples;
    lw_status status = lw_config_bool(config, "do_sample", true, &samples, d);
    if (status == LW_OK) status = lw_config_f64(config, "temperature", &usual, &s->temperature, d);
    if (status == LW_OK) status = lw_config_f64(config, "top_p", &off, &s->top_p, d);
    if (status == LW_OK) status = lw_config_f64(config, "min_p", &none, &s->min_p, d);
    if (status == LW_OK)
        status = lw_config_f64(config, "repetition_penalty", &off, &s->repetition_penalty, d);
    if (status == LW_OK) status = lw_config_u32(config, "top_k", &all, UINT32_MAX, &s->top_k, d);
    if (status == LW_OK && !samples) s->temperature = 0.0;
    return status;
}

/* The format of most of the weights' bytes. */
static void format_find(lw_model *model, const lw_plan *plan)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < plan->weight_count; i++) {
        char own[32];
        uint64_t bytes = 0;
        lw_weight_format(&plan->weights[i], own);
        for (uint32_t j = 0; j < plan->weight_count; j++) {
            char other[32];
            lw_weight_format(&plan->weights[j], other);
            if (strcmp(own, other) == 0) bytes += lw_weight_bytes(&plan->weights[j]);
        }
        if (bytes <= most) continue;
        most = bytes;
        memcpy(model->format, own, sizeof model->format);
    }
}

/* Context, lanes, chunk rows and cache stand already: the lanes know them. */
static void facts_fill(lw_model *model, const lw_family *family)
{
    const lw_plan *plan = model->plan;
    lw_model_facts *facts = &model->facts;
    format_find(model, plan);
    for (uint32_t i = 0; i < plan->weight_count; i++)
        facts->weight_bytes += lw_weight_bytes(&plan->weights[i]);
    facts->family = family->name;
    facts->format = model->format;
    facts->device = model->device;
    facts->vocab = plan->vocab;
    facts->context_model = lw_family_context(model->checkpoint);
    facts->has_template = model->chat != NULL;
    facts->end_ids = model->end_ids;
    facts->end_id_count = model->end_id_count;
    facts->sampling = model->sampling;
    facts->activations = model->options.act_int8 ? "int8" : "bf16";
    facts->kv = model->options.kv_int8 ? "int8" : "bf16";
    facts->kv_bytes = lw_plan_kv_bytes(plan);
    facts->think_open = model->think_open_id >= 0 ? "<think>" : NULL;
    facts->think_close = model->think_close_id >= 0 ? "</think>" : NULL;
}

static lw_status parts_open(lw_model *model, const char *dir, lw_diag *d)
{
    const lw_family *family = NULL;
    lw_status status = folder_check(dir, d);
    if (status == LW_OK) status = lw_checkpoint_open(dir, &model->checkpoint, d);
    if (status == LW_OK) status = lw_family_find(model->checkpoint, &family, d);
    if (status == LW_OK) status = texts_open(model, dir, d);
    if (status == LW_OK) status = sampling_read(model, d);
    if (status == LW_OK) status = lw__rounds_open(model, d);
    if (status == LW_OK) facts_fill(model, family);
    return status;
}

lw_result lw_model_open(const char *dir, const lw_model_options *options, lw_model **out, lw_error *error)
{
    *out = NULL;
    lw_model_options judged;
    const lw_result result = lw__api_model_options(options, &judged, error);
    if (result != LW_RESULT_OK) return result;
    lw_model *model = calloc(1, sizeof *model);
    if (model == NULL) return lw__api_fail(error, LW_RESULT_NO_ROOM, "", "no memory for a model");
    model->options = judged;
    model->opening.id = -1;
    lw_diag d;
    const lw_status status = parts_open(model, dir, &d);
    if (status != LW_OK) {
        lw_model_close(model);
        return lw__api_status(error, status, "", &d);
    }
    *out = model;
    return LW_RESULT_OK;
}

void lw_model_close(lw_model *model)
{
    if (model == NULL) return;
    lw__rounds_close(model->rounds);
    lw_chat_template_close(model->chat);
    lw__scratches_free(model->scratches);
    lw_tokenizer_close(model->tokenizer);
    lw_checkpoint_close(model->checkpoint);
    free(model);
}

void lw_model_read_facts(const lw_model *model, lw_model_facts *facts)
{
    *facts = model->facts;
}

lw_result lw_model_step(lw_model *model, bool *worked, lw_error *error)
{
    return lw__rounds_step(model->rounds, worked, error);
}

void lw_model_read_counts(const lw_model *model, lw_model_counts *counts)
{
    lw__rounds_count(model->rounds, counts);
}

const char *lw_version(void)
{
    return LW_VERSION;
}
