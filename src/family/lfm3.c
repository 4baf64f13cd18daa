/* LFM3 and its cousin LFM2: gated short convolutions and grouped-query attention, all with SwiGLU blocks.
 * LFM3 norms each branch again before it is added (sandwich norms), gates the attention output, and knows
 * sliding layers; LFM2 has none of these, so it is the same reading with those tensors absent.
 *
 * Easy to get wrong: the in_proj rows are B, C, v in this order; the newest sample meets the last tap;
 * full-attention layers of LFM3 rotate pairs (i, i + head_dim / 2) of which only the first partial share has
 * a frequency, with head_dim in the exponent ("proportional"), whatever the config calls it.
 */
#include "family/family.h"
#include "family/reader.h"

#include <math.h>
#include <string.h>

typedef enum layer_kind { LAYER_CONV, LAYER_FULL, LAYER_SLIDING } layer_kind;

typedef struct lfm3_config {
    bool sandwich;              /* LFM3: branch outputs are normed before the add */
    uint32_t layer_count, width, ffn_width, vocab;
    lw_attention_dims dims;
    uint32_t window;            /* keys that a sliding layer sees, its own included */
    uint32_t taps;              /* of the short convolution */
    float eps;
    bool tied;
    layer_kind kinds[LW_LIMIT_LAYERS];
    double full_theta, full_share, sliding_theta;
} lfm3_config;

typedef struct lfm3_attention {
    lw_wref q, k, v, gate, out, q_norm, k_norm;
    bool has_gate;
} lfm3_attention;

typedef struct lfm3_layer {
    lw_wref norm_in, norm_branch, norm_ffn, norm_ffn_out;
    lw_wref conv_in, conv, conv_out;
    lfm3_attention attention;
    lw_wref w1, w2, w3;
} lfm3_layer;

static const char *const model_types[] = { "lfm3", "lfm2", NULL };
static const char *const prefixes[] = { "model.", "model.language_model.", "language_model.model.", "",
                                        NULL };
static const char *const ignored[] = {
    "vision_tower.",
    "model.vision_tower.",
    "multi_modal_projector.",
    "model.multi_modal_projector.",
    "rotary_emb.",
    NULL,
};

static const lw_alias aliases[] = {
    { "operator_norm", "input_layernorm" },
    { "operator_norm", "operator_pre_norm" },
    { "post_operator_norm", "operator_post_norm" },
    { "post_operator_norm", "post_attention_layernorm" },
    { "ffn_norm", "pre_feedforward_layernorm" },
    { "post_ffn_norm", "ffn_post_norm" },
    { "post_ffn_norm", "post_feedforward_layernorm" },
    { "self_attn.gate_proj", "self_attn.g_proj" },
    { "self_attn.out_proj", "self_attn.o_proj" },
    { "self_attn.q_layernorm", "self_attn.q_norm" },
    { "self_attn.k_layernorm", "self_attn.k_norm" },
    { "feed_forward.w1", "mlp.gate_proj" },
    { "feed_forward.w3", "mlp.up_proj" },
    { "feed_forward.w2", "mlp.down_proj" },
    { "embedding_norm", "norm" },
    { NULL, NULL },
};

/* ---- config ---- */

static lw_status read_kinds(const lw_config *config, lfm3_config *c, lw_diag *d)
{
    static const struct { const char *name; layer_kind kind; } kinds[] = {
        { "conv", LAYER_CONV }, { "full_attention", LAYER_FULL }, { "sliding_attention", LAYER_SLIDING },
    };
    const json_t *list = lw_config_get(config, "layer_types");
    if (!json_is_array(list) || json_array_size(list) != c->layer_count) {
        return lw_fail(d, LW_BAD_MODEL, "%s: layer_types must be a list of num_hidden_layers = %u names",
                       lw_config_name(config), c->layer_count);
    }
    for (uint32_t i = 0; i < c->layer_count; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        size_t at = 0;
        while (at < 3 && (name == NULL || strcmp(name, kinds[at].name) != 0)) at++;
        if (at == 3) {
            return lw_fail(d, LW_UNSUPPORTED,
                           "%s: layer_types[%u] is \"%s\"; conv, full_attention and "
                           "sliding_attention are served",
                           lw_config_name(config), i, name == NULL ? "?" : name);
        }
        c->kinds[i] = kinds[at].kind;
    }
    return LW_OK;
}

