/* Any config.json (the input's first line) over any safetensors header (its rest) as a model folder whose
 * weights are all zero, recorded by the family that it names, with and without its draft head. What is
 * recorded must be whole; what is refused must say why. The folder lies in memory where that can be; its
 * weights are a hole in a file, of DATA_BYTES whatever the header says.
 */
#include "family/family.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count);

enum { DATA_BYTES = 64 << 20 };

static const char *const files[] = { "config.json", "model.safetensors" };

typedef struct model_folder {
    char path[64];
} model_folder;

static void file_path(const model_folder *f, size_t i, char path[128])
{
    snprintf(path, 128, "%s/%s", f->path, files[i]);
}

/* Writes the pieces one behind the other, then a hole of hole_bytes. */
static void file_make(const model_folder *f, size_t i, const void *const pieces[2], const size_t counts[2],
                      size_t hole_bytes)
{
    char path[128];
    file_path(f, i, path);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    LW_ASSERT(fd >= 0);
    for (int p = 0; p < 2; p++)
        LW_ASSERT(counts[p] == 0 || write(fd, pieces[p], counts[p]) == (ssize_t)counts[p]);
    LW_ASSERT(ftruncate(fd, (off_t)(counts[0] + counts[1] + hole_bytes)) == 0);
    LW_ASSERT(close(fd) == 0);
}

static void folder_make(model_folder *f)
{
    const char *root = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(f->path, sizeof f->path, "%s/lanewise-fuzz-XXXXXX", root);
    LW_ASSERT(mkdtemp(f->path) != NULL);
}

static void folder_remove(const model_folder *f)
{
    for (size_t i = 0; i < 2; i++) {
        char path[128];
        file_path(f, i, path);
        unlink(path);
    }
    rmdir(f->path);
}

/* Every reference of an op lies inside its plan. */
static void plan_check(const lw_plan *plan)
{
    LW_ASSERT(plan->entry_count > 0 && plan->entries[plan->entry_count - 1].op_end == plan->op_count);
    for (uint32_t i = 0; i < plan->op_count; i++) {
        const lw_op *op = &plan->ops[i];
        LW_ASSERT(op->kind < LW_OP_COUNT);
        LW_ASSERT(op->out.index == LW_NONE || op->out.index < plan->value_count);
        for (uint32_t w = 0; w < LW_OP_WEIGHTS_MAX; w++)
            LW_ASSERT(op->weights[w].index == LW_NONE || op->weights[w].index < plan->weight_count);
    }
}

static void record(const lw_checkpoint *checkpoint, const lw_family *family, bool head)
{
    lw_plan plan;
    lw_diag d = { "" };
    const lw_record_options options = { .head = head };
    if (lw_plan_init(&plan, &d) != LW_OK) return;
    if (family->record(checkpoint, &options, &plan, &d) == LW_OK) plan_check(&plan);
    else LW_ASSERT(d.text[0] != '\0');
    lw_plan_deinit(&plan);
}

static void open_and_record(const char *path)
{
    lw_checkpoint *checkpoint;
    const lw_family *family;
    int32_t ids[LW_FAMILY_END_IDS_MAX];
    size_t id_count = 0;
    lw_diag d;
    if (lw_checkpoint_open(path, &checkpoint, &d) != LW_OK) return;
    if (lw_family_find(checkpoint, &family, &d) == LW_OK) {
        record(checkpoint, family, false);
        record(checkpoint, family, true);
    }
    const lw_status status = lw_family_end_ids(checkpoint, ids, &id_count, &d);
    LW_ASSERT(status != LW_OK || id_count <= LW_FAMILY_END_IDS_MAX);
    LW_ASSERT(lw_family_context(checkpoint) <= LW_LIMIT_CONTEXT);
    lw_checkpoint_close(checkpoint);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count)
{
    const uint8_t *end = count == 0 ? NULL : memchr(data, '\n', count);
    const size_t config_count = end == NULL ? count : (size_t)(end - data);
    const size_t skipped = end == NULL ? config_count : config_count + 1;
    const uint64_t header_bytes = count - skipped;
    model_folder f;
    folder_make(&f);
    file_make(&f, 0, (const void *const[]){ data, NULL }, (const size_t[]){ config_count, 0 }, 0);
    file_make(&f, 1, (const void *const[]){ &header_bytes, data + skipped },
              (const size_t[]){ sizeof header_bytes, (size_t)header_bytes }, DATA_BYTES);
    open_and_record(f.path);
    folder_remove(&f);
    return 0;
}
