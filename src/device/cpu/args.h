/* Arguments of the cpu device's kernels. Activations are bf16 unless said otherwise; strides are in elements,
 * from one row to the next.
 */
#ifndef LW_DEVICE_CPU_ARGS_H
#define LW_DEVICE_CPU_ARGS_H

#include "ops/plan.h"

typedef uint16_t lw_bf16;

typedef struct lw_cpu_norm_args {
    const lw_bf16 *x; size_t x_stride;
    const float *x_wide;                /* the input where it is fp32, by the same stride; else NULL */
    lw_bf16 *y;       size_t y_stride;
    const float *w;                     /* [segment] */
    uint32_t rows, width, segment;      /* width is a multiple of segment; each segment is normed by itself */
    float eps;
    lw_norm_scale scale;
} lw_cpu_norm_args;

typedef struct lw_cpu_norm_gate_args {
    const lw_bf16 *x;    size_t x_stride;
    const lw_bf16 *gate; size_t gate_stride;
    lw_bf16 *y;          size_t y_stride;
    const float *w;                     /* [segment], or [width] where each segment has its own */
    uint32_t rows, width, segment;
    float eps;
    bool own_weights, gate_first;       /* see ops.list; gate_first: x is gated before it is normed */
} lw_cpu_norm_gate_args;

/* add, mul, swiglu (a is the gate), elementwise. */
typedef struct lw_cpu_pair_args {
    const lw_bf16 *a; size_t a_stride;
    const lw_bf16 *b; size_t b_stride;
    lw_bf16 *y;       size_t y_stride;
    uint32_t rows, width;
} lw_cpu_pair_args;

typedef struct lw_cpu_rope_args {
    const lw_bf16 *x; size_t x_stride;
    lw_bf16 *y;       size_t y_stride;
    const float *cosines, *sines;       /* (rows, half) */
    uint32_t rows, heads, head_dim,
        half; /* pairs (i, i + half), i < half; columns from 2 * half on are copied */
} lw_cpu_rope_args;

typedef struct lw_cpu_gate_args {
    const lw_bf16 *x;    size_t x_stride;
    const lw_bf16 *gate; size_t gate_stride;
    lw_bf16 *y;          size_t y_stride;
    uint32_t rows, width, gates;        /* width / gates neighbouring columns share a gate */
} lw_cpu_gate_args;

/* Where the history of one batch row lies in the pages of one reach group. */
typedef struct lw_cpu_place {
    uint32_t position;
    uint32_t slot;
    uint32_t committed;                 /* of its lane */
    const uint32_t *pages;              /* page id per 64 slots */
    const uint32_t *lineage; /* slots of the positions [committed, position] of a tree row; NULL: slot ==
                                position for all of them */
} lw_cpu_place;

static inline uint32_t lw_cpu_slot(const lw_cpu_place *place, uint32_t position)
{
    const bool open = place->lineage != NULL && position >= place->committed;
    return open ? place->lineage[position - place->committed] : position;
}

/* The pages of one state: page id i lies at bytes + i * page_bytes. Pages start zeroed. */
typedef struct lw_cpu_pages {
    uint8_t *bytes;
    size_t page_bytes;
} lw_cpu_pages;

/* What one kv head has of a page: keys as (head_dim, 64) and values as (64, head_dim), both of the type, then
 * of int8 the keys' scales [64] and the values' [64]. */
typedef struct lw_cpu_kv_head {
    uint8_t *keys, *values;
    float *key_scales, *value_scales;   /* NULL: there are none */
} lw_cpu_kv_head;

static inline lw_cpu_kv_head lw_cpu_kv_head_at(uint8_t *page, size_t head, size_t head_dim, lw_kv_type type)
{
    const size_t numbers = head_dim * LW_PAGE_POSITIONS, scales = LW_PAGE_POSITIONS * sizeof(float);
    if (type == LW_KV_BF16) {
        uint8_t *keys = page + head * 2 * numbers * sizeof(lw_bf16);
        return (lw_cpu_kv_head){ .keys = keys, .values = keys + numbers * sizeof(lw_bf16) };
    }
    uint8_t *keys = page + head * 2 * (numbers + scales), *behind = keys + 2 * numbers;
    return (lw_cpu_kv_head){ .keys = keys, .values = keys + numbers, .key_scales = (float *)(void *)behind,
                             .value_scales = (float *)(void *)(behind + scales) };
}

