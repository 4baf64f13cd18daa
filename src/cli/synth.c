/* Random models; see synth.h. */
#include "cli/synth.h"

#include "base/rng.h"
#include "family/family.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SYNTH_GROUP = 64, ARENA_BYTES_MAX = 16 << 20 };
enum { VALUES_CODES, VALUES_DENSE, VALUES_SCALES, VALUES_BIASES, VALUES_COUNT };

typedef struct shape {
    const char *name;
    const char *model_type;
    const char *layers; /* c: conv, F: full attention, S: sliding attention */
    uint32_t width, ffn_width, vocab;
    uint32_t heads, heads_kv, head_dim, taps;
} shape;

static const shape shapes[] = {
    { "lfm3-1.7b", "lfm3", "ccFcScFcScFcScFcScFcScFc", 2048, 7680, 125184, 16, 4, 128, 7 },
    { "lfm3-350m", "lfm3", "ccFcScFcScFcScFc", 1024, 4608, 65536, 16, 4, 64, 7 },
    { "lfm2-1.2b", "lfm2", "ccFccFccFcFcFcFc", 2048, 8192, 65536, 32, 8, 64, 3 },
};

static const struct {
    const char *name;
    uint32_t bits; /* 0: bf16 */
} formats[] = { { "bf16", 0 }, { "8bit", 8 }, { "6bit", 6 }, { "4bit", 4 } };

/* The header as it grows. */
typedef struct image {
    const shape *shape;
    uint32_t bits;
    lw_buf *header;
    uint64_t data_bytes;
    lw_status status;
} image;

static lw_status find_shape(const char *name, const shape **out, uint32_t *bits, lw_diag *d)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (size_t j = 0; j < sizeof formats / sizeof formats[0]; j++) {
            char whole[64];
            snprintf(whole, sizeof whole, "%s-%s", shapes[i].name, formats[j].name);
            if (strcmp(whole, name) != 0) continue;
            *out = &shapes[i];
            *bits = formats[j].bits;
            return LW_OK;
        }
    }
    return lw_fail(d, LW_BAD_INPUT, "there is no synthetic model \"%s\": give %s", name, LW_SYNTH_SHAPES);
}

bool lw_synth_is_known(const char *name)
{
    const shape *found;
    uint32_t bits;
    return find_shape(name, &found, &bits, NULL) == LW_OK;
}

/* ---- the image ---- */

/* One tensor of 2-byte or, as U32, 4-byte elements. */
static void tensor(image *im, const char *name, const char *dtype, uint32_t rows, uint32_t cols)
{
    const uint64_t bytes = (uint64_t)rows * cols * (strcmp(dtype, "U32") == 0 ? 4 : 2);
    char dims[32];
    if (rows == 1) snprintf(dims, sizeof dims, "%u", cols);
    else snprintf(dims, sizeof dims, "%u,%u", rows, cols);
    if (im->status == LW_OK) {
        im->status = lw_buf_printf(im->header,
                                   ",\"model.%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%" PRIu64
                                   ",%" PRIu64 "]}",
                                   name, dtype, dims, im->data_bytes, im->data_bytes + bytes);
    }
    im->data_bytes += bytes;
}

static void vector(image *im, const char *layer, const char *part, uint32_t rows, uint32_t cols)
{
    char name[96];
    snprintf(name, sizeof name, "%s%s.weight", layer, part);
    tensor(im, name, "BF16", rows, cols);
}

static void matrix(image *im, const char *layer, const char *part, uint32_t rows, uint32_t cols)
{
    char name[96];
    if (im->bits == 0) {
        vector(im, layer, part, rows, cols);
        return;
    }
    snprintf(name, sizeof name, "%s%s.weight", layer, part);
    tensor(im, name, "U32", rows, cols * im->bits / 32);
    snprintf(name, sizeof name, "%s%s.scales", layer, part);
    tensor(im, name, "BF16", rows, cols / SYNTH_GROUP);
    snprintf(name, sizeof name, "%s%s.biases", layer, part);
    tensor(im, name, "BF16", rows, cols / SYNTH_GROUP);
}

