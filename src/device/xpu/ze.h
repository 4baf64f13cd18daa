/* Level Zero opened at run time: the loader's library, its entries by name, and its answers as our statuses.
 */
#ifndef LW_DEVICE_XPU_ZE_H
#define LW_DEVICE_XPU_ZE_H

#include "base/status.h"
#include "device/xpu/zes_abi.h"

#define LW_ZE_LOADER_USUAL "libze_loader.so.1"

/* OPTIONAL entries are NULL where the loader lacks them. */
typedef struct lw_ze {
    void *library;
#define LW_ZE(need, name, parameters) lw_ze_result(*name) parameters;
#include "device/xpu/ze.list"
#undef LW_ZE
} lw_ze;

/* Opens the loader at path (NULL: the usual one) and calls zeInit. Any failure means that there is no device
 * to be had: *ze is closed and must not be used, since calls after a failed zeInit may crash inside it. */
lw_status lw_ze_open(lw_ze *ze, const char *path, lw_diag *d) LW_MUST_USE;
/* Takes one that is closed or zero. */
void lw_ze_close(lw_ze *ze);

/* Whether GPUs are Windows's, seen through WSL2's own node in folder, which is /dev. */
bool lw_ze_is_wsl(const char *folder) LW_MUST_USE;

/* What to look at where zeInit fails, by what stands in folder, which is /dev. */
enum { LW_ZE_HINT_BYTES = 320 };
void lw_ze_hint(const char *folder, char text[LW_ZE_HINT_BYTES]);

/* "WHAT: Level Zero answers out of device memory (0x70000003)", with the status that it means. */
lw_status lw_ze_fail(lw_diag *d, lw_ze_result result, const char *format, ...) LW_PRINTF(3, 4);

#endif