typedef struct lw_cpu_kv_args {
    const lw_bf16 *k; size_t k_stride;
    const lw_bf16 *v; size_t v_stride;
    lw_cpu_pages pages;
    const lw_cpu_place *places;         /* [rows] */
    lw_kv_type type;
    uint32_t rows, heads_kv, head_dim;
} lw_cpu_kv_args;

typedef struct lw_cpu_attend_args {
    const lw_bf16 *q; size_t q_stride;
    lw_bf16 *y;       size_t y_stride;
    lw_cpu_pages pages;
    const lw_cpu_place *places; /* [rows]; rows of one lane are neighbours, positions mostly ascending */
    float *scratch;                     /* attend_scratch_floats per part, 64-byte aligned */
    lw_kv_type type;                    /* of the pages */
    uint32_t rows, heads, heads_kv, head_dim;
    uint32_t window;                    /* a row at p sees (p - window, p]; 0: all */
    uint32_t first;                     /* nor anything before position first; without a key, y is 0 */
    float scale;
} lw_cpu_attend_args;

typedef struct lw_cpu_conv_args {
    const lw_bf16 *x; size_t x_stride;
    lw_bf16 *y;       size_t y_stride;
    const float *w;                     /* (taps, width): oldest tap first */
    const float *bias;                  /* [width]; NULL: none */
    bool silu;                          /* of the sum and bias */
    lw_cpu_pages pages;                 /* a page is (64, width) bf16 */
    const lw_cpu_place *places;         /* [rows] */
    uint32_t rows, width, taps;
} lw_cpu_conv_args;

/* out (rows, 2 top): the ids of the chosen experts as whole floats, then their weights. NaN counts as the
 * least of all scores, so ids are below experts whatever the logits hold. */
typedef struct lw_cpu_route_args {
    const float *logits; size_t logits_stride;
    const float *bias;                  /* [experts] or NULL */
    float *y;         size_t y_stride;
    float *scratch;                     /* lw_cpu_route_scratch_floats per part */
    uint32_t rows;
    lw_route_params params;
} lw_cpu_route_args;

/* Of each row, `slots` vectors x_stride apart and as many weights. */
typedef struct lw_cpu_expert_sum_args {
    const lw_bf16 *x;     size_t x_stride;
    const float *weights; size_t weights_stride;  /* of one row */
    lw_bf16 *y;           size_t y_stride;
    uint32_t rows, slots, width;
} lw_cpu_expert_sum_args;

/* gated_delta and ssm. A page of steps holds, per key head, keys as (key_width, 64), then per value head its
 * values as (64, width) and its log-decays [64]; a page of anchors, per value head, the state as
 * (width / 32, key_width, 32), the last block as narrow as what is left of width. */
typedef struct lw_cpu_recur_args {
    const lw_bf16 *queries, *keys, *values; size_t x_stride;  /* parts of one input's rows */
    const lw_bf16 *step;  size_t step_stride;   /* (rows, heads): a of gated_delta, step of ssm */
    const lw_bf16 *write; size_t write_stride;  /* (rows, heads): b of gated_delta; NULL: this is an ssm */
    const float *a_log, *dt_bias;               /* [heads] */
    const float *skip;                          /* [heads]: D of ssm; NULL: none */
    float step_min, step_max;                   /* of ssm */
    lw_bf16 *y; size_t y_stride;
    lw_cpu_pages steps, anchors;
    const lw_cpu_place *places, *anchor_places; /* [rows] each; rows of one lane are neighbours, and only they
                                                   share page tables */
    float *prepared;                            /* prepared_floats, 64-byte aligned, shared by all parts */
    float *scratch;                             /* scratch_floats per part, 64-byte aligned */
    uint32_t rows, heads, width, key_heads, key_width;
} lw_cpu_recur_args;

/* ---- linear: see linear.h ---- */
typedef struct lw_cpu_weight lw_cpu_weight;

typedef struct lw_cpu_linear_args {
    const lw_cpu_weight *weight;
    uint32_t member;                    /* matrix of the weight's stack; prepare reads none of it */
    const lw_bf16 *x; size_t x_stride;
    void *y;          size_t y_stride;  /* bf16 or fp32, in elements */
    bool y_f32;
    uint32_t rows;
    const uint32_t *x_rows, *y_rows;    /* [rows]: which vectors of x and y they are; NULL: 0, 1, 2... */
    void *prepared; /* lw_cpu_prepared_bytes(weight's cols, rows), 64-byte aligned; shared by all parts */
} lw_cpu_linear_args;

#endif
