/* The one descriptor that every weight format becomes. Devices implement its axes and never see format names.
 *
 *   value[n][k] = (scale[n / group_rows][k / group] * map(code[n][k]) + bias[n][k / group]) * global_scale
 *   (divided by global_scale where global_divides)
 *
 * The codes lie in the checkpoint's mapping; a device reads them row by row through the functions below and
 * repacks them once. Only src/model looks at how tensors are ordered, or whether the members of a stack share
 * one. Dense weights have map LW_MAP_BF16, LW_MAP_FP16 or LW_MAP_FP32, no scale and group 0.
 *
 * A NaN of an e4m3 code or scale is what a broken export leaves: a device that repacks one refuses the weight
 * by name, so that no reply is made of it.
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

/* How the checkpoint orders codes and scales; only src/model reads it. */
typedef enum lw_code_order {
    LW_ORDER_ROWS,   /* each row is a little-endian bit stream, k ascending; scales (rows, groups) */
    LW_ORDER_INPUTS, /* 4-bit codes in u32 words (cols / 8, rows), lowest bits first; scales (groups, rows) */
    LW_ORDER_COUNT
} lw_code_order;

/* The largest value of a table, of whole halves, that int8 products take. */
enum { LW_TABLE_INT8_MAX = 6 };

typedef struct lw_weight lw_weight;
struct lw_weight {
    const char *name;             /* the codes' tensor name, for texts; lives with the checkpoint */
    uint32_t stack_count;         /* experts in a stack; 1 for a plain matrix */
    uint32_t rows;                /* N: outputs */
    uint32_t cols;                /* K: inputs */
    lw_map map;
    uint32_t code_bits;           /* 2, 3, 4, 5, 6, 8, 16 or 32 */
    lw_code_order order;
    uint32_t group;               /* columns that share a scale; 0: no scales; the last group may be short */
    uint32_t group_rows;          /* rows that share a scale, without biases; 0 or 1: each has its own */
    lw_dtype scale_type;          /* BF16, F16 or F32, of scales and biases alike; F8_E4M3 without biases */
    bool has_bias;                /* biases stored per group */
    float bias_per_scale;         /* without stored biases: bias = bias_per_scale * scale (symmetric: -8) */
    float global_scale;           /* 1 unless the format has one; finite, and not 0 where it divides */
    bool global_divides;
    const float *table;           /* [16] for LW_MAP_TABLE16 */
    bool x_int8; /* linears over it take their input in int8 (ops.list); not of a checkpoint */
    uint32_t row_begin;           /* a view of rows [row_begin, row_begin + rows) of each stored matrix... */
    uint32_t rows_stored;         /* ...that has so many; 0: rows */
    const lw_weight *members;     /* [stack_count] members in tensors of their own, alike but for their global
                                     scale; the pointers below are NULL then. NULL: one tensor holds all */
    const lw_tensor *codes;       /* (stack, rows, packed cols) */
    const lw_tensor *scales;      /* (stack, rows / group_rows, cols / group), both rounded up; or NULL */
    const lw_tensor *biases;      /* like scales, or NULL */
};

/* Whether linears over it may take their input in int8: scaled integer codes, and tables of whole halves. */
bool lw_weight_takes_int8(const lw_weight *weight);

/* Short name of the format for people: "bf16", "int4 group 64". text holds 32 bytes. */
void lw_weight_format(const lw_weight *weight, char text[32]);

/* Bytes that the weight takes in the checkpoint: codes, scales and biases; of a view its share. */
uint64_t lw_weight_bytes(const lw_weight *weight);

/* Every tensor that the weight reads, index in [0, count). */
size_t lw_weight_tensor_count(const lw_weight *weight);
const lw_tensor *lw_weight_tensor(const lw_weight *weight, size_t index);

/* Columns' groups of a row: cols / group, rounded up; 0 without scales. */
uint32_t lw_weight_groups(const lw_weight *weight);

/* The factor that one member's global scale is: global_scale, or its inverse rounded to double. */
double lw_weight_global(const lw_weight *weight, uint32_t stack);

/* Codes of one row, k in [0, cols): for code_bits <= 8 one byte each into codes8. */
void lw_weight_codes8(const lw_weight *weight, uint32_t stack, uint32_t row, uint8_t *codes8);
/* The same for 16-bit dense codes, as stored. */
void lw_weight_codes16(const lw_weight *weight, uint32_t stack, uint32_t row, uint16_t *codes16);
/* The same for code_bits 2, 4, 8 or 16, as 32-bit words that hold k ascending from the lowest bits on:
 * cols * code_bits / 8 bytes, rounded up, are written. */
void lw_weight_words(const lw_weight *weight, uint32_t stack, uint32_t row, uint32_t *words);
/* Dense values of any map as fp32 (exact for bf16, fp16, fp32). */
void lw_weight_dense(const lw_weight *weight, uint32_t stack, uint32_t row, float *values);

/* All of it as fp32, each member of a stack turned to (cols, rows): out is [stack_count][cols][rows], row has
 * room for one row. */
void lw_weight_turned(const lw_weight *weight, float *row, float *out);

/* Scales and biases of one row as fp32, [lw_weight_groups] each; biases are computed from bias_per_scale
 * where that is how they are given. Only for group > 0. */
void lw_weight_scales(const lw_weight *weight, uint32_t stack, uint32_t row, float *scales, float *biases);
/* The same as stored, for 16-bit scale types with stored biases. */
void lw_weight_scales16(const lw_weight *weight, uint32_t stack, uint32_t row, uint16_t *scales,
                        uint16_t *biases);

/* Whether an e4m3 code or scale of the row is a NaN. */
bool lw_weight_row_has_nan(const lw_weight *weight, uint32_t stack, uint32_t row);

/* Exact value of one row in double: the reference that tests and the embedding's definition use. */
void lw_weight_row_f64(const lw_weight *weight, uint32_t stack, uint32_t row, double *values);

#endif
