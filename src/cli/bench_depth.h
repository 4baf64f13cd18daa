/* Steps of a stream that looks back on many positions. Its history is not computed: the pages of some real
 * rows are copied over the whole pool, so a long one costs a copy and is read from memory like any other.
 */
#ifndef LW_CLI_BENCH_DEPTH_H
#define LW_CLI_BENCH_DEPTH_H

#include "lane/engine.h"

typedef struct lw_depth_result {
    double decode_tok_s;         /* one row a forward, logits wanted, half a stretch past an anchor */
    double prompt_tok_s;         /* the largest forward's rows, of which the last one's logits are wanted */
} lw_depth_result;

/* Positions that an engine's pool must hold for depths of so many: the rows that are run lie behind them. */
uint32_t lw_bench_depth_positions(uint32_t depth, uint32_t chunk_rows);

/* Measures at each of depths[0, count). No stream may be open on engine. LW_NO_ROOM where its pool is smaller
 * than lw_bench_depth_positions says. */
lw_status lw_bench_depth_run(lw_engine *engine, const uint32_t *depths, uint32_t count,
                             lw_depth_result *results, lw_diag *d) LW_MUST_USE;

#endif
