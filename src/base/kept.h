/* Small files that are made once on a machine and may be made again at any time: window costs, built kernels.
 * What lies there is checked by whoever reads it; a folder that cannot be written costs time only.
 */
#ifndef LW_BASE_KEPT_H
#define LW_BASE_KEPT_H

#include "base/buf.h"

enum { LW_KEPT_PATH_BYTES = 4096 };

/* lanewise/name under cache_home, else under home/.cache; false: there is neither. Both may be NULL. */
bool lw_kept_dir(const char *cache_home, const char *home, const char *name, char dir[LW_KEPT_PATH_BYTES])
    LW_MUST_USE;

/* Appends what an earlier save left under key to out. LW_NOT_FOUND: nothing is there; LW_BAD_INPUT: more than
 * out may hold. */
lw_status lw_kept_read(const char *dir, const char *key, lw_buf *out, lw_diag *d) LW_MUST_USE;

/* Makes dir and writes beside the file, then renames: a reader sees the old file or the new one. */
lw_status lw_kept_save(const char *dir, const char *key, const void *bytes, size_t count, lw_diag *d)
    LW_MUST_USE;

#endif
