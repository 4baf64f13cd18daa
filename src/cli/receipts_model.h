/* Asking a model folder through the public API, for `lanewise receipts`. */
#ifndef LW_CLI_RECEIPTS_MODEL_H
#define LW_CLI_RECEIPTS_MODEL_H

#include "cli/receipts.h"

typedef struct lw_receipt_model_options {
    const char *dir, *isa, *device;
    const char *ze_loader, *xpu_kernels, *xpu_images;     /* of the terminal */
    uint32_t threads, context, chunk_rows;   /* 0: the library's own choice */
    uint32_t tokens;                         /* of each reply */
    bool act_int8;
    bool kv_int8;
} lw_receipt_model_options;

typedef struct lw_receipt_model lw_receipt_model;

/* Borrows options; nothing is loaded before the first turn. NULL: no memory. */
lw_receipt_model *lw_receipt_model_make(const lw_receipt_model_options *options);
void lw_receipt_model_free(lw_receipt_model *model);
lw_asker lw_receipt_model_asker(lw_receipt_model *model);

#endif
