/* A plan: the forward of one model, recorded once as a flat list of ops over values, weights and states.
 * Families record it; devices compile it. It knows no device, and a family never fuses: devices do that.
 *
 * Invariants
 * 1. An op's inputs were recorded before it; its output is a value of its own (views share storage, never
 * outputs).
 * 2. Shapes use the named row spaces only; widths are fixed numbers.
 * 3. Recording asserts shapes: a family checks what came from a config before it records.
 * 4. All memory of a plan is taken by lw_plan_init, so recording cannot fail.
 */
#ifndef LW_OPS_PLAN_H
#define LW_OPS_PLAN_H

#include "base/arena.h"
#include "model/weight.h"

enum {
    LW_PAGE_POSITIONS = 64,
    LW_CHUNK_POSITIONS = 512,
    LW_ANCHOR_POSITIONS = 64
}; /* one page is one attention tile and one stretch between anchors; 8 tiles are one chunk */

typedef enum lw_space {
    LW_SPACE_ROWS,    /* all rows of the batch */
    LW_SPACE_WANTED,  /* rows whose logits are wanted */
} lw_space;

typedef enum lw_type { LW_TYPE_BF16, LW_TYPE_F32 } lw_type;

typedef struct lw_ref { uint32_t index; } lw_ref;    /* a value */
typedef struct lw_wref { uint32_t index; } lw_wref;  /* a weight */
typedef struct lw_sref { uint32_t index; } lw_sref;  /* a state */
enum { LW_NONE = 0xFFFFFFFF };

/* A row space times slots times a width of numbers: each row has `slots` vectors, one for each expert that it
 * chose, else 1. A view shares the columns [offset, offset + width) of its base.
 */
typedef struct lw_value {
    char name[24];
    lw_space space;
    lw_type type;
    uint32_t slots;
    uint32_t width;
    uint32_t base;    /* its own index, or the value that it views */
    uint32_t offset;  /* first column in base */
} lw_value;

typedef enum lw_state_kind {
    LW_STATE_NONE,
    LW_STATE_KV,   /* keys and values of one attention layer, in pages of 64 positions */
    LW_STATE_TAIL, /* one bf16 vector a position, in the same pages; what convolutions look back at */
    LW_STATE_STEPS,  /* a recurrence since its anchor, fp32, in the same pages: for each position its keys
                        (key_heads, key_width), values (heads, width) and log-decays (heads) */
    LW_STATE_ANCHOR, /* a recurrence's state (heads, width, key_width) fp32: page i holds the one after the
                        positions [0, 64 i), made by the row at 64 i and written by no later one */
} lw_state_kind;

/* How a KV state keeps keys and values. */
typedef enum lw_kv_type {
    LW_KV_BF16,  /* as they come */
    LW_KV_INT8,  /* a code a number and an fp32 scale for each position's key and value of a head */
} lw_kv_type;

/* Memory of a lane. States of equal reach share one page table (their reach group), anchors apart from
 * others.
 */
typedef struct lw_state {
    const char *name;
    lw_state_kind kind;
    lw_kv_type kv;        /* KV */
    uint32_t heads;       /* KV: kv heads; STEPS, ANCHOR: value heads; else 1 */
    uint32_t width;       /* KV: head_dim; TAIL: columns; STEPS, ANCHOR: of a value head */
    uint32_t key_heads, key_width; /* STEPS, ANCHOR: value head h has key head h / (heads / key_heads) */
    uint32_t reach;       /* a row at p reads positions (p - reach, p]; 0: all of them. The row at an anchor
                             reads the stretch before it (STEPS: 65) and that one's state (ANCHOR: 2) */
    uint32_t group;       /* index into plan->reaches */
} lw_state;

typedef enum lw_op_kind {
#define LW_OP(kind, name, weights, inputs, state, text) LW_OP_##kind,
#include "ops/ops.list"
#undef LW_OP
    LW_OP_COUNT
} lw_op_kind;

typedef struct lw_op_facts {
    const char *name;
    uint32_t weight_count, input_count;
    lw_state_kind state;
    const char *text;
} lw_op_facts;
extern const lw_op_facts lw_op_table[LW_OP_COUNT];

enum { LW_OP_INPUTS_MAX = 3, LW_OP_WEIGHTS_MAX = 3, LW_TOP_MAX = 64 };

/* How a norm's weights meet the normed value r. */
typedef enum lw_norm_scale {
    LW_NORM_TWICE,   /* bf(w * bf(r)) */
    LW_NORM_ONCE,    /* bf(w * r) */
    LW_NORM_UNIT,    /* bf((1 + w) * r) */
} lw_norm_scale;

