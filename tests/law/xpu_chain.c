/* The law of chains (chain_law.h) on the xpu device, on the emulated one. */
#include "chain_law.h"

#include "../xpu/xpu_case.h"
#include "device/xpu/xpu.h"

static chain_device chain_device_of(void)
{
    static xpu_paths paths;
    paths = xpu_paths_find();
    xpu_need(paths.loader, "it is for x86-64; `make check` builds it");
    xpu_need_kernels(&paths);
    return (chain_device){ &lw_device_xpu, { .ze_loader = paths.loader, .xpu_kernels = paths.kernels } };
}

int main(void)
{
    return chain_law_run();
}