static void attention(image *im, const char *layer)
{
    const shape *s = im->shape;
    matrix(im, layer, "self_attn.q_proj", s->heads * s->head_dim, s->width);
    matrix(im, layer, "self_attn.k_proj", s->heads_kv * s->head_dim, s->width);
    matrix(im, layer, "self_attn.v_proj", s->heads_kv * s->head_dim, s->width);
    matrix(im, layer, "self_attn.out_proj", s->width, s->heads * s->head_dim);
    vector(im, layer, "self_attn.q_layernorm", 1, s->head_dim);
    vector(im, layer, "self_attn.k_layernorm", 1, s->head_dim);
}

static void layer_image(image *im, uint32_t index)
{
    const shape *s = im->shape;
    const bool is_lfm3 = strcmp(s->model_type, "lfm3") == 0;
    char layer[32];
    snprintf(layer, sizeof layer, "layers.%u.", index);
    vector(im, layer, "operator_norm", 1, s->width);
    vector(im, layer, "ffn_norm", 1, s->width);
    if (is_lfm3) {
        vector(im, layer, "post_operator_norm", 1, s->width);
        vector(im, layer, "post_ffn_norm", 1, s->width);
    }
    if (s->layers[index] == 'c') {
        matrix(im, layer, "conv.in_proj", 3 * s->width, s->width);
        matrix(im, layer, "conv.out_proj", s->width, s->width);
        vector(im, layer, "conv.conv", s->width, s->taps);
    } else {
        attention(im, layer);
        if (is_lfm3) matrix(im, layer, "self_attn.gate_proj", s->heads, s->width);
    }
    matrix(im, layer, "feed_forward.w1", s->ffn_width, s->width);
    matrix(im, layer, "feed_forward.w3", s->ffn_width, s->width);
    matrix(im, layer, "feed_forward.w2", s->width, s->ffn_width);
}

static lw_status config_text(const shape *s, uint32_t bits, lw_buf *out)
{
    lw_status status = lw_buf_printf(
        out,
        "{\"model_type\":\"%s\",\"hidden_size\":%u,\"intermediate_size\":%u,\"vocab_size\":%u,"
        "\"num_attention_heads\":%u,\"num_key_value_heads\":%u,\"head_dim\":%u,\"conv_L_cache\":%u,"
        "\"block_auto_adjust_ff_dim\":false,\"sliding_window\":256,\"norm_eps\":1e-5,\"rope_theta\":1e6,"
        "\"max_position_embeddings\":32768,"
        "\"tie_word_embeddings\":true,\"num_hidden_layers\":%zu,",
        s->model_type, s->width, s->ffn_width, s->vocab, s->heads, s->heads_kv, s->head_dim, s->taps,
        strlen(s->layers));
    if (status == LW_OK && bits != 0) {
        status = lw_buf_printf(out, "\"quantization\":{\"group_size\":%d,\"bits\":%u,\"mode\":\"affine\"},",
                               SYNTH_GROUP, bits);
    }
    if (status == LW_OK) status = lw_buf_append_text(out, "\"layer_types\":[");
    for (const char *kind = s->layers; *kind != '\0' && status == LW_OK; kind++) {
        const char *name = *kind == 'c' ? "conv" : *kind == 'F' ? "full_attention" : "sliding_attention";
        status = lw_buf_printf(out, "%s\"%s\"", kind == s->layers ? "" : ",", name);
    }
    return status == LW_OK ? lw_buf_append_text(out, "]}") : status;
}

