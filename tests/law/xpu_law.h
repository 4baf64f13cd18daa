/* A plan's streams on the emulated xpu device: plan_law.h's bench, with the device's own state in reach. */
#ifndef LW_TESTS_XPU_LAW_H
#define LW_TESTS_XPU_LAW_H

#include "../xpu/xpu_case.h"
#include "device/xpu/xpu.h"
#include "plan_law.h"

typedef struct xpu_bench {
    xpu_paths paths;
    void *library;
    lw_emulated_state *emulated;
    bench *b;
} xpu_bench;

/* The device that is opened next has DPAS, or has not. */
static inline void xpu_kind_set(bool has_dpas)
{
    assert_int_equal(setenv("LW_EMULATED_KIND", has_dpas ? "xe2" : "gen12lp", 1), 0);
}

/* Skips where there is no emulated device. */
static inline xpu_bench *xpu_bench_open(void (*record)(bench *b, lw_rng *rng), lw_rng *rng)
{
    const xpu_paths paths = xpu_paths_find();
    xpu_need_kernels(&paths);
    xpu_bench *x = law_make(1, sizeof *x);
    x->paths = paths;
    x->library = xpu_emulated_open(&x->paths, &x->emulated);
    x->b = bench_make(record, rng);
    x->b->table = &lw_device_xpu;
    x->b->options = (lw_device_options){ .ze_loader = x->paths.loader, .xpu_kernels = x->paths.kernels };
    return x;
}

/* Whether it was a wait that failed: then the device is lost, whatever Level Zero answered. */
static inline bool was_wait(const lw_diag *d)
{
    return strstr(d->text, "waiting for") != NULL;
}

static inline void xpu_bench_close(xpu_bench *x)
{
    assert_int_equal(x->emulated->objects, 0);
    assert_string_equal(x->emulated->error, "");
    dlclose(x->library);
    bench_free(x->b);
    free(x);
}

#endif
