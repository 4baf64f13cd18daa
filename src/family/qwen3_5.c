/* Qwen3.5 and Qwen3.8 (qwen3_5), and their siblings with experts (qwen3_5_moe): layers of Gated DeltaNet,
 * every few a layer of attention whose output is gated column by column, all with SwiGLU blocks; text only.
 * The checkpoint's MTP layer is recorded as draft head.
 *
 * Easy to get wrong: norms store w of 1 + w, but MLX conversions have added the 1 already, and the norm of
 * Gated DeltaNet's output is plain in both; q_proj holds a head's query rows and then its gate rows; only the
 * first partial share of a head's columns turns, with that share in the exponent; the head reads the hidden
 * row after the final norm, embedding first. Positions of text are equal in all three mRoPE sections, so they
 * turn as one.
 */
#include "family/family.h"
#include "family/reader.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct qwen_config {
    uint32_t layer_count, width, vocab;
    uint32_t ffn_width;                  /* of dense blocks */
    lw_attention_dims dims;
    uint32_t turning;                    /* columns of a head that rotate */
    lw_heads keys, values;               /* of Gated DeltaNet */
    uint32_t taps;
    uint32_t experts, top, expert_width, shared_width; /* experts 0: dense blocks */
    double theta;
    float eps;
    bool tied;
    bool has_head;
    bool is_full[LW_LIMIT_LAYERS];
} qwen_config;

typedef struct qwen_delta {
    lw_wref qkv, z, a, b, conv, a_log, dt_bias, norm, out;
} qwen_delta;

typedef struct qwen_attention {
    lw_wref q, k, v, out, q_norm, k_norm;
} qwen_attention;

/* One layer, of the model or of its head. */
typedef struct qwen_layer {
    bool is_full;
    lw_wref norm_in, norm_ffn;
    qwen_delta delta;
    qwen_attention attention;
    lw_wref gate, up, down;              /* the dense block, or the shared expert */
    lw_wref router, expert_gate, expert_up, expert_down, shared_gate;
} qwen_layer;

typedef struct qwen_head {
    lw_wref norm_embed, norm_hidden, join, norm_out;
    qwen_layer layer;
} qwen_head;

typedef struct qwen_weights {
    lw_wref embed, norm, logits;
    qwen_layer *layers;                  /* [layer_count] */
    qwen_head head;
} qwen_weights;

static const char *const model_types[] = { "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text",
                                           NULL };
static const char *const prefixes[] = { "model.language_model.", "language_model.model.", "model.", "",
                                        NULL };
static const char *const ignored[] = { "model.visual.", "visual.", "vision_tower.", "model.vision_tower.",
                                       NULL };
static const char *const ignored_without_head[] = { "model.visual.", "visual.", "vision_tower.",
                                                    "model.vision_tower.", "mtp.", NULL };
static const lw_alias aliases[] = { { NULL, NULL } };

/* ---- config ---- */

static lw_status read_kinds(const lw_config *config, qwen_config *c, lw_diag *d)
{
    const uint32_t interval_default = 4;
    uint32_t interval = 0;
    const json_t *list = lw_config_get(config, "layer_types");
    const lw_status status =
        lw_config_u32(config, "full_attention_interval", &interval_default, LW_LIMIT_LAYERS, &interval, d);
    if (status != LW_OK) return status;
    if (list != NULL && (!json_is_array(list) || json_array_size(list) != c->layer_count)) {
        return lw_fail(d, LW_BAD_MODEL, "%s: layer_types must be a list of num_hidden_layers = %u names",
                       lw_config_name(config), c->layer_count);
    }
    if (list == NULL && interval == 0) {
        return lw_fail(d, LW_BAD_MODEL, "%s: full_attention_interval is 0", lw_config_name(config));
    }
    for (uint32_t i = 0; i < c->layer_count; i++) {
        if (list == NULL) {
            c->is_full[i] = (i + 1) % interval == 0;
            continue;
        }
        const char *name = json_string_value(json_array_get(list, i));
        c->is_full[i] = name != NULL && strcmp(name, "full_attention") == 0;
        if (!c->is_full[i] && (name == NULL || strcmp(name, "linear_attention") != 0)) {
            return lw_fail(d, LW_UNSUPPORTED,
                           "%s: layer_types[%u] is \"%s\"; linear_attention and full_attention are served",
                           lw_config_name(config), i, name == NULL ? "?" : name);
        }
    }
    return LW_OK;
}

