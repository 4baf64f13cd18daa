/* A model folder: its safetensors mapped read-only, its configs parsed, its tensors found by name.
 * Everything that the headers say is checked before it is used. After opening, the object is read-only.
 */
#ifndef LW_MODEL_CHECKPOINT_H
#define LW_MODEL_CHECKPOINT_H

#include "model/config.h"
#include "model/tensor.h"

typedef struct lw_checkpoint lw_checkpoint;

/* dir: a folder with config.json and *.safetensors: one file, shards with an index, or several files without
 * one. Tensors of side files named mtp*.safetensors are found under "mtp." (checkpoint.c has the rule of
 * which files count). *out is NULL on failure. */
lw_status lw_checkpoint_open(const char *dir, lw_checkpoint **out, lw_diag *d) LW_MUST_USE;
void lw_checkpoint_close(lw_checkpoint *checkpoint);

const char *lw_checkpoint_dir(const lw_checkpoint *checkpoint);
lw_config *lw_checkpoint_config(const lw_checkpoint *checkpoint);
/* generation_config.json; an empty config when the file is absent. */
const lw_config *lw_checkpoint_generation(const lw_checkpoint *checkpoint);
/* hf_quant_config.json, which ModelOpt writes; NULL when it is absent or config.json tells of quantisation
 * itself. */
const lw_config *lw_checkpoint_quant(const lw_checkpoint *checkpoint);

/* NULL if absent. */
const lw_tensor *lw_checkpoint_find(const lw_checkpoint *checkpoint, const char *name);
size_t lw_checkpoint_tensor_count(const lw_checkpoint *checkpoint);
/* In order of name. */
const lw_tensor *lw_checkpoint_tensor(const lw_checkpoint *checkpoint, size_t index);

/* The string under key in the __metadata__ of the file that holds tensor; NULL if absent. */
const char *lw_checkpoint_metadata(const lw_checkpoint *checkpoint, const lw_tensor *tensor, const char *key);

/* Bytes of all tensors. */
uint64_t lw_checkpoint_bytes(const lw_checkpoint *checkpoint);

/* Tells the system that a tensor is read soon, so that a cold file streams in while others are repacked. */
void lw_checkpoint_prefetch(const lw_checkpoint *checkpoint, const lw_tensor *tensor);

/* Tells the system that a tensor's pages will not be read again (after repacking). */
void lw_checkpoint_release(const lw_checkpoint *checkpoint, const lw_tensor *tensor);

/* Zeroed memory that lives as long as the tensors, for descriptors that point at them; NULL when there is
 * none. Names take it while a model is loaded: one thread. */
void *lw__checkpoint_keep(const lw_checkpoint *checkpoint, size_t count, size_t item_bytes) LW_MUST_USE;

/* Any one safetensors file, opened by itself (ref64.safetensors, fuzzers, tools). */
typedef struct lw_safetensors lw_safetensors;
lw_status lw_safetensors_open(const char *path, lw_safetensors **out, lw_diag *d) LW_MUST_USE;
/* bytes must outlive the object. */
lw_status lw_safetensors_parse(const uint8_t *bytes, size_t count, const char *name, lw_safetensors **out,
                               lw_diag *d) LW_MUST_USE;
void lw_safetensors_close(lw_safetensors *file);
size_t lw_safetensors_count(const lw_safetensors *file);
/* In order of name. */
const lw_tensor *lw_safetensors_tensor(const lw_safetensors *file, size_t index);
const lw_tensor *lw_safetensors_find(const lw_safetensors *file, const char *name);
/* A string of __metadata__; NULL if absent. */
const char *lw_safetensors_metadata(const lw_safetensors *file, const char *key);

#endif
