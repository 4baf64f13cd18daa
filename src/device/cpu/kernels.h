/* What one instruction set of the cpu device provides: a table of kernels, each run as part i of n on the
 * pool. Every kernel obeys the row law by construction: each output element is computed by one chain of
 * operations whose length and order depend on widths and absolute positions only. Tiling over rows and
 * columns is free. Activations are bf16, rows apart by a stride in elements. Parts never share an output
 * element.
 */
#ifndef LW_DEVICE_CPU_KERNELS_H
#define LW_DEVICE_CPU_KERNELS_H

#include "ops/plan.h"

typedef uint16_t lw_bf16;

typedef struct lw_cpu_norm_args {
    const lw_bf16 *x; size_t x_stride;
    lw_bf16 *y;       size_t y_stride;
    const float *w;                     /* [segment] */
    uint32_t rows, width, segment;      /* width is a multiple of segment; each segment is normed by itself */
    float eps;
    bool unit_offset;                   /* bf((1 + w) * r) instead of bf(w * bf(r)) */
} lw_cpu_norm_args;

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

typedef struct lw_cpu_kv_args {
    const lw_bf16 *k; size_t k_stride;
    const lw_bf16 *v; size_t v_stride;
    lw_cpu_pages pages;
    const lw_cpu_place *places;         /* [rows] */
    uint32_t rows, heads_kv, head_dim;
} lw_cpu_kv_args;

typedef struct lw_cpu_attend_args {
    const lw_bf16 *q; size_t q_stride;
    lw_bf16 *y;       size_t y_stride;
    lw_cpu_pages pages;
    const lw_cpu_place *places; /* [rows]; rows of one lane are neighbours, positions mostly ascending */
    float *scratch;                     /* attend_scratch_floats per part, 64-byte aligned */
    uint32_t rows, heads, heads_kv, head_dim;
    uint32_t window;                    /* a row at p sees (p - window, p]; 0: all */
    float scale;
} lw_cpu_attend_args;

typedef struct lw_cpu_conv_args {
    const lw_bf16 *x; size_t x_stride;
    lw_bf16 *y;       size_t y_stride;
    const float *w;                     /* (taps, width): oldest tap first */
    lw_cpu_pages pages;                 /* a page is (64, width) bf16 */
    const lw_cpu_place *places;         /* [rows] */
    uint32_t rows, width, taps;
} lw_cpu_conv_args;

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
    void *prepared; /* lw_cpu_prepared_bytes(weight's cols, rows), 64-byte aligned; shared by all parts */
} lw_cpu_linear_args;

typedef struct lw_cpu_kernels {
    const char *isa;
    uint32_t block_cols;                /* output columns that stand side by side in a repacked weight */
    void (*thread_setup)(void);         /* floating-point mode of every engine thread; may be NULL */

    void (*rms_norm)(const lw_cpu_norm_args *args, unsigned part, unsigned parts);
    void (*add)(const lw_cpu_pair_args *args, unsigned part, unsigned parts);
    void (*mul)(const lw_cpu_pair_args *args, unsigned part, unsigned parts);
    void (*swiglu)(const lw_cpu_pair_args *args, unsigned part, unsigned parts);
    void (*rope)(const lw_cpu_rope_args *args, unsigned part, unsigned parts);
    void (*head_gate)(const lw_cpu_gate_args *args, unsigned part, unsigned parts);
    void (*kv_store)(const lw_cpu_kv_args *args, unsigned part, unsigned parts);
    void (*attend)(const lw_cpu_attend_args *args, unsigned part, unsigned parts);
    void (*short_conv)(const lw_cpu_conv_args *args, unsigned part, unsigned parts);

    /* A recurrence is prepare on all parts, a barrier, then run on all parts. */
    void (*recur_prepare)(const lw_cpu_recur_args *args, unsigned part, unsigned parts);
    void (*recur_run)(const lw_cpu_recur_args *args, unsigned part, unsigned parts);

    /* A linear call is prepare on all parts, a barrier, then run on all parts. Calls that share x and the
     * kind of weight may share one prepare. */
    void (*linear_prepare)(const lw_cpu_linear_args *args, unsigned part, unsigned parts);
    void (*linear_run)(const lw_cpu_linear_args *args, unsigned part, unsigned parts);
} lw_cpu_kernels;

/* Floats of scratch that one part of an attend call needs. */
size_t lw_cpu_attend_scratch_floats(uint32_t heads, uint32_t heads_kv, uint32_t head_dim);

/* Floats that a recurrence needs for its rows, and that one part of it needs. */
size_t lw_cpu_recur_prepared_floats(uint32_t heads, uint32_t key_heads, uint32_t key_width, uint32_t rows);
size_t lw_cpu_recur_scratch_floats(uint32_t width, uint32_t key_width);

extern const lw_cpu_kernels lw_cpu_generic;
#if defined(__x86_64__)
extern const lw_cpu_kernels lw_cpu_avx2;
extern const lw_cpu_kernels lw_cpu_avx512;      /* isa "avx512f": fp32 fma at every weight */
extern const lw_cpu_kernels
    lw_cpu_avx512bf16; /* isa "avx512bf16": bf16 dot where the codes are exact in bf16 */
#endif

/* Best first, NULL-terminated: the tables that this CPU can run. */
const lw_cpu_kernels *const *lw_cpu_available(void);

#endif
