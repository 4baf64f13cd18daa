/* An emulated Level Zero device: a shared library with the loader's own entries, behind LANEWISE_ZE_LOADER.
 * Its memory is host memory, a native module is a shared object that clang made of the kernels' own source,
 * and every work-item is a fiber. What real hardware would hang or corrupt on is an error with a text.
 *
 * What is appended runs only when somebody waits for it, so that memory that is changed or freed too early
 * shows; memory is born poisoned and ends at a page that is not mapped.
 *
 * Environment, read at zeInit: LW_EMULATED_DEVICES (1), LW_EMULATED_BYTES of each (4 GiB),
 * LW_EMULATED_NO_DRIVER (zeInit fails), LW_EMULATED_NO_SYSMAN. Read when SPIR-V is built:
 * LW_EMULATED_COMPILED, the shared object that answers for it.
 */
#ifndef TESTS_XPU_EMULATED_H
#define TESTS_XPU_EMULATED_H

#include "device/xpu/zes_abi.h"

#include <stdbool.h>

enum { EMULATED_DEVICES_MAX = 4, EMULATED_DEFAULT_GIB = 4 };

/* What a test sets and reads, through the symbol lw_emulated. Counters run from the library's opening. */
typedef struct lw_emulated_state {
    uint32_t fail_at;           /* the n-th call from now on fails; 0: none */
    lw_ze_result fail_with;
    uint32_t calls;             /* that could fail: closing entries are not among them */
    uint32_t objects;           /* that are open: contexts, lists, pools, events, modules, kernels, memory */
    uint32_t launches;
    uint32_t waits;             /* of the host, for an event */
    uint32_t spirv_builds;      /* modules that were SPIR-V */
    uint32_t driver_version;
    bool runs_no_lists;         /* closed lists cannot be appended to immediate ones */
    uint64_t used_bytes[EMULATED_DEVICES_MAX];
    bool after_failed_init;     /* something was called though zeInit had failed */
    char error[256];            /* of the last kernel that went wrong */
} lw_emulated_state;

extern lw_emulated_state lw_emulated;

/* A module's bytes as this device runs them, malloc'd. False: why says why not. */
typedef struct emulated_image { uint8_t *bytes; size_t count; } emulated_image;
bool emulated_image_make(const lw_ze_module_desc *desc, emulated_image *out, char why[128]);

/* One launch: fn runs once for each item with the kernel's argument. False: state->error says why. */
typedef struct emulated_launch {
    void (*fn)(const void *args);
    const void *args;
    uint32_t groups[3], items[3];
} emulated_launch;
bool emulated_run(const emulated_launch *launch, char error[256]);

/* What kernels call, handed to a module by its function lw_emulated_attach. */
typedef struct emulated_calls {
    uint32_t (*local_id)(uint32_t dimension);
    uint32_t (*group_id)(uint32_t dimension);
    uint32_t (*local_size)(uint32_t dimension);
    uint32_t (*group_count)(uint32_t dimension);
    void (*barrier)(void);
    /* Posts bytes of value, waits for the sub-group, and returns all its values, 64 bytes apart. */
    const void *(*exchange)(const void *value, uint32_t bytes);
} emulated_calls;
extern const emulated_calls emulated_kernel_calls;

#endif
