/* Shapes and images of synthetic checkpoints; see synth_image.h. Matrices are quantised as MLX does it;
 * routers, which it leaves in 16 or 8 bits, are bf16. qwen3.5-0.8b is what is publicly said of that model: 24
 * layers, every fourth of attention, as many value heads as key heads, a SwiGLU of 3.5 times the width.
 */
#include "cli/synth_image.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NEMOTRON_WHOLE "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
#define NEMOTRON_SIZES \
    .width = 2688, .vocab = 131072, .heads = 32, .heads_kv = 2, .head_dim = 128, .taps = 4, .key_heads = 8, \
    .key_width = 128, .value_heads = 64, .value_width = 64, .experts = 128, .top = 6, .expert_width = 1856, \
    .shared_width = 3712, .has_head = true

/* Layers in groups of four. */
#define QWEN_GROUPS3 "dddFdddFdddF"
#define QWEN_GROUPS10 QWEN_GROUPS3 QWEN_GROUPS3 QWEN_GROUPS3 "dddF"
#define QWEN_GROUPS16 QWEN_GROUPS10 QWEN_GROUPS3 QWEN_GROUPS3
#define QWEN_27B_SIZES \
    .width = 5120, .ffn_width = 17408, .vocab = 248320, .heads = 24, .heads_kv = 4, .head_dim = 256, \
    .taps = 4, .key_heads = 16, .key_width = 128, .value_heads = 48, .value_width = 128, .has_head = true
#define QWEN_35B_SIZES \
    .width = 2048, .vocab = 248320, .heads = 16, .heads_kv = 2, .head_dim = 256, .taps = 4, .key_heads = 16, \
    .key_width = 128, .value_heads = 32, .value_width = 128, .experts = 256, .top = 8, .expert_width = 512, \
    .shared_width = 512, .has_head = true

static const lw_synth_shape shapes[] = {
    { .name = "lfm3-1.7b",
      .model_type = "lfm3",
      .layers = "ccFcScFcScFcScFcScFcScFc",
      .width = 2048,
      .ffn_width = 7680,
      .vocab = 125184,
      .heads = 16,
      .heads_kv = 4,
      .head_dim = 128,
      .taps = 7,
      .is_tied = true },
    { .name = "lfm3-350m",
      .model_type = "lfm3",
      .layers = "ccFcScFcScFcScFc",
      .width = 1024,
      .ffn_width = 4608,
      .vocab = 65536,
      .heads = 16,
      .heads_kv = 4,
      .head_dim = 64,
      .taps = 7,
      .is_tied = true },
    { .name = "lfm2-1.2b",
      .model_type = "lfm2",
      .layers = "ccFccFccFcFcFcFc",
      .width = 2048,
      .ffn_width = 8192,
      .vocab = 65536,
      .heads = 32,
      .heads_kv = 8,
      .head_dim = 64,
      .taps = 3,
      .is_tied = true },
    { .name = "qwen3.5-0.8b",
      .model_type = "qwen3_5_text",
      .layers = "dddFdddFdddFdddFdddFdddF",
      .width = 1024,
      .ffn_width = 3584,
      .vocab = 248320,
      .heads = 8,
      .heads_kv = 2,
      .head_dim = 256,
      .taps = 4,
      .key_heads = 16,
      .key_width = 128,
      .value_heads = 16,
      .value_width = 128,
      .is_tied = true,
      .has_head = true },
    { .name = "qwen3.8-27b-cut",
      .model_type = "qwen3_5_text",
      .layers = "dddF",
      .whole = { { 'd', 48 }, { 'F', 16 } },
      QWEN_27B_SIZES },
    { .name = "qwen3.8-27b", .model_type = "qwen3_5_text", .layers = QWEN_GROUPS16, QWEN_27B_SIZES },
    { .name = "qwen3.5-35b-a3b-cut",
      .model_type = "qwen3_5_moe_text",
      .layers = "dddF",
      .whole = { { 'd', 30 }, { 'F', 10 } },
      QWEN_35B_SIZES },
    { .name = "qwen3.5-35b-a3b", .model_type = "qwen3_5_moe_text", .layers = QWEN_GROUPS10, QWEN_35B_SIZES },
    { .name = "nemotron-30b-a3b-cut",
      .model_type = "nemotron_h",
      .layers = "MEMEM*E",
      .whole = { { 'M', 23 }, { 'E', 23 }, { '*', 6 } },
      NEMOTRON_SIZES },
    { .name = "nemotron-30b-a3b", .model_type = "nemotron_h", .layers = NEMOTRON_WHOLE, NEMOTRON_SIZES },
};
enum { SHAPE_COUNT = sizeof shapes / sizeof shapes[0] };

