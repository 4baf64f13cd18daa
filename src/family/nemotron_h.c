/* Nemotron-H: blocks of one norm and one mixer each - Mamba-2, attention without positions, dense relu^2 or
 * sparse relu^2 experts - in an order that the config spells. The checkpoint's MTP layers are recorded as
 * draft head.
 *
 * Easy to get wrong: in_proj's rows are gate, x | B | C, step; the norm of Mamba-2's output comes after its
 * gate and covers one group of columns each; the router's bias decides which experts are chosen and not what
 * they weigh; the head joins the embedding and the hidden row in this order. rope_theta may stand in the
 * config and is unused.
 */
#include "family/family.h"
#include "family/reader.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef enum block_kind { BLOCK_MAMBA, BLOCK_ATTENTION, BLOCK_MLP, BLOCK_MOE } block_kind;

typedef struct nemo_config {
    uint32_t block_count, width, vocab;
    lw_attention_dims dims;
    lw_heads keys, values;               /* of Mamba-2: groups of B and C, heads of x */
    uint32_t taps;
    float step_min, step_max;
    uint32_t ffn_width;                  /* of dense blocks */
    lw_route_params route;
    uint32_t expert_width, shared_width; /* shared 0: none */
    uint32_t latent;                     /* width that experts see; 0: the model's */
    float eps;
    bool tied;
    bool residual_f32;                   /* the sum of the blocks is kept in fp32 */
    bool has_head;
    bool has_moe, has_mamba, has_mlp;
    block_kind kinds[LW_LIMIT_LAYERS];
} nemo_config;

/* A matrix and its bias, whose index is LW_NONE where there is none. */
typedef struct nemo_linear {
    lw_wref w, bias;
} nemo_linear;

/* One block, of the model or of its head; what its kind does not have stays unset. */
typedef struct nemo_block {
    lw_wref norm;
    nemo_linear in, out;                 /* Mamba-2 */
    lw_wref conv, conv_bias, a_log, d, dt_bias, norm_out;
    nemo_linear q, k, v, o;              /* attention */
    nemo_linear up, down;                /* dense, or the shared expert */
    lw_wref router, router_bias;
    nemo_linear expert_up, expert_down;  /* stacks; biases as the shared expert and the latent have them */
    nemo_linear latent_in, latent_out;
} nemo_block;

typedef struct nemo_head {
    lw_wref norm_embed, norm_hidden, join, norm_out;
    nemo_block attention, moe;
} nemo_head;

typedef struct nemo_weights {
    lw_wref embed, norm, logits;
    nemo_block *blocks;                  /* [block_count] */
    nemo_head head;
} nemo_weights;

static const char *const model_types[] = { "nemotron_h", NULL };
static const char *const prefixes[] = { "backbone.", "model.", "", NULL };
static const char *const ignored[] = { NULL };
static const char *const ignored_without_head[] = { "mtp.", NULL };
static const lw_alias aliases[] = {
    { "embeddings", "embed_tokens" },
    { "norm_f", "norm" },
    { NULL, NULL },
};

/* ---- config ---- */

static bool kind_of_name(const char *name, block_kind *out)
{
    static const struct { const char *name; block_kind kind;
    } names[] = {
        { "mamba", BLOCK_MAMBA }, { "mamba2", BLOCK_MAMBA },        { "linear_attention", BLOCK_MAMBA },
        { "moe", BLOCK_MOE },     { "attention", BLOCK_ATTENTION }, { "full_attention", BLOCK_ATTENTION },
        { "mlp", BLOCK_MLP },
    };
    for (size_t i = 0; name != NULL && i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i].name) != 0) continue;
        *out = names[i].kind;
        return true;
    }
    return false;
}

static lw_status read_kinds_list(const lw_config *config, const json_t *list, nemo_config *c, lw_diag *d)
{
    c->block_count = (uint32_t)json_array_size(list);
    if (!json_is_array(list) || c->block_count == 0 || json_array_size(list) > LW_LIMIT_LAYERS) {
        return lw_fail(d, LW_BAD_MODEL, "%s: layers_block_type must be a list of 1 to %d names",
                       lw_config_name(config), LW_LIMIT_LAYERS);
    }
    for (uint32_t i = 0; i < c->block_count; i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (kind_of_name(name, &c->kinds[i])) continue;
        return lw_fail(d, LW_UNSUPPORTED,
                       "%s: layers_block_type[%u] is \"%s\"; mamba, attention, mlp and moe are served",
                       lw_config_name(config), i, name == NULL ? "?" : name);
    }
    return LW_OK;
}