static lw_status read_rope(lw_config *config, qwen_config *c, lw_diag *d)
{
    const double theta_default = 1e7, share_default = 0.25;
    const char *type = NULL;
    double share = 0.0;
    const lw_config *rope = lw_config_child(config, "rope_parameters|rope_scaling");
    lw_status status = lw_config_text(rope, "rope_type|type", "default", &type, d);
    double theta = theta_default, outer_share = share_default;
    if (status == LW_OK) status = lw_config_f64(config, "rope_theta", &theta_default, &theta, d);
    if (status == LW_OK) status = lw_config_f64(rope, "rope_theta", &theta, &c->theta, d);
    if (status == LW_OK)
        status = lw_config_f64(config, "partial_rotary_factor", &share_default, &outer_share, d);
    if (status == LW_OK) status = lw_config_f64(rope, "partial_rotary_factor", &outer_share, &share, d);
    if (status != LW_OK) return status;
    if (strcmp(type, "default") != 0 && strcmp(type, "mrope") != 0) {
        return lw_fail(d, LW_UNSUPPORTED, "%s: rope_type \"%s\"; only default is served",
                       lw_config_name(rope), type);
    }
    if (!(c->theta > 1.0) || !(share > 0.0 && share <= 1.0)) {
        return lw_fail(d, LW_BAD_MODEL,
                       "%s: rope_theta must be above 1 and partial_rotary_factor in (0, 1]; got %g and %g",
                       lw_config_name(config), c->theta, share);
    }
    c->turning = (uint32_t)(share * c->dims.head_dim);
    if (c->turning < 2 || c->turning % 2 != 0) {
        return lw_fail(d, LW_BAD_MODEL,
                       "%s: partial_rotary_factor %g: %u of head_dim %u columns rotate, but they turn in "
                       "pairs",
                       lw_config_name(config), share, c->turning, c->dims.head_dim);
    }
    return LW_OK;
}

static lw_status read_delta(const lw_config *config, qwen_config *c, lw_diag *d)
{
    enum { HEADS_MAX = 4096, TAPS_MAX = 64 };
    const uint32_t taps_default = 4;
    lw_status status = lw_config_u32(config, "linear_num_key_heads", NULL, HEADS_MAX, &c->keys.count, d);
    if (status == LW_OK)
        status = lw_config_u32(config, "linear_num_value_heads", NULL, HEADS_MAX, &c->values.count, d);
    if (status == LW_OK)
        status = lw_config_u32(config, "linear_key_head_dim", NULL, HEADS_MAX, &c->keys.width, d);
    if (status == LW_OK)
        status = lw_config_u32(config, "linear_value_head_dim", NULL, HEADS_MAX, &c->values.width, d);
    if (status == LW_OK)
        status = lw_config_u32(config, "linear_conv_kernel_dim", &taps_default, TAPS_MAX, &c->taps, d);
    if (status != LW_OK) return status;
    if (c->keys.count == 0 || c->values.count % c->keys.count != 0 || c->values.count == 0 ||
        c->keys.width == 0 || c->values.width == 0 || c->taps == 0 ||
        (uint64_t)c->values.count * c->values.width > LW_LIMIT_WIDTH / 4 ||
        (uint64_t)c->keys.count * c->keys.width > LW_LIMIT_WIDTH / 4) {
        return lw_fail(
            d, LW_BAD_MODEL,
            "%s: linear_num_key_heads %u of linear_key_head_dim %u, linear_num_value_heads %u of "
            "linear_value_head_dim %u and linear_conv_kernel_dim %u have no shape together",
            lw_config_name(config), c->keys.count, c->keys.width, c->values.count, c->values.width, c->taps);
    }
    return LW_OK;
}

