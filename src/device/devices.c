/* The devices of this build. */
#include "device/cpu/cpu.h"
#include "device/null/null.h"

#include <string.h>


const lw_device_table *const lw_devices[] = { &lw_device_cpu, &lw_device_null, NULL };

const lw_device_table *lw_device_find(const char *name)
{
    for (size_t i = 0; lw_devices[i] != NULL; i++) {
        if (strcmp(lw_devices[i]->name, name) == 0) return lw_devices[i];
    }
    return NULL;
}
