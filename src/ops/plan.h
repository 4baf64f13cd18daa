/* A plan: the forward of one model, recorded once as a flat list of ops over values, weights and states.
 * Families record it; devices compile it. It knows no device, and a family never fuses: devices do that.
 *
 * Invariants
 * 1. An op's inputs were recorded before it; its output is a value of its own (views share storage, never
 * outputs).
 * 2. Shapes use the named row spaces only; widths are fixed numbers.
 * 3. Recording asserts shapes: a family checks what came from a config before it records.
 */
#ifndef LW_OPS_PLAN_H
#define LW_OPS_PLAN_H

#include "base/arena.h"
#include "model/weight.h"

enum {
    LW_PAGE_POSITIONS = 64,
    LW_CHUNK_POSITIONS = 512
}; /* one page is one attention tile; 8 tiles are one chunk */

typedef enum lw_space {
    LW_SPACE_ROWS,    /* all rows of the batch */
    LW_SPACE_WANTED,  /* rows whose logits are wanted */
    LW_SPACE_SLOTS,   /* rows x top-k experts */
    LW_SPACE_LANES,
} lw_space;

typedef enum lw_type { LW_TYPE_BF16, LW_TYPE_F32 } lw_type;

typedef struct lw_ref { uint32_t index; } lw_ref;    /* a value */
typedef struct lw_wref { uint32_t index; } lw_wref;  /* a weight */
typedef struct lw_sref { uint32_t index; } lw_sref;  /* a state */
enum { LW_NONE = 0xFFFFFFFF };

/* What a row space times a width of numbers; a view shares the columns [offset, offset + width) of its base.
 */
typedef struct lw_value {
    const char *name;
    lw_space space;
    lw_type type;
    uint32_t width;
    uint32_t base;    /* its own index, or the value that it views */
    uint32_t offset;  /* first column in base */
} lw_value;

typedef enum lw_state_kind {
    LW_STATE_NONE,
    LW_STATE_KV,   /* keys and values of one attention layer, in pages of 64 positions */
    LW_STATE_TAIL, /* one vector a position, in the same pages; read by convolutions and anchored recurrences
                    */
    LW_STATE_BLOB, /* an anchored recurrent state: immutable once made, reference-counted by the lanes */
} lw_state_kind;

/* Memory of a lane. States of equal reach share one page table (their reach group). */
typedef struct lw_state {
    const char *name;
    lw_state_kind kind;
    uint32_t heads;       /* KV: kv heads; else 1 */
    uint32_t width;       /* KV: head_dim; TAIL: columns; BLOB: floats */
    uint32_t reach;       /* a row at p reads positions (p - reach, p]; 0: all of them */
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

enum { LW_OP_INPUTS_MAX = 2 };

typedef struct lw_op {
    lw_op_kind kind;
    lw_ref out;                        /* index LW_NONE for KV_STORE */
    lw_ref in[LW_OP_INPUTS_MAX];
    lw_wref weight;
    lw_sref state;
    uint32_t layer;                    /* for people: which layer recorded it */
    union {
        struct { uint32_t segment; float eps; bool unit_offset; } norm;   /* columns per segment */
        struct { uint32_t heads, head_dim, table; } rope;                 /* index into plan->ropes */
        struct { uint32_t heads, heads_kv, head_dim, window; float scale; } attend; /* window 0: all */
        struct {
            uint32_t heads;
        } gate; /* width / heads columns share a gate */
        struct { uint32_t taps; } conv;
    } p;
} lw_op;

/* Angles of one rotary kind: pair i turns by position * frequency[i]; 0 leaves it alone. */
typedef struct lw_rope_table {
    uint32_t half;               /* pairs: head_dim / 2 or fewer, paired (i, i + half) */
    const double *frequency;     /* [half] */
} lw_rope_table;

/* A run of ops that is submitted as one forward: the model itself, later a draft head. */
typedef struct lw_entry {
    const char *name;
    uint32_t op_begin, op_end;
    lw_ref logits;               /* (WANTED, vocab) fp32 */
} lw_entry;

enum { LW_PLAN_OPS_MAX = 65536, LW_PLAN_REACHES_MAX = 8, LW_PLAN_ROPES_MAX = 8, LW_PLAN_ENTRIES_MAX = 4 };

typedef struct lw_plan {
    lw_arena arena;
    lw_op *ops;          uint32_t op_count, op_room;
    lw_value *values;    uint32_t value_count, value_room;
    lw_weight *weights;  uint32_t weight_count, weight_room;
    lw_state *states;    uint32_t state_count, state_room;
    lw_rope_table ropes[LW_PLAN_ROPES_MAX];      uint32_t rope_count;
    uint32_t reaches[LW_PLAN_REACHES_MAX];       uint32_t reach_count;
    lw_entry entries[LW_PLAN_ENTRIES_MAX];       uint32_t entry_count;
    uint32_t layer;      /* stamped on ops as they are recorded */
    uint32_t vocab;      /* width of the logits */
} lw_plan;

void lw_plan_init(lw_plan *plan);
void lw_plan_deinit(lw_plan *plan);

/* ---- recording: called by families; memory that runs out is a broken assumption here (plans are small) ----
 */

void lw_plan_entry_begin(lw_plan *plan, const char *name);
void lw_plan_entry_end(lw_plan *plan, lw_ref logits);
lw_wref lw_plan_weight(lw_plan *plan, const lw_weight *weight);              /* copies the descriptor */
lw_sref lw_plan_state_kv(lw_plan *plan, const char *name, uint32_t heads, uint32_t head_dim, uint32_t reach);
lw_sref lw_plan_state_tail(lw_plan *plan, const char *name, uint32_t width, uint32_t reach);
uint32_t lw_plan_rope_table(lw_plan *plan, const double *frequency,
                            uint32_t half); /* equal tables are shared */

/* Columns [offset, offset + width) of x. */
lw_ref lw_plan_view(lw_plan *plan, lw_ref x, uint32_t offset, uint32_t width);

lw_ref lw_plan_embed(lw_plan *plan, lw_wref table);
lw_ref lw_plan_rms_norm(lw_plan *plan, lw_ref x, lw_wref weight, float eps, bool unit_offset);
lw_ref lw_plan_linear(lw_plan *plan, lw_ref x, lw_wref weight, lw_type out);
lw_ref lw_plan_add(lw_plan *plan, lw_ref a, lw_ref b);
lw_ref lw_plan_mul(lw_plan *plan, lw_ref a, lw_ref b);
lw_ref lw_plan_swiglu(lw_plan *plan, lw_ref gate, lw_ref up);
lw_ref lw_plan_rope(lw_plan *plan, lw_ref x, uint32_t heads, uint32_t table);
void lw_plan_kv_store(lw_plan *plan, lw_sref state, lw_ref k, lw_ref v);
lw_ref lw_plan_attend(lw_plan *plan, lw_sref state, lw_ref q, uint32_t heads, float scale);
lw_ref lw_plan_head_gate(lw_plan *plan, lw_ref x, lw_ref gate);
lw_ref lw_plan_short_conv(lw_plan *plan, lw_sref state, lw_ref x, lw_wref weight);
lw_ref lw_plan_take_wanted(lw_plan *plan, lw_ref x);

/* Gives a value a name that traces and checks print. */
void lw_plan_name(lw_plan *plan, lw_ref x, const char *format, ...) LW_PRINTF(3, 4);

#endif
