/* What a module for the emulated device sees of it; read by C and OpenCL C. */
#ifndef TESTS_XPU_EMULATED_GLUE_H
#define TESTS_XPU_EMULATED_GLUE_H

#ifndef __OPENCL_C_VERSION__
#include <stdbool.h>
#endif

/* In which order a sub-group's own reductions add up: the implementation's choice, so that a result which
 * leans on it shows when the order changes. */
enum {
    EMULATED_REDUCE_LAST_FIRST,
    EMULATED_REDUCE_FIRST_FIRST,
    EMULATED_REDUCE_HALVES,
    EMULATED_REDUCE_COUNT
};

typedef struct lw_emulated_item {
    unsigned local_id[3], sub_group, lane;
    unsigned long trace;    /* of the addresses that its lane read blocks from, in order */
    char *slots;            /* its sub-group's for the next meeting */
} lw_emulated_item;

/* What runs at this moment on one worker; every worker has modules of its own, so that these are plain reads.
 */
typedef struct lw_emulated_now {
    lw_emulated_item *item;
    unsigned group_id[3], local_size[3], group_count[3], sub_groups;
    unsigned reduce, has_matrix;
    bool is_last;           /* whoever runs came last to the meeting: no other of its lanes has gone on yet */
} lw_emulated_now;

void lw_emulated_barrier(void);
/* Waits for the sub-group, and returns the slots that its lanes have written before: 128 bytes for each. */
void *lw_emulated_meet(void);
/* Ends the launch with an error: the kernel did what a real device would answer with nonsense. */
#ifdef __OPENCL_C_VERSION__
__attribute__((noreturn, cold)) void lw_emulated_fail(constant char *why);
#else
__attribute__((noreturn, cold)) void lw_emulated_fail(const char *why);
#endif

#endif
