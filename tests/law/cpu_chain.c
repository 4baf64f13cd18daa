/* The law of chains (chain_law.h) on the cpu device. */
#include "chain_law.h"

#include "device/cpu/cpu.h"

static chain_device chain_device_of(void)
{
    return (chain_device){ &lw_device_cpu, { .threads = 2, .isa = getenv("LW_TEST_ISA") } };
}

int main(void)
{
    return chain_law_run();
}
