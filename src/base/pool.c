/* Thread pool; see pool.h. One generation counter starts a run, one pending counter ends it.
 *
 * Invariants
 * 1. fn and context are written before the generation moves and read by who has claimed a part of it: the run
 *    cannot end before that part does.
 * 2. Whoever sleeps says so (asleep) before it looks at its counter for the last time, and holds the mutex
 *    from there until it waits; whoever moves a counter looks at asleep afterwards. Both are sequentially
 *    consistent, so one of the two always sees the other and no wake-up is lost.
 * 3. The caller is pinned only between hold and release: threads that it starts later would inherit its mask.
 * Workers take the CPUs in the machine's order, the caller the first, so that no two share a core while
 * another is free.
 * 4. Each part is claimed once in every run: claimed moves from the generation before to this one. Whoever
 *    wakes up late finds it moved.
 */
#include "base/pool.h"

#include "base/clock.h"
#include "base/machine.h"
#include "base/size.h"

#include <errno.h>
#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    LINE_BYTES = 64,
    SPIN_NS = 50000,    /* longer than the gap between two ops of a forward, far shorter than a pause */
    SPIN_STEPS = 64,    /* looks at the counter between two looks at the clock */
};

/* One side of the barrier: a counter that moves, and those who wait for that. */
typedef struct gate {
    _Alignas(LINE_BYTES) atomic_uint value;
    _Alignas(LINE_BYTES) atomic_uint asleep;
    pthread_cond_t moved;
} gate;

typedef struct worker {
    _Alignas(LINE_BYTES) atomic_uint claimed; /* the last generation whose part was taken */
    lw_pool *pool;
    pthread_t thread;
    unsigned part;
    size_t cpu;         /* where, if the pool's are pinned */
} worker;

struct lw_pool {        /* owner: the thread that opened it */
    gate generation;    /* moved by the owner: work, or stop, is there */
    gate pending;       /* parts past the caller's own that are not finished in this run */
    pthread_mutex_t mutex;
    lw_pool_fn *fn;
    void *context;
    void (*setup)(void);
    atomic_bool stop;
    uint64_t spin_ns;   /* 0 where threads outnumber CPUs: a spinner would hold up whom it waits for */
    bool pinned;        /* workers are, and the caller may be held on cpu */
    bool held;
    size_t cpu;
    cpu_set_t kept;     /* the caller's mask while it is held */
    unsigned threads;
    unsigned started;   /* workers that exist */
    worker workers[];   /* [threads - 1] */
};

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* True when value came to differ from (or, if equal, to equal) goal within the time. */
static bool gate_spin(gate *g, unsigned goal, bool equal, uint64_t ns)
{
    if (ns == 0) return (atomic_load(&g->value) == goal) == equal;
    const uint64_t end = lw_clock_ns() + ns;
    do {
        for (int i = 0; i < SPIN_STEPS; i++) {
            if ((atomic_load_explicit(&g->value, memory_order_acquire) == goal) == equal) return true;
            relax();
        }
    } while (lw_clock_ns() < end);
    return false;
}

static void gate_wait(lw_pool *pool, gate *g, unsigned goal, bool equal)
{
    if (gate_spin(g, goal, equal, pool->spin_ns)) return;
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&g->asleep, 1);
    while ((atomic_load(&g->value) == goal) != equal) pthread_cond_wait(&g->moved, &pool->mutex);
    atomic_fetch_sub(&g->asleep, 1);
    pthread_mutex_unlock(&pool->mutex);
}

static void gate_wake(lw_pool *pool, gate *g)
{
    if (atomic_load(&g->asleep) == 0) return;
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&pool->mutex);
}

/* Takes the worker's part of this generation; false: it was taken. */
static bool claim(worker *w, unsigned generation)
{
    unsigned before = generation - 1;
    return atomic_compare_exchange_strong(&w->claimed, &before, generation);
}

static bool stay_on(size_t cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    return pthread_setaffinity_np(pthread_self(), sizeof one, &one) == 0;
}

static void *worker_main(void *context)
{
    worker *w = context;
    lw_pool *pool = w->pool;
    /* Should the CPU be gone by now, the thread runs anywhere: that costs speed only. */
    if (pool->pinned) (void)stay_on(w->cpu);
    if (pool->setup != NULL) pool->setup();
    for (unsigned seen = 0;;) {
        gate_wait(pool, &pool->generation, seen, false);
        seen = atomic_load(&pool->generation.value);
        if (atomic_load(&pool->stop)) return NULL;
        if (!claim(w, seen)) continue;
        pool->fn(pool->context, w->part, pool->threads);
        if (atomic_fetch_sub(&pool->pending.value, 1) == 1) gate_wake(pool, &pool->pending);
    }
}

