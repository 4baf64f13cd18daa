/* What a config says of quantisation: MLX's "quantization" block, or the "quantization_config" of GPTQ,
 * AutoRound, FP8, ModelOpt and compressed-tensors, or ModelOpt's own file. Only src/model asks.
 *
 * MLX's block says how each module is stored, and names.c holds it against the shapes. The other methods'
 * configs speak in patterns over module names that every library reads a little differently; there the
 * tensors of a module say how it is stored, and the config must agree: the method, the settings, and no name
 * or glob among what it keeps dense may cover the module. Regular expressions ("-:...", "re:...") are not
 * evaluated.
 */
#ifndef LW_MODEL_QUANT_CONFIG_H
#define LW_MODEL_QUANT_CONFIG_H

#include "model/config.h"

typedef enum lw_quant_method {
    LW_QUANT_NONE,
    LW_QUANT_MLX,
    LW_QUANT_GPTQ,       /* AutoRound's too, in GPTQ's packing */
    LW_QUANT_FP8,
    LW_QUANT_MODELOPT,
    LW_QUANT_COMPRESSED, /* compressed-tensors */
    LW_QUANT_METHOD_COUNT
} lw_quant_method;

typedef struct lw_quant {
    uint32_t bits;    /* 2, 3, 4, 5, 6 or 8 */
    uint32_t group;   /* 32, 64 or 128 */
    bool is_explicit; /* the config names this very module */
    bool is_off;      /* the config says that the module is not quantised */
} lw_quant;

typedef struct lw_quant_config {
    const char *file;       /* for texts */
    const json_t *settings; /* borrowed from the config; NULL without the block */
    lw_quant_method method;
    lw_quant global;        /* of MLX and GPTQ */
    bool is_reordered;      /* GPTQ's desc_act: only a g_idx in plain order makes such a module readable */
    uint32_t block_rows, block_cols; /* of FP8; 0 without blocks */
} lw_quant_config;

/* How the tensors of one module say that it is stored. */
typedef enum lw_storage {
    LW_STORED_GPTQ,         /* qweight */
    LW_STORED_PACKED,       /* weight_packed of integers */
    LW_STORED_FP8,          /* e4m3 weight */
    LW_STORED_NVFP4,        /* U8 weight */
    LW_STORED_NVFP4_PACKED, /* weight_packed of U8 */
    LW_STORED_COUNT
} lw_storage;

typedef struct lw_stored {
    lw_storage storage;
    uint32_t bits;
    uint32_t group;      /* columns that share a scale; 0: one scale for all */
    uint32_t group_rows; /* rows that share a scale; 1 unless in blocks */
    bool is_channel;     /* one scale a row */
} lw_stored;

/* LW_UNSUPPORTED for quantisation methods and settings that are not served, by name. side: ModelOpt's own
 * file, read where config says nothing; may be NULL. Borrows both. */
lw_status lw__quant_config_read(const lw_config *config, const lw_config *side, lw_quant_config *out,
                                lw_diag *d) LW_MUST_USE;

/* MLX: settings of the module at path, spelled as in the file. The block must be there. */
lw_status lw__quant_config_module(const lw_quant_config *config, const char *path, lw_quant *out, lw_diag *d)
    LW_MUST_USE;

/* The other methods: LW_BAD_MODEL unless the config lets the module at path be stored so. */
lw_status lw__quant_config_hold(const lw_quant_config *config, const char *path, const lw_stored *stored,
                                lw_diag *d) LW_MUST_USE;

/* Settings from a JSON text such as a side file's metadata holds: {"group_size":64,"bits":4}. */
lw_status lw__quant_parse(const char *json, const char *file, lw_quant *out, lw_diag *d) LW_MUST_USE;

/* The readers and judges of the other methods, in quant_methods.c. where names settings in texts. */
lw_status lw__quant_method_read(lw_quant_config *config, const char *method, const char *where, lw_diag *d)
    LW_MUST_USE;

/* One object being read; where names it in texts. */
typedef struct lw__quant_source {
    const char *file;
    const char *where;
    const json_t *object;
} lw__quant_source;

/* A whole number of allowed[0, count), or *out as it is where the key is absent. */
lw_status lw__quant_choice(const lw__quant_source *from, const char *key, const uint32_t *allowed,
                           size_t count, uint32_t *out, lw_diag *d) LW_MUST_USE;

#endif
