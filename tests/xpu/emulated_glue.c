/* Linked into every module for the emulated device: OpenCL C has no pointers to functions, so that its calls
 * into the device go through here.
 */
#include "emulated_glue.h"

#include "emulated.h"

static emulated_calls calls;

__attribute__((visibility("default"))) void lw_emulated_attach(const emulated_calls *device);
void lw_emulated_attach(const emulated_calls *device)
{
    calls = *device;
}

unsigned lw_emulated_local_id(unsigned dimension) { return calls.local_id(dimension); }
unsigned lw_emulated_group_id(unsigned dimension) { return calls.group_id(dimension); }
unsigned lw_emulated_local_size(unsigned dimension) { return calls.local_size(dimension); }
unsigned lw_emulated_group_count(unsigned dimension) { return calls.group_count(dimension); }
void lw_emulated_barrier(void) { calls.barrier(); }
const void *lw_emulated_exchange(const void *value, unsigned bytes) { return calls.exchange(value, bytes); }
