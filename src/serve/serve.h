/* `lanewise serve`: the HTTP server over the public API. What the command line says, and the one call.
 * Threads: the caller's runs the event loop; one owns the model; a few turn bodies into prompts.
 */
#ifndef LW_SERVE_SERVE_H
#define LW_SERVE_SERVE_H

#include "base/status.h"
#include "lanewise.h"

enum { LW_SERVE_TEXTS_MAX = 32 };

/* Values of an option that may be given several times; borrowed. */
typedef struct lw_serve_texts {
    const char *values[LW_SERVE_TEXTS_MAX];
    uint32_t count;
} lw_serve_texts;

typedef struct lw_serve_options {
    const char *model_dir;
    lw_model_options model;
    const char *host;
    uint32_t port;           /* 0: any free one, printed */
    const char *served_name; /* NULL: the folder's name */
    lw_serve_texts aliases;
    lw_serve_texts allowed_hosts; /* for Host, beside IP literals and localhost */
    lw_serve_texts origins;       /* that browsers may call from; "*": any */
    lw_serve_texts api_keys;
    const char *api_key_file;  /* one a line, read again on SIGHUP; NULL: none, and SIGHUP ends the process */
    const char *api_keys_more; /* separated by commas, from the environment; NULL: none */
    bool open_metrics;         /* /metrics asks for no key */
    bool raw_reasoning;        /* reasoning and its tags stay in the content */
    bool fresh_seeds;
    uint32_t tokens_max; /* of a reply whose request does not say */
    bool logs_json, logs_prompts, is_terminal;
    uint32_t drain_s;
    uint32_t idle_s, read_s, write_s; /* a connection between requests; one request's bytes; a stuck reader */
    uint32_t keep_alive_s;            /* a stream without news gets a comment */
    uint64_t body_bytes_max;
    uint32_t connections_max;
} lw_serve_options;

/* Serves until a signal ends it; returns an exit code. Writes start lines to standard output, the log and
 * failures to standard error. */
int lw_serve(const lw_serve_options *options);

#endif