static const struct {
    const char *name;
    uint32_t bits;
} formats[] = { { "bf16", 0 }, { "8bit", 8 }, { "6bit", 6 }, { "4bit", 4 } };

/* ---- the table ---- */

const char *lw_synth_shape_name(size_t index)
{
    return index < SHAPE_COUNT ? shapes[index].name : NULL;
}

lw_status lw_synth_shape_find(const char *name, const lw_synth_shape **out, uint32_t *bits, lw_diag *d)
{
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        const size_t chars = strlen(shapes[i].name);
        if (strncmp(name, shapes[i].name, chars) != 0 || name[chars] != '-') continue;
        for (size_t j = 0; j < sizeof formats / sizeof formats[0]; j++) {
            if (strcmp(name + chars + 1, formats[j].name) != 0) continue;
            *out = &shapes[i];
            *bits = formats[j].bits;
            return LW_OK;
        }
    }
    return lw_fail(d, LW_BAD_INPUT, "there is no synthetic model \"%s\": give %s", name, LW_SYNTH_SHAPES);
}

/* Layers of the whole model with this letter; 0: nothing is cut. */
static uint32_t whole_count(const lw_synth_shape *shape, char letter)
{
    for (int i = 0; i < LW_SYNTH_KINDS_MAX; i++)
        if (shape->whole[i].letter == letter) return shape->whole[i].count;
    return 0;
}

uint32_t lw_synth_layers_whole(const lw_synth_shape *shape)
{
    uint32_t count = 0;
    for (int i = 0; i < LW_SYNTH_KINDS_MAX; i++) count += shape->whole[i].count;
    return count != 0 ? count : (uint32_t)strlen(shape->layers);
}

double lw_synth_stands_for(const lw_synth_shape *shape, uint32_t layer)
{
    const char letter = shape->layers[layer];
    const uint32_t whole = whole_count(shape, letter);
    uint32_t here = 0;
    for (const char *at = shape->layers; *at != '\0'; at++) here += *at == letter;
    return whole != 0 ? (double)whole / here : 1.0;
}

/* ---- tensors ---- */

/* The header as it grows. */
typedef struct image {
    const lw_synth_shape *shape;
    uint32_t bits;
    lw_buf *header;
    uint64_t data_bytes;
    lw_status status;
} image;

/* stack 0, rows 0: not among the tensor's dims. */
typedef struct extent {
    uint32_t stack, rows, cols;
} extent;

static void tensor(image *im, const char *name, const char *dtype, extent e)
{
    const uint64_t count = (uint64_t)(e.stack == 0 ? 1 : e.stack) * (e.rows == 0 ? 1 : e.rows) * e.cols;
    const uint64_t bytes = count * (strcmp(dtype, "U32") == 0 ? 4 : 2);
    char dims[40];
    if (e.stack != 0) snprintf(dims, sizeof dims, "%u,%u,%u", e.stack, e.rows, e.cols);
    else if (e.rows == 0) snprintf(dims, sizeof dims, "%u", e.cols);
    else snprintf(dims, sizeof dims, "%u,%u", e.rows, e.cols);
    if (im->status == LW_OK) {
        im->status = lw_buf_printf(im->header,
                                   ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%" PRIu64
                                   ",%" PRIu64 "]}",
                                   name, dtype, dims, im->data_bytes, im->data_bytes + bytes);
    }
    im->data_bytes += bytes;
}

