/* Model folders made by tests: a temporary folder, files in it, and safetensors from a header text. Each test
 * program that includes this has its own copy, so nothing is shared between them.
 */
#ifndef TESTS_MODEL_FILES_H
#define TESTS_MODEL_FILES_H

#include "base/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct folder {
    char path[64];
} folder;

LW_UNUSED static folder folder_make(void)
{
    folder f = { .path = "/tmp/lanewise-test-XXXXXX" };
    assert_non_null(mkdtemp(f.path));
    return f;
}

LW_UNUSED static void folder_free(const folder *f)
{
    char path[512];
    const struct dirent *entry;
    DIR *dir = opendir(f->path);
    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        snprintf(path, sizeof path, "%s/%s", f->path, entry->d_name);
        assert_int_equal(unlink(path), 0);
    }
    closedir(dir);
    assert_int_equal(rmdir(f->path), 0);
}

LW_UNUSED static void file_write(const folder *f, const char *name, const void *bytes, size_t count)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", f->path, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    if (count > 0) assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

LW_UNUSED static void text_write(const folder *f, const char *name, const char *text)
{
    file_write(f, name, text, strlen(text));
}

/* A safetensors file in memory: length, header, then data_bytes bytes that count up. free() it. */
LW_UNUSED static uint8_t *safetensors_make(const char *header, size_t data_bytes, size_t *count)
{
    const uint64_t header_bytes = strlen(header);
    *count = 8 + (size_t)header_bytes + data_bytes;
    uint8_t *bytes = malloc(*count);
    assert_non_null(bytes);
    memcpy(bytes, &header_bytes, 8);
    memcpy(bytes + 8, header, (size_t)header_bytes);
    for (size_t i = 0; i < data_bytes; i++) bytes[8 + header_bytes + i] = (uint8_t)i;
    return bytes;
}

LW_UNUSED static void safetensors_write(const folder *f, const char *name, const char *header,
                                        size_t data_bytes)
{
    size_t count;
    uint8_t *bytes = safetensors_make(header, data_bytes, &count);
    file_write(f, name, bytes, count);
    free(bytes);
}

/* The text must hold every one of the NULL-terminated parts. */
LW_UNUSED static void assert_text_names(const char *text, const char *const *parts)
{
    for (; *parts != NULL; parts++)
        if (strstr(text, *parts) == NULL) fail_msg("\"%s\" does not name \"%s\"", text, *parts);
}
#define assert_names(text, ...) assert_text_names(text, (const char *const[]){ __VA_ARGS__, NULL })

#endif