/* "M" Mamba-2, "E" experts, "*" attention, "-" dense. */
static lw_status read_kinds_pattern(const lw_config *config, const char *pattern, nemo_config *c, lw_diag *d)
{
    static const char letters[] = { 'M', '*', '-', 'E' }; /* in the order of block_kind */
    const size_t count = strlen(pattern);
    if (count == 0 || count > LW_LIMIT_LAYERS) {
        return lw_fail(d, LW_BAD_MODEL, "%s: hybrid_override_pattern has %zu letters, but 1 to %d are served",
                       lw_config_name(config), count, LW_LIMIT_LAYERS);
    }
    c->block_count = (uint32_t)count;
    for (uint32_t i = 0; i < c->block_count; i++) {
        const char *at = memchr(letters, pattern[i], sizeof letters);
        if (at == NULL) {
            return lw_fail(d, LW_UNSUPPORTED,
                           "%s: hybrid_override_pattern has '%c'; M, E, * and - are served",
                           lw_config_name(config), pattern[i]);
        }
        c->kinds[i] = (block_kind)(at - letters);
    }
    return LW_OK;
}

static lw_status read_kinds(const lw_config *config, nemo_config *c, lw_diag *d)
{
    const char *pattern = NULL;
    const json_t *list = lw_config_get(config, "layers_block_type|layer_types");
    const uint32_t none = 0;
    uint32_t layers = 0;
    lw_status status = lw_config_text(config, "hybrid_override_pattern", NULL, &pattern, d);
    if (status == LW_OK)
        status = lw_config_u32(config, "num_hidden_layers", &none, LW_LIMIT_LAYERS, &layers, d);
    if (status != LW_OK) return status;
    if (list != NULL) status = read_kinds_list(config, list, c, d);
    else if (pattern != NULL) status = read_kinds_pattern(config, pattern, c, d);
    else
        status =
            lw_fail(d, LW_BAD_MODEL, "%s: neither layers_block_type nor hybrid_override_pattern is there",
                    lw_config_name(config));
    if (status != LW_OK) return status;
    if (layers != 0 && layers != c->block_count) {
        return lw_fail(d, LW_BAD_MODEL, "%s: num_hidden_layers is %u, but the pattern has %u blocks",
                       lw_config_name(config), layers, c->block_count);
    }
    for (uint32_t i = 0; i < c->block_count; i++) {
        c->has_moe |= c->kinds[i] == BLOCK_MOE;
        c->has_mamba |= c->kinds[i] == BLOCK_MAMBA;
        c->has_mlp |= c->kinds[i] == BLOCK_MLP;
    }
    return LW_OK;
}

/* Bounds of a step after softplus: [low, high], where high may be Infinity. */
static lw_status read_step_limit(const lw_config *config, nemo_config *c, lw_diag *d)
{
    const json_t *limit = lw_config_get(config, "time_step_limit");
    double low = 0.0, high = (double)INFINITY;
    const bool is_right = limit == NULL || (json_is_array(limit) && json_array_size(limit) == 2 &&
                                            lw_config_number(json_array_get(limit, 0), &low) &&
                                            lw_config_number(json_array_get(limit, 1), &high));
    if (!is_right || !(low >= 0.0 && low <= high && isfinite(low))) {
        return lw_fail(d, LW_BAD_MODEL, "%s: time_step_limit is not [low, high] with 0 <= low <= high",
                       lw_config_name(config));
    }
    c->step_min = (float)low;
    c->step_max = (float)high;
    return LW_OK;
}

