/* Random models; see synth.h. */
#include "cli/synth.h"

#include "base/rng.h"
#include "family/family.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ARENA_BYTES_MAX = 16 << 20 };
enum { VALUES_CODES, VALUES_DENSE, VALUES_NORMS, VALUES_SCALES, VALUES_BIASES, VALUES_COUNT };
_Static_assert((int)VALUES_COUNT == (int)LW_SYNTH_VALUES, "each kind of values has its memory");

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
    case VALUES_NORMS: fill16(bytes, count, 0x3F80, 0x003F); break; /* 1 to 1.5 */
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
    const bool is_dense = weight->group == 0, is_norm = is_dense && strstr(weight->name, "norm") != NULL;
    parts[VALUES_CODES] = is_dense ? NULL : &weight->codes;
    parts[VALUES_DENSE] = is_dense && !is_norm ? &weight->codes : NULL;
    parts[VALUES_NORMS] = is_norm ? &weight->codes : NULL;
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

static lw_status record(lw_synth *synth, bool head, lw_diag *d)
{
    const lw_family *family = NULL;
    const lw_status status = lw_family_find(synth->checkpoint, &family, d);
    return status == LW_OK
               ? family->record(synth->checkpoint, &(lw_record_options){ .head = head }, &synth->plan, d)
               : status;
}

lw_status lw_synth_make(const char *name, bool head, lw_synth *out, lw_diag *d)
{
    uint32_t bits = 0;
    uint64_t data_bytes = 0;
    lw_buf config, header;
    *out = (lw_synth){ .checkpoint = NULL };
    lw_arena_init(&out->arena, ARENA_BYTES_MAX);
    lw_buf_init(&config, 0);
    lw_buf_init(&header, 0);
    lw_status status = lw_synth_shape_find(name, &out->shape, &bits, d);
    if (status == LW_OK) status = lw_plan_init(&out->plan, d);
    if (status == LW_OK) status = lw_synth_image(name, &config, &header, &data_bytes, d);
    if (status == LW_OK) status = open_image(&config, &header, data_bytes, &out->checkpoint, d);
    if (status == LW_OK) status = record(out, head, d);
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
