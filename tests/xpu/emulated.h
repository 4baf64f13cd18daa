/* An emulated Level Zero device: a shared library with the loader's own entries, behind LANEWISE_ZE_LOADER.
 * Its memory is host memory, a native module is a shared object that clang made of the kernels' own source,
 * and work-items that meet are fibers. What real hardware would hang or corrupt on is an error with a text.
 *
 * What is appended runs only when somebody waits for it, so that memory that is changed or freed too early
 * shows; what no barrier and no list in order keeps apart runs backwards. Memory is born poisoned and ends at
 * a page that is not mapped.
 *
 * Environment, read at zeInit:
 *   LW_EMULATED_DEVICES    how many (1), the first a discrete Xe2, the others integrated Gen12LP
 *   LW_EMULATED_KIND       xe2 or gen12lp: all of one kind
 *   LW_EMULATED_BYTES      memory of each (4 GiB)
 *   LW_EMULATED_API        the version that the driver says (1.13)
 *   LW_EMULATED_NO_DRIVER, LW_EMULATED_NO_SYSMAN    zeInit, zesInit fails
 *   LW_EMULATED_LOSE_AT    the launch that the device does not come back from, counted from 1
 *   LW_EMULATED_HANG_AT    the launch that never ends: waits take all their time from then on
 *   LW_EMULATED_REDUCE     order of sub-group sums: 0 the last lane first, 1 the first, 2 halves
 *   LW_EMULATED_WORKERS    threads that run a launch (2)
 *   LW_EMULATED_IDLE       nothing runs, and the host reads zeros: to count what is launched at any size
 * Read when SPIR-V is built: LW_EMULATED_COMPILED, the shared object that answers for it.
 */
#ifndef TESTS_XPU_EMULATED_H
#define TESTS_XPU_EMULATED_H

#include "device/xpu/zes_abi.h"
#include "emulated_glue.h"

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
    uint64_t wait_ns;           /* what the host gave the last of them */
    uint32_t spirv_builds;      /* modules that were SPIR-V */
    uint32_t driver_version;
    bool runs_no_lists;         /* closed lists cannot be appended to immediate ones */
    bool refuses_order;         /* as a loader's layer does that is older than lists in order */
    uint64_t used_bytes[EMULATED_DEVICES_MAX];
    bool after_failed_init;     /* something was called though zeInit had failed */
    char error[256];            /* of the last kernel that went wrong */
} lw_emulated_state;

extern lw_emulated_state lw_emulated;

/* A module's bytes as this device runs them, malloc'd. False: why says why not. */
typedef struct emulated_image { uint8_t *bytes; size_t count; } emulated_image;
bool emulated_image_make(const lw_ze_module_desc *desc, emulated_image *out, char why[128]);
/* Local memory that a work-group of the kernel has. */
uint64_t emulated_local_bytes(const emulated_image *image, const char *kernel);

/* Threads that share the groups of a launch. Each has a copy of every module, with local memory of its own.
 */
enum { EMULATED_WORKERS = 2 };
typedef void (*emulated_kernel)(const void *args);

/* One launch: the kernel runs once for each item. False: error says why. */
typedef struct emulated_launch {
    emulated_kernel kernels[EMULATED_WORKERS];
    const void *args;
    uint32_t groups[3], items[3];
    uint32_t workers;           /* how many may take part */
    uint32_t reduce;            /* EMULATED_REDUCE_ */
    bool has_matrix;            /* DPAS and two-dimensional block reads */
} emulated_launch;
bool emulated_run(const emulated_launch *launch, char error[256]);

/* What kernels call, handed to a worker's copy of a module by its function lw_emulated_attach. */
struct emulated_worker;
typedef struct emulated_calls {
    void (*barrier)(struct emulated_worker *w);
    void *(*meet)(struct emulated_worker *w);
    void (*fail)(struct emulated_worker *w, const char *why);    /* does not return */
} emulated_calls;
extern const emulated_calls emulated_kernel_calls;
struct emulated_worker *emulated_worker_at(uint32_t index);
const lw_emulated_now *emulated_now_of(const struct emulated_worker *w);

#endif