/* A bf16 tensor by its whole name; rows 0: a vector. */
static void dense(image *im, const char *at, const char *part, uint32_t rows, uint32_t cols)
{
    char name[128];
    snprintf(name, sizeof name, "%s%s", at, part);
    tensor(im, name, "BF16", (extent){ .rows = rows, .cols = cols });
}

static void quantised(image *im, const char *at, const char *part, extent e)
{
    const extent codes = { e.stack, e.rows, e.cols * im->bits / 32 };
    const extent groups = { e.stack, e.rows, e.cols / LW_SYNTH_GROUP };
    char name[128];
    snprintf(name, sizeof name, "%s%s.weight", at, part);
    tensor(im, name, im->bits == 0 ? "BF16" : "U32", im->bits == 0 ? e : codes);
    if (im->bits == 0) return;
    snprintf(name, sizeof name, "%s%s.scales", at, part);
    tensor(im, name, "BF16", groups);
    snprintf(name, sizeof name, "%s%s.biases", at, part);
    tensor(im, name, "BF16", groups);
}

static void matrix(image *im, const char *at, const char *part, uint32_t rows, uint32_t cols)
{
    quantised(im, at, part, (extent){ .rows = rows, .cols = cols });
}

static void stack(image *im, const char *at, const char *part, uint32_t rows, uint32_t cols)
{
    quantised(im, at, part, (extent){ .stack = im->shape->experts, .rows = rows, .cols = cols });
}

/* ---- LFM ---- */

static void lfm_attention(image *im, const char *at)
{
    const lw_synth_shape *s = im->shape;
    matrix(im, at, "self_attn.q_proj", s->heads * s->head_dim, s->width);
    matrix(im, at, "self_attn.k_proj", s->heads_kv * s->head_dim, s->width);
    matrix(im, at, "self_attn.v_proj", s->heads_kv * s->head_dim, s->width);
    matrix(im, at, "self_attn.out_proj", s->width, s->heads * s->head_dim);
    dense(im, at, "self_attn.q_layernorm.weight", 0, s->head_dim);
    dense(im, at, "self_attn.k_layernorm.weight", 0, s->head_dim);
}

static void lfm_layer(image *im, const char *at, char letter)
{
    const lw_synth_shape *s = im->shape;
    const bool is_lfm3 = strcmp(s->model_type, "lfm3") == 0;
    dense(im, at, "operator_norm.weight", 0, s->width);
    dense(im, at, "ffn_norm.weight", 0, s->width);
    if (is_lfm3) {
        dense(im, at, "post_operator_norm.weight", 0, s->width);
        dense(im, at, "post_ffn_norm.weight", 0, s->width);
    }
    if (letter == 'c') {
        matrix(im, at, "conv.in_proj", 3 * s->width, s->width);
        matrix(im, at, "conv.out_proj", s->width, s->width);
        dense(im, at, "conv.conv.weight", s->width, s->taps);
    } else {
        lfm_attention(im, at);
        if (is_lfm3) matrix(im, at, "self_attn.gate_proj", s->heads, s->width);
    }
    matrix(im, at, "feed_forward.w1", s->ffn_width, s->width);
    matrix(im, at, "feed_forward.w3", s->ffn_width, s->width);
    matrix(im, at, "feed_forward.w2", s->width, s->ffn_width);
}

static void lfm_tensors(image *im)
{
    const lw_synth_shape *s = im->shape;
    matrix(im, "model.", "embed_tokens", s->vocab, s->width);
    dense(im, "model.", "embedding_norm.weight", 0, s->width);
    for (uint32_t i = 0; s->layers[i] != '\0'; i++) {
        char at[32];
        snprintf(at, sizeof at, "model.layers.%u.", i);
        lfm_layer(im, at, s->layers[i]);
    }
}

static lw_status lfm_config(const lw_synth_shape *s, lw_buf *out)
{
    lw_status status = lw_buf_printf(out,
                                     "\"intermediate_size\":%u,\"conv_L_cache\":%u,\"norm_eps\":1e-5,"
                                     "\"block_auto_adjust_ff_dim\":false,\"sliding_window\":256,"
                                     "\"rope_theta\":1e6,\"layer_types\":[",
                                     s->ffn_width, s->taps);
    for (const char *kind = s->layers; *kind != '\0' && status == LW_OK; kind++) {
        const char *name = *kind == 'c' ? "conv" : *kind == 'F' ? "full_attention" : "sliding_attention";
        status = lw_buf_printf(out, "%s\"%s\"", kind == s->layers ? "" : ",", name);
    }
    return status == LW_OK ? lw_buf_append_text(out, "]") : status;
}

