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

#include "cli/synth_image.h"
#include "model/checkpoint.h"
#include "ops/plan.h"

enum { LW_SYNTH_VALUES = 5 };

typedef struct lw_synth {
    const lw_synth_shape *shape;
    lw_checkpoint *checkpoint; /* names and shapes; outlives the engine */
    lw_plan plan;              /* its weights are random; the engine takes it */
    lw_arena arena;            /* tensors of the patched weights */
    uint8_t *values[LW_SYNTH_VALUES]; /* codes, dense values, those of norms, scales, biases */
} lw_synth;

/* A shape and a format, like "lfm3-1.7b-4bit"; head: with its draft head, where the shape has one.
 * LW_BAD_INPUT lists what there is. */
lw_status lw_synth_make(const char *name, bool head, lw_synth *out, lw_diag *d) LW_MUST_USE;

/* Frees the values once a device has repacked them. */
void lw_synth_drop(lw_synth *synth);
void lw_synth_close(lw_synth *synth);

#endif
