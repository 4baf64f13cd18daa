/* The thread that owns the model. Each turn: take jobs, one round for all replies, pass on what was drawn.
 * Jobs whose client went away are closed between two rounds, so their lanes are free within one.
 *
 *   queued --first event--> running --end, failure, cancel, shutdown--> closed
 */
#ifndef LW_SERVE_ENGINE_H
#define LW_SERVE_ENGINE_H

#include "serve/bridge.h"

typedef struct lw_engine {
    lw_bridge *bridge; /* borrowed, like the options */
    const char *model_dir;
    const lw_model_options *options;
    bool splits_reasoning;
    int64_t tokens_max; /* of a reply whose request does not say */
    pthread_t thread;

    lw_model *model; /* others may read it once the bridge says LW_ENGINE_READY */
    lw_model_facts facts;
    lw_job *jobs;     /* open replies, oldest first */
    lw_buf records;   /* scratch */
    lw_spoken spoken; /* scratch */
} lw_engine;

/* Starts the thread, which opens the model and tells the bridge how that went. engine must stay in place. */
lw_status lw_engine_start(lw_engine *engine, lw_diag *d) LW_MUST_USE;
/* After LW_DRAIN_LEAVE. */
void lw_engine_join(lw_engine *engine);

#endif