/* LFM2 configs without layer_types list the attention layers instead. */
static lw_status read_layers(const lw_config *config, lfm3_config *c, lw_diag *d)
{
    if (lw_config_get(config, "layer_types") != NULL) return read_kinds(config, c, d);
    const json_t *full = lw_config_get(config, "full_attn_idxs");
    if (!json_is_array(full)) {
        return lw_fail(d, LW_BAD_MODEL, "%s: neither layer_types nor full_attn_idxs is a list",
                       lw_config_name(config));
    }
    for (size_t i = 0; i < json_array_size(full); i++) {
        const json_t *item = json_array_get(full, i);
        const json_int_t index = json_is_integer(item) ? json_integer_value(item) : -1;
        if (index < 0 || index >= (json_int_t)c->layer_count) {
            return lw_fail(d, LW_BAD_MODEL, "%s: full_attn_idxs[%zu] is not a layer below %u",
                           lw_config_name(config), i, c->layer_count);
        }
        c->kinds[index] = LAYER_FULL;
    }
    return LW_OK;
}

/* LFM2 cuts its feed-forward width to two thirds and rounds it up, unless its config says not to. */
static lw_status read_ffn_width(const lw_config *config, lfm3_config *c, lw_diag *d)
{
    const char *keys = c->sandwich ? "intermediate_size" : "block_ff_dim|intermediate_size";
    lw_status status = lw_config_u32(config, keys, NULL, LW_LIMIT_WIDTH, &c->ffn_width, d);
    bool adjust = false;
    if (status == LW_OK)
        status = lw_config_bool(config, "block_auto_adjust_ff_dim", !c->sandwich, &adjust, d);
    if (status != LW_OK || !adjust || c->sandwich) return status;
    const double one = 1.0;
    const uint32_t unit_default = 256;
    double factor = 1.0;
    uint32_t unit = 0;
    status = lw_config_f64(config, "block_ffn_dim_multiplier", &one, &factor, d);
    if (status == LW_OK)
        status = lw_config_u32(config, "block_multiple_of", &unit_default, LW_LIMIT_WIDTH, &unit, d);
    if (status != LW_OK) return status;
    const double width = floor(factor * floor(2.0 * c->ffn_width / 3.0));
    if (unit == 0 || !(width >= 1.0 && width <= LW_LIMIT_WIDTH)) {
        return lw_fail(d, LW_BAD_MODEL,
                       "%s: block_multiple_of %u and block_ffn_dim_multiplier %g give no width",
                       lw_config_name(config), unit, factor);
    }
    c->ffn_width = ((uint32_t)width + unit - 1) / unit * unit;
    return LW_OK;
}