static lw_status read_mamba(const lw_config *config, nemo_config *c, lw_diag *d)
{
    enum { HEADS_MAX = 4096, TAPS_MAX = 64 };
    const uint32_t taps_default = 4, groups_default = 8;
    lw_status status = lw_config_u32(config, "mamba_num_heads", NULL, HEADS_MAX, &c->values.count, d);
    if (status == LW_OK)
        status = lw_config_u32(config, "mamba_head_dim", NULL, HEADS_MAX, &c->values.width, d);
    if (status == LW_OK)
        status =
            lw_config_u32(config, "n_groups|mamba_n_groups", &groups_default, HEADS_MAX, &c->keys.count, d);
    if (status == LW_OK)
        status = lw_config_u32(config, "ssm_state_size|mamba_d_state", NULL, HEADS_MAX, &c->keys.width, d);
    if (status == LW_OK)
        status = lw_config_u32(config, "conv_kernel|mamba_d_conv", &taps_default, TAPS_MAX, &c->taps, d);
    if (status == LW_OK) status = read_step_limit(config, c, d);
    if (status != LW_OK) return status;
    if (c->keys.count == 0 || c->values.count == 0 || c->values.count % c->keys.count != 0 ||
        c->keys.width == 0 || c->values.width == 0 || c->taps == 0 ||
        (uint64_t)c->values.count * c->values.width > LW_LIMIT_WIDTH / 4 ||
        (uint64_t)c->keys.count * c->keys.width > LW_LIMIT_WIDTH / 4) {
        return lw_fail(d, LW_BAD_MODEL,
                       "%s: mamba_num_heads %u of mamba_head_dim %u, n_groups %u of ssm_state_size %u and "
                       "conv_kernel %u have no shape together",
                       lw_config_name(config), c->values.count, c->values.width, c->keys.count, c->keys.width,
                       c->taps);
    }
    return LW_OK;
}

static lw_status read_moe(const lw_config *config, nemo_config *c, lw_diag *d)
{
    const uint32_t one = 1, none = 0;
    const double scale_default = 1.0;
    double scale = scale_default;
    uint32_t shared = 0;
    lw_route_params *r = &c->route;
    r->kind = LW_ROUTER_SIGMOID;
    lw_status status = lw_config_u32(config, "n_routed_experts", NULL, 4096, &r->experts, d);
    if (status == LW_OK) status = lw_config_u32(config, "num_experts_per_tok", NULL, LW_TOP_MAX, &r->top, d);
    if (status == LW_OK) status = lw_config_u32(config, "n_group", &one, LW_TOP_MAX, &r->groups, d);
    if (status == LW_OK) status = lw_config_u32(config, "topk_group", &one, LW_TOP_MAX, &r->top_groups, d);
    if (status == LW_OK) status = lw_config_bool(config, "norm_topk_prob", true, &r->normalise, d);
    if (status == LW_OK) status = lw_config_f64(config, "routed_scaling_factor", &scale_default, &scale, d);
    if (status == LW_OK)
        status = lw_config_u32(config, "moe_intermediate_size", NULL, LW_LIMIT_WIDTH, &c->expert_width, d);
    if (status == LW_OK) status = lw_config_u32(config, "n_shared_experts", &one, 64, &shared, d);
    if (status == LW_OK) {
        status = lw_config_u32(config, "moe_shared_expert_intermediate_size", &none, LW_LIMIT_WIDTH,
                               &c->shared_width, d);
    }
    if (status == LW_OK)
        status = lw_config_u32(config, "moe_latent_size", &none, LW_LIMIT_WIDTH / 4, &c->latent, d);
    if (status != LW_OK) return status;
    if (shared == 0) c->shared_width = 0;
    r->scale = (float)scale;
    if (!(r->scale > 0.0f) || !isfinite(r->scale)) {
        return lw_fail(d, LW_BAD_MODEL, "%s: routed_scaling_factor %g is no positive number",
                       lw_config_name(config), scale);
    }
    if (r->top == 0 || r->groups == 0 || r->experts == 0 || r->experts % r->groups != 0 ||
        r->top_groups == 0 || r->top_groups > r->groups || r->top > r->experts / r->groups * r->top_groups ||
        c->expert_width == 0) {
        return lw_fail(d, LW_BAD_MODEL,
                       "%s: num_experts_per_tok %u, n_routed_experts %u, moe_intermediate_size %u, "
                       "topk_group %u and n_group %u have no shape together",
                       lw_config_name(config), r->top, r->experts, c->expert_width, r->top_groups, r->groups);
    }
    return LW_OK;
}

