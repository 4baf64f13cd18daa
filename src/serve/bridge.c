/* Queues between the threads; see bridge.h. */
#include "serve/bridge.h"

#include "base/clock.h"
#include "base/limits.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

lw_status lw_bridge_open(lw_bridge *bridge, lw_diag *d)
{
    *bridge = (lw_bridge){ .event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) };
    if (bridge->event_fd < 0) return lw_fail(d, LW_IO, "eventfd: %s", strerror(errno));
    pthread_mutex_init(&bridge->lock, NULL);
    pthread_cond_init(&bridge->work_wake, NULL);
    pthread_cond_init(&bridge->engine_wake, NULL);
    return LW_OK;
}

void lw_bridge_close(lw_bridge *bridge)
{
    close(bridge->event_fd);
    pthread_mutex_destroy(&bridge->lock);
    pthread_cond_destroy(&bridge->work_wake);
    pthread_cond_destroy(&bridge->engine_wake);
}

static void lock(lw_bridge *bridge)
{
    pthread_mutex_lock(&bridge->lock);
}

static void unlock(lw_bridge *bridge)
{
    pthread_mutex_unlock(&bridge->lock);
}

static void append(lw_job_queue *queue, lw_job *job)
{
    job->next_queued = NULL;
    if (queue->last != NULL) queue->last->next_queued = job;
    else queue->first = job;
    queue->last = job;
}

/* The lock is held. */
static void wake_engine(lw_bridge *bridge)
{
    bridge->engine_has_cause = true;
    pthread_cond_signal(&bridge->engine_wake);
}

static void wake_events(lw_bridge *bridge)
{
    const uint64_t one = 1;
    /* The counter can only be full when the event thread has long been woken. */
    const ssize_t written = write(bridge->event_fd, &one, sizeof one);
    (void)written;
}

/* ---- the event thread ---- */

void lw_bridge_push_work(lw_bridge *bridge, lw_job *job)
{
    lock(bridge);
    append(&bridge->work, job);
    pthread_cond_signal(&bridge->work_wake);
    unlock(bridge);
}

void lw_bridge_clear_wake(lw_bridge *bridge)
{
    uint64_t count;
    const ssize_t got = read(bridge->event_fd, &count, sizeof count);
    (void)got;
}

lw_job *lw_bridge_pop_noticed(lw_bridge *bridge)
{
    lock(bridge);
    lw_job *job = bridge->noticed_first;
    if (job != NULL) {
        bridge->noticed_first = job->next_noticed;
        if (bridge->noticed_first == NULL) bridge->noticed_last = NULL;
        job->is_noticed = false;
    }
    unlock(bridge);
    return job;
}

void lw_bridge_take_news(lw_bridge *bridge, lw_job *job, lw_buf *out)
{
    lock(bridge);
    const bool was_full = job->news.count >= LW_LIMIT_NEWS_BYTES;
    const lw_buf empty = *out;
    *out = job->news;
    job->news = empty;
    if (was_full) wake_engine(bridge);
    unlock(bridge);
}

void lw_bridge_cancel(lw_bridge *bridge, lw_job *job)
{
    atomic_store(&job->is_cancelled, true);
    lock(bridge);
    wake_engine(bridge);
    unlock(bridge);
}

void lw_bridge_drain(lw_bridge *bridge, lw_drain drain)
{
    lock(bridge);
    if (drain > bridge->drain) bridge->drain = drain;
    wake_engine(bridge);
    unlock(bridge);
}

void lw_bridge_leave_workers(lw_bridge *bridge)
{
    lock(bridge);
    bridge->workers_leave = true;
    pthread_cond_broadcast(&bridge->work_wake);
    unlock(bridge);
}

lw_engine_state lw_bridge_state(lw_bridge *bridge, lw_model_counts *counts)
{
    lock(bridge);
    const lw_engine_state state = bridge->state;
    if (counts != NULL) *counts = bridge->counts;
    unlock(bridge);
    return state;
}

