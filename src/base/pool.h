/* A pool of pinned threads that run one function together: n parts, one barrier at the end. Work is split
 * statically by part; part i is thread i's, but one that has not begun its part when the caller is through
 * with part 0 leaves it to the caller, so that a thread whose CPU is busy with something else holds nobody
 * up. So no result may depend on the thread, only on the part. Idle threads spin for a bounded time and then
 * sleep. Run by one thread at a time.
 */
#ifndef LW_BASE_POOL_H
#define LW_BASE_POOL_H

#include "base/status.h"

typedef struct lw_pool lw_pool;
typedef void lw_pool_fn(void *context, unsigned part, unsigned parts);

enum { LW_POOL_THREADS_MAX = 256 };

/* Threads worth having on this machine (base/machine.h), up to LW_POOL_THREADS_MAX; at least 1. */
unsigned lw_pool_threads_worth(void);

/* thread_count 0: as many as are worth having. setup (may be NULL) sets floating-point
 * modes: it runs once on every thread of the pool, and around each run on the caller, which gets back the
 * modes that it had. */
lw_status lw_pool_open(unsigned thread_count, void (*setup)(void), lw_pool **out, lw_diag *d) LW_MUST_USE;
void lw_pool_close(lw_pool *pool);
unsigned lw_pool_threads(const lw_pool *pool);

/* Keeps the caller on a CPU of its own, away from the workers, until lw_pool_release: for runs that follow
 * each other closely, as those of a forward. Where workers are not pinned, and where the caller may not run
 * on that CPU, it changes nothing. Release gives the caller back the mask that it had. */
void lw_pool_hold(lw_pool *pool);
void lw_pool_release(lw_pool *pool);

/* Runs fn(context, part, parts) once for every part and returns when all are done. */
void lw_pool_run(lw_pool *pool, lw_pool_fn *fn, void *context);

/* [*begin, *end): the share of part among parts of count items cut into units of `unit` items. */
static inline void lw_pool_share(size_t count, size_t unit, unsigned part, unsigned parts, size_t *begin,
                                 size_t *end)
{
    const size_t units = count / unit + (count % unit != 0);
    const size_t first = units * part / parts * unit, last = units * (part + 1) / parts * unit;
    *begin = first < count ? first : count;
    *end = last < count ? last : count;
}

#endif
