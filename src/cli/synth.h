/* Models with random weights at the shapes of real checkpoints, for measuring without a download.
 *
 * A folder with config.json and the header of a safetensors file is made under /tmp, opened as any checkpoint
 * is and removed at once; its data is a hole that takes no disk and is never read. After the family has
 * recorded its plan, each weight is pointed at random values in memory, which weights of equal kind share. So
 * while loading no more lies in memory than the device's own copy and the largest tensor, and after
 * lw_synth_drop the device's copy alone.
 */
#ifndef LW_CLI_SYNTH_H
#define LW_CLI_SYNTH_H

#include "base/buf.h"
#include "model/checkpoint.h"
#include "ops/plan.h"

typedef struct lw_synth {
    lw_checkpoint *checkpoint; /* names and shapes; outlives the engine */
    lw_plan plan;              /* its weights are random; the engine takes it */
    lw_arena arena;            /* tensors of the patched weights */
    uint8_t *values[4];        /* codes, dense values, scales, biases */
} lw_synth;

/* "lfm3-1.7b-4bit": a shape and a format. LW_BAD_INPUT lists both. */
lw_status lw_synth_make(const char *name, lw_synth *out, lw_diag *d) LW_MUST_USE;

/* True if there is such a model. */
bool lw_synth_is_known(const char *name);

/* Frees the values once a device has repacked them. */
void lw_synth_drop(lw_synth *synth);
void lw_synth_close(lw_synth *synth);

/* The names that lw_synth_make takes, for --help. */
#define LW_SYNTH_SHAPES "lfm3-1.7b, lfm3-350m or lfm2-1.2b, then -bf16, -8bit, -6bit or -4bit"

/* The image of such a checkpoint: config.json, and the safetensors header with its length in front;
 * data_bytes follow it. For tests. */
lw_status lw_synth_image(const char *name, lw_buf *config, lw_buf *header, uint64_t *data_bytes, lw_diag *d)
    LW_MUST_USE;

#endif