uint64_t lw_bridge_round_ns(lw_bridge *bridge)
{
    lock(bridge);
    const uint64_t begin_ns = bridge->round_begin_ns;
    unlock(bridge);
    return begin_ns == 0 ? 0 : lw_clock_ns() - begin_ns;
}

/* ---- workers ---- */

lw_job *lw_bridge_pop_work(lw_bridge *bridge)
{
    lock(bridge);
    while (bridge->work.first == NULL && !bridge->workers_leave)
        pthread_cond_wait(&bridge->work_wake, &bridge->lock);
    lw_job *job = bridge->work.first;
    if (job != NULL) bridge->work.first = job->next_queued;
    if (bridge->work.first == NULL) bridge->work.last = NULL;
    unlock(bridge);
    return job;
}

void lw_bridge_push_engine(lw_bridge *bridge, lw_job *job)
{
    lock(bridge);
    append(&bridge->engine, job);
    wake_engine(bridge);
    unlock(bridge);
}

/* ---- the engine thread ---- */

lw_job *lw_bridge_pop_engine(lw_bridge *bridge, bool may_wait, lw_drain *drain)
{
    lock(bridge);
    while (may_wait && !bridge->engine_has_cause) pthread_cond_wait(&bridge->engine_wake, &bridge->lock);
    bridge->engine_has_cause = false;
    lw_job *jobs = bridge->engine.first;
    bridge->engine = (lw_job_queue){ .first = NULL };
    *drain = bridge->drain;
    unlock(bridge);
    return jobs;
}

void lw_bridge_round_begin(lw_bridge *bridge)
{
    const uint64_t now_ns = lw_clock_ns();
    lock(bridge);
    bridge->round_begin_ns = now_ns;
    unlock(bridge);
}

void lw_bridge_publish(lw_bridge *bridge, lw_engine_state state, const lw_model_counts *counts)
{
    lock(bridge);
    const bool is_change = bridge->state != state;
    bridge->state = state;
    bridge->counts = *counts;
    bridge->round_begin_ns = 0;
    unlock(bridge);
    if (is_change) wake_events(bridge);
}

bool lw_bridge_is_full(lw_bridge *bridge, lw_job *job)
{
    lock(bridge);
    const bool is_full = job->news.count >= LW_LIMIT_NEWS_BYTES;
    unlock(bridge);
    return is_full;
}

/* ---- any of them ---- */

/* Puts the job among those with news. The lock is held; true: the event thread is to be woken. */
static bool notice(lw_bridge *bridge, lw_job *job)
{
    if (job->is_noticed) return false;
    job->is_noticed = true;
    job->next_noticed = NULL;
    if (bridge->noticed_last != NULL) bridge->noticed_last->next_noticed = job;
    else bridge->noticed_first = job;
    bridge->noticed_last = job;
    atomic_fetch_add(&job->holders, 1);
    return true;
}

void lw_bridge_tell(lw_bridge *bridge, lw_job *job, const lw_buf *records)
{
    if (atomic_load(&job->is_starved)) return;
    lock(bridge);
    const bool fits = lw_buf_append(&job->news, records->bytes, records->count) == LW_OK;
    const bool is_new = fits && notice(bridge, job);
    unlock(bridge);
    if (is_new) wake_events(bridge);
    if (!fits) lw_bridge_starve(bridge, job);
}

void lw_bridge_tell_one(lw_bridge *bridge, lw_job *job, lw_news_kind kind, const void *bytes, size_t count)
{
    lw_buf records;
    lw_buf_init(&records, 0);
    if (lw_news_put(&records, kind, bytes, count) == LW_OK) lw_bridge_tell(bridge, job, &records);
    else lw_bridge_starve(bridge, job);
    lw_buf_deinit(&records);
}

void lw_bridge_starve(lw_bridge *bridge, lw_job *job)
{
    atomic_store(&job->is_cancelled, true);
    atomic_store(&job->is_starved, true);
    lock(bridge);
    const bool is_new = notice(bridge, job);
    wake_engine(bridge);
    unlock(bridge);
    if (is_new) wake_events(bridge);
}
