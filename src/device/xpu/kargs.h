/* Arguments of the xpu kernels: one struct each, read by the host's compiler and by OpenCL C alike. Memory is
 * named by address, strides are in elements from one row to the next, activations are bf16 unless said
 * otherwise. 8-byte members stand first, so that both sides lay the structs out alike.
 */
#ifndef LW_DEVICE_XPU_KARGS_H
#define LW_DEVICE_XPU_KARGS_H

#ifdef __OPENCL_VERSION__
typedef uint lw_xpu_u32;
typedef ulong lw_xpu_u64;
#else
#include <stdint.h>
typedef uint32_t lw_xpu_u32;
typedef uint64_t lw_xpu_u64;
#endif

enum {
    LW_XPU_LANES = 16,          /* the sub-group size of every kernel: all devices since Gen12LP have it */
    LW_XPU_TILE = 64,           /* keys of a tile, positions of a page, items of most work-groups */
    LW_XPU_CHUNK = 512,         /* keys that share one running maximum */
    LW_XPU_HEAD_DIM_MAX = 256,
    LW_XPU_PAIRS = 16,          /* rows by heads that one work-group reads them for by DPAS, at most */
    LW_XPU_HEADS_EACH = 4,      /* query heads that one work-group reads keys and values for, at most */
    LW_XPU_ROWS = 8,            /* rows that one pass over a weight serves */
    LW_XPU_ROWS_MANY = 24,      /* and where there are more of them, by DPAS */
    LW_XPU_PAST_BYTES = 32,     /* behind the last activation, where products read past a row's end */
    LW_XPU_SLICES_MAX = 16,     /* slices of K, each a sub-group of the work-group */
    LW_XPU_SLICE_COLS = 512,    /* columns of a slice, where that makes few enough of them */
    LW_XPU_EXPERTS_MAX = 1024,  /* of one router */
    LW_XPU_TOP_MAX = 64,        /* experts of a row, and groups of a router */
    LW_XPU_SORT_ITEMS = 256,    /* of the work-group that sorts by expert */
    LW_XPU_STEPS = 64,          /* rows of a lane that one launch of a recurrence takes */
    LW_XPU_INT8_COLS = 4,       /* head widths of int8 pages are multiples of it */
    LW_XPU_KEY_COLS = 8,        /* key heads of recurrences are multiples of it */
    LW_XPU_PANEL = 64,          /* rows and columns of y that a work-group of the form for many rows makes, */
    LW_XPU_PANEL_DEPTH = 32,    /* from so many columns of x at a time */
    LW_XPU_PANEL_STEP = 9,      /* fp32 from one eight of those to its neighbour's: no two share a bank */
};
#define LW_XPU_NONE 0xFFFFFFFFu

/* How a code reads, and a scale. */
enum { LW_XPU_MAP_INTEGER, LW_XPU_MAP_TABLE16, LW_XPU_MAP_E4M3, LW_XPU_MAP_BF16, LW_XPU_MAP_FP16,
       LW_XPU_MAP_FP32 };
enum { LW_XPU_SCALE_NONE, LW_XPU_SCALE_BF16, LW_XPU_SCALE_FP16, LW_XPU_SCALE_FP32, LW_XPU_SCALE_E4M3 };

/* A weight matrix, or a stack of them: blocks of 16 rows side by side, one a lane; in a block group after
 * group of `group` columns, the last one padded: words[block][group][word][lane], lowest bits first. Codes of
 * 3, 5 and 6 bits are split into a plane of their low 2 or 4 bits and one of the rest, behind it, so that
 * none straddles a word. For DPAS a word's codes of even columns stand in its low half, and those of odd ones
 * in its high half. Beside it scales[block][group][lane], each with its bias behind it where biases are
 * stored. All of a matrix's sums are multiplied by its global. */
typedef struct lw_xpu_matrix {
    lw_xpu_u64 words, scales;
    lw_xpu_u64 words_bytes, scales_bytes; /* from one matrix of the stack to the next */
    lw_xpu_u64 globals, table;            /* fp32 [stack]; fp32 [16] */
    lw_xpu_u32 rows, cols, groups, group;
    lw_xpu_u32 map, bits;
    lw_xpu_u32 slices, slice_groups;      /* K is cut into slices by its length alone */
    lw_xpu_u32 scale_type, has_bias;
    float bias_per_scale;                 /* where none is stored */
    lw_xpu_u32 is_offset;                 /* there are biases of either kind: sums of x are needed */
} lw_xpu_matrix;

/* Where one row's history lies: slots of positions, then pages of slots. */
typedef struct lw_xpu_place {
    lw_xpu_u32 position, slot, committed;
    lw_xpu_u32 pages;           /* index of its lane's first page id */
    lw_xpu_u32 lineage;         /* index of the slot of position committed; LW_XPU_NONE: slot == position */
} lw_xpu_place;

typedef struct lw_xpu_past {
    lw_xpu_u64 pages, page_bytes;
    lw_xpu_u64 places;          /* lw_xpu_place[rows] */
    lw_xpu_u64 ids, lineage;    /* u32 tables that places index */
} lw_xpu_past;

enum { LW_XPU_GLOBAL_NONE, LW_XPU_GLOBAL_MULTIPLIES, LW_XPU_GLOBAL_DIVIDES };
typedef struct lw_xpu_embed_args {
    lw_xpu_matrix table;
    lw_xpu_u64 tokens, y;
    lw_xpu_u32 y_stride;
    lw_xpu_u32 global_kind;
    float factor;               /* the global scale as it is stored: its inverse would be rounded */
    lw_xpu_u32 is_paired;       /* the table's words are as DPAS wants them */
} lw_xpu_embed_args;