lw_status lw_synth_image(const char *name, lw_buf *config, lw_buf *header, uint64_t *data_bytes, lw_diag *d)
{
    image im = { .header = header };
    uint64_t length = 0;
    lw_status status = find_shape(name, &im.shape, &im.bits, d);
    if (status != LW_OK) return status;
    im.status = config_text(im.shape, im.bits, config);
    if (im.status == LW_OK) im.status = lw_buf_append(header, &length, sizeof length);
    if (im.status == LW_OK) im.status = lw_buf_append_text(header, "{\"__metadata__\":{\"format\":\"pt\"}");
    matrix(&im, "", "embed_tokens", im.shape->vocab, im.shape->width);
    vector(&im, "", "embedding_norm", 1, im.shape->width);
    for (uint32_t i = 0; im.shape->layers[i] != '\0'; i++) layer_image(&im, i);
    if (im.status == LW_OK) im.status = lw_buf_append_text(header, "}");
    while (im.status == LW_OK && header->count % 8 != 0) im.status = lw_buf_append_text(header, " ");
    if (im.status != LW_OK) return lw_fail(d, im.status, "no memory for the header of %s", name);
    length = header->count - sizeof length;
    for (unsigned i = 0; i < sizeof length; i++) header->bytes[i] = (char)(uint8_t)(length >> (8 * i));
    *data_bytes = im.data_bytes;
    return LW_OK;
}

/* ---- the folder ---- */

/* Writes bytes and then a hole, so that the file is file_bytes long. */
static lw_status write_file(const char *path, const lw_buf *bytes, uint64_t file_bytes, lw_diag *d)
{
    const int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool done = file >= 0;
    for (size_t at = 0; done && at < bytes->count;) {
        const ssize_t wrote = write(file, bytes->bytes + at, bytes->count - at);
        done = wrote > 0;
        if (done) at += (size_t)wrote;
    }
    done = done && ftruncate(file, (off_t)file_bytes) == 0;
    const lw_status status = done ? LW_OK : lw_fail(d, LW_IO, "%s: %s", path, strerror(errno));
    if (file >= 0) close(file);
    return status;
}

static lw_status open_image(const lw_buf *config, const lw_buf *header, uint64_t data_bytes,
                            lw_checkpoint **out, lw_diag *d)
{
    char dir[] = "/tmp/lanewise-XXXXXX";
    char config_path[64], weights_path[64];
    if (mkdtemp(dir) == NULL) return lw_fail(d, LW_IO, "%s: %s", dir, strerror(errno));
    snprintf(config_path, sizeof config_path, "%s/config.json", dir);
    snprintf(weights_path, sizeof weights_path, "%s/model.safetensors", dir);
    lw_status status = write_file(config_path, config, config->count, d);
    if (status == LW_OK) status = write_file(weights_path, header, header->count + data_bytes, d);
    if (status == LW_OK) status = lw_checkpoint_open(dir, out, d);
    /* The mapping holds what is needed; nothing is left behind however the process ends. */
    unlink(config_path);
    unlink(weights_path);
    rmdir(dir);
    return status;
}

/* ---- the values ---- */

/* 16-bit patterns of bf16 numbers: fixed bits, and random ones where mask has them. */
static void fill16(uint8_t *bytes, size_t count, uint16_t fixed, uint16_t mask)
{
    lw_rng rng = lw_rng_make(fixed);
    for (size_t i = 0; i + 1 < count; i += 2) {
        const uint16_t value = (uint16_t)(fixed | (lw_rng_next(&rng) & mask));
        memcpy(bytes + i, &value, sizeof value);
    }
}

static void fill(unsigned kind, uint8_t *bytes, size_t count, uint32_t bits)
{
    lw_rng rng = lw_rng_make(bits);
    const uint16_t scale = (uint16_t)((127 - 5 - bits) << 7); /* codes of any width span the same values */
    switch (kind) {
    case VALUES_DENSE: fill16(bytes, count, 0x3C00, 0x80FF); break; /* 2^-7 to 2^-5, both signs */
    case VALUES_SCALES: fill16(bytes, count, scale, 0x007F); break;
    case VALUES_BIASES: fill16(bytes, count, 0xBCC0, 0); break; /* minus half the codes' mean span */
    default:
        for (size_t i = 0; i < count; i += sizeof(uint64_t)) {
            const uint64_t word = lw_rng_next(&rng);
            memcpy(bytes + i, &word, count - i < sizeof word ? count - i : sizeof word);
        }
    }
}

