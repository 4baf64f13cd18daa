/* One run of `lanewise bench`: what was asked for, what is open, and a sample of everything that is measured
 * for each repetition. bench.c fills it; bench_report.c tells it.
 */
#ifndef LW_CLI_BENCH_H
#define LW_CLI_BENCH_H

#include "cli/bench_draft.h"
#include "cli/bench_profile.h"
#include "cli/bench_url.h"
#include "cli/load.h"
#include "cli/synth.h"

enum {
    LW_BENCH_WINDOWS = 4,
    LW_BENCH_WINDOW_ROWS_MAX = 8,
    LW_BENCH_LIST_MAX = 4,       /* values of --more-prompt, --streams and --depth each */
    LW_BENCH_REPS_MAX = 1000,
};

/* Rows of the windows that are measured; the first is a plain step. */
extern const uint32_t lw_bench_window_rows[LW_BENCH_WINDOWS];

/* Several numbers of one option. */
typedef struct lw_bench_list {
    lw_option_list texts;
    uint32_t values[LW_BENCH_LIST_MAX], count;
} lw_bench_list;

/* What is sampled once in each repetition; those with an index take LW_BENCH_LIST_MAX or WINDOWS of them. */
typedef enum lw_bench_series {
    LW_BENCH_PROMPT,             /* tokens a second */
    LW_BENCH_FIRST,              /* nanoseconds from a prompt to its reply's first token */
    LW_BENCH_DECODE,             /* tokens a second */
    LW_BENCH_READS,              /* bytes a second */
    LW_BENCH_WINDOW,             /* nanoseconds */
    LW_BENCH_MORE_PROMPT = LW_BENCH_WINDOW + LW_BENCH_WINDOWS,      /* tokens a second */
    LW_BENCH_STREAMS = LW_BENCH_MORE_PROMPT + LW_BENCH_LIST_MAX,    /* tokens a second, of all together */
    LW_BENCH_DEPTH_DECODE = LW_BENCH_STREAMS + LW_BENCH_LIST_MAX,   /* tokens a second */
    LW_BENCH_DEPTH_PROMPT = LW_BENCH_DEPTH_DECODE + LW_BENCH_LIST_MAX,
    LW_BENCH_SERIES = LW_BENCH_DEPTH_PROMPT + LW_BENCH_LIST_MAX,
} lw_bench_series;

typedef struct lw_bench {
    const char *synth_name, *url, *api_key;
    lw_bench_row server_rows[LW_BENCH_ROWS_MAX];
    size_t server_row_count;
    uint32_t prompt, decode, reps;
    lw_bench_list more_prompts, streams, depths;
    bool json, drafts, profiles, tells_config;
    lw_load_options load;
    lw_loaded model;
    lw_synth synth;
    double *scales;              /* [layers] of a cut shape: what each stands for; else NULL */
    lw_profile profile;
    uint64_t weight_bytes;       /* all weights */
    lw_read_bytes token;         /* what one decoded token reads */
    uint64_t load_ns;            /* from weights that lie in memory or in a mapped file to an open engine */
    uint64_t anon_before, anon_after;    /* resident anonymous memory around loading */
    uint64_t resident, resident_max;     /* all resident memory after loading, and at most until then */
    lw_device_counts decode_counts;      /* of all repetitions' replies */
    bool has_counts;
    uint64_t stream_rounds, stream_rounds_ahead;   /* of all repetitions' streams */
    uint32_t windows;            /* of lw_bench_window_rows, those that the model's rounds have room for */
    double *samples;             /* [LW_BENCH_SERIES][reps] */
    lw_draft_result *draft_results;      /* [reps][LW_DRAFT_ROWS]; NULL: not asked for */
} lw_bench;

static inline double *lw_bench_samples(const lw_bench *b, unsigned series)
{
    return &b->samples[(size_t)series * b->reps];
}

/* Positions that a decoded token of this run looks back on, in the mean. */
static inline uint32_t lw_bench_positions(const lw_bench *b)
{
    return b->prompt + b->decode / 2;
}

/* Prints what was measured, in words or as one JSON object; sorts the samples. */
void lw_bench_report(lw_bench *b, const char *name);

#endif
