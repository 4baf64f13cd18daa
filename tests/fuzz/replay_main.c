/* Runs one fuzz entry over stored inputs, without libFuzzer: a corpus becomes a test in every build variant.
 * Arguments are files and folders (not descended into). Each file is one input and counts as one passed test.
 * A crash or a sanitizer's report ends the process; the last line printed names the input.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { INPUT_BYTES_MAX = 16 << 20, FILES_MAX = 100000 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

/* Whether the input could be read. The block has the exact size, so that reading past its end shows. */
static int replay_file(const char *path, long bytes)
{
    FILE *file = fopen(path, "rb");
    uint8_t *input = malloc(bytes > 0 ? (size_t)bytes : 1);
    const int is_open = file != NULL && input != NULL;
    const int is_read = is_open && fread(input, 1, (size_t)bytes, file) == (size_t)bytes;
    if (file != NULL) fclose(file);
    if (is_read) {
        printf("%s\n", path);
        fflush(stdout);
        LLVMFuzzerTestOneInput(input, (size_t)bytes);
    } else {
        fprintf(stderr, "%s: cannot be read\n", path);
    }
    free(input);
    return is_read;
}

static int is_input(const char *path, struct stat *facts)
{
    if (stat(path, facts) != 0 || !S_ISREG(facts->st_mode)) return 0;
    if (facts->st_size <= INPUT_BYTES_MAX) return 1;
    fprintf(stderr, "%s: %lld bytes, the limit is %d\n", path, (long long)facts->st_size, INPUT_BYTES_MAX);
    return 0;
}

static void replay_folder(const char *folder, int *passed, int *failed)
{
    struct dirent **entries = NULL;
    const int count = scandir(folder, &entries, NULL, alphasort);
    if (count < 0) {
        fprintf(stderr, "%s: no such folder\n", folder);
        ++*failed;
        return;
    }
    for (int i = 0; i < count && i < FILES_MAX; i++) {
        char path[4096];
        struct stat facts;
        const int chars = snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (chars > 0 && (size_t)chars < sizeof path && is_input(path, &facts)) {
            if (replay_file(path, (long)facts.st_size)) ++*passed;
            else ++*failed;
        }
        free(entries[i]);
    }
    free(entries);
}

int main(int count, char **words)
{
    int passed = 0, failed = 0;
    for (int i = 1; i < count; i++) {
        struct stat facts;
        if (!is_input(words[i], &facts)) replay_folder(words[i], &passed, &failed);
        else if (replay_file(words[i], (long)facts.st_size)) passed++;
        else failed++;
    }
    printf("%d passed, %d failed, 0 skipped\n", passed, failed);
    return failed > 0 || passed == 0;
}
