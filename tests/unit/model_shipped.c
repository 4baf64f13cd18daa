/* The reference checkpoints, read whole: every LFM3 weight is found under its name, nothing is left over, and
 * the embedding rows are those of the FP64 references, whose makers read the files with code of their own.
 */
#include "model/names.h"

#include "model_files.h"

#include <math.h>

enum { LAYERS_MAX = 64, WIDTH_MAX = 1024 };

static const char models[] = "../shared/models";
static const char *const prefixes[] = { "model.", "", NULL };
static const char *const folders[] = { "lfm3-bf16", "lfm3-mlx4", "lfm3-mlx8" };

static void skip_if_absent(void)
{
    if (access(models, R_OK) == 0) return;
    print_message("skipped: %s is not there\n", models);
    skip();
}

/* One LFM3 checkpoint being walked. */
typedef struct lfm3 {
    lw_checkpoint *c;
    lw_names *names;
    uint32_t width, ffn, vocab, heads, heads_kv, head_dim, taps, layers;
    const json_t *types;
} lfm3;

static uint32_t size_of(const lfm3 *m, const char *key)
{
    uint32_t value;
    lw_diag d;
    if (lw_config_u32(lw_checkpoint_config(m->c), key, NULL, LW_LIMIT_VOCAB, &value, &d) != LW_OK)
        fail_msg("%s", d.text);
    return value;
}

static lfm3 lfm3_open(const char *path, const lw_names_options *options)
{
    lfm3 m = { .c = NULL };
    lw_diag d;
    if (lw_checkpoint_open(path, &m.c, &d) != LW_OK) fail_msg("%s", d.text);
    if (lw_names_make(m.c, options, &m.names, &d) != LW_OK) fail_msg("%s", d.text);
    m.width = size_of(&m, "hidden_size");
    m.ffn = size_of(&m, "intermediate_size");
    m.vocab = size_of(&m, "vocab_size");
    m.heads = size_of(&m, "num_attention_heads");
    m.heads_kv = size_of(&m, "num_key_value_heads");
    m.head_dim = size_of(&m, "head_dim");
    m.taps = size_of(&m, "conv_L_cache");
    m.layers = size_of(&m, "num_hidden_layers");
    m.types = lw_config_get(lw_checkpoint_config(m.c), "layer_types");
    assert_true(m.layers <= LAYERS_MAX && m.width <= WIDTH_MAX && json_array_size(m.types) == m.layers);
    return m;
}

static void ask_layer(const lfm3 *m, uint32_t i)
{
    static const char *const norms[] = { "operator_norm", "post_operator_norm", "ffn_norm", "post_ffn_norm" };
    const unsigned layer = (unsigned)i;
    lw_weight w;
    for (size_t n = 0; n < 4; n++)
        lw_names_dense(m->names, &w, 1, m->width, "layers.%u.%s.weight", layer, norms[n]);
    lw_names_matrix(m->names, &w, m->ffn, m->width, "layers.%u.feed_forward.w1", layer);
    lw_names_matrix(m->names, &w, m->ffn, m->width, "layers.%u.feed_forward.w3", layer);
    lw_names_matrix(m->names, &w, m->width, m->ffn, "layers.%u.feed_forward.w2", layer);
    if (strcmp(json_string_value(json_array_get(m->types, i)), "conv") == 0) {
        lw_names_matrix(m->names, &w, 3 * m->width, m->width, "layers.%u.conv.in_proj", layer);
        lw_names_matrix(m->names, &w, m->width, m->width, "layers.%u.conv.out_proj", layer);
        lw_names_dense(m->names, &w, m->width, m->taps, "layers.%u.conv.conv.weight", layer);
        return;
    }
    const uint32_t q = m->heads * m->head_dim, kv = m->heads_kv * m->head_dim;
    lw_names_matrix(m->names, &w, q, m->width, "layers.%u.self_attn.q_proj", layer);
    lw_names_matrix(m->names, &w, kv, m->width, "layers.%u.self_attn.k_proj", layer);
    lw_names_matrix(m->names, &w, kv, m->width, "layers.%u.self_attn.v_proj", layer);
    lw_names_matrix(m->names, &w, m->width, q, "layers.%u.self_attn.out_proj", layer);
    lw_names_matrix_any_rows(m->names, &w, m->width, "layers.%u.self_attn.gate_proj", layer);
    lw_names_dense(m->names, &w, 1, m->head_dim, "layers.%u.self_attn.q_layernorm.weight", layer);
    lw_names_dense(m->names, &w, 1, m->head_dim, "layers.%u.self_attn.k_layernorm.weight", layer);
}