static lw_status read_blocks(const lw_config *config, qwen_config *c, lw_diag *d)
{
    const uint32_t none = 0;
    lw_status status = lw_config_u32(config, "num_experts", &none, 4096, &c->experts, d);
    if (status != LW_OK) return status;
    if (c->experts == 0) {
        status = lw_config_u32(config, "intermediate_size", NULL, LW_LIMIT_WIDTH, &c->ffn_width, d);
        if (status == LW_OK && c->ffn_width == 0)
            return lw_fail(d, LW_BAD_MODEL, "%s: intermediate_size is 0", lw_config_name(config));
        return status;
    }
    status = lw_config_u32(config, "num_experts_per_tok", NULL, LW_TOP_MAX, &c->top, d);
    if (status == LW_OK)
        status = lw_config_u32(config, "moe_intermediate_size", NULL, LW_LIMIT_WIDTH, &c->expert_width, d);
    if (status == LW_OK) {
        status = lw_config_u32(config, "shared_expert_intermediate_size", NULL, LW_LIMIT_WIDTH,
                               &c->shared_width, d);
    }
    bool normalised = true;
    if (status == LW_OK) status = lw_config_bool(config, "norm_topk_prob", true, &normalised, d);
    if (status != LW_OK) return status;
    if (!normalised || json_array_size(lw_config_get(config, "mlp_only_layers")) > 0) {
        return lw_fail(d, LW_UNSUPPORTED,
                       "%s: norm_topk_prob false or mlp_only_layers with entries; served are "
                       "true and none",
                       lw_config_name(config));
    }
    if (c->top == 0 || c->top > c->experts || c->expert_width == 0 || c->shared_width == 0) {
        return lw_fail(d, LW_BAD_MODEL,
                       "%s: num_experts_per_tok %u, num_experts %u, moe_intermediate_size %u and "
                       "shared_expert_intermediate_size %u have no shape together",
                       lw_config_name(config), c->top, c->experts, c->expert_width, c->shared_width);
    }
    return LW_OK;
}

/* What other models of this kind switch on and this one does not compute. */
static lw_status refuse_variants(const lw_config *config, lw_diag *d)
{
    bool bias = false, gated = true;
    const char *act = NULL;
    const uint32_t none = 0;
    uint32_t mlp_only = 0;
    lw_status status = lw_config_bool(config, "attention_bias", false, &bias, d);
    if (status == LW_OK) status = lw_config_bool(config, "attn_output_gate", true, &gated, d);
    if (status == LW_OK) status = lw_config_text(config, "hidden_act", "silu", &act, d);
    if (status == LW_OK) status = lw_config_u32(config, "decoder_sparse_step", &none, 4096, &mlp_only, d);
    if (status != LW_OK) return status;
    if (bias || !gated || strcmp(act, "silu") != 0 || mlp_only > 1) {
        return lw_fail(
            d, LW_UNSUPPORTED,
            "%s: attention_bias %s, attn_output_gate %s, hidden_act %s, decoder_sparse_step %u; served "
            "are false, true, silu and 1",
            lw_config_name(config), bias ? "true" : "false", gated ? "true" : "false", act, mlp_only);
    }
    return LW_OK;
}

static lw_status read_config(lw_config *config, qwen_config *c, lw_diag *d)
{
    const double eps_default = 1e-6;
    const uint32_t context_default = 0;
    uint32_t context = 0; /* read by lw_family_context; here only a wrong one is refused */
    double eps = eps_default;
    lw_status status =
        lw_config_u32(config, "num_hidden_layers", NULL, LW_LIMIT_LAYERS, &c->layer_count, d);
    if (status == LW_OK)
        status = lw_config_u32(config, "hidden_size", NULL, LW_LIMIT_WIDTH / 4, &c->width, d);
    if (status == LW_OK) status = lw_config_u32(config, "vocab_size", NULL, LW_LIMIT_VOCAB, &c->vocab, d);
    if (status == LW_OK) status = lw_config_f64(config, "rms_norm_eps", &eps_default, &eps, d);
    if (status == LW_OK)
        status = lw_config_u32(config, "max_position_embeddings", &context_default, UINT32_MAX, &context, d);
    if (status == LW_OK) status = lw_config_bool(config, "tie_word_embeddings", false, &c->tied, d);
    if (status != LW_OK) return status;
    if (c->width == 0 || c->layer_count == 0 || c->vocab == 0 || !(eps >= 0.0 && eps <= 1.0)) {
        return lw_fail(
            d, LW_BAD_MODEL,
            "%s: hidden_size %u, num_hidden_layers %u, vocab_size %u and rms_norm_eps %g make no model",
            lw_config_name(config), c->width, c->layer_count, c->vocab, eps);
    }
    c->eps = (float)eps;
    status = lw_read_attention_dims(config, c->width, &c->dims, d);
    if (status == LW_OK) status = read_kinds(config, c, d);
    if (status == LW_OK) status = read_rope(config, c, d);
    if (status == LW_OK) status = read_delta(config, c, d);
    if (status == LW_OK) status = read_blocks(config, c, d);
    if (status == LW_OK) status = refuse_variants(config, d);
    return status;
}