static lw_status read_mlp(const lw_config *config, nemo_config *c, lw_diag *d)
{
    const lw_status status =
        lw_config_u32(config, "intermediate_size", NULL, LW_LIMIT_WIDTH, &c->ffn_width, d);
    if (status != LW_OK || c->ffn_width > 0) return status;
    return lw_fail(d, LW_BAD_MODEL, "%s: intermediate_size is 0", lw_config_name(config));
}

static lw_status refuse_variants(const lw_config *config, lw_diag *d)
{
    const char *mlp = NULL, *mamba = NULL;
    const uint32_t none = 0;
    uint32_t window = 0;
    lw_status status = lw_config_text(config, "mlp_hidden_act", "relu2", &mlp, d);
    if (status == LW_OK) status = lw_config_u32(config, "sliding_window", &none, UINT32_MAX, &window, d);
    if (status == LW_OK) status = lw_config_text(config, "mamba_hidden_act", "silu", &mamba, d);
    if (status != LW_OK) return status;
    if (window != 0) {
        return lw_fail(d, LW_UNSUPPORTED, "%s: sliding_window %u; attention over all positions is served",
                       lw_config_name(config), window);
    }
    if (strcmp(mlp, "relu2") != 0 || strcmp(mamba, "silu") != 0) {
        return lw_fail(d, LW_UNSUPPORTED,
                       "%s: mlp_hidden_act %s and mamba_hidden_act %s; served are relu2 and silu",
                       lw_config_name(config), mlp, mamba);
    }
    return LW_OK;
}

static lw_status read_config(const lw_config *config, nemo_config *c, lw_diag *d)
{
    const double eps_default = 1e-5;
    const uint32_t context_default = 0;
    uint32_t context = 0; /* read by lw_family_context; here only a wrong one is refused */
    double eps = eps_default;
    lw_status status = lw_config_u32(config, "hidden_size", NULL, LW_LIMIT_WIDTH / 4, &c->width, d);
    if (status == LW_OK) status = lw_config_u32(config, "vocab_size", NULL, LW_LIMIT_VOCAB, &c->vocab, d);
    if (status == LW_OK)
        status = lw_config_f64(config, "layer_norm_epsilon|norm_eps|rms_norm_eps", &eps_default, &eps, d);
    if (status == LW_OK)
        status = lw_config_u32(config, "max_position_embeddings", &context_default, UINT32_MAX, &context, d);
    if (status == LW_OK) status = lw_config_bool(config, "tie_word_embeddings", false, &c->tied, d);
    if (status == LW_OK) status = lw_config_bool(config, "residual_in_fp32", false, &c->residual_f32, d);
    if (status != LW_OK) return status;
    if (c->width == 0 || c->vocab == 0 || !(eps >= 0.0 && eps <= 1.0)) {
        return lw_fail(d, LW_BAD_MODEL,
                       "%s: hidden_size %u, vocab_size %u and layer_norm_epsilon %g make no model",
                       lw_config_name(config), c->width, c->vocab, eps);
    }
    c->eps = (float)eps;
    status = lw_read_attention_dims(config, c->width, &c->dims, d);
    if (status == LW_OK) status = read_kinds(config, c, d);
    if (status == LW_OK && c->has_mamba) status = read_mamba(config, c, d);
    if (status == LW_OK && c->has_moe) status = read_moe(config, c, d);
    if (status == LW_OK && c->has_mlp) status = read_mlp(config, c, d);
    if (status == LW_OK) status = refuse_variants(config, d);
    return status;
}

/* ---- weights ---- */

static nemo_linear read_linear(lw_reader *r, uint32_t rows, uint32_t cols, const char *at, const char *part)
{
    nemo_linear out = { .w = lw_read_matrix(r, rows, cols, "%s.%s", at, part), .bias = { LW_NONE } };
    if (lw_names_has(r->names, "%s.%s.bias", at, part)) {
        out.bias = lw_read_dense(r, 1, rows, "%s.%s.bias", at, part);
    }
    return out;
}

