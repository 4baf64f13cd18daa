/* An opened xpu device: one context, one immediate command list, the memory behind it and its kernels. What
 * is appended runs in order: the list's own where it has one, else that of barriers. Owned by the device's
 * thread.
 */
#ifndef LW_DEVICE_XPU_QUEUE_H
#define LW_DEVICE_XPU_QUEUE_H

#include "device/device.h"
#include "device/xpu/find.h"
#include "device/xpu/kargs.h"

enum {
    LW_XPU_STAGING_HALVES = 2,           /* one is filled while the other is copied */
    LW_XPU_STAGING_BYTES = 4 << 20,      /* of one half */
    LW_XPU_MARKS = LW_BATCHES_OPEN_MAX,  /* ends of what was submitted */
    LW_XPU_EVENTS = LW_XPU_STAGING_HALVES + 1 + LW_XPU_MARKS,
};

typedef enum lw_xpu_kernel {
#define LW_XPU_KERNEL(name) LW_XPU_KERNEL_##name,
#define LW_XPU_KERNEL_DPAS LW_XPU_KERNEL
#define LW_XPU_KERNEL_COMMON LW_XPU_KERNEL
#include "device/xpu/kernels.list"
#undef LW_XPU_KERNEL
#undef LW_XPU_KERNEL_COMMON
#undef LW_XPU_KERNEL_DPAS
    LW_XPU_KERNEL_COUNT
} lw_xpu_kernel;

typedef enum lw_xpu_switch {
#define LW_XPU_SWITCH(name) LW_XPU_SWITCH_##name,
#include "device/xpu/switches.list"
#undef LW_XPU_SWITCH
    LW_XPU_SWITCH_COUNT
} lw_xpu_switch;

/* Launches that are yet to be appended, one behind the other as bytes. */
typedef struct lw_xpu_tape {
    uint8_t *bytes;
    size_t count, capacity;
    uint32_t launches;
} lw_xpu_tape;

struct lw_device {
    lw_ze ze;
    lw_xpu_info info;
    char *module_path;                   /* NULL: the program's own */
    char *images;                        /* the folder of kept images; NULL: none */
    lw_ze_context *context;
    lw_ze_list *list;
    bool in_order;                       /* of itself: no barrier stands between its commands */
    uint32_t wait_s;                     /* the longest wait; a device that takes longer is lost */
    uint32_t ordinal;                    /* of the queues that the list belongs to */
    lw_ze_event_pool *pool;
    lw_ze_event *events[LW_XPU_EVENTS];  /* of the staging halves, of lw__xpu_sync, of the marks */
    bool staged[LW_XPU_STAGING_HALVES];  /* its copy may still be under way */
    uint32_t half;                       /* that is being filled */
    size_t half_used;
    uint32_t staged_mark;                /* behind all uploads; LW_XPU_MARKS: there were some since */
    uint8_t *staging;                    /* host memory that the device sees */
    uint64_t own_bytes;                  /* device memory that was allocated */
    lw_device_counts counts;
    bool off[LW_XPU_SWITCH_COUNT];       /* what this one does without */
    bool replays;                        /* closed lists may be run again */
    bool is_lost;                        /* a wait failed */
    lw_xpu_tape tape;
    lw_ze_module *module;
    lw_ze_kernel *kernels[LW_XPU_KERNEL_COUNT];
};

typedef struct lw_xpu_memory {
    uint8_t *at;                         /* a device address: never read or written here; NULL: none */
    size_t bytes;
} lw_xpu_memory;

/* lw_device_table.facts. */
void lw__xpu_facts(const lw_device *device, lw_fact_taker *take, void *context);

/* Context, list, events and staging of device->info; closing takes any state in between. */
lw_status lw__xpu_queue_open(lw_device *device, lw_diag *d) LW_MUST_USE;
void lw__xpu_queue_close(lw_device *device);

lw_status lw__xpu_alloc(lw_device *device, size_t bytes, lw_xpu_memory *out, lw_diag *d) LW_MUST_USE;
void lw__xpu_free(lw_device *device, lw_xpu_memory *memory);

/* Host memory that the device sees. */
lw_status lw__xpu_host_alloc(lw_device *device, size_t bytes, uint8_t **out, lw_diag *d) LW_MUST_USE;
void lw__xpu_host_free(lw_device *device, uint8_t *memory);

/* from may be changed as soon as it returns. */
lw_status lw__xpu_upload(lw_device *device, void *to, const void *from, size_t bytes, lw_diag *d) LW_MUST_USE;
/* Waits for all that was appended. */
lw_status lw__xpu_download(lw_device *device, void *to, const void *from, size_t bytes, lw_diag *d)
    LW_MUST_USE;
/* The host's side of a copy, if any, is memory of lw__xpu_host_alloc. */
lw_status lw__xpu_copy(lw_device *device, void *to, const void *from, size_t bytes, lw_diag *d) LW_MUST_USE;

/* Memory of the staging ring for the caller to fill, LW_XPU_STAGING_BYTES at most, and a copy out of it.
 * Copies have no order among themselves until lw__xpu_sync: for loading, where none overlap. */
lw_status lw__xpu_stage(lw_device *device, size_t bytes, uint8_t **at, lw_diag *d) LW_MUST_USE;
lw_status lw__xpu_stage_copy(lw_device *device, void *to, const uint8_t *from, size_t bytes, lw_diag *d)
    LW_MUST_USE;

/* What comes after on list waits for what came before; signals event (NULL: none) when that is done. */
lw_status lw__xpu_barrier(lw_device *device, lw_ze_list *list, lw_ze_event *event, lw_diag *d) LW_MUST_USE;

/* LW_DEVICE_LOST once a wait failed: nothing is appended then. */
lw_status lw__xpu_lost(const lw_device *device, lw_diag *d) LW_MUST_USE;

/* Waits for all that was appended, a bounded time: what takes longer is lost. */
lw_status lw__xpu_sync(lw_device *device, lw_diag *d) LW_MUST_USE;

/* The same before memory is freed, whatever comes of it. */
void lw__xpu_drain(lw_device *device);

/* Marks the end of all that was appended so far, for one later wait. */
lw_status lw__xpu_mark(lw_device *device, uint32_t mark, lw_diag *d) LW_MUST_USE;
lw_status lw__xpu_mark_wait(lw_device *device, uint32_t mark, lw_diag *d) LW_MUST_USE;

/* Loads the module and finds its kernels, once; LW_UNSUPPORTED where there is none. Kernels that need DPAS
 * are NULL on a device without. */
lw_status lw__xpu_kernels_load(lw_device *device, lw_diag *d) LW_MUST_USE;

typedef struct lw_xpu_launch {
    lw_xpu_kernel kernel;
    uint32_t items_x, items_y;           /* of a work-group */
    uint32_t groups_x, groups_y;
    const void *args;
    size_t args_bytes;
} lw_xpu_launch;
/* Puts a launch on the device's tape. */
lw_status lw__xpu_launch(lw_device *device, const lw_xpu_launch *launch, lw_diag *d) LW_MUST_USE;

#endif
