/* What a module for the emulated device calls in it; read by C and OpenCL C. */
#ifndef TESTS_XPU_EMULATED_GLUE_H
#define TESTS_XPU_EMULATED_GLUE_H

unsigned lw_emulated_local_id(unsigned dimension);
unsigned lw_emulated_group_id(unsigned dimension);
unsigned lw_emulated_local_size(unsigned dimension);
unsigned lw_emulated_group_count(unsigned dimension);
void lw_emulated_barrier(void);
const void *lw_emulated_exchange(const void *value, unsigned bytes);

#endif