static unsigned threads_worth(const lw_machine_cpus *cpus)
{
    return (unsigned)size_min(cpus->worth, LW_POOL_THREADS_MAX);
}

unsigned lw_pool_threads_worth(void)
{
    lw_machine_cpus cpus;
    lw_machine_cpus_own(&cpus);
    return threads_worth(&cpus);
}

lw_status lw_pool_open(unsigned thread_count, void (*setup)(void), lw_pool **out, lw_diag *d)
{
    lw_machine_cpus cpus;
    lw_machine_cpus_own(&cpus);
    const unsigned threads = thread_count == 0 ? threads_worth(&cpus) : thread_count;
    *out = NULL;
    if (threads > LW_POOL_THREADS_MAX) {
        return lw_fail(d, LW_BAD_INPUT, "%u threads: at most %d are supported", threads, LW_POOL_THREADS_MAX);
    }
    const size_t bytes = offsetof(lw_pool, workers) + (threads - 1) * sizeof(worker);
    lw_pool *pool = aligned_alloc(LINE_BYTES, size_round_up(bytes, LINE_BYTES));
    if (pool == NULL) return lw_fail(d, LW_NO_ROOM, "no memory for a pool of %u threads", threads);
    memset(pool, 0, bytes);
    pool->setup = setup;
    pool->threads = threads;
    pool->spin_ns = threads <= cpus.count ? SPIN_NS : 0;
    /* A quota says that others use these CPUs as well. */
    pool->pinned = threads <= cpus.count && cpus.worth == cpus.fast;
    pool->cpu = lw_machine_cpu_of(&cpus, 0, threads);
    LW_ASSERT(pthread_mutex_init(&pool->mutex, NULL) == 0);
    LW_ASSERT(pthread_cond_init(&pool->generation.moved, NULL) == 0);
    LW_ASSERT(pthread_cond_init(&pool->pending.moved, NULL) == 0);
    for (unsigned part = 1; part < threads; part++) {
        worker *w = &pool->workers[part - 1];
        *w = (worker){ .claimed = 0, .pool = pool, .part = part,
                       .cpu = lw_machine_cpu_of(&cpus, part, threads) };
        const int error = pthread_create(&w->thread, NULL, worker_main, w);
        if (error != 0) {
            lw_pool_close(pool);
            return lw_fail(d, LW_NO_ROOM, "thread %u of %u did not start: %s; ask for fewer threads",
                           part + 1, threads, strerror(error));
        }
        pool->started++;
    }
    *out = pool;
    return LW_OK;
}

void lw_pool_close(lw_pool *pool)
{
    if (pool == NULL) return;
    atomic_store(&pool->stop, true);
    atomic_fetch_add(&pool->generation.value, 1);
    gate_wake(pool, &pool->generation);
    for (unsigned i = 0; i < pool->started; i++) pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->generation.moved);
    pthread_cond_destroy(&pool->pending.moved);
    pthread_mutex_destroy(&pool->mutex);
    free(pool);
}

unsigned lw_pool_threads(const lw_pool *pool)
{
    return pool->threads;
}

void lw_pool_hold(lw_pool *pool)
{
    LW_ASSERT(!pool->held);
    pool->held = pool->pinned && pool->threads > 1 &&
                 pthread_getaffinity_np(pthread_self(), sizeof pool->kept, &pool->kept) == 0 &&
                 CPU_ISSET(pool->cpu, &pool->kept) && stay_on(pool->cpu);
}

void lw_pool_release(lw_pool *pool)
{
    if (!pool->held) return;
    pool->held = false;
    (void)pthread_setaffinity_np(pthread_self(), sizeof pool->kept, &pool->kept);
}

/* The caller's own part, and those that nobody else has begun. */
static void run_parts(lw_pool *pool, lw_pool_fn *fn, void *context, unsigned generation)
{
    fn(context, 0, pool->threads);
    for (unsigned part = 1; part < pool->threads; part++) {
        if (!claim(&pool->workers[part - 1], generation)) continue;
        fn(context, part, pool->threads);
        atomic_fetch_sub(&pool->pending.value, 1);
    }
}

void lw_pool_run(lw_pool *pool, lw_pool_fn *fn, void *context)
{
    fenv_t kept;
    LW_ASSERT(fn != NULL);
    pool->fn = fn;
    pool->context = context;
    atomic_store(&pool->pending.value, pool->threads - 1);
    const unsigned generation = atomic_fetch_add(&pool->generation.value, 1) + 1;
    gate_wake(pool, &pool->generation);
    if (pool->setup != NULL) {
        fegetenv(&kept);
        pool->setup();
    }
    run_parts(pool, fn, context, generation);
    if (pool->setup != NULL) fesetenv(&kept);
    gate_wait(pool, &pool->pending, 0, true);
}