/* ---- weights ---- */

static void read_delta_weights(lw_reader *r, const qwen_config *c, qwen_delta *w, const char *at)
{
    const uint32_t key_width = c->keys.count * c->keys.width, value_width = c->values.count * c->values.width;
    const uint32_t mixed = 2 * key_width + value_width;
    w->qkv = lw_read_matrix(r, mixed, c->width, "%s.linear_attn.in_proj_qkv", at);
    w->z = lw_read_matrix(r, value_width, c->width, "%s.linear_attn.in_proj_z", at);
    w->a = lw_read_matrix(r, c->values.count, c->width, "%s.linear_attn.in_proj_a", at);
    w->b = lw_read_matrix(r, c->values.count, c->width, "%s.linear_attn.in_proj_b", at);
    w->conv = lw_read_dense(r, mixed, c->taps, "%s.linear_attn.conv1d.weight", at);
    w->a_log = lw_read_dense(r, 1, c->values.count, "%s.linear_attn.A_log", at);
    w->dt_bias = lw_read_dense(r, 1, c->values.count, "%s.linear_attn.dt_bias", at);
    w->norm = lw_read_dense(r, 1, c->values.width, "%s.linear_attn.norm.weight", at);
    w->out = lw_read_matrix(r, c->width, value_width, "%s.linear_attn.out_proj", at);
}

static void read_attention_weights(lw_reader *r, const qwen_config *c, qwen_attention *w, const char *at)
{
    const uint32_t q_width = c->dims.heads * c->dims.head_dim, kv_width = c->dims.heads_kv * c->dims.head_dim;
    w->q = lw_read_matrix(r, 2 * q_width, c->width, "%s.self_attn.q_proj", at);
    w->k = lw_read_matrix(r, kv_width, c->width, "%s.self_attn.k_proj", at);
    w->v = lw_read_matrix(r, kv_width, c->width, "%s.self_attn.v_proj", at);
    w->out = lw_read_matrix(r, c->width, q_width, "%s.self_attn.o_proj", at);
    w->q_norm = lw_read_dense(r, 1, c->dims.head_dim, "%s.self_attn.q_norm.weight", at);
    w->k_norm = lw_read_dense(r, 1, c->dims.head_dim, "%s.self_attn.k_norm.weight", at);
}

static void read_block_weights(lw_reader *r, const qwen_config *c, qwen_layer *w, const char *at)
{
    const char *part = c->experts == 0 ? "mlp" : "mlp.shared_expert";
    const uint32_t width = c->experts == 0 ? c->ffn_width : c->shared_width;
    w->gate = lw_read_matrix(r, width, c->width, "%s.%s.gate_proj", at, part);
    w->up = lw_read_matrix(r, width, c->width, "%s.%s.up_proj", at, part);
    w->down = lw_read_matrix(r, c->width, width, "%s.%s.down_proj", at, part);
    if (c->experts == 0) return;
    const uint32_t in[3] = { c->experts, c->expert_width, c->width };
    const uint32_t out[3] = { c->experts, c->width, c->expert_width };
    w->router = lw_read_matrix(r, c->experts, c->width, "%s.mlp.gate", at);
    w->shared_gate = lw_read_matrix(r, 1, c->width, "%s.mlp.shared_expert_gate", at);
    const lw_stack_names gate = { .whole = "switch_mlp.gate_proj", .fused = "experts.gate_up_proj",
                                  .fused_rows = 2 * c->expert_width, .each = "experts.*.gate_proj" };
    const lw_stack_names up = { .whole = "switch_mlp.up_proj", .fused = "experts.gate_up_proj",
                                .fused_begin = c->expert_width, .fused_rows = 2 * c->expert_width,
                                .each = "experts.*.up_proj" };
    const lw_stack_names down = { .whole = "switch_mlp.down_proj", .fused = "experts.down_proj",
                                  .fused_rows = c->width, .each = "experts.*.down_proj" };
    char parent[64];
    snprintf(parent, sizeof parent, "%s.mlp", at);
    w->expert_gate = lw_read_stack(r, in, &gate, parent);
    w->expert_up = lw_read_stack(r, in, &up, parent);
    w->expert_down = lw_read_stack(r, out, &down, parent);
}

