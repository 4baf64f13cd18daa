/* What this process may use of the machine: which CPUs and in which order threads should take them, how many
 * are worth having, and how much memory. Linux says it under /proc and /sys; control groups narrow it, so
 * that a container with two CPUs of sixty-four is a machine of two.
 */
#ifndef LW_BASE_MACHINE_H
#define LW_BASE_MACHINE_H

#include "base/status.h"

#include <sched.h>

typedef struct lw_machine_cpus {
    unsigned count;         /* CPUs that this process may run on, at least 1 */
    unsigned fast;          /* fast cores, at least 1 */
    unsigned worth;         /* threads worth having: one a fast core, within the control groups' quotas */
    size_t ids[CPU_SETSIZE]; /* [count]: first a CPU of each fast core, then of each slow one, then their
                              * siblings, which share a core with one that stands before */
} lw_machine_cpus;

/* The CPU of a part's thread. Fewer threads than fast cores are spread out: virtual machines hide which CPUs
 * are siblings, and those stand side by side; caches and memory channels are shared by neighbours too. */
static inline size_t lw_machine_cpu_of(const lw_machine_cpus *cpus, unsigned part, unsigned parts)
{
    return cpus->ids[parts < cpus->fast ? (size_t)part * cpus->fast / parts : part % cpus->count];
}

/* root stands before /proc and /sys: "" but in tests. allowed: at least one CPU. */
void lw_machine_cpus_read(const char *root, const cpu_set_t *allowed, lw_machine_cpus *out);

/* The same of this process. */
void lw_machine_cpus_own(lw_machine_cpus *out);

/* Bytes that may still be taken without swapping: what the kernel calls available, and no more than what is
 * left of each control group's limit above this process, files in memory not counted; at least 1. 0: the
 * system does not say. */
uint64_t lw_machine_free_bytes(const char *root);

#endif
