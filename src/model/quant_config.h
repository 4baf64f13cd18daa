/* The "quantization" block of an MLX config: how each module is stored. Only names.c asks; it then holds the answer
 * against the shapes in the file.
 */
#ifndef LW_MODEL_QUANT_CONFIG_H
#define LW_MODEL_QUANT_CONFIG_H

#include "model/config.h"

typedef struct lw_quant {
    uint32_t bits;    /* 2, 3, 4, 5, 6 or 8 */
    uint32_t group;   /* 32, 64 or 128 */
    bool is_explicit; /* the config names this very module */
    bool is_off;      /* the config says that the module is not quantised */
} lw_quant;

typedef struct lw_quant_config {
    const char *file;       /* for texts */
    const json_t *settings; /* borrowed from the config; NULL without the block */
    lw_quant global;
} lw_quant_config;

/* LW_UNSUPPORTED for quantisation methods and modes that are not served, by name. Borrows config. */
lw_status lw__quant_config_read(const lw_config *config, lw_quant_config *out, lw_diag *d) LW_MUST_USE;

/* Settings of the module at path, spelled as in the file. The block must be there. */
lw_status lw__quant_config_module(const lw_quant_config *config, const char *path, lw_quant *out, lw_diag *d)
    LW_MUST_USE;

/* Settings from a JSON text such as a side file's metadata holds: {"group_size":64,"bits":4}. */
lw_status lw__quant_parse(const char *json, const char *file, lw_quant *out, lw_diag *d) LW_MUST_USE;

#endif
