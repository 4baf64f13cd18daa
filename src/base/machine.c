/* Limits of the machine and of control groups; see machine.h. Version 2 of control groups has one tree under
 * /sys/fs/cgroup, version 1 one for each controller. A container sees its own group as the root of the tree,
 * whatever path /proc/self/cgroup names; so a folder that is not there is passed over on the way up.
 */
#include "base/machine.h"

#include "base/size.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PATH_BYTES = 4096,
    LINE_BYTES = 4096,
    FAST_PERCENT =
        80, /* of the fastest core: above it lie favoured cores, below it those made to save power */
};

/* ---- small files ---- */

/* The first line of root/path, without its end; false: it cannot be read. */
static bool line_read(const char *root, const char *path, char line[LINE_BYTES])
{
    char whole[PATH_BYTES];
    if ((size_t)snprintf(whole, sizeof whole, "%s%s", root, path) >= sizeof whole) return false;
    FILE *file = fopen(whole, "re");
    if (file == NULL) return false;
    const bool read = fgets(line, LINE_BYTES, file) != NULL;
    fclose(file);
    if (read) line[strcspn(line, "\n")] = '\0';
    return read;
}

/* The number that text begins with; false: it begins with none, or with one of more than 64 bits. */
static bool number_read(const char *text, uint64_t *out)
{
    char *end;
    if (*text < '0' || *text > '9') return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return errno == 0;
}

static bool number_of_file(const char *root, const char *path, uint64_t *out)
{
    char line[LINE_BYTES];
    return line_read(root, path, line) && number_read(line, out);
}

/* The number after the key at the beginning of a line of root/path, as "inactive_file 123"; 0: none. */
static uint64_t number_of_key(const char *root, const char *path, const char *key)
{
    char whole[PATH_BYTES], line[LINE_BYTES];
    uint64_t value = 0;
    if ((size_t)snprintf(whole, sizeof whole, "%s%s", root, path) >= sizeof whole) return 0;
    FILE *file = fopen(whole, "re");
    if (file == NULL) return 0;
    const size_t length = strlen(key);
    while (fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, key, length) != 0) continue;
        if (number_read(line + length + strspn(line + length, " "), &value)) break;
    }
    fclose(file);
    return value;
}

/* ---- control groups ---- */

/* What a control group limits, for one tree of groups: mount is its folder, path the group's in it. */
typedef void group_fn(void *context, const char *root, const char *folder, bool unified);

static void groups_up(const char *root, const char *mount, char *path, bool unified, group_fn *fn,
                      void *context)
{
    char folder[PATH_BYTES];
    for (;;) {
        if ((size_t)snprintf(folder, sizeof folder, "%s%s", mount, path) < sizeof folder)
            fn(context, root, folder, unified);
        char *slash = strrchr(path, '/');
        if (slash == NULL) return;
        *slash = '\0';
    }
}

static bool names(const char *list, const char *controller)
{
    const size_t length = strlen(controller);
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, controller, length) == 0 && (at[length] == '\0' || at[length] == ',')) return true;
    }
    return false;
}

/* Calls fn for this process's group of the controller and for every group above it. */
static void groups_each(const char *root, const char *controller, group_fn *fn, void *context)
{
    char whole[PATH_BYTES], line[LINE_BYTES], mount[PATH_BYTES];
    if ((size_t)snprintf(whole, sizeof whole, "%s/proc/self/cgroup", root) >= sizeof whole) return;
    FILE *file = fopen(whole, "re");
    if (file == NULL) return;
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *list = strchr(line, ':'), *path = list == NULL ? NULL : strchr(list + 1, ':');
        if (path == NULL) continue;
        *path++ = '\0';
        list++;
        const bool unified = *list == '\0';
        if (!unified && !names(list, controller)) continue;
        snprintf(mount, sizeof mount, "/sys/fs/cgroup%s%s", unified ? "" : "/", unified ? "" : controller);
        groups_up(root, mount, path, unified, fn, context);
    }
    fclose(file);
}

/* ---- CPUs ---- */

typedef struct cpu {
    size_t id;
    unsigned rank;      /* how many CPUs of its core stand before it */
    uint64_t core;      /* the lowest CPU of its core */
    uint64_t speed;     /* in the kernel's units of capacity, else kHz at most; 0: not told */
    bool slow;
} cpu;