static lw_status read_rope(lw_config *config, lfm3_config *c, lw_diag *d)
{
    const double theta_default = 1e6, one = 1.0;
    const lw_config *ropes = lw_config_child(config, "rope_parameters");
    const bool nested = lw_config_get(ropes, "full_attention|sliding_attention") != NULL;
    const lw_config *full = nested ? lw_config_child((lw_config *)ropes, "full_attention") : ropes;
    const lw_config *sliding = nested ? lw_config_child((lw_config *)ropes, "sliding_attention") : ropes;
    const lw_config *const both[] = { full, sliding };
    for (int i = 0; i < 2; i++) {
        const char *type = "default";
        const lw_status status = lw_config_text(both[i], "rope_type|type", "default", &type, d);
        if (status != LW_OK) return status;
        if (strcmp(type, "default") != 0 && strcmp(type, "proportional") != 0) {
            return lw_fail(d, LW_UNSUPPORTED, "%s: rope_type \"%s\"; default and proportional are served",
                           lw_config_name(both[i]), type);
        }
    }
    double outer = theta_default;
    lw_status status = lw_config_f64(config, "rope_theta|theta", &theta_default, &outer, d);
    if (status == LW_OK) status = lw_config_f64(full, "rope_theta", &outer, &c->full_theta, d);
    if (status == LW_OK) status = lw_config_f64(full, "partial_rotary_factor", &one, &c->full_share, d);
    if (status == LW_OK) status = lw_config_f64(sliding, "rope_theta", &outer, &c->sliding_theta, d);
    if (status != LW_OK) return status;
    if (!(c->full_theta > 1.0) || !(c->sliding_theta > 1.0) ||
        !(c->full_share > 0.0 && c->full_share <= 1.0)) {
        return lw_fail(d, LW_BAD_MODEL,
                       "%s: rope_theta must be above 1 and partial_rotary_factor in (0, 1]; got "
                       "%g, %g, %g",
                       lw_config_name(config), c->full_theta, c->sliding_theta, c->full_share);
    }
    return LW_OK;
}

static lw_status read_config(lw_config *config, lfm3_config *c, lw_diag *d)
{
    const double eps_default = 1e-5;
    const uint32_t taps_default = 3, window_default = 0, context_default = 0;
    uint32_t context = 0; /* read by lw_family_context; here only a wrong one is refused */
    const char *type = NULL;
    double eps = eps_default;
    lw_status status = lw_config_text(config, "model_type", "", &type, d);
    c->sandwich = status == LW_OK && strcmp(type, "lfm3") == 0;
    if (status == LW_OK)
        status = lw_config_u32(config, "num_hidden_layers", NULL, LW_LIMIT_LAYERS, &c->layer_count, d);
    if (status == LW_OK)
        status = lw_config_u32(config, "hidden_size", NULL, LW_LIMIT_WIDTH / 4, &c->width, d);
    if (status == LW_OK) status = lw_config_u32(config, "vocab_size", NULL, LW_LIMIT_VOCAB, &c->vocab, d);
    if (status == LW_OK) status = lw_config_u32(config, "conv_L_cache", &taps_default, 64, &c->taps, d);
    if (status == LW_OK)
        status = lw_config_u32(config, "sliding_window", &window_default, 1 << 20, &c->window, d);
    if (status == LW_OK)
        status = lw_config_f64(config, "norm_eps|rms_norm_eps|block_norm_eps", &eps_default, &eps, d);
    if (status == LW_OK) {
        status = lw_config_u32(config, "max_position_embeddings", &context_default, UINT32_MAX, &context, d);
    }
    if (status == LW_OK)
        status = lw_config_bool(config, "tie_word_embeddings|tie_embedding", true, &c->tied, d);
    if (status == LW_OK) status = lw_read_attention_dims(config, c->width, &c->dims, d);
    if (status == LW_OK) status = read_ffn_width(config, c, d);
    if (status == LW_OK) status = read_layers(config, c, d);
    if (status == LW_OK) status = read_rope(config, c, d);
    if (status != LW_OK) return status;
    bool conv_bias = false, attention_bias = false, sliding = false;
    status = lw_config_bool(config, "conv_bias", false, &conv_bias, d);
    if (status == LW_OK) status = lw_config_bool(config, "attention_bias", false, &attention_bias, d);
    if (status != LW_OK) return status;
    if (conv_bias || attention_bias) {
        return lw_fail(d, LW_UNSUPPORTED, "%s: conv_bias and attention_bias are not served",
                       lw_config_name(config));
    }
    for (uint32_t i = 0; i < c->layer_count; i++) sliding = sliding || c->kinds[i] == LAYER_SLIDING;
    if (c->width == 0 || c->layer_count == 0 || c->vocab == 0 || c->ffn_width == 0 || c->taps == 0 ||
        (sliding && c->window == 0)) {
        return lw_fail(d, LW_BAD_MODEL,
                       "%s: a size is 0 (hidden_size %u, num_hidden_layers %u, vocab_size %u, "
                       "intermediate_size %u, conv_L_cache %u, sliding_window %u)",
                       lw_config_name(config), c->width, c->layer_count, c->vocab, c->ffn_width, c->taps,
                       c->window);
    }
    if (!(eps >= 0.0 && eps <= 1.0)) {
        return lw_fail(d, LW_BAD_MODEL, "%s: norm_eps is %g, but must be from 0 to 1",
                       lw_config_name(config), eps);
    }
    c->eps = (float)eps;
    return LW_OK;
}