/* The kinds of values that weight reads, as the places of its tensor pointers. */
static void parts_of(lw_weight *weight, const lw_tensor **parts[VALUES_COUNT])
{
    const bool is_dense = weight->group == 0;
    parts[VALUES_CODES] = is_dense ? NULL : &weight->codes;
    parts[VALUES_DENSE] = is_dense ? &weight->codes : NULL;
    parts[VALUES_SCALES] = weight->scales != NULL ? &weight->scales : NULL;
    parts[VALUES_BIASES] = weight->biases != NULL ? &weight->biases : NULL;
}

static lw_status make_values(lw_synth *synth, uint32_t bits, lw_diag *d)
{
    size_t bytes_max[VALUES_COUNT] = { 0 };
    for (uint32_t i = 0; i < synth->plan.weight_count; i++) {
        const lw_tensor **parts[VALUES_COUNT];
        parts_of(&synth->plan.weights[i], parts);
        for (unsigned kind = 0; kind < VALUES_COUNT; kind++) {
            const size_t bytes = parts[kind] != NULL ? (*parts[kind])->byte_count : 0;
            if (bytes > bytes_max[kind]) bytes_max[kind] = bytes;
        }
    }
    for (unsigned kind = 0; kind < VALUES_COUNT; kind++) {
        if (bytes_max[kind] == 0) continue;
        synth->values[kind] = malloc(bytes_max[kind]);
        if (synth->values[kind] == NULL) {
            return lw_fail(d, LW_NO_ROOM, "no memory for %zu bytes of random weights", bytes_max[kind]);
        }
        fill(kind, synth->values[kind], bytes_max[kind], bits);
    }
    return LW_OK;
}

static lw_status point_at_values(lw_synth *synth, lw_diag *d)
{
    for (uint32_t i = 0; i < synth->plan.weight_count; i++) {
        const lw_tensor **parts[VALUES_COUNT];
        parts_of(&synth->plan.weights[i], parts);
        for (unsigned kind = 0; kind < VALUES_COUNT; kind++) {
            if (parts[kind] == NULL) continue;
            lw_tensor *copy = lw_arena_take(&synth->arena, sizeof *copy);
            if (copy == NULL)
                return lw_fail(d, LW_NO_ROOM, "no memory for %u weights", synth->plan.weight_count);
            *copy = **parts[kind];
            copy->bytes = synth->values[kind];
            *parts[kind] = copy;
        }
    }
    return LW_OK;
}

static lw_status record(lw_synth *synth, lw_diag *d)
{
    const lw_family *family = NULL;
    const lw_status status = lw_family_find(synth->checkpoint, &family, d);
    return status == LW_OK
               ? family->record(synth->checkpoint, &(lw_record_options){ .head = false }, &synth->plan, d)
               : status;
}

lw_status lw_synth_make(const char *name, lw_synth *out, lw_diag *d)
{
    const shape *found;
    uint32_t bits = 0;
    uint64_t data_bytes = 0;
    lw_buf config, header;
    *out = (lw_synth){ .checkpoint = NULL };
    lw_arena_init(&out->arena, ARENA_BYTES_MAX);
    lw_buf_init(&config, 0);
    lw_buf_init(&header, 0);
    lw_status status = find_shape(name, &found, &bits, d);
    if (status == LW_OK) status = lw_plan_init(&out->plan, d);
    if (status == LW_OK) status = lw_synth_image(name, &config, &header, &data_bytes, d);
    if (status == LW_OK) status = open_image(&config, &header, data_bytes, &out->checkpoint, d);
    if (status == LW_OK) status = record(out, d);
    if (status == LW_OK) status = make_values(out, bits, d);
    if (status == LW_OK) status = point_at_values(out, d);
    lw_buf_deinit(&config);
    lw_buf_deinit(&header);
    if (status != LW_OK) lw_synth_close(out);
    return status;
}

void lw_synth_drop(lw_synth *synth)
{
    for (unsigned kind = 0; kind < VALUES_COUNT; kind++) {
        free(synth->values[kind]);
        synth->values[kind] = NULL;
    }
}

void lw_synth_close(lw_synth *synth)
{
    lw_synth_drop(synth);
    lw_plan_deinit(&synth->plan);
    lw_arena_deinit(&synth->arena);
    if (synth->checkpoint != NULL) lw_checkpoint_close(synth->checkpoint);
    synth->checkpoint = NULL;
}
