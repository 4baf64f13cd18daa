/* Opening Level Zero; see ze.h. */
#include "device/xpu/ze.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

typedef struct result_text {
    lw_ze_result result;
    lw_status status;
    const char *text;
} result_text;

static const result_text result_texts[] = {
    { LW_ZE_RESULT_NOT_READY, LW_DEVICE_LOST, "not ready in time" },
    { LW_ZE_RESULT_ERROR_DEVICE_LOST, LW_DEVICE_LOST, "device lost" },
    { LW_ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, LW_NO_ROOM, "out of host memory" },
    { LW_ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, LW_NO_ROOM, "out of device memory" },
    { LW_ZE_RESULT_ERROR_MODULE_BUILD_FAILURE, LW_UNSUPPORTED, "the module does not build" },
    { LW_ZE_RESULT_ERROR_MODULE_LINK_FAILURE, LW_UNSUPPORTED, "the module does not link" },
    { LW_ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS, LW_IO, "no permission" },
    { LW_ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE, LW_UNSUPPORTED, "something it needs is not installed" },
    { LW_ZE_RESULT_ERROR_UNINITIALIZED, LW_UNSUPPORTED, "no driver" },
    { LW_ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, LW_UNSUPPORTED, "unsupported feature" },
    { LW_ZE_RESULT_ERROR_INVALID_ARGUMENT, LW_UNSUPPORTED, "invalid argument" },
    { LW_ZE_RESULT_ERROR_UNSUPPORTED_SIZE, LW_NO_ROOM, "size not supported" },
    { LW_ZE_RESULT_ERROR_INVALID_ENUMERATION, LW_UNSUPPORTED, "a flag that it does not know" },
    { LW_ZE_RESULT_ERROR_INVALID_NATIVE_BINARY, LW_UNSUPPORTED, "the module is for another device" },
    { LW_ZE_RESULT_ERROR_INVALID_KERNEL_NAME, LW_UNSUPPORTED, "no kernel of this name" },
};
enum { RESULT_TEXTS = sizeof result_texts / sizeof result_texts[0] };

lw_status lw_ze_fail(lw_diag *d, lw_ze_result result, const char *format, ...)
{
    char what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    result_text known = { result, LW_IO, "an error" };
    for (size_t i = 0; i < RESULT_TEXTS; i++) {
        if (result_texts[i].result == result) known = result_texts[i];
    }
    return lw_fail(d, known.status, "%s: Level Zero answers %s (0x%08x)", what, known.text, result);
}

void lw_ze_close(lw_ze *ze)
{
    if (ze->library != NULL) dlclose(ze->library);
    *ze = (lw_ze){ .library = NULL };
}

/* A needed entry's name that the library lacks, or NULL when it has them all. */
static const char *entries_resolve(lw_ze *ze)
{
    enum { OPTIONAL, NEEDED };
    const char *missing = NULL;
    /* POSIX lets a function's address travel as an object pointer; C needs the detour over the pointer's own
     * address. */
#define LW_ZE(need, name, parameters) \
    *(void **)&ze->name = dlsym(ze->library, #name); \
    if (need == NEEDED && ze->name == NULL && missing == NULL) missing = #name;
#include "device/xpu/ze.list"
#undef LW_ZE
    return missing;
}

bool lw_ze_is_wsl(const char *folder)
{
    char path[128];
    snprintf(path, sizeof path, "%s/dxg", folder);
    return access(path, F_OK) == 0;
}

void lw_ze_hint(const char *folder, char text[LW_ZE_HINT_BYTES])
{
    char pattern[128];
    glob_t nodes;
    snprintf(pattern, sizeof pattern, "%s/dri/renderD*", folder);
    const bool has_nodes = glob(pattern, 0, NULL, &nodes) == 0;
    size_t open = 0;
    while (has_nodes && open < nodes.gl_pathc && access(nodes.gl_pathv[open], R_OK | W_OK) != 0) open++;
    snprintf(pattern, sizeof pattern, "%s/dxg", folder);
    const bool is_wsl = lw_ze_is_wsl(folder);
    if (!has_nodes && !is_wsl) {
        snprintf(
            text, LW_ZE_HINT_BYTES,
            "there is no %s/dri/renderD*, so that this machine has no GPU, or its kernel no driver for it",
            folder);
    } else if (has_nodes && open == nodes.gl_pathc) {
        snprintf(text, LW_ZE_HINT_BYTES,
                 "this user may not open %.120s: group render may (sudo usermod -aG render USER, then log in "
                 "again)",
                 nodes.gl_pathv[0]);
    } else {
        snprintf(
            text, LW_ZE_HINT_BYTES,
            "%.120s is there, so that either Intel's compute runtime is not installed, or too old for this "
            "GPU, or the GPU is not Intel's (docs/xpu.md names packages)",
            has_nodes ? nodes.gl_pathv[open] : pattern);
    }
    if (has_nodes) globfree(&nodes);
}

lw_status lw_ze_open(lw_ze *ze, const char *path, lw_diag *d)
{
    if (path == NULL || path[0] == '\0') path = LW_ZE_LOADER_USUAL;
    *ze = (lw_ze){ .library = dlopen(path, RTLD_NOW | RTLD_LOCAL) };
    if (ze->library == NULL) {
        const char *why = dlerror();
        return lw_fail(d, LW_UNSUPPORTED,
                       "Level Zero's loader cannot be opened: %s; the package libze1 has it (Debian, Ubuntu; "
                       "others stand in docs/xpu.md), and LANEWISE_ZE_LOADER names another",
                       why != NULL ? why : path);
    }
    const char *missing = entries_resolve(ze);
    if (missing != NULL) {
        lw_ze_close(ze);
        return lw_fail(d, LW_UNSUPPORTED, "%s has no %s: it is no loader of Level Zero 1.0 or later", path,
                       missing);
    }
    const lw_ze_result result = ze->zeInit(LW_ZE_INIT_FLAG_GPU_ONLY);
    if (result == LW_ZE_RESULT_SUCCESS) return LW_OK;
    lw_ze_close(ze);
    char hint[LW_ZE_HINT_BYTES];
    lw_ze_hint("/dev", hint);
    return lw_ze_fail(d, result, "no device: %s: zeInit of %s", hint, path);
}