static void read_mamba_weights(lw_reader *r, const nemo_config *c, nemo_block *w, const char *at)
{
    const uint32_t inner = c->values.count * c->values.width;
    const uint32_t mixed = inner + 2 * c->keys.count * c->keys.width, heads = c->values.count;
    w->in = read_linear(r, inner + mixed + heads, c->width, at, "mixer.in_proj");
    w->out = read_linear(r, c->width, inner, at, "mixer.out_proj");
    w->conv = lw_read_dense(r, mixed, c->taps, "%s.mixer.conv1d.weight", at);
    w->conv_bias = (lw_wref){ LW_NONE };
    if (lw_names_has(r->names, "%s.mixer.conv1d.bias", at))
        w->conv_bias = lw_read_dense(r, 1, mixed, "%s.mixer.conv1d.bias", at);
    w->a_log = lw_read_dense(r, 1, heads, "%s.mixer.A_log", at);
    w->d = lw_read_dense(r, 1, heads, "%s.mixer.D", at);
    w->dt_bias = lw_read_dense(r, 1, heads, "%s.mixer.dt_bias", at);
    w->norm_out = lw_read_dense(r, 1, inner, "%s.mixer.norm.weight", at);
}

static void read_attention_weights(lw_reader *r, const nemo_config *c, nemo_block *w, const char *at)
{
    const uint32_t q_width = c->dims.heads * c->dims.head_dim, kv_width = c->dims.heads_kv * c->dims.head_dim;
    w->q = read_linear(r, q_width, c->width, at, "mixer.q_proj");
    w->k = read_linear(r, kv_width, c->width, at, "mixer.k_proj");
    w->v = read_linear(r, kv_width, c->width, at, "mixer.v_proj");
    w->o = read_linear(r, c->width, q_width, at, "mixer.o_proj");
}

/* Fused stacks of transformers have no biases; a publisher's file has one tensor for each expert. */
static nemo_linear read_experts(lw_reader *r, const uint32_t dims[3], const lw_stack_names names[2],
                                const char *parent)
{
    const uint32_t vectors[2] = { dims[0], dims[1] };
    return (nemo_linear){ .w = lw_read_stack(r, dims, &names[0], parent),
                          .bias = lw_read_vectors(r, vectors, &names[1], parent) };
}

static void read_moe_weights(lw_reader *r, const nemo_config *c, nemo_block *w, const char *at)
{
    const uint32_t seen = c->latent == 0 ? c->width : c->latent;
    const uint32_t up[3] = { c->route.experts, c->expert_width, seen };
    const uint32_t down[3] = { c->route.experts, seen, c->expert_width };
    w->router = lw_read_matrix(r, c->route.experts, c->width, "%s.mixer.gate", at);
    w->router_bias = lw_read_dense(r, 1, c->route.experts, "%s.mixer.gate.e_score_correction_bias", at);
    const lw_stack_names up_names[2] = {
        { .whole = "switch_mlp.fc1", .fused = "experts.up_proj", .fused_rows = c->expert_width,
          .each = "experts.*.up_proj" },
        { .whole = "switch_mlp.fc1.bias", .each = "experts.*.up_proj.bias" },
    };
    const lw_stack_names down_names[2] = {
        { .whole = "switch_mlp.fc2", .fused = "experts.down_proj", .fused_rows = seen,
          .each = "experts.*.down_proj" },
        { .whole = "switch_mlp.fc2.bias", .each = "experts.*.down_proj.bias" },
    };
    char parent[64];
    snprintf(parent, sizeof parent, "%s.mixer", at);
    w->expert_up = read_experts(r, up, up_names, parent);
    w->expert_down = read_experts(r, down, down_names, parent);
    if (c->latent != 0) {
        w->latent_in = read_linear(r, c->latent, c->width, at, "mixer.fc1_latent_proj");
        w->latent_out = read_linear(r, c->width, c->latent, at, "mixer.fc2_latent_proj");
    }
    if (c->shared_width == 0) return;
    w->up = read_linear(r, c->shared_width, c->width, at, "mixer.shared_experts.up_proj");
    w->down = read_linear(r, c->width, c->shared_width, at, "mixer.shared_experts.down_proj");
}

