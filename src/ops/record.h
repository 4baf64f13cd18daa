/* Recording of plans, called by families: each function checks shapes, appends one op and returns its output.
 * ops.list says what each computes.
 */
#ifndef LW_OPS_RECORD_H
#define LW_OPS_RECORD_H

#include "ops/plan.h"

void lw_plan_entry_begin(lw_plan *plan, const char *name);
void lw_plan_entry_end(lw_plan *plan, lw_ref logits);
lw_wref lw_plan_weight(lw_plan *plan, const lw_weight *weight);              /* copies the descriptor */
lw_sref lw_plan_state_kv(lw_plan *plan, const char *name, uint32_t heads, uint32_t head_dim, uint32_t reach);
lw_sref lw_plan_state_tail(lw_plan *plan, const char *name, uint32_t width, uint32_t reach);

/* What an anchored recurrence remembers. */
typedef struct lw_recurrence { lw_sref steps, anchor; } lw_recurrence;
typedef struct lw_heads { uint32_t count, width; } lw_heads;
lw_recurrence lw_plan_recurrence(lw_plan *plan, const char *name, lw_heads keys, lw_heads values);
uint32_t lw_plan_rope_table(lw_plan *plan, const double *frequency,
                            uint32_t half); /* equal tables are shared */

/* Columns [offset, offset + width) of x. */
lw_ref lw_plan_view(lw_plan *plan, lw_ref x, uint32_t offset, uint32_t width);

/* ---- ops ---- */

lw_ref lw_plan_embed(lw_plan *plan, lw_wref table);
lw_ref lw_plan_widen(lw_plan *plan, lw_ref x);                               /* x bf16, out fp32 */
lw_ref lw_plan_rms_norm(lw_plan *plan, lw_ref x, lw_wref weight, float eps, lw_norm_scale scale);
/* weight's elements are one segment, or a whole number of segments that x's columns then equal. */
typedef struct lw_norm_gate { uint32_t segment; float eps; bool gate_first; } lw_norm_gate;
lw_ref lw_plan_norm_gate(lw_plan *plan, lw_ref x, lw_ref gate, lw_wref weight, lw_norm_gate params);
lw_ref lw_plan_linear(lw_plan *plan, lw_ref x, lw_wref weight, lw_type out);
lw_ref lw_plan_bias(lw_plan *plan, lw_ref x, lw_wref bias);                  /* x fp32 */
lw_ref lw_plan_add(lw_plan *plan, lw_ref a, lw_ref b);                       /* a fp32: the output too */
lw_ref lw_plan_mul(lw_plan *plan, lw_ref a, lw_ref b);
lw_ref lw_plan_swiglu(lw_plan *plan, lw_ref gate, lw_ref up);
lw_ref lw_plan_relu2(lw_plan *plan, lw_ref x);
lw_ref lw_plan_concat(lw_plan *plan, lw_ref a, lw_ref b);
/* Of each head's stride columns, width from offset on. */
lw_ref lw_plan_take_heads(lw_plan *plan, lw_ref x, lw_head_columns columns);
lw_ref lw_plan_rope(lw_plan *plan, lw_ref x, uint32_t heads, uint32_t table);
void lw_plan_kv_store(lw_plan *plan, lw_sref state, lw_ref k, lw_ref v);
lw_ref lw_plan_attend(lw_plan *plan, lw_sref state, lw_ref q, uint32_t heads, float scale);
/* The same where keys before position first do not exist (a draft head's begin at 1). */
typedef struct lw_attention { uint32_t heads, first; float scale; } lw_attention;
lw_ref lw_plan_attend_from(lw_plan *plan, lw_sref state, lw_ref q, lw_attention params);
lw_ref lw_plan_head_gate(lw_plan *plan, lw_ref x, lw_ref gate);
lw_ref lw_plan_short_conv(lw_plan *plan, lw_sref state, lw_ref x, lw_wref weight);
/* The same followed by silu; bias index LW_NONE: none. */
lw_ref lw_plan_conv_silu(lw_plan *plan, lw_sref state, lw_ref x, lw_wref weight, lw_wref bias);
void lw_plan_tail_store(lw_plan *plan, lw_sref state, lw_ref x);
lw_ref lw_plan_tail_before(lw_plan *plan, lw_sref state);
/* x: (rows, q | k | v) after the convolution; a, b: (rows, value heads). */
typedef struct lw_delta_inputs { lw_ref x, a, b; } lw_delta_inputs;
lw_ref lw_plan_gated_delta(lw_plan *plan, lw_recurrence state, lw_delta_inputs in, lw_wref a_log,
                           lw_wref dt_bias);
/* x: (rows, x | B | C) after the convolution; step: (rows, heads) before its bias. */
typedef struct lw_ssm_inputs { lw_ref x, step; } lw_ssm_inputs;
typedef struct lw_ssm_weights { lw_wref a_log, d, dt_bias; float step_min, step_max; } lw_ssm_weights;
lw_ref lw_plan_ssm(lw_plan *plan, lw_recurrence state, lw_ssm_inputs in, const lw_ssm_weights *weights);
/* logits: (rows, experts) fp32; bias index LW_NONE: none. */
lw_ref lw_plan_route(lw_plan *plan, lw_ref logits, lw_wref bias, const lw_route_params *params);
/* x has one vector a row, or one for each chosen expert; the output has one for each. */
lw_ref lw_plan_expert_linear(lw_plan *plan, lw_ref x, lw_ref route, lw_wref stack);
/* The same in fp32, and what is to follow it: each expert's own bias, which rounds. */
lw_ref lw_plan_expert_linear_f32(lw_plan *plan, lw_ref x, lw_ref route, lw_wref stack);
lw_ref lw_plan_expert_bias(lw_plan *plan, lw_ref x, lw_ref route, lw_wref biases);
lw_ref lw_plan_expert_sum(lw_plan *plan, lw_ref x, lw_ref route);
lw_ref lw_plan_take_wanted(lw_plan *plan, lw_ref x);

/* Gives a value a name that traces and checks print. */
void lw_plan_name(lw_plan *plan, lw_ref x, const char *format, ...) LW_PRINTF(3, 4);

#endif
