/* The module of kernels: a file that was built for the device ahead of time, or SPIR-V, which the driver
 * builds when it is loaded.
 */
#include "device/xpu/queue.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MODULE_BYTES_MAX = 64 << 20, SPIRV_MAGIC = 0x07230203, LOG_BYTES_MAX = 1024 };

/* Addresses in 64 bits for allocations past 4 GiB; divisions and roots as IEEE 754 has them. */
static const char build_flags[] =
    "-ze-opt-greater-than-4GB-buffer-required -cl-fp32-correctly-rounded-divide-sqrt";

static const char *const kernel_names[] = {
#define LW_XPU_KERNEL(name) "lw_" #name,
#include "device/xpu/kernels.list"
#undef LW_XPU_KERNEL
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
static lw_status build_failed(lw_device *device, lw_ze_result result, lw_ze_build_log *log, lw_diag *d)
{
    char text[LOG_BYTES_MAX] = "";
    size_t bytes = 0;
    const lw_ze *ze = &device->ze;
    if (log != NULL && ze->zeModuleBuildLogGetString(log, &bytes, NULL) == LW_ZE_RESULT_SUCCESS && bytes > 0
        && bytes <= sizeof text)
        (void)ze->zeModuleBuildLogGetString(log, &bytes, text);
    text[sizeof text - 1] = '\0';
    return lw_ze_fail(d, result, "kernels %s on %s%s%.150s", device->module_path, device->info.name,
                      text[0] != '\0' ? ": " : "", text);
}

static lw_status module_make(lw_device *device, const uint8_t *bytes, size_t count, lw_diag *d)
{
    uint32_t magic = 0;
    if (count >= sizeof magic) memcpy(&magic, bytes, sizeof magic);
    const lw_ze_module_desc desc = {
        .stype = LW_ZE_STRUCTURE_TYPE_MODULE_DESC,
        .format = magic == SPIRV_MAGIC ? LW_ZE_MODULE_FORMAT_IL_SPIRV : LW_ZE_MODULE_FORMAT_NATIVE,
        .input_bytes = count,
        .input = bytes,
        .build_flags = build_flags,
    };
    lw_ze_build_log *log = NULL;
    const lw_ze *ze = &device->ze;
    lw_status status = LW_OK;
    const lw_ze_result result =
        ze->zeModuleCreate(device->context, device->info.device, &desc, &device->module, &log);
    if (result != LW_ZE_RESULT_SUCCESS) {
        device->module = NULL;
        status = build_failed(device, result, log, d);
    }
    if (log != NULL) ze->zeModuleBuildLogDestroy(log);
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
        if (device->kernels[i] != NULL) continue;
        const lw_ze_result result = kernel_make(device, kernel_names[i], &device->kernels[i]);
        if (result == LW_ZE_RESULT_SUCCESS) continue;
        return lw_ze_fail(d, result, "kernel %s of %s", kernel_names[i], device->module_path);
    }
    return LW_OK;
}

lw_status lw__xpu_kernels_load(lw_device *device, lw_diag *d)
{
    if (device->module_path == NULL) {
        return lw_fail(d, LW_UNSUPPORTED,
                       "the xpu device has no kernels in this build; LANEWISE_XPU_KERNELS names a module of "
                       "them for %s (docs/xpu.md)",
                       device->info.name);
    }
    if (device->module == NULL) {
        uint8_t *bytes = NULL;
        size_t count = 0;
        lw_status status = module_read(device->module_path, &bytes, &count, d);
        if (status == LW_OK) status = module_make(device, bytes, count, d);
        free(bytes);
        if (status != LW_OK) return status;
    }
    return kernels_make(device, d);
}
