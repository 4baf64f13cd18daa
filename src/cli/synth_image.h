/* What a synthetic checkpoint's files say: its config and the header of its safetensors file. The table of
 * shapes stands in synth_image.c. A cut shape has some layers of a whole model at their real widths; each of
 * them stands for so many of the whole one's.
 */
#ifndef LW_CLI_SYNTH_IMAGE_H
#define LW_CLI_SYNTH_IMAGE_H

#include "base/buf.h"
#include "base/status.h"

#include <stdint.h>

enum { LW_SYNTH_GROUP = 64, LW_SYNTH_KINDS_MAX = 4 };

typedef struct lw_synth_shape {
    const char *name;
    const char *model_type;
    const char *layers; /* lfm: c conv, F full, S sliding; qwen: d delta, F full; nemotron: M, E and * */
    struct {
        char letter;
        uint32_t count;
    } whole[LW_SYNTH_KINDS_MAX]; /* of a cut shape; else zeros */
    uint32_t width, ffn_width, vocab;
    uint32_t heads, heads_kv, head_dim, taps;
    uint32_t key_heads, key_width, value_heads, value_width; /* of recurrences */
    uint32_t experts, top, expert_width, shared_width;
    bool is_tied, has_head;
} lw_synth_shape;

/* The shape and the bits (0: bf16) of a name like "lfm3-1.7b-4bit". LW_BAD_INPUT lists what there is. */
lw_status lw_synth_shape_find(const char *name, const lw_synth_shape **out, uint32_t *bits, lw_diag *d)
    LW_MUST_USE;

/* The names, for --help. */
#define LW_SYNTH_SHAPES \
    "lfm3-1.7b, lfm3-350m, lfm2-1.2b, qwen3.5-0.8b, qwen3.8-27b, qwen3.5-35b-a3b, nemotron-30b-a3b,\n" \
    "or qwen3.8-27b-cut, qwen3.5-35b-a3b-cut, nemotron-30b-a3b-cut, which have a group of the layers;\n" \
    "then -bf16, -8bit, -6bit or -4bit"

/* Names without formats, in the order of the table; NULL past the last. */
const char *lw_synth_shape_name(size_t index);

/* Layers of the whole model, and how many of them a layer of the shape stands for; 1 where nothing is cut. */
uint32_t lw_synth_layers_whole(const lw_synth_shape *shape);
double lw_synth_stands_for(const lw_synth_shape *shape, uint32_t layer);

/* config.json, and the safetensors header with its length in front; data_bytes follow it. */
lw_status lw_synth_image(const char *name, lw_buf *config, lw_buf *header, uint64_t *data_bytes, lw_diag *d)
    LW_MUST_USE;

#endif
