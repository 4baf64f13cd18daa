/* The pool that turns bodies into prompts: JSON, checks, chat template, tokenizer. None of it may hold up the
 * event thread, and none of it needs the engine's.
 */
#ifndef LW_SERVE_WORKERS_H
#define LW_SERVE_WORKERS_H

#include "serve/bridge.h"

enum { LW_WORKERS = 2 };

typedef struct lw_workers {
    lw_bridge *bridge;     /* borrowed */
    const lw_model *model; /* borrowed; set before the first job */
    lw_request_rules rules;
    int64_t tokens_max; /* of a reply whose request does not say */
    uint32_t context;
    pthread_t threads[LW_WORKERS];
    uint32_t thread_count;
} lw_workers;

/* Starts the threads; workers must stay where it is until they have been joined. */
lw_status lw_workers_start(lw_workers *workers, lw_diag *d) LW_MUST_USE;
void lw_workers_join(lw_workers *workers);

#endif
