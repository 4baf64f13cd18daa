/* Which CPUs, how many threads and how much memory: read from made trees of /proc and /sys, of the kinds that
 * machines and containers show. */
#include "base/machine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

static char root[] = "/tmp/lanewise-machine-XXXXXX";

static int setup(void **state)
{
    (void)state;
    memcpy(root + sizeof root - 7, "XXXXXX", 6);
    return mkdtemp(root) != NULL ? 0 : -1;
}

static int teardown(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

/* A file under the made root, its folders too. */
static void make_file(const char *path, const char *text)
{
    char whole[512];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    for (char *at = whole + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        mkdir(whole, 0700);
        *at = '/';
    }
    FILE *file = fopen(whole, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void make_cpu(unsigned id, const char *siblings, const char *speed_file, unsigned speed)
{
    char path[128], text[32];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", id);
    make_file(path, siblings);
    if (speed_file == NULL) return;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/%s", id, speed_file);
    snprintf(text, sizeof text, "%u\n", speed);
    make_file(path, text);
}

static lw_machine_cpus read_cpus(unsigned first, unsigned last)
{
    cpu_set_t set;
    lw_machine_cpus cpus;
    CPU_ZERO(&set);
    for (unsigned id = first; id <= last; id++) CPU_SET(id, &set);
    lw_machine_cpus_read(root, &set, &cpus);
    return cpus;
}

static void assert_cpus(const lw_machine_cpus *cpus, unsigned worth, size_t count, const size_t *ids)
{
    assert_int_equal(cpus->worth, worth);
    assert_int_equal(cpus->fast, worth);
    assert_int_equal(cpus->count, count);
    for (size_t i = 0; i < count; i++) assert_int_equal(cpus->ids[i], ids[i]);
}

static void an_empty_tree_counts_cpus(void **state)
{
    (void)state;
    const lw_machine_cpus cpus = read_cpus(3, 5);
    assert_cpus(&cpus, 3, 3, (const size_t[]){ 3, 4, 5 });
    assert_int_equal(lw_machine_free_bytes(root), 0);
}

/* Siblings side by side, as virtual machines number them, and a mask that leaves one of a pair. */
static void one_thread_a_core_comes_first(void **state)
{
    (void)state;
    static const char *const pairs[] = { "0-1\n", "2-3\n", "4-5\n" };
    for (unsigned id = 0; id < 6; id++) make_cpu(id, pairs[id / 2], NULL, 0);
    lw_machine_cpus cpus = read_cpus(0, 5);
    assert_cpus(&cpus, 3, 6, (const size_t[]){ 0, 2, 4, 1, 3, 5 });
    cpus = read_cpus(1, 3);
    assert_cpus(&cpus, 2, 3, (const size_t[]){ 1, 2, 3 });
}

static void few_threads_are_spread_out(void **state)
{
    (void)state;
    static const char *const pairs[] = { "0,4\n", "1,5\n", "2,6\n", "3,7\n" };
    for (unsigned id = 0; id < 8; id++) make_cpu(id, pairs[id % 4], NULL, 0);
    const lw_machine_cpus cpus = read_cpus(0, 7);
    for (unsigned parts = 1; parts <= 8; parts++) {
        unsigned seen = 0, cores = 0;
        for (unsigned part = 0; part < parts; part++) {
            const size_t id = lw_machine_cpu_of(&cpus, part, parts);
            assert_in_range(id, 0, 7);
            assert_false(seen >> id & 1);
            seen |= 1u << id;
            cores |= 1u << id % 4;
        }
        assert_int_equal(__builtin_popcount(cores), parts < 4 ? parts : 4);
    }
    assert_int_equal(lw_machine_cpu_of(&cpus, 1, 2), 2);
}

/* Two fast cores with two threads each, of which one is favoured, and four slow ones. */
static void slow_cores_come_after_fast_ones(void **state)
{
    (void)state;
    static const char *const file[] = { "cpufreq/cpuinfo_max_freq", "cpu_capacity" };
    for (size_t i = 0; i < 2; i++) {
        for (unsigned id = 0; id < 4; id++)
            make_cpu(id, id < 2 ? "0-1\n" : "2-3\n", file[i], id < 2 ? 5200 : 5000);
        make_cpu(4, "4\n", file[i], 3900);
        make_cpu(5, "5\n", file[i], 3900);
        const lw_machine_cpus cpus = read_cpus(0, 5);
        assert_cpus(&cpus, 2, 6, (const size_t[]){ 0, 2, 4, 5, 1, 3 });
        const lw_machine_cpus slow = read_cpus(4, 5);
        assert_cpus(&slow, 2, 2, (const size_t[]){ 4, 5 });
    }
}

static void quotas_of_groups_narrow(void **state)
{
    (void)state;
    make_file("/proc/self/cgroup", "0::/a/b\n");
    make_file("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    lw_machine_cpus cpus = read_cpus(0, 7);
    assert_int_equal(cpus.worth, 8);
    make_file("/sys/fs/cgroup/a/cpu.max", "250000 100000\n"); /* of a group above; a part of a CPU is one */
    cpus = read_cpus(0, 7);
    assert_int_equal(cpus.worth, 3);
    assert_int_equal(cpus.fast, 8);
    assert_int_equal(cpus.count, 8);
    make_file("/sys/fs/cgroup/a/b/cpu.max", "1000 100000\n");
    cpus = read_cpus(0, 7);
    assert_int_equal(cpus.worth, 1);
    make_file("/sys/fs/cgroup/a/b/cpu.max", "9 0\n"); /* nonsense limits nothing */
    make_file("/sys/fs/cgroup/a/cpu.max", "much\n");
    cpus = read_cpus(0, 7);
    assert_int_equal(cpus.worth, 8);
}

static void quotas_of_version_1(void **state)
{
    (void)state;
    /* The path is the host's; the container sees its own group as the root. */
    make_file("/proc/self/cgroup", "3:memory:/host/x\n2:cpuset:/host/x\n1:cpu,cpuacct:/host/x\n");
    make_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    make_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    lw_machine_cpus cpus = read_cpus(0, 7);
    assert_int_equal(cpus.worth, 8);
    make_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
    cpus = read_cpus(0, 7);
    assert_int_equal(cpus.worth, 4);
}

static void memory_is_what_is_left_of_limits(void **state)
{
    (void)state;
    make_file("/proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    8000 kB\n");
    assert_int_equal(lw_machine_free_bytes(root), 8000 * 1024);
    make_file("/proc/self/cgroup", "0::/\n");
    make_file("/sys/fs/cgroup/memory.max", "max\n");
    make_file("/sys/fs/cgroup/memory.current", "5000000\n");
    assert_int_equal(lw_machine_free_bytes(root), 8000 * 1024);
    make_file("/sys/fs/cgroup/memory.max", "6000000\n");
    assert_int_equal(lw_machine_free_bytes(root), 1000000);
    make_file("/sys/fs/cgroup/memory.stat",
              "anon 1\nworkingset_active_file 7\ninactive_file 1500000\nactive_file 500000\n");
    assert_int_equal(lw_machine_free_bytes(root), 3000000);
    make_file("/sys/fs/cgroup/memory.current", "8100000\n");
    assert_int_equal(lw_machine_free_bytes(root), 1);
}

static void memory_of_version_1(void **state)
{
    (void)state;
    make_file("/proc/meminfo", "MemAvailable:    8000 kB\n");
    make_file("/proc/self/cgroup", "4:memory:/x/y\n");
    make_file("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n");
    make_file("/sys/fs/cgroup/memory/x/memory.usage_in_bytes", "10\n");
    assert_int_equal(lw_machine_free_bytes(root), 8000 * 1024);
    make_file("/sys/fs/cgroup/memory/x/y/memory.limit_in_bytes", "3000000\n");
    make_file("/sys/fs/cgroup/memory/x/y/memory.usage_in_bytes", "1000000\n");
    make_file("/sys/fs/cgroup/memory/x/y/memory.stat", "inactive_file 5\ntotal_inactive_file 100000\n");
    assert_int_equal(lw_machine_free_bytes(root), 2100000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_empty_tree_counts_cpus, setup, teardown),
        cmocka_unit_test_setup_teardown(one_thread_a_core_comes_first, setup, teardown),
        cmocka_unit_test_setup_teardown(few_threads_are_spread_out, setup, teardown),
        cmocka_unit_test_setup_teardown(slow_cores_come_after_fast_ones, setup, teardown),
        cmocka_unit_test_setup_teardown(quotas_of_groups_narrow, setup, teardown),
        cmocka_unit_test_setup_teardown(quotas_of_version_1, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_is_what_is_left_of_limits, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_of_version_1, setup, teardown),
    };
    return cmocka_run_group_tests_name("machine", tests, NULL, NULL);
}