/* How a router scores its experts before it takes the best. */
typedef enum lw_router {
    LW_ROUTER_SOFTMAX,   /* scores are softmax(logits); the chosen ones are renormalised to sum 1 */
    LW_ROUTER_SIGMOID,   /* scores are sigmoid(logits); chosen by score + bias */
} lw_router;

typedef struct lw_head_columns { uint32_t heads, stride, offset, width; } lw_head_columns;

typedef struct lw_route_params {
    lw_router kind;
    uint32_t experts, top;
    uint32_t groups, top_groups; /* groups > 1: only experts of the top_groups best groups, by the sum of
                                    their two best choice scores, may be chosen */
    bool normalise;              /* sigmoid: divided by their sum + 1e-20 */
    float scale;
} lw_route_params;

typedef struct lw_op {
    lw_op_kind kind;
    lw_ref out;                        /* index LW_NONE for stores */
    lw_ref in[LW_OP_INPUTS_MAX];
    lw_wref weights[LW_OP_WEIGHTS_MAX];
    lw_sref state;
    lw_sref anchor;                    /* of recurrences, beside their steps */
    uint32_t layer;                    /* for people: which layer recorded it */
    union {
        struct { uint32_t segment; float eps; lw_norm_scale scale; } norm; /* columns per segment */
        struct { uint32_t segment; float eps; bool gate_first; } norm_gate;
        struct { uint32_t heads, head_dim, table; } rope;                 /* index into plan->ropes */
        /* window 0: all; keys before position `first` do not exist */
        struct { uint32_t heads, heads_kv, head_dim, window, first; float scale; } attend;
        struct {
            uint32_t heads;
        } gate; /* width / heads columns share a gate */
        struct { uint32_t taps; bool silu; } conv;
        struct { float step_min, step_max; } ssm; /* bounds of a step after softplus */
        lw_head_columns columns;
        lw_route_params route;
    } p;
} lw_op;

enum { LW_ROPE_HALF_MAX = 512 };

/* Angles of one rotary kind: pair i turns by position * frequency[i]; 0 leaves it alone. */
typedef struct lw_rope_table {
    uint32_t half;               /* pairs: head_dim / 2 or fewer, paired (i, i + half) */
    double frequency[LW_ROPE_HALF_MAX];
} lw_rope_table;

/* A run of ops that is submitted as one forward. Entry 0 is the model itself; entry 1, where there is one,
 * its draft head: a row at p takes the token at p and the hidden row of p - 1 and guesses the token at p + 1.
 */
typedef struct lw_entry {
    const char *name;
    uint32_t op_begin, op_end;
    lw_ref logits;               /* (WANTED, vocab) fp32 */
} lw_entry;

enum {
    LW_PLAN_OPS_MAX = 64 * LW_LIMIT_LAYERS,
    LW_PLAN_REACHES_MAX = 8,
    LW_PLAN_ROPES_MAX = 8,
    LW_PLAN_ENTRIES_MAX = 2,
    LW_ENTRY_MAIN = 0,
    LW_ENTRY_HEAD = 1,
};

typedef struct lw_plan {
    lw_arena arena;      /* for what a family keeps beside it while it records */
    lw_op *ops;          uint32_t op_count;       /* each list has room for LW_PLAN_OPS_MAX */
    lw_value *values;    uint32_t value_count;
    lw_weight *weights;  uint32_t weight_count;
    lw_state *states;    uint32_t state_count;
    lw_rope_table ropes[LW_PLAN_ROPES_MAX];      uint32_t rope_count;
    uint32_t reaches[LW_PLAN_REACHES_MAX];       uint32_t reach_count;
    bool reach_is_anchor[LW_PLAN_REACHES_MAX];   /* the group's pages hold anchors and nothing else */
    lw_entry entries[LW_PLAN_ENTRIES_MAX];       uint32_t entry_count;
    uint32_t layer;      /* stamped on ops as they are recorded */
    uint32_t vocab;      /* width of the logits */
} lw_plan;

/* Numbers of one page of a state, without a device's padding. */
uint64_t lw_state_page_bytes(const lw_state *state);
/* Of a KV state, what one kv head has of a page: its keys, then its values, then the scales of both. */
uint64_t lw_state_head_bytes(const lw_state *state);

/* How all KV states keep what ops write, the draft head's too; before the plan is compiled. */
void lw_plan_keep_kv(lw_plan *plan, lw_kv_type type);
/* Of one position, over all KV states. */
uint64_t lw_plan_kv_bytes(const lw_plan *plan);

/* Linears take their input in int8 where their weight does; before the plan is compiled. */
void lw_plan_take_int8(lw_plan *plan);

lw_status lw_plan_init(lw_plan *plan, lw_diag *d) LW_MUST_USE;
void lw_plan_deinit(lw_plan *plan);

#endif
