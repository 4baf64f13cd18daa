/* Mappings of model files; see file.h. */
#include "model/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static lw_status open_failed(const char *path, int error, lw_diag *d)
{
    struct stat link;
    if (error == ENOENT && lstat(path, &link) == 0 && S_ISLNK(link.st_mode))
        return lw_fail(d, LW_NOT_FOUND, "%s: the link points to a file that is not there (an unfinished download?)",
                       path);
    return lw_fail(d, error == ENOENT ? LW_NOT_FOUND : LW_IO, "%s: %s", path, strerror(error));
}

lw_status lw__mapping_open(const char *path, lw_mapping *out, lw_diag *d)
{
    lw_status status = LW_OK;
    *out = (lw_mapping){ 0 };
    /* A pipe in a model folder must not make the open wait for a writer. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return open_failed(path, errno, d);
    struct stat st;
    if (fstat(fd, &st) != 0) {
        status = lw_fail(d, LW_IO, "%s: %s", path, strerror(errno));
    } else if (!S_ISREG(st.st_mode)) {
        status = lw_fail(d, LW_BAD_MODEL, "%s: is not a regular file", path);
    } else if (st.st_size > 0) {
        void *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (bytes == MAP_FAILED)
            status = lw_fail(d, LW_IO, "%s: cannot map %lld bytes: %s", path, (long long)st.st_size, strerror(errno));
        else
            *out = (lw_mapping){ .bytes = bytes, .count = (size_t)st.st_size };
    }
    close(fd);
    return status;
}

void lw__mapping_close(lw_mapping *mapping)
{
    if (mapping->bytes != NULL) munmap((void *)(uintptr_t)mapping->bytes, mapping->count);
    *mapping = (lw_mapping){ 0 };
}

lw_status lw__lfs_check(const char *name, const void *bytes, size_t count, lw_diag *d)
{
    static const char magic[] = "version https://git-lfs.github.com/spec/";
    enum { POINTER_BYTES_MAX = 1024 /* the format's own limit */ };
    if (count < sizeof magic - 1 || memcmp(bytes, magic, sizeof magic - 1) != 0) return LW_OK;
    const char *text = bytes;
    const size_t text_bytes = count < POINTER_BYTES_MAX ? count : POINTER_BYTES_MAX;
    const char *size = memmem(text, text_bytes, "\nsize ", 6);
    size_t digits = 0;
    if (size != NULL) {
        size += 6;
        const size_t left = text_bytes - (size_t)(size - text);
        while (digits < left && digits < 20 && size[digits] >= '0' && size[digits] <= '9') digits++;
    }
    return lw_fail(d, LW_BAD_MODEL,
                   "%s: is a git-lfs pointer, not the file itself: %zu bytes are there and %.*s are expected; "
                   "fetch it with `git lfs pull`",
                   name, count, digits > 0 ? (int)digits : 4, digits > 0 ? size : "more");
}
