/* Any config and any safetensors header as a model: a line of JSON, then the header's text, its data zeros.
 * Every module is asked for as a matrix, as experts and as a stack, with sizes that its tensors suggest;
 * whatever becomes a descriptor is read.
 */
#include "model/names.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count);

enum { DATA_BYTES = 1 << 16, COLS_MAX = DATA_BYTES * 8, ROWS_READ = 3, MODULES_MAX = 64 };

static const char *const prefixes[] = { "model.", "", NULL };
static const lw_names_options options = { .prefixes = prefixes };

static void write_file(const char *path, const void *head, size_t head_bytes, const void *bytes, size_t count,
                       size_t hole)
{
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    LW_ASSERT(file >= 0);
    LW_ASSERT(write(file, head, head_bytes) == (ssize_t)head_bytes);
    LW_ASSERT(write(file, bytes, count) == (ssize_t)count);
    LW_ASSERT(ftruncate(file, (off_t)(head_bytes + count + hole)) == 0);
    close(file);
}

static void read_weight(const lw_weight *weight)
{
    char text[32];
    lw_weight_format(weight, text);
    LW_ASSERT(lw_weight_bytes(weight) <= (uint64_t)DATA_BYTES * weight->stack_count);
    double *row = malloc(weight->cols * sizeof *row);
    float *scales = malloc(2 * (size_t)(lw_weight_groups(weight) + 1) * sizeof *scales);
    for (uint32_t i = 0; i < ROWS_READ && row != NULL && scales != NULL; i++) {
        const uint32_t member = i % weight->stack_count, last = weight->rows - 1;
        const uint32_t n = i == 0 ? 0 : i == 1 ? last : last / 2;
        lw_weight_row_f64(weight, member, n, row);
        LW_ASSERT(!lw_weight_row_has_nan(weight, member, n));
        if (weight->group > 0) lw_weight_scales(weight, member, n, scales, scales + lw_weight_groups(weight));
    }
    free(row);
    free(scales);
}

/* The module of a tensor, asked for with every width that its packing could mean. */
static void ask(lw_names *names, const lw_tensor *tensor)
{
    static const uint32_t widths[][2] = { { 1, 1 }, { 2, 1 }, { 4, 1 }, { 8, 1 }, { 16, 3 } };
    static const lw_stack_names experts = { .whole = "switch", .fused = "fused", .fused_begin = 1,
                                            .fused_rows = 4, .each = "experts.*.up" };
    char module[LW_LIMIT_NAME_BYTES];
    const char *dot = strrchr(tensor->name, '.');
    const size_t bytes = dot == NULL ? strlen(tensor->name) : (size_t)(dot - tensor->name);
    snprintf(module, sizeof module, "%.*s", (int)(bytes > 200 ? 200 : bytes), tensor->name);
    lw_weight weight;
    for (size_t i = 0; i < sizeof widths / sizeof widths[0] && tensor->dim_count > 0; i++) {
        const uint64_t last = tensor->dims[tensor->dim_count - 1] * widths[i][0] / widths[i][1];
        const uint64_t first = tensor->dims[0] * widths[i][0] / widths[i][1];
        if (last > COLS_MAX || first > COLS_MAX) continue;
        if (lw_names_matrix_any_rows(names, &weight, (uint32_t)last, "%s", module)) read_weight(&weight);
        if (lw_names_matrix_any_rows(names, &weight, (uint32_t)first, "%s", module)) read_weight(&weight);
        const uint32_t dims[3] = { 2, 2, (uint32_t)last };
        if (lw_names_stack_of(names, &weight, dims, &experts, "%s", module)) read_weight(&weight);
        if (lw_names_stack_of(names, &weight, dims, &experts, "mlp")) read_weight(&weight);
    }
}

static void search(const char *folder)
{
    lw_checkpoint *checkpoint;
    lw_names *names;
    lw_diag d;
    if (lw_checkpoint_open(folder, &checkpoint, &d) != LW_OK) return;
    if (lw_names_make(checkpoint, &options, &names, &d) == LW_OK) {
        for (size_t i = 0; i < lw_checkpoint_tensor_count(checkpoint) && i < MODULES_MAX; i++)
            ask(names, lw_checkpoint_tensor(checkpoint, i));
        if (lw_names_finish(names, &d) != LW_OK) LW_ASSERT(strnlen(d.text, sizeof d.text) < sizeof d.text);
        lw_names_free(names);
    }
    lw_checkpoint_close(checkpoint);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count)
{
    char folder[] = "/tmp/lanewise-fuzz-XXXXXX", config[64], weights[64];
    const uint8_t *line = count == 0 ? NULL : memchr(data, '\n', count);
    if (line == NULL || mkdtemp(folder) == NULL) return 0;
    const size_t config_bytes = (size_t)(line - data), header_bytes = count - config_bytes - 1;
    const uint64_t length = header_bytes;
    snprintf(config, sizeof config, "%s/config.json", folder);
    snprintf(weights, sizeof weights, "%s/model.safetensors", folder);
    write_file(config, data, config_bytes, "", 0, 0);
    write_file(weights, &length, sizeof length, line + 1, header_bytes, DATA_BYTES);
    search(folder);
    unlink(config);
    unlink(weights);
    rmdir(folder);
    return 0;
}
