/* The devices of this build. */
#include "device/cpu/cpu.h"
#include "device/null/null.h"
#include "device/xpu/xpu.h"

#include <string.h>


const lw_device_table *const lw_devices[] = { &lw_device_cpu, &lw_device_xpu, &lw_device_null, NULL };

const lw_device_table *lw_device_find(const char *name, const char **which)
{
    const char *colon = strchr(name, ':');
    const size_t length = colon == NULL ? strlen(name) : (size_t)(colon - name);
    *which = colon == NULL ? NULL : colon + 1;
    for (size_t i = 0; lw_devices[i] != NULL; i++) {
        const char *own = lw_devices[i]->name;
        if (strlen(own) == length && memcmp(own, name, length) == 0) return lw_devices[i];
    }
    return NULL;
}