/* ---- the forward ---- */

/* The output gate's own width tells whether it is one scalar a head or one a column. */
static lw_wref gate_matrix(lw_reader *r, const lfm3_config *c, uint32_t layer)
{
    lw_weight w;
    const uint32_t columns = c->dims.heads * c->dims.head_dim;
    const bool found =
        lw_names_matrix_any_rows(r->names, &w, c->width, "layers.%u.self_attn.gate_proj", layer);
    const uint32_t rows = found && w.rows == columns ? columns : c->dims.heads;
    return lw_read_matrix(r, rows, c->width, "layers.%u.self_attn.gate_proj", layer);
}

static void read_layer(lw_reader *r, const lfm3_config *c, lfm3_layer *w, uint32_t i)
{
    const uint32_t q_width = c->dims.heads * c->dims.head_dim, kv_width = c->dims.heads_kv * c->dims.head_dim;
    w->norm_in = lw_read_dense(r, 1, c->width, "layers.%u.operator_norm.weight", i);
    w->norm_ffn = lw_read_dense(r, 1, c->width, "layers.%u.ffn_norm.weight", i);
    if (c->sandwich) {
        w->norm_branch = lw_read_dense(r, 1, c->width, "layers.%u.post_operator_norm.weight", i);
        w->norm_ffn_out = lw_read_dense(r, 1, c->width, "layers.%u.post_ffn_norm.weight", i);
    }
    if (c->kinds[i] == LAYER_CONV) {
        w->conv_in = lw_read_matrix(r, 3 * c->width, c->width, "layers.%u.conv.in_proj", i);
        w->conv = lw_read_dense(r, c->width, c->taps, "layers.%u.conv.conv.weight", i);
        w->conv_out = lw_read_matrix(r, c->width, c->width, "layers.%u.conv.out_proj", i);
    } else {
        lfm3_attention *a = &w->attention;
        a->q = lw_read_matrix(r, q_width, c->width, "layers.%u.self_attn.q_proj", i);
        a->k = lw_read_matrix(r, kv_width, c->width, "layers.%u.self_attn.k_proj", i);
        a->v = lw_read_matrix(r, kv_width, c->width, "layers.%u.self_attn.v_proj", i);
        a->has_gate = c->sandwich;
        if (a->has_gate) a->gate = gate_matrix(r, c, i);
        a->out = lw_read_matrix(r, c->width, q_width, "layers.%u.self_attn.out_proj", i);
        a->q_norm = lw_read_dense(r, 1, c->dims.head_dim, "layers.%u.self_attn.q_layernorm.weight", i);
        a->k_norm = lw_read_dense(r, 1, c->dims.head_dim, "layers.%u.self_attn.k_layernorm.weight", i);
    }
    w->w1 = lw_read_matrix(r, c->ffn_width, c->width, "layers.%u.feed_forward.w1", i);
    w->w3 = lw_read_matrix(r, c->ffn_width, c->width, "layers.%u.feed_forward.w3", i);
    w->w2 = lw_read_matrix(r, c->width, c->ffn_width, "layers.%u.feed_forward.w2", i);
}