/* ---- Qwen ---- */

static void qwen_delta(image *im, const char *at)
{
    const lw_synth_shape *s = im->shape;
    const uint32_t keys = s->key_heads * s->key_width, values = s->value_heads * s->value_width;
    matrix(im, at, "linear_attn.in_proj_qkv", 2 * keys + values, s->width);
    matrix(im, at, "linear_attn.in_proj_z", values, s->width);
    matrix(im, at, "linear_attn.in_proj_a", s->value_heads, s->width);
    matrix(im, at, "linear_attn.in_proj_b", s->value_heads, s->width);
    dense(im, at, "linear_attn.conv1d.weight", 2 * keys + values, s->taps);
    dense(im, at, "linear_attn.A_log", 0, s->value_heads);
    dense(im, at, "linear_attn.dt_bias", 0, s->value_heads);
    dense(im, at, "linear_attn.norm.weight", 0, s->value_width);
    matrix(im, at, "linear_attn.out_proj", s->width, values);
}

static void qwen_attention(image *im, const char *at)
{
    const lw_synth_shape *s = im->shape;
    matrix(im, at, "self_attn.q_proj", 2 * s->heads * s->head_dim, s->width);
    matrix(im, at, "self_attn.k_proj", s->heads_kv * s->head_dim, s->width);
    matrix(im, at, "self_attn.v_proj", s->heads_kv * s->head_dim, s->width);
    matrix(im, at, "self_attn.o_proj", s->width, s->heads * s->head_dim);
    dense(im, at, "self_attn.q_norm.weight", 0, s->head_dim);
    dense(im, at, "self_attn.k_norm.weight", 0, s->head_dim);
}

static void qwen_layer(image *im, const char *at, char letter)
{
    const lw_synth_shape *s = im->shape;
    char block[48];
    dense(im, at, "input_layernorm.weight", 0, s->width);
    dense(im, at, "post_attention_layernorm.weight", 0, s->width);
    if (letter == 'F') qwen_attention(im, at);
    else qwen_delta(im, at);
    const uint32_t width = s->experts == 0 ? s->ffn_width : s->shared_width;
    snprintf(block, sizeof block, "%s%s", at, s->experts == 0 ? "mlp." : "mlp.shared_expert.");
    matrix(im, block, "gate_proj", width, s->width);
    matrix(im, block, "up_proj", width, s->width);
    matrix(im, block, "down_proj", s->width, width);
    if (s->experts == 0) return;
    dense(im, at, "mlp.gate.weight", s->experts, s->width);
    dense(im, at, "mlp.shared_expert_gate.weight", 1, s->width);
    stack(im, at, "mlp.switch_mlp.gate_proj", s->expert_width, s->width);
    stack(im, at, "mlp.switch_mlp.up_proj", s->expert_width, s->width);
    stack(im, at, "mlp.switch_mlp.down_proj", s->width, s->expert_width);
}

static void qwen_tensors(image *im)
{
    const lw_synth_shape *s = im->shape;
    matrix(im, "model.", "embed_tokens", s->vocab, s->width);
    dense(im, "model.", "norm.weight", 0, s->width);
    if (!s->is_tied) matrix(im, "", "lm_head", s->vocab, s->width);
    for (uint32_t i = 0; s->layers[i] != '\0'; i++) {
        char at[32];
        snprintf(at, sizeof at, "model.layers.%u.", i);
        qwen_layer(im, at, s->layers[i]);
    }
    dense(im, "mtp.", "pre_fc_norm_embedding.weight", 0, s->width);
    dense(im, "mtp.", "pre_fc_norm_hidden.weight", 0, s->width);
    dense(im, "mtp.", "norm.weight", 0, s->width);
    matrix(im, "mtp.", "fc", s->width, 2 * s->width);
    qwen_layer(im, "mtp.layers.0.", 'F');
}

