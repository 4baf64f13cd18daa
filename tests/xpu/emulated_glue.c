/* Linked into every module for the emulated device: OpenCL C has no pointers to functions, so that its calls
 * into the device go through here.
 */
#include "emulated_glue.h"

#include "emulated.h"

/* Set by attach before any kernel runs. */
const lw_emulated_now *lw_emulated_here;
static emulated_calls calls;
static struct emulated_worker *worker;

__attribute__((visibility("default"))) void lw_emulated_attach(const emulated_calls *device,
                                                               struct emulated_worker *mine,
                                                               const lw_emulated_now *now);
void lw_emulated_attach(const emulated_calls *device, struct emulated_worker *mine,
                        const lw_emulated_now *now)
{
    calls = *device;
    worker = mine;
    lw_emulated_here = now;
}

void lw_emulated_barrier(void) { calls.barrier(worker); }
void *lw_emulated_meet(void) { return calls.meet(worker); }
void lw_emulated_fail(const char *why)
{
    calls.fail(worker, why);
    __builtin_unreachable();
}