static lw_ref conv_block(lw_plan *p, const lfm3_config *c, const lfm3_layer *w, lw_ref h)
{
    const lw_ref bcv = lw_plan_linear(p, h, w->conv_in, LW_TYPE_BF16);      /* (rows, 3 width): B, C, v */
    const lw_ref b = lw_plan_view(p, bcv, 0, c->width);
    const lw_ref gate = lw_plan_view(p, bcv, c->width, c->width);
    const lw_ref v = lw_plan_view(p, bcv, 2 * c->width, c->width);
    const lw_sref tail = lw_plan_state_tail(p, "conv", c->width, c->taps);
    const lw_ref mixed = lw_plan_short_conv(p, tail, lw_plan_mul(p, b, v), w->conv);
    return lw_plan_linear(p, lw_plan_mul(p, gate, mixed), w->conv_out, LW_TYPE_BF16);
}

static lw_ref attention_block(lw_plan *p, const lfm3_config *c, const lfm3_layer *w, lw_ref h, bool sliding,
                              const uint32_t tables[2])
{
    const lfm3_attention *a = &w->attention;
    const uint32_t table = tables[sliding];
    lw_ref q = lw_plan_linear(p, h, a->q, LW_TYPE_BF16);                    /* (rows, heads, head_dim) */
    lw_ref k = lw_plan_linear(p, h, a->k, LW_TYPE_BF16);                    /* (rows, heads_kv, head_dim) */
    const lw_ref v = lw_plan_linear(p, h, a->v, LW_TYPE_BF16);
    q = lw_plan_rope(p, lw_plan_rms_norm(p, q, a->q_norm, c->eps, LW_NORM_TWICE), c->dims.heads, table);
    k = lw_plan_rope(p, lw_plan_rms_norm(p, k, a->k_norm, c->eps, LW_NORM_TWICE), c->dims.heads_kv, table);
    const lw_sref kv = lw_plan_state_kv(p, sliding ? "sliding" : "full", c->dims.heads_kv, c->dims.head_dim,
                                        sliding ? c->window : 0);
    lw_plan_kv_store(p, kv, k, v);
    lw_ref o = lw_plan_attend(p, kv, q, c->dims.heads, (float)(1.0 / sqrt((double)c->dims.head_dim)));
    if (a->has_gate) o = lw_plan_head_gate(p, o, lw_plan_linear(p, h, a->gate, LW_TYPE_BF16));
    return lw_plan_linear(p, o, a->out, LW_TYPE_BF16);
}

static lw_ref layer(lw_plan *p, const lfm3_config *c, const lfm3_layer *w, lw_ref x, const uint32_t tables[2])
{
    const layer_kind kind = c->kinds[p->layer];
    lw_ref h = lw_plan_rms_norm(p, x, w->norm_in, c->eps, LW_NORM_TWICE);
    h = kind == LAYER_CONV ? conv_block(p, c, w, h)
                           : attention_block(p, c, w, h, kind == LAYER_SLIDING, tables);
    if (p->layer + 1 == c->layer_count) { /* nothing past this point reads other rows */
        x = lw_plan_take_wanted(p, x);
        h = lw_plan_take_wanted(p, h);
    }
    if (c->sandwich) h = lw_plan_rms_norm(p, h, w->norm_branch, c->eps, LW_NORM_TWICE);
    x = lw_plan_add(p, x, h);

    h = lw_plan_rms_norm(p, x, w->norm_ffn, c->eps, LW_NORM_TWICE);
    const lw_ref gate = lw_plan_linear(p, h, w->w1, LW_TYPE_BF16);
    const lw_ref up = lw_plan_linear(p, h, w->w3, LW_TYPE_BF16);
    h = lw_plan_linear(p, lw_plan_swiglu(p, gate, up), w->w2, LW_TYPE_BF16);
    if (c->sandwich) h = lw_plan_rms_norm(p, h, w->norm_ffn_out, c->eps, LW_NORM_TWICE);
    x = lw_plan_add(p, x, h);
    lw_plan_name(p, x, "layer.%u", p->layer);
    return x;
}

