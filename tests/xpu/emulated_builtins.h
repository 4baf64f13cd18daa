/* OpenCL C's built-ins for x86-64, put in front of every kernel file that is compiled for the emulated
 * device. clang's own OpenCL header has the prototypes; what is missing here is missing when the module is
 * linked.
 */
#include "emulated_glue.h"

/* Every file has them, so that they are compiled into their callers; the linker keeps one of each. */
#define OVER __attribute__((overloadable))

extern const lw_emulated_now *lw_emulated_here;

size_t OVER get_local_id(uint d) { return lw_emulated_here->item->local_id[d]; }
size_t OVER get_group_id(uint d) { return lw_emulated_here->group_id[d]; }
size_t OVER get_local_size(uint d) { return lw_emulated_here->local_size[d]; }
size_t OVER get_num_groups(uint d) { return lw_emulated_here->group_count[d]; }
size_t OVER get_global_id(uint d) { return get_group_id(d) * get_local_size(d) + get_local_id(d); }
size_t OVER get_global_size(uint d) { return get_num_groups(d) * get_local_size(d); }
uint OVER get_sub_group_size(void) { return 16; }
uint OVER get_max_sub_group_size(void) { return 16; }
uint OVER get_num_sub_groups(void) { return lw_emulated_here->sub_groups; }
uint OVER get_sub_group_id(void) { return lw_emulated_here->item->sub_group; }
uint OVER get_sub_group_local_id(void) { return lw_emulated_here->item->lane; }
void OVER barrier(cl_mem_fence_flags flags) { lw_emulated_barrier(); }
void OVER work_group_barrier(cl_mem_fence_flags flags) { lw_emulated_barrier(); }
void OVER sub_group_barrier(cl_mem_fence_flags flags) { lw_emulated_meet(); }
void OVER mem_fence(cl_mem_fence_flags flags) { }

#include "emulated_sub_groups.h"

#include "emulated_matrix.h"
#include "emulated_numbers.h"

/* The device calls a kernel with the address of its argument. */
#define LW_KERNEL(name, args) \
    kernel void lw_##name(args a); \
    void lw_call_lw_##name(const args *a); \
    void lw_call_lw_##name(const args *a) { lw_##name(*a); } \
    constant uint lw_bytes_lw_##name = sizeof(args); \
    kernel void lw_##name(args a)