static void cpu_read(const char *root, size_t id, cpu *out)
{
    char path[PATH_BYTES];
    *out = (cpu){ .id = id, .core = id };
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%zu/topology/thread_siblings_list", id);
    if (!number_of_file(root, path, &out->core)) out->core = id;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%zu/cpu_capacity", id);
    if (number_of_file(root, path, &out->speed)) return;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%zu/cpufreq/cpuinfo_max_freq", id);
    if (!number_of_file(root, path, &out->speed)) out->speed = 0;
}

static int by_use(const void *a, const void *b)
{
    const cpu *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->slow != y->slow) return x->slow ? 1 : -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static void quota_of_group(void *context, const char *root, const char *folder, bool unified)
{
    unsigned *threads = context;
    char path[PATH_BYTES + 32], line[LINE_BYTES];
    uint64_t quota, period;
    if (unified) {
        snprintf(path, sizeof path, "%s/cpu.max", folder);
        if (!line_read(root, path, line) || !number_read(line, &quota)) return;
        const char *space = strchr(line, ' ');
        if (space == NULL || !number_read(space + 1, &period)) return;
    } else {
        snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
        if (!number_of_file(root, path, &quota)) return;
        snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
        if (!number_of_file(root, path, &period)) return;
    }
    if (period == 0) return;
    const uint64_t whole = quota / period + (quota % period != 0);
    if (whole < *threads) *threads = whole == 0 ? 1 : (unsigned)whole;
}

void lw_machine_cpus_read(const char *root, const cpu_set_t *allowed, lw_machine_cpus *out)
{
    cpu cpus[CPU_SETSIZE];
    uint64_t fastest = 0;
    *out = (lw_machine_cpus){ .count = 0 };
    for (size_t id = 0; id < CPU_SETSIZE; id++) {
        if (!CPU_ISSET(id, allowed)) continue;
        cpu *one = &cpus[out->count++];
        cpu_read(root, id, one);
        for (const cpu *before = cpus; before < one; before++) one->rank += before->core == one->core;
        if (one->speed > fastest) fastest = one->speed;
    }
    LW_ASSERT(out->count > 0);
    for (unsigned i = 0; i < out->count; i++) {
        cpus[i].slow = cpus[i].speed < fastest / 100 * FAST_PERCENT;
        out->fast += cpus[i].rank == 0 && !cpus[i].slow;
    }
    qsort(cpus, out->count, sizeof cpus[0], by_use);
    for (unsigned i = 0; i < out->count; i++) out->ids[i] = cpus[i].id;
    if (out->fast == 0) out->fast = 1;
    out->worth = out->fast;
    groups_each(root, "cpu", quota_of_group, &out->worth);
}

void lw_machine_cpus_own(lw_machine_cpus *out)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) { /* more CPUs than a set holds */
        const long online = sysconf(_SC_NPROCESSORS_ONLN);
        CPU_ZERO(&set);
        for (size_t id = 0; id < CPU_SETSIZE && (id == 0 || (long)id < online); id++) CPU_SET(id, &set);
    }
    lw_machine_cpus_read("", &set, out);
}

/* ---- memory ---- */

static void memory_of_group(void *context, const char *root, const char *folder, bool unified)
{
    uint64_t *free_bytes = context, limit, used;
    char path[PATH_BYTES + 32];
    snprintf(path, sizeof path, "%s/%s", folder, unified ? "memory.max" : "memory.limit_in_bytes");
    if (!number_of_file(root, path, &limit)) return;
    snprintf(path, sizeof path, "%s/%s", folder, unified ? "memory.current" : "memory.usage_in_bytes");
    if (!number_of_file(root, path, &used)) return;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    const uint64_t files = number_of_key(root, path, unified ? "inactive_file " : "total_inactive_file ") +
                           number_of_key(root, path, unified ? "active_file " : "total_active_file ");
    used -= files < used ? files : used;
    const uint64_t left = used < limit ? limit - used : 0;
    if (left < *free_bytes) *free_bytes = left > 0 ? left : 1;
}

uint64_t lw_machine_free_bytes(const char *root)
{
    uint64_t free_bytes = number_of_key(root, "/proc/meminfo", "MemAvailable:") * 1024;
    if (free_bytes > 0) groups_each(root, "memory", memory_of_group, &free_bytes);
    return free_bytes;
}
