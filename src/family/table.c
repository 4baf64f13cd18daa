/* The families, and what all of them share: finding one, its context and its end tokens. */
#include "family/family.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

extern const lw_family lw_family_lfm3, lw_family_nemotron_h, lw_family_qwen3_5;

const lw_family *const lw_families[] = { &lw_family_lfm3, &lw_family_nemotron_h, &lw_family_qwen3_5, NULL };

void lw_record_tell_unused(const lw_record_options *options, const lw_names *names)
{
    for (size_t i = 0; options->unused != NULL && i < lw_names_unused_count(names); i++) {
        options->unused(options->context, lw_names_unused(names, i));
    }
}

void lw_record_note(const lw_record_options *options, const char *format, ...)
{
    if (options->note == NULL) return;
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    options->note(options->context, text);
}

static bool family_has(const lw_family *family, const char *type)
{
    for (size_t i = 0; family->model_types[i] != NULL; i++) {
        if (strcmp(family->model_types[i], type) == 0) return true;
    }
    return false;
}

lw_status lw_family_find(const lw_checkpoint *checkpoint, const lw_family **out, lw_diag *d)
{
    const lw_config *config = lw_checkpoint_config(checkpoint);
    const char *type = NULL;
    *out = NULL;
    const lw_status status = lw_config_text(config, "model_type", "", &type, d);
    if (status != LW_OK) return status;
    char served[512] = "";
    for (size_t i = 0; lw_families[i] != NULL; i++) {
        if (family_has(lw_families[i], type)) {
            *out = lw_families[i];
            return LW_OK;
        }
        for (size_t j = 0; lw_families[i]->model_types[j] != NULL; j++) {
            const size_t at = strlen(served);
            snprintf(served + at, sizeof served - at, "%s%s", at == 0 ? "" : ", ",
                     lw_families[i]->model_types[j]);
        }
    }
    return lw_fail(d, LW_UNSUPPORTED, "%s: model_type \"%s\" is not served; served are: %s",
                   lw_config_name(config), type, served);
}

uint32_t lw_family_context(const lw_checkpoint *checkpoint)
{
    const uint32_t none = 0;
    uint32_t context = 0;
    const lw_status status = lw_config_u32(lw_checkpoint_config(checkpoint), "max_position_embeddings", &none,
                                           UINT32_MAX, &context, NULL);
    if (status != LW_OK) return 0;
    return context < LW_LIMIT_CONTEXT ? context : LW_LIMIT_CONTEXT;
}

lw_status lw_family_end_ids(const lw_checkpoint *checkpoint, int32_t ids[LW_FAMILY_END_IDS_MAX],
                            size_t *count, lw_diag *d)
{
    _Static_assert(LW_FAMILY_END_IDS_MAX >= 2 * LW_CONFIG_IDS_MAX, "both files' ids fit");
    *count = 0;
    const lw_status status = lw_config_ids(lw_checkpoint_config(checkpoint), "eos_token_id", ids, count, d);
    if (status != LW_OK) return status;
    return lw_config_ids(lw_checkpoint_generation(checkpoint), "eos_token_id", ids, count, d);
}
