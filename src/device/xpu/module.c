/* The module of kernels: the program's own SPIR-V, or a file in its place, which is SPIR-V too or was built
 * for the device ahead of time. The driver builds SPIR-V; what it made is kept for the next start.
 */
#include "device/xpu/image.h"
#include "device/xpu/spirv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MODULE_BYTES_MAX = 64 << 20, SPIRV_MAGIC = 0x07230203, LOG_BYTES_MAX = 1024 };

/* Addresses in 64 bits for allocations past 4 GiB; divisions and roots as IEEE 754 has them. */
static const char build_flags[] =
    "-ze-opt-greater-than-4GB-buffer-required -cl-fp32-correctly-rounded-divide-sqrt";

static const char own_name[] = "of this build";

typedef struct kernel_entry {
    const char *name;
    bool is_common, is_dpas;             /* of which sets */
} kernel_entry;

static const kernel_entry kernel_entries[] = {
#define LW_XPU_KERNEL(name) { "lw_" #name, true, true },
#define LW_XPU_KERNEL_DPAS(name) { "lw_" #name, false, true },
#define LW_XPU_KERNEL_COMMON(name) { "lw_" #name, true, false },
#include "device/xpu/kernels.list"
#undef LW_XPU_KERNEL
#undef LW_XPU_KERNEL_DPAS
#undef LW_XPU_KERNEL_COMMON
};

/* Whole files only: a module that is cut short could still load. */
static lw_status module_read(const char *path, uint8_t **bytes, size_t *count, lw_diag *d)
{
    *bytes = NULL;
    FILE *file = fopen(path, "re");
    if (file == NULL) return lw_fail(d, LW_NOT_FOUND, "kernels %s: %s", path, strerror(errno));
    const long end = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    lw_status status = LW_OK;
    if (end <= 0 || end > MODULE_BYTES_MAX || fseek(file, 0, SEEK_SET) != 0)
        status = lw_fail(d, LW_BAD_INPUT, "kernels %s: not a file of 1 to %d bytes", path, MODULE_BYTES_MAX);
    if (status == LW_OK) {
        *count = (size_t)end;
        *bytes = malloc(*count);
        if (*bytes == NULL)
            status = lw_fail(d, LW_NO_ROOM, "kernels %s: no memory for %zu bytes", path, *count);
    }
    if (status == LW_OK && fread(*bytes, 1, *count, file) != *count)
        status = lw_fail(d, LW_IO, "kernels %s: cannot be read whole", path);
    fclose(file);
    if (status != LW_OK) {
        free(*bytes);
        *bytes = NULL;
    }
    return status;
}

/* The driver's own words on why it did not build, in place of ours. */
static lw_status build_failed(const lw_device *device, const lw_xpu_source *source, lw_ze_result result,
                              lw_ze_build_log *log, lw_diag *d)
{
    char text[LOG_BYTES_MAX] = "";
    size_t bytes = 0;
    const lw_ze *ze = &device->ze;
    if (log != NULL && ze->zeModuleBuildLogGetString(log, &bytes, NULL) == LW_ZE_RESULT_SUCCESS && bytes > 0
        && bytes <= sizeof text)
        (void)ze->zeModuleBuildLogGetString(log, &bytes, text);
    text[sizeof text - 1] = '\0';
    return lw_ze_fail(d, result, "kernels %s on %s%s%.150s", source->name, device->info.name,
                      text[0] != '\0' ? ": " : "", text);
}

static bool is_spirv(const lw_xpu_source *source)
{
    uint32_t magic = 0;
    if (source->count >= sizeof magic) memcpy(&magic, source->bytes, sizeof magic);
    return magic == SPIRV_MAGIC;
}

static lw_status module_make(lw_device *device, const lw_xpu_source *source, lw_diag *d)
{
    const lw_ze_module_desc desc = {
        .stype = LW_ZE_STRUCTURE_TYPE_MODULE_DESC,
        .format = is_spirv(source) ? LW_ZE_MODULE_FORMAT_IL_SPIRV : LW_ZE_MODULE_FORMAT_NATIVE,
        .input_bytes = source->count,
        .input = source->bytes,
        .build_flags = source->build_flags,
    };
    lw_ze_build_log *log = NULL;
    const lw_ze *ze = &device->ze;
    lw_status status = LW_OK;
    const lw_ze_result result =
        ze->zeModuleCreate(device->context, device->info.device, &desc, &device->module, &log);
    if (result != LW_ZE_RESULT_SUCCESS) {
        device->module = NULL;
        status = build_failed(device, source, result, log, d);
    }
    if (log != NULL) ze->zeModuleBuildLogDestroy(log);
    return status;
}

