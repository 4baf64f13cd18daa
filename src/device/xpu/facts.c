/* What reports say of a device: the driver, the interface, the kernels in use and what they spill. */
#include "device/xpu/queue.h"

#include "device/xpu/spirv.h"

#include <stdio.h>

/* Which kernels; not where a file of them lies. */
static const char *kernels_text(const lw_device *device)
{
    if (device->module_path != NULL) return "a module of the user's";
    const lw_xpu_spirv own = lw_xpu_spirv_view(device->info.has_dpas);
    const bool is_common = own.bytes == lw_xpu_spirv_view(false).bytes;
    return own.count == 0 ? "none in this build" : is_common ? "common" : "dpas";
}

static void spills_tell(const lw_device *device, lw_fact_taker *take, void *context)
{
    char text[96];
    uint32_t made = 0, spilling = 0, most = 0;
    for (uint32_t i = 0; i < LW_XPU_KERNEL_COUNT && device->ze.zeKernelGetProperties != NULL; i++) {
        lw_ze_kernel_properties properties = { .stype = LW_ZE_STRUCTURE_TYPE_KERNEL_PROPERTIES };
        if (device->kernels[i] == NULL) continue;
        if (device->ze.zeKernelGetProperties(device->kernels[i], &properties) != LW_ZE_RESULT_SUCCESS) return;
        made++;
        spilling += properties.spill_bytes > 0;
        if (properties.spill_bytes > most) most = properties.spill_bytes;
    }
    if (made == 0) return;
    snprintf(text, sizeof text, "%u of %u kernels spill, at most %u bytes", spilling, made, most);
    take(context, "spills", text);
}

void lw__xpu_facts(const lw_device *device, lw_fact_taker *take, void *context)
{
    const lw_xpu_info *info = &device->info;
    char text[64];
    snprintf(text, sizeof text, "%04x:%04x", info->vendor_id, info->device_id);
    take(context, "pci id", text);
    snprintf(text, sizeof text, "0x%08x", info->driver_version);
    take(context, "driver", text);
    if (info->api_version != 0) {
        snprintf(text, sizeof text, "%u.%u", info->api_version >> 16, info->api_version & 0xFFFF);
        take(context, "level zero", text);
    }
    take(context, "dpas", info->has_dpas ? "yes" : "no");
    take(context, "kernels", kernels_text(device));
    take(context, "in order", device->in_order ? "yes" : "no");
    take(context, "replay", device->replays ? "yes" : "no");
    spills_tell(device, take, context);
}
