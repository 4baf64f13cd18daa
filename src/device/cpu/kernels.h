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

typedef struct lw_cpu_kernels {
    const char *isa;
    uint32_t block_cols;                /* output columns that stand side by side in a repacked weight */
    void (*thread_setup)(void);         /* floating-point mode of every engine thread; may be NULL */

    void (*rms_norm)(const lw_cpu_norm_args *args, unsigned part, unsigned parts);
    void (*norm_gate)(const lw_cpu_norm_gate_args *args, unsigned part, unsigned parts);
    void (*add)(const lw_cpu_pair_args *args, unsigned part, unsigned parts);
    void (*mul)(const lw_cpu_pair_args *args, unsigned part, unsigned parts);
    void (*swiglu)(const lw_cpu_pair_args *args, unsigned part, unsigned parts);
    void (*rope)(const lw_cpu_rope_args *args, unsigned part, unsigned parts);
    void (*head_gate)(const lw_cpu_gate_args *args, unsigned part, unsigned parts);
    void (*kv_store)(const lw_cpu_kv_args *args, unsigned part, unsigned parts);
    void (*attend)(const lw_cpu_attend_args *args, unsigned part, unsigned parts);
    void (*short_conv)(const lw_cpu_conv_args *args, unsigned part, unsigned parts);

    void (*route)(const lw_cpu_route_args *args, unsigned part, unsigned parts);
    void (*expert_sum)(const lw_cpu_expert_sum_args *args, unsigned part, unsigned parts);

    /* A linear call is prepare on all parts, a barrier, then run on all parts. Calls that share x and the
     * kind of weight may share one prepare. */
    void (*linear_prepare)(const lw_cpu_linear_args *args, unsigned part, unsigned parts);
    void (*linear_run)(const lw_cpu_linear_args *args, unsigned part, unsigned parts);
    /* What run does for its part: blocks [begin, end) of the member's columns, begin a whole pair of them. */
    void (*linear_blocks)(const lw_cpu_linear_args *args, uint32_t begin, uint32_t end);
} lw_cpu_kernels;

/* Floats of scratch that one part of a call needs. */
size_t lw_cpu_route_scratch_floats(uint32_t experts);
size_t lw_cpu_attend_scratch_floats(uint32_t heads, uint32_t heads_kv, uint32_t head_dim);

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