static void read_block_weights(lw_reader *r, const nemo_config *c, block_kind kind, nemo_block *w,
                               const char *at)
{
    w->norm = lw_read_dense(r, 1, c->width, "%s.norm.weight", at);
    switch (kind) {
    case BLOCK_MAMBA: read_mamba_weights(r, c, w, at); break;
    case BLOCK_ATTENTION: read_attention_weights(r, c, w, at); break;
    case BLOCK_MOE: read_moe_weights(r, c, w, at); break;
    case BLOCK_MLP:
        w->up = read_linear(r, c->ffn_width, c->width, at, "mixer.up_proj");
        w->down = read_linear(r, c->width, c->ffn_width, at, "mixer.down_proj");
        break;
    }
}

static void read_head_weights(lw_reader *r, const nemo_config *c, nemo_head *w)
{
    w->norm_embed = lw_read_dense(r, 1, c->width, "mtp.layers.0.enorm.weight");
    w->norm_hidden = lw_read_dense(r, 1, c->width, "mtp.layers.0.hnorm.weight");
    w->join = lw_read_matrix(r, c->width, 2 * c->width, "mtp.layers.0.eh_proj");
    w->norm_out = lw_read_dense(r, 1, c->width, "mtp.layers.1.final_layernorm.weight");
    read_block_weights(r, c, BLOCK_ATTENTION, &w->attention, "mtp.layers.0");
    read_block_weights(r, c, BLOCK_MOE, &w->moe, "mtp.layers.1");
}