static void read_layer_weights(lw_reader *r, const qwen_config *c, qwen_layer *w, const char *at)
{
    w->norm_in = lw_read_dense(r, 1, c->width, "%s.input_layernorm.weight", at);
    w->norm_ffn = lw_read_dense(r, 1, c->width, "%s.post_attention_layernorm.weight", at);
    if (w->is_full) read_attention_weights(r, c, &w->attention, at);
    else read_delta_weights(r, c, &w->delta, at);
    read_block_weights(r, c, w, at);
}

static void read_head_weights(lw_reader *r, const qwen_config *c, qwen_head *w)
{
    w->norm_embed = lw_read_dense(r, 1, c->width, "mtp.pre_fc_norm_embedding.weight");
    w->norm_hidden = lw_read_dense(r, 1, c->width, "mtp.pre_fc_norm_hidden.weight");
    w->join = lw_read_matrix(r, c->width, 2 * c->width, "mtp.fc");
    w->norm_out = lw_read_dense(r, 1, c->width, "mtp.norm.weight");
    w->layer.is_full = true;
    read_layer_weights(r, c, &w->layer, "mtp.layers.0");
}

static lw_status read_weights(lw_reader *r, const qwen_config *c, qwen_weights *w, lw_diag *d)
{
    w->layers = lw_arena_take_array(&r->plan->arena, c->layer_count, sizeof *w->layers);
    if (w->layers == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for %u layers", c->layer_count);
    w->embed = lw_read_matrix(r, c->vocab, c->width, "embed_tokens");
    w->norm = lw_read_dense(r, 1, c->width, "norm.weight");
    w->logits = c->tied ? w->embed : lw_read_matrix(r, c->vocab, c->width, "lm_head");
    for (uint32_t i = 0; i < c->layer_count; i++) {
        char at[32];
        snprintf(at, sizeof at, "layers.%u", i);
        w->layers[i].is_full = c->is_full[i];
        read_layer_weights(r, c, &w->layers[i], at);
    }
    if (c->has_head) read_head_weights(r, c, &w->head);
    const lw_status status = lw_names_finish(r->names, d);
    LW_ASSERT(status != LW_OK || r->is_complete);
    return status;
}

/* ---- norms: 1 + w, or w ---- */

/* scratch: [width]. */
static double mean_of(const lw_plan *plan, lw_wref norm, float *scratch)
{
    const lw_weight *w = &plan->weights[norm.index];
    double sum = 0.0;
    lw_weight_dense(w, 0, 0, scratch);
    for (uint32_t i = 0; i < w->cols; i++) sum += (double)scratch[i];
    return sum / w->cols;
}

/* Whether the checkpoint's layout is the original one, whose convolutions are (channels, 1, taps) and whose
 * norms store w of 1 + w. MLX turned the former to (channels, taps, 1) and added the 1. Where no convolution
 * tells, what the final norm's weights are nearer to does. */
static bool is_original_layout(const lw_plan *plan, const qwen_config *c, const qwen_weights *w, double mean)
{
    for (uint32_t i = 0; i < c->layer_count && c->taps > 1; i++) {
        if (w->layers[i].is_full) continue;
        const lw_tensor *conv = plan->weights[w->layers[i].delta.conv.index].codes;
        return conv->dims[conv->dim_count - 1] == c->taps;
    }
    return mean < 0.5;
}

/* How norms are scaled in the model and in its head. Heads of MLX checkpoints come converted or not, often
 * from a file of their own: their weights lie near 1 or near 0. */
typedef struct qwen_norms {
    lw_norm_scale body, head;
} qwen_norms;

static qwen_norms norms_choose(const lw_plan *plan, const qwen_config *c, const qwen_weights *w,
                               const lw_record_options *options, float *scratch)
{
    const double mean = mean_of(plan, w->norm, scratch);
    const bool original = is_original_layout(plan, c, w, mean);
    qwen_norms norms = { .body = original ? LW_NORM_UNIT : LW_NORM_ONCE };
    norms.head = norms.body;
    lw_record_note(options,
                   "norm weights are taken as %s by the checkpoint's layout; the final norm's mean is %.3f",
                   original ? "w of 1 + w" : "they are", mean);
    if (c->has_head && !original) {
        const qwen_head *h = &w->head;
        const lw_wref all[] = { h->norm_embed, h->norm_hidden, h->norm_out, h->layer.norm_in };
        double of_head = 0.0;
        for (int i = 0; i < 4; i++) of_head += mean_of(plan, all[i], scratch) / 4.0;
        norms.head = of_head < 0.5 ? LW_NORM_UNIT : LW_NORM_ONCE;
        lw_record_note(options, "the draft head's norm weights are taken as %s: their mean is %.3f",
                       norms.head == LW_NORM_UNIT ? "w of 1 + w" : "they are", of_head);
    }
    return norms;
}

/* ---- the forward ---- */

typedef struct qwen_build {
    lw_plan *p;
    const qwen_config *c;
    const qwen_weights *w;
    qwen_norms norms;
    uint32_t rope;
    lw_sref hidden, head_kv;             /* of the draft head */
} qwen_build;

static lw_ref delta_block(const qwen_build *b, const qwen_delta *w, lw_ref h)
{
    lw_plan *p = b->p;
    const qwen_config *c = b->c;
    const uint32_t mixed = 2 * c->keys.count * c->keys.width + c->values.count * c->values.width;
    const lw_sref tail = lw_plan_state_tail(p, "conv", mixed, c->taps);
    const lw_recurrence state = lw_plan_recurrence(p, "delta", c->keys, c->values);
    const lw_ref m = lw_plan_linear(p, h, w->qkv, LW_TYPE_BF16);            /* (rows, q | k | v) */
    const lw_ref z = lw_plan_linear(p, h, w->z, LW_TYPE_BF16);
    const lw_delta_inputs in = {
        .b = lw_plan_linear(p, h, w->b, LW_TYPE_BF16),
        .a = lw_plan_linear(p, h, w->a, LW_TYPE_BF16),
        .x = lw_plan_conv_silu(p, tail, m, w->conv, (lw_wref){ LW_NONE }),
    };
    const lw_ref y = lw_plan_gated_delta(p, state, in, w->a_log, w->dt_bias);
    const lw_norm_gate norm = { .segment = c->values.width, .eps = c->eps };
    return lw_plan_linear(p, lw_plan_norm_gate(p, y, z, w->norm, norm), w->out, LW_TYPE_BF16);
}

/* Stores the rows' keys and values. */
static void remember(const qwen_build *b, const qwen_attention *w, lw_ref h, lw_sref kv, lw_norm_scale scale)
{
    const lw_ref k = lw_plan_linear(b->p, h, w->k, LW_TYPE_BF16);           /* (rows, heads_kv, head_dim) */
    const lw_ref v = lw_plan_linear(b->p, h, w->v, LW_TYPE_BF16);
    const lw_ref normed = lw_plan_rms_norm(b->p, k, w->k_norm, b->c->eps, scale);
    lw_plan_kv_store(b->p, kv, lw_plan_rope(b->p, normed, b->c->dims.heads_kv, b->rope), v);
}

static lw_ref attention_block(const qwen_build *b, const qwen_attention *w, lw_ref h, lw_sref kv,
                              lw_norm_scale scale)
{
    lw_plan *p = b->p;
    const lw_attention_dims *dims = &b->c->dims;
    lw_head_columns half = { .heads = dims->heads, .stride = 2 * dims->head_dim, .width = dims->head_dim };
    const lw_ref both = lw_plan_linear(p, h, w->q, LW_TYPE_BF16);           /* (rows, heads, q | gate) */
    const lw_ref q = lw_plan_take_heads(p, both, half);
    half.offset = dims->head_dim;
    const lw_ref gate = lw_plan_take_heads(p, both, half);
    remember(b, w, h, kv, scale);
    const lw_ref normed = lw_plan_rms_norm(p, q, w->q_norm, b->c->eps, scale);
    const lw_attention params = {
        .heads = dims->heads,
        .first = kv.index == b->head_kv.index ? 1 : 0,
        .scale = (float)(1.0 / sqrt((double)dims->head_dim)),
    };
    const lw_ref o = lw_plan_attend_from(p, kv, lw_plan_rope(p, normed, dims->heads, b->rope), params);
    return lw_plan_linear(p, lw_plan_head_gate(p, o, gate), w->out, LW_TYPE_BF16);
}

static lw_ref swiglu_block(lw_plan *p, const qwen_layer *w, lw_ref h)
{
    const lw_ref gate = lw_plan_linear(p, h, w->gate, LW_TYPE_BF16);
    const lw_ref up = lw_plan_linear(p, h, w->up, LW_TYPE_BF16);
    return lw_plan_linear(p, lw_plan_swiglu(p, gate, up), w->down, LW_TYPE_BF16);
}

static lw_ref expert_block(const qwen_build *b, const qwen_layer *w, lw_ref h)
{
    lw_plan *p = b->p;
    const lw_route_params params = { .kind = LW_ROUTER_SOFTMAX, .experts = b->c->experts, .top = b->c->top,
                                     .groups = 1, .top_groups = 1, .normalise = true, .scale = 1.0f };
    const lw_ref logits = lw_plan_linear(p, h, w->router, LW_TYPE_F32);
    const lw_ref route = lw_plan_route(p, logits, (lw_wref){ LW_NONE }, &params);
    const lw_ref gate = lw_plan_expert_linear(p, h, route, w->expert_gate);
    const lw_ref up = lw_plan_expert_linear(p, h, route, w->expert_up);
    const lw_ref each = lw_plan_expert_linear(p, lw_plan_swiglu(p, gate, up), route, w->expert_down);
    const lw_ref routed = lw_plan_expert_sum(p, each, route);
    const lw_ref shared =
        lw_plan_head_gate(p, swiglu_block(p, w, h), lw_plan_linear(p, h, w->shared_gate, LW_TYPE_BF16));
    return lw_plan_add(p, routed, shared);
}

/* What follows the mixer r of a layer whose input is x. */
static lw_ref layer_end(const qwen_build *b, const qwen_layer *w, lw_ref x, lw_ref r, lw_norm_scale scale)
{
    x = lw_plan_add(b->p, x, r);
    const lw_ref h = lw_plan_rms_norm(b->p, x, w->norm_ffn, b->c->eps, scale);
    return lw_plan_add(b->p, x, b->c->experts == 0 ? swiglu_block(b->p, w, h) : expert_block(b, w, h));
}

static lw_ref layer(const qwen_build *b, const qwen_layer *w, lw_ref x)
{
    lw_plan *p = b->p;
    const lw_ref h = lw_plan_rms_norm(p, x, w->norm_in, b->c->eps, b->norms.body);
    lw_ref r;
    if (w->is_full) {
        const lw_sref kv = lw_plan_state_kv(p, "full", b->c->dims.heads_kv, b->c->dims.head_dim, 0);
        r = attention_block(b, &w->attention, h, kv, b->norms.body);
    } else {
        r = delta_block(b, &w->delta, h);
    }
    if (p->layer + 1 == b->c->layer_count && !b->c->has_head) { /* nothing past this reads other rows */
        x = lw_plan_take_wanted(p, x);
        r = lw_plan_take_wanted(p, r);
    }
    x = layer_end(b, w, x, r, b->norms.body);
    lw_plan_name(p, x, "layer.%u", p->layer);
    return x;
}

/* The head's layer input from the rows' embeddings and the hidden rows before them. */
static lw_ref head_input(const qwen_build *b, lw_ref embedded)
{
    const qwen_head *w = &b->w->head;
    const lw_ref before = lw_plan_tail_before(b->p, b->hidden);
    const lw_ref e = lw_plan_rms_norm(b->p, embedded, w->norm_embed, b->c->eps, b->norms.head);
    const lw_ref g = lw_plan_rms_norm(b->p, before, w->norm_hidden, b->c->eps, b->norms.head);
    return lw_plan_linear(b->p, lw_plan_concat(b->p, e, g), w->join, LW_TYPE_BF16);
}

static lw_ref head_norm_in(const qwen_build *b, lw_ref x)
{
    return lw_plan_rms_norm(b->p, x, b->w->head.layer.norm_in, b->c->eps, b->norms.head);
}

/* Part of the forward: keeps the rows' hidden values and what the head's attention remembers of them, so that
 * the head's state is like every other, true for all kept rows. */
static void head_absorb(const qwen_build *b, lw_ref embedded, lw_ref hidden)
{
    lw_plan_tail_store(b->p, b->hidden, hidden);
    const lw_ref h = head_norm_in(b, head_input(b, embedded));
    remember(b, &b->w->head.layer.attention, h, b->head_kv, b->norms.head);
}

static void record_head(const qwen_build *b)
{
    lw_plan *p = b->p;
    const qwen_head *w = &b->w->head;
    lw_plan_entry_begin(p, "mtp");
    lw_ref x = head_input(b, lw_plan_embed(p, b->w->embed));
    const lw_ref r = attention_block(b, &w->layer.attention, head_norm_in(b, x), b->head_kv, b->norms.head);
    x = layer_end(b, &w->layer, x, r, b->norms.head);
    x = lw_plan_rms_norm(p, x, w->norm_out, b->c->eps, b->norms.head);
    lw_plan_name(p, x, "head");
    lw_plan_tail_store(p, b->hidden, x);
    const lw_ref logits = lw_plan_linear(p, lw_plan_take_wanted(p, x), b->w->logits, LW_TYPE_F32);
    lw_plan_entry_end(p, logits);
}

static void record_model(qwen_build *b)
{
    lw_plan *p = b->p;
    const qwen_config *c = b->c;
    double frequency[LW_ROPE_HALF_MAX];
    for (uint32_t i = 0; i < c->turning / 2; i++) frequency[i] = pow(c->theta, -2.0 * i / c->turning);
    b->rope = lw_plan_rope_table(p, frequency, c->turning / 2);
    lw_plan_entry_begin(p, "main");
    const lw_ref embedded = lw_plan_embed(p, b->w->embed);
    lw_ref x = embedded;
    for (uint32_t i = 0; i < c->layer_count; i++) {
        p->layer = i;
        x = layer(b, &b->w->layers[i], x);
    }
    x = lw_plan_rms_norm(p, x, b->w->norm, c->eps, b->norms.body);
    if (c->has_head) {
        b->hidden = lw_plan_state_tail(p, "hidden", c->width, 2);
        b->head_kv = lw_plan_state_kv(p, "head", c->dims.heads_kv, c->dims.head_dim, 0);
        head_absorb(b, embedded, x);
        x = lw_plan_take_wanted(p, x);
    }
    const lw_ref logits = lw_plan_linear(p, x, b->w->logits, LW_TYPE_F32);
    lw_plan_name(p, logits, "logits");
    lw_plan_entry_end(p, logits);
}

static lw_status record_with(lw_names *names, const qwen_config *c, const lw_record_options *options,
                             lw_plan *plan, lw_diag *d)
{
    lw_reader reader = { .plan = plan, .names = names, .is_complete = true };
    qwen_weights weights = { .embed = { LW_NONE } };
    float *scratch = lw_arena_take_array(&plan->arena, c->width, sizeof *scratch);
    if (scratch == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for a norm's weights");
    const lw_status status = read_weights(&reader, c, &weights, d);
    if (status != LW_OK) return status;
    qwen_build b = { .p = plan, .c = c, .w = &weights, .hidden = { LW_NONE }, .head_kv = { LW_NONE },
                     .norms = norms_choose(plan, c, &weights, options, scratch) };
    record_model(&b);
    if (c->has_head) record_head(&b);
    lw_record_tell_unused(options, names);
    return LW_OK;
}

static lw_status record(const lw_checkpoint *checkpoint, const lw_record_options *options, lw_plan *plan,
                        lw_diag *d)
{
    qwen_config *c = lw_arena_take(&plan->arena, sizeof *c);
    if (c == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for the model's config");
    lw_status status = read_config(lw_checkpoint_config(checkpoint), c, d);
    if (status != LW_OK) return status;
    const lw_names_options naming = { .prefixes = prefixes, .aliases = aliases,
                                      .ignored = options->head ? ignored : ignored_without_head };
    lw_names *names = NULL;
    status = lw_names_make(checkpoint, &naming, &names, d);
    if (status != LW_OK) return status;
    c->has_head = options->head && lw_names_has(names, "mtp.pre_fc_norm_hidden");
    status = record_with(names, c, options, plan, d);
    lw_names_free(names);
    return status;
}

const lw_family lw_family_qwen3_5 = { .name = "qwen3_5", .model_types = model_types, .record = record };