/* A kept image that this driver does not take is built again. *is_new: the driver built SPIR-V. */
static lw_status module_build(lw_device *device, const lw_xpu_source *source, bool *is_new, lw_diag *d)
{
    lw_buf kept;
    lw_buf_init(&kept, 0);
    lw_status status = LW_NOT_FOUND;
    *is_new = false;
    if (is_spirv(source) && lw__xpu_image_read(device, source, &kept)) {
        const lw_xpu_source image = { .bytes = (const uint8_t *)kept.bytes, .count = kept.count,
                                      .build_flags = source->build_flags, .name = source->name };
        status = module_make(device, &image, NULL);
    }
    lw_buf_deinit(&kept);
    if (status == LW_OK) return LW_OK;
    status = module_make(device, source, d);
    *is_new = status == LW_OK && is_spirv(source);
    return status;
}

/* Kernels find memory by addresses inside of their argument, which the driver does not see: all of it has to
 * be there when they run. */
static lw_ze_result kernel_make(lw_device *device, const char *name, lw_ze_kernel **out)
{
    const lw_ze_kernel_desc desc = { .stype = LW_ZE_STRUCTURE_TYPE_KERNEL_DESC, .name = name };
    lw_ze_result result = device->ze.zeKernelCreate(device->module, &desc, out);
    if (result != LW_ZE_RESULT_SUCCESS) {
        *out = NULL;
        return result;
    }
    result = device->ze.zeKernelSetIndirectAccess(*out, LW_ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE);
    if (result == LW_ZE_RESULT_SUCCESS) return result;
    device->ze.zeKernelDestroy(*out);
    *out = NULL;
    return result;
}

static lw_status kernels_make(lw_device *device, lw_diag *d)
{
    for (uint32_t i = 0; i < LW_XPU_KERNEL_COUNT; i++) {
        const kernel_entry *entry = &kernel_entries[i];
        const bool is_wanted = device->info.has_dpas ? entry->is_dpas : entry->is_common;
        if (device->kernels[i] != NULL || !is_wanted) continue;
        const lw_ze_result result = kernel_make(device, entry->name, &device->kernels[i]);
        if (result == LW_ZE_RESULT_SUCCESS) continue;
        return lw_ze_fail(d, result, "kernel %s of %s", entry->name,
                          device->module_path != NULL ? device->module_path : own_name);
    }
    return LW_OK;
}

/* What to build: the file that was named, whose bytes the caller frees, or the program's own. */
static lw_status source_open(const lw_device *device, lw_xpu_source *source, uint8_t **bytes, lw_diag *d)
{
    const lw_xpu_spirv own = lw_xpu_spirv_view(device->info.has_dpas);
    *source = (lw_xpu_source){ .bytes = own.bytes, .count = own.count, .build_flags = build_flags,
                               .name = own_name };
    *bytes = NULL;
    if (device->module_path == NULL && own.count > 0) return LW_OK;
    if (device->module_path == NULL) {
        return lw_fail(d, LW_UNSUPPORTED,
                       "this build has no kernels for %s: it was made without ocloc (Debian: "
                       "intel-opencl-icd); LANEWISE_XPU_KERNELS names a module of them (docs/xpu.md)",
                       device->info.name);
    }
    const lw_status status = module_read(device->module_path, bytes, &source->count, d);
    source->bytes = *bytes;
    source->name = device->module_path;
    return status;
}

lw_status lw__xpu_kernels_load(lw_device *device, lw_diag *d)
{
    if (device->module != NULL) return kernels_make(device, d);
    lw_xpu_source source;
    uint8_t *bytes;
    bool is_new = false;
    lw_status status = source_open(device, &source, &bytes, d);
    if (status == LW_OK) status = module_build(device, &source, &is_new, d);
    if (status == LW_OK) status = kernels_make(device, d);
    /* Drivers build cut SPIR-V too: what has all kernels is worth keeping, and nothing else. */
    if (status == LW_OK && is_new) lw__xpu_image_save(device, &source);
    free(bytes);
    return status;
}