typedef struct lw_xpu_norm_args {
    lw_xpu_u64 x, w, y;         /* w: fp32[segment] */
    lw_xpu_u32 x_stride, y_stride, segment;
    lw_xpu_u32 scale;           /* an lw_norm_scale */
    lw_xpu_u32 x_is_f32;
    float eps;
} lw_xpu_norm_args;

typedef struct lw_xpu_norm_gate_args {
    lw_xpu_u64 x, gate, w, y;   /* w: fp32[segment], or [width] where each segment has its own */
    lw_xpu_u32 x_stride, gate_stride, y_stride, segment;
    lw_xpu_u32 own_weights, gate_first;
    float eps;
} lw_xpu_norm_gate_args;

/* One vector in, one out; each of the type that the op has there. w: fp32[width] of bias. */
typedef struct lw_xpu_each_args {
    lw_xpu_u64 x, w, y;
    lw_xpu_u32 x_stride, y_stride, width;
} lw_xpu_each_args;

/* Of each head of x, head_stride columns, the first head_width go to y, one head after the other. */
typedef struct lw_xpu_columns_args {
    lw_xpu_u64 x, y;
    lw_xpu_u32 x_stride, y_stride, width, head_stride, head_width;
} lw_xpu_columns_args;

/* sums: fp32 (rows, groups), of each group's columns of x; the last group may be short. */
typedef struct lw_xpu_sums_args {
    lw_xpu_u64 x, sums;
    lw_xpu_u32 x_stride, groups, group, cols;
} lw_xpu_sums_args;

typedef struct lw_xpu_linear_args {
    lw_xpu_matrix weight;
    lw_xpu_u64 x, sums, y;
    lw_xpu_u32 x_stride, y_stride, rows;
    lw_xpu_u32 y_is_f32;
} lw_xpu_linear_args;

typedef struct lw_xpu_pair_args {
    lw_xpu_u64 a, b, y;
    lw_xpu_u32 a_stride, b_stride, y_stride, width;
} lw_xpu_pair_args;

/* Pairs (i, i + half) of each head; columns from 2 half on are copied. cosines, sines: fp32 (rows, half). */
typedef struct lw_xpu_rope_args {
    lw_xpu_u64 x, y, cosines, sines;
    lw_xpu_u32 x_stride, y_stride, width, head_dim, half_dim;
} lw_xpu_rope_args;

/* A page holds per head its keys as (head_dim / 2, 64) pairs, then its values as (64, head_dim); in int8, as
 * kernels/kv_int8.h says. */
typedef struct lw_xpu_kv_args {
    lw_xpu_past past;
    lw_xpu_u64 k, v;
    lw_xpu_u32 k_stride, v_stride, heads, head_dim;
} lw_xpu_kv_args;

typedef struct lw_xpu_gate_args {
    lw_xpu_u64 x, gate, y;
    lw_xpu_u32 x_stride, gate_stride, y_stride, width;
    lw_xpu_u32 gate_width;      /* neighbouring columns that share a gate */
} lw_xpu_gate_args;

/* A page is (64, width). */
typedef struct lw_xpu_conv_args {
    lw_xpu_past past;
    lw_xpu_u64 x, w, bias, y;   /* w: fp32 (taps, width), the oldest first; bias: fp32[width], 0: none */
    lw_xpu_u32 x_stride, y_stride, width, taps;
    lw_xpu_u32 silu;            /* of the sum and bias */
} lw_xpu_conv_args;

typedef struct lw_xpu_take_args {
    lw_xpu_u64 x, y, wanted;    /* wanted: u32 [rows of y] */
    lw_xpu_u32 x_stride, y_stride, width;
} lw_xpu_take_args;

/* Rows of one lane, neighbours in the batch. */
typedef struct lw_xpu_span {
    lw_xpu_u32 begin, end;
} lw_xpu_span;

/* gated_delta and ssm. A page of steps holds, per key head, keys as (key_width, 64), then per value head its
 * values as (64, width) and its log-decays [64]; a page of anchors, per value head, the state as
 * (key_width, width): all fp32, a work-item's column beside its neighbour's. */
typedef struct lw_xpu_recur_args {
    lw_xpu_past steps, anchors;
    lw_xpu_u64 queries, keys, values;   /* parts of one input's rows */
    lw_xpu_u64 step, write;             /* (rows, heads): step or a; b of gated_delta */
    lw_xpu_u64 a_log, dt_bias, skip;    /* fp32[heads]; skip: D of ssm */
    lw_xpu_u64 y;
    lw_xpu_u64 vectors;                 /* fp32 (rows, key_heads, each, key_width): key and query, or query */
    lw_xpu_u64 scales;                  /* fp32 (rows, heads): beta or dt */
    lw_xpu_u64 fades;                   /* fp32 (rows, heads): from the anchor to the row */
    lw_xpu_u64 weights;                 /* fp32 (rows, heads, each, 64): of the stretch's steps in the sums */
    lw_xpu_u64 spans;                   /* lw_xpu_span of each lane */
    lw_xpu_u32 x_stride, step_stride, write_stride, y_stride;
    lw_xpu_u32 heads, width, key_heads, key_width;
    lw_xpu_u32 first;                   /* of its span's rows, a launch takes 64 from this one on */
    lw_xpu_u32 heads_each;              /* value heads of one work-group that makes weights */
    float step_min, step_max;           /* of ssm */
} lw_xpu_recur_args;

#endif
