/* Any bytes as config.json: every reader on keys that real configs have, and the quantisation settings. */
#include "model/config.h"
#include "model/quant_config.h"

#include "base/limits.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count);

static const char *const keys[] = { "a", "b|a", "eos_token_id|a", "rope_parameters|b", "layer_types" };

/* Statuses are not judged here: the point is that every path ends without a fault. */
static void ignore(lw_status status)
{
    (void)status;
}

static void read_keys(const lw_config *config)
{
    lw_diag d;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        int32_t ids[LW_CONFIG_IDS_MAX];
        uint32_t whole;
        double real;
        bool flag;
        const char *text;
        size_t id_count = 0;
        ignore(lw_config_u32(config, keys[i], NULL, 1000, &whole, &d));
        ignore(lw_config_f64(config, keys[i], NULL, &real, &d));
        ignore(lw_config_bool(config, keys[i], true, &flag, &d));
        ignore(lw_config_text(config, keys[i], NULL, &text, &d));
        ignore(lw_config_ids(config, keys[i], ids, &id_count, &d));
        LW_ASSERT(id_count <= LW_CONFIG_IDS_MAX);
        for (size_t k = 0; k < id_count; k++) LW_ASSERT(ids[k] >= 0 && ids[k] < LW_LIMIT_VOCAB);
    }
}

static void read_quantisation(const lw_config *config)
{
    lw_quant_config quant;
    lw_quant module;
    lw_diag d;
    ignore(lw__quant_config_read(NULL, config, &quant, &d)); /* as ModelOpt's own file */
    if (lw__quant_config_read(config, NULL, &quant, &d) != LW_OK || quant.settings == NULL) return;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)quant.settings, key, value) {
        if (lw__quant_config_module(&quant, key, &module, &d) != LW_OK) continue;
        LW_ASSERT(module.bits >= 2 && module.bits <= 8 && module.bits != 7);
        LW_ASSERT(module.group == 32 || module.group == 64 || module.group == 128);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count)
{
    lw_config *config;
    lw_diag d;
    lw_quant quant;
    if (lw_config_parse((const char *)data, count, "fuzz", &config, &d) == LW_OK) {
        read_keys(config);
        read_keys(lw_config_child(config, "rope_parameters"));
        read_quantisation(config);
        lw_config_close(config);
    }
    char *text = malloc(count + 1);
    if (text == NULL) return 0;
    if (count > 0) memcpy(text, data, count);
    text[count] = '\0';
    ignore(lw__quant_parse(text, "fuzz", &quant, &d));
    free(text);
    return 0;
}