static lw_status read_weights(lw_reader *r, const nemo_config *c, nemo_weights *w, lw_diag *d)
{
    w->blocks = lw_arena_take_array(&r->plan->arena, c->block_count, sizeof *w->blocks);
    if (w->blocks == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for %u blocks", c->block_count);
    w->embed = lw_read_matrix(r, c->vocab, c->width, "embeddings");
    w->norm = lw_read_dense(r, 1, c->width, "norm_f.weight");
    w->logits = c->tied ? w->embed : lw_read_matrix(r, c->vocab, c->width, "lm_head");
    for (uint32_t i = 0; i < c->block_count; i++) {
        char at[32];
        snprintf(at, sizeof at, "layers.%u", i);
        read_block_weights(r, c, c->kinds[i], &w->blocks[i], at);
    }
    if (c->has_head) read_head_weights(r, c, &w->head);
    const lw_status status = lw_names_finish(r->names, d);
    LW_ASSERT(status != LW_OK || r->is_complete);
    return status;
}

/* ---- the forward ---- */

typedef struct nemo_build {
    lw_plan *p;
    const nemo_config *c;
    const nemo_weights *w;
    lw_sref hidden, head_kv;             /* of the draft head */
} nemo_build;

static lw_ref linear(lw_plan *p, lw_ref x, const nemo_linear *w)
{
    if (w->bias.index == LW_NONE) return lw_plan_linear(p, x, w->w, LW_TYPE_BF16);
    return lw_plan_bias(p, lw_plan_linear(p, x, w->w, LW_TYPE_F32), w->bias);
}

static lw_ref experts(lw_plan *p, lw_ref x, lw_ref route, const nemo_linear *w)
{
    if (w->bias.index == LW_NONE) return lw_plan_expert_linear(p, x, route, w->w);
    return lw_plan_expert_bias(p, lw_plan_expert_linear_f32(p, x, route, w->w), route, w->bias);
}

static lw_ref norm(const nemo_build *b, lw_ref x, lw_wref w)
{
    return lw_plan_rms_norm(b->p, x, w, b->c->eps, LW_NORM_TWICE);
}

static lw_ref mamba_mixer(const nemo_build *b, const nemo_block *w, lw_ref h)
{
    lw_plan *p = b->p;
    const nemo_config *c = b->c;
    const uint32_t inner = c->values.count * c->values.width;
    const uint32_t mixed = inner + 2 * c->keys.count * c->keys.width;
    const lw_sref tail = lw_plan_state_tail(p, "conv", mixed, c->taps);
    const lw_recurrence state = lw_plan_recurrence(p, "ssm", c->keys, c->values);
    const lw_ref all = linear(p, h, &w->in);                                 /* (rows, z | x B C | step) */
    const lw_ref z = lw_plan_view(p, all, 0, inner);
    const lw_ssm_inputs in = {
        .x = lw_plan_conv_silu(p, tail, lw_plan_view(p, all, inner, mixed), w->conv, w->conv_bias),
        .step = lw_plan_view(p, all, inner + mixed, c->values.count),
    };
    const lw_ssm_weights weights = { .a_log = w->a_log, .d = w->d, .dt_bias = w->dt_bias,
                                     .step_min = c->step_min, .step_max = c->step_max };
    const lw_ref y = lw_plan_ssm(p, state, in, &weights);
    const lw_norm_gate params = { .segment = inner / c->keys.count, .eps = c->eps, .gate_first = true };
    return linear(p, lw_plan_norm_gate(p, y, z, w->norm_out, params), &w->out);
}

/* Stores the rows' keys and values. */
static void remember(const nemo_build *b, const nemo_block *w, lw_ref h, lw_sref kv)
{
    const lw_ref k = linear(b->p, h, &w->k);                                 /* (rows, heads_kv, head_dim) */
    lw_plan_kv_store(b->p, kv, k, linear(b->p, h, &w->v));
}

static lw_ref attention_mixer(const nemo_build *b, const nemo_block *w, lw_ref h, lw_sref kv)
{
    const lw_ref q = linear(b->p, h, &w->q);                                 /* (rows, heads, head_dim) */
    remember(b, w, h, kv);
    const lw_attention params = {
        .heads = b->c->dims.heads,
        .first = kv.index == b->head_kv.index ? 1 : 0,
        .scale = (float)(1.0 / sqrt((double)b->c->dims.head_dim)),
    };
    return linear(b->p, lw_plan_attend_from(b->p, kv, q, params), &w->o);
}

static lw_ref relu2_mixer(lw_plan *p, const nemo_block *w, lw_ref h)
{
    return linear(p, lw_plan_relu2(p, linear(p, h, &w->up)), &w->down);
}

static lw_ref moe_mixer(const nemo_build *b, const nemo_block *w, lw_ref h)
{
    lw_plan *p = b->p;
    const lw_ref logits = lw_plan_linear(p, h, w->router, LW_TYPE_F32);
    const lw_ref route = lw_plan_route(p, logits, w->router_bias, &b->c->route);
    const lw_ref seen = b->c->latent == 0 ? h : linear(p, h, &w->latent_in);
    const lw_ref up = experts(p, seen, route, &w->expert_up);
    const lw_ref each = experts(p, lw_plan_relu2(p, up), route, &w->expert_down);
    lw_ref routed = lw_plan_expert_sum(p, each, route);
    if (b->c->latent != 0) routed = linear(p, routed, &w->latent_out);
    return b->c->shared_width == 0 ? routed : lw_plan_add(p, routed, relu2_mixer(p, w, h));
}

static lw_ref mixer(const nemo_build *b, block_kind kind, const nemo_block *w, lw_ref h)
{
    switch (kind) {
    case BLOCK_MAMBA: return mamba_mixer(b, w, h);
    case BLOCK_MLP: return relu2_mixer(b->p, w, h);
    case BLOCK_MOE: return moe_mixer(b, w, h);
    case BLOCK_ATTENTION: break;
    }
    const lw_sref kv = lw_plan_state_kv(b->p, "full", b->c->dims.heads_kv, b->c->dims.head_dim, 0);
    return attention_mixer(b, w, h, kv);
}

/* Whether nothing past this block looks at other rows than the wanted ones. */
static bool is_last_to_look_back(const nemo_config *c, uint32_t block)
{
    for (uint32_t i = block + 1; i < c->block_count; i++) {
        if (c->kinds[i] == BLOCK_MAMBA || c->kinds[i] == BLOCK_ATTENTION) return false;
    }
    return !c->has_head && (c->kinds[block] == BLOCK_MAMBA || c->kinds[block] == BLOCK_ATTENTION);
}

static lw_ref block(const nemo_build *b, uint32_t i, lw_ref x)
{
    lw_plan *p = b->p;
    lw_ref r = mixer(b, b->c->kinds[i], &b->w->blocks[i], norm(b, x, b->w->blocks[i].norm));
    if (is_last_to_look_back(b->c, i)) {
        x = lw_plan_take_wanted(p, x);
        r = lw_plan_take_wanted(p, r);
    }
    x = lw_plan_add(p, x, r);
    lw_plan_name(p, x, "layer.%u", i);
    return x;
}

/* The head's input from the rows' embeddings and the hidden rows before them. */
static lw_ref head_input(const nemo_build *b, lw_ref embedded)
{
    const nemo_head *w = &b->w->head;
    const lw_ref e = norm(b, embedded, w->norm_embed);
    const lw_ref g = norm(b, lw_plan_tail_before(b->p, b->hidden), w->norm_hidden);
    return lw_plan_linear(b->p, lw_plan_concat(b->p, e, g), w->join, LW_TYPE_BF16);
}

/* Part of the forward: keeps the rows' hidden values and what the head's attention remembers of them, so that
 * the head's state is like every other, true for all kept rows. */
static void head_absorb(const nemo_build *b, lw_ref embedded, lw_ref hidden)
{
    const nemo_block *w = &b->w->head.attention;
    lw_plan_tail_store(b->p, b->hidden, hidden);
    remember(b, w, norm(b, head_input(b, embedded), w->norm), b->head_kv);
}

static void record_head(const nemo_build *b)
{
    lw_plan *p = b->p;
    const nemo_head *w = &b->w->head;
    lw_plan_entry_begin(p, "mtp");
    lw_ref x = head_input(b, lw_plan_embed(p, b->w->embed));
    x = lw_plan_add(p, x, attention_mixer(b, &w->attention, norm(b, x, w->attention.norm), b->head_kv));
    x = lw_plan_add(p, x, moe_mixer(b, &w->moe, norm(b, x, w->moe.norm)));
    x = norm(b, x, w->norm_out);
    lw_plan_name(p, x, "head");
    lw_plan_tail_store(p, b->hidden, x);
    const lw_ref logits = lw_plan_linear(p, lw_plan_take_wanted(p, x), b->w->logits, LW_TYPE_F32);
    lw_plan_entry_end(p, logits);
}

static void record_model(nemo_build *b)
{
    lw_plan *p = b->p;
    const nemo_config *c = b->c;
    lw_plan_entry_begin(p, "main");
    const lw_ref embedded = lw_plan_embed(p, b->w->embed);
    lw_ref x = c->residual_f32 ? lw_plan_widen(p, embedded) : embedded;
    for (uint32_t i = 0; i < c->block_count; i++) {
        p->layer = i;
        x = block(b, i, x);
    }
    if (p->values[x.index].space == LW_SPACE_ROWS && !c->has_head) x = lw_plan_take_wanted(p, x);
    x = norm(b, x, b->w->norm);
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

static lw_status record(const lw_checkpoint *checkpoint, const lw_record_options *options, lw_plan *plan,
                        lw_diag *d)
{
    nemo_config *c = lw_arena_take(&plan->arena, sizeof *c);
    if (c == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for the model's config");
    lw_status status = read_config(lw_checkpoint_config(checkpoint), c, d);
    if (status != LW_OK) return status;
    const lw_names_options naming = { .prefixes = prefixes, .aliases = aliases,
                                      .ignored = options->head ? ignored : ignored_without_head };
    lw_names *names = NULL;
    status = lw_names_make(checkpoint, &naming, &names, d);
    if (status != LW_OK) return status;
    c->has_head = options->head && c->has_moe && lw_names_has(names, "mtp.layers.0.enorm");
    lw_reader reader = { .plan = plan, .names = names, .is_complete = true };
    nemo_weights weights = { .embed = { LW_NONE } };
    status = read_weights(&reader, c, &weights, d);
    if (status == LW_OK) {
        nemo_build b = { .p = plan, .c = c, .w = &weights, .hidden = { LW_NONE }, .head_kv = { LW_NONE } };
        record_model(&b);
        if (c->has_head) record_head(&b);
        lw_record_tell_unused(options, names);
    }
    lw_names_free(names);
    return status;
}

const lw_family lw_family_nemotron_h = { .name = "nemotron_h", .model_types = model_types, .record = record };