/* Rows of the embedding that differ from the reference's first hidden state, of all its stored rows. */
static size_t count_wrong_rows(const char *path, const lw_weight *embedding, int32_t shift, size_t *row_count)
{
    char file[256];
    lw_safetensors *ref;
    lw_diag d;
    snprintf(file, sizeof file, "%s/ref64.safetensors", path);
    if (lw_safetensors_open(file, &ref, &d) != LW_OK) fail_msg("%s", d.text);
    const lw_tensor *ids = lw_safetensors_find(ref, "p1.ids"), *rows = lw_safetensors_find(ref, "p1.rows");
    const lw_tensor *hidden = lw_safetensors_find(ref, "p1.hidden"); /* (layers + 1, rows, width) */
    assert_true(ids != NULL && rows != NULL && hidden != NULL && hidden->dims[2] == embedding->cols);
    size_t wrong = 0;
    *row_count = (size_t)rows->dims[0];
    for (size_t r = 0; r < *row_count; r++) {
        int32_t at, id;
        double values[WIDTH_MAX];
        bool is_wrong = false;
        memcpy(&at, rows->bytes + r * 4, 4);
        memcpy(&id, ids->bytes + (size_t)at * 4, 4);
        lw_weight_row_f64(embedding, 0, (uint32_t)(id + shift), values);
        for (size_t k = 0; k < embedding->cols; k++) {
            float stored;
            memcpy(&stored, hidden->bytes + (r * embedding->cols + k) * 4, 4);
            is_wrong |= (float)values[k] != stored;
        }
        wrong += is_wrong;
    }
    lw_safetensors_close(ref);
    return wrong;
}

static void every_weight_is_found_and_none_is_left(void **state)
{
    (void)state;
    skip_if_absent();
    const lw_names_options options = { .prefixes = prefixes };
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        char path[128];
        lw_weight embedding, w;
        lw_diag d;
        size_t row_count;
        snprintf(path, sizeof path, "%s/%s", models, folders[i]);
        lfm3 m = lfm3_open(path, &options);
        lw_names_matrix(m.names, &embedding, m.vocab, m.width, "embed_tokens");
        lw_names_dense(m.names, &w, 1, m.width, "embedding_norm.weight");
        for (uint32_t layer = 0; layer < m.layers; layer++) ask_layer(&m, layer);
        if (lw_names_finish(m.names, &d) != LW_OK) fail_msg("%s", d.text);
        assert_int_equal(lw_names_unused_count(m.names), 0);
        assert_int_equal(count_wrong_rows(path, &embedding, 0, &row_count), 0);
        assert_int_equal(count_wrong_rows(path, &embedding, 1, &row_count), row_count); /* planted control */
        lw_names_free(m.names);
        lw_checkpoint_close(m.c);
    }
}

/* Index with two shards, inner config, side file: each opens and gives up a weight of its own. */
static void other_layouts_open(void **state)
{
    (void)state;
    skip_if_absent();
    static const char *const cases[][2] = {
        { "qwen35-bf16", "mtp.fc.weight" },
        { "qwen35-mlx4", "language_model.lm_head.scales" },
        { "qwen35-gptq4", "lm_head.weight" },
        { "nemotron-mlx4", "mtp.layers.0.eh_proj.weight" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[128];
        lw_checkpoint *c;
        lw_diag d;
        snprintf(path, sizeof path, "%s/%s", models, cases[i][0]);
        if (lw_checkpoint_open(path, &c, &d) != LW_OK) fail_msg("%s", d.text);
        assert_non_null(lw_checkpoint_find(c, cases[i][1]));
        lw_checkpoint_close(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_weight_is_found_and_none_is_left),
        cmocka_unit_test(other_layouts_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