/* Both rotary tables pair (i, i + head_dim / 2); a frequency of 0 leaves its pair alone. */
static void rope_tables(lw_plan *p, const lfm3_config *c, uint32_t tables[2])
{
    double frequency[LW_ROPE_HALF_MAX] = { 0 };
    const uint32_t half = c->dims.head_dim / 2;
    const uint32_t turning = (uint32_t)(c->full_share * half);
    for (uint32_t i = 0; i < half; i++) {
        frequency[i] = i < turning ? pow(c->full_theta, -2.0 * i / c->dims.head_dim) : 0.0;
    }
    tables[0] = lw_plan_rope_table(p, frequency, half);
    for (uint32_t i = 0; i < half; i++) frequency[i] = pow(c->sliding_theta, -2.0 * i / c->dims.head_dim);
    tables[1] = lw_plan_rope_table(p, frequency, half);
}

/* Weights that are no layer's. */
typedef struct lfm3_ends { lw_wref embed, head, norm; } lfm3_ends;

static void forward(lw_plan *p, const lfm3_config *c, const lfm3_layer *layers, const lfm3_ends *ends)
{
    uint32_t tables[2];
    rope_tables(p, c, tables);
    lw_plan_entry_begin(p, "main");
    lw_ref x = lw_plan_embed(p, ends->embed);
    for (uint32_t i = 0; i < c->layer_count; i++) {
        p->layer = i;
        x = layer(p, c, &layers[i], x, tables);
    }
    x = lw_plan_rms_norm(p, x, ends->norm, c->eps, LW_NORM_TWICE);
    const lw_ref logits = lw_plan_linear(p, x, ends->head, LW_TYPE_F32);
    lw_plan_name(p, logits, "logits");
    lw_plan_entry_end(p, logits);
}

static lw_status build(lw_reader *r, const lfm3_config *c, lw_diag *d)
{
    lfm3_layer *layers = lw_arena_take_array(&r->plan->arena, c->layer_count, sizeof *layers);
    if (layers == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for %u layers", c->layer_count);
    lfm3_ends ends;
    ends.embed = lw_read_matrix(r, c->vocab, c->width, "embed_tokens");
    ends.norm = lw_read_dense(r, 1, c->width, "embedding_norm.weight");
    ends.head = c->tied ? ends.embed : lw_read_matrix(r, c->vocab, c->width, "lm_head");
    for (uint32_t i = 0; i < c->layer_count; i++) read_layer(r, c, &layers[i], i);
    const lw_status status = lw_names_finish(r->names, d);
    if (status != LW_OK) return status;
    LW_ASSERT(r->is_complete);
    forward(r->plan, c, layers, &ends);
    return LW_OK;
}

static lw_status record(const lw_checkpoint *checkpoint, const lw_record_options *record_options,
                        lw_plan *plan, lw_diag *d)
{
    lfm3_config *c = lw_arena_take(&plan->arena, sizeof *c);
    if (c == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for the model's config");
    lw_names *names = NULL;
    lw_status status = read_config(lw_checkpoint_config(checkpoint), c, d);
    if (status != LW_OK) return status;
    const lw_names_options options = { .prefixes = prefixes, .aliases = aliases, .ignored = ignored };
    status = lw_names_make(checkpoint, &options, &names, d);
    if (status != LW_OK) return status;
    lw_reader reader = { .plan = plan, .names = names, .is_complete = true };
    status = build(&reader, c, d);
    if (status == LW_OK) lw_record_tell_unused(record_options, names);
    lw_names_free(names);
    return status;
}

const lw_family lw_family_lfm3 = { .name = "lfm3", .model_types = model_types, .record = record };