static lw_status qwen_config(const lw_synth_shape *s, lw_buf *out)
{
    lw_status status = lw_buf_printf(
        out,
        "\"linear_num_key_heads\":%u,\"linear_key_head_dim\":%u,\"linear_num_value_heads\":%u,"
        "\"linear_value_head_dim\":%u,\"linear_conv_kernel_dim\":%u,\"full_attention_interval\":4,"
        "\"rms_norm_eps\":1e-6,\"rope_parameters\":{\"rope_theta\":1e7,\"partial_rotary_factor\":0.25},",
        s->key_heads, s->key_width, s->value_heads, s->value_width, s->taps);
    if (status != LW_OK || s->experts == 0)
        return status == LW_OK ? lw_buf_printf(out, "\"intermediate_size\":%u", s->ffn_width) : status;
    return lw_buf_printf(out,
                         "\"num_experts\":%u,\"num_experts_per_tok\":%u,\"moe_intermediate_size\":%u,"
                         "\"shared_expert_intermediate_size\":%u",
                         s->experts, s->top, s->expert_width, s->shared_width);
}

/* ---- Nemotron-H ---- */

static void nemotron_mamba(image *im, const char *at)
{
    const lw_synth_shape *s = im->shape;
    const uint32_t inner = s->value_heads * s->value_width, heads = s->value_heads;
    const uint32_t mixed = inner + 2 * s->key_heads * s->key_width;
    matrix(im, at, "mixer.in_proj", inner + mixed + heads, s->width);
    matrix(im, at, "mixer.out_proj", s->width, inner);
    dense(im, at, "mixer.conv1d.weight", mixed, s->taps);
    dense(im, at, "mixer.conv1d.bias", 0, mixed);
    dense(im, at, "mixer.A_log", 0, heads);
    dense(im, at, "mixer.D", 0, heads);
    dense(im, at, "mixer.dt_bias", 0, heads);
    dense(im, at, "mixer.norm.weight", 0, inner);
}

static void nemotron_attention(image *im, const char *at)
{
    const lw_synth_shape *s = im->shape;
    matrix(im, at, "mixer.q_proj", s->heads * s->head_dim, s->width);
    matrix(im, at, "mixer.k_proj", s->heads_kv * s->head_dim, s->width);
    matrix(im, at, "mixer.v_proj", s->heads_kv * s->head_dim, s->width);
    matrix(im, at, "mixer.o_proj", s->width, s->heads * s->head_dim);
}

static void nemotron_block(image *im, const char *at, char letter)
{
    const lw_synth_shape *s = im->shape;
    dense(im, at, "norm.weight", 0, s->width);
    if (letter == 'M') {
        nemotron_mamba(im, at);
    } else if (letter == '*') {
        nemotron_attention(im, at);
    } else {
        dense(im, at, "mixer.gate.weight", s->experts, s->width);
        dense(im, at, "mixer.gate.e_score_correction_bias", 0, s->experts);
        stack(im, at, "mixer.switch_mlp.fc1", s->expert_width, s->width);
        stack(im, at, "mixer.switch_mlp.fc2", s->width, s->expert_width);
        matrix(im, at, "mixer.shared_experts.up_proj", s->shared_width, s->width);
        matrix(im, at, "mixer.shared_experts.down_proj", s->width, s->shared_width);
    }
}

static void nemotron_tensors(image *im)
{
    const lw_synth_shape *s = im->shape;
    matrix(im, "backbone.", "embeddings", s->vocab, s->width);
    dense(im, "backbone.", "norm_f.weight", 0, s->width);
    matrix(im, "", "lm_head", s->vocab, s->width);
    for (uint32_t i = 0; s->layers[i] != '\0'; i++) {
        char at[32];
        snprintf(at, sizeof at, "backbone.layers.%u.", i);
        nemotron_block(im, at, s->layers[i]);
    }
    dense(im, "mtp.layers.0.", "enorm.weight", 0, s->width);
    dense(im, "mtp.layers.0.", "hnorm.weight", 0, s->width);
    matrix(im, "mtp.layers.0.", "eh_proj", s->width, 2 * s->width);
    nemotron_block(im, "mtp.layers.0.", '*');
    nemotron_block(im, "mtp.layers.1.", 'E');
    dense(im, "mtp.layers.1.", "final_layernorm.weight", 0, s->width);
}

