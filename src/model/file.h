/* Reading of files for src/model: whole small files into memory, large ones mapped read-only.
 * Both name what commonly stands where a model file should be: a folder, a dead link, a git-lfs pointer.
 */
#ifndef LW_MODEL_FILE_H
#define LW_MODEL_FILE_H

#include "base/status.h"

typedef struct lw_mapping {
    const uint8_t *bytes; /* NULL when closed or empty */
    size_t count;
} lw_mapping;

/* Maps path read-only; the file may be empty. */
lw_status lw__mapping_open(const char *path, lw_mapping *out, lw_diag *d) LW_MUST_USE;
void lw__mapping_close(lw_mapping *mapping);

/* Fails if bytes are a git-lfs pointer instead of the file that it stands for. */
lw_status lw__lfs_check(const char *name, const void *bytes, size_t count, lw_diag *d) LW_MUST_USE;

#endif
