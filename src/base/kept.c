/* Files of the user's cache folder; see kept.h. */
#include "base/kept.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_BYTES = 65536 };

bool lw_kept_dir(const char *cache_home, const char *home, const char *name, char dir[LW_KEPT_PATH_BYTES])
{
    int count = -1;
    /* The rule of the desktop specification: a path that is not absolute does not count. */
    if (cache_home != NULL && cache_home[0] == '/')
        count = snprintf(dir, LW_KEPT_PATH_BYTES, "%s/lanewise/%s", cache_home, name);
    else if (home != NULL && home[0] == '/')
        count = snprintf(dir, LW_KEPT_PATH_BYTES, "%s/.cache/lanewise/%s", home, name);
    return count > 0 && count < LW_KEPT_PATH_BYTES;
}

static lw_status path_make(const char *dir, const char *key, char path[LW_KEPT_PATH_BYTES], lw_diag *d)
{
    const int count = snprintf(path, LW_KEPT_PATH_BYTES, "%s/%s", dir, key);
    if (count > 0 && count < LW_KEPT_PATH_BYTES) return LW_OK;
    return lw_fail(d, LW_BAD_INPUT, "%s: the path is too long", dir);
}

lw_status lw_kept_read(const char *dir, const char *key, lw_buf *out, lw_diag *d)
{
    char path[LW_KEPT_PATH_BYTES], block[READ_BYTES];
    size_t got;
    lw_status status = path_make(dir, key, path, d);
    if (status != LW_OK) return status;
    FILE *file = fopen(path, "rbe");
    if (file == NULL)
        return lw_fail(d, errno == ENOENT ? LW_NOT_FOUND : LW_IO, "%s: %s", path, strerror(errno));
    while (status == LW_OK && (got = fread(block, 1, sizeof block, file)) > 0) {
        if (out->count_max != 0 && got > out->count_max - out->count)
            status = lw_fail(d, LW_BAD_INPUT, "%s: longer than %zu bytes", path, out->count_max);
        else if (lw_buf_append(out, block, got) != LW_OK)
            status = lw_fail(d, LW_NO_ROOM, "%s: no memory for it", path);
    }
    if (status == LW_OK && ferror(file)) status = lw_fail(d, LW_IO, "%s: could not be read", path);
    fclose(file);
    return status;
}

/* dir and what is missing above it. */
static void folders_make(const char *dir)
{
    char path[LW_KEPT_PATH_BYTES];
    const int count = snprintf(path, sizeof path, "%s", dir);
    for (int i = 1; i <= count && count < LW_KEPT_PATH_BYTES; i++) {
        if (path[i] != '/' && path[i] != '\0') continue;
        const char kept = path[i];
        path[i] = '\0';
        /* Whether it is there is what opening the file says. */
        (void)mkdir(path, 0700);
        path[i] = kept;
    }
}

static lw_status file_write(int file, const char *path, const uint8_t *bytes, size_t count, lw_diag *d)
{
    for (size_t done = 0; done < count;) {
        const ssize_t wrote = write(file, bytes + done, count - done);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return lw_fail(d, LW_IO, "%s: could not be written", path);
        done += (size_t)wrote;
    }
    return LW_OK;
}

lw_status lw_kept_save(const char *dir, const char *key, const void *bytes, size_t count, lw_diag *d)
{
    char path[LW_KEPT_PATH_BYTES], beside[LW_KEPT_PATH_BYTES];
    lw_status status = path_make(dir, key, path, d);
    if (status == LW_OK) status = path_make(dir, ".new-XXXXXX", beside, d);
    if (status != LW_OK) return status;
    folders_make(dir);
    const int file = mkostemp(beside, O_CLOEXEC);
    if (file < 0) return lw_fail(d, LW_IO, "%s: %s", dir, strerror(errno));
    status = file_write(file, beside, bytes, count, d);
    if (close(file) != 0 && status == LW_OK) status = lw_fail(d, LW_IO, "%s: %s", beside, strerror(errno));
    if (status == LW_OK && rename(beside, path) != 0)
        status = lw_fail(d, LW_IO, "%s: %s", path, strerror(errno));
    if (status != LW_OK) (void)unlink(beside);
    return status;
}
