/* `lanewise bench MODEL --url U`: what a server keeps of the speed that the bare engine has. */
#ifndef LW_CLI_BENCH_URL_H
#define LW_CLI_BENCH_URL_H

#include "cli/http_client.h"

enum { LW_BENCH_STREAMS_MAX = 8 };

/* One measurement: so many streams at once. */
typedef struct lw_bench_row {
    uint32_t streams;
    bool is_resumed;             /* the same prompts again; else prompts that nobody asked before */
    uint32_t prompt_tokens, cached_tokens, tokens;     /* of all streams */
    double first_ms;             /* mean time to the first token */
    double stream_tokens_per_s;  /* mean of the streams, after their first token */
    double tokens_per_s;         /* of all together, from the first request to the last token */
} lw_bench_row;

enum { LW_BENCH_ROWS_MAX = 8 };

typedef struct lw_bench_url {
    lw_http_server server;
    uint32_t prompt_words, tokens;
    uint64_t salt;               /* of prompts, so that each run asks new ones */
} lw_bench_url;

/* 1, 2, 4 and 8 streams, each cold and then resumed. */
lw_status lw_bench_url_run(const lw_bench_url *bench, lw_bench_row rows[LW_BENCH_ROWS_MAX], size_t *count,
                           lw_diag *d) LW_MUST_USE;

/* A table on standard output; bare_tokens_per_s is what the engine alone decodes. */
void lw_bench_url_print(const lw_bench_row *rows, size_t count, double bare_tokens_per_s);
json_t *lw_bench_url_json(const lw_bench_row *rows, size_t count, double bare_tokens_per_s);

#endif
