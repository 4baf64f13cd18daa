/* One request on its way through the threads, and the news that its connection hears of it.
 *
 *   event thread: body complete -> workers: JSON, template, tokens -> engine thread: reply -> news -> event
 * thread
 *
 * A job has two holders, its connection and the thread that works on it; the last one to let go frees it.
 * News are records in one buffer, so that a whole round's tokens cross in one move.
 */
#ifndef LW_SERVE_JOB_H
#define LW_SERVE_JOB_H

#include "base/buf.h"
#include "serve/request.h"
#include "serve/speech.h"

#include <stdatomic.h>

typedef enum lw_news_kind {
    LW_NEWS_QUEUED,    /* the engine has taken the request */
    LW_NEWS_RUNNING,   /* the reply has its lane */
    LW_NEWS_LOGPROB,   /* lw_news_logprob */
    LW_NEWS_REASONING, /* text */
    LW_NEWS_CONTENT,   /* text */
    LW_NEWS_ANSWER,    /* a whole JSON body; the last news */
    LW_NEWS_END,       /* lw_news_end; the last news */
    LW_NEWS_FAILURE,   /* lw_failure; the last news */
} lw_news_kind;

typedef struct lw_news {
    lw_news_kind kind;
    const char *bytes; /* view */
    size_t count;
} lw_news;

typedef struct lw_news_logprob {
    int32_t id;
    float logprob;
    uint32_t top_count;
    lw_token_logprob top[20];
} lw_news_logprob;

typedef struct lw_news_end {
    bool is_length;             /* finish "length"; else "stop" */
    bool has_stop;              /* stops[stop] was found */
    size_t stop;
    uint32_t reasoning_tokens;
    lw_reply_counts counts;
} lw_news_end;

typedef struct lw_conn lw_conn;
typedef struct lw_answer lw_answer;

typedef struct lw_job {
    /* Set by the event thread before the job is handed on; read only after. */
    lw_request_kind kind;
    uint64_t number;
    char id[40];     /* "chatcmpl-..." */
    int64_t created; /* unix seconds */
    uint64_t begun_ns;
    lw_buf body;

    /* The worker's until the engine has the job; read only after. */
    lw_request request;
    lw_prompt *prompt;

    /* The engine thread's. */
    lw_reply *reply;
    lw_speech speech;
    bool is_running;             /* it has left the queue */
    struct lw_job *next_running;

    /* Under the bridge's lock. */
    lw_buf news;
    bool is_noticed;             /* it stands in the list of jobs with news */
    struct lw_job *next_queued, *next_noticed;

    /* The event thread's. */
    lw_conn *conn;               /* NULL: the client is gone */
    lw_answer *answer;

    atomic_bool is_cancelled;
    atomic_bool is_starved;      /* memory ran out for its news: what came last is all that it will have */
    atomic_uint holders;
} lw_job;

lw_job *lw_job_make(lw_request_kind kind) LW_MUST_USE;
void lw_job_release(lw_job *job);

/* Records. put fails with LW_NO_ROOM only. next walks: false at the end. */
lw_status lw_news_put(lw_buf *buf, lw_news_kind kind, const void *bytes, size_t count) LW_MUST_USE;
bool lw_news_next(const lw_buf *buf, size_t *at, lw_news *news) LW_MUST_USE;

#endif
