/* The one descriptor that every weight format becomes. Devices implement its axes and never see a format's name.
 *
 *   value[n][k] = global_scale * (scale[n][k / group] * map(code[n][k]) + bias[n][k / group])
 *
 * The codes lie in the checkpoint's mapping; a device reads them row by row through lw_weight_codes and repacks
 * them once. Dense weights have map LW_MAP_BF16, LW_MAP_FP16 or LW_MAP_FP32, no scale and group 0.
 */
#ifndef LW_MODEL_WEIGHT_H
#define LW_MODEL_WEIGHT_H

#include "model/tensor.h"

typedef enum lw_map {
    LW_MAP_BF16,      /* 16-bit code is a bf16 */
    LW_MAP_FP16,
    LW_MAP_FP32,
    LW_MAP_INTEGER,   /* unsigned integer of code_bits bits: 2, 3, 4, 5, 6 or 8 */
    LW_MAP_TABLE16,   /* 4-bit index into table[16] */
    LW_MAP_E4M3,      /* 8-bit float, e4m3fn */
    LW_MAP_COUNT
} lw_map;

/* How the checkpoint orders the codes; only src/model reads it. */
typedef enum lw_code_order {
    LW_ORDER_ROWS,    /* each row is a little-endian bit stream, k ascending */
    LW_ORDER_COUNT
} lw_code_order;

typedef struct lw_weight {
    const char *name;             /* the codes' tensor name, for texts; lives with the checkpoint */
    uint32_t stack_count;         /* experts in a stack; 1 for a plain matrix */
    uint32_t rows;                /* N: outputs */
    uint32_t cols;                /* K: inputs */
    lw_map map;
    uint32_t code_bits;           /* 2, 3, 4, 5, 6, 8, 16 or 32 */
    lw_code_order order;
    uint32_t group;               /* columns that share a scale; 0: no scales */
    lw_dtype scale_type;          /* BF16, F16 or F32, of scales and biases alike */
    bool has_bias;                /* biases stored per group */
    float bias_per_scale;         /* without stored biases: bias = bias_per_scale * scale (symmetric codes: -8) */
    float global_scale;           /* 1 unless the format has one */
    const float *table;           /* [16] for LW_MAP_TABLE16 */
    const lw_tensor *codes;       /* (stack, rows, packed cols) */
    const lw_tensor *scales;      /* (stack, rows, cols / group) or NULL */
    const lw_tensor *biases;      /* like scales, or NULL */
} lw_weight;

/* Short name of the format for people: "bf16", "int4 group 64". text holds 32 bytes. */
void lw_weight_format(const lw_weight *weight, char text[32]);

/* Bytes that the weight takes in the checkpoint: codes, scales and biases. */
uint64_t lw_weight_bytes(const lw_weight *weight);

/* Codes of one row, k in [0, cols): for code_bits <= 8 one byte each into codes8. */
void lw_weight_codes8(const lw_weight *weight, uint32_t stack, uint32_t row, uint8_t *codes8);
/* The same for 16-bit dense codes, as stored. */
void lw_weight_codes16(const lw_weight *weight, uint32_t stack, uint32_t row, uint16_t *codes16);
/* Dense values of any map as fp32 (exact for bf16, fp16, fp32). */
void lw_weight_dense(const lw_weight *weight, uint32_t stack, uint32_t row, float *values);

/* Scales and biases of one row as fp32, [cols / group] each; biases are computed from bias_per_scale where that
 * is how they are given. Only for group > 0. */
void lw_weight_scales(const lw_weight *weight, uint32_t stack, uint32_t row, float *scales, float *biases);
/* The same as stored, for 16-bit scale types with stored biases. */
void lw_weight_scales16(const lw_weight *weight, uint32_t stack, uint32_t row, uint16_t *scales, uint16_t *biases);

/* Exact value of one row in double: the reference that tests and the embedding's definition use. */
void lw_weight_row_f64(const lw_weight *weight, uint32_t stack, uint32_t row, double *values);

#endif
