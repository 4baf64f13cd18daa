/* What tests of the xpu device share: where the emulated one lies, and how a test reaches into it. */
#ifndef TESTS_XPU_XPU_CASE_H
#define TESTS_XPU_XPU_CASE_H

#include "base/status.h"
#include "emulated.h"

/* cmocka's header wants these first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct xpu_paths {
    char loader[512], kernels[512];
} xpu_paths;

/* Where make put them: beside the variant under test, since they are the same for all. */
static inline xpu_paths xpu_paths_find(void)
{
    const char *out = getenv("LW_TEST_OUT");
    char folder[256];
    xpu_paths p;
    snprintf(folder, sizeof folder, "%s/../native", out != NULL ? out : "build/native");
    snprintf(p.loader, sizeof p.loader, "%s/libze_lanewise_cpu.so", folder);
    snprintf(p.kernels, sizeof p.kernels, "%s/xpu/kernels_cpu.so", folder);
    return p;
}

/* Skips, saying why, where a file that make could not build is absent. */
static inline void xpu_need(const char *path, const char *why)
{
    if (access(path, R_OK) == 0) return;
    print_message("skipped: no %s (%s)\n", path, why);
    skip();
}

static inline void xpu_need_kernels(const xpu_paths *p)
{
    xpu_need(p->kernels, "clang makes it, for x86-64 with AVX2; `make check` builds it");
}

/* The emulated device's state. Keeps the library open, so that counters live on when the device under test
 * has closed it: close with dlclose. */
static inline void *xpu_emulated_open(const xpu_paths *p, lw_emulated_state **state)
{
    xpu_need(p->loader, "it is for x86-64; `make check` builds it");
    void *library = dlopen(p->loader, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) fail_msg("%s", dlerror());
    *state = dlsym(library, "lw_emulated");
    assert_non_null(*state);
    return library;
}

#endif
