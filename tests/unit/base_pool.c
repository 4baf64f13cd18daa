/* The pool runs every part once a run, at any thread count, spinning or asleep; its shares are a
 * partition. */
#include "base/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

static atomic_uint setups;

static void count_setup(void)
{
    atomic_fetch_add(&setups, 1);
}

/* Plain memory on purpose: a missing happens-before edge is a report of the thread sanitizer. */
typedef struct tally {
    unsigned runs[LW_POOL_THREADS_MAX];
    unsigned parts_seen[LW_POOL_THREADS_MAX];
    unsigned input;
} tally;

static void count_run(void *context, unsigned part, unsigned parts)
{
    tally *t = context;
    t->parts_seen[part] = parts;
    t->runs[part] += t->input;
}

static void every_part_runs_once_a_run(void **state)
{
    (void)state;
    static const unsigned counts[] = { 1, 2, 3, 7 };
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        lw_diag d;
        lw_pool *pool;
        atomic_store(&setups, 0);
        assert_int_equal(lw_pool_open(counts[i], count_setup, &pool, &d), LW_OK);
        assert_int_equal(lw_pool_threads(pool), counts[i]);
        tally t = { .input = 0 };
        unsigned sum = 0;
        for (unsigned run = 1; run <= 300; run++) {
            t.input = run;
            lw_pool_run(pool, count_run, &t);
            sum += run;
            for (unsigned part = 0; part < counts[i]; part++) assert_int_equal(t.runs[part], sum);
        }
        for (unsigned part = 0; part < counts[i]; part++) assert_int_equal(t.parts_seen[part], counts[i]);
        lw_pool_close(pool);
        assert_int_equal(atomic_load(&setups), counts[i] - 1 + 300); /* the caller's, around each run */
    }
}

