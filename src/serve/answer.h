/* The reply of one job, from its news to its connection: whole, or as a stream of events. The shapes of a
 * chat and of a completion stand in chat.c and completions.c; what they share is here. Owned by the event
 * thread.
 */
#ifndef LW_SERVE_ANSWER_H
#define LW_SERVE_ANSWER_H

#include "serve/http.h"
#include "serve/job.h"

/* What one choice holds, whole or in one chunk. */
typedef struct lw_choice {
    const lw_buf *content, *reasoning; /* NULL: none in this chunk */
    json_t *logprobs;                  /* borrowed; NULL: none */
    const char *finish;                /* NULL: it goes on */
    bool is_first;                     /* the stream's first chunk */
} lw_choice;

/* How one kind of reply looks. */
typedef struct lw_shape {
    const char *object, *chunk_object;
    bool has_first_chunk; /* the stream opens with a chunk before any text */
    /* choices[0]; a new reference, or NULL without memory. */
    json_t *(*whole)(const lw_choice *choice);
    json_t *(*chunk)(const lw_choice *choice);
    /* Adds one token to logprobs, which it makes when NULL. */
    void (*add_logprob)(lw_answer *answer, const lw_news_logprob *news);
} lw_shape;

extern const lw_shape lw_shape_chat, lw_shape_completion;

struct lw_answer {
    const lw_shape *shape;
    const lw_model *model;
    lw_buf content, reasoning; /* of a whole reply */
    json_t *logprobs;          /* not sent yet */
    size_t text_offset;        /* completions: of the next token's text */
    bool is_queued;            /* the engine has the request */
    bool is_open;              /* the stream has begun */
};

/* The job has just been handed to the workers. */
bool lw_answer_open(lw_conn *conn, lw_job *job) LW_MUST_USE;
/* The job has news, or the connection can take more of them. */
void lw_answer_hear(lw_conn *conn);
/* The client left: the job is cancelled. */
void lw_answer_gone(lw_conn *conn);
/* Called now and then: a stream that has been silent for long gets a comment. */
void lw_answer_tick(lw_conn *conn, uint64_t now_ns);

/* JSON has no infinities: what no token can have stands for minus infinity. */
double lw__logprob(float logprob);

#endif
