/* Between names.c, which finds a module under its spelling, and module.c, which makes a descriptor of the
 * tensors that stand there. Neither guesses: whatever config and tensors disagree about becomes a note.
 */
#ifndef LW_MODEL_MODULE_H
#define LW_MODEL_MODULE_H

#include "model/names.h"
#include "model/quant_config.h"

/* What a family asks for. */
typedef struct lw__ask {
    char name[LW_LIMIT_NAME_BYTES]; /* the family's spelling */
    const char *const *suffixes;    /* NULL-terminated: what may stand after a module's name */
    uint32_t stack;                 /* 0: no stack dimension */
    uint32_t rows;                  /* 0 with any_rows */
    uint32_t cols;
    bool any_rows;                  /* as many as the file has */
} lw__ask;

typedef struct lw__found {
    char path[LW_LIMIT_NAME_BYTES]; /* as in the file, without the suffix */
    const char *suffix;
    const lw_tensor *tensor;
} lw__found;

/* Suffixes of a matrix's codes: ".weight", and what GPTQ and compressed-tensors write in its place. */
extern const char *const lw__matrix_suffixes[];

/* The descriptor of what was found, which is as asked; else a note and false. */
bool lw__module_fill(lw_names *names, const lw__ask *a, const lw__found *f, lw_weight *out);

/* A tensor of any arrangement of dims whose elements number rows * cols. */
bool lw__module_fill_dense(lw_names *names, const lw__ask *a, const lw__found *f, lw_weight *out);

/* -- what names.c gives to module.c -- */

void lw__names_note(lw_names *names, lw_status status, const char *format, ...) LW_PRINTF(3, 4);

/* The tensor path + suffix, which then counts as used; NULL if absent. */
const lw_tensor *lw__names_take(lw_names *names, const char *path, const char *suffix);
bool lw__names_holds(const lw_names *names, const char *path, const char *suffix);

const lw_quant_config *lw__names_quant(const lw_names *names);
const lw_checkpoint *lw__names_checkpoint(const lw_names *names);

/* The file without its folder, which stands once at the head of the error. */
const char *lw__file_of(const lw_tensor *tensor);
const char *lw__config_of(const lw_names *names);

#endif