static void workers_wake_from_sleep(void **state)
{
    (void)state;
    lw_pool *pool;
    assert_int_equal(lw_pool_open(2, NULL, &pool, NULL), LW_OK);
    tally t = { .input = 1 };
    for (unsigned run = 1; run <= 20; run++) {
        const struct timespec nap = { .tv_nsec = 1000000 };
        nanosleep(&nap, NULL);
        lw_pool_run(pool, count_run, &t);
        assert_int_equal(t.runs[1], run);
    }
    lw_pool_close(pool);
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static atomic_bool is_held;
static pthread_t caller;

/* Workers stand still before their first work, as those do whose CPUs are busy with something else. */
static void hold_workers(void)
{
    while (!pthread_equal(pthread_self(), caller) && atomic_load(&is_held)) sched_yield();
}

static void a_thread_that_is_late_holds_nobody_up(void **state)
{
    (void)state;
    lw_pool *pool;
    tally t = { .input = 1 };
    caller = pthread_self();
    atomic_store(&is_held, true);
    assert_int_equal(lw_pool_open(3, hold_workers, &pool, NULL), LW_OK);
    for (int run = 0; run < 100; run++) lw_pool_run(pool, count_run, &t);
    for (unsigned part = 0; part < 3; part++) assert_int_equal(t.runs[part], 100);
    atomic_store(&is_held, false);
    for (int run = 0; run < 100; run++) lw_pool_run(pool, count_run, &t);
    for (unsigned part = 0; part < 3; part++) assert_int_equal(t.runs[part], 200);
    lw_pool_close(pool);
}

static void idle_threads_cost_no_cpu(void **state)
{
    (void)state;
    const struct timespec nap = { .tv_nsec = 100000000 };
    lw_pool *pool;
    assert_int_equal(lw_pool_open(2, NULL, &pool, NULL), LW_OK);
    tally t = { .input = 1 };
    lw_pool_run(pool, count_run, &t);
    const uint64_t begin = cpu_ns();
    nanosleep(&nap, NULL);
    assert_true(cpu_ns() - begin < 50000000); /* a spinner would use the whole nap */
    lw_pool_close(pool);
}

static void slow_run(void *context, unsigned part, unsigned parts)
{
    const struct timespec nap = { .tv_nsec = 2000000 };
    if (part == parts - 1) nanosleep(&nap, NULL);
    count_run(context, part, parts);
}

static void the_caller_sleeps_until_the_last_part(void **state)
{
    (void)state;
    lw_pool *pool;
    assert_int_equal(lw_pool_open(3, NULL, &pool, NULL), LW_OK);
    tally t = { .input = 1 };
    for (unsigned run = 1; run <= 5; run++) {
        lw_pool_run(pool, slow_run, &t);
        assert_int_equal(t.runs[2], run);
    }
    lw_pool_close(pool);
}

static void zero_threads_means_the_allowed_cpus(void **state)
{
    (void)state;
    cpu_set_t before, after;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    lw_pool *pool;
    assert_int_equal(lw_pool_open(0, NULL, &pool, NULL), LW_OK);
    const unsigned allowed = (unsigned)CPU_COUNT(&before);
    assert_int_equal(lw_pool_threads(pool), allowed < LW_POOL_THREADS_MAX ? allowed : LW_POOL_THREADS_MAX);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    lw_pool_close(pool);
    lw_pool_close(NULL);
}

static void too_many_threads_are_refused_by_number(void **state)
{
    (void)state;
    lw_diag d;
    lw_pool *pool;
    assert_int_equal(lw_pool_open(LW_POOL_THREADS_MAX + 1, NULL, &pool, &d), LW_BAD_INPUT);
    assert_null(pool);
    assert_string_equal(d.text, "257 threads: at most 256 are supported");
}

static void shares_are_a_partition_in_whole_units(void **state)
{
    (void)state;
    for (size_t count = 0; count < 70; count++) {
        for (unsigned parts = 1; parts < 9; parts++) {
            size_t next = 0;
            for (unsigned part = 0; part < parts; part++) {
                size_t begin, end;
                lw_pool_share(count, 8, part, parts, &begin, &end);
                assert_int_equal(begin, next);
                assert_true(begin % 8 == 0 || begin == count);
                assert_true(end >= begin);
                next = end;
            }
            assert_int_equal(next, count);
        }
    }
}

/* A held caller stays on one CPU through runs, and gets its mask back; where it may not run on that CPU, or
 * workers have none of their own, nothing changes. */
static void a_held_caller_gets_its_mask_back(void **state)
{
    (void)state;
    cpu_set_t before, held, after, last;
    lw_pool *pool;
    lw_diag d;
    tally t = { .input = 1 };
    assert_int_equal(pthread_getaffinity_np(pthread_self(), sizeof before, &before), 0);
    for (unsigned threads = 1; threads <= 2; threads++) {
        const bool holds = threads == 2 && CPU_COUNT(&before) >= 2 && lw_pool_threads_worth() >= 2;
        assert_int_equal(lw_pool_open(threads, NULL, &pool, &d), LW_OK);
        lw_pool_hold(pool);
        lw_pool_run(pool, count_run, &t);
        assert_int_equal(pthread_getaffinity_np(pthread_self(), sizeof held, &held), 0);
        if (holds) assert_int_equal(CPU_COUNT(&held), 1);
        if (threads == 1) assert_true(CPU_EQUAL(&held, &before));
        lw_pool_release(pool);
        assert_int_equal(pthread_getaffinity_np(pthread_self(), sizeof after, &after), 0);
        assert_true(CPU_EQUAL(&after, &before));
        if (holds) {
            CPU_XOR(&last, &before, &held);
            assert_int_equal(pthread_setaffinity_np(pthread_self(), sizeof last, &last), 0);
            lw_pool_hold(pool);
            assert_int_equal(pthread_getaffinity_np(pthread_self(), sizeof after, &after), 0);
            assert_true(CPU_EQUAL(&after, &last));
            lw_pool_release(pool);
            assert_int_equal(pthread_setaffinity_np(pthread_self(), sizeof before, &before), 0);
        }
        lw_pool_close(pool);
    }
    assert_int_equal(t.runs[0], 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_runs_once_a_run),
        cmocka_unit_test(workers_wake_from_sleep),
        cmocka_unit_test(a_thread_that_is_late_holds_nobody_up),
        cmocka_unit_test(idle_threads_cost_no_cpu),
        cmocka_unit_test(the_caller_sleeps_until_the_last_part),
        cmocka_unit_test(a_held_caller_gets_its_mask_back),
        cmocka_unit_test(zero_threads_means_the_allowed_cpus),
        cmocka_unit_test(too_many_threads_are_refused_by_number),
        cmocka_unit_test(shares_are_a_partition_in_whole_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
