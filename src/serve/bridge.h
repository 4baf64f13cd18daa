/* What the threads of the server share: queues of jobs, news, wake-ups, and a copy of the engine's counts.
 * One lock guards all of it; nobody computes while holding it.
 *
 *   event thread  --push_work-->  workers  --push_engine-->  engine thread
 *        ^------------------------ news, notified through event_fd ------'
 */
#ifndef LW_SERVE_BRIDGE_H
#define LW_SERVE_BRIDGE_H

#include "serve/job.h"

#include <pthread.h>

typedef struct lw_job_queue {
    lw_job *first, *last;
} lw_job_queue;

typedef enum lw_engine_state {
    LW_ENGINE_LOADING,
    LW_ENGINE_READY,
    LW_ENGINE_FAILED,
    LW_ENGINE_ENDED,
} lw_engine_state;

/* How far a shutdown has come; each includes the ones before it. */
typedef enum lw_drain {
    LW_DRAIN_NONE,
    LW_DRAIN_QUEUED,  /* what has no lane yet is refused */
    LW_DRAIN_RUNNING, /* what runs ends after its current token */
    LW_DRAIN_LEAVE,   /* the engine closes the model and its thread ends */
} lw_drain;

typedef struct lw_bridge {
    pthread_mutex_t lock;
    pthread_cond_t work_wake, engine_wake;
    int event_fd;

    lw_job_queue work, engine;
    lw_job *noticed_first, *noticed_last; /* jobs with news for the event thread */
    bool engine_has_cause; /* to look at its jobs again */
    bool workers_leave;
    lw_drain drain;
    lw_engine_state state;
    lw_error load_error;
    lw_result load_result;
    lw_model_counts counts;
    uint64_t round_begin_ns; /* of the round at work; 0: there is none */
} lw_bridge;

lw_status lw_bridge_open(lw_bridge *bridge, lw_diag *d) LW_MUST_USE;
void lw_bridge_close(lw_bridge *bridge);

/* ---- the event thread ---- */
void lw_bridge_push_work(lw_bridge *bridge, lw_job *job);
/* Before looking at jobs with news. */
void lw_bridge_clear_wake(lw_bridge *bridge);
/* The next job with news, which the caller releases; or NULL. */
lw_job *lw_bridge_pop_noticed(lw_bridge *bridge) LW_MUST_USE;
/* The news so far move into out, which is empty. */
void lw_bridge_take_news(lw_bridge *bridge, lw_job *job, lw_buf *out);
/* The client is gone. */
void lw_bridge_cancel(lw_bridge *bridge, lw_job *job);
void lw_bridge_drain(lw_bridge *bridge, lw_drain drain);
void lw_bridge_leave_workers(lw_bridge *bridge);
lw_engine_state lw_bridge_state(lw_bridge *bridge, lw_model_counts *counts);
/* How long the engine has been at its round. */
uint64_t lw_bridge_round_ns(lw_bridge *bridge);

/* ---- workers ---- */
/* Waits for the next job; NULL: leave. */
lw_job *lw_bridge_pop_work(lw_bridge *bridge) LW_MUST_USE;
void lw_bridge_push_engine(lw_bridge *bridge, lw_job *job);

/* ---- the engine thread ---- */
/* All jobs that came, linked by next_queued. Waits for a cause to look when may_wait. */
lw_job *lw_bridge_pop_engine(lw_bridge *bridge, bool may_wait, lw_drain *drain) LW_MUST_USE;
void lw_bridge_round_begin(lw_bridge *bridge);
/* Ends the round, too. */
void lw_bridge_publish(lw_bridge *bridge, lw_engine_state state, const lw_model_counts *counts);
/* True when the connection has not read what it was told, and the reply should pause. */
bool lw_bridge_is_full(lw_bridge *bridge, lw_job *job) LW_MUST_USE;

/* ---- any of them ---- */
/* Appends records (whole ones) to the job's news and wakes the event thread. Without memory for them the job
 * is starved. */
void lw_bridge_tell(lw_bridge *bridge, lw_job *job, const lw_buf *records);
void lw_bridge_tell_one(lw_bridge *bridge, lw_job *job, lw_news_kind kind, const void *bytes, size_t count);
/* A piece that found no memory would leave a hole in the text: the job is cancelled, nothing more is told,
 * and the event thread ends the reply with an error. */
void lw_bridge_starve(lw_bridge *bridge, lw_job *job);

#endif
