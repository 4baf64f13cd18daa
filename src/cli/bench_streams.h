/* Several streams at once, in the rounds that `serve` uses: what they decode together. */
#ifndef LW_CLI_BENCH_STREAMS_H
#define LW_CLI_BENCH_STREAMS_H

#include "lane/engine.h"

typedef struct lw_bench_streams {
    uint32_t streams;            /* at most the engine's lanes */
    uint32_t prompt, tokens;     /* of each stream */
} lw_bench_streams;

typedef struct lw_streams_result {
    double tokens_per_s; /* of all together, from the round in which the last of them drew its first token
                            to the one in which the first of them ended */
    uint64_t rounds, rounds_ahead;   /* of all; of these, those submitted while the one before ran */
} lw_streams_result;

/* No stream may be open on engine. */
lw_status lw_bench_streams_run(lw_engine *engine, const lw_bench_streams *what, lw_streams_result *out,
                               lw_diag *d) LW_MUST_USE;

#endif
