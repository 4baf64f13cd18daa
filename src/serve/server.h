/* What the event thread owns: everything of the server but the two other kinds of threads. */
#ifndef LW_SERVE_SERVER_H
#define LW_SERVE_SERVER_H

#include "serve/access.h"
#include "serve/bridge.h"
#include "serve/engine.h"
#include "serve/log.h"
#include "serve/metrics.h"
#include "serve/workers.h"

struct event;
struct event_base;
struct evconnlistener;

typedef struct lw_server {
    lw_serve_options own_options;    /* a copy: threads may outlive the caller's, see lw_serve */
    const lw_serve_options *options; /* own_options, once they are complete */
    const char *served_name;
    char name[256]; /* made from the folder when the options say none */
    char url[300];
    int64_t started; /* unix seconds */

    lw_bridge bridge;
    lw_engine engine;
    lw_workers workers;
    lw_access access;
    lw_metrics metrics;
    lw_log log;

    struct event_base *base;
    struct evconnlistener *listener;
    struct event *news_event, *tick_event, *signal_events[3]; /* SIGTERM, SIGINT, SIGHUP */

    lw_conn *conns;
    uint32_t conn_count;
    uint64_t bodies_bytes; /* of all connections */
    uint32_t job_count;    /* answers that are not complete */
    uint64_t job_number;

    uint32_t load_percent; /* the engine thread's, while it loads */
    uint32_t signals;      /* how many asked for the end */
    uint64_t drain_begun_ns;
    bool is_draining;
    int exit_code;
} lw_server;

#endif
