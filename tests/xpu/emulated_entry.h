/* What the entries of the emulated device share: what the environment asked for, its devices, and the answer
 * that a call gets before it does anything. For the library's own files.
 */
#ifndef TESTS_XPU_EMULATED_ENTRY_H
#define TESTS_XPU_EMULATED_ENTRY_H

#include "emulated.h"

#define EXPORT __attribute__((visibility("default")))
#define LW_ZE(need, name, parameters) EXPORT lw_ze_result name parameters;
#include "device/xpu/ze.list"
#undef LW_ZE

enum { EMULATED_ARGUMENT_BYTES_MAX = 1024 };            /* of a kernel */
#define EMULATED_ALLOC_BYTES_MAX (UINT64_C(1) << 30)    /* without the relaxed form */
#define EMULATED_API_VERSION(major, minor) ((uint32_t)(major) << 16 | (minor))

/* What a device is like: figures of real ones. */
typedef struct emulated_kind {
    const char *name, *device_name;
    uint32_t device_id, group_items_max, local_bytes_max;
    bool is_integrated, has_matrix;
} emulated_kind;

struct lw_ze_device {
    uint32_t index;
    const emulated_kind *kind;
};

typedef struct emulated_settings_of {
    uint32_t devices, workers, reduce, api_version;
    uint32_t lose_at;           /* the launch that the device does not come back from; 0: none */
    uint32_t hang_at;           /* the launch that never ends; 0: none */
    uint64_t card_bytes;
    bool init_failed, has_sysman, is_lost, is_hung, is_idle;
} emulated_settings_of;
extern emulated_settings_of emulated_settings;

/* Counts a call; the answer to give at once, or success. */
lw_ze_result emulated_called(void);
#define CALLED() \
    do { \
        const lw_ze_result result_ = emulated_called(); \
        if (result_ != LW_ZE_RESULT_SUCCESS) return result_; \
    } while (0)

#endif