static lw_status nemotron_config(const lw_synth_shape *s, lw_buf *out)
{
    return lw_buf_printf(
        out,
        "\"hybrid_override_pattern\":\"%s\",\"mamba_num_heads\":%u,\"mamba_head_dim\":%u,\"n_groups\":%u,"
        "\"ssm_state_size\":%u,\"conv_kernel\":%u,\"n_routed_experts\":%u,\"num_experts_per_tok\":%u,"
        "\"moe_intermediate_size\":%u,\"n_shared_experts\":1,\"moe_shared_expert_intermediate_size\":%u,"
        "\"norm_topk_prob\":true,\"routed_scaling_factor\":2.5,\"layer_norm_epsilon\":1e-5",
        s->layers, s->value_heads, s->value_width, s->key_heads, s->key_width, s->taps, s->experts, s->top,
        s->expert_width, s->shared_width);
}

/* ---- the image ---- */

static const struct {
    const char *prefix; /* of the model type */
    void (*tensors)(image *im);
    lw_status (*config)(const lw_synth_shape *shape, lw_buf *out);
} families[] = {
    { "lfm", lfm_tensors, lfm_config },
    { "qwen", qwen_tensors, qwen_config },
    { "nemotron", nemotron_tensors, nemotron_config },
};

static size_t family_of(const lw_synth_shape *shape)
{
    size_t i = 0;
    while (strncmp(shape->model_type, families[i].prefix, strlen(families[i].prefix)) != 0) i++;
    return i;
}

static lw_status config_text(const lw_synth_shape *s, uint32_t bits, lw_buf *out)
{
    lw_status status = lw_buf_printf(
        out,
        "{\"model_type\":\"%s\",\"hidden_size\":%u,\"vocab_size\":%u,\"num_attention_heads\":%u,"
        "\"num_key_value_heads\":%u,\"head_dim\":%u,\"max_position_embeddings\":65536,"
        "\"tie_word_embeddings\":%s,\"num_hidden_layers\":%zu,",
        s->model_type, s->width, s->vocab, s->heads, s->heads_kv, s->head_dim, s->is_tied ? "true" : "false",
        strlen(s->layers));
    if (status == LW_OK && bits != 0) {
        status = lw_buf_printf(out, "\"quantization\":{\"group_size\":%d,\"bits\":%u,\"mode\":\"affine\"},",
                               LW_SYNTH_GROUP, bits);
    }
    if (status == LW_OK) status = families[family_of(s)].config(s, out);
    return status == LW_OK ? lw_buf_append_text(out, "}") : status;
}

lw_status lw_synth_image(const char *name, lw_buf *config, lw_buf *header, uint64_t *data_bytes, lw_diag *d)
{
    image im = { .header = header };
    uint64_t length = 0;
    lw_status status = lw_synth_shape_find(name, &im.shape, &im.bits, d);
    if (status != LW_OK) return status;
    im.status = config_text(im.shape, im.bits, config);
    if (im.status == LW_OK) im.status = lw_buf_append(header, &length, sizeof length);
    if (im.status == LW_OK) im.status = lw_buf_append_text(header, "{\"__metadata__\":{\"format\":\"pt\"}");
    families[family_of(im.shape)].tensors(&im);
    if (im.status == LW_OK) im.status = lw_buf_append_text(header, "}");
    while (im.status == LW_OK && header->count % 8 != 0) im.status = lw_buf_append_text(header, " ");
    if (im.status != LW_OK) return lw_fail(d, im.status, "no memory for the header of %s", name);
    length = header->count - sizeof length;
    for (unsigned i = 0; i < sizeof length; i++) header->bytes[i] = (char)(uint8_t)(length >> (8 * i));
    *data_bytes = im.data_bytes;
    return LW_OK;
}
